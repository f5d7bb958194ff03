"""llama.cpp, by the package xllamacpp, with a GGUF file: one thread, all in fp32."""

import xllamacpp


def server(path):
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = 256
    params.n_parallel = 1
    params.warmup = False
    params.verbosity = 0
    params.cpuparams.n_threads = 1
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    return xllamacpp.Server(params)

"""llama.cpp, by the package xllamacpp, with a GGUF file: one thread, all in fp32."""

import sys

import xllamacpp


class Llama:
    def __init__(self, path):
        params = xllamacpp.CommonParams()
        params.model.path = path
        params.n_ctx = 256
        params.n_parallel = 1
        params.warmup = False
        params.verbosity = 0
        params.cpuparams.n_threads = 1
        params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self.server = xllamacpp.Server(params)

    def complete(self, prompt, tokens, **more):
        """The choice of a greedy completion."""
        reply = self.server.handle_completions({"prompt": prompt, "max_tokens": tokens, "temperature": 0, **more})
        return reply["choices"][0] if "choices" in reply else sys.exit(f"llama.cpp: {reply}")

    def answer(self, question):
        reply = self.server.handle_chat_completions(
            {"messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": 60})
        return reply["choices"][0]["message"]["content"] if "choices" in reply else reply

#!/usr/bin/env python3
# make_mixtral.py -- loss, aux_loss and gradients of a small Mixtral by transformers in float64: mixtral.txt, for
# tests/fork/test_mixtral.cpp. Run it in this folder; needs torch and transformers 4.44. The file has config.json, then
# "loss X" and "aux_loss X", and a line for each tensor: its name, the norm of its gradient, and the gradient's products
# with SIGNS vectors of 1 and -1.
import json

import torch
import transformers

B, T, V, SIGNS = 2, 24, 40, 4
config = dict(model_type="mixtral", hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
              num_key_value_heads=1, vocab_size=V, max_position_embeddings=32, hidden_act="silu", rms_norm_eps=1e-5,
              rope_theta=10000.0, tie_word_embeddings=False, num_local_experts=4, num_experts_per_tok=2,
              router_aux_loss_coef=0.5, router_jitter_noise=0.0, sliding_window=None)


def hashes(key, n):
    h = ((key * 7919 + torch.arange(n)) * 2654435761) % 2**32
    h = ((h ^ (h >> 15)) * 2246822519) % 2**32
    return h ^ (h >> 13)


def names():
    yield "lm_head.weight"
    yield "model.embed_tokens.weight"
    for layer in range(config["num_hidden_layers"]):
        block = f"model.layers.{layer}."
        yield block + "input_layernorm.weight"
        yield from (block + f"self_attn.{part}_proj.weight" for part in "qkvo")
        yield block + "post_attention_layernorm.weight"
        moe = block + "block_sparse_moe."
        yield moe + "gate.weight"
        for e in range(config["num_local_experts"]):
            yield from (moe + f"experts.{e}.{w}.weight" for w in ("w1", "w3", "w2"))
    yield "model.norm.weight"


torch.float = torch.float64                         # its router and its loss would compute in float32
torch.Tensor.float = torch.Tensor.double
torch.set_default_dtype(torch.float64)
made = transformers.MixtralConfig(**config, attn_implementation="eager")
model = transformers.MixtralForCausalLM(made)
parameters = dict(model.named_parameters())
with torch.no_grad():
    for key, name in enumerate(names()):
        p = parameters[name]
        h = hashes(key, p.numel()).double().reshape(p.shape)
        scale = 512 if "gate" in name else 256      # the router's larger choices are clear
        p.copy_((96 + h % 64) / 128 if "norm" in name else (h % 256 * 2 - 255) / scale)
assert len(parameters) == key + 1
tokens, targets = (hashes(1000 + i, B * T).reshape(B, T) % V for i in range(2))
out = model(tokens, output_router_logits=True, use_cache=False)
loss = torch.nn.functional.cross_entropy(out.logits.reshape(-1, V), targets.reshape(-1))
(loss + config["router_aux_loss_coef"] * out.aux_loss).backward()
p = torch.softmax(torch.cat(out.router_logits), 1).sort(1, descending=True).values
assert (p[:, 1] - p[:, 2]).min() > 5e-5             # no choice is so close that float32 makes another
with open("mixtral.txt", "w") as file:
    file.write(json.dumps(config) + "\n")
    file.write("loss %.12g\naux_loss %.12g\n" % (float(loss), float(out.aux_loss)))
    for key, name in enumerate(names()):
        g = parameters[name].grad.reshape(-1)
        signs = [hashes(2000 + key * SIGNS + k, g.numel()) % 2 * 2.0 - 1 for k in range(SIGNS)]
        file.write(" ".join([name] + ["%.12g" % float(x) for x in [g.norm()] + [g @ s for s in signs]]) + "\n")

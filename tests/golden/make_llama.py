#!/usr/bin/env python3
# make_llama.py -- losses and gradient norms of 20 AdamW steps, and logits, of small models of the Llama family by
# transformers in float64: llama.txt, for tests/models/test_llama.cpp. Run it in this folder; needs torch and
# transformers 5. For each case four lines: NAME and config.json, then "losses ...", "norms ..." (before clipping) and
# "logits ..." (those of the last position of the first sequence, before the first step).
import json

import torch
import transformers

B, T, V = 2, 33, 317
common = dict(hidden_size=56, num_attention_heads=7, vocab_size=V, max_position_embeddings=40, hidden_act="silu",
              eos_token_id=0, bos_token_id=0)
scaled = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
cases = {
    "llama": dict(model_type="llama", num_hidden_layers=2, num_key_value_heads=1, head_dim=24, intermediate_size=72,
                  rms_norm_eps=1e-5, tie_word_embeddings=True, rope_theta=10000.0, rope_scaling=None),
    "scaled": dict(model_type="llama", num_hidden_layers=3, num_key_value_heads=7, head_dim=24, intermediate_size=80,
                   rms_norm_eps=1e-5, tie_word_embeddings=False, rope_parameters=scaled),
    "qwen2": dict(model_type="qwen2", num_hidden_layers=2, num_key_value_heads=1, head_dim=24, intermediate_size=72,
                  rms_norm_eps=1e-6, tie_word_embeddings=True, rope_theta=1000000.0, use_sliding_window=False,
                  sliding_window=32),
    "qwen3": dict(model_type="qwen3", num_hidden_layers=2, num_key_value_heads=7, head_dim=16, intermediate_size=72,
                  rms_norm_eps=1e-6, tie_word_embeddings=True, rope_theta=1000000.0),
    "qwen3-grouped": dict(model_type="qwen3", num_hidden_layers=3, num_key_value_heads=1, head_dim=24,
                          intermediate_size=72, rms_norm_eps=1e-6, tie_word_embeddings=True, rope_theta=1000000.0),
    "mistral": dict(model_type="mistral", num_hidden_layers=2, num_key_value_heads=7, head_dim=24,
                    intermediate_size=72, rms_norm_eps=1e-5, tie_word_embeddings=False, rope_theta=10000.0,
                    sliding_window=8),
    "qwen2-window": dict(model_type="qwen2", num_hidden_layers=3, num_key_value_heads=1, head_dim=24,
                         intermediate_size=72, rms_norm_eps=1e-6, tie_word_embeddings=True, rope_theta=1000000.0,
                         use_sliding_window=True, sliding_window=5, max_window_layers=2),
    "qwen3-window": dict(model_type="qwen3", num_hidden_layers=3, num_key_value_heads=1, head_dim=16,
                         intermediate_size=72, rms_norm_eps=1e-6, tie_word_embeddings=True, rope_theta=1000000.0,
                         use_sliding_window=True, sliding_window=12, max_window_layers=28,
                         layer_types=["full_attention", "sliding_attention", "sliding_attention"]),
}
classes = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}


def hashes(key, n):
    h = ((key * 7919 + torch.arange(n)) * 2654435761) % 2**32
    h = ((h ^ (h >> 15)) * 2246822519) % 2**32
    return h ^ (h >> 13)


def in_file_order(model, config):
    names = [] if config["tie_word_embeddings"] else ["lm_head.weight"]
    names.append("model.embed_tokens.weight")
    for layer in range(config["num_hidden_layers"]):
        att, mlp = [f"model.layers.{layer}.{part}." for part in ("self_attn", "mlp")]
        names.append(f"model.layers.{layer}.input_layernorm.weight")
        names += [att + p + "_proj.weight" for p in "qkv"] + [att + p + "_proj.bias" for p in "qkv"]
        names += [att + "q_norm.weight", att + "k_norm.weight", att + "o_proj.weight"]
        names += [f"model.layers.{layer}.post_attention_layernorm.weight"]
        names += [mlp + p + "_proj.weight" for p in ("gate", "up", "down")]
    names.append("model.norm.weight")
    all_of_it = dict(model.named_parameters())
    chosen = [(name, all_of_it.pop(name)) for name in names if name in all_of_it]
    assert not all_of_it, list(all_of_it)
    return chosen


def line(name, x):
    return name + " " + " ".join("%.9g" % float(v) for v in x) + "\n"


def run(name, config):
    config = common | config
    kind = classes[config["model_type"]]
    made = getattr(transformers, kind + "Config")(**config, attn_implementation="eager")
    model = getattr(transformers, kind + "ForCausalLM")(made).double().train()
    parameters = in_file_order(model, config)
    with torch.no_grad():
        for key, (tensor, p) in enumerate(parameters):
            h = hashes(key, p.numel())
            x = (96 + h % 64) / 128 if "norm" in tensor else ((h % 256) * 2 - 255) / 1024      # exact in bf16, too
            p.copy_(x.double().view(p.shape))
    decayed = [p for _, p in parameters if p.dim() > 1]
    others = [p for _, p in parameters if p.dim() == 1]
    adamw = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                              lr=3e-3, betas=(0.9, 0.95), eps=1e-8)
    losses, norms, logits = [], [], None
    for step in range(20):
        batch = (hashes(1000 + step % 4, B * (T + 1)) % V).view(B, T + 1)
        out = model(batch[:, :-1]).logits
        if logits is None:
            logits = out[0, -1].detach()
        loss = torch.nn.functional.cross_entropy(out.reshape(-1, V), batch[:, 1:].reshape(-1))
        adamw.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
        losses.append(loss.detach())
        adamw.step()
    return name + " " + json.dumps(config) + "\n" + line("losses", losses) + line("norms", norms) + \
        line("logits", logits)


with open("llama.txt", "w") as f:
    for name, config in cases.items():
        f.write(run(name, config))

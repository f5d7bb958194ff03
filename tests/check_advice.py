#!/usr/bin/env python3
"""What others save of a model, for which train_gpt names a command.

    check_advice.py FORM BASE FOLDER    writes the model of a Hugging Face folder in another form (below); where that is
                                        another model, FOLDER-want has it. exit 77: a package is not here
    check_advice.py data KIND FILE      writes texts or tokens as a file of another kind
    check_advice.py obey SAID FILE INTO does with FILE what an error says
"""

import importlib
import os
import re
import shutil

import numpy

import hugging_face
import torch
import transformers


def needs(module):
    try:
        return importlib.import_module(module)
    except ImportError:
        hugging_face.skip(f"no Python with {module}")


def weights_of(base, before=""):
    return {before + name: w for name, w in hugging_face.load(base).state_dict().items()}


def trainer(base, folder):
    for step in (500, 1000):
        shutil.copytree(base, f"{folder}/checkpoint-{step}")


def hub(base, folder):
    shutil.copytree(base, f"{folder}/models--x--y/snapshots/0123abcd")


def nanogpt(base, folder, bias=True):
    needs("torch.distributed.checkpoint")           # torch before 2 reads no such file without --trust
    model = hugging_face.load(base)
    if not bias:
        for name, p in model.named_parameters():
            if name.endswith("bias"):
                torch.nn.init.zeros_(p)
        model.save_pretrained(folder + "-want")
    turned = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
    weights = {"_orig_mod." + name: w.t() if name.endswith(turned) else w for name, w in model.state_dict().items()
               if bias or not name.endswith("bias")}
    c = model.config
    args = {"n_layer": c.n_layer, "n_head": c.n_head, "n_embd": c.n_embd, "block_size": c.n_positions, "bias": bias,
            "vocab_size": c.vocab_size, "dropout": 0.0}
    torch.save({"model": weights, "optimizer": {"state": {}}, "model_args": args, "iter_num": 1,
                "best_val_loss": torch.tensor(1.0), "config": {"out_dir": "out"}}, folder + "/ckpt.pt")


def nanogpt_bare(base, folder):
    nanogpt(base, folder, bias=False)


def lightning(base, folder):
    lightning = needs("lightning")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = hugging_face.load(base)

        def training_step(self, batch, _):
            return self.net(batch, labels=batch).loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.0)

    trainer = lightning.Trainer(accelerator="cpu", max_steps=1, logger=False, enable_checkpointing=False)
    trainer.fit(Module(), torch.utils.data.DataLoader(torch.zeros(1, 8, dtype=torch.long)))
    trainer.save_checkpoint(folder + "/epoch=0-step=1.ckpt")


def pickle(base, folder):
    hugging_face.load(base).config.save_pretrained(folder)
    torch.save(weights_of(base), folder + "/pytorch_model.bin")


def pickles(base, folder):
    hugging_face.load(base).config.save_pretrained(folder)
    parts, index = [{}, {}], {}
    for i, (name, w) in enumerate(weights_of(base).items()):
        parts[i % 2][name], index[name] = w, f"pytorch_model-{i % 2}.bin"
    for i in (0, 1):
        torch.save(parts[i], f"{folder}/pytorch_model-{i}.bin")
    with open(folder + "/pytorch_model.bin.index.json", "w", encoding="utf-8") as file:
        hugging_face.json.dump({"metadata": {}, "weight_map": index}, file)


def torch_file(base, folder):
    torch.save({"module": weights_of(base, "module.")}, folder + "/mp_rank_00_model_states.pt")


def fsdp(base, folder):
    needs("accelerate")
    hugging_face.load(base).config.save_pretrained(folder)
    needs("torch.distributed.checkpoint").save({"model": weights_of(base)},
                                               checkpoint_id=folder + "/pytorch_model_fsdp_0")


def shards(base, folder):
    needs("torch.distributed.checkpoint").save({"app": {"model": weights_of(base, "_fsdp_wrapped_module.")}},
                                               checkpoint_id=folder)


def deepspeed(base, folder):
    for name, value in dict(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0").items():
        os.environ[name] = value
    deepspeed = needs("deepspeed")
    deepspeed.init_distributed("gloo", rank=0, world_size=1)
    model = hugging_face.load(base)
    model.config.save_pretrained(folder)
    config = {"train_batch_size": 1, "zero_optimization": {"stage": 2}, "zero_allow_untested_optimizer": True}
    deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), 0.1),
                         config=config)[0].save_checkpoint(folder)


def litgpt(base, folder):
    convert = needs("litgpt.scripts.convert_hf_checkpoint")
    c = hugging_face.load(base).config
    config = needs("litgpt").Config(
        name="tiny", block_size=c.max_position_embeddings, vocab_size=c.vocab_size, padded_vocab_size=c.vocab_size,
        n_layer=c.num_hidden_layers, n_head=c.num_attention_heads, n_query_groups=c.num_key_value_heads,
        n_embd=c.hidden_size, intermediate_size=c.intermediate_size, norm_eps=c.rms_norm_eps, rotary_percentage=1.0,
        parallel_residual=False, bias=False, norm_class_name="RMSNorm", mlp_class_name="LLaMAMLP")
    weights = {}
    convert.copy_weights_hf_llama(config, {}, weights, weights_of(base))
    torch.save(weights, folder + "/lit_model.pth")
    needs("litgpt.utils").save_config(config, needs("pathlib").Path(folder))
    shutil.copy(base + "/config.json", folder)


def adapted(base, folder, rows=0, **config):
    peft = needs("peft")
    model = hugging_face.load(base)
    if rows:
        model.resize_token_embeddings(rows)
    model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", r=8, **config))
    for p in model.parameters():
        if p.requires_grad:
            torch.nn.init.normal_(p, std=0.1)
    model.save_pretrained(folder, save_embedding_layers=bool(rows))
    shutil.copy(base + "/tokens.npy", folder)
    model.merge_and_unload().save_pretrained(folder + "-want")


def grown(base, folder):
    adapted(base, folder, rows=328)


def dora(base, folder):
    adapted(base, folder, use_dora=True)


def embedding(base, folder):
    adapted(base, folder, target_modules=["wte", "c_attn"] if "gpt2" in base else ["embed_tokens", "q_proj"])


def saved(base, folder):
    adapted(base, folder, modules_to_save=["lm_head"])


def data(kind, path):
    texts, ids = [f"Text {i} of a table." for i in range(60)], torch.arange(600) * 7919 % 65
    if kind in ("feather", "parquet"):
        needs("pyarrow")
        getattr(needs("pandas").DataFrame({"text": texts}), "to_" + kind)(path)
    elif kind == "arrow":
        needs("datasets").Dataset.from_dict({"text": texts}).save_to_disk(path + ".d")
        shutil.copy(path + ".d/data-00000-of-00001.arrow", path)
    elif kind == "npz":
        numpy.savez(path, NAME=ids.numpy().astype("<u2"))
    elif kind == "pt":
        torch.save(ids, path)
    else:
        ids.numpy().astype("u1").tofile(path)


def obey(said, path, into):
    code = re.findall(r"((?:pandas|datasets|numpy)\..*\)) makes it", open(said, encoding="utf-8").read())[0]
    names = [into, path] if code.startswith("numpy.save") else [path, into]
    for name in names:
        code = code.replace("(FILE", f"({name!r}", 1)
    code = code.replace("'NAME.u16.bin'", repr(into)).replace("[NAME]", "['NAME']")
    exec(code, {"numpy": numpy, "torch": torch, **{m: needs(m) for m in ("pandas", "datasets") if m in code}})


if __name__ == "__main__":
    hugging_face.run({f.__name__: f for f in (
        trainer, hub, nanogpt, nanogpt_bare, lightning, pickle, pickles, torch_file, fsdp, shards, deepspeed, litgpt,
        grown, dora, embedding, saved, data, obey)})

#!/usr/bin/env python3
"""Tiny random checkpoints of the Llama family with the logits that transformers computes for them (float32, eager attention).

usage: tiny_llama.py OUT_DIR [CASE...]         (needs torch, transformers, safetensors)

Each case is a Hugging Face directory plus expect.bin:
  u32 magic 'LGT1', u32 tokens, u32 rows, u32 vocab; i32 ids[tokens]; i32 argmax[tokens];
  i32 row_index[rows]; f32 logits[rows][vocab]; f32 logits_range (max - min over all positions)
Expected logits are those of the whole text at once, except with dynamic RoPE: there transformers' logits depend on how a
text is cut once it is longer than the original context, and those of one token after the other are expected.
Weights are larger than a real initialisation's, so that attention is not uniform and logits spread.
"""
import json
import os
import shutil
import struct
import sys

import torch
import transformers
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM

FAMILIES = {"llama": (LlamaConfig, LlamaForCausalLM), "mistral": (MistralConfig, MistralForCausalLM), "qwen2": (Qwen2Config, Qwen2ForCausalLM)}

# name, config (model_type: llama unless stated), dtype, tokens, shards, spelling of the RoPE parameters
CASES = [
    ("tied_bf16_mha", dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                           num_key_value_heads=4, vocab_size=300, tie_word_embeddings=True), torch.bfloat16, 48, 1, "old"),
    ("untied_bias_f32_gqa8", dict(hidden_size=72, intermediate_size=100, num_hidden_layers=2, num_attention_heads=8,
                                  num_key_value_heads=1, head_dim=10, vocab_size=261, tie_word_embeddings=False,
                                  attention_bias=True, mlp_bias=True), torch.float32, 48, 1, "old"),
    ("odd_f16_long", dict(hidden_size=40, intermediate_size=57, num_hidden_layers=2, num_attention_heads=5,
                          num_key_value_heads=1, head_dim=12, vocab_size=263, tie_word_embeddings=True), torch.float16, 530, 1, "new"),
    ("llama3_rope_shards", dict(hidden_size=64, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4,
                                num_key_value_heads=2, head_dim=16, vocab_size=300, tie_word_embeddings=False,
                                rope_parameters=dict(rope_type="llama3", rope_theta=50000.0, factor=8.0, low_freq_factor=1.0,
                                                     high_freq_factor=4.0, original_max_position_embeddings=64)),
     torch.bfloat16, 200, 2, "new"),
    ("linear_rope", dict(hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=6,
                         num_key_value_heads=3, head_dim=8, vocab_size=257, tie_word_embeddings=True,
                         rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0)), torch.float32, 100, 1, "old"),
    # biases on q, k and v without a key that says so; a window that is stated and off
    ("qwen2", dict(model_type="qwen2", hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
                   vocab_size=270, tie_word_embeddings=True, use_sliding_window=False, sliding_window=16, max_window_layers=1,
                   rope_parameters=dict(rope_type="default", rope_theta=1000000.0)), torch.bfloat16, 80, 1, "old"),
    # Qwen2.5's way to a long context: max_position_embeddings stays the original
    ("qwen2_yarn", dict(model_type="qwen2", hidden_size=64, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                        vocab_size=259, tie_word_embeddings=True, max_position_embeddings=64,
                        rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=64)),
     torch.float16, 250, 1, "old"),
    ("yarn_mscale", dict(hidden_size=64, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=258,
                         tie_word_embeddings=True,
                         rope_parameters=dict(rope_type="yarn", rope_theta=500.0, factor=16.0, original_max_position_embeddings=64, beta_fast=8.0,
                                              beta_slow=2.0, mscale=0.8, mscale_all_dim=0.5)), torch.float32, 200, 1, "new"),
    # a head_dim that is not hidden_size / heads, and a text as long as the window
    ("mistral_window", dict(model_type="mistral", hidden_size=40, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4,
                            num_key_value_heads=2, head_dim=16, vocab_size=262, tie_word_embeddings=False, sliding_window=60),
     torch.bfloat16, 60, 1, "new"),
    ("dynamic_rope", dict(hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4, vocab_size=260,
                          tie_word_embeddings=True, max_position_embeddings=64,
                          rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, factor=4.0)), torch.bfloat16, 180, 1, "old"),
]
ROWS = 24


def byte_symbols():
    """The printable stand-ins of the 256 bytes that byte-level BPE uses."""
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    out, n = {}, 0
    for b in range(256):
        out[b] = chr(b) if b in keep else chr(256 + n)
        n += b not in keep
    return out


def tokenizer_json(vocab):
    toks = {s: b for b, s in byte_symbols().items()}
    extra = [{"id": 256, "content": "<|end|>", "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True}]
    assert vocab >= 257
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": extra, "normalizer": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "post_processor": None,
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": toks, "merges": []}}


def config_json(cfg, kw, dtype, spelling):
    d = {"architectures": [FAMILIES[cfg.model_type][1].__name__], "model_type": cfg.model_type, "hidden_act": "silu", "bos_token_id": 256, "eos_token_id": 256,
         "max_position_embeddings": 1024, "rms_norm_eps": cfg.rms_norm_eps}
    d.update({k: v for k, v in kw.items() if k != "rope_parameters"})
    rope = dict(kw.get("rope_parameters", dict(rope_type="default", rope_theta=10000.0)))
    name = str(dtype).split(".")[1]
    if spelling == "new":
        d["rope_parameters"], d["dtype"] = rope, name
    else:
        d["rope_theta"], d["torch_dtype"] = rope.pop("rope_theta"), name
        d["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    return d


def one_by_one(model, ids):
    cache, rows = transformers.DynamicCache(), []
    for i in range(ids.shape[1]):
        rows.append(model(ids[:, i:i + 1], past_key_values=cache, use_cache=True).logits[0, 0].float())
    return torch.stack(rows)


def write(out, name, kw, dtype, tokens, shards, spelling):
    torch.manual_seed(len(name) * 1000 + tokens)
    kw = dict(kw)
    kw.setdefault("rope_parameters", dict(rope_type="default", rope_theta=10000.0))
    make_config, make_model = FAMILIES[kw.pop("model_type", "llama")]
    kw.setdefault("max_position_embeddings", 1024)
    cfg = make_config(rms_norm_eps=1e-5, bos_token_id=256, eos_token_id=256, attn_implementation="eager", **kw)
    model = make_model(cfg).eval()
    with torch.no_grad():
        for n, p in model.named_parameters():
            p.copy_(torch.randn_like(p) * (0.6 / p.shape[-1] ** 0.5 if p.dim() == 2 else 0.1) * 2 + (1.0 if "norm" in n else 0.0))
            p.copy_(p.to(dtype).float())
    ids = torch.randint(0, kw["vocab_size"], (1, tokens))
    with torch.no_grad():
        logits = one_by_one(model, ids) if kw["rope_parameters"]["rope_type"] == "dynamic" else model(ids).logits[0].float()
    path = os.path.join(out, name)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    state = {k: v.to(dtype).contiguous() for k, v in model.state_dict().items()
             if not (kw["tie_word_embeddings"] and k == "lm_head.weight")}
    if shards == 1:
        save_file(state, os.path.join(path, "model.safetensors"), metadata={"format": "pt"})
    else:
        keys, index = sorted(state), {}
        for s in range(shards):
            fn = f"model-{s + 1:05d}-of-{shards:05d}.safetensors"
            part = {k: state[k] for k in keys[s::shards]}
            save_file(part, os.path.join(path, fn), metadata={"format": "pt"})
            index.update({k: fn for k in part})
        json.dump({"metadata": {"total_size": sum(v.numel() * v.element_size() for v in state.values())}, "weight_map": index},
                  open(os.path.join(path, "model.safetensors.index.json"), "w"), indent=1)
    json.dump(config_json(cfg, kw, dtype, spelling), open(os.path.join(path, "config.json"), "w"), indent=1)
    json.dump(tokenizer_json(kw["vocab_size"]), open(os.path.join(path, "tokenizer.json"), "w"))
    rows = sorted({0, 1, tokens - 1, tokens // 2} | {int(i) for i in torch.linspace(0, tokens - 1, ROWS)})
    with open(os.path.join(path, "expect.bin"), "wb") as f:
        f.write(struct.pack("<4I", 0x3154474C, tokens, len(rows), kw["vocab_size"]))
        f.write(ids[0].to(torch.int32).numpy().tobytes())
        f.write(logits.argmax(-1).to(torch.int32).numpy().tobytes())
        f.write(struct.pack(f"<{len(rows)}i", *rows))
        f.write(logits[rows].numpy().tobytes())
        f.write(struct.pack("<f", float(logits.max() - logits.min())))
    print(name, "logit range", float(logits.max() - logits.min()))


def main():
    out = sys.argv[1]
    for case in CASES:
        if len(sys.argv) == 2 or case[0] in sys.argv[2:]:
            write(out, *case)
    with open(os.path.join(out, "MADE"), "w") as f:
        f.write(f"tests/golden/gen/tiny_llama.py, torch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}\n")


main()

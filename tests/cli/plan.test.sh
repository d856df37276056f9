#!/bin/sh
# llmq plan: published parameter counts, the worked example of keys and values, sizes of files that are then written.
set -eu
llmq=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
fail() { echo "plan: $*"; exit 1; }

python3 - "$llmq" "$tmp" << 'PY' || fail "shapes"
import json, os, subprocess, sys
llmq, tmp = sys.argv[1:]


def plan(config, *args):
    path = tmp + "/config.json"
    json.dump(dict(dict(model_type="llama", rms_norm_eps=1e-5), **config), open(path, "w"))
    return json.loads(subprocess.run([llmq, "plan", path, "--json", *args], check=True, stdout=subprocess.PIPE).stdout)


def sizes(d, ff, layers, heads, kv, vocab, ctx, **more):
    return dict(hidden_size=d, intermediate_size=ff, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv, vocab_size=vocab,
                max_position_embeddings=ctx, **more)


llama2 = sizes(4096, 11008, 32, 32, 32, 32000, 4096)
published = [                                        # of the models' own cards or safetensors indexes
    ("Llama-2-7B", llama2, 6738415616),
    ("Llama-3-8B", sizes(4096, 14336, 32, 32, 8, 128256, 8192), 8030261248),
    ("Llama-3.1-70B", sizes(8192, 28672, 80, 64, 8, 128256, 131072), 70553706496),
    ("Mistral-7B", sizes(4096, 14336, 32, 32, 8, 32000, 32768, model_type="mistral", sliding_window=None), 7241732096),
    ("Qwen2.5-0.5B", sizes(896, 4864, 24, 14, 2, 151936, 32768, model_type="qwen2", tie_word_embeddings=True), 494032768),
    ("Qwen2.5-7B", sizes(3584, 18944, 28, 28, 4, 152064, 131072, model_type="qwen2"), 7615616512),
    ("SmolLM2-135M", sizes(576, 1536, 30, 9, 3, 49152, 8192, tie_word_embeddings=True), 134515008),
    ("TinyLlama-1.1B", sizes(2048, 5632, 22, 32, 4, 32000, 2048), 1100048384),
]
for name, config, want in published:
    p = plan(config)["parameters"]
    assert p["total"] == want == sum(p[k] for k in ("layers", "embedding", "output_head", "vectors")), (name, p)

# 32 layers, 32 heads x 128, 4096 tokens, batch 16, 2 bytes: 34.4 GB
p = plan(llama2, "--batch", "16")
f16, f32 = p["kv"]
assert f16 == {"dtype": "f16", "bytes_per_token": 524288, "bytes_per_sequence": 2147483648, "bytes": 34359738368}, f16
assert f32["bytes"] == 2 * f16["bytes"]
text = subprocess.run([llmq, "plan", tmp + "/config.json", "--batch", "16"], check=True, stdout=subprocess.PIPE, text=True).stdout
assert "34.4 GB" in text and "parameters   6.74 G" in text and "a file is larger by the tokenizer's text" in text, text

# what fits: weights, work space and whole sequences; one byte less is one sequence less
bf16 = p["schemes"][0]
exact = bf16["weight_bytes"] + p["scratch_bytes"] + 3 * f16["bytes_per_sequence"]
for memory, want in ((exact, 3), (exact - 1, 2)):
    fit = plan(llama2, "--memory", str(memory))["schemes"][0]["fits"][0]
    assert fit == {"kv_dtype": "f16", "sequences": want, "longest_context": 4096}, fit
none = plan(llama2, "--memory", "1G")["schemes"][0]["fits"][0]
assert none["sequences"] == none["longest_context"] == 0, none

# ranks: matrices divided, key and value heads divided, then repeated
mha, gqa = plan(llama2, "--tensor-parallel", "4"), plan(published[1][1], "--tensor-parallel", "16")
vectors = 2 * mha["parameters"]["vectors"]
assert mha["schemes"][0]["rank_bytes"] == (mha["schemes"][0]["weight_bytes"] - vectors) // 4 + vectors
assert mha["kv"][0]["bytes_per_token"] == 524288 // 4 and gqa["kv"][0]["bytes_per_token"] == 2 * 32 * 1 * 128 * 2
for config, ranks, says in ((llama2, 5, "32 query heads cannot be divided over 5 ranks"), (sizes(64, 96, 1, 12, 6, 50, 64, head_dim=8), 4, "6 key and value heads"),
                            (sizes(64, 90, 1, 4, 4, 50, 64), 4, "a feed-forward width of 90")):
    json.dump(dict(dict(model_type="llama", rms_norm_eps=1e-5), **config), open(tmp + "/config.json", "w"))
    r = subprocess.run([llmq, "plan", tmp + "/config.json", "--tensor-parallel", str(ranks)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert r.returncode == 2 and says in r.stderr and not r.stdout, r

# the largest that a configuration may state is either planned or refused, and never wraps
huge = sizes(1 << 20, 1 << 22, 4096, 4096, 4096, 1 << 24, 1 << 28, head_dim=4096)
json.dump(dict(dict(model_type="llama", rms_norm_eps=1e-5), **huge), open(tmp + "/config.json", "w"))
r = subprocess.run([llmq, "plan", tmp + "/config.json", "--batch", "16777216"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
assert r.returncode == 1 and "more than 2^64 bytes" in r.stderr, r

# a directory with a tokenizer: the sizes of the files that are then written, but for provenance and names
demo = "calib_data/demo"
p = json.loads(subprocess.run([llmq, "plan", demo, "--json"], check=True, stdout=subprocess.PIPE).stdout)
beside = json.loads(subprocess.run([llmq, "plan", demo + "/config.json", "--json"], check=True, stdout=subprocess.PIPE).stdout)
assert beside["schemes"] == p["schemes"]
yarn = plan(sizes(64, 96, 1, 4, 4, 50, 32768, rope_scaling={"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}))
assert yarn["ctx"] == yarn["hparams"]["ctx_len"] == 32768 and yarn["hparams"]["max_ctx"] == 131072, yarn
out = tmp + "/x.llmq"
for scheme, args in (("bf16", ["convert"]), ("int8-g128-sym", ["quantize", "--rtn", "--bits", "8"]), ("int8-channel-sym", ["quantize", "--rtn", "--bits", "8", "--group-size", "channel"]),
                     ("int4-g32-asym", ["quantize", "--rtn", "--asym", "--group-size", "32"]), ("int4-g128-sym", ["quantize", "--rtn"])):
    subprocess.run([llmq, args[0], demo, *args[1:], "-o", out, "-q", "--progress", "none"], check=True, stdout=subprocess.DEVNULL)
    found, size = [s for s in p["schemes"] if s["scheme"] == scheme][0], os.path.getsize(out)
    inside = json.loads(subprocess.run([llmq, "inspect", out, "--json"], check=True, stdout=subprocess.PIPE).stdout)
    assert 0 < size - found["file_bytes"] < 10000, (scheme, size, found)
    assert abs(inside["model"]["bits_per_weight"] - found["bits_per_weight"]) < 1e-9, (scheme, inside["model"], found)
    again = json.loads(subprocess.run([llmq, "plan", out, "--json"], check=True, stdout=subprocess.PIPE).stdout)
    assert again["parameters"] == p["parameters"]
PY
echo "plan: published counts, keys and values, ranks, the sizes of files"

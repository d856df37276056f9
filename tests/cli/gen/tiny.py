#!/usr/bin/env python3
"""Writes a tiny Llama checkpoint in Hugging Face form, whole or damaged in one named way.

  tiny.py DIR [--seed N] [--layers N] [--d-model N] [--heads N] [--kv-heads N] [--head-dim N] [--d-ff N] [--vocab N]
          [--dtype F32|F16|BF16] [--untied] [--attn-bias] [--mlp-bias] [--shards N] [--spelling old|new] [--zeros]
          [--damage NAME]
  tiny.py DIR --damage all   every damage, each in DIR/NAME; those of shards and index in three shards
  tiny.py --compare DIR FILE.llmq LISTING.json
                             every tensor of FILE, as `llmq inspect --json` places it, has the checkpoint's bytes

Python's standard library only.  The same arguments give the same bytes."""
import argparse, json, os, random, struct, sys

SIZE = {"F32": 4, "F16": 2, "BF16": 2, "I32": 4, "F64": 8}


def byte_letters():
    """GPT-2's map from bytes to printable characters."""
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    out, n = {}, 0
    for b in range(256):
        out[b] = chr(b) if b in keep else chr(256 + n)
        n += b not in keep
    return out


def tokenizer(vocab_size):
    of_byte = byte_letters()
    letters = [of_byte[b] for b in range(256)]
    vocab = {c: i + 2 for i, c in enumerate(letters)}
    merges = []
    for a, b in [("t", "h"), ("th", "e"), ("i", "n"), ("a", "n"), ("an", "d"), (of_byte[32], "the")]:
        if len(vocab) + 2 >= vocab_size:
            break
        merges.append([a, b])
        vocab[a + b] = len(vocab) + 2
    special = [{"id": i, "content": c, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                "special": True} for i, c in enumerate(["<s>", "</s>"])]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "post_processor": None, "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                                                "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": {"<s>": 0, "</s>": 1, **vocab}, "merges": merges}}


def config(a):
    c = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": a.d_model,
         "intermediate_size": a.d_ff, "num_hidden_layers": a.layers, "num_attention_heads": a.heads,
         "num_key_value_heads": a.kv_heads, "head_dim": a.head_dim, "vocab_size": a.vocab, "hidden_act": "silu",
         "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "tie_word_embeddings": not a.untied,
         "attention_bias": a.attn_bias, "mlp_bias": a.mlp_bias, "bos_token_id": 0, "eos_token_id": 1}
    name = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}[a.dtype]
    if a.spelling == "new":
        c.update(dtype=name, rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
    else:
        c.update(torch_dtype=name, rope_theta=10000.0, rope_scaling=None)
    return c


def shapes(a):
    q, kv = a.heads * a.head_dim, a.kv_heads * a.head_dim
    yield "model.embed_tokens.weight", [a.vocab, a.d_model]
    for i in range(a.layers):
        p = f"model.layers.{i}."
        yield p + "input_layernorm.weight", [a.d_model]
        for n, r, k in [("q", q, a.d_model), ("k", kv, a.d_model), ("v", kv, a.d_model), ("o", a.d_model, q)]:
            yield p + f"self_attn.{n}_proj.weight", [r, k]
            if a.attn_bias:
                yield p + f"self_attn.{n}_proj.bias", [r]
        yield p + "post_attention_layernorm.weight", [a.d_model]
        for n, r, k in [("gate", a.d_ff, a.d_model), ("up", a.d_ff, a.d_model), ("down", a.d_model, a.d_ff)]:
            yield p + f"mlp.{n}_proj.weight", [r, k]
            if a.mlp_bias:
                yield p + f"mlp.{n}_proj.bias", [r]
    yield "model.norm.weight", [a.d_model]
    if a.untied:
        yield "lm_head.weight", [a.vocab, a.d_model]


def encode(values, dtype):
    if dtype == "F32":
        return struct.pack(f"<{len(values)}f", *values)
    if dtype == "F16":
        return struct.pack(f"<{len(values)}e", *values)
    raw = struct.pack(f"<{len(values)}f", *values)
    return b"".join(raw[i + 2:i + 4] for i in range(0, len(raw), 4))


def count(shape):
    n = 1
    for d in shape:
        n *= d
    return n


def tensors(a):
    """[name, dtype, shape, bytes]; --zeros leaves the bytes out and the file sparse."""
    rng = random.Random(a.seed)
    out = []
    for name, shape in shapes(a):
        if a.zeros:
            out.append([name, a.dtype, shape, None])
            continue
        base = 1.0 if "norm" in name else 0.0
        out.append([name, a.dtype, shape, encode([base + rng.uniform(-0.1, 0.1) for _ in range(count(shape))], a.dtype)])
    return out


def header_of(ts):
    h, at = {"__metadata__": {"format": "pt"}}, 0
    for name, dtype, shape, data in ts:
        n = len(data) if data is not None else count(shape) * SIZE[dtype]
        h[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + n]}
        at += n
    return h, at


def write_shard(path, header, ts, total):
    text = header if isinstance(header, str) else json.dumps(header)
    text += " " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text.encode())
        for t in ts:
            if t[3] is not None:
                f.write(t[3])
        f.truncate(8 + len(text) + total)


def split(ts, n):
    per = (len(ts) + n - 1) // n
    return [ts[i:i + per] for i in range(0, len(ts), per)]


# ---- damages: each changes one thing ------------------------------------------------------------

def swap_header(h, text_of):
    """A header whose text is changed by hand (duplicate keys cannot be said in a dict)."""
    return text_of(json.dumps(h))


def poke(ts, name, element, pattern):
    t = next(t for t in ts if t[0] == name)
    n = SIZE[t[1]]
    t[3] = t[3][:element * n] + pattern[-n:] + t[3][(element + 1) * n:]


NAN = {"F32": b"\0\0\xc0\x7f", "BF16": b"\xc0\x7f", "F16": b"\0\x7e"}
INF = {"F32": b"\0\0\x80\xff", "BF16": b"\x80\xff", "F16": b"\0\xfc"}
UP = "model.layers.1.mlp.up_proj.weight"


def damage_header(name, h, ts, total):
    """Returns header (dict or text) and the bytes of data."""
    first, second = ts[0][0], ts[1][0]
    if name == "overlap":
        b, e = h[second]["data_offsets"]
        h[second]["data_offsets"] = [b - 4, e - 4]
    elif name == "hole":
        for t in ts[1:]:
            h[t[0]]["data_offsets"] = [v + 64 for v in h[t[0]]["data_offsets"]]
        total += 64
    elif name == "tail":
        total += 64
    elif name == "backwards":
        h[first]["data_offsets"] = h[first]["data_offsets"][::-1]
    elif name == "duplicate":
        return swap_header(h, lambda s: s.replace(json.dumps(second), json.dumps(first), 1)), total
    elif name == "size":
        h[second]["shape"] = [d + 1 for d in h[second]["shape"]]
    elif name == "huge-shape":
        h[second]["shape"] = [2 ** 40, 2 ** 40]
    elif name == "wrong-dtype":
        h[UP]["dtype"] = "I32" if h[UP]["dtype"] == "F32" else "I16"
    elif name == "unknown-dtype":
        h[UP]["dtype"] = "Q4_0"
    elif name == "rank":
        h[second]["shape"] = [1] * 9
    elif name == "bad-json":
        return swap_header(h, lambda s: s[:-1]), total
    elif name == "not-object":
        return "[1, 2]", 0
    elif name == "metadata":
        h["__metadata__"]["format"] = 7
    return h, total


def damage_tensors(name, a, ts):
    if name == "nan":
        poke(ts, UP, 5 * a.d_model + 3, NAN[a.dtype])
    elif name == "inf":
        poke(ts, UP, 5 * a.d_model + 3, INF[a.dtype])
    elif name == "unknown-tensor":
        ts.append(["model.layers.0.self_attn.q_norm.weight", a.dtype, [a.head_dim], bytes(a.head_dim * SIZE[a.dtype])])
    elif name == "missing-tensor":
        ts[:] = [t for t in ts if t[0] != UP]
    elif name == "extra-layer":
        ts.append([UP.replace("1", str(a.layers), 1), a.dtype, [a.d_ff, a.d_model], bytes(a.d_ff * a.d_model * SIZE[a.dtype])])
    elif name == "stray-bias":
        ts.append(["model.layers.0.self_attn.q_proj.bias", a.dtype, [a.heads * a.head_dim],
                   bytes(a.heads * a.head_dim * SIZE[a.dtype])])
    elif name == "rows":
        ts[0][2] = [a.vocab + 1, a.d_model]
        ts[0][3] += bytes(a.d_model * SIZE[a.dtype])
    elif name in ("tied-head-equal", "tied-head-differs"):
        ts.append(["lm_head.weight", a.dtype, ts[0][2], ts[0][3]])
        if name == "tied-head-differs":
            poke(ts, "lm_head.weight", 77, encode([0.5], a.dtype))
    elif name == "inv-freq":
        ts.append(["model.layers.0.self_attn.rotary_emb.inv_freq", "F32", [a.head_dim // 2], bytes(a.head_dim * 2)])


def damage_config(name, c, tok, gen):
    if name == "missing-key":
        del c["hidden_size"]
    elif name == "unknown-type":
        c["model_type"] = "quokka"
    elif name == "quantized":
        c["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    elif name == "window":
        c["layer_types"] = ["chunked_attention"] * c["num_hidden_layers"]
    elif name == "gelu":
        c["hidden_act"] = "gelu"
    elif name == "longrope":
        c.pop("rope_parameters", None)
        c["rope_scaling"] = {"rope_type": "longrope", "factor": 4.0}
    elif name == "string-size":
        c["hidden_size"] = "64"
    elif name == "negative":
        c["num_hidden_layers"] = -2
    elif name == "vocab":
        c["vocab_size"] = 200
    elif name == "eos":
        gen["eos_token_id"] = [1, 100000]
    elif name == "no-head":
        c["tie_word_embeddings"] = False


def damage_index(name, index, ts):
    m = index["weight_map"]
    if name == "index-extra":
        m["model.ghost.weight"] = sorted(set(m.values()))[0]
    elif name == "index-lacks":
        del m[ts[-1][0]]
    elif name == "index-wrong":
        m[ts[0][0]] = m[ts[-1][0]]
    elif name == "index-path":
        m[ts[0][0]] = "../" + m[ts[0][0]]
    elif name == "index-empty":
        index["weight_map"] = {}


DAMAGES = """truncated header-past-end header-huge empty overlap hole tail backwards duplicate size huge-shape wrong-dtype
unknown-dtype rank bad-json not-object metadata nan inf unknown-tensor missing-tensor extra-layer stray-bias rows
tied-head-equal tied-head-differs inv-freq missing-key unknown-type quantized window gelu longrope string-size negative
vocab eos no-head no-config bad-config no-tokenizer no-weights index-extra index-lacks index-wrong index-path
index-empty two-shards missing-shard both""".split()


def after(name, a, files):
    """Damages to whole files."""
    path = os.path.join(a.dir, files[0])
    if name == "truncated":
        os.truncate(path, os.path.getsize(path) - 100)
    elif name == "empty":
        os.truncate(path, 0)
    elif name in ("header-past-end", "header-huge"):
        with open(path, "r+b") as f:
            f.write(struct.pack("<Q", os.path.getsize(path) if name == "header-past-end" else 2 ** 63 + 5))
    elif name == "missing-shard":
        os.remove(os.path.join(a.dir, files[-1]))
    elif name == "no-config":
        os.remove(os.path.join(a.dir, "config.json"))
    elif name == "no-tokenizer":
        os.remove(os.path.join(a.dir, "tokenizer.json"))
    elif name == "no-weights":
        os.remove(path)
    elif name == "bad-config":
        with open(os.path.join(a.dir, "config.json"), "a") as f:
            f.write("}")
    elif name == "both":
        with open(os.path.join(a.dir, "model.safetensors"), "wb") as f:
            f.write(b"x")


def write_json(a, name, doc):
    with open(os.path.join(a.dir, name), "w") as f:
        json.dump(doc, f, indent=1)
        f.write("\n")


SHARDED = ["index-extra", "index-lacks", "index-wrong", "index-path", "index-empty", "two-shards", "missing-shard", "both",
           "inf"]


def make_all(a):
    top, whole = a.dir, tensors(a)
    for a.damage in DAMAGES:
        a.dir, a.shards = os.path.join(top, a.damage), 3 if a.damage in SHARDED else 1
        make(a, [list(t) for t in whole])


def make(a, ts):
    d = a.damage
    os.makedirs(a.dir, exist_ok=True)
    damage_tensors(d, a, ts)
    parts = split(ts, a.shards)
    files = ["model.safetensors"] if len(parts) == 1 else [f"model-{i + 1:05}-of-{len(parts):05}.safetensors"
                                                          for i in range(len(parts))]
    index = {"metadata": {"total_size": header_of(ts)[1]},
             "weight_map": {t[0]: f for f, p in zip(files, parts) for t in p}}
    if d == "two-shards":
        parts[-1].append(parts[0][0])
    for i, (name, part) in enumerate(zip(files, parts)):
        h, total = header_of(part)
        if i == 0:
            h, total = damage_header(d, h, part, total)
        write_shard(os.path.join(a.dir, name), h, part, total)
    if len(parts) > 1:
        damage_index(d, index, ts)
        write_json(a, "model.safetensors.index.json", index)
    c, tok, gen = config(a), tokenizer(a.vocab), {"_from_model_config": True, "eos_token_id": 1, "temperature": 0.6}
    damage_config(d, c, tok, gen)
    write_json(a, "config.json", c)
    write_json(a, "generation_config.json", gen)
    write_json(a, "tokenizer.json", tok)
    write_json(a, "tokenizer_config.json", {"eos_token": "<s>", "model_max_length": 10 ** 30,
                                            "chat_template": "{{ messages[0]['content'] }}"})
    after(d, a, files)


# ---- comparison ------------------------------------------------------------------------------------

def compare(directory, file, listing):
    raw = {}
    for name in os.listdir(directory):
        if not name.endswith(".safetensors"):
            continue
        with open(os.path.join(directory, name), "rb") as f:
            n = struct.unpack("<Q", f.read(8))[0]
            h = json.loads(f.read(n))
            data = f.read()
        for k, v in h.items():
            if k != "__metadata__":
                raw[k] = data[v["data_offsets"][0]:v["data_offsets"][1]]
    with open(listing) as f:
        doc = json.load(f)
    with open(file, "rb") as f:
        got = f.read()
    for t in doc["tensors"]:
        if got[t["offset"]:t["offset"] + t["data_bytes"]] != raw.pop(t["name"], None):
            sys.exit(f"{file}: tensor {t['name']} differs from the checkpoint")
    if raw:
        sys.exit(f"{file}: lacks {', '.join(raw)}")


def main():
    if sys.argv[1:2] == ["--compare"]:
        return compare(*sys.argv[2:5])
    p = argparse.ArgumentParser()
    p.add_argument("dir")
    for name, default in [("seed", 1), ("layers", 2), ("d-model", 64), ("heads", 4), ("kv-heads", 2), ("head-dim", 16),
                          ("d-ff", 96), ("vocab", 264), ("shards", 1)]:
        p.add_argument("--" + name, type=int, default=default)
    p.add_argument("--dtype", choices=["F32", "F16", "BF16"], default="BF16")
    p.add_argument("--spelling", choices=["old", "new"], default="new")
    for flag in ["untied", "attn-bias", "mlp-bias", "zeros"]:
        p.add_argument("--" + flag, action="store_true")
    p.add_argument("--damage", choices=DAMAGES + ["all"])
    a = p.parse_args()
    make_all(a) if a.damage == "all" else make(a, tensors(a))


main()

#!/usr/bin/env python3
"""Trains the embedded demo model: a byte-level BPE and a tiny Llama, written as a Hugging Face directory.

    train_demo.py --text FILE --out DIR [--minutes N]     trains, or goes on from DIR's last checkpoint
    train_demo.py --text FILE --out DIR --finish STEPS    lets the rate fall to zero over STEPS steps, exports DIR/hf
    train_demo.py --out DIR --average STEP...             exports the mean of the checkpoints of those steps instead
    train_demo.py --out DIR --sample TEXT                 prints a continuation

FILE (text, or .xz) holds books separated by <|endoftext|>.  The books with the simplest words are kept, two of them
are never trained on and give the held-out loss.  The learning rate is constant until --finish, so that training may
be stopped whenever one likes.  Every batch depends on (seed, step) alone: a resumed run draws what an uninterrupted
one would have drawn.  Needs torch, tokenizers and numpy; runs on the CPU.
"""
import argparse, collections, json, lzma, math, os, re, struct, sys, time

import numpy as np
import torch
import torch.nn.functional as F

EOT = "<|endoftext|>"
SHAPE = dict(vocab=2048, hidden=128, layers=8, heads=4, kv_heads=2, inter=384, theta=10000.0, eps=1e-5)
HEAD = SHAPE["hidden"] // SHAPE["heads"]
POSITIONS = 512


# ---- text ---------------------------------------------------------------------------------------

def words(text):
    return re.findall(r"[a-z']+", text.lower())


def clean(book):
    """Paragraphs without headings.  A title in capitals begins another story of a collection."""
    out = []
    book = book.replace("\u2014", "--").replace("\u2026", "...").encode("ascii", "ignore").decode()
    for par in re.split(r"\n\s*\n", book):
        par = re.sub(r"[ \t]+", " ", par).strip()
        heading = len(par) < 70 and not re.search(r"[.,;:!?\"'-]$", par)
        if not par or re.match(r"(?i)(chapter|part)\b.{0,60}$", par) or re.match(r"[\W_]+$", par):
            continue
        if heading and par == par.upper() and len(par) > 6:
            out.append(EOT)
        elif not heading and "|" not in par and "<" not in par:
            out.append(par)
    return "\n\n".join(out).replace("\n\n" + EOT + "\n\n", EOT).removeprefix(EOT)


def load_books(path, share):
    """The books of which at least `share` of the words are among the 2,000 commonest of the whole text."""
    opener = lzma.open if path.endswith(".xz") else open
    with opener(path, "rt", encoding="utf8") as f:
        books = [b.strip() for b in f.read().split(EOT)]
    count = collections.Counter(w for b in books for w in words(b))
    common = {w for w, _ in count.most_common(2000)}
    keep = []
    for i, b in enumerate(books):
        w = words(b)
        if w and sum(x in common for x in w) / len(w) >= share:
            keep.append((i, clean(b)))
    return keep


def train_bpe(texts, path):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=SHAPE["vocab"], special_tokens=[EOT], show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    tok.save(path)


def prepare(args):
    """tokenizer.json, train.u16, heldout.u16 and data.json in the work folder; done once."""
    if os.path.exists(f"{args.out}/data.json"):
        return
    books = load_books(args.text, args.share)
    held = set(args.heldout)
    train_bpe([b for i, b in books if i not in held], f"{args.out}/tokenizer.json")
    from tokenizers import Tokenizer
    tok = Tokenizer.from_file(f"{args.out}/tokenizer.json")
    info = dict(books=[i for i, _ in books], heldout_books=sorted(held), share=args.share)
    for name, part in (("train", [b for i, b in books if i not in held]), ("heldout", [b for i, b in books if i in held])):
        ids = [t for b in part for t in tok.encode(EOT + b).ids]
        np.array(ids, np.uint16).tofile(f"{args.out}/{name}.u16")
        info[name + "_tokens"], info[name + "_bytes"] = len(ids), sum(len(b) for b in part)
    with open(f"{args.out}/data.json", "w") as f:
        json.dump(info, f)


# ---- model --------------------------------------------------------------------------------------

def init_weights(seed):
    """One tensor per kind, the layers stacked: the optimizer works on all layers at once."""
    torch.manual_seed(seed)
    s, kv = SHAPE, SHAPE["kv_heads"] * HEAD
    n, d = s["layers"], s["hidden"]
    w = dict(embed=torch.randn(s["vocab"], d) * 0.02,
             qkv=torch.randn(n, d + 2 * kv, d) / math.sqrt(d), out=torch.zeros(n, d, d),
             gate_up=torch.randn(n, 2 * s["inter"], d) / math.sqrt(d), down=torch.zeros(n, d, s["inter"]),
             norm1=torch.ones(n, d), norm2=torch.ones(n, d), norm=torch.ones(d))
    return {k: v.requires_grad_() for k, v in w.items()}


def rope_table(length):
    angle = torch.outer(torch.arange(length).float(), SHAPE["theta"] ** (-torch.arange(0, HEAD, 2).float() / HEAD))
    return torch.cat([angle.cos()] * 2, -1), torch.cat([angle.sin()] * 2, -1)


def rms(x, gain):
    x = x.float()
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + SHAPE["eps"]) * gain


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


def layer(x, cos, sin, qkv, out, gate_up, down, norm1, norm2):
    s, (b, t, d), bf = SHAPE, x.shape, torch.bfloat16
    heads, kv = s["heads"], s["kv_heads"]
    h = F.linear(rms(x, norm1).to(bf), qkv.to(bf)).view(b, t, heads + 2 * kv, HEAD).transpose(1, 2)
    q, k, v = h.split([heads, kv, kv], 1)
    q, k = rotate(q.float(), cos, sin).to(bf), rotate(k.float(), cos, sin).to(bf)
    k, v = k.repeat_interleave(heads // kv, 1), v.repeat_interleave(heads // kv, 1)
    a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d)
    x = x + F.linear(a, out.to(bf))
    g, u = F.linear(rms(x, norm2).to(bf), gate_up.to(bf)).chunk(2, -1)
    return x + F.linear(F.silu(g) * u, down.to(bf))


def logits_of(w, ids, cos, sin):
    x = F.embedding(ids, w["embed"])
    for i in range(SHAPE["layers"]):
        x = layer(x, cos, sin, *(w[k][i] for k in ("qkv", "out", "gate_up", "down", "norm1", "norm2")))
    return F.linear(rms(x, w["norm"]).to(torch.bfloat16), w["embed"].to(torch.bfloat16)).float()


def loss_of(w, ids, cos, sin):
    z = logits_of(w, ids[:, :-1], cos, sin)
    return F.cross_entropy(z.reshape(-1, z.shape[-1]), ids[:, 1:].reshape(-1))


# ---- optimizer: Muon for the matrices, Adam for the rest --------------------------------------------

def orthogonal(g):
    """Newton-Schulz iteration towards the nearest orthogonal matrix, for a stack of matrices."""
    tall = g.shape[1] > g.shape[2]
    x = g.mT if tall else g
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
    return x.mT if tall else x


MATRICES = ("qkv", "out", "gate_up", "down")


@torch.no_grad()
def update(w, state, step, scale, args):
    for name, p in w.items():
        g = p.grad
        m = state.setdefault(name + ".m", torch.zeros_like(p))
        if name in MATRICES:
            m.lerp_(g, 0.05)
            rate = args.rate * scale
            p.mul_(1 - rate * args.decay)
            p.add_(orthogonal(g.lerp(m, 0.95)), alpha=-rate * math.sqrt(max(1.0, p.shape[1] / p.shape[2])))
        else:
            v = state.setdefault(name + ".v", torch.zeros_like(p))
            m.lerp_(g, 0.1)
            v.lerp_(g * g, 0.03)
            p.addcdiv_(m / (1 - 0.9 ** (step + 1)), (v / (1 - 0.97 ** (step + 1))).sqrt() + 1e-8,
                       value=-args.embed_rate * scale)
        p.grad = None


# ---- training -------------------------------------------------------------------------------------

def batch_at(data, step, args, length):
    rng = np.random.default_rng([args.seed, step])
    n = args.batch_tokens // length
    at = rng.integers(0, len(data) - length - 1, n)
    return torch.from_numpy(np.stack([data[i:i + length + 1] for i in at]).astype(np.int64))


@torch.no_grad()
def held_loss(w, data, limit, length=256):
    cos, sin = rope_table(length)
    n = min(limit, len(data) - 1) // length
    rows = torch.from_numpy(np.stack([data[i * length:(i + 1) * length + 1] for i in range(n)]).astype(np.int64))
    return sum(loss_of(w, r, cos, sin).item() * len(r) for r in rows.split(16)) / n


def save(args, w, state, meta):
    """checkpoint.pt to go on from, and the weights alone under their step, for --average."""
    path = f"{args.out}/checkpoint.pt"
    torch.save(dict(w=w, state=state, meta=meta), path + ".new")
    os.replace(path + ".new", path)
    torch.save(dict(w=w, meta=meta), f"{args.out}/weights-{meta['step']}.pt")


def restore(args):
    path = f"{args.out}/checkpoint.pt"
    if os.path.exists(path):
        c = torch.load(path, weights_only=True)
        return {k: v.requires_grad_() for k, v in c["w"].items()}, c["state"], c["meta"]
    return init_weights(args.seed), {}, dict(step=0, tokens=0, seconds=0.0, decay_from=None, decay_steps=None)


def log(args, **entry):
    entry["date"] = time.strftime("%H:%M:%S")
    with open(f"{args.out}/log.jsonl", "a") as f:
        f.write(json.dumps(entry) + "\n")


def rate_scale(meta, args):
    if meta["decay_from"] is None:
        return min(1.0, (meta["step"] + 1) / args.warmup)
    return max(0.0, 1 - (meta["step"] - meta["decay_from"]) / meta["decay_steps"])


def wait_while_quiet(path):
    """Another process is measuring: give it the machine."""
    t = time.monotonic()
    while path and os.path.exists(path):
        time.sleep(0.5)
    return time.monotonic() - t


def train(args):
    data = {k: np.fromfile(f"{args.out}/{k}.u16", np.uint16) for k in ("train", "heldout")}
    w, state, meta = restore(args)
    if args.finish and meta["decay_from"] is None:
        meta.update(decay_from=meta["step"], decay_steps=args.finish)
    decaying = meta["decay_from"] is not None
    length = POSITIONS if decaying else 256
    cos, sin = rope_table(length)
    step_loss = torch.compile(loss_of) if args.compile else loss_of
    begin = mark = time.monotonic()
    paused, recent = 0.0, []
    while not (decaying and meta["step"] >= meta["decay_from"] + meta["decay_steps"]):
        if not decaying and time.monotonic() - begin > args.minutes * 60:
            break
        p = wait_while_quiet(args.pause_file)
        paused, t = paused + p, time.monotonic()
        loss = step_loss(w, batch_at(data["train"], meta["step"], args, length), cos, sin)
        loss.backward()
        update(w, state, meta["step"], rate_scale(meta, args), args)
        meta["step"] += 1
        meta["tokens"] += args.batch_tokens
        meta["seconds"] += time.monotonic() - t
        recent.append(loss.item())
        if meta["step"] % 50 == 0:
            log(args, step=meta["step"], tokens=meta["tokens"], seconds=round(meta["seconds"]), train=round(float(np.mean(recent)), 4))
            recent = []
        if time.monotonic() - mark > args.checkpoint_seconds:
            mark = time.monotonic()
            save(args, w, state, meta)
            log(args, step=meta["step"], tokens=meta["tokens"], seconds=round(meta["seconds"]), heldout=round(held_loss(w, data["heldout"], 16384), 4))
    save(args, w, state, meta)
    export(args, w)
    log(args, step=meta["step"], tokens=meta["tokens"], seconds=round(meta["seconds"]), paused=round(paused),
        heldout_all=round(held_loss(w, data["heldout"], 1 << 30, POSITIONS), 4))


def average(args):
    """At a high learning rate weights wander around a better point: the mean of a few is nearer to it."""
    held = np.fromfile(f"{args.out}/heldout.u16", np.uint16)
    runs = [torch.load(f"{args.out}/weights-{step}.pt", weights_only=True)["w"] for step in args.average]
    w = {k: sum(r[k] for r in runs) / len(runs) for k in runs[0]}
    export(args, w)
    log(args, average=args.average, heldout_all=round(held_loss(w, held, 1 << 30, POSITIONS), 4))


# ---- export -----------------------------------------------------------------------------------------

def hf_tensors(w):
    kv = SHAPE["kv_heads"] * HEAD
    yield "model.embed_tokens.weight", w["embed"]
    for i in range(SHAPE["layers"]):
        q, k, v = w["qkv"][i].split([SHAPE["hidden"], kv, kv])
        g, u = w["gate_up"][i].chunk(2)
        for name, t in (("self_attn.q_proj", q), ("self_attn.k_proj", k), ("self_attn.v_proj", v),
                        ("self_attn.o_proj", w["out"][i]), ("mlp.gate_proj", g), ("mlp.up_proj", u),
                        ("mlp.down_proj", w["down"][i]), ("input_layernorm", w["norm1"][i]),
                        ("post_attention_layernorm", w["norm2"][i])):
            yield f"model.layers.{i}.{name}.weight", t
    yield "model.norm.weight", w["norm"]


def write_safetensors(path, tensors):
    head, blobs, at = {"__metadata__": {"format": "pt"}}, [], 0
    for name, t in tensors:
        blob = t.detach().to(torch.bfloat16).contiguous().view(torch.int16).numpy().tobytes()
        head[name] = dict(dtype="BF16", shape=list(t.shape), data_offsets=[at, at + len(blob)])
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def export(args, w):
    s, out = SHAPE, f"{args.out}/hf"
    os.makedirs(out, exist_ok=True)
    write_safetensors(f"{out}/model.safetensors", hf_tensors(w))
    config = dict(architectures=["LlamaForCausalLM"], model_type="llama", vocab_size=s["vocab"], hidden_size=s["hidden"],
                  intermediate_size=s["inter"], num_hidden_layers=s["layers"], num_attention_heads=s["heads"],
                  num_key_value_heads=s["kv_heads"], head_dim=HEAD, hidden_act="silu", max_position_embeddings=POSITIONS,
                  rms_norm_eps=s["eps"], rope_theta=s["theta"], rope_scaling=None, tie_word_embeddings=True,
                  attention_bias=False, mlp_bias=False, bos_token_id=0, eos_token_id=0, torch_dtype="bfloat16")
    files = {"config.json": config,
             "generation_config.json": dict(bos_token_id=0, eos_token_id=0, do_sample=True, temperature=0.7, top_k=40),
             "tokenizer_config.json": dict(tokenizer_class="PreTrainedTokenizerFast", bos_token=EOT, eos_token=EOT,
                                           add_bos_token=False, clean_up_tokenization_spaces=False, model_max_length=POSITIONS)}
    for name, value in files.items():
        with open(f"{out}/{name}", "w") as f:
            json.dump(value, f, indent=2)
            f.write("\n")
    with open(f"{args.out}/tokenizer.json", encoding="utf8") as src, open(f"{out}/tokenizer.json", "w", encoding="utf8") as dst:
        dst.write(src.read())


@torch.no_grad()
def sample(args):
    from tokenizers import Tokenizer
    tok = Tokenizer.from_file(f"{args.out}/tokenizer.json")
    w, _, _ = restore(args)
    torch.manual_seed(args.seed)
    ids = tok.encode(args.sample).ids
    for _ in range(120):
        z = logits_of(w, torch.tensor([ids]), *rope_table(len(ids)))[0, -1] / 0.7
        z[z < z.topk(40).values[-1]] = -math.inf
        ids.append(torch.multinomial(z.softmax(-1), 1).item())
        if ids[-1] == 0:
            break
    print(tok.decode(ids))


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--text")
    a.add_argument("--out", required=True)
    a.add_argument("--minutes", type=float, default=75)
    a.add_argument("--finish", type=int, metavar="STEPS", help="decay the rate to zero over so many steps, then export")
    a.add_argument("--average", metavar="STEP", type=int, nargs="+")
    a.add_argument("--sample", metavar="TEXT")
    a.add_argument("--share", type=float, default=0.87, help="of common words that a book must have")
    a.add_argument("--heldout", type=int, nargs="*", default=[11, 15], help="numbers of the books held out, from 0")
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--threads", type=int, default=2)
    a.add_argument("--batch-tokens", type=int, default=4096)
    a.add_argument("--rate", type=float, default=0.02)
    a.add_argument("--embed-rate", type=float, default=4e-3)
    a.add_argument("--decay", type=float, default=0.05)
    a.add_argument("--warmup", type=int, default=50)
    a.add_argument("--checkpoint-seconds", type=float, default=180)
    a.add_argument("--pause-file", default="", help="do nothing while this file exists")
    a.add_argument("--compile", action="store_true", help="torch.compile; needs a C++ compiler")
    args = a.parse_args()
    torch.set_num_threads(args.threads)
    os.makedirs(args.out, exist_ok=True)
    if args.sample:
        return sample(args)
    if args.average:
        return average(args)
    prepare(args)
    train(args)


if __name__ == "__main__":
    sys.exit(main())

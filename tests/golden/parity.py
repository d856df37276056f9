#!/usr/bin/env python3
"""parity.py LLMQ SHARED: ids and decoded text of `llmq tokenize` against the `tokenizers` library, on the tokenizers and
the texts in SHARED.  Prints one line per tokenizer; the exit status is 1 when anything differs."""
import json
import lzma
import os
import random
import subprocess
import sys
import tempfile

import tokenizers

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import parity_corpus

TOKENIZERS = [
    "data/tokenizers/gpt2/tokenizer.json.xz", "data/tokenizers/qwen2/tokenizer.json.xz",
    "data/tokenizers/deepseek-v3/tokenizer.json.xz", "data/smollm2/tokenizer.json", "data/stories260k/tokenizer.json",
]
TEXTS = ["data/text/wiki.test.raw", "data/text/wikitext2-valid.unk.txt", "data/text/calib_mix.txt", "data/text/children.txt.xz"]
MAX_TEXT = 3000000


def read(path):
    return (lzma.open if path.endswith(".xz") else open)(path, "rb").read()


def texts(shared):
    out = []
    for t in TEXTS:
        path = os.path.join(shared, t)
        if not os.path.exists(path):
            continue
        s = read(path).decode("utf-8", "replace")[:MAX_TEXT]
        out += [s[:400000]] + s.split("\n")[:20000]
    return out


def llmq(binary, tok, lines, *args):
    feed = "\n".join(json.dumps(x) for x in lines) + "\n"
    p = subprocess.run([binary, "tokenize", tok, "--lines", *args], input=feed.encode(), stdout=subprocess.PIPE, check=True)
    got = p.stdout.decode().split("\n")[:-1]
    assert len(got) == len(lines), (len(got), len(lines))
    return [json.loads(g) for g in got]


def report(name, what, items, want, got):
    bad = [i for i in range(len(items)) if want[i] != got[i]]
    for i in bad[:5]:
        print("  %s: %s %s\n    want %s\n    got  %s" % (name, what, ascii(items[i])[:200], ascii(want[i])[:200], ascii(got[i])[:200]))
    return len(bad)


def compare(binary, path, name, extra, step):
    with tempfile.NamedTemporaryFile(suffix=".json") as f:
        f.write(read(path))
        f.flush()
        lib = tokenizers.Tokenizer.from_file(f.name)
        lib.no_truncation()
        special = [t.content for t in lib.get_added_tokens_decoder().values()]
        items = parity_corpus.corpus(special[:20] + special[-20:], step) + extra
        want = [e.ids for e in lib.encode_batch(items)]
        bad = report(name, "encode", items, want, llmq(binary, f.name, items))
        some = items[::7]
        plain = [e.ids for e in lib.encode_batch(some, add_special_tokens=False)]
        bad += report(name, "encode without special tokens", some, plain, llmq(binary, f.name, some, "--no-special"))
        lib.encode_special_tokens = True
        some = list(parity_corpus.special_texts(special[:20]))
        plain = [e.ids for e in lib.encode_batch(some)]
        bad += report(name, "special tokens as text", some, plain, llmq(binary, f.name, some, "--no-parse-special"))
        rng = random.Random(1)
        size = lib.get_vocab_size()
        ids = want + [[rng.randrange(size) for _ in range(rng.randrange(1, 40))] for _ in range(20000)]
        for skip, flag in ((False, []), (True, ["--skip-special"])):
            text = lib.decode_batch(ids, skip_special_tokens=skip)
            bad += report(name, "decode", ids, text, llmq(binary, f.name, ids, "--decode", *flag))
    print("%-14s %d texts, %d id lists: %d differences" % (name, len(items), len(ids), bad))
    return bad


def main():
    binary, shared = os.path.abspath(sys.argv[1]), sys.argv[2]
    step = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    only = sys.argv[4:] or None
    extra, bad, n = texts(shared), 0, 0
    for t in TOKENIZERS:
        name = os.path.basename(os.path.dirname(t))
        path = os.path.join(shared, t)
        if not os.path.exists(path) or (only and name not in only):
            continue
        bad += compare(binary, path, name, extra, step)
        n += 1
    print("parity: %d tokenizers, %d differences (tokenizers %s)" % (n, bad, tokenizers.__version__))
    return 1 if bad or not n else 0


if __name__ == "__main__":
    sys.exit(main())

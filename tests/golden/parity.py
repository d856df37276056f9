#!/usr/bin/env python3
"""parity.py LLMQ SHARED [STEP [NAME ...]]: ids and decoded text of `llmq tokenize` against the `tokenizers` library, on the tokenizers and
the texts in SHARED and on those of tests/golden/tokenizers.  Prints one line per tokenizer; the exit status is 1 when anything differs."""
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
OWN_STEP = 10  # of the code points, for the tokenizers of tests/golden/tokenizers ("own/gpt2" on the command line)


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
    feed = "".join(json.dumps(x) + "\n" for x in lines)
    p = subprocess.run([binary, "tokenize", tok, "--lines", *args], input=feed.encode(), stdout=subprocess.PIPE, check=True)
    got = p.stdout.decode().split("\n")[:-1]
    assert len(got) == len(lines), (len(got), len(lines))
    return [json.loads(g) for g in got]


def report(name, what, items, want, got):
    bad = [i for i in range(len(items)) if want[i] != got[i]]
    for i in bad[:5]:
        print("  %s: %s %s\n    want %s\n    got  %s" % (name, what, ascii(items[i])[:200], ascii(want[i])[:200], ascii(got[i])[:200]))
    return len(bad)


def decode(lib, ids, skip):
    """The library panics where Strip takes more off than there is; None stands for that."""
    try:
        return lib.decode_batch(ids, skip_special_tokens=skip)
    except BaseException:
        pass
    out = []
    for i in ids:
        try:
            out.append(lib.decode(i, skip_special_tokens=skip))
        except BaseException:
            out.append(None)
    return out


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
            text = decode(lib, ids, skip)
            kept = [i for i in range(len(ids)) if text[i] is not None]
            got = llmq(binary, f.name, [ids[i] for i in kept], "--decode", *flag)
            bad += report(name, "decode", [ids[i] for i in kept], [text[i] for i in kept], got)
    print("%-14s %d texts, %d id lists: %d differences" % (name, len(items), len(ids), bad))
    return bad


def main():
    binary, shared = os.path.abspath(sys.argv[1]), sys.argv[2]
    step = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    only = sys.argv[4:] or None
    extra, bad, n = texts(shared), 0, 0
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokenizers")
    own = sorted(os.path.join(here, f) for f in os.listdir(here) if f.endswith(".json"))
    for path in [os.path.join(shared, t) for t in TOKENIZERS] + own:
        mine = path in own
        name = os.path.basename(path)[:-5] if mine else os.path.basename(os.path.dirname(path))
        if not os.path.exists(path) or (only and ("own/" + name if mine else name) not in only):
            continue
        bad += compare(binary, path, name, extra[:200] if mine else extra, step * OWN_STEP if mine and not only else step)
        n += 1
    print("parity: %d tokenizers, %d differences (tokenizers %s)" % (n, bad, tokenizers.__version__))
    return 1 if bad or not n else 0


if __name__ == "__main__":
    sys.exit(main())

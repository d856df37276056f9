#!/bin/sh
# act_rounding.sh LLMQ HF_DIR TEXT: what 16-bit fixed-point activations cost.  Quantizes to INT4, group 64, writes
# the quantized weights back as a float checkpoint (through the format's independent reader), and compares the two
# models: the same weights, integer products here and float products there.  For small models: the reader is slow.
set -eu
llmq=$1 hf=$2 text=$3
here=$(dirname "$0")
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
"$llmq" quantize "$hf" -o "$tmp/q.llmq" --awq --group-size 64 --progress none -q
mkdir "$tmp/hf"
cp "$hf"/*.json "$tmp/hf/"
PYTHONPATH="$here/../format" python3 - "$tmp/q.llmq" "$tmp/hf/model.safetensors" <<'PY'
import json, struct, sys
from reader import File
head, data, at = {"__metadata__": {"format": "pt"}}, [], 0
for t in File(sys.argv[1]).tensors:
    b = struct.pack("<%df" % (t.n * t.k), *t.values())
    head[t.name] = {"dtype": "F32", "shape": [t.n] if t.k == 1 else [t.n, t.k], "data_offsets": [at, at + len(b)]}
    data.append(b)
    at += len(b)
j = json.dumps(head).encode()
j += b" " * (-len(j) % 8)
with open(sys.argv[2], "wb") as f:
    f.write(struct.pack("<Q", len(j)) + j + b"".join(data))
PY
"$llmq" convert "$tmp/hf" -o "$tmp/f.llmq" --progress none -q
"$llmq" eval "$tmp/q.llmq" --baseline "$tmp/f.llmq" --data "$text" --kv-cache-dtype f32 --progress none --json | python3 -c "import json, sys; b = json.load(sys.stdin)[\"baseline\"]; print(b[\"kl\"], b[\"top1_agreement\"])"

#!/bin/sh
# Checkpoints of many shapes: every tensor of the result has the checkpoint's bytes, and the bytes of the result do not
# depend on threads or runs, nor, apart from the provenance, on how the checkpoint is cut into shards.
set -eu
llmq=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
fail() { echo "convert: $*"; exit 1; }

# convert, list, compare with the checkpoint
check() {
    name=$1
    shift
    python3 tests/cli/gen/tiny.py "$tmp/$name" "$@"
    "$llmq" convert "$tmp/$name" -o "$tmp/$name.llmq" > "$tmp/line" || fail "$name: $*"
    grep -q "$name.llmq: .* tensors" "$tmp/line" || fail "$name: no summary: $(cat "$tmp/line")"
    "$llmq" inspect --json "$tmp/$name.llmq" > "$tmp/$name.json"
    python3 tests/cli/gen/tiny.py --compare "$tmp/$name" "$tmp/$name.llmq" "$tmp/$name.json" || fail "$name: $*"
}
check tied --seed 1
check untied --seed 2 --untied --spelling old
check biases --seed 3 --attn-bias --mlp-bias --dtype F32
check odd --seed 4 --d-model 60 --heads 3 --kv-heads 1 --head-dim 22 --d-ff 77 --vocab 281 --layers 3 --dtype F16
check mha --seed 5 --heads 5 --kv-heads 5 --head-dim 10 --d-model 50 --untied --attn-bias
check gqa8 --seed 6 --heads 8 --kv-heads 1 --head-dim 8 --layers 1
check one --seed 7 --layers 4
check three --seed 7 --layers 4 --shards 3

python3 - "$tmp/one" "$tmp/three" << 'EOF2'
import json, sys
a, b = (json.load(open(p + ".json")) for p in sys.argv[1:])
x, y = (open(p + ".llmq", "rb").read() for p in sys.argv[1:])
assert a["tensors"] == b["tensors"] and a["hparams"] == b["hparams"]
end = max(t["offset"] + t["data_bytes"] for t in a["tensors"])
assert x[4096:end] == y[4096:end], "tensors differ between one and three shards"
names = [f["name"] for f in b["provenance"]["source"]]
assert names == sorted(names) and "model-00002-of-00003.safetensors" in names and "tokenizer.json" in names, names
assert "/" not in json.dumps(b["provenance"]), b["provenance"]
import hashlib
for f in b["provenance"]["source"]:
    data = open(sys.argv[2] + "/" + f["name"], "rb").read()
    assert f["sha256"] == hashlib.sha256(data).hexdigest() and f["size_bytes"] == len(data), f
EOF2

for t in 1 2 5; do
    "$llmq" convert "$tmp/three" -o "$tmp/again.llmq" --threads $t -q
    cmp "$tmp/three.llmq" "$tmp/again.llmq" || fail "$t threads: other bytes"
done

# Wider types hold the same values; narrower ones are rounded to nearest even.
"$llmq" convert "$tmp/one" -o "$tmp/wide.llmq" --dtype fp32 -q
"$llmq" inspect --json "$tmp/wide.llmq" > "$tmp/wide.json"
"$llmq" convert "$tmp/biases" -o "$tmp/narrow.llmq" --dtype bf16 -q
"$llmq" inspect --json "$tmp/narrow.llmq" > "$tmp/narrow.json"
"$llmq" convert "$tmp/biases" -o "$tmp/half.llmq" --dtype fp16 -q
"$llmq" inspect --json "$tmp/half.llmq" > "$tmp/half.json"
python3 - "$tmp" << 'EOF2'
import json, struct, sys
def load(name):
    data = open(f"{sys.argv[1]}/{name}.llmq", "rb").read()
    return {t["name"]: data[t["offset"]:t["offset"] + t["data_bytes"]] for t in json.load(open(f"{sys.argv[1]}/{name}.json"))["tensors"]}
one, wide = load("one"), load("wide")
for k, v in one.items():
    assert wide[k] == b"".join(b"\0\0" + v[i:i + 2] for i in range(0, len(v), 2)), k
full, narrow, half = load("biases"), load("narrow"), load("half")
for k, v in full.items():
    u = struct.unpack(f"<{len(v) // 4}I", v)
    assert narrow[k] == struct.pack(f"<{len(u)}H", *((x + 0x7fff + (x >> 16 & 1)) >> 16 for x in u)), k
    assert half[k] == struct.pack(f"<{len(u)}e", *struct.unpack(f"<{len(u)}f", v)), k
EOF2

"$llmq" convert "$tmp/one" -o "$tmp/one.llmq" --json > "$tmp/doc.json"
python3 - "$tmp" << 'EOF2'
import hashlib, json, sys
d = json.load(open(sys.argv[1] + "/doc.json"))
data = open(sys.argv[1] + "/one.llmq", "rb").read()
assert d["schema"] == "llmq.convert/1" and d["exit_code"] == 0 and d["tensors"] == 38
assert d["model"]["sha256"] == hashlib.sha256(data).hexdigest() and d["model"]["size_bytes"] == len(data)
EOF2
echo "convert: ok"

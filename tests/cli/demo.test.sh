#!/bin/sh
# `make demo` in a folder of its own: every model has its row, its story, and a loss that quantization explains.
set -eu
llmq=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

calib_data/demo/demo.sh "$llmq" "$tmp" > "$tmp/log"
for m in bf16 awq rtn; do
    grep -q "^$m .* MB .* +- " "$tmp/log" || { echo "demo: no row for $m"; cat "$tmp/log"; exit 1; }
    grep -A1 "^  $m:" "$tmp/log" | grep -q 'Once upon a time there was a little' || { echo "demo: no story by $m"; exit 1; }
done
python3 - "$tmp" <<'PY'
import json, sys

e = {m: json.load(open(f"{sys.argv[1]}/{m}.eval.json", encoding="utf8")) for m in ("bf16", "awq", "rtn")}
kl = {m: e[m]["baseline"]["kl"]["mean"] for m in ("awq", "rtn")}
assert 0 < kl["awq"] < kl["rtn"] < 0.1, kl
assert e["bf16"]["ppl"] < 60, e["bf16"]["ppl"]
assert abs(e["awq"]["ppl"] / e["bf16"]["ppl"] - 1) < 0.05, e["awq"]["ppl"]
assert e["awq"]["model"]["size_bytes"] < 0.4 * e["bf16"]["model"]["size_bytes"]
PY
echo "demo: each model has its row and its story, and loses as little as it should"

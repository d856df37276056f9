#!/bin/sh
# vs_llamacpp.sh LLMQ MODEL.llmq LLAMA_BENCH MODEL.gguf [THREADS [ROUNDS]]
# Prefill of 512 tokens and decode of 64, llmq and llama.cpp in turn; prints each round and the medians with
# their ratio.  Both read the whole prompt in one go and run greedy; llmq counts its output head like llama.cpp.
set -eu
llmq=$1 model=$2 bench=$3 gguf=$4 threads=${5:-2} rounds=${6:-5}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# 512 tokens of running text, cut by the model's own tokenizer.
awk 'BEGIN { for (i = 0; i < 400; i++) printf "The %d ships of the harbour left at dawn with the tide. ", i }' > "$tmp/text"
"$llmq" tokenize "$model" -f "$tmp/text" --json > "$tmp/ids.json"
python3 - "$tmp/ids.json" "$tmp/ids" <<'PY'
import json, sys
d = json.load(open(sys.argv[1]))
ids = d["ids"] if "ids" in d else d["token_ids"]
open(sys.argv[2], "w").write(" ".join(map(str, ids[:512])))
PY
"$llmq" tokenize "$model" --decode -f "$tmp/ids" > "$tmp/prompt"
i=0
while [ $i -lt "$rounds" ]; do
    "$llmq" run "$model" --raw -f "$tmp/prompt" -n 64 --temperature 0 --ignore-eos --threads "$threads" --json > "$tmp/ours" 2> /dev/null
    "$bench" -m "$gguf" -p 512 -n 64 -t "$threads" -r 1 -o json > "$tmp/theirs" 2> /dev/null
    python3 - "$tmp/ours" "$tmp/theirs" <<'PY' | tee -a "$tmp/rounds"
import json, sys
a, b = json.load(open(sys.argv[1])), json.load(open(sys.argv[2]))
pp = next(r["avg_ts"] for r in b if r["n_prompt"])
tg = next(r["avg_ts"] for r in b if r["n_gen"])
print("prefill %.1f %.1f decode %.1f %.1f" % (a["prefill_tokens_per_s"], pp, a["decode_tokens_per_s"], tg))
PY
    i=$((i + 1))
done
python3 - "$tmp/rounds" <<'PY'
import statistics as s, sys
rows = [l.split() for l in open(sys.argv[1])]
for name, i in (("prefill 512", 1), ("decode 64", 4)):
    ours, theirs = ([float(r[j]) for r in rows] for j in (i, i + 1))
    print("%s: llmq %.1f, llama.cpp %.1f tokens/s (medians), ratio %.2f" %
          (name, s.median(ours), s.median(theirs), s.median(o / t for o, t in zip(ours, theirs))))
PY

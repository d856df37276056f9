#!/bin/sh
# The main job on the embedded model: convert, quantize twice, measure against the original, write the same story.
#   demo.sh LLMQ FOLDER       FOLDER keeps the models; the commands are shown as they are run
set -eu

llmq=$1 out=$2
here=$(dirname "$0")
prompt='Once upon a time there was a little girl who'
mkdir -p "$out"

show() { printf '\n$'; printf ' %s' "$@"; printf '\n'; }
run() { show "$@"; shift; "$llmq" "$@" --progress none; }
measure() { # NAME EVAL-OPTION...: eval and run, as JSON for the table
    name=$1; shift
    "$llmq" eval "$out/$name.llmq" --data "$here/heldout.txt" --ctx 512 "$@" --json --progress none > "$out/$name.eval.json"
    "$llmq" run "$out/$name.llmq" --raw -p "$prompt" -n 400 --temperature 0 --ignore-eos --json --progress none > "$out/$name.run.json"
}
story() {
    printf '\n  %s:\n' "$1"
    { printf '%s' "$prompt"; "$llmq" run "$out/$1.llmq" --raw -p "$prompt" -n 90 --seed 11 --progress none; } |
        fold -s -w 108 | sed 's/^/    /; s/ *$//'
}

run llmq convert "$here" -o "$out/bf16.llmq"
run llmq quantize "$here" -o "$out/awq.llmq" --awq --bits 4
run llmq quantize "$here" -o "$out/rtn.llmq" --rtn

show llmq eval "$out/awq.llmq" --baseline "$out/bf16.llmq" --data "$here/heldout.txt" --ctx 512
measure bf16
measure awq --baseline "$out/bf16.llmq"
measure rtn --baseline "$out/bf16.llmq"
python3 - "$out" <<'PY'
import json, sys

print(f"\n{'model':8}{'size':>9}  {'bits/weight':>11}  {'perplexity':>16}  {'KL divergence':>18}  {'same top-1':>10}  "
      f"{'tokens/s':>8}  {'memory':>8}")
for name in ("bf16", "awq", "rtn"):
    e, r = (json.load(open(f"{sys.argv[1]}/{name}.{kind}.json", encoding="utf8")) for kind in ("eval", "run"))
    m, b = e["model"], e["baseline"]
    kl = f"{b['kl']['mean']:.4f} +- {b['kl']['stderr']:.4f}" if b else "(the reference)"
    top1 = f"{100 * b['top1_agreement']:.1f} %" if b else ""
    ppl = f"{e['ppl']:.2f} +- {e['ppl_stderr']:.2f}"
    print(f"{name:8}{m['size_bytes'] / 1e6:>6.2f} MB  {m['bits_per_weight']:>11.2f}  {ppl:>16}  {kl:>18}  {top1:>10}  "
          f"{r['decode_tokens_per_s']:>8.0f}  {r['peak_rss_bytes'] / 1e6:>5.1f} MB")
print(f"\n{e['tokens_scored']} tokens scored; tokens/s: one sequence, {r['threads']} threads, {r['isa']}; memory: peak of `llmq run`.")
PY

show llmq run "$out/MODEL.llmq" --raw -p "'$prompt'" -n 90 --seed 11
for m in bf16 awq rtn; do story $m; done

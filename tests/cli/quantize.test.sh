#!/bin/sh
# llmq quantize: the same bytes for every number of threads, instruction set and run; jobs that end early leave nothing;
# wrong use; the plan, the report and the provenance.
set -eu
llmq=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
fail() { echo "quantize: $*"; exit 1; }

python3 tests/cli/gen/tiny.py "$tmp/hf" --seed 3 --d-model 144 --heads 6 --kv-heads 2 --head-dim 24 --d-ff 200 --layers 2 --attn-bias --mlp-bias
python3 -c 'print("\n".join("The %d quick foxes and the %d lazy dogs; an old inn." % (i, i * i) for i in range(400)))' > "$tmp/text"
awq() { # OUT, more options
    out=$1
    shift
    "$llmq" quantize "$tmp/hf" -o "$out" --awq --calib "$tmp/text" --calib-samples 3 --calib-seqlen 48 -q "$@"
}

# ---- determinism
levels=$(for l in scalar avx2 avx512; do
    case $l in
    scalar) echo $l ;;
    *) if grep -qw "$(echo $l | sed 's/avx512/avx512_vnni/')" /proc/cpuinfo; then echo $l; fi ;;
    esac
done)
for scheme in '--asym --group-size 64' '--sym --group-size 128' '--bits 8 --group-size channel --lm-head none'; do
    # shellcheck disable=SC2086
    awq "$tmp/one.llmq" --threads 1 $scheme || fail "$scheme"
    "$llmq" verify "$tmp/one.llmq" -q > "$tmp/log" || fail "$scheme: $(cat "$tmp/log")"
    for t in 1 2 5; do
        # shellcheck disable=SC2086
        awq "$tmp/two.llmq" --threads $t $scheme
        cmp "$tmp/one.llmq" "$tmp/two.llmq" || fail "$scheme: $t threads give other bytes"
    done
    for l in $levels; do
        # shellcheck disable=SC2086
        awq "$tmp/two.llmq" --isa "$l" $scheme
        cmp "$tmp/one.llmq" "$tmp/two.llmq" || fail "$scheme: $l gives other bytes"
    done
done
"$llmq" quantize "$tmp/hf" -o "$tmp/rtn1.llmq" --rtn --threads 1 -q
"$llmq" quantize "$tmp/hf" -o "$tmp/rtn2.llmq" --rtn --threads 3 -q
cmp "$tmp/rtn1.llmq" "$tmp/rtn2.llmq" || fail "--rtn: other bytes with 3 threads"

# ---- a .llmq as source gives the same tensors
"$llmq" convert "$tmp/hf" -o "$tmp/dense.llmq" -q
"$llmq" quantize "$tmp/dense.llmq" -o "$tmp/rtn3.llmq" --rtn -q
"$llmq" inspect --json "$tmp/rtn1.llmq" > "$tmp/a.json"
"$llmq" inspect --json "$tmp/rtn3.llmq" > "$tmp/b.json"

# ---- calibration text by the model itself: the same from a checkpoint and from its .llmq, for any number of threads
self() { "$llmq" quantize "$1" -o "$tmp/$2" --awq --calib self --calib-samples 3 --calib-seqlen 40 -q --threads "$3"; }
mkdir "$tmp/alone"
self "$tmp/hf" alone/self.llmq 1
[ "$(ls "$tmp/alone")" = self.llmq ] || fail "--calib self left $(ls "$tmp/alone")"
self "$tmp/hf" self2.llmq 3
cmp "$tmp/alone/self.llmq" "$tmp/self2.llmq" || fail "--calib self: other bytes with 3 threads"
self "$tmp/dense.llmq" self3.llmq 2
"$llmq" eval "$tmp/self3.llmq" --baseline "$tmp/self2.llmq" --data "$tmp/text" --ctx 48 --windows 2 | grep -q '^KL divergence *0.000000' ||
    fail "--calib self: a .llmq gives another model than its checkpoint"
"$llmq" quantize "$tmp/hf" -o "$tmp/self4.llmq" --awq --calib self --calib-samples 3 --calib-seqlen 40 -q --seed 1
cmp -s "$tmp/self4.llmq" "$tmp/self2.llmq" && fail "--calib self: the seed changes nothing"

# ---- report, provenance, plan
awq "$tmp/out.llmq" --report "$tmp/report.json" --json > "$tmp/sum.json"
"$llmq" inspect --json "$tmp/out.llmq" > "$tmp/out.json"
"$llmq" quantize "$tmp/hf" --awq --calib "$tmp/text" --calib-samples 3 --calib-seqlen 48 --dry-run > "$tmp/plan"
grep -q 'attn_q .*int4-g128-asym' "$tmp/plan" || fail "plan: $(cat "$tmp/plan")"
[ ! -e "$tmp/none.llmq" ]
python3 - "$tmp" << 'EOF'
import json, sys
def load(name):
    return json.load(open(f"{sys.argv[1]}/{name}.json"))
a, b = load("a"), load("b")
assert a["tensors"] == b["tensors"], "a converted file gives other tensors than its checkpoint"
report, prov = load("report"), load("out")["provenance"]
text = json.dumps(prov)
for word in ("/", "threads", "isa", "seconds", "wall_s", "cpu_s"):
    assert word not in text.replace("llmq quantize", ""), (word, text)
assert prov["method"] == "awq" and prov["calibration"]["tokens"] == 144 and prov["calibration"]["windows"] == 3, prov
assert prov["calibration"]["source"] == "text" and len(prov["calibration"]["token_sha256"]) == 64
assert prov["options"]["symmetric"] is False and prov["seed"] == 0 and len(prov["tensors"]) == 15
assert all(len(t["sha256"]) == 64 and len(t["source_sha256"]) == 64 for t in prov["tensors"])
assert report["schema"] == "llmq.quantize/1" and len(report["layers"]) == 2 and report["warnings"] == []
mats = [t for t in report["tensors"] if t["layer"] is not None]
assert len(mats) == 14 and all(t["fallback"] is None for t in mats)
assert sum(t["rel_err"] for t in mats) < sum(t["rtn_rel_err"] for t in mats)
s = load("sum")
assert s["model"]["name"] == "out.llmq" and s["exit_code"] == 0 and s["method"] == "awq", s
EOF

# ---- wrong use
expect() { # status, text, arguments
    want=$1 text=$2
    shift 2
    got=0
    "$llmq" quantize "$@" > "$tmp/log" 2>&1 || got=$?
    [ $got -eq "$want" ] || fail "quantize $*: status $got, expected $want: $(cat "$tmp/log")"
    grep -q -- "$text" "$tmp/log" || fail "quantize $*: no '$text' in: $(cat "$tmp/log")"
    [ ! -e "$tmp/none.llmq" ] || fail "quantize $*: left a file"
}
expect 2 'no method' "$tmp/hf" -o "$tmp/none.llmq"
expect 2 'exclude' "$tmp/hf" -o "$tmp/none.llmq" --rtn --awq
expect 2 'exclude' "$tmp/hf" -o "$tmp/none.llmq" --rtn --sym --asym
expect 2 'no output' "$tmp/hf" --rtn
expect 2 'expected one' -o "$tmp/none.llmq" --rtn
expect 2 'not one of' "$tmp/hf" -o "$tmp/none.llmq" --rtn --bits 3
expect 2 'not one of' "$tmp/hf" -o "$tmp/none.llmq" --rtn --group-size 48
expect 2 '--calib needs a method that calibrates' "$tmp/hf" -o "$tmp/none.llmq" --rtn --calib "$tmp/text"
expect 2 'context' "$tmp/hf" -o "$tmp/none.llmq" --awq --calib "$tmp/text" --calib-seqlen 100000
expect 1 'No such file' "$tmp/hf" -o "$tmp/none.llmq" --awq --calib "$tmp/no-text"
expect 1 'No such file' "$tmp/nothing" -o "$tmp/none.llmq" --rtn
printf 'GGUF\003\000\000\000' > "$tmp/x.gguf"
expect 4 'GGUF' "$tmp/x.gguf" -o "$tmp/none.llmq" --rtn
expect 4 'does not begin' "$tmp/text" -o "$tmp/none.llmq" --rtn
expect 4 'quantized' "$tmp/rtn1.llmq" -o "$tmp/none.llmq" --rtn
printf '\n' > "$tmp/empty"
expect 4 'tokens' "$tmp/hf" -o "$tmp/none.llmq" --awq --calib "$tmp/empty"

# ---- a file-size limit, and a kill half way
(ulimit -f 32 && "$llmq" quantize "$tmp/hf" -o "$tmp/none.llmq" --rtn --lm-head none -q > "$tmp/log" 2>&1) && fail "wrote past a file-size limit"
[ ! -e "$tmp/none.llmq" ] || fail "left a file at the file-size limit"
"$llmq" quantize "$tmp/hf" -o "$tmp/killed.llmq" --awq --calib "$tmp/text" --calib-samples 64 --calib-seqlen 64 --isa scalar -q --threads 1 &
pid=$!
sleep 0.3
kill -9 $pid 2> /dev/null || true
wait $pid 2> /dev/null && fail "was done before it could be killed"
[ ! -e "$tmp/killed.llmq" ] || fail "a killed job left its output"
"$llmq" quantize "$tmp/hf" -o "$tmp/killed.llmq" --awq --calib "$tmp/text" --calib-samples 64 --calib-seqlen 64 --isa scalar -q --threads 1 > "$tmp/log" 2>&1 &
pid=$!
sleep 0.3
kill -TERM $pid 2> /dev/null || true
got=0
wait $pid || got=$?
[ $got -eq 130 ] || fail "interrupted: status $got, expected 130"
[ -z "$(find "$tmp" -name 'killed.llmq*' -newer "$tmp/plan" | grep -v '\.tmp' || true)" ] || fail "an interrupted job left its output"
echo "quantize: ok"

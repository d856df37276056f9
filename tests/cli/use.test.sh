#!/bin/sh
# How the commands answer wrong use and odd surroundings: one line on standard error, the exit status of the contract,
# nothing on standard output and nothing left behind; JSON documents with the keys of the contract; a standard output
# that is full, closed, or read no further.
set -eu
llmq=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
fail() { echo "use: $*"; exit 1; }

# refused STATUS WORDS ARGUMENTS...: one line that says WORDS, nothing on standard output
refused() {
    want=$1 say=$2 rc=0
    shift 2
    "$llmq" "$@" > "$tmp/stdout" 2> "$tmp/stderr" < /dev/null || rc=$?
    [ $rc -eq "$want" ] || fail "$*: status $rc, expected $want: $(cat "$tmp/stderr")"
    grep -qF -- "$say" "$tmp/stderr" || fail "$*: '$(cat "$tmp/stderr")' does not say '$say'"
    [ "$(wc -l < "$tmp/stderr")" -eq 1 ] || fail "$*: more than one line: $(cat "$tmp/stderr")"
    [ ! -s "$tmp/stdout" ] || fail "$*: something on standard output"
}

mkdir "$tmp/w"
work=$tmp/w
python3 tests/cli/gen/tiny.py "$tmp/hf" --seed 21 --layers 1
"$llmq" convert "$tmp/hf" -o "$tmp/m.llmq" -q
"$llmq" quantize "$tmp/m.llmq" --rtn -o "$tmp/q.llmq" -q
m=$tmp/m.llmq q=$tmp/q.llmq new=$work/new.llmq
yes 'the sea and the men' | head -n 200 > "$tmp/text"
: > "$tmp/empty"
printf 'GGUF\003\000\000\000' > "$tmp/a.gguf"
head -c 9000 /dev/zero | tr '\0' '\377' > "$tmp/noise"

# ---- questions and names ------------------------------------------------------------------------------------
refused 2 "no command 'frob'" frob
refused 2 "unknown option '--threads' before the command" --threads 2 inspect "$m"
refused 2 'llmq --help'
for c in $("$llmq" --list-commands); do
    [ "$("$llmq" "$c" --version)" = "$("$llmq" --version)" ] || fail "$c --version"
    "$llmq" "$c" --help > "$tmp/help"
    "$llmq" help "$c" | cmp - "$tmp/help" || fail "help $c"
    refused 2 "unknown option '--frobnicate'" "$c" --frobnicate
    refused 2 "unknown option '-Z'" "$c" -Z
    refused 2 '--threads needs a value' "$c" --threads
    refused 2 '--threads: 0 is out of range, expected 1' "$c" --threads 0
    refused 2 "--progress: 'loud' is not one of" "$c" --progress loud
    refused 2 'expected one' "$c"
    refused 2 'expected one' "$c" a b
done
# A prompt may look like a question.
"$llmq" run "$m" --raw -n 1 -p --help > "$tmp/stdout"
grep -q 'usage' "$tmp/stdout" && fail "the prompt --help is taken as a question"

# ---- what is no model ---------------------------------------------------------------------------------------
for c in inspect verify 'eval --data text' 'run -p x'; do
    # shellcheck disable=SC2086
    {
        refused 1 'No such file' $c "$tmp/nowhere"
        refused 2 'is a directory, expected a .llmq file' $c "$tmp/hf"
        refused 4 'GGUF file' $c "$tmp/a.gguf"
        refused 4 'too short for the header' $c "$tmp/empty"
        refused 4 "$tmp/noise: " $c "$tmp/noise"
    }
done
refused 4 'a GGUF file, which is not converted yet' convert "$tmp/a.gguf" -o "$new"
refused 4 'a GGUF file' quantize "$tmp/a.gguf" --rtn -o "$new"
refused 4 'too short' quantize "$tmp/empty" --rtn -o "$new"
refused 4 "llmq quantize: $q: embed is int8-g128-sym already" quantize "$q" --rtn -o "$new"

# ---- outputs ------------------------------------------------------------------------------------------------
for c in "convert $tmp/hf" "quantize $tmp/hf --rtn"; do
    # shellcheck disable=SC2086
    {
        refused 2 '-o' $c
        refused 2 'the name is empty' $c -o ''
        refused 2 'is a directory' $c -o "$work"
        refused 2 'is a directory' $c -o "$work/"
        refused 2 'is not a regular file' $c -o /dev/null
        refused 1 'cannot write here: No such file' $c -o "$tmp/nowhere/x.llmq"
        refused 1 'cannot write here: Not a directory' $c -o "$m/x.llmq"
        refused 1 'cannot write here: Not a directory' $c -o "$new/"
        refused 2 'is a file of the checkpoint' $c -o "$tmp/hf/model.safetensors"
        refused 2 'is a file of the checkpoint' $c -o "$tmp/hf/../hf/config.json"
        # a limit on file sizes is a full disk
        rc=0
        (ulimit -f 16; exec "$llmq" $c -o "$new") > "$tmp/stdout" 2> "$tmp/stderr" || rc=$?
        grep -q 'new.llmq: write of .*File too large' "$tmp/stderr" || rc=9
        [ $rc -eq 1 ] || fail "$c: a full disk: $rc $(cat "$tmp/stderr")"
    }
done
cp "$m" "$tmp/same.llmq"
ln "$tmp/same.llmq" "$tmp/other-name.llmq"
refused 2 'is the input itself' quantize "$tmp/same.llmq" --rtn -o "$tmp/same.llmq"
refused 2 'is the input itself' quantize "$tmp/same.llmq" --rtn -o "$tmp/w/../same.llmq"
refused 2 'is the input itself' quantize "$tmp/same.llmq" --rtn -o "$tmp/other-name.llmq"
refused 2 'is the input itself' quantize "$tmp/same.llmq" --rtn -o "$new" --report "$tmp/same.llmq"
refused 2 '-o and --report are both' quantize "$m" --rtn -o "$new" --report "$work/./new.llmq"
refused 1 'cannot write here' quantize "$m" --rtn -o "$new" --report "$tmp/nowhere/r.json"
cmp "$m" "$tmp/same.llmq"

# ---- options that do not go together, numbers that make no sense ----------------------------------------------
refused 2 'no method given' quantize "$m" -o "$new"
refused 2 '--rtn excludes --awq' quantize "$m" -o "$new" --rtn --awq
refused 2 '--sym and --asym exclude' quantize "$m" -o "$new" --rtn --sym --asym
for o in '--calib text' '--calib-samples 3' '--calib-seqlen 9' --no-clip --no-scale; do
    # shellcheck disable=SC2086
    refused 2 "${o%% *} needs a method that calibrates" quantize "$m" -o "$new" --rtn $o
done
refused 2 "--bits: '3' is not one of" quantize "$m" -o "$new" --rtn --bits 3
refused 2 "--group-size: '0' is not one of" quantize "$m" -o "$new" --rtn --group-size 0
refused 2 "--dtype: 'int8' is not one of" convert "$tmp/hf" -o "$new" --dtype int8
refused 2 '--calib-seqlen: 300, but' quantize "$m" -o "$new" --awq --calib "$tmp/text" --calib-seqlen 300
refused 4 'empty: 0 tokens, expected at least 2' quantize "$m" -o "$new" --awq --calib "$tmp/empty"
refused 1 'No such file' quantize "$m" -o "$new" --awq --calib "$tmp/nowhere"
refused 4 'not UTF-8' quantize "$m" -o "$new" --awq --calib "$tmp/noise"
printf '{"text": "a"\n' > "$tmp/cut.jsonl"
refused 4 'cut.jsonl: line 1' quantize "$m" -o "$new" --awq --calib "$tmp/cut.jsonl"
while read -r say option value; do
    refused 2 "$say" run "$m" --raw -p x "$option" "$value"
done << 'LIST'
--max-tokens: -n -1
--max-tokens: -n 0
--temperature: --temperature -1
--temperature: --temperature nan
--top-p: --top-p 2
--top-k: --top-k -1
--min-p: --min-p -0.1
--repetition-penalty: --repetition-penalty 0
--seed: --seed -1
--seed: --seed 9223372036854775808
--ctx: --ctx 1
--ctx: --ctx 999999999999
256 --ctx 257
--kv-cache-dtype: --kv-cache-dtype q4
--device: --device cuda
--isa: --isa sse
LIST

# ---- eval -----------------------------------------------------------------------------------------------------
python3 tests/cli/gen/tiny.py "$tmp/hf2" --seed 22 --layers 1 --vocab 300
"$llmq" convert "$tmp/hf2" -o "$tmp/m2.llmq" -q
on="--data $tmp/text --progress none"
# shellcheck disable=SC2086
{
    refused 2 'vocabulary of 300' eval "$m" $on --baseline "$tmp/m2.llmq"
    refused 4 'empty: 0 tokens' eval "$m" --data "$tmp/empty"
    refused 4 'not UTF-8' eval "$m" --data "$tmp/noise"
    refused 2 "'2' has no unit, expected 2%" eval "$m" $on --baseline "$q" --max-ppl-increase 2
    refused 2 "'95' has no unit" eval "$m" $on --baseline "$q" --min-top1 95
    refused 2 '150% is out of range, expected 0% to 100%' eval "$m" $on --baseline "$q" --min-top1 150%
    "$llmq" eval "$m" $on --windows 100000 > "$tmp/stdout" 2> "$tmp/stderr"
    grep -q '^warning: the text has [0-9]* windows, 100000 were asked for' "$tmp/stderr" || fail "too many windows: $(cat "$tmp/stderr")"
    "$llmq" eval "$m" $on --windows 100000 -q > "$tmp/stdout" 2> "$tmp/stderr"
    [ ! -s "$tmp/stderr" ] || fail "--quiet: $(cat "$tmp/stderr")"
}
[ -z "$(ls -A "$work")" ] || fail "left $(ls -A "$work")"

# ---- JSON: a document, alone on standard output, with the contract's keys -----------------------------------------
json() { # KEYS ARGUMENTS...
    keys=$1
    shift
    "$llmq" "$@" --json > "$tmp/doc" 2> "$tmp/stderr" || fail "$* --json: status $?: $(cat "$tmp/stderr")"
    [ ! -s "$tmp/stderr" ] || fail "$* --json: $(cat "$tmp/stderr")"
    has "$keys" "$tmp/doc"
}
has() { # KEYS FILE
    python3 - "$1" "$2" << 'EOF2' || fail "$2: not the keys of the contract"
import json, sys
d = json.load(open(sys.argv[2]))
want = set((sys.argv[1] + " schema version model threads isa device peak_rss_bytes exit_code").split())
assert want <= set(d), want - set(d)
assert d["model"] is None or set(d["model"]) == set("name sha256 scheme bits_per_weight size_bytes".split()), d["model"]
assert d["exit_code"] == 0 and d["schema"].startswith("llmq.") and d["schema"].endswith("/1")
EOF2
}
json '' convert "$tmp/hf" -o "$tmp/json.llmq"
json '' quantize "$m" --rtn --dry-run
json '' quantize "$m" --rtn -o "$tmp/json.llmq"
json '' quantize "$m" --awq --calib "$tmp/text" --calib-samples 2 -o "$tmp/json.llmq" --report "$tmp/report"
has 'source method options seed calibration tensors layers kv warnings wall_s cpu_s eval' "$tmp/report"
json '' inspect "$m"
json 'ok error' verify "$m"
json 'hparams parameters schemes kv ctx batch tensor_parallel memory_bytes scratch_bytes' plan "$m"
json 'token_ids' tokenize "$m" -p x
json 'text token_ids finish_reason kv' run "$m" --raw -p x -n 3
json 'data protocol windows nll_stderr baseline gates' eval "$m" --data "$tmp/text" --windows 2

# ---- standard output: full, closed, read no further -----------------------------------------------------------------
while read -r args; do
    # shellcheck disable=SC2086,SC2046
    set -- $(echo "$args" | sed "s|TMP|$tmp|g")
    if [ -w /dev/full ]; then
        rc=0
        "$llmq" "$@" > /dev/full 2> "$tmp/stderr" < /dev/null || rc=$?
        grep -q 'standard output: No space left' "$tmp/stderr" || rc=9
        [ $rc -eq 1 ] || fail "$*: full: $rc $(cat "$tmp/stderr")"
    fi
    rc=0
    "$llmq" "$@" >&- 2> "$tmp/stderr" < /dev/null || rc=$?
    grep -q 'standard output' "$tmp/stderr" || rc=9
    [ $rc -eq 1 ] || fail "$*: closed: $rc $(cat "$tmp/stderr")"
    python3 - "$llmq" "$@" << 'EOF2' || fail "$*: a reader that left"
import os, subprocess, sys
r, w = os.pipe()
os.close(r)
p = subprocess.run(sys.argv[1:], stdout=w, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
assert p.returncode == 0 and not p.stderr, (p.returncode, p.stderr)
EOF2
done << 'LIST'
--help
--version
run --help
convert TMP/hf -o TMP/x.llmq
convert TMP/hf -o TMP/x.llmq --json
quantize TMP/m.llmq --rtn --dry-run
quantize TMP/m.llmq --rtn -o TMP/x.llmq --json
plan TMP/m.llmq
plan TMP/hf --json
inspect TMP/m.llmq
inspect TMP/m.llmq --json --tensors
inspect TMP/m.llmq --section vocab
verify TMP/m.llmq
eval TMP/m.llmq --data TMP/text --windows 2 -q
eval TMP/m.llmq --data TMP/text --windows 2 --json -q
run TMP/m.llmq --raw -p x
run TMP/m.llmq --raw -p x --json
tokenize TMP/m.llmq -f TMP/text
LIST
# A gate is not lost with its document.
python3 - "$llmq" eval "$m" --data "$tmp/text" --windows 2 --max-ppl 1 --json << 'EOF2' || fail "a gate without a reader"
import os, subprocess, sys
r, w = os.pipe()
os.close(r)
assert subprocess.run(sys.argv[1:], stdout=w, stderr=subprocess.PIPE).returncode == 3
EOF2

# ---- interruption of commands that only read: at once, whatever they are in -----------------------------------------
python3 - "$llmq" "$m" << 'EOF2' || fail "interruption"
import signal, subprocess, sys, time
p = subprocess.Popen([sys.argv[1], "tokenize", sys.argv[2], "--lines"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
p.stdin.write(b'"the sea"\n' * 1000)
p.stdin.flush()
time.sleep(0.2)
p.send_signal(signal.SIGINT)
out, err = p.communicate(timeout=20)
assert p.returncode == 130 and err.endswith(b"interrupted\n") and not out, (p.returncode, out, err)
EOF2
echo "use: refusals, documents, outputs"

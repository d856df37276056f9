#!/bin/sh
# inspect and verify: what they print, JSON keys, other kinds of files, exit statuses.
set -eu
llmq=$1 good=tests/format/good
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# expect STATUS WORDS COMMAND...: the exit status, and words on stderr ("" for none to be there)
expect() {
    want=$1 words=$2 status=0
    shift 2
    "$@" > "$tmp/out" 2> "$tmp/err" || status=$?
    [ "$status" -eq "$want" ] || { echo "$*: exit status $status, expected $want: $(cat "$tmp/err")"; exit 1; }
    if [ -n "$words" ]; then
        grep -qF -- "$words" "$tmp/err" || { echo "$*: says '$(cat "$tmp/err")', expected '$words'"; exit 1; }
    else
        [ ! -s "$tmp/err" ] || { echo "$*: says '$(cat "$tmp/err")'"; exit 1; }
    fi
}

expect 0 '' "$llmq" verify "$good/texts.llmq"
grep -q "^$good/texts.llmq: ok, 11 tensors, 14784 bytes\$" "$tmp/out"
expect 0 '' "$llmq" inspect "$good/texts.llmq"
grep -q '^model       llama: 1 layers, d_model 12' "$tmp/out"
if grep -q '^layer 0 attn_q' "$tmp/out"; then echo 'inspect lists tensors unasked'; exit 1; fi
expect 0 '' "$llmq" inspect --tensors "$good/texts.llmq"
grep -q '^layer 0 attn_q' "$tmp/out"
expect 0 '' "$llmq" inspect "$good/texts.llmq" --section chat_template
printf '{{ messages }} \303\251\n' | cmp - "$tmp/out"
expect 2 "has no section 'kv'" "$llmq" inspect "$good/texts.llmq" --section kv
expect 2 "there is no section 'nose'" "$llmq" inspect "$good/texts.llmq" --section nose
expect 2 '0 files, expected one' "$llmq" inspect
expect 2 '2 files, expected one' "$llmq" verify a b
expect 1 'No such file' "$llmq" inspect "$tmp/none.llmq"
expect 2 'is a directory, expected a .llmq file' "$llmq" inspect "$tmp"
expect 2 'is a directory, expected a .llmq file' "$llmq" verify "$tmp"
printf 'GGUF\003\000\000\000' > "$tmp/a.gguf"
expect 4 'a GGUF file; only .llmq files are read so far' "$llmq" inspect "$tmp/a.gguf"
expect 4 'a GGUF file; only .llmq files are read so far' "$llmq" verify "$tmp/a.gguf"
printf '\002\000\000\000\000\000\000\000{}' > "$tmp/a.safetensors"
expect 4 'a safetensors file; only .llmq files are read so far' "$llmq" inspect "$tmp/a.safetensors"
printf 'hello' > "$tmp/a.txt"
expect 4 'too short for the header of a .llmq' "$llmq" verify "$tmp/a.txt"

keys() { # FILE KEYS: the top-level keys, sorted
    python3 -c 'import json, sys; print(" ".join(sorted(json.load(open(sys.argv[1])))))' "$1" > "$tmp/keys"
    [ "$(cat "$tmp/keys")" = "$2" ] || { echo "keys '$(cat "$tmp/keys")', expected '$2'"; exit 1; }
}
expect 0 '' "$llmq" inspect --json "$good/int4-int8-sym.llmq"
keys "$tmp/out" 'bytes device exit_code format_version hparams isa model peak_rss_bytes provenance schema schemes sections tensors threads version weights'
sum=$(sha256sum < "$good/int4-int8-sym.llmq" | cut -d' ' -f1)
grep -q "\"sha256\": \"$sum\"" "$tmp/out"
expect 0 '' "$llmq" verify --json "$good/texts.llmq"
keys "$tmp/out" 'device error exit_code isa model ok peak_rss_bytes schema tensors threads version'
gzip -dc tests/format/bad/data-nan.llmq.gz > "$tmp/nan.llmq"
expect 4 'element 3 is NaN or infinite' "$llmq" verify --json "$tmp/nan.llmq"
grep -q '"ok": false' "$tmp/out"
grep -q '"exit_code": 4' "$tmp/out"
echo "inspect, verify: ok"

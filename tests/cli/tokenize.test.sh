#!/bin/sh
# tokenize: where the text comes from, what is printed, exit statuses; the same ids from a checkpoint and its .llmq.
set -eu
llmq=$1 toks=tests/golden/tokenizers
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# expect STATUS WORDS COMMAND...: the exit status, and words on stderr ("" for none to be there)
expect() {
    want=$1 words=$2 status=0
    shift 2
    "$@" > "$tmp/out" 2> "$tmp/err" < "$tmp/in" || status=$?
    [ "$status" -eq "$want" ] || { echo "$*: exit status $status, expected $want: $(cat "$tmp/err")"; exit 1; }
    if [ -n "$words" ]; then
        grep -qF -- "$words" "$tmp/err" || { echo "$*: says '$(cat "$tmp/err")', expected '$words'"; exit 1; }
    else
        [ ! -s "$tmp/err" ] || { echo "$*: says '$(cat "$tmp/err")'"; exit 1; }
    fi
}
said() { [ "$(cat "$tmp/out")" = "$1" ] || { echo "printed '$(cat "$tmp/out")', expected '$1'"; exit 1; }; }

printf 'ab <|end|>' > "$tmp/in"
expect 0 '' "$llmq" tokenize "$toks/llama3.json"
first=$(cat "$tmp/out")
expect 0 '' "$llmq" tokenize "$toks/llama3.json" -f "$tmp/in"
said "$first"
expect 0 '' "$llmq" tokenize "$toks/llama3.json" -f -
said "$first"
expect 0 '' "$llmq" tokenize "$toks/llama3.json" --text 'ab <|end|>'
said "$first"
case $first in "0 "*" 1") ;; *) echo "no BOS, or <|end|> is not 1: $first"; exit 1 ;; esac
expect 0 '' "$llmq" tokenize "$toks/llama3.json" --no-special
said "${first#0 }"
expect 0 '' "$llmq" tokenize "$toks/llama3.json" --no-parse-special
[ "$(wc -w < "$tmp/out")" -gt 8 ]
expect 0 '' "$llmq" tokenize "$toks/llama3.json" --json -p ab
grep -q '"schema": "llmq.tokenize/1"' "$tmp/out" && grep -q '"token_ids"' "$tmp/out" && grep -q '"exit_code": 0' "$tmp/out"

# Decoding: what was encoded, specials kept or not.
expect 0 '' "$llmq" tokenize "$toks/llama3.json" --decode -p "$first"
said '<|begin|>ab <|end|>'
expect 0 '' "$llmq" tokenize "$toks/llama3.json" --decode --skip-special -p "[${first}]"
said 'ab '
expect 0 '' "$llmq" tokenize "$toks/llama3.json" --decode --lines -p '[0, 1]'
said '"<|begin|><|end|>"'

# A directory reads only its tokenizer.json.
mkdir "$tmp/dir"
cp "$toks/llama3.json" "$tmp/dir/tokenizer.json"
expect 0 '' "$llmq" tokenize "$tmp/dir"
said "$first"

# The .llmq of a checkpoint says the same, whatever the tokenizer; one that cannot be run is not converted.
python3 tests/cli/gen/tiny.py "$tmp/model" --vocab 600
for t in gpt2 llama2 added metaspace_never; do
    cp "$toks/$t.json" "$tmp/model/tokenizer.json"
    "$llmq" convert "$tmp/model" -o "$tmp/model.llmq" > /dev/null
    "$llmq" tokenize "$tmp/model.llmq" --lines -f "$toks/texts.txt" | cmp - "$toks/$t.ids" || { echo "tokenize: $t.llmq differs"; exit 1; }
done
sed 's/"pre_tokenizer":{"type":"ByteLevel"/"pre_tokenizer":{"type":"Split","pattern":{"Regex":"(a)\\\\1"},"behavior":"Isolated","invert":false},"x":{"type":"ByteLevel"/' \
    "$toks/gpt2.json" > "$tmp/model/tokenizer.json"
expect 4 'an escape that is not supported' "$llmq" convert "$tmp/model" -o "$tmp/no.llmq"
[ ! -e "$tmp/no.llmq" ]

# What must be refused, and how.
expect 2 'expected one' "$llmq" tokenize
expect 2 'only one of them' "$llmq" tokenize "$toks/llama3.json" -p a -f b
expect 2 "'x' is not a token id" "$llmq" tokenize "$toks/llama3.json" --decode -p '1 x'
expect 4 'line 2' "$llmq" tokenize "$toks/llama3.json" --lines -p '"a"
7'
expect 4 'tokenizer.json' "$llmq" tokenize "$tmp"
printf 'a\377b' > "$tmp/in"
expect 4 'byte 1 is 0xff' "$llmq" tokenize "$toks/llama3.json"
sed 's/"dropout":null/"dropout":0.1/' "$toks/gpt2.json" > "$tmp/dropout.json"
expect 4 'dropout' "$llmq" tokenize "$tmp/dropout.json"
sed 's/"normalizer":null/"normalizer":{"type":"Precompiled","precompiled_charsmap":""}/' "$toks/gpt2.json" > "$tmp/precompiled.json"
expect 4 'normalizer "Precompiled" is not supported' "$llmq" tokenize "$tmp/precompiled.json"
head -c 3000 "$toks/gpt2.json" > "$tmp/cut.json"
expect 4 "$tmp/cut.json" "$llmq" tokenize "$tmp/cut.json"
echo "tokenize: ok"

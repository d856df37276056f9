#!/bin/sh
# Families and RoPE scalings beside plain Llama: quantized and run, contexts as long as they are stretched to.
set -eu
llmq=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
fail() { echo "families: $*"; exit 1; }
golden=tests/golden/llama

# expect STATUS WORDS ARGUMENTS...
expect() {
    want=$1 say=$2 rc=0
    shift 2
    "$llmq" "$@" > "$tmp/out" 2> "$tmp/err" < /dev/null || rc=$?
    [ $rc -eq "$want" ] || fail "$*: status $rc, expected $want: $(cat "$tmp/err")"
    grep -q -- "$say" "$tmp/err" || fail "$*: '$(cat "$tmp/err")' does not say '$say'"
}

# the biases are carried over, and four bits lose what four bits lose
for d in qwen2 qwen2_yarn dynamic_rope mistral_window; do
    "$llmq" convert "$golden/$d" -o "$tmp/$d.llmq" -q --progress none
    "$llmq" quantize "$golden/$d" -o "$tmp/$d.q4.llmq" --awq --group-size 32 --calib-samples 4 -q --progress none
    "$llmq" quantize "$golden/$d" -o "$tmp/$d.q8.llmq" --rtn --bits 8 --group-size 32 -q --progress none
    "$llmq" eval "$tmp/$d.q4.llmq" --baseline "$tmp/$d.llmq" --data README.md --ctx 48 --windows 8 --max-kld 0.15 -q > "$tmp/eval" || fail "$d: $(cat "$tmp/eval")"
    "$llmq" eval "$tmp/$d.q8.llmq" --baseline "$tmp/$d.llmq" --data README.md --ctx 48 --windows 8 --max-kld 0.001 -q > "$tmp/eval" || fail "$d: $(cat "$tmp/eval")"
done
"$llmq" inspect "$tmp/qwen2.q4.llmq" --json > "$tmp/qwen2.json"
python3 -c "
import json, sys
d = json.load(open(sys.argv[1]))
biases = [t for t in d['tensors'] if 'bias' in t['role']]
assert len(biases) == 6 and {t['scheme'] for t in biases} == {'f32'}, biases
" "$tmp/qwen2.json" || fail "qwen2's biases"

# yarn and dynamic scaling make room beyond max_position_embeddings, a window takes it
"$llmq" run "$tmp/qwen2_yarn.llmq" --raw -p hello --ctx 256 -n 300 --ignore-eos --json > "$tmp/run.json"
python3 -c "
import json, sys
d = json.load(open(sys.argv[1]))
assert d['prompt_tokens'] + d['completion_tokens'] == 256 and d['finish_reason'] == 'length', d
" "$tmp/run.json" || fail "a stretched context"
expect 2 'a context of 257 tokens: the model was made for at most 256' run "$tmp/qwen2_yarn.llmq" --raw -p hello --ctx 257
expect 2 'a context of 257 tokens: the model was made for at most 256' run "$tmp/dynamic_rope.llmq" --raw -p hello --ctx 257
expect 2 'a context of 61 tokens: the model was made for at most 60' run "$tmp/mistral_window.llmq" --raw -p hello --ctx 61
expect 0 '^warning: .*layers attend to the last 60 tokens; the model is limited to a context of 60, of 1024' convert "$golden/mistral_window" -o "$tmp/again.llmq"
echo "families: Qwen2, Mistral, YaRN, dynamic"

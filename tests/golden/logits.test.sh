#!/bin/sh
# Logit parity with transformers on tiny random checkpoints (tests/golden/gen/tiny_llama.py).
set -eu
llmq=$1
check=${llmq%/llmq}/checklogits
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
for d in tests/golden/llama/*/; do
    name=$(basename "$d")
    "$llmq" convert "$d" -o "$tmp/$name.llmq" --progress none -q
    "$check" "$tmp/$name.llmq" "$d/expect.bin" | sed "s|$tmp/||"
    "$check" "$tmp/$name.llmq" "$d/expect.bin" > /dev/null # sed hides the status
done
echo "logits: parity with transformers"

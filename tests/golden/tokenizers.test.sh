#!/bin/sh
# Ids and decoded text of small tokenizers, as the tokenizers library makes them (gen/train_tokenizers.py).
set -eu
llmq=$1 dir=tests/golden/tokenizers bad=0 n=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
for f in "$dir"/*.json; do
    name=$(basename "$f" .json) n=$((n + 1))
    "$llmq" tokenize "$f" --lines -f "$dir/texts.txt" > "$tmp/ids" || { echo "tokenizers: $name: encode failed"; bad=1; continue; }
    diff "$dir/$name.ids" "$tmp/ids" > "$tmp/diff" || { echo "tokenizers: $name: ids differ:"; head -4 "$tmp/diff"; bad=1; }
    cat "$dir/$name.ids" "$dir/random.txt" > "$tmp/lists"
    "$llmq" tokenize "$f" --decode --skip-special --lines -f "$tmp/lists" > "$tmp/out" || { echo "tokenizers: $name: decode failed"; bad=1; continue; }
    diff "$dir/$name.out" "$tmp/out" > "$tmp/diff" || { echo "tokenizers: $name: text differs:"; head -4 "$tmp/diff"; bad=1; }
done
[ $bad -eq 0 ] && [ $n -gt 10 ] && echo "tokenizers: $n ok"

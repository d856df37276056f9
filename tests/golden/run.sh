#!/bin/sh
# Runs every tests/golden/*.test.sh with the binary as its argument; each prints one line when it passes.
set -eu
llmq=$1 bad=0 n=0
for t in tests/golden/*.test.sh; do
    [ -e "$t" ] || continue
    n=$((n + 1))
    sh "$t" "$llmq" || { echo "FAILED: $t"; bad=$((bad + 1)); }
done
echo "golden: $((n - bad)) passed, $bad failed"
[ $bad -eq 0 ]

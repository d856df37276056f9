#!/bin/sh
# Runs every tests/cli/*.test.sh with the binary as its argument; each prints one line when it passes.
set -eu
llmq=$1 bad=0 n=0
for t in tests/cli/*.test.sh; do
    [ -e "$t" ] || continue
    n=$((n + 1))
    sh "$t" "$llmq" || { echo "FAILED: $t"; bad=$((bad + 1)); }
done
echo "cli: $((n - bad)) passed, $bad failed"
[ $bad -eq 0 ]

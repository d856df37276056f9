#!/bin/sh
# Files that must load, listed as recorded and with the sums that an independent reader finds; and files that
# each break one rule, which must be refused with the words in bad/EXPECT.
# usage: run.sh LLMQ [--update]     (--update records the listings of good/)
set -eu
llmq=$1 here=tests/format bad=0 n=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

fail() {
    echo "FAILED: $*"
    bad=$((bad + 1))
}

for f in "$here"/good/*.llmq; do
    n=$((n + 1))
    want=${f%.llmq}.out
    "$llmq" verify "$f" > /dev/null || { fail "$f: verify refuses it"; continue; }
    "$llmq" inspect --sums "$f" > "$tmp/out" || { fail "$f: inspect refuses it"; continue; }
    [ "${2-}" != --update ] || cp "$tmp/out" "$want"
    diff -u "$want" "$tmp/out" || fail "$f: the listing has changed"
    "$llmq" inspect --sums --json "$f" > "$tmp/json"
    python3 "$here/reader.py" "$f" "$tmp/json" || fail "$f: the independent reader disagrees"
done

# status_of COMMAND FILE: runs it, words in $tmp/err
status_of() {
    status=0
    "$llmq" "$1" "$2" > /dev/null 2> "$tmp/err" || status=$?
}
while IFS='	' read -r name command want words; do
    case $name in \#*) continue ;; esac
    n=$((n + 1))
    gzip -dc "$here/bad/$name.llmq.gz" > "$tmp/$name.llmq"
    if [ "$command" = verify ]; then
        status_of inspect "$tmp/$name.llmq"
        [ "$status" -eq 0 ] || fail "$name: inspect refuses it: $(cat "$tmp/err")"
    else
        status_of inspect "$tmp/$name.llmq"
        [ "$status" -eq "$want" ] || fail "$name: inspect exits with $status, expected $want"
        grep -qF -- "$words" "$tmp/err" || fail "$name: inspect says '$(cat "$tmp/err")', expected '$words'"
    fi
    status_of verify "$tmp/$name.llmq"
    [ "$status" -eq "$want" ] || fail "$name: verify exits with $status, expected $want"
    grep -qF -- "$words" "$tmp/err" || fail "$name: verify says '$(cat "$tmp/err")', expected '$words'"
    rm "$tmp/$name.llmq"
done < "$here/bad/EXPECT"
echo "format: $n files, $bad failed"
[ "$bad" -eq 0 ]

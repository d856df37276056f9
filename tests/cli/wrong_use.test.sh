#!/bin/sh
# Wrong use and bad surroundings, for every command: no arguments, an unknown option, nothing there, a directory that is no
# checkpoint, a GGUF, a full disk, a folder that cannot be written, an interruption.  Each gets one line on standard error
# that says what is wrong, the exit status of the contract, and leaves the output's path and its folder as they were.
#
# `wrong_use.test.sh LLMQ full-disk FOLDER` is its second half, inside a mount namespace of its own.
set -eu
llmq=$1
model=calib_data/demo

fail() { echo "wrong_use: $*"; exit 1; }

# refused STATUS WORDS ARGUMENTS...: one line, in which WORDS (a regular expression) stands; nothing on standard output
refused() {
    want=$1 say=$2 rc=0
    shift 2
    $as "$llmq" "$@" > "$tmp/stdout" 2> "$tmp/stderr" < /dev/null || rc=$?
    [ $rc -eq "$want" ] || fail "$*: status $rc, expected $want: $(cat "$tmp/stderr")"
    [ "$(wc -l < "$tmp/stderr")" -eq 1 ] || fail "$*: expected one line, found: $(cat "$tmp/stderr")"
    grep -q -- "$say" "$tmp/stderr" || fail "$*: '$(cat "$tmp/stderr")' does not say '$say'"
    [ ! -s "$tmp/stdout" ] || fail "$*: something on standard output"
}
as=

# The folder OUT holds the file `kept` under the name that a job wants, and nothing else: before and after.
prepare() {
    rm -rf "${1:?}"/*
    echo 'what was here' > "$1/kept"
}
untouched() { # FOLDER WHAT
    [ "$(ls -A "$1")" = kept ] || fail "$2: left $(ls -A "$1")"
    [ "$(cat "$1/kept")" = 'what was here' ] || fail "$2: the output's path is not as it was"
}

# ---- a full disk, in a namespace of its own ------------------------------------------------------------------------
if [ "${2:-}" = full-disk ]; then
    tmp=$3
    mount -t tmpfs -o size=256k none "$tmp/full" 2> /dev/null || exit 77
    for c in "convert $model" "quantize $model --rtn" "quantize $tmp/m.llmq --rtn" \
        "quantize $model --awq --calib-samples 1 --calib-seqlen 32" \
        "quantize $model --awq --calib self --calib-samples 1 --calib-seqlen 32"; do
        prepare "$tmp/full"
        # shellcheck disable=SC2086
        refused 1 'full/kept.*: write of [0-9]* bytes at [0-9]*: No space left on device' $c -o "$tmp/full/kept" -q
        untouched "$tmp/full" "$c"
    done
    # The disk of the report is full and the model's is not: there is no model without its report.
    prepare "$tmp/full"
    head -c 1000000 /dev/zero > "$tmp/full/filler" 2> /dev/null || true
    prepare "$tmp/out"
    refused 1 'full/report.json: .*No space left on device' quantize $model --rtn -o "$tmp/out/kept" --report "$tmp/full/report.json" -q
    untouched "$tmp/out" "a report on a full disk"
    [ ! -e "$tmp/full/report.json" ] || fail "a report on a full disk is there"
    exit 0
fi

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
chmod 755 "$tmp"
mkdir "$tmp/empty" "$tmp/out" "$tmp/full"
printf 'GGUF\003\000\000\000' > "$tmp/x.gguf"
"$llmq" convert $model -o "$tmp/m.llmq" -q

# ---- every command: arguments --------------------------------------------------------------------------------------
# What a command needs beside the model; a command that is not named here needs nothing.
rest() {
    case $1 in
    convert) echo "-o $tmp/out/kept" ;;
    quantize) echo "--rtn -o $tmp/out/kept" ;;
    eval) echo '--data calib_data/demo/heldout.txt' ;;
    run | tokenize) echo '-p x' ;;
    esac
}
# What a directory without config.json or tokenizer.json is called: by some a checkpoint with something missing.
refused 2 'llmq --help'
prepare "$tmp/out"
for c in $("$llmq" --list-commands); do
    # shellcheck disable=SC2046
    {
        refused 2 "^llmq $c: .*expected one.*llmq $c" "$c"
        refused 2 "^llmq $c: unknown option '--frobnicate'.*llmq $c --help" "$c" --frobnicate
        [ "$c" != completion ] || { refused 2 "'csh' is not one of bash|zsh|fish" completion csh; continue; }
        refused 1 "^llmq $c: $tmp/nowhere: .*No such file or directory" "$c" "$tmp/nowhere" $(rest "$c")
        refused 4 "^llmq $c: $tmp/x.gguf: " "$c" "$tmp/x.gguf" $(rest "$c")
        case $c in
        convert | quantize | plan) refused 4 "$tmp/empty: config.json is missing, expected" "$c" "$tmp/empty" $(rest "$c") ;;
        tokenize) refused 4 "$tmp/empty: tokenizer.json is missing, expected" "$c" "$tmp/empty" $(rest "$c") ;;
        *) refused 2 "$tmp/empty is a directory, expected a .llmq" "$c" "$tmp/empty" $(rest "$c") ;;
        esac
    }
    untouched "$tmp/out" "$c"
done
refused 4 'a GGUF file' quantize "$tmp/x.gguf" --rtn -o "$tmp/out/kept"
untouched "$tmp/out" "quantize a GGUF"

# ---- a full disk ---------------------------------------------------------------------------------------------------
# A limit on the size of files is one for everybody; a file system that is full needs a name space, or to be root.
for c in "convert $model" "quantize $model --rtn" "quantize $model --awq --calib-samples 1 --calib-seqlen 32"; do
    rc=0
    # shellcheck disable=SC2086
    (ulimit -f 64; exec "$llmq" $c -o "$tmp/out/kept" -q) > "$tmp/stdout" 2> "$tmp/stderr" || rc=$?
    [ $rc -eq 1 ] || fail "$c: a limit: status $rc: $(cat "$tmp/stderr")"
    grep -q 'out/kept: write of .*: File too large' "$tmp/stderr" || fail "$c: a limit: $(cat "$tmp/stderr")"
    [ "$(wc -l < "$tmp/stderr")" -eq 1 ] || fail "$c: a limit: $(cat "$tmp/stderr")"
    untouched "$tmp/out" "$c, a limit"
done
own=-rm
[ "$(id -u)" -ne 0 ] || own=-m
full='a full disk'
if unshare $own true 2> /dev/null; then
    rc=0
    unshare $own sh "$0" "$llmq" full-disk "$tmp" || rc=$?
else
    rc=77
fi
case $rc in
0) ;;
77) full='(SKIPPED: no mount name space here, so no full disk)' ;;
*) exit 1 ;;
esac

# ---- a folder that cannot be written ---------------------------------------------------------------------------------
# Permissions do not bite root, so root becomes somebody else; the binary may lie where that one cannot go.
folder='a folder without permission'
mkdir "$tmp/shut" "$tmp/open"
chmod 777 "$tmp/open"
prepare "$tmp/shut"
chmod 555 "$tmp/shut"
cp "$llmq" "$tmp/llmq"
cp -r $model "$tmp/model"
chmod -R a+rX "$tmp/model" "$tmp/llmq" "$tmp/m.llmq"
if [ "$(id -u)" -eq 0 ]; then
    as='setpriv --reuid 65534 --regid 65534 --clear-groups'
    $as true 2> /dev/null || as=none
fi
if [ "$as" = none ]; then
    folder='(SKIPPED: root, and no setpriv to become somebody else)'
else
    was=$llmq
    llmq=$tmp/llmq
    for c in "convert $tmp/model" "quantize $tmp/model --rtn" "quantize $tmp/m.llmq --awq"; do
        # shellcheck disable=SC2086
        for name in kept new; do
            refused 1 "shut/$name: cannot write here: Permission denied" $c -o "$tmp/shut/$name"
            untouched "$tmp/shut" "$c -o $name"
        done
    done
    refused 1 "shut/r.json: cannot write here: Permission denied" quantize "$tmp/model" --rtn -o "$tmp/open/x.llmq" --report "$tmp/shut/r.json"
    [ -z "$(ls -A "$tmp/open")" ] || fail "a report that cannot be written: left $(ls -A "$tmp/open")"
    llmq=$was
fi
as=
chmod 755 "$tmp/shut"

# ---- interruption: 130, one line, the path as it was, no temporary file --------------------------------------------------
for how in INT TERM; do
    prepare "$tmp/out"
    python3 - $how "$llmq" "$tmp" $model << 'PY' || fail "SIG$how"
import os, signal, subprocess, sys, time

sig, llmq, tmp, model = getattr(signal, "SIG" + sys.argv[1]), *sys.argv[2:]
slow = "--threads 1 --isa scalar --progress none"
out = f"{tmp}/out"
text = "calib_data/demo/heldout.txt"

def catches(pid):  # before that, the signal is the loader's and not the program's
    status = open(f"/proc/{pid}/status").read().split("SigCgt:")
    return len(status) == 2 and int(status[1].split()[0], 16) >> (sig - 1) & 1

jobs = [  # the arguments, and what shows that the job is under way
    (f"quantize {model} --awq -o {out}/kept {slow}", lambda: len(os.listdir(out)) > 1),
    (f"quantize {tmp}/m.llmq --awq -o {out}/kept {slow}", lambda: len(os.listdir(out)) > 1),
    (f"quantize {model} --awq --calib self -o {out}/kept {slow}", lambda: True),
    (f"eval {tmp}/m.llmq --data {text} --baseline {tmp}/m.llmq {slow}", lambda: True),
    (f"run {tmp}/m.llmq --raw -p Once -n 500 --ignore-eos --json {slow}", lambda: True),
]
for args, begun in jobs:
    p = subprocess.Popen([llmq] + args.split(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    until = time.time() + 60
    while not (catches(p.pid) and begun()) and p.poll() is None and time.time() < until:
        time.sleep(0.01)
    time.sleep(0.1)
    p.send_signal(sig)
    stdout, stderr = p.communicate(timeout=120)
    said = stderr.decode()
    assert p.returncode == 130, (args, p.returncode, said)
    assert said.count("\n") == 1 and "interrupted" in said, (args, said)
    assert not stdout or args.startswith("run"), (args, stdout)  # run gives out what there is
    assert os.listdir(out) == ["kept"], (args, os.listdir(out))
    assert open(f"{out}/kept").read() == "what was here\n", args
PY
done
echo "wrong_use: every command answers in one line; $full, $folder, interruptions"

#!/bin/sh
# parity.sh LLMQ SHARED [STEP [TOKENIZER ...]]: token ids against the tokenizers library, which is installed into a
# virtual environment under build/.  SHARED has data/tokenizers/*/tokenizer.json.xz and the like (parity.py lists them);
# STEP takes every STEPth code point.
set -eu
llmq=$1 shared=${2:-}
[ -n "$shared" ] || { echo "parity: say where the tokenizers are: make parity SHARED=folder" >&2; exit 2; }
shift 2
venv=build/parity-venv
if ! "$venv/bin/python" -c 'import tokenizers' 2> /dev/null; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install -q tokenizers==0.23.3
fi
exec "$venv/bin/python" tests/golden/parity.py "$llmq" "$shared" "$@"

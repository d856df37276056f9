#!/bin/sh
# Parity of whole runs with transformers (float32, eager): perplexity under the GPTQ protocol, greedy text of ten raw
# prompts, and the chat prompt.  Never part of `make test`: it needs a Python with torch and transformers.
#
#   tests/bench/parity_llm.sh LLMQ HF_DIR TEXT [WINDOWS [PYTHON]]
#
# HF_DIR: a Llama-family checkpoint; TEXT: wiki.test.raw; WINDOWS: how many of 2048 tokens (default 4; 0: all).
set -eu
[ $# -ge 3 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2; }
llmq=$1 hf=$2 text=$3 windows=${4:-4} python=${5:-python3}
here=$(dirname "$0")
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
"$llmq" convert "$hf" -o "$tmp/model.llmq" -q
"$python" "$here/parity_llm.py" "$llmq" "$tmp/model.llmq" "$hf" "$text" "$windows"

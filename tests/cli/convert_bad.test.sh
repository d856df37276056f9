#!/bin/sh
# Damaged checkpoints and failing disks: the exit status and what the message must say; after each, nothing new
# stands under the target's name and what stood there is as it was.
set -eu
llmq=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
gen() { python3 tests/cli/gen/tiny.py "$@"; }
bad=0
fail() { echo "convert_bad: $*"; bad=1; }

# Runs convert into a folder of its own: expected status, pattern, then the arguments.
refused() {
    want=$1 say=$2 rc=0
    shift 2
    rm -rf "$tmp/out"
    mkdir "$tmp/out"
    "$llmq" convert "$@" -o "$tmp/out/new.llmq" > "$tmp/stdout" 2> "$tmp/stderr" || rc=$?
    [ $rc -eq "$want" ] || fail "$*: status $rc, expected $want: $(cat "$tmp/stderr")"
    grep -q -- "$say" "$tmp/stderr" || fail "$*: '$(cat "$tmp/stderr")' does not say '$say'"
    [ ! -s "$tmp/stdout" ] || fail "$*: something on standard output"
    [ -z "$(ls -A "$tmp/out")" ] || fail "$*: left $(ls -A "$tmp/out")"
}

# damage, shards, what the message must say
while read -r name shards say; do
    gen "$tmp/m" --shards "$shards" --damage "$name"
    refused 4 "$say" "$tmp/m"
    rm -rf "$tmp/m"
done << 'LIST'
truncated 1 model.safetensors: tensor model.norm.weight ends at byte .* truncated
header-past-end 1 a header of .* bytes, expected at most
header-huge 1 a header of 9223372036854775813 bytes, expected at most
empty 1 0 bytes, too short
overlap 1 begins at byte .* inside tensor model.embed_tokens.weight
hole 1 bytes .* belong to none
tail 1 the tensors end at byte .* the file at
backwards 1 expected 0 <= begin <= end
duplicate 1 duplicate key "model.embed_tokens.weight"
size 1 128 bytes, expected \[65\] of BF16
huge-shape 1 too large to exist
wrong-dtype 1 mlp.up_proj.weight has element type I16, expected F32, F16 or BF16
unknown-dtype 1 unknown element type "Q4_0"
rank 1 9 dimensions
bad-json 1 line 1, column
not-object 1 not a JSON object
metadata 1 "__metadata__"
nan 1 tensor model.layers.1.mlp.up_proj.weight, row 5, column 3 is NaN
inf 3 tensor model.layers.1.mlp.up_proj.weight, row 5, column 3 is infinite
unknown-tensor 1 tensor model.layers.0.self_attn.q_norm.weight (BF16 \[16\]) has no place
missing-tensor 1 tensor model.layers.1.mlp.up_proj.weight is missing
extra-layer 1 is of layer 2, but num_hidden_layers
stray-bias 1 q_proj.bias is there, but config.json states no such bias
rows 1 embed_tokens.weight has shape \[265, 64\], expected \[264, 64\]
tied-head-differs 1 lm_head.weight differs from model.embed_tokens.weight
missing-key 1 config.json: key "hidden_size" is missing
unknown-type 1 model_type "quokka" is not known; known are llama
quantized 1 quantized already
window 1 a sliding window of 64 tokens
gelu 1 hidden_act is "gelu", expected "silu"
longrope 1 unknown rope type "longrope"
string-size 1 "hidden_size" is a string, expected an integer
negative 1 "num_hidden_layers" is -2
vocab 1 token ids up to 263, but vocab_size in config.json is 200
eos 1 the end token is 100000
no-head 1 tensor lm_head.weight is missing
no-config 1 config.json is missing
bad-config 1 config.json: line
no-tokenizer 1 tokenizer.json is missing
no-weights 1 neither model.safetensors nor model.safetensors.index.json
index-extra 3 model.ghost.weight
index-lacks 3 model.norm.weight of shard .* is not in weight_map
index-wrong 3 weight_map places tensor model.embed_tokens.weight in
index-path 3 is not a plain file name
index-empty 3 "weight_map" is missing, empty
two-shards 3 tensor model.embed_tokens.weight is in two shards
missing-shard 3 the shard is missing
both 3 there is also a model.safetensors
LIST

gen "$tmp/m"
refused 1 'No such file' "$tmp/nowhere"
refused 4 'not a directory' "$tmp/m/config.json"
refused 2 'expected one' "$tmp/m" "$tmp/m"
gen "$tmp/big" --dtype F32
python3 - "$tmp/big/model.safetensors" << 'EOF2'
import struct, sys
f = open(sys.argv[1], "r+b")
n = struct.unpack("<Q", f.read(8))[0]
f.seek(8 + n + 4 * (64 * 7 + 2))
f.write(struct.pack("<f", 70000.0))
EOF2
refused 4 'embed_tokens.weight, row 7, column 2: 70000 does not fit f16; use --dtype bf16' "$tmp/big" --dtype fp16

# A target that was there stays as it was.
echo old > "$tmp/kept.llmq"
gen "$tmp/nan" --damage nan
"$llmq" convert "$tmp/nan" -o "$tmp/kept.llmq" 2> "$tmp/stderr" && fail "NaN was accepted"
[ "$(cat "$tmp/kept.llmq")" = old ] || fail "a failed job changed the target"

# A file-size limit (blocks of 512 or 1024 bytes: both below the 190 kB that are needed), and a folder that cannot be written.
rc=0
(ulimit -f 64; exec "$llmq" convert "$tmp/m" -o "$tmp/out/limit.llmq") 2> "$tmp/stderr" || rc=$?
[ $rc -eq 1 ] || fail "file-size limit: status $rc, expected 1: $(cat "$tmp/stderr")"
grep -q 'limit.llmq: write of .*File too large' "$tmp/stderr" || fail "file-size limit: $(cat "$tmp/stderr")"
[ -z "$(ls -A "$tmp/out")" ] || fail "file-size limit: left $(ls -A "$tmp/out")"
rc=0
"$llmq" convert "$tmp/m" -o "$tmp/m/config.json/x.llmq" 2> "$tmp/stderr" || rc=$?
[ $rc -eq 1 ] || fail "unwritable folder: status $rc, expected 1"
grep -q 'cannot write here' "$tmp/stderr" || fail "unwritable folder: $(cat "$tmp/stderr")"

# Signals while it writes: the weights are a sparse file of zeros, large enough to be caught half way.
gen "$tmp/long" --zeros --layers 40 --d-model 512 --d-ff 2048 --heads 8 --head-dim 64 --dtype F32
signal() { # name, status
    rm -rf "$tmp/out"
    mkdir "$tmp/out"
    "$llmq" convert "$tmp/long" -o "$tmp/out/x.llmq" > "$tmp/stdout" 2> "$tmp/stderr" &
    pid=$!
    while [ -z "$(ls -A "$tmp/out")" ] && kill -0 $pid 2> /dev/null; do :; done
    kill -s "$1" $pid 2> /dev/null || fail "$1: the job was already over"
    rc=0
    wait $pid || rc=$?
    [ $rc -eq "$2" ] || fail "$1: status $rc, expected $2: $(cat "$tmp/stderr")"
    [ ! -e "$tmp/out/x.llmq" ] || fail "$1: something stands under the target's name"
}
signal TERM 130
[ -z "$(ls -A "$tmp/out")" ] || fail "TERM: left $(ls -A "$tmp/out")"
signal KILL 137

[ $bad -eq 0 ] && echo "convert_bad: ok"
exit $bad

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

gen "$tmp/all" --damage all
# damage, what the message must say
while read -r name say; do
    refused 4 "$say" "$tmp/all/$name"
done << 'LIST'
truncated model.safetensors: tensor model.norm.weight ends at byte .* truncated
header-past-end a header of .* bytes, expected at most
header-huge a header of 9223372036854775813 bytes, expected at most
empty 0 bytes, too short
overlap begins at byte .* inside tensor model.embed_tokens.weight
hole bytes .* belong to none
tail the tensors end at byte .* the file at
backwards expected 0 <= begin <= end
duplicate duplicate key "model.embed_tokens.weight"
size 128 bytes, expected \[65\] of BF16
huge-shape too large to exist
wrong-dtype mlp.up_proj.weight has element type I16, expected F32, F16 or BF16
unknown-dtype unknown element type "Q4_0"
rank 9 dimensions
bad-json line 1, column
not-object not a JSON object
metadata "__metadata__"
nan tensor model.layers.1.mlp.up_proj.weight, row 5, column 3 is NaN
inf tensor model.layers.1.mlp.up_proj.weight, row 5, column 3 is infinite
unknown-tensor tensor model.layers.0.self_attn.q_norm.weight (BF16 \[16\]) has no place
missing-tensor tensor model.layers.1.mlp.up_proj.weight is missing
extra-layer is of layer 2, but num_hidden_layers
stray-bias q_proj.bias is there, but config.json states no such bias
rows embed_tokens.weight has shape \[265, 64\], expected \[264, 64\]
tied-head-differs lm_head.weight differs from model.embed_tokens.weight
missing-key config.json: key "hidden_size" is missing
unknown-type model_type "quokka" is not known; known are llama
quantized quantized already
window "layer_types" 0 is "chunked_attention"
gelu hidden_act is "gelu", expected "silu"
longrope unknown rope type "longrope"
string-size "hidden_size" is a string, expected an integer
negative "num_hidden_layers" is -2
vocab token ids up to 263, but vocab_size in config.json is 200
eos the end token is 100000
no-head tensor lm_head.weight is missing
no-config config.json is missing
bad-config config.json: line
no-tokenizer tokenizer.json is missing
no-weights neither model.safetensors nor model.safetensors.index.json
index-extra model.ghost.weight
index-lacks model.norm.weight of shard .* is not in weight_map
index-wrong weight_map places tensor model.embed_tokens.weight in
index-path is not a plain file name
index-empty "weight_map" is missing, empty
two-shards tensor model.embed_tokens.weight is in two shards
missing-shard the shard is missing
both there is also a model.safetensors
LIST

# Nothing is wrong with these two: a second copy of the tied table, and a buffer that holds no weights.
for name in tied-head-equal inv-freq; do
    "$llmq" convert "$tmp/all/$name" -o "$tmp/fine.llmq" -q || fail "$name was refused"
done

gen "$tmp/m"
refused 1 'No such file' "$tmp/nowhere"
refused 4 'not a directory' "$tmp/m/config.json"
refused 2 'expected one' "$tmp/m" "$tmp/m"
gen "$tmp/big" --dtype F32
# One value that F16 cannot hold.
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
"$llmq" convert "$tmp/all/nan" -o "$tmp/kept.llmq" 2> "$tmp/stderr" && fail "NaN was accepted"
[ "$(cat "$tmp/kept.llmq")" = old ] || fail "a failed job changed the target"

# A file-size limit (blocks of 512 or 1024 bytes: both below the 190 kB that are needed), and a folder that cannot be written.
rc=0
(ulimit -f 64; exec "$llmq" convert "$tmp/m" -o "$tmp/out/limit.llmq") 2> "$tmp/stderr" || rc=$?
[ $rc -eq 1 ] || fail "file-size limit: status $rc, expected 1: $(cat "$tmp/stderr")"
grep -q 'limit.llmq: write of .*File too large' "$tmp/stderr" || fail "file-size limit: $(cat "$tmp/stderr")"
[ -z "$(ls -A "$tmp/out")" ] || fail "file-size limit: left $(ls -A "$tmp/out")"
rc=0
"$llmq" convert "$tmp/m" -o "$tmp/out" 2> "$tmp/stderr" || rc=$?
[ $rc -eq 2 ] || fail "a folder as the target: status $rc, expected 2"
grep -q 'is a directory, expected a file' "$tmp/stderr" || fail "a folder as the target: $(cat "$tmp/stderr")"
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
    { wait $pid; } 2> /dev/null || rc=$?
    [ $rc -eq "$2" ] || fail "$1: status $rc, expected $2: $(cat "$tmp/stderr")"
    [ ! -e "$tmp/out/x.llmq" ] || fail "$1: something stands under the target's name"
}
signal TERM 130
[ -z "$(ls -A "$tmp/out")" ] || fail "TERM: left $(ls -A "$tmp/out")"
signal KILL 137

[ $bad -eq 0 ] && echo "convert_bad: ok"
exit $bad

#!/bin/sh
# inspect and verify: what they print, JSON keys, other kinds of files, exit statuses.
set -eu
llmq=$1 good=tests/format/good
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# expect STATUS WORDS COMMAND...: the exit status, and words on stderr ("" for none to be there)
expect() {
    want=$1 words=$2 status=0
    shift 2
    "$@" > "$tmp/out" 2> "$tmp/err" || status=$?
    [ "$status" -eq "$want" ] || { echo "$*: exit status $status, expected $want: $(cat "$tmp/err")"; exit 1; }
    if [ -n "$words" ]; then
        grep -qF -- "$words" "$tmp/err" || { echo "$*: says '$(cat "$tmp/err")', expected '$words'"; exit 1; }
    else
        [ ! -s "$tmp/err" ] || { echo "$*: says '$(cat "$tmp/err")'"; exit 1; }
    fi
}

expect 0 '' "$llmq" verify "$good/texts.llmq"
grep -q "^$good/texts.llmq: ok, 11 tensors, 14784 bytes\$" "$tmp/out"
expect 0 '' "$llmq" inspect "$good/texts.llmq"
grep -q '^model       llama: 1 layers, d_model 12' "$tmp/out"
if grep -q '^layer 0 attn_q' "$tmp/out"; then echo 'inspect lists tensors unasked'; exit 1; fi
expect 0 '' "$llmq" inspect --tensors "$good/texts.llmq"
grep -q '^layer 0 attn_q' "$tmp/out"
expect 0 '' "$llmq" inspect "$good/texts.llmq" --section chat_template
printf '{{ messages }} \303\251\n' | cmp - "$tmp/out"
expect 2 "has no section 'kv'" "$llmq" inspect "$good/texts.llmq" --section kv
expect 2 "there is no section 'nose'" "$llmq" inspect "$good/texts.llmq" --section nose
expect 2 '0 files, expected one' "$llmq" inspect
expect 2 '2 files, expected one' "$llmq" verify a b
expect 1 'No such file' "$llmq" inspect "$tmp/none.llmq"
expect 2 'is a directory, expected a .llmq file' "$llmq" inspect "$tmp"
expect 2 'is a directory, expected a .llmq file' "$llmq" verify "$tmp"
printf 'GGUF\003\000\000\000' > "$tmp/a.gguf"
expect 4 'a GGUF file, expected a .llmq file' "$llmq" verify "$tmp/a.gguf"
expect 4 'a.gguf: the GGUF file ends at byte 8, inside the header' "$llmq" inspect "$tmp/a.gguf"
printf '\002\000\000\000\000\000\000\000{}' > "$tmp/a.safetensors"
expect 4 'a safetensors file, expected a .llmq file' "$llmq" verify "$tmp/a.safetensors"

# other kinds of files: GGUF with values and tensors of every sort, a checkpoint's safetensors
python3 tests/cli/gen/gguf.py "$tmp/b.gguf"
expect 0 '' "$llmq" inspect "$tmp/b.gguf" --tensors
cat > "$tmp/want" << 'END'
file        gguf version 3, 3696 bytes
weights     3520 in 4 tensors; 5.727 bits per weight
            Q8_0                     1 tensors            640 weights            680 bytes
            Q4_0                     1 tensors           2048 weights           1152 bytes
            F32                      1 tensors             64 weights            256 bytes
            Q4_K                     1 tensors            768 weights            432 bytes
metadata    general.architecture                     llama
            general.name                             Größe ☃
            general.alignment                        64
            x.u8                                     255
            x.i8                                     -128
            x.u16                                    65535
            x.i16                                    -2
            x.i32                                    -3
            x.f32                                    0.25
            x.yes                                    true
            x.u64                                    1099511627776
            x.i64                                    -1099511627776
            x.f64                                    1e-300
            x.none                                   []
            x.langs                                  [en, de]
            x.many                                   40 x i32
            x.words                                  17 x string
            tokenizer.chat_template                  {{ a }}... (16 bytes)
token_embd.weight                                  Q8_0                680 bytes  [10, 64]
blk.0.attn_q.weight                                Q4_0               1152 bytes  [32, 64]
output_norm.weight                                 F32                 256 bytes  [64]
blk.0.ffn_up.weight                                Q4_K                432 bytes  [3, 256]
END
diff "$tmp/want" "$tmp/out"
expect 0 '' "$llmq" inspect "$tmp/b.gguf" --json
keys() { # FILE KEYS: the top-level keys, sorted
    python3 -c 'import json, sys; print(" ".join(sorted(json.load(open(sys.argv[1])))))' "$1" > "$tmp/keys"
    [ "$(cat "$tmp/keys")" = "$2" ] || { echo "keys '$(cat "$tmp/keys")', expected '$2'"; exit 1; }
}
keys "$tmp/out" 'bits_per_weight device exit_code file_bytes format_version isa kind metadata model peak_rss_bytes schema schemes tensors threads version weights'
python3 -c "
import json, sys
d = json.load(open(sys.argv[1]))
assert d['tensors'][1] == {'name': 'blk.0.attn_q.weight', 'scheme': 'Q4_0', 'shape': [32, 64], 'offset': 1856, 'bytes': 1152}, d
assert d['metadata']['x.many'] == {'array': 'i32', 'length': 40} and d['metadata']['tokenizer.chat_template'] == '{{ a }}\\nand more', d
" "$tmp/out"
python3 tests/cli/gen/gguf.py "$tmp/c.gguf" --type 77
expect 0 '' "$llmq" inspect "$tmp/c.gguf"
grep -q 'type 77 .* ? bytes' "$tmp/out"
python3 tests/cli/gen/gguf.py "$tmp/c.gguf" --version 1
expect 4 'GGUF version 1, expected 2 or 3' "$llmq" inspect "$tmp/c.gguf"
# names that a terminal would obey
python3 -c "
import json, struct, sys
h = json.dumps({'__metadata__': {'k\\x1b[31m\\n': 'v\\x07\\u009b'}, 't\\x1b]0;x\\x07\\u009b': {'dtype': 'U8', 'shape': [1], 'data_offsets': [0, 1]}}).encode()
open(sys.argv[1], 'wb').write(struct.pack('<Q', len(h)) + h + b'x')
" "$tmp/esc.safetensors"
expect 0 '' "$llmq" inspect "$tmp/esc.safetensors" --tensors
python3 -c "
import sys
s = open(sys.argv[1], encoding='utf8').read()
assert not [c for c in s if c != '\\n' and (ord(c) < 32 or 127 <= ord(c) < 160)], ascii(s)
assert 'k?[31m?' in s and 't?]0;x??' in s, ascii(s)
" "$tmp/out"
expect 2 'b.gguf is no .llmq: --section cannot be' "$llmq" inspect "$tmp/b.gguf" --section vocab
expect 0 '' "$llmq" inspect calib_data/demo/model.safetensors --tensors
grep -q '^metadata    format  *pt$' "$tmp/out"
grep -q '^model.layers.7.mlp.down_proj.weight  *BF16  *98304 bytes  \[128, 384\]$' "$tmp/out"
head -c 100000 calib_data/demo/model.safetensors > "$tmp/cut.safetensors"
expect 4 'cut.safetensors: ' "$llmq" inspect "$tmp/cut.safetensors"
printf 'hello' > "$tmp/a.txt"
expect 4 'too short for the header of a .llmq' "$llmq" verify "$tmp/a.txt"

expect 0 '' "$llmq" inspect --json "$good/int4-int8-sym.llmq"
keys "$tmp/out" 'bytes device exit_code format_version hparams isa model peak_rss_bytes provenance schema schemes sections tensors threads version weights'
sum=$(sha256sum < "$good/int4-int8-sym.llmq" | cut -d' ' -f1)
grep -q "\"sha256\": \"$sum\"" "$tmp/out"
expect 0 '' "$llmq" verify --json "$good/texts.llmq"
keys "$tmp/out" 'device error exit_code isa model ok peak_rss_bytes schema tensors threads version'
gzip -dc tests/format/bad/data-nan.llmq.gz > "$tmp/nan.llmq"
expect 4 'element 3 is NaN or infinite' "$llmq" verify --json "$tmp/nan.llmq"
grep -q '"ok": false' "$tmp/out"
grep -q '"exit_code": 4' "$tmp/out"
echo "inspect, verify: ok"

#!/bin/sh
# eval and run on a tiny random model: keys, gates and their exit statuses, protocols, the same numbers for any number
# of threads and for scalar code, prompts from everywhere, interruption.
set -eu
llmq=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
fail() { echo "eval_run: $*"; exit 1; }

# status, what standard error must say, then the command
expect() {
    want=$1 say=$2 rc=0
    shift 2
    "$llmq" "$@" > "$tmp/out" 2> "$tmp/err" < /dev/null || rc=$?
    [ $rc -eq "$want" ] || fail "$*: status $rc, expected $want: $(cat "$tmp/err")"
    grep -q -- "$say" "$tmp/err" || [ -z "$say" ] || fail "$*: '$(cat "$tmp/err")' does not say '$say'"
}

python3 tests/cli/gen/tiny.py "$tmp/hf" --seed 11 --dtype F32 --vocab 264 --layers 2
"$llmq" convert "$tmp/hf" -o "$tmp/f32.llmq" -q
"$llmq" convert "$tmp/hf" -o "$tmp/bf16.llmq" --dtype bf16 -q
python3 -c "
for i in range(40):
    print(' = Page %d = ' % i if i % 8 == 0 else '' if i % 3 == 0 else ' the %d men and the sea , in 19%02d , (  all of it ) ' % (i * 7, i))
" > "$tmp/text"

# ---- eval ---------------------------------------------------------------------------------------------------
text="--data $tmp/text --ctx 64 --kv-cache-dtype f32 --progress none"

# shellcheck disable=SC2086
for how in '' '--threads 1' '--threads 3' '--isa scalar'; do
    "$llmq" eval "$tmp/bf16.llmq" $text --baseline "$tmp/f32.llmq" --json $how > "$tmp/eval$how.json" || fail "eval $how"
    python3 - "$tmp/eval.json" "$tmp/eval$how.json" << 'EOF2' || fail "eval $how: other numbers"
import json, sys
a, b = (json.load(open(p)) for p in sys.argv[1:])
for k in "data protocol windows tokens_scored nll_mean nll_stderr ppl ppl_stderr baseline".split():
    assert a[k] == b[k], (k, a[k], b[k])
EOF2
done
python3 - "$tmp" << 'EOF2' || fail "eval --json"
import hashlib, json, math, sys
d = json.load(open(sys.argv[1] + "/eval.json"))
need = """schema version model threads isa device peak_rss_bytes exit_code data protocol windows tokens_scored nll_mean nll_stderr ppl
ppl_stderr tokens_per_s baseline gates""".split()
assert all(k in d for k in need), set(need) - set(d)
assert d["schema"] == "llmq.eval/1" and d["exit_code"] == 0 and d["gates"] == []
sha = lambda p: hashlib.sha256(open(p, "rb").read()).hexdigest()
for m, f in (d["model"], "bf16"), (d["baseline"]["model"], "f32"):
    assert m["name"] == f + ".llmq" and m["scheme"] == f and m["sha256"] == sha(f"{sys.argv[1]}/{f}.llmq"), m
    assert m["bits_per_weight"] == {"bf16": 16, "f32": 32}[f] and m["size_bytes"] > 0
assert d["data"]["sha256"] == sha(sys.argv[1] + "/text") and d["data"]["tokens"] >= 64 * d["windows"]
assert d["protocol"] == {"name": "plain", "window_tokens": 64, "stride_tokens": 64, "bos": "none", "kv_cache_dtype": "f32"}, d["protocol"]
assert d["tokens_scored"] == 63 * d["windows"] and d["windows"] > 10
assert abs(d["ppl"] - math.exp(d["nll_mean"])) < 1e-6 * d["ppl"] and 50 < d["ppl"] < 5000
b = d["baseline"]
assert b["delta_nll"]["ci95_low"] < b["delta_nll"]["mean"] < b["delta_nll"]["ci95_high"]
assert abs(math.log(d["ppl"] / b["ppl"]) - b["delta_nll"]["mean"]) < 1e-6
assert 0 < b["kl"]["mean"] < 0.01 and b["kl"]["mean"] <= b["kl"]["p99"] <= b["kl"]["p999"] <= b["kl"]["max"] and b["kl"]["exact"] is True
assert 0.9 < b["top1_agreement"] <= 1 and 0 < b["prob_change_rms"] < 0.1
EOF2

base="--baseline $tmp/f32.llmq"
# shellcheck disable=SC2086
{
    "$llmq" eval "$tmp/f32.llmq" $text $base > "$tmp/out" || fail "a model against itself"
    grep -q 'KL divergence *0.000000 +- 0.000000 .*max 0.0000' "$tmp/out" || fail "a model is not itself: $(cat "$tmp/out")"
    grep -q 'protocol *plain: window 64, stride 64, BOS none, KV f32' "$tmp/out" || fail "the protocol is not printed"
    ppl=$(sed -n 's/^perplexity  *\([0-9.]*\) .*/\1/p' "$tmp/out")
    expect 0 '' eval "$tmp/bf16.llmq" $text $base --max-kld 0.5 --max-ppl 1e6 --max-ppl-increase 10% --min-top1 50%
    [ "$(grep -c '^gate .* pass ' "$tmp/out")" -eq 4 ] || fail "four gates: $(cat "$tmp/out")"
    expect 3 'gate max-kld: .*, expected at most 0' eval "$tmp/bf16.llmq" $text $base --max-kld 0 --max-ppl 1e6
    expect 3 'gate max-ppl: .*, expected at most 2' eval "$tmp/bf16.llmq" $text --max-ppl 2
    expect 3 'undecided: .* about [0-9]* windows would decide it' eval "$tmp/f32.llmq" $text --max-ppl "$(echo "$ppl" | awk '{print $1 * 1.0001}')"
    expect 3 'undecided.*more windows are needed' eval "$tmp/bf16.llmq" $text $base --windows 1 --max-kld 0.5
    expect 3 '' eval "$tmp/bf16.llmq" $text $base --windows 1 --max-kld 0.5 --json
    python3 -c "
import json, sys
d = json.load(open(sys.argv[1]))
g = d['gates'][0]
assert d['exit_code'] == 3 and d['nll_stderr'] is None and g['verdict'] == 'undecided' and g['bound'] is None and g['limit'] == 0.5, d
" "$tmp/out" || fail "one window"
    expect 2 'baseline FILE is needed' eval "$tmp/bf16.llmq" $text --max-kld 0.5
    expect 2 'data FILE is needed' eval "$tmp/bf16.llmq"
    expect 2 'made for at most 256' eval "$tmp/bf16.llmq" --data "$tmp/text" --ctx 257
    expect 2 'is a directory' eval "$tmp/hf" --data "$tmp/text"
    expect 4 '' eval "$tmp/text" --data "$tmp/text"
    printf 'the sea' > "$tmp/short"
    expect 4 'short: 5 tokens, expected at least one window of 64' eval "$tmp/bf16.llmq" --data "$tmp/short" --ctx 64 --protocol gptq
    for p in gptq llama.cpp lm-eval; do
        expect 0 '' eval "$tmp/f32.llmq" $text --protocol $p --json
        python3 - "$tmp/out" $p << 'EOF2' || fail "protocol $p"
import json, sys
d, p = json.load(open(sys.argv[1])), sys.argv[2]
assert d["protocol"]["name"] == p
per = {"gptq": 63, "llama.cpp": 31}.get(p)
assert per is None or d["tokens_scored"] == per * d["windows"], d
assert (d["word_ppl"] is not None) == (p == "lm-eval") and d["protocol"]["bos"] == ("document" if p == "lm-eval" else "none")
EOF2
    done
}

# ---- run ------------------------------------------------------------------------------------------------------
go="run $tmp/bf16.llmq --raw -n 20 --ignore-eos"
# shellcheck disable=SC2086
{
    "$llmq" $go -p 'the sea and' --json > "$tmp/run.json" || fail "run"
    for how in '--threads 1' '--threads 3' '--isa scalar' '--ctx 32'; do
        "$llmq" $go -p 'the sea and' --json $how > "$tmp/again.json" || fail "run $how"
        python3 -c "
import json, sys
a, b = (json.load(open(p)) for p in sys.argv[1:])
assert a['token_ids'] == b['token_ids'] and a['text'] == b['text']" "$tmp/run.json" "$tmp/again.json" || fail "run $how: other tokens"
    done
    python3 - "$tmp/run.json" << 'EOF2' || fail "run --json"
import json, sys
d = json.load(open(sys.argv[1]))
need = """schema version model threads isa device peak_rss_bytes exit_code text token_ids prompt_tokens completion_tokens finish_reason
sampling load_s ttft_s prefill_tokens_per_s decode_tokens_per_s kv""".split()
assert all(k in d for k in need), set(need) - set(d)
assert d["completion_tokens"] == len(d["token_ids"]) == 20 and d["finish_reason"] == "length" and d["prompt_tokens"] == 7
assert d["kv"]["dtype"] == "f16" and d["kv"]["pages_used"] * d["kv"]["page_tokens"] >= 26 and d["kv"]["pages_total"] == 256 / d["kv"]["page_tokens"]
EOF2
    printf 'the sea and' > "$tmp/prompt"
    "$llmq" $go -p 'the sea and' > "$tmp/a"
    "$llmq" $go -f "$tmp/prompt" > "$tmp/b"
    "$llmq" $go < "$tmp/prompt" > "$tmp/c"
    "$llmq" $go -f - --stats < "$tmp/prompt" > "$tmp/d" 2> "$tmp/stats"
    for other in b c d; do
        cmp "$tmp/a" "$tmp/$other" || fail "the prompt's way in changes the answer"
    done
    grep -q '^answer *20 tokens, .* ended by length' "$tmp/stats" || fail "--stats: $(cat "$tmp/stats")"
    python3 -c "
import json, sys
a, t = open(sys.argv[1], 'rb').read(), json.load(open(sys.argv[2]))['text'].encode()
assert a == t + (b'' if t.endswith(b'\n') else b'\n'), (a, t)" "$tmp/a" "$tmp/run.json" || fail "streamed text differs"

    hot="$go -p sea --temperature 1.5 --json"
    for n in 1 2 3; do
        seed=$((n == 3))
        "$llmq" $hot --seed $seed > "$tmp/hot$n.json"
    done
    python3 -c "
import json, sys
a, b, c = (json.load(open('%s/hot%d.json' % (sys.argv[1], i)))['token_ids'] for i in (1, 2, 3))
assert a == b != c" "$tmp" || fail "seeds"
    "$llmq" $hot --top-k 1 > "$tmp/k1.json"
    "$llmq" $go -p sea --json > "$tmp/k0.json"
    python3 -c "
import json, sys
a, b = (json.load(open(p))['token_ids'] for p in sys.argv[1:])
assert a == b" "$tmp/k1.json" "$tmp/k0.json" || fail "--top-k 1 is not greedy"

    chat="run $tmp/bf16.llmq -n 3 --chat-template chatml --json"
    "$llmq" $chat -p 'Hi' > "$tmp/chat1.json"
    printf 'Hi\n' | "$llmq" $chat > "$tmp/chat2.json"
    python3 -c "
import json, sys
a, b = (json.load(open(p)) for p in sys.argv[1:])
assert a['prompt_tokens'] == b['prompt_tokens'] == len('<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n') - 1, a # 'an' is one token
" "$tmp/chat1.json" "$tmp/chat2.json" || fail "chat"

    "$llmq" run "$tmp/bf16.llmq" -n 3 -p 'Hi' --json > "$tmp/own.json" # its own template: the text of the first message
    "$llmq" run "$tmp/bf16.llmq" -n 3 --chat-template none -p 'Hi' --json > "$tmp/bare.json"
    python3 -c "
import json, sys
a, b = (json.load(open(p)) for p in sys.argv[1:])
assert a['token_ids'] == b['token_ids'] and a['prompt_tokens'] == 2, a
" "$tmp/own.json" "$tmp/bare.json" || fail "the model's own template"
    expect 2 "'vicuna' is not one of chatml|llama2|llama3|mistral|qwen|none" run "$tmp/bf16.llmq" -p Hi --chat-template vicuna
    expect 2 'is a directory' run "$tmp/hf" -p Hi
    expect 4 '' run "$tmp/text" -p Hi
    expect 1 '' run "$tmp/none" -p Hi
    expect 2 'cannot go together' run "$tmp/bf16.llmq" -p Hi -f "$tmp/text"
    expect 2 'cannot go with it' run "$tmp/bf16.llmq" --raw -p Hi --system x
    expect 2 'top-p: 2 is out of range' run "$tmp/bf16.llmq" --raw -p Hi --top-p 2
    expect 2 'no tokens' run "$tmp/bf16.llmq" --raw -p ''
    expect 1 'the prompt has .* tokens: at most 9 fit a context of 10' run "$tmp/bf16.llmq" --raw -p 'a long prompt that does not fit' --ctx 10
    printf 'a\0b' > "$tmp/zero"
    expect 4 'zero byte' run "$tmp/bf16.llmq" --raw -f "$tmp/zero"
    printf 'a\377b' > "$tmp/bad"
    expect 4 'UTF-8' run "$tmp/bf16.llmq" --raw -f "$tmp/bad"
}

# Interrupted while it waits for its prompt.
mkfifo "$tmp/fifo"
python3 - "$llmq" "$tmp" << 'EOF2' || fail "interruption"
import os, signal, subprocess, sys, time
p = subprocess.Popen([sys.argv[1], "run", sys.argv[2] + "/bf16.llmq", "--raw"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
for i in range(200): # until it sleeps in read
    time.sleep(0.05)
    if open(f"/proc/{p.pid}/wchan").read() not in ("", "0") or i > 20:
        break
p.send_signal(signal.SIGINT)
out, err = p.communicate(timeout=20)
assert p.returncode == 130 and b"interrupted" in err, (p.returncode, err)
EOF2
echo "eval and run: numbers, gates, prompts, interruption"

"""The reference half of parity_llm.sh: LLMQ MODEL.llmq HF_DIR TEXT WINDOWS.  Prints one line for each comparison; the
exit status is 1 when one does not hold."""
import hashlib, json, math, os, subprocess, sys

import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

WINDOW, NEW, LIMIT = 2048, 24, 2e-4
PROMPTS = [
    "The old lighthouse keeper climbed the stairs every evening, and",
    "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n",
    "Shopping list:\n1. Milk\n2. Bread\n3.",
    "What is the capital of France?",
    "1, 2, 4, 8, 16, 32,",
    "Once upon a time, in a small village near the sea, there lived a girl named",
    "#include <stdio.h>\n\nint main(void) {\n    for (int i = 0; i < 10; i++) {\n",
    "Water boils at 100 degrees Celsius. This means that",
    "Q: How many legs does a spider have?\nA:",
    "La capitale de l'Allemagne est Berlin. La capitale de l'Espagne est",
]


def gptq_ids(tok, path):
    with open(path, encoding="utf-8", newline="\n") as f:
        rows = [line if line.strip() else "" for line in f]
    return np.asarray(tok("\n\n".join(rows))["input_ids"], dtype="<i4")


def window_nll(model, ids):
    x = torch.from_numpy(ids.astype(np.int64))[None]
    h = model.model(x, use_cache=False)[0][0]
    total = 0.0
    for b in range(0, len(ids) - 1, 512):
        e = min(b + 512, len(ids) - 1)
        logits = model.lm_head(h[b:e]).float()
        total += torch.nn.functional.cross_entropy(logits, x[0, b + 1:e + 1], reduction="none").double().sum().item()
    return total / (len(ids) - 1)


def llmq_json(*args):
    return json.loads(subprocess.run([*args, "--json", "--progress", "none"], check=True, stdout=subprocess.PIPE).stdout)


def compare_perplexity(llmq, file, model, tok, text, windows):
    ids = gptq_ids(tok, text)
    n = len(ids) // WINDOW if windows == 0 else min(windows, len(ids) // WINDOW)
    d = llmq_json(llmq, "eval", file, "--data", text, "--protocol", "gptq", "--ctx", str(WINDOW), "--kv-cache-dtype", "f32", "--windows", str(n))
    same = d["data"]["tokens"] == len(ids) and d["data"]["token_sha256"] == hashlib.sha256(ids.tobytes()).hexdigest()
    ref = math.exp(sum(window_nll(model, ids[w * WINDOW:(w + 1) * WINDOW]) for w in range(n)) / n)
    off = abs(d["ppl"] / ref - 1)
    print(f"tokens      {len(ids)}, {'the same' if same else 'NOT the same'}")
    print(f"perplexity  llmq {d['ppl']:.6f}  transformers {ref:.6f}  {n} windows of {WINDOW}: {100 * off:.5f} % apart, at most {100 * LIMIT:g} % allowed")
    return same and off <= LIMIT


def greedy(model, tok, prompt):
    x = torch.tensor([tok(prompt)["input_ids"]])
    o = model.generate(x, attention_mask=torch.ones_like(x), do_sample=False, num_beams=1, max_new_tokens=NEW, repetition_penalty=1.0)
    return o[0, x.shape[1]:].tolist()


def compare_greedy(llmq, file, model, tok):
    bad = 0
    for p in PROMPTS:
        want = greedy(model, tok, p)
        got = llmq_json(llmq, "run", file, "--raw", "-p", p, "-n", str(NEW), "--temperature", "0", "--kv-cache-dtype", "f32")
        if got["token_ids"] != want:
            bad += 1
            print(f"greedy      {p!r}: llmq {got['token_ids']}, transformers {want}")
    print(f"greedy      {len(PROMPTS) - bad} of {len(PROMPTS)} prompts give the same {NEW} tokens")
    return bad == 0


def compare_chat(llmq, file, hf):
    tok = AutoTokenizer.from_pretrained(hf)
    if not tok.chat_template:
        return True
    bad = 0
    for system, user in (None, "What is 2+2?"), ("Be brief.", "\n\nHi there"), (None, "  tabs\tand é 日本  "):
        messages = ([{"role": "system", "content": system}] if system else []) + [{"role": "user", "content": user}]
        want = len(tok.apply_chat_template(messages, tokenize=True, add_generation_prompt=True, return_dict=False))
        got = llmq_json(llmq, "run", file, "-p", user, *(["--system", system] if system else []), "-n", "1")["prompt_tokens"]
        bad += got != want
    print(f"chat        {3 - bad} of 3 prompts have the same number of tokens")
    return bad == 0


def main():
    llmq, file, hf, text, windows = sys.argv[1:]
    torch.set_grad_enabled(False)
    print(f"transformers {transformers.__version__}, torch {torch.__version__}, float32, eager")
    tok = PreTrainedTokenizerFast(tokenizer_file=os.path.join(hf, "tokenizer.json"))
    model = AutoModelForCausalLM.from_pretrained(hf, dtype=torch.float32, attn_implementation="eager").eval()
    ok = [compare_greedy(llmq, file, model, tok), compare_chat(llmq, file, hf), compare_perplexity(llmq, file, model, tok, text, int(windows))]
    return 0 if all(ok) else 1


sys.exit(main())

#!/usr/bin/env python3
"""Trains the small tokenizers of tests/golden/tokenizers/ and writes what the `tokenizers` library makes of texts.txt.

    python3 -m venv V && V/bin/pip install tokenizers==0.23.3
    V/bin/python tests/golden/gen/train_tokenizers.py tests/golden/tokenizers

NAME.json is the tokenizer, NAME.ids the ids of each line of texts.txt (JSON strings), NAME.out the text of those ids and
of random.txt's, special tokens left out.  The text that is learned from is made here.
"""
import json
import os
import random
import re
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import parity_corpus

SENTENCES = """The miller's cat sleeps in the warm corner of the mill, and the wheel turns all day.
We'll measure each plank twice; it's cheaper than buying another one, isn't it?
They've counted 1024 apples, 365 pears and 12.5 kilograms of plums since 7:45.
def area(width, height):\n    return width * height  # square metres
for (int i = 0; i < n; i++) { sum += values[i]; }
L'été, les élèves déjeunent près de la fenêtre; où êtes-vous allés hier?
Der Müller schläft, während das große Rad sich dreht und das Wasser fließt.
Мельник спит, а колесо крутится весь день у старой реки.
Ο μυλωνάς κοιμάται και ο τροχός γυρίζει όλη μέρα.
粉屋の猫は暖かい隅で眠り、水車は一日中回っている。
磨坊主的猫在温暖的角落里睡觉，水车整天转动。
방앗간 고양이는 따뜻한 구석에서 자고 물레방아는 하루 종일 돈다.
ينام قط الطحان في الزاوية الدافئة ويدور الدولاب طوال اليوم.
चक्की वाले की बिल्ली गर्म कोने में सोती है।
แมวของคนโม่แป้งนอนหลับอยู่ในมุมอบอุ่น
Prices: $3.99, 20% off! (see page 47) -- e-mail: info@example.org ...""".split("\n")

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"])
CL100K = r"(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
            " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]
KIMI = r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}&&[^\p{Han}]]+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+"


def text(n=600, seed=3):
    rng = random.Random(seed)
    for _ in range(n):
        s = rng.choice(SENTENCES).replace("\\n", "\n")
        cut = rng.randrange(len(s))
        yield s[cut:] + rng.choice([" ", "\n", "  ", "\n\n", "\t"]) + s[:cut]


def train(t, size, **kw):
    t.train_from_iterator(text(), trainers.BpeTrainer(vocab_size=size, show_progress=False, **kw))
    return t


def byte_level(split, size=420, normalizer=None, special=("<|endoftext|>",), **model):
    t = Tokenizer(models.BPE(**model))
    bl = pre_tokenizers.ByteLevel
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer = bl(add_prefix_space=False) if split is None else pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(s), "isolated") for s in split] + [bl(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    return train(t, size, special_tokens=list(special), initial_alphabet=bl.alphabet())


def gpt2():
    return byte_level(None)


def qwen2():
    t = byte_level([QWEN2], normalizer=normalizers.NFC(), special=["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    t.add_tokens([AddedToken("[PAD%d]" % i, normalized=False) for i in range(3)])
    return t


def llama3():
    t = byte_level([LLAMA3], special=["<|begin|>", "<|end|>"], ignore_merges=True)
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<|begin|> $A", pair="<|begin|> $A <|begin|> $B", special_tokens=[("<|begin|>", 0)])])
    return t


def deepseek():
    t = byte_level(DEEPSEEK, special=["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"], normalizer=normalizers.Sequence([]))
    t.add_tokens([AddedToken("<｜User｜>", normalized=False), AddedToken("<|EOT|>", normalized=True, special=True)])
    return t


def o200k():
    return byte_level([O200K])


def cl100k():
    return byte_level([CL100K])


def kimi():
    return byte_level([KIMI], normalizer=normalizers.NFD())


def llama2():
    t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t = train(t, 500, special_tokens=["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in range(256)], limit_alphabet=80)
    t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A <s> $B", special_tokens=[("<s>", 1), ("</s>", 2)])
    return t


def metaspace(scheme, split, fuse):
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse))
    t.normalizer = normalizers.NFKC()
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)
    t.decoder = decoders.Metaspace(prepend_scheme=scheme)
    t = train(t, 300, special_tokens=["<unk>", "<mask>"], limit_alphabet=120)
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    return t


def metaspace_first():
    return metaspace("first", True, False)


def metaspace_always():
    return metaspace("always", True, True)


def metaspace_never():
    return metaspace("never", False, False)


def words():
    """Parts of words with a prefix, ends with a suffix; several cuts."""
    t = Tokenizer(models.BPE(unk_token="[UNK]", continuing_subword_prefix="##", end_of_word_suffix="</w>"))
    t.normalizer = normalizers.Sequence([normalizers.Strip(), normalizers.NFKD(), normalizers.Lowercase(), normalizers.StripAccents(),
                                         normalizers.Replace(Regex(r"\s{2,}|\p{Cc}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("contiguous"),
                                               pre_tokenizers.Digits(True), pre_tokenizers.CharDelimiterSplit("x")])
    t.decoder = decoders.BPEDecoder("</w>")
    return train(t, 400, special_tokens=["[UNK]"], continuing_subword_prefix="##", end_of_word_suffix="</w>", limit_alphabet=150)


def behaviors():
    """Each behavior of Split, both ways round, by a regular expression and by a string."""
    t = Tokenizer(models.BPE(unk_token="[UNK]"))
    split = pre_tokenizers.Split
    t.pre_tokenizer = pre_tokenizers.Sequence([
        split(Regex(r"[.!?]+"), "merged_with_previous"), split(" ", "merged_with_next"), split(Regex(r"\d+"), "contiguous"),
        split(Regex("[aeiou]"), "merged_with_next", invert=True), split(Regex("[^;]+"), "removed", invert=True), split(",", "isolated"),
        split(Regex(r"\b(?=t)|(?<=n)\B"), "isolated"), pre_tokenizers.Punctuation("merged_with_previous"), pre_tokenizers.Digits(False),
        split(Regex(r"[[:punct:]]|(?<q>q)|\h{4}"), "merged_with_previous", invert=True), pre_tokenizers.WhitespaceSplit()])
    return train(t, 300, special_tokens=["[UNK]"], limit_alphabet=160)


def added():
    """Added tokens of every kind, one outside the vocabulary's alphabet, over a normalizer that changes them."""
    t = byte_level(None, normalizer=normalizers.Sequence([normalizers.Lowercase(), normalizers.NFC()]), size=330)
    t.add_tokens([AddedToken("Word", single_word=True), AddedToken("LEFT", lstrip=True), AddedToken("Right", rstrip=True),
                  AddedToken("<both>", lstrip=True, rstrip=True, normalized=False), AddedToken("<b", normalized=False),
                  AddedToken("É", normalized=True), AddedToken("the mill", single_word=True, normalized=False)])
    t.add_special_tokens([AddedToken("<sep>", normalized=True), AddedToken("<SEP2>", normalized=False, rstrip=True)])
    t.post_processor = processors.TemplateProcessing(single="$A <sep>", pair="$A <sep> $B", special_tokens=[("<sep>", t.token_to_id("<sep>"))])
    return t


def normal_bytes():
    """ByteLevel as a normalizer; no decoder: tokens are joined by spaces."""
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.ByteLevel()])
    return train(t, 330, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


def prefix_space():
    """A space in front of each stretch between added tokens; only white space at the right is taken off."""
    t = byte_level(None, size=330)
    t.normalizer = normalizers.Strip(left=False, right=True)
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    t.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 2), decoders.Replace(Regex("[aeiou]{2}"), "_")])
    return t


BUILDERS = [gpt2, qwen2, llama3, deepseek, o200k, cl100k, kimi, llama2, metaspace_first, metaspace_always, metaspace_never, words,
            behaviors, added, normal_bytes, prefix_space]


def old_style(spec, name):
    """What files in the wild have and the library no longer writes."""
    if name == "gpt2":  # merges as strings
        spec["model"]["merges"] = [" ".join(m) for m in spec["model"]["merges"]]
    if name == "metaspace_always":
        for k in ("pre_tokenizer", "decoder"):
            spec[k] = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True, "str_rep": "▁"}
    if name == "metaspace_never":  # a token U+0000, and holes in the ids
        vocab = spec["model"]["vocab"]
        spec["model"]["vocab"] = {k: v + 5 * (v > 200) for k, v in vocab.items()}
        spec["model"]["vocab"]["\0"] = 203
        spec["model"]["vocab"]["\0\0"] = 204
        spec["model"]["merges"].append(["\0", "\0"])
    return spec


def texts():
    rng = random.Random(9)
    special = "<|endoftext|> <|im_start|> <mask> <both> Word word LEFT left Right right <sep> <SEP2> <s> </s> [PAD1] É é the mill <b <b>".split(" ")
    out = parity_corpus.SAMPLES[:24] + [s for s in parity_corpus.SAMPLES[24:] if len(s) < 150] + parity_corpus.EMOJI[:6]
    out += ["a Word b", "aWord b", "Word", "word.", "  LEFT  x", "x  Right  y", " <both> ", "a<both>b", "<b<both>", "the mill the mills", "I<sep>J <SEP2>  K",
            "  <mask>  a<mask>", "<mask> x <mask>", "ÉCOLE École éa", "thethe the", "x1y22z333", "q;w,e.r?t!", "beadface 12ab"]
    out += [s.replace("\\n", "\n") for s in SENTENCES]
    out += list(parity_corpus.mixed(rng, 40, special))
    return out


def ascii_json(s):
    """As llmq writes it."""
    return re.sub(r"\\u[0-9a-f]{4}", lambda m: "\x7f" if m.group() == "\\u007f" else "\\u" + m.group()[2:].upper(), json.dumps(s))


def main():
    out = sys.argv[1]
    os.makedirs(out, exist_ok=True)
    lines = texts()
    rng = random.Random(4)
    noise = [[rng.randrange(440) for _ in range(rng.randrange(1, 16))] for _ in range(40)]
    open(os.path.join(out, "texts.txt"), "w").write("".join(ascii_json(s) + "\n" for s in lines))
    open(os.path.join(out, "random.txt"), "w").write("".join(json.dumps(i, separators=(",", ":")) + "\n" for i in noise))
    for b in BUILDERS:
        path = os.path.join(out, b.__name__)
        spec = old_style(json.loads(b().to_str()), b.__name__)
        open(path + ".json", "w").write(json.dumps(spec, ensure_ascii=False, separators=(",", ":")))
        t = Tokenizer.from_file(path + ".json")
        ids = [t.encode(s).ids for s in lines]
        open(path + ".ids", "w").write("".join(json.dumps(i, separators=(",", ":")) + "\n" for i in ids))
        # BPEDecoder panics on no tokens at all; so does Strip on a token shorter than it takes off.
        open(path + ".out", "w").write("".join(ascii_json(decode(t, i)) + "\n" for i in ids + noise))
        print(b.__name__, t.get_vocab_size(), os.path.getsize(path + ".json"))


def decode(t, ids):
    try:
        return t.decode(ids, skip_special_tokens=True)
    except BaseException:
        return ""


if __name__ == "__main__":
    main()

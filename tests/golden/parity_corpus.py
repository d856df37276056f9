"""Texts that tell tokenizers apart: every code point in several contexts, runs of digits and white space in every
script, emoji sequences, Hangul, CJK, contractions, special tokens, random strings.  Deterministic."""
import random
import unicodedata

SEED = 20240611
LETTERS = "aZéßΩжאबกᄀ가中あア𐐀ǅªʰ"
MARKS = "\u0301\u0308\u0323\u0345\u05b0\u064b\u093c\u094d\u0e31\u302a\u3099\u20dd\ufe0f\U0001e8d0"
SPACES = "\t\n\v\f\r \x1c\x1d\x1e\x1f\x85\xa0\u1680\u180e\u2000\u2003\u200a\u200b\u200c\u200d\u2028\u2029\u202f\u205f\u2060\u3000\ufeff"
WORDS = "I'm you're WE'LL they'Ve don't it's he'D 'tis o'clock 'S 'ſ x'ſ K'K rock'n'roll".split()
EMOJI = """👩‍👩‍👧‍👦 👩🏽‍💻 🏳️‍🌈 🏴‍☠️ 🇫🇷🇯🇵🇺 1️⃣2️⃣#️⃣ ☺️☺︎ 👍🏿👍🏻 🧑‍🚒 ❤️‍🔥 🏴󠁧󠁢󠁥󠁮󠁧󠁿 🫠🪿🫎 ©️ ®™ ㊗️ 🀄🃏""".split(" ")
SAMPLES = [
    "", " ", "  ", "\n", "Hello, world!", "  leading and trailing  ", "tabs\tand\nnew\r\nlines\r\n\r\n  x",
    "1234567890 12,345.67 1e10 0x1F ½ ¼ ⅷ ② ۱۲۳ १२३ ๑๒๓ 一二三 𝟏𝟐𝟑 ¹²³ ₁₂₃ Ⅷ", "foo_bar-baz/qux.html?x=1&y=2#frag",
    "안녕하세요 세계 ㄱㄴㄷ 한글 한글 각", "日本語のテキスト、混ざったtextと１２３", "中文文本，没有空格。“引号”", "Ελληνικά ΣΊΣΥΦΟΣ ς",
    "עברית שָׁלוֹם", "العربية مَرْحَبًا لا ﷺ ﻻ", "हिन्दी क्षत्रिय नमस्ते", "ไทยภาษา น้ำ", "မြန်မာ ខ្មែរ ລາວ བོད་", "İstanbul ıI ẞß ŉ ǰ ﬁ ﬂ ﬆ Ǆǅǆ",
    "a\u0301\u0323 \u0323\u0301a é́ ậ \u1ea0\u0306 \u0344 \u0340\u0341 \u2126\u212a\u212b \ufb1d \u0958 \u2adc \U0001d15e \u0f73\u0f75",
    "function f(x) {\n    return x*2; // comment\n}\n\n\n\tif (a==b) { c++; }", "!!!??? ... --- === *** ((())) [[]] {{}} <<>> \"'`~^|\\",
    "don't  stop   now    please     ok", "x" * 300, " " * 200, "\n" * 50, "ab" * 200, "1" * 100, "é" * 100, "中" * 100, "a " * 100,
    "<0x41><0x0A>", "▁▁▁ ▁a▁ ▁", "Ġa ĊĊ Ã©", "\x00\x01\x02\x7f\x80\x9f", "a\x00b\x00\x00c", "\ufffd\ufffe\uffff\U0010ffff\ue000",
    "e\u0301\u200de\u200c\u0301", "\u1100\u1161\u11a8 \u1100\u1161 \u1161\u11a8 가\u11a8 갂", "\u0d4a \u0d46\u0d3e \u09c7\u09be \u0b47\u0b56",
    "'s't're've'm'll'd 'S'T'RE'VE'M'LL'D 'ſ'ᵈ ’s ’t", "3.14159 2024-01-02T03:04:05Z 192.168.0.1", "a\u00a0b\u2003c\u3000d\u2028e\u2029f\u0085g",
]


def assigned():
    return [c for c in range(0x110000) if not 0xD800 <= c < 0xE000 and unicodedata.category(chr(c)) not in ("Co",)
            and (unicodedata.category(chr(c)) != "Cn" or c % 97 == 0 or c in range(0x1C80, 0x1C90))]


def code_points(step=1):
    for c in assigned()[::step]:
        s = chr(c)
        yield s
        yield "a%sb %s%s 1%s2 %s\u0301" % (s, s, s, s, s)
    for c in list(range(0xE000, 0xF900, 97)) + list(range(0xF0000, 0x10FFFE, 4999)):
        yield "x" + chr(c) + "y" + chr(c)


def digit_runs():
    starts = [c for c in assigned() if unicodedata.category(chr(c)) == "Nd" and unicodedata.digit(chr(c)) == 0]
    for c in starts:
        for n in (1, 2, 3, 4, 5, 7, 10, 13):
            yield "".join(chr(c + i % 10) for i in range(n)) + " x" + chr(c) * n


def space_runs():
    for s in SPACES:
        for n in (1, 2, 3, 4, 5, 8, 9, 16, 17, 33):
            yield s * n
            yield "a" + s * n + "b"
            yield s * n + "\n" + s + "c " + s
    for a in SPACES:
        for b in SPACES:
            yield "x" + a + b + "y" + b + a + a + "\n" + b


def mixed(rng, n, special):
    assigned_list = assigned()
    pools = [LETTERS, MARKS, SPACES, "0123456789٣३", "!?.,'\"()-_=+#@$%^&*", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGH"]
    for _ in range(n):
        out = []
        for _ in range(rng.randrange(1, 30)):
            k = rng.randrange(12)
            if k < len(pools):
                out.append("".join(rng.choice(pools[k]) for _ in range(rng.randrange(1, 5))))
            elif k == 7:
                out.append(chr(rng.choice(assigned_list)))
            elif k == 8:
                out.append(rng.choice(WORDS))
            elif k == 9:
                out.append(rng.choice(EMOJI))
            elif k == 10 and special:
                out.append(rng.choice(special))
            else:
                out.append(rng.choice([" ", "  ", "\n", " \n", "\r\n", "e\u0301", "가", "\u1112\u1161\u11ab"]))
        yield "".join(out)


def special_texts(special):
    for s in special[:40]:
        yield s
        yield "a" + s + "b"
        yield "  " + s + "  "
        yield s + s + "\n" + s + " x"
        yield s[:-1] + " " + s[1:]
        yield "x\n " + s + "\t\u00a0" + s + "é"
        yield s.upper() + s.lower() + s.title()


def corpus(special=(), step=1, n_random=4000):
    """All of it; step > 1 takes a part of the code points."""
    rng = random.Random(SEED)
    special = list(special)
    out = list(SAMPLES) + [w for w in WORDS] + [" ".join(WORDS), " ".join(EMOJI)] + EMOJI
    out += [w.upper() for w in WORDS] + [w.lower() for w in WORDS] + [w.replace("'", "’") for w in WORDS]
    out += list(digit_runs()) + list(space_runs()) + list(special_texts(special)) + list(code_points(step))
    return out + list(mixed(rng, n_random, special))

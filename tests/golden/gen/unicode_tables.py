#!/usr/bin/env python3
"""Writes runner/text/unicode_tables.c: which code points the `tokenizers` library puts in which class.

The library carries three Unicode databases of different ages (Oniguruma's for Split and Replace patterns, the Rust
standard library's and two crates' for the rest), none of which need be the one that PCRE2 and utf8proc were built
with.  So this asks the library itself about every code point.

    python3 -m venv V && V/bin/pip install tokenizers==0.23.3 unicodedata2
    V/bin/python tests/golden/gen/unicode_tables.py runner/text/unicode_tables.c
"""
import re
import sys

import tokenizers
import unicodedata2 as newest
from tokenizers import Regex, normalizers, pre_tokenizers

CPS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
TEXT = "".join(map(chr, CPS))

GC = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co Cn").split()
GC_LONG = {
    "Lu": "Uppercase_Letter", "Ll": "Lowercase_Letter", "Lt": "Titlecase_Letter", "Lm": "Modifier_Letter",
    "Lo": "Other_Letter", "Mn": "Nonspacing_Mark", "Mc": "Spacing_Mark", "Me": "Enclosing_Mark",
    "Nd": "Decimal_Number", "Nl": "Letter_Number", "No": "Other_Number", "Pc": "Connector_Punctuation",
    "Pd": "Dash_Punctuation", "Ps": "Open_Punctuation", "Pe": "Close_Punctuation", "Pi": "Initial_Punctuation",
    "Pf": "Final_Punctuation", "Po": "Other_Punctuation", "Sm": "Math_Symbol", "Sc": "Currency_Symbol",
    "Sk": "Modifier_Symbol", "So": "Other_Symbol", "Zs": "Space_Separator", "Zl": "Line_Separator",
    "Zp": "Paragraph_Separator", "Cc": "Control", "Cf": "Format", "Cs": "Surrogate", "Co": "Private_Use",
    "Cn": "Unassigned",
}
GC_GROUP = {
    "L": "Lu Ll Lt Lm Lo", "Letter": "Lu Ll Lt Lm Lo", "LC": "Lu Ll Lt", "Cased_Letter": "Lu Ll Lt", "M": "Mn Mc Me",
    "Mark": "Mn Mc Me", "Combining_Mark": "Mn Mc Me", "N": "Nd Nl No", "Number": "Nd Nl No",
    "P": "Pc Pd Ps Pe Pi Pf Po", "Punctuation": "Pc Pd Ps Pe Pi Pf Po", "S": "Sm Sc Sk So", "Symbol": "Sm Sc Sk So",
    "Z": "Zs Zl Zp", "Separator": "Zs Zl Zp", "C": "Cc Cf Cs Co Cn", "Other": "Cc Cf Cs Co Cn",
}
SCRIPTS = """Adlam:Adlm Ahom Anatolian_Hieroglyphs:Hluw Arabic:Arab Armenian:Armn Avestan:Avst Balinese:Bali Bamum:Bamu
Bassa_Vah:Bass Batak:Batk Bengali:Beng Bhaiksuki:Bhks Bopomofo:Bopo Brahmi:Brah Braille:Brai Buginese:Bugi Buhid:Buhd
Canadian_Aboriginal:Cans Carian:Cari Caucasian_Albanian:Aghb Chakma:Cakm Cham Cherokee:Cher Chorasmian:Chrs
Common:Zyyy Coptic:Copt Cuneiform:Xsux Cypriot:Cprt Cypro_Minoan:Cpmn Cyrillic:Cyrl Deseret:Dsrt Devanagari:Deva
Dives_Akuru:Diak Dogra:Dogr Duployan:Dupl Egyptian_Hieroglyphs:Egyp Elbasan:Elba Elymaic:Elym Ethiopic:Ethi
Garay:Gara Georgian:Geor Glagolitic:Glag Gothic:Goth Grantha:Gran Greek:Grek Gujarati:Gujr Gunjala_Gondi:Gong
Gurmukhi:Guru Gurung_Khema:Gukh Han:Hani Hangul:Hang Hanifi_Rohingya:Rohg Hanunoo:Hano Hatran:Hatr Hebrew:Hebr
Hiragana:Hira Imperial_Aramaic:Armi Inherited:Zinh Inscriptional_Pahlavi:Phli Inscriptional_Parthian:Prti
Javanese:Java Kaithi:Kthi Kannada:Knda Katakana:Kana Kawi Kayah_Li:Kali Kharoshthi:Khar Khitan_Small_Script:Kits
Khmer:Khmr Khojki:Khoj Khudawadi:Sind Kirat_Rai:Krai Lao:Laoo Latin:Latn Lepcha:Lepc Limbu:Limb Linear_A:Lina
Linear_B:Linb Lisu Lycian:Lyci Lydian:Lydi Mahajani:Mahj Makasar:Maka Malayalam:Mlym Mandaic:Mand Manichaean:Mani
Marchen:Marc Masaram_Gondi:Gonm Medefaidrin:Medf Meetei_Mayek:Mtei Mende_Kikakui:Mend Meroitic_Cursive:Merc
Meroitic_Hieroglyphs:Mero Miao:Plrd Modi Mongolian:Mong Mro:Mroo Multani:Mult Myanmar:Mymr Nabataean:Nbat
Nag_Mundari:Nagm Nandinagari:Nand New_Tai_Lue:Talu Newa Nko:Nkoo Nushu:Nshu Nyiakeng_Puachue_Hmong:Hmnp Ogham:Ogam
Ol_Chiki:Olck Ol_Onal:Onao Old_Hungarian:Hung Old_Italic:Ital Old_North_Arabian:Narb Old_Permic:Perm
Old_Persian:Xpeo Old_Sogdian:Sogo Old_South_Arabian:Sarb Old_Turkic:Orkh Old_Uyghur:Ougr Oriya:Orya Osage:Osge
Osmanya:Osma Pahawh_Hmong:Hmng Palmyrene:Palm Pau_Cin_Hau:Pauc Phags_Pa:Phag Phoenician:Phnx Psalter_Pahlavi:Phlp
Rejang:Rjng Runic:Runr Samaritan:Samr Saurashtra:Saur Sharada:Shrd Shavian:Shaw Siddham:Sidd SignWriting:Sgnw
Sinhala:Sinh Sogdian:Sogd Sora_Sompeng:Sora Soyombo:Soyo Sundanese:Sund Sunuwar:Sunu Syloti_Nagri:Sylo Syriac:Syrc
Tagalog:Tglg Tagbanwa:Tagb Tai_Le:Tale Tai_Tham:Lana Tai_Viet:Tavt Takri:Takr Tamil:Taml Tangsa:Tnsa Tangut:Tang
Telugu:Telu Thaana:Thaa Thai Tibetan:Tibt Tifinagh:Tfng Tirhuta:Tirh Todhri:Todr Toto Tulu_Tigalari:Tutg
Ugaritic:Ugar Unknown:Zzzz Vai:Vaii Vithkuqi:Vith Wancho:Wcho Warang_Citi:Wara Yezidi:Yezi Yi:Yiii
Zanabazar_Square:Zanb""".split()
# Other sets that a pattern may name: [[:alpha:]], \p{Alnum}, \d, \p{Emoji} ...
SETS = """Alnum Alpha Blank Cntrl Digit Graph Lower Print Punct Space Upper XDigit Word ASCII Any Assigned Alphabetic
Lowercase Uppercase White_Space Ideographic Unified_Ideograph Hex_Digit Dash Math Cased Case_Ignorable Diacritic
Extender Emoji Emoji_Presentation Emoji_Modifier Emoji_Modifier_Base Emoji_Component Extended_Pictographic ID_Start
ID_Continue XID_Start XID_Continue Variation_Selector Default_Ignorable_Code_Point Quotation_Mark Terminal_Punctuation
Sentence_Terminal""".split()


def kept_out(pre, text=TEXT, cps=CPS):
    """Ranges of code points that a pre-tokenizer which removes its matches takes out."""
    out, at = [], 0
    for _, (a, b) in pre.pre_tokenize_str(text) + [("", (len(text), len(text)))]:
        if at < a:
            out += ranges(cps[at:a])
        at = b
    return join(out)


def ranges(cps):
    out = []
    for c in cps:
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def join(rs):
    out = []
    for lo, hi in rs:
        if out and (lo <= out[-1][1] + 1 or (out[-1][1] == 0xD7FF and lo == 0xE000)):
            out[-1][1] = hi
        else:
            out.append([lo, hi])
    return out


def onig(pattern):
    return kept_out(pre_tokenizers.Split(Regex("(?:" + pattern + ")+"), "removed"))


def rust_word():
    out = []
    for s, (a, b) in pre_tokenizers.Whitespace().pre_tokenize_str(TEXT):
        if len(pre_tokenizers.Whitespace().pre_tokenize_str("a" + s[0])) == 1:
            out += ranges(CPS[a:b])
    return join(out)


def runs(named):
    """[(start, index)] from disjoint sets; a gap has index -1."""
    flat = sorted((lo, hi, i) for i, rs in enumerate(named) for lo, hi in rs)
    out, at = [], 0
    for lo, hi, i in flat:
        assert lo >= at or lo == 0xE000
        if lo > at and not (at == 0xD800 and lo == 0xE000):
            out.append((at, -1))
        if not out or out[-1][1] != i:
            out.append((lo, i))
        at = hi + 1
    if at < 0x110000:
        out.append((at, -1))
    return out


def lower_rows():
    low = normalizers.Lowercase()
    pairs, special = [], []
    for c in CPS:
        s = low.normalize_str(chr(c))
        if len(s) != 1:
            special.append((c, s))
        elif s != chr(c):
            pairs.append((c, ord(s) - c))
    rows = []
    for c, d in pairs:
        last = rows[-1] if rows else None
        if last and last[3] == d and c - last[1] in (1, 2) and last[2] in (0, c - last[1]):
            last[2], last[1] = c - last[1], c
        else:
            rows.append([c, c, 0, d])
    return [(lo, hi, st or 1, d) for lo, hi, st, d in rows], special


def reorders(nfd, s):
    """Has s a combining class in the library?"""
    return nfd.normalize_str("a" + s + "\u0334") != "a" + s + "\u0334" or nfd.normalize_str("a\u0345" + s) != "a\u0345" + s


def inert():
    """Code points that newer Unicode versions decompose, compose or reorder, and the library does not."""
    forms = {f: getattr(normalizers, f)() for f in ("NFC", "NFD", "NFKC", "NFKD")}
    nfc, nfd = forms["NFC"], forms["NFD"]
    alive = set()
    for c in CPS:
        d = nfd.normalize_str(chr(c))
        if d != chr(c):
            alive.update(d)
    out = set()
    for c in CPS:
        s = chr(c)
        for f, n in forms.items():
            if n.normalize_str(s) == newest.normalize(f, s):
                continue
            assert n.normalize_str(s) == s, hex(c)
            out.add(c)
        d = newest.normalize("NFD", s)
        if d != s and nfd.normalize_str(s) == s and newest.normalize("NFC", d) != d:
            # A new composite: one of its parts must be new as well, and with that one out of play nothing composes.
            assert nfc.normalize_str(d) == d, hex(c)
            parts = [p for p in d if p not in alive and not reorders(nfd, p)]
            assert parts, hex(c)
            out.update(map(ord, parts))
        if newest.combining(s) and not reorders(nfd, s):
            out.add(c)
    return join(ranges(sorted(out)))


def key(name):
    return re.sub("[ _-]", "", name).lower()


def c_ranges(name, rs, arrays):
    for other, known in arrays:
        if known == rs:
            return other
    arrays.append((name, rs))
    return name


def rows(items, per=8):
    return "\n".join("    " + " ".join(items[i : i + per]) for i in range(0, len(items), per))


def main():
    gc = [onig(r"\p{%s}" % g) if g != "Cs" else [[0xD800, 0xDFFF]] for g in GC]
    gc_runs = runs([join([r for r in rs]) for rs in gc])
    assert all(i >= 0 for _, i in gc_runs)
    scripts = [s.split(":") for s in SCRIPTS]
    script_runs = runs([onig(r"\p{%s}" % s[0]) for s in scripts])
    arrays, table = [], []
    for s in SETS:
        table.append((key(s), c_ranges(key(s), onig(r"\p{%s}" % s), arrays)))
    for c, s in (("w", "Word"), ("d", "Digit"), ("s", "Space"), ("h", "XDigit")):
        assert onig("\\" + c) == onig(r"\p{%s}" % s), c
    for s in ("alnum alpha blank cntrl digit graph lower print punct space upper xdigit word ascii").split():
        rs = onig("[[:%s:]]" % s)
        if rs != onig(r"\p{%s}" % s):
            table.append(("posix" + s, c_ranges("posix" + s, rs, arrays)))
    rust = {
        "space": kept_out(pre_tokenizers.WhitespaceSplit()),
        "word": rust_word(),
        "numeric": join(ranges([c for c in CPS if len(pre_tokenizers.Digits(True).pre_tokenize_str("a" + chr(c))) == 2])),
        "punct": kept_out(pre_tokenizers.Punctuation("removed")),
        "mark": join(ranges([c for c in CPS if not normalizers.StripAccents().normalize_str(chr(c))])),
        "inert": inert(),
    }
    low, special = lower_rows()
    assert special == [(0x130, "i\u0307")], special

    w = [
        "/* Which code points the `tokenizers` library (%s) puts in which class: generated by" % tokenizers.__version__,
        " * tests/golden/gen/unicode_tables.py, which asks the library about every one.  Do not edit. */",
        '#include "runner/text/unicode_tables.h"',
        "",
        "const uint32_t unicode_gc_runs[] = {",
        rows(["0x%x," % (s << 5 | i) for s, i in gc_runs], 12),
        "};",
        "const int unicode_gc_n_runs = %d;" % len(gc_runs),
        "",
        "const struct unicode_gc_name unicode_gc_names[] = {",
    ]
    masks = {g: 1 << i for i, g in enumerate(GC)}
    names = {key(g): m for g, m in masks.items()}
    names.update({key(GC_LONG[g]): m for g, m in masks.items()})
    names.update({key(k): sum(masks[g] for g in v.split()) for k, v in GC_GROUP.items()})
    w += ['    {"%s", 0x%x},' % kv for kv in sorted(names.items())]
    w += ["};", "const int unicode_gc_n_names = %d;" % len(names), "", "const uint32_t unicode_script_runs[] = {"]
    w += [rows(["0x%x," % (s << 8 | (i + 1)) for s, i in script_runs], 12), "};"]
    w += ["const int unicode_script_n_runs = %d;" % len(script_runs), "", "const struct unicode_script_name unicode_script_names[] = {"]
    sn = sorted((key(n), i + 1) for i, s in enumerate(scripts) for n in s)
    w += ['    {"%s", %d},' % p for p in sn] + ["};", "const int unicode_script_n_names = %d;" % len(sn), ""]
    for name, rs in list(arrays) + [("rust_" + k, v) for k, v in rust.items()]:
        w += ["static const struct unicode_range %s[] = {" % name, rows(["{0x%x, 0x%x}," % tuple(r) for r in rs], 6), "};"]
    w += ["", "const struct unicode_set unicode_sets[] = {"]
    size = {n: len(r) for n, r in arrays}
    w += ['    {"%s", %s, %d},' % (n, a, size[a]) for n, a in sorted(table)] + ["};"]
    w += ["const int unicode_n_sets = %d;" % len(table), ""]
    w += ['const struct unicode_set unicode_rust_%s = {"%s", rust_%s, %d};' % (k, k, k, len(v)) for k, v in rust.items()]
    w += ["", "const struct unicode_lower unicode_lower_rows[] = {"]
    w += [rows(["{0x%x, 0x%x, %d, %d}," % r for r in low], 4), "};", "const int unicode_lower_n_rows = %d;" % len(low)]
    open(sys.argv[1], "w").write("\n".join(w) + "\n")
    print(len(gc_runs), len(script_runs), {k: len(v) for k, v in rust.items()}, len(low))


if __name__ == "__main__":
    main()

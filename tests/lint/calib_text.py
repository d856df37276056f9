#!/usr/bin/env python3
"""Checks the calibration text: that the manifest tells the truth and that the text is text.

    calib_text.py [FOLDER]            check (default calib_data)
    calib_text.py --update [FOLDER]   write MANIFEST.tsv anew, then check

Text that was made from templates repeats itself, so over all files at least nine tenths of the word 4-grams must be
distinct (one code point is a word in scripts that are written without spaces).  Needs the standard library only.
"""
import hashlib
import os
import re
import sys
import unicodedata

LICENCE = "Apache-2.0"
DISTINCT = 0.90        # over all files
DISTINCT_FILE = 0.80   # in any one file: tables and code repeat more than prose does
UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uff66-\uff9f"
WORD = re.compile(f"[{UNSPACED}]|(?:(?![{UNSPACED}])[\\w\u0900-\u0dff])+")


def files_of(folder):
    found = []
    for base, _, names in os.walk(folder):
        found += [os.path.relpath(os.path.join(base, n), folder) for n in names if n.endswith(".txt")]
    return sorted(found)


def grams_of(text):
    words = WORD.findall(text.lower())
    return list(zip(words, words[1:], words[2:], words[3:]))


def faults_of(name, data):
    """What makes a file unfit, apart from repetition."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as e:
        return [f"{name}: not UTF-8 at byte {e.start}"]
    faults = []
    if unicodedata.normalize("NFC", text) != text:
        faults.append(f"{name}: not in normal form C")
    if not text.endswith("\n") or text.endswith("\n\n"):
        faults.append(f"{name}: must end in one newline")
    bad = sorted({c for c in text if unicodedata.category(c) in ("Cc", "Co", "Cs", "Cn") and c not in "\n\t"} | set(text) & {"\ufffd"})
    if bad:
        faults.append(f"{name}: has characters that are not text: {bad}")
    return faults


def manifest_of(folder):
    rows = {}
    with open(os.path.join(folder, "MANIFEST.tsv"), encoding="utf-8") as f:
        head = f.readline().rstrip("\n")
        if head != "name\tsha256\tbytes\tlicence":
            raise SystemExit(f"MANIFEST.tsv: unexpected first line {head!r}")
        for line in f:
            name, *rest = line.rstrip("\n").split("\t")
            rows[name] = rest
    return rows


def update(folder):
    with open(os.path.join(folder, "MANIFEST.tsv"), "w", encoding="utf-8") as f:
        f.write("name\tsha256\tbytes\tlicence\n")
        for name in files_of(folder):
            with open(os.path.join(folder, name), "rb") as g:
                data = g.read()
            f.write(f"{name}\t{hashlib.sha256(data).hexdigest()}\t{len(data)}\t{LICENCE}\n")


def check(folder):
    names, rows, faults = files_of(folder), manifest_of(folder), []
    faults += [f"{n}: in the manifest, not in the folder" for n in rows if n not in names]
    seen, total, size = set(), 0, 0
    for name in names:
        with open(os.path.join(folder, name), "rb") as f:
            data = f.read()
        size += len(data)
        found = faults_of(name, data)
        if rows.get(name) != [hashlib.sha256(data).hexdigest(), str(len(data)), LICENCE]:
            found.append(f"{name}: the manifest does not say what the file is; run calib_text.py --update")
        faults += found
        grams = grams_of(data.decode("utf-8", "replace"))
        share = len(set(grams)) / max(1, len(grams))
        if not grams or share < DISTINCT_FILE:
            faults.append(f"{name}: only {share:.3f} of its 4-grams are distinct, expected {DISTINCT_FILE}")
        seen.update(grams)
        total += len(grams)
    share = len(seen) / max(1, total)
    if share < DISTINCT:
        faults.append(f"all files: only {share:.4f} of the 4-grams are distinct, expected {DISTINCT}")
    return faults, f"calib-text: ok: {len(names)} files, {size} bytes, {share:.4f} of {total} 4-grams distinct"


def main(args):
    folder = next((a for a in args if not a.startswith("-")), "calib_data")
    if "--update" in args:
        update(folder)
    faults, summary = check(folder)
    print("\n".join(faults) if faults else summary)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

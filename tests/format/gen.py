#!/usr/bin/env python3
"""Writes tests/format/good and tests/format/bad: a second writer of the format, from docs/FORMAT.md alone.

usage: gen.py [FOLDER]      (default: the folder of this script)

good/*.llmq must load and verify; bad/*.llmq.gz each break one rule, and bad/EXPECT says which command must find
it and with what words.  Only the standard library is used.  The committed files are the test; this script
documents how they were made.  Inflated texts are the same everywhere; deflated bytes may differ by zlib.
"""
import gzip
import json
import os
import struct
import sys
import zlib

PAGE, NONE = 4096, 0xFFFF
ROLES = {"embed": 1, "lm_head": 2, "final_norm": 3, "attn_norm": 10, "attn_q": 11, "attn_k": 12, "attn_v": 13, "attn_o": 14,
         "attn_q_bias": 15, "attn_k_bias": 16, "attn_v_bias": 17, "attn_o_bias": 18, "mlp_norm": 20, "mlp_gate": 21,
         "mlp_up": 22, "mlp_down": 23, "mlp_gate_bias": 24, "mlp_up_bias": 25, "mlp_down_bias": 26}
LAYER = ["attn_norm", "attn_q", "attn_k", "attn_v", "attn_q_bias", "attn_k_bias", "attn_v_bias", "attn_o", "attn_o_bias",
         "mlp_norm", "mlp_gate", "mlp_up", "mlp_gate_bias", "mlp_up_bias", "mlp_down", "mlp_down_bias"]
BIAS = {"attn_q_bias": (0, 1), "attn_k_bias": (0, 2), "attn_v_bias": (0, 4), "attn_o_bias": (0, 8), "mlp_gate_bias": (1, 1),
        "mlp_up_bias": (1, 2), "mlp_down_bias": (1, 4)}
FUSED = {"attn_q": 1, "attn_k": 1, "attn_v": 1, "mlp_gate": 2, "mlp_up": 2}
F32, F16, BF16 = 1, 2, 3


class Random:
    """A small generator that every language can repeat."""

    def __init__(self, seed):
        self.x = seed

    def bits(self, n):
        self.x = (self.x * 6364136223846793005 + 1442695040888963407) % 2**64
        return self.x >> (64 - n)


class Counter:
    """Regular numbers, for files whose contents do not matter: they compress."""

    def __init__(self):
        self.x = 0

    def bits(self, n):
        self.x += 1
        return self.x % 2**n


def dense(dtype):
    return dict(kind=0, dtype=dtype, bits=0, sym=0, scale_dtype=0, act=0, group=0)


def integer(bits, sym, group):
    return dict(kind=1, dtype=0, bits=bits, sym=sym, scale_dtype=F16, act=0, group=group)


def element(dtype, v):
    return struct.pack("<f", v) if dtype == F32 else struct.pack("<e", v) if dtype == F16 else struct.pack("<f", v)[2:]


class Tensor:
    def __init__(self, role, layer, n, k, scheme, rnd):
        self.role, self.layer, self.expert, self.n, self.k, self.scheme = ROLES[role], layer, NONE, n, k, scheme
        self.fused = FUSED.get(role, 0)
        self.layout = scheme["kind"]
        self.rel_err = 0.0625 if scheme["kind"] else -1.0
        self.name = "%s.%s" % (role, "x" if layer == NONE else layer)
        if scheme["kind"]:
            self.make_tiles(rnd)
        else:
            # multiples of 2^-7 below 1: exact in every type
            self.parts = [b"".join(element(scheme["dtype"], (rnd.bits(8) - 128) / 128) for _ in range(n * k)), b"", b""]

    def make_tiles(self, rnd):
        s, n, k = self.scheme, self.n, self.k
        groups = -(-k // s["group"]) if s["group"] else 1
        n_pad, k_pad = -(-n // 16) * 16, -(-k // 64) * 64
        zero = [[0 if o >= n and not s["sym"] else 1 << s["bits"] - 1 if s["sym"] else rnd.bits(s["bits"])
                 for _ in range(groups)] for o in range(n_pad)]
        scale = [[0.0 if o >= n else (1 + rnd.bits(6)) / 256 for _ in range(groups)] for o in range(n_pad)]
        group = lambda i: min(i // s["group"], groups - 1) if s["group"] else 0
        code = [[rnd.bits(s["bits"]) if o < n and i < k else zero[o][group(i)] for i in range(k_pad)] for o in range(n_pad)]
        data = bytearray()
        for o in range(0, n_pad, 16):
            for i in range(0, k_pad, 64):
                for r in range(16 if s["bits"] == 8 else 8):
                    for oo in range(16):
                        for b in range(4):
                            at = code[o + oo]
                            data.append(at[i + 4 * r + b] if s["bits"] == 8 else
                                        at[i + 4 * r + b] | at[i + 32 + 4 * r + b] << 4)
        order = [(o + oo, g) for o in range(0, n_pad, 16) for g in range(groups) for oo in range(16)]
        zeros = b"" if s["sym"] else bytes(zero[o][g] for o, g in order)
        self.parts = [bytes(data), b"".join(struct.pack("<e", scale[o][g]) for o, g in order), zeros]


class Section:
    names = {1: "hparams", 2: "tokenizer", 3: "vocab", 4: "merges", 5: "chat_template", 6: "generation", 7: "provenance",
             8: "names", 9: "kv"}

    def __init__(self, id, text, deflate=None, name=None, flags=0):
        self.id, self.text = id, text
        self.deflate = id not in (1, 9) if deflate is None else deflate
        self.name = (name or self.names[id]).encode()
        self.flags = flags | (1 if id == 1 else 0) | (2 if self.deflate else 0)


HPARAMS = dict(arch=1, n_layers=1, d_model=12, n_heads=2, n_kv_heads=1, head_dim=4, d_ff=20, n_vocab=6, ctx_len=32, tied=1,
               attn_bias=0, mlp_bias=0, rope_type=0, rope_orig_ctx=0, rope_theta=10000.0, rms_eps=2.0**-17, rope_factor=1.0,
               rope_low=0.0, rope_high=0.0, rope_attn_factor=1.0, bos_id=1, n_eos=1)


def hparams_bytes(h, eos=(2,)):
    v = list(h.values())
    return struct.pack("<14I6fiI8i8x", *v, *(list(eos) + [0] * 8)[:8])


class Model:
    """A complete model; `tensors`, `sections` and `h` may be changed before build()."""

    def __init__(self, schemes, names=True, seed=1, **h):
        self.h = dict(HPARAMS, **h)
        self.schemes, self.rnd = schemes, Random(seed) if seed else Counter()
        self.minor, self.extra, self.major = 0, 0, 1
        self.tensors = [self.tensor("embed", NONE)]
        for layer in range(self.h["n_layers"]):
            for role in LAYER:
                which, bit = BIAS.get(role, (0, 0))
                if not bit or (self.h["mlp_bias"] if which else self.h["attn_bias"]) & bit:
                    self.tensors.append(self.tensor(role, layer))
        self.tensors.append(self.tensor("final_norm", NONE))
        if not self.h["tied"]:
            self.tensors.append(self.tensor("lm_head", NONE))
        self.sections = [Section(1, hparams_bytes(self.h)), Section(7, b'{"tool":"gen.py"}')]
        if names:
            self.sections.append(Section(8, b"".join(t.name.encode() + b"\0" for t in self.tensors)))

    def shape(self, role):
        h = self.h
        q, kv = h["n_heads"] * h["head_dim"], h["n_kv_heads"] * h["head_dim"]
        d, ff, v = h["d_model"], h["d_ff"], h["n_vocab"]
        return {"embed": (v, d), "lm_head": (v, d), "attn_q": (q, d), "attn_k": (kv, d), "attn_v": (kv, d), "attn_o": (d, q),
                "attn_q_bias": (q, 1), "attn_k_bias": (kv, 1), "attn_v_bias": (kv, 1), "mlp_gate": (ff, d), "mlp_up": (ff, d),
                "mlp_down": (d, ff), "mlp_gate_bias": (ff, 1), "mlp_up_bias": (ff, 1)}.get(role, (d, 1))

    def tensor(self, role, layer):
        n, k = self.shape(role)
        pick = dense(F32) if k == 1 else self.schemes[self.rnd.bits(16) % len(self.schemes)]
        return Tensor(role, layer, n, k, pick, self.rnd)

    def section(self, id):
        return next(s for s in self.sections if s.id == id)

    def find(self, role, layer=NONE):
        return next(t for t in self.tensors if t.role == ROLES[role] and t.layer == layer)

    def place(self, out):
        """Tensors' bytes: a layer on a page, fused matrices' data back to back, then scales, then zero points."""
        i = 0
        while i < len(self.tensors):
            j = i + 1
            while (j < len(self.tensors) and self.tensors[i].fused and self.tensors[j].fused == self.tensors[i].fused
                   and self.tensors[j].layer == self.tensors[i].layer):
                j += 1
            run = self.tensors[i:j]
            pad(out, PAGE if i and self.tensors[i - 1].layer != self.tensors[i].layer else 64)
            for t in run:
                t.offset = [0, 0, 0]
            for part in range(3):
                for first, t in enumerate(run):
                    if t.parts[part]:
                        pad(out, 64 if part == 0 or first == 0 else (1, 32, 16)[part])
                        t.offset[part] = len(out)
                        out += t.parts[part]
            i = j

    def entry(self, t):
        s = t.scheme
        crc = [zlib.crc32(p) if p else 0 for p in t.parts]
        size = getattr(t, "sizes", [len(p) for p in t.parts])
        return struct.pack("<4H6B2x3If3I4x6Q32x", t.role, t.layer, t.expert, t.layout, s["kind"], s["dtype"], s["bits"], s["sym"],
                           s["scale_dtype"], s["act"], s["group"], t.n, t.k, t.rel_err, *crc, t.offset[0], size[0], t.offset[1],
                           size[1], t.offset[2], size[2]) + b"\xaa" * self.extra

    def build(self, after_place=None, entries=None, header=None, raw=None):
        """The file.  after_place(model) may move offsets; entries(list of section and tensor entries), header(dict) and
        raw(bytearray) may change what is about to be written."""
        out = bytearray(PAGE)
        self.place(out)
        for s in self.sections:
            pad(out, 64)
            s.offset = len(out)
            s.stored = zlib.compress(s.text, 9) if s.deflate else s.text
            out += s.stored
        if after_place:
            after_place(self)
        rows = [[struct.pack("<IIQQQII24s", s.id, s.flags, s.offset, getattr(s, "stored_bytes", len(s.stored)),
                             getattr(s, "bytes", len(s.text)), zlib.crc32(s.stored), zlib.crc32(s.text), s.name)
                 + b"\xbb" * self.extra for s in self.sections], [self.entry(t) for t in self.tensors]]
        if entries:
            entries(rows)
        h = dict(n_sections=len(rows[0]), n_tensors=len(rows[1]), section_bytes=64 + self.extra, tensor_bytes=128 + self.extra)
        if header:
            header(h)
        directory = struct.pack("<4I48x", h["n_sections"], h["n_tensors"], h["section_bytes"], h["tensor_bytes"])
        directory += b"".join(rows[0] + rows[1])
        pad(out, 64)
        f = dict(magic=b"LLMQ\r\n\x1a\n", major=self.major, minor=self.minor, header_bytes=PAGE, file_bytes=len(out) + len(directory),
                 dir_offset=len(out), dir_bytes=len(directory), dir_crc=zlib.crc32(directory))
        out += directory
        if header:
            header(f)
        head = struct.pack("<8sHHIQQQI", *list(f.values())[:8]) + bytes(4048)
        out[:PAGE] = head + struct.pack("<I", f.get("crc", zlib.crc32(head)))
        if raw:
            out = raw(out) or out
        return bytes(out)


def pad(out, align):
    out += bytes(-len(out) % align)


# ---- good ----------------------------------------------------------------------------------------------

VOCAB = struct.pack("<I", 6) + b"".join(
    b"\xff\xff\xff\xff" if t is None else struct.pack("<I", len(t)) + t for t in (b"<unk>", b"<s>", b"</s>", b"a", b"b", None))
MERGES = struct.pack("<4I", 1, 3, 4, 5)


def newer_minor():
    m = Model([dense(BF16), integer(4, 1, 32)], seed=6)
    m.minor, m.extra = 7, 16
    m.section(1).text += b"later additions!"
    m.sections.append(Section(99, b"of a later version", name="novelty"))
    return m


def texts():
    m = Model([dense(F16)], names=False, seed=7, n_vocab=6)
    m.sections += [Section(2, b'{"model":{"type":"BPE"}}'), Section(3, VOCAB), Section(4, MERGES),
                   Section(5, "{{ messages }} \u00e9\n".encode()), Section(6, b'{"temperature":0.5}')]
    return m


def good():
    yield "dense-f32", Model([dense(F32)])
    yield "dense-mixed-untied-bias", Model([dense(F32), dense(F16), dense(BF16)], seed=2, n_layers=2, tied=0, attn_bias=15,
                                           mlp_bias=7, n_heads=4, n_kv_heads=2)
    yield "int4-asym-ragged", Model([integer(4, 0, 32), integer(4, 0, 64)], seed=3, d_model=72, d_ff=97, n_heads=3, n_kv_heads=3,
                                    head_dim=6)
    yield "int4-int8-sym", Model([integer(4, 1, 0), integer(8, 1, 32), integer(4, 1, 128), integer(8, 1, 256)], seed=4, d_model=40,
                                 d_ff=70, n_vocab=17)
    yield "int8-channel-asym", Model([integer(8, 0, 0)], seed=5, rope_type=3, rope_orig_ctx=16, rope_factor=8.0, rope_low=1.0,
                                     rope_high=4.0)
    yield "newer-minor", newer_minor()
    yield "texts", texts()


# ---- bad -----------------------------------------------------------------------------------------------

def base():
    return Model([integer(4, 0, 32)], seed=0, d_model=36, d_ff=20)


def hp(**change):
    def make():
        m = base()
        m.section(1).text = hparams_bytes(dict(m.h, **change))
        return m.build()
    return make


def header(**change):
    def patch(h):
        h.update({k: v(h[k]) if callable(v) else v for k, v in change.items() if k in h})
        if "crc" in change and "magic" in h:
            h["crc"] = change["crc"]
    return lambda: base().build(header=patch)


def raw(f):
    return lambda: base().build(raw=f)


def model(f):
    def make():
        m = base()
        f(m)
        return m.build()
    return make


def placed(f):
    return lambda: base().build(after_place=f)


def rows(f):
    return lambda: base().build(entries=f)


def attr(obj, /, **kv):
    for k, v in kv.items():
        setattr(obj, k, v)


def tensor(role, layer=NONE, /, **kv):
    return model(lambda m: attr(m.find(role, layer), **kv))


def own_scheme(role, layer=NONE, /, **kv):
    """Schemes are shared between tensors: change one tensor's copy."""
    return model(lambda m: attr(m.find(role, layer), scheme=dict(m.find(role, layer).scheme, **kv)))


def offset(role, part, f):
    def move(m):
        t = m.find(role, NONE if role in ("embed", "final_norm") else 0)
        t.offset[part] = f(t.offset[part], m)
    return placed(move)


def sect(id, /, **kv):
    return placed(lambda m: attr(m.section(id), **kv))


def part(role, index, f):
    """Changes a part's bytes before checksums are taken."""
    def change(m):
        t = m.find(role, NONE if role in ("embed", "final_norm") else 0)
        b = bytearray(t.parts[index])
        f(b)
        t.parts[index] = bytes(b)
    return model(change)


def setter(at, value):
    def f(b):
        b[at] = value
    return f


def flip(find):
    """Changes one byte of the finished file, found by find(model), so that a checksum no longer holds."""
    def make():
        m = base()
        b = bytearray(m.build())
        b[find(m)] ^= 0x10
        return bytes(b)
    return make


def add_section(*a, **kv):
    return model(lambda m: m.sections.append(Section(*a, **kv)))


def drop(role, layer=0):
    def f(m):
        t = m.find(role, layer)
        m.section(8).text = m.section(8).text.replace(t.name.encode() + b"\0", b"")
        m.tensors.remove(t)
    return model(f)


def twice(m):
    t = Tensor("attn_o", 0, 36, 8, dense(F32), m.rnd)
    m.tensors.insert(6, t)
    m.section(8).text += b"again\0"


def extra_bias(m):
    m.tensors.insert(6, Tensor("attn_o_bias", 0, 36, 1, dense(F32), m.rnd))
    m.section(8).text += b"bias\0"


def move_norm_into_layer(m):
    m.tensors.insert(4, m.tensors.pop())


def wrong_order(r):
    r[1][0], r[1][1] = r[1][1], r[1][0]


def to_text_mode(b):
    return b.replace(b"\r\n", b"\n")


def dense_tensor(role, layer, dtype, values):
    def f(m):
        t = m.find(role, layer)
        t.parts[0] = b"".join(element(dtype, v) for v in values(t.n * t.k))
    return model(f)


def bomb(m):
    s = m.section(7)
    s.stored_bytes, s.bytes = len(s.stored), len(s.stored) * 1041


NAN, INF = float("nan"), float("inf")
BAD = [
    # name, first command that must refuse it, its words, how to make it
    ("empty", "inspect", "0 bytes, too short for the header", lambda: b""),
    ("header-short", "inspect", "4095 bytes, too short for the header", raw(lambda b: b[:4095])),
    ("header-magic", "inspect", "does not begin as a .llmq does", header(magic=b"LLMX\r\n\x1a\n")),
    ("header-text-mode", "inspect", "does not begin as a .llmq does", raw(to_text_mode)),
    ("header-unfinished", "inspect", "not completely written", raw(lambda b: bytes(PAGE) + b[PAGE:])),
    ("header-major", "inspect", "format version 2.0, expected 1.x", header(major=2)),
    ("header-crc", "inspect", "the header is damaged", header(crc=1)),
    ("header-bytes", "inspect", "a header of 8192 bytes, expected 4096", header(header_bytes=8192)),
    ("file-cut", "inspect", "cut short", raw(lambda b: b[:-64])),
    ("file-grown", "inspect", "bytes were added", raw(lambda b: b + b"x")),
    ("dir-unaligned", "inspect", "the directory at offset", header(dir_offset=lambda v: v + 8, dir_bytes=lambda v: v - 8)),
    ("dir-past-end", "inspect", "the directory: 3072 bytes at offset 1099511627776 reach past", header(dir_offset=1 << 40, dir_bytes=3072)),
    ("dir-wraps", "inspect", "reach past", header(dir_offset=2**64 - 64, dir_bytes=128)),
    ("dir-not-last", "inspect", "expected the file's last ones", header(dir_bytes=lambda v: v - 64)),
    ("dir-in-header", "inspect", "expected the file's last ones", header(dir_offset=0)),
    ("dir-too-small", "inspect", "expected the file's last ones", header(dir_bytes=0, dir_offset=lambda v: v)),
    ("dir-crc", "inspect", "the directory is damaged", header(dir_crc=lambda v: v ^ 1)),
    ("dir-section-entry-short", "inspect", "section entries of 56 bytes, expected 64 or more", header(section_bytes=56)),
    ("dir-tensor-entry-odd", "inspect", "tensor entries of 129 bytes, expected 128 or more", header(tensor_bytes=129)),
    ("dir-tensor-entry-huge", "inspect", "tensor entries of 8192 bytes", header(tensor_bytes=8192)),
    ("dir-count", "inspect", "tensors take", header(n_tensors=0x7FFFFFFF)),
    ("dir-sections", "inspect", "2000 sections, at most 1024 are read", header(n_sections=2000)),
    ("section-required-unknown", "inspect", "section 99 'novelty': is required, and this program does not know it",
     add_section(99, b"x", name="novelty", flags=1)),
    ("section-flags", "inspect", "section 7 'provenance': flags 0x12", sect(7, flags=0x12)),
    ("section-id-zero", "inspect", "section 0 'none': its id is 0", add_section(0, b"x", deflate=False, name="none")),
    ("section-name-endless", "inspect", "section 7: its name is empty or has no end", sect(7, name=b"x" * 24)),
    ("section-name-control", "inspect", "section 7: byte 1 of its name is not printable ASCII", sect(7, name=b"a\x1b[2J")),
    ("section-unaligned", "inspect", "section 7 'provenance': its bytes at offset", placed(lambda m: attr(m.section(7), offset=m.section(7).offset + 4))),
    ("section-past-end", "inspect", "reach past", sect(7, stored_bytes=1 << 30)),
    ("section-wraps", "inspect", "reach past", sect(7, offset=2**64 - 64, stored_bytes=128)),
    ("section-length", "inspect", "and it is not deflated", sect(1, bytes=127)),
    ("section-ratio", "inspect", "cannot inflate to", placed(bomb)),
    ("section-inflates-longer", "inspect", "does not inflate to the 16 bytes", sect(7, bytes=16)),
    ("section-inflates-shorter", "inspect", "does not inflate to the 18 bytes", sect(7, bytes=18)),
    ("section-not-deflate", "inspect", "does not inflate", sect(1, flags=3)),
    ("section-stored-crc", "inspect", "section 7 'provenance': is damaged: its CRC", flip(lambda m: m.section(7).offset + 3)),
    ("section-inflated-crc", "inspect", "CRC of its inflated bytes", placed(lambda m: attr(m.section(7), text=b'{"tool":"gen.px"}'))),
    ("section-twice", "inspect", "section 7 'provenance': stands there twice", add_section(7, b"{}")),
    ("section-overlap", "inspect", "belong to two things",
     placed(lambda m: attr(m.section(8), offset=m.section(7).offset, stored=m.section(7).stored, text=m.section(7).text))),
    ("hparams-missing", "inspect", "section 'hparams': 0 bytes, expected 128", model(lambda m: m.sections.pop(0))),
    ("hparams-short", "inspect", "section 'hparams': 124 bytes, expected 128", model(lambda m: attr(m.section(1), text=m.section(1).text[:124]))),
    ("hparams-arch", "inspect", "arch is 9, expected 1 to 1", hp(arch=9)),
    ("hparams-layers", "inspect", "n_layers is 0, expected 1 to 4096", hp(n_layers=0)),
    ("hparams-layers-many", "inspect", "tensors are too few for 4000 layers", hp(n_layers=4000)),
    ("hparams-wide", "inspect", "d_model is 4294967295", hp(d_model=2**32 - 1)),
    ("hparams-heads", "inspect", "n_heads is 2, expected a multiple of n_kv_heads, 3", hp(n_kv_heads=3)),
    ("hparams-head-dim", "inspect", "head_dim is 3, expected an even number", hp(head_dim=3)),
    ("hparams-bos", "inspect", "bos_id is 6, expected -1 to 5", hp(bos_id=6)),
    ("hparams-eos", "inspect", "an eos_id is 7, expected 0 to 5", model(lambda m: attr(m.section(1), text=hparams_bytes(m.h, (7,))))),
    ("hparams-eos-count", "inspect", "n_eos is 9, expected 0 to 8", hp(n_eos=9)),
    ("hparams-eps", "inspect", "rms_eps is nan", hp(rms_eps=NAN)),
    ("hparams-theta", "inspect", "rope_theta is 0, expected more than 0", hp(rope_theta=0.0)),
    ("hparams-rope-type", "inspect", "rope_type is 5, expected 0 to 4", hp(rope_type=5)),
    ("hparams-rope-orig", "inspect", "rope_orig_ctx is 0", hp(rope_type=3, rope_low=1.0, rope_high=4.0)),
    ("hparams-rope-ramp", "inspect", "expected 0 < low < high", hp(rope_type=3, rope_orig_ctx=8, rope_low=4.0, rope_high=4.0)),
    ("hparams-shape", "inspect", "tensor 0 (embed): 6 x 36, but the hyperparameters make it 5 x 36", hp(n_vocab=5)),
    ("tensor-role", "inspect", "tensor 5 (layer 0 role 77): role 77 is not known", tensor("attn_o", 0, role=77)),
    ("tensor-expert", "inspect", "expert 0, expected 65535 (none)", tensor("attn_o", 0, expert=0)),
    ("tensor-layer", "inspect", "layer 1, but the model has 1", tensor("attn_o", 0, layer=1)),
    ("tensor-layer-of-global", "inspect", "layer 0, expected 65535 (none)", tensor("final_norm", layer=0)),
    ("tensor-shape", "inspect", "tensor 2 (layer 0 attn_q): 9 x 36, but the hyperparameters make it 8 x 36", tensor("attn_q", 0, n=9)),
    ("tensor-layout-unknown", "inspect", "layout 7 is not known", tensor("attn_q", 0, layout=7)),
    ("tensor-layout-mismatch", "inspect", "layout 0 does not go with scheme kind 1", tensor("attn_q", 0, layout=0)),
    ("tensor-vector-quantized", "inspect", "a vector is quantized", model(lambda m: attr(m.find("attn_norm", 0), scheme=integer(4, 1, 0), layout=1))),
    ("tensor-rel-err", "inspect", "its relative error is nan", tensor("attn_q", 0, rel_err=NAN)),
    ("scheme-kind", "inspect", "the scheme's kind is 2, expected 0 (dense) or 1", own_scheme("attn_q", 0, kind=2)),
    ("scheme-bits", "inspect", "the number of bits is 3, expected 4 or 8", own_scheme("attn_q", 0, bits=3)),
    ("scheme-symmetric", "inspect", "symmetric is 2, expected 0 or 1", own_scheme("attn_q", 0, sym=2)),
    ("scheme-group", "inspect", "the group size is 48, expected 32, 64, 128, 256 or 0", own_scheme("attn_q", 0, group=48)),
    ("scheme-scale-type", "inspect", "the scale type is 1, expected 2 (f16)", own_scheme("attn_q", 0, scale_dtype=F32)),
    ("scheme-element-type", "inspect", "the element type is 3, expected 0", own_scheme("attn_q", 0, dtype=BF16)),
    ("scheme-dense-type", "inspect", "the element type is 4, expected 1 (f32), 2 (f16) or 3 (bf16)", own_scheme("attn_norm", 0, dtype=4)),
    ("scheme-dense-group", "inspect", "dense, yet with bits, scales or groups", own_scheme("attn_norm", 0, group=32)),
    ("scheme-activation", "inspect", "the activation type is 1, expected 0 (none)", own_scheme("attn_q", 0, act=1)),
    ("data-bytes", "inspect", "511 bytes of data, expected 512", tensor("attn_q", 0, sizes=[511, 64, 32])),
    ("data-past-end", "inspect", "reach past the file's", offset("attn_q", 0, lambda v, m: 1 << 40)),
    ("data-wraps", "inspect", "reach past the file's", offset("attn_q", 0, lambda v, m: 2**64 - 64)),
    ("data-unaligned", "inspect", "data at offset", offset("attn_q", 0, lambda v, m: v + 32)),
    ("data-overlap", "inspect", "belong to two things", offset("attn_o", 0, lambda v, m: m.find("attn_q", 0).offset[1])),
    ("data-in-header", "inspect", "belong to two things", offset("embed", 0, lambda v, m: 0)),
    ("data-in-directory", "inspect", "belong to two things", offset("final_norm", 0, lambda v, m: m.sections[-1].offset + 128)),
    ("scales-unaligned", "inspect", "scales at offset", offset("attn_q", 1, lambda v, m: v + 16)),
    ("scales-overlap", "inspect", "belong to two things", offset("attn_q", 1, lambda v, m: m.find("attn_k", 0).offset[1])),
    ("scales-absent", "inspect", "0 bytes of scales, expected 64", tensor("attn_q", 0, sizes=[512, 0, 32])),
    ("scales-of-dense", "inspect", "64 bytes of scales, expected 0", tensor("attn_norm", 0, sizes=[144, 64, 0])),
    ("scales-place-of-dense", "inspect", "has no scales, yet their place", offset("attn_norm", 1, lambda v, m: 4096)),
    ("zeros-unaligned", "inspect", "zero points at offset", offset("attn_q", 2, lambda v, m: v + 8)),
    ("tensor-missing", "inspect", "there is no tensor layer 0 attn_o", drop("attn_o")),
    ("tensor-twice", "inspect", "stands there twice: entry 5 is the same tensor", model(twice)),
    ("tensor-beyond", "inspect", "tensors, but the hyperparameters make it", model(extra_bias)),
    ("order", "inspect", "its data stands before that of the entry before it", rows(wrong_order)),
    ("layer-page", "inspect", "the layer begins at offset", offset("attn_norm", 0, lambda v, m: v + 64 * 8)),
    ("layer-apart", "inspect", "layer", model(move_norm_into_layer)),
    ("names-few", "inspect", "section 'names': fewer names than the", model(lambda m: attr(m.section(8), text=m.section(8).text[:8]))),
    ("names-many", "inspect", "section 'names': more names than the", model(lambda m: attr(m.section(8), text=m.section(8).text + b"x\0"))),
    ("names-endless", "inspect", "has no end", model(lambda m: attr(m.section(8), text=m.section(8).text[:-1]))),
    ("names-control", "inspect", "section 'names': name 0 is not printable ASCII", model(lambda m: attr(m.section(8), text=b"\x1b[31m" + m.section(8).text))),
    ("data-crc", "verify", "tensor 0 (embed): its data are damaged", flip(lambda m: m.find("embed").offset[0] + 5)),
    ("scales-crc", "verify", "tensor 2 (layer 0 attn_q): its scales are damaged", flip(lambda m: m.find("attn_q", 0).offset[1] + 5)),
    ("zeros-crc", "verify", "its zero points are damaged", flip(lambda m: m.find("attn_q", 0).offset[2] + 5)),
    ("data-nan", "verify", "tensor 1 (layer 0 attn_norm): data: element 3 is NaN or infinite",
     dense_tensor("attn_norm", 0, F32, lambda n: [0, 1, 2, NAN] + [0] * (n - 4))),
    ("data-infinite", "verify", "final_norm): data: element 35 is NaN or infinite", dense_tensor("final_norm", NONE, F32, lambda n: [0] * (n - 1) + [-INF])),
    ("scales-infinite", "verify", "scales: element 1 is NaN or infinite", part("attn_q", 1, setter(3, 0x7C))),
    ("zeros-range", "verify", "zero point 16 does not fit 4 bits", part("attn_q", 2, setter(0, 16))),
    ("padding-input", "verify", "padded input 60", part("attn_q", 0, lambda b: b.__setitem__(7 * 64, b[7 * 64] ^ 0x10))),
    ("padding-output", "verify", "padded output 8 has a scale, expected 0", part("attn_q", 1, setter(17, 0x3C))),
    ("padding-gap", "verify", "is padding and not zero", raw(lambda b: b.__setitem__(2 * PAGE - 1, 1))),
    ("json", "verify", "section 'provenance': its JSON: line 1", model(lambda m: attr(m.section(7), text=b'{"tool":'))),
    ("json-twice", "verify", "section 'provenance': its JSON: line 1", model(lambda m: attr(m.section(7), text=b'{"a":1,"a":2}'))),
    ("vocab-short", "verify", "section 'vocab': ends within token", add_section(3, VOCAB[:-2])),
    ("vocab-token", "verify", "reach past the section's end", add_section(3, struct.pack("<II", 1, 9) + b"x")),
    ("vocab-long", "verify", "section 'vocab': ", add_section(3, VOCAB + b"x")),
    ("merges-count", "verify", "section 'merges': 16 bytes, but its 2 merges take 28", model(lambda m: m.sections.extend([Section(3, VOCAB), Section(4, struct.pack("<4I", 2, 3, 4, 5))]))),
    ("merges-id", "verify", "section 'merges': merge 0 names token 6 of 6", model(lambda m: m.sections.extend([Section(3, VOCAB), Section(4, struct.pack("<4I", 1, 3, 4, 6))]))),
]


def write(path, content):
    with open(path, "wb") as f:
        f.write(content)


def main():
    here = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    os.makedirs(here + "/good", exist_ok=True)
    os.makedirs(here + "/bad", exist_ok=True)
    for name, m in good():
        write("%s/good/%s.llmq" % (here, name), m.build())
    lines = ["# file, first command that must refuse it, exit status, words that it must say\n"]
    for name, command, words, make in BAD:
        write("%s/bad/%s.llmq.gz" % (here, name), gzip.compress(make(), 9, mtime=0))
        lines.append("\t".join((name, command, "4", words)) + "\n")
    write(here + "/bad/EXPECT", "".join(lines).encode())


if __name__ == "__main__":
    main()

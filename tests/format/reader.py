#!/usr/bin/env python3
"""Reads a .llmq as docs/FORMAT.md describes it, with nothing but the standard library, and compares what it finds with
`llmq inspect --sums --json`.

usage: reader.py FILE.llmq [INSPECT.json]     (without the JSON: prints role, layer and SHA-256 of each tensor's floats)
"""
import hashlib
import json
import mmap
import struct
import sys
import zlib

NONE = 0xFFFF
ROLES = {1: "embed", 2: "lm_head", 3: "final_norm", 10: "attn_norm", 11: "attn_q", 12: "attn_k", 13: "attn_v", 14: "attn_o",
         15: "attn_q_bias", 16: "attn_k_bias", 17: "attn_v_bias", 18: "attn_o_bias", 20: "mlp_norm", 21: "mlp_gate",
         22: "mlp_up", 23: "mlp_down", 24: "mlp_gate_bias", 25: "mlp_up_bias", 26: "mlp_down_bias"}
HPARAMS = ("arch n_layers d_model n_heads n_kv_heads head_dim d_ff n_vocab ctx_len tied attn_bias mlp_bias rope_type "
           "rope_orig_ctx rope_theta rms_eps rope_factor rope_low rope_high rope_attn_factor bos_id n_eos").split()


def check(ok, what):
    if not ok:
        raise SystemExit("reader.py: " + what)


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


class File:
    def __init__(self, path):
        with open(path, "rb") as f:
            self.b = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        b = self.b
        magic, major, self.minor, size, total, at, length, crc = struct.unpack_from("<8sHHIQQQI", b)
        check(magic == b"LLMQ\r\n\x1a\n" and major == 1, "not a .llmq of version 1")
        check(zlib.crc32(b[:4092]) == struct.unpack_from("<I", b, 4092)[0], "header CRC")
        check(size == 4096 and total == len(b) and at % 64 == 0 and at + length == total, "sizes")
        check(zlib.crc32(b[at:at + length]) == crc, "directory CRC")
        n_sections, n_tensors, s_bytes, t_bytes = struct.unpack_from("<4I", b, at)
        check(64 + n_sections * s_bytes + n_tensors * t_bytes == length, "directory size")
        self.sections = dict(self.section(at + 64 + i * s_bytes) for i in range(n_sections))
        self.hparams = dict(zip(HPARAMS, struct.unpack_from("<14I6fiI", self.sections[1])))
        first = at + 64 + n_sections * s_bytes
        self.tensors = [Tensor(b, first + i * t_bytes) for i in range(n_tensors)]
        names = self.sections.get(8, b"\0" * n_tensors).split(b"\0")
        check(len(names) == n_tensors + 1 and names[-1] == b"", "names")
        for t, name in zip(self.tensors, names):
            t.name = name.decode()

    def section(self, at):
        id, flags, offset, stored, size, stored_crc, crc, name = struct.unpack_from("<IIQQQII24s", self.b, at)
        raw = self.b[offset:offset + stored]
        check(zlib.crc32(raw) == stored_crc, "CRC of section %r" % name)
        text = zlib.decompress(raw) if flags & 2 else raw
        check(len(text) == size and zlib.crc32(text) == crc, "inflated section %r" % name)
        check(id <= 9 or not flags & 1, "required section %r" % name)
        return id, text


class Tensor:
    def __init__(self, b, at):
        v = struct.unpack_from("<4H6B2xIIIf3I4x6Q", b, at)
        self.role, self.layer, self.expert, self.layout, self.kind, self.dtype, self.bits, self.symmetric = v[:8]
        self.group, self.n, self.k, self.rel_err = v[10:14]
        self.parts = [b[v[17 + 2 * i]:v[17 + 2 * i] + v[18 + 2 * i]] for i in range(3)]
        for part, crc in zip(self.parts, v[14:17]):
            check(zlib.crc32(part) == crc, "CRC of tensor %s" % ROLES[self.role])
        self.groups = 0 if self.kind == 0 else 1 if self.group == 0 else -(-self.k // self.group)

    def scheme(self):
        if self.kind == 0:
            return {1: "f32", 2: "f16", 3: "bf16"}[self.dtype]
        return "int%d-%s-%s" % (self.bits, "g%d" % self.group if self.group else "channel", "sym" if self.symmetric else "asym")

    def dense(self):
        data, count = self.parts[0], self.n * self.k
        if self.dtype == 3:
            return struct.unpack("<%df" % count, b"".join(b"\0\0" + data[i:i + 2] for i in range(0, 2 * count, 2)))
        return struct.unpack("<%d%s" % (count, "f" if self.dtype == 1 else "e"), data)

    def code(self, o, i):
        tiles = -(-self.k // 64)
        tile, i = o // 16 * tiles + i // 64, i % 64
        if self.bits == 8:
            return self.parts[0][tile * 1024 + i // 4 * 64 + o % 16 * 4 + i % 4]
        byte = self.parts[0][tile * 512 + i % 32 // 4 * 64 + o % 16 * 4 + i % 4]
        return byte >> 4 if i >= 32 else byte & 15

    def values(self):
        if self.kind == 0:
            return self.dense()
        out = []
        for o in range(self.n):
            for i in range(self.k):
                g = i // self.group if self.group else 0
                at = (o // 16 * self.groups + g) * 16 + o % 16
                scale = struct.unpack_from("<e", self.parts[1], 2 * at)[0]
                zero = 1 << self.bits - 1 if self.symmetric else self.parts[2][at]
                out.append(f32((self.code(o, i) - zero) * scale))
        return out

    def sum(self):
        return hashlib.sha256(struct.pack("<%df" % (self.n * self.k), *self.values())).hexdigest()


def main():
    f = File(sys.argv[1])
    if len(sys.argv) < 3:
        for t in f.tensors:
            print(ROLES[t.role], "-" if t.layer == NONE else t.layer, t.sum())
        return
    with open(sys.argv[2], encoding="utf-8") as j:
        seen = json.load(j)
    check(len(seen["tensors"]) == len(f.tensors), "number of tensors")
    for t, s in zip(f.tensors, seen["tensors"]):
        mine = (ROLES[t.role], None if t.layer == NONE else t.layer, t.name, [t.n, t.k], t.scheme(), t.sum())
        other = (s["role"], s["layer"], s["name"], s["shape"], s["scheme"], s["sha256_f32"])
        check(mine == other, "%r here, %r there" % (mine, other))
    for name, value in seen["hparams"].items():
        if name in f.hparams and name != "arch":
            check(abs(f.hparams[name] - value) <= 1e-6 * abs(value), "hyperparameter " + name)
    check({s["id"]: s["bytes"] for s in seen["sections"]} == {i: len(t) for i, t in f.sections.items()}, "sections")


if __name__ == "__main__":
    main()

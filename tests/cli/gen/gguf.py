#!/usr/bin/env python3
"""Writes a small GGUF file with every type of value and several types of tensors.

usage: gguf.py OUT [--version N] [--align N] [--type N]      (--type: the number of the last tensor's type)"""
import argparse
import struct

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
FORMAT = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", I64: "q", F64: "d"}


def text(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def value(kind, v):
    if kind == STRING:
        return text(v)
    if kind == ARRAY:
        of, items = v
        return struct.pack("<IQ", of, len(items)) + b"".join(value(of, i) for i in items)
    return struct.pack("<" + FORMAT[kind], v)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("out")
    p.add_argument("--version", type=int, default=3)
    p.add_argument("--align", type=int, default=64)
    p.add_argument("--type", type=int, default=12)
    a = p.parse_args()
    pairs = [("general.architecture", STRING, "llama"), ("general.name", STRING, "Größe \u2603"), ("general.alignment", U32, a.align),
             ("x.u8", U8, 255), ("x.i8", I8, -128), ("x.u16", U16, 65535), ("x.i16", I16, -2), ("x.i32", I32, -3), ("x.f32", F32, 0.25),
             ("x.yes", BOOL, True), ("x.u64", U64, 1 << 40), ("x.i64", I64, -(1 << 40)), ("x.f64", F64, 1e-300), ("x.none", ARRAY, (I32, [])),
             ("x.langs", ARRAY, (STRING, ["en", "de"])), ("x.many", ARRAY, (I32, list(range(40)))), ("x.words", ARRAY, (STRING, ["w"] * 17)),
             ("tokenizer.chat_template", STRING, "{{ a }}\nand more")]
    # name, type, shape (fastest first), bytes
    tensors = [("token_embd.weight", 8, [64, 10], 64 // 32 * 34 * 10), ("blk.0.attn_q.weight", 2, [64, 32], 64 // 32 * 18 * 32),
               ("output_norm.weight", 0, [64], 256), ("blk.0.ffn_up.weight", a.type, [256, 3], 144 * 3)]
    head = struct.pack("<4sIQQ", b"GGUF", a.version, len(tensors), len(pairs))
    for key, kind, v in pairs:
        head += text(key) + struct.pack("<I", kind) + value(kind, v)
    offset, data = 0, b""
    for name, kind, shape, size in tensors:
        data += b"\0" * (-len(data) % a.align)
        head += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape) + struct.pack("<IQ", kind, len(data))
        data += bytes(size)
    with open(a.out, "wb") as f:
        f.write(head + b"\0" * (-len(head) % a.align) + data)


main()

#ifndef LLMQ_FORMAT_DISK_H
#define LLMQ_FORMAT_DISK_H

/* The bytes of a .llmq, version 1.0: what docs/FORMAT.md says in prose.
 *
 *   0            header, one page
 *   4096         tensors, in order of use; a layer begins on a page
 *   then         sections
 *   then, last   directory: its own head, section entries, tensor entries
 *
 * Everything is little-endian.  These structs are copied from and to the file with memcpy, so the
 * assertions below are the format: no field may move. */

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "structs are copied as they stand in the file");

enum {
    DISK_MAJOR = 1,
    DISK_MINOR = 0,
    DISK_PAGE = 4096,        /* header, and where layers begin */
    DISK_ALIGN = 64,         /* tensors' data, sections, directory */
    DISK_SCALE_ALIGN = 32,   /* scales of fused tensors stand back to back, each a multiple of this */
    DISK_ZERO_ALIGN = 16,    /* zero points likewise */
    DISK_MAX_RATIO = 1040,   /* inflated over stored bytes: deflate cannot do better than 1032 */
    DISK_SECTION_NAME = 24,
    DISK_MAX_SECTIONS = 1024,
    DISK_MAX_ENTRY = 4096,   /* entries of a later minor version may be longer, up to this */
};

/* The seventh byte stops `cat` on some systems; \r\n and \n show a transfer that changed line ends. */
#define DISK_MAGIC "LLMQ\r\n\x1a\n"

/* OFFSET  SIZE  MEANING
 *      0     8  magic
 *      8     2  major version: another one is refused
 *     10     2  minor version: a later one only adds what may be ignored
 *     12     4  bytes of this header: 4096
 *     16     8  bytes of the file
 *     24     8  offset of the directory, a multiple of 64
 *     32     8  bytes of the directory; it ends where the file does
 *     40     4  CRC-32 of the directory
 *     44  4048  zeros
 *   4092     4  CRC-32 of bytes 0 to 4091 */
struct disk_header {
    char     magic[8];
    uint16_t major, minor;
    uint32_t header_bytes;
    uint64_t file_bytes, dir_offset, dir_bytes;
    uint32_t dir_crc;
    uint8_t  zeros[4048];
    uint32_t crc;
};
static_assert(offsetof(struct disk_header, major) == 8, "");
static_assert(offsetof(struct disk_header, minor) == 10, "");
static_assert(offsetof(struct disk_header, header_bytes) == 12, "");
static_assert(offsetof(struct disk_header, file_bytes) == 16, "");
static_assert(offsetof(struct disk_header, dir_offset) == 24, "");
static_assert(offsetof(struct disk_header, dir_bytes) == 32, "");
static_assert(offsetof(struct disk_header, dir_crc) == 40, "");
static_assert(offsetof(struct disk_header, zeros) == 44, "");
static_assert(offsetof(struct disk_header, crc) == 4092, "");
static_assert(sizeof(struct disk_header) == DISK_PAGE, "");

/* OFFSET  SIZE  MEANING
 *      0     4  number of sections
 *      4     4  number of tensors
 *      8     4  bytes of a section entry: 64, or more in a later minor version (a multiple of 8)
 *     12     4  bytes of a tensor entry: 128, or more likewise
 *     16    48  zeros
 * Section entries follow, then tensor entries, then nothing. */
struct disk_directory {
    uint32_t n_sections, n_tensors, section_bytes, tensor_bytes;
    uint8_t  zeros[48];
};
static_assert(offsetof(struct disk_directory, n_tensors) == 4, "");
static_assert(offsetof(struct disk_directory, section_bytes) == 8, "");
static_assert(offsetof(struct disk_directory, tensor_bytes) == 12, "");
static_assert(offsetof(struct disk_directory, zeros) == 16, "");
static_assert(sizeof(struct disk_directory) == 64, "");

/* OFFSET  SIZE  MEANING
 *      0     4  id
 *      4     4  flags
 *      8     8  offset, a multiple of 64
 *     16     8  bytes in the file
 *     24     8  bytes when inflated (the same when not deflated); at most 1040 times those in the file
 *     32     4  CRC-32 of the bytes in the file
 *     36     4  CRC-32 of the inflated bytes
 *     40    24  name, printable ASCII, filled up with at least one zero */
enum { DISK_SECTION_REQUIRED = 1, DISK_SECTION_DEFLATED = 2 };
struct disk_section {
    uint32_t id, flags;
    uint64_t offset, stored_bytes, bytes;
    uint32_t stored_crc, crc;
    char     name[DISK_SECTION_NAME];
};
static_assert(offsetof(struct disk_section, flags) == 4, "");
static_assert(offsetof(struct disk_section, offset) == 8, "");
static_assert(offsetof(struct disk_section, stored_bytes) == 16, "");
static_assert(offsetof(struct disk_section, bytes) == 24, "");
static_assert(offsetof(struct disk_section, stored_crc) == 32, "");
static_assert(offsetof(struct disk_section, crc) == 36, "");
static_assert(offsetof(struct disk_section, name) == 40, "");
static_assert(sizeof(struct disk_section) == 64, "");

/* OFFSET  SIZE  MEANING
 *      0     2  role
 *      2     2  layer; 65535: none
 *      4     2  expert; 65535: none
 *      6     2  layout
 *      8     1  scheme: kind
 *      9     1  scheme: element type
 *     10     1  scheme: bits
 *     11     1  scheme: symmetric
 *     12     1  scheme: scale type
 *     13     1  scheme: activation type
 *     14     2  zeros
 *     16     4  scheme: inputs per group, 0: the whole row
 *     20     4  n, outputs
 *     24     4  k, inputs; 1: a vector
 *     28     4  relative error, float; -1: not measured
 *     32     4  CRC-32 of the data
 *     36     4  CRC-32 of the scales; 0 when there are none
 *     40     4  CRC-32 of the zero points; 0 when there are none
 *     44     4  zeros
 *     48    16  data: offset (a multiple of 64), bytes
 *     64    16  scales: offset (a multiple of 32), bytes; both 0 when there are none
 *     80    16  zero points: offset (a multiple of 16), bytes; both 0 when there are none
 *     96    32  zeros */
struct disk_part {
    uint64_t offset, bytes;
};
struct disk_tensor {
    uint16_t         role, layer, expert, layout;
    uint8_t          kind, dtype, bits, symmetric, scale_dtype, act;
    uint16_t         zeros_a;
    uint32_t         group, n, k;
    float            rel_err;
    uint32_t         crc[3]; /* data, scales, zero points */
    uint32_t         zeros_b;
    struct disk_part part[3];
    uint8_t          zeros_c[32];
};
static_assert(offsetof(struct disk_tensor, layer) == 2, "");
static_assert(offsetof(struct disk_tensor, expert) == 4, "");
static_assert(offsetof(struct disk_tensor, layout) == 6, "");
static_assert(offsetof(struct disk_tensor, kind) == 8, "");
static_assert(offsetof(struct disk_tensor, dtype) == 9, "");
static_assert(offsetof(struct disk_tensor, bits) == 10, "");
static_assert(offsetof(struct disk_tensor, symmetric) == 11, "");
static_assert(offsetof(struct disk_tensor, scale_dtype) == 12, "");
static_assert(offsetof(struct disk_tensor, act) == 13, "");
static_assert(offsetof(struct disk_tensor, zeros_a) == 14, "");
static_assert(offsetof(struct disk_tensor, group) == 16, "");
static_assert(offsetof(struct disk_tensor, n) == 20, "");
static_assert(offsetof(struct disk_tensor, k) == 24, "");
static_assert(offsetof(struct disk_tensor, rel_err) == 28, "");
static_assert(offsetof(struct disk_tensor, crc) == 32, "");
static_assert(offsetof(struct disk_tensor, zeros_b) == 44, "");
static_assert(offsetof(struct disk_tensor, part) == 48, "");
static_assert(offsetof(struct disk_tensor, zeros_c) == 96, "");
static_assert(sizeof(struct disk_tensor) == 128, "");

/* The HPARAMS section: the fields of struct llmq_hparams, in its order, 4 bytes each.
 *
 * OFFSET  SIZE  MEANING
 *      0     4  arch                       52     4  rope_orig_ctx
 *      4     4  n_layers                   56     4  rope_theta, float
 *      8     4  d_model                    60     4  rms_eps, float
 *     12     4  n_heads                    64     4  rope_factor, float
 *     16     4  n_kv_heads                 68     4  rope_low, float
 *     20     4  head_dim                   72     4  rope_high, float
 *     24     4  d_ff                       76     4  rope_attn_factor, float
 *     28     4  n_vocab                    80     4  bos_id, signed; -1: none
 *     32     4  ctx_len                    84     4  n_eos
 *     36     4  tied                       88    32  eos_id[8], signed; unused ones 0
 *     40     4  attn_bias                 120     8  zeros
 *     44     4  mlp_bias
 *     48     4  rope_type */
struct disk_hparams {
    uint32_t arch, n_layers, d_model, n_heads, n_kv_heads, head_dim, d_ff, n_vocab;
    uint32_t ctx_len, tied, attn_bias, mlp_bias, rope_type, rope_orig_ctx;
    float    rope_theta, rms_eps, rope_factor, rope_low, rope_high, rope_attn_factor;
    int32_t  bos_id;
    uint32_t n_eos;
    int32_t  eos_id[8];
    uint8_t  zeros[8];
};
static_assert(offsetof(struct disk_hparams, ctx_len) == 32, "");
static_assert(offsetof(struct disk_hparams, rope_type) == 48, "");
static_assert(offsetof(struct disk_hparams, rope_theta) == 56, "");
static_assert(offsetof(struct disk_hparams, rope_attn_factor) == 76, "");
static_assert(offsetof(struct disk_hparams, bos_id) == 80, "");
static_assert(offsetof(struct disk_hparams, n_eos) == 84, "");
static_assert(offsetof(struct disk_hparams, eos_id) == 88, "");
static_assert(offsetof(struct disk_hparams, zeros) == 120, "");
static_assert(sizeof(struct disk_hparams) == 128, "");

#endif

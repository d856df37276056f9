#ifndef LLMQ_FORMAT_FORMAT_H
#define LLMQ_FORMAT_FORMAT_H

/* What the bytes of a .llmq mean: the public face of format/.
 *
 * A .llmq holds one model: hyperparameters, tensors, text sections (tokenizer, chat template,
 * generation defaults, provenance).  It is written once, front to back, by a llmq_writer, and
 * then mapped and used in place through a llmq_file: views handed out point into the mapping and
 * live as long as the llmq_file.  docs/FORMAT.md is the byte-level specification.
 *
 * A tensor is named by numbers (role, layer, expert).  It is a matrix of n outputs by k inputs
 * (a vector has k == 1), stored under a scheme (how a weight becomes bits) and a layout (in what
 * order the bits stand).  pack.c is the only code that knows the order inside a layout.
 *
 * A llmq_source is anything that can hand out a dense model tensor by tensor (a .llmq, a Hugging
 * Face directory): what the quantizer reads from without knowing which. */

#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

/* ---- element types ---------------------------------------------------------------------- */

enum llmq_dtype { LLMQ_DTYPE_NONE = 0, LLMQ_DTYPE_F32 = 1, LLMQ_DTYPE_F16 = 2, LLMQ_DTYPE_BF16 = 3, LLMQ_DTYPE_COUNT };

const char *llmq_dtype_name(int dtype);  /* "f32"; "?" for an unknown one */
size_t      llmq_dtype_bytes(int dtype); /* 0 for an unknown one */

/* ---- schemes ------------------------------------------------------------------------------ */

/* DENSE: elements of `dtype`, row-major.
 * INT: unsigned codes q of `bits` bits (4 or 8 so far), w = scale * (q - zero).  One scale, and if not
 * symmetric one zero point, for each output and each group of `group` consecutive inputs (the last
 * group may be short; group 0 means the whole row).  Symmetric: zero = 2^(bits-1). */
enum llmq_kind { LLMQ_KIND_DENSE = 0, LLMQ_KIND_INT = 1 };

struct llmq_scheme {
    uint8_t  kind;        /* enum llmq_kind */
    uint8_t  dtype;       /* DENSE: the elements' type; otherwise LLMQ_DTYPE_NONE */
    uint8_t  bits;        /* INT: 4 or 8; DENSE: 0 */
    uint8_t  symmetric;   /* INT: 1 or 0 */
    uint8_t  scale_dtype; /* INT: LLMQ_DTYPE_F16 */
    uint8_t  act;         /* activation type that the method meant: 0 none (so far the only one) */
    uint16_t reserved;    /* 0 */
    uint32_t group;       /* INT: inputs per scale: 32, 64, 128, 256 or 0 = whole row */
};

/* "bf16", "int4-g128-sym", "int8-channel-asym": for people and reports. */
void llmq_scheme_name(const struct llmq_scheme *s, char *out, size_t size);
int  llmq_scheme_check(const struct llmq_scheme *s, const char *where, struct llmq_err *err) LLMQ_MUST_CHECK;
/* Groups in a row of k inputs. */
uint32_t llmq_scheme_groups(const struct llmq_scheme *s, uint32_t k);

/* ---- layouts ------------------------------------------------------------------------------ */

/* ROWS: row-major elements, rows back to back (DENSE only).
 * TILES: tiles of 16 outputs by 64 inputs (INT only).  n is padded to 16 and k to 64; padding decodes to
 *   exactly 0.  Tile (i, j) covers outputs 16i.. and inputs 64j..; tiles of one i stand back to back,
 *   ascending j.  A tile is rows of 64 bytes: row r, byte 4*o + b (o: output in the tile, b: 0..3).
 *     8 bits: 16 rows, 1024 bytes; that byte is the code of input 4r + b.
 *     4 bits: 8 rows, 512 bytes; its low nibble is the code of input 4r + b, the high one of 32 + 4r + b.
 *   Scales: [n_pad / 16][groups][16] of scale_dtype; zero points (asymmetric only): the same, one byte each.
 *   groups is llmq_scheme_groups of the real k; padded inputs past the last group (group 32, odd number of
 *   groups) belong to the last one: clamp the group's index.  Within a layer, the data of attn_q, attn_k and attn_v
 *   stand back to back, then their scales, then their zero points (mlp_gate and mlp_up likewise), as far as their
 *   sizes are multiples of 64 bytes, which tiles' always are. */
enum llmq_layout { LLMQ_LAYOUT_ROWS = 0, LLMQ_LAYOUT_TILES = 1 };
enum { LLMQ_TILE_N = 16, LLMQ_TILE_K = 64 };

/* ---- roles -------------------------------------------------------------------------------- */

/* name, number, per layer?, outputs, inputs as functions of the hyperparameters h.  The numbers are part of the format. */
#define LLMQ_ROLE_MAP(X)                                                                       \
    X(EMBED, 1, 0, "embed", h->n_vocab, h->d_model)                                            \
    X(LM_HEAD, 2, 0, "lm_head", h->n_vocab, h->d_model)                                        \
    X(FINAL_NORM, 3, 0, "final_norm", h->d_model, 1)                                           \
    X(ATTN_NORM, 10, 1, "attn_norm", h->d_model, 1)                                            \
    X(ATTN_Q, 11, 1, "attn_q", h->n_heads *h->head_dim, h->d_model)                            \
    X(ATTN_K, 12, 1, "attn_k", h->n_kv_heads *h->head_dim, h->d_model)                         \
    X(ATTN_V, 13, 1, "attn_v", h->n_kv_heads *h->head_dim, h->d_model)                         \
    X(ATTN_O, 14, 1, "attn_o", h->d_model, h->n_heads *h->head_dim)                            \
    X(ATTN_Q_BIAS, 15, 1, "attn_q_bias", h->n_heads *h->head_dim, 1)                           \
    X(ATTN_K_BIAS, 16, 1, "attn_k_bias", h->n_kv_heads *h->head_dim, 1)                        \
    X(ATTN_V_BIAS, 17, 1, "attn_v_bias", h->n_kv_heads *h->head_dim, 1)                        \
    X(ATTN_O_BIAS, 18, 1, "attn_o_bias", h->d_model, 1)                                        \
    X(MLP_NORM, 20, 1, "mlp_norm", h->d_model, 1)                                              \
    X(MLP_GATE, 21, 1, "mlp_gate", h->d_ff, h->d_model)                                        \
    X(MLP_UP, 22, 1, "mlp_up", h->d_ff, h->d_model)                                            \
    X(MLP_DOWN, 23, 1, "mlp_down", h->d_model, h->d_ff)                                        \
    X(MLP_GATE_BIAS, 24, 1, "mlp_gate_bias", h->d_ff, 1)                                       \
    X(MLP_UP_BIAS, 25, 1, "mlp_up_bias", h->d_ff, 1)                                           \
    X(MLP_DOWN_BIAS, 26, 1, "mlp_down_bias", h->d_model, 1)

enum llmq_role {
#define X(name, num, per_layer, text, n, k) LLMQ_ROLE_##name = (num),
    LLMQ_ROLE_MAP(X)
#undef X
};

enum { LLMQ_NO_LAYER = 0xffff, LLMQ_NO_EXPERT = 0xffff };

/* ---- hyperparameters ----------------------------------------------------------------------- */

enum llmq_arch { LLMQ_ARCH_LLAMA = 1 };
enum llmq_rope { LLMQ_ROPE_DEFAULT = 0, LLMQ_ROPE_LINEAR = 1, LLMQ_ROPE_DYNAMIC = 2, LLMQ_ROPE_LLAMA3 = 3, LLMQ_ROPE_YARN = 4 };
enum { LLMQ_MAX_EOS = 8 };

struct llmq_hparams {
    uint32_t arch; /* enum llmq_arch */
    uint32_t n_layers, d_model, n_heads, n_kv_heads, head_dim, d_ff, n_vocab;
    uint32_t ctx_len;         /* tokens that the model was trained for (max_position_embeddings) */
    uint32_t tied;            /* 1: the output head is the embedding table; there is no LM_HEAD tensor */
    uint32_t attn_bias;       /* bit 0 q, 1 k, 2 v, 3 o: which biases are there */
    uint32_t mlp_bias;        /* bit 0 gate, 1 up, 2 down */
    uint32_t rope_type;       /* enum llmq_rope */
    uint32_t rope_orig_ctx;   /* llama3, yarn, dynamic: original context; otherwise 0 */
    float    rope_theta, rms_eps;
    float    rope_factor;     /* 1 when unscaled */
    float    rope_low, rope_high;       /* llama3: low_freq_factor, high_freq_factor; yarn: beta_slow, beta_fast */
    float    rope_attn_factor;          /* yarn: multiplies cos and sin; otherwise 1 */
    int32_t  bos_id;          /* -1: none */
    uint32_t n_eos;
    int32_t  eos_id[LLMQ_MAX_EOS];
};

/* Everything in range and consistent; the error names the field, its value and what is allowed. */
int llmq_hparams_check(const struct llmq_hparams *h, const char *where, struct llmq_err *err) LLMQ_MUST_CHECK;

/* The longest context that the model can be asked for: ctx_len, or what yarn and dynamic scaling stretch it to. */
uint32_t llmq_hparams_max_ctx(const struct llmq_hparams *h);

const char *llmq_role_name(int role); /* NULL for an unknown one */
int         llmq_role_per_layer(int role);
/* Rows and columns that a tensor of this role must have; 0 on success, -1 for an unknown role. */
int llmq_role_shape(const struct llmq_hparams *h, int role, uint32_t *n, uint32_t *k);
/* The roles that a model with these hyperparameters must have, in file order: for per_layer = 0 those
 * before the layers (EMBED) and after (FINAL_NORM, LM_HEAD), for 1 those of one layer.  Returns their count (<= 24). */
int llmq_role_list(const struct llmq_hparams *h, int per_layer, int out[24]);

/* ---- sections ------------------------------------------------------------------------------ */

/* name, number, required to run?, meaning.  An unknown section whose REQUIRED flag is set is refused. */
#define LLMQ_SECTION_MAP(X)                                                                   \
    X(HPARAMS, 1, 1, "hyperparameters, a fixed binary record")                                \
    X(TOKENIZER, 2, 0, "tokenizer.json without vocabulary and merges, minified JSON")         \
    X(VOCAB, 3, 0, "tokens by id: u32 count, then for each id u32 length (0xffffffff: hole) and bytes") \
    X(MERGES, 4, 0, "BPE merges by rank: u32 count, then for each u32 left id, right id, result id")    \
    X(CHAT_TEMPLATE, 5, 0, "chat template as the checkpoint states it, UTF-8 text")           \
    X(GENERATION, 6, 0, "generation defaults, JSON")                                          \
    X(PROVENANCE, 7, 0, "where the file comes from and how it was made, JSON")                \
    X(NAMES, 8, 0, "Hugging Face names of the tensors, in directory order, zero-terminated")  \
    X(KV, 9, 0, "KV-cache metadata, a fixed binary record and scales")

enum llmq_section {
#define X(name, num, required, text) LLMQ_SECTION_##name = (num),
    LLMQ_SECTION_MAP(X)
#undef X
};
const char *llmq_section_name(int id); /* "hparams"; NULL for an unknown one */

/* ---- tensors and files ---------------------------------------------------------------------- */

struct llmq_tensor {
    uint16_t           role, layer, expert, layout;
    struct llmq_scheme scheme;
    uint32_t           n, k;         /* outputs, inputs (k == 1: a vector) */
    uint32_t           n_pad, k_pad; /* as stored */
    float              rel_err;      /* relative output error that the quantizer measured; -1: not measured */
    const void        *data;         /* codes or elements; 64-byte aligned */
    const void        *scales;       /* INT: see layouts; otherwise NULL */
    const void        *zeros;        /* INT asymmetric: see layouts; otherwise NULL */
    uint64_t           data_bytes, scale_bytes, zero_bytes;
    const char        *name;         /* Hugging Face name, "" when not kept */
};

/* Bytes that a tensor of this scheme, layout and shape takes; LLMQ_EFORMAT if the combination does not exist. */
int llmq_tensor_sizes(struct llmq_tensor *t, struct llmq_err *err) LLMQ_MUST_CHECK; /* fills n_pad, k_pad, *_bytes */

struct llmq_file;

/* Opens and checks everything but the tensors' bytes (llmq_verify does those).  On success the caller owns *out. */
int  llmq_file_open(struct llmq_file **out, const char *path, struct llmq_err *err) LLMQ_MUST_CHECK;
void llmq_file_close(struct llmq_file *f);

const char                *llmq_file_path(const struct llmq_file *f);
uint64_t                   llmq_file_size(const struct llmq_file *f);
const struct llmq_hparams *llmq_file_hparams(const struct llmq_file *f);
int                        llmq_file_tensor_count(const struct llmq_file *f);
const struct llmq_tensor  *llmq_file_tensor(const struct llmq_file *f, int index);
/* NULL when the file has none. */
const struct llmq_tensor *llmq_file_find(const struct llmq_file *f, int role, int layer, int expert);
/* The inflated bytes (owned by f, zero-terminated behind them); *len = 0 and "" when the file has no such section. */
const char *llmq_file_section(const struct llmq_file *f, int id, size_t *len);
/* Bits of all matrices (codes, scales, zeros) over their number of weights. */
double llmq_file_bits_per_weight(const struct llmq_file *f);
/* SHA-256 of the whole file; reads all of it. */
void llmq_file_sha256(const struct llmq_file *f, char out[65]);
/* A layer's bytes are about to be read / are done with. */
void llmq_file_want_layer(const struct llmq_file *f, int layer);
void llmq_file_drop_layer(const struct llmq_file *f, int layer);

/* Everything that open leaves out: CRC of every tensor, finite scales and elements, codes and zero points in
 * range, padding zero.  `progress` (may be NULL) is called with bytes done and in all; once *cancel (may be NULL)
 * is set, the check ends with LLMQ_EINTR. */
typedef void (*llmq_progress_fn)(void *ctx, uint64_t done, uint64_t total);
int llmq_file_verify(const struct llmq_file *f, llmq_progress_fn progress, void *ctx, const int *cancel,
                     struct llmq_err *err) LLMQ_MUST_CHECK;

/* ---- writing -------------------------------------------------------------------------------- */

struct llmq_writer;

/* Tensors and sections may come in any order; the directory goes last.  Nothing stands under `path` until
 * llmq_writer_finish has written, synced, re-opened and checked the file.  Call llmq_writer_abort after any
 * error, and for a writer that is not to be finished; it may be called on NULL. */
int llmq_writer_open(struct llmq_writer **out, const char *path, const struct llmq_hparams *h, struct llmq_err *err) LLMQ_MUST_CHECK;
/* t: role, layer, expert, layout, scheme, n, k, rel_err, name; sizes are computed.  Then its bytes in any
 * number of pieces: all data, then all scales, then all zeros; begin of the next tensor, or finish, checks the count. */
int llmq_writer_tensor(struct llmq_writer *w, const struct llmq_tensor *t, struct llmq_err *err) LLMQ_MUST_CHECK;
int llmq_writer_bytes(struct llmq_writer *w, const void *bytes, size_t len, struct llmq_err *err) LLMQ_MUST_CHECK;
/* A whole packed tensor from memory (t->data, t->scales, t->zeros). */
int llmq_writer_put(struct llmq_writer *w, const struct llmq_tensor *t, struct llmq_err *err) LLMQ_MUST_CHECK;
/* The bytes are copied; text and JSON sections are deflated.  HPARAMS and NAMES are written by finish. */
int llmq_writer_section(struct llmq_writer *w, int id, const void *bytes, size_t len, struct llmq_err *err) LLMQ_MUST_CHECK;
/* Writes the directory and checks the file; it then stands under its path (or under as_path if not NULL).
 * The writer is gone whether this succeeds or not. */
int  llmq_writer_finish(struct llmq_writer *w, const char *as_path, struct llmq_err *err) LLMQ_MUST_CHECK;
/* The size that a file of these tensors, in file order and with their sizes filled in, has; sections: the stored bytes of
 * each section, HPARAMS and NAMES among them. */
uint64_t llmq_file_bytes(const struct llmq_tensor *tensors, size_t n, const uint64_t *sections, int n_sections);
/* The bytes that a section takes in a file (deflated, where that is what the writer does). */
int llmq_section_stored_bytes(int id, const void *bytes, size_t len, uint64_t *stored, struct llmq_err *err) LLMQ_MUST_CHECK;
/* The two halves of finish, for a caller that must look at the complete file first (a quality gate): after
 * close_file the complete, checked file stands under llmq_writer_tmp_path(w), until commit or abort. */
int         llmq_writer_close_file(struct llmq_writer *w, struct llmq_err *err) LLMQ_MUST_CHECK;
const char *llmq_writer_tmp_path(const struct llmq_writer *w);
/* On success the writer is gone; after an error it is there, for abort. */
int         llmq_writer_commit(struct llmq_writer *w, const char *as_path, struct llmq_err *err) LLMQ_MUST_CHECK;
void llmq_writer_abort(struct llmq_writer *w);

/* ---- packing: codes and elements <-> layouts ------------------------------------------------- */

/* codes: [n][k] one byte each, below 2^bits.  scales: [n][groups] float, rounded to scale_dtype here.
 * zeros: [n][groups] one byte each, NULL when symmetric.  t: scheme, layout, n, k; t->data, ->scales, ->zeros
 * point at buffers of the sizes that llmq_tensor_sizes gave (cast away const). */
void llmq_pack(const struct llmq_tensor *t, const uint8_t *codes, const float *scales, const uint8_t *zeros);
/* The inverse; any output may be NULL. */
void llmq_unpack(const struct llmq_tensor *t, uint8_t *codes, float *scales, uint8_t *zeros);
/* Rows [row, row + rows) as float, [rows][k]: the definition of what a stored tensor means.
 * INT: (float)(code - zero) * scale, one rounding. */
void llmq_dequant_rows(const struct llmq_tensor *t, uint32_t row, uint32_t rows, float *out);

/* ---- sources ---------------------------------------------------------------------------------- */

/* A dense model to read from.  Tensors stand in file order (the order of a .llmq).  Not thread-safe. */
struct llmq_source {
    const struct llmq_hparams *hparams;
    int                        n_tensors;
    const struct llmq_tensor  *tensors;     /* role, layer, scheme (DENSE), n, k, name; data may be NULL */
    /* A text section, as llmq_file_section. */
    const char *(*section)(struct llmq_source *s, int id, size_t *len);
    /* Rows [row, row + rows) of a tensor, raw elements of its dtype, into dst. */
    int (*read)(struct llmq_source *s, int index, uint32_t row, uint32_t rows, void *dst, struct llmq_err *err);
    void (*close)(struct llmq_source *s);
    void *impl;
    const char *name; /* base name of what was opened: no directory */
    /* Provenance of what was opened: JSON text of an array [{"name","sha256","size_bytes"}]; NULL until asked for. */
    const char *(*files_json)(struct llmq_source *s, struct llmq_err *err);
};

/* Rows as float, whatever the element type; refuses NaN and infinity, naming tensor, row and column. */
int llmq_source_rows_f32(struct llmq_source *s, int index, uint32_t row, uint32_t rows, float *out, struct llmq_err *err) LLMQ_MUST_CHECK;
int llmq_source_find(const struct llmq_source *s, int role, int layer); /* index, or -1 */

/* A .llmq as a source; on success it owns f from then on.  Quantized tensors are refused. */
int llmq_source_from_file(struct llmq_source **out, struct llmq_file *f, struct llmq_err *err) LLMQ_MUST_CHECK;

/* ---- tokenizer configuration ----------------------------------------------------------------------- */

/* Is this a TOKENIZER section that means exactly what its components say?  Every component must be one that llmq runs,
 * with the options that it knows, of the right types: anything else is LLMQ_EFORMAT and named.  config: parsed JSON. */
struct json_t;
int llmq_tokenizer_check(const struct json_t *config, const char *where, struct llmq_err *err) LLMQ_MUST_CHECK;

/* ---- listing ------------------------------------------------------------------------------------ */

/* What `llmq inspect` shows, as text or as a JSON object (which always lists the tensors); SUMS adds the
 * SHA-256 of each tensor's values as little-endian floats.  s: a struct llmq_str to append to. */
enum { LLMQ_DESCRIBE_JSON = 1, LLMQ_DESCRIBE_TENSORS = 2, LLMQ_DESCRIBE_SUMS = 4 };
struct llmq_str;
int llmq_file_describe(const struct llmq_file *f, int what, struct llmq_str *s, struct llmq_err *err) LLMQ_MUST_CHECK;

/* SHA-256 (nettle) as 64 hexadecimal digits and a zero. */
struct llmq_sha256 {
    uint64_t opaque[32];
};
void llmq_sha256_init(struct llmq_sha256 *h);
void llmq_sha256_update(struct llmq_sha256 *h, const void *bytes, size_t len);
void llmq_sha256_hex(struct llmq_sha256 *h, char out[65]);

#endif

/* Sources: what every kind shares, and a .llmq as one.
 *
 * Reading a file through its mapping makes its pages resident; a source hands rows on and never needs them
 * again, so pages are dropped behind the reader. */
#include "format/file.h"

#include "common/fp.h"
#include "common/json.h"
#include "common/str.h"

#include <string.h>

int llmq_source_find(const struct llmq_source *s, int role, int layer)
{
    for (int i = 0; i < s->n_tensors; i++)
        if (s->tensors[i].role == role && s->tensors[i].layer == layer)
            return i;
    return -1;
}

/* Widens in place: the raw elements stand at the end of the buffer, floats grow towards them from its
 * beginning and never pass them.  Each piece is copied out first, since its floats may cover it. */
static void widen(float *out, const char *raw, size_t count, int dtype)
{
    uint16_t piece[512];

    while (count) {
        size_t n = count < 512 ? count : 512;

        memcpy(piece, raw, n * sizeof *piece);
        for (size_t i = 0; i < n; i++)
            out[i] = dtype == LLMQ_DTYPE_F16 ? llmq_f16_to_f32(piece[i]) : llmq_bf16_to_f32(piece[i]);
        out += n;
        raw += n * sizeof *piece;
        count -= n;
    }
}

static int check_finite(const struct llmq_source *s, const struct llmq_tensor *t, uint32_t row, const float *v,
                        size_t count, struct llmq_err *err)
{
    for (size_t i = 0; i < count; i++)
        if ((llmq_fp_bits(v[i]) & 0x7f800000u) == 0x7f800000u) {
            char label[64];

            file_label(t, label, sizeof label);
            return llmq_fail(err, LLMQ_EFORMAT, "%s: %s%s%s: row %u, column %u is %s, expected a finite number", s->name,
                             label, t->name && t->name[0] ? " " : "", t->name ? t->name : "", row + (uint32_t)(i / t->k),
                             (uint32_t)(i % t->k), v[i] != v[i] ? "NaN" : "infinite");
        }
    return 0;
}

int llmq_source_rows_f32(struct llmq_source *s, int index, uint32_t row, uint32_t rows, float *out, struct llmq_err *err)
{
    const struct llmq_tensor *t = &s->tensors[index];
    size_t                    count = (size_t)rows * t->k, bytes = llmq_dtype_bytes(t->scheme.dtype);
    char                     *raw = (char *)out + count * (sizeof *out - bytes);

    if (s->read(s, index, row, rows, raw, err))
        return err->code;
    if (t->scheme.dtype != LLMQ_DTYPE_F32)
        widen(out, raw, count, t->scheme.dtype);
    return check_finite(s, t, row, out, count, err);
}

/* ---- a .llmq as a source -------------------------------------------------------------------- */

enum { DROP_BYTES = 4 << 20, HASH_PIECE = 4 << 20 };

struct file_source {
    struct llmq_source base;
    struct llmq_file  *file;
    struct llmq_str    json;
    size_t             seen, next; /* a run of reads: [seen, next) is resident and done with */
};

static const char *file_section(struct llmq_source *s, int id, size_t *len)
{
    return llmq_file_section(((struct file_source *)s->impl)->file, id, len);
}

static void drop_behind(struct file_source *fs, size_t offset, size_t len)
{
    if (offset != fs->next)
        fs->seen = offset;
    fs->next = offset + len;
    if (fs->next - fs->seen < DROP_BYTES)
        return;
    llmq_map_drop(&fs->file->map, fs->seen, fs->next - fs->seen);
    fs->seen = fs->next & ~(size_t)(DISK_PAGE - 1);
}

static int file_read(struct llmq_source *s, int index, uint32_t row, uint32_t rows, void *dst, struct llmq_err *err)
{
    struct file_source       *fs = s->impl;
    const struct llmq_tensor *t = &s->tensors[index];
    size_t                    row_bytes = (size_t)t->k * llmq_dtype_bytes(t->scheme.dtype);
    const char               *from = (const char *)t->data + row * row_bytes;

    if (row > t->n || rows > t->n - row)
        return llmq_fail(err, LLMQ_EUSAGE, "%s: rows %u to %u of %u", s->name, row, row + rows, t->n);
    memcpy(dst, from, rows * row_bytes);
    drop_behind(fs, (size_t)(from - fs->file->map.data), rows * row_bytes);
    return 0;
}

static void file_close(struct llmq_source *s)
{
    struct file_source *fs = s->impl;

    llmq_file_close(fs->file);
    llmq_str_fini(&fs->json);
    llmq_free(fs);
}

void llmq_file_sha256(const struct llmq_file *f, char out[65])
{
    struct llmq_sha256 h;

    llmq_sha256_init(&h);
    for (size_t at = 0; at < f->map.size; at += HASH_PIECE) {
        size_t n = f->map.size - at < HASH_PIECE ? f->map.size - at : HASH_PIECE;

        llmq_sha256_update(&h, f->map.data + at, n);
        llmq_map_drop(&f->map, at, n);
    }
    llmq_sha256_hex(&h, out);
}

static const char *file_json(struct llmq_source *s, struct llmq_err *err)
{
    struct file_source *fs = s->impl;
    char                hex[65];
    json_t             *doc;

    if (fs->json.len)
        return fs->json.data;
    llmq_file_sha256(fs->file, hex);
    doc = json_pack("[{s:o, s:s, s:I}]", "name", llmq_json_name(s->name), "sha256", hex, "size_bytes", (json_int_t)fs->file->map.size);
    if (!doc)
        llmq_fail(err, LLMQ_ENOMEM, "%s: no memory for a JSON document", s->name);
    else if (llmq_json_text(doc, &fs->json, err))
        llmq_str_clear(&fs->json);
    json_decref(doc);
    return err->code ? NULL : fs->json.data;
}

static int check_dense(const struct llmq_file *f, struct llmq_err *err)
{
    for (int i = 0; i < f->n_tensors; i++) {
        char label[64], scheme[64];

        if (f->tensors[i].scheme.kind == LLMQ_KIND_DENSE)
            continue;
        file_label(&f->tensors[i], label, sizeof label);
        llmq_scheme_name(&f->tensors[i].scheme, scheme, sizeof scheme);
        return llmq_fail(err, LLMQ_EFORMAT, "%s: %s is %s already, expected a model that is not quantized", f->path, label,
                         scheme);
    }
    return 0;
}

int llmq_source_from_file(struct llmq_source **out, struct llmq_file *f, struct llmq_err *err)
{
    const char         *slash = strrchr(f->path, '/');
    struct file_source *fs;

    *out = NULL;
    if (check_dense(f, err) || LLMQ_NEW(&fs, 1, "a source", err))
        return err->code;
    fs->file = f;
    llmq_str_init(&fs->json, 16384);
    fs->base = (struct llmq_source){
        .hparams = &f->hparams, .n_tensors = f->n_tensors, .tensors = f->tensors, .section = file_section,
        .read = file_read, .close = file_close, .impl = fs, .name = slash ? slash + 1 : f->path, .files_json = file_json,
    };
    *out = &fs->base;
    return 0;
}

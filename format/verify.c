/* The deep check of a file that llmq_file_open has accepted: every byte of it is read.  Bytes that belong to
 * something are covered by its CRC, all others must be zero, so any change of any byte shows. */
#include "format/file.h"

#include "common/json.h"

#include <string.h>

enum { PIECE = 1 << 20 };

struct job {
    const struct llmq_file *f;
    llmq_progress_fn        progress;
    void                   *ctx;
    const int              *cancel;
    uint64_t                done;
};

static int advance(struct job *j, uint64_t bytes, struct llmq_err *err)
{
    j->done += bytes;
    if (j->progress)
        j->progress(j->ctx, j->done < j->f->map.size ? j->done : j->f->map.size, j->f->map.size);
    return j->cancel && *(const volatile int *)j->cancel ? llmq_fail(err, LLMQ_EINTR, "interrupted") : 0;
}

/* ---- tensors -------------------------------------------------------------------------------- */

/* First element that is NaN or infinite, or count.  The loop has no branch, so that it can be vectorised;
 * where a piece has one, a second look finds it. */
static size_t first_bad16(const uint16_t *p, size_t count, uint16_t exp)
{
    unsigned bad = 0;

    for (size_t i = 0; i < count; i++)
        bad |= (p[i] & exp) == exp;
    for (size_t i = 0; bad && i < count; i++)
        if ((p[i] & exp) == exp)
            return i;
    return count;
}

static size_t first_bad32(const uint32_t *p, size_t count)
{
    const uint32_t exp = 0x7f800000u;
    unsigned       bad = 0;

    for (size_t i = 0; i < count; i++)
        bad |= (p[i] & exp) == exp;
    for (size_t i = 0; bad && i < count; i++)
        if ((p[i] & exp) == exp)
            return i;
    return count;
}

/* dtype NONE: codes, of which any is legal. */
static int check_finite(const void *bytes, size_t len, int dtype, uint64_t before, const char *what, struct llmq_err *err)
{
    size_t count = dtype ? len / llmq_dtype_bytes(dtype) : 0, bad;

    if (!count)
        return 0;
    bad = dtype == LLMQ_DTYPE_F32 ? first_bad32(bytes, count)
                                  : first_bad16(bytes, count, dtype == LLMQ_DTYPE_F16 ? 0x7c00 : 0x7f80);
    if (bad == count)
        return 0;
    return llmq_fail(err, LLMQ_EFORMAT, "%s: element %llu is NaN or infinite", what,
                     (unsigned long long)before / llmq_dtype_bytes(dtype) + bad);
}

static int check_part(struct job *j, const void *bytes, uint64_t len, uint32_t crc, int dtype, const char *what,
                      struct llmq_err *err)
{
    const char     *p = bytes;
    uint32_t        sum = 0;
    struct llmq_err bad = {0}; /* damage is the better explanation of a NaN: tell of it first */

    for (uint64_t at = 0; at < len; at += PIECE) {
        size_t n = len - at < PIECE ? (size_t)(len - at) : PIECE;

        sum = section_crc(sum, p + at, n);
        if (!bad.code)
            (void)!check_finite(p + at, n, dtype, at, what, &bad);
        llmq_map_drop(&j->f->map, (size_t)(p + at - j->f->map.data), n);
        if (advance(j, n, err))
            return err->code;
    }
    if (sum != crc)
        return llmq_fail(err, LLMQ_EFORMAT, "its %s are damaged: CRC %08x, expected %08x", what, sum, crc);
    if (bad.code)
        *err = bad;
    return bad.code;
}

static int check_tensor(struct job *j, int i, struct llmq_err *err)
{
    const struct llmq_tensor *t = &j->f->tensors[i];
    const uint32_t           *crc = j->f->entries[i].crc;

    if (check_part(j, t->data, t->data_bytes, crc[0], t->scheme.dtype, "data", err) ||
        check_part(j, t->scales, t->scale_bytes, crc[1], t->scheme.scale_dtype, "scales", err) ||
        check_part(j, t->zeros, t->zero_bytes, crc[2], LLMQ_DTYPE_NONE, "zero points", err))
        return err->code;
    return t->scheme.kind == LLMQ_KIND_INT ? pack_check(t, err) : 0;
}

/* ---- sections ------------------------------------------------------------------------------- */

static int check_json(const struct llmq_file *f, int id, struct llmq_err *err)
{
    size_t      len;
    const char *text = llmq_file_section(f, id, &len);
    json_t     *j;

    if (!len)
        return 0;
    if (llmq_json_parse(&j, text, len, len, "its JSON", err))
        return err->code;
    json_decref(j);
    return 0;
}

static uint32_t u32_at(const char *p)
{
    uint32_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

static int check_vocab(const struct llmq_file *f, struct llmq_err *err)
{
    size_t      len, at = 4;
    const char *p = llmq_file_section(f, LLMQ_SECTION_VOCAB, &len);
    uint32_t    count;

    if (!len)
        return 0;
    count = len < 4 ? 0 : u32_at(p);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t n;

        if (at > len || len - at < 4)
            return llmq_fail(err, LLMQ_EFORMAT, "ends within token %u of %u", i, count);
        n = u32_at(p + at);
        at += 4;
        if (n == UINT32_MAX)
            continue;
        if (n > len - at)
            return llmq_fail(err, LLMQ_EFORMAT, "token %u of %u: %u bytes reach past the section's end", i, count, n);
        at += n;
    }
    return at == len ? 0 : llmq_fail(err, LLMQ_EFORMAT, "%zu bytes, but its %u tokens take %zu", len, count, at);
}

static int check_merges(const struct llmq_file *f, struct llmq_err *err)
{
    size_t      len, vocab_len;
    const char *p = llmq_file_section(f, LLMQ_SECTION_MERGES, &len);
    const char *vocab = llmq_file_section(f, LLMQ_SECTION_VOCAB, &vocab_len);
    uint32_t    tokens = vocab_len < 4 ? 0 : u32_at(vocab);
    uint64_t    ids = len < 4 ? 0 : 3ull * u32_at(p);

    if (!len)
        return 0;
    if (len != 4 + 4 * ids)
        return llmq_fail(err, LLMQ_EFORMAT, "%zu bytes, but its %llu merges take %llu", len, (unsigned long long)ids / 3,
                         4 + 4 * (unsigned long long)ids);
    for (uint64_t i = 0; i < ids; i++)
        if (u32_at(p + 4 + 4 * i) >= tokens)
            return llmq_fail(err, LLMQ_EFORMAT, "merge %llu names token %u of %u", (unsigned long long)i / 3,
                             u32_at(p + 4 + 4 * i), tokens);
    return 0;
}

static int check_sections(const struct llmq_file *f, struct llmq_err *err)
{
    static const int json[] = {LLMQ_SECTION_TOKENIZER, LLMQ_SECTION_GENERATION, LLMQ_SECTION_PROVENANCE};

    for (size_t i = 0; i < sizeof json / sizeof json[0]; i++)
        if (check_json(f, json[i], err))
            return llmq_fail_within(err, "section '%s'", llmq_section_name(json[i]));
    if (check_vocab(f, err))
        return llmq_fail_within(err, "section 'vocab'");
    if (check_merges(f, err))
        return llmq_fail_within(err, "section 'merges'");
    return 0;
}

/* ---- padding -------------------------------------------------------------------------------- */

static int check_gaps(const struct llmq_file *f, struct llmq_err *err)
{
    for (int i = 1; i < f->n_used; i++)
        for (uint64_t at = f->used[i - 1].end; at < f->used[i].begin; at++)
            if (f->map.data[at])
                return llmq_fail(err, LLMQ_EFORMAT, "byte %llu is padding and not zero", (unsigned long long)at);
    return 0;
}

static int verify(struct job *j, struct llmq_err *err)
{
    const struct llmq_file *f = j->f;

    for (int i = 0; i < f->n_tensors; i++)
        if (check_tensor(j, i, err)) {
            char label[64];

            file_label(&f->tensors[i], label, sizeof label);
            return llmq_fail_within(err, "tensor %d (%s)", i, label);
        }
    if (check_sections(f, err) || check_gaps(f, err))
        return err->code;
    return advance(j, f->map.size, err);
}

int llmq_file_verify(const struct llmq_file *f, llmq_progress_fn progress, void *ctx, const int *cancel, struct llmq_err *err)
{
    struct job j = {f, progress, ctx, cancel, 0};

    if (verify(&j, err))
        return llmq_fail_within(err, "%s", f->path);
    return 0;
}

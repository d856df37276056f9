/* Quantization schemes: which there are, their names, and the bytes that a tensor takes under one. */
#include "format/format.h"

#include "common/ckd.h"

#include <stdio.h>

void llmq_scheme_name(const struct llmq_scheme *s, char *out, size_t size)
{
    const char *sym = s->symmetric ? "sym" : "asym";

    if (s->kind == LLMQ_KIND_DENSE)
        snprintf(out, size, "%s", llmq_dtype_name(s->dtype));
    else if (s->group)
        snprintf(out, size, "int%d-g%u-%s", s->bits, s->group, sym);
    else
        snprintf(out, size, "int%d-channel-%s", s->bits, sym);
}

static int field(const char *where, const char *name, unsigned value, const char *expected, struct llmq_err *err)
{
    return llmq_fail(err, LLMQ_EFORMAT, "%s: %s is %u, expected %s", where, name, value, expected);
}

static int check_dense(const struct llmq_scheme *s, const char *where, struct llmq_err *err)
{
    if (!llmq_dtype_bytes(s->dtype))
        return field(where, "the element type", s->dtype, "1 (f32), 2 (f16) or 3 (bf16)", err);
    if (s->bits || s->symmetric || s->scale_dtype || s->group)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: dense, yet with bits, scales or groups", where);
    return 0;
}

static int check_int(const struct llmq_scheme *s, const char *where, struct llmq_err *err)
{
    if (s->dtype)
        return field(where, "the element type", s->dtype, "0 for integer codes", err);
    if (s->bits != 4 && s->bits != 8)
        return field(where, "the number of bits", s->bits, "4 or 8", err);
    if (s->symmetric > 1)
        return field(where, "symmetric", s->symmetric, "0 or 1", err);
    if (s->scale_dtype != LLMQ_DTYPE_F16)
        return field(where, "the scale type", s->scale_dtype, "2 (f16)", err);
    if (s->group != 0 && s->group != 32 && s->group != 64 && s->group != 128 && s->group != 256)
        return field(where, "the group size", s->group, "32, 64, 128, 256 or 0 (whole row)", err);
    return 0;
}

int llmq_scheme_check(const struct llmq_scheme *s, const char *where, struct llmq_err *err)
{
    if (s->act)
        return field(where, "the activation type", s->act, "0 (none)", err);
    if (s->reserved)
        return field(where, "a reserved field", s->reserved, "0", err);
    if (s->kind == LLMQ_KIND_DENSE)
        return check_dense(s, where, err);
    if (s->kind == LLMQ_KIND_INT)
        return check_int(s, where, err);
    return field(where, "the scheme's kind", s->kind, "0 (dense) or 1 (integer codes)", err);
}

uint32_t llmq_scheme_groups(const struct llmq_scheme *s, uint32_t k)
{
    if (s->kind == LLMQ_KIND_DENSE)
        return 0;
    return s->group ? k / s->group + (k % s->group != 0) : 1;
}

static int rows_sizes(struct llmq_tensor *t, struct llmq_err *err)
{
    t->n_pad = t->n;
    t->k_pad = t->k;
    t->scale_bytes = t->zero_bytes = 0;
    if (llmq_ckd_mul(&t->data_bytes, (uint64_t)t->n * t->k, (uint64_t)llmq_dtype_bytes(t->scheme.dtype)))
        return llmq_fail(err, LLMQ_EFORMAT, "%u x %u elements are more than a file can hold", t->n, t->k);
    return 0;
}

static int tiles_sizes(struct llmq_tensor *t, struct llmq_err *err)
{
    uint64_t scales;

    if (t->k == 1)
        return llmq_fail(err, LLMQ_EFORMAT, "a vector is quantized; vectors are dense");
    if (llmq_ckd_add(&t->n_pad, t->n, LLMQ_TILE_N - 1) || llmq_ckd_add(&t->k_pad, t->k, LLMQ_TILE_K - 1))
        return llmq_fail(err, LLMQ_EFORMAT, "%u x %u codes are more than a file can hold", t->n, t->k);
    t->n_pad &= ~(uint32_t)(LLMQ_TILE_N - 1);
    t->k_pad &= ~(uint32_t)(LLMQ_TILE_K - 1);
    t->data_bytes = (uint64_t)t->n_pad * t->k_pad / 8 * t->scheme.bits;
    scales = (uint64_t)t->n_pad * llmq_scheme_groups(&t->scheme, t->k);
    t->scale_bytes = scales * llmq_dtype_bytes(t->scheme.scale_dtype);
    t->zero_bytes = t->scheme.symmetric ? 0 : scales;
    return 0;
}

int llmq_tensor_sizes(struct llmq_tensor *t, struct llmq_err *err)
{
    if (llmq_scheme_check(&t->scheme, "scheme", err))
        return err->code;
    if (!t->n || !t->k)
        return llmq_fail(err, LLMQ_EFORMAT, "shape %u x %u is empty", t->n, t->k);
    if (t->layout == LLMQ_LAYOUT_ROWS && t->scheme.kind == LLMQ_KIND_DENSE)
        return rows_sizes(t, err);
    if (t->layout == LLMQ_LAYOUT_TILES && t->scheme.kind == LLMQ_KIND_INT)
        return tiles_sizes(t, err);
    if (t->layout > LLMQ_LAYOUT_TILES)
        return llmq_fail(err, LLMQ_EFORMAT, "layout %u is not known, expected 0 (rows) or 1 (tiles)", t->layout);
    return llmq_fail(err, LLMQ_EFORMAT, "layout %u does not go with scheme kind %u", t->layout, t->scheme.kind);
}

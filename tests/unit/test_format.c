/* format/: packing, writing, reading; damage of every kind is refused or found. */
#include "common/alloc.h"
#include "common/fp.h"
#include "common/io.h"
#include "common/rng.h"
#include "common/str.h"
#include "format/file.h"
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- a small model --------------------------------------------------------------------------- */

static struct llmq_hparams small(void)
{
    struct llmq_hparams h = {.arch = LLMQ_ARCH_LLAMA, .n_layers = 2, .d_model = 72, .n_heads = 4, .n_kv_heads = 2,
                             .head_dim = 8, .d_ff = 100, .n_vocab = 50, .ctx_len = 64, .attn_bias = 5, .mlp_bias = 4,
                             .rope_theta = 10000, .rms_eps = 1e-5f, .rope_factor = 1, .rope_attn_factor = 1, .bos_id = 1,
                             .n_eos = 2, .eos_id = {2, 3}};

    return h;
}

struct tensor_buf {
    struct llmq_tensor t;
    uint8_t           *codes, *zeros;
    float             *scales, *values;
    void              *data, *scale_bytes, *zero_bytes;
};

static void *must_alloc(size_t n)
{
    struct llmq_err err = {0};
    void           *p;

    ck_assert_int_eq(llmq_alloc(&p, n ? n : 1, 1, "test", &err), 0);
    return p;
}

static void buf_free(struct tensor_buf *b)
{
    llmq_free(b->codes);
    llmq_free(b->zeros);
    llmq_free(b->scales);
    llmq_free(b->values);
    llmq_free(b->data);
    llmq_free(b->scale_bytes);
    llmq_free(b->zero_bytes);
}

static void buf_make(struct tensor_buf *b, uint32_t n, uint32_t k, struct llmq_scheme scheme)
{
    struct llmq_err err = {0};

    memset(b, 0, sizeof *b);
    b->t = (struct llmq_tensor){.layer = LLMQ_NO_LAYER, .expert = LLMQ_NO_EXPERT, .scheme = scheme, .n = n, .k = k,
                                .rel_err = -1, .name = "",
                                .layout = scheme.kind == LLMQ_KIND_INT ? LLMQ_LAYOUT_TILES : LLMQ_LAYOUT_ROWS};
    ck_assert_msg(llmq_tensor_sizes(&b->t, &err) == 0, "%s", err.text);
    b->t.data = b->data = must_alloc(b->t.data_bytes);
    b->t.scales = b->scale_bytes = must_alloc(b->t.scale_bytes);
    b->t.zeros = b->zero_bytes = must_alloc(b->t.zero_bytes);
}

static void fill_int(struct tensor_buf *b, struct llmq_rng *r)
{
    uint32_t groups = llmq_scheme_groups(&b->t.scheme, b->t.k);
    size_t   nk = (size_t)b->t.n * b->t.k, ng = (size_t)b->t.n * groups;
    unsigned mask = (1u << b->t.scheme.bits) - 1;

    b->codes = must_alloc(nk);
    b->scales = must_alloc(ng * sizeof(float));
    b->zeros = must_alloc(ng);
    for (size_t i = 0; i < nk; i++)
        b->codes[i] = (uint8_t)(llmq_rng_next(r) & mask);
    for (size_t i = 0; i < ng; i++) {
        b->scales[i] = llmq_f16_to_f32(llmq_f32_to_f16((float)(0.001 + llmq_rng_unit(r))));
        b->zeros[i] = b->t.scheme.symmetric ? (uint8_t)(1u << (b->t.scheme.bits - 1)) : (uint8_t)(llmq_rng_next(r) & mask);
    }
    memset(b->data, 0xee, b->t.data_bytes); /* what a caller's buffer may hold */
    memset(b->scale_bytes, 0xee, b->t.scale_bytes);
    memset(b->zero_bytes, 0xee, b->t.zero_bytes);
    llmq_pack(&b->t, b->codes, b->scales, b->zeros);
}

static void fill_dense(struct tensor_buf *b, struct llmq_rng *r)
{
    size_t nk = (size_t)b->t.n * b->t.k;

    for (size_t i = 0; i < nk; i++) {
        float v = (float)(llmq_rng_unit(r) - 0.5);

        if (b->t.scheme.dtype == LLMQ_DTYPE_F32)
            ((float *)b->data)[i] = v;
        else
            ((uint16_t *)b->data)[i] = b->t.scheme.dtype == LLMQ_DTYPE_F16 ? llmq_f32_to_f16(v) : llmq_f32_to_bf16(v);
    }
}

static struct llmq_scheme scheme_int(int bits, int sym, uint32_t group)
{
    struct llmq_scheme s = {.kind = LLMQ_KIND_INT, .bits = (uint8_t)bits, .symmetric = (uint8_t)sym,
                            .scale_dtype = LLMQ_DTYPE_F16, .group = group};

    return s;
}

static struct llmq_scheme scheme_dense(int dtype)
{
    struct llmq_scheme s = {.kind = LLMQ_KIND_DENSE, .dtype = (uint8_t)dtype};

    return s;
}

/* Norms and biases dense; matrices dense too, or one of the INT schemes in turn. */
static struct llmq_scheme scheme_for(uint32_t k, int number, int quantized)
{
    if (k == 1)
        return scheme_dense(LLMQ_DTYPE_F32);
    if (!quantized)
        return scheme_dense(1 + number % 3);
    return scheme_int(number % 2 ? 8 : 4, number % 3 == 0, number % 4 == 3 ? 0 : 32u << (number % 4));
}

static int write_role(struct llmq_writer *w, const struct llmq_hparams *h, int role, int layer, int number, int quantized,
                      struct llmq_rng *r, struct llmq_err *err)
{
    struct tensor_buf b;
    uint32_t          n, k;
    char              name[64];
    int               rc;

    ck_assert_int_eq(llmq_role_shape(h, role, &n, &k), 0);
    buf_make(&b, n, k, scheme_for(k, number, quantized));
    b.t.role = (uint16_t)role;
    b.t.layer = (uint16_t)layer;
    snprintf(name, sizeof name, "tensor.%d.%d", role, layer);
    b.t.name = name;
    if (b.t.scheme.kind == LLMQ_KIND_INT)
        fill_int(&b, r);
    else
        fill_dense(&b, r);
    rc = llmq_writer_put(w, &b.t, err);
    buf_free(&b);
    return rc;
}

static int write_list(struct llmq_writer *w, const struct llmq_hparams *h, int layer, int from, int to, int quantized,
                      struct llmq_rng *r, struct llmq_err *err)
{
    int roles[24], n = llmq_role_list(h, layer != LLMQ_NO_LAYER, roles);

    for (int i = from; i < n && i < to; i++)
        if (write_role(w, h, roles[i], layer, i + layer, quantized, r, err))
            return err->code;
    return 0;
}

static int write_model(const char *path, const struct llmq_hparams *h, int quantized, struct llmq_err *err)
{
    static const char   text[] = "{\"tool\":\"test\"}";
    struct llmq_writer *w;
    struct llmq_rng     r;

    llmq_rng_seed(&r, 7);
    if (llmq_writer_open(&w, path, h, err))
        return err->code;
    if (llmq_writer_section(w, LLMQ_SECTION_PROVENANCE, text, sizeof text - 1, err) ||
        write_list(w, h, LLMQ_NO_LAYER, 0, 1, quantized, &r, err))
        goto fail;
    for (uint32_t l = 0; l < h->n_layers; l++)
        if (write_list(w, h, (int)l, 0, 24, quantized, &r, err))
            goto fail;
    if (write_list(w, h, LLMQ_NO_LAYER, 1, 24, quantized, &r, err))
        goto fail;
    return llmq_writer_finish(w, NULL, err);
fail:
    llmq_writer_abort(w);
    return err->code;
}

static const char *model_file(const char *name, int quantized)
{
    struct llmq_hparams h = small();
    struct llmq_err     err = {0};
    const char         *path = unit_tmp(name);

    ck_assert_msg(write_model(path, &h, quantized, &err) == 0, "%s", err.text);
    return path;
}

/* ---- packing --------------------------------------------------------------------------------- */

static void check_pack(uint32_t n, uint32_t k, struct llmq_scheme scheme, struct llmq_rng *r)
{
    struct tensor_buf b;
    uint32_t          groups = llmq_scheme_groups(&scheme, k);
    size_t            nk = (size_t)n * k, ng = (size_t)n * groups, wrong = 0;
    uint8_t          *codes = must_alloc(nk), *zeros = must_alloc(ng);
    float            *scales = must_alloc(ng * sizeof(float)), *values = must_alloc(nk * sizeof(float));

    buf_make(&b, n, k, scheme);
    fill_int(&b, r);
    llmq_unpack(&b.t, codes, scales, zeros);
    ck_assert_int_eq(memcmp(codes, b.codes, nk), 0);
    ck_assert_int_eq(memcmp(scales, b.scales, ng * sizeof(float)), 0);
    ck_assert_int_eq(memcmp(zeros, b.zeros, ng), 0);
    llmq_dequant_rows(&b.t, 0, n, values);
    for (uint32_t o = 0; o < n; o++)
        for (uint32_t i = 0; i < k; i++) {
            size_t g = (size_t)o * groups + (scheme.group ? i / scheme.group : 0), at = (size_t)o * k + i;
            wrong += values[at] != (float)(b.codes[at] - b.zeros[g]) * b.scales[g];
        }
    ck_assert_uint_eq(wrong, 0);
    llmq_free(codes);
    llmq_free(zeros);
    llmq_free(scales);
    llmq_free(values);
    buf_free(&b);
}

START_TEST(what_is_packed_unpacks_the_same)
{
    static const uint32_t size[] = {2, 15, 16, 17, 63, 64, 65, 172, 576};
    static const uint32_t group[] = {32, 64, 128, 256, 0};
    struct llmq_rng       r;

    llmq_rng_seed(&r, 1);
    for (size_t n = 0; n < sizeof size / sizeof size[0]; n++)
        for (size_t k = 0; k < sizeof size / sizeof size[0]; k++)
            for (size_t g = 0; g < sizeof group / sizeof group[0]; g++)
                for (int v = 0; v < 4; v++)
                    check_pack(n ? size[n] : 1, size[k], scheme_int(v & 1 ? 8 : 4, v >> 1, group[g]), &r);
}
END_TEST

/* The order inside a tile, written out by hand from the specification. */
START_TEST(codes_stand_where_the_specification_says)
{
    struct llmq_rng   r;
    struct tensor_buf b;

    llmq_rng_seed(&r, 2);
    for (int bits = 4; bits <= 8; bits += 4) {
        buf_make(&b, 40, 200, scheme_int(bits, 0, 128));
        fill_int(&b, &r);
        ck_assert_uint_eq(b.t.n_pad, 48);
        ck_assert_uint_eq(b.t.k_pad, 256);
        for (uint32_t o = 0; o < 40; o++)
            for (uint32_t i = 0; i < 200; i++) {
                size_t         tile = o / 16 * 4 + i / 64;
                uint32_t       oo = o % 16, ii = i % 64;
                const uint8_t *d = b.data;
                unsigned       got = bits == 8 ? d[tile * 1024 + ii / 4 * 64 + 4 * oo + ii % 4]
                                     : ii < 32 ? d[tile * 512 + ii / 4 * 64 + 4 * oo + ii % 4] & 15u
                                               : d[tile * 512 + (ii - 32) / 4 * 64 + 4 * oo + ii % 4] >> 4;
                ck_assert_uint_eq(got, b.codes[o * 200 + i]);
            }
        ck_assert(llmq_f16_to_f32(((uint16_t *)b.scale_bytes)[(1 * 2 + 1) * 16 + 5]) == b.scales[21 * 2 + 1]);
        ck_assert_uint_eq(((uint8_t *)b.zero_bytes)[(1 * 2 + 1) * 16 + 5], b.zeros[21 * 2 + 1]);
        buf_free(&b);
    }
}
END_TEST

/* A tensor of the padded size over the same bytes shows what the padding decodes to. */
START_TEST(padding_decodes_to_zero)
{
    static const uint32_t shape[][2] = {{1, 2}, {15, 65}, {17, 63}, {40, 100}, {16, 576}, {3, 33}};
    struct llmq_rng       r;

    llmq_rng_seed(&r, 3);
    for (size_t s = 0; s < sizeof shape / sizeof shape[0]; s++)
        for (int v = 0; v < 20; v++) {
            static const uint32_t group[] = {32, 64, 128, 256, 0};
            uint32_t              n = shape[s][0], k = shape[s][1];
            struct tensor_buf     b;
            struct llmq_tensor    whole;
            float                 row[640];
            int                   wrong = 0;

            buf_make(&b, n, k, scheme_int(v & 1 ? 8 : 4, v >> 1 & 1, group[v >> 2]));
            fill_int(&b, &r);
            if (b.t.scheme.group && b.t.k_pad / b.t.scheme.group > llmq_scheme_groups(&b.t.scheme, k)) {
                buf_free(&b); /* the padded shape would have more groups */
                continue;
            }
            whole = b.t;
            whole.n = b.t.n_pad;
            whole.k = b.t.k_pad;
            for (uint32_t o = 0; o < whole.n; o++) {
                llmq_dequant_rows(&whole, o, 1, row);
                for (uint32_t i = 0; i < whole.k; i++)
                    wrong += (o >= n || i >= k) && row[i] != 0.0f;
            }
            ck_assert_int_eq(wrong, 0);
            buf_free(&b);
        }
}
END_TEST

/* ---- schemes, roles, hyperparameters ---------------------------------------------------------- */

START_TEST(schemes_have_names_and_limits)
{
    struct llmq_scheme s = scheme_int(4, 1, 128);
    struct llmq_err    err = {0};
    char               name[40];

    llmq_scheme_name(&s, name, sizeof name);
    ck_assert_str_eq(name, "int4-g128-sym");
    ck_assert_uint_eq(llmq_scheme_groups(&s, 576), 5);
    s = scheme_int(8, 0, 0);
    llmq_scheme_name(&s, name, sizeof name);
    ck_assert_str_eq(name, "int8-channel-asym");
    s.bits = 3;
    ck_assert_int_eq(llmq_scheme_check(&s, "x", &err), LLMQ_EFORMAT);
    ck_assert_str_eq(err.text, "x: the number of bits is 3, expected 4 or 8");
    s = scheme_dense(9);
    ck_assert_int_eq(llmq_scheme_check(&s, "x", &err), LLMQ_EFORMAT);
}
END_TEST

START_TEST(hyperparameters_out_of_range_are_named)
{
    struct llmq_hparams h = small();
    struct llmq_err     err = {0};

    ck_assert_int_eq(llmq_hparams_check(&h, "x", &err), 0);
    h.n_kv_heads = 3;
    ck_assert_int_eq(llmq_hparams_check(&h, "x", &err), LLMQ_EFORMAT);
    ck_assert_str_eq(err.text, "x: n_heads is 4, expected a multiple of n_kv_heads, 3");
    h = small();
    h.rms_eps = NAN;
    ck_assert_int_eq(llmq_hparams_check(&h, "x", &err), LLMQ_EFORMAT);
    h = small();
    h.eos_id[1] = 50;
    ck_assert_int_eq(llmq_hparams_check(&h, "x", &err), LLMQ_EFORMAT);
    ck_assert_str_eq(err.text, "x: an eos_id is 50, expected 0 to 49");
}
END_TEST

START_TEST(fused_matrices_stand_together_in_the_list)
{
    struct llmq_hparams h = small();
    int                 roles[24], n;

    h.attn_bias = 15;
    h.mlp_bias = 7;
    n = llmq_role_list(&h, 1, roles);
    ck_assert_int_eq(n, 16);
    ck_assert_int_eq(roles[1], LLMQ_ROLE_ATTN_Q);
    ck_assert_int_eq(roles[2], LLMQ_ROLE_ATTN_K);
    ck_assert_int_eq(roles[3], LLMQ_ROLE_ATTN_V);
    ck_assert_int_eq(llmq_role_list(&h, 0, roles), 3);
    ck_assert_int_eq(roles[0], LLMQ_ROLE_EMBED);
    h.tied = 1;
    ck_assert_int_eq(llmq_role_list(&h, 0, roles), 2);
}
END_TEST

/* ---- files ------------------------------------------------------------------------------------ */

static int open_and_verify(const char *path, struct llmq_err *err)
{
    struct llmq_file *f;
    int               rc;

    memset(err, 0, sizeof *err);
    if (llmq_file_open(&f, path, err))
        return err->code;
    rc = llmq_file_verify(f, NULL, NULL, NULL, err);
    llmq_file_close(f);
    return rc;
}

static void check_against_buf(const struct llmq_file *f, int role, int layer, int number, int quantized, struct llmq_rng *r)
{
    const struct llmq_tensor *t = llmq_file_find(f, role, layer, LLMQ_NO_EXPERT);
    struct tensor_buf         b;
    char                      name[64];

    ck_assert_ptr_nonnull(t);
    snprintf(name, sizeof name, "tensor.%d.%d", role, layer);
    ck_assert_str_eq(t->name, name);
    buf_make(&b, t->n, t->k, scheme_for(t->k, number, quantized));
    if (b.t.scheme.kind == LLMQ_KIND_INT)
        fill_int(&b, r);
    else
        fill_dense(&b, r);
    ck_assert_uint_eq(t->data_bytes, b.t.data_bytes);
    ck_assert_uint_eq((uintptr_t)t->data & 63, 0);
    ck_assert_int_eq(memcmp(t->data, b.data, b.t.data_bytes), 0);
    ck_assert_int_eq(memcmp(t->scale_bytes ? t->scales : "", b.scale_bytes, b.t.scale_bytes), 0);
    ck_assert_int_eq(memcmp(t->zero_bytes ? t->zeros : "", b.zero_bytes, b.t.zero_bytes), 0);
    buf_free(&b);
}

START_TEST(a_model_reads_back_as_written)
{
    struct llmq_hparams h = small();
    int                 globals[24], roles[24], n_globals = llmq_role_list(&h, 0, globals), n = llmq_role_list(&h, 1, roles);

    for (int quantized = 0; quantized < 2; quantized++) {
        const char       *path = model_file("round.llmq", quantized);
        struct llmq_err   err = {0};
        struct llmq_file *f;
        struct llmq_rng   r;
        size_t            len;

        ck_assert_msg(llmq_file_open(&f, path, &err) == 0, "%s", err.text);
        ck_assert_msg(llmq_file_verify(f, NULL, NULL, NULL, &err) == 0, "%s", err.text);
        ck_assert_int_eq(memcmp(llmq_file_hparams(f), &h, sizeof h), 0);
        ck_assert_str_eq(llmq_file_section(f, LLMQ_SECTION_PROVENANCE, &len), "{\"tool\":\"test\"}");
        ck_assert_uint_eq(len, 15);
        ck_assert_str_eq(llmq_file_section(f, LLMQ_SECTION_VOCAB, &len), "");
        ck_assert_int_eq(llmq_file_tensor_count(f), n_globals + 2 * n);
        llmq_rng_seed(&r, 7);
        check_against_buf(f, globals[0], LLMQ_NO_LAYER, LLMQ_NO_LAYER, quantized, &r);
        for (int l = 0; l < 2; l++)
            for (int i = 0; i < n; i++)
                check_against_buf(f, roles[i], l, i + l, quantized, &r);
        for (int i = 1; i < n_globals; i++)
            check_against_buf(f, globals[i], LLMQ_NO_LAYER, i + LLMQ_NO_LAYER, quantized, &r);
        llmq_file_want_layer(f, 1);
        llmq_file_drop_layer(f, 1);
        ck_assert_int_eq(llmq_file_verify(f, NULL, NULL, NULL, &err), 0);
        llmq_file_close(f);
        unlink(path);
    }
}
END_TEST

/* Tiles are whole multiples of 64 bytes: q, k and v are then one matrix. */
START_TEST(fused_matrices_stand_back_to_back)
{
    const char       *path = model_file("fused.llmq", 1);
    struct llmq_err   err = {0};
    struct llmq_file *f;

    ck_assert_int_eq(llmq_file_open(&f, path, &err), 0);
    for (int l = 0; l < 2; l++) {
        const struct llmq_tensor *q = llmq_file_find(f, LLMQ_ROLE_ATTN_Q, l, LLMQ_NO_EXPERT);
        const struct llmq_tensor *k = llmq_file_find(f, LLMQ_ROLE_ATTN_K, l, LLMQ_NO_EXPERT);
        const struct llmq_tensor *v = llmq_file_find(f, LLMQ_ROLE_ATTN_V, l, LLMQ_NO_EXPERT);

        ck_assert_ptr_eq((const char *)q->data + q->data_bytes, k->data);
        ck_assert_ptr_eq((const char *)k->data + k->data_bytes, v->data);
        ck_assert_ptr_eq((const char *)q->scales + q->scale_bytes, k->scales);
        ck_assert_ptr_eq((const char *)k->scales + k->scale_bytes, v->scales);
        ck_assert_uint_eq(((uintptr_t)llmq_file_find(f, LLMQ_ROLE_ATTN_NORM, l, LLMQ_NO_EXPERT)->data) & 4095, 0);
    }
    llmq_file_close(f);
    unlink(path);
}
END_TEST

START_TEST(equal_inputs_give_equal_bytes)
{
    struct llmq_err err = {0};
    struct llmq_map a, b;
    char            first[512];

    snprintf(first, sizeof first, "%s", model_file("first.llmq", 1));
    ck_assert_int_eq(llmq_map_open(&a, first, &err), 0);
    ck_assert_int_eq(llmq_map_open(&b, model_file("second.llmq", 1), &err), 0);
    ck_assert_uint_eq(a.size, b.size);
    ck_assert_int_eq(memcmp(a.data, b.data, a.size), 0);
    llmq_map_close(&a);
    llmq_map_close(&b);
    unlink(first);
    unlink(unit_tmp("second.llmq"));
}
END_TEST

/* ---- damage ----------------------------------------------------------------------------------- */

static void write_copy(const char *path, const char *bytes, size_t len)
{
    FILE *f = fopen(path, "wb");

    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(bytes, 1, len, f), len);
    ck_assert_int_eq(fclose(f), 0);
}

static char *read_copy(const char *path, size_t *len)
{
    struct llmq_err err = {0};
    struct llmq_map m;
    char           *p;

    ck_assert_int_eq(llmq_map_open(&m, path, &err), 0);
    p = must_alloc(m.size);
    memcpy(p, m.data, m.size);
    *len = m.size;
    llmq_map_close(&m);
    return p;
}

START_TEST(a_file_cut_anywhere_is_refused)
{
    struct llmq_err err;
    char            path[512];
    size_t          len;
    char           *bytes;

    snprintf(path, sizeof path, "%s", model_file("cut.llmq", 1));
    bytes = read_copy(path, &len);
    write_copy(path, bytes, len);
    ck_assert_int_eq(open_and_verify(path, &err), 0);
    for (size_t cut = len - 1; cut > 0; cut -= cut < 64 ? cut : 64) {
        ck_assert_int_eq(truncate(path, (off_t)cut), 0);
        ck_assert_int_eq(open_and_verify(path, &err), LLMQ_EFORMAT);
    }
    write_copy(path, bytes, len);
    ck_assert_int_eq(truncate(path, (off_t)len + 1), 0);
    ck_assert_int_eq(open_and_verify(path, &err), LLMQ_EFORMAT);
    llmq_free(bytes);
    unlink(path);
}
END_TEST

START_TEST(any_changed_byte_is_found)
{
    struct llmq_err err;
    struct llmq_rng r;
    char            path[512];
    size_t          len;
    char           *bytes;
    int             fd;

    snprintf(path, sizeof path, "%s", model_file("flip.llmq", 1));
    bytes = read_copy(path, &len);
    fd = open(path, O_WRONLY);
    ck_assert_int_ge(fd, 0);
    llmq_rng_seed(&r, 11);
    for (int i = 0; i < 2000; i++) {
        /* half of them in the header's used bytes and at the end, where the structure is */
        size_t at = i % 4 == 0 ? llmq_rng_next(&r) % 48 : i % 4 == 1 ? len - 1 - llmq_rng_next(&r) % 8000 : llmq_rng_next(&r) % len;
        char   changed = (char)(bytes[at] ^ (1 << llmq_rng_next(&r) % 8));

        ck_assert_int_eq(pwrite(fd, &changed, 1, (off_t)at), 1);
        ck_assert_msg(open_and_verify(path, &err) == LLMQ_EFORMAT, "byte %zu", at);
        ck_assert_int_eq(pwrite(fd, &bytes[at], 1, (off_t)at), 1);
    }
    ck_assert_int_eq(open_and_verify(path, &err), 0);
    close(fd);
    llmq_free(bytes);
    unlink(path);
}
END_TEST

/* A hostile writer knows about checksums: structure is changed, then every CRC over it made right again. */
static void change_structure(char *bytes, size_t len, struct llmq_rng *r)
{
    static const uint64_t odd[] = {0, 1, 2, 63, 64, 4095, 0xffff, 0x7fffffff, 0xffffffff, 1ull << 32, 1ull << 63, UINT64_MAX,
                                   UINT64_MAX - 63};
    struct disk_header   *h = (struct disk_header *)(void *)bytes;
    struct disk_section  *s = (struct disk_section *)(void *)(bytes + h->dir_offset + sizeof(struct disk_directory));
    size_t                width = (size_t)1 << llmq_rng_next(r) % 4, where = llmq_rng_next(r) % 8, at;
    uint64_t              v = llmq_rng_next(r) % 2 ? odd[llmq_rng_next(r) % 13] : llmq_rng_next(r) % (2 * len);

    at = where == 0   ? 16 + llmq_rng_next(r) % 28                                      /* header */
         : where == 1 ? s->offset + llmq_rng_next(r) % sizeof(struct disk_hparams)      /* hyperparameters */
                      : h->dir_offset + llmq_rng_next(r) % (len - h->dir_offset);
    at &= ~(width - 1);
    memcpy(bytes + at, &v, width);
    if (where == 1)
        s->crc = s->stored_crc = section_crc(0, bytes + s->offset, sizeof(struct disk_hparams));
    if (h->dir_offset < len && h->dir_bytes <= len - h->dir_offset)
        h->dir_crc = section_crc(0, bytes + h->dir_offset, h->dir_bytes);
    h->crc = section_crc(0, bytes, offsetof(struct disk_header, crc));
}

START_TEST(a_hostile_directory_is_survived)
{
    struct llmq_rng r;
    char            path[512];
    size_t          len;
    char           *bytes, *copy;
    size_t          tail;
    int             refused = 0, fd;

    snprintf(path, sizeof path, "%s", model_file("hostile.llmq", 1));
    bytes = read_copy(path, &len);
    copy = must_alloc(len);
    tail = len > 16384 ? len - 16384 : DISK_PAGE; /* sections and directory */
    fd = open(path, O_WRONLY);
    llmq_rng_seed(&r, 23);
    for (int i = 0; i < 1500; i++) {
        struct llmq_err   err = {0};
        struct llmq_file *f = NULL;
        struct llmq_str   s;

        memcpy(copy, bytes, len);
        change_structure(copy, len, &r);
        ck_assert_int_eq(pwrite(fd, copy, DISK_PAGE, 0), DISK_PAGE);
        ck_assert_int_eq(pwrite(fd, copy + tail, len - tail, (off_t)tail), (long)(len - tail));
        llmq_str_init(&s, 1 << 20);
        if (llmq_file_open(&f, path, &err) || llmq_file_verify(f, NULL, NULL, NULL, &err) ||
            llmq_file_describe(f, LLMQ_DESCRIBE_TENSORS | LLMQ_DESCRIBE_JSON, &s, &err)) {
            ck_assert_msg(err.code == LLMQ_EFORMAT, "%s", err.text);
            refused++;
        }
        llmq_str_fini(&s);
        llmq_file_close(f);
    }
    close(fd);
    ck_assert_int_gt(refused, 1000); /* the rest changed bytes that may be ignored */
    llmq_free(bytes);
    llmq_free(copy);
    unlink(path);
}
END_TEST

/* Nothing under the name, nor beside it. */
static void nothing_at(const char *path)
{
    char tmp[600];

    ck_assert_int_ne(access(path, F_OK), 0);
    snprintf(tmp, sizeof tmp, "%s.%ld.tmp", path, (long)getpid());
    ck_assert_int_ne(access(tmp, F_OK), 0);
}

START_TEST(a_file_size_limit_is_an_error_and_leaves_nothing)
{
    struct llmq_hparams h = small();
    struct llmq_err     err = {0};
    struct rlimit       was, limit;
    char                path[512];
    struct llmq_map     m;
    size_t              full;

    snprintf(path, sizeof path, "%s", model_file("limit.llmq", 1));
    ck_assert_int_eq(llmq_map_open(&m, path, &err), 0);
    full = m.size;
    llmq_map_close(&m);
    unlink(path);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &was);
    for (size_t at = 0; at < full; at += full / 7) {
        limit = was;
        limit.rlim_cur = at;
        setrlimit(RLIMIT_FSIZE, &limit);
        memset(&err, 0, sizeof err);
        ck_assert_int_eq(write_model(path, &h, 1, &err), LLMQ_EIO);
        setrlimit(RLIMIT_FSIZE, &was);
        ck_assert_msg(strstr(err.text, "File too large") != NULL, "%s", err.text);
        nothing_at(path);
    }
    memset(&err, 0, sizeof err);
    ck_assert_msg(write_model(path, &h, 1, &err) == 0, "%s", err.text);
    unlink(path);
}
END_TEST

START_TEST(an_incomplete_model_is_not_written)
{
    struct llmq_hparams h = small();
    struct llmq_err     err = {0};
    struct llmq_writer *w;
    struct llmq_rng     r;
    char                path[512];

    llmq_rng_seed(&r, 1);
    snprintf(path, sizeof path, "%s", unit_tmp("part.llmq"));
    ck_assert_int_eq(llmq_writer_open(&w, path, &h, &err), 0);
    ck_assert_int_eq(write_list(w, &h, LLMQ_NO_LAYER, 0, 24, 0, &r, &err), 0);
    ck_assert_int_eq(llmq_writer_finish(w, NULL, &err), LLMQ_EFORMAT);
    ck_assert_ptr_nonnull(strstr(err.text, "there is no tensor layer 0 attn_norm"));
    nothing_at(path);
    err.code = 0;
    ck_assert_int_eq(llmq_writer_open(&w, path, &h, &err), 0);
    ck_assert_int_eq(write_list(w, &h, LLMQ_NO_LAYER, 0, 24, 0, &r, &err), 0);
    llmq_writer_abort(w);
    nothing_at(path);
    llmq_writer_abort(NULL);
}
END_TEST

START_TEST(wrong_counts_and_shapes_are_refused_at_once)
{
    struct llmq_hparams h = small();
    struct llmq_err     err = {0};
    struct llmq_writer *w;
    struct llmq_tensor  t = {.role = LLMQ_ROLE_FINAL_NORM, .layer = LLMQ_NO_LAYER, .expert = LLMQ_NO_EXPERT,
                             .scheme = scheme_dense(LLMQ_DTYPE_F32), .n = 71, .k = 1, .rel_err = -1};
    float               row[73] = {0};

    ck_assert_int_eq(llmq_writer_open(&w, unit_tmp("wrong.llmq"), &h, &err), 0);
    ck_assert_int_eq(llmq_writer_tensor(w, &t, &err), LLMQ_EFORMAT);
    ck_assert_str_eq(err.text, "final_norm: 71 x 1, but the hyperparameters make it 72 x 1");
    t.n = 72;
    ck_assert_int_eq(llmq_writer_tensor(w, &t, &err), 0);
    ck_assert_int_eq(llmq_writer_bytes(w, row, 71 * 4, &err), 0);
    ck_assert_int_eq(llmq_writer_tensor(w, &t, &err), LLMQ_EUSAGE);
    ck_assert_str_eq(err.text, "final_norm: 4 bytes are still to be written");
    ck_assert_int_eq(llmq_writer_bytes(w, row, 8, &err), LLMQ_EUSAGE);
    llmq_writer_abort(w);
}
END_TEST

/* The 1st, 2nd, ... allocation fails: an error each time, never a crash, and nothing is left. */
START_TEST(no_memory_is_an_error_wherever_it_happens)
{
    struct llmq_hparams h = small();
    struct llmq_err     err;
    size_t              live;
    char                path[512];
    long                nth = 0;
    int                 rc;

    snprintf(path, sizeof path, "%s", unit_tmp("torture.llmq"));
    do { /* allocations of the test itself are not survivable: write_model makes them through must_alloc */
        struct llmq_writer *w = NULL;

        memset(&err, 0, sizeof err);
        live = llmq_alloc_live();
        llmq_alloc_fail_nth(++nth);
        rc = llmq_writer_open(&w, path, &h, &err);
        if (!rc)
            rc = llmq_writer_section(w, LLMQ_SECTION_CHAT_TEMPLATE, "template", 8, &err);
        llmq_alloc_fail_nth(0);
        llmq_writer_abort(w);
        ck_assert(rc == 0 || rc == LLMQ_ENOMEM);
        ck_assert_uint_eq(llmq_alloc_live(), live);
        nothing_at(path);
    } while (rc);
    ck_assert_int_gt(nth, 3);
    model_file("torture.llmq", 1);
    nth = 0;
    do {
        struct llmq_file *f = NULL;
        struct llmq_str   s;

        memset(&err, 0, sizeof err);
        live = llmq_alloc_live();
        llmq_str_init(&s, 1 << 20);
        llmq_alloc_fail_nth(++nth);
        rc = llmq_file_open(&f, path, &err);
        if (!rc)
            rc = llmq_file_verify(f, NULL, NULL, NULL, &err);
        if (!rc)
            rc = llmq_file_describe(f, LLMQ_DESCRIBE_TENSORS, &s, &err);
        llmq_alloc_fail_nth(0);
        llmq_str_fini(&s);
        llmq_file_close(f);
        /* jansson takes a failed allocation for a syntax error */
        ck_assert_msg(rc == 0 || rc == LLMQ_ENOMEM || strstr(err.text, "its JSON"), "%s", err.text);
        ck_assert_uint_eq(llmq_alloc_live(), live);
    } while (rc);
    ck_assert_int_gt(nth, 5);
    unlink(path);
}
END_TEST

/* ---- sources ---------------------------------------------------------------------------------- */

START_TEST(a_file_is_a_source_and_its_numbers_are_finite)
{
    struct llmq_hparams h = small();
    struct llmq_err     err = {0};
    struct llmq_source *s;
    struct llmq_file   *f;
    char                path[512];
    float              *rows = must_alloc(50 * 100 * sizeof(float)), *want = must_alloc(50 * 100 * sizeof(float));
    const char         *json;

    snprintf(path, sizeof path, "%s", model_file("source.llmq", 0));
    ck_assert_int_eq(llmq_file_open(&f, path, &err), 0);
    ck_assert_int_eq(llmq_source_from_file(&s, f, &err), 0);
    ck_assert_str_eq(s->name, "source.llmq");
    ck_assert_int_eq(memcmp(s->hparams, &h, sizeof h), 0);
    for (int i = 0; i < s->n_tensors; i++) {
        const struct llmq_tensor *t = &s->tensors[i];
        uint32_t                  from = t->n / 3, n = t->n - from < 50 ? t->n - from : 50;

        ck_assert_int_eq(llmq_source_find(s, t->role, t->layer), i);
        ck_assert_msg(llmq_source_rows_f32(s, i, from, n, rows, &err) == 0, "%s", err.text);
        llmq_dequant_rows(t, from, n, want);
        ck_assert_int_eq(memcmp(rows, want, (size_t)n * t->k * sizeof(float)), 0);
    }
    json = s->files_json(s, &err);
    ck_assert_ptr_nonnull(json);
    ck_assert_ptr_eq(strstr(json, "[{\"name\":\"source.llmq\",\"sha256\":\""), json);
    s->close(s);
    llmq_free(rows);
    llmq_free(want);
    unlink(path);
    ck_assert_int_eq(llmq_file_open(&f, model_file("quant.llmq", 1), &err), 0);
    ck_assert_int_eq(llmq_source_from_file(&s, f, &err), LLMQ_EFORMAT);
    llmq_file_close(f);
    unlink(unit_tmp("quant.llmq"));
}
END_TEST

START_TEST(sha256_is_the_published_one)
{
    struct llmq_sha256 h;
    char               hex[65];

    llmq_sha256_init(&h);
    llmq_sha256_update(&h, "a", 1);
    llmq_sha256_update(&h, "bc", 2);
    llmq_sha256_hex(&h, hex);
    ck_assert_str_eq(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}
END_TEST

/* What llmq_file_bytes says without writing is what a file has. */
START_TEST(sizes_are_known_beforehand)
{
    static const char *const good[] = {"dense-f32", "dense-mixed-untied-bias", "int4-asym-ragged", "int4-int8-sym", "int8-channel-asym", "texts"};

    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct llmq_err   err = {0};
        struct llmq_file *f;
        uint64_t          sections[16];
        char              path[100];

        snprintf(path, sizeof path, "tests/format/good/%s.llmq", good[i]);
        ck_assert_msg(!llmq_file_open(&f, path, &err), "%s", err.text);
        for (int k = 0; k < f->n_sections; k++)
            sections[k] = f->sections[k].disk.stored_bytes;
        ck_assert_uint_eq(llmq_file_bytes(f->tensors, (size_t)f->n_tensors, sections, f->n_sections), f->map.size);
        llmq_file_close(f);
    }
}
END_TEST

UNIT_CASE(format, what_is_packed_unpacks_the_same, codes_stand_where_the_specification_says, padding_decodes_to_zero,
          schemes_have_names_and_limits, hyperparameters_out_of_range_are_named, fused_matrices_stand_together_in_the_list,
          a_model_reads_back_as_written, fused_matrices_stand_back_to_back, equal_inputs_give_equal_bytes,
          a_file_cut_anywhere_is_refused, any_changed_byte_is_found,
          a_hostile_directory_is_survived, a_file_size_limit_is_an_error_and_leaves_nothing,
          an_incomplete_model_is_not_written, wrong_counts_and_shapes_are_refused_at_once,
          no_memory_is_an_error_wherever_it_happens, a_file_is_a_source_and_its_numbers_are_finite,
          sizes_are_known_beforehand, sha256_is_the_published_one)

/* quantize/: grids, statistics, folding, the search, fallbacks, and whole jobs on a tiny random model. */
#include "common/parallel.h"
#include "common/rng.h"
#include "quantize/method.h"
#include "runner/text/corpus.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct llmq_hparams HP = {.arch = LLMQ_ARCH_LLAMA, .n_layers = 1, .d_model = 80, .n_heads = 4, .n_kv_heads = 2,
                                       .head_dim = 16, .d_ff = 112, .n_vocab = 96, .ctx_len = 64, .tied = 1, .rope_type = LLMQ_ROPE_DEFAULT,
                                       .rope_theta = 10000, .rms_eps = 1e-5f, .rope_factor = 1, .rope_attn_factor = 1, .bos_id = -1};

static float rnd(struct llmq_rng *r) { return (float)(llmq_rng_unit(r) + llmq_rng_unit(r) + llmq_rng_unit(r) - 1.5); }

static void fill(float *x, size_t n, uint64_t seed, float scale)
{
    struct llmq_rng r;

    llmq_rng_seed(&r, seed);
    for (size_t i = 0; i < n; i++)
        x[i] = scale * rnd(&r);
}

static struct llmq_scheme scheme(int bits, int group, int symmetric)
{
    return (struct llmq_scheme){.kind = LLMQ_KIND_INT, .bits = (uint8_t)bits, .symmetric = (uint8_t)symmetric,
                                .scale_dtype = LLMQ_DTYPE_F16, .group = (uint32_t)group};
}

/* ---- grids ---------------------------------------------------------------------------------------- */

START_TEST(grid_reaches_both_ends)
{
    struct llmq_scheme s = scheme(4, 32, 1), a = scheme(4, 32, 0);
    float              w[4] = {-1.6f, 0.2f, 0.7f, 0}, up[3] = {0.5f, 1.0f, 1.5f}, scale;
    uint8_t            zero, codes[4];

    grid_fit(&s, w, 4, 1.0f, &scale, &zero); /* -1.6 / 8 is more than 0.7 / 7 */
    ck_assert_float_eq_tol(scale, 0.2f, 1e-4);
    ck_assert_int_eq(zero, 8);
    grid_encode(&s, w, 4, scale, zero, codes);
    ck_assert_int_eq(codes[0], 0);
    ck_assert_int_eq(codes[3], 8);
    grid_fit(&s, up, 3, 1.0f, &scale, &zero); /* a group of one sign: nothing may clamp */
    grid_encode(&s, up, 3, scale, zero, codes);
    ck_assert_int_eq(codes[2], 15);
    ck_assert_float_eq_tol((float)(codes[2] - zero) * scale, 1.5f, 1e-3);
    grid_fit(&a, up, 3, 1.0f, &scale, &zero); /* asymmetric: the range covers 0 */
    ck_assert_int_eq(zero, 0);
    ck_assert_float_eq_tol(scale, 0.1f, 1e-4);
}
END_TEST

START_TEST(grid_of_zeros_is_exact_and_tiny_weights_are_safe)
{
    float   w[8] = {0}, scale, e[8];
    uint8_t zero;

    for (int bits = 4; bits <= 8; bits += 4)
        for (int sym = 0; sym < 2; sym++) {
            struct llmq_scheme s = scheme(bits, 32, sym);
            memset(w, 0, sizeof w);
            grid_fit(&s, w, 8, 1.0f, &scale, &zero);
            ck_assert(scale > 0 && scale - scale == 0);
            grid_residual(&s, w, 8, scale, zero, e);
            for (int i = 0; i < 8; i++)
                ck_assert(e[i] == 0);
            w[3] = 1e-30f;
            grid_fit(&s, w, 8, 1.0f, &scale, &zero);
            ck_assert(scale >= 0.99e-5f);
            w[3] = 1e30f;
            grid_fit(&s, w, 8, 1.0f, &scale, &zero);
            struct llmq_err err = {0};
            ck_assert_int_eq(grid_check(&scale, 1, 1, "x", &err), LLMQ_EFORMAT);
        }
}
END_TEST

/* Every weight is within half a step of its value, and what is packed decodes to exactly that value. */
static void round_trip(uint32_t n, uint32_t k, struct llmq_scheme s)
{
    struct llmq_err    err = {0};
    struct llmq_tensor t = {.role = LLMQ_ROLE_MLP_UP, .layout = LLMQ_LAYOUT_TILES, .scheme = s, .n = n, .k = k};
    uint32_t           groups = llmq_scheme_groups(&s, k), size = s.group ? s.group : k;
    struct llmq_arena  a = {0};
    float             *w, *scales, *back;
    uint8_t           *zeros, *codes, *data, *ps, *pz;

    ck_assert_int_eq(llmq_tensor_sizes(&t, &err), 0);
    ck_assert(!LLMQ_ARENA_NEW(&a, &w, n * k, "w", &err) && !LLMQ_ARENA_NEW(&a, &scales, n * groups, "s", &err) &&
              !LLMQ_ARENA_NEW(&a, &zeros, n * groups, "z", &err) && !LLMQ_ARENA_NEW(&a, &codes, n * k, "c", &err) &&
              !LLMQ_ARENA_NEW(&a, &back, n * k, "b", &err) && !LLMQ_ARENA_NEW(&a, &data, t.data_bytes, "d", &err) &&
              !LLMQ_ARENA_NEW(&a, &ps, t.scale_bytes, "d", &err) && !LLMQ_ARENA_NEW(&a, &pz, t.zero_bytes + 1, "d", &err));
    t.data = data;
    t.scales = ps;
    t.zeros = s.symmetric ? NULL : pz;
    fill(w, (size_t)n * k, 7, 0.3f);
    memset(w + k, 0, size * sizeof *w < k * sizeof *w ? size * sizeof *w : k * sizeof *w); /* a group of zeros */
    grid_fit_rows(&s, w, n, k, scales, zeros);
    grid_encode_rows(&s, w, n, k, scales, zeros, codes);
    llmq_pack(&t, codes, scales, s.symmetric ? NULL : zeros);
    llmq_dequant_rows(&t, 0, n, back);
    for (uint32_t r = 0; r < n; r++)
        for (uint32_t c = 0; c < k; c++) {
            size_t at = (size_t)r * k + c, sg = (size_t)r * groups + c / size;
            ck_assert_int_lt(codes[at], 1 << s.bits);
            ck_assert_float_eq(back[at], (float)(codes[at] - zeros[sg]) * scales[sg]);
            /* a zero point is rounded too, and a scale to F16 */
            ck_assert_float_le(fabsf(back[at] - w[at]), (s.symmetric ? 0.51f : 1.01f) * scales[sg]);
        }
    llmq_arena_free(&a);
}

START_TEST(packed_tensors_hold_the_grid)
{
    static const int groups[] = {32, 64, 128, 256, 0};

    for (int g = 0; g < 5; g++)
        for (int sym = 0; sym < 2; sym++)
            for (int bits = 4; bits <= 8; bits += 4) {
                round_trip(20, 100, scheme(bits, groups[g], sym)); /* ragged in both directions */
                round_trip(16, 576, scheme(bits, groups[g], sym));
            }
}
END_TEST

/* ---- statistics ------------------------------------------------------------------------------------- */

static struct model *model_new(int tokens)
{
    struct llmq_err      err = {0};
    struct model_options o = {.max_tokens = tokens, .max_ctx = 64};
    struct model        *m = NULL;

    ck_assert_msg(!model_open_empty(&m, &HP, &o, &err), "%s", err.text);
    return m;
}

START_TEST(statistics_are_the_mean_of_products)
{
    enum { K = 70, T = 33 };
    struct llmq_err   err = {0};
    struct llmq_arena a = {0};
    struct model     *m = model_new(64);
    struct stats      st;
    static float      x[T * K], s[K];

    fill(x, T * K, 3, 1);
    ck_assert_int_eq(stats_init(&st, &a, K, &err), 0);
    stats_add(&st, m, x, T - 10);
    stats_add(&st, m, x + (T - 10) * K, 10);
    stats_finish(&st);
    for (int i = 0; i < K; i++)
        for (int j = 0; j < K; j++) {
            double sum = 0;
            for (int t = 0; t < T; t++)
                sum += (double)x[t * K + i] * x[t * K + j];
            ck_assert_double_eq_tol(st.h[i * K + j], sum / T, 1e-5);
            ck_assert(st.h[i * K + j] == st.h[j * K + i]);
        }
    ck_assert_ptr_null(stats_fault(&st));
    for (int i = 0; i < K; i++)
        s[i] = 2;
    float h = st.h[5 * K + 6];
    stats_scale(&st, s);
    ck_assert_float_eq(st.h[5 * K + 6], h / 4);
    st.h[7 * K + 7] = NAN;
    ck_assert_ptr_nonnull(stats_fault(&st));
    model_close(m);
    llmq_arena_free(&a);
}
END_TEST

/* ---- folding ---------------------------------------------------------------------------------------- */

struct net { /* one layer in float */
    _Alignas(64) float attn_norm[80];
    _Alignas(64) float q[64 * 80];
    _Alignas(64) float k[32 * 80];
    _Alignas(64) float v[32 * 80];
    _Alignas(64) float vb[32];
    _Alignas(64) float o[80 * 64];
    _Alignas(64) float mlp_norm[80];
    _Alignas(64) float gate[112 * 80];
    _Alignas(64) float up[112 * 80];
    _Alignas(64) float ub[112];
    _Alignas(64) float down[80 * 112];
};

static void bind(struct model *m, int role, const float *w)
{
    struct llmq_err    err = {0};
    struct llmq_tensor t = {.role = (uint16_t)role, .expert = LLMQ_NO_EXPERT, .scheme = {.dtype = LLMQ_DTYPE_F32}, .data = w};

    ck_assert_int_eq(llmq_role_shape(&HP, role, &t.n, &t.k), 0);
    ck_assert_int_eq(llmq_tensor_sizes(&t, &err), 0);
    ck_assert_msg(!model_bind(m, &t, &err), "%s", err.text);
}

static void layer_output(const struct net *n, const float *h0, int tokens, float *h)
{
    struct llmq_err  err = {0};
    struct model    *m = model_new(tokens);
    struct kv_store *kv;
    int32_t          pos[64], start[2] = {0, tokens}, len[1] = {tokens}, ps[2] = {0, 1}, page[1] = {0};
    struct batch     b = {.tokens = tokens, .seqs = 1, .pos = pos, .slot = pos, .q_start = start, .kv_len = len, .page_start = ps, .page_table = page};
    static float     a[64 * 112];

    for (int t = 0; t < tokens; t++)
        pos[t] = t;
    ck_assert_int_eq(kv_store_new(&kv, m, KV_F32, 1, 64, 1, &err), 0);
    bind(m, LLMQ_ROLE_ATTN_NORM, n->attn_norm);
    bind(m, LLMQ_ROLE_ATTN_Q, n->q);
    bind(m, LLMQ_ROLE_ATTN_K, n->k);
    bind(m, LLMQ_ROLE_ATTN_V, n->v);
    bind(m, LLMQ_ROLE_ATTN_V_BIAS, n->vb);
    bind(m, LLMQ_ROLE_ATTN_O, n->o);
    bind(m, LLMQ_ROLE_MLP_NORM, n->mlp_norm);
    bind(m, LLMQ_ROLE_MLP_GATE, n->gate);
    bind(m, LLMQ_ROLE_MLP_UP, n->up);
    bind(m, LLMQ_ROLE_MLP_UP_BIAS, n->ub);
    bind(m, LLMQ_ROLE_MLP_DOWN, n->down);
    memcpy(h, h0, (size_t)tokens * 80 * sizeof *h);
    model_attn_norm(m, m->layers, h, tokens, m->x);
    model_attention(m, m->layers, &kv->layer[0], &b, m->x, a);
    model_attn_out(m, m->layers, a, tokens, h);
    model_mlp_norm(m, m->layers, h, tokens, m->x);
    model_mlp_up(m, m->layers, m->x, tokens, a);
    model_mlp_down(m, m->layers, a, tokens, h);
    kv_store_free(kv, m);
    model_close(m);
}

static void net_random(struct net *n)
{
    fill(n->attn_norm, 80, 1, 1);
    fill(n->q, 64 * 80, 2, 0.2f);
    fill(n->k, 32 * 80, 3, 0.2f);
    fill(n->v, 32 * 80, 4, 0.2f);
    fill(n->vb, 32, 5, 0.1f);
    fill(n->o, 80 * 64, 6, 0.2f);
    fill(n->mlp_norm, 80, 7, 1);
    fill(n->gate, 112 * 80, 8, 0.2f);
    fill(n->up, 112 * 80, 9, 0.2f);
    fill(n->ub, 112, 10, 0.1f);
    fill(n->down, 80 * 112, 11, 0.2f);
}

/* Factors between 1/4 and 4. */
static void factors(float *s, int n, uint64_t seed)
{
    struct llmq_rng r;

    llmq_rng_seed(&r, seed);
    for (int i = 0; i < n; i++)
        s[i] = (float)(0.25 * pow(16, llmq_rng_unit(&r)));
}

static void near_to(const float *a, const float *b, int n, float tolerance)
{
    float most = 0;

    for (int i = 0; i < n; i++)
        most = fabsf(a[i]) > most ? fabsf(a[i]) : most;
    for (int i = 0; i < n; i++)
        ck_assert_msg(fabsf(a[i] - b[i]) <= tolerance * most, "%d: %g %g of %g", i, (double)a[i], (double)b[i], (double)most);
}

START_TEST(folding_changes_nothing_in_float)
{
    enum { T = 20 };
    static struct net n;
    static float      h0[T * 80], want[T * 80], got[T * 80], s[112];

    net_random(&n);
    fill(h0, T * 80, 12, 1);
    layer_output(&n, h0, T, want);
    factors(s, 80, 20); /* norm -> q, k, v */
    fold_columns(n.q, 64, 80, s);
    fold_columns(n.k, 32, 80, s);
    fold_columns(n.v, 32, 80, s);
    fold_divide(n.attn_norm, 1, 80, s);
    factors(s, 80, 21); /* norm -> gate, up */
    fold_columns(n.gate, 112, 80, s);
    fold_columns(n.up, 112, 80, s);
    fold_divide(n.mlp_norm, 1, 80, s);
    layer_output(&n, h0, T, got);
    near_to(want, got, T * 80, 2e-6f); /* some tens of float roundings in each sum */
}
END_TEST

/* A producer whose values are those of a grid, so that folding its scales is all that happens. */
static void quantize_rows(struct qmat *q, float *w, uint32_t n, uint32_t k, float *scales, uint8_t *zeros, uint8_t *codes)
{
    *q = (struct qmat){.scheme = scheme(8, 32, 1), .n = n, .k = k, .groups = (k + 31) / 32, .w = w, .scales = scales, .zeros = zeros, .codes = codes};
    grid_fit_rows(&q->scheme, w, n, k, scales, zeros);
    grid_encode_rows(&q->scheme, w, n, k, scales, zeros, codes);
}

static void dequantize_rows(const struct qmat *q, float *w)
{
    for (size_t r = 0; r < q->n; r++)
        for (size_t c = 0; c < q->k; c++)
            w[r * q->k + c] = (float)(q->codes[r * q->k + c] - q->zeros[r * q->groups + c / 32]) * q->scales[r * q->groups + c / 32];
}

START_TEST(folding_into_rows_under_shared_heads)
{
    enum { T = 20 };
    static struct net n;
    static float      h0[T * 80], want[T * 80], got[T * 80], s[112], wide[64], scales[112 * 4];
    static uint8_t    zeros[112 * 4], codes[112 * 80];
    struct qmat       v, up, o = {.k = 64};
    struct stage  st = {.mat = {&o}, .n = 1, .head_dim = 16, .share = 2};

    net_random(&n);
    fill(h0, T * 80, 12, 1);
    quantize_rows(&v, n.v, 32, 80, scales, zeros, codes);
    dequantize_rows(&v, n.v);
    layer_output(&n, h0, T, want);
    ck_assert_int_eq(stage_producers(&st), 32);
    factors(s, 32, 22); /* v -> o: input c of o comes from channel stage_producer(c) of v */
    for (uint32_t c = 0; c < 64; c++)
        wide[c] = s[stage_producer(&st, c)];
    ck_assert(wide[0] == wide[16] && wide[32] == wide[48] && wide[0] != wide[32]); /* heads 0, 1 and 2, 3 share */
    fold_columns(n.o, 80, 64, wide);
    fold_rows(&v, n.vb, s);
    dequantize_rows(&v, n.v);
    layer_output(&n, h0, T, got);
    near_to(want, got, T * 80, 0x1p-10f); /* scales are F16 again */

    quantize_rows(&up, n.up, 112, 80, scales, zeros, codes);
    dequantize_rows(&up, n.up);
    layer_output(&n, h0, T, want);
    factors(s, 112, 23); /* up -> down */
    fold_columns(n.down, 80, 112, s);
    fold_rows(&up, n.ub, s);
    dequantize_rows(&up, n.up);
    layer_output(&n, h0, T, got);
    near_to(want, got, T * 80, 0x1p-10f);
}
END_TEST

START_TEST(limits_keep_scales_normal)
{
    float       scales[6] = {1e-4f, 2e-3f, 0.1f, 60000.0f, 1e-5f, 1.0f}, lo[3], hi[3];
    struct qmat q = {.n = 3, .groups = 2, .scales = scales};

    fold_limits(&q, lo, hi);
    for (int r = 0; r < 3; r++) {
        ck_assert(lo[r] <= 1 && hi[r] >= 1);
        for (int g = 0; g < 2; g++) {
            ck_assert(scales[2 * r + g] / lo[r] <= 65504.0f * 1.0001f);
            ck_assert(scales[2 * r + g] / hi[r] >= 0x1p-14f * 0.9999f || hi[r] == 1);
        }
    }
}
END_TEST

/* ---- one stage ---------------------------------------------------------------------------------------- */

enum { SN = 96, SK = 100, ST = 200 };

struct bench { /* a stage of one matrix */
    struct quantize_options       o;
    struct quantize_report        rep;
    struct quantize_tensor_report tr;
    struct job                    j;
    struct llmq_arena             a;
    struct qmat                   q;
    struct stats                  stats;
    struct stage                  st;
    float                        *x;
};

static void bench_open(struct bench *b, struct llmq_scheme s)
{
    struct llmq_err err = {0};

    memset(b, 0, sizeof *b);
    b->o.method = QUANTIZE_AWQ;
    b->j = (struct job){.o = &b->o, .rep = &b->rep, .m = model_new(64), .hp = &HP};
    ck_assert(!LLMQ_NEW(&b->rep.arena, 1, "a", &err) && !LLMQ_ARENA_NEW(b->rep.arena, &b->rep.warnings, 256, "w", &err));
    b->q = (struct qmat){.scheme = s, .n = SN, .k = SK, .groups = llmq_scheme_groups(&s, SK), .rep = &b->tr};
    b->tr.name = "up";
    b->q.packed = (struct llmq_tensor){.role = LLMQ_ROLE_MLP_UP, .layout = LLMQ_LAYOUT_TILES, .scheme = s, .n = SN, .k = SK, .name = "up"};
    ck_assert_int_eq(llmq_tensor_sizes(&b->q.packed, &err), 0);
    void *data, *scales, *zeros;
    ck_assert(!llmq_arena_alloc(&b->a, &data, b->q.packed.data_bytes, 1, "d", &err) &&
              !llmq_arena_alloc(&b->a, &scales, b->q.packed.scale_bytes, 1, "d", &err) &&
              !llmq_arena_alloc(&b->a, &zeros, b->q.packed.zero_bytes + 1, 1, "d", &err) &&
              !LLMQ_ARENA_NEW(&b->a, &b->q.w, SN * SK, "w", &err) && !LLMQ_ARENA_NEW(&b->a, &b->q.codes, SN * SK, "c", &err) &&
              !LLMQ_ARENA_NEW(&b->a, &b->q.scales, SN * b->q.groups, "s", &err) &&
              !LLMQ_ARENA_NEW(&b->a, &b->q.zeros, SN * b->q.groups, "z", &err) && !LLMQ_ARENA_NEW(&b->a, &b->x, ST * SK, "x", &err) &&
              !stats_init(&b->stats, &b->a, SK, &err));
    b->q.packed.data = data;
    b->q.packed.scales = scales;
    b->q.packed.zeros = s.symmetric ? NULL : zeros;
    b->st = (struct stage){.mat = {&b->q}, .n = 1, .stats = &b->stats};
    fill(b->q.w, SN * SK, 31, 0.1f);
    fill(b->x, ST * SK, 32, 1);
    for (int t = 0; t < ST; t++)
        for (int c = 0; c < SK; c++)
            b->x[t * SK + c] *= c % 17 == 3 ? 30 : c == 50 ? 0 : 1; /* loud channels and a dead one */
}

static void bench_run(struct bench *b)
{
    struct llmq_err err = {0};

    for (int t = 0; t < ST; t += 50)
        stats_add(&b->stats, b->j.m, b->x + t * SK, 50);
    stats_finish(&b->stats);
    ck_assert_msg(!stage_decide(&b->j, &b->st, &b->a, &err), "%s", err.text);
}

static void bench_close(struct bench *b)
{
    model_close(b->j.m);
    llmq_arena_free(&b->a);
    quantize_report_free(&b->rep);
}

/* sum over tokens of |(Q - W) x|^2 / |W x|^2, from the packed tensor, in the input's own units. */
static double true_error(struct bench *b, const float *w)
{
    static float back[SN * SK];
    double       error = 0, norm = 0;

    llmq_dequant_rows(&b->q.packed, 0, SN, back);
    for (int t = 0; t < ST; t++)
        for (int r = 0; r < SN; r++) {
            double e = 0, y = 0;
            for (int c = 0; c < SK; c++) {
                e += ((double)back[r * SK + c] / b->st.s[c] - w[r * SK + c]) * b->x[t * SK + c];
                y += (double)w[r * SK + c] * b->x[t * SK + c];
            }
            error += e * e;
            norm += y * y;
        }
    return sqrt(error / norm);
}

START_TEST(awq_lowers_the_output_error_that_it_reports)
{
    for (int sym = 0; sym < 2; sym++)
        for (int group = 32; group <= 64; group *= 2) {
            static float w[SN * SK];
            struct bench b;
            double       got;

            bench_open(&b, scheme(4, group, sym));
            memcpy(w, b.q.w, sizeof w);
            bench_run(&b);
            got = true_error(&b, w);
            ck_assert_int_eq(b.st.scaled, 1);
            ck_assert_ptr_null(b.tr.fallback);
            ck_assert_double_le(got, 0.75 * b.tr.rtn_rel_err);
            ck_assert_double_eq_tol(got, b.tr.rel_err, 0.1 * got); /* reported from a sample of rows */
            ck_assert(b.st.s[50] == 1);                            /* the dead channel is left alone */
            for (uint32_t i = 0; i < SN * b.q.groups; i++)
                ck_assert(b.q.scales[i] > 0 && b.q.scales[i] < 65504);
            bench_close(&b);
        }
}
END_TEST

START_TEST(the_identity_stays_when_it_is_best)
{
    static float   w[SN * SK];
    struct bench   b;
    struct llmq_rng r;

    bench_open(&b, scheme(4, 32, 1));
    llmq_rng_seed(&r, 5);
    for (int i = 0; i < SN * SK; i++) /* weights that stand on the grid already: nothing can be gained */
        b.q.w[i] = 0.125f * (float)((int)(llmq_rng_unit(&r) * 15) - 7);
    for (int i = 0; i < SN * SK; i++)
        if (i % SK % 32 == 0)
            b.q.w[i] = -1.0f;
    memcpy(w, b.q.w, sizeof w);
    bench_run(&b);
    ck_assert_int_eq(b.st.scaled, 0);
    ck_assert_double_le(true_error(&b, w), 1e-6);
    bench_close(&b);
}
END_TEST

START_TEST(useless_statistics_fall_back_to_nearest)
{
    for (int how = 0; how < 2; how++) {
        static float   w[SN * SK], scales[SN * 4];
        static uint8_t zeros[SN * 4];
        struct bench   b;

        bench_open(&b, scheme(4, 32, 0));
        for (int i = 0; i < ST * SK; i++)
            b.x[i] = how ? 0 : b.x[i];
        b.x[77] = how ? 0 : INFINITY;
        memcpy(w, b.q.w, sizeof w);
        bench_run(&b);
        ck_assert_ptr_nonnull(b.tr.fallback);
        ck_assert_int_eq(b.rep.n_warnings, 1);
        ck_assert_ptr_nonnull(strstr(b.rep.warnings[0], "up"));
        grid_fit_rows(&b.q.scheme, w, SN, SK, scales, zeros);
        ck_assert_mem_eq(scales, b.q.scales, sizeof scales);
        ck_assert_mem_eq(zeros, b.q.zeros, sizeof zeros);
        bench_close(&b);
    }
}
END_TEST

/* ---- GPTQ ---------------------------------------------------------------------------------------------- */

/* Upper U with A^-1 = U^T U, by the textbook: invert, then factor.  n <= SK. */
static void inverse_factor(double a[SK][SK], double u[SK][SK])
{
    static double inv[SK][SK];

    memset(u, 0, sizeof(double[SK][SK]));
    for (int i = 0; i < SK; i++)
        for (int c = 0; c < SK; c++)
            inv[i][c] = i == c;
    for (int p = 0; p < SK; p++) { /* Gauss-Jordan; A is positive definite */
        double d = a[p][p];
        for (int c = 0; c < SK; c++) {
            a[p][c] /= d;
            inv[p][c] /= d;
        }
        for (int i = 0; i < SK; i++) {
            double f = a[i][p];
            for (int c = 0; c < SK && i != p; c++) {
                a[i][c] -= f * a[p][c];
                inv[i][c] -= f * inv[p][c];
            }
        }
    }
    for (int i = 0; i < SK; i++) /* inv = U^T U, rows of U from the top */
        for (int c = i; c < SK; c++) {
            double sum = inv[i][c];
            for (int t = 0; t < i; t++)
                sum -= u[t][i] * u[t][c];
            u[i][c] = c == i ? sqrt(sum) : sum / u[i][i];
        }
}

/* Algorithm 1 of the paper on one row: columns by falling statistics, grids as given. */
static void textbook_row(const struct bench *b, const struct geometry *g, double u[SK][SK], int r, uint8_t *codes)
{
    double   w[SK];
    uint32_t size = b->q.scheme.group ? b->q.scheme.group : SK;

    for (int i = 0; i < SK; i++)
        w[i] = b->q.w[r * SK + (int)g->order[SK - 1 - i]];
    for (int i = 0; i < SK; i++) {
        uint32_t           c = g->order[SK - 1 - i], at = (uint32_t)r * b->q.groups + c / size;
        struct grid_levels l = grid_levels_of(&b->q.scheme, b->q.scales[at], b->q.zeros[at]);
        float              level = grid_level(&l, (float)w[i]);
        double             e = (w[i] - (double)(level * l.scale)) / u[i][i];
        codes[c] = (uint8_t)((int)level + l.zero);
        for (int o = i; o < SK; o++)
            w[o] -= e * u[i][o];
    }
}

static void observe(struct bench *b)
{
    for (int t = 0; t < ST; t += 50)
        stats_add(&b->stats, b->j.m, b->x + t * SK, 50);
    stats_finish(&b->stats);
}

static void damped(const struct geometry *g, double a[SK][SK])
{
    for (int i = 0; i < SK; i++)
        for (int c = 0; c < SK; c++) {
            double h = g->h[g->order[SK - 1 - i] * SK + g->order[SK - 1 - c]];
            a[i][c] = i != c ? h : h > 0 ? h * (1 + (double)g->damp) : 1; /* a dead column stands alone */
        }
}

START_TEST(gptq_is_the_published_algorithm)
{
    for (int sym = 0; sym < 2; sym++) {
        static double   a[SK][SK], u[SK][SK];
        struct bench    b;
        struct geometry g;
        struct llmq_err err = {0};
        const char     *fault;
        int             other = 0;

        bench_open(&b, scheme(4, 32, sym));
        observe(&b);
        ck_assert(!geometry_new(&b.j, &b.stats, &g, &b.a, &fault, &err) && !fault);
        gptq_grids(&b.q, &g);
        ck_assert_int_eq(gptq_codes(&b.j, &b.q, &g, &err), 0);
        damped(&g, a);
        inverse_factor(a, u);
        for (int r = 0; r < SN; r++) {
            uint8_t codes[SK];
            textbook_row(&b, &g, u, r, codes);
            other += memcmp(codes, b.q.codes + r * SK, SK) != 0;
        }
        ck_assert_int_le(other, SN / 32); /* a row whose sum fell on a tie in float goes another way */
        bench_close(&b);
    }
}
END_TEST

/* sum over rows of e A e^T */
static double damped_loss(const struct bench *b, const struct geometry *g)
{
    double   loss = 0;
    uint32_t size = b->q.scheme.group ? b->q.scheme.group : SK;

    for (int r = 0; r < SN; r++) {
        double e[SK];
        for (int c = 0; c < SK; c++) {
            uint32_t at = (uint32_t)r * b->q.groups + (uint32_t)c / size;
            e[c] = (double)b->q.scales[at] * (b->q.codes[r * SK + c] - b->q.zeros[at]) - b->q.w[r * SK + c];
        }
        for (int i = 0; i < SK; i++)
            for (int c = 0; c < SK; c++)
                loss += e[i] * e[c] * (double)g->h[i * SK + c] * (i == c ? 1 + (double)g->damp : 1);
    }
    return loss;
}

START_TEST(each_step_of_gptq_lowers_the_loss)
{
    static const int groups[] = {32, 64, 0};

    for (int i = 0; i < 6; i++) {
        struct bench    b;
        struct geometry g;
        struct llmq_err err = {0};
        const char     *fault;
        double          nearest, solved, descended;

        bench_open(&b, scheme(4, groups[i / 2], i & 1));
        observe(&b);
        ck_assert(!geometry_new(&b.j, &b.stats, &g, &b.a, &fault, &err) && !fault);
        gptq_grids(&b.q, &g);
        grid_encode_rows(&b.q.scheme, b.q.w, SN, SK, b.q.scales, b.q.zeros, b.q.codes);
        nearest = damped_loss(&b, &g);
        ck_assert_int_eq(gptq_codes(&b.j, &b.q, &g, &err), 0);
        solved = damped_loss(&b, &g);
        ck_assert_int_eq(descend_matrix(&b.j, &b.q, &g, &err), 0);
        descended = damped_loss(&b, &g);
        ck_assert_double_lt(solved, 0.8 * nearest);
        ck_assert_double_lt(descended, 0.99 * solved);
        bench_close(&b);
    }
}
END_TEST

/* Two columns that are always equal make H singular; damping takes care of it. */
START_TEST(equal_and_dead_columns_do_not_stop_gptq)
{
    static float w[SN * SK];
    struct bench b;

    bench_open(&b, scheme(4, 32, 1));
    b.o.method = QUANTIZE_GPTQ;
    for (int t = 0; t < ST; t++)
        b.x[t * SK + 8] = b.x[t * SK + 7];
    memcpy(w, b.q.w, sizeof w);
    bench_run(&b);
    ck_assert_ptr_null(b.tr.fallback);
    ck_assert_int_eq(b.st.scaled, 0);
    ck_assert_double_le(true_error(&b, w), 0.7 * b.tr.rtn_rel_err);
    bench_close(&b);
}
END_TEST

/* ---- whole jobs --------------------------------------------------------------------------------------- */

static void write_dense(const char *path)
{
    struct llmq_err     err = {0};
    struct llmq_writer *w;
    int                 roles[24];

    ck_assert_msg(!llmq_writer_open(&w, path, &HP, &err), "%s", err.text);
    for (int per_layer = 0; per_layer < 2; per_layer++)
        for (int i = 0, n = llmq_role_list(&HP, per_layer, roles); i < n; i++) {
            struct llmq_tensor t = {.role = (uint16_t)roles[i], .layer = per_layer ? 0 : LLMQ_NO_LAYER, .expert = LLMQ_NO_EXPERT,
                                    .scheme = {.dtype = LLMQ_DTYPE_F32}, .rel_err = -1, .name = ""};
            float             *v;
            llmq_role_shape(&HP, roles[i], &t.n, &t.k);
            ck_assert_int_eq(llmq_tensor_sizes(&t, &err), 0);
            ck_assert_int_eq(LLMQ_NEW(&v, t.n * t.k, "v", &err), 0);
            fill(v, (size_t)t.n * t.k, 40 + (uint64_t)roles[i], t.k == 1 ? 0.1f : 0.2f);
            for (uint32_t c = 0; t.k == 1 && c < t.n; c++)
                v[c] += 1;
            t.data = v;
            ck_assert_msg(!llmq_writer_put(w, &t, &err), "%s", err.text);
            llmq_free(v);
        }
    ck_assert_msg(!llmq_writer_finish(w, NULL, &err), "%s", err.text);
}

struct corpus_data {
    int32_t              ids[4 * 40];
    struct corpus_window win[4];
    struct corpus        c;
};

static void corpus_fill(struct corpus_data *d)
{
    for (int i = 0; i < 160; i++)
        d->ids[i] = (i * 37 + i / 7) % 96;
    for (int i = 0; i < 4; i++)
        d->win[i] = (struct corpus_window){.start = (size_t)i * 40, .len = 40 - i, .score_from = 1};
    d->c = (struct corpus){.ids = d->ids, .n_ids = 160, .windows = d->win, .n_windows = 4, .ctx = 40, .bos = "none", .packing = "packed"};
}

static int quantize_to(const char *from, const char *to, const struct quantize_options *o, struct quantize_report *r, struct llmq_err *err)
{
    struct llmq_source *src;
    struct llmq_file   *f;
    int                 rc;

    ck_assert_int_eq(llmq_file_open(&f, from, err), 0);
    ck_assert_int_eq(llmq_source_from_file(&src, f, err), 0);
    rc = llmq_quantize(src, to, o, r, err);
    src->close(src);
    return rc;
}

START_TEST(jobs_give_valid_files_with_any_scheme)
{
    struct corpus_data cd;
    char               dense[512], out[512];

    corpus_fill(&cd);
    snprintf(dense, sizeof dense, "%s", unit_tmp("q-dense.llmq"));
    snprintf(out, sizeof out, "%s", unit_tmp("q-out.llmq"));
    write_dense(dense);
    for (int i = 0; i < 32; i++) {
        struct quantize_options o = {.method = (i & 1 ? QUANTIZE_AWQ : 0) | (i & 16 ? QUANTIZE_GPTQ : 0), .bits = i & 2 ? 8 : 4, .group = i & 4 ? 0 : 64,
                                     .symmetric = !!(i & 8), .head_bits = i & 4 ? 0 : 8, .head_group = 128, .calib = &cd.c};
        struct quantize_report  r;
        struct llmq_file       *f;
        struct llmq_err         err = {0};
        ck_assert_msg(!quantize_to(dense, out, &o, &r, &err), "%d: %s", i, err.text);
        ck_assert_int_eq(r.n_tensors, 8);
        for (int t = 0; t < r.n_tensors; t++) {
            ck_assert(r.tensors[t].rel_err >= 0 && r.tensors[t].rel_err < (o.bits == 8 ? 0.02 : 0.3));
            ck_assert(o.method == QUANTIZE_RTN || r.tensors[t].rel_err <= 1.05 * r.tensors[t].rtn_rel_err);
        }
        ck_assert_int_eq(llmq_file_open(&f, out, &err), 0);
        ck_assert_msg(!llmq_file_verify(f, NULL, NULL, NULL, &err), "%s", err.text);
        ck_assert_double_eq_tol(llmq_file_bits_per_weight(f), r.bits_per_weight, 1e-9);
        llmq_file_close(f);
        quantize_report_free(&r);
    }
}
END_TEST

START_TEST(dry_runs_write_nothing_and_cancelled_jobs_leave_nothing)
{
    struct corpus_data      cd;
    struct quantize_options o = {.method = QUANTIZE_AWQ, .bits = 4, .group = 32, .head_bits = 8, .head_group = 128, .calib = &cd.c, .dry_run = 1};
    struct quantize_report  r;
    struct llmq_err         err = {0};
    char                    dense[512], out[512];
    int                     cancel = 1;
    FILE                   *f;

    corpus_fill(&cd);
    snprintf(dense, sizeof dense, "%s", unit_tmp("q-dense2.llmq"));
    snprintf(out, sizeof out, "%s", unit_tmp("q-none.llmq"));
    write_dense(dense);
    ck_assert_int_eq(quantize_to(dense, out, &o, &r, &err), 0);
    ck_assert(r.n_tensors == 8 && r.peak_bytes > 0 && r.size_bytes > 0);
    quantize_report_free(&r);
    f = fopen(out, "r");
    ck_assert_ptr_null(f);
    o.dry_run = 0;
    o.cancel = &cancel;
    ck_assert_int_eq(quantize_to(dense, out, &o, &r, &err), LLMQ_EINTR);
    quantize_report_free(&r);
    f = fopen(out, "r");
    ck_assert_ptr_null(f);
    o.cancel = NULL;
    cd.ids[5] = 96;
    err.code = 0;
    ck_assert_int_eq(quantize_to(dense, out, &o, &r, &err), LLMQ_EFORMAT);
    ck_assert_ptr_nonnull(strstr(err.text, "id 96"));
    quantize_report_free(&r);
}
END_TEST

UNIT_CASE(quantize_grid, grid_reaches_both_ends, grid_of_zeros_is_exact_and_tiny_weights_are_safe, packed_tensors_hold_the_grid)
UNIT_CASE(quantize_fold, statistics_are_the_mean_of_products, folding_changes_nothing_in_float, folding_into_rows_under_shared_heads,
          limits_keep_scales_normal)
UNIT_CASE(quantize_stage, awq_lowers_the_output_error_that_it_reports, the_identity_stays_when_it_is_best,
          useless_statistics_fall_back_to_nearest)
UNIT_CASE(quantize_gptq, gptq_is_the_published_algorithm, each_step_of_gptq_lowers_the_loss, equal_and_dead_columns_do_not_stop_gptq)
UNIT_CASE(quantize_job, jobs_give_valid_files_with_any_scheme, dry_runs_write_nothing_and_cancelled_jobs_leave_nothing)

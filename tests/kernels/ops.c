/* Whole ops: the same result in any pieces and for any number of threads. */
#include "tests/kernels/ops.h"

#include "common/fp.h"
#include "common/parallel.h"
#include "tests/kernels/checkkern.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

struct backend *ck_backend(const char *isa, int threads, int max_k, int max_tokens)
{
    struct backend_config cfg = {.isa = isa, .max_k = (uint32_t)max_k, .max_tokens = (uint32_t)max_tokens};
    struct llmq_err       err = {0};
    struct backend       *be;

    llmq_parallel_set_threads(threads);
    if (llmq_backend_cpu.open(&be, &cfg, &err)) {
        fprintf(stderr, "checkkern: %s\n", err.text);
        exit(1);
    }
    return be;
}

struct weight ck_weight(int bits, int sym, int group, int dtype, int n, int k)
{
    struct weight w = {.n = (uint32_t)n, .k = (uint32_t)k, .n_pad = (uint32_t)(n + 15) & ~15u,
                       .k_pad = (uint32_t)(k + 63) & ~63u, .layout = LLMQ_LAYOUT_TILES};
    size_t        groups = group ? (size_t)((k + group - 1) / group) : 1;
    uint8_t      *zeros;

    if (!bits) {
        w.scheme.dtype = (uint8_t)dtype;
        w.layout = LLMQ_LAYOUT_ROWS;
        w.data = ck_elements((size_t)n * (size_t)k, dtype);
        return w;
    }
    w.scheme = (struct llmq_scheme){.kind = LLMQ_KIND_INT, .bits = (uint8_t)bits, .symmetric = (uint8_t)sym,
                                    .scale_dtype = LLMQ_DTYPE_F16, .group = (uint32_t)group};
    w.data = ck_bytes((size_t)w.n_pad * w.k_pad * (size_t)bits / 8);
    w.scales = ck_scales(w.n_pad * groups);
    if (!sym) {
        zeros = ck_bytes(w.n_pad * groups);
        for (size_t i = 0; i < w.n_pad * groups && bits == 4; i++)
            zeros[i] &= 15;
        w.zeros = zeros;
    }
    return w;
}

/* ---- linear --------------------------------------------------------------------------------------------- */

enum { LIN_K = 172, LIN_TOKENS = 70, LIN_PARTS = 3 };
static const int lin_n[LIN_PARTS] = {100, 33, 17};

static void linear_in_pieces(struct backend *be, struct op_linear op, int piece, float *const y[LIN_PARTS])
{
    const float *x = op.x;

    for (int t = 0; t < LIN_TOKENS; t += op.tokens) {
        op.tokens = LIN_TOKENS - t < piece ? LIN_TOKENS - t : piece;
        op.x = x + t * LIN_K;
        for (int p = 0; p < op.parts; p++)
            op.y[p] = y[p] + t * lin_n[p];
        llmq_backend_cpu.linear(be, &op);
    }
}

static int linear_case(const char *isa, const struct weight w[LIN_PARTS], int parts, int add)
{
    static const int pieces[] = {LIN_TOKENS, 1, 2, 3, 7, 64}, threads[] = {1, 1, 2, 1, 3, 2};
    struct op_linear op = {.x = ck_floats(LIN_TOKENS * LIN_K), .parts = parts, .add = add};
    float           *y[COUNT(pieces)][LIN_PARTS];
    int              bad = 0;

    for (int p = 0; p < parts; p++) {
        op.w[p] = &w[p];
        y[0][p] = ck_floats((size_t)(LIN_TOKENS * lin_n[p]));
        for (int i = 1; i < COUNT(pieces); i++) {
            y[i][p] = ck_new((size_t)(LIN_TOKENS * lin_n[p]) * 4);
            memcpy(y[i][p], y[0][p], (size_t)(LIN_TOKENS * lin_n[p]) * 4);
        }
    }
    for (int i = 0; i < COUNT(pieces); i++) {
        struct backend *be = ck_backend(isa, threads[i], LIN_K, i % 2 ? 5 : LIN_TOKENS);

        linear_in_pieces(be, op, pieces[i], y[i]);
        for (int p = 0; p < parts; p++)
            bad += memcmp(y[i][p], y[0][p], (size_t)(LIN_TOKENS * lin_n[p]) * 4) != 0;
        llmq_backend_cpu.close(be);
    }
    return bad;
}

static int linear_pieces(const char *isa)
{
    static const int kinds[][3] = {{0, 0, LLMQ_DTYPE_F32}, {0, 0, LLMQ_DTYPE_F16}, {0, 0, LLMQ_DTYPE_BF16},
                                   {4, 64, 0}, {8, 32, 0}, {4, 128, 0}, {8, 0, 0}, {4, 64, 0}};
    int              bad = 0;

    for (int i = 0; i < COUNT(kinds); i++, ck_free_all()) {
        struct weight w[LIN_PARTS];

        for (int p = 0; p < LIN_PARTS; p++) { /* parts of different kinds in one op */
            const int *kind = kinds[(i + p * (i % 3)) % COUNT(kinds)];

            w[p] = ck_weight(kind[0], p % 2, kind[1], kind[2], lin_n[p], LIN_K);
            w[p].bias = i % 2 ? ck_floats((size_t)lin_n[p]) : NULL;
        }
        bad += linear_case(isa, w, LIN_PARTS, 0) + linear_case(isa, w, 1, 1);
    }
    return bad;
}

/* ---- attention ------------------------------------------------------------------------------------------------ */

/* Stores K and V through the op that does it in a model (with no rotation: cos 1, sin 0). */
static void store_kv(struct ck_attn *a)
{
    size_t            hd = (size_t)a->kv.head_dim, width = (size_t)a->kv.n_kv_heads * hd;
    float            *cs = ck_new(hd * 4);
    int32_t          *pos = ck_new((size_t)a->len * 4), *slot = ck_new((size_t)a->len * 4);
    float            *k = ck_new((size_t)a->len * width * 4);
    struct backend   *be = ck_backend("scalar", 1, (int)hd, 1);
    struct op_rope_kv op = {.q = ck_new(4), .k = k, .v = a->v, .cos_sin = cs, .pos = pos, .slot = slot, .kv = a->kv,
                            .tokens = a->len, .n_heads = 0};

    memcpy(k, a->k, (size_t)a->len * width * 4);
    for (size_t i = 0; i < hd; i++)
        cs[i] = i < hd / 2;
    for (int t = 0; t < a->len; t++) {
        pos[t] = 0;
        slot[t] = a->page_table[t / a->kv.page_tokens] * a->kv.page_tokens + t % a->kv.page_tokens;
    }
    llmq_backend_cpu.rope_kv(be, &op);
    llmq_backend_cpu.close(be);
}

struct ck_attn ck_attention(int n_heads, int n_kv_heads, int hd, int len, int page_tokens, enum kv_dtype dtype)
{
    int            pages = (len + page_tokens - 1) / page_tokens, width = n_kv_heads * hd;
    size_t         bytes = (size_t)pages * (size_t)page_tokens * (size_t)width * (dtype == KV_F16 ? 2 : 4);
    struct ck_attn a = {.n_heads = n_heads, .len = len, .q = ck_floats((size_t)len * (size_t)(n_heads * hd)),
                        .k = ck_floats((size_t)len * (size_t)width), .v = ck_floats((size_t)len * (size_t)width),
                        .page_table = ck_new((size_t)pages * 4),
                        .kv = {.dtype = dtype, .page_tokens = page_tokens, .n_kv_heads = n_kv_heads, .head_dim = hd,
                               .k = ck_new(bytes), .v = ck_new(bytes)}};

    for (int i = 0; i < pages; i++)
        a.page_table[i] = i;
    for (int i = pages - 1; i > 0; i--) {
        int j = (int)(ck_random() % (uint64_t)(i + 1)), t = a.page_table[i];
        a.page_table[i] = a.page_table[j];
        a.page_table[j] = t;
    }
    for (int i = 0; dtype == KV_F16 && i < len * width; i++) { /* so that k and v say what the pages hold */
        a.k[i] = llmq_f16_to_f32(llmq_f32_to_f16(a.k[i]));
        a.v[i] = llmq_f16_to_f32(llmq_f32_to_f16(a.v[i]));
    }
    store_kv(&a);
    return a;
}

void ck_attend(struct backend *be, const struct ck_attn *a, int first, int count, float *out)
{
    size_t              width = (size_t)(a->n_heads * a->kv.head_dim);
    int32_t             q_start[2] = {0, count}, kv_len[1] = {first + count}, page_start[2] = {0, 0};
    struct op_attention op = {.out = out + (size_t)first * width, .q = a->q + (size_t)first * width, .kv = a->kv,
                              .page_table = a->page_table, .page_start = page_start, .q_start = q_start,
                              .kv_len = kv_len, .seqs = 1, .tokens = count, .n_heads = a->n_heads, .scale = 0.125f};

    llmq_backend_cpu.attention(be, &op);
}

static int attention_case(const char *isa, const struct ck_attn *a)
{
    static const int pieces[] = {100000, 1, 3, 40, 256}, threads[] = {1, 2, 2, 3, 1};
    size_t           n = (size_t)a->len * (size_t)(a->n_heads * a->kv.head_dim);
    float           *out[COUNT(pieces)];
    int              bad = 0;

    for (int i = 0; i < COUNT(pieces); i++) {
        struct backend *be = ck_backend(isa, threads[i], a->n_heads * a->kv.head_dim, 1);

        out[i] = ck_new(n * 4);
        for (int t = 0; t < a->len; t += pieces[i])
            ck_attend(be, a, t, a->len - t < pieces[i] ? a->len - t : pieces[i], out[i]);
        bad += memcmp(out[i], out[0], n * 4) != 0;
        llmq_backend_cpu.close(be);
    }
    return bad;
}

static int attention_pieces(const char *isa)
{
    static const int shapes[][5] = {/* heads, key heads, head size, tokens, tokens in a page */
                                    {9, 3, 64, 300, 16}, {4, 1, 8, 600, 7}, {2, 2, 20, 257, 32}, {10, 1, 16, 270, 64}};
    int              bad = 0;

    for (int i = 0; i < COUNT(shapes); i++)
        for (int dtype = KV_F32; dtype <= KV_F16; dtype++, ck_free_all()) {
            const int     *s = shapes[i];
            struct ck_attn a = ck_attention(s[0], s[1], s[2], s[3], s[4], (enum kv_dtype)dtype);

            if (!strcmp(isa, "scalar") && s[2] == 64) /* slow, and the others show as much */
                continue;
            bad += attention_case(isa, &a);
        }
    return bad;
}

/* Several sequences in one op against each alone. */
static int attention_batch(const char *isa)
{
    enum { SEQS = 3, HEADS = 4, HD = 16, PAGE = 16, LEN = 300 };
    static const int    ends[SEQS] = {300, 17, 280}, news[SEQS] = {1, 17, 30};
    struct ck_attn      a = ck_attention(HEADS, 2, HD, LEN, PAGE, KV_F16);
    struct backend     *be = ck_backend(isa, 2, HEADS * HD, 64);
    int                 pages = (LEN + PAGE - 1) / PAGE, row = HEADS * HD, bad = 0;
    int32_t             q_start[SEQS + 1] = {0}, page_start[SEQS + 1] = {0}, kv_len[SEQS];
    int32_t            *table = ck_new((size_t)(SEQS * pages) * 4);
    float              *q = ck_new(64 * (size_t)row * 4), *out = ck_new(64 * (size_t)row * 4), *all = ck_new((size_t)(LEN * row) * 4);
    struct op_attention op = {.out = out, .q = q, .kv = a.kv, .page_table = table, .page_start = page_start,
                              .q_start = q_start, .kv_len = kv_len, .seqs = SEQS, .n_heads = HEADS, .scale = 0.125f};

    for (int s = 0; s < SEQS; s++) {
        kv_len[s] = ends[s];
        q_start[s + 1] = q_start[s] + news[s];
        page_start[s + 1] = page_start[s] + pages;
        memcpy(table + page_start[s], a.page_table, (size_t)pages * 4);
        memcpy(q + q_start[s] * row, a.q + (ends[s] - news[s]) * row, (size_t)(news[s] * row) * 4);
    }
    op.tokens = q_start[SEQS];
    llmq_backend_cpu.attention(be, &op);
    ck_attend(be, &a, 0, LEN, all);
    for (int s = 0; s < SEQS; s++)
        bad += memcmp(out + q_start[s] * row, all + (ends[s] - news[s]) * row, (size_t)(news[s] * row) * 4) != 0;
    llmq_backend_cpu.close(be);
    return bad;
}

/* ---- the others -------------------------------------------------------------------------------------------------- */

static int gram_threads(const char *isa)
{
    enum { K = 150, TOKENS = 130 };
    const float *x = ck_floats(TOKENS * K);
    double      *g[2];

    for (int i = 0; i < 2; i++) {
        struct backend *be = ck_backend(isa, i + 1, K, TOKENS);
        struct op_gram  op = {.g = g[i] = ck_new(K * K * 8), .x = x, .tokens = TOKENS, .k = K};

        for (int j = 0; j < K * K; j++)
            g[i][j] = j % K > j / K ? 12345 : 1; /* above the diagonal nothing may change */
        llmq_backend_cpu.gram(be, &op);
        llmq_backend_cpu.close(be);
    }
    for (int j = 0; j < K * K; j++)
        if (j % K > j / K && g[0][j] != 12345)
            return 1;
    return memcmp(g[0], g[1], K * K * 8) != 0;
}

static int lse_threads(const char *isa)
{
    enum { ROWS = 40, N = 5000 };
    const float *x = ck_floats(ROWS * N);
    float       *max[2];
    double      *lse[2];

    for (int i = 0; i < 2; i++) {
        struct backend     *be = ck_backend(isa, i + 1, 64, ROWS);
        struct op_logsumexp op = {.logits = x, .max = max[i] = ck_new(ROWS * 4), .lse = lse[i] = ck_new(ROWS * 8),
                                  .rows = ROWS, .n = N};

        llmq_backend_cpu.logsumexp(be, &op);
        llmq_backend_cpu.close(be);
    }
    return memcmp(max[0], max[1], ROWS * 4) != 0 || memcmp(lse[0], lse[1], ROWS * 8) != 0;
}

const struct ck_test ck_invariances[] = {
    {"op linear, pieces", linear_pieces},
    {"op attention, pieces", attention_pieces},
    {"op attention, batch", attention_batch},
    {"op gram, threads", gram_threads},
    {"op logsumexp, threads", lse_threads},
};
const int ck_n_invariances = COUNT(ck_invariances);

/* The scalar kernels, the definition of all others, against double precision.
 *
 * Tolerances are derived from what a kernel rounds (ck_tolerance), never literal. */
#include "tests/kernels/checkkern.h"
#include "tests/kernels/ops.h"

#include "common/fmath.h"
#include "common/fp.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

static struct cpu_kernels scalar(void)
{
    struct cpu_kernels k;

    kernels_fill(&k, CPU_SCALAR);
    return k;
}

static int off(double got, double want, double tol) { return !(fabs(got - want) <= tol); }

static double element(const void *p, int dtype, size_t i)
{
    return dtype == LLMQ_DTYPE_F32   ? (double)((const float *)p)[i]
           : dtype == LLMQ_DTYPE_F16 ? (double)llmq_f16_to_f32(((const uint16_t *)p)[i])
                                     : (double)llmq_bf16_to_f32(((const uint16_t *)p)[i]);
}

static int ref_dense(const char *isa)
{
    struct cpu_kernels kern = scalar();
    int                bad = 0;

    (void)isa;
    for (int k = 1; k < 400; k += 37)
        for (int dtype = LLMQ_DTYPE_F32; dtype <= LLMQ_DTYPE_BF16; dtype++, ck_free_all()) {
            enum { N = 5, M = 3 };
            const float     *y0 = ck_floats(N * M);
            struct cpu_dense a = {.w = ck_elements((size_t)(N * k), dtype), .ldw = (size_t)k, .ldx = (size_t)k, .ldy = N,
                                  .x = ck_floats((size_t)(M * k)), .y = ck_new(N * M * 4), .bias = ck_floats(N),
                                  .dtype = dtype, .n = N, .m = M, .k = k, .add = 1};

            memcpy(a.y, y0, N * M * 4);
            kern.dense_many(&a);
            for (int i = 0; i < N * M; i++) {
                double sum = (double)y0[i] + (double)a.bias[i % N], mag = fabs((double)y0[i]) + fabs((double)a.bias[i % N]);

                for (int j = 0; j < k; j++) {
                    double p = element(a.w, dtype, (size_t)(i % N * k + j)) * (double)a.x[i / N * k + j];
                    sum += p;
                    mag += fabs(p);
                }
                bad += off((double)a.y[i], sum, ck_tolerance(k, mag));
            }
        }
    return bad;
}

/* One output of tiles, from the codes: group sums are exact, so only the sum over groups rounds. */
static int tiles_output(const struct cpu_tiles *a, int bits, int o)
{
    double sum = a->bias ? (double)a->bias[o] : 0, mag = fabs(sum);

    for (int k = 0; k < a->ng * a->gw && k < a->k_pad; k++) {
        int    g = k / a->gw, at = (o / 16 * a->groups + g / a->per_scale) * 16 + o % 16, row = k % 64;
        int    byte = bits == 8 ? k / 4 * 64 + o % 16 * 4 + k % 4 : k / 64 * 512 + row % 32 / 4 * 64 + o % 16 * 4 + k % 4;
        int    code = a->w[(size_t)(o / 16 * a->k_pad * 2 * bits + byte)];
        double w;

        if (bits == 4)
            code = row < 32 ? code & 15 : code >> 4;
        w = (double)llmq_f16_to_f32(a->scales[at]) * (code - (a->zeros ? a->zeros[at] : a->zero));
        sum += w * (double)a->xs[g] * a->v[cpu_act_index(k)];
        mag += fabs(w) * (double)a->xs[g] * CPU_ACT_MAX;
    }
    return off((double)a->y[o], sum, ck_tolerance(a->ng, mag));
}

static int ref_tiles(const char *isa)
{
    static const int groups[] = {32, 64, 128, 256, 0};
    struct cpu_kernels kern = scalar();
    int                bad = 0;

    (void)isa;
    for (int g = 0; g < COUNT(groups); g++)
        for (int bits = 4; bits <= 8; bits += 4)
            for (int k = 20; k < 700; k += 113, ck_free_all()) {
                struct cpu_tiles a = ck_tiles(bits, k % 2, groups[g], 33, k, 1);

                a.add = 0;
                a.y = ck_new(a.ldy * 4);
                (bits == 4 ? kern.q4_one : kern.q8_one)(&a, 0, 3);
                for (int o = 0; o < a.n; o++)
                    bad += tiles_output(&a, bits, o);
            }
    return bad;
}

/* Every activation is within half a step of its code (and a rounding of the code before it). */
static int ref_act_quant(const char *isa)
{
    enum { K = 300, PAD = 320, GW = 64 };
    struct cpu_kernels kern = scalar();
    int                bad = 0;

    (void)isa;
    for (int round = 0; round < 50; round++, ck_free_all()) {
        float    xs[5];
        int32_t  sum[5], total = 0;
        int16_t *v = ck_new(PAD * 2);
        float   *x = ck_floats(K);

        kern.act_quant(v, xs, sum, x, K, PAD, GW);
        for (int k = 0; k < PAD; k++) {
            double want = k < K ? (double)x[k] : 0, step = (double)xs[k / GW];

            total += v[cpu_act_index(k)];
            bad += off(step * v[cpu_act_index(k)], want, 0.5 * step + ck_tolerance(1, fabs(want)));
        }
        bad += total != sum[0] + sum[1] + sum[2] + sum[3] + sum[4];
    }
    return bad;
}

static int ref_rmsnorm(const char *isa)
{
    struct cpu_kernels kern = scalar();
    int                bad = 0;

    (void)isa;
    for (int d = 1; d < 600; d += 71, ck_free_all()) {
        const float *x = ck_floats((size_t)d), *w = ck_floats((size_t)d);
        float       *y = ck_new((size_t)d * 4);
        double       sum = 0;

        kern.rmsnorm(y, x, w, d, 1e-5f);
        for (int i = 0; i < d; i++)
            sum += (double)x[i] * (double)x[i];
        for (int i = 0; i < d; i++) {
            double want = (double)x[i] / sqrt(sum / d + (double)1e-5f) * (double)w[i];
            bad += off((double)y[i], want, ck_tolerance(d, fabs(want)));
        }
    }
    return bad;
}

static int ref_rope_swiglu(const char *isa)
{
    enum { N = 64 };
    struct cpu_kernels kern = scalar();
    float             *x = ck_floats(2 * N), *y = ck_new(2 * N * 4);
    const float       *cs = ck_floats(2 * N);
    int                bad = 0;

    (void)isa;
    memcpy(y, x, 2 * N * 4);
    kern.rope(y, cs, N);
    for (int i = 0; i < N; i++) {
        double a = (double)x[i], b = (double)x[i + N], c = (double)cs[i], s = (double)cs[i + N];

        bad += off((double)y[i], a * c - b * s, ck_tolerance(2, fabs(a * c) + fabs(b * s)));
        bad += off((double)y[i + N], b * c + a * s, ck_tolerance(2, fabs(b * c) + fabs(a * s)));
    }
    kern.swiglu(y, x, cs, N);
    for (int i = 0; i < N; i++) {
        double want = (double)x[i] / (1 + exp(-(double)x[i])) * (double)cs[i];
        bad += off((double)y[i], want, ck_tolerance(4, fabs(want) + 0x1p-120));
    }
    return bad;
}

/* One output row of attention.  Scores are off by at most d, so every weight by a factor e^2d; one below
 * e^LLMQ_EXPF_MIN is taken as 0. */
static int attention_row(const struct ck_attn *a, int t, int h, const float *out)
{
    int          hd = a->kv.head_dim, kvh = a->kv.n_kv_heads, g = h / (a->n_heads / kvh), bad = 0;
    const float *q = a->q + (t * a->n_heads + h) * hd;
    double      *s = ck_new((size_t)(t + 1) * 8), top = -INFINITY, sum = 0, d = 0;

    for (int j = 0; j <= t; j++) {
        double mag = 0;

        s[j] = 0;
        for (int i = 0; i < hd; i++) {
            double p = (double)q[i] * (double)a->k[(j * kvh + g) * hd + i] * 0.125;
            s[j] += p;
            mag += fabs(p);
        }
        top = fmax(top, s[j]);
        d = fmax(d, ck_tolerance(hd, mag));
    }
    for (int j = 0; j <= t; j++)
        sum += s[j] = exp(s[j] - top);
    for (int i = 0; i < hd; i++) {
        double want = 0, mag = 0, lost = 0;

        for (int j = 0; j <= t; j++) {
            double p = s[j] / sum * (double)a->v[(j * kvh + g) * hd + i];
            want += p;
            mag += fabs(p);
            lost += exp((double)LLMQ_EXPF_MIN) * fabs((double)a->v[(j * kvh + g) * hd + i]);
        }
        bad += off((double)out[(t * a->n_heads + h) * hd + i], want,
                   ck_tolerance(t + 16, mag) + mag * (exp(2 * d) - 1) + lost);
    }
    return bad;
}

static int ref_attention(const char *isa)
{
    int bad = 0;

    for (int dtype = KV_F32; dtype <= KV_F16; dtype++, ck_free_all()) {
        struct ck_attn  a = ck_attention(4, 2, 16, 530, 10, (enum kv_dtype)dtype);
        struct backend *be = ck_backend(isa, 1, 64, 16);
        float          *out = ck_new(530 * 64 * 4);

        ck_attend(be, &a, 0, 530, out);
        llmq_backend_cpu.close(be);
        for (int t = 0; t < 530; t += t < 20 || t > 500 ? 1 : 31)
            for (int h = 0; h < 4; h++)
                bad += attention_row(&a, t, h, out);
    }
    return bad;
}

static int ref_gram(const char *isa)
{
    enum { K = 70, TOKENS = 150 };
    const float    *x = ck_floats(TOKENS * K);
    double         *g = ck_new(K * K * 8);
    struct backend *be = ck_backend(isa, 1, K, TOKENS);
    struct op_gram  op = {.g = g, .x = x, .tokens = TOKENS, .k = K};
    int             bad = 0;

    memset(g, 0, K * K * 8);
    llmq_backend_cpu.gram(be, &op);
    llmq_backend_cpu.close(be);
    for (int i = 0; i < K; i++)
        for (int j = 0; j <= i; j++) {
            double want = 0, mag = 0;

            for (int t = 0; t < TOKENS; t++) {
                double p = (double)x[t * K + i] * (double)x[t * K + j];
                want += p;
                mag += fabs(p);
            }
            bad += off(g[i * K + j], want, ck_tolerance(CPU_GRAM_TOKENS, mag));
        }
    return bad;
}

static int ref_logsumexp(const char *isa)
{
    static const int lengths[] = {1, 17, 5000, 49152};
    struct backend  *be = ck_backend(isa, 1, 64, 1);
    int              bad = 0;

    for (int i = 0; i < COUNT(lengths); i++, ck_free_all()) {
        float              *x = ck_floats((size_t)lengths[i]), max;
        double              lse, sum = 0;
        struct op_logsumexp op = {.logits = x, .max = &max, .lse = &lse, .rows = 1, .n = lengths[i]};

        llmq_backend_cpu.logsumexp(be, &op);
        for (int j = 0; j < lengths[i]; j++)
            sum += exp((double)x[j] - (double)max);
        bad += off(lse, (double)max + log(sum), ck_tolerance(CPU_LSE_BLOCK / CPU_LANES, 1) + ck_tolerance(1, (double)max));
    }
    llmq_backend_cpu.close(be);
    return bad;
}

/* Rows out of tiles and out of dense tables. */
static int ref_embed(const char *isa)
{
    enum { N = 40, K = 100 };
    static const int kinds[][3] = {{0, 0, LLMQ_DTYPE_BF16}, {4, 32, 0}, {4, 0, 0}, {8, 64, 0}};
    static const int32_t ids[] = {0, 39, 17, 15, 16};
    int              bad = 0;

    for (int i = 0; i < COUNT(kinds); i++, ck_free_all()) {
        struct weight   w = ck_weight(kinds[i][0], i % 2, kinds[i][1], kinds[i][2], N, K);
        struct backend *be = ck_backend(isa, 1, K, 8);
        float          *out = ck_new(5 * K * 4), *want = ck_new(5 * K * 4);
        struct op_embed op = {.out = out, .table = &w, .ids = ids, .tokens = 5};
        struct llmq_tensor t = {.scheme = w.scheme, .layout = w.layout, .n = N, .k = K, .n_pad = w.n_pad, .k_pad = w.k_pad,
                                .data = w.data, .scales = w.scales, .zeros = w.zeros};

        llmq_backend_cpu.embed(be, &op);
        llmq_backend_cpu.close(be);
        for (int j = 0; j < 5; j++)
            llmq_dequant_rows(&t, (uint32_t)ids[j], 1, want + j * K);
        bad += memcmp(out, want, 5 * K * 4) != 0;
    }
    return bad;
}

const struct ck_test ck_references[] = {
    {"dense", ref_dense},         {"tiles", ref_tiles},         {"act_quant", ref_act_quant},
    {"rmsnorm", ref_rmsnorm},     {"rope, swiglu", ref_rope_swiglu}, {"attention", ref_attention},
    {"gram", ref_gram},           {"logsumexp", ref_logsumexp}, {"embed = dequant_rows", ref_embed},
};
const int ck_n_references = COUNT(ck_references);

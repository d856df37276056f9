/* The scalar kernels: the definition of every slot of kernels.h.
 *
 * Written to be read, not to be fast; what the other files compute must equal this bit for bit. */
#include "runner/cpu/kernels.h"

#include "common/fmath.h"
#include "common/fp.h"

#include <math.h>
#include <string.h>

/* ---- conversions ---------------------------------------------------------------------------- */

static float element(const void *src, int dtype, size_t i)
{
    switch (dtype) {
    case LLMQ_DTYPE_F16:
        return llmq_f16_to_f32(((const uint16_t *)src)[i]);
    case LLMQ_DTYPE_BF16:
        return llmq_bf16_to_f32(((const uint16_t *)src)[i]);
    default:
        return ((const float *)src)[i];
    }
}

static void widen(float *dst, const void *src, int dtype, size_t count)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = element(src, dtype, i);
}

static void narrow_f16(uint16_t *dst, const float *src, size_t count)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = llmq_f32_to_f16(src[i]);
}

/* ---- float dot products ----------------------------------------------------------------------- */

static float fold(float a[CPU_LANES])
{
    for (int w = CPU_LANES / 2; w; w /= 2)
        for (int i = 0; i < w; i++)
            a[i] = a[i] + a[i + w];
    return a[0];
}

static float dot16(const void *w, int dtype, size_t first, const float *x, int k)
{
    float a[CPU_LANES] = {0};

    for (int i = 0; i < k; i++)
        a[i % CPU_LANES] = fmaf(element(w, dtype, first + (size_t)i), x[i], a[i % CPU_LANES]);
    return fold(a);
}

static void finish(float *y, float acc, const float *bias, int o, int add)
{
    if (bias)
        acc = acc + bias[o];
    *y = add ? *y + acc : acc;
}

static void dense(const struct cpu_dense *a)
{
    for (int t = 0; t < a->m; t++)
        for (int o = 0; o < a->n; o++)
            finish(a->y + (size_t)t * a->ldy + o,
                   dot16(a->w, a->dtype, (size_t)o * a->ldw, a->x + (size_t)t * a->ldx, a->k), a->bias, o, a->add);
}

/* ---- integer weights ---------------------------------------------------------------------------- */

static float group_amax(const float *x, int n)
{
    uint32_t amax = 0;

    for (int i = 0; i < n; i++) { /* as integers: NaN counts as the largest */
        uint32_t u = llmq_fp_bits(x[i]) & 0x7fffffffu;
        if (u > amax)
            amax = u;
    }
    return llmq_fp_from_bits(amax);
}

static int act_code(float x, float inv)
{
    float r = rintf(x * inv);

    r = r > CPU_ACT_MAX ? CPU_ACT_MAX : r;
    r = r < -CPU_ACT_MAX ? -CPU_ACT_MAX : r;
    return (int)r;
}

static void act_quant(int16_t *v, float *xs, int32_t *sum, const float *x, int k, int k_pad, int gw)
{
    memset(v, 0, (size_t)k_pad * sizeof *v);
    for (int g = 0; g * gw < k; g++) {
        int   first = g * gw, n = k - first < gw ? k - first : gw;
        float amax = group_amax(x + first, n);
        int   usable = amax >= 0x1p-100f && amax < INFINITY;

        xs[g] = usable ? amax / CPU_ACT_MAX : amax < 0x1p-100f ? 0.0f : amax;
        sum[g] = 0;
        for (int i = 0; usable && i < n; i++) {
            int c = act_code(x[first + i], CPU_ACT_MAX / amax);
            v[cpu_act_index(first + i)] = (int16_t)c;
            sum[g] += c;
        }
    }
}

/* The code of output o, input k of a block of 16 outputs. */
static int tile_code(const uint8_t *block, int bits, int o, int k)
{
    int j = k / LLMQ_TILE_K, i = k % LLMQ_TILE_K;

    if (bits == 8)
        return block[j * 1024 + i / 4 * 64 + o * 4 + i % 4];
    return block[j * 512 + i % 32 / 4 * 64 + o * 4 + i % 4] >> (i < 32 ? 0 : 4) & 15;
}

static float tile_dot(const struct cpu_tiles *a, int bits, int block, int o, int t)
{
    const uint8_t *w = a->w + (size_t)block * (size_t)a->k_pad * 2 * (size_t)bits;
    const int16_t *v = a->v + (size_t)t * (size_t)a->k_pad;
    float          acc = 0.0f;

    for (int g = 0; g < a->ng; g++) {
        size_t   at = ((size_t)block * (size_t)a->groups + (size_t)(g / a->per_scale)) * 16 + (size_t)o;
        size_t   tg = (size_t)t * (size_t)a->ng + (size_t)g;
        int      end = (g + 1) * a->gw < a->k_pad ? (g + 1) * a->gw : a->k_pad;
        uint32_t s = 0; /* wraps on the way; the total fits */

        for (int k = g * a->gw; k < end; k++)
            s += (uint32_t)(tile_code(w, bits, o, k) * v[cpu_act_index(k)]);
        s -= (uint32_t)(a->zeros ? a->zeros[at] : a->zero) * (uint32_t)a->sum[tg];
        acc = acc + (llmq_f16_to_f32(a->scales[at]) * a->xs[tg]) * (float)(int32_t)s;
    }
    return acc;
}

static void tiles(const struct cpu_tiles *a, int bits, int block0, int block1)
{
    for (int b = block0; b < block1; b++)
        for (int t = 0; t < a->m; t++)
            for (int o = 0; o < LLMQ_TILE_N && b * LLMQ_TILE_N + o < a->n; o++)
                finish(a->y + (size_t)t * a->ldy + b * LLMQ_TILE_N + o, tile_dot(a, bits, b, o, t), a->bias,
                       b * LLMQ_TILE_N + o, a->add);
}

static void q4(const struct cpu_tiles *a, int block0, int block1) { tiles(a, 4, block0, block1); }
static void q8(const struct cpu_tiles *a, int block0, int block1) { tiles(a, 8, block0, block1); }

/* ---- elementwise ---------------------------------------------------------------------------------- */

static void rmsnorm(float *out, const float *x, const float *w, int d, float eps)
{
    float r = 1.0f / sqrtf(dot16(x, LLMQ_DTYPE_F32, 0, x, d) / (float)d + eps);

    for (int i = 0; i < d; i++)
        out[i] = (x[i] * r) * w[i];
}

static void rope(float *x, const float *cs, int half)
{
    for (int i = 0; i < half; i++) {
        float a = x[i], b = x[i + half], c = cs[i], s = cs[i + half];

        x[i] = a * c - b * s;
        x[i + half] = b * c + a * s;
    }
}

static void swiglu(float *out, const float *gate, const float *up, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = gate[i] / (1.0f + llmq_expf(-gate[i])) * up[i];
}

/* ---- attention -------------------------------------------------------------------------------------- */

static void scores_few(float *s, const float *const *q, int rows, const void *const *k, int dtype, int n, int hd,
                       float scale)
{
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < n; j++)
            s[r * CPU_PART + j] = dot16(k[j], dtype, 0, q[r], hd) * scale;
}

static void keys_turn(float *kt, const void *const *k, int dtype, int n, int hd)
{
    for (int d = 0; d < hd; d++)
        for (int j = 0; j < CPU_LANES; j++)
            kt[d * CPU_LANES + j] = j < n ? element(k[j], dtype, (size_t)d) : 0.0f;
}

static void scores_many(float *s, const float *const *q, int rows, const float *kt, int n, int hd, float scale)
{
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < n; j++) {
            const float *kj = kt + (size_t)(j / CPU_LANES) * (size_t)hd * CPU_LANES + j % CPU_LANES;
            float        a[CPU_LANES] = {0};

            for (int d = 0; d < hd; d++)
                a[d % CPU_LANES] = fmaf(q[r][d], kj[d * CPU_LANES], a[d % CPU_LANES]);
            s[r * CPU_PART + j] = fold(a) * scale;
        }
}

/* The largest of n; where zeros of both signs or NaN meet, the sign or NaN that comes out is not defined. */
static float row_max(const float *x, int n)
{
    float m = x[0];

    for (int i = 1; i < n; i++)
        m = x[i] > m ? x[i] : m;
    return m;
}

static void softmax(float *s, int n, float *m, float *l)
{
    float lane[CPU_LANES] = {0};

    *m = row_max(s, n);
    for (int j = 0; j < n; j++) {
        s[j] = llmq_expf(s[j] - *m);
        lane[j % CPU_LANES] += s[j];
    }
    *l = fold(lane);
}

static void values(float *o, const float *s, int rows, const int *n, const void *const *v, int dtype, int hd)
{
    for (int r = 0; r < rows; r++)
        for (int d = 0; d < hd; d++) {
            float acc = 0.0f;

            for (int j = 0; j < n[r]; j++)
                acc = fmaf(s[r * CPU_PART + j], element(v[j], dtype, (size_t)d), acc);
            o[r * hd + d] = acc;
        }
}

static void merge(float *o, const float *p, float a, float b, int hd)
{
    for (int d = 0; d < hd; d++)
        o[d] = o[d] * a + p[d] * b;
}

static void divide(float *o, float l, int hd)
{
    for (int d = 0; d < hd; d++)
        o[d] = o[d] / l;
}

/* ---- statistics ---------------------------------------------------------------------------------------- */

static void gram(double *g, size_t ldg, const float *xi, const float *xj, size_t ldx, int tokens, int rows, int cols,
                 int diag)
{
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols && c <= diag + r; c++) {
            float acc = 0.0f;

            for (int t = 0; t < tokens; t++)
                acc = fmaf(xi[(size_t)t * ldx + (size_t)r], xj[(size_t)t * ldx + (size_t)c], acc);
            g[(size_t)r * ldg + (size_t)c] += (double)acc;
        }
}

static void logsumexp(const float *x, int n, float *max, double *sum)
{
    *max = row_max(x, n);
    *sum = 0.0;
    for (int first = 0; first < n; first += CPU_LSE_BLOCK) {
        float lane[CPU_LANES] = {0};
        int   end = n - first < CPU_LSE_BLOCK ? n : first + CPU_LSE_BLOCK;

        for (int i = first; i < end; i++)
            lane[i % CPU_LANES] += llmq_expf(x[i] - *max);
        *sum += (double)fold(lane);
    }
}

void kernels_scalar(struct cpu_kernels *t)
{
    t->widen = widen;
    t->narrow_f16 = narrow_f16;
    t->dense_one = t->dense_many = dense;
    t->act_quant = act_quant;
    t->q4_one = t->q4_many = q4;
    t->q8_one = t->q8_many = q8;
    t->rmsnorm = rmsnorm;
    t->rope = rope;
    t->swiglu = swiglu;
    t->scores_few = scores_few;
    t->keys_turn = keys_turn;
    t->scores_many = scores_many;
    t->softmax = softmax;
    t->values = values;
    t->merge = merge;
    t->divide = divide;
    t->gram = gram;
    t->logsumexp = logsumexp;
}

/* Statistics of an evaluation: see eval_stats.h; the formulas with their sources stand in docs/EVALUATION.md.
 *
 * Every sum runs in an order that the data's shape fixes.  Tokens of one window are not independent, so a
 * window counts as one observation: means are ratios of sums over windows, and their errors those of a
 * ratio estimator over clusters, which for windows of equal length is the standard error of window means. */
#include "runner/eval_stats.h"

#include "common/fmath.h"

#include <math.h>
#include <stdlib.h>

/* ---- one token --------------------------------------------------------------------------------------- */

enum { LANES = 32 };

/* exp(x) for x <= 0, to 3e-7 relative, and exp(-87) below -87: plain operations in a fixed order, without branches,
 * which compilers turn into vector code of any width without changing a bit.  (llmq_expf has explicit fma, which is
 * a function call here.) */
static inline float exp_negative(float x)
{
    const float    magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to whole numbers */
    const int32_t  most = 0x42ae0000;   /* the bits of 87 */
    int32_t        size = (int32_t)(llmq_fp_bits(x) & 0x7fffffffu);
    float          t, n, r, p;

    size = size > most ? most : size;
    x = llmq_fp_from_bits((uint32_t)size | 0x80000000u);
    t = x * LLMQ_EXPF_LOG2E + magic;
    n = t - magic;
    r = (x - n * LLMQ_EXPF_LN2_HI) - n * LLMQ_EXPF_LN2_LO;
    p = LLMQ_EXPF_C0 * r + LLMQ_EXPF_C1;
    p = p * r + LLMQ_EXPF_C2;
    p = p * r + LLMQ_EXPF_C3;
    p = p * r + LLMQ_EXPF_C4;
    p = p * r + LLMQ_EXPF_C5;
    p = (p * r + 1.0f) * r + 1.0f;
    return p * llmq_fp_from_bits((llmq_fp_bits(t) - llmq_fp_bits(magic) + 127) << 23);
}

/* sum and weighted sum of LANES entries: weight exp(x - max), value x - y. */
static void kl_lanes(const float *x, const float *y, float max, double *weight, double *value)
{
    float e[LANES];

    for (int i = 0; i < LANES; i++)
        e[i] = exp_negative(x[i] - max);
    for (int i = 0; i < LANES; i++)
        weight[i] += e[i];
    for (int i = 0; i < LANES; i++)
        value[i] += (double)e[i] * ((double)x[i] - (double)y[i]);
}

static double fold(double *v)
{
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            v[i] += v[i + half];
    return v[0];
}

/* KL(base || model) = E_base[x - y] - (lse_x - lse_y) with x the base's and y the model's logits.  The expectation is
 * normalised by the same weights that it sums, so their rounding cancels; equal rows give exactly 0. */
static double divergence(const struct eval_row *base, const struct eval_row *model, int n)
{
    double weight[LANES] = {0}, value[LANES] = {0}, kl;
    float  x[LANES], y[LANES];
    int    i = 0;

    for (; i + LANES <= n; i += LANES)
        kl_lanes(base->logits + i, model->logits + i, base->max, weight, value);
    if (i < n) {
        for (int j = 0; j < LANES; j++) { /* the rest weighs next to nothing, and differs by nothing */
            x[j] = i + j < n ? base->logits[i + j] : base->max - 87.0f;
            y[j] = i + j < n ? model->logits[i + j] : x[j];
        }
        kl_lanes(x, y, base->max, weight, value);
    }
    kl = fold(value) / fold(weight) - (base->lse - model->lse);
    return kl > 0 ? kl : 0;
}

static int first_of(const struct eval_row *r, int n)
{
    for (int i = 0; i < n; i++)
        if (r->logits[i] == r->max)
            return i;
    return -1;
}

struct eval_token eval_score(const struct eval_row *model, const struct eval_row *base, int n, int32_t target)
{
    struct eval_token t = {.nll = model->lse - (double)model->logits[target]};

    if (!base)
        return t;
    t.base_nll = base->lse - (double)base->logits[target];
    t.kl = divergence(base, model, n);
    t.prob_change = llmq_exp(-t.nll) - llmq_exp(-t.base_nll);
    t.same_top = first_of(model, n) == first_of(base, n);
    return t;
}

void eval_window_add(struct eval_window *w, const struct eval_token *t)
{
    w->tokens++;
    w->nll += t->nll;
    w->base_nll += t->base_nll;
    w->kl += t->kl;
    w->same_top += t->same_top;
    w->prob_change2 += t->prob_change * t->prob_change;
}

/* ---- all of them ----------------------------------------------------------------------------------------- */

/* Two-sided 95 %: exact to 5 digits below 30 degrees, then the Cornish-Fisher expansion about the normal quantile. */
double llmq_eval_t95(int df)
{
    static const double small[] = {12.70620, 4.30265, 3.18245, 2.77645, 2.57058, 2.44691, 2.36462, 2.30600, 2.26216, 2.22814,
                                   2.20099,  2.17881, 2.16037, 2.14479, 2.13145, 2.11991, 2.10982, 2.10092, 2.09302, 2.08596,
                                   2.07961,  2.07387, 2.06866, 2.06390, 2.05954, 2.05553, 2.05183, 2.04841, 2.04523, 2.04227};
    const double        z = 1.959963984540054, z2 = z * z, v = df;

    if (df < 1)
        return NAN;
    if (df <= 30)
        return small[df - 1];
    return z + z * (z2 + 1) / (4 * v) + z * ((5 * z2 + 16) * z2 + 3) / (96 * v * v) +
           z * (((3 * z2 + 19) * z2 + 17) * z2 - 15) / (384 * v * v * v);
}

/* A mean per token and its standard error; the value of window i is at *(value + i * stride). */
struct estimate {
    double mean, se;
};

typedef double (*window_value)(const struct eval_window *w);
static double nll_of(const struct eval_window *w) { return w->nll; }
static double base_nll_of(const struct eval_window *w) { return w->base_nll; }
static double delta_of(const struct eval_window *w) { return w->nll - w->base_nll; }
static double kl_of(const struct eval_window *w) { return w->kl; }
static double same_top_of(const struct eval_window *w) { return w->same_top; }
static double prob_change2_of(const struct eval_window *w) { return w->prob_change2; }

static struct estimate estimate(const struct eval_window *w, int windows, window_value value)
{
    double          sum = 0, tokens = 0, squares = 0;
    struct estimate e;

    for (int i = 0; i < windows; i++) {
        sum += value(&w[i]);
        tokens += (double)w[i].tokens;
    }
    e.mean = tokens > 0 ? sum / tokens : NAN;
    for (int i = 0; i < windows; i++) {
        double off = value(&w[i]) - e.mean * (double)w[i].tokens;
        squares += off * off;
    }
    e.se = windows > 1 ? sqrt(squares * windows / (windows - 1)) / tokens : NAN;
    return e;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* Linear between the two nearest ranks. */
static double quantile(const double *sorted, long n, double q)
{
    double at = q * (double)(n - 1);
    long   i = (long)at;

    return i + 1 < n ? sorted[i] + (at - (double)i) * (sorted[i + 1] - sorted[i]) : sorted[n - 1];
}

static void summarise_pair(const struct eval_window *w, int windows, double *kl, long n_kl, struct eval_result *out)
{
    struct estimate e = estimate(w, windows, base_nll_of);
    double          t = llmq_eval_t95(windows - 1);

    out->has_baseline = 1;
    out->base_nll_mean = e.mean;
    out->base_ppl = llmq_exp(e.mean);
    e = estimate(w, windows, delta_of);
    out->delta_mean = e.mean;
    out->delta_low = e.mean - t * e.se;
    out->delta_high = e.mean + t * e.se;
    out->increase = llmq_exp(out->delta_mean) - 1;
    out->increase_low = llmq_exp(out->delta_low) - 1;
    out->increase_high = llmq_exp(out->delta_high) - 1;
    e = estimate(w, windows, kl_of);
    out->kl_mean = e.mean;
    out->kl_stderr = e.se;
    e = estimate(w, windows, same_top_of);
    out->top1 = e.mean;
    out->top1_stderr = e.se;
    out->prob_change_rms = sqrt(estimate(w, windows, prob_change2_of).mean);
    qsort(kl, (size_t)n_kl, sizeof *kl, ascending);
    out->kl_p99 = quantile(kl, n_kl, 0.99);
    out->kl_p999 = quantile(kl, n_kl, 0.999);
    out->kl_max = kl[n_kl - 1];
}

void eval_summarise(const struct eval_window *w, int windows, double *kl, long n_kl, size_t words, struct eval_result *out)
{
    struct estimate e = estimate(w, windows, nll_of);

    out->windows = windows;
    out->tokens_scored = 0;
    for (int i = 0; i < windows; i++)
        out->tokens_scored += w[i].tokens;
    out->nll_mean = e.mean;
    out->nll_stderr = e.se;
    out->ppl = llmq_exp(e.mean);
    out->ppl_stderr = out->ppl * e.se;
    out->ppl_high = llmq_exp(e.mean + llmq_eval_t95(windows - 1) * e.se);
    out->word_ppl = words ? llmq_exp(e.mean * (double)out->tokens_scored / (double)words) : 0;
    if (kl && n_kl > 0)
        summarise_pair(w, windows, kl, n_kl, out);
}

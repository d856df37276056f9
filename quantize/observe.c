/* Statistics of a linear's input: H = mean of x x^T and mean |x|.
 *
 * Sums are float inside a window and double across windows (the backend's gram), in window order.  Every position
 * counts, the first of a window too.  It carries activations hundreds of times larger than the rest (an "attention
 * sink"), and some tools leave it out so that it does not govern H; but then nothing keeps clipping away from the few
 * weights that make it, which all later tokens lean on: on SmolLM2 (INT4, group 64, symmetric) leaving it out took
 * the KL divergence from 0.28 to 0.69. */
#include "quantize/method.h"

#include "common/parallel.h"

#include <math.h>
#include <string.h>

int stats_init(struct stats *s, struct llmq_arena *a, uint32_t k, struct llmq_err *err)
{
    memset(s, 0, sizeof *s);
    s->k = k;
    if (LLMQ_ARENA_NEW(a, &s->mean, k, "channel means", err))
        return err->code;
    return LLMQ_ARENA_NEW(a, &s->g, (size_t)k * k, "statistics of a linear's input", err);
}

struct abs_job {
    struct stats *s;
    const float  *x;
    int           tokens;
};

static void add_abs(void *ctx, long begin, long end, int thread)
{
    const struct abs_job *j = ctx;

    (void)thread;
    for (int t = 0; t < j->tokens; t++)
        for (long c = begin; c < end; c++)
            j->s->mean[c] += fabsf(j->x[(size_t)t * j->s->k + (size_t)c]);
}

void stats_add(struct stats *s, struct model *m, const float *x, int tokens)
{
    struct abs_job j = {s, x, tokens};

    model_gram(m, j.x, j.tokens, (int)s->k, s->g);
    llmq_parallel_for(s->k, 64, add_abs, &j);
    s->n += (size_t)j.tokens;
}

enum { BLOCK = 64 };

/* Upper triangle from the lower one, by blocks that stay in cache. */
static void mirror(void *ctx, long begin, long end, int thread)
{
    struct stats *s = ctx;
    size_t        k = s->k;

    (void)thread;
    for (size_t bj = (size_t)begin * BLOCK; bj < (size_t)end * BLOCK && bj < k; bj += BLOCK)
        for (size_t bi = bj; bi < k; bi += BLOCK)
            for (size_t i = bi; i < bi + BLOCK && i < k; i++)
                for (size_t j = bj; j < bj + BLOCK && j < i; j++)
                    s->h[j * k + i] = s->h[i * k + j];
}

void stats_finish(struct stats *s)
{
    double scale = s->n ? 1.0 / (double)s->n : 0.0;
    size_t k = s->k;
    char  *bytes = (char *)s->g;

    /* Float i goes to byte 4 i and double i stands at byte 8 i: ascending, nothing is overwritten unread. */
    for (size_t i = 0; i < k; i++)
        for (size_t j = 0; j <= i; j++) {
            double d;
            float  f;
            memcpy(&d, bytes + 8 * (i * k + j), sizeof d);
            f = (float)(d * scale);
            memcpy(bytes + 4 * (i * k + j), &f, sizeof f);
        }
    s->h = (float *)(void *)bytes;
    s->spare = s->h + k * k;
    s->g = NULL;
    llmq_parallel_for((long)(k + BLOCK - 1) / BLOCK, 1, mirror, s);
    for (size_t i = 0; i < k; i++)
        s->mean[i] *= scale;
}

const char *stats_fault(const struct stats *s)
{
    double sum = 0;

    if (!s->n)
        return "no calibration token reached it";
    for (size_t i = 0; i < s->k; i++) {
        float h = s->h[i * s->k + i];
        if (!(h >= 0 && h - h == 0) || !(s->mean[i] - s->mean[i] == 0))
            return "its input is not finite";
        sum += h;
    }
    return sum > 0 ? NULL : "its input is always zero";
}

struct scale_job {
    struct stats *s;
    const float  *scale;
};

static void scale_rows(void *ctx, long begin, long end, int thread)
{
    const struct scale_job *j = ctx;
    size_t                  k = j->s->k;

    (void)thread;
    for (size_t r = (size_t)begin; r < (size_t)end; r++)
        for (size_t c = 0; c < k; c++) /* one product on both sides of the diagonal: H stays symmetric */
            j->s->h[r * k + c] /= j->scale[r] * j->scale[c];
}

void stats_scale(struct stats *s, const float *scale)
{
    struct scale_job j = {s, scale};

    llmq_parallel_for(s->k, 16, scale_rows, &j);
    for (size_t i = 0; i < s->k; i++)
        s->mean[i] /= scale[i];
}

/* The uniform integer grid: see grid.h. */
#include "quantize/grid.h"

#include "common/fp.h"
#include "common/parallel.h"

#include <math.h>

/* Below this a scale would lose its precision to F16's subnormals and, on the GPU formats, to underflow. */
#define SCALE_MIN 1e-5f

float grid_scale(float scale) { return llmq_f16_to_f32(llmq_f32_to_f16(scale > SCALE_MIN ? scale : SCALE_MIN)); }

void grid_cover(const struct llmq_scheme *s, float lo, float hi, float *scale, uint8_t *zero)
{
    int top = (1 << s->bits) - 1, half = 1 << (s->bits - 1);

    lo = lo < 0 ? lo : 0;
    hi = hi > 0 ? hi : 0;
    *zero = (uint8_t)(s->symmetric ? half : 0);
    if (!(hi > lo)) {
        *scale = 1.0f;
        return;
    }
    if (s->symmetric) { /* full range: an extreme lands on the first or on the last code */
        float up = hi / (float)(half - 1), down = -lo / (float)half;
        *scale = grid_scale(up > down ? up : down);
    } else {
        float z;
        *scale = grid_scale((hi - lo) / (float)top);
        z = rintf(-lo / *scale);
        *zero = (uint8_t)(z < (float)top ? z : (float)top);
    }
}

void grid_fit(const struct llmq_scheme *s, const float *w, uint32_t count, float shrink, float *scale, uint8_t *zero)
{
    float lo = 0, hi = 0;

    for (uint32_t j = 0; j < count; j++) {
        lo = w[j] < lo ? w[j] : lo;
        hi = w[j] > hi ? w[j] : hi;
    }
    grid_cover(s, lo * shrink, hi * shrink, scale, zero);
}

/* ---- weighted grids --------------------------------------------------------------------------- */

enum { FIT_FIRST = 22, FIT_STEPS = 14, FIT_STEP = 20, FIT_ROUNDS = 3 };

static double weighted_error(const struct grid_levels *l, const float *w, const float *p, uint32_t count)
{
    float sum[4] = {0, 0, 0, 0};

    for (uint32_t j = 0; j < count; j++) {
        float e = grid_level(l, w[j]) * l->scale - w[j];
        sum[j & 3] += p[j] * e * e;
    }
    return ((double)sum[0] + sum[1]) + ((double)sum[2] + sum[3]);
}

/* The scale that is best for the levels of the present one: sum p w l / sum p l^2. */
static float refitted(const struct grid_levels *l, const float *w, const float *p, uint32_t count)
{
    double num = 0, den = 0;

    for (uint32_t j = 0; j < count; j++) {
        double c = grid_level(l, w[j]);
        num += p[j] * c * w[j];
        den += p[j] * c * c;
    }
    return den > 0 && num > 0 ? grid_scale((float)(num / den)) : l->scale;
}

void grid_fit_weighted(const struct llmq_scheme *s, const float *w, const float *p, uint32_t count, float *scale, uint8_t *zero)
{
    double least = INFINITY;

    grid_fit(s, w, count, 1.0f, scale, zero);
    for (int i = 0; i < FIT_STEPS; i++) {
        float              try_scale;
        uint8_t            try_zero;
        struct grid_levels l;
        double             error;

        grid_fit(s, w, count, (float)(FIT_FIRST - i) / FIT_STEP, &try_scale, &try_zero);
        for (int round = 0; round < FIT_ROUNDS; round++) {
            l = grid_levels_of(s, try_scale, try_zero);
            error = weighted_error(&l, w, p, count);
            if (!(error < least))
                break;
            least = error;
            *scale = try_scale;
            *zero = try_zero;
            try_scale = refitted(&l, w, p, count);
        }
    }
}

/* ---- codes ------------------------------------------------------------------------------------ */

void grid_encode(const struct llmq_scheme *s, const float *w, uint32_t count, float scale, uint8_t zero, uint8_t *codes)
{
    struct grid_levels l = grid_levels_of(s, scale, zero);

    for (uint32_t j = 0; j < count; j++)
        codes[j] = (uint8_t)((int)grid_level(&l, w[j]) + l.zero);
}

void grid_residual(const struct llmq_scheme *s, const float *w, uint32_t count, float scale, uint8_t zero, float *e)
{
    struct grid_levels l = grid_levels_of(s, scale, zero);

    for (uint32_t j = 0; j < count; j++)
        e[j] = grid_level(&l, w[j]) * l.scale - w[j];
}

uint32_t grid_stored(const struct llmq_scheme *s, const float *w, const uint8_t *codes, uint32_t count, float scale, uint8_t zero, float *e)
{
    struct grid_levels l = grid_levels_of(s, scale, zero);
    uint32_t           outside = 0;

    for (uint32_t j = 0; j < count; j++) {
        float t = w[j] * l.inv;
        outside += t < l.lo - 0.501f || t > l.hi + 0.501f;
        e[j] = (float)((int)codes[j] - l.zero) * l.scale - w[j];
    }
    return outside;
}

void grid_levels(const struct llmq_scheme *s, const float *w, uint32_t count, float scale, uint8_t zero, float *c)
{
    struct grid_levels l = grid_levels_of(s, scale, zero);

    for (uint32_t j = 0; j < count; j++)
        c[j] = grid_level(&l, w[j]);
}

/* ---- whole matrices --------------------------------------------------------------------------- */

struct rows_job {
    const struct llmq_scheme *s;
    const float              *w;
    uint32_t                  k, groups;
    float                    *scales;
    uint8_t                  *zeros, *codes;
    double                   *error, *norm; /* [n] */
};

static void fit_rows(void *ctx, long begin, long end, int thread)
{
    struct rows_job *j = ctx;
    uint32_t         size = j->s->group ? j->s->group : j->k;

    (void)thread;
    for (long r = begin; r < end; r++)
        for (uint32_t g = 0; g < j->groups; g++)
            grid_fit(j->s, j->w + (size_t)r * j->k + (size_t)g * size, grid_group_size(j->s, j->k, g), 1.0f,
                     j->scales + (size_t)r * j->groups + g, j->zeros + (size_t)r * j->groups + g);
}

void grid_fit_rows(const struct llmq_scheme *s, const float *w, uint32_t n, uint32_t k, float *scales, uint8_t *zeros)
{
    struct rows_job j = {.s = s, .w = w, .k = k, .groups = llmq_scheme_groups(s, k), .scales = scales, .zeros = zeros};

    llmq_parallel_for(n, 16, fit_rows, &j);
}

static void encode_rows(void *ctx, long begin, long end, int thread)
{
    struct rows_job *j = ctx;
    uint32_t         size = j->s->group ? j->s->group : j->k;

    (void)thread;
    for (long r = begin; r < end; r++)
        for (uint32_t g = 0; g < j->groups; g++) {
            size_t at = (size_t)r * j->k + (size_t)g * size, sg = (size_t)r * j->groups + g;
            grid_encode(j->s, j->w + at, grid_group_size(j->s, j->k, g), j->scales[sg], j->zeros[sg], j->codes + at);
        }
}

void grid_encode_rows(const struct llmq_scheme *s, const float *w, uint32_t n, uint32_t k, const float *scales,
                      const uint8_t *zeros, uint8_t *codes)
{
    struct rows_job j = {.s = s, .w = w, .k = k, .groups = llmq_scheme_groups(s, k), .codes = codes};

    j.scales = (float *)(uintptr_t)scales; /* only read here */
    j.zeros = (uint8_t *)(uintptr_t)zeros;
    llmq_parallel_for(n, 16, encode_rows, &j);
}

static void error_rows(void *ctx, long begin, long end, int thread)
{
    struct rows_job *j = ctx;
    uint32_t         size = j->s->group ? j->s->group : j->k;

    (void)thread;
    for (long r = begin; r < end; r++) {
        double error = 0, norm = 0;
        for (uint32_t g = 0; g < j->groups; g++) {
            size_t        sg = (size_t)r * j->groups + g;
            const float  *x = j->w + (size_t)r * j->k + (size_t)g * size;
            struct grid_levels l = grid_levels_of(j->s, j->scales[sg], j->zeros[sg]);
            for (uint32_t c = 0; c < grid_group_size(j->s, j->k, g); c++) {
                double e = grid_level(&l, x[c]) * l.scale - x[c];
                error += e * e;
                norm += (double)x[c] * x[c];
            }
        }
        j->error[r] = error;
        j->norm[r] = norm;
    }
}

void grid_error_rows(const struct llmq_scheme *s, const float *w, uint32_t n, uint32_t k, const float *scales,
                     const uint8_t *zeros, double *error, double *norm)
{
    struct rows_job j = {.s = s, .w = w, .k = k, .groups = llmq_scheme_groups(s, k), .error = error, .norm = norm};

    j.scales = (float *)(uintptr_t)scales; /* only read here */
    j.zeros = (uint8_t *)(uintptr_t)zeros;
    llmq_parallel_for(n, 16, error_rows, &j);
}

int grid_check(const float *scales, uint32_t n, uint32_t groups, const char *where, struct llmq_err *err)
{
    for (uint32_t r = 0; r < n; r++)
        for (uint32_t g = 0; g < groups; g++) {
            float s = scales[(size_t)r * groups + g];
            if (!(s > 0 && s <= 65504.0f))
                return llmq_fail(err, LLMQ_EFORMAT, "%s: row %u, group %u: scale %g, expected one that F16 can hold", where,
                                 r, g, (double)s);
        }
    return 0;
}

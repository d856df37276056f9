#ifndef LLMQ_COMMON_FMATH_H
#define LLMQ_COMMON_FMATH_H

#include "common/fp.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* exp, log, pow, sin and cos that give the same bits on every machine.
 *
 * libm picks variants by CPU, so a file or a logit that went through it would depend on
 * the host.  These are plain double (or float with explicit fma) arithmetic, compiled with
 * -ffp-contract=off; fma, rint, floor and sqrt are exact by IEEE 754 and may come from libm.
 * Errors, tested: double functions below 4e-16 relative (sin and cos absolute, |x| < 2^20),
 * llmq_expf below 1.2e-7 relative. */

static inline double llmq_fm_scale(double x, int k) /* x * 2^k */
{
    uint64_t u;
    double   f;

    if (k < -1022) { /* in two steps, so that a subnormal result is rounded once */
        x *= 0x1p-1000;
        k += 1000;
    }
    u = (uint64_t)(k + 1023) << 52;
    memcpy(&f, &u, sizeof f);
    return x * f;
}

static inline double llmq_exp(double x)
{
    static const double c[] = {1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880,
                               1.0 / 40320,      1.0 / 5040,      1.0 / 720,      1.0 / 120,     1.0 / 24,
                               1.0 / 6,          0.5,             1.0,            1.0};
    double k, r, p;

    if (x != x)
        return x;
    if (x > 709.7)
        return INFINITY;
    if (x < -745.2)
        return 0.0;
    k = rint(x * 1.4426950408889634);
    r = x - k * 6.93147180369123816490e-01;
    r = r - k * 1.90821492927058770002e-10;
    p = c[0];
    for (int i = 1; i < 14; i++)
        p = p * r + c[i];
    return llmq_fm_scale(p, (int)k);
}

static inline double llmq_log(double x)
{
    uint64_t u;
    int      e = 0;
    double   m, f, z, p = 0.0;

    if (x != x || x < 0)
        return NAN;
    if (x == 0)
        return -INFINITY;
    if (x == INFINITY)
        return x;
    if (x < 0x1p-1022) {
        x *= 0x1p54;
        e = -54;
    }
    memcpy(&u, &x, sizeof u);
    e += (int)(u >> 52) - 1023;
    u = (u & 0x000fffffffffffffull) | 0x3ff0000000000000ull;
    memcpy(&m, &u, sizeof m);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        e++;
    }
    f = (m - 1.0) / (m + 1.0);
    z = f * f;
    for (int i = 23; i >= 3; i -= 2)
        p = (p + 1.0 / i) * z;
    return e * 6.93147180369123816490e-01 + (2.0 * (f + f * p) + e * 1.90821492927058770002e-10);
}

/* x > 0, or x == 0 with y > 0. */
static inline double llmq_pow(double x, double y) { return y == 0 ? 1.0 : x == 0 ? 0.0 : llmq_exp(y * llmq_log(x)); }

/* Both at once, |x| < 2^20 (positions times frequencies). */
static inline void llmq_sincos(double x, double *sin_out, double *cos_out)
{
    double  k = rint(x * 0.63661977236758134308);
    double  r = ((x - k * 1.57079632673412561417e+00) - k * 6.07710050630396597660e-11) - k * 2.02226624879595063154e-21;
    double  z = r * r, s = 0.0, c = 0.0;
    int64_t q = (int64_t)k & 3;

    for (int i = 17; i >= 3; i -= 2)
        s = (s + 1.0) * (-z / (i * (i - 1)));
    s = r + r * s;
    for (int i = 18; i >= 2; i -= 2)
        c = (c + 1.0) * (-z / (i * (i - 1)));
    c = 1.0 + c;
    *sin_out = q == 0 ? s : q == 1 ? c : q == 2 ? -s : -c;
    *cos_out = q == 0 ? c : q == 1 ? -s : q == 2 ? -c : s;
}

/* The float exp of softmax and SiLU.  Vector code does these very steps, so it agrees bit for bit:
 * n = rint(x log2 e), r = x - n ln 2 in two fma steps, a degree-7 polynomial by Horner's rule, times 2^n. */
#define LLMQ_EXPF_MIN (-87.0f) /* below: 0 */
#define LLMQ_EXPF_MAX 88.0f    /* above: as 88 */
#define LLMQ_EXPF_LOG2E 1.44269504f
#define LLMQ_EXPF_LN2_HI 0.693359375f
#define LLMQ_EXPF_LN2_LO (-2.12194440e-4f)
#define LLMQ_EXPF_C0 1.9875691500e-4f
#define LLMQ_EXPF_C1 1.3981999507e-3f
#define LLMQ_EXPF_C2 8.3334519073e-3f
#define LLMQ_EXPF_C3 4.1665795894e-2f
#define LLMQ_EXPF_C4 1.6666665459e-1f
#define LLMQ_EXPF_C5 5.0000001201e-1f
static inline float llmq_expf(float x)
{
    float n, r, p;

    if (x < LLMQ_EXPF_MIN)
        return 0.0f;
    if (x > LLMQ_EXPF_MAX)
        x = LLMQ_EXPF_MAX;
    n = rintf(x * LLMQ_EXPF_LOG2E);
    r = fmaf(n, -LLMQ_EXPF_LN2_HI, x);
    r = fmaf(n, -LLMQ_EXPF_LN2_LO, r);
    p = fmaf(LLMQ_EXPF_C0, r, LLMQ_EXPF_C1);
    p = fmaf(p, r, LLMQ_EXPF_C2);
    p = fmaf(p, r, LLMQ_EXPF_C3);
    p = fmaf(p, r, LLMQ_EXPF_C4);
    p = fmaf(p, r, LLMQ_EXPF_C5);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    return p * llmq_fp_from_bits((uint32_t)((int)n + 127) << 23);
}

#endif

#ifndef LLMQ_COMMON_FP_H
#define LLMQ_COMMON_FP_H

#include <stdint.h>
#include <string.h>

/* The scalar definition of every small float type: bfloat16, IEEE binary16, and OCP
 * FP8 E4M3 / E5M2 (OCP 8-bit Floating Point Specification, 2023).  Conversions from
 * float round to nearest, ties to even; vector code must agree with these bit for bit. */

static inline uint32_t llmq_fp_bits(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float llmq_fp_from_bits(uint32_t u)
{
    float x;

    memcpy(&x, &u, sizeof x);
    return x;
}

static inline float llmq_bf16_to_f32(uint16_t h) { return llmq_fp_from_bits((uint32_t)h << 16); }

static inline uint16_t llmq_f32_to_bf16(float x)
{
    uint32_t u = llmq_fp_bits(x);

    if ((u & 0x7fffffffu) > 0x7f800000u) /* keep a NaN a NaN */
        return (uint16_t)((u >> 16) | 0x40);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}

static inline float llmq_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exp = (h >> 10) & 31, man = h & 0x3ffu;

    if (exp == 31)
        return llmq_fp_from_bits(sign | 0x7f800000u | (man ? man << 13 | 0x400000u : 0));
    if (exp)
        return llmq_fp_from_bits(sign | ((exp + 112) << 23) | (man << 13));
    return llmq_fp_from_bits(sign | llmq_fp_bits((float)man * 0x1p-24f));
}

static inline uint16_t llmq_f32_to_f16(float x)
{
    uint32_t u = llmq_fp_bits(x), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;

    if (a > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | ((a >> 13) & 0x3ffu));
    if (a >= 0x477ff000u) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (a >= 0x38800000u) /* normal: 2^-14 and above */
        return (uint16_t)(sign | ((a - 0x38000000u + 0xfffu + ((a >> 13) & 1)) >> 13));
    /* Subnormal: adding 0.5 leaves the value in units of 2^-24, rounded by the adder. */
    return (uint16_t)(sign | (llmq_fp_bits(llmq_fp_from_bits(a) + 0.5f) - 0x3f000000u));
}

#endif

#ifndef LLMQ_RUNNER_CPU_VEC_AVX512_H
#define LLMQ_RUNNER_CPU_VEC_AVX512_H

/* What the AVX-512 kernels share; only *_avx512.c may include this. */

#include "common/fmath.h"
#include "format/format.h"

#include <immintrin.h>

/* Code that is compiled once for each value of some of its arguments. */
#define VEC_INLINE static inline __attribute__((always_inline))

#if defined __GNUC__ && !defined __clang__
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")
#endif

/* The lanes that hold the first `left` elements; all for 16 and more. */
VEC_INLINE __mmask16 v16_mask(long left) { return (__mmask16)(left >= 16 ? 0xffff : (1u << left) - 1); }

/* 16 elements of a type as float, those outside the mask zero. */
VEC_INLINE __m512 v16_load(const void *p, size_t i, int dtype, __mmask16 m)
{
    if (dtype == LLMQ_DTYPE_F32)
        return _mm512_maskz_loadu_ps(m, (const float *)p + i);
    if (dtype == LLMQ_DTYPE_F16)
        return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, (const uint16_t *)p + i));
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, (const uint16_t *)p + i)), 16));
}

/* llmq_expf, step by step. */
VEC_INLINE __m512 v16_expf(__m512 x)
{
    __mmask16 zero = _mm512_cmp_ps_mask(x, _mm512_set1_ps(LLMQ_EXPF_MIN), _CMP_LT_OQ);
    __m512    n, r, p;

    x = _mm512_min_ps(_mm512_set1_ps(LLMQ_EXPF_MAX), x);
    n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(LLMQ_EXPF_LOG2E)), _MM_FROUND_TO_NEAREST_INT);
    r = _mm512_fmadd_ps(n, _mm512_set1_ps(-LLMQ_EXPF_LN2_HI), x);
    r = _mm512_fmadd_ps(n, _mm512_set1_ps(-LLMQ_EXPF_LN2_LO), r);
    p = _mm512_fmadd_ps(_mm512_set1_ps(LLMQ_EXPF_C0), r, _mm512_set1_ps(LLMQ_EXPF_C1));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(LLMQ_EXPF_C2));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(LLMQ_EXPF_C3));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(LLMQ_EXPF_C4));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(LLMQ_EXPF_C5));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    n = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
    return _mm512_maskz_mul_ps((__mmask16)~zero, p, n);
}

/* dot16's tree of one vector of lanes. */
VEC_INLINE float v16_fold(__m512 a)
{
    __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));

    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}

VEC_INLINE __m512 v16_fold_8(__m512 a, __m512 b) /* [a: 8 | b: 8] */
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
}

VEC_INLINE __m512 v16_fold_4(__m512 ab, __m512 cd) /* [a: 4 | b: 4 | c: 4 | d: 4] */
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
}

/* dot16's tree of 16 vectors at once: 128-bit lane r, element c of the result is the sum of a[4 * c + r]. */
VEC_INLINE __m512 v16_fold_16(const __m512 a[16])
{
    __m512 s[4], t[2];

    for (int i = 0; i < 4; i++)
        s[i] = v16_fold_4(v16_fold_8(a[4 * i], a[4 * i + 1]), v16_fold_8(a[4 * i + 2], a[4 * i + 3]));
    for (int i = 0; i < 2; i++) {
        __m512d x = _mm512_castps_pd(s[2 * i]), y = _mm512_castps_pd(s[2 * i + 1]);
        t[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
    }
    return _mm512_add_ps(_mm512_shuffle_ps(t[0], t[1], 0x88), _mm512_shuffle_ps(t[0], t[1], 0xdd));
}

#if defined __GNUC__ && !defined __clang__
#pragma GCC pop_options
#endif

#endif

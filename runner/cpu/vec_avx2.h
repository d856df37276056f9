#ifndef LLMQ_RUNNER_CPU_VEC_AVX2_H
#define LLMQ_RUNNER_CPU_VEC_AVX2_H

/* What the AVX2 kernels share; only *_avx2.c may include this.  The 16 lanes of the numeric rules are two vectors. */

#include "common/fmath.h"
#include "format/format.h"

#include <immintrin.h>

/* Code that is compiled once for each value of some of its arguments. */
#define VEC_INLINE static inline __attribute__((always_inline))

#if defined __GNUC__ && !defined __clang__
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

/* All bits of the first `left` lanes (all for 8 and more, none for 0 and less). */
VEC_INLINE __m256i v8_mask(long left)
{
    int n = left > 8 ? 8 : left < 0 ? 0 : (int)left;

    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* The first `left` floats, others zero; and into memory only those. */
VEC_INLINE __m256 v8_load_some(const float *p, long left)
{
    return left >= 8 ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, v8_mask(left));
}

VEC_INLINE void v8_store_some(float *p, long left, __m256 v)
{
    if (left >= 8)
        _mm256_storeu_ps(p, v);
    else
        _mm256_maskstore_ps(p, v8_mask(left), v);
}

/* b in the first `left` lanes, a in the others. */
VEC_INLINE __m256 v8_first(__m256 a, __m256 b, long left)
{
    return _mm256_blendv_ps(a, b, _mm256_castsi256_ps(v8_mask(left)));
}

/* 8 elements of a type as float; fewer through a copy (there is no masked load of 16-bit elements). */
VEC_INLINE __m256 v8_load(const void *p, size_t i, int dtype)
{
    if (dtype == LLMQ_DTYPE_F32)
        return _mm256_loadu_ps((const float *)p + i);
    if (dtype == LLMQ_DTYPE_F16)
        return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)((const uint16_t *)p + i)));
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)((const uint16_t *)p + i))), 16));
}

static inline __m256 v8_load_part(const void *p, size_t i, int dtype, long left)
{
    uint16_t half[8] = {0};

    if (left >= 8)
        return v8_load(p, i, dtype);
    if (dtype == LLMQ_DTYPE_F32)
        return _mm256_maskload_ps((const float *)p + i, v8_mask(left));
    if (left > 0)
        memcpy(half, (const uint16_t *)p + i, (size_t)left * 2);
    return v8_load(half, 0, dtype);
}

/* llmq_expf, step by step. */
VEC_INLINE __m256 v8_expf(__m256 x)
{
    __m256 zero = _mm256_cmp_ps(x, _mm256_set1_ps(LLMQ_EXPF_MIN), _CMP_LT_OQ);
    __m256 n, r, p;

    x = _mm256_min_ps(_mm256_set1_ps(LLMQ_EXPF_MAX), x);
    n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(LLMQ_EXPF_LOG2E)), _MM_FROUND_TO_NEAREST_INT);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(-LLMQ_EXPF_LN2_HI), x);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(-LLMQ_EXPF_LN2_LO), r);
    p = _mm256_fmadd_ps(_mm256_set1_ps(LLMQ_EXPF_C0), r, _mm256_set1_ps(LLMQ_EXPF_C1));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(LLMQ_EXPF_C2));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(LLMQ_EXPF_C3));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(LLMQ_EXPF_C4));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(LLMQ_EXPF_C5));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    n = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
    return _mm256_andnot_ps(zero, _mm256_mul_ps(p, n));
}

/* The rest of dot16's tree, once lanes i and i + 8 are added: one vector, and four at once (element c of the result is
 * the sum of s[c]). */
VEC_INLINE float v8_fold(__m256 s)
{
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));

    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}

VEC_INLINE __m256 v8_fold_4(__m256 a, __m256 b) /* [a: 4 | b: 4] */
{
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}

VEC_INLINE __m128 v8_folds(__m256 s0, __m256 s1, __m256 s2, __m256 s3)
{
    __m256d x = _mm256_castps_pd(v8_fold_4(s0, s2)), y = _mm256_castps_pd(v8_fold_4(s1, s3));
    __m256  t = _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(x, y)), _mm256_castpd_ps(_mm256_unpackhi_pd(x, y)));
    __m128  lo = _mm256_castps256_ps128(t), hi = _mm256_extractf128_ps(t, 1); /* pairs of s0, s1; of s2, s3 */

    return _mm_add_ps(_mm_shuffle_ps(lo, hi, 0x88), _mm_shuffle_ps(lo, hi, 0xdd));
}

#if defined __GNUC__ && !defined __clang__
#pragma GCC pop_options
#endif

#endif

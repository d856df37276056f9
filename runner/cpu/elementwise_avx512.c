/* Conversions, norm, rotation, SwiGLU and log-sum-exp with AVX-512: see kernels.h for what each must give. */
#include "runner/cpu/kernels.h"
#include "runner/cpu/vec_avx512.h"

static void widen(float *dst, const void *src, int dtype, size_t count)
{
    for (size_t i = 0; i < count; i += 16) {
        __mmask16 m = v16_mask((long)(count - i));

        if (dtype == LLMQ_DTYPE_F32)
            _mm512_mask_storeu_ps(dst + i, m, v16_load(src, i, LLMQ_DTYPE_F32, m));
        else if (dtype == LLMQ_DTYPE_F16)
            _mm512_mask_storeu_ps(dst + i, m, v16_load(src, i, LLMQ_DTYPE_F16, m));
        else
            _mm512_mask_storeu_ps(dst + i, m, v16_load(src, i, LLMQ_DTYPE_BF16, m));
    }
}

static void narrow_f16(uint16_t *dst, const float *src, size_t count)
{
    for (size_t i = 0; i < count; i += 16) {
        __mmask16 m = v16_mask((long)(count - i));

        _mm256_mask_storeu_epi16(dst + i, m,
                                 _mm512_cvtps_ph(_mm512_maskz_loadu_ps(m, src + i), _MM_FROUND_TO_NEAREST_INT));
    }
}

static float dot_self(const float *x, int d)
{
    __m512 acc = _mm512_setzero_ps();

    for (int i = 0; i < d; i += 16) {
        __mmask16 m = v16_mask(d - i);
        __m512    v = _mm512_maskz_loadu_ps(m, x + i);

        acc = _mm512_mask3_fmadd_ps(v, v, acc, m);
    }
    return v16_fold(acc);
}

static void rmsnorm(float *out, const float *x, const float *w, int d, float eps)
{
    __m512 r = _mm512_set1_ps(1.0f / sqrtf(dot_self(x, d) / (float)d + eps));

    for (int i = 0; i < d; i += 16) {
        __mmask16 m = v16_mask(d - i);

        _mm512_mask_storeu_ps(out + i, m, _mm512_mul_ps(_mm512_mul_ps(_mm512_maskz_loadu_ps(m, x + i), r),
                                                        _mm512_maskz_loadu_ps(m, w + i)));
    }
}

static void rope(float *x, const float *cs, int half)
{
    for (int i = 0; i < half; i += 16) {
        __mmask16 m = v16_mask(half - i);
        __m512    a = _mm512_maskz_loadu_ps(m, x + i), b = _mm512_maskz_loadu_ps(m, x + i + half);
        __m512    c = _mm512_maskz_loadu_ps(m, cs + i), s = _mm512_maskz_loadu_ps(m, cs + i + half);

        _mm512_mask_storeu_ps(x + i, m, _mm512_sub_ps(_mm512_mul_ps(a, c), _mm512_mul_ps(b, s)));
        _mm512_mask_storeu_ps(x + i + half, m, _mm512_add_ps(_mm512_mul_ps(b, c), _mm512_mul_ps(a, s)));
    }
}

static void swiglu(float *out, const float *gate, const float *up, size_t count)
{
    for (size_t i = 0; i < count; i += 16) {
        __mmask16 m = v16_mask((long)(count - i));
        __m512    g = _mm512_maskz_loadu_ps(m, gate + i);
        __m512    e = v16_expf(_mm512_xor_ps(g, _mm512_set1_ps(-0.0f)));

        g = _mm512_div_ps(g, _mm512_add_ps(_mm512_set1_ps(1.0f), e));
        _mm512_mask_storeu_ps(out + i, m, _mm512_mul_ps(g, _mm512_maskz_loadu_ps(m, up + i)));
    }
}

static float row_max(const float *x, int n)
{
    __m512 m = _mm512_set1_ps(x[0]);

    for (int i = 0; i < n; i += 16)
        m = _mm512_mask_max_ps(m, v16_mask(n - i), m, _mm512_maskz_loadu_ps(v16_mask(n - i), x + i));
    return _mm512_reduce_max_ps(m);
}

static void logsumexp(const float *x, int n, float *max, double *sum)
{
    __m512 top;

    *max = row_max(x, n);
    *sum = 0.0;
    top = _mm512_set1_ps(*max);
    for (int first = 0; first < n; first += CPU_LSE_BLOCK) {
        int    end = n - first < CPU_LSE_BLOCK ? n : first + CPU_LSE_BLOCK;
        __m512 lane = _mm512_setzero_ps();

        for (int i = first; i < end; i += 16) {
            __mmask16 m = v16_mask(end - i);
            lane = _mm512_mask_add_ps(lane, m, lane, v16_expf(_mm512_sub_ps(_mm512_maskz_loadu_ps(m, x + i), top)));
        }
        *sum += (double)v16_fold(lane);
    }
}

void kernels_elementwise_avx512(struct cpu_kernels *t)
{
    t->widen = widen;
    t->narrow_f16 = narrow_f16;
    t->rmsnorm = rmsnorm;
    t->rope = rope;
    t->swiglu = swiglu;
    t->logsumexp = logsumexp;
}

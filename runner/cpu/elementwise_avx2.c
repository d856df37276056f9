/* Conversions, norm, rotation, SwiGLU and log-sum-exp with AVX2: see kernels.h for what each must give. */
#include "runner/cpu/kernels.h"
#include "runner/cpu/vec_avx2.h"

static void widen(float *dst, const void *src, int dtype, size_t count)
{
    for (size_t i = 0; i < count; i += 8) {
        long left = (long)(count - i);

        if (dtype == LLMQ_DTYPE_F32)
            v8_store_some(dst + i, left, v8_load_part(src, i, LLMQ_DTYPE_F32, left));
        else if (dtype == LLMQ_DTYPE_F16)
            v8_store_some(dst + i, left, v8_load_part(src, i, LLMQ_DTYPE_F16, left));
        else
            v8_store_some(dst + i, left, v8_load_part(src, i, LLMQ_DTYPE_BF16, left));
    }
}

static void narrow_f16(uint16_t *dst, const float *src, size_t count)
{
    for (size_t i = 0; i < count; i += 8) {
        long    left = (long)(count - i);
        __m128i h = _mm256_cvtps_ph(v8_load_some(src + i, left), _MM_FROUND_TO_NEAREST_INT);

        if (left >= 8)
            _mm_storeu_si128((void *)(dst + i), h);
        else
            memcpy(dst + i, &h, (size_t)left * 2);
    }
}

/* dot16(x, x) */
static float dot_self(const float *x, int d)
{
    __m256 lane[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    int    i = 0;

    for (; i + 16 <= d; i += 16) {
        __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + i + 8);

        lane[0] = _mm256_fmadd_ps(a, a, lane[0]);
        lane[1] = _mm256_fmadd_ps(b, b, lane[1]);
    }
    for (int h = 0; h < 2 && i < d; h++, i += 8) {
        __m256 a = v8_load_some(x + i, d - i);

        lane[h] = v8_first(lane[h], _mm256_fmadd_ps(a, a, lane[h]), d - i);
    }
    return v8_fold(_mm256_add_ps(lane[0], lane[1]));
}

static void rmsnorm(float *out, const float *x, const float *w, int d, float eps)
{
    __m256 r = _mm256_set1_ps(1.0f / sqrtf(dot_self(x, d) / (float)d + eps));

    for (int i = 0; i < d; i += 8)
        v8_store_some(out + i, d - i,
                      _mm256_mul_ps(_mm256_mul_ps(v8_load_some(x + i, d - i), r), v8_load_some(w + i, d - i)));
}

static void rope(float *x, const float *cs, int half)
{
    for (int i = 0; i < half; i += 8) {
        long   left = half - i;
        __m256 a = v8_load_some(x + i, left), b = v8_load_some(x + i + half, left);
        __m256 c = v8_load_some(cs + i, left), s = v8_load_some(cs + i + half, left);

        v8_store_some(x + i, left, _mm256_sub_ps(_mm256_mul_ps(a, c), _mm256_mul_ps(b, s)));
        v8_store_some(x + i + half, left, _mm256_add_ps(_mm256_mul_ps(b, c), _mm256_mul_ps(a, s)));
    }
}

static void swiglu(float *out, const float *gate, const float *up, size_t count)
{
    for (size_t i = 0; i < count; i += 8) {
        long   left = (long)(count - i);
        __m256 g = v8_load_some(gate + i, left), e = v8_expf(_mm256_xor_ps(g, _mm256_set1_ps(-0.0f)));

        g = _mm256_div_ps(g, _mm256_add_ps(_mm256_set1_ps(1.0f), e));
        v8_store_some(out + i, left, _mm256_mul_ps(g, v8_load_some(up + i, left)));
    }
}

static float row_max(const float *x, int n)
{
    __m256 m = _mm256_set1_ps(x[0]);
    float  all[8], top;

    for (int i = 0; i < n; i += 8)
        m = v8_first(m, _mm256_max_ps(m, v8_load_some(x + i, n - i)), n - i);
    _mm256_storeu_ps(all, m);
    top = all[0];
    for (int i = 1; i < 8; i++)
        top = all[i] > top ? all[i] : top;
    return top;
}

static void logsumexp(const float *x, int n, float *max, double *sum)
{
    __m256 top;

    *max = row_max(x, n);
    *sum = 0.0;
    top = _mm256_set1_ps(*max);
    for (int first = 0; first < n; first += CPU_LSE_BLOCK) {
        int    end = n - first < CPU_LSE_BLOCK ? n : first + CPU_LSE_BLOCK;
        __m256 lane[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};

        for (int i = first; i < end; i += 16)
            for (int h = 0; h < 2 && i + 8 * h < end; h++) {
                long   left = end - i - 8 * h;
                __m256 e = v8_expf(_mm256_sub_ps(v8_load_some(x + i + 8 * h, left), top));

                lane[h] = v8_first(lane[h], _mm256_add_ps(lane[h], e), left);
            }
        *sum += (double)v8_fold(_mm256_add_ps(lane[0], lane[1]));
    }
}

void kernels_elementwise_avx2(struct cpu_kernels *t)
{
    t->widen = widen;
    t->narrow_f16 = narrow_f16;
    t->rmsnorm = rmsnorm;
    t->rope = rope;
    t->swiglu = swiglu;
    t->logsumexp = logsumexp;
}

/* Attention with AVX2: see kernels.h, and attention_avx512.c for the plan.  The 16 lanes of dot16 are two vectors;
 * turned keys are taken 8 at a time. */
#include "runner/cpu/kernels.h"
#include "runner/cpu/vec_avx2.h"

/* ---- few rows --------------------------------------------------------------------------------------- */

/* Lanes i and i + 8 added, of dot16(q, k). */
VEC_INLINE __m256 half_dot(const float *q, const void *k, int hd, int dtype)
{
    __m256 lo = _mm256_setzero_ps(), hi = lo;
    int    d = 0;

    for (; d + 16 <= hd; d += 16) {
        lo = _mm256_fmadd_ps(v8_load(k, (size_t)d, dtype), _mm256_loadu_ps(q + d), lo);
        hi = _mm256_fmadd_ps(v8_load(k, (size_t)d + 8, dtype), _mm256_loadu_ps(q + d + 8), hi);
    }
    if (d < hd)
        lo = v8_first(lo, _mm256_fmadd_ps(v8_load_part(k, (size_t)d, dtype, hd - d), v8_load_some(q + d, hd - d), lo),
                      hd - d);
    d += 8;
    if (d < hd)
        hi = v8_first(hi, _mm256_fmadd_ps(v8_load_part(k, (size_t)d, dtype, hd - d), v8_load_some(q + d, hd - d), hi),
                      hd - d);
    return _mm256_add_ps(lo, hi);
}

VEC_INLINE void few(float *s, const float *q, const void *const *k, int n, int hd, float scale, int dtype)
{
    for (int j = 0; j < n; j += 4) {
        __m256 a[4];
        float  sum[4];

        for (int c = 0; c < 4; c++)
            a[c] = half_dot(q, k[j + c < n ? j + c : n - 1], hd, dtype);
        _mm_storeu_ps(sum, _mm_mul_ps(v8_folds(a[0], a[1], a[2], a[3]), _mm_set1_ps(scale)));
        for (int c = 0; c < 4 && j + c < n; c++)
            s[j + c] = sum[c];
    }
}

static void scores_few(float *s, const float *const *q, int rows, const void *const *k, int dtype, int n, int hd,
                       float scale)
{
    for (int r = 0; r < rows; r++)
        if (dtype == LLMQ_DTYPE_F16)
            few(s + r * CPU_PART, q[r], k, n, hd, scale, LLMQ_DTYPE_F16);
        else
            few(s + r * CPU_PART, q[r], k, n, hd, scale, LLMQ_DTYPE_F32);
}

/* ---- many rows ---------------------------------------------------------------------------------------- */

/* 8 x 8 floats, rows to columns. */
VEC_INLINE void transpose(__m256 r[8])
{
    __m256 t[8];

    for (int i = 0; i < 8; i += 4) { /* 4 x 4 within 128-bit lanes */
        __m256 a = _mm256_unpacklo_ps(r[i], r[i + 1]), b = _mm256_unpackhi_ps(r[i], r[i + 1]);
        __m256 c = _mm256_unpacklo_ps(r[i + 2], r[i + 3]), d = _mm256_unpackhi_ps(r[i + 2], r[i + 3]);

        t[i] = _mm256_shuffle_ps(a, c, 0x44);
        t[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
        t[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
        t[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(t[i], t[4 + i], 0x20);
        r[4 + i] = _mm256_permute2f128_ps(t[i], t[4 + i], 0x31);
    }
}

VEC_INLINE void turn(float *kt, const void *const *k, int n, int hd, int dtype)
{
    for (int side = 0; side < 16; side += 8)
        for (int d = 0; d < hd; d += 8) {
            __m256 r[8];

            for (int j = 0; j < 8; j++)
                r[j] = side + j < n ? v8_load_part(k[side + j], (size_t)d, dtype, hd - d) : _mm256_setzero_ps();
            transpose(r);
            for (int i = 0; i < 8 && d + i < hd; i++)
                _mm256_storeu_ps(kt + (d + i) * CPU_LANES + side, r[i]);
        }
}

static void keys_turn(float *kt, const void *const *k, int dtype, int n, int hd)
{
    if (dtype == LLMQ_DTYPE_F16)
        turn(kt, k, n, hd, LLMQ_DTYPE_F16);
    else
        turn(kt, k, n, hd, LLMQ_DTYPE_F32);
}

/* Lanes l and l + 8 of dot16, for 8 keys and each row, added. */
VEC_INLINE void tree_8(__m256 *out, const float *const *q, const float *kt, int hd, int l, int rows)
{
    __m256 a[2], b[2];

    for (int r = 0; r < rows; r++)
        a[r] = b[r] = _mm256_setzero_ps();
    for (int d = l; d < hd; d += 16) {
        __m256 x = _mm256_loadu_ps(kt + d * CPU_LANES);

        for (int r = 0; r < rows; r++)
            a[r] = _mm256_fmadd_ps(_mm256_set1_ps(q[r][d]), x, a[r]);
        if (d + 8 >= hd)
            break;
        x = _mm256_loadu_ps(kt + (d + 8) * CPU_LANES);
        for (int r = 0; r < rows; r++)
            b[r] = _mm256_fmadd_ps(_mm256_set1_ps(q[r][d + 8]), x, b[r]);
    }
    for (int r = 0; r < rows; r++)
        out[r] = _mm256_add_ps(a[r], b[r]);
}

VEC_INLINE void tree_4(__m256 *out, const float *const *q, const float *kt, int hd, int l, int rows)
{
    __m256 b[2];

    tree_8(out, q, kt, hd, l, rows);
    tree_8(b, q, kt, hd, l + 4, rows);
    for (int r = 0; r < rows; r++)
        out[r] = _mm256_add_ps(out[r], b[r]);
}

VEC_INLINE void tree_2(__m256 *out, const float *const *q, const float *kt, int hd, int l, int rows)
{
    __m256 b[2];

    tree_4(out, q, kt, hd, l, rows);
    tree_4(b, q, kt, hd, l + 2, rows);
    for (int r = 0; r < rows; r++)
        out[r] = _mm256_add_ps(out[r], b[r]);
}

VEC_INLINE void many(float *s, const float *const *q, const float *kt, int n, int hd, float scale, int rows)
{
    for (int j = 0; j < n; j += 8) {
        const float *at = kt + (j & ~15) * hd + (j & 8);
        __m256       a[2], b[2];

        tree_2(a, q, at, hd, 0, rows);
        tree_2(b, q, at, hd, 1, rows);
        for (int r = 0; r < rows; r++)
            v8_store_some(s + r * CPU_PART + j, n - j, _mm256_mul_ps(_mm256_add_ps(a[r], b[r]), _mm256_set1_ps(scale)));
    }
}

static void scores_many(float *s, const float *const *q, int rows, const float *kt, int n, int hd, float scale)
{
    int r = 0;

    for (; r + 2 <= rows; r += 2)
        if (hd == 64)
            many(s + r * CPU_PART, q + r, kt, n, 64, scale, 2);
        else
            many(s + r * CPU_PART, q + r, kt, n, hd, scale, 2);
    if (r < rows)
        many(s + r * CPU_PART, q + r, kt, n, hd, scale, 1);
}

static float row_max(const float *s, int n)
{
    __m256 m = _mm256_set1_ps(s[0]);
    float  all[8], top;

    for (int j = 0; j < n; j += 8)
        m = v8_first(m, _mm256_max_ps(m, v8_load_some(s + j, n - j)), n - j);
    _mm256_storeu_ps(all, m);
    top = all[0];
    for (int i = 1; i < 8; i++)
        top = all[i] > top ? all[i] : top;
    return top;
}

static void softmax(float *s, int n, float *m, float *l)
{
    __m256 lane[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()}, top;

    *m = row_max(s, n);
    top = _mm256_set1_ps(*m);
    for (int j = 0; j < n; j += 8) {
        __m256 e = v8_expf(_mm256_sub_ps(v8_load_some(s + j, n - j), top)), *to = &lane[j >> 3 & 1];

        v8_store_some(s + j, n - j, e);
        *to = v8_first(*to, _mm256_add_ps(*to, e), n - j);
    }
    *l = v8_fold(_mm256_add_ps(lane[0], lane[1]));
}

/* ---- values ------------------------------------------------------------------------------------------- */

/* The keys of row r that the first row does not see; and its sums to memory. */
VEC_INLINE void rest(float *o, __m256 acc[2], const float *s, int from, int n, const void *const *v, int d, int dtype,
                     int vecs, long left)
{
    for (int j = from; j < n; j++)
        for (int i = 0; i < vecs; i++)
            acc[i] = _mm256_fmadd_ps(_mm256_set1_ps(s[j]), v8_load_part(v[j], (size_t)d + 8 * (size_t)i, dtype, left),
                                     acc[i]);
    for (int i = 0; i < vecs; i++)
        v8_store_some(o + d + 8 * i, left, acc[i]);
}

/* `vecs` vectors from input d on: all rows together as far as the first one goes, then each for itself. */
VEC_INLINE void columns(float *o, const float *s, const int *n, const void *const *v, int hd, int d, int dtype,
                        int rows, int vecs)
{
    long   left = vecs == 1 ? hd - d : 8;
    __m256 acc[CPU_ROWS][2], e[CPU_ROWS];

    for (int r = 0; r < rows; r++)
        for (int i = 0; i < vecs; i++)
            acc[r][i] = _mm256_setzero_ps();
    for (int j = 0; j < n[0]; j++) {
        for (int r = 0; r < rows; r++)
            e[r] = _mm256_set1_ps(s[r * CPU_PART + j]);
        for (int i = 0; i < vecs; i++) {
            __m256 x = v8_load_part(v[j], (size_t)d + 8 * (size_t)i, dtype, left);

            for (int r = 0; r < rows; r++)
                acc[r][i] = _mm256_fmadd_ps(e[r], x, acc[r][i]);
        }
    }
    rest(o, acc[0], s, n[0], n[0], v, d, dtype, vecs, left);
    if (rows > 1)
        rest(o + hd, acc[1], s + CPU_PART, n[0], n[1], v, d, dtype, vecs, left);
    if (rows > 2)
        rest(o + 2 * hd, acc[2], s + 2 * CPU_PART, n[0], n[2], v, d, dtype, vecs, left);
    if (rows > 3)
        rest(o + 3 * hd, acc[3], s + 3 * CPU_PART, n[0], n[3], v, d, dtype, vecs, left);
}

VEC_INLINE void all_columns(float *o, const float *s, const int *n, const void *const *v, int hd, int dtype, int rows)
{
    int d = 0;

    for (; d + 16 <= hd; d += 16)
        columns(o, s, n, v, hd, d, dtype, rows, 2);
    for (; d < hd; d += 8)
        columns(o, s, n, v, hd, d, dtype, rows, 1);
}

VEC_INLINE void value_rows(float *o, const float *s, int rows, const int *n, const void *const *v, int hd, int dtype)
{
    switch (rows) {
    case 1: all_columns(o, s, n, v, hd, dtype, 1); break;
    case 2: all_columns(o, s, n, v, hd, dtype, 2); break;
    case 3: all_columns(o, s, n, v, hd, dtype, 3); break;
    default: all_columns(o, s, n, v, hd, dtype, 4); break;
    }
}

static void values(float *o, const float *s, int rows, const int *n, const void *const *v, int dtype, int hd)
{
    if (dtype == LLMQ_DTYPE_F16)
        value_rows(o, s, rows, n, v, hd, LLMQ_DTYPE_F16);
    else
        value_rows(o, s, rows, n, v, hd, LLMQ_DTYPE_F32);
}

static void merge(float *o, const float *p, float a, float b, int hd)
{
    for (int d = 0; d < hd; d += 8)
        v8_store_some(o + d, hd - d, _mm256_add_ps(_mm256_mul_ps(v8_load_some(o + d, hd - d), _mm256_set1_ps(a)),
                                                   _mm256_mul_ps(v8_load_some(p + d, hd - d), _mm256_set1_ps(b))));
}

static void divide(float *o, float l, int hd)
{
    for (int d = 0; d < hd; d += 8)
        v8_store_some(o + d, hd - d, _mm256_div_ps(v8_load_some(o + d, hd - d), _mm256_set1_ps(l)));
}

void kernels_attention_avx2(struct cpu_kernels *t)
{
    t->scores_few = scores_few;
    t->keys_turn = keys_turn;
    t->scores_many = scores_many;
    t->softmax = softmax;
    t->values = values;
    t->merge = merge;
    t->divide = divide;
}

/* Attention with AVX-512: see kernels.h.
 *
 * With few query rows a vector is 16 inputs of one key, and 16 dot products are folded together.  With many the keys
 * have been turned: a vector is one input of 16 keys, lane l of dot16 is a register of its own, and the tree is 15
 * plain additions.  In `values` a vector is 16 inputs of a value row. */
#include "runner/cpu/kernels.h"
#include "runner/cpu/vec_avx512.h"

/* ---- few rows --------------------------------------------------------------------------------------- */

/* Scores of four keys (fewer at the end: the last one again) and `rows` query rows. */
VEC_INLINE void four_keys(float *s, const float *const *q, const void *const *k, int n, int hd, float scale, int dtype,
                          int rows)
{
    __m512 acc[16];

    for (int i = 0; i < 16; i++)
        acc[i] = _mm512_setzero_ps();
    for (int d = 0; d < hd; d += 16) {
        __mmask16 m = v16_mask(hd - d);

        for (int c = 0; c < 4; c++) {
            __m512 v = v16_load(k[c < n ? c : n - 1], (size_t)d, dtype, m);

            for (int r = 0; r < rows; r++)
                acc[4 * c + r] = _mm512_mask3_fmadd_ps(v, _mm512_maskz_loadu_ps(m, q[r] + d), acc[4 * c + r], m);
        }
    }
    acc[0] = _mm512_mul_ps(v16_fold_16(acc), _mm512_set1_ps(scale));
    for (int r = 0; r < rows; r++) {
        __m128 sum = r == 0   ? _mm512_castps512_ps128(acc[0])
                     : r == 1 ? _mm512_extractf32x4_ps(acc[0], 1)
                     : r == 2 ? _mm512_extractf32x4_ps(acc[0], 2)
                              : _mm512_extractf32x4_ps(acc[0], 3);
        _mm_mask_storeu_ps(s + r * CPU_PART, (__mmask8)(n >= 4 ? 15 : (1 << n) - 1), sum);
    }
}

VEC_INLINE void few(float *s, const float *const *q, const void *const *k, int n, int hd, float scale, int dtype,
                    int rows)
{
    for (int j = 0; j < n; j += 4)
        four_keys(s + j, q, k + j, n - j, hd, scale, dtype, rows);
}

VEC_INLINE void few_rows(float *s, const float *const *q, int rows, const void *const *k, int n, int hd, float scale,
                         int dtype)
{
    switch (rows) {
    case 1: few(s, q, k, n, hd, scale, dtype, 1); break;
    case 2: few(s, q, k, n, hd, scale, dtype, 2); break;
    case 3: few(s, q, k, n, hd, scale, dtype, 3); break;
    default: few(s, q, k, n, hd, scale, dtype, 4); break;
    }
}

static void scores_few(float *s, const float *const *q, int rows, const void *const *k, int dtype, int n, int hd,
                       float scale)
{
    if (dtype == LLMQ_DTYPE_F16)
        few_rows(s, q, rows, k, n, hd, scale, LLMQ_DTYPE_F16);
    else
        few_rows(s, q, rows, k, n, hd, scale, LLMQ_DTYPE_F32);
}

/* ---- many rows ---------------------------------------------------------------------------------------- */

/* 16 x 16 floats, rows to columns. */
VEC_INLINE void transpose(__m512 r[16])
{
    __m512 t[16];

    for (int i = 0; i < 16; i += 4) { /* 4 x 4 within 128-bit lanes */
        __m512 a = _mm512_unpacklo_ps(r[i], r[i + 1]), b = _mm512_unpackhi_ps(r[i], r[i + 1]);
        __m512 c = _mm512_unpacklo_ps(r[i + 2], r[i + 3]), d = _mm512_unpackhi_ps(r[i + 2], r[i + 3]);

        t[i] = _mm512_shuffle_ps(a, c, 0x44);
        t[i + 1] = _mm512_shuffle_ps(a, c, 0xee);
        t[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
        t[i + 3] = _mm512_shuffle_ps(b, d, 0xee);
    }
    for (int i = 0; i < 4; i++) { /* then lanes: t[4 * m + i] lane L holds column 4 * L + i of rows 4 * m.. */
        __m512 a = _mm512_shuffle_f32x4(t[i], t[4 + i], 0x44), b = _mm512_shuffle_f32x4(t[i], t[4 + i], 0xee);
        __m512 c = _mm512_shuffle_f32x4(t[8 + i], t[12 + i], 0x44), d = _mm512_shuffle_f32x4(t[8 + i], t[12 + i], 0xee);

        r[i] = _mm512_shuffle_f32x4(a, c, 0x88);
        r[4 + i] = _mm512_shuffle_f32x4(a, c, 0xdd);
        r[8 + i] = _mm512_shuffle_f32x4(b, d, 0x88);
        r[12 + i] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
}

VEC_INLINE void turn(float *kt, const void *const *k, int n, int hd, int dtype)
{
    for (int d = 0; d < hd; d += 16) {
        __m512 r[16];

        for (int j = 0; j < 16; j++)
            r[j] = j < n ? v16_load(k[j], (size_t)d, dtype, v16_mask(hd - d)) : _mm512_setzero_ps();
        transpose(r);
        for (int i = 0; i < 16 && d + i < hd; i++)
            _mm512_storeu_ps(kt + (d + i) * CPU_LANES, r[i]);
    }
}

static void keys_turn(float *kt, const void *const *k, int dtype, int n, int hd)
{
    if (dtype == LLMQ_DTYPE_F16)
        turn(kt, k, n, hd, LLMQ_DTYPE_F16);
    else
        turn(kt, k, n, hd, LLMQ_DTYPE_F32);
}

/* Lanes l and l + 8 of dot16, for 16 keys and each row, added. */
VEC_INLINE void tree_8(__m512 *out, const float *const *q, const float *kt, int hd, int l, int rows)
{
    __m512 a[CPU_ROWS], b[CPU_ROWS];

    for (int r = 0; r < rows; r++)
        a[r] = b[r] = _mm512_setzero_ps();
    for (int d = l; d < hd; d += 16) {
        __m512 x = _mm512_loadu_ps(kt + d * CPU_LANES);

        for (int r = 0; r < rows; r++)
            a[r] = _mm512_fmadd_ps(_mm512_set1_ps(q[r][d]), x, a[r]);
        if (d + 8 >= hd)
            break;
        x = _mm512_loadu_ps(kt + (d + 8) * CPU_LANES);
        for (int r = 0; r < rows; r++)
            b[r] = _mm512_fmadd_ps(_mm512_set1_ps(q[r][d + 8]), x, b[r]);
    }
    for (int r = 0; r < rows; r++)
        out[r] = _mm512_add_ps(a[r], b[r]);
}

VEC_INLINE void tree_4(__m512 *out, const float *const *q, const float *kt, int hd, int l, int rows)
{
    __m512 b[CPU_ROWS];

    tree_8(out, q, kt, hd, l, rows);
    tree_8(b, q, kt, hd, l + 4, rows);
    for (int r = 0; r < rows; r++)
        out[r] = _mm512_add_ps(out[r], b[r]);
}

VEC_INLINE void tree_2(__m512 *out, const float *const *q, const float *kt, int hd, int l, int rows)
{
    __m512 b[CPU_ROWS];

    tree_4(out, q, kt, hd, l, rows);
    tree_4(b, q, kt, hd, l + 2, rows);
    for (int r = 0; r < rows; r++)
        out[r] = _mm512_add_ps(out[r], b[r]);
}

VEC_INLINE void many(float *s, const float *const *q, const float *kt, int n, int hd, float scale, int rows)
{
    for (int j = 0; j < n; j += CPU_LANES, kt += hd * CPU_LANES) {
        __m512 a[CPU_ROWS], b[CPU_ROWS];

        tree_2(a, q, kt, hd, 0, rows);
        tree_2(b, q, kt, hd, 1, rows);
        for (int r = 0; r < rows; r++)
            _mm512_mask_storeu_ps(s + r * CPU_PART + j, v16_mask(n - j),
                                  _mm512_mul_ps(_mm512_add_ps(a[r], b[r]), _mm512_set1_ps(scale)));
    }
}

static void scores_many(float *s, const float *const *q, int rows, const float *kt, int n, int hd, float scale)
{
    if (rows == 4 && hd == 64)
        many(s, q, kt, n, 64, scale, 4);
    else if (rows == 4)
        many(s, q, kt, n, hd, scale, 4);
    else
        for (int r = 0; r < rows; r++)
            many(s + r * CPU_PART, q + r, kt, n, hd, scale, 1);
}

static void softmax(float *s, int n, float *m, float *l)
{
    __m512 lane = _mm512_setzero_ps(), top = _mm512_set1_ps(s[0]);

    for (int j = 0; j < n; j += 16)
        top = _mm512_mask_max_ps(top, v16_mask(n - j), top, _mm512_maskz_loadu_ps(v16_mask(n - j), s + j));
    *m = _mm512_reduce_max_ps(top);
    top = _mm512_set1_ps(*m);
    for (int j = 0; j < n; j += 16) {
        __mmask16 mask = v16_mask(n - j);
        __m512    e = v16_expf(_mm512_sub_ps(_mm512_maskz_loadu_ps(mask, s + j), top));

        _mm512_mask_storeu_ps(s + j, mask, e);
        lane = _mm512_mask_add_ps(lane, mask, lane, e);
    }
    *l = v16_fold(lane);
}

/* ---- values ------------------------------------------------------------------------------------------- */

/* The keys of row r that the first row does not see; and its sums to memory. */
VEC_INLINE void rest(float *o, __m512 acc[4], const float *s, int from, int n, const void *const *v, int d, int dtype,
                     int vecs, __mmask16 m)
{
    for (int j = from; j < n; j++)
        for (int i = 0; i < vecs; i++)
            acc[i] = _mm512_fmadd_ps(_mm512_set1_ps(s[j]), v16_load(v[j], (size_t)d + 16 * (size_t)i, dtype, m), acc[i]);
    for (int i = 0; i < vecs; i++)
        _mm512_mask_storeu_ps(o + d + 16 * i, m, acc[i]);
}

/* `vecs` vectors from input d on: all rows together as far as the first one goes, then each for itself.  (The rows are
 * written out there: a loop over them would keep the sums in memory.) */
VEC_INLINE void columns(float *o, const float *s, const int *n, const void *const *v, int hd, int d, int dtype,
                        int rows, int vecs)
{
    __mmask16 m = vecs == 1 ? v16_mask(hd - d) : 0xffff;
    __m512    acc[CPU_ROWS][4], e[CPU_ROWS];

    for (int r = 0; r < rows; r++)
        for (int i = 0; i < vecs; i++)
            acc[r][i] = _mm512_setzero_ps();
    for (int j = 0; j < n[0]; j++) {
        for (int r = 0; r < rows; r++)
            e[r] = _mm512_set1_ps(s[r * CPU_PART + j]);
        for (int i = 0; i < vecs; i++) {
            __m512 x = v16_load(v[j], (size_t)d + 16 * (size_t)i, dtype, m);

            for (int r = 0; r < rows; r++)
                acc[r][i] = _mm512_fmadd_ps(e[r], x, acc[r][i]);
        }
    }
    rest(o, acc[0], s, n[0], n[0], v, d, dtype, vecs, m);
    if (rows > 1)
        rest(o + hd, acc[1], s + CPU_PART, n[0], n[1], v, d, dtype, vecs, m);
    if (rows > 2)
        rest(o + 2 * hd, acc[2], s + 2 * CPU_PART, n[0], n[2], v, d, dtype, vecs, m);
    if (rows > 3)
        rest(o + 3 * hd, acc[3], s + 3 * CPU_PART, n[0], n[3], v, d, dtype, vecs, m);
}

VEC_INLINE void all_columns(float *o, const float *s, const int *n, const void *const *v, int hd, int dtype, int rows)
{
    int d = 0;

    for (; d + 64 <= hd; d += 64)
        columns(o, s, n, v, hd, d, dtype, rows, 4);
    for (; d < hd; d += 16)
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
    for (int d = 0; d < hd; d += 16) {
        __mmask16 m = v16_mask(hd - d);
        __m512    x = _mm512_mul_ps(_mm512_maskz_loadu_ps(m, o + d), _mm512_set1_ps(a));

        x = _mm512_add_ps(x, _mm512_mul_ps(_mm512_maskz_loadu_ps(m, p + d), _mm512_set1_ps(b)));
        _mm512_mask_storeu_ps(o + d, m, x);
    }
}

static void divide(float *o, float l, int hd)
{
    for (int d = 0; d < hd; d += 16) {
        __mmask16 m = v16_mask(hd - d);

        _mm512_mask_storeu_ps(o + d, m, _mm512_div_ps(_mm512_maskz_loadu_ps(m, o + d), _mm512_set1_ps(l)));
    }
}

void kernels_attention_avx512(struct cpu_kernels *t)
{
    t->scores_few = scores_few;
    t->keys_turn = keys_turn;
    t->scores_many = scores_many;
    t->softmax = softmax;
    t->values = values;
    t->merge = merge;
    t->divide = divide;
}

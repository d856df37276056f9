/* Integer weights with AVX-512 VNNI: see struct cpu_tiles in kernels.h.
 *
 * A vector register is the 16 outputs of a tile.  A row of a tile, masked or shifted, gives inputs (0, 2) and (1, 3)
 * of each output as pairs of 16-bit codes; vpdpwssd multiplies a pair with the same pair of a token's activations
 * (one broadcast 32-bit word) and adds both products exactly.  With few tokens a token has several sums, because
 * one chain of vpdpwssd would wait for itself; integer sums may be split as one likes. */
#include "runner/cpu/kernels.h"
#include "runner/cpu/vec_avx512.h"

enum { TOKENS = 8, SUMS = 8, HALF = 32, AHEAD = 4096 };

/* Code vectors of row r of half h (inputs 32 h .. 32 h + 31 of the row of tiles); odd: h & 1, known to the compiler. */
VEC_INLINE void codes(__m512i c[2], const uint8_t *block, int h, int odd, int r, int bits)
{
    __m512i w, low = _mm512_set1_epi16(0x000f);

    if (bits == 8) {
        w = _mm512_loadu_si512(block + h * 512 + r * 64);
        c[0] = _mm512_and_si512(w, _mm512_set1_epi16(0x00ff));
        c[1] = _mm512_srli_epi16(w, 8);
        return;
    }
    w = _mm512_loadu_si512(block + h / 2 * 512 + r * 64);
    c[0] = _mm512_and_si512(odd ? _mm512_srli_epi16(w, 4) : w, low);
    c[1] = odd ? _mm512_srli_epi16(w, 12) : _mm512_and_si512(_mm512_srli_epi16(w, 8), low);
}

VEC_INLINE __m512i pair(const int16_t *v)
{
    int32_t u;

    memcpy(&u, v, sizeof u);
    return _mm512_set1_epi32(u);
}

/* s[token * split + ...] += row r of half h times the activations. */
VEC_INLINE void row(__m512i *s, const uint8_t *block, const int16_t *v, size_t ldv, int h, int odd, int r, int bits,
                    int tokens, int split)
{
    __m512i c[2];

    codes(c, block, h, odd, r, bits);
    for (int t = 0; t < tokens; t++) {
        const int16_t *at = v + (size_t)t * ldv + h * HALF + r * 4;
        __m512i       *to = s + t * split;

        to[2 * odd % split] = _mm512_dpwssd_epi32(to[2 * odd % split], c[0], pair(at));
        to[(2 * odd + 1) % split] = _mm512_dpwssd_epi32(to[(2 * odd + 1) % split], c[1], pair(at + 2));
    }
}

/* (Unrolled in full, the compiler reorders the sums until they no longer fit the registers.) */
VEC_INLINE void half(__m512i *s, const uint8_t *block, const int16_t *v, size_t ldv, int h, int odd, int bits,
                     int tokens, int split)
{
#pragma GCC unroll 2
    for (int r = 0; r < 8; r++)
        row(s, block, v, ldv, h, odd, r, bits, tokens, split);
}

/* Halves h and h + 1, h even, in the order of their bytes: a row of 4-bit codes serves both. */
VEC_INLINE void whole(__m512i *s, const uint8_t *block, const int16_t *v, size_t ldv, int h, int bits, int tokens,
                      int split)
{
    const char *ahead = (const char *)block + h / 2 * 128 * bits + AHEAD;

#pragma GCC unroll 2
    for (int r = 0; r < 8; r++) {
        if (tokens == 1)
            _mm_prefetch(ahead + r * 64, _MM_HINT_T0);
        row(s, block, v, ldv, h, 0, r, bits, tokens, split);
        if (bits == 4)
            row(s, block, v, ldv, h + 1, 1, r, bits, tokens, split);
    }
#pragma GCC unroll 2
    for (int r = 0; r < 8 && bits == 8; r++) {
        if (tokens == 1)
            _mm_prefetch(ahead + 512 + r * 64, _MM_HINT_T0);
        row(s, block, v, ldv, h + 1, 1, r, bits, tokens, split);
    }
}

VEC_INLINE __m512i zeros_of(const struct cpu_tiles *a, size_t at)
{
    if (!a->zeros)
        return _mm512_set1_epi32(a->zero);
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)(a->zeros + at)));
}

/* acc + (scale * xs) * (float)(s - zero * sum) */
VEC_INLINE __m512 add_group(__m512 acc, __m512i s, __m512 scale, __m512i zero, float xs, int32_t sum)
{
    s = _mm512_sub_epi32(s, _mm512_mullo_epi32(zero, _mm512_set1_epi32(sum)));
    return _mm512_add_ps(acc, _mm512_mul_ps(_mm512_mul_ps(scale, _mm512_set1_ps(xs)), _mm512_cvtepi32_ps(s)));
}

VEC_INLINE void store(const struct cpu_tiles *a, int block, int t, __m512 acc)
{
    int       o = block * LLMQ_TILE_N;
    __mmask16 m = v16_mask(a->n - o);
    float    *y = a->y + (size_t)t * a->ldy + o;

    if (a->bias)
        acc = _mm512_add_ps(acc, _mm512_maskz_loadu_ps(m, a->bias + o));
    if (a->add)
        acc = _mm512_add_ps(_mm512_maskz_loadu_ps(m, y), acc);
    _mm512_mask_storeu_ps(y, m, acc);
}

/* One block of 16 outputs for `tokens` tokens from t0 on. */
VEC_INLINE void tile(const struct cpu_tiles *a, int block, int t0, int bits, int tokens, int split)
{
    const uint8_t *w = a->w + (size_t)block * (size_t)a->k_pad * 2 * (size_t)bits;
    size_t         ldv = (size_t)a->k_pad, ng = (size_t)a->ng;
    const int16_t *v = a->v + (size_t)t0 * ldv;
    int            halves = a->k_pad / HALF, wide = a->gw / HALF;
    __m512         acc[TOKENS];

    for (int t = 0; t < tokens; t++)
        acc[t] = _mm512_setzero_ps();
    for (int g = 0; g < a->ng; g++) {
        size_t  at = ((size_t)block * (size_t)a->groups + (size_t)(a->per_scale == 1 ? g : g / a->per_scale)) * 16;
        size_t  tg = (size_t)t0 * ng + (size_t)g;
        int     h = g * wide, end = h + wide < halves ? h + wide : halves;
        __m512  scale = _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(a->scales + at)));
        __m512i s[SUMS];

        for (int i = 0; i < tokens * split; i++)
            s[i] = _mm512_setzero_si512();
        if (wide == 1 && g % 2 == 0)
            half(s, w, v, ldv, h, 0, bits, tokens, split);
        else if (wide == 1)
            half(s, w, v, ldv, h, 1, bits, tokens, split);
        else
            for (; h < end; h += 2)
                whole(s, w, v, ldv, h, bits, tokens, split);
        for (int t = 0; t < tokens; t++) {
            for (int i = 1; i < split; i++)
                s[t * split] = _mm512_add_epi32(s[t * split], s[t * split + i]);
            acc[t] = add_group(acc[t], s[t * split], scale, zeros_of(a, at), a->xs[tg + (size_t)t * ng],
                               a->sum[tg + (size_t)t * ng]);
        }
    }
    for (int t = 0; t < tokens; t++)
        store(a, block, t0 + t, acc[t]);
}

VEC_INLINE void one(const struct cpu_tiles *a, int block0, int block1, int bits)
{
    for (int b = block0; b < block1; b++)
        tile(a, b, 0, bits, 1, 4);
}

VEC_INLINE void many(const struct cpu_tiles *a, int block0, int block1, int bits)
{
    for (int b = block0; b < block1; b++) {
        int t = 0;

        for (; t + 8 <= a->m; t += 8)
            tile(a, b, t, bits, 8, 1);
        for (; t + 4 <= a->m; t += 4)
            tile(a, b, t, bits, 4, 1);
        for (; t + 2 <= a->m; t += 2)
            tile(a, b, t, bits, 2, 2);
        if (t < a->m)
            tile(a, b, t, bits, 1, 4);
    }
}

static void q4_one(const struct cpu_tiles *a, int block0, int block1) { one(a, block0, block1, 4); }
static void q8_one(const struct cpu_tiles *a, int block0, int block1) { one(a, block0, block1, 8); }
static void q4_many(const struct cpu_tiles *a, int block0, int block1) { many(a, block0, block1, 4); }
static void q8_many(const struct cpu_tiles *a, int block0, int block1) { many(a, block0, block1, 8); }

/* ---- activations ------------------------------------------------------------------------------------ */

static int group_codes(int16_t *v, const float *x, int n, float inv)
{
    const __m512i most = _mm512_set1_epi32(CPU_ACT_MAX), least = _mm512_set1_epi32(-CPU_ACT_MAX);
    __m512i       sum = _mm512_setzero_si512();

    for (int i = 0; i < n; i += 16) {
        __m512  r = _mm512_mul_ps(_mm512_maskz_loadu_ps(v16_mask(n - i), x + i), _mm512_set1_ps(inv));
        __m512i c = _mm512_cvtps_epi32(r);
        __m256i d;

        c = _mm512_max_epi32(_mm512_min_epi32(c, most), least);
        sum = _mm512_add_epi32(sum, c);
        d = _mm512_cvtepi32_epi16(c);
        d = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(d, 0xd8), 0xd8); /* inputs 0, 2, 1, 3 */
        _mm256_storeu_si256((void *)(v + i), d);
    }
    return _mm512_reduce_add_epi32(sum);
}

static void act_quant(int16_t *v, float *xs, int32_t *sum, const float *x, int k, int k_pad, int gw)
{
    memset(v, 0, (size_t)k_pad * sizeof *v);
    for (int g = 0; g * gw < k; g++) {
        int     first = g * gw, n = k - first < gw ? k - first : gw, usable;
        __m512i top = _mm512_setzero_si512();
        float   amax;

        for (int i = 0; i < n; i += 16)
            top = _mm512_max_epu32(top, _mm512_and_si512(_mm512_maskz_loadu_epi32(v16_mask(n - i), x + first + i),
                                                         _mm512_set1_epi32(0x7fffffff)));
        amax = llmq_fp_from_bits((uint32_t)_mm512_reduce_max_epu32(top));
        usable = amax >= 0x1p-100f && amax < INFINITY;
        xs[g] = usable ? amax / CPU_ACT_MAX : amax < 0x1p-100f ? 0.0f : amax;
        sum[g] = usable ? group_codes(v + first, x + first, n, CPU_ACT_MAX / amax) : 0;
    }
}

void kernels_tiles_avx512(struct cpu_kernels *t)
{
    t->act_quant = act_quant;
    t->q4_one = q4_one;
    t->q8_one = q8_one;
    t->q4_many = q4_many;
    t->q8_many = q8_many;
}

/* Integer weights with AVX2: see struct cpu_tiles in kernels.h.
 *
 * As tiles_avx512.c, with 8 of a tile's 16 outputs in a register: half a row, masked or shifted, gives inputs (0, 2)
 * and (1, 3) of each output as 16-bit codes, and vpmaddwd with a token's pair (a broadcast 32-bit word) adds both
 * products exactly.  (vpmaddubsw would saturate with 8-bit codes and needs two planes of activations.) */
#include "runner/cpu/kernels.h"
#include "runner/cpu/vec_avx2.h"

enum { TOKENS = 4, SUMS = 4, HALF = 32, OUTPUTS = 8, AHEAD = 4096 };

/* Code vectors of 8 outputs from row r of half h (inputs 32 h .. 32 h + 31); odd: h & 1, known to the compiler. */
VEC_INLINE void codes(__m256i c[2], const uint8_t *block, int h, int odd, int r, int bits)
{
    __m256i w, low = _mm256_set1_epi16(0x000f);

    if (bits == 8) {
        w = _mm256_loadu_si256((const void *)(block + h * 512 + r * 64));
        c[0] = _mm256_and_si256(w, _mm256_set1_epi16(0x00ff));
        c[1] = _mm256_srli_epi16(w, 8);
        return;
    }
    w = _mm256_loadu_si256((const void *)(block + h / 2 * 512 + r * 64));
    c[0] = _mm256_and_si256(odd ? _mm256_srli_epi16(w, 4) : w, low);
    c[1] = odd ? _mm256_srli_epi16(w, 12) : _mm256_and_si256(_mm256_srli_epi16(w, 8), low);
}

VEC_INLINE __m256i pair(const int16_t *v)
{
    int32_t u;

    memcpy(&u, v, sizeof u);
    return _mm256_set1_epi32(u);
}

/* s[side * tokens * split + token * split + ...] += row r of half h times the activations, for 8 outputs a side. */
VEC_INLINE void row(__m256i *s, const uint8_t *block, const int16_t *v, size_t ldv, int h, int odd, int r, int bits,
                    int tokens, int split, int sides)
{
    for (int side = 0; side < sides; side++) {
        __m256i c[2];

        codes(c, block + side * 32, h, odd, r, bits);
        for (int t = 0; t < tokens; t++) {
            const int16_t *at = v + (size_t)t * ldv + h * HALF + r * 4;
            __m256i       *to = s + (side * tokens + t) * split;

            to[0] = _mm256_add_epi32(to[0], _mm256_madd_epi16(c[0], pair(at)));
            to[split - 1] = _mm256_add_epi32(to[split - 1], _mm256_madd_epi16(c[1], pair(at + 2)));
        }
    }
}

/* (Unrolled in full, the compiler reorders the sums until they no longer fit the registers.) */
VEC_INLINE void half(__m256i *s, const uint8_t *block, const int16_t *v, size_t ldv, int h, int odd, int bits,
                     int tokens, int split, int sides)
{
#pragma GCC unroll 2
    for (int r = 0; r < 8; r++)
        row(s, block, v, ldv, h, odd, r, bits, tokens, split, sides);
}

/* Halves h and h + 1, h even, in the order of their bytes: a row of 4-bit codes serves both. */
VEC_INLINE void whole(__m256i *s, const uint8_t *block, const int16_t *v, size_t ldv, int h, int bits, int tokens,
                      int split, int sides)
{
    const char *ahead = (const char *)block + h / 2 * 128 * bits + AHEAD;

#pragma GCC unroll 2
    for (int r = 0; r < 8; r++) {
        if (tokens == 1)
            _mm_prefetch(ahead + r * 64, _MM_HINT_T0);
        row(s, block, v, ldv, h, 0, r, bits, tokens, split, sides);
        if (bits == 4)
            row(s, block, v, ldv, h + 1, 1, r, bits, tokens, split, sides);
    }
#pragma GCC unroll 2
    for (int r = 0; r < 8 && bits == 8; r++) {
        if (tokens == 1)
            _mm_prefetch(ahead + 512 + r * 64, _MM_HINT_T0);
        row(s, block, v, ldv, h + 1, 1, r, bits, tokens, split, sides);
    }
}

VEC_INLINE __m256i zeros_of(const struct cpu_tiles *a, size_t at)
{
    if (!a->zeros)
        return _mm256_set1_epi32(a->zero);
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)(a->zeros + at)));
}

/* acc + (scale * xs) * (float)(s - zero * sum) */
VEC_INLINE __m256 add_group(__m256 acc, __m256i s, __m256 scale, __m256i zero, float xs, int32_t sum)
{
    s = _mm256_sub_epi32(s, _mm256_mullo_epi32(zero, _mm256_set1_epi32(sum)));
    return _mm256_add_ps(acc, _mm256_mul_ps(_mm256_mul_ps(scale, _mm256_set1_ps(xs)), _mm256_cvtepi32_ps(s)));
}

VEC_INLINE void store(const struct cpu_tiles *a, int o, int t, __m256 acc)
{
    long   left = a->n - o;
    float *y = a->y + (size_t)t * a->ldy + o;

    if (left <= 0)
        return;
    if (a->bias)
        acc = _mm256_add_ps(acc, v8_load_some(a->bias + o, left));
    if (a->add)
        acc = _mm256_add_ps(v8_load_some(y, left), acc);
    v8_store_some(y, left, acc);
}

/* One side (8 outputs) of a block, or both, for `tokens` tokens from t0 on. */
VEC_INLINE void tile(const struct cpu_tiles *a, int block, int first, int sides, int t0, int bits, int tokens,
                     int split)
{
    const uint8_t *w = a->w + (size_t)block * (size_t)a->k_pad * 2 * (size_t)bits + first * 32;
    size_t         ldv = (size_t)a->k_pad, ng = (size_t)a->ng;
    const int16_t *v = a->v + (size_t)t0 * ldv;
    int            halves = a->k_pad / HALF, wide = a->gw / HALF, n = sides * tokens;
    __m256         acc[SUMS];

    for (int i = 0; i < n; i++)
        acc[i] = _mm256_setzero_ps();
    for (int g = 0; g < a->ng; g++) {
        size_t  sg = (size_t)(a->per_scale == 1 ? g : g / a->per_scale);
        size_t  at = ((size_t)block * (size_t)a->groups + sg) * 16 + (size_t)first * OUTPUTS;
        size_t  tg = (size_t)t0 * ng + (size_t)g;
        int     h = g * wide, end = h + wide < halves ? h + wide : halves;
        __m256i s[SUMS];

        for (int i = 0; i < n * split; i++)
            s[i] = _mm256_setzero_si256();
        if (wide == 1 && g % 2 == 0)
            half(s, w, v, ldv, h, 0, bits, tokens, split, sides);
        else if (wide == 1)
            half(s, w, v, ldv, h, 1, bits, tokens, split, sides);
        else
            for (; h < end; h += 2)
                whole(s, w, v, ldv, h, bits, tokens, split, sides);
        for (int i = 0; i < n; i++) {
            size_t  t = tg + (size_t)(i % tokens) * ng, o = at + (size_t)(i / tokens) * OUTPUTS;
            __m256i sum = split == 2 ? _mm256_add_epi32(s[2 * i], s[2 * i + 1]) : s[i];

            acc[i] = add_group(acc[i], sum, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(a->scales + o))),
                               zeros_of(a, o), a->xs[t], a->sum[t]);
        }
    }
    for (int i = 0; i < n; i++)
        store(a, block * LLMQ_TILE_N + (first + i / tokens) * OUTPUTS, t0 + i % tokens, acc[i]);
}

VEC_INLINE void one(const struct cpu_tiles *a, int block0, int block1, int bits)
{
    for (int b = block0; b < block1; b++)
        tile(a, b, 0, 2, 0, bits, 1, 2);
}

VEC_INLINE void many(const struct cpu_tiles *a, int block0, int block1, int bits)
{
    for (int b = block0; b < block1; b++) {
        int t = 0;

        for (; t + 4 <= a->m; t += 4) {
            tile(a, b, 0, 1, t, bits, 4, 1);
            tile(a, b, 1, 1, t, bits, 4, 1);
        }
        for (; t + 2 <= a->m; t += 2)
            tile(a, b, 0, 2, t, bits, 2, 1);
        if (t < a->m)
            tile(a, b, 0, 2, t, bits, 1, 2);
    }
}

static void q4_one(const struct cpu_tiles *a, int block0, int block1) { one(a, block0, block1, 4); }
static void q8_one(const struct cpu_tiles *a, int block0, int block1) { one(a, block0, block1, 8); }
static void q4_many(const struct cpu_tiles *a, int block0, int block1) { many(a, block0, block1, 4); }
static void q8_many(const struct cpu_tiles *a, int block0, int block1) { many(a, block0, block1, 8); }

/* ---- activations ------------------------------------------------------------------------------------ */

VEC_INLINE int32_t sum_8(__m256i s)
{
    __m128i t = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));

    t = _mm_add_epi32(t, _mm_shuffle_epi32(t, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(t, _mm_shuffle_epi32(t, 0xb1)));
}

static float amax_of(const float *x, int n)
{
    __m256i  top = _mm256_setzero_si256();
    uint32_t all[8], most = 0;

    for (int i = 0; i < n; i += 8)
        top = _mm256_max_epu32(top, _mm256_and_si256(_mm256_castps_si256(v8_load_some(x + i, n - i)),
                                                     _mm256_set1_epi32(0x7fffffff)));
    _mm256_storeu_si256((void *)all, top);
    for (int i = 0; i < 8; i++)
        most = all[i] > most ? all[i] : most;
    return llmq_fp_from_bits(most);
}

static int group_codes(int16_t *v, const float *x, int n, float inv)
{
    const __m256i most = _mm256_set1_epi32(CPU_ACT_MAX), least = _mm256_set1_epi32(-CPU_ACT_MAX);
    __m256i       sum = _mm256_setzero_si256();

    for (int i = 0; i < n; i += 8) {
        __m256i c = _mm256_cvtps_epi32(_mm256_mul_ps(v8_load_some(x + i, n - i), _mm256_set1_ps(inv)));
        __m128i d;

        c = _mm256_max_epi32(_mm256_min_epi32(c, most), least);
        sum = _mm256_add_epi32(sum, c);
        d = _mm_packs_epi32(_mm256_castsi256_si128(c), _mm256_extracti128_si256(c, 1));
        d = _mm_shufflehi_epi16(_mm_shufflelo_epi16(d, 0xd8), 0xd8); /* inputs 0, 2, 1, 3 */
        _mm_storeu_si128((void *)(v + i), d);
    }
    return sum_8(sum);
}

static void act_quant(int16_t *v, float *xs, int32_t *sum, const float *x, int k, int k_pad, int gw)
{
    memset(v, 0, (size_t)k_pad * sizeof *v);
    for (int g = 0; g * gw < k; g++) {
        int   first = g * gw, n = k - first < gw ? k - first : gw;
        float amax = amax_of(x + first, n);
        int   usable = amax >= 0x1p-100f && amax < INFINITY;

        xs[g] = usable ? amax / CPU_ACT_MAX : amax < 0x1p-100f ? 0.0f : amax;
        sum[g] = usable ? group_codes(v + first, x + first, n, CPU_ACT_MAX / amax) : 0;
    }
}

void kernels_tiles_avx2(struct cpu_kernels *t)
{
    t->act_quant = act_quant;
    t->q4_one = q4_one;
    t->q8_one = q8_one;
    t->q4_many = q4_many;
    t->q8_many = q8_many;
}

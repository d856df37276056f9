/* Codes and elements <-> bytes in a layout.  Nothing else in the tree knows the order inside a tile; the
 * kernels' vector code is tested against llmq_dequant_rows, which is the definition of what a tensor means.
 *
 * Invariant of everything packed here: padding decodes to exactly 0.  A padded input carries the zero point
 * of its group (inputs past the last group belong to the last one), a padded output has scale 0. */
#include "format/file.h"

#include "common/fp.h"

#include <string.h>

enum { TILE_N = LLMQ_TILE_N, TILE_K = LLMQ_TILE_K };

/* ---- one tile -------------------------------------------------------------------------------- */

static size_t tile_bytes(const struct llmq_tensor *t) { return (size_t)TILE_N * TILE_K / 8 * t->scheme.bits; }

/* codes: the tile's, [output][input]. */
static void tile_put(uint8_t *out, const uint8_t codes[TILE_N][TILE_K], int bits)
{
    for (int r = 0; r < TILE_K * bits / 32; r++)
        for (int o = 0; o < TILE_N; o++)
            for (int b = 0; b < 4; b++) {
                int i = 4 * r + b;

                *out++ = bits == 8 ? codes[o][i] : (uint8_t)(codes[o][i] | codes[o][i + TILE_K / 2] << 4);
            }
}

/* The codes of output o (of the whole tensor) for the inputs of tile j. */
static void tile_get(const struct llmq_tensor *t, uint32_t o, uint32_t j, uint8_t out[TILE_K])
{
    size_t         tile = (size_t)(o / TILE_N) * (t->k_pad / TILE_K) + j;
    const uint8_t *from = (const uint8_t *)t->data + tile * tile_bytes(t) + 4 * (o % TILE_N);
    const int      half = TILE_K / 2;

    if (t->scheme.bits == 8)
        for (int i = 0; i < TILE_K; i++)
            out[i] = from[i / 4 * 64 + i % 4];
    else
        for (int i = 0; i < half; i++) {
            out[i] = from[i / 4 * 64 + i % 4] & 15;
            out[half + i] = from[i / 4 * 64 + i % 4] >> 4;
        }
}

/* ---- scales and zero points ------------------------------------------------------------------- */

/* Index of the scale (and zero point) of an output and a group. */
static size_t scale_at(uint32_t groups, uint32_t o, uint32_t g)
{
    return ((size_t)(o / TILE_N) * groups + g) * TILE_N + o % TILE_N;
}

static uint32_t group_of(const struct llmq_tensor *t, uint32_t groups, uint32_t i)
{
    uint32_t g = t->scheme.group ? i / t->scheme.group : 0;

    return g < groups ? g : groups - 1;
}

static uint8_t middle(const struct llmq_tensor *t) { return (uint8_t)(1u << (t->scheme.bits - 1)); }

static uint8_t zero_of(const struct llmq_tensor *t, uint32_t groups, uint32_t o, uint32_t g)
{
    return t->scheme.symmetric ? middle(t) : ((const uint8_t *)t->zeros)[scale_at(groups, o, g)];
}

static float scale_of(const struct llmq_tensor *t, uint32_t groups, uint32_t o, uint32_t g)
{
    return llmq_f16_to_f32(((const uint16_t *)t->scales)[scale_at(groups, o, g)]);
}

/* ---- packing and unpacking --------------------------------------------------------------------- */

/* The pointers of a tensor are const since most are views into a mapping; a packer's caller made these
 * buffers and lets us write them. */
static void *writable(const void *p) { return (void *)(uintptr_t)p; }

static void pack_scales(const struct llmq_tensor *t, uint32_t groups, const float *scales, const uint8_t *zeros)
{
    uint16_t *scale_out = writable(t->scales);
    uint8_t  *zero_out = writable(t->zeros);

    memset(scale_out, 0, t->scale_bytes);
    if (!t->scheme.symmetric)
        memset(zero_out, 0, t->zero_bytes);
    for (uint32_t o = 0; o < t->n; o++)
        for (uint32_t g = 0; g < groups; g++) {
            size_t at = scale_at(groups, o, g), from = (size_t)o * groups + g;

            scale_out[at] = llmq_f32_to_f16(scales[from]);
            if (!t->scheme.symmetric)
                zero_out[at] = zeros[from];
        }
}

/* Row o of a tile's codes; padded inputs and outputs get the zero point of their group. */
static void pack_row(const struct llmq_tensor *t, uint32_t groups, uint32_t o, uint32_t j, const uint8_t *codes,
                     uint8_t out[TILE_K])
{
    uint32_t first = j * TILE_K, real = 0;

    if (o < t->n && first < t->k)
        real = t->k - first < TILE_K ? t->k - first : TILE_K;
    if (real)
        memcpy(out, codes + (size_t)o * t->k + first, real);
    for (uint32_t i = real; i < TILE_K; i++)
        out[i] = zero_of(t, groups, o, group_of(t, groups, first + i));
}

void llmq_pack(const struct llmq_tensor *t, const uint8_t *codes, const float *scales, const uint8_t *zeros)
{
    uint32_t groups = llmq_scheme_groups(&t->scheme, t->k);
    uint8_t *out = writable(t->data);
    uint8_t  tile[TILE_N][TILE_K];

    pack_scales(t, groups, scales, zeros);
    for (uint32_t o = 0; o < t->n_pad; o += TILE_N)
        for (uint32_t j = 0; j < t->k_pad / TILE_K; j++, out += tile_bytes(t)) {
            for (uint32_t r = 0; r < TILE_N; r++)
                pack_row(t, groups, o + r, j, codes, tile[r]);
            tile_put(out, tile, t->scheme.bits);
        }
}

static void unpack_codes(const struct llmq_tensor *t, uint32_t o, uint8_t *out)
{
    uint8_t c[TILE_K];

    for (uint32_t j = 0; j < t->k_pad / TILE_K; j++) {
        uint32_t left = t->k - j * TILE_K;

        tile_get(t, o, j, c);
        memcpy(out + (size_t)j * TILE_K, c, left < TILE_K ? left : TILE_K);
    }
}

void llmq_unpack(const struct llmq_tensor *t, uint8_t *codes, float *scales, uint8_t *zeros)
{
    uint32_t groups = llmq_scheme_groups(&t->scheme, t->k);

    for (uint32_t o = 0; o < t->n; o++) {
        if (codes)
            unpack_codes(t, o, codes + (size_t)o * t->k);
        for (uint32_t g = 0; g < groups; g++) {
            if (scales)
                scales[(size_t)o * groups + g] = scale_of(t, groups, o, g);
            if (zeros)
                zeros[(size_t)o * groups + g] = zero_of(t, groups, o, g);
        }
    }
}

/* ---- meaning ----------------------------------------------------------------------------------- */

static float element(const void *data, int dtype, size_t at)
{
    const uint16_t *h = data;

    switch (dtype) {
    case LLMQ_DTYPE_F16:
        return llmq_f16_to_f32(h[at]);
    case LLMQ_DTYPE_BF16:
        return llmq_bf16_to_f32(h[at]);
    default:
        return ((const float *)data)[at];
    }
}

/* A group is a multiple of half a tile, so one scale serves each half. */
static void dequant_codes(const struct llmq_tensor *t, uint32_t o, float *out)
{
    uint32_t groups = llmq_scheme_groups(&t->scheme, t->k);
    uint8_t  c[TILE_K];

    for (uint32_t i = 0; i < t->k; i += TILE_K / 2) {
        uint32_t g = group_of(t, groups, i), left = t->k - i < TILE_K / 2 ? t->k - i : TILE_K / 2;
        float    scale = scale_of(t, groups, o, g);
        int      zero = zero_of(t, groups, o, g), half = (int)(i % TILE_K);

        if (!half)
            tile_get(t, o, i / TILE_K, c);
        for (uint32_t l = 0; l < left; l++)
            out[i + l] = (float)(c[half + (int)l] - zero) * scale;
    }
}

void llmq_dequant_rows(const struct llmq_tensor *t, uint32_t row, uint32_t rows, float *out)
{
    for (uint32_t o = row; o < row + rows; o++, out += t->k) {
        if (t->scheme.kind == LLMQ_KIND_INT) {
            dequant_codes(t, o, out);
            continue;
        }
        for (uint32_t i = 0; i < t->k; i++)
            out[i] = element(t->data, t->scheme.dtype, (size_t)o * t->k + i);
    }
}

/* ---- what llmq_file_verify asks ------------------------------------------------------------------ */

static int check_padded_outputs(const struct llmq_tensor *t, uint32_t groups, struct llmq_err *err)
{
    for (uint32_t o = t->n; o < t->n_pad; o++)
        for (uint32_t g = 0; g < groups; g++)
            if (((const uint16_t *)t->scales)[scale_at(groups, o, g)] << 1 & 0xffff)
                return llmq_fail(err, LLMQ_EFORMAT, "padded output %u has a scale, expected 0", o);
    return 0;
}

static int check_padded_inputs(const struct llmq_tensor *t, uint32_t groups, struct llmq_err *err)
{
    uint8_t c[TILE_K];

    for (uint32_t o = 0; t->k < t->k_pad && o < t->n; o++) {
        tile_get(t, o, t->k / TILE_K, c);
        for (uint32_t i = t->k; i < t->k_pad; i++) {
            int code = c[i % TILE_K], zero = zero_of(t, groups, o, group_of(t, groups, i));

            if (code != zero)
                return llmq_fail(err, LLMQ_EFORMAT, "output %u, padded input %u: code %d, expected its zero point, %d", o,
                                 i, code, zero);
        }
    }
    return 0;
}

int pack_check(const struct llmq_tensor *t, struct llmq_err *err)
{
    uint32_t       groups = llmq_scheme_groups(&t->scheme, t->k);
    const uint8_t *zeros = t->zeros;

    for (uint64_t i = 0; i < t->zero_bytes; i++)
        if (zeros[i] >> t->scheme.bits)
            return llmq_fail(err, LLMQ_EFORMAT, "zero point %u does not fit %d bits", zeros[i], t->scheme.bits);
    if (check_padded_outputs(t, groups, err))
        return err->code;
    return check_padded_inputs(t, groups, err);
}

/* Codes and elements <-> bytes in a layout.  Nothing else in the tree knows the order inside a tile; the
 * kernels' vector code is tested against llmq_dequant_rows, which is the definition of what a tensor means.
 *
 * Invariant of everything packed here: padding decodes to exactly 0.  A padded input carries the zero point
 * of its group (inputs past the last group belong to the last one), a padded output has scale 0. */
#include "format/file.h"

#include "common/fp.h"

#include <string.h>

enum { TILE_N = LLMQ_TILE_N, TILE_K = LLMQ_TILE_K };

/* Where the code of one weight stands: its byte, and for 4 bits which nibble. */
struct place {
    size_t byte;
    int    shift;
};

static struct place place_of(const struct llmq_tensor *t, uint32_t o, uint32_t i)
{
    size_t       tile = (size_t)(o / TILE_N) * (t->k_pad / TILE_K) + i / TILE_K;
    uint32_t     in_o = o % TILE_N, in_i = i % TILE_K;
    struct place p = {0, 0};

    if (t->scheme.bits == 8) {
        p.byte = tile * TILE_N * TILE_K + in_i / 4 * 64 + 4 * in_o + in_i % 4;
        return p;
    }
    p.shift = in_i < TILE_K / 2 ? 0 : 4;
    in_i %= TILE_K / 2;
    p.byte = tile * TILE_N * TILE_K / 2 + in_i / 4 * 64 + 4 * in_o + in_i % 4;
    return p;
}

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

static uint8_t code_of(const struct llmq_tensor *t, uint32_t o, uint32_t i)
{
    struct place p = place_of(t, o, i);
    uint8_t      b = ((const uint8_t *)t->data)[p.byte];

    return t->scheme.bits == 8 ? b : (uint8_t)(b >> p.shift & 15);
}

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

static void pack_rows(const struct llmq_tensor *t, uint32_t groups, uint32_t o, const uint8_t *codes)
{
    uint8_t *out = writable(t->data);

    for (uint32_t i = 0; i < t->k_pad; i++) {
        struct place p = place_of(t, o, i);
        int real = o < t->n && i < t->k;
        uint8_t c = real ? codes[(size_t)o * t->k + i] : zero_of(t, groups, o, group_of(t, groups, i));

        out[p.byte] = (uint8_t)(out[p.byte] | c << p.shift);
    }
}

void llmq_pack(const struct llmq_tensor *tensor, const uint8_t *codes, const float *scales, const uint8_t *zeros)
{
    struct llmq_tensor t = *tensor;
    uint32_t           groups = llmq_scheme_groups(&t.scheme, t.k);

    pack_scales(&t, groups, scales, zeros);
    memset(writable(t.data), 0, t.data_bytes);
    for (uint32_t o = 0; o < t.n_pad; o++)
        pack_rows(&t, groups, o, codes);
}

void llmq_unpack(const struct llmq_tensor *t, uint8_t *codes, float *scales, uint8_t *zeros)
{
    uint32_t groups = llmq_scheme_groups(&t->scheme, t->k);

    for (uint32_t o = 0; o < t->n; o++) {
        for (uint32_t i = 0; codes && i < t->k; i++)
            codes[(size_t)o * t->k + i] = code_of(t, o, i);
        for (uint32_t g = 0; g < groups; g++) {
            if (scales)
                scales[(size_t)o * groups + g] = llmq_f16_to_f32(((const uint16_t *)t->scales)[scale_at(groups, o, g)]);
            if (zeros)
                zeros[(size_t)o * groups + g] = zero_of(t, groups, o, g);
        }
    }
}

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

static void dequant_codes(const struct llmq_tensor *t, uint32_t o, float *out)
{
    uint32_t        groups = llmq_scheme_groups(&t->scheme, t->k);
    const uint16_t *scales = t->scales;

    for (uint32_t i = 0; i < t->k; i++) {
        uint32_t g = group_of(t, groups, i);

        out[i] = (float)((int)code_of(t, o, i) - (int)zero_of(t, groups, o, g)) *
                 llmq_f16_to_f32(scales[scale_at(groups, o, g)]);
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
    for (uint32_t o = 0; o < t->n; o++)
        for (uint32_t i = t->k; i < t->k_pad; i++) {
            int code = code_of(t, o, i), zero = zero_of(t, groups, o, group_of(t, groups, i));

            if (code != zero)
                return llmq_fail(err, LLMQ_EFORMAT, "output %u, padded input %u: code %d, expected its zero point, %d", o,
                                 i, code, zero);
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

/* Hyperparameters: ranges and consistency.  Everything later (shapes, table sizes, rotations) relies on this:
 * heads times head_dim never wraps 32 bits, nor any shape's n times k 64. */
#include "format/format.h"

#include <math.h>
#include <stddef.h>

enum { MAX_CTX = 1 << 28 };

struct range {
    const char *name;
    size_t      offset;
    uint32_t    min, max;
};
#define FIELD(f, min, max) {#f, offsetof(struct llmq_hparams, f), min, max}
static const struct range ranges[] = {
    FIELD(arch, LLMQ_ARCH_LLAMA, LLMQ_ARCH_LLAMA),
    FIELD(n_layers, 1, 4096),
    FIELD(d_model, 1, 1 << 20),
    FIELD(n_heads, 1, 4096),
    FIELD(n_kv_heads, 1, 4096),
    FIELD(head_dim, 2, 4096),
    FIELD(d_ff, 1, 1 << 22),
    FIELD(n_vocab, 1, 1 << 24),
    FIELD(ctx_len, 1, MAX_CTX),
    FIELD(tied, 0, 1),
    FIELD(attn_bias, 0, 15),
    FIELD(mlp_bias, 0, 7),
    FIELD(rope_type, LLMQ_ROPE_DEFAULT, LLMQ_ROPE_YARN),
    FIELD(rope_orig_ctx, 0, MAX_CTX),
    FIELD(n_eos, 0, LLMQ_MAX_EOS),
};

static int check_ranges(const struct llmq_hparams *h, const char *where, struct llmq_err *err)
{
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        const struct range *r = &ranges[i];
        uint32_t            v = *(const uint32_t *)((const char *)h + r->offset);

        if (v < r->min || v > r->max)
            return llmq_fail(err, LLMQ_EFORMAT, "%s: %s is %u, expected %u to %u", where, r->name, v, r->min, r->max);
    }
    return 0;
}

static int check_heads(const struct llmq_hparams *h, const char *where, struct llmq_err *err)
{
    if (h->n_heads % h->n_kv_heads)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: n_heads is %u, expected a multiple of n_kv_heads, %u", where, h->n_heads,
                         h->n_kv_heads);
    if (h->head_dim % 2)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: head_dim is %u, expected an even number", where, h->head_dim);
    return 0;
}

static int check_id(const char *name, int32_t id, int32_t min, const struct llmq_hparams *h, const char *where,
                    struct llmq_err *err)
{
    if (id < min || (int64_t)id >= h->n_vocab)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: %s is %d, expected %d to %u", where, name, id, min, h->n_vocab - 1);
    return 0;
}

static int check_tokens(const struct llmq_hparams *h, const char *where, struct llmq_err *err)
{
    if (check_id("bos_id", h->bos_id, -1, h, where, err))
        return err->code;
    for (uint32_t i = 0; i < h->n_eos; i++)
        if (check_id("an eos_id", h->eos_id[i], 0, h, where, err))
            return err->code;
    return 0;
}

static int check_real(const char *name, float v, double above, double max, const char *where, struct llmq_err *err)
{
    if (!((double)v > above && (double)v <= max)) /* a NaN fails too */
        return llmq_fail(err, LLMQ_EFORMAT, "%s: %s is %g, expected more than %g, at most %g", where, name, (double)v,
                         above, max);
    return 0;
}

static int check_equal(const char *name, double v, double want, const char *where, struct llmq_err *err)
{
    if (v != want)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: %s is %g, expected %g for this rope_type", where, name, v, want);
    return 0;
}

static int check_rope(const struct llmq_hparams *h, const char *where, struct llmq_err *err)
{
    int ramp = h->rope_type == LLMQ_ROPE_LLAMA3 || h->rope_type == LLMQ_ROPE_YARN;
    int orig = ramp || h->rope_type == LLMQ_ROPE_DYNAMIC;

    if (check_real("rope_theta", h->rope_theta, 0, 1e15, where, err) ||
        check_real("rms_eps", h->rms_eps, 0, 1, where, err) ||
        check_real("rope_factor", h->rope_factor, 0, 1e6, where, err) ||
        check_real("rope_attn_factor", h->rope_attn_factor, 0, 1e6, where, err))
        return err->code;
    if (h->rope_type == LLMQ_ROPE_DEFAULT && check_equal("rope_factor", (double)h->rope_factor, 1, where, err))
        return err->code;
    if (h->rope_type != LLMQ_ROPE_YARN && check_equal("rope_attn_factor", (double)h->rope_attn_factor, 1, where, err))
        return err->code;
    if (!orig && check_equal("rope_orig_ctx", h->rope_orig_ctx, 0, where, err))
        return err->code;
    if (orig && !h->rope_orig_ctx)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: rope_orig_ctx is 0, expected the context before scaling", where);
    if (!isfinite(h->rope_low) || !isfinite(h->rope_high))
        return llmq_fail(err, LLMQ_EFORMAT, "%s: rope_low or rope_high is not finite", where);
    if (ramp && !(h->rope_low > 0 && h->rope_low < h->rope_high))
        return llmq_fail(err, LLMQ_EFORMAT, "%s: rope_low is %g and rope_high %g, expected 0 < low < high", where,
                         (double)h->rope_low, (double)h->rope_high);
    return 0;
}

int llmq_hparams_check(const struct llmq_hparams *h, const char *where, struct llmq_err *err)
{
    if (check_ranges(h, where, err) || check_heads(h, where, err) || check_tokens(h, where, err))
        return err->code;
    return check_rope(h, where, err);
}

uint32_t llmq_hparams_max_ctx(const struct llmq_hparams *h)
{
    double most = (double)h->rope_orig_ctx * (double)h->rope_factor;

    if (h->rope_type != LLMQ_ROPE_YARN && h->rope_type != LLMQ_ROPE_DYNAMIC)
        return h->ctx_len;
    most = most < MAX_CTX ? most : MAX_CTX;
    return most > h->ctx_len ? (uint32_t)most : h->ctx_len;
}

/* The cpu backend: its state, its memory, and what it asks of a weight.
 *
 * Weights are used where they are (in the file's mapping); binding only checks.  All scratch is taken at
 * open and sized from max_k and max_tokens; an op that has more threads than scratch runs on one. */
#include "runner/cpu/backend_cpu.h"

#include "common/alloc.h"
#include "common/ckd.h"

#include <string.h>

enum { SERIAL_COST = 1 << 17, PIECE_COST = 1 << 15 }; /* multiplications: about 10 us and 2 us of one core */

void cpu_for(const struct backend *be, long items, double cost, llmq_parallel_fn fn, void *ctx)
{
    double per = cost < 1 ? 1 : cost;

    if (items <= 0)
        return;
    if (be->threads == 1 || llmq_parallel_threads() > be->threads || (double)items * per < SERIAL_COST)
        fn(ctx, 0, items, 0);
    else
        llmq_parallel_for(items, 1 + (long)(PIECE_COST / per), fn, ctx);
}

static void be_close(struct backend *be)
{
    if (!be)
        return;
    llmq_free(be->act_v);
    llmq_free(be->act_xs);
    llmq_free(be->act_sum);
    llmq_free(be->split);
    llmq_free(be->scratch);
    llmq_free(be);
}

/* Floats of scratch for one thread: the largest of what linear (converted rows, at least 4), attention
 * (turned keys, values, scores, one partial result) and gram (two packed blocks) want. */
static size_t scratch_floats(size_t max_k)
{
    size_t linear = 65536, part = (size_t)CPU_PART * CPU_MAX_TURN_HD;
    size_t attention = 2 * part + (size_t)CPU_ROWS * CPU_PART + CPU_ROWS * max_k;

    if (linear < 4 * max_k)
        linear = 4 * max_k;
    return ((linear > attention ? linear : attention) + 63) & ~(size_t)63;
}

static int take_scratch(struct backend *be, struct llmq_err *err)
{
    size_t k_pad = ((size_t)be->max_k + 63) & ~(size_t)63, groups = k_pad / 32, t = be->act_tokens;
    size_t floats;
    int    rc;

    be->scratch_floats = scratch_floats(be->max_k);
    if (llmq_ckd_mul(&floats, be->scratch_floats, (size_t)be->threads))
        return llmq_fail(err, LLMQ_ENOMEM, "cpu scratch: %d threads do not fit an address space", be->threads);
    if ((rc = LLMQ_NEW(&be->act_v, t * k_pad, "activation codes", err)) ||
        (rc = LLMQ_NEW(&be->act_xs, t * groups, "activation scales", err)) ||
        (rc = LLMQ_NEW(&be->act_sum, t * groups, "activation sums", err)) ||
        (rc = LLMQ_NEW(&be->split, (size_t)(CPU_SPLIT_PARTS + 1) * 3 * be->max_k, "attention partitions", err)))
        return rc;
    return LLMQ_NEW(&be->scratch, floats, "cpu scratch", err);
}

static int be_open(struct backend **out, const struct backend_config *cfg, struct llmq_err *err)
{
    struct backend *be;
    int             rc;

    *out = NULL;
    if (!cfg->max_k || cfg->max_k > 1u << 24)
        return llmq_fail(err, LLMQ_EUSAGE, "cpu backend: longest input %u: expected 1 to %u", cfg->max_k, 1u << 24);
    if ((rc = LLMQ_NEW(&be, 1, "cpu backend", err)))
        return rc;
    be->threads = llmq_parallel_threads();
    be->max_k = cfg->max_k;
    be->act_tokens = cfg->max_tokens < 1 ? 1 : cfg->max_tokens > CPU_ACT_TOKENS ? CPU_ACT_TOKENS : cfg->max_tokens;
    if ((rc = cpu_isa_choose(&be->isa, cfg->isa, err)) || (rc = take_scratch(be, err))) {
        be_close(be);
        return rc;
    }
    kernels_fill(&be->k, be->isa);
    *out = be;
    return 0;
}

static const char *be_isa(const struct backend *be) { return cpu_isa_name(be->isa); }

static int buf_new(struct backend *be, size_t bytes, void **out, struct llmq_err *err)
{
    (void)be;
    return llmq_alloc(out, bytes, 1, "backend buffer", err);
}

static void buf_free(struct backend *be, void *buf)
{
    (void)be;
    llmq_free(buf);
}

/* ---- weights ------------------------------------------------------------------------------------ */

static int unsupported(const struct llmq_tensor *t, const char *what, struct llmq_err *err)
{
    const char *role = llmq_role_name(t->role);
    char        scheme[64];

    llmq_scheme_name(&t->scheme, scheme, sizeof scheme);
    return llmq_fail(err, LLMQ_EFORMAT, "tensor %s (layer %u, %s, layout %u): the cpu backend %s", role ? role : "?",
                     t->layer, scheme, t->layout, what);
}

static int int_supported(const struct llmq_scheme *s)
{
    int group = s->group == 0 || s->group == 32 || s->group == 64 || s->group == 128 ||
                (s->group % CPU_ACT_GROUP == 0 && s->group < 1u << 24);

    return (s->bits == 4 || s->bits == 8) && s->scale_dtype == LLMQ_DTYPE_F16 && s->act == 0 && group;
}

static int check_weight(const struct backend *be, const struct llmq_tensor *t, struct llmq_err *err)
{
    const struct llmq_scheme *s = &t->scheme;

    if (s->kind == LLMQ_KIND_DENSE) {
        if (t->layout != LLMQ_LAYOUT_ROWS || !llmq_dtype_bytes(s->dtype) || s->dtype > LLMQ_DTYPE_BF16)
            return unsupported(t, "has no kernel for this layout and element type", err);
    } else if (s->kind != LLMQ_KIND_INT || t->layout != LLMQ_LAYOUT_TILES || !int_supported(s)) {
        return unsupported(t, "has no kernel for this scheme and layout", err);
    } else if (t->n_pad != ((t->n + 15) & ~15u) || t->k_pad != ((t->k + 63) & ~63u)) {
        return unsupported(t, "expects n padded to 16 and k to 64", err);
    } else if (!t->scales || (!s->symmetric && !t->zeros)) {
        return unsupported(t, "expects scales, and zero points unless symmetric", err);
    }
    if (!t->n || !t->k || t->k > be->max_k)
        return unsupported(t, "was opened for shorter inputs", err);
    if (!t->data || (uintptr_t)t->data % 64 || (uintptr_t)t->scales % 2)
        return unsupported(t, "expects data aligned to 64 bytes", err);
    return 0;
}

static int weight_bind(struct backend *be, const struct llmq_tensor *t, struct weight *out, struct llmq_err *err)
{
    int rc = check_weight(be, t, err);

    if (rc)
        return rc;
    memset(out, 0, sizeof *out);
    out->scheme = t->scheme;
    out->layout = t->layout;
    out->n = t->n;
    out->k = t->k;
    out->n_pad = t->n_pad;
    out->k_pad = t->k_pad;
    out->data = t->data;
    out->scales = t->scales;
    out->zeros = t->scheme.kind == LLMQ_KIND_INT && !t->scheme.symmetric ? t->zeros : NULL;
    return 0;
}

static int act_read(struct backend *be, const void *act, float *dst, size_t count, struct llmq_err *err)
{
    (void)be, (void)err;
    memcpy(dst, act, count * sizeof *dst);
    return 0;
}

static int be_sync(struct backend *be, struct llmq_err *err)
{
    (void)be, (void)err;
    return 0;
}

const struct backend_ops llmq_backend_cpu = {
    .name = "cpu",
    .open = be_open,
    .close = be_close,
    .isa = be_isa,
    .buf_new = buf_new,
    .buf_free = buf_free,
    .weight_bind = weight_bind,
    .embed = cpu_embed,
    .rmsnorm = cpu_rmsnorm,
    .linear = cpu_linear,
    .rope_kv = cpu_rope_kv,
    .attention = cpu_attention,
    .swiglu = cpu_swiglu,
    .gram = cpu_gram,
    .logsumexp = cpu_logsumexp,
    .act_read = act_read,
    .sync = be_sync,
};

/* The decoder's forward pass, written once against the backend table: see model.h.
 *
 * Llama (Touvron et al., 2023): pre-norm with RMSNorm (Zhang and Sennrich, 2019), rotary positions, grouped-query
 * attention (Ainslie et al., 2023), SwiGLU (Shazeer, 2020). */
#include "runner/model/model.h"

#include "common/alloc.h"
#include "common/fmath.h"
#include "runner/model/weights.h"

#include <string.h>

static int q_width(const struct model *m) { return (int)(m->hp.n_heads * m->hp.head_dim); }
static int kv_width(const struct model *m) { return (int)(m->hp.n_kv_heads * m->hp.head_dim); }

/* What the format can state and this code cannot do yet is refused here, by name. */
static int check_supported(const struct llmq_hparams *hp, struct llmq_err *err)
{
    if (hp->arch != LLMQ_ARCH_LLAMA)
        return llmq_fail(err, LLMQ_EFORMAT, "architecture %u is not supported, expected llama", hp->arch);
    return 0;
}

static int buffer(struct model *m, float **out, size_t rows, size_t width, struct llmq_err *err)
{
    return m->ops->buf_new(m->be, rows * width * sizeof(float), (void **)out, err);
}

static int scratch_new(struct model *m, struct llmq_err *err)
{
    size_t t = (size_t)m->max_tokens, d = m->hp.d_model, ff = m->hp.d_ff, q = (size_t)q_width(m), kv = (size_t)kv_width(m);
    size_t logits = (size_t)m->max_logits;

    if (buffer(m, &m->h, t, d, err) || buffer(m, &m->x, t, d, err) || buffer(m, &m->q, t, q, err) ||
        buffer(m, &m->k, t, kv, err) || buffer(m, &m->v, t, kv, err) || buffer(m, &m->a, t, q, err) ||
        buffer(m, &m->g, t, ff, err) || buffer(m, &m->u, t, ff, err))
        return err->code;
    if (logits && (buffer(m, &m->logits_x, logits, d, err) || buffer(m, &m->logits, logits, m->hp.n_vocab, err)))
        return err->code;
    return 0;
}

static uint32_t max_input(const struct llmq_hparams *hp)
{
    uint32_t q = hp->n_heads * hp->head_dim, k = hp->d_model > hp->d_ff ? hp->d_model : hp->d_ff;

    return q > k ? q : k;
}

int model_open_empty(struct model **out, const struct llmq_hparams *hp, const struct model_options *o, struct llmq_err *err)
{
    struct backend_config cfg = {.isa = o->isa, .max_k = max_input(hp), .max_tokens = (uint32_t)o->max_tokens};
    struct model         *m = NULL;

    *out = NULL;
    if (check_supported(hp, err) || LLMQ_NEW(&m, 1, "a model", err))
        return err->code;
    m->hp = *hp;
    m->max_tokens = o->max_tokens;
    m->max_ctx = o->max_ctx;
    m->max_logits = o->max_logits;
    m->ops = backend_find(o->device);
    if (!m->ops) {
        llmq_fail(err, LLMQ_EDEVICE, "there is no device '%s' in this build, expected cpu or auto", o->device);
        goto out;
    }
    if (LLMQ_NEW(&m->arena, 1, "an arena", err) || LLMQ_ARENA_NEW(m->arena, &m->layers, hp->n_layers, "layers", err) ||
        m->ops->open(&m->be, &cfg, err) || buffer(m, &m->cos_sin, (size_t)o->max_ctx, hp->head_dim, err) || scratch_new(m, err))
        goto out;
    model_rope_table(hp, m->max_ctx, m->cos_sin);
    *out = m;
    return 0;
out:
    model_close(m);
    return err->code;
}

int model_open(struct model **out, const struct llmq_file *f, const struct model_options *o, struct llmq_err *err)
{
    if (model_open_empty(out, llmq_file_hparams(f), o, err))
        return llmq_fail_within(err, "%s", llmq_file_path(f));
    if (weights_bind_file(*out, f, err)) {
        model_close(*out);
        *out = NULL;
        return err->code;
    }
    return 0;
}

void model_close(struct model *m)
{
    if (!m)
        return;
    if (m->be && m->ops) {
        float *bufs[] = {m->cos_sin, m->h, m->x, m->q, m->k, m->v, m->a, m->g, m->u, m->logits_x, m->logits};
        for (size_t i = 0; i < sizeof bufs / sizeof bufs[0]; i++)
            if (bufs[i])
                m->ops->buf_free(m->be, bufs[i]);
        m->ops->close(m->be);
    }
    if (m->arena)
        llmq_arena_free(m->arena);
    llmq_free(m->arena);
    llmq_free(m);
}

/* ---- pages ------------------------------------------------------------------------------------- */

const char *kv_dtype_name(enum kv_dtype dtype) { return dtype == KV_F32 ? "f32" : "f16"; }

int kv_dtype_from_name(const char *name, enum kv_dtype *out, struct llmq_err *err)
{
    static const enum kv_dtype known[] = {KV_F16, KV_F32};

    *out = KV_F16;
    for (size_t i = 0; name && i < sizeof known / sizeof known[0]; i++)
        if (!strcmp(name, kv_dtype_name(known[i]))) {
            *out = known[i];
            return 0;
        }
    return name ? llmq_fail(err, LLMQ_EUSAGE, "KV type '%s' is not supported, expected f32 or f16", name) : 0;
}

static size_t kv_layer_bytes(const struct kv_store *kv, const struct model *m)
{
    return (size_t)kv->n_pages * (size_t)kv->page_tokens * (size_t)kv_width(m) * (kv->dtype == KV_F32 ? 4 : 2);
}

int kv_store_new(struct kv_store **out, struct model *m, enum kv_dtype dtype, int n_pages, int page_tokens, int n_layers,
                 struct llmq_err *err)
{
    struct kv_store *kv;

    *out = NULL;
    if (LLMQ_NEW(&kv, 1, "a KV store", err))
        return err->code;
    kv->dtype = dtype;
    kv->n_pages = n_pages;
    kv->page_tokens = page_tokens;
    kv->n_layers = n_layers;
    if (LLMQ_NEW(&kv->layer, n_layers, "KV views", err))
        goto out;
    for (int l = 0; l < n_layers; l++) {
        struct kv_view *v = &kv->layer[l];

        *v = (struct kv_view){.dtype = dtype, .page_tokens = page_tokens, .n_kv_heads = (int)m->hp.n_kv_heads,
                              .head_dim = (int)m->hp.head_dim};
        if (m->ops->buf_new(m->be, kv_layer_bytes(kv, m), &v->k, err) || m->ops->buf_new(m->be, kv_layer_bytes(kv, m), &v->v, err))
            goto out;
    }
    *out = kv;
    return 0;
out:
    kv_store_free(kv, m);
    return err->code;
}

void kv_store_free(struct kv_store *kv, struct model *m)
{
    if (!kv)
        return;
    for (int l = 0; kv->layer && l < kv->n_layers; l++) {
        if (kv->layer[l].k)
            m->ops->buf_free(m->be, kv->layer[l].k);
        if (kv->layer[l].v)
            m->ops->buf_free(m->be, kv->layer[l].v);
    }
    llmq_free(kv->layer);
    llmq_free(kv);
}

/* ---- the stages --------------------------------------------------------------------------------- */

static void linear(struct model *m, const float *x, int tokens, const struct weight *w, float *y, int add)
{
    struct op_linear op = {.x = x, .w = {w}, .y = {y}, .parts = 1, .tokens = tokens, .add = add};

    m->ops->linear(m->be, &op);
}

static void rmsnorm(struct model *m, const struct weight *w, const float *x, int tokens, float *out)
{
    struct op_rmsnorm op = {.out = out, .x = x, .w = w->data, .tokens = tokens, .d = (int)m->hp.d_model, .eps = m->hp.rms_eps};

    m->ops->rmsnorm(m->be, &op);
}

void model_embed(struct model *m, const int32_t *ids, int tokens, float *h)
{
    struct op_embed op = {.out = h, .table = &m->embed, .ids = ids, .tokens = tokens};

    m->ops->embed(m->be, &op);
}

void model_attn_norm(struct model *m, const struct model_layer *l, const float *h, int tokens, float *x)
{
    rmsnorm(m, &l->attn_norm, h, tokens, x);
}

void model_attention(struct model *m, const struct model_layer *l, const struct kv_view *kv, const struct batch *b,
                     const float *x, float *a)
{
    struct op_linear qkv = {.x = x, .w = {&l->q, &l->k, &l->v}, .y = {m->q, m->k, m->v}, .parts = 3, .tokens = b->tokens};
    struct op_rope_kv rope = {.q = m->q, .k = m->k, .v = m->v, .cos_sin = m->cos_sin, .pos = b->pos, .slot = b->slot,
                              .kv = *kv, .tokens = b->tokens, .n_heads = (int)m->hp.n_heads};
    struct op_attention att = {.out = a, .q = m->q, .kv = *kv, .page_table = b->page_table, .page_start = b->page_start,
                               .q_start = b->q_start, .kv_len = b->kv_len, .seqs = b->seqs, .tokens = b->tokens,
                               .n_heads = (int)m->hp.n_heads, .scale = 1.0f / sqrtf((float)m->hp.head_dim)};

    m->ops->linear(m->be, &qkv);
    m->ops->rope_kv(m->be, &rope);
    m->ops->attention(m->be, &att);
}

void model_attn_out(struct model *m, const struct model_layer *l, const float *a, int tokens, float *h)
{
    linear(m, a, tokens, &l->o, h, 1);
}

void model_mlp_norm(struct model *m, const struct model_layer *l, const float *h, int tokens, float *x)
{
    rmsnorm(m, &l->mlp_norm, h, tokens, x);
}

void model_mlp_up(struct model *m, const struct model_layer *l, const float *x, int tokens, float *g)
{
    struct op_linear gu = {.x = x, .w = {&l->gate, &l->up}, .y = {g, m->u}, .parts = 2, .tokens = tokens};
    struct op_swiglu act = {.out = g, .gate = g, .up = m->u, .count = (size_t)tokens * m->hp.d_ff};

    m->ops->linear(m->be, &gu);
    m->ops->swiglu(m->be, &act);
}

void model_mlp_down(struct model *m, const struct model_layer *l, const float *g, int tokens, float *h)
{
    linear(m, g, tokens, &l->down, h, 1);
}

/* Only the rows whose logits are wanted go through the last norm and the head. */
void model_logits(struct model *m, const float *h, const int32_t *rows, int n_rows, float *logits)
{
    size_t d = m->hp.d_model;

    for (int i = 0; i < n_rows; i++) {
        struct op_rmsnorm op = {.out = m->logits_x + (size_t)i * d, .x = h + (size_t)rows[i] * d, .w = m->final_norm.data,
                                .tokens = 1, .d = (int)d, .eps = m->hp.rms_eps};
        m->ops->rmsnorm(m->be, &op);
    }
    linear(m, m->logits_x, n_rows, &m->lm_head, logits, 0);
}

int model_forward(struct model *m, struct kv_store *kv, const struct batch *b, struct llmq_err *err)
{
    model_embed(m, b->ids, b->tokens, m->h);
    for (uint32_t i = 0; i < m->hp.n_layers; i++) {
        const struct model_layer *l = &m->layers[i];

        model_attn_norm(m, l, m->h, b->tokens, m->x);
        model_attention(m, l, &kv->layer[i], b, m->x, m->a);
        model_attn_out(m, l, m->a, b->tokens, m->h);
        model_mlp_norm(m, l, m->h, b->tokens, m->x);
        model_mlp_up(m, l, m->x, b->tokens, m->g);
        model_mlp_down(m, l, m->g, b->tokens, m->h);
    }
    if (b->n_logits)
        model_logits(m, m->h, b->logit_rows, b->n_logits, m->logits);
    return m->ops->sync(m->be, err);
}

/* ---- dense helpers --------------------------------------------------------------------------------- */

void model_matmul(struct model *m, const float *x, int tokens, const float *w, int n, int k, float *y)
{
    struct weight wt = {.scheme = {.kind = LLMQ_KIND_DENSE, .dtype = LLMQ_DTYPE_F32}, .layout = LLMQ_LAYOUT_ROWS,
                        .n = (uint32_t)n, .k = (uint32_t)k, .n_pad = (uint32_t)n, .k_pad = (uint32_t)k, .data = w};

    linear(m, x, tokens, &wt, y, 0);
}

void model_gram(struct model *m, const float *x, int tokens, int k, double *g)
{
    struct op_gram op = {.g = g, .x = x, .tokens = tokens, .k = k};

    m->ops->gram(m->be, &op);
}

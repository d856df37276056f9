/* Directory entries -> struct weight in its place in struct model.  Every shape is checked here and only here:
 * after model_bind has accepted a tensor, ops have no errors of their own.
 *
 * Norms and biases are read as float into the model's arena; matrices stay where they are (a mapped file, or
 * the quantizer's buffers). */
#include "runner/model/weights.h"

#include "common/alloc.h"

static struct weight *place(struct model *m, int role, int layer)
{
    struct model_layer *l = layer == LLMQ_NO_LAYER ? NULL : &m->layers[layer];

    switch (role) {
    case LLMQ_ROLE_EMBED:
        return &m->embed;
    case LLMQ_ROLE_LM_HEAD:
        return &m->lm_head;
    case LLMQ_ROLE_FINAL_NORM:
        return &m->final_norm;
    case LLMQ_ROLE_ATTN_NORM:
        return &l->attn_norm;
    case LLMQ_ROLE_ATTN_Q:
    case LLMQ_ROLE_ATTN_Q_BIAS:
        return &l->q;
    case LLMQ_ROLE_ATTN_K:
    case LLMQ_ROLE_ATTN_K_BIAS:
        return &l->k;
    case LLMQ_ROLE_ATTN_V:
    case LLMQ_ROLE_ATTN_V_BIAS:
        return &l->v;
    case LLMQ_ROLE_ATTN_O:
    case LLMQ_ROLE_ATTN_O_BIAS:
        return &l->o;
    case LLMQ_ROLE_MLP_NORM:
        return &l->mlp_norm;
    case LLMQ_ROLE_MLP_GATE:
    case LLMQ_ROLE_MLP_GATE_BIAS:
        return &l->gate;
    case LLMQ_ROLE_MLP_UP:
    case LLMQ_ROLE_MLP_UP_BIAS:
        return &l->up;
    case LLMQ_ROLE_MLP_DOWN:
    case LLMQ_ROLE_MLP_DOWN_BIAS:
        return &l->down;
    default:
        return NULL;
    }
}

static int is_bias(int role)
{
    return (role >= LLMQ_ROLE_ATTN_Q_BIAS && role <= LLMQ_ROLE_ATTN_O_BIAS) ||
           (role >= LLMQ_ROLE_MLP_GATE_BIAS && role <= LLMQ_ROLE_MLP_DOWN_BIAS);
}

static int check(const struct model *m, const struct llmq_tensor *t, struct llmq_err *err)
{
    const char *name = llmq_role_name(t->role);
    uint32_t    n, k;

    if (llmq_role_shape(&m->hp, t->role, &n, &k))
        return llmq_fail(err, LLMQ_EFORMAT, "tensor role %d is not known", t->role);
    if (llmq_role_per_layer(t->role) ? t->layer >= m->hp.n_layers : t->layer != LLMQ_NO_LAYER)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: layer %d, expected below %u", name, t->layer, m->hp.n_layers);
    if (t->n != n || t->k != k)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: %u x %u, expected %u x %u", name, t->n, t->k, n, k);
    if (k == 1 && t->scheme.kind != LLMQ_KIND_DENSE)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: a quantized vector, expected a dense one", name);
    return 0;
}

static int vector_copy(struct model *m, const struct llmq_tensor *t, float **out, struct llmq_err *err)
{
    if (LLMQ_ARENA_NEW(m->arena, out, t->n, "a vector", err))
        return err->code;
    llmq_dequant_rows(t, 0, t->n, *out);
    return 0;
}

int model_bind(struct model *m, const struct llmq_tensor *t, struct llmq_err *err)
{
    struct weight *w, bound;
    float         *v;

    if (check(m, t, err))
        return err->code;
    w = place(m, t->role, t->layer);
    if (t->k > 1) {
        if (m->ops->weight_bind(m->be, t, &bound, err))
            return err->code;
        bound.bias = w->bias; /* a bias may have come first */
        *w = bound;
        return 0;
    }
    if (vector_copy(m, t, &v, err))
        return err->code;
    if (is_bias(t->role)) {
        w->bias = v;
        return 0;
    }
    /* Norms; and, in a model one input wide, matrices: whose bias may have come first. */
    *w = (struct weight){.scheme = {.kind = LLMQ_KIND_DENSE, .dtype = LLMQ_DTYPE_F32}, .layout = LLMQ_LAYOUT_ROWS, .n = t->n,
                         .k = 1, .n_pad = t->n, .k_pad = 1, .data = v, .bias = w->bias};
    return 0;
}

int weights_bind_file(struct model *m, const struct llmq_file *f, struct llmq_err *err)
{
    for (int i = 0; i < llmq_file_tensor_count(f); i++)
        if (model_bind(m, llmq_file_tensor(f, i), err))
            return llmq_fail_within(err, "%s", llmq_file_path(f));
    if (m->hp.tied)
        m->lm_head = m->embed;
    return 0;
}

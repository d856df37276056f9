/* Tensor roles: names, shapes, and which ones a model has. */
#include "format/format.h"

#include <stddef.h>

const char *llmq_role_name(int role)
{
    switch (role) {
#define X(name, num, per_layer, text, n, k) \
    case (num):                             \
        return text;
        LLMQ_ROLE_MAP(X)
#undef X
    default:
        return NULL;
    }
}

int llmq_role_per_layer(int role)
{
    switch (role) {
#define X(name, num, per_layer, text, n, k) \
    case (num):                             \
        return per_layer;
        LLMQ_ROLE_MAP(X)
#undef X
    default:
        return 0;
    }
}

int llmq_role_shape(const struct llmq_hparams *h, int role, uint32_t *n_out, uint32_t *k_out)
{
    switch (role) {
#define X(name, num, per_layer, text, n, k) \
    case (num):                             \
        *n_out = (n);                       \
        *k_out = (k);                       \
        return 0;
        LLMQ_ROLE_MAP(X)
#undef X
    default:
        return -1;
    }
}

/* One row of the file order: a role, and the hyperparameter bit that says whether it is there. */
struct slot {
    uint8_t role, attn_bias, mlp_bias, untied;
};

/* Biases come after the matrices that a runner takes as one (q, k, v; gate, up), so that the matrices'
 * bytes stand back to back. */
static const struct slot layer_order[] = {
    {LLMQ_ROLE_ATTN_NORM, 0, 0, 0},     {LLMQ_ROLE_ATTN_Q, 0, 0, 0},      {LLMQ_ROLE_ATTN_K, 0, 0, 0},
    {LLMQ_ROLE_ATTN_V, 0, 0, 0},        {LLMQ_ROLE_ATTN_Q_BIAS, 1, 0, 0}, {LLMQ_ROLE_ATTN_K_BIAS, 2, 0, 0},
    {LLMQ_ROLE_ATTN_V_BIAS, 4, 0, 0},   {LLMQ_ROLE_ATTN_O, 0, 0, 0},      {LLMQ_ROLE_ATTN_O_BIAS, 8, 0, 0},
    {LLMQ_ROLE_MLP_NORM, 0, 0, 0},      {LLMQ_ROLE_MLP_GATE, 0, 0, 0},    {LLMQ_ROLE_MLP_UP, 0, 0, 0},
    {LLMQ_ROLE_MLP_GATE_BIAS, 0, 1, 0}, {LLMQ_ROLE_MLP_UP_BIAS, 0, 2, 0}, {LLMQ_ROLE_MLP_DOWN, 0, 0, 0},
    {LLMQ_ROLE_MLP_DOWN_BIAS, 0, 4, 0},
};
static const struct slot global_order[] = {
    {LLMQ_ROLE_EMBED, 0, 0, 0},
    {LLMQ_ROLE_FINAL_NORM, 0, 0, 0},
    {LLMQ_ROLE_LM_HEAD, 0, 0, 1},
};

int llmq_role_list(const struct llmq_hparams *h, int per_layer, int out[24])
{
    const struct slot *order = per_layer ? layer_order : global_order;
    size_t             count = per_layer ? sizeof layer_order / sizeof layer_order[0]
                                         : sizeof global_order / sizeof global_order[0];
    int                n = 0;

    for (size_t i = 0; i < count; i++) {
        const struct slot *s = &order[i];

        if (s->attn_bias && !(h->attn_bias & s->attn_bias))
            continue;
        if (s->mlp_bias && !(h->mlp_bias & s->mlp_bias))
            continue;
        if (s->untied && h->tied)
            continue;
        out[n++] = s->role;
    }
    return n;
}

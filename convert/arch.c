/* Model families: see arch.h.  To add one whose mathematics the runner already has, add a row. */
#include "convert/arch.h"

#include <stdio.h>
#include <string.h>

static const struct arch_name llama_names[] = {
    {LLMQ_ROLE_EMBED, "model.embed_tokens.weight"},
    {LLMQ_ROLE_FINAL_NORM, "model.norm.weight"},
    {LLMQ_ROLE_LM_HEAD, "lm_head.weight"},
    {LLMQ_ROLE_ATTN_NORM, "model.layers.#.input_layernorm.weight"},
    {LLMQ_ROLE_ATTN_Q, "model.layers.#.self_attn.q_proj.weight"},
    {LLMQ_ROLE_ATTN_K, "model.layers.#.self_attn.k_proj.weight"},
    {LLMQ_ROLE_ATTN_V, "model.layers.#.self_attn.v_proj.weight"},
    {LLMQ_ROLE_ATTN_O, "model.layers.#.self_attn.o_proj.weight"},
    {LLMQ_ROLE_ATTN_Q_BIAS, "model.layers.#.self_attn.q_proj.bias"},
    {LLMQ_ROLE_ATTN_K_BIAS, "model.layers.#.self_attn.k_proj.bias"},
    {LLMQ_ROLE_ATTN_V_BIAS, "model.layers.#.self_attn.v_proj.bias"},
    {LLMQ_ROLE_ATTN_O_BIAS, "model.layers.#.self_attn.o_proj.bias"},
    {LLMQ_ROLE_MLP_NORM, "model.layers.#.post_attention_layernorm.weight"},
    {LLMQ_ROLE_MLP_GATE, "model.layers.#.mlp.gate_proj.weight"},
    {LLMQ_ROLE_MLP_UP, "model.layers.#.mlp.up_proj.weight"},
    {LLMQ_ROLE_MLP_DOWN, "model.layers.#.mlp.down_proj.weight"},
    {LLMQ_ROLE_MLP_GATE_BIAS, "model.layers.#.mlp.gate_proj.bias"},
    {LLMQ_ROLE_MLP_UP_BIAS, "model.layers.#.mlp.up_proj.bias"},
    {LLMQ_ROLE_MLP_DOWN_BIAS, "model.layers.#.mlp.down_proj.bias"},
    {0, NULL},
};

/* Buffers that older transformers saved; they follow from rope_theta and head_dim. */
static const char *const llama_harmless[] = {
    "model.layers.#.self_attn.rotary_emb.inv_freq",
    "model.rotary_emb.inv_freq",
    NULL,
};

static const struct arch_family families[] = {
    {"llama", LLMQ_ARCH_LLAMA, llama_names, llama_harmless, 1, 0, 0, 0},
    {"mistral", LLMQ_ARCH_LLAMA, llama_names, llama_harmless, 0, 0, 4096, 0},
    {"qwen2", LLMQ_ARCH_LLAMA, llama_names, llama_harmless, 0, 7, 4096, 1},
};
enum { N_FAMILIES = sizeof families / sizeof families[0] };

const struct arch_family *arch_find(const char *model_type)
{
    for (int i = 0; i < N_FAMILIES; i++)
        if (!strcmp(families[i].model_type, model_type))
            return &families[i];
    return NULL;
}

const char *arch_known(char *out, size_t size)
{
    size_t at = 0;

    for (int i = 0; i < N_FAMILIES && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%s", i ? ", " : "", families[i].model_type);
    return out;
}

/* Compares a name with a pattern; a '#' takes a number without leading zeros, below LLMQ_NO_LAYER. */
static int match(const char *pattern, const char *name, int *layer)
{
    const char *hash = strchr(pattern, '#');
    size_t      front = hash ? (size_t)(hash - pattern) : 0;
    int         n = 0, digits = 0;

    *layer = LLMQ_NO_LAYER;
    if (!hash)
        return !strcmp(pattern, name);
    if (strncmp(pattern, name, front) != 0)
        return 0;
    for (name += front; *name >= '0' && *name <= '9' && digits < 5; name++, digits++) {
        if (digits && !n)
            return 0;
        n = n * 10 + (*name - '0');
    }
    *layer = n;
    return digits && n < LLMQ_NO_LAYER && !strcmp(hash + 1, name);
}

int arch_role(const struct arch_family *f, const char *name, int *role, int *layer)
{
    for (const struct arch_name *p = f->names; p->name; p++)
        if (match(p->name, name, layer)) {
            *role = p->role;
            return 0;
        }
    return -1;
}

int arch_harmless(const struct arch_family *f, const char *name)
{
    int layer;

    for (const char *const *p = f->harmless; *p; p++)
        if (match(*p, name, &layer))
            return 1;
    return 0;
}

const char *arch_spell(const struct arch_family *f, int role, int layer, char *out, size_t size)
{
    out[0] = '\0';
    for (const struct arch_name *p = f->names; p->name; p++) {
        const char *hash = strchr(p->name, '#');

        if (p->role != role)
            continue;
        if (hash)
            snprintf(out, size, "%.*s%d%s", (int)(hash - p->name), p->name, layer, hash + 1);
        else
            snprintf(out, size, "%s", p->name);
        break;
    }
    return out;
}

#ifndef LLMQ_CONVERT_ARCH_H
#define LLMQ_CONVERT_ARCH_H

#include "common/err.h"
#include "format/format.h"

#include <stddef.h>

/* Model families: one row each.  A row says how Hugging Face names the family's tensors; behind it nobody
 * parses a tensor's name, since a .llmq carries (role, layer) numbers. */

struct arch_name {
    int         role;
    const char *name; /* '#' stands for the layer's number */
};

struct arch_family {
    const char             *model_type; /* as config.json spells it */
    uint32_t                arch;       /* enum llmq_arch: the mathematics */
    const struct arch_name *names;      /* ends at a NULL name */
    const char *const      *harmless;   /* tensors that carry no weights, as patterns; ends at NULL */
    int                     has_bias_keys;  /* attention_bias and mlp_bias mean something */
    uint32_t                attn_bias;      /* biases that the family always has: bit 0 q, 1 k, 2 v, 3 o */
    int                     default_window; /* sliding_window where config.json does not state one; 0: none */
    int                     window_is_off;  /* unless use_sliding_window says otherwise */
};

/* NULL when unknown. */
const struct arch_family *arch_find(const char *model_type);
/* "llama, mistral", for messages. */
const char *arch_known(char *out, size_t size);

/* What a tensor's name means: its role and layer (LLMQ_NO_LAYER where there is none).  Returns 0, or -1
 * for a name that the family does not have. */
int arch_role(const struct arch_family *f, const char *name, int *role, int *layer);
/* May a tensor of this name be left out? */
int arch_harmless(const struct arch_family *f, const char *name);
/* The name that a role in a layer has; out is empty for a role that the family lacks. */
const char *arch_spell(const struct arch_family *f, int role, int layer, char *out, size_t size);

#endif

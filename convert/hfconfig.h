#ifndef LLMQ_CONVERT_HFCONFIG_H
#define LLMQ_CONVERT_HFCONFIG_H

#include "common/err.h"
#include "common/json.h"
#include "convert/arch.h"
#include "format/format.h"

/* config.json and its neighbours as hyperparameters.
 *
 * Whatever would change the mathematics and is not understood is refused by name: a key that is ignored
 * gives a model that runs and is wrong. */

/* Everything but the special tokens.  `where` names config.json in messages. */
int hfconfig_hparams(const json_t *config, const char *where, struct llmq_hparams *h,
                     const struct arch_family **family, struct llmq_err *err) LLMQ_MUST_CHECK;

/* The files that name special tokens, in the order in which they are asked; each may be NULL (absent). */
struct hfconfig_docs {
    const json_t *generation, *config, *tokenizer; /* generation_config, config, tokenizer_config */
    /* tokenizer_config names tokens by text: the id of one, or -1. */
    int32_t (*token_id)(void *ctx, const char *text, size_t len);
    void *ctx;
};

/* eos_id, n_eos, bos_id: of each, the first file that names one counts. */
int hfconfig_special_tokens(const struct hfconfig_docs *d, struct llmq_hparams *h, struct llmq_err *err) LLMQ_MUST_CHECK;

#endif

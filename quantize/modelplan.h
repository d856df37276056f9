#ifndef LLMQ_QUANTIZE_MODELPLAN_H
#define LLMQ_QUANTIZE_MODELPLAN_H

/* PUBLIC.  What a model of given hyperparameters will weigh, before there is a file of it: parameters, file sizes by
 * scheme, keys and values, what fits a memory.  Arithmetic only; whatever would not fit 64 bits is LLMQ_ELIMIT. */

#include "common/err.h"
#include "format/format.h"
#include "quantize/quantize.h"

#include <stdint.h>

struct modelplan_params { /* numbers of weights */
    uint64_t total, layers, embed, head, vectors; /* head 0: tied; vectors: norms and biases, of layers too */
};
int modelplan_params(const struct llmq_hparams *h, struct modelplan_params *out, struct llmq_err *err) LLMQ_MUST_CHECK;

struct modelplan_size {
    char     scheme[32];      /* of the layers' matrices: "int4-g128-asym" */
    double   bits_per_weight; /* of all matrices, scales and zero points included */
    uint64_t weight_bytes;    /* all tensors */
    uint64_t file_bytes;      /* tensors, alignment, directory, and text_bytes */
    uint64_t rank_bytes;      /* the tensors of one of `ranks` tensor-parallel ranks: query heads, feed-forward rows and the
                               * vocabulary divided, key and value heads divided or repeated, vectors repeated */
};
/* o: NULL for what convert writes of a BF16 checkpoint, otherwise what quantize writes with bits, group, symmetric,
 * head_bits, head_group and embed_bits.  text_bytes: the stored sections.  LLMQ_EUSAGE: the model cannot be divided
 * over that many ranks. */
int modelplan_size(const struct llmq_hparams *h, const struct quantize_options *o, uint64_t text_bytes, int ranks,
                   struct modelplan_size *out, struct llmq_err *err) LLMQ_MUST_CHECK;

/* Keys and values of `tokens` tokens on one of `ranks` ranks; element_bytes of one stored number. */
int modelplan_kv(const struct llmq_hparams *h, uint64_t tokens, int element_bytes, int ranks, uint64_t *bytes,
                 struct llmq_err *err) LLMQ_MUST_CHECK;

/* What the CPU runner allocates beside weights and pages, for contexts of ctx tokens: activations of one piece of a
 * prompt, logits, the table of rotations. */
int modelplan_scratch(const struct llmq_hparams *h, uint64_t ctx, uint64_t *bytes, struct llmq_err *err) LLMQ_MUST_CHECK;

#endif

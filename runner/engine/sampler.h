#ifndef LLMQ_RUNNER_ENGINE_SAMPLER_H
#define LLMQ_RUNNER_ENGINE_SAMPLER_H

/* From one row of logits to one token.
 *
 * Steps and their order are those of Hugging Face's generate: repetition penalty, temperature, top-k, top-p,
 * min-p, one draw.  Temperature 0 takes the largest logit after the penalty and draws nothing.  The same
 * logits, parameters, history and generator state give the same token on every machine. */

#include "common/err.h"
#include "common/rng.h"
#include "runner/runner.h"

#include <stdint.h>

struct sampler;

/* All memory that picking needs is taken here. */
int  sampler_new(struct sampler **out, int n_vocab, struct llmq_err *err) LLMQ_MUST_CHECK;
void sampler_free(struct sampler *s);

/* history: the prompt's and the made tokens, for the penalty; ids outside the vocabulary are ignored. */
int32_t sampler_pick(struct sampler *s, const float *logits, const struct llmq_sampling *p, const int32_t *history, int n_history,
                     struct llmq_rng *rng);

#endif

#ifndef LLMQ_RUNNER_SELFSAMPLE_H
#define LLMQ_RUNNER_SELFSAMPLE_H

/* PUBLIC.  Calibration windows that the model writes itself, so that no text is needed and none leaves the machine:
 * Liu et al., "LLM-QAT: Data-Free Quantization Aware Training for Large Language Models" (2023), section 3.1, here
 * sampled from the whole distribution, since calibration wants the model's own frequencies.
 *
 * Each window is a sequence: BOS (a random token when the model has none), then tokens drawn at temperature 1; a
 * drawn end token is followed by the next document, as in training.  Window w depends on the model, w and the seed
 * alone: not on the number of windows, threads or instruction set. */

#include "common/err.h"
#include "format/format.h"
#include "runner/text/corpus.h"

#include <stdint.h>

struct selfsample_options {
    int         windows, seqlen; /* tokens in a window, at least 2, at most the model's context */
    uint64_t    seed;
    const char *device, *isa; /* NULL: auto, the best */
    void      (*progress)(void *ctx, long done, long total); /* tokens; may be NULL */
    void       *progress_ctx;
    const int  *cancel; /* becomes nonzero when the job must end (LLMQ_EINTR); may be NULL */
};

/* The caller owns *out; f must outlive the call only.  As many windows as fit 1 GiB of keys and values grow side by side. */
int selfsample(struct corpus **out, const struct llmq_file *f, const struct selfsample_options *o, struct llmq_err *err) LLMQ_MUST_CHECK;

#endif

#ifndef LLMQ_CONVERT_CONVERT_H
#define LLMQ_CONVERT_CONVERT_H

/* PUBLIC.  Hugging Face checkpoints as sources, and their conversion to .llmq.
 *
 * convert_open reads configuration, tokenizer and shard headers of a directory, checks that every tensor
 * has a place and every place a tensor (closed world), and hands out a llmq_source.  No weight is read yet,
 * except where a tied model brings a head of its own: the two must be equal.  Weights are read on request with
 * pread, never mapped, so resident memory does not grow with the model. */

#include "common/err.h"
#include "common/str.h"
#include "format/format.h"

int convert_open(struct llmq_source **out, const char *dir, struct llmq_err *err) LLMQ_MUST_CHECK;

struct convert_options {
    int              dtype; /* LLMQ_DTYPE_NONE: each tensor as it is */
    llmq_progress_fn progress; /* bytes done, bytes in all; may be NULL */
    void            *progress_ctx;
    int             *cancel; /* becomes nonzero when the job must end (LLMQ_EINTR); may be NULL */
    const char      *version; /* of the tool, for the provenance */
};

/* Writes src as a dense .llmq.  NaN and infinity are refused, and values that do not fit dtype, naming tensor,
 * row and column.  path is untouched unless 0 is returned. */
int convert_write(struct llmq_source *src, const char *path, const struct convert_options *o, struct llmq_err *err) LLMQ_MUST_CHECK;

/* Only the sizes: path is a config.json, or a directory with one; no weights need be there. */
int convert_config(const char *path, struct llmq_hparams *h, struct llmq_err *err) LLMQ_MUST_CHECK;

/* Only the tokenizer: path is a Hugging Face directory, whose tokenizer.json is read, or such a file.  The strings, which
 * the caller has initialised, get the sections TOKENIZER, VOCAB and MERGES. */
int convert_tokenizer(const char *path, struct llmq_str *config, struct llmq_str *vocab, struct llmq_str *merges,
                      struct llmq_err *err) LLMQ_MUST_CHECK;

#endif

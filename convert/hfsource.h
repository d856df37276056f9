#ifndef LLMQ_CONVERT_HFSOURCE_H
#define LLMQ_CONVERT_HFSOURCE_H

#include "common/err.h"
#include "format/format.h"

/* Hashes up to max_bytes more of the checkpoint's files, so that a copy and its provenance can share the
 * time; *done becomes 1 when all are hashed, and at once for a source that is no Hugging Face directory.
 * May run on one thread while another reads tensors. */
int hfsource_hash_some(struct llmq_source *s, uint64_t max_bytes, int *done, struct llmq_err *err) LLMQ_MUST_CHECK;

#endif

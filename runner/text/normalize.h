#ifndef LLMQ_RUNNER_TEXT_NORMALIZE_H
#define LLMQ_RUNNER_TEXT_NORMALIZE_H

#include "common/err.h"
#include "common/str.h"
#include "runner/text/pattern.h"

#include <jansson.h>

/* The normalizer of a tokenizer: a list of steps, read-only after load. */
struct normalize;

/* spec: the component, or null for none.  *out is NULL when nothing is to be done. */
int  normalize_load(struct normalize **out, const json_t *spec, struct llmq_err *err) LLMQ_MUST_CHECK;
void normalize_free(struct normalize *n);

/* The result stands in text (whose content is replaced; spare is scratch).  *lead, in and out: how many bytes at the
 * beginning come from the first character of the whole input (0: none do); Metaspace's "first" asks for it. */
int normalize_apply(const struct normalize *n, struct pattern_scratch *scratch, struct llmq_str *text, struct llmq_str *spare,
                    size_t *lead, struct llmq_err *err) LLMQ_MUST_CHECK;

#endif

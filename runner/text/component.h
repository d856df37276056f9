#ifndef LLMQ_RUNNER_TEXT_COMPONENT_H
#define LLMQ_RUNNER_TEXT_COMPONENT_H

#include "common/err.h"

#include <jansson.h>

/* Which of `names` a component of tokenizer.json says it is ("type"): its index, or LLMQ_EFORMAT, which names `what`
 * ("normalizer") and the type. */
int component_kind(const json_t *spec, const char *const *names, int n_names, const char *what, struct llmq_err *err)
    LLMQ_MUST_CHECK;

#endif

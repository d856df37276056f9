#ifndef LLMQ_RUNNER_TEXT_PRETOK_H
#define LLMQ_RUNNER_TEXT_PRETOK_H

#include "common/err.h"
#include "runner/text/pattern.h"

#include <jansson.h>
#include <stddef.h>

/* The pre-tokenizer of a tokenizer: a list of steps, read-only after load.  Each step cuts what it is given and hands
 * every part to the next at once, so no list of parts is ever kept. */
struct pretok;

/* spec: the component, or null for none (text passes as it is; *out is NULL). */
int  pretok_load(struct pretok **out, const json_t *spec, struct llmq_err *err) LLMQ_MUST_CHECK;
void pretok_free(struct pretok *p);

/* Working memory of one thread, for one pretok. */
struct pretok_scratch;
int  pretok_scratch_new(struct pretok_scratch **out, const struct pretok *p, struct llmq_err *err) LLMQ_MUST_CHECK;
void pretok_scratch_free(struct pretok_scratch *s);

/* Calls word for each part of text, from left to right; parts are not empty and valid until word returns.  lead: as
 * normalize_apply leaves it. */
typedef int (*pretok_word_fn)(void *ctx, const char *text, size_t len, struct llmq_err *err);
int pretok_apply(const struct pretok *p, struct pretok_scratch *s, struct pattern_scratch *match, const char *text, size_t len,
                 size_t lead, pretok_word_fn word, void *ctx, struct llmq_err *err) LLMQ_MUST_CHECK;

#endif

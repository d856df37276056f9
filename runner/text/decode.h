#ifndef LLMQ_RUNNER_TEXT_DECODE_H
#define LLMQ_RUNNER_TEXT_DECODE_H

#include "common/err.h"
#include "common/str.h"
#include "runner/text/pattern.h"

#include <jansson.h>
#include <stddef.h>

/* The decoder of a tokenizer: a list of steps, read-only after load. */
struct decode;

/* spec: the component, or null for none (tokens are then joined by spaces). */
int  decode_load(struct decode **out, const json_t *spec, struct llmq_err *err) LLMQ_MUST_CHECK;
void decode_free(struct decode *d);

/* Every token text that can ever come is shown to the decoder once, so that it knows what cannot happen (see decode.c). */
void decode_see(struct decode *d, const char *text, size_t len);

/* Tokens in, text out, as soon as it is certain. */
struct decode_run;
int  decode_run_new(struct decode_run **out, const struct decode *d, struct llmq_err *err) LLMQ_MUST_CHECK;
void decode_run_free(struct decode_run *r);
int  decode_run_token(struct decode_run *r, const char *text, size_t len, struct llmq_str *out, struct llmq_err *err) LLMQ_MUST_CHECK;
int  decode_run_finish(struct decode_run *r, struct llmq_str *out, struct llmq_err *err) LLMQ_MUST_CHECK;

#endif

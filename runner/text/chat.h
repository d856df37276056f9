#ifndef LLMQ_RUNNER_TEXT_CHAT_H
#define LLMQ_RUNNER_TEXT_CHAT_H

#include "runner/runner.h"

#include <stddef.h>
#include <stdint.h>

/* What llmq_chat_open takes from a file: the text of its own template (len 0: none), and the ids that templates call
 * bos_token and eos_token (-1: none).  own is not needed afterwards. */
int chat_new(struct llmq_chat **out, const struct tokenizer *t, const char *name, const char *own, size_t len, int32_t bos, int32_t eos,
             struct llmq_err *err) LLMQ_MUST_CHECK;

#endif

#ifndef LLMQ_RUNNER_TEXT_CHAT_H
#define LLMQ_RUNNER_TEXT_CHAT_H

/* Chat templates.  So far one is known, ChatML, in the forms in which checkpoints spell it; the public calls
 * (llmq_chat_prompt, llmq_chat_encode) stand in runner/runner.h. */

#include "common/err.h"
#include "common/str.h"

#include <stddef.h>

/* 1 when the Jinja text of a template means ChatML and nothing else, 0 when not, or an error.  The system message
 * that it puts in front when a conversation has none is appended to default_system; *has_default says
 * whether it does. */
int chat_is_chatml(const char *text, size_t len, struct llmq_str *default_system, int *has_default, struct llmq_err *err)
    LLMQ_MUST_CHECK;

#endif

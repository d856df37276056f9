#ifndef LLMQ_CLI_INPUT_H
#define LLMQ_CLI_INPUT_H

#include "common/err.h"
#include "common/str.h"

/* Appends everything that fd gives, until its end; `name` names it in messages.  LLMQ_EINTR when the job was interrupted. */
int input_read(int fd, const char *name, struct llmq_str *out, struct llmq_err *err) LLMQ_MUST_CHECK;

#endif

#ifndef LLMQ_CLI_OUTPUT_H
#define LLMQ_CLI_OUTPUT_H

#include "common/err.h"

/* A write to stdout failed: LLMQ_EIO, or 0 when its reader has had enough (`| head`), which is no error. */
int output_failed(struct llmq_err *err) LLMQ_MUST_CHECK;

/* What is still buffered for stdout goes out; the same results as output_failed's. */
int output_flush(struct llmq_err *err) LLMQ_MUST_CHECK;

/* Can a file be written under this name?  Found out before the work and not when the finished file is to be
 * renamed.  Refused as well: what is no regular file (a rename would replace /dev/null), and the input itself.
 * `option` names it in messages ("-o"); input may be a file or a checkpoint's directory. */
int output_check(const char *option, const char *path, const char *input, struct llmq_err *err) LLMQ_MUST_CHECK;

/* Would writing the one replace the other? */
int output_is_same(const char *a, const char *b);

#endif

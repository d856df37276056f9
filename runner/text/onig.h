#ifndef LLMQ_RUNNER_TEXT_ONIG_H
#define LLMQ_RUNNER_TEXT_ONIG_H

#include "common/err.h"
#include "common/str.h"

/* A regular expression as the `tokenizers` library reads it (Oniguruma, Ruby syntax), written for PCRE2: every class
 * becomes explicit ranges of code points, so neither library's Unicode tables matter.  PCRE2 must be told UTF,
 * MULTILINE, DOTALL and newline LF.  What has no exact counterpart is LLMQ_EFORMAT and named. */
int onig_translate(const char *pattern, size_t len, struct llmq_str *out, struct llmq_err *err) LLMQ_MUST_CHECK;

#endif

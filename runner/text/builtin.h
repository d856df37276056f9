#ifndef LLMQ_RUNNER_TEXT_BUILTIN_H
#define LLMQ_RUNNER_TEXT_BUILTIN_H

#include <stddef.h>

/* The text of calib_data/ (its README says what is in it): *len bytes of UTF-8, not terminated. */
const char *llmq_calib_builtin(size_t *len);

#endif

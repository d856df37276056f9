#ifndef LLMQ_COMMON_STR_H
#define LLMQ_COMMON_STR_H

#include "common/err.h"

#include <stddef.h>

/* A growing byte string that is created with the most it may ever hold.  data is always
 * zero-terminated (it may hold zeros too); it belongs to the string and moves on append. */
struct llmq_str {
    char  *data;
    size_t len, cap, max;
};

void llmq_str_init(struct llmq_str *s, size_t max_bytes);
void llmq_str_fini(struct llmq_str *s);
void llmq_str_clear(struct llmq_str *s); /* keeps the memory */
int  llmq_str_append(struct llmq_str *s, const void *bytes, size_t len, struct llmq_err *err) LLMQ_MUST_CHECK;
int  llmq_str_printf(struct llmq_str *s, struct llmq_err *err, const char *fmt, ...) LLMQ_PRINTF(3, 4) LLMQ_MUST_CHECK;

#endif

#ifndef LLMQ_COMMON_LOG_H
#define LLMQ_COMMON_LOG_H

#include "common/err.h"

/* One line per event on stderr.  The level is set once, at start-up, by cli/. */
enum llmq_log_level { LLMQ_LOG_ERROR, LLMQ_LOG_WARN, LLMQ_LOG_INFO, LLMQ_LOG_DEBUG };

void llmq_log_set_level(enum llmq_log_level level);
void llmq_log_line(enum llmq_log_level level, const char *fmt, ...) LLMQ_PRINTF(2, 3);

#endif

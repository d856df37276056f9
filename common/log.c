/* Log lines: see log.h. */
#include "common/log.h"

#include <stdarg.h>
#include <stdio.h>

static enum llmq_log_level current = LLMQ_LOG_INFO;

void llmq_log_set_level(enum llmq_log_level level) { current = level; }

void llmq_log_line(enum llmq_log_level level, const char *fmt, ...)
{
    static const char *const name[] = {"error: ", "warning: ", "", "debug: "};
    char    line[1024];
    va_list ap;
    int     n;

    if (level > current)
        return;
    va_start(ap, fmt);
    n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (n >= 0)
        fprintf(stderr, "%s%s\n", name[level], line); /* one write: lines of threads do not mix */
}

/* The error idiom: see err.h. */
#define LLMQ_ERR_C
#include "common/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *llmq_err_name(int code)
{
    switch (code) {
    case LLMQ_OK:
        return "ok";
#define X(name, n, status, text) \
    case LLMQ_##name:            \
        return text;
        LLMQ_ERR_MAP(X)
#undef X
    default:
        return "unknown error";
    }
}

int llmq_err_status(int code)
{
    switch (code) {
    case LLMQ_OK:
        return 0;
#define X(name, n, status, text) \
    case LLMQ_##name:            \
        return status;
        LLMQ_ERR_MAP(X)
#undef X
    default:
        return 1;
    }
}

int llmq_fail(struct llmq_err *err, int code, const char *fmt, ...)
{
    va_list ap;

    err->code = code;
    va_start(ap, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    return code;
}

int llmq_fail_within(struct llmq_err *err, const char *fmt, ...)
{
    char    was[sizeof err->text];
    va_list ap;
    int     n;

    memcpy(was, err->text, sizeof was);
    va_start(ap, fmt);
    n = vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n + 2 < sizeof err->text)
        snprintf(err->text + n, sizeof err->text - (size_t)n, ": %.*s",
                 (int)(sizeof err->text - (size_t)n - 3), was);
    return err->code;
}

int llmq_fail_errno(struct llmq_err *err, const char *fmt, ...)
{
    const char *why = strerror(errno);
    va_list     ap;
    int         n;

    err->code = LLMQ_EIO;
    va_start(ap, fmt);
    n = vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof err->text)
        snprintf(err->text + n, sizeof err->text - (size_t)n, ": %s", why);
    return err->code;
}

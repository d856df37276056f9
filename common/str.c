/* A bounded growing string: see str.h. */
#include "common/str.h"

#include "common/alloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static char empty[1];

void llmq_str_init(struct llmq_str *s, size_t max_bytes)
{
    s->data = empty;
    s->len = s->cap = 0;
    s->max = max_bytes;
}

void llmq_str_fini(struct llmq_str *s)
{
    if (s->cap)
        llmq_free(s->data);
    llmq_str_init(s, s->max);
}

void llmq_str_clear(struct llmq_str *s)
{
    s->len = 0;
    if (s->cap)
        s->data[0] = '\0';
}

static int reserve(struct llmq_str *s, size_t more, struct llmq_err *err)
{
    size_t cap = s->cap ? s->cap : 256;
    char  *p;

    if (more > s->max || s->len > s->max - more)
        return llmq_fail(err, LLMQ_ELIMIT, "a text of %zu bytes: at most %zu are allowed", s->len + more, s->max);
    if (s->cap && s->len + more < s->cap)
        return 0;
    while (cap <= s->len + more)
        cap *= 2;
    if (LLMQ_NEW(&p, cap, "a text", err))
        return err->code;
    if (s->len)
        memcpy(p, s->data, s->len);
    if (s->cap)
        llmq_free(s->data);
    s->data = p;
    s->cap = cap;
    return 0;
}

int llmq_str_append(struct llmq_str *s, const void *bytes, size_t len, struct llmq_err *err)
{
    if (reserve(s, len, err))
        return err->code;
    if (len)
        memcpy(s->data + s->len, bytes, len);
    s->len += len;
    s->data[s->len] = '\0';
    return 0;
}

int llmq_str_printf(struct llmq_str *s, struct llmq_err *err, const char *fmt, ...)
{
    va_list ap;
    int     n;

    va_start(ap, fmt);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0)
        return llmq_fail(err, LLMQ_EUSAGE, "a format string is wrong");
    if (reserve(s, (size_t)n, err))
        return err->code;
    va_start(ap, fmt);
    vsnprintf(s->data + s->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    s->len += (size_t)n;
    return 0;
}

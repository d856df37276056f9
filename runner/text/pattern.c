/* Patterns through PCRE2, compiled to machine code where it can: see pattern.h.
 *
 * Text is checked once, where it comes in, so matching skips PCRE2's own UTF-8 check: with it each match would read the
 * whole text again.  Limits on steps, stack and heap make a hostile pattern or text an error, not a hang. */
#include "runner/text/pattern.h"

#include "common/alloc.h"
#include "common/utf8.h"
#include "runner/text/onig.h"

#include <pcre2.h>
#include <string.h>

enum {
    MATCH_LIMIT = 20000000,      /* steps of one match, at least; more for a long text */
    HEAP_LIMIT_KIB = 256 * 1024,
    JIT_STACK_MIN = 32 * 1024,
    JIT_STACK_MAX = 64 * 1024 * 1024,
    PATTERN_MAX = 64 * 1024,     /* bytes of a pattern as the tokenizer states it */
    TRANSLATED_MAX = 4 * 1024 * 1024
};

struct pattern {
    pcre2_code *code;
    int         jit;
};

struct pattern_scratch {
    pcre2_match_data    *data;
    pcre2_match_context *context;
    pcre2_jit_stack     *stack;
};

static void *take(size_t n, void *unused)
{
    struct llmq_err err;
    void           *p;

    (void)unused;
    return llmq_alloc(&p, n, 1, "a regular expression", &err) ? NULL : p;
}

static void give(void *p, void *unused)
{
    (void)unused;
    llmq_free(p);
}

static int compile(struct pattern **out, const char *text, size_t len, uint32_t flags, const char *where, struct llmq_err *err)
{
    pcre2_general_context *general = pcre2_general_context_create(take, give, NULL);
    pcre2_compile_context *context = pcre2_compile_context_create(general);
    int                    code = 0, rc;
    PCRE2_SIZE             at = 0;
    PCRE2_UCHAR            why[120];

    *out = NULL;
    if (!general || !context || LLMQ_NEW(out, 1, "a pattern", err)) {
        rc = llmq_fail(err, LLMQ_ENOMEM, "%s: no memory to compile a pattern", where);
        goto out;
    }
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    (*out)->code = pcre2_compile((PCRE2_SPTR)text, len, PCRE2_UTF | flags, &code, &at, context);
    rc = (*out)->code ? 0 : code == PCRE2_ERROR_HEAP_FAILED ? LLMQ_ENOMEM : LLMQ_EFORMAT;
    if (rc) {
        pcre2_get_error_message(code, why, sizeof why);
        rc = llmq_fail(err, rc, "%s: a pattern does not compile: %s", where, (const char *)why);
        pattern_free(*out);
        *out = NULL;
    } else {
        (*out)->jit = !pcre2_jit_compile((*out)->code, PCRE2_JIT_COMPLETE);
    }
out:
    pcre2_compile_context_free(context);
    pcre2_general_context_free(general);
    return rc;
}

static int compile_onig(struct pattern **out, const char *regex, size_t len, const char *where, struct llmq_err *err)
{
    struct llmq_str text;
    int             rc;

    *out = NULL;
    if (len > PATTERN_MAX)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: a regular expression of %zu bytes, at most %d are read", where, len, PATTERN_MAX);
    llmq_str_init(&text, TRANSLATED_MAX);
    rc = onig_translate(regex, len, &text, err);
    if (rc)
        llmq_fail_within(err, "%s", where);
    else
        /* Not AUTO_POSSESS: 10.42 makes x? possessive in x?(?:xy)?+x, where the group may be empty. */
        rc = compile(out, text.data, text.len, PCRE2_MULTILINE | PCRE2_DOTALL | PCRE2_NO_AUTO_POSSESS | PCRE2_NEVER_BACKSLASH_C,
                     where, err);
    llmq_str_fini(&text);
    return rc;
}

int pattern_compile_regex(struct pattern **out, const char *regex, const char *where, struct llmq_err *err)
{
    return compile_onig(out, regex, strlen(regex), where, err);
}

int pattern_compile(struct pattern **out, const json_t *spec, const char *where, struct llmq_err *err)
{
    const json_t *v = json_object_get(spec, "Regex");

    *out = NULL;
    if (v)
        return compile_onig(out, json_string_value(v), json_string_length(v), where, err);
    v = json_object_get(spec, "String");
    if (!json_is_string(v))
        return llmq_fail(err, LLMQ_EFORMAT, "%s: a pattern is neither a String nor a Regex", where);
    return compile(out, json_string_value(v), json_string_length(v), PCRE2_LITERAL, where, err);
}

void pattern_free(struct pattern *p)
{
    if (!p)
        return;
    pcre2_code_free(p->code);
    llmq_free(p);
}

int pattern_scratch_new(struct pattern_scratch **out, struct llmq_err *err)
{
    pcre2_general_context  *general = pcre2_general_context_create(take, give, NULL);
    struct pattern_scratch *s = NULL;

    *out = NULL;
    if (general && !LLMQ_NEW(&s, 1, "matching", err)) {
        s->data = pcre2_match_data_create(1, general);
        s->context = pcre2_match_context_create(general);
        s->stack = pcre2_jit_stack_create(JIT_STACK_MIN, JIT_STACK_MAX, general);
    }
    pcre2_general_context_free(general);
    if (!s || !s->data || !s->context) {
        pattern_scratch_free(s);
        return llmq_fail(err, LLMQ_ENOMEM, "no memory to match a pattern");
    }
    pcre2_set_heap_limit(s->context, HEAP_LIMIT_KIB);
    if (s->stack)
        pcre2_jit_stack_assign(s->context, NULL, s->stack);
    *out = s;
    return 0;
}

void pattern_scratch_free(struct pattern_scratch *s)
{
    if (!s)
        return;
    pcre2_jit_stack_free(s->stack);
    pcre2_match_context_free(s->context);
    pcre2_match_data_free(s->data);
    llmq_free(s);
}

void pattern_walk_begin(struct pattern_walk *w, const struct pattern *p, struct pattern_scratch *s, const char *text, size_t len)
{
    uint32_t limit = len < UINT32_MAX / 32 ? MATCH_LIMIT + (uint32_t)len * 16 : UINT32_MAX;

    *w = (struct pattern_walk){.p = p, .scratch = s, .text = text, .len = len, .last_match_end = SIZE_MAX};
    pcre2_set_match_limit(s->context, limit);
}

static int match_error(int rc, struct llmq_err *err)
{
    PCRE2_UCHAR why[120];

    pcre2_get_error_message(rc, why, sizeof why);
    return llmq_fail(err, rc == PCRE2_ERROR_NOMEMORY ? LLMQ_ENOMEM : LLMQ_ELIMIT, "splitting text by a pattern: %s",
                     (const char *)why);
}

/* The next match as the library's iterator gives it: an empty one right behind the last match is passed over. */
static int find(struct pattern_walk *w, size_t *from, size_t *to, struct llmq_err *err)
{
    const PCRE2_SIZE *v = pcre2_get_ovector_pointer(w->scratch->data);
    PCRE2_SPTR        text = (PCRE2_SPTR)w->text;

    while (w->search <= w->len) {
        int rc = w->p->jit ? pcre2_jit_match(w->p->code, text, w->len, w->search, PCRE2_NO_UTF_CHECK, w->scratch->data,
                                             w->scratch->context)
                           : pcre2_match(w->p->code, text, w->len, w->search, PCRE2_NO_UTF_CHECK, w->scratch->data,
                                         w->scratch->context);

        if (rc == PCRE2_ERROR_NOMATCH)
            break;
        if (rc < 0)
            return match_error(rc, err);
        if (v[0] == v[1] && w->last_match_end == v[1]) {
            w->search += w->search < w->len ? (size_t)utf8_len(w->text[w->search]) : 1;
            continue;
        }
        w->search = w->last_match_end = *to = v[1];
        *from = v[0] <= v[1] ? v[0] : v[1];
        return 1;
    }
    w->search = w->len + 1;
    return 0;
}

int pattern_walk_next(struct pattern_walk *w, size_t *from, size_t *to, int *is_match, struct llmq_err *err)
{
    int rc;

    if (!w->held) {
        rc = find(w, &w->held_from, &w->held_to, err);
        if (rc < 0)
            return rc;
        w->held = rc;
        if (!rc)
            w->held_from = w->len;
    }
    *from = w->prev;
    *is_match = w->held && w->prev == w->held_from;
    *to = *is_match ? w->held_to : w->held_from;
    if (*is_match)
        w->held = 0;
    else if (*from == *to)
        return 0;
    w->prev = *to;
    return 1;
}


/* WikiText's files as the data sets and lm-eval read them: see wikitext.h.
 *
 * The rules are those of the Hugging Face data sets wikitext (rows) and wikitext_document_level (pages) and of
 * lm-eval's wikitext task (words, detokenization); tests/unit/test_corpus.c holds them against texts that the
 * originals made.  Oddities are kept: they are part of the number that people quote. */
#include "runner/text/wikitext.h"

#include <string.h>

size_t wikitext_space(const char *p, const char *end)
{
    const unsigned char *u = (const unsigned char *)p;
    size_t               n = (size_t)(end - p);

    if (!n)
        return 0;
    if (u[0] == ' ' || (u[0] >= 9 && u[0] <= 13) || (u[0] >= 28 && u[0] <= 31))
        return 1;
    if (n >= 2 && u[0] == 0xc2 && (u[1] == 0x85 || u[1] == 0xa0))
        return 2;
    if (n < 3)
        return 0;
    if (u[0] == 0xe2 && u[1] == 0x80 && ((u[2] >= 0x80 && u[2] <= 0x8a) || u[2] == 0xa8 || u[2] == 0xa9 || u[2] == 0xaf))
        return 3; /* U+2000 .. U+200A, U+2028, U+2029, U+202F */
    if (!memcmp(u, "\xe1\x9a\x80", 3) || !memcmp(u, "\xe2\x81\x9f", 3) || !memcmp(u, "\xe3\x80\x80", 3))
        return 3; /* U+1680, U+205F, U+3000 */
    return 0;
}

static const char *skip_space(const char *p, const char *end)
{
    for (size_t n; (n = wikitext_space(p, end)); p += n)
        ;
    return p;
}

/* The end of [p, end) without its trailing white space. */
static const char *trim_end(const char *p, const char *end)
{
    const char *last = p;

    while (p < end) {
        size_t n = wikitext_space(p, end);

        p += n ? n : 1;
        if (!n)
            last = p;
    }
    return last;
}

static const char *line_end(const char *p, const char *end) /* behind the newline */
{
    const char *nl = memchr(p, '\n', (size_t)(end - p));

    return nl ? nl + 1 : end;
}

int wikitext_join_rows(const char *text, size_t len, struct llmq_str *out, struct llmq_err *err)
{
    const char *end = text + len, *next;

    for (const char *p = text; p < end; p = next) {
        next = line_end(p, end);
        if (p != text && llmq_str_append(out, "\n\n", 2, err))
            return err->code;
        if (skip_space(p, next) < next && llmq_str_append(out, p, (size_t)(next - p), err))
            return err->code;
    }
    return 0;
}

static int is_title(const char *p, const char *end)
{
    size_t n;

    p = skip_space(p, end);
    n = (size_t)(trim_end(p, end) - p);
    return n >= 3 && !memcmp(p, "= ", 2) && memcmp(p, "= =", 3) != 0 && !memcmp(p + n - 2, " =", 2) && memcmp(p + n - 3, "= =", 3) != 0;
}

int wikitext_page(const char *text, size_t len, size_t *at, const char **page, size_t *page_len)
{
    const char *end = text + len, *start = text + *at, *next;
    int         filled = 0;

    if (*at >= len)
        return 0;
    *at = len;
    for (const char *p = start; p < end; p = next) {
        next = line_end(p, end);
        if (is_title(p, next)) {
            if (filled) {
                *page = start;
                *page_len = (size_t)(p - 1 - start);
                *at = (size_t)(p - text);
                return 1;
            }
            start = p; /* white space in front of a title belongs to no page */
        }
        filled |= skip_space(p, next) < next;
    }
    *page = start;
    *page_len = (size_t)(end - start);
    return 1;
}

size_t wikitext_words(const char *page, size_t len)
{
    const char *end = page + len;
    size_t      words = 1;

    for (const char *p = page; p < end;) {
        const char *q = skip_space(p, end);

        words += q > p;
        p = q > p ? q : p + 1;
    }
    return words;
}

/* s becomes the text in `next`, and next is cleared. */
static void take(struct llmq_str *s, struct llmq_str *next)
{
    struct llmq_str t = *s;

    *s = *next;
    *next = t;
    llmq_str_clear(next);
}

static int replace(struct llmq_str *s, struct llmq_str *next, const char *from, const char *to, struct llmq_err *err)
{
    size_t      n = strlen(from);
    const char *p = s->data, *end = s->data + s->len, *hit;

    if (!memmem(p, s->len, from, n))
        return 0;
    for (; (hit = memmem(p, (size_t)(end - p), from, n)); p = hit + n)
        if (llmq_str_append(next, p, (size_t)(hit - p), err) || llmq_str_append(next, to, strlen(to), err))
            return err->code;
    if (llmq_str_append(next, p, (size_t)(end - p), err))
        return err->code;
    take(s, next);
    return 0;
}

/* Takes the white space off the inside of each `open` ... `close`. */
static int tighten(struct llmq_str *s, struct llmq_str *next, char open, char close, struct llmq_err *err)
{
    const char *p = s->data, *end = s->data + s->len;

    while (p < end) {
        const char *o = memchr(p, open, (size_t)(end - p)), *c = o ? memchr(o + 1, close, (size_t)(end - o - 1)) : NULL;
        const char *in;

        if (!c)
            break;
        in = skip_space(o + 1, c);
        if (llmq_str_append(next, p, (size_t)(o + 1 - p), err) ||
            llmq_str_append(next, in, (size_t)(trim_end(in, c) - in), err) || llmq_str_append(next, &close, 1, err))
            return err->code;
        p = c + 1;
    }
    if (llmq_str_append(next, p, (size_t)(end - p), err))
        return err->code;
    take(s, next);
    return 0;
}

struct pair {
    const char *from, *to;
};

static const struct pair first[] = {
    {"s '", "s'"},    {"/' 0/", "/'[0-9]/"}, {"/' 1/", "/'[0-9]/"}, {"/' 2/", "/'[0-9]/"}, {"/' 3/", "/'[0-9]/"},
    {"/' 4/", "/'[0-9]/"}, {"/' 5/", "/'[0-9]/"}, {"/' 6/", "/'[0-9]/"}, {"/' 7/", "/'[0-9]/"}, {"/' 8/", "/'[0-9]/"},
    {"/' 9/", "/'[0-9]/"}, {" @-@ ", "-"},   {" @,@ ", ","},        {" @.@ ", "."},        {" : ", ": "},
    {" ; ", "; "},    {" . ", ". "},         {" ! ", "! "},         {" ? ", "? "},         {" , ", ", "},
};

static const struct pair last[] = {
    {"= = = =", "===="}, {"= = =", "==="}, {"= =", "=="},    {" \xc2\xb0 ", "\xc2\xb0"},
    {" \n", "\n"},       {"\n ", "\n"},    {" N ", " 1 "},   {" 's", "'s"},
};

static int apply(const struct pair *pairs, size_t n, struct llmq_str *s, struct llmq_str *next, struct llmq_err *err)
{
    for (size_t i = 0; i < n; i++)
        if (replace(s, next, pairs[i].from, pairs[i].to, err))
            return err->code;
    return 0;
}

static int detokenize(struct llmq_str *s, struct llmq_str *next, struct llmq_err *err)
{
    static const char brackets[][2] = {{'(', ')'}, {'[', ']'}, {'{', '}'}, {'"', '"'}, {'\'', '\''}};

    if (apply(first, sizeof first / sizeof first[0], s, next, err))
        return err->code;
    for (size_t i = 0; i < sizeof brackets / sizeof brackets[0]; i++)
        if (tighten(s, next, brackets[i][0], brackets[i][1], err))
            return err->code;
    return apply(last, sizeof last / sizeof last[0], s, next, err);
}

int wikitext_detokenize(const char *page, size_t len, struct llmq_str *out, struct llmq_err *err)
{
    struct llmq_str s, next;
    int             rc;

    llmq_str_init(&s, len * 2 + 64); /* no rule makes more than 8 bytes of 5 */
    llmq_str_init(&next, len * 2 + 64);
    rc = llmq_str_append(&s, page, len, err);
    if (!rc)
        rc = detokenize(&s, &next, err);
    if (!rc)
        rc = llmq_str_append(out, s.data, s.len, err);
    llmq_str_fini(&s);
    llmq_str_fini(&next);
    return rc;
}

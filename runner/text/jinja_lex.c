/* A template's text to tokens: see jinja_tree.h.
 *
 * White space is dealt with here, by Jinja's rules with trim_blocks and lstrip_blocks on: a dash inside a tag takes all
 * white space on its side; without one a block or comment takes the newline behind it, and the blanks in front of it
 * when nothing else stands on its line; a plus inside the tag switches that off. */
#include "runner/text/jinja_tree.h"

#include "common/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BRACKETS = 200 };

struct lexer {
    struct llmq_arena *arena;
    const char        *p, *end; /* normalised text, zero-terminated */
    const char        *counted; /* lines up to here are in `line` */
    int                line, starts_line; /* is p the start of a line, as far as tags are concerned? */
    struct jtok       *tok;
    size_t             n, cap;
    char               open[MAX_BRACKETS]; /* brackets that are open, as what closes them */
    int                depth;
    struct llmq_err   *err;
};

int jinja_is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
           c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

static int line_at(struct lexer *l, const char *p)
{
    for (; l->counted < p; l->counted++)
        l->line += *l->counted == '\n';
    return l->line;
}

static int push(struct lexer *l, enum jtok_kind kind, const char *at, struct jname text)
{
    if (l->n == l->cap) {
        size_t       cap = l->cap ? l->cap * 2 : 64;
        struct jtok *bigger;

        if (LLMQ_ARENA_NEW(l->arena, &bigger, cap, "a template's tokens", l->err))
            return l->err->code;
        if (l->n)
            memcpy(bigger, l->tok, l->n * sizeof *bigger);
        l->tok = bigger;
        l->cap = cap;
    }
    l->tok[l->n++] = (struct jtok){.kind = kind, .line = line_at(l, at), .text = text};
    return 0;
}

/* Newlines become \n, and one at the very end goes. */
static int normalise(struct lexer *l, const char *text, size_t len)
{
    char  *copy;
    size_t n = 0, bad = utf8_check(text, len);

    if (bad != len)
        return llmq_fail(l->err, LLMQ_EFORMAT, "chat template: byte %zu is not UTF-8", bad);
    if (memchr(text, 0, len))
        return llmq_fail(l->err, LLMQ_EFORMAT, "chat template: it holds a zero byte, expected text");
    if (LLMQ_ARENA_NEW(l->arena, &copy, len + 1, "a template", l->err))
        return l->err->code;
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '\r' && i + 1 < len && text[i + 1] == '\n')
            continue;
        copy[n++] = text[i] == '\r' ? '\n' : text[i];
    }
    if (n && copy[n - 1] == '\n')
        n--;
    copy[n] = 0;
    l->p = l->counted = copy;
    l->end = copy + n;
    l->line = l->starts_line = 1;
    return 0;
}

static const char *space_back(const char *from, const char *p)
{
    int n;

    while (p > from) {
        const char *q = from + utf8_back(from, (size_t)(p - from));

        if (!jinja_is_space(utf8_get(q, &n)))
            break;
        p = q;
    }
    return p;
}

static const char *space_on(const char *p, const char *end)
{
    int n;

    while (p < end && jinja_is_space(utf8_get(p, &n)))
        p += n;
    return p;
}

/* The next tag's opening, or the end. */
static const char *find_tag(const struct lexer *l)
{
    const char *p = l->p;

    while ((p = memchr(p, '{', (size_t)(l->end - p))) && p[1] != '%' && p[1] != '{' && p[1] != '#')
        p++;
    return p ? p : l->end;
}

/* Where the text in front of a tag ends. */
static const char *data_end(const struct lexer *l, const char *tag)
{
    const char *start;

    if (tag == l->end || tag[2] == '+')
        return tag;
    if (tag[2] == '-')
        return space_back(l->p, tag);
    if (tag[1] == '{')
        return tag;
    start = memrchr(l->p, '\n', (size_t)(tag - l->p));
    if (!start && !l->starts_line)
        return tag;
    start = start ? start + 1 : l->p;
    return space_on(start, tag) >= tag ? start : tag;
}

/* Steps over a tag's closing (at p, behind its sign), and over the white space that goes with it. */
static void close_tag(struct lexer *l, const char *p, char sign, int takes_newline)
{
    l->p = p + 2;
    if (sign == '-')
        l->p = space_on(l->p, l->end);
    else if (sign != '+' && takes_newline && *l->p == '\n')
        l->p++;
    l->starts_line = l->p[-1] == '\n';
}

static int skip_comment(struct lexer *l, const char *tag)
{
    const char *close = strstr(tag + 2, "#}");
    char        sign;

    if (!close)
        return jinja_failed_at(l->err, line_at(l, tag), "a comment does not end");
    sign = close > tag + 2 ? close[-1] : 0;
    close_tag(l, close, sign, 1);
    return 0;
}

/* ---- inside of tags ---------------------------------------------------------------------------- */

static int is_name(char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c & 0x80); }
static int is_digit(char c) { return c >= '0' && c <= '9'; }

static int lex_number(struct lexer *l)
{
    char        digits[64];
    size_t      n = 0;
    const char *p = l->p;
    int         real = 0, index = l->n && l->tok[l->n - 1].kind == JT_OP && *l->tok[l->n - 1].text.p == '.'; /* a.0.1 */
    struct jtok *t;

    for (; n < sizeof digits - 1; p++) {
        if (*p == '_' && is_digit(p[1]))
            continue;
        if (!is_digit(*p) && !(*p == '.' && !real && !index && is_digit(p[1])) &&
            !((*p == 'e' || *p == 'E') && (is_digit(p[1]) || ((p[1] == '-' || p[1] == '+') && is_digit(p[2])))) &&
            !((*p == '-' || *p == '+') && n && (digits[n - 1] == 'e' || digits[n - 1] == 'E')))
            break;
        real |= !is_digit(*p);
        digits[n++] = *p;
    }
    digits[n] = 0;
    if (push(l, real ? JT_REAL : JT_INT, l->p, (struct jname){l->p, (size_t)(p - l->p)}))
        return l->err->code;
    t = &l->tok[l->n - 1];
    errno = 0;
    if (real)
        t->r = strtod(digits, NULL);
    else
        t->i = strtoll(digits, NULL, 10);
    if ((errno && !real) || is_name(*p))
        return jinja_failed_at(l->err, t->line, "'%.20s' is not a number that is supported", l->p);
    l->p = p;
    return 0;
}

/* The code point of n hexadecimal digits; -1: there are not as many, or they name none. */
static long hex(const char *p, const char *end, int n)
{
    char  buf[9];
    char *stop;
    long  v;

    if (end - p < n)
        return -1;
    memcpy(buf, p, (size_t)n);
    buf[n] = 0;
    v = strtol(buf, &stop, 16);
    return *stop || buf[0] == '-' || buf[0] == '+' || v > 0x10ffff || (v >= 0xd800 && v < 0xe000) ? -1 : v;
}

/* One escape at p (behind the backslash), as Python reads it; returns what was used, 0 when it is no escape. */
static int unescape(const char *p, const char *end, char *out, size_t *n)
{
    static const char letter[] = "ntr\\'\"abfv", value[] = "\n\t\r\\'\"\a\b\f\v";
    const char       *at = memchr(letter, *p, sizeof letter - 1);
    int               digits = *p == 'x' ? 2 : *p == 'u' ? 4 : *p == 'U' ? 8 : 0;
    long              c = 0;
    int               used = 0;

    if (*p == '\n')
        return 1;
    if (at) {
        out[(*n)++] = value[at - letter];
        return 1;
    }
    if (digits) {
        c = hex(p + 1, end, digits);
        used = 1 + digits;
    } else {
        for (; used < 3 && p[used] >= '0' && p[used] <= '7'; used++)
            c = c * 8 + (p[used] - '0');
    }
    if (!used || c < 0)
        return 0;
    *n += (size_t)utf8_put(out + *n, (uint32_t)c);
    return used;
}

static int lex_string(struct lexer *l)
{
    const char *p = l->p + 1, *start = l->p;
    char       *out;
    size_t      n = 0;

    while (p < l->end && *p != *start)
        p += *p == '\\' && p + 1 < l->end ? 2 : 1;
    if (p >= l->end)
        return jinja_failed_at(l->err, line_at(l, start), "a string does not end");
    if (LLMQ_ARENA_NEW(l->arena, &out, p - start + UTF8_MAX, "a string", l->err))
        return l->err->code;
    for (const char *q = start + 1; q < p;) {
        int used = *q == '\\' ? unescape(q + 1, p, out, &n) : 0;

        if (used)
            q += 1 + used;
        else
            out[n++] = *q++;
    }
    l->p = p + 1;
    return push(l, JT_STR, start, (struct jname){out, n});
}

static int track_brackets(struct lexer *l, char c)
{
    if (c == '(' || c == '[' || c == '{') {
        if (l->depth == MAX_BRACKETS)
            return jinja_failed_at(l->err, line_at(l, l->p), "more than %d open brackets", MAX_BRACKETS);
        l->open[l->depth++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
        if (!l->depth || l->open[--l->depth] != c)
            return jinja_failed_at(l->err, line_at(l, l->p), "'%c' closes nothing", c);
    }
    return 0;
}

static int lex_operator(struct lexer *l)
{
    static const char *const two[] = {"//", "**", "==", "!=", ">=", "<="};
    size_t                   n = 1;

    for (size_t i = 0; i < sizeof two / sizeof two[0]; i++)
        if (l->p[0] == two[i][0] && l->p[1] == two[i][1])
            n = 2;
    if (n == 1 && !strchr("+-/*%~[](){}><=.:|,", *l->p))
        return jinja_failed_at(l->err, line_at(l, l->p), "'%.1s' is not expected here", l->p);
    if (track_brackets(l, *l->p) || push(l, JT_OP, l->p, (struct jname){l->p, n}))
        return l->err->code;
    l->p += n;
    return 0;
}

/* Is the tag's closing here?  Brackets that are open keep it from being one. */
static int at_close(const struct lexer *l, char c)
{
    const char *p = l->p + (*l->p == '-' || (*l->p == '+' && c == '%'));

    return !l->depth && p[0] == c && p[1] == '}';
}

static int lex_inside(struct lexer *l, char c)
{
    l->depth = 0;
    for (;;) {
        const char *start;
        int         rc;

        l->p = space_on(l->p, l->end);
        if (l->p >= l->end)
            return jinja_failed_at(l->err, line_at(l, l->end), "the template ends inside of a tag");
        if (at_close(l, c))
            return 0;
        start = l->p;
        if (is_digit(*l->p))
            rc = lex_number(l);
        else if (is_name(*l->p)) {
            while (is_name(*l->p))
                l->p++;
            rc = push(l, JT_NAME, start, (struct jname){start, (size_t)(l->p - start)});
        } else
            rc = *l->p == '\'' || *l->p == '"' ? lex_string(l) : lex_operator(l);
        if (rc)
            return rc;
    }
}

/* A {% raw %} tag?  Then everything up to {% endraw %} is text. */
static int lex_raw(struct lexer *l, size_t at)
{
    const char *p = l->p, *tag, *body = l->p, *name;

    if (l->n != at + 3 || l->tok[at + 1].kind != JT_NAME || l->tok[at + 1].text.n != 3 || memcmp(l->tok[at + 1].text.p, "raw", 3) != 0)
        return 0;
    l->n = at;
    while ((tag = strstr(p, "{%"))) {
        name = tag + 2 + (tag[2] == '-' || tag[2] == '+');
        name = space_on(name, l->end);
        if (!strncmp(name, "endraw", 6) && !is_name(name[6]))
            break;
        p = tag + 2;
    }
    if (!tag)
        return jinja_failed_at(l->err, line_at(l, body), "a raw block does not end");
    if (push(l, JT_DATA, body, (struct jname){body, (size_t)(data_end(l, tag) - body)}))
        return l->err->code;
    p = space_on(name + 6, l->end);
    if (strncmp(p + (*p == '-' || *p == '+'), "%}", 2) != 0)
        return jinja_failed_at(l->err, line_at(l, tag), "endraw is followed by something");
    close_tag(l, p + (*p == '-' || *p == '+'), *p, 1);
    return 0;
}

static int lex_tag(struct lexer *l, const char *tag)
{
    char   c = tag[1] == '%' ? '%' : '}', sign;
    size_t at = l->n;

    l->p = tag + 2 + (tag[2] == '-' || tag[2] == '+');
    if (push(l, c == '%' ? JT_BLOCK_BEGIN : JT_PRINT_BEGIN, tag, (struct jname){0}) || lex_inside(l, c) ||
        push(l, c == '%' ? JT_BLOCK_END : JT_PRINT_END, l->p, (struct jname){0}))
        return l->err->code;
    sign = *l->p == '-' || *l->p == '+' ? *l->p : 0;
    close_tag(l, l->p + (sign != 0), sign, c == '%');
    return lex_raw(l, at);
}

int jinja_lex(struct llmq_arena *a, const char *text, size_t len, struct jtok **out, struct llmq_err *err)
{
    struct lexer l = {.arena = a, .err = err};

    if (normalise(&l, text, len))
        return err->code;
    while (l.p < l.end) {
        const char *tag = find_tag(&l), *stop = data_end(&l, tag);

        if (stop > l.p && push(&l, JT_DATA, l.p, (struct jname){l.p, (size_t)(stop - l.p)}))
            return err->code;
        if (tag == l.end)
            break;
        if (tag[1] == '#' ? skip_comment(&l, tag) : lex_tag(&l, tag))
            return err->code;
    }
    if (push(&l, JT_END, l.end, (struct jname){0}))
        return err->code;
    *out = l.tok;
    return 0;
}

/* Oniguruma's Ruby syntax to PCRE2's: see onig.h.
 *
 * A recursive descent over the pattern that writes as it reads.  Three differences carry the weight:
 *   - \p{..}, \w, \s, [[:alpha:]] and class arithmetic ([a-z&&[^x]]) are computed here, as ranges;
 *   - a quantifier after an interval ({1,3}+, {2}?) means something else in Ruby, so each quantifier is put on a group
 *     of its own when another follows;
 *   - under (?i) only ASCII is translated: beyond it, and for ss, ff, fi, fl, st, one letter may match two.
 * Groups do not capture: nothing that we accept could refer to one. */
#include "runner/text/onig.h"

#include "common/utf8.h"
#include "runner/text/uniset.h"

#include <string.h>
#include <strings.h>

enum { MAX_DEPTH = 64, MAX_REPEAT = 65535 };

struct onig {
    const char      *p, *end, *start;
    struct llmq_str *out;
    struct llmq_err *err;
    int              depth, in_class, in_negated; /* how many brackets deep, and negated ones */
    int              icase, dotall, extended;
    uint32_t         last_letter; /* the literal just written, under icase; 0: something else */
};

static int regex(struct onig *o);

static int refuse(struct onig *o, const char *what)
{
    return llmq_fail(o->err, LLMQ_EFORMAT, "regular expression '%.*s%s', byte %zu: %s",
                     (int)(o->end - o->start > 80 ? 80 : o->end - o->start), o->start,
                     o->end - o->start > 80 ? "..." : "", (size_t)(o->p - o->start), what);
}

static int put(struct onig *o, const char *text) { return llmq_str_append(o->out, text, strlen(text), o->err); }

static int put_char(struct onig *o, uint32_t c) { return llmq_str_printf(o->out, o->err, "\\x{%x}", c); }

static int more(const struct onig *o) { return o->p < o->end; }
static int at(const struct onig *o, const char *text)
{
    size_t n = strlen(text);

    return (size_t)(o->end - o->p) >= n && !memcmp(o->p, text, n);
}
static int take(struct onig *o, const char *text)
{
    if (!at(o, text))
        return 0;
    o->p += strlen(text);
    return 1;
}

static uint32_t next_char(struct onig *o)
{
    int      len;
    uint32_t c = utf8_get(o->p, &len);

    o->p += len;
    return c;
}

/* ---- sets --------------------------------------------------------------------------------- */

/* PCRE2 refuses surrogates as ends of a range, and valid text has none. */
static int put_range(struct onig *o, uint32_t lo, uint32_t hi)
{
    if (lo >= 0xd800 && lo <= 0xdfff)
        lo = 0xe000;
    if (hi >= 0xd800 && hi <= 0xdfff)
        hi = 0xd7ff;
    if (lo > hi)
        return 0;
    return lo == hi ? put_char(o, lo) : llmq_str_printf(o->out, o->err, "\\x{%x}-\\x{%x}", lo, hi);
}

/* Ranges beyond Latin are tried one by one: the ones that much text lies in stand first. */
static int put_ranges(struct onig *o, const struct uniset *s)
{
    enum { WIDE = 1024 };
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < s->n; i++)
            if ((s->range[i].hi - s->range[i].lo >= WIDE) == (pass == 0) && put_range(o, s->range[i].lo, s->range[i].hi))
                return o->err->code;
    return 0;
}

static int put_set(struct onig *o, const struct uniset *s)
{
    if (!s->n)
        return put(o, "(?!)");
    if (s->n == 1 && s->range[0].lo == 0 && s->range[0].hi == 0x10ffff)
        return put(o, ".");
    return put(o, "[") || put_ranges(o, s) || put(o, "]") ? o->err->code : 0;
}

/* Adds a named set, or all but it. */
static int add_named(struct onig *o, struct uniset *s, const char *name, size_t len, int negate)
{
    struct uniset t = {0};
    int           rc;

    /* In brackets a word is what Unicode says; outside Oniguruma goes by a table of Latin-1 that adds six fractions
     * and superscripts. */
    if (o->in_class && len == 4 && !strncasecmp(name, "word", 4)) {
        name = "posixword";
        len = 9;
    }
    rc = uniset_named(&t, name, len, o->err);
    if (rc > 0)
        rc = llmq_fail(o->err, LLMQ_EFORMAT, "regular expression: there is no property '%.*s' here", (int)len, name);
    else if (!rc && !(negate && uniset_negate(&t, o->err)))
        rc = uniset_union(s, &t, o->err);
    else if (!rc)
        rc = o->err->code;
    uniset_fini(&t);
    return rc;
}

/* \p{Name}, \p{^Name}, \P{Name}: o->p stands behind the p. */
static int add_property(struct onig *o, struct uniset *s, int negate)
{
    const char *name, *close;

    if (!take(o, "{"))
        return refuse(o, "\\p without {name}");
    if (take(o, "^"))
        negate = !negate;
    name = o->p;
    close = memchr(name, '}', (size_t)(o->end - name));
    if (!close)
        return refuse(o, "\\p{ without }");
    o->p = close + 1;
    return add_named(o, s, name, (size_t)(close - name), negate);
}

/* The escapes that stand for a set; 1: c is not one of them. */
static int add_escape_set(struct onig *o, struct uniset *s, uint32_t c)
{
    switch (c) {
    case 'd': return add_named(o, s, "digit", 5, 0);
    case 'D': return add_named(o, s, "digit", 5, 1);
    case 'w': return add_named(o, s, "word", 4, 0);
    case 'W': return add_named(o, s, "word", 4, 1);
    case 's': return add_named(o, s, "space", 5, 0);
    case 'S': return add_named(o, s, "space", 5, 1);
    case 'h': return add_named(o, s, "xdigit", 6, 0);
    case 'H': return add_named(o, s, "xdigit", 6, 1);
    case 'p': return add_property(o, s, 0);
    case 'P': return add_property(o, s, 1);
    default: return 1;
    }
}

static int digits(struct onig *o, int base, int most, uint32_t *value)
{
    int n = 0;

    for (*value = 0; more(o) && n < most; n++, o->p++) {
        int c = (unsigned char)*o->p, d = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : 99;

        if (d >= base)
            break;
        *value = *value * (uint32_t)base + (uint32_t)d;
    }
    return n;
}

/* A code point written with a backslash, which has been read, as c has. */
static int escape_char(struct onig *o, uint32_t c, uint32_t *out)
{
    static const char letter[] = "tnrfvae", code[] = "\t\n\r\f\v\a\033";
    const char       *l = c < 128 && c ? strchr(letter, (int)c) : NULL;

    *out = c;
    if (l) {
        *out = (uint32_t)code[l - letter];
    } else if (c == 'x' && take(o, "{")) {
        if (!digits(o, 16, 8, out) || !take(o, "}") || *out > 0x10ffff)
            return refuse(o, "\\x{ without a code point and }");
    } else if (c == 'x') {
        if (!digits(o, 16, 2, out) || *out > 0x7f)
            return refuse(o, "\\x with a byte beyond 7F");
    } else if (c == 'u') {
        if (digits(o, 16, 4, out) != 4)
            return refuse(o, "\\u without four digits");
    } else if (c == '0') {
        digits(o, 8, 2, out);
    } else if ((c >= '1' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
        return refuse(o, "an escape that is not supported");
    }
    return 0;
}

static int class_body(struct onig *o, struct uniset *s);

/* [:name:] or [:^name:]; 1: it is not one. */
static int posix_bracket(struct onig *o, struct uniset *s)
{
    const char *name = o->p + 2, *close = NULL;
    int         negate;

    if (!at(o, "[:"))
        return 1;
    for (const char *q = name; q + 1 < o->end && q - name < 20; q++)
        if (q[0] == ':' && q[1] == ']') {
            close = q;
            break;
        }
    if (!close)
        return 1;
    negate = name < close && *name == '^';
    o->p = close + 2;
    name += negate;
    /* [[:punct:]] has the ASCII symbols, which \p{Punct} has not. */
    if (close - name == 5 && !memcmp(name, "punct", 5))
        return add_named(o, s, "posixpunct", 10, negate);
    return add_named(o, s, name, (size_t)(close - name), negate);
}

/* What may end a range: one code point; 1: the item was a set, which has been added. */
static int class_item(struct onig *o, struct uniset *s, uint32_t *c)
{
    int rc;

    *c = next_char(o);
    if (*c != '\\')
        return 0;
    if (!more(o))
        return refuse(o, "a backslash at the end");
    *c = next_char(o);
    if (*c == 'b') {
        *c = '\b';
        return 0;
    }
    rc = add_escape_set(o, s, *c);
    if (rc <= 0)
        return rc ? rc : 1;
    return escape_char(o, *c, c);
}

/* One item or range of a class: a, a-z, \w, [..], [:alpha:]. */
static int class_part(struct onig *o, struct uniset *s)
{
    uint32_t lo, hi;
    int      rc = posix_bracket(o, s);

    if (rc <= 0)
        return rc;
    if (take(o, "[")) {
        struct uniset t = {0};

        rc = class_body(o, &t) || uniset_union(s, &t, o->err) ? o->err->code : 0;
        uniset_fini(&t);
        return rc;
    }
    rc = class_item(o, s, &lo);
    if (rc)
        return rc < 0 ? rc : 0;
    hi = lo;
    if (at(o, "-") && o->end - o->p >= 2 && o->p[1] != ']' && o->p[1] != '[' && !at(o, "-&&")) {
        o->p++;
        rc = class_item(o, s, &hi);
        if (rc)
            return rc < 0 ? rc : refuse(o, "a range that ends in a set");
        if (hi < lo)
            return refuse(o, "a range that runs backwards");
    }
    return uniset_add(s, lo, hi, o->err);
}

/* The parts up to "&&" or "]". */
static int class_side(struct onig *o, struct uniset *s, int first)
{
    if (first && at(o, "]") && memchr(o->p + 1, ']', (size_t)(o->end - o->p - 1))) {
        o->p++;
        if (uniset_add(s, ']', ']', o->err))
            return o->err->code;
    }
    while (more(o) && !at(o, "]") && !at(o, "&&"))
        if (class_part(o, s))
            return o->err->code;
    return more(o) ? 0 : refuse(o, "[ without ]");
}

/* Behind "[": the set, and the closing bracket. */
static int class_body(struct onig *o, struct uniset *s)
{
    int negate = take(o, "^"), rc = 0;

    if (++o->depth > MAX_DEPTH)
        return refuse(o, "nested too deep");
    /* Oniguruma 6.9 loses code points beyond Latin-1 there. */
    if (negate && o->in_negated)
        return refuse(o, "a negated class inside a negated class");
    o->in_class++;
    o->in_negated += negate;
    rc = class_side(o, s, 1);
    while (!rc && take(o, "&&")) {
        struct uniset t = {0};

        rc = class_side(o, &t, 0) || uniset_intersect(s, &t, o->err) ? o->err->code : 0;
        uniset_fini(&t);
    }
    if (!rc && negate)
        rc = uniset_negate(s, o->err);
    if (!rc)
        o->p++;
    o->in_class--;
    o->in_negated -= negate;
    o->depth--;
    return rc;
}

/* A class in brackets folds case; one that is a bare \p{..} or \w does not. */
static int put_class(struct onig *o, const struct uniset *s, int folds)
{
    if (!o->icase)
        return put_set(o, s);
    if (!folds)
        return put(o, "(?-i:") || put_set(o, s) || put(o, ")") ? o->err->code : 0;
    if (s->n && s->range[s->n - 1].hi > 0x7f)
        return refuse(o, "a class beyond ASCII that ignores case");
    return put_set(o, s);
}

static int bracket_class(struct onig *o)
{
    struct uniset s = {0};
    int           rc = class_body(o, &s) || put_class(o, &s, 1) ? o->err->code : 0;

    uniset_fini(&s);
    return rc;
}

/* ---- atoms -------------------------------------------------------------------------------- */

/* Pairs of letters that one code point may stand for, such as U+00DF and U+FB01. */
static int folds_together(uint32_t a, uint32_t b)
{
    return (a == 's' && (b == 's' || b == 't')) || (a == 'f' && (b == 'f' || b == 'i' || b == 'l'));
}

/* last: the letter that stands before it, if one does. */
static int literal(struct onig *o, uint32_t c, uint32_t last)
{
    uint32_t low = c >= 'A' && c <= 'Z' ? c + 32 : c;

    if (o->icase && c > 0x7f)
        return refuse(o, "a character beyond ASCII that ignores case");
    if (o->icase && folds_together(last, low))
        return refuse(o, "two letters that ignore case and have a ligature");
    o->last_letter = low;
    if (c >= 0xd800 && c <= 0xdfff)
        return refuse(o, "a surrogate");
    return put_char(o, c);
}

/* \b and \B with the library's idea of a word. */
static int word_boundary(struct onig *o, int negate)
{
    struct uniset word = {0};
    const char   *part[] = {"(?:(?<=", ")(?!", ")|(?<!", ")(?=", "))"};
    const char   *not_part[] = {"(?:(?<=", ")(?=", ")|(?<!", ")(?!", "))"};
    int           rc = add_named(o, &word, "word", 4, 0);

    for (int i = 0; !rc && i < 5; i++)
        rc = put(o, negate ? not_part[i] : part[i]) || (i < 4 && put_class(o, &word, 0)) ? o->err->code : 0;
    uniset_fini(&word);
    return rc;
}

static int escape(struct onig *o, uint32_t last)
{
    struct uniset s = {0};
    uint32_t      c;
    int           rc;

    if (!more(o))
        return refuse(o, "a backslash at the end");
    c = next_char(o);
    switch (c) {
    case 'A': return put(o, "\\A");
    case 'z': return put(o, "\\z");
    case 'Z': return put(o, "\\Z");
    case 'b': return word_boundary(o, 0);
    case 'B': return word_boundary(o, 1);
    case 'R': return put(o, "(?>\\x{d}\\x{a}|[\\x{a}-\\x{d}\\x{85}\\x{2028}\\x{2029}])");
    default: break;
    }
    rc = add_escape_set(o, &s, c);
    if (!rc)
        rc = put_class(o, &s, 0);
    uniset_fini(&s);
    if (rc <= 0)
        return rc;
    return escape_char(o, c, &c) || literal(o, c, last) ? o->err->code : 0;
}

/* The letters of (?imx-imx; stops at ':' or ')'. */
static int options(struct onig *o)
{
    int on = 1;

    for (; more(o) && !at(o, ":") && !at(o, ")"); o->p++) {
        switch (*o->p) {
        case '-': on = 0; break;
        case 'i': o->icase = on; break;
        case 'm': o->dotall = on; break;
        case 'x': o->extended = on; break;
        default: return refuse(o, "a group of a kind that is not supported");
        }
    }
    return more(o) ? 0 : refuse(o, "( without )");
}

/* (?i:...) and (?i), which in Ruby reaches to the end of the group, alternatives included. */
static int option_group(struct onig *o)
{
    int icase = o->icase, dotall = o->dotall, extended = o->extended, rest;

    if (options(o))
        return o->err->code;
    rest = *o->p++ == ')';
    if (put(o, o->icase ? "(?i:" : "(?-i:") || regex(o) || put(o, ")"))
        return o->err->code;
    if (!rest && !take(o, ")"))
        return refuse(o, "( without )");
    o->icase = icase;
    o->dotall = dotall;
    o->extended = extended;
    return 0;
}

static int skip_name(struct onig *o)
{
    const char *close = memchr(o->p, '>', (size_t)(o->end - o->p));

    if (!close)
        return refuse(o, "(?< without >");
    o->p = close + 1;
    return 0;
}

/* Behind "(". */
static int group(struct onig *o)
{
    static const char *const same[] = {"?:", "?=", "?!", "?>", "?<=", "?<!"};
    int                      known = 0, icase = o->icase, dotall = o->dotall, extended = o->extended;

    if (take(o, "?#")) {
        while (more(o) && *o->p != ')')
            o->p++;
        return take(o, ")") ? 0 : refuse(o, "(?# without )");
    }
    for (int i = 0; !known && i < 6; i++)
        if (take(o, same[i])) {
            if (put(o, "(") || put(o, same[i]))
                return o->err->code;
            known = 1;
        }
    if (!known && take(o, "?<")) {
        if (skip_name(o))
            return o->err->code;
    } else if (!known && take(o, "?")) {
        return option_group(o);
    }
    if ((!known && put(o, "(?:")) || regex(o) || put(o, ")"))
        return o->err->code;
    if (!take(o, ")"))
        return refuse(o, "( without )");
    o->icase = icase;
    o->dotall = dotall;
    o->extended = extended;
    return 0;
}

/* ---- quantifiers -------------------------------------------------------------------------- */

/* {n}, {n,}, {n,m}, {,m}: 1 when there is one here (and it has been read); otherwise the brace is a letter. */
static int interval(struct onig *o, int *lo, int *hi)
{
    const char *back = o->p;
    uint32_t    a = 0, b = 0;
    int         na, nb = 0, comma;

    if (!take(o, "{"))
        return 0;
    na = digits(o, 10, 6, &a);
    comma = take(o, ",");
    if (comma)
        nb = digits(o, 10, 6, &b);
    if ((!na && !nb) || !take(o, "}")) {
        o->p = back;
        return 0;
    }
    *lo = (int)a;
    *hi = !comma ? (int)a : nb ? (int)b : -1;
    return 1;
}

/* Puts the text written since `from` into a group of its own, so that one more quantifier can follow. */
static int wrap(struct onig *o, size_t from)
{
    if (put(o, "(?:)"))
        return o->err->code;
    memmove(o->out->data + from + 3, o->out->data + from, o->out->len - from - 4);
    memcpy(o->out->data + from, "(?:", 3);
    o->out->data[o->out->len - 1] = ')';
    return 0;
}

static int put_interval(struct onig *o, int lo, int hi)
{
    if (lo > MAX_REPEAT || hi > MAX_REPEAT || (hi >= 0 && hi < lo))
        return refuse(o, "an interval that is too large or runs backwards");
    if (hi < 0)
        return llmq_str_printf(o->out, o->err, "{%d,}", lo);
    return llmq_str_printf(o->out, o->err, "{%d,%d}", lo, hi);
}

/* One quantifier on what has been written since `from`; 1: there is none. */
static int quantifier(struct onig *o, size_t from, int nth)
{
    int  lo, hi, brace = interval(o, &lo, &hi);
    char sign = more(o) ? *o->p : '\0';

    if (!brace && sign != '*' && sign != '+' && sign != '?')
        return 1;
    if (o->out->len == from)
        return refuse(o, "a quantifier of nothing");
    o->last_letter = 0;
    if (nth > 0 && wrap(o, from))
        return o->err->code;
    if (brace) {
        if (put_interval(o, lo, hi))
            return o->err->code;
        /* {n}? is optional in Ruby, not lazy; {n,m}+ is one more quantifier, and left to the next turn. */
        if (lo != hi && take(o, "?"))
            return put(o, "?");
        return 0;
    }
    o->p++;
    if (llmq_str_append(o->out, &sign, 1, o->err))
        return o->err->code;
    if (take(o, "?"))
        return put(o, "?");
    return take(o, "+") ? put(o, "+") : 0;
}

/* ---- sequences ---------------------------------------------------------------------------- */

/* White space and comments under (?x). */
static void skip_space(struct onig *o)
{
    while (o->extended && more(o) && strchr(" \t\n\r\f\v#", *o->p) && *o->p)
        if (*o->p++ == '#')
            while (more(o) && *o->p != '\n')
                o->p++;
}

static int atom(struct onig *o)
{
    uint32_t c = next_char(o), last = o->last_letter;

    o->last_letter = 0;
    switch (c) {
    case '[': return bracket_class(o);
    case '(': return group(o);
    case '\\': return escape(o, last);
    case '.': return put(o, o->dotall ? "." : "[^\\x{a}]");
    case '^': return put(o, "^");
    case '$': return put(o, "$");
    default: return literal(o, c, last);
    }
}

static int piece(struct onig *o)
{
    size_t from = o->out->len;
    int    rc = 0;

    if (strchr("*+?", *o->p) && *o->p)
        return refuse(o, "a quantifier of nothing");
    if (atom(o))
        return o->err->code;
    for (int nth = 0; !rc; nth++) {
        skip_space(o);
        rc = quantifier(o, from, nth);
    }
    return rc < 0 ? rc : 0;
}

static int regex(struct onig *o)
{
    if (++o->depth > MAX_DEPTH)
        return refuse(o, "nested too deep");
    o->last_letter = 0;
    for (skip_space(o); more(o) && *o->p != ')'; skip_space(o)) {
        if (take(o, "|")) {
            o->last_letter = 0;
            if (put(o, "|"))
                return o->err->code;
        } else if (piece(o)) {
            return o->err->code;
        }
    }
    o->last_letter = 0;
    o->depth--;
    return 0;
}

int onig_translate(const char *pattern, size_t len, struct llmq_str *out, struct llmq_err *err)
{
    struct onig o = {.p = pattern, .end = pattern + len, .start = pattern, .out = out, .err = err};

    if (utf8_check(pattern, len) != len)
        return llmq_fail(err, LLMQ_EFORMAT, "regular expression: byte %zu is not UTF-8", utf8_check(pattern, len));
    if (regex(&o))
        return err->code;
    return more(&o) ? refuse(&o, ") without (") : 0;
}

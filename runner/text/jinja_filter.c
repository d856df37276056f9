/* Jinja's filters: see jinja_value.h.  What is a generator there is a list here. */
#include "runner/text/jinja_value.h"

#include "common/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct filter {
    const char *name, *parameters; /* see ja_bind; NULL: it looks at args itself */
    int (*call)(struct jrun *r, const struct jv *v, const struct jv *const *a, const struct jargs *args, struct jv *out);
};

#define FILTER(name) \
    static int name(struct jrun *r, const struct jv *v, const struct jv *const *a, const struct jargs *args, struct jv *out)
#define UNUSED ((void)r, (void)a, (void)args)

/* ---- of text --------------------------------------------------------------------------------------------- */

FILTER(trim)
{
    struct jv s;

    UNUSED;
    return jv_to_str(r, v, &s) ? jr_failed(r) : jm_strip(r, &s, a[0], 1, 1, out);
}

static int cased(struct jrun *r, const struct jv *v, int how, struct jv *out)
{
    struct jv s;

    return jv_to_str(r, v, &s) ? jr_failed(r) : jm_case(r, &s, how, out);
}

FILTER(f_upper) { UNUSED; return cased(r, v, 'u', out); }
FILTER(f_lower) { UNUSED; return cased(r, v, 'l', out); }
FILTER(f_title) { UNUSED; return cased(r, v, 'T', out); }
FILTER(f_capitalize) { UNUSED; return cased(r, v, 'c', out); }
FILTER(string) { UNUSED; return jv_to_str(r, v, out); }
FILTER(safe) { UNUSED; *out = *v; return 0; }

FILTER(f_replace)
{
    struct jv s, old, new;
    int64_t   count = -1;

    UNUSED;
    if (jv_to_str(r, v, &s) || jv_to_str(r, a[0], &old) || jv_to_str(r, a[1], &new) || (a[2] && a[2]->kind != JV_NONE && jv_to_int(r, a[2], "the count", &count)))
        return jr_failed(r);
    return jm_replace(r, &s, &old, &new, count, out);
}

FILTER(escape)
{
    struct jv   s;
    struct jbuf b = {0};

    UNUSED;
    if (jv_to_str(r, v, &s))
        return jr_failed(r);
    for (size_t i = 0; i < s.s.n; i++) {
        const char *entity = s.s.p[i] == '&' ? "&amp;" : s.s.p[i] == '<' ? "&lt;" : s.s.p[i] == '>' ? "&gt;" : s.s.p[i] == '"' ? "&#34;" : s.s.p[i] == '\'' ? "&#39;" : NULL;
        int         mark = s.s.mark && s.s.mark[i];

        if (entity ? jb_fill(r, &b, entity, strlen(entity), mark) : jb_fill(r, &b, s.s.p + i, 1, mark))
            return jr_failed(r);
    }
    *out = jb_take(&b);
    return 0;
}

/* width: a number of spaces, or the text itself */
static int indentation(struct jrun *r, const struct jv *width, struct jv *out)
{
    struct jbuf b = {0};
    int64_t     n = 4;

    if (width && width->kind == JV_STR) {
        *out = *width;
        return 0;
    }
    if (width && jv_to_int(r, width, "the width", &n))
        return jr_failed(r);
    for (; n > 0; n--)
        if (jb_literal(r, &b, " ") || jr_step(r, 1))
            return jr_failed(r);
    *out = jb_take(&b);
    return 0;
}

FILTER(indent)
{
    struct jv   s, lines, by;
    struct jbuf b = {0};
    int         first = a[1] && jv_truth(a[1]), blank = a[2] && jv_truth(a[2]);

    UNUSED;
    if (v->kind != JV_STR)
        return jr_fail(r, "indent: a %s, expected a str", jv_type(v));
    if (indentation(r, a[0], &by) || jb_str(r, &b, v->s) || jb_literal(r, &b, "\n"))
        return jr_failed(r);
    s = jb_take(&b);
    b = (struct jbuf){0};
    if (jm_lines(r, &s, 0, &lines))
        return jr_failed(r);
    for (size_t i = 0; i < lines.seq->n; i++) {
        struct jstr line = lines.seq->v[i].s;

        if ((i && jb_literal(r, &b, "\n")) || ((i ? line.n || blank : first) && jb_str(r, &b, by.s)) || jb_str(r, &b, line))
            return jr_failed(r);
    }
    *out = jb_take(&b);
    return 0;
}

FILTER(wordcount)
{
    struct jv s;
    int64_t   n = 0;
    int       len, inside = 0;

    UNUSED;
    if (jv_to_str(r, v, &s) || jr_step(r, s.s.n))
        return jr_failed(r);
    for (size_t i = 0; i < s.s.n; i += (size_t)len) {
        int word = jinja_is_word(utf8_get(s.s.p + i, &len));

        n += word && !inside;
        inside = word;
    }
    *out = jv_int(n);
    return 0;
}

/* ---- tojson: json.dumps -------------------------------------------------------------------------------------- */

struct dump {
    struct jbuf b;
    struct jv   indent; /* STR, or NONE: all on one line */
    struct jv   comma, colon;
    int         ascii, sort, level;
};

static int dump_string(struct jrun *r, struct dump *d, struct jstr s)
{
    static const char letters[] = "\"\\\n\r\t\f\b", escapes[] = "\"\\nrtfb";
    int               len, rc = jb_literal(r, &d->b, "\"");

    for (size_t i = 0; i < s.n && !rc; i += (size_t)len) {
        uint32_t    c = utf8_get(s.p + i, &len);
        const char *at = c < 0x80 && c ? strchr(letters, (char)c) : NULL;
        char        escape[16] = "";

        if (at)
            snprintf(escape, sizeof escape, "\\%c", escapes[at - letters]);
        else if (c < 0x20 || (d->ascii && c >= 0x7f && c < 0x10000))
            snprintf(escape, sizeof escape, "\\u%04x", c);
        else if (d->ascii && c >= 0x10000)
            snprintf(escape, sizeof escape, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10), 0xdc00 + ((c - 0x10000) & 0x3ff));
        rc = *escape ? jb_fill(r, &d->b, escape, strlen(escape), s.mark && s.mark[i]) : jb_add(r, &d->b, s.p + i, (size_t)len, s.mark ? s.mark + i : NULL);
    }
    return rc ? rc : jb_literal(r, &d->b, "\"");
}

static int dump_newline(struct jrun *r, struct dump *d)
{
    if (d->indent.kind != JV_STR)
        return 0;
    if (jb_literal(r, &d->b, "\n"))
        return jr_failed(r);
    for (int i = 0; i < d->level; i++)
        if (jb_str(r, &d->b, d->indent.s))
            return jr_failed(r);
    return 0;
}

static int dump_value(struct jrun *r, struct dump *d, const struct jv *v);

static int dump_seq(struct jrun *r, struct dump *d, const struct jseq *s)
{
    int rc = jb_literal(r, &d->b, "[");

    d->level++;
    for (size_t i = 0; i < s->n && !rc; i++)
        rc = (i && jb_str(r, &d->b, d->comma.s)) || dump_newline(r, d) || dump_value(r, d, &s->v[i]);
    d->level--;
    if (rc || (s->n && dump_newline(r, d)))
        return jr_failed(r);
    return jb_literal(r, &d->b, "]");
}

static int dump_key(struct jrun *r, struct dump *d, const struct jv *key)
{
    struct dump bare = {.indent = jv_none()};

    if (key->kind == JV_STR)
        return dump_string(r, d, key->s);
    if (dump_value(r, &bare, key))
        return jr_failed(r);
    return dump_string(r, d, jb_take(&bare.b).s);
}

static int by_key(const void *a, const void *b)
{
    const struct jstr x = (*(const struct jpair *const *)a)->key.s, y = (*(const struct jpair *const *)b)->key.s;
    int               c = memcmp(x.p, y.p, x.n < y.n ? x.n : y.n);

    return c ? c : x.n < y.n ? -1 : x.n > y.n;
}

static int dump_dict(struct jrun *r, struct dump *d, const struct jdict *dict)
{
    const struct jpair **order;
    int                  rc = jb_literal(r, &d->b, "{");

    if (rc || jr_alloc(r, (void **)&order, dict->n, sizeof(void *)))
        return jr_failed(r);
    for (size_t i = 0; i < dict->n; i++) {
        order[i] = &dict->v[i];
        if (d->sort && dict->v[i].key.kind != JV_STR)
            return jr_fail(r, "tojson: keys that are not strings cannot be sorted");
    }
    if (d->sort)
        qsort((void *)order, dict->n, sizeof(void *), by_key);
    d->level++;
    for (size_t i = 0; i < dict->n && !rc; i++)
        rc = (i && jb_str(r, &d->b, d->comma.s)) || dump_newline(r, d) || dump_key(r, d, &order[i]->key) || jb_str(r, &d->b, d->colon.s) ||
             dump_value(r, d, &order[i]->value);
    d->level--;
    if (rc || (dict->n && dump_newline(r, d)))
        return jr_failed(r);
    return jb_literal(r, &d->b, "}");
}

static int dump_real(struct jrun *r, struct dump *d, double v)
{
    char text[40];

    jv_real_text(v, text);
    return jb_literal(r, &d->b, isnan(v) ? "NaN" : isinf(v) ? (v > 0 ? "Infinity" : "-Infinity") : text);
}

static int dump_value(struct jrun *r, struct dump *d, const struct jv *v)
{
    int rc;

    switch (v->kind) {
    case JV_NONE: return jb_literal(r, &d->b, "null");
    case JV_BOOL: return jb_literal(r, &d->b, v->i ? "true" : "false");
    case JV_INT: return jb_value(r, &d->b, v);
    case JV_REAL: return dump_real(r, d, v->r);
    case JV_STR: return jr_step(r, v->s.n / 64) ? jr_failed(r) : dump_string(r, d, v->s);
    case JV_LIST:
    case JV_TUPLE:
    case JV_DICT:
        if (d->level > 100)
            return jr_fail(r, "tojson: a value is nested more than 100 deep");
        rc = jr_step(r, 1) || (v->kind == JV_DICT ? dump_dict(r, d, v->dict) : dump_seq(r, d, v->seq));
        return rc ? jr_failed(r) : 0;
    default: return jr_fail(r, "tojson: a %s has no JSON", jv_type(v));
    }
}

FILTER(tojson)
{
    struct dump d = {.indent = jv_none(), .comma = jv_text(", "), .colon = jv_text(": ")};

    UNUSED;
    d.ascii = a[0] && jv_truth(a[0]);
    d.sort = a[3] && jv_truth(a[3]);
    if (a[1] && a[1]->kind != JV_NONE) {
        if (indentation(r, a[1], &d.indent))
            return jr_failed(r);
        d.comma = jv_text(",");
    }
    if (a[2] && a[2]->kind != JV_NONE) {
        const struct jv *items;
        size_t           n;

        if (jv_items(r, a[2], &items, &n))
            return jr_failed(r);
        if (n != 2 || items[0].kind != JV_STR || items[1].kind != JV_STR)
            return jr_fail(r, "tojson: separators are two strings");
        d.comma = items[0];
        d.colon = items[1];
    }
    if (dump_value(r, &d, v))
        return jr_failed(r);
    *out = jb_take(&d.b);
    return 0;
}

/* ---- of numbers ------------------------------------------------------------------------------------------------ */

/* The number that a string holds, white space around it; 0: it holds none. */
static int read_number(struct jrun *r, const struct jv *v, int base, int64_t *i, double *real)
{
    struct jv s;
    char      text[64], *end;

    if (jm_strip(r, v, NULL, 1, 1, &s) || !s.s.n || s.s.n >= sizeof text)
        return 0;
    memcpy(text, s.s.p, s.s.n);
    text[s.s.n] = 0;
    errno = 0;
    if (real) {
        *real = strtod(text, &end);
        return !*end && !strpbrk(text, "xX(");
    }
    *i = strtoll(text, &end, base);
    return !*end && !errno;
}

FILTER(f_int)
{
    int64_t i = 0, base = 10;
    double  x = 0;

    UNUSED;
    *out = a[0] ? *a[0] : jv_int(0);
    if (a[1] && (jv_to_int(r, a[1], "the base", &base) || base < 2 || base > 36))
        return r->err->code ? r->err->code : jr_fail(r, "the base is %lld, expected 2 to 36", (long long)base);
    if (v->kind == JV_UNDEFINED)
        return jr_fail(r, "'%.*s' is undefined", (int)(v->s.n > 60 ? 60 : v->s.n), v->s.p);
    if (v->kind == JV_STR && read_number(r, v, (int)base, &i, NULL)) {
        *out = jv_int(i);
    } else if (v->kind == JV_REAL || (v->kind == JV_STR && read_number(r, v, 10, NULL, &x))) {
        x = v->kind == JV_REAL ? v->r : x;
        if (!(x > -9.2e18 && x < 9.2e18))
            return jr_fail(r, "an integer of this size is not supported");
        *out = jv_int((int64_t)x);
    } else if (jv_is_number(v)) {
        *out = jv_int(v->i);
    }
    return 0;
}

FILTER(f_float)
{
    double x;

    UNUSED;
    *out = a[0] ? *a[0] : jv_real(0);
    if (v->kind == JV_UNDEFINED)
        return jr_fail(r, "'%.*s' is undefined", (int)(v->s.n > 60 ? 60 : v->s.n), v->s.p);
    if (jv_is_number(v))
        *out = jv_real(jv_number(v));
    else if (v->kind == JV_STR && read_number(r, v, 10, NULL, &x))
        *out = jv_real(x);
    return 0;
}

FILTER(f_abs)
{
    UNUSED;
    if (!jv_is_number(v) || (v->kind == JV_INT && v->i == INT64_MIN))
        return jr_fail(r, "abs: a %s, expected a number", jv_type(v));
    *out = v->kind == JV_REAL ? jv_real(fabs(v->r)) : jv_int(v->i < 0 ? -v->i : v->i);
    return 0;
}

FILTER(f_round)
{
    static const double scale[] = {1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9};
    int64_t             digits = 0;
    double              x;

    UNUSED;
    if (!jv_is_number(v) || (a[0] && jv_to_int(r, a[0], "the precision", &digits)) || digits < 0 || digits > 9)
        return r->err->code ? r->err->code : jr_fail(r, "round: expected a number and a precision of 0 to 9");
    x = jv_number(v) * scale[digits];
    if (!a[1] || jv_is_text(a[1], "common"))
        x = rint(x);
    else if (jv_is_text(a[1], "ceil") || jv_is_text(a[1], "floor"))
        x = a[1]->s.p[0] == 'c' ? ceil(x) : floor(x);
    else
        return jr_fail(r, "round: the method is common, ceil or floor");
    *out = jv_real(x / scale[digits]);
    if (v->kind != JV_REAL && (!a[1] || jv_is_text(a[1], "common")))
        *out = jv_int(v->i);
    return 0;
}

/* ---- of lists ---------------------------------------------------------------------------------------------------- */

/* v.a.b.0, as the attribute parameters of filters mean it. */
static int by_path(struct jrun *r, const struct jv *v, const struct jv *path, struct jv *out)
{
    struct jv key, from = *v;

    *out = *v;
    if (path->kind == JV_INT)
        return jv_item(r, v, path, out);
    if (path->kind != JV_STR)
        return jr_fail(r, "an attribute is a %s, expected a str", jv_type(path));
    for (size_t i = 0, to; i <= path->s.n; i = to + 1) {
        int64_t index;
        int     found = 0;

        for (to = i; to < path->s.n && path->s.p[to] != '.'; to++)
            ;
        key = jv_part(path, i, to);
        if (from.kind == JV_UNDEFINED)
            return jr_fail(r, "'%.*s' is undefined", (int)(from.s.n > 60 ? 60 : from.s.n), from.s.p);
        if (key.s.n && key.s.p[0] >= '0' && key.s.p[0] <= '9' && read_number(r, &key, 10, &index, NULL)) {
            struct jv number = jv_int(index);

            if (jv_item(r, &from, &number, out))
                return jr_failed(r);
        } else if (jv_item(r, &from, &key, out)) {
            return jr_failed(r);
        } else if (out->kind == JV_UNDEFINED && jv_attribute(r, &from, key.s, out, &found)) {
            return jr_failed(r);
        }
        from = *out;
    }
    return 0;
}

/* v's elements, or an attribute of each. */
static int elements(struct jrun *r, const struct jv *v, const struct jv *attribute, const struct jv **items, size_t *n)
{
    struct jv list;

    if (jv_items(r, v, items, n) || jr_step(r, *n))
        return jr_failed(r);
    if (!attribute || attribute->kind == JV_NONE)
        return 0;
    if (jv_new_seq(r, JV_LIST, *n, &list))
        return jr_failed(r);
    for (size_t i = 0; i < *n; i++)
        if (by_path(r, &(*items)[i], attribute, &list.seq->v[i]))
            return jr_failed(r);
    *items = list.seq->v;
    return 0;
}

static int as_list(struct jrun *r, const struct jv *items, size_t n, struct jv *out)
{
    if (jv_new_seq(r, JV_LIST, n, out))
        return jr_failed(r);
    if (n)
        memcpy(out->seq->v, items, n * sizeof *items);
    return 0;
}

FILTER(list)
{
    const struct jv *items;
    size_t           n;

    UNUSED;
    return elements(r, v, NULL, &items, &n) ? jr_failed(r) : as_list(r, items, n, out);
}

FILTER(length)
{
    size_t n;

    UNUSED;
    if (jv_length(r, v, &n))
        return jr_failed(r);
    *out = jv_int((int64_t)n);
    return 0;
}

FILTER(join)
{
    const struct jv *items;
    struct jv        between = jv_text("");
    size_t           n;
    struct jbuf      b = {0};

    UNUSED;
    if (elements(r, v, a[1], &items, &n) || (a[0] && jv_to_str(r, a[0], &between)))
        return jr_failed(r);
    for (size_t i = 0; i < n; i++)
        if ((i && jb_str(r, &b, between.s)) || jb_value(r, &b, &items[i]))
            return jr_failed(r);
    *out = jb_take(&b);
    return 0;
}

static int end_of(struct jrun *r, const struct jv *v, int last, struct jv *out)
{
    const struct jv *items;
    size_t           n;

    if (elements(r, v, NULL, &items, &n))
        return jr_failed(r);
    *out = n ? items[last ? n - 1 : 0] : jv_undefined(jv_text("an element of an empty list").s);
    return 0;
}

FILTER(first) { UNUSED; return end_of(r, v, 0, out); }
FILTER(last) { UNUSED; return end_of(r, v, 1, out); }

FILTER(f_default)
{
    int missing = v->kind == JV_UNDEFINED || (a[1] && jv_truth(a[1]) && !jv_truth(v));

    UNUSED;
    *out = !missing ? *v : a[0] ? *a[0] : jv_text("");
    return 0;
}

FILTER(reverse)
{
    struct jv step = jv_int(-1);

    UNUSED;
    if (v->kind == JV_STR)
        return jv_slice(r, v, NULL, NULL, &step, out);
    if (list(r, v, a, args, out))
        return jr_failed(r);
    for (size_t i = 0, n = out->seq->n; i < n / 2; i++) {
        struct jv t = out->seq->v[i];

        out->seq->v[i] = out->seq->v[n - 1 - i];
        out->seq->v[n - 1 - i] = t;
    }
    return 0;
}

/* What an element is compared by: strings without case, unless it matters. */
static int sort_keys(struct jrun *r, const struct jv *items, size_t n, int with_case, struct jv *keys)
{
    if (jv_new_seq(r, JV_LIST, n, keys))
        return jr_failed(r);
    for (size_t i = 0; i < n; i++) {
        keys->seq->v[i] = items[i];
        if (!with_case && items[i].kind == JV_STR && jm_case(r, &items[i], 'l', &keys->seq->v[i]))
            return jr_failed(r);
    }
    return 0;
}

/* Does b have to stand in front of a? */
static int goes_first(struct jrun *r, const struct jv *b, const struct jv *a, int reverse, int *holds)
{
    int order;

    if (jr_step(r, 1) || jv_order(r, reverse ? a : b, reverse ? b : a, &order))
        return jr_failed(r);
    *holds = order == -1;
    return 0;
}

/* A stable merge sort of the elements' places by their keys. */
static int sort_places(struct jrun *r, const struct jv *keys, size_t *place, size_t *spare, size_t n, int reverse)
{
    size_t half = n / 2, i = 0, j = half, k = 0;

    if (n < 2)
        return 0;
    if (sort_places(r, keys, place, spare, half, reverse) || sort_places(r, keys, place + half, spare, n - half, reverse))
        return jr_failed(r);
    while (i < half && j < n) {
        int right = 0;

        if (goes_first(r, &keys[place[j]], &keys[place[i]], reverse, &right))
            return jr_failed(r);
        spare[k++] = right ? place[j++] : place[i++];
    }
    memcpy(spare + k, place + i, (half - i) * sizeof *place);
    memcpy(place, spare, (k + half - i) * sizeof *place);
    return 0;
}

static int sort_items(struct jrun *r, const struct jv *items, const struct jv *by, size_t n, int with_case, int reverse, struct jv *out)
{
    struct jv keys;
    size_t   *place, *spare;

    if (sort_keys(r, by, n, with_case, &keys) || JR_NEW(r, &place, n) || JR_NEW(r, &spare, n) || jv_new_seq(r, JV_LIST, n, out))
        return jr_failed(r);
    for (size_t i = 0; i < n; i++)
        place[i] = i;
    if (sort_places(r, keys.seq->v, place, spare, n, reverse))
        return jr_failed(r);
    for (size_t i = 0; i < n; i++)
        out->seq->v[i] = items[place[i]];
    return 0;
}

FILTER(sort)
{
    const struct jv *items, *by;
    size_t           n;

    UNUSED;
    if (jv_items(r, v, &items, &n) || elements(r, v, a[2], &by, &n))
        return jr_failed(r);
    return sort_items(r, items, by, n, a[1] && jv_truth(a[1]), a[0] && jv_truth(a[0]), out);
}

FILTER(dictsort)
{
    struct jv get, pairs, index = jv_int(a[1] && jv_is_text(a[1], "value"));
    int       found;
    const struct jv *by;
    size_t    n;

    UNUSED;
    if (v->kind != JV_DICT)
        return jr_fail(r, "dictsort: a %s, expected a dict", jv_type(v));
    if (jv_attribute(r, v, jv_text("items").s, &get, &found) || jv_call_method(r, get.method, &(struct jargs){0}, &pairs) ||
        elements(r, &pairs, &index, &by, &n))
        return jr_failed(r);
    return sort_items(r, pairs.seq->v, by, n, a[0] && jv_truth(a[0]), a[2] && jv_truth(a[2]), out);
}

FILTER(items)
{
    struct jv get;
    int       found;

    UNUSED;
    if (v->kind == JV_UNDEFINED)
        return jv_new_seq(r, JV_LIST, 0, out);
    if (v->kind != JV_DICT)
        return jr_fail(r, "items: a %s, expected a dict", jv_type(v));
    return jv_attribute(r, v, jv_text("items").s, &get, &found) ? jr_failed(r) : jv_call_method(r, get.method, args, out);
}

FILTER(unique)
{
    const struct jv *all, *by;
    size_t           n, kept = 0;
    struct jv        keys;

    UNUSED;
    if (jv_items(r, v, &all, &n) || elements(r, v, a[1], &by, &n) || sort_keys(r, by, n, a[0] && jv_truth(a[0]), &keys) || jv_new_seq(r, JV_LIST, n, out))
        return jr_failed(r);
    for (size_t i = 0; i < n; i++) {
        int seen = 0;

        if (by[i].kind == JV_LIST || by[i].kind == JV_DICT)
            return jr_fail(r, "unique: a %s, expected text, numbers or tuples", jv_type(&by[i]));
        for (size_t j = 0; j < kept && !seen; j++)
            if (jv_equal(r, &keys.seq->v[j], &keys.seq->v[i], &seen))
                return jr_failed(r);
        if (!seen) {
            keys.seq->v[kept] = keys.seq->v[i];
            out->seq->v[kept++] = all[i];
        }
    }
    out->seq->n = kept;
    return 0;
}

static int extreme(struct jrun *r, const struct jv *v, const struct jv *const *a, int want, struct jv *out)
{
    const struct jv *all, *by;
    size_t           n, best = 0;
    struct jv        keys;

    if (jv_items(r, v, &all, &n) || elements(r, v, a[1], &by, &n) || sort_keys(r, by, n, a[0] && jv_truth(a[0]), &keys))
        return jr_failed(r);
    for (size_t i = 1; i < n; i++) {
        int order;

        if (jv_order(r, &keys.seq->v[i], &keys.seq->v[best], &order))
            return jr_failed(r);
        best = order == want ? i : best;
    }
    *out = n ? all[best] : jv_undefined(jv_text("the extreme of an empty list").s);
    return 0;
}

FILTER(f_min) { UNUSED; return extreme(r, v, a, -1, out); }
FILTER(f_max) { UNUSED; return extreme(r, v, a, 1, out); }

FILTER(sum)
{
    const struct jv *items;
    size_t           n;

    UNUSED;
    *out = a[1] ? *a[1] : jv_int(0);
    if (elements(r, v, a[0], &items, &n))
        return jr_failed(r);
    for (size_t i = 0; i < n; i++) {
        if (!jv_is_number(&items[i]) || !jv_is_number(out))
            return jr_fail(r, "sum: a %s, expected a number", jv_type(&items[i]));
        if (items[i].kind == JV_REAL || out->kind == JV_REAL)
            *out = jv_real(jv_number(out) + jv_number(&items[i]));
        else if (__builtin_add_overflow(out->i, items[i].i, &out->i))
            return jr_fail(r, "an integer is too large");
    }
    return 0;
}

/* The argument of that keyword, or NULL. */
static const struct jv *keyword(const struct jargs *args, const char *name)
{
    for (size_t i = 0; i < args->nkw; i++)
        if (args->kw[i].name.n == strlen(name) && !memcmp(args->kw[i].name.p, name, args->kw[i].name.n))
            return &args->kw[i].v;
    return NULL;
}

/* As Jinja has it for map, select and their kin: nothing at all is taken for an empty list. */
static int items_or_none(struct jrun *r, const struct jv *v, const struct jv **items, size_t *n)
{
    static const struct jv none;

    *items = &none;
    *n = 0;
    return jv_truth(v) ? jv_items(r, v, items, n) : 0;
}

/* map(attribute="a", default=b), map("filter", arguments) */
FILTER(map)
{
    const struct jv *attribute = keyword(args, "attribute"), *missing = keyword(args, "default"), *items;
    struct jargs     rest = {args->n ? args->v + 1 : NULL, args->n ? args->n - 1 : 0, args->kw, args->nkw};
    size_t           n;

    (void)a;
    if (items_or_none(r, v, &items, &n) || jr_step(r, n) || jv_new_seq(r, JV_LIST, n, out))
        return jr_failed(r);
    if (!attribute && n && (!args->n || args->v[0].kind != JV_STR))
        return jr_fail(r, "map needs an attribute or a filter's name");
    for (size_t i = 0; i < n; i++) {
        struct jv *to = &out->seq->v[i];

        if (attribute ? by_path(r, &items[i], attribute, to)
                      : jinja_filter(r, (struct jname){args->v[0].s.p, args->v[0].s.n}, &items[i], &rest, to))
            return jr_failed(r);
        if (attribute && missing && to->kind == JV_UNDEFINED)
            *to = *missing;
    }
    return 0;
}

/* select(test, arguments), or of an attribute of each: with(attribute, test, arguments).  Without a test: the truth. */
static int choose(struct jrun *r, const struct jv *v, const struct jargs *args, int attribute, int want, struct jv *out)
{
    const struct jv *items, *by = NULL;
    size_t           n, kept = 0, skip = (size_t)attribute + 1;
    struct jargs     rest = {args->v + skip, args->n > skip ? args->n - skip : 0, args->kw, args->nkw};

    if (args->n < (size_t)attribute || (args->n >= skip && args->v[attribute].kind != JV_STR))
        return jr_fail(r, "select and its kin need %s a test's name", attribute ? "an attribute and" : "");
    if (items_or_none(r, v, &items, &n) || (n && elements(r, v, attribute ? &args->v[0] : NULL, &by, &n)) || jv_new_seq(r, JV_LIST, n, out))
        return jr_failed(r);
    for (size_t i = 0; i < n; i++) {
        int holds = jv_truth(&by[i]);

        if (args->n >= skip && jinja_test(r, (struct jname){args->v[attribute].s.p, args->v[attribute].s.n}, &by[i], &rest, &holds))
            return jr_failed(r);
        if (holds == want)
            out->seq->v[kept++] = items[i];
    }
    out->seq->n = kept;
    return 0;
}

FILTER(f_select) { UNUSED; return choose(r, v, args, 0, 1, out); }
FILTER(reject) { UNUSED; return choose(r, v, args, 0, 0, out); }
FILTER(selectattr) { UNUSED; return choose(r, v, args, 1, 1, out); }
FILTER(rejectattr) { UNUSED; return choose(r, v, args, 1, 0, out); }

FILTER(attr)
{
    int found;

    UNUSED;
    if (a[0]->kind != JV_STR)
        return jr_fail(r, "attr: a %s, expected a str", jv_type(a[0]));
    *out = jv_undefined(a[0]->s);
    return jv_attribute(r, v, a[0]->s, out, &found);
}

/* ---- the list ------------------------------------------------------------------------------------------------------- */

static const struct filter filters[] = {
    {"abs", "", f_abs}, {"attr", "name", attr}, {"capitalize", "", f_capitalize}, {"count", "", length},
    {"d", "|default_value,boolean", f_default}, {"default", "|default_value,boolean", f_default}, {"dictsort", "|case_sensitive,by,reverse", dictsort},
    {"e", "", escape}, {"escape", "", escape}, {"first", "", first}, {"float", "|default", f_float}, {"indent", "|width,first,blank", indent},
    {"int", "|default,base", f_int}, {"items", "", items}, {"join", "|d,attribute", join}, {"last", "", last}, {"length", "", length},
    {"list", "", list}, {"lower", "", f_lower}, {"map", NULL, map}, {"max", "|case_sensitive,attribute", f_max},
    {"min", "|case_sensitive,attribute", f_min}, {"reject", NULL, reject}, {"rejectattr", NULL, rejectattr},
    {"replace", "old,new|count", f_replace}, {"reverse", "", reverse}, {"round", "|precision,method", f_round}, {"safe", "", safe},
    {"select", NULL, f_select}, {"selectattr", NULL, selectattr}, {"sort", "|reverse,case_sensitive,attribute", sort}, {"string", "", string},
    {"sum", "|attribute,start", sum}, {"title", "", f_title}, {"tojson", "|ensure_ascii,indent,separators,sort_keys", tojson},
    {"trim", "|chars", trim}, {"unique", "|case_sensitive,attribute", unique}, {"upper", "", f_upper}, {"wordcount", "", wordcount}};

int jinja_filter(struct jrun *r, struct jname name, const struct jv *v, const struct jargs *args, struct jv *out)
{
    const struct jv *a[JA_MAX];
    int              rc;

    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++) {
        const struct filter *f = &filters[i];

        if (strlen(f->name) != name.n || memcmp(f->name, name.p, name.n) != 0)
            continue;
        if (f->parameters && ja_bind(r, "the filter", name, f->parameters, args, a))
            return jr_failed(r);
        if (++r->depth > 1000)
            return jr_fail(r, "filters are nested too deep");
        rc = f->call(r, v, a, args, out);
        r->depth--;
        return rc;
    }
    return jr_fail(r, "there is no filter '%.*s'", (int)(name.n > 60 ? 60 : name.n), name.p);
}

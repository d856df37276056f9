/* What stands behind a dot: Python's methods of strings, lists and dicts, and a loop's fields.  See jinja_value.h.
 * Methods that change their object are refused, as in an immutable sandbox. */
#include "runner/text/jinja_value.h"

#include "common/utf8.h"

#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

struct jmethod {
    enum jv_kind kind;
    const char  *name, *parameters; /* see ja_bind; NULL: any */
    int (*call)(struct jrun *r, const struct jv *self, const struct jv *const *a, struct jv *out);
};

/* ---- arguments --------------------------------------------------------------------------------------- */

static int bind_keyword(struct jrun *r, const char *what, struct jname name, const char *spec, const struct jkeyword *kw, const struct jv **a)
{
    int index = 0;

    for (const char *p = spec; *p; index++) {
        size_t n = strcspn(p, ",|");

        if (n == kw->name.n && !memcmp(p, kw->name.p, n)) {
            if (a[index])
                break;
            a[index] = &kw->v;
            return 0;
        }
        p += n + (p[n] != 0);
    }
    return jr_fail(r, "%s %.*s: the argument %.*s is not expected", what, (int)name.n, name.p, (int)kw->name.n, kw->name.p);
}

int ja_bind(struct jrun *r, const char *what, struct jname name, const char *spec, const struct jargs *args, const struct jv *a[JA_MAX])
{
    size_t most = 0, least = 0;
    int    optional = *spec == '|';

    for (const char *p = spec + optional; *p;) {
        size_t n = strcspn(p, ",|");

        most++;
        least += !optional;
        optional |= p[n] == '|';
        p += n + (p[n] != 0);
    }
    for (int i = 0; i < JA_MAX; i++)
        a[i] = NULL;
    if (args->n > most)
        return jr_fail(r, "%s %.*s takes at most %zu arguments, found %zu", what, (int)name.n, name.p, most, args->n);
    for (size_t i = 0; i < args->n; i++)
        a[i] = &args->v[i];
    for (size_t i = 0; i < args->nkw; i++)
        if (bind_keyword(r, what, name, spec + (*spec == '|'), &args->kw[i], a))
            return jr_failed(r);
    for (size_t i = 0; i < least; i++)
        if (!a[i])
            return jr_fail(r, "%s %.*s needs %zu arguments", what, (int)name.n, name.p, least);
    return 0;
}

static int need_str(struct jrun *r, const struct jv *v, const char *what)
{
    return v->kind == JV_STR ? 0 : jr_fail(r, "%s is a %s, expected a str", what, jv_type(v));
}

static int optional_int(struct jrun *r, const struct jv *v, int64_t missing, int64_t *out)
{
    *out = missing;
    return v ? jv_to_int(r, v, "an argument", out) : 0;
}

/* ---- strings: cutting ---------------------------------------------------------------------------------- */

static int in_set(const struct jv *chars, uint32_t c)
{
    int len;

    if (!chars || chars->kind == JV_NONE)
        return jinja_is_space(c);
    for (size_t i = 0; i < chars->s.n; i += (size_t)len)
        if (utf8_get(chars->s.p + i, &len) == c)
            return 1;
    return 0;
}

int jm_strip(struct jrun *r, const struct jv *s, const struct jv *chars, int left, int right, struct jv *out)
{
    size_t from = 0, to = s->s.n, cost = 1 + (chars && chars->kind == JV_STR ? chars->s.n / 4 : 0);
    int    len;

    if (chars && chars->kind != JV_NONE && need_str(r, chars, "what to strip"))
        return jr_failed(r);
    while (left && from < to && !jr_step(r, cost) && in_set(chars, utf8_get(s->s.p + from, &len)))
        from += (size_t)len;
    while (right && to > from && !r->err->code) {
        size_t at = utf8_back(s->s.p, to);

        if (jr_step(r, cost) || !in_set(chars, utf8_get(s->s.p + at, &len)))
            break;
        to = at;
    }
    *out = jv_part(s, from, to);
    return r->err->code;
}

static int both(struct jrun *r, const struct jv *s, const struct jv *const *a, struct jv *out) { return jm_strip(r, s, a[0], 1, 1, out); }
static int left(struct jrun *r, const struct jv *s, const struct jv *const *a, struct jv *out) { return jm_strip(r, s, a[0], 1, 0, out); }
static int right(struct jrun *r, const struct jv *s, const struct jv *const *a, struct jv *out) { return jm_strip(r, s, a[0], 0, 1, out); }

/* A list that grows. */
struct parts { struct jv *v; size_t n, cap; };

static int add_part(struct jrun *r, struct parts *p, struct jv v)
{
    if (p->n == p->cap) {
        size_t     cap = p->cap ? p->cap * 2 : 16;
        struct jv *bigger;

        if (JR_NEW(r, &bigger, cap))
            return jr_failed(r);
        if (p->n)
            memcpy(bigger, p->v, p->n * sizeof *bigger);
        p->v = bigger;
        p->cap = cap;
    }
    p->v[p->n++] = v;
    return jr_step(r, 1);
}

static int take_parts(struct jrun *r, const struct parts *p, int backwards, struct jv *out)
{
    if (jv_new_seq(r, JV_LIST, p->n, out))
        return jr_failed(r);
    for (size_t i = 0; i < p->n; i++)
        out->seq->v[i] = p->v[backwards ? p->n - 1 - i : i];
    return 0;
}

/* The end of the white space (wanted = 1) or of the rest (0) that starts at i. */
static size_t run_on(struct jstr s, size_t i, int wanted)
{
    int len;

    while (i < s.n && jinja_is_space(utf8_get(s.p + i, &len)) == wanted)
        i += (size_t)len;
    return i;
}

static size_t run_back(struct jstr s, size_t i, int wanted)
{
    int len;

    while (i > 0 && jinja_is_space(utf8_get(s.p + utf8_back(s.p, i), &len)) == wanted)
        i = utf8_back(s.p, i);
    return i;
}

int jm_words(struct jrun *r, const struct jv *s, int64_t max, struct jv *out)
{
    struct parts p = {0};

    for (size_t i = run_on(s->s, 0, 1), to; i < s->s.n; i = run_on(s->s, to, 1)) {
        to = max >= 0 && (int64_t)p.n >= max ? s->s.n : run_on(s->s, i, 0);
        if (add_part(r, &p, jv_part(s, i, to)))
            return jr_failed(r);
    }
    return take_parts(r, &p, 0, out);
}

static int words_back(struct jrun *r, const struct jv *s, int64_t max, struct jv *out)
{
    struct parts p = {0};

    for (size_t i = run_back(s->s, s->s.n, 1), from; i > 0; i = run_back(s->s, from, 1)) {
        from = max >= 0 && (int64_t)p.n >= max ? 0 : run_back(s->s, i, 0);
        if (add_part(r, &p, jv_part(s, from, i)))
            return jr_failed(r);
    }
    return take_parts(r, &p, 1, out);
}

/* The last place of what in s[0..n), or NULL. */
/* A comparison may read all of `what`; steps are counted on the way. */
static int find_last(struct jrun *r, const char *s, size_t n, struct jstr what, const char **at)
{
    *at = NULL;
    for (size_t i = n + 1; i-- > 0;) {
        if (i % 1024 == 0 && jr_step(r, what.n * 1024 / 64))
            return jr_failed(r);
        if (n - i >= what.n && !memcmp(s + i, what.p, what.n)) {
            *at = s + i;
            return 0;
        }
    }
    return 0;
}

static int split_at(struct jrun *r, const struct jv *s, const struct jv *sep, int64_t max, struct jv *out)
{
    struct parts p = {0};
    size_t       i = 0;
    const char  *at;

    while ((max < 0 || (int64_t)p.n < max) && (at = memmem(s->s.p + i, s->s.n - i, sep->s.p, sep->s.n))) {
        if (add_part(r, &p, jv_part(s, i, (size_t)(at - s->s.p))))
            return jr_failed(r);
        i = (size_t)(at - s->s.p) + sep->s.n;
    }
    return add_part(r, &p, jv_part(s, i, s->s.n)) ? jr_failed(r) : take_parts(r, &p, 0, out);
}

static int split_back(struct jrun *r, const struct jv *s, const struct jv *sep, int64_t max, struct jv *out)
{
    struct parts p = {0};
    size_t       to = s->s.n;
    const char  *at;

    while (max < 0 || (int64_t)p.n < max) {
        if (find_last(r, s->s.p, to, sep->s, &at))
            return jr_failed(r);
        if (!at)
            break;
        if (add_part(r, &p, jv_part(s, (size_t)(at - s->s.p) + sep->s.n, to)))
            return jr_failed(r);
        to = (size_t)(at - s->s.p);
    }
    return add_part(r, &p, jv_part(s, 0, to)) ? jr_failed(r) : take_parts(r, &p, 1, out);
}

static int check_sep(struct jrun *r, const struct jv *sep)
{
    if (need_str(r, sep, "the separator"))
        return jr_failed(r);
    return sep->s.n ? 0 : jr_fail(r, "the separator is empty");
}

static int split(struct jrun *r, const struct jv *s, const struct jv *const *a, struct jv *out)
{
    int64_t max;

    if (optional_int(r, a[1], -1, &max))
        return jr_failed(r);
    if (!a[0] || a[0]->kind == JV_NONE)
        return jm_words(r, s, max, out);
    return check_sep(r, a[0]) ? jr_failed(r) : split_at(r, s, a[0], max, out);
}

static int rsplit(struct jrun *r, const struct jv *s, const struct jv *const *a, struct jv *out)
{
    int64_t max;

    if (optional_int(r, a[1], -1, &max))
        return jr_failed(r);
    if (!a[0] || a[0]->kind == JV_NONE)
        return words_back(r, s, max, out);
    return check_sep(r, a[0]) ? jr_failed(r) : split_back(r, s, a[0], max, out);
}

static int is_line_end(uint32_t c) { return (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029; }

int jm_lines(struct jrun *r, const struct jv *s, int keep, struct jv *out)
{
    struct parts p = {0};
    size_t       start = 0;
    int          len;

    for (size_t i = 0; i < s->s.n; i += (size_t)len) {
        uint32_t c = utf8_get(s->s.p + i, &len);
        size_t   at = i;

        if (!is_line_end(c))
            continue;
        if (c == '\r' && i + 1 < s->s.n && s->s.p[i + 1] == '\n')
            i++;
        if (add_part(r, &p, jv_part(s, start, keep ? i + (size_t)len : at)))
            return jr_failed(r);
        start = i + (size_t)len;
    }
    if (start < s->s.n && add_part(r, &p, jv_part(s, start, s->s.n)))
        return jr_failed(r);
    return take_parts(r, &p, 0, out);
}

static int splitlines(struct jrun *r, const struct jv *s, const struct jv *const *a, struct jv *out)
{
    return jm_lines(r, s, a[0] && jv_truth(a[0]), out);
}

/* ---- strings: asking ------------------------------------------------------------------------------------- */

static int at_end(const struct jv *s, const struct jv *part, int end)
{
    return part->s.n <= s->s.n && !memcmp(end ? s->s.p + s->s.n - part->s.n : s->s.p, part->s.p, part->s.n);
}

static int starts(struct jrun *r, const struct jv *s, const struct jv *what, int end, struct jv *out)
{
    int holds = 0;

    if (what->kind == JV_TUPLE) {
        for (size_t i = 0; i < what->seq->n && !holds; i++) {
            if (need_str(r, &what->seq->v[i], "what to look for"))
                return jr_failed(r);
            holds = at_end(s, &what->seq->v[i], end);
        }
    } else if (need_str(r, what, "what to look for")) {
        return jr_failed(r);
    } else {
        holds = at_end(s, what, end);
    }
    *out = jv_bool(holds);
    return 0;
}

static int startswith(struct jrun *r, const struct jv *s, const struct jv *const *a, struct jv *out) { return starts(r, s, a[0], 0, out); }
static int endswith(struct jrun *r, const struct jv *s, const struct jv *const *a, struct jv *out) { return starts(r, s, a[0], 1, out); }

static int find_at(struct jrun *r, const struct jv *s, const struct jv *what, int last, struct jv *out)
{
    const char *at;
    struct jv   before;
    size_t      n;

    if (need_str(r, what, "what to look for"))
        return jr_failed(r);
    if (last && find_last(r, s->s.p, s->s.n, what->s, &at))
        return jr_failed(r);
    if (!last)
        at = what->s.n ? memmem(s->s.p, s->s.n, what->s.p, what->s.n) : s->s.p;
    before = jv_part(s, 0, at ? (size_t)(at - s->s.p) : 0);
    if (jv_length(r, &before, &n))
        return jr_failed(r);
    *out = jv_int(at ? (int64_t)n : -1);
    return 0;
}

static int find(struct jrun *r, const struct jv *s, const struct jv *const *a, struct jv *out) { return find_at(r, s, a[0], 0, out); }
static int rfind(struct jrun *r, const struct jv *s, const struct jv *const *a, struct jv *out) { return find_at(r, s, a[0], 1, out); }

static int str_index(struct jrun *r, const struct jv *s, const struct jv *const *a, struct jv *out)
{
    if (find_at(r, s, a[0], 0, out))
        return jr_failed(r);
    return out->i < 0 ? jr_fail(r, "index: the text is not found") : 0;
}

static int str_count(struct jrun *r, const struct jv *s, const struct jv *const *a, struct jv *out)
{
    int64_t     n = 0;
    size_t      length;
    const char *p = s->s.p, *end = p + s->s.n;

    if (need_str(r, a[0], "what to count") || jv_length(r, s, &length))
        return jr_failed(r);
    if (!a[0]->s.n) {
        *out = jv_int((int64_t)length + 1);
        return 0;
    }
    for (; (p = memmem(p, (size_t)(end - p), a[0]->s.p, a[0]->s.n)); p += a[0]->s.n)
        n++;
    *out = jv_int(n);
    return 0;
}

/* Is every code point of the kind, and is there one? */
static int every(const struct jv *s, int (*is)(uint32_t c))
{
    int len;

    for (size_t i = 0; i < s->s.n; i += (size_t)len)
        if (!is(utf8_get(s->s.p + i, &len)))
            return 0;
    return s->s.n > 0;
}

static int is_alpha(uint32_t c)
{
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);

    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}
static int is_decimal(uint32_t c) { return utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_ND; }
static int is_numeric(uint32_t c)
{
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);

    return k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO;
}
static int is_alnum(uint32_t c) { return is_alpha(c) || is_numeric(c); }
int        jinja_is_word(uint32_t c) { return c == '_' || is_alnum(c); }

static int isalpha_(struct jrun *r, const struct jv *s, const struct jv *const *a, struct jv *out) { (void)a; *out = jv_bool(every(s, is_alpha)); return jr_step(r, s->s.n); }
static int isdigit_(struct jrun *r, const struct jv *s, const struct jv *const *a, struct jv *out) { (void)a; *out = jv_bool(every(s, is_decimal)); return jr_step(r, s->s.n); }
static int isnumeric_(struct jrun *r, const struct jv *s, const struct jv *const *a, struct jv *out) { (void)a; *out = jv_bool(every(s, is_numeric)); return jr_step(r, s->s.n); }
static int isalnum_(struct jrun *r, const struct jv *s, const struct jv *const *a, struct jv *out) { (void)a; *out = jv_bool(every(s, is_alnum)); return jr_step(r, s->s.n); }
static int isspace_(struct jrun *r, const struct jv *s, const struct jv *const *a, struct jv *out) { (void)a; *out = jv_bool(every(s, jinja_is_space)); return jr_step(r, s->s.n); }

/* Letters, all of the one case? */
static int one_case(struct jrun *r, const struct jv *s, int upper, struct jv *out)
{
    int len, any = 0, all = 1;

    for (size_t i = 0; i < s->s.n; i += (size_t)len) {
        utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)utf8_get(s->s.p + i, &len));

        any |= k == (upper ? UTF8PROC_CATEGORY_LU : UTF8PROC_CATEGORY_LL);
        all &= k != (upper ? UTF8PROC_CATEGORY_LL : UTF8PROC_CATEGORY_LU) && k != UTF8PROC_CATEGORY_LT;
    }
    *out = jv_bool(any && all);
    return jr_step(r, s->s.n);
}

static int isupper_(struct jrun *r, const struct jv *s, const struct jv *const *a, struct jv *out) { (void)a; return one_case(r, s, 1, out); }
static int islower_(struct jrun *r, const struct jv *s, const struct jv *const *a, struct jv *out) { (void)a; return one_case(r, s, 0, out); }

/* ---- strings: changing ----------------------------------------------------------------------------------- */

static int is_cased(uint32_t c)
{
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);

    return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT;
}

/* What Jinja's title filter takes for the start of a word. */
static int is_break(uint32_t c) { return jinja_is_space(c) || c == '-' || c == '(' || c == '[' || c == '{' || c == '<'; }

static uint32_t cased_as(uint32_t c, int how)
{
    utf8proc_int32_t u = (utf8proc_int32_t)c;

    return (uint32_t)(how == 'u' ? utf8proc_toupper(u) : how == 't' ? utf8proc_totitle(u) : utf8proc_tolower(u));
}

int jm_case(struct jrun *r, const struct jv *s, int how, struct jv *out)
{
    struct jbuf b = {0};
    int         len, start = 1;

    for (size_t i = 0; i < s->s.n; i += (size_t)len) {
        uint32_t c = utf8_get(s->s.p + i, &len);
        int      up = how == 'u' || (how != 'l' && start);
        char     text[UTF8_MAX] = "SS";
        int      n = up && c == 0xdf ? 2 : utf8_put(text, cased_as(c, up ? how == 'u' || how == 'T' ? 'u' : 't' : 'l'));

        start = how == 't' ? !is_cased(c) : how == 'T' && is_break(c);
        if (up && how != 'u' && c == 0xdf)
            text[1] = 's'; /* "Ss" at a word's start */
        if (jb_fill(r, &b, text, (size_t)n, s->s.mark && s->s.mark[i]))
            return jr_failed(r);
    }
    *out = jb_take(&b);
    return jr_step(r, s->s.n);
}

static int upper(struct jrun *r, const struct jv *s, const struct jv *const *a, struct jv *out) { (void)a; return jm_case(r, s, 'u', out); }
static int lower(struct jrun *r, const struct jv *s, const struct jv *const *a, struct jv *out) { (void)a; return jm_case(r, s, 'l', out); }
static int title(struct jrun *r, const struct jv *s, const struct jv *const *a, struct jv *out) { (void)a; return jm_case(r, s, 't', out); }
static int capitalize(struct jrun *r, const struct jv *s, const struct jv *const *a, struct jv *out) { (void)a; return jm_case(r, s, 'c', out); }

/* An empty `old` stands between all code points. */
static int replace_empty(struct jrun *r, const struct jv *s, const struct jv *new, int64_t count, struct jv *out)
{
    struct jbuf b = {0};
    size_t      at = 0;

    while (count < 0 || count-- > 0) {
        size_t to = at < s->s.n ? at + (size_t)utf8_len(s->s.p[at]) : at;
        struct jv point = jv_part(s, at, to);

        if (jb_str(r, &b, new->s) || jb_str(r, &b, point.s) || jr_step(r, 1))
            return jr_failed(r);
        if (at == s->s.n)
            break;
        at = to;
    }
    if (jb_add(r, &b, s->s.p + at, s->s.n - at, s->s.mark ? s->s.mark + at : NULL))
        return jr_failed(r);
    *out = jb_take(&b);
    return 0;
}

int jm_replace(struct jrun *r, const struct jv *s, const struct jv *old, const struct jv *new, int64_t count, struct jv *out)
{
    struct jbuf b = {0};
    size_t      i = 0;
    const char *at;

    if (need_str(r, old, "what to replace") || need_str(r, new, "the replacement"))
        return jr_failed(r);
    if (!old->s.n)
        return replace_empty(r, s, new, count, out);
    while (count && (at = memmem(s->s.p + i, s->s.n - i, old->s.p, old->s.n))) {
        struct jv before = jv_part(s, i, (size_t)(at - s->s.p));

        if (jb_str(r, &b, before.s) || jb_str(r, &b, new->s) || jr_step(r, 1))
            return jr_failed(r);
        i = (size_t)(at - s->s.p) + old->s.n;
        count -= count > 0;
    }
    if (jb_add(r, &b, s->s.p + i, s->s.n - i, s->s.mark ? s->s.mark + i : NULL))
        return jr_failed(r);
    *out = jb_take(&b);
    return 0;
}

static int replace(struct jrun *r, const struct jv *s, const struct jv *const *a, struct jv *out)
{
    int64_t count;

    return optional_int(r, a[2], -1, &count) ? jr_failed(r) : jm_replace(r, s, a[0], a[1], count, out);
}

static int join(struct jrun *r, const struct jv *s, const struct jv *const *a, struct jv *out)
{
    const struct jv *items;
    size_t           n;
    struct jbuf      b = {0};

    if (jv_items(r, a[0], &items, &n))
        return jr_failed(r);
    for (size_t i = 0; i < n; i++)
        if (need_str(r, &items[i], "an element to join") || (i && jb_str(r, &b, s->s)) || jb_str(r, &b, items[i].s))
            return jr_failed(r);
    *out = jb_take(&b);
    return 0;
}

static int removeprefix(struct jrun *r, const struct jv *s, const struct jv *const *a, struct jv *out)
{
    if (need_str(r, a[0], "the prefix"))
        return jr_failed(r);
    *out = jv_part(s, at_end(s, a[0], 0) ? a[0]->s.n : 0, s->s.n);
    return 0;
}

static int removesuffix(struct jrun *r, const struct jv *s, const struct jv *const *a, struct jv *out)
{
    if (need_str(r, a[0], "the suffix"))
        return jr_failed(r);
    *out = jv_part(s, 0, s->s.n - (at_end(s, a[0], 1) ? a[0]->s.n : 0));
    return 0;
}

/* ---- lists and dicts ---------------------------------------------------------------------------------------- */

static int seq_count(struct jrun *r, const struct jv *s, const struct jv *const *a, struct jv *out)
{
    int64_t n = 0;

    for (size_t i = 0; i < s->seq->n; i++) {
        int equal;

        if (jv_equal(r, &s->seq->v[i], a[0], &equal))
            return jr_failed(r);
        n += equal;
    }
    *out = jv_int(n);
    return 0;
}

static int seq_index(struct jrun *r, const struct jv *s, const struct jv *const *a, struct jv *out)
{
    for (size_t i = 0; i < s->seq->n; i++) {
        int equal;

        if (jv_equal(r, &s->seq->v[i], a[0], &equal))
            return jr_failed(r);
        if (equal) {
            *out = jv_int((int64_t)i);
            return 0;
        }
    }
    return jr_fail(r, "index: the element is not found");
}

static int copy(struct jrun *r, const struct jv *s, const struct jv *const *a, struct jv *out)
{
    (void)r;
    (void)a;
    *out = *s;
    return 0;
}

static int dict_get(struct jrun *r, const struct jv *s, const struct jv *const *a, struct jv *out)
{
    const struct jv *found;

    if (jv_check_key(r, a[0]))
        return jr_failed(r);
    found = jv_get(s->dict, a[0]);
    *out = found ? *found : a[1] ? *a[1] : jv_none();
    return jr_step(r, s->dict->n / 8 + 1);
}

/* what: 'k' keys, 'v' values, 'i' pairs. */
static int dict_list(struct jrun *r, const struct jv *s, int what, struct jv *out)
{
    if (jv_new_seq(r, JV_LIST, s->dict->n, out))
        return jr_failed(r);
    for (size_t i = 0; i < s->dict->n; i++) {
        struct jv *to = &out->seq->v[i];

        if (what == 'i') {
            if (jv_new_seq(r, JV_TUPLE, 2, to))
                return jr_failed(r);
            to->seq->v[0] = s->dict->v[i].key;
            to->seq->v[1] = s->dict->v[i].value;
        } else {
            *to = what == 'k' ? s->dict->v[i].key : s->dict->v[i].value;
        }
    }
    return jr_step(r, s->dict->n);
}

static int dict_keys(struct jrun *r, const struct jv *s, const struct jv *const *a, struct jv *out) { (void)a; return dict_list(r, s, 'k', out); }
static int dict_values(struct jrun *r, const struct jv *s, const struct jv *const *a, struct jv *out) { (void)a; return dict_list(r, s, 'v', out); }
static int dict_items(struct jrun *r, const struct jv *s, const struct jv *const *a, struct jv *out) { (void)a; return dict_list(r, s, 'i', out); }

/* ---- loops ---------------------------------------------------------------------------------------------------- */

static int loop_cycle(struct jrun *r, const struct jargs *args, const struct jloop *loop, struct jv *out)
{
    if (!args->n)
        return jr_fail(r, "loop.cycle needs arguments");
    *out = args->v[loop->at % args->n];
    return 0;
}

static int loop_changed(struct jrun *r, const struct jargs *args, struct jloop *loop, struct jv *out)
{
    struct jv now;
    int       equal = 0;

    if (jv_new_seq(r, JV_TUPLE, args->n, &now))
        return jr_failed(r);
    for (size_t i = 0; i < args->n; i++)
        now.seq->v[i] = args->v[i];
    if (loop->has_changed && jv_equal(r, &loop->changed, &now, &equal))
        return jr_failed(r);
    loop->changed = now;
    loop->has_changed = 1;
    *out = jv_bool(!equal);
    return 0;
}

static int loop_field(const struct jloop *l, struct jstr name, struct jv *out)
{
    const struct { const char *name; struct jv v; } fields[] = {
        {"index", jv_int((int64_t)l->at + 1)},
        {"index0", jv_int((int64_t)l->at)},
        {"revindex", jv_int((int64_t)(l->n - l->at))},
        {"revindex0", jv_int((int64_t)(l->n - l->at) - 1)},
        {"first", jv_bool(l->at == 0)},
        {"last", jv_bool(l->at + 1 == l->n)},
        {"length", jv_int((int64_t)l->n)},
        {"depth", jv_int(1)}, /* it counts recursion only */
        {"depth0", jv_int(0)},
        {"previtem", l->at ? l->v[l->at - 1] : jv_undefined((struct jstr){"previtem", NULL, 8})},
        {"nextitem", l->at + 1 < l->n ? l->v[l->at + 1] : jv_undefined((struct jstr){"nextitem", NULL, 8})}};

    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (strlen(fields[i].name) == name.n && !memcmp(fields[i].name, name.p, name.n)) {
            *out = fields[i].v;
            return 1;
        }
    return 0;
}

/* ---- the list --------------------------------------------------------------------------------------------------- */

static const struct jmethod methods[] = {
    {JV_STR, "strip", "|chars", both}, {JV_STR, "lstrip", "|chars", left}, {JV_STR, "rstrip", "|chars", right},
    {JV_STR, "split", "|sep,maxsplit", split}, {JV_STR, "rsplit", "|sep,maxsplit", rsplit}, {JV_STR, "splitlines", "|keepends", splitlines},
    {JV_STR, "startswith", "prefix", startswith}, {JV_STR, "endswith", "suffix", endswith},
    {JV_STR, "find", "sub", find}, {JV_STR, "rfind", "sub", rfind}, {JV_STR, "index", "sub", str_index}, {JV_STR, "count", "sub", str_count},
    {JV_STR, "replace", "old,new|count", replace}, {JV_STR, "join", "iterable", join},
    {JV_STR, "upper", "", upper}, {JV_STR, "lower", "", lower}, {JV_STR, "title", "", title}, {JV_STR, "capitalize", "", capitalize},
    {JV_STR, "removeprefix", "prefix", removeprefix}, {JV_STR, "removesuffix", "suffix", removesuffix},
    {JV_STR, "isalpha", "", isalpha_}, {JV_STR, "isalnum", "", isalnum_}, {JV_STR, "isdigit", "", isdigit_}, {JV_STR, "isdecimal", "", isdigit_},
    {JV_STR, "isnumeric", "", isnumeric_}, {JV_STR, "isspace", "", isspace_}, {JV_STR, "isupper", "", isupper_}, {JV_STR, "islower", "", islower_},
    {JV_LIST, "index", "value", seq_index}, {JV_LIST, "count", "value", seq_count}, {JV_LIST, "copy", "", copy},
    {JV_TUPLE, "index", "value", seq_index}, {JV_TUPLE, "count", "value", seq_count},
    {JV_DICT, "get", "key|default", dict_get}, {JV_DICT, "keys", "", dict_keys}, {JV_DICT, "values", "", dict_values},
    {JV_DICT, "items", "", dict_items}, {JV_DICT, "copy", "", copy},
    {JV_LOOP, "cycle", NULL, NULL}, {JV_LOOP, "changed", NULL, NULL}};

struct named { enum jv_kind kind; const char *name; };

/* Python has these, and a sandbox refuses them. */
static const struct named changing[] = {
    {JV_LIST, "append"}, {JV_LIST, "extend"}, {JV_LIST, "insert"}, {JV_LIST, "pop"}, {JV_LIST, "remove"}, {JV_LIST, "clear"},
    {JV_LIST, "reverse"}, {JV_LIST, "sort"}, {JV_DICT, "pop"}, {JV_DICT, "popitem"}, {JV_DICT, "clear"}, {JV_DICT, "update"},
    {JV_DICT, "setdefault"}};

/* Python has these, and this does not. */
static const struct named missing[] = {
    {JV_STR, "casefold"}, {JV_STR, "center"}, {JV_STR, "encode"}, {JV_STR, "expandtabs"}, {JV_STR, "format"}, {JV_STR, "format_map"},
    {JV_STR, "isascii"}, {JV_STR, "isidentifier"}, {JV_STR, "isprintable"}, {JV_STR, "istitle"}, {JV_STR, "ljust"}, {JV_STR, "maketrans"},
    {JV_STR, "partition"}, {JV_STR, "rindex"}, {JV_STR, "rjust"}, {JV_STR, "rpartition"}, {JV_STR, "swapcase"}, {JV_STR, "translate"},
    {JV_STR, "zfill"}, {JV_DICT, "fromkeys"}};

static int is_one_of(const struct named *list, size_t n, const struct jv *v, struct jstr name)
{
    for (size_t i = 0; i < n; i++)
        if (list[i].kind == v->kind && strlen(list[i].name) == name.n && !memcmp(list[i].name, name.p, name.n))
            return 1;
    return 0;
}

int jv_attribute(struct jrun *r, const struct jv *v, struct jstr name, struct jv *out, int *found)
{
    struct jv        key = jv_string(name);
    const struct jv *field = v->kind == JV_NAMESPACE ? jv_get(v->dict, &key) : NULL;
    struct jbound   *bound;

    *found = field != NULL;
    if (field)
        *out = *field;
    if (v->kind == JV_LOOP)
        *found = loop_field(v->loop, name, out);
    if (v->kind == JV_MACRO && name.n == 4 && !memcmp(name.p, "name", 4)) {
        *out = jv_name(v->macro->node->name);
        *found = 1;
    }
    if (is_one_of(changing, sizeof changing / sizeof changing[0], v, name))
        return jr_fail(r, "%.*s would change a %s, and a template cannot", (int)name.n, name.p, jv_type(v));
    if (is_one_of(missing, sizeof missing / sizeof missing[0], v, name))
        return jr_fail(r, "%s.%.*s is not supported", jv_type(v), (int)name.n, name.p);
    for (size_t i = 0; i < sizeof methods / sizeof methods[0] && !*found; i++) {
        if (methods[i].kind != v->kind || strlen(methods[i].name) != name.n || memcmp(methods[i].name, name.p, name.n) != 0)
            continue;
        if (JR_NEW(r, &bound, 1))
            return jr_failed(r);
        bound->self = *v;
        bound->method = &methods[i];
        *out = (struct jv){.kind = JV_METHOD, .method = bound};
        *found = 1;
    }
    return 0;
}

int jv_call_method(struct jrun *r, const struct jbound *m, const struct jargs *args, struct jv *out)
{
    const struct jv *a[JA_MAX];

    if (m->self.kind == JV_LOOP)
        return m->method->name[1] == 'y' ? loop_cycle(r, args, m->self.loop, out) : loop_changed(r, args, m->self.loop, out);
    if (ja_bind(r, "the method", (struct jname){m->method->name, strlen(m->method->name)}, m->method->parameters, args, a))
        return jr_failed(r);
    if (m->self.kind == JV_STR && jr_step(r, m->self.s.n / 8)) /* all of them read the text */
        return jr_failed(r);
    return m->method->call(r, &m->self, a, out);
}

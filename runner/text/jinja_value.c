/* Values of templates, as Python has them: see jinja_value.h. */
#include "runner/text/jinja_value.h"

#include "common/utf8.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { MAX_NESTED = 100 };
static const long MAX_STEPS = 20000000;

/* ---- the run ------------------------------------------------------------------------------------- */

void jr_say(struct jrun *r, const char *fmt, ...)
{
    char    text[400];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    (void)!jinja_failed_at(r->err, r->line, "%s", text);
}

int jr_step(struct jrun *r, size_t n)
{
    r->steps += n > (size_t)MAX_STEPS ? MAX_STEPS : (long)n;
    return r->steps > MAX_STEPS ? jr_fail(r, "it takes more than %ld steps", MAX_STEPS) : 0;
}

int jr_alloc(struct jrun *r, void **out, size_t count, size_t size)
{
    if (count > (r->limit - r->used) / size)
        return jr_fail(r, "it takes more than %zu MiB of memory", r->limit >> 20);
    r->used += count * size;
    return llmq_arena_alloc(&r->arena, out, count ? count : 1, size, "a rendered chat template", r->err);
}

/* ---- making values --------------------------------------------------------------------------------- */

struct jv jv_none(void) { return (struct jv){.kind = JV_NONE}; }
struct jv jv_bool(int b) { return (struct jv){.kind = JV_BOOL, .i = !!b}; }
struct jv jv_int(int64_t i) { return (struct jv){.kind = JV_INT, .i = i}; }
struct jv jv_real(double r) { return (struct jv){.kind = JV_REAL, .r = r}; }
struct jv jv_string(struct jstr s) { return (struct jv){.kind = JV_STR, .s = s}; }
struct jv jv_text(const char *literal) { return jv_string((struct jstr){literal, NULL, strlen(literal)}); }
struct jv jv_name(struct jname name) { return jv_string((struct jstr){name.p, NULL, name.n}); }
struct jv jv_undefined(struct jstr name) { return (struct jv){.kind = JV_UNDEFINED, .s = name}; }

struct jv jv_part(const struct jv *s, size_t from, size_t to)
{
    return jv_string((struct jstr){s->s.p + from, s->s.mark ? s->s.mark + from : NULL, to - from});
}

int jv_new_seq(struct jrun *r, enum jv_kind kind, size_t n, struct jv *out)
{
    struct jseq *s = NULL;

    if (JR_NEW(r, &s, 1) || !s || JR_NEW(r, &s->v, n))
        return jr_failed(r);
    s->n = n;
    *out = (struct jv){.kind = kind, .seq = s};
    return 0;
}

int jv_new_dict(struct jrun *r, enum jv_kind kind, size_t cap, struct jv *out)
{
    struct jdict *d = NULL;

    if (JR_NEW(r, &d, 1) || !d || JR_NEW(r, &d->v, cap))
        return jr_failed(r);
    d->cap = cap;
    *out = (struct jv){.kind = kind, .dict = d};
    return 0;
}

/* Keys are strings, numbers or None; tuples are rare enough to do without. */
static int same_key(const struct jv *a, const struct jv *b)
{
    if (a->kind == JV_STR && b->kind == JV_STR)
        return a->s.n == b->s.n && !memcmp(a->s.p, b->s.p, a->s.n);
    if (jv_is_number(a) && jv_is_number(b))
        return a->kind != JV_REAL && b->kind != JV_REAL ? a->i == b->i : jv_number(a) == jv_number(b);
    return a->kind == JV_NONE && b->kind == JV_NONE;
}

static struct jpair *find_pair(const struct jdict *d, const struct jv *key)
{
    for (size_t i = 0; i < d->n; i++)
        if (same_key(&d->v[i].key, key))
            return &d->v[i];
    return NULL;
}

const struct jv *jv_get(const struct jdict *d, const struct jv *key)
{
    const struct jpair *p = find_pair(d, key);

    return p ? &p->value : NULL;
}

int jv_put(struct jrun *r, struct jdict *d, const struct jv *key, const struct jv *value)
{
    struct jpair *p = find_pair(d, key);

    if (key->kind != JV_STR && key->kind != JV_NONE && !jv_is_number(key))
        return jr_fail(r, "a %s as key of a dict is not supported", jv_type(key));
    if (jr_step(r, d->n / 8 + 1))
        return jr_failed(r);
    if (!p) {
        if (d->n == d->cap) {
            size_t        cap = d->cap ? d->cap * 2 : 8;
            struct jpair *bigger;

            if (JR_NEW(r, &bigger, cap))
                return jr_failed(r);
            if (d->n)
                memcpy(bigger, d->v, d->n * sizeof *bigger);
            d->v = bigger;
            d->cap = cap;
        }
        p = &d->v[d->n++];
        p->key = *key;
    }
    p->value = *value;
    return 0;
}

static int from_object(struct jrun *r, const json_t *j, int marked, struct jv *out)
{
    const char *key;
    json_t     *value;

    if (jv_new_dict(r, JV_DICT, json_object_size(j), out))
        return jr_failed(r);
    json_object_foreach((json_t *)j, key, value)
    {
        struct jv     k = jv_text(key);
        struct jpair *p = &out->dict->v[out->dict->n++];

        k.s.mark = marked ? r->ones : NULL;
        p->key = k;
        if (jv_from_json(r, value, marked && strcmp(key, "role") != 0, &p->value))
            return jr_failed(r);
    }
    return 0;
}

int jv_from_json(struct jrun *r, const json_t *j, int marked, struct jv *out)
{
    int rc = 0;

    if (++r->depth > MAX_NESTED)
        return jr_fail(r, "the variables are nested more than %d deep", MAX_NESTED);
    switch (json_typeof(j)) {
    case JSON_NULL: *out = jv_none(); break;
    case JSON_TRUE:
    case JSON_FALSE: *out = jv_bool(json_is_true(j)); break;
    case JSON_INTEGER: *out = jv_int(json_integer_value(j)); break;
    case JSON_REAL: *out = jv_real(json_real_value(j)); break;
    case JSON_STRING: *out = jv_string((struct jstr){json_string_value(j), marked ? r->ones : NULL, json_string_length(j)}); break;
    case JSON_OBJECT: rc = from_object(r, j, marked, out); break;
    case JSON_ARRAY:
        rc = jv_new_seq(r, JV_LIST, json_array_size(j), out);
        for (size_t i = 0; !rc && i < out->seq->n; i++)
            rc = jv_from_json(r, json_array_get(j, i), marked, &out->seq->v[i]);
        break;
    }
    r->depth--;
    return rc;
}

/* ---- text ------------------------------------------------------------------------------------------ */

static int jb_grow(struct jrun *r, struct jbuf *b, size_t more)
{
    size_t cap = b->cap ? b->cap : 64;
    char  *p, *mark;

    if (more > r->limit)
        return jr_fail(r, "it takes more than %zu MiB of memory", r->limit >> 20);
    if (b->n + more <= b->cap)
        return 0;
    while (cap < b->n + more)
        cap *= 2;
    if (JR_NEW(r, &p, cap))
        return jr_failed(r);
    if (b->n)
        memcpy(p, b->p, b->n);
    if (b->mark) {
        if (JR_NEW(r, &mark, cap))
            return jr_failed(r);
        memcpy(mark, b->mark, b->n);
        b->mark = mark;
    }
    b->p = p;
    b->cap = cap;
    return 0;
}

static int need_marks(struct jrun *r, struct jbuf *b) { return b->mark ? 0 : JR_NEW(r, &b->mark, b->cap); }

int jb_add(struct jrun *r, struct jbuf *b, const char *p, size_t n, const char *mark)
{
    if (!n)
        return 0;
    if (jb_grow(r, b, n) || (mark && need_marks(r, b)))
        return jr_failed(r);
    memcpy(b->p + b->n, p, n);
    if (mark)
        memcpy(b->mark + b->n, mark, n);
    else if (b->mark)
        memset(b->mark + b->n, 0, n);
    b->n += n;
    return 0;
}

int jb_fill(struct jrun *r, struct jbuf *b, const char *p, size_t n, int mark)
{
    if (jb_add(r, b, p, n, NULL) || (mark && n && need_marks(r, b)))
        return jr_failed(r);
    if (mark && n)
        memset(b->mark + b->n - n, 1, n);
    return 0;
}

int jb_literal(struct jrun *r, struct jbuf *b, const char *text) { return jb_add(r, b, text, strlen(text), NULL); }
int jb_str(struct jrun *r, struct jbuf *b, struct jstr s) { return jb_add(r, b, s.p, s.n, s.mark); }

struct jv jb_take(const struct jbuf *b) { return jv_string((struct jstr){b->p ? b->p : "", b->mark, b->n}); }

/* The shortest digits that read back as v; Python writes an exponent below 1e-4 and from 1e16. */
void jv_real_text(double v, char out[40])
{
    char  digits[32], *e;
    int   exponent, n;
    char *to = out;

    if (isnan(v) || isinf(v)) {
        snprintf(out, 40, "%s", isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
        return;
    }
    for (int precision = 0; precision < 17; precision++) {
        snprintf(digits, sizeof digits, "%.*e", precision, v);
        if (strtod(digits, NULL) == v)
            break;
    }
    e = strchr(digits, 'e');
    exponent = (int)strtol(e + 1, NULL, 10);
    if (exponent >= -4 && exponent < 16) {
        n = (int)(e - digits) - (digits[0] == '-') - 2; /* digits behind the point */
        n = (n > 0 ? n : 0) - exponent;
        snprintf(out, 40, "%.*f", n > 1 ? n : 1, v);
        return;
    }
    memcpy(to, digits, (size_t)(e - digits));
    snprintf(to + (e - digits), 8, "e%c%02u", exponent < 0 ? '-' : '+', (unsigned)abs(exponent) % 1000);
}

/* str.isprintable */
static int printable(uint32_t c)
{
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return 0;
    case UTF8PROC_CATEGORY_ZS: return c == ' ';
    default: return 1;
    }
}

static int put_repr(struct jrun *r, struct jbuf *b, struct jstr s)
{
    char quote = s.n && memchr(s.p, '\'', s.n) && !memchr(s.p, '"', s.n) ? '"' : '\'';
    int  len;

    if (jb_fill(r, b, &quote, 1, 0))
        return jr_failed(r);
    for (size_t i = 0; i < s.n; i += (size_t)len) {
        uint32_t    c = utf8_get(s.p + i, &len);
        int         mark = s.mark && s.mark[i];
        char        escape[12];
        const char *p = escape;

        if (c == '\n' || c == '\r' || c == '\t')
            p = c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
        else if (c == '\\' || c == (uint32_t)quote)
            snprintf(escape, sizeof escape, "\\%c", (char)c);
        else if (!printable(c))
            snprintf(escape, sizeof escape, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
        else
            p = NULL;
        if (p ? jb_fill(r, b, p, strlen(p), mark) : jb_fill(r, b, s.p + i, (size_t)len, mark))
            return jr_failed(r);
    }
    return jb_fill(r, b, &quote, 1, 0);
}

static int put_element(struct jrun *r, struct jbuf *b, const struct jv *v)
{
    return v->kind == JV_STR ? put_repr(r, b, v->s) : v->kind == JV_UNDEFINED ? jb_literal(r, b, "Undefined") : jb_value(r, b, v);
}

static int put_seq(struct jrun *r, struct jbuf *b, const struct jv *v)
{
    int rc = jb_literal(r, b, v->kind == JV_LIST ? "[" : "(");

    for (size_t i = 0; !rc && i < v->seq->n; i++)
        rc = (i && jb_literal(r, b, ", ")) || put_element(r, b, &v->seq->v[i]);
    if (rc || (v->kind == JV_TUPLE && v->seq->n == 1 && jb_literal(r, b, ",")))
        return jr_failed(r);
    return jb_literal(r, b, v->kind == JV_LIST ? "]" : ")");
}

static int put_dict(struct jrun *r, struct jbuf *b, const struct jdict *d)
{
    int rc = jb_literal(r, b, "{");

    for (size_t i = 0; !rc && i < d->n; i++)
        rc = (i && jb_literal(r, b, ", ")) || put_element(r, b, &d->v[i].key) || jb_literal(r, b, ": ") || put_element(r, b, &d->v[i].value);
    return rc ? jr_failed(r) : jb_literal(r, b, "}");
}

int jb_value(struct jrun *r, struct jbuf *b, const struct jv *v)
{
    char text[40];
    int  rc;

    if (jr_step(r, 1))
        return jr_failed(r);
    switch (v->kind) {
    case JV_UNDEFINED: return 0;
    case JV_NONE: return jb_literal(r, b, "None");
    case JV_BOOL: return jb_literal(r, b, v->i ? "True" : "False");
    case JV_INT: snprintf(text, sizeof text, "%lld", (long long)v->i); return jb_literal(r, b, text);
    case JV_REAL: jv_real_text(v->r, text); return jb_literal(r, b, text);
    case JV_STR: return jb_str(r, b, v->s);
    case JV_LIST:
    case JV_TUPLE:
    case JV_DICT:
        if (++r->depth > MAX_NESTED)
            return jr_fail(r, "a value is nested more than %d deep", MAX_NESTED);
        rc = v->kind == JV_DICT ? put_dict(r, b, v->dict) : put_seq(r, b, v);
        r->depth--;
        return rc;
    default: return jr_fail(r, "printing a %s is not supported", jv_type(v));
    }
}

int jv_to_str(struct jrun *r, const struct jv *v, struct jv *out)
{
    struct jbuf b = {0};

    if (v->kind != JV_STR && jb_value(r, &b, v))
        return jr_failed(r);
    *out = v->kind == JV_STR ? *v : jb_take(&b);
    return 0;
}

/* ---- asking ------------------------------------------------------------------------------------------ */

const char *jv_type(const struct jv *v)
{
    static const char *const names[] = {[JV_UNDEFINED] = "Undefined", [JV_NONE] = "NoneType", [JV_BOOL] = "bool", [JV_INT] = "int",
        [JV_REAL] = "float", [JV_STR] = "str", [JV_LIST] = "list", [JV_TUPLE] = "tuple", [JV_DICT] = "dict", [JV_NAMESPACE] = "namespace",
        [JV_LOOP] = "loop", [JV_MACRO] = "macro", [JV_GLOBAL] = "function", [JV_METHOD] = "method"};

    return names[v->kind];
}

int jv_is_text(const struct jv *v, const char *text) { return v->kind == JV_STR && v->s.n == strlen(text) && !memcmp(v->s.p, text, v->s.n); }
int jv_is_number(const struct jv *v) { return v->kind == JV_BOOL || v->kind == JV_INT || v->kind == JV_REAL; }
double jv_number(const struct jv *v) { return v->kind == JV_REAL ? v->r : (double)v->i; }

int jv_truth(const struct jv *v)
{
    switch (v->kind) {
    case JV_UNDEFINED:
    case JV_NONE: return 0;
    case JV_BOOL:
    case JV_INT: return v->i != 0;
    case JV_REAL: return v->r != 0;
    case JV_STR: return v->s.n != 0;
    case JV_LIST:
    case JV_TUPLE: return v->seq->n != 0;
    case JV_DICT: return v->dict->n != 0;
    default: return 1;
    }
}

static int equal_seq(struct jrun *r, const struct jseq *a, const struct jseq *b, int *equal)
{
    *equal = a->n == b->n;
    for (size_t i = 0; *equal && i < a->n; i++)
        if (jv_equal(r, &a->v[i], &b->v[i], equal))
            return jr_failed(r);
    return 0;
}

static int equal_dict(struct jrun *r, const struct jdict *a, const struct jdict *b, int *equal)
{
    *equal = a->n == b->n;
    for (size_t i = 0; *equal && i < a->n; i++) {
        const struct jv *other = jv_get(b, &a->v[i].key);

        *equal = other != NULL;
        if (other && (jr_step(r, b->n) || jv_equal(r, &a->v[i].value, other, equal)))
            return jr_failed(r);
    }
    return 0;
}

int jv_equal(struct jrun *r, const struct jv *a, const struct jv *b, int *equal)
{
    int rc = 0;

    *equal = 0;
    if (jr_step(r, 1))
        return jr_failed(r);
    if (jv_is_number(a) && jv_is_number(b)) {
        *equal = a->kind != JV_REAL && b->kind != JV_REAL ? a->i == b->i : jv_number(a) == jv_number(b);
        return 0;
    }
    if (a->kind != b->kind)
        return 0;
    if (++r->depth > MAX_NESTED + 1000)
        return jr_fail(r, "a value is nested too deep");
    switch (a->kind) {
    case JV_UNDEFINED:
    case JV_NONE: *equal = 1; break;
    case JV_STR: *equal = a->s.n == b->s.n && !memcmp(a->s.p, b->s.p, a->s.n); break;
    case JV_LIST:
    case JV_TUPLE: rc = equal_seq(r, a->seq, b->seq, equal); break;
    case JV_DICT: rc = equal_dict(r, a->dict, b->dict, equal); break;
    default: *equal = a->i == b->i; break; /* the same one? */
    }
    r->depth--;
    return rc;
}

static int order_strings(struct jstr a, struct jstr b)
{
    int c = memcmp(a.p, b.p, a.n < b.n ? a.n : b.n); /* UTF-8 sorts as code points do */

    return c ? (c < 0 ? -1 : 1) : a.n < b.n ? -1 : a.n > b.n;
}

static int order_seqs(struct jrun *r, const struct jseq *a, const struct jseq *b, int *order)
{
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        int equal;

        if (jv_equal(r, &a->v[i], &b->v[i], &equal))
            return jr_failed(r);
        if (!equal)
            return jv_order(r, &a->v[i], &b->v[i], order);
    }
    *order = a->n < b->n ? -1 : a->n > b->n;
    return 0;
}

int jv_order(struct jrun *r, const struct jv *a, const struct jv *b, int *order)
{
    if (jv_is_number(a) && jv_is_number(b)) {
        double x = jv_number(a), y = jv_number(b);

        if (a->kind != JV_REAL && b->kind != JV_REAL)
            *order = a->i < b->i ? -1 : a->i > b->i;
        else
            *order = x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
        return 0;
    }
    if (a->kind == JV_STR && b->kind == JV_STR) {
        *order = order_strings(a->s, b->s);
        return 0;
    }
    if (a->kind == b->kind && (a->kind == JV_LIST || a->kind == JV_TUPLE))
        return order_seqs(r, a->seq, b->seq, order);
    return jr_fail(r, "a %s cannot be compared with a %s", jv_type(a), jv_type(b));
}

int jv_check_key(struct jrun *r, const struct jv *key)
{
    if (key->kind == JV_LIST || key->kind == JV_DICT)
        return jr_fail(r, "a %s cannot be a key: it is unhashable", jv_type(key));
    return 0;
}

int jv_contains(struct jrun *r, const struct jv *in, const struct jv *v, int *found)
{
    const struct jv *items;
    size_t           n;

    *found = 0;
    if (in->kind == JV_STR) {
        if (v->kind != JV_STR)
            return jr_fail(r, "'in' a str needs a str, found a %s", jv_type(v));
        *found = !v->s.n || memmem(in->s.p, in->s.n, v->s.p, v->s.n) != NULL;
        return jr_step(r, in->s.n / 64);
    }
    if (in->kind == JV_DICT) {
        if (jv_check_key(r, v))
            return jr_failed(r);
        *found = jv_get(in->dict, v) != NULL;
        return jr_step(r, in->dict->n / 8 + 1);
    }
    if (jv_items(r, in, &items, &n))
        return jr_failed(r);
    for (size_t i = 0; i < n && !*found; i++)
        if (jv_equal(r, &items[i], v, found))
            return jr_failed(r);
    return 0;
}

static size_t count_points(struct jstr s)
{
    size_t n = 0;

    for (size_t i = 0; i < s.n; i++)
        n += ((unsigned char)s.p[i] & 0xc0) != 0x80;
    return n;
}

int jv_length(struct jrun *r, const struct jv *v, size_t *n)
{
    switch (v->kind) {
    case JV_UNDEFINED: *n = 0; return 0;
    case JV_STR: *n = count_points(v->s); return jr_step(r, v->s.n / 64);
    case JV_LIST:
    case JV_TUPLE: *n = v->seq->n; return 0;
    case JV_DICT: *n = v->dict->n; return 0;
    case JV_LOOP: *n = v->loop->n; return 0;
    default: return jr_fail(r, "a %s has no length", jv_type(v));
    }
}

int jv_items(struct jrun *r, const struct jv *v, const struct jv **items, size_t *n)
{
    struct jv list;
    size_t    at = 0;

    *n = 0;
    *items = NULL;
    if (v->kind == JV_UNDEFINED)
        return 0;
    if (v->kind == JV_LIST || v->kind == JV_TUPLE) {
        *items = v->seq->v;
        *n = v->seq->n;
        return 0;
    }
    if (v->kind != JV_DICT && v->kind != JV_STR)
        return jr_fail(r, "a %s cannot be iterated over", jv_type(v));
    if (jv_length(r, v, n) || jv_new_seq(r, JV_LIST, *n, &list))
        return jr_failed(r);
    for (size_t i = 0; i < *n; i++) {
        if (v->kind == JV_DICT) {
            list.seq->v[i] = v->dict->v[i].key;
        } else {
            size_t to = at + (size_t)utf8_len(v->s.p[at]);

            list.seq->v[i] = jv_part(v, at, to);
            at = to;
        }
    }
    *items = list.seq->v;
    return 0;
}

int jv_to_int(struct jrun *r, const struct jv *v, const char *what, int64_t *out)
{
    if (v->kind != JV_INT && v->kind != JV_BOOL)
        return jr_fail(r, "%s is a %s, expected an int", what, jv_type(v));
    *out = v->i;
    return 0;
}

/* ---- indices ----------------------------------------------------------------------------------------- */

static size_t byte_of(struct jstr s, size_t point)
{
    size_t i = 0;

    while (point--)
        i += (size_t)utf8_len(s.p[i]);
    return i;
}

int jv_item(struct jrun *r, const struct jv *v, const struct jv *index, struct jv *out)
{
    size_t n;

    *out = jv_undefined(index->kind == JV_STR ? index->s : (struct jstr){"an element", NULL, 10});
    if (v->kind == JV_DICT) {
        const struct jv *found = jv_get(v->dict, index);

        if (found)
            *out = *found;
        return jr_step(r, v->dict->n / 8 + 1);
    }
    if ((v->kind != JV_LIST && v->kind != JV_TUPLE && v->kind != JV_STR) || (index->kind != JV_INT && index->kind != JV_BOOL))
        return 0;
    if (jv_length(r, v, &n))
        return jr_failed(r);
    if (index->i < -(int64_t)n || index->i >= (int64_t)n)
        return 0;
    n = (size_t)(index->i < 0 ? index->i + (int64_t)n : index->i);
    if (v->kind == JV_STR) {
        size_t at = byte_of(v->s, n);

        *out = jv_part(v, at, at + (size_t)utf8_len(v->s.p[at]));
    } else {
        *out = v->seq->v[n];
    }
    return 0;
}

/* One end of a slice of n elements. */
static int slice_end(struct jrun *r, const struct jv *v, int64_t n, int64_t low, int64_t high, int64_t missing, int64_t *out)
{
    *out = missing;
    if (!v || v->kind == JV_NONE)
        return 0;
    if (jv_to_int(r, v, "a slice's index", out))
        return jr_failed(r);
    if (*out < 0)
        *out = *out < -n ? -1 : *out + n;
    *out = *out < low ? low : *out > high ? high : *out;
    return 0;
}

int jv_slice(struct jrun *r, const struct jv *v, const struct jv *from, const struct jv *to, const struct jv *step, struct jv *out)
{
    const struct jv *items;
    size_t           length, at = 0;
    int64_t          by = 1, a, b, n;
    struct jbuf      text = {0};

    if (v->kind != JV_LIST && v->kind != JV_TUPLE && v->kind != JV_STR)
        return jr_fail(r, "a slice of a %s is not supported", jv_type(v));
    if (step && step->kind != JV_NONE && jv_to_int(r, step, "a slice's step", &by))
        return jr_failed(r);
    if (!by || by == INT64_MIN)
        return jr_fail(r, "a slice's step is %lld", (long long)by);
    if (jv_items(r, v, &items, &length))
        return jr_failed(r);
    n = (int64_t)length;
    by = by > n ? n + 1 : by < -n ? -n - 1 : by; /* the same, and sums stay small */
    if (slice_end(r, from, n, by < 0 ? -1 : 0, by < 0 ? n - 1 : n, by < 0 ? n - 1 : 0, &a) ||
        slice_end(r, to, n, by < 0 ? -1 : 0, by < 0 ? n - 1 : n, by < 0 ? -1 : n, &b))
        return jr_failed(r);
    length = by > 0 ? (b > a ? (size_t)((b - a - 1) / by + 1) : 0) : (by < 0 && a > b ? (size_t)((a - b - 1) / -by + 1) : 0);
    if (v->kind != JV_STR && jv_new_seq(r, v->kind, length, out))
        return jr_failed(r);
    for (; at < length; at++, a += by) {
        if (v->kind != JV_STR)
            out->seq->v[at] = items[a];
        else if (jb_str(r, &text, items[a].s))
            return jr_failed(r);
    }
    if (v->kind == JV_STR)
        *out = jb_take(&text);
    return 0;
}

/* Jinja's tests ("is defined") and comparisons: see jinja_value.h. */
#include "runner/text/jinja_value.h"

#include <string.h>

int jinja_compare(struct jrun *r, int op, const struct jv *a, const struct jv *b, int *holds)
{
    int order, rc;

    switch (op) {
    case JO_EQ: return jv_equal(r, a, b, holds);
    case JO_NE:
        rc = jv_equal(r, a, b, holds);
        *holds = !*holds;
        return rc;
    case JO_IN: return jv_contains(r, b, a, holds);
    case JO_NOT_IN:
        rc = jv_contains(r, b, a, holds);
        *holds = !*holds;
        return rc;
    default: break;
    }
    if (a->kind == JV_UNDEFINED || b->kind == JV_UNDEFINED) {
        const struct jstr name = a->kind == JV_UNDEFINED ? a->s : b->s;

        return jr_fail(r, "%.*s is undefined", (int)(name.n > 60 ? 60 : name.n), name.p);
    }
    if (jv_order(r, a, b, &order))
        return jr_failed(r);
    *holds = op == '<' ? order == -1 : op == '>' ? order == 1 : op == JO_LE ? order == -1 || order == 0 : order == 1 || order == 0;
    return 0;
}

static int all_case(struct jrun *r, const struct jv *v, int how, int *holds)
{
    struct jv text, cased, only;
    int       found;

    /* str(v).isupper() */
    if (jv_to_str(r, v, &text) || jv_attribute(r, &text, (struct jstr){how == 'u' ? "isupper" : "islower", NULL, 7}, &only, &found) ||
        jv_call_method(r, only.method, &(struct jargs){0}, &cased))
        return jr_failed(r);
    *holds = jv_truth(&cased);
    return 0;
}

static int modulo(struct jrun *r, const struct jv *v, int64_t by, int64_t want, int *holds)
{
    if (!jv_is_number(v))
        return jr_fail(r, "a %s has no remainder", jv_type(v));
    if (!by)
        return jr_fail(r, "division by zero");
    if (v->kind == JV_REAL)
        return jr_fail(r, "the remainder of a float is not supported in a test");
    *holds = by == -1 ? want == 0 : ((v->i % by) + by) % by == want;
    return 0;
}

/* Tests without arguments that ask for a value's kind; -1: there is none of that name. */
static int by_kind(const struct jv *v, const char *name)
{
    enum jv_kind k = v->kind;
    const struct { const char *name; int holds; } known[] = {
        {"defined", k != JV_UNDEFINED},
        {"undefined", k == JV_UNDEFINED},
        {"none", k == JV_NONE},
        {"string", k == JV_STR},
        {"number", jv_is_number(v)},
        {"integer", k == JV_INT},
        {"float", k == JV_REAL},
        {"boolean", k == JV_BOOL},
        {"true", k == JV_BOOL && v->i},
        {"false", k == JV_BOOL && !v->i},
        {"mapping", k == JV_DICT},
        {"sequence", k == JV_STR || k == JV_LIST || k == JV_TUPLE || k == JV_DICT || k == JV_UNDEFINED},
        {"iterable", k == JV_STR || k == JV_LIST || k == JV_TUPLE || k == JV_DICT || k == JV_UNDEFINED || k == JV_LOOP},
        {"callable", k == JV_MACRO || k == JV_GLOBAL || k == JV_METHOD || k == JV_UNDEFINED},
        {"escaped", 0}};

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (!strcmp(known[i].name, name))
            return known[i].holds;
    return -1;
}

static int comparison_of(const char *name)
{
    static const struct { const char *name; int op; } known[] = {
        {"eq", JO_EQ}, {"equalto", JO_EQ}, {"==", JO_EQ}, {"ne", JO_NE}, {"!=", JO_NE}, {"lt", '<'}, {"lessthan", '<'}, {"<", '<'},
        {"le", JO_LE}, {"<=", JO_LE}, {"gt", '>'}, {"greaterthan", '>'}, {">", '>'}, {"ge", JO_GE}, {">=", JO_GE}, {"in", JO_IN}};

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (!strcmp(known[i].name, name))
            return known[i].op;
    return 0;
}

int jinja_test(struct jrun *r, struct jname name, const struct jv *v, const struct jargs *args, int *holds)
{
    char             text[32];
    int              op;
    int64_t          by;
    const struct jv *a[JA_MAX];

    if (name.n >= sizeof text)
        return jr_fail(r, "there is no test '%.*s'", (int)(name.n > 60 ? 60 : name.n), name.p);
    memcpy(text, name.p, name.n);
    text[name.n] = 0;
    op = comparison_of(text);
    *holds = by_kind(v, text);
    if (*holds >= 0)
        return ja_bind(r, "the test", name, "", args, a);
    if (op)
        return ja_bind(r, "the test", name, "other", args, a) ? jr_failed(r) : jinja_compare(r, op, v, a[0], holds);
    if (!strcmp(text, "sameas")) {
        if (ja_bind(r, "the test", name, "other", args, a) || jv_equal(r, v, a[0], holds))
            return jr_failed(r);
        *holds = *holds && v->kind == a[0]->kind;
        return 0;
    }
    if (!strcmp(text, "divisibleby"))
        return ja_bind(r, "the test", name, "num", args, a) || jv_to_int(r, a[0], "divisibleby's number", &by) ? jr_failed(r) : modulo(r, v, by, 0, holds);
    if (ja_bind(r, "the test", name, "", args, a))
        return jr_failed(r);
    if (!strcmp(text, "odd") || !strcmp(text, "even"))
        return modulo(r, v, 2, text[0] == 'o', holds);
    if (!strcmp(text, "lower") || !strcmp(text, "upper"))
        return all_case(r, v, text[0], holds);
    return jr_fail(r, "there is no test '%s'", text);
}

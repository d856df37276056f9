/* Rendering a parsed template: see jinja.h and jinja_value.h.
 *
 * Scopes are Jinja's: each round of a loop, each macro's call and each captured block has its own, an if has none; a
 * macro sees what surrounds its definition. */
#include "runner/text/jinja.h"
#include "runner/text/jinja_value.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DEPTH = 1000, MAX_RANGE = 100000 };
static const size_t MEMORY = (size_t)64 << 20, MEMORY_PER_BYTE = 64;

static int eval(struct jrun *r, const struct jnode *n, struct jv *out);
static int run_body(struct jrun *r, const struct jnode *kids);

static int same(struct jname a, struct jname b) { return a.n == b.n && !memcmp(a.p, b.p, a.n); }
static int is_named(struct jname a, const char *b) { return a.n == strlen(b) && !memcmp(a.p, b, a.n); }

/* ---- names ------------------------------------------------------------------------------------------- */

enum { G_RANGE, G_DICT, G_NAMESPACE, G_RAISE, G_STRFTIME };
static const char *const globals[] = {"range", "dict", "namespace", "raise_exception", "strftime_now"};

static struct jvar *find_here(struct jscope *s, struct jname name)
{
    for (struct jvar *v = s->vars; v; v = v->next)
        if (same(v->name, name))
            return v;
    return NULL;
}

static int look_up(struct jrun *r, struct jname name, struct jv *out)
{
    for (struct jscope *s = r->scope; s; s = s->up) {
        const struct jvar *v = find_here(s, name);

        if (v) {
            *out = v->v;
            return 0;
        }
    }
    *out = jv_undefined((struct jstr){name.p, NULL, name.n});
    for (int i = 0; i < (int)(sizeof globals / sizeof globals[0]); i++)
        if (is_named(name, globals[i]))
            *out = (struct jv){.kind = JV_GLOBAL, .i = i};
    return jr_step(r, 1);
}

static int assign_name(struct jrun *r, struct jname name, const struct jv *value)
{
    struct jvar *v = find_here(r->scope, name);

    if (!v) {
        if (JR_NEW(r, &v, 1))
            return jr_failed(r);
        v->name = name;
        v->next = r->scope->vars;
        r->scope->vars = v;
    }
    v->v = *value;
    return 0;
}

static int push_scope(struct jrun *r, struct jscope *up)
{
    struct jscope *s;

    if (JR_NEW(r, &s, 1))
        return jr_failed(r);
    s->up = up;
    r->scope = s;
    return 0;
}

static int assign_field(struct jrun *r, const struct jnode *target, const struct jv *value)
{
    struct jv object, key = jv_name(target->name);

    if (eval(r, target->a, &object))
        return jr_failed(r);
    if (object.kind != JV_NAMESPACE)
        return jr_fail(r, "a field of a %s cannot be set, expected a namespace", jv_type(&object));
    return jv_put(r, object.dict, &key, value);
}

static int assign(struct jrun *r, const struct jnode *target, const struct jv *value)
{
    const struct jv *items;
    size_t           n, want = 0;

    if (target->kind == JN_NAME)
        return assign_name(r, target->name, value);
    if (target->kind == JN_ATTR)
        return assign_field(r, target, value);
    if (jv_items(r, value, &items, &n))
        return jr_failed(r);
    for (const struct jnode *t = target->kids; t; t = t->next)
        want++;
    if (n != want)
        return jr_fail(r, "%zu values cannot be assigned to %zu names", n, want);
    for (const struct jnode *t = target->kids; t; t = t->next)
        if (assign(r, t, items++))
            return jr_failed(r);
    return 0;
}

/* ---- arithmetic ---------------------------------------------------------------------------------------- */

static int check_defined(struct jrun *r, const struct jv *v)
{
    return v->kind == JV_UNDEFINED ? jr_fail(r, "'%.*s' is undefined", (int)(v->s.n > 60 ? 60 : v->s.n), v->s.p) : 0;
}

static int bad_operands(struct jrun *r, int op, const struct jv *a, const struct jv *b)
{
    char text[3] = {(char)(op > 255 ? op >> 8 : op), (char)(op > 255 ? op & 255 : 0), 0};

    return jr_fail(r, "%s %s %s is not supported", jv_type(a), text, jv_type(b));
}

static int too_large(struct jrun *r) { return jr_fail(r, "an integer is too large"); }

static int int_power(struct jrun *r, int64_t a, int64_t b, struct jv *out)
{
    *out = jv_int(1);
    if (b < 0)
        return jr_fail(r, "a negative power is not supported");
    if (a == 0 || a == 1 || a == -1)
        b = a == 0 ? b > 0 : b & 1;
    while (b-- > 0)
        if (__builtin_mul_overflow(out->i, a, &out->i))
            return too_large(r);
    return 0;
}

static int int_math(struct jrun *r, int op, int64_t a, int64_t b, struct jv *out)
{
    *out = jv_int(0);
    switch (op) {
    case '+': return __builtin_add_overflow(a, b, &out->i) ? too_large(r) : 0;
    case '-': return __builtin_sub_overflow(a, b, &out->i) ? too_large(r) : 0;
    case '*': return __builtin_mul_overflow(a, b, &out->i) ? too_large(r) : 0;
    case JO_POW: return int_power(r, a, b, out);
    default: break;
    }
    if (!b)
        return jr_fail(r, "division by zero");
    if (op == '/') {
        *out = jv_real((double)a / (double)b);
        return 0;
    }
    if (b == -1)
        return op == '%' ? 0 : __builtin_sub_overflow((int64_t)0, a, &out->i) ? too_large(r) : 0;
    out->i = op == '%' ? a % b : a / b;
    if (a % b && (a < 0) != (b < 0)) /* towards minus infinity */
        out->i += op == '%' ? b : -1;
    return 0;
}

static int real_math(struct jrun *r, int op, double a, double b, struct jv *out)
{
    double rest;

    if (op == JO_POW)
        return jr_fail(r, "a power of floats is not supported");
    if (!b && (op == '/' || op == '%' || op == JO_FLOOR))
        return jr_fail(r, "division by zero");
    if (op == '+' || op == '-' || op == '*' || op == '/') {
        *out = jv_real(op == '+' ? a + b : op == '-' ? a - b : op == '*' ? a * b : a / b);
        return 0;
    }
    rest = fmod(a, b);
    if (rest && (rest < 0) != (b < 0))
        rest += b;
    *out = jv_real(op == '%' ? rest : floor((a - rest) / b + 0.5));
    return 0;
}

/* text * n, list * n */
static int repeat(struct jrun *r, const struct jv *v, int64_t times, struct jv *out)
{
    size_t      n = v->kind == JV_STR ? 0 : v->seq->n, count = times > 0 ? (size_t)times : 0;
    struct jbuf b = {0};

    if (v->kind == JV_STR) {
        for (size_t i = 0; i < count && v->s.n; i++)
            if (jr_step(r, 1) || jb_str(r, &b, v->s))
                return jr_failed(r);
        *out = jb_take(&b);
        return 0;
    }
    if (n && count > (size_t)MAX_RANGE / n)
        return jr_fail(r, "a list of more than %d elements", MAX_RANGE);
    if (jv_new_seq(r, v->kind, n * count, out))
        return jr_failed(r);
    for (size_t i = 0; i < n * count; i++)
        out->seq->v[i] = v->seq->v[i % n];
    return 0;
}

static int join_seqs(struct jrun *r, const struct jv *a, const struct jv *b, struct jv *out)
{
    size_t n = a->seq->n, m = b->seq->n;

    if (jr_step(r, n + m) || jv_new_seq(r, a->kind, n + m, out))
        return jr_failed(r);
    if (n)
        memcpy(out->seq->v, a->seq->v, n * sizeof *a);
    if (m)
        memcpy(out->seq->v + n, b->seq->v, m * sizeof *b);
    return 0;
}

static int concat(struct jrun *r, const struct jv *a, const struct jv *b, struct jv *out)
{
    struct jbuf text = {0};

    if (jb_value(r, &text, a) || jb_value(r, &text, b))
        return jr_failed(r);
    *out = jb_take(&text);
    return 0;
}

static int is_seq(const struct jv *v) { return v->kind == JV_LIST || v->kind == JV_TUPLE; }

static int binary(struct jrun *r, int op, const struct jv *a, const struct jv *b, struct jv *out)
{
    if (op == '%' && a->kind == JV_STR)
        return jr_fail(r, "formatting by %% is not supported");
    if (check_defined(r, a) || check_defined(r, b))
        return jr_failed(r);
    if (jv_is_number(a) && jv_is_number(b))
        return a->kind == JV_REAL || b->kind == JV_REAL ? real_math(r, op, jv_number(a), jv_number(b), out) : int_math(r, op, a->i, b->i, out);
    if (op == '+' && a->kind == JV_STR && b->kind == JV_STR)
        return concat(r, a, b, out);
    if (op == '+' && is_seq(a) && a->kind == b->kind)
        return join_seqs(r, a, b, out);
    if (op == '*' && (a->kind == JV_STR || is_seq(a)) && (b->kind == JV_INT || b->kind == JV_BOOL))
        return repeat(r, a, b->i, out);
    if (op == '*' && (b->kind == JV_STR || is_seq(b)) && (a->kind == JV_INT || a->kind == JV_BOOL))
        return repeat(r, b, a->i, out);
    return bad_operands(r, op, a, b);
}

static int negate(struct jrun *r, int minus, const struct jv *v, struct jv *out)
{
    if (check_defined(r, v))
        return jr_failed(r);
    if (!jv_is_number(v))
        return jr_fail(r, "a %s has no sign", jv_type(v));
    *out = v->kind == JV_REAL ? jv_real(minus ? -v->r : v->r) : jv_int(v->i);
    return minus && v->kind != JV_REAL && __builtin_sub_overflow((int64_t)0, v->i, &out->i) ? too_large(r) : 0;
}

/* ---- calls ----------------------------------------------------------------------------------------------- */

static int eval_args(struct jrun *r, const struct jnode *kids, struct jargs *args)
{
    size_t n = 0;

    *args = (struct jargs){0};
    for (const struct jnode *k = kids; k; k = k->next)
        n++;
    if (JR_NEW(r, &args->v, n) || JR_NEW(r, &args->kw, n))
        return jr_failed(r);
    for (const struct jnode *k = kids; k; k = k->next) {
        struct jv *to = k->kind == JN_KEYWORD ? &args->kw[args->nkw].v : &args->v[args->n];

        if (eval(r, k->kind == JN_KEYWORD ? k->a : k, to))
            return jr_failed(r);
        if (k->kind == JN_KEYWORD)
            args->kw[args->nkw++].name = k->name;
        else if (args->nkw)
            return jr_fail(r, "an argument without a name stands behind one with a name");
        else
            args->n++;
    }
    return 0;
}

static int call_range(struct jrun *r, const struct jargs *args, struct jv *out)
{
    int64_t v[3] = {0, 0, 1}, n;

    if (args->nkw || !args->n || args->n > 3)
        return jr_fail(r, "range takes 1 to 3 numbers");
    for (size_t i = 0; i < args->n; i++)
        if (jv_to_int(r, &args->v[i], "range's number", &v[args->n == 1 ? 1 : i]))
            return jr_failed(r);
    for (int i = 0; i < 3; i++)
        if (v[i] > INT32_MAX || v[i] < -INT32_MAX)
            return jr_fail(r, "range's number %lld is too large", (long long)v[i]);
    if (!v[2])
        return jr_fail(r, "range's step is 0");
    n = v[2] > 0 ? (v[1] - v[0] + v[2] - 1) / v[2] : (v[0] - v[1] - v[2] - 1) / -v[2];
    if (n > MAX_RANGE)
        return jr_fail(r, "a range of more than %d numbers", MAX_RANGE);
    if (jv_new_seq(r, JV_LIST, n > 0 ? (size_t)n : 0, out))
        return jr_failed(r);
    for (int64_t i = 0; i < n; i++)
        out->seq->v[i] = jv_int(v[0] + i * v[2]);
    return 0;
}

/* dict(a=1), dict(other, a=1); namespace in the same way */
static int call_dict(struct jrun *r, enum jv_kind kind, const struct jargs *args, struct jv *out)
{
    if (args->n > 1 || (args->n && args->v[0].kind != JV_DICT))
        return jr_fail(r, "dict and namespace of anything but a dict and names are not supported");
    if (jv_new_dict(r, kind, args->nkw + 4, out))
        return jr_failed(r);
    for (size_t i = 0; args->n && i < args->v[0].dict->n; i++)
        if (jv_put(r, out->dict, &args->v[0].dict->v[i].key, &args->v[0].dict->v[i].value))
            return jr_failed(r);
    for (size_t i = 0; i < args->nkw; i++) {
        struct jv key = jv_name(args->kw[i].name);

        if (jv_put(r, out->dict, &key, &args->kw[i].v))
            return jr_failed(r);
    }
    return 0;
}

static int call_raise(struct jrun *r, const struct jargs *args)
{
    struct jv text = jv_text("");

    if (args->n && jv_to_str(r, &args->v[0], &text))
        return jr_failed(r);
    return llmq_fail(r->err, LLMQ_EUSAGE, "the chat template refuses these messages: %.*s", (int)(text.s.n > 300 ? 300 : text.s.n), text.s.p);
}

static int call_strftime(struct jrun *r, const struct jargs *args, struct jv *out)
{
    char        format[128], text[512];
    struct tm   tm;
    struct jbuf b = {0};

    if (args->n != 1 || args->nkw || args->v[0].kind != JV_STR || args->v[0].s.n >= sizeof format)
        return jr_fail(r, "strftime_now takes a format of less than %zu bytes", sizeof format);
    memcpy(format, args->v[0].s.p, args->v[0].s.n);
    format[args->v[0].s.n] = 0;
    if (!localtime_r(&r->now, &tm))
        return jr_fail(r, "the time cannot be told");
    if (jb_add(r, &b, text, strftime(text, sizeof text, format, &tm), NULL))
        return jr_failed(r);
    *out = jb_take(&b);
    return 0;
}

static int call_global(struct jrun *r, int64_t which, const struct jargs *args, struct jv *out)
{
    switch (which) {
    case G_RANGE: return call_range(r, args, out);
    case G_DICT: return call_dict(r, JV_DICT, args, out);
    case G_NAMESPACE: return call_dict(r, JV_NAMESPACE, args, out);
    case G_RAISE: return call_raise(r, args);
    default: return call_strftime(r, args, out);
    }
}

static int is_parameter(const struct jmacro *m, struct jname name)
{
    for (const struct jnode *p = m->parameters->kids; p; p = p->next)
        if (same(p->name, name))
            return 1;
    return 0;
}

/* A macro's parameters to variables; one that was not passed has its default, or is undefined. */
static int bind_parameters(struct jrun *r, const struct jmacro *m, const struct jargs *args)
{
    const struct jnode *p = m->parameters->kids;

    for (size_t at = 0; p; p = p->next, at++) {
        struct jv v = jv_undefined((struct jstr){p->name.p, NULL, p->name.n});
        int       passed = at < args->n;

        if (passed)
            v = args->v[at];
        for (size_t i = 0; i < args->nkw; i++) {
            if (!same(args->kw[i].name, p->name))
                continue;
            if (passed)
                return jr_fail(r, "the macro's parameter %.*s is passed twice", (int)p->name.n, p->name.p);
            v = args->kw[i].v;
            passed = 1;
        }
        if ((!passed && p->a && eval(r, p->a, &v)) || assign_name(r, p->name, &v))
            return jr_failed(r);
    }
    return 0;
}

static int check_arguments(struct jrun *r, const struct jmacro *m, const struct jargs *args)
{
    size_t n = 0;

    for (const struct jnode *p = m->parameters->kids; p; p = p->next)
        n++;
    if (args->n > n && !(m->node->op & JM_VARARGS))
        return jr_fail(r, "a macro takes at most %zu arguments, found %zu", n, args->n);
    for (size_t i = 0; i < args->nkw; i++) {
        int taken = is_parameter(m, args->kw[i].name) || m->node->op & (is_named(args->kw[i].name, "caller") ? JM_CALLER : JM_KWARGS);

        if (!taken)
            return jr_fail(r, "a macro does not take the argument %.*s", (int)args->kw[i].name.n, args->kw[i].name.p);
    }
    return 0;
}

/* caller, varargs and kwargs, in a macro that mentions them. */
static int bind_rest(struct jrun *r, const struct jmacro *m, const struct jargs *args)
{
    struct jv more, names, caller = jv_undefined(jv_text("caller").s);
    size_t    n = 0;

    for (const struct jnode *p = m->parameters->kids; p; p = p->next)
        n++;
    n = args->n > n ? n : args->n;
    if (jv_new_seq(r, JV_TUPLE, args->n - n, &more) || jv_new_dict(r, JV_DICT, args->nkw, &names))
        return jr_failed(r);
    for (size_t i = n; i < args->n; i++)
        more.seq->v[i - n] = args->v[i];
    for (size_t i = 0; i < args->nkw; i++) {
        struct jv key = jv_name(args->kw[i].name);

        if (m->node->op & JM_CALLER && is_named(args->kw[i].name, "caller"))
            caller = args->kw[i].v;
        else if (!is_parameter(m, args->kw[i].name) && jv_put(r, names.dict, &key, &args->kw[i].v))
            return jr_failed(r);
    }
    if ((m->node->op & JM_CALLER && assign_name(r, (struct jname){"caller", 6}, &caller)) ||
        (m->node->op & JM_VARARGS && assign_name(r, (struct jname){"varargs", 7}, &more)) ||
        (m->node->op & JM_KWARGS && assign_name(r, (struct jname){"kwargs", 6}, &names)))
        return jr_failed(r);
    return 0;
}

/* What body prints, in a scope of its own that is already there. */
static int capture(struct jrun *r, const struct jnode *kids, struct jv *out)
{
    struct jbuf  b = {0};
    struct jbuf *before = r->out;
    int          rc;

    r->out = &b;
    rc = run_body(r, kids);
    r->out = before;
    *out = jb_take(&b);
    return rc;
}

static int call_macro(struct jrun *r, const struct jmacro *m, const struct jargs *args, struct jv *out)
{
    struct jscope *before = r->scope;

    if (check_arguments(r, m, args) || push_scope(r, m->scope))
        return jr_failed(r);
    if (bind_rest(r, m, args) || bind_parameters(r, m, args) || capture(r, m->node->kids, out))
        return jr_failed(r);
    r->scope = before;
    return 0;
}

static int call(struct jrun *r, const struct jv *f, const struct jargs *args, struct jv *out)
{
    switch (f->kind) {
    case JV_METHOD: return jv_call_method(r, f->method, args, out);
    case JV_MACRO: return call_macro(r, f->macro, args, out);
    case JV_GLOBAL: return call_global(r, f->i, args, out);
    default: return check_defined(r, f) ? jr_failed(r) : jr_fail(r, "a %s cannot be called", jv_type(f));
    }
}

static int eval_call(struct jrun *r, const struct jnode *n, const struct jv *caller, struct jv *out)
{
    struct jv    f;
    struct jargs args;

    if (eval(r, n->a, &f) || eval_args(r, n->kids, &args))
        return jr_failed(r);
    if (caller) {
        struct jkeyword *kw;

        if (JR_NEW(r, &kw, args.nkw + 1))
            return jr_failed(r);
        if (args.nkw)
            memcpy(kw, args.kw, args.nkw * sizeof *kw);
        kw[args.nkw++] = (struct jkeyword){{"caller", 6}, *caller};
        args.kw = kw;
    }
    r->line = n->line;
    return call(r, &f, &args, out);
}

/* ---- expressions ------------------------------------------------------------------------------------------- */

static int eval_seq(struct jrun *r, const struct jnode *n, struct jv *out)
{
    size_t count = 0, i = 0;

    for (const struct jnode *k = n->kids; k; k = k->next)
        count++;
    if (jv_new_seq(r, n->kind == JN_LIST ? JV_LIST : JV_TUPLE, count, out))
        return jr_failed(r);
    for (const struct jnode *k = n->kids; k; k = k->next)
        if (eval(r, k, &out->seq->v[i++]))
            return jr_failed(r);
    return 0;
}

static int eval_dict(struct jrun *r, const struct jnode *n, struct jv *out)
{
    if (jv_new_dict(r, JV_DICT, 4, out))
        return jr_failed(r);
    for (const struct jnode *k = n->kids; k; k = k->next->next) {
        struct jv key, value;

        if (eval(r, k, &key) || eval(r, k->next, &value) || jv_put(r, out->dict, &key, &value))
            return jr_failed(r);
    }
    return 0;
}

/* a.name: what Python has under the name, then the element; a[b] the other way round. */
static int eval_attr(struct jrun *r, const struct jnode *n, struct jv *out)
{
    struct jv object, key = jv_name(n->name);
    int       found;

    if (eval(r, n->a, &object) || check_defined(r, &object) || jv_attribute(r, &object, key.s, out, &found))
        return jr_failed(r);
    return found ? 0 : jv_item(r, &object, &key, out);
}

static int eval_item(struct jrun *r, const struct jnode *n, struct jv *out)
{
    struct jv object, key;
    int       found;

    if (eval(r, n->a, &object) || eval(r, n->b, &key) || check_defined(r, &object) || jv_item(r, &object, &key, out))
        return jr_failed(r);
    if (out->kind != JV_UNDEFINED || key.kind != JV_STR)
        return 0;
    return jv_attribute(r, &object, key.s, out, &found);
}

static int eval_slice(struct jrun *r, const struct jnode *n, struct jv *out)
{
    struct jv object, part[3];

    if (eval(r, n->a, &object) || check_defined(r, &object) || (n->b && eval(r, n->b, &part[0])) || (n->c && eval(r, n->c, &part[1])) ||
        (n->d && eval(r, n->d, &part[2])))
        return jr_failed(r);
    return jv_slice(r, &object, n->b ? &part[0] : NULL, n->c ? &part[1] : NULL, n->d ? &part[2] : NULL, out);
}

/* captured: what a filter block's or set block's body printed */
static int eval_filter(struct jrun *r, const struct jnode *n, const struct jv *captured, struct jv *out)
{
    struct jv    v;
    struct jargs args;
    int          rc;

    if (++r->depth > MAX_DEPTH)
        return jr_fail(r, "expressions are nested too deep");
    if (!n->a && captured)
        v = *captured;
    rc = (n->a && (captured ? eval_filter(r, n->a, captured, &v) : eval(r, n->a, &v))) || eval_args(r, n->kids, &args);
    r->line = n->line;
    r->depth--;
    return rc ? jr_failed(r) : jinja_filter(r, n->name, &v, &args, out);
}

static int eval_test(struct jrun *r, const struct jnode *n, struct jv *out)
{
    struct jv    v;
    struct jargs args;
    int          holds;

    if (eval(r, n->a, &v) || eval_args(r, n->kids, &args) || jinja_test(r, n->name, &v, &args, &holds))
        return jr_failed(r);
    *out = jv_bool(holds);
    return 0;
}

static int eval_compare(struct jrun *r, const struct jnode *n, struct jv *out)
{
    struct jv left, right;
    int       holds = 1;

    if (eval(r, n->a, &left))
        return jr_failed(r);
    for (const struct jnode *k = n->kids; k && holds; k = k->next) {
        if (eval(r, k->a, &right) || jinja_compare(r, k->op, &left, &right, &holds))
            return jr_failed(r);
        left = right;
    }
    *out = jv_bool(holds);
    return 0;
}

static int eval_logic(struct jrun *r, const struct jnode *n, struct jv *out)
{
    if (eval(r, n->a, out))
        return jr_failed(r);
    if (n->kind == JN_NOT) {
        *out = jv_bool(!jv_truth(out));
        return 0;
    }
    return jv_truth(out) == (n->kind == JN_AND) ? eval(r, n->b, out) : 0;
}

static int eval_if_else(struct jrun *r, const struct jnode *n, struct jv *out)
{
    struct jv condition;

    if (eval(r, n->b, &condition))
        return jr_failed(r);
    if (jv_truth(&condition))
        return eval(r, n->a, out);
    *out = jv_undefined(jv_text("the value of an if without else").s);
    return n->c ? eval(r, n->c, out) : 0;
}

static int eval_operands(struct jrun *r, const struct jnode *n, struct jv *out)
{
    struct jv a, b;

    if (eval(r, n->a, &a))
        return jr_failed(r);
    if (n->kind == JN_NEG || n->kind == JN_POS)
        return negate(r, n->kind == JN_NEG, &a, out);
    if (eval(r, n->b, &b))
        return jr_failed(r);
    r->line = n->line;
    return n->kind == JN_CONCAT ? concat(r, &a, &b, out) : binary(r, n->op, &a, &b, out);
}

static int eval_kind(struct jrun *r, const struct jnode *n, struct jv *out)
{
    switch (n->kind) {
    case JN_STR: *out = jv_name(n->name); return 0;
    case JN_INT: *out = jv_int(n->i); return 0;
    case JN_REAL: *out = jv_real(n->r); return 0;
    case JN_BOOL: *out = jv_bool((int)n->i); return 0;
    case JN_NONE: *out = jv_none(); return 0;
    case JN_NAME: return look_up(r, n->name, out);
    case JN_LIST:
    case JN_TUPLE: return eval_seq(r, n, out);
    case JN_DICT: return eval_dict(r, n, out);
    case JN_ATTR: return eval_attr(r, n, out);
    case JN_ITEM: return eval_item(r, n, out);
    case JN_SLICE: return eval_slice(r, n, out);
    case JN_CALL: return eval_call(r, n, NULL, out);
    case JN_FILTER: return eval_filter(r, n, NULL, out);
    case JN_TEST: return eval_test(r, n, out);
    case JN_NOT:
    case JN_AND:
    case JN_OR: return eval_logic(r, n, out);
    case JN_COMPARE: return eval_compare(r, n, out);
    case JN_IF_ELSE: return eval_if_else(r, n, out);
    default: return eval_operands(r, n, out);
    }
}

static int eval(struct jrun *r, const struct jnode *n, struct jv *out)
{
    int rc;

    *out = jv_none();
    if (++r->depth > MAX_DEPTH)
        return jr_fail(r, "expressions and calls are nested more than %d deep", MAX_DEPTH);
    r->line = n->line;
    rc = jr_step(r, 1) ? jr_failed(r) : eval_kind(r, n, out);
    r->depth--;
    return rc;
}

/* ---- statements ---------------------------------------------------------------------------------------------- */

/* The elements for which a loop's condition holds. */
static int choose(struct jrun *r, const struct jnode *n, const struct jv **items, size_t *count)
{
    struct jscope *before = r->scope;
    struct jv      kept;
    size_t         k = 0;

    if (jv_new_seq(r, JV_LIST, *count, &kept))
        return jr_failed(r);
    for (size_t i = 0; i < *count; i++) {
        struct jv holds;

        if (push_scope(r, before) || assign(r, n->a, &(*items)[i]) || eval(r, n->c, &holds))
            return jr_failed(r);
        if (jv_truth(&holds))
            kept.seq->v[k++] = (*items)[i];
    }
    r->scope = before;
    *items = kept.seq->v;
    *count = k;
    return 0;
}

static int run_for(struct jrun *r, const struct jnode *n)
{
    struct jscope   *before = r->scope;
    const struct jv *items;
    size_t           count;
    int              finished = 0; /* a round ended without a jump: only then is the else not for this loop, as in Jinja */
    struct jv        over;
    struct jloop    *loop;

    if (eval(r, n->b, &over) || jv_items(r, &over, &items, &count) || (n->c && choose(r, n, &items, &count)) || JR_NEW(r, &loop, 1))
        return jr_failed(r);
    *loop = (struct jloop){.v = items, .n = count};
    for (; loop->at < count && r->jump != JR_BREAK; loop->at++) {
        struct jv object = {.kind = JV_LOOP, .loop = loop};

        r->jump = JR_RUN;
        if (jr_step(r, 1) || push_scope(r, before) || assign_name(r, (struct jname){"loop", 4}, &object) || assign(r, n->a, &items[loop->at]) ||
            run_body(r, n->kids))
            return jr_failed(r);
        finished |= r->jump == JR_RUN;
    }
    r->jump = JR_RUN;
    r->scope = before;
    if (finished || !n->d)
        return 0;
    if (push_scope(r, before) || run_body(r, n->d->kids))
        return jr_failed(r);
    r->scope = before;
    return 0;
}

static int run_if(struct jrun *r, const struct jnode *n)
{
    struct jv holds;

    if (eval(r, n->a, &holds))
        return jr_failed(r);
    if (jv_truth(&holds))
        return run_body(r, n->kids);
    return !n->d ? 0 : n->d->kind == JN_BLOCK ? run_body(r, n->d->kids) : run_if(r, n->d);
}

/* A set block, a filter block: what the body printed, through the filters. */
static int filtered(struct jrun *r, const struct jnode *n, struct jv *out)
{
    struct jscope *before = r->scope;
    struct jv      text;

    if (push_scope(r, before) || capture(r, n->kids, &text))
        return jr_failed(r);
    r->scope = before;
    *out = text;
    return n->b ? eval_filter(r, n->b, &text, out) : 0;
}

static int define_macro(struct jrun *r, const struct jnode *n, const struct jnode *parameters, struct jv *out)
{
    struct jmacro *m;

    if (JR_NEW(r, &m, 1))
        return jr_failed(r);
    *m = (struct jmacro){n, parameters, r->scope};
    *out = (struct jv){.kind = JV_MACRO, .macro = m};
    return 0;
}

static int print(struct jrun *r, const struct jv *v) { return jb_value(r, r->out, v); }

static int run_call_block(struct jrun *r, const struct jnode *n)
{
    struct jv caller, text;

    return define_macro(r, n, n->a, &caller) || eval_call(r, n->b, &caller, &text) || print(r, &text) ? jr_failed(r) : 0;
}

static int run_block(struct jrun *r, const struct jnode *n)
{
    struct jscope *before = r->scope;

    if (push_scope(r, before) || run_body(r, n->kids))
        return jr_failed(r);
    r->scope = before;
    return 0;
}

static int run(struct jrun *r, const struct jnode *n)
{
    struct jv v;

    r->line = n->line;
    switch (n->kind) {
    case JN_DATA: return jb_add(r, r->out, n->name.p, n->name.n, NULL);
    case JN_PRINT: return eval(r, n->a, &v) || print(r, &v) ? jr_failed(r) : 0;
    case JN_FOR: return run_for(r, n);
    case JN_IF: return run_if(r, n);
    case JN_SET: return eval(r, n->b, &v) || assign(r, n->a, &v) ? jr_failed(r) : 0;
    case JN_SET_BLOCK: return filtered(r, n, &v) || assign(r, n->a, &v) ? jr_failed(r) : 0;
    case JN_FILTER_BLOCK: return filtered(r, n, &v) || print(r, &v) ? jr_failed(r) : 0;
    case JN_MACRO: return define_macro(r, n, n->a, &v) || assign_name(r, n->name, &v) ? jr_failed(r) : 0;
    case JN_CALL_BLOCK: return run_call_block(r, n);
    case JN_BLOCK: return run_block(r, n);
    case JN_BREAK: r->jump = JR_BREAK; return 0;
    case JN_CONTINUE: r->jump = JR_CONTINUE; return 0;
    default: return jr_fail(r, "a statement of an unknown kind");
    }
}

static int run_body(struct jrun *r, const struct jnode *kids)
{
    int rc = 0;

    if (++r->depth > MAX_DEPTH)
        return jr_fail(r, "blocks and calls are nested more than %d deep", MAX_DEPTH);
    for (const struct jnode *n = kids; n && !rc && r->jump == JR_RUN; n = n->next)
        rc = jr_step(r, 1) ? jr_failed(r) : run(r, n);
    r->depth--;
    return rc;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static size_t longest(const json_t *j)
{
    size_t      n = 0, index;
    const char *key;
    json_t     *v;

    if (json_is_string(j))
        return json_string_length(j);
    json_object_foreach((json_t *)j, key, v)
    {
        size_t a = strlen(key), b = longest(v);

        n = a > n ? a : n;
        n = b > n ? b : n;
    }
    json_array_foreach(j, index, v)
    {
        size_t b = longest(v);

        n = b > n ? b : n;
    }
    return n;
}

static size_t total(const json_t *j)
{
    size_t      n = 0, index;
    const char *key;
    json_t     *v;

    if (json_is_string(j))
        return json_string_length(j);
    json_object_foreach((json_t *)j, key, v) n += strlen(key) + total(v);
    json_array_foreach(j, index, v) n += total(v);
    return n + 1;
}

static int set_context(struct jrun *r, const json_t *context)
{
    const char *key;
    json_t     *value;
    size_t      n = longest(context);

    if (JR_NEW(r, &r->ones, n + 1) || push_scope(r, NULL))
        return jr_failed(r);
    memset(r->ones, 1, n);
    json_object_foreach((json_t *)context, key, value)
    {
        int       marked = !strcmp(key, "messages") || !strcmp(key, "tools") || !strcmp(key, "documents");
        struct jv v;

        if (jv_from_json(r, value, marked, &v) || assign_name(r, (struct jname){key, strlen(key)}, &v))
            return jr_failed(r);
    }
    return push_scope(r, r->scope);
}

static int append_all(const struct jbuf *b, struct llmq_str *text, struct llmq_str *marks, struct llmq_err *err)
{
    static const char zeros[256];

    if (llmq_str_append(text, b->p ? b->p : "", b->n, err))
        return err->code;
    if (b->mark)
        return llmq_str_append(marks, b->mark, b->n, err);
    for (size_t i = 0; i < b->n; i += sizeof zeros)
        if (llmq_str_append(marks, zeros, b->n - i < sizeof zeros ? b->n - i : sizeof zeros, err))
            return err->code;
    return 0;
}

int jinja_render(const struct jinja *t, const json_t *context, time_t now, struct llmq_str *text, struct llmq_str *marks, struct llmq_err *err)
{
    struct jbuf out = {0};
    struct jrun r = {.limit = MEMORY + MEMORY_PER_BYTE * total(context), .now = now, .line = 1, .out = &out, .err = err};
    int         rc = set_context(&r, context);

    if (!rc)
        rc = run_body(&r, t->root->kids);
    if (!rc)
        rc = append_all(&out, text, marks, err);
    llmq_arena_free(&r.arena);
    return rc;
}

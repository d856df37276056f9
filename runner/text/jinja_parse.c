/* Tokens to a tree, by recursive descent with Jinja's precedences: see jinja_tree.h. */
#include "runner/text/jinja.h"
#include "runner/text/jinja_tree.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DEPTH = 200 };

struct parser {
    struct llmq_arena *arena;
    struct jtok       *t; /* the next token */
    int                depth, loops, mentions; /* of the macro that is being read: JM_CALLER and so on */
    struct llmq_err   *err;
};

int jinja_failed_at(struct llmq_err *err, int line, const char *fmt, ...)
{
    char    text[400];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return llmq_fail(err, LLMQ_EFORMAT, "chat template, line %d: %s", line, text);
}

static int is_word(const struct jtok *t, const char *word)
{
    return t->kind == JT_NAME && t->text.n == strlen(word) && !memcmp(t->text.p, word, t->text.n);
}

static int is_op(const struct jtok *t, const char *op)
{
    return t->kind == JT_OP && t->text.n == strlen(op) && !memcmp(t->text.p, op, t->text.n);
}

static int take_op(struct parser *p, const char *op)
{
    if (!is_op(p->t, op))
        return 0;
    p->t++;
    return 1;
}

static int take_word(struct parser *p, const char *word)
{
    if (!is_word(p->t, word))
        return 0;
    p->t++;
    return 1;
}

/* The parse functions return NULL when they fail. */
static void *unexpected(struct parser *p, const char *expected)
{
    const struct jtok *t = p->t;

    if (t->kind == JT_END)
        jinja_failed_at(p->err, t->line, "the template ends, expected %s", expected);
    else if (t->kind == JT_BLOCK_END || t->kind == JT_PRINT_END)
        jinja_failed_at(p->err, t->line, "the tag ends, expected %s", expected);
    else
        jinja_failed_at(p->err, t->line, "found '%.*s', expected %s", (int)(t->text.n > 60 ? 60 : t->text.n), t->text.p ? t->text.p : "", expected);
    return NULL;
}

static int need_op(struct parser *p, const char *op)
{
    char what[8];

    if (take_op(p, op))
        return 1;
    snprintf(what, sizeof what, "'%s'", op);
    unexpected(p, what);
    return 0;
}

static struct jnode *node(struct parser *p, enum jnode_kind kind, int line)
{
    struct jnode *n;

    if (LLMQ_ARENA_NEW(p->arena, &n, 1, "a template", p->err))
        return NULL;
    n->kind = kind;
    n->line = line;
    return n;
}

static struct jnode *unary(struct parser *p, enum jnode_kind kind, int line, struct jnode *a)
{
    struct jnode *n = a ? node(p, kind, line) : NULL;

    if (n)
        n->a = a;
    return n;
}

static struct jnode *binary(struct parser *p, enum jnode_kind kind, int op, int line, struct jnode *a, struct jnode *b)
{
    struct jnode *n = a && b ? node(p, kind, line) : NULL;

    if (n) {
        n->op = op;
        n->a = a;
        n->b = b;
    }
    return n;
}

/* ---- expressions -------------------------------------------------------------------------------- */

static struct jnode *parse_expr(struct parser *p);
static struct jnode *parse_or(struct parser *p);
static struct jnode *parse_unary(struct parser *p, int filters);

/* a, b, c up to `close`; in a call name=value too.  NULL in *list is an empty list. */
static int parse_list(struct parser *p, const char *close, int call, struct jnode **list)
{
    struct jnode **tail = list;

    *list = NULL;
    while (!take_op(p, close)) {
        struct jnode *n;

        if (call && p->t->kind == JT_NAME && is_op(p->t + 1, "=")) {
            struct jname name = p->t->text;
            int          line = p->t->line;

            p->t += 2;
            n = unary(p, JN_KEYWORD, line, parse_expr(p));
            if (n)
                n->name = name;
        } else if (call && (is_op(p->t, "*") || is_op(p->t, "**"))) {
            n = unexpected(p, "an argument (unpacking is not supported)");
        } else {
            n = parse_expr(p);
        }
        if (!n)
            return 0;
        *tail = n;
        tail = &n->next;
        if (!is_op(p->t, close) && !need_op(p, ","))
            return 0;
    }
    return 1;
}

static struct jnode *parse_dict(struct parser *p, int line)
{
    struct jnode *n = node(p, JN_DICT, line), **tail = n ? &n->kids : NULL;

    while (n && !take_op(p, "}")) {
        struct jnode *key = parse_expr(p), *value = key && need_op(p, ":") ? parse_expr(p) : NULL;

        if (!value)
            return NULL;
        *tail = key;
        key->next = value;
        tail = &value->next;
        if (!is_op(p->t, "}") && !need_op(p, ","))
            return NULL;
    }
    return n;
}

/* Behind an opening round bracket: an expression in brackets, or a tuple. */
static struct jnode *parse_brackets(struct parser *p, int line)
{
    struct jnode *first, *n;

    if (!is_op(p->t, ")")) {
        first = parse_expr(p);
        if (!first || take_op(p, ")"))
            return first;
        if (!need_op(p, ","))
            return NULL;
    } else {
        first = NULL;
    }
    n = node(p, JN_TUPLE, line);
    if (!n || !parse_list(p, ")", 0, first ? &first->next : &n->kids))
        return NULL;
    if (first)
        n->kids = first;
    return n;
}

/* Strings side by side are one string. */
static struct jnode *parse_strings(struct parser *p)
{
    struct jnode *n = node(p, JN_STR, p->t->line);
    struct jtok  *first = p->t;
    size_t        len = 0;
    char         *text;

    while (n && p->t->kind == JT_STR)
        len += p->t++->text.n;
    if (!n || LLMQ_ARENA_NEW(p->arena, &text, len + 1, "a string", p->err))
        return NULL;
    n->name = (struct jname){text, len};
    for (; first < p->t; first++) {
        memcpy(text, first->text.p, first->text.n);
        text += first->text.n;
    }
    return n;
}

static struct jnode *parse_word(struct parser *p)
{
    static const struct { const char *word; enum jnode_kind kind; int i; } constants[] = {
        {"true", JN_BOOL, 1}, {"True", JN_BOOL, 1}, {"false", JN_BOOL, 0}, {"False", JN_BOOL, 0}, {"none", JN_NONE, 0}, {"None", JN_NONE, 0}};
    struct jnode *n = node(p, JN_NAME, p->t->line);

    if (!n)
        return NULL;
    n->name = p->t->text;
    p->mentions |= (is_word(p->t, "caller") ? JM_CALLER : 0) | (is_word(p->t, "varargs") ? JM_VARARGS : 0) | (is_word(p->t, "kwargs") ? JM_KWARGS : 0);
    for (size_t i = 0; i < sizeof constants / sizeof constants[0]; i++)
        if (is_word(p->t, constants[i].word)) {
            n->kind = constants[i].kind;
            n->i = constants[i].i;
        }
    p->t++;
    return n;
}

static struct jnode *parse_primary(struct parser *p)
{
    int           line = p->t->line;
    struct jnode *n;

    switch (p->t->kind) {
    case JT_NAME: return parse_word(p);
    case JT_STR: return parse_strings(p);
    case JT_INT:
    case JT_REAL:
        n = node(p, p->t->kind == JT_INT ? JN_INT : JN_REAL, line);
        if (n) {
            n->i = p->t->i;
            n->r = p->t->r;
        }
        p->t++;
        return n;
    default: break;
    }
    if (take_op(p, "("))
        return parse_brackets(p, line);
    if (take_op(p, "[")) {
        n = node(p, JN_LIST, line);
        return n && parse_list(p, "]", 0, &n->kids) ? n : NULL;
    }
    return take_op(p, "{") ? parse_dict(p, line) : unexpected(p, "an expression");
}

/* Behind an opening square bracket. */
static struct jnode *parse_subscript(struct parser *p, struct jnode *a)
{
    struct jnode *n = unary(p, JN_ITEM, p->t->line, a), **part[] = {n ? &n->b : NULL, n ? &n->c : NULL, n ? &n->d : NULL};

    for (int i = 0; n && i < 3; i++) {
        if (!is_op(p->t, ":") && !is_op(p->t, "]") && !(*part[i] = parse_expr(p)))
            return NULL;
        if (i == 0 && n->b && take_op(p, ",")) { /* a[b, c]: the index is a tuple */
            struct jnode *tuple = node(p, JN_TUPLE, n->line);

            if (!tuple || !parse_list(p, "]", 0, &n->b->next))
                return NULL;
            tuple->kids = n->b;
            n->b = tuple;
            return n;
        }
        if (!take_op(p, ":"))
            break;
        n->kind = JN_SLICE;
    }
    if (n && n->kind == JN_ITEM && !n->b) /* a[]: the empty tuple */
        n->b = node(p, JN_TUPLE, n->line);
    return n && need_op(p, "]") ? n : NULL;
}

static struct jnode *parse_attribute(struct parser *p, struct jnode *a)
{
    struct jnode *n = unary(p, JN_ATTR, p->t->line, a);

    if (!n)
        return NULL;
    if (p->t->kind == JT_INT) { /* a.0 */
        n->kind = JN_ITEM;
        n->b = parse_primary(p);
        return n->b ? n : NULL;
    }
    if (p->t->kind != JT_NAME)
        return unexpected(p, "a name");
    n->name = p->t++->text;
    return n;
}

static struct jnode *parse_call(struct parser *p, struct jnode *a)
{
    struct jnode *n = unary(p, JN_CALL, p->t->line, a);

    return n && parse_list(p, ")", 1, &n->kids) ? n : NULL;
}

static struct jnode *parse_postfix(struct parser *p, struct jnode *n)
{
    while (n) {
        if (take_op(p, "."))
            n = parse_attribute(p, n);
        else if (take_op(p, "["))
            n = parse_subscript(p, n);
        else if (take_op(p, "("))
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}

static struct jnode *parse_filter(struct parser *p, struct jnode *a)
{
    struct jnode *n = node(p, JN_FILTER, p->t->line);

    if (!n)
        return NULL;
    if (p->t->kind != JT_NAME)
        return unexpected(p, "a filter's name");
    n->a = a;
    n->name = p->t++->text;
    return !take_op(p, "(") || parse_list(p, ")", 1, &n->kids) ? n : NULL;
}

/* Behind "is": a test's argument may stand without brackets. */
static struct jnode *parse_test(struct parser *p, struct jnode *a)
{
    int           not = take_word(p, "not");
    struct jnode *n = unary(p, JN_TEST, p->t->line, a);

    if (!n)
        return NULL;
    if (p->t->kind != JT_NAME)
        return unexpected(p, "a test's name");
    n->name = p->t++->text;
    if (take_op(p, "(")) {
        if (!parse_list(p, ")", 1, &n->kids))
            return NULL;
    } else if ((p->t->kind == JT_NAME && !is_word(p->t, "else") && !is_word(p->t, "or") && !is_word(p->t, "and")) ||
               p->t->kind == JT_STR || p->t->kind == JT_INT || p->t->kind == JT_REAL || is_op(p->t, "[") || is_op(p->t, "{")) {
        n->kids = is_word(p->t, "is") ? unexpected(p, "one test only") : parse_postfix(p, parse_primary(p));
        if (!n->kids)
            return NULL;
    }
    return not ? unary(p, JN_NOT, n->line, n) : n;
}

static struct jnode *parse_filters(struct parser *p, struct jnode *n)
{
    while (n) {
        if (take_op(p, "|"))
            n = parse_filter(p, n);
        else if (take_word(p, "is"))
            n = parse_test(p, n);
        else if (take_op(p, "("))
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}

static struct jnode *parse_unary(struct parser *p, int filters)
{
    int           line = p->t->line;
    struct jnode *n;

    if (++p->depth > MAX_DEPTH) {
        jinja_failed_at(p->err, line, "expressions are nested more than %d deep", MAX_DEPTH);
        return NULL;
    }
    if (take_op(p, "-"))
        n = unary(p, JN_NEG, line, parse_unary(p, 0));
    else if (take_op(p, "+"))
        n = unary(p, JN_POS, line, parse_unary(p, 0));
    else
        n = parse_primary(p);
    n = parse_postfix(p, n);
    if (filters)
        n = parse_filters(p, n);
    p->depth--;
    return n;
}

static struct jnode *parse_pow(struct parser *p)
{
    struct jnode *n = parse_unary(p, 1);
    int           line = p->t->line;

    while (n && take_op(p, "**"))
        n = binary(p, JN_BINARY, JO_POW, line, n, parse_unary(p, 1));
    return n;
}

static int op_code(const struct jtok *t) { return t->text.n == 2 ? t->text.p[0] << 8 | t->text.p[1] : t->text.p[0]; }

static struct jnode *parse_product(struct parser *p)
{
    struct jnode *n = parse_pow(p);

    while (n && (is_op(p->t, "*") || is_op(p->t, "/") || is_op(p->t, "//") || is_op(p->t, "%"))) {
        int op = op_code(p->t), line = p->t++->line;

        n = binary(p, JN_BINARY, op, line, n, parse_pow(p));
    }
    return n;
}

static struct jnode *parse_concat(struct parser *p)
{
    struct jnode *n = parse_product(p);
    int           line = p->t->line;

    while (n && take_op(p, "~"))
        n = binary(p, JN_CONCAT, '~', line, n, parse_product(p));
    return n;
}

static struct jnode *parse_sum(struct parser *p)
{
    struct jnode *n = parse_concat(p);

    while (n && (is_op(p->t, "+") || is_op(p->t, "-"))) {
        int op = op_code(p->t), line = p->t++->line;

        n = binary(p, JN_BINARY, op, line, n, parse_concat(p));
    }
    return n;
}

/* The comparison that stands here, behind it; 0: none. */
static int take_comparison(struct parser *p)
{
    static const char *const ops[] = {"==", "!=", ">=", "<=", ">", "<"};

    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        if (is_op(p->t, ops[i]))
            return op_code(p->t++);
    if (take_word(p, "in"))
        return JO_IN;
    if (!is_word(p->t, "not") || !is_word(p->t + 1, "in"))
        return 0;
    p->t += 2;
    return JO_NOT_IN;
}

static struct jnode *parse_compare(struct parser *p)
{
    struct jnode *n = parse_sum(p), *chain = NULL, **tail = NULL;
    int           op, line = p->t->line;

    while (n && (op = take_comparison(p))) {
        struct jnode *operand = unary(p, JN_OPERAND, line, parse_sum(p));

        if (!operand)
            return NULL;
        operand->op = op;
        if (!chain) {
            chain = unary(p, JN_COMPARE, line, n);
            if (!chain)
                return NULL;
            tail = &chain->kids;
        }
        *tail = operand;
        tail = &operand->next;
    }
    return chain ? chain : n;
}

static struct jnode *parse_not(struct parser *p)
{
    int           line = p->t->line;
    struct jnode *n;

    if (!take_word(p, "not"))
        return parse_compare(p);
    if (++p->depth > MAX_DEPTH) {
        jinja_failed_at(p->err, line, "expressions are nested more than %d deep", MAX_DEPTH);
        return NULL;
    }
    n = unary(p, JN_NOT, line, parse_not(p));
    p->depth--;
    return n;
}

static struct jnode *parse_and(struct parser *p)
{
    struct jnode *n = parse_not(p);
    int           line = p->t->line;

    while (n && take_word(p, "and"))
        n = binary(p, JN_AND, 0, line, n, parse_not(p));
    return n;
}

static struct jnode *parse_or(struct parser *p)
{
    struct jnode *n = parse_and(p);
    int           line = p->t->line;

    while (n && take_word(p, "or"))
        n = binary(p, JN_OR, 0, line, n, parse_and(p));
    return n;
}

static struct jnode *parse_if_else(struct parser *p)
{
    struct jnode *n = parse_or(p);

    while (n && is_word(p->t, "if")) {
        int line = p->t++->line;

        n = binary(p, JN_IF_ELSE, 0, line, n, parse_or(p));
        if (n && take_word(p, "else") && !(n->c = parse_expr(p)))
            return NULL;
    }
    return n;
}

static struct jnode *parse_expr(struct parser *p)
{
    struct jnode *n;

    if (++p->depth > MAX_DEPTH) {
        jinja_failed_at(p->err, p->t->line, "expressions are nested more than %d deep", MAX_DEPTH);
        return NULL;
    }
    n = parse_if_else(p);
    p->depth--;
    return n;
}

/* a, b without brackets is a tuple.  with_if: may an inline if follow (not in a for's iterable)? */
static struct jnode *parse_tuple(struct parser *p, int with_if)
{
    int           line = p->t->line;
    struct jnode *n = with_if ? parse_expr(p) : parse_or(p), *tuple, **tail;

    if (!n || !is_op(p->t, ","))
        return n;
    tuple = node(p, JN_TUPLE, line);
    if (!tuple)
        return NULL;
    tuple->kids = n;
    tail = &n->next;
    while (take_op(p, ",") && p->t->kind != JT_BLOCK_END && p->t->kind != JT_PRINT_END) {
        n = with_if ? parse_expr(p) : parse_or(p);
        if (!n)
            return NULL;
        *tail = n;
        tail = &n->next;
    }
    return tuple;
}

/* ---- statements ---------------------------------------------------------------------------------- */

static int parse_body(struct parser *p, struct jnode **kids, const char *const *ends);

static int end_tag(struct parser *p)
{
    if (p->t->kind == JT_BLOCK_END) {
        p->t++;
        return 1;
    }
    unexpected(p, "the end of the tag");
    return 0;
}

/* The body of a statement up to its end tag, which is taken. */
static int parse_until(struct parser *p, struct jnode **kids, const char *end)
{
    const char *const ends[] = {end, NULL};

    if (!parse_body(p, kids, ends))
        return 0;
    p->t++;
    if (p->t->kind == JT_NAME) /* {% endmacro name %} */
        p->t++;
    return end_tag(p);
}

static struct jnode *parse_target(struct parser *p);

/* A name, namespace.name, or targets in brackets. */
static struct jnode *parse_one_target(struct parser *p)
{
    struct jnode *n;

    if (take_op(p, "(")) {
        if (++p->depth > MAX_DEPTH)
            return unexpected(p, "fewer brackets");
        n = parse_target(p);
        p->depth--;
        return n && need_op(p, ")") ? n : NULL;
    }
    if (p->t->kind != JT_NAME)
        return unexpected(p, "a name");
    n = parse_word(p);
    if (n && n->kind != JN_NAME) {
        p->t--;
        return unexpected(p, "a name that can be assigned to");
    }
    return n && take_op(p, ".") ? parse_attribute(p, n) : n;
}

/* a, or a, (b, c): what a for or a set assigns to. */
static struct jnode *parse_target(struct parser *p)
{
    struct jnode *n = parse_one_target(p), *tuple, **tail;

    if (!n || !is_op(p->t, ","))
        return n;
    tuple = unary(p, JN_TUPLE, n->line, n);
    if (!tuple)
        return NULL;
    tuple->a = NULL;
    tuple->kids = n;
    tail = &n->next;
    while (take_op(p, ",")) {
        if (is_word(p->t, "in") || is_op(p->t, "=") || is_op(p->t, ")"))
            break;
        n = parse_one_target(p);
        if (!n)
            return NULL;
        *tail = n;
        tail = &n->next;
    }
    return tuple;
}

static struct jnode *parse_for(struct parser *p, int line)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    struct jnode            *n = node(p, JN_FOR, line);
    int                      ok;

    if (!n || !(n->a = parse_target(p)))
        return NULL;
    if (!take_word(p, "in"))
        return unexpected(p, "'in'");
    if (!(n->b = parse_tuple(p, 0)) || (take_word(p, "if") && !(n->c = parse_expr(p))))
        return NULL;
    if (is_word(p->t, "recursive"))
        return unexpected(p, "the end of the tag (recursive loops are not supported)");
    p->loops++;
    ok = end_tag(p) && parse_body(p, &n->kids, ends);
    p->loops--;
    if (!ok)
        return NULL;
    if (is_word(p->t, "else")) {
        p->t++;
        n->d = node(p, JN_BLOCK, line);
        return n->d && end_tag(p) && parse_until(p, &n->d->kids, "endfor") ? n : NULL;
    }
    p->t++;
    return end_tag(p) ? n : NULL;
}

static struct jnode *parse_if(struct parser *p, int line)
{
    static const char *const ends[] = {"endif", "elif", "else", NULL};
    struct jnode            *n = node(p, JN_IF, line), *at = n;

    while (at) {
        if (!(at->a = parse_tuple(p, 0)) || !end_tag(p) || !parse_body(p, &at->kids, ends))
            return NULL;
        if (take_word(p, "elif")) {
            at = at->d = node(p, JN_IF, p->t->line);
            continue;
        }
        if (take_word(p, "else")) {
            at->d = node(p, JN_BLOCK, p->t->line);
            return at->d && end_tag(p) && parse_until(p, &at->d->kids, "endif") ? n : NULL;
        }
        p->t++;
        return end_tag(p) ? n : NULL;
    }
    return NULL;
}

/* {% set a = 1 %}, {% set a.b = 1 %}, {% set a %}...{% endset %} */
static struct jnode *parse_set(struct parser *p, int line)
{
    struct jnode *n = node(p, JN_SET, line);

    if (!n || !(n->a = parse_target(p)))
        return NULL;
    if (take_op(p, "="))
        return (n->b = parse_tuple(p, 1)) && end_tag(p) ? n : NULL;
    n->kind = JN_SET_BLOCK;
    while (take_op(p, "|"))
        if (!(n->b = parse_filter(p, n->b)))
            return NULL;
    return end_tag(p) && parse_until(p, &n->kids, "endset") ? n : NULL;
}

/* (a, b=1) of a macro. */
static struct jnode *parse_parameters(struct parser *p)
{
    struct jnode *list = node(p, JN_BLOCK, p->t->line), **tail = list ? &list->kids : NULL;
    int           defaults = 0;

    while (list && !take_op(p, ")")) {
        struct jnode *n = node(p, JN_KEYWORD, p->t->line);

        if (!n)
            return NULL;
        if (p->t->kind != JT_NAME)
            return unexpected(p, "a parameter's name");
        for (const struct jnode *other = list->kids; other; other = other->next)
            if (other->name.n == p->t->text.n && !memcmp(other->name.p, p->t->text.p, other->name.n))
                return unexpected(p, "another name: there is a parameter of this one");
        n->name = p->t++->text;
        if (take_op(p, "=") && !(n->a = parse_expr(p)))
            return NULL;
        if (!n->a && defaults)
            return unexpected(p, "a default, as the parameter in front has one");
        defaults = n->a != NULL;
        *tail = n;
        tail = &n->next;
        if (!is_op(p->t, ")") && !need_op(p, ","))
            return NULL;
    }
    return list;
}

static struct jnode *parse_macro(struct parser *p, int line)
{
    struct jnode *n = node(p, JN_MACRO, line);
    int           loops = p->loops, mentions = p->mentions, ok;

    if (!n)
        return NULL;
    if (p->t->kind != JT_NAME)
        return unexpected(p, "a macro's name");
    n->name = p->t++->text;
    p->loops = p->mentions = 0;
    ok = need_op(p, "(") && (n->a = parse_parameters(p)) && end_tag(p) && parse_until(p, &n->kids, "endmacro");
    n->op = p->mentions;
    p->mentions |= mentions;
    p->loops = loops;
    return ok ? n : NULL;
}

/* {% call(a) name(b) %}...{% endcall %} */
static struct jnode *parse_call_block(struct parser *p, int line)
{
    struct jnode *n = node(p, JN_CALL_BLOCK, line);
    int           loops = p->loops, mentions = p->mentions, ok;

    if (!n)
        return NULL;
    n->a = take_op(p, "(") ? parse_parameters(p) : node(p, JN_BLOCK, line);
    if (!n->a || !(n->b = parse_postfix(p, parse_primary(p))))
        return NULL;
    if (n->b->kind != JN_CALL)
        return unexpected(p, "a call");
    mentions |= p->mentions;
    p->loops = p->mentions = 0;
    ok = end_tag(p) && parse_until(p, &n->kids, "endcall");
    n->op = p->mentions;
    p->mentions |= mentions;
    p->loops = loops;
    return ok ? n : NULL;
}

static struct jnode *parse_filter_block(struct parser *p, int line)
{
    struct jnode *n = node(p, JN_FILTER_BLOCK, line);

    if (!n || !(n->b = parse_filter(p, NULL)))
        return NULL;
    while (take_op(p, "|"))
        if (!(n->b = parse_filter(p, n->b)))
            return NULL;
    return end_tag(p) && parse_until(p, &n->kids, "endfilter") ? n : NULL;
}

/* {% generation %} marks the assistant's part for training; what is in it is printed. */
static struct jnode *parse_generation(struct parser *p, int line)
{
    struct jnode *n = node(p, JN_BLOCK, line);

    return n && end_tag(p) && parse_until(p, &n->kids, "endgeneration") ? n : NULL;
}

static struct jnode *parse_jump(struct parser *p, int line)
{
    struct jnode *n;

    p->t--;
    if (!p->loops)
        return unexpected(p, "it inside of a loop");
    n = node(p, is_word(p->t, "break") ? JN_BREAK : JN_CONTINUE, line);
    p->t++;
    return n && end_tag(p) ? n : NULL;
}

static struct jnode *parse_statement(struct parser *p)
{
    static const struct { const char *word; struct jnode *(*parse)(struct parser *, int); } known[] = {
        {"for", parse_for}, {"if", parse_if}, {"set", parse_set}, {"macro", parse_macro}, {"call", parse_call_block},
        {"filter", parse_filter_block}, {"generation", parse_generation}, {"break", parse_jump}, {"continue", parse_jump}};
    int line = p->t->line;

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (take_word(p, known[i].word))
            return known[i].parse(p, line);
    return unexpected(p, "a statement that is supported");
}

static struct jnode *parse_print(struct parser *p)
{
    struct jnode *n = unary(p, JN_PRINT, p->t->line, parse_tuple(p, 1));

    if (n && p->t->kind != JT_PRINT_END)
        return unexpected(p, "the end of the tag");
    if (n)
        p->t++;
    return n;
}

static int at_end(const struct parser *p, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (p->t->kind == JT_BLOCK_BEGIN && is_word(p->t + 1, *ends))
            return 1;
    return 0;
}

/* Statements up to a tag that begins with one of ends (its word is next then), or up to the template's end. */
static int parse_body(struct parser *p, struct jnode **kids, const char *const *ends)
{
    if (++p->depth > MAX_DEPTH) {
        jinja_failed_at(p->err, p->t->line, "blocks are nested more than %d deep", MAX_DEPTH);
        return 0;
    }
    while (!at_end(p, ends)) {
        struct jnode *n = NULL;
        enum jtok_kind kind = p->t->kind;

        if (kind == JT_END) {
            if (ends) {
                char what[40];

                snprintf(what, sizeof what, "{%% %s %%}", ends[0]);
                unexpected(p, what);
                return 0;
            }
            break;
        }
        if (kind == JT_DATA) {
            n = node(p, JN_DATA, p->t->line);
            if (n)
                n->name = p->t->text;
            p->t++;
        } else {
            p->t++;
            n = kind == JT_PRINT_BEGIN ? parse_print(p) : parse_statement(p);
        }
        if (!n)
            return 0;
        *kids = n;
        kids = &n->next;
    }
    p->depth--;
    if (ends)
        p->t++;
    return 1;
}

static int parse_all(struct jinja *t, const char *text, size_t len, struct llmq_err *err)
{
    struct parser p = {.arena = &t->arena, .err = err};

    if (jinja_lex(&t->arena, text, len, &p.t, err))
        return err->code;
    t->root = node(&p, JN_BLOCK, 1);
    return t->root && parse_body(&p, &t->root->kids, NULL) ? 0 : err->code;
}

int jinja_parse(struct jinja **out, const char *text, size_t len, struct llmq_err *err)
{
    struct jinja *t;

    *out = NULL;
    if (LLMQ_NEW(&t, 1, "a chat template", err))
        return err->code;
    if (parse_all(t, text, len, err)) {
        jinja_free(t);
        return err->code;
    }
    *out = t;
    return 0;
}

void jinja_free(struct jinja *t)
{
    if (!t)
        return;
    llmq_arena_free(&t->arena);
    llmq_free(t);
}

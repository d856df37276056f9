#ifndef LLMQ_RUNNER_TEXT_JINJA_TREE_H
#define LLMQ_RUNNER_TEXT_JINJA_TREE_H

/* What a template is parsed into (jinja_lex.c, jinja_parse.c), for jinja_eval.c. */

#include "common/alloc.h"
#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

/* Bytes that stand in the tree's arena; no zero behind them. */
struct jname {
    const char *p;
    size_t      n;
};

/* ---- tokens ---------------------------------------------------------------------------------- */

enum jtok_kind {
    JT_END, JT_DATA, JT_BLOCK_BEGIN, JT_BLOCK_END, JT_PRINT_BEGIN, JT_PRINT_END,
    JT_NAME, JT_INT, JT_REAL, JT_STR,
    JT_OP /* text says which: one or two characters */
};

struct jtok {
    enum jtok_kind kind;
    int            line;
    struct jname   text; /* data, name, operator, or a string's value */
    int64_t        i;
    double         r;
};

/* The tokens of a template, JT_END last, in the arena. */
int jinja_lex(struct llmq_arena *a, const char *text, size_t len, struct jtok **out, struct llmq_err *err) LLMQ_MUST_CHECK;

/* Python's str.isspace */
int jinja_is_space(uint32_t c);
/* What \w matches in Python's re. */
int jinja_is_word(uint32_t c);

/* ---- the tree ---------------------------------------------------------------------------------- */

enum jnode_kind {
    /* expressions */
    JN_STR, JN_INT, JN_REAL, JN_BOOL, JN_NONE, /* name, i, r */
    JN_NAME,
    JN_LIST, JN_TUPLE, /* kids */
    JN_DICT,           /* kids: key, value, key, value */
    JN_ATTR,           /* a.name */
    JN_ITEM,           /* a[b] */
    JN_SLICE,          /* a[b:c:d], each may be NULL */
    JN_CALL,           /* a(kids) */
    JN_KEYWORD,        /* name=a, among the kids of a call */
    JN_FILTER, JN_TEST, /* a|name(kids), a is name(kids); JN_FILTER's a is NULL in a filter block */
    JN_NEG, JN_POS, JN_NOT, JN_AND, JN_OR,
    JN_BINARY,  /* a op b */
    JN_CONCAT,  /* a ~ b */
    JN_COMPARE, /* a op kids[0] op kids[1]: each kid a JN_OPERAND */
    JN_OPERAND, /* op a */
    JN_IF_ELSE, /* a if b else c; c may be NULL */
    /* statements */
    JN_DATA, JN_PRINT,    /* name; a */
    JN_FOR,               /* a: target, b: iterable, c: condition or NULL, d: else or NULL, kids: body */
    JN_IF,                /* a: condition, kids: body, d: else (JN_BLOCK) or NULL */
    JN_SET,               /* a: target, b: value */
    JN_SET_BLOCK,         /* a: target, b: chain of filters or NULL, kids: body */
    JN_MACRO,             /* name, a: JN_BLOCK of parameters (JN_KEYWORD; a: default or NULL), kids: body */
    JN_CALL_BLOCK,        /* b: JN_CALL, a: parameters of caller, kids: body */
    JN_FILTER_BLOCK,      /* b: chain of filters, kids: body */
    JN_BLOCK,             /* kids */
    JN_BREAK, JN_CONTINUE
};

/* Two-character operators are op[0] << 8 | op[1]. */
enum { JO_EQ = '=' << 8 | '=', JO_NE = '!' << 8 | '=', JO_GE = '>' << 8 | '=', JO_LE = '<' << 8 | '=', JO_FLOOR = '/' << 8 | '/',
       JO_POW = '*' << 8 | '*', JO_IN = 'i' << 8 | 'n', JO_NOT_IN = 'n' << 8 | 'i' };

/* What a macro's body mentions, in JN_MACRO's and JN_CALL_BLOCK's op: it takes arguments without a parameter then. */
enum { JM_CALLER = 1, JM_VARARGS = 2, JM_KWARGS = 4 };

struct jnode {
    enum jnode_kind kind;
    int             op, line;
    struct jname    name;
    int64_t         i;
    double          r;
    struct jnode   *a, *b, *c, *d, *kids, *next;
};

struct jinja {
    struct llmq_arena arena;
    struct jnode     *root; /* JN_BLOCK */
};

int jinja_failed_at(struct llmq_err *err, int line, const char *fmt, ...) LLMQ_PRINTF(3, 4);

#endif

#ifndef LLMQ_RUNNER_TEXT_JINJA_VALUE_H
#define LLMQ_RUNNER_TEXT_JINJA_VALUE_H

/* The values of a template that is being rendered, with Python's meanings, and what they stand on: see jinja.h.
 *
 * All memory comes from the run's arena and lives as long as the run.  Values never change, except for namespaces;
 * so they are copied and shared freely.  Functions return 0 or the error's code. */

#include "runner/text/jinja_tree.h"

#include <jansson.h>
#include <time.h>

enum jv_kind { JV_UNDEFINED, JV_NONE, JV_BOOL, JV_INT, JV_REAL, JV_STR, JV_LIST, JV_TUPLE, JV_DICT, JV_NAMESPACE, JV_LOOP, JV_MACRO, JV_GLOBAL, JV_METHOD };

/* UTF-8.  mark[i] is 1 when byte i came from a message; NULL: none did. */
struct jstr {
    const char *p, *mark;
    size_t      n;
};

struct jv {
    enum jv_kind kind;
    union {
        int64_t          i; /* BOOL, INT, GLOBAL (its place in the list) */
        double           r;
        struct jstr      s;    /* STR; UNDEFINED: the name that was looked up */
        struct jseq     *seq;  /* LIST, TUPLE */
        struct jdict    *dict; /* DICT, NAMESPACE */
        struct jloop    *loop;
        struct jmacro   *macro;
        struct jbound   *method;
    };
};

struct jseq { struct jv *v; size_t n; };
struct jpair { struct jv key, value; };
struct jdict { struct jpair *v; size_t n, cap; };
struct jloop { const struct jv *v; size_t n, at; struct jv changed; int has_changed; };
struct jmacro { const struct jnode *node, *parameters; struct jscope *scope; };
struct jbound { struct jv self; const struct jmethod *method; };

/* Text under construction. */
struct jbuf {
    char  *p, *mark; /* mark is NULL as long as nothing is marked */
    size_t n, cap;
};

struct jvar { struct jname name; struct jv v; struct jvar *next; };
struct jscope { struct jvar *vars; struct jscope *up; };

struct jrun {
    struct llmq_arena arena;
    size_t            used, limit; /* bytes */
    long              steps;
    int               depth, line;
    enum { JR_RUN, JR_BREAK, JR_CONTINUE } jump;
    time_t            now;
    char             *ones; /* the mark of every string from a message: as long as the longest */
    struct jscope    *scope;
    struct jbuf      *out;
    struct llmq_err  *err;
};

/* What a call passes. */
struct jkeyword { struct jname name; struct jv v; };
struct jargs { struct jv *v; size_t n; struct jkeyword *kw; size_t nkw; };

/* ---- the run ------------------------------------------------------------------------------------- */

/* Never 0: the error's code, once there is one. */
static inline int jr_failed(const struct jrun *r) { return r->err->code ? r->err->code : -1; }
/* LLMQ_EFORMAT, with the line.  A macro, so that its value is seen not to be 0. */
#define jr_fail(r, ...) (jr_say(r, __VA_ARGS__), jr_failed(r))
void jr_say(struct jrun *r, const char *fmt, ...) LLMQ_PRINTF(2, 3);
int jr_step(struct jrun *r, size_t n);                               /* n more steps: within the limit? */
int jr_alloc(struct jrun *r, void **out, size_t count, size_t size); /* zeroed */
#define JR_NEW(r, pp, count) jr_alloc(r, (void **)(pp), (size_t)(count), sizeof **(pp))

/* ---- making values --------------------------------------------------------------------------------- */

struct jv jv_none(void);
struct jv jv_bool(int b);
struct jv jv_int(int64_t i);
struct jv jv_real(double r);
struct jv jv_text(const char *literal);
struct jv jv_name(struct jname name);
struct jv jv_string(struct jstr s);
struct jv jv_part(const struct jv *s, size_t from, size_t to); /* bytes [from, to) of a string */
struct jv jv_undefined(struct jstr name);

/* A list or tuple of n elements, to be filled in through (*out).seq->v. */
int jv_new_seq(struct jrun *r, enum jv_kind kind, size_t n, struct jv *out);
int jv_new_dict(struct jrun *r, enum jv_kind kind, size_t cap, struct jv *out);
int jv_put(struct jrun *r, struct jdict *d, const struct jv *key, const struct jv *value);
/* From JSON; marked: strings came from a message (below the key "role" they did not). */
int jv_from_json(struct jrun *r, const json_t *j, int marked, struct jv *out);

/* ---- text ------------------------------------------------------------------------------------------ */

int       jb_add(struct jrun *r, struct jbuf *b, const char *p, size_t n, const char *mark);
int       jb_fill(struct jrun *r, struct jbuf *b, const char *p, size_t n, int mark); /* the same mark for all bytes */
int       jb_literal(struct jrun *r, struct jbuf *b, const char *text);
int       jb_str(struct jrun *r, struct jbuf *b, struct jstr s);
int       jb_value(struct jrun *r, struct jbuf *b, const struct jv *v); /* str(v) */
struct jv jb_take(const struct jbuf *b);

int jv_to_str(struct jrun *r, const struct jv *v, struct jv *out);
/* Python's repr of a double, without ".0": 0 when it is an exact integer below 1e16. */
void jv_real_text(double v, char out[40]);

/* ---- asking ------------------------------------------------------------------------------------------ */

const char      *jv_type(const struct jv *v); /* Python's name */
int              jv_is_text(const struct jv *v, const char *text);
int              jv_is_number(const struct jv *v); /* BOOL, INT, REAL */
double           jv_number(const struct jv *v);
int              jv_truth(const struct jv *v);
int              jv_equal(struct jrun *r, const struct jv *a, const struct jv *b, int *equal);
int              jv_order(struct jrun *r, const struct jv *a, const struct jv *b, int *order); /* -1, 0, 1; 2: unordered (NaN) */
int              jv_contains(struct jrun *r, const struct jv *in, const struct jv *v, int *found);
int              jv_check_key(struct jrun *r, const struct jv *key); /* fails on what Python cannot hash */
int              jv_length(struct jrun *r, const struct jv *v, size_t *n);
int              jv_items(struct jrun *r, const struct jv *v, const struct jv **items, size_t *n); /* what iterating gives */
const struct jv *jv_get(const struct jdict *d, const struct jv *key); /* NULL: not there */
int              jv_to_int(struct jrun *r, const struct jv *v, const char *what, int64_t *out);

/* v[index], or undefined. */
int jv_item(struct jrun *r, const struct jv *v, const struct jv *index, struct jv *out);
int jv_slice(struct jrun *r, const struct jv *v, const struct jv *from, const struct jv *to, const struct jv *step, struct jv *out);

/* ---- jinja_method.c ------------------------------------------------------------------------------------ */

/* v.name as Python has it (methods, a loop's or namespace's fields); *found is 0 when it has none. */
int jv_attribute(struct jrun *r, const struct jv *v, struct jstr name, struct jv *out, int *found);
int jv_call_method(struct jrun *r, const struct jbound *m, const struct jargs *args, struct jv *out);
int jm_strip(struct jrun *r, const struct jv *s, const struct jv *chars, int left, int right, struct jv *out);
int jm_replace(struct jrun *r, const struct jv *s, const struct jv *old, const struct jv *by, int64_t count, struct jv *out);
int jm_lines(struct jrun *r, const struct jv *s, int keep, struct jv *out);
int jm_words(struct jrun *r, const struct jv *s, int64_t max, struct jv *out);
/* how: 'u', 'l', 't' (str.title), 'c' (capitalize), 'T' (Jinja's title). */
int jm_case(struct jrun *r, const struct jv *s, int how, struct jv *out);

/* Arguments to the parameters that spec names ("sep,maxsplit"; those behind a | may be left out): a[i] is NULL when
 * parameter i was not passed. */
enum { JA_MAX = 5 };
int ja_bind(struct jrun *r, const char *what, struct jname name, const char *spec, const struct jargs *args, const struct jv *a[JA_MAX]);

/* ---- jinja_filter.c, jinja_test.c ------------------------------------------------------------------------ */

int jinja_filter(struct jrun *r, struct jname name, const struct jv *v, const struct jargs *args, struct jv *out);
int jinja_test(struct jrun *r, struct jname name, const struct jv *v, const struct jargs *args, int *holds);
/* a op b, for the compare operators. */
int jinja_compare(struct jrun *r, int op, const struct jv *a, const struct jv *b, int *holds);

#endif

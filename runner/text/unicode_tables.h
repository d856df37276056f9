#ifndef LLMQ_RUNNER_TEXT_UNICODE_TABLES_H
#define LLMQ_RUNNER_TEXT_UNICODE_TABLES_H

#include <stdint.h>

/* Generated tables (unicode_tables.c) of what the `tokenizers` library takes a code point for.  uniset.h reads them. */

struct unicode_range {
    uint32_t lo, hi;
};
struct unicode_set {
    const char                 *name; /* lower case, no space, '_' or '-' */
    const struct unicode_range *range;
    int                         n;
};
struct unicode_gc_name {
    const char *name;
    uint32_t    mask; /* bit i: category i of unicode_gc_runs */
};
struct unicode_script_name {
    const char *name;
    int         script;
};
struct unicode_lower {
    uint32_t lo, hi; /* lo, lo + step, ..., hi */
    int      step;
    int32_t  delta;
};

/* What regular expressions see: first code point << 5 | general category, ascending, without gaps. */
extern const uint32_t               unicode_gc_runs[];
extern const int                    unicode_gc_n_runs;
extern const struct unicode_gc_name unicode_gc_names[];
extern const int                    unicode_gc_n_names;

/* First code point << 8 | script (0: none of those named). */
extern const uint32_t                   unicode_script_runs[];
extern const int                        unicode_script_n_runs;
extern const struct unicode_script_name unicode_script_names[];
extern const int                        unicode_script_n_names;

/* Other sets with a name in regular expressions: "alpha", "word", "emoji" ... */
extern const struct unicode_set unicode_sets[];
extern const int                unicode_n_sets;

/* What the other components see. */
extern const struct unicode_set unicode_rust_space, unicode_rust_word, unicode_rust_numeric, unicode_rust_punct, unicode_rust_mark;
/* Code points that newer Unicode versions decompose, compose or reorder, and the library does not. */
extern const struct unicode_set unicode_rust_inert;

/* Lower case, one code point to one; U+0130 alone becomes two (U+0069 U+0307). */
extern const struct unicode_lower unicode_lower_rows[];
extern const int                  unicode_lower_n_rows;

#endif

#ifndef LLMQ_RUNNER_TEXT_UNISET_H
#define LLMQ_RUNNER_TEXT_UNISET_H

#include "common/err.h"
#include "runner/text/unicode_tables.h"

#include <stddef.h>

/* Sets of code points: ascending, disjoint ranges that belong to the set.  Zero-initialise; uniset_fini releases. */
struct uniset {
    struct unicode_range *range;
    int                   n, cap;
};
void uniset_fini(struct uniset *s);
int  uniset_add(struct uniset *s, uint32_t lo, uint32_t hi, struct llmq_err *err) LLMQ_MUST_CHECK; /* any order */
int  uniset_union(struct uniset *s, const struct uniset *other, struct llmq_err *err) LLMQ_MUST_CHECK;
int  uniset_intersect(struct uniset *s, const struct uniset *other, struct llmq_err *err) LLMQ_MUST_CHECK;
int  uniset_negate(struct uniset *s, struct llmq_err *err) LLMQ_MUST_CHECK; /* within 0..10FFFF */
/* Adds what a regular expression calls \p{name}; 1 when there is no such name. */
int uniset_named(struct uniset *s, const char *name, size_t len, struct llmq_err *err) LLMQ_MUST_CHECK;

int unicode_in(const struct unicode_set *set, uint32_t c);
/* Lower case as Rust's char::to_lowercase: one code point, or two for U+0130. */
int unicode_lower(uint32_t c, uint32_t out[2]);

#endif

#ifndef LLMQ_RUNNER_TEXT_PATTERN_H
#define LLMQ_RUNNER_TEXT_PATTERN_H

#include "common/err.h"

#include <jansson.h>
#include <stddef.h>

/* A String or Regex pattern of a tokenizer component, and the walk over its matches that the `tokenizers` library does.
 * A pattern is read-only once compiled; a walk belongs to one thread. */
struct pattern;

/* spec: {"String": text} or {"Regex": text}. */
int  pattern_compile(struct pattern **out, const json_t *spec, const char *where, struct llmq_err *err) LLMQ_MUST_CHECK;
int  pattern_compile_regex(struct pattern **out, const char *regex, const char *where, struct llmq_err *err) LLMQ_MUST_CHECK;
void pattern_free(struct pattern *p);

/* What one thread needs to match any number of patterns, one at a time. */
struct pattern_scratch;
int  pattern_scratch_new(struct pattern_scratch **out, struct llmq_err *err) LLMQ_MUST_CHECK;
void pattern_scratch_free(struct pattern_scratch *s);

/* The parts of a text from left to right, matches and what lies between, covering all of it.  text is valid UTF-8. */
struct pattern_walk {
    const struct pattern   *p;
    struct pattern_scratch *scratch;
    const char             *text;
    size_t                  len, search, prev; /* where to search from; end of what has been handed out */
    size_t                  last_match_end;    /* SIZE_MAX: none yet */
    size_t                  held_from, held_to;
    int                     held;              /* a match waits behind the part before it */
};
void pattern_walk_begin(struct pattern_walk *w, const struct pattern *p, struct pattern_scratch *s, const char *text, size_t len);
/* 1: [*from, *to) is the next part; 0: there are no more; negative: an error (LLMQ_ELIMIT when matching takes too long). */
int pattern_walk_next(struct pattern_walk *w, size_t *from, size_t *to, int *is_match, struct llmq_err *err) LLMQ_MUST_CHECK;

#endif

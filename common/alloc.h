#ifndef LLMQ_COMMON_ALLOC_H
#define LLMQ_COMMON_ALLOC_H

#include "common/err.h"

#include <stddef.h>

/* The only callers of malloc and free are in alloc.c.  That is what makes three
 * guards possible: sizes are multiplied without wrapping, a region can forbid
 * allocation (an engine step allocates nothing), and a test can make the Nth
 * allocation fail.
 *
 * Memory is zeroed, 64-byte aligned, and released with llmq_free (NULL is fine). */

/* count * size bytes; LLMQ_ENOMEM names `what` and the size. */
int llmq_alloc(void **out, size_t count, size_t size, const char *what, struct llmq_err *err) LLMQ_MUST_CHECK;
void llmq_free(void *p);

/* The same with the pointer's own type: LLMQ_NEW(&p, n, "scales", err). */
#define LLMQ_NEW(pp, count, what, err) llmq_alloc((void **)(pp), (size_t)(count), sizeof **(pp), what, err)

/* An arena: objects that live and die together.  Zero-initialise it; blocks are
 * taken as needed and go in one llmq_arena_free. */
struct llmq_arena {
    struct llmq_arena_block *head;
};
int   llmq_arena_alloc(struct llmq_arena *a, void **out, size_t count, size_t size, const char *what,
                       struct llmq_err *err) LLMQ_MUST_CHECK;
char *llmq_arena_str(struct llmq_arena *a, const char *text, size_t len, struct llmq_err *err); /* NULL on failure */
void  llmq_arena_free(struct llmq_arena *a);
#define LLMQ_ARENA_NEW(a, pp, count, what, err) \
    llmq_arena_alloc(a, (void **)(pp), (size_t)(count), sizeof **(pp), what, err)

/* Between forbid and permit any allocation aborts the process (debug and sanitizer
 * builds only); calls nest. */
void llmq_alloc_forbid(void);
void llmq_alloc_permit(void);

/* Test hooks: the nth allocation from now fails (0: none does); live allocations. */
void   llmq_alloc_fail_nth(long nth);
size_t llmq_alloc_live(void);

#endif

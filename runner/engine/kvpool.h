#ifndef LLMQ_RUNNER_ENGINE_KVPOOL_H
#define LLMQ_RUNNER_ENGINE_KVPOOL_H

/* Page ids: a free list with reference counts.  It deals in numbers only; the bytes of a page belong to the
 * backend (model.h, kv_store), so that schedulers can be tested without one. */

#include "common/err.h"

#include <stdint.h>

struct kvpool {
    int      n_pages, n_free;
    int32_t *free_list; /* [n_free] ids, last one goes first */
    int32_t *refs;      /* [n_pages] 0: free */
};

int  kvpool_init(struct kvpool *p, int n_pages, struct llmq_err *err) LLMQ_MUST_CHECK;
void kvpool_fini(struct kvpool *p);

int32_t kvpool_alloc(struct kvpool *p);               /* -1: none is free */
void    kvpool_share(struct kvpool *p, int32_t id);   /* one more owner */
void    kvpool_release(struct kvpool *p, int32_t id); /* the last owner's release frees it */

#endif

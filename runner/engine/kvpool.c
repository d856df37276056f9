/* Page ids: see kvpool.h. */
#include "runner/engine/kvpool.h"

#include "common/alloc.h"

#include <assert.h>

int kvpool_init(struct kvpool *p, int n_pages, struct llmq_err *err)
{
    *p = (struct kvpool){.n_pages = n_pages, .n_free = n_pages};
    if (LLMQ_NEW(&p->free_list, n_pages, "a page list", err) || LLMQ_NEW(&p->refs, n_pages, "page counts", err)) {
        kvpool_fini(p);
        return err->code;
    }
    for (int i = 0; i < n_pages; i++) /* so that ids are given out from 0 up */
        p->free_list[i] = n_pages - 1 - i;
    return 0;
}

void kvpool_fini(struct kvpool *p)
{
    llmq_free(p->free_list);
    llmq_free(p->refs);
    *p = (struct kvpool){0};
}

int32_t kvpool_alloc(struct kvpool *p)
{
    int32_t id;

    if (!p->n_free)
        return -1;
    id = p->free_list[--p->n_free];
    assert(p->refs[id] == 0);
    p->refs[id] = 1;
    return id;
}

void kvpool_share(struct kvpool *p, int32_t id)
{
    assert(id >= 0 && id < p->n_pages && p->refs[id] > 0);
    p->refs[id]++;
}

void kvpool_release(struct kvpool *p, int32_t id)
{
    assert(id >= 0 && id < p->n_pages && p->refs[id] > 0);
    if (--p->refs[id] == 0)
        p->free_list[p->n_free++] = id;
}

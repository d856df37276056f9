/* The one place that calls malloc and free: see alloc.h. */
#include "common/alloc.h"

#include "common/ckd.h"

#include <jansson.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static atomic_size_t live;
static atomic_long   fail_countdown;
static _Thread_local int forbidden;

enum { ALIGN = 64, ARENA_BLOCK = 64 * 1024 };

static int made_to_fail(void)
{
    long n = atomic_load(&fail_countdown);

    return n > 0 && atomic_fetch_sub(&fail_countdown, 1) == 1;
}

static void *take(size_t bytes, int may_fail)
{
    void *p;

#ifndef NDEBUG
    if (forbidden)
        abort();
#endif
    if (may_fail && made_to_fail())
        return NULL;
    /* Large blocks come zeroed from the kernel: calloc would touch no page, and
     * neither must we, so that a sparse buffer costs what is used of it. */
    if (bytes >= (size_t)1 << 20) {
        char *raw = calloc(1, bytes + ALIGN);
        if (!raw)
            return NULL;
        p = (void *)(((uintptr_t)raw + ALIGN) & ~(uintptr_t)(ALIGN - 1));
        ((void **)p)[-1] = raw;
    } else {
        char *raw = malloc(bytes + 2 * ALIGN);
        if (!raw)
            return NULL;
        p = (void *)(((uintptr_t)raw + ALIGN) & ~(uintptr_t)(ALIGN - 1));
        ((void **)p)[-1] = raw;
        memset(p, 0, bytes);
    }
    atomic_fetch_add(&live, 1);
    return p;
}

int llmq_alloc(void **out, size_t count, size_t size, const char *what, struct llmq_err *err)
{
    size_t bytes;

    *out = NULL;
    if (llmq_ckd_mul(&bytes, count, size) || bytes > SIZE_MAX / 2)
        return llmq_fail(err, LLMQ_ENOMEM, "%s: %zu x %zu bytes do not fit an address space", what, count, size);
    *out = take(bytes ? bytes : 1, 1);
    if (!*out)
        return llmq_fail(err, LLMQ_ENOMEM, "%s: no memory for %zu bytes", what, bytes);
    return 0;
}

void llmq_free(void *p)
{
    if (!p)
        return;
    atomic_fetch_sub(&live, 1);
    free(((void **)p)[-1]);
}

struct llmq_arena_block {
    struct llmq_arena_block *next;
    size_t                   used, size;
    /* the data begins ALIGN bytes after the block's own address */
};

int llmq_arena_alloc(struct llmq_arena *a, void **out, size_t count, size_t size, const char *what,
                     struct llmq_err *err)
{
    struct llmq_arena_block *b = a->head;
    size_t                   bytes, want;

    *out = NULL;
    if (llmq_ckd_mul(&bytes, count, size) || bytes > SIZE_MAX / 2)
        return llmq_fail(err, LLMQ_ENOMEM, "%s: %zu x %zu bytes do not fit an address space", what, count, size);
    bytes = (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if (!b || b->size - b->used < bytes) {
        want = bytes > ARENA_BLOCK ? bytes : ARENA_BLOCK;
        if (llmq_alloc((void **)&b, 1, want + ALIGN, what, err))
            return err->code;
        b->size = want;
        b->next = a->head;
        a->head = b;
    }
    *out = (char *)b + ALIGN + b->used;
    b->used += bytes;
    return 0;
}

char *llmq_arena_str(struct llmq_arena *a, const char *text, size_t len, struct llmq_err *err)
{
    char *p;

    if (llmq_arena_alloc(a, (void **)&p, len + 1, 1, "a string", err))
        return NULL;
    memcpy(p, text, len);
    return p;
}

void llmq_arena_free(struct llmq_arena *a)
{
    struct llmq_arena_block *b, *next;

    for (b = a->head; b; b = next) {
        next = b->next;
        llmq_free(b);
    }
    a->head = NULL;
}

void llmq_alloc_forbid(void) { forbidden++; }
void llmq_alloc_permit(void) { forbidden--; }

/* jansson's blocks are counted, so that torture runs see a tree that leaks, but not made to fail: the lexer of
 * 2.14 ignores a failed allocation while it saves a string's text, and then reads and writes past its end. */
static void *json_take(size_t n) { return take(n ? n : 1, 0); }

void llmq_alloc_fail_nth(long nth)
{
    json_set_alloc_funcs(json_take, llmq_free);
    atomic_store(&fail_countdown, nth);
}

size_t llmq_alloc_live(void) { return atomic_load(&live); }

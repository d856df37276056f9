/* Sets of code points over the generated tables: see uniset.h.
 *
 * A set is kept as appended ranges while it is built and put in order (sorted, joined) before it is read, so that
 * adding a category of 600 ranges costs 600 appends. */
#include "runner/text/uniset.h"

#include "common/alloc.h"

#include <stdlib.h>
#include <string.h>

enum { LAST = 0x10ffff };

void uniset_fini(struct uniset *s)
{
    llmq_free(s->range);
    memset(s, 0, sizeof *s);
}

static int append(struct uniset *s, uint32_t lo, uint32_t hi, struct llmq_err *err)
{
    if (s->n == s->cap) {
        struct unicode_range *more;
        int                   cap = s->cap ? s->cap * 2 : 16;

        if (LLMQ_NEW(&more, cap, "a character class", err))
            return err->code;
        if (s->n)
            memcpy(more, s->range, (size_t)s->n * sizeof *more);
        llmq_free(s->range);
        s->range = more;
        s->cap = cap;
    }
    s->range[s->n++] = (struct unicode_range){lo, hi};
    return 0;
}

static int by_lo(const void *a, const void *b)
{
    const struct unicode_range *x = a, *y = b;

    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

static void order(struct uniset *s)
{
    int n = 0;

    if (s->n)
        qsort(s->range, (size_t)s->n, sizeof *s->range, by_lo);
    for (int i = 0; i < s->n; i++) {
        struct unicode_range r = s->range[i];

        if (n && r.lo <= s->range[n - 1].hi + 1) {
            if (r.hi > s->range[n - 1].hi)
                s->range[n - 1].hi = r.hi;
        } else {
            s->range[n++] = r;
        }
    }
    s->n = n;
}

int uniset_add(struct uniset *s, uint32_t lo, uint32_t hi, struct llmq_err *err)
{
    int sorted = !s->n || lo > s->range[s->n - 1].hi + 1;

    if (append(s, lo, hi, err))
        return err->code;
    if (!sorted)
        order(s);
    return 0;
}

int uniset_union(struct uniset *s, const struct uniset *other, struct llmq_err *err)
{
    for (int i = 0; i < other->n; i++)
        if (append(s, other->range[i].lo, other->range[i].hi, err))
            return err->code;
    order(s);
    return 0;
}

int uniset_negate(struct uniset *s, struct llmq_err *err)
{
    struct uniset out = {0};
    uint32_t      at = 0;

    for (int i = 0; i < s->n; at = s->range[i++].hi + 1)
        if (s->range[i].lo > at && append(&out, at, s->range[i].lo - 1, err))
            goto fail;
    if (at <= LAST && append(&out, at, LAST, err))
        goto fail;
    uniset_fini(s);
    *s = out;
    return 0;
fail:
    uniset_fini(&out);
    return err->code;
}

/* a and b = not (not a or not b) */
int uniset_intersect(struct uniset *s, const struct uniset *other, struct llmq_err *err)
{
    struct uniset b = {0};

    if (uniset_union(&b, other, err) || uniset_negate(&b, err) || uniset_negate(s, err) || uniset_union(s, &b, err) ||
        uniset_negate(s, err)) {
        uniset_fini(&b);
        return err->code;
    }
    uniset_fini(&b);
    return 0;
}

/* Runs of `runs` (start << shift | class) whose class is in want. */
static int add_runs(struct uniset *s, const uint32_t *runs, int n, int shift, uint32_t mask, int script, struct llmq_err *err)
{
    for (int i = 0; i < n; i++) {
        uint32_t class = runs[i] & ((1u << shift) - 1), hi = i + 1 < n ? (runs[i + 1] >> shift) - 1 : LAST;

        if (script ? class != (uint32_t)script : !(mask >> class & 1))
            continue;
        if (append(s, runs[i] >> shift, hi, err))
            return err->code;
    }
    order(s);
    return 0;
}

/* Property names compare without case, spaces, '-' and '_'. */
static int squeeze(const char *name, size_t len, char *out, size_t size)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++) {
        char c = name[i];

        if (c == ' ' || c == '_' || c == '-')
            continue;
        if (n + 1 == size)
            return 1;
        out[n++] = c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
    }
    out[n] = '\0';
    return 0;
}

int uniset_named(struct uniset *s, const char *name, size_t len, struct llmq_err *err)
{
    char key[64];

    if (squeeze(name, len, key, sizeof key))
        return 1;
    for (int i = 0; i < unicode_gc_n_names; i++)
        if (!strcmp(unicode_gc_names[i].name, key))
            return add_runs(s, unicode_gc_runs, unicode_gc_n_runs, 5, unicode_gc_names[i].mask, 0, err);
    for (int i = 0; i < unicode_script_n_names; i++)
        if (!strcmp(unicode_script_names[i].name, key))
            return add_runs(s, unicode_script_runs, unicode_script_n_runs, 8, 0, unicode_script_names[i].script, err);
    for (int i = 0; i < unicode_n_sets; i++) {
        if (strcmp(unicode_sets[i].name, key) != 0)
            continue;
        for (int j = 0; j < unicode_sets[i].n; j++)
            if (append(s, unicode_sets[i].range[j].lo, unicode_sets[i].range[j].hi, err))
                return err->code;
        order(s);
        return 0;
    }
    return 1;
}

int unicode_in(const struct unicode_set *set, uint32_t c)
{
    int lo = 0, hi = set->n - 1;

    while (lo <= hi) {
        int mid = (lo + hi) / 2;

        if (c < set->range[mid].lo)
            hi = mid - 1;
        else if (c > set->range[mid].hi)
            lo = mid + 1;
        else
            return 1;
    }
    return 0;
}

int unicode_lower(uint32_t c, uint32_t out[2])
{
    int lo = 0, hi = unicode_lower_n_rows - 1;

    out[0] = c;
    out[1] = 0x307;
    if (c == 0x130) {
        out[0] = 'i';
        return 2;
    }
    while (lo <= hi) {
        int                         mid = (lo + hi) / 2;
        const struct unicode_lower *r = &unicode_lower_rows[mid];

        if (c < r->lo)
            hi = mid - 1;
        else if (c > r->hi)
            lo = mid + 1;
        else {
            if ((c - r->lo) % (uint32_t)r->step == 0)
                out[0] = (uint32_t)((int32_t)c + r->delta);
            return 1;
        }
    }
    return 1;
}

/* runner/engine/kvpool.c: pages are conserved whatever is done in what order. */
#include "runner/engine/kvpool.h"

#include "common/rng.h"
#include "tests/unit/unit.h"

START_TEST(random_operations_conserve_pages)
{
    enum { PAGES = 37, STEPS = 200000 };
    struct llmq_err err = {0};
    struct llmq_rng rng;
    struct kvpool   p;
    int             owners[PAGES] = {0}, used = 0;

    llmq_rng_seed(&rng, 1);
    ck_assert_int_eq(kvpool_init(&p, PAGES, &err), 0);
    for (int i = 0; i < STEPS; i++) {
        int32_t id = (int32_t)(llmq_rng_next(&rng) % PAGES);

        switch (llmq_rng_next(&rng) % 3) {
        case 0:
            id = kvpool_alloc(&p);
            ck_assert_int_eq(id < 0, used == PAGES);
            if (id < 0)
                break;
            ck_assert_int_eq(owners[id], 0);
            owners[id] = 1;
            used++;
            break;
        case 1:
            if (!owners[id])
                break;
            kvpool_share(&p, id);
            owners[id]++;
            break;
        default:
            if (!owners[id])
                break;
            kvpool_release(&p, id);
            if (--owners[id] == 0)
                used--;
        }
        ck_assert_int_eq(p.n_free, PAGES - used);
    }
    kvpool_fini(&p);
}
END_TEST

UNIT_CASE(kvpool, random_operations_conserve_pages)

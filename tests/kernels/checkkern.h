#ifndef LLMQ_TESTS_KERNELS_CHECKKERN_H
#define LLMQ_TESTS_KERNELS_CHECKKERN_H

#include "runner/cpu/kernels.h"

#include <stddef.h>
#include <stdint.h>

/* Memory of exactly this size, so that a sanitizer sees one byte too many; freed by ck_free_all. */
void *ck_new(size_t bytes);
void  ck_free_all(void);

/* The one source of test data: seeded, the same in every run. */
uint64_t ck_random(void);
float    ck_uniform(void);                         /* in [-1, 1), 24 bits */
float   *ck_floats(size_t n);                      /* uniform, with a few zeros, large and tiny ones among them */
void    *ck_elements(size_t n, int dtype);         /* the same as elements of dtype */
uint8_t *ck_bytes(size_t n);
uint16_t *ck_scales(size_t n);                     /* F16, about 0.001 to 0.1 */

/* How far a float sum of k products of total magnitude `mag` may be from the true one: every product and every
 * addition rounds once, relative to at most the magnitude summed so far. */
double ck_tolerance(int k, double mag);

/* Weights and activations for the integer slots. */
struct cpu_tiles ck_tiles(int bits, int sym, int group, int n, int k, int m);

/* Each returns the number of disagreements. */
typedef int (*ck_slot_fn)(const struct cpu_kernels *ref, const struct cpu_kernels *got);
struct ck_slot {
    const char *name;
    size_t      offset; /* of the slot in struct cpu_kernels */
    ck_slot_fn  check;
};
extern const struct ck_slot ck_slots[];
extern const int            ck_n_slots;

struct ck_test {
    const char *name;
    int (*run)(const char *isa); /* disagreements; -1: skipped */
};
extern const struct ck_test ck_references[], ck_invariances[];
extern const int            ck_n_references, ck_n_invariances;

void ck_bench(enum cpu_isa top);

#endif

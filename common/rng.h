#ifndef LLMQ_COMMON_RNG_H
#define LLMQ_COMMON_RNG_H

#include <stdint.h>

/* xoshiro256** (Blackman and Vigna, 2018), seeded by splitmix64.  Every random choice
 * in llmq comes from one of these with a recorded seed. */
struct llmq_rng {
    uint64_t s[4];
};

static inline uint64_t llmq_rng_splitmix(uint64_t *x)
{
    uint64_t z = (*x += 0x9e3779b97f4a7c15ull);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static inline void llmq_rng_seed(struct llmq_rng *r, uint64_t seed)
{
    for (int i = 0; i < 4; i++)
        r->s[i] = llmq_rng_splitmix(&seed);
}

static inline uint64_t llmq_rng_rotl(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

static inline uint64_t llmq_rng_next(struct llmq_rng *r)
{
    uint64_t out = llmq_rng_rotl(r->s[1] * 5, 7) * 9, t = r->s[1] << 17;

    r->s[2] ^= r->s[0];
    r->s[3] ^= r->s[1];
    r->s[1] ^= r->s[2];
    r->s[0] ^= r->s[3];
    r->s[2] ^= t;
    r->s[3] = llmq_rng_rotl(r->s[3], 45);
    return out;
}

/* Uniform in [0, 1) with 53 bits. */
static inline double llmq_rng_unit(struct llmq_rng *r)
{
    return (double)(llmq_rng_next(r) >> 11) * 0x1p-53;
}

#endif

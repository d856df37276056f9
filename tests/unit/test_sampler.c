/* runner/engine/sampler.c against a slow, obvious reference, and its draws against the distribution. */
#include "common/fmath.h"
#include "runner/engine/sampler.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { V = 97 };

static const struct llmq_sampling plain = {.temperature = 1, .top_p = 1, .repetition_penalty = 1};

static struct sampler *new_sampler(int n)
{
    struct llmq_err err = {0};
    struct sampler *s;

    ck_assert_int_eq(sampler_new(&s, n, &err), 0);
    return s;
}

/* Few distinct values, so that ties are common. */
static void random_logits(float *x, int n, struct llmq_rng *r)
{
    for (int i = 0; i < n; i++)
        x[i] = (float)((int)(llmq_rng_next(r) % 41) - 20) * 0.25f;
}

struct ranked {
    float score;
    int   id;
};

static int by_rank(const void *pa, const void *pb)
{
    const struct ranked *a = pa, *b = pb;

    return a->score != b->score ? (a->score < b->score ? 1 : -1) : a->id - b->id;
}

/* The probabilities that the steps leave, one plain step after the other. */
static void reference(const float *logits, const struct llmq_sampling *p, const int32_t *hist, int n_hist, double *prob)
{
    struct ranked r[V];
    double        w[V], total = 0, before = 0;
    int           kept = V, n = V;

    for (int i = 0; i < V; i++) {
        int again = 0;
        for (int h = 0; h < n_hist; h++)
            again |= hist[h] == i;
        r[i].id = i;
        r[i].score = logits[i];
        if (again)
            r[i].score = logits[i] < 0 ? logits[i] * p->repetition_penalty : logits[i] / p->repetition_penalty;
        r[i].score /= p->temperature;
    }
    qsort(r, V, sizeof r[0], by_rank);
    if (p->top_k > 0 && p->top_k < V)
        n = p->top_k;
    for (int i = 0; i < n; i++)
        total += w[i] = exp((double)r[i].score - r[0].score);
    for (kept = 0; kept < n && (kept == 0 || before < p->top_p * total - 1e-12 || p->top_p >= 1); kept++)
        before += w[kept];
    total = 0;
    for (int i = 0; i < kept; i++)
        total += w[i] >= p->min_p ? w[i] : 0;
    memset(prob, 0, V * sizeof prob[0]);
    for (int i = 0; i < kept; i++)
        prob[r[i].id] = w[i] >= p->min_p ? w[i] / total : 0;
}

/* Draws often and compares frequencies: each must be within 5 standard deviations, and none outside the support. */
static void check_draws(const float *logits, const struct llmq_sampling *p, const int32_t *hist, int n_hist, int draws)
{
    struct sampler *s = new_sampler(V);
    struct llmq_rng rng;
    double          prob[V];
    int             count[V] = {0};

    reference(logits, p, hist, n_hist, prob);
    llmq_rng_seed(&rng, p->seed);
    for (int i = 0; i < draws; i++)
        count[sampler_pick(s, logits, p, hist, n_hist, &rng)]++;
    for (int i = 0; i < V; i++) {
        double sd = sqrt(draws * prob[i] * (1 - prob[i]));
        ck_assert_msg(prob[i] > 0 || count[i] == 0, "id %d was drawn %d times and is not in the support", i, count[i]);
        ck_assert_msg(fabs(count[i] - draws * prob[i]) <= 5 * sd + 2, "id %d: %d of %d, expected %.1f", i, count[i], draws,
                      draws * prob[i]);
    }
    sampler_free(s);
}

START_TEST(draws_follow_the_distribution)
{
    static const int   ks[] = {0, 1, 5, 96, 97, 1000};
    static const float ps[] = {1, 0.9f, 0.5f, 0.01f}, mins[] = {0, 0.05f, 0.9f}, reps[] = {1, 1.3f, 0.7f}, temps[] = {1, 0.4f, 3};
    struct llmq_rng    r;

    llmq_rng_seed(&r, 11);
    for (int t = 0; t < 120; t++) {
        struct llmq_sampling p = {temps[llmq_rng_next(&r) % 3], ks[llmq_rng_next(&r) % 6], ps[llmq_rng_next(&r) % 4],
                                  mins[llmq_rng_next(&r) % 3], reps[llmq_rng_next(&r) % 3], (uint64_t)t};
        int32_t hist[12];
        float   x[V];

        random_logits(x, V, &r);
        for (int i = 0; i < 12; i++)
            hist[i] = (int32_t)(llmq_rng_next(&r) % V);
        check_draws(x, &p, hist, 12, 4000);
    }
}
END_TEST

START_TEST(greedy_takes_the_first_of_the_largest)
{
    struct sampler      *s = new_sampler(6);
    struct llmq_sampling p = plain;
    const float          x[] = {1, 3, -2, 3, NAN, 0};
    const int32_t        hist[] = {1, 1, -1, 6, 1};

    p.temperature = 0;
    ck_assert_int_eq(sampler_pick(s, x, &p, NULL, 0, NULL), 1);
    p.repetition_penalty = 1.5f; /* id 1 sinks to 2, once however often it stands there */
    ck_assert_int_eq(sampler_pick(s, x, &p, hist, 5, NULL), 3);
    ck_assert_int_eq(sampler_pick(s, x, &p, hist, 0, NULL), 1);
    sampler_free(s);
}
END_TEST

START_TEST(the_same_seed_gives_the_same_tokens)
{
    struct sampler      *s = new_sampler(V);
    struct llmq_sampling p = plain, limits = plain;
    struct llmq_rng      a, b, r;
    float                x[V];

    limits.top_k = V; /* a limit that removes nothing changes nothing */
    llmq_rng_seed(&a, 5);
    llmq_rng_seed(&b, 5);
    llmq_rng_seed(&r, 6);
    for (int i = 0; i < 500; i++) {
        random_logits(x, V, &r);
        ck_assert_int_eq(sampler_pick(s, x, &p, NULL, 0, &a), sampler_pick(s, x, &limits, NULL, 0, &b));
    }
    sampler_free(s);
}
END_TEST

START_TEST(large_vocabularies_are_cut_right)
{
    enum { BIG = 20000 };
    static float         x[BIG];
    struct sampler      *s = new_sampler(BIG);
    struct llmq_sampling p = plain;
    struct llmq_rng      r;

    llmq_rng_seed(&r, 9);
    for (int i = 0; i < BIG; i++)
        x[i] = (float)(i % 100); /* 200 ids tie at the top */
    p.top_k = 3;
    for (int i = 0; i < 300; i++)
        ck_assert_int_le(sampler_pick(s, x, &p, NULL, 0, &r), 299); /* 99, 199, 299: the lowest of the tied ids */
    p.top_k = 0;
    p.top_p = 0.25f; /* 63 % of the mass is on the 200 ids at 99, so 80 of them hold a quarter of all */
    for (int i = 0; i < 300; i++)
        ck_assert_int_le(sampler_pick(s, x, &p, NULL, 0, &r), 7999);
    sampler_free(s);
}
END_TEST

START_TEST(hopeless_rows_still_give_a_token)
{
    struct sampler      *s = new_sampler(3);
    struct llmq_sampling p = plain;
    struct llmq_rng      r;
    const float          none[] = {-INFINITY, NAN, -INFINITY}, inf[] = {0, INFINITY, 1}, one[] = {-INFINITY, 2, -INFINITY};

    llmq_rng_seed(&r, 1);
    ck_assert_int_eq(sampler_pick(s, none, &p, NULL, 0, &r), 0);
    ck_assert_int_eq(sampler_pick(s, inf, &p, NULL, 0, &r), 1);
    ck_assert_int_eq(sampler_pick(s, one, &p, NULL, 0, &r), 1);
    p.temperature = 1e-38f;
    p.top_p = 0;
    ck_assert_int_eq(sampler_pick(s, one, &p, NULL, 0, &r), 1);
    sampler_free(s);
}
END_TEST

UNIT_CASE(sampler, draws_follow_the_distribution, greedy_takes_the_first_of_the_largest, the_same_seed_gives_the_same_tokens,
          large_vocabularies_are_cut_right, hopeless_rows_still_give_a_token)

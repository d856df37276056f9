/* runner/eval_stats.c on numbers that can be checked by hand. */
#include "common/rng.h"
#include "runner/eval_stats.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <string.h>

#define NEAR(a, b, tol) ck_assert_msg(fabs((a) - (b)) <= (tol), #a " is %.15g, expected %.15g", (double)(a), (double)(b))

static struct eval_row row(const float *x, int n)
{
    struct eval_row r = {x, x[0], 0};
    double          sum = 0;

    for (int i = 1; i < n; i++)
        r.max = x[i] > r.max ? x[i] : r.max;
    for (int i = 0; i < n; i++)
        sum += exp((double)x[i] - r.max);
    r.lse = r.max + log(sum);
    return r;
}

START_TEST(two_outcomes_by_hand)
{
    /* model 0.25 / 0.75, baseline 0.5 / 0.5 */
    const float       x[] = {0, 1.0986122886681098f}, y[] = {3, 3};
    struct eval_row   m = row(x, 2), b = row(y, 2);
    struct eval_token t = eval_score(&m, &b, 2, 0);

    NEAR(t.nll, log(4), 1e-7);
    NEAR(t.base_nll, log(2), 1e-7);
    NEAR(t.kl, 0.5 * log(2) + 0.5 * log(0.5 / 0.75), 1e-7);
    NEAR(t.prob_change, -0.25, 1e-7);
    ck_assert_int_eq(t.same_top, 0); /* of the baseline's equal logits the first counts */
    t = eval_score(&m, NULL, 2, 1);
    NEAR(t.nll, log(4.0 / 3), 1e-7);
    ck_assert(t.kl == 0 && t.base_nll == 0);
}
END_TEST

START_TEST(divergence_against_plain_sums)
{
    static float    x[5000], y[5000];
    static const int sizes[] = {1, 2, 31, 32, 33, 1000, 5000};
    struct llmq_rng r;

    llmq_rng_seed(&r, 4);
    for (int i = 0; i < 5000; i++) {
        x[i] = (float)(llmq_rng_unit(&r) * 120 - 100); /* some weigh nothing at all */
        y[i] = x[i] + (float)(llmq_rng_unit(&r) - 0.5);
    }
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        int               n = sizes[k];
        struct eval_row   b = row(x, n), m = row(y, n);
        struct eval_token t = eval_score(&m, &b, n, n - 1), same = eval_score(&b, &b, n, 0);
        double            kl = 0;

        for (int i = 0; i < n; i++)
            kl += exp(x[i] - b.lse) * ((x[i] - b.lse) - (y[i] - m.lse));
        NEAR(t.kl, kl, 1e-7);
        ck_assert(same.kl == 0 && same.prob_change == 0 && same.same_top);
    }
}
END_TEST

START_TEST(students_t)
{
    static const struct { int df; double t; } known[] = {
        {1, 12.7062}, {2, 4.30265}, {10, 2.22814}, {30, 2.04227}, {31, 2.03951}, {59, 2.00100}, {120, 1.97993}, {1000, 1.96234}};

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        NEAR(llmq_eval_t95(known[i].df), known[i].t, 2e-5);
    ck_assert(isnan(llmq_eval_t95(0)));
}
END_TEST

/* Windows with mean NLL 1, 2, 3 of 10 tokens each: standard deviation 1, error 1 / sqrt(3). */
START_TEST(windows_of_equal_length)
{
    struct eval_window w[3] = {{.tokens = 10, .nll = 10}, {.tokens = 10, .nll = 20}, {.tokens = 10, .nll = 30}};
    struct eval_result r = {0};

    eval_summarise(w, 3, NULL, 0, 60, &r);
    NEAR(r.nll_mean, 2, 1e-15);
    NEAR(r.nll_stderr, 1 / sqrt(3), 1e-15);
    NEAR(r.ppl, exp(2), 1e-14);
    NEAR(r.ppl_stderr, exp(2) / sqrt(3), 1e-13);
    NEAR(r.ppl_high, exp(2 + 4.30265 / sqrt(3)), 1e-3);
    NEAR(r.word_ppl, exp(1), 1e-14); /* 60 nats over 60 words */
    ck_assert_int_eq(r.tokens_scored, 30);
    ck_assert(!r.has_baseline);
}
END_TEST

/* Lengths 1 and 3 with sums 1 and 9: mean 10/4, residuals -1.5 and 1.5, error sqrt(2 * 4.5) / 4. */
START_TEST(windows_of_unequal_length)
{
    struct eval_window w[2] = {{.tokens = 1, .nll = 1}, {.tokens = 3, .nll = 9}};
    struct eval_result r = {0};

    eval_summarise(w, 2, NULL, 0, 0, &r);
    NEAR(r.nll_mean, 2.5, 1e-15);
    NEAR(r.nll_stderr, 0.75, 1e-15);
    ck_assert(r.word_ppl == 0);
}
END_TEST

START_TEST(paired_interval_and_quantiles)
{
    struct eval_window w[2] = {{0}, {0}};
    struct eval_result r = {0};
    double             kl[200];

    for (int i = 0; i < 200; i++) { /* window means of the difference: 0.1 and 0.3 */
        struct eval_token t = {.nll = 2 + (i < 100 ? 0.1 : 0.3), .base_nll = 2, .kl = 199 - i, .prob_change = i % 2 ? 0.03 : -0.04,
                               .same_top = i % 4 != 0};

        kl[i] = t.kl;
        eval_window_add(&w[i / 100], &t);
    }
    eval_summarise(w, 2, kl, 200, 0, &r);
    ck_assert_int_eq(r.has_baseline, 1);
    NEAR(r.base_ppl, exp(2), 1e-12);
    NEAR(r.delta_mean, 0.2, 1e-12);
    NEAR(r.delta_high - r.delta_mean, 12.7062 * 0.1, 1e-5);
    NEAR(r.increase, exp(0.2) - 1, 1e-12);
    NEAR(r.increase_low, exp(r.delta_low) - 1, 1e-12);
    NEAR(r.kl_mean, 99.5, 1e-12);
    NEAR(r.kl_stderr, 50, 1e-12); /* window means 149.5 and 49.5 */
    NEAR(r.kl_p99, 197.01, 1e-9);
    NEAR(r.kl_p999, 198.801, 1e-9);
    NEAR(r.kl_max, 199, 0);
    NEAR(r.top1, 0.75, 1e-15);
    NEAR(r.prob_change_rms, sqrt((0.0009 + 0.0016) / 2), 1e-12);
}
END_TEST

START_TEST(one_window_has_no_error)
{
    struct eval_window w = {.tokens = 10, .nll = 10};
    struct eval_result r = {0};

    eval_summarise(&w, 1, NULL, 0, 0, &r);
    NEAR(r.nll_mean, 1, 0);
    ck_assert(isnan(r.nll_stderr) && isnan(r.ppl_high));
}
END_TEST

UNIT_CASE(eval, two_outcomes_by_hand, divergence_against_plain_sums, students_t, windows_of_equal_length, windows_of_unequal_length,
          paired_interval_and_quantiles, one_window_has_no_error)

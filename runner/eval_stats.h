#ifndef LLMQ_RUNNER_EVAL_STATS_H
#define LLMQ_RUNNER_EVAL_STATS_H

/* The arithmetic of an evaluation, apart from any model: rows of logits to numbers, numbers to a result. */

#include "runner/eval.h"

/* One scored token. */
struct eval_token {
    double nll, base_nll, kl, prob_change; /* without a baseline the last three are 0 */
    int    same_top;
};

/* One model's row: its logits, their largest, and log(sum(exp)). */
struct eval_row {
    const float *logits;
    float        max;
    double       lse;
};

/* base may be NULL. */
struct eval_token eval_score(const struct eval_row *model, const struct eval_row *base, int n, int32_t target);

/* Sums over one window's tokens. */
struct eval_window {
    long   tokens;
    double nll, base_nll, kl, same_top, prob_change2;
};
void eval_window_add(struct eval_window *w, const struct eval_token *t);

/* Means, errors clustered by window, intervals.  kl: every token's, sorted in place; NULL without a baseline.
 * words: see struct corpus.  Errors are NaN for a single window. */
void eval_summarise(const struct eval_window *w, int windows, double *kl, long n_kl, size_t words, struct eval_result *out);

#endif

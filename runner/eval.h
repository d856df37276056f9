#ifndef LLMQ_RUNNER_EVAL_H
#define LLMQ_RUNNER_EVAL_H

/* PUBLIC.  Perplexity of a model over a corpus, and its distance from a baseline on the same tokens
 * (KL divergence, top-1 agreement), with errors clustered by window.  Both models run in lockstep, window by
 * window; nothing is stored.  Sources: the statistics stand in docs/EVALUATION.md with their formulas. */

#include "common/err.h"
#include "runner/text/corpus.h"

#include <stdint.h>

struct eval_options {
    const char *device, *isa, *kv_dtype; /* NULL: auto, best, f16 */
    int         max_batch_tokens;        /* prefill piece; 0: 256 */
    void      (*progress)(void *ctx, int window, int windows, long tokens, double ppl);
    void       *progress_ctx;
    int        *cancel;
};

struct eval_result {
    int    windows;
    long   tokens_scored;
    double nll_mean, nll_stderr, ppl, ppl_stderr; /* stderr clustered by window; NaN for a single window */
    double ppl_high;                              /* upper end of its 95 % interval */
    double word_ppl;                              /* lm-eval only; otherwise 0 */
    double seconds, tokens_per_s;
    int    has_baseline;
    double base_nll_mean, base_ppl;
    double delta_mean, delta_low, delta_high;     /* NLL difference and its paired 95 % interval */
    double increase, increase_low, increase_high; /* the same as a fraction of the perplexity: exp(delta) - 1 */
    double kl_mean, kl_stderr, kl_p99, kl_p999, kl_max;
    double top1, top1_stderr, prob_change_rms;
    double *window_nll; /* [windows] mean NLL per window; owned by the result */
    char   isa[16];
};

/* baseline_path may be NULL.  The corpus was made with the model's tokenizer; a baseline with another vocabulary size is refused. */
int  llmq_eval(const char *model_path, const char *baseline_path, const struct corpus *c, const struct eval_options *o,
               struct eval_result *out, struct llmq_err *err) LLMQ_MUST_CHECK;
void llmq_eval_free(struct eval_result *r);

/* Student's t, two-sided 95 %, for df degrees of freedom (>= 1). */
double llmq_eval_t95(int df);

#endif

#ifndef LLMQ_RUNNER_MODEL_BATCH_H
#define LLMQ_RUNNER_MODEL_BATCH_H

#include <stdint.h>

/* All that passes from a scheduler to the model: which tokens, at which positions, of which
 * sequences, and where those sequences' keys and values are.  Sequences stand one after the
 * other (CSR): sequence s has tokens q_start[s] .. q_start[s+1]-1 and pages
 * page_table[page_start[s]] .. page_table[page_start[s+1]-1].  Its tokens are its last ones:
 * they are at positions kv_len[s] - (q_start[s+1] - q_start[s]) and up. */
struct batch {
    int            tokens, seqs;
    const int32_t *ids;        /* [tokens] */
    const int32_t *pos;        /* [tokens] position in its sequence, from 0 */
    const int32_t *q_start;    /* [seqs + 1] */
    const int32_t *kv_len;     /* [seqs] tokens visible to the last one, this batch's included */
    const int32_t *page_start; /* [seqs + 1] */
    const int32_t *page_table; /* page ids */
    const int32_t *slot;       /* [tokens] where this token's K and V go: page id * page_tokens + place in the page */
    int            n_logits;   /* rows of logits wanted */
    const int32_t *logit_rows; /* [n_logits] token indices, ascending */
};

#endif

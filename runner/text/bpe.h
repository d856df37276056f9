#ifndef LLMQ_RUNNER_TEXT_BPE_H
#define LLMQ_RUNNER_TEXT_BPE_H

#include "common/err.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* Vocabulary, merges and the BPE model over them; read-only after load. */
struct bpe;
struct token_ids;

/* model: the "model" object of the configuration; vocab, merges: sections as format/format.h states them. */
int  bpe_load(struct bpe **out, const json_t *model, const void *vocab, size_t vocab_len, const void *merges,
              size_t merges_len, struct llmq_err *err) LLMQ_MUST_CHECK;
void bpe_free(struct bpe *b);

int     bpe_count(const struct bpe *b);                                   /* ids are below this */
const char *bpe_text(const struct bpe *b, int32_t id, size_t *len);       /* NULL: no such id */
int32_t bpe_find(const struct bpe *b, const char *text, size_t len);      /* -1: no such token */

/* Working memory of one thread. */
struct bpe_scratch;
int  bpe_scratch_new(struct bpe_scratch **out, struct llmq_err *err) LLMQ_MUST_CHECK;
void bpe_scratch_free(struct bpe_scratch *s);

/* Appends the ids of one pre-token. */
int bpe_encode(const struct bpe *b, struct bpe_scratch *s, const char *text, size_t len, struct token_ids *out,
               struct llmq_err *err) LLMQ_MUST_CHECK;

int bpe_push(struct token_ids *out, int32_t id, struct llmq_err *err) LLMQ_MUST_CHECK;

#endif

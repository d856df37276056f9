#ifndef LLMQ_RUNNER_TEXT_CORPUS_H
#define LLMQ_RUNNER_TEXT_CORPUS_H

/* PUBLIC.  Text to fixed windows of tokens, for evaluation and for calibration.
 *
 * A corpus owns its ids and window bounds.  Windows are rows of ids; a window's first token is context only. */

#include "common/err.h"
#include "runner/text/tokenizer.h"

#include <stddef.h>
#include <stdint.h>

enum corpus_protocol {
    CORPUS_PLAIN,    /* the text as it is, tokenized once, non-overlapping windows, BOS as the tokenizer says; every
                        token after a window's first is scored; a last partial window is left out */
    CORPUS_GPTQ,     /* lines are the data set's rows, joined by two newlines, blank rows empty; then as PLAIN */
    CORPUS_LLAMA_CPP, /* windows of ctx; the first token of each becomes BOS if the model adds one; second half scored */
    CORPUS_LM_EVAL   /* rolling windows with one token of context, per document (WikiText pages), BOS or EOS as prefix */
};

struct corpus_window {
    size_t start;        /* into ids */
    int    len;          /* tokens, at most ctx; LM_EVAL: ctx + 1, of which the last is only predicted */
    int    score_from;   /* predictions of tokens score_from .. len-1 are scored (>= 1) */
};

struct corpus {
    int32_t              *ids;
    size_t                n_ids;
    struct corpus_window *windows;
    int                   n_windows;
    int                   ctx;
    enum corpus_protocol  protocol;
    char                  sha256[65];       /* of the data file's bytes */
    char                  token_sha256[65]; /* of ids as int32, little-endian */
    size_t                words, bytes;     /* LM_EVAL: of the original documents; 0 when the last one is not whole */
    int                   stride;           /* tokens from one window to the next */
    const char           *bos;              /* where BOS stands: "none", "start" (of the text), "window", "document" */
    const char           *packing;          /* calibration: "packed" */
};

/* A text file for evaluation.  max_windows 0: all; LM_EVAL keeps whole documents as long as one fits.
 * prefix_id: what LM_EVAL puts in front of a document, the model's BOS or else its EOS; the others ignore it. */
int corpus_open(struct corpus **out, const char *path, const struct tokenizer *t, enum corpus_protocol protocol, int ctx,
                int max_windows, int32_t prefix_id, struct llmq_err *err) LLMQ_MUST_CHECK;
/* Calibration: text, or JSONL (told by its first line being an object) whose lines have "text" or "ids";
 * "messages" are refused so far.  Documents are packed one after the other into `samples` windows of `seqlen`;
 * fewer when the text ends (the caller warns), one short one when there is no whole one; LLMQ_EFORMAT when
 * there are not even 2 tokens.  The path "builtin" is the text in the binary. */
int corpus_open_calib(struct corpus **out, const char *path, const struct tokenizer *t, int n_vocab, int samples, int seqlen,
                      struct llmq_err *err) LLMQ_MUST_CHECK;
/* Calibration windows that stand already: ids [windows][len], copied.  bos as in struct corpus. */
int corpus_from_windows(struct corpus **out, const int32_t *ids, int windows, int len, const char *bos, struct llmq_err *err) LLMQ_MUST_CHECK;
void corpus_close(struct corpus *c);

const char *corpus_protocol_name(enum corpus_protocol p); /* "plain", "gptq", "llama.cpp", "lm-eval" */

#endif

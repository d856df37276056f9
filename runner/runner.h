#ifndef LLMQ_RUNNER_RUNNER_H
#define LLMQ_RUNNER_RUNNER_H

/* PUBLIC.  Executes a .llmq: the engine that `llmq run` drives.
 *
 * An engine owns model, pages and tokenizer of one file.  A request is submitted, and llmq_engine_step called
 * until it is finished; each step runs one batch (a piece of a prompt, or one token of each running sequence).
 * Not thread-safe: one thread owns an engine. */

#include "common/err.h"
#include "common/str.h"
#include "format/format.h"

#include <stddef.h>
#include <stdint.h>

struct llmq_engine;

struct llmq_engine_options {
    const char *device, *isa;   /* NULL: auto, the best */
    const char *kv_dtype;       /* "f32" or "f16"; NULL: f16 */
    int         ctx;            /* longest sequence; 0: the smaller of the model's and 4096 */
    int         page_tokens;    /* 0: 32 */
    int         max_batch_tokens; /* prompt piece; 0: 256 */
};

int  llmq_engine_open(struct llmq_engine **out, const char *path, const struct llmq_engine_options *o, struct llmq_err *err) LLMQ_MUST_CHECK;
void llmq_engine_close(struct llmq_engine *e);
const struct llmq_file *llmq_engine_file(const struct llmq_engine *e);
struct tokenizer;
const struct tokenizer *llmq_engine_tokenizer(const struct llmq_engine *e);
const char *llmq_engine_isa(const struct llmq_engine *e);

struct llmq_sampling {
    float    temperature; /* 0: greedy */
    int      top_k;       /* 0: off */
    float    top_p;       /* 1: off */
    float    min_p;       /* 0: off */
    float    repetition_penalty; /* 1: off */
    uint64_t seed;
};

struct llmq_request {
    const int32_t       *ids; /* prompt, copied */
    int                  n_ids;
    int                  max_new; /* most tokens to make */
    int                  ignore_eos;
    struct llmq_sampling sampling;
};

enum llmq_finish { LLMQ_FINISH_NONE, LLMQ_FINISH_STOP, LLMQ_FINISH_LENGTH };

struct llmq_step_out {
    int32_t          id;     /* the token made in this step, or -1 (still reading the prompt) */
    enum llmq_finish finish; /* STOP: id is an end token (not part of the text) */
};

/* One request at a time so far. */
int llmq_engine_submit(struct llmq_engine *e, const struct llmq_request *r, struct llmq_err *err) LLMQ_MUST_CHECK;
int llmq_engine_step(struct llmq_engine *e, struct llmq_step_out *out, struct llmq_err *err) LLMQ_MUST_CHECK;
void llmq_engine_cancel(struct llmq_engine *e);

struct llmq_engine_stats {
    int         prompt_tokens, completion_tokens;
    double      load_s, ttft_s, prefill_s, decode_s;
    const char *kv_dtype;
    int         page_tokens, pages_used, pages_total, ctx;
};
void llmq_engine_get_stats(const struct llmq_engine *e, struct llmq_engine_stats *s);

/* The prompt that a chat template makes of one system and one user message (system may be NULL).  template:
 * "chatml" (no default system message), "none" (the user's text alone), or NULL: recognised from the file, with
 * its own default system message; LLMQ_EUSAGE says what to pass when it is not known. */
int llmq_chat_prompt(const struct llmq_file *f, const char *template_name, const char *system, const char *user,
                     struct llmq_str *out, struct llmq_err *err) LLMQ_MUST_CHECK;

/* The same prompt as token ids.  Only the template's own special tokens become special: the same letters in a
 * message stay letters. */
struct token_ids;
int llmq_chat_encode(const struct llmq_file *f, const struct tokenizer *t, const char *template_name, const char *system,
                     const char *user, struct token_ids *out, struct llmq_err *err) LLMQ_MUST_CHECK;

#endif

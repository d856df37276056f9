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

enum { LLMQ_MAX_STOP = 8 };

struct llmq_request {
    const int32_t       *ids; /* prompt, copied */
    int                  n_ids;
    int                  max_new; /* most tokens to make */
    int                  ignore_eos;
    int32_t              stop_id[LLMQ_MAX_STOP]; /* more end tokens beside the model's */
    int                  n_stop;
    struct llmq_sampling sampling;
};

enum llmq_finish { LLMQ_FINISH_NONE, LLMQ_FINISH_STOP, LLMQ_FINISH_LENGTH };

struct llmq_step_out {
    int32_t          id;     /* the token made in this step, or -1 (still reading the prompt) */
    enum llmq_finish finish; /* STOP: id is an end token (not part of the text) */
};

/* One request at a time so far.  Keys and values of the request before are kept for as many tokens as the new prompt
 * begins with, all but its last at most: a conversation reads only what is new. */
int llmq_engine_submit(struct llmq_engine *e, const struct llmq_request *r, struct llmq_err *err) LLMQ_MUST_CHECK;
int llmq_engine_step(struct llmq_engine *e, struct llmq_step_out *out, struct llmq_err *err) LLMQ_MUST_CHECK;
void llmq_engine_cancel(struct llmq_engine *e); /* ends the running request, if there is one */

struct llmq_engine_stats {
    int         prompt_tokens, completion_tokens;
    int         cached_tokens; /* of the prompt: their keys and values were still there from the request before */
    double      load_s, ttft_s, prefill_s, decode_s;
    const char *kv_dtype;
    int         page_tokens, pages_used, pages_total, ctx;
};
void llmq_engine_get_stats(const struct llmq_engine *e, struct llmq_engine_stats *s);

/* ---- chat: messages to a prompt --------------------------------------------------------------------------- */

enum llmq_chat_role { LLMQ_CHAT_SYSTEM, LLMQ_CHAT_USER, LLMQ_CHAT_ASSISTANT };

struct llmq_message {
    enum llmq_chat_role role;
    const char         *content; /* UTF-8 */
};

struct llmq_chat;
struct token_ids;

/* A chat template for this file and its tokenizer (both stay the caller's and must outlive *out).  name: one of
 * LLMQ_CHAT_NAMES, or NULL for the file's own template, a Jinja text.  LLMQ_EUSAGE says what to pass when the file has
 * none, or one that cannot be read.  "none" is the messages' texts with newlines between and the tokenizer's own
 * beginning; "qwen" is ChatML with Qwen's default system message. */
#define LLMQ_CHAT_NAMES "chatml|llama2|llama3|mistral|qwen|none"
int  llmq_chat_open(struct llmq_chat **out, const struct llmq_file *f, const struct tokenizer *t, const char *name,
                    struct llmq_err *err) LLMQ_MUST_CHECK;
void llmq_chat_close(struct llmq_chat *c);

/* The template's text for n messages, up to where the answer begins.  LLMQ_EUSAGE: the template refuses the messages
 * (an order of roles, say, or a system message). */
int llmq_chat_prompt(const struct llmq_chat *c, const struct llmq_message *m, size_t n, struct llmq_str *out,
                     struct llmq_err *err) LLMQ_MUST_CHECK;

/* The same prompt as token ids.  Only the template's own special tokens become special: the same letters in a
 * message stay letters, or are refused where the model has no other way to tell them apart. */
int llmq_chat_encode(const struct llmq_chat *c, const struct llmq_message *m, size_t n, struct token_ids *out,
                     struct llmq_err *err) LLMQ_MUST_CHECK;

/* The special token with which the template ends an answer (often, but not always, among the model's end tokens);
 * -1: none. */
int32_t llmq_chat_stop(const struct llmq_chat *c);

#endif

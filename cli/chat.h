#ifndef LLMQ_CLI_CHAT_H
#define LLMQ_CLI_CHAT_H

#include "common/err.h"
#include "runner/runner.h"

/* A conversation on the terminal: messages from standard input, answers on standard output, everything else on standard
 * error.  Ends at /exit, at the end of the input, or with LLMQ_EINTR. */
struct chat_options {
    const char          *template_name; /* NULL: the model's */
    const char          *system;        /* NULL: none */
    int                  max_tokens;    /* of one answer; 0: what the context has room for */
    int                  ignore_eos;
    int                  stats; /* after each answer */
    struct llmq_sampling sampling;
};
int chat_talk(struct llmq_engine *e, const struct chat_options *o, struct llmq_err *err) LLMQ_MUST_CHECK;

#endif

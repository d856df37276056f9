#ifndef LLMQ_CLI_GENERATE_H
#define LLMQ_CLI_GENERATE_H

/* What one answer of `llmq run` needs, be it the only one or one of a conversation. */

#include "common/err.h"
#include "common/str.h"
#include "runner/runner.h"
#include "runner/text/tokenizer.h"

#include <jansson.h>
#include <stddef.h>

/* Everything that is made. */
struct answer {
    struct llmq_str          text;
    struct tokenizer_stream *stream;
    json_t                  *ids;
    int                      hidden; /* not on stdout as it comes */
    size_t                   shown;  /* bytes of text that are on stdout */
    int                      gone;   /* stdout's reader has had enough */
    enum llmq_finish         finish;
};

int  answer_init(struct answer *a, const struct llmq_engine *e, int hidden, struct llmq_err *err) LLMQ_MUST_CHECK;
void answer_fini(struct answer *a);

/* Steps e's submitted request to its end, text on stdout as it becomes certain and a newline at last.  An interruption
 * (cli_interrupted), or a reader that left, ends it like a limit does: what was made stays. */
int answer_make(struct answer *a, struct llmq_engine *e, struct llmq_err *err) LLMQ_MUST_CHECK;

const char *answer_finish_name(const struct answer *a);
double      answer_prefill_rate(const struct llmq_engine_stats *st); /* tokens/s, of those that were read */
double      answer_decode_rate(const struct llmq_engine_stats *st);
void        answer_print_stats(const struct answer *a, const struct llmq_engine *e); /* on stderr */

#endif

#ifndef LLMQ_CLI_CALIBSET_H
#define LLMQ_CLI_CALIBSET_H

/* `--calib`: text of a file, the text in the binary, or windows that the model writes itself. */

#include "common/err.h"
#include "format/format.h"
#include "runner/text/corpus.h"

struct calibset_options {
    const char *from;             /* "builtin", "self" or a path */
    int         samples, seqlen;  /* seqlen 0: the smaller of 1024 and the context */
    uint64_t    seed;
    const char *source, *beside;  /* self: the model's path; a converted copy is kept beside this output meanwhile */
    int         dry_run;          /* self: windows of the right number and size, but nothing is drawn */
};

int calibset_open(struct corpus **out, struct llmq_source *src, const struct calibset_options *o, struct llmq_err *err) LLMQ_MUST_CHECK;

#endif

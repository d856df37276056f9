#ifndef LLMQ_RUNNER_MODEL_WEIGHTS_H
#define LLMQ_RUNNER_MODEL_WEIGHTS_H

#include "runner/model/model.h"

/* Binds every tensor of f.  The reader has checked that the set is complete. */
int weights_bind_file(struct model *m, const struct llmq_file *f, struct llmq_err *err) LLMQ_MUST_CHECK;

#endif

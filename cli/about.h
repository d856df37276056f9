#ifndef LLMQ_CLI_ABOUT_H
#define LLMQ_CLI_ABOUT_H

#include "common/err.h"

/* `llmq --version`: which llmq this is, what it was built from and with, and what it can use here. */
int about_print(int json, struct llmq_err *err) LLMQ_MUST_CHECK;

#endif

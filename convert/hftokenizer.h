#ifndef LLMQ_CONVERT_HFTOKENIZER_H
#define LLMQ_CONVERT_HFTOKENIZER_H

#include "common/err.h"
#include "common/str.h"

#include <stddef.h>

/* The bytes of a tokenizer.json as the sections TOKENIZER, VOCAB and MERGES of a .llmq (format/format.h).  The strings
 * must have been initialised; they are appended to.  `where` names the file in messages.  Refuses, by name, what
 * llmq_tokenizer_check refuses, and vocabularies that contradict themselves. */
int hftokenizer_sections(const char *json, size_t len, const char *where, struct llmq_str *config, struct llmq_str *vocab,
                         struct llmq_str *merges, struct llmq_err *err) LLMQ_MUST_CHECK;

#endif

#ifndef LLMQ_RUNNER_TEXT_WIKITEXT_H
#define LLMQ_RUNNER_TEXT_WIKITEXT_H

/* WikiText's plain text files, read the way the published perplexities read them. */

#include "common/err.h"
#include "common/str.h"

#include <stddef.h>

/* Bytes of the white-space character (Unicode's, as Python's str.isspace) at p, or 0. */
size_t wikitext_space(const char *p, const char *end);

/* The data set's rows (each line with its newline; a blank line is an empty row) joined by two newlines. */
int wikitext_join_rows(const char *text, size_t len, struct llmq_str *out, struct llmq_err *err) LLMQ_MUST_CHECK;

/* The next page of text[*at, len): it starts at a heading of the first level (" = Title = "), or at the text's start if
 * something stands in front of the first one, and ends before the newline in front of the next heading.  Moves *at behind
 * the page; returns 0 when there is none left. */
int wikitext_page(const char *text, size_t len, size_t *at, const char **page, size_t *page_len);
/* White-space runs plus one: what lm-eval divides by. */
size_t wikitext_words(const char *page, size_t len);
/* Undoes WikiText's tokenization as lm-eval's task does. */
int wikitext_detokenize(const char *page, size_t len, struct llmq_str *out, struct llmq_err *err) LLMQ_MUST_CHECK;

#endif

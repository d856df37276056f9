#ifndef LLMQ_RUNNER_TEXT_ADDED_H
#define LLMQ_RUNNER_TEXT_ADDED_H

#include "common/err.h"
#include "runner/text/normalize.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* Added tokens: texts that are found in the input before the model sees it.  Read-only after load. */
struct added;

struct added_token {
    char   *content;
    size_t  len;
    char   *normal;  /* what is looked for and what the decoder sees: the normalized content */
    size_t  normal_len;
    int32_t id;
    int     single_word, lstrip, rstrip, normalized, special;
    int     hidden; /* left out when special tokens are: its normal text is the content of a special token */
};

/* list: the configuration's "added_tokens", ids resolved. */
int  added_load(struct added **out, const json_t *list, const struct normalize *n, struct llmq_err *err) LLMQ_MUST_CHECK;
void added_free(struct added *a);

int                       added_count(const struct added *a);
const struct added_token *added_token(const struct added *a, int i);
const struct added_token *added_by_id(const struct added *a, int32_t id);  /* NULL: none */
const struct added_token *added_by_content(const struct added *a, const char *text, size_t len);

/* Which bytes of a text came from a message and not from a chat template: marks[i] is 1 or 0.  A special token that
 * touches a marked byte is text; so is another token that the text holds unmarked as well, for then the template
 * speaks with it. */
struct added_marks {
    const char *text, *marks;
    size_t      len;
    char       *known; /* [added_count], zero at first: what has been found out about each token */
};

/* Calls found for each token (id) and each stretch of text between (id -1), in order.  normalized: which of the two
 * kinds of tokens is looked for.  Special ones are text when !special.  marks may be NULL; text stands at marks->text +
 * offset. */
typedef int (*added_found_fn)(void *ctx, const char *text, size_t from, size_t to, int32_t id, struct llmq_err *err);
int added_split(const struct added *a, int normalized, int special, const char *text, size_t len, const struct added_marks *marks,
                size_t offset, added_found_fn found, void *ctx, struct llmq_err *err) LLMQ_MUST_CHECK;
int added_any_normalized(const struct added *a);

#endif

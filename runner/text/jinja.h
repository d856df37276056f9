#ifndef LLMQ_RUNNER_TEXT_JINJA_H
#define LLMQ_RUNNER_TEXT_JINJA_H

/* Chat templates: Jinja as transformers sets it up (an immutable sandbox with trim_blocks, lstrip_blocks, loop controls,
 * generation blocks, tojson, raise_exception and strftime_now; https://jinja.palletsprojects.com/templates).
 *
 * Left out, and refused by name: inheritance, include and import, recursive loops, autoescape, the % operator on
 * strings, and the filters and tests that jinja_filter.c and jinja_test.c do not list.
 *
 * A template is untrusted input: nesting, steps, memory and output have limits, and it can reach nothing but its
 * context.  Each byte of the output says where it came from (the template, or a message), so that a message's text
 * cannot pass for the template's own special tokens. */

#include "common/err.h"
#include "common/str.h"

#include <jansson.h>
#include <stddef.h>
#include <time.h>

struct jinja;

/* LLMQ_EFORMAT names the line and what stands there.  text is not needed afterwards. */
int  jinja_parse(struct jinja **out, const char *text, size_t len, struct llmq_err *err) LLMQ_MUST_CHECK;
void jinja_free(struct jinja *t);

/* Appends what the template makes of the variables in `context` (an object) at local time `now`.  marks gets a byte for
 * each byte of text: 1 when it came from a string below context["messages"], "tools" or "documents" other than a
 * "role", 0 otherwise.  LLMQ_EFORMAT names the line; the text of raise_exception is LLMQ_EUSAGE. */
int jinja_render(const struct jinja *t, const json_t *context, time_t now, struct llmq_str *text, struct llmq_str *marks,
                 struct llmq_err *err) LLMQ_MUST_CHECK;

#endif

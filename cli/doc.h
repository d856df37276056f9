#ifndef LLMQ_CLI_DOC_H
#define LLMQ_CLI_DOC_H

/* The keys that every JSON document of the command line has. */

#include "common/err.h"
#include "format/format.h"

#include <jansson.h>

/* {name, sha256, scheme, bits_per_weight, size_bytes}; with_hash reads the whole file. */
int doc_model(json_t **out, const struct llmq_file *f, int with_hash, struct llmq_err *err) LLMQ_MUST_CHECK;

/* {schema, version, model, threads, isa, device, peak_rss_bytes, exit_code}; takes model over (may be NULL: null). */
json_t *doc_new(const char *schema, json_t *model, const char *isa, int exit_code);

/* A number, or null when it is not finite. */
json_t *doc_real(double x);

/* Prints a document on stdout and releases it; NULL, which memory was missing for, is an error.  A reader that
 * went away is none. */
int doc_print(json_t *doc, struct llmq_err *err) LLMQ_MUST_CHECK;

/* "int4-g128-sym": the scheme that holds most of the weights in layers. */
void doc_scheme(const struct llmq_file *f, char *out, size_t size);

/* Refuses what cannot be a .llmq before it is opened: a directory (convert it first), another kind of model file,
 * nothing there. */
int doc_check_model_path(const char *path, struct llmq_err *err) LLMQ_MUST_CHECK;

#endif

#ifndef LLMQ_COMMON_JSON_H
#define LLMQ_COMMON_JSON_H

#include "common/err.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* jansson with limits and our errors.  `where` names the text in messages (a file, "request"). */

/* Parses a text of at most max_bytes; duplicate keys are refused.  The caller owns *out (json_decref). */
int llmq_json_parse(json_t **out, const char *text, size_t len, size_t max_bytes, const char *where,
                    struct llmq_err *err) LLMQ_MUST_CHECK;

/* The same for files that hold integers beyond 64 bits (transformers writes 10^30 for "no limit"): every
 * integer becomes a real. */
int llmq_json_parse_reals(json_t **out, const char *text, size_t len, size_t max_bytes, const char *where,
                          struct llmq_err *err) LLMQ_MUST_CHECK;

/* Reads a whole file and parses it. */
int llmq_json_load(json_t **out, const char *path, size_t max_bytes, struct llmq_err *err) LLMQ_MUST_CHECK;

/* Members of an object.  A missing or null member leaves *out as it is and is fine, unless `required`;
 * one of the wrong type is LLMQ_EFORMAT, naming where, key, found and expected. */
enum { LLMQ_JSON_OPTIONAL = 0, LLMQ_JSON_REQUIRED = 1 };
int llmq_json_int(const json_t *obj, const char *key, int need, int64_t *out, const char *where, struct llmq_err *err)
    LLMQ_MUST_CHECK;
int llmq_json_real(const json_t *obj, const char *key, int need, double *out, const char *where, struct llmq_err *err)
    LLMQ_MUST_CHECK;
int llmq_json_bool(const json_t *obj, const char *key, int need, int *out, const char *where, struct llmq_err *err)
    LLMQ_MUST_CHECK;
/* The string belongs to obj. */
int llmq_json_str(const json_t *obj, const char *key, int need, const char **out, const char *where,
                  struct llmq_err *err) LLMQ_MUST_CHECK;

/* A string of bytes that need not be UTF-8, as names of files need not: a '?' stands for each that is not.  NULL when
 * memory is out. */
json_t *llmq_json_name(const char *bytes);

/* Appends a value as text, without white space and with sorted keys: equal values give equal bytes. */
struct llmq_str;
int llmq_json_text(const json_t *v, struct llmq_str *out, struct llmq_err *err) LLMQ_MUST_CHECK;

#endif

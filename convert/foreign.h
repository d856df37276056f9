#ifndef LLMQ_CONVERT_FOREIGN_H
#define LLMQ_CONVERT_FOREIGN_H

/* PUBLIC.  What is inside model files of other kinds: safetensors, GGUF.  Only headers are read. */

#include "common/err.h"

#include <jansson.h>

enum foreign_kind { FOREIGN_NONE, FOREIGN_GGUF, FOREIGN_SAFETENSORS };

/* By the first bytes of a regular file; FOREIGN_NONE also when it cannot be read. */
enum foreign_kind foreign_kind(const char *path);

/* {kind, file_bytes, format_version (GGUF; otherwise null), weights, bits_per_weight (null when a type is not known),
 * metadata {key: value}, schemes [{scheme, tensors, weights, bytes}], tensors [{name, scheme, shape, offset, bytes}]}, in the
 * file's order (safetensors: by name; the shape's last dimension is the contiguous one).  bytes is null for a type that is not
 * known.  An array of more than 16 elements is {array: type, length}.  The caller owns *out. */
int foreign_describe(const char *path, json_t **out, struct llmq_err *err) LLMQ_MUST_CHECK;

#endif

#ifndef LLMQ_CONVERT_SAFETENSORS_H
#define LLMQ_CONVERT_SAFETENSORS_H

#include "common/alloc.h"
#include "common/err.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* Safetensors checkpoints, one file or many shards with an index.
 *
 * Opening reads the headers only and believes nothing: after it, every tensor's bytes lie inside its file,
 * no byte of a file belongs to none or to two, names are unique over all shards, and index and shards name
 * the same tensors.  Weights are read with pread, so a checkpoint of any size costs no resident memory. */

enum { SAFETENSORS_MAX_RANK = 8, SAFETENSORS_MAX_NAME = 1024 };

struct safetensors_tensor {
    const char *name;
    const char *type;  /* the element type as the file spells it: "BF16" */
    int         dtype; /* enum llmq_dtype, LLMQ_DTYPE_NONE for a type that holds no weights here */
    int         rank;
    int         shard; /* index into shards */
    uint64_t    shape[SAFETENSORS_MAX_RANK];
    uint64_t    offset, bytes; /* in the shard's file */
};

struct safetensors_shard {
    const char *name; /* base name */
    const char *path;
    int         fd; /* -1: not open */
    uint64_t    size_bytes;
};

struct safetensors {
    struct safetensors_shard  *shards;
    int                        n_shards;
    struct safetensors_tensor *tensors; /* by name, in strcmp order */
    int                        n_tensors;
    const char                *index_path; /* NULL: a single file without an index */
    struct llmq_arena          arena;
};

/* One header from memory: the N bytes behind the eight of its length, in a file of file_bytes.  Appends to
 * nothing: *tensors is allocated in arena.  `where` names the file in messages. */
int safetensors_parse(const char *json, size_t len, uint64_t file_bytes, const char *where, int shard,
                      struct llmq_arena *arena, struct safetensors_tensor **tensors, int *n_tensors,
                      struct llmq_err *err) LLMQ_MUST_CHECK;

/* A directory with model.safetensors, or model.safetensors.index.json and the shards it names.  st is
 * filled and must be closed, also after an error. */
int  safetensors_open(struct safetensors *st, const char *dir, struct llmq_err *err) LLMQ_MUST_CHECK;
/* One file, without an index; the same rules. */
int  safetensors_open_file(struct safetensors *st, const char *path, struct llmq_err *err) LLMQ_MUST_CHECK;
/* The "__metadata__" of a shard's header; an empty object when there is none.  The caller owns *out. */
int  safetensors_metadata(const struct safetensors *st, int shard, json_t **out, struct llmq_err *err) LLMQ_MUST_CHECK;
void safetensors_close(struct safetensors *st);

/* NULL when there is none of this name. */
const struct safetensors_tensor *safetensors_find(const struct safetensors *st, const char *name);

/* Bytes [offset, offset + len) of a tensor; the caller keeps within it. */
int safetensors_read(const struct safetensors *st, const struct safetensors_tensor *t, uint64_t offset, void *dst,
                     size_t len, struct llmq_err *err) LLMQ_MUST_CHECK;

/* "[49152, 576]", for messages. */
const char *safetensors_shape(const struct safetensors_tensor *t, char *out, size_t size);

#endif

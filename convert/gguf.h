#ifndef LLMQ_CONVERT_GGUF_H
#define LLMQ_CONVERT_GGUF_H

/* GGUF files, versions 2 and 3, little-endian: header, metadata and tensor list
 * (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).  Nothing in the file is believed: counts, lengths and offsets are
 * checked against its size. */

#include "common/alloc.h"
#include "common/err.h"
#include "common/io.h"

#include <stddef.h>
#include <stdint.h>

enum gguf_type {
    GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL, GGUF_STRING, GGUF_ARRAY, GGUF_U64, GGUF_I64, GGUF_F64,
    GGUF_N_TYPES
};

struct gguf_text { /* UTF-8 inside the mapping, not terminated */
    const char *p;
    size_t      n;
};

struct gguf_value {
    int type; /* enum gguf_type */
    union {
        uint64_t         u; /* unsigned ones, BOOL (0 or 1) */
        int64_t          i;
        double           f;
        struct gguf_text text;
        struct {
            int                  type; /* of elements: no ARRAY */
            uint64_t             n;
            const unsigned char *at;
        } array;
    };
};

struct gguf_pair {
    struct gguf_text  key;
    struct gguf_value value;
};

enum { GGUF_MAX_RANK = 4 };

struct gguf_tensor {
    struct gguf_text name;
    uint32_t         type; /* ggml's number */
    int              rank;
    uint64_t         shape[GGUF_MAX_RANK]; /* the fastest dimension first, as ggml has it */
    uint64_t         weights, offset, bytes; /* offset in the file; bytes 0: a type that is not known */
};

struct gguf {
    struct llmq_map     map; /* data NULL: parsed from memory */
    uint32_t            version, alignment;
    struct gguf_pair   *pairs;
    size_t              n_pairs;
    struct gguf_tensor *tensors;
    size_t              n_tensors;
    struct llmq_arena   arena;
};

/* g is filled and must be closed, also after an error. */
int  gguf_open(struct gguf *g, const char *path, struct llmq_err *err) LLMQ_MUST_CHECK;
int  gguf_parse(struct gguf *g, const void *bytes, size_t size, const char *where, struct llmq_err *err) LLMQ_MUST_CHECK;
void gguf_close(struct gguf *g);

const char *gguf_type_name(int type);                   /* "string"; "?" for an unknown one */
const char *gguf_tensor_type_name(uint32_t type);       /* "Q4_K"; NULL for an unknown one */
/* The next element of an array value; *at begins at value.array.at. */
void gguf_element(const struct gguf_value *array, const unsigned char **at, struct gguf_value *out);

#endif

/* Element types: name and size. */
#include "format/format.h"

static const struct {
    const char *name;
    size_t      bytes;
} types[LLMQ_DTYPE_COUNT] = {{"none", 0}, {"f32", 4}, {"f16", 2}, {"bf16", 2}};

const char *llmq_dtype_name(int dtype) { return dtype < 0 || dtype >= LLMQ_DTYPE_COUNT ? "?" : types[dtype].name; }

size_t llmq_dtype_bytes(int dtype) { return dtype < 0 || dtype >= LLMQ_DTYPE_COUNT ? 0 : types[dtype].bytes; }

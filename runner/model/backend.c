/* The list of backends.  A backend is one table (ops.h); nothing else in runner/ names a device. */
#include "runner/model/ops.h"

#include <string.h>

const struct backend_ops *backend_find(const char *name)
{
    if (!name || !strcmp(name, "auto") || !strcmp(name, llmq_backend_cpu.name))
        return &llmq_backend_cpu;
    return NULL;
}

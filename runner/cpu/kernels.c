/* The table of kernels for an instruction-set level: see kernels.h. */
#include "runner/cpu/kernels.h"

#include <string.h>

void kernels_fill(struct cpu_kernels *t, enum cpu_isa isa)
{
    memset(t, 0, sizeof *t);
    kernels_scalar(t);
    (void)isa;
}

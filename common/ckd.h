#ifndef LLMQ_COMMON_CKD_H
#define LLMQ_COMMON_CKD_H

/* Size arithmetic that cannot wrap.  Each returns nonzero when the true result does
 * not fit *out.  Everything that comes from a file goes through these. */

#define llmq_ckd_add(out, a, b) __builtin_add_overflow((a), (b), (out))
#define llmq_ckd_sub(out, a, b) __builtin_sub_overflow((a), (b), (out))
#define llmq_ckd_mul(out, a, b) __builtin_mul_overflow((a), (b), (out))

#endif

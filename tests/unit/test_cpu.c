/* runner/cpu: what opening and binding refuse.  (The kernels are checked by tests/kernels.) */
#include "common/alloc.h"
#include "runner/model/ops.h"
#include "tests/unit/unit.h"

#include <string.h>

static const struct backend_ops *const cpu = &llmq_backend_cpu;

static struct backend *open_scalar(void)
{
    struct backend_config cfg = {.isa = "scalar", .max_k = 128, .max_tokens = 4};
    struct llmq_err       err = {0};
    struct backend       *be;

    ck_assert_int_eq(cpu->open(&be, &cfg, &err), 0);
    ck_assert_str_eq(cpu->isa(be), "scalar");
    return be;
}

START_TEST(unknown_instruction_set_is_refused)
{
    struct backend_config cfg = {.isa = "mmx", .max_k = 64, .max_tokens = 1};
    struct llmq_err       err = {0};
    struct backend       *be;

    ck_assert_int_eq(cpu->open(&be, &cfg, &err), LLMQ_EUSAGE);
    ck_assert_ptr_null(be);
    ck_assert_ptr_nonnull(strstr(err.text, "mmx"));
}
END_TEST

START_TEST(open_survives_every_failing_allocation)
{
    struct backend_config cfg = {.max_k = 64, .max_tokens = 1};
    struct llmq_err       err = {0};
    struct backend       *be;
    size_t                live = llmq_alloc_live();
    long                  nth = 1;

    for (;; nth++) {
        llmq_alloc_fail_nth(nth);
        if (cpu->open(&be, &cfg, &err) == 0)
            break;
        ck_assert_int_eq(err.code, LLMQ_ENOMEM);
        ck_assert_uint_eq(llmq_alloc_live(), live);
    }
    llmq_alloc_fail_nth(0);
    ck_assert_int_gt(nth, 3);
    cpu->close(be);
    ck_assert_uint_eq(llmq_alloc_live(), live);
}
END_TEST

/* A tensor that binds; each case of the test below spoils one thing. */
static struct llmq_tensor good(const void *bytes)
{
    struct llmq_tensor t = {.role = LLMQ_ROLE_ATTN_Q, .layout = LLMQ_LAYOUT_TILES, .n = 10, .k = 100, .n_pad = 16,
                            .k_pad = 128, .data = bytes, .scales = bytes, .zeros = NULL};

    t.scheme = (struct llmq_scheme){.kind = LLMQ_KIND_INT, .bits = 4, .symmetric = 1, .scale_dtype = LLMQ_DTYPE_F16,
                                    .group = 64};
    return t;
}

START_TEST(binding_refuses_what_no_kernel_reads)
{
    struct backend    *be = open_scalar();
    struct llmq_err    err = {0};
    struct weight      w;
    char              *bytes;
    struct llmq_tensor bad[8];

    ck_assert_int_eq(LLMQ_NEW(&bytes, 4096, "tensor", &err), 0);
    for (int i = 0; i < 8; i++)
        bad[i] = good(bytes);
    ck_assert_int_eq(cpu->weight_bind(be, &bad[0], &w, &err), 0);
    ck_assert_ptr_eq(w.data, bytes);
    bad[0].layout = 7;
    bad[1].scheme.bits = 3;
    bad[2].scheme.group = 48;
    bad[3].scheme.symmetric = 0; /* no zero points */
    bad[4].k_pad = 100;
    bad[5].k = 1000;
    bad[5].k_pad = 1024; /* longer than the backend was opened for */
    bad[6].data = bytes + 32;
    bad[7].scheme.kind = LLMQ_KIND_DENSE;
    bad[7].scheme.dtype = LLMQ_DTYPE_BF16; /* dense, but in tiles */
    for (int i = 0; i < 8; i++) {
        ck_assert_int_eq(cpu->weight_bind(be, &bad[i], &w, &err), LLMQ_EFORMAT);
        ck_assert_ptr_nonnull(strstr(err.text, "attn_q"));
    }
    llmq_free(bytes);
    cpu->close(be);
}
END_TEST

UNIT_CASE(cpu, unknown_instruction_set_is_refused, open_survives_every_failing_allocation,
          binding_refuses_what_no_kernel_reads)

/* Windows that the embedded model writes: likely under the model, the same whatever grows beside them. */
#include "convert/convert.h"
#include "runner/eval.h"
#include "runner/selfsample.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

enum { WINDOWS = 5, LEN = 96 };

static const char *dense(void)
{
    static char            path[512];
    struct convert_options o = {0};
    struct llmq_source    *src;
    struct llmq_err        err = {0};

    snprintf(path, sizeof path, "%s", unit_tmp("self-dense.llmq"));
    ck_assert_msg(!convert_open(&src, "calib_data/demo", &err), "%s", err.text);
    ck_assert_msg(!convert_write(src, path, &o, &err), "%s", err.text);
    src->close(src);
    return path;
}

static struct corpus *drawn(const char *path, int windows, uint64_t seed)
{
    struct selfsample_options o = {.windows = windows, .seqlen = LEN, .seed = seed};
    struct llmq_file         *f;
    struct corpus            *c;
    struct llmq_err           err = {0};

    ck_assert_msg(!llmq_file_open(&f, path, &err), "%s", err.text);
    ck_assert_msg(!selfsample(&c, f, &o, &err), "%s", err.text);
    llmq_file_close(f);
    return c;
}

START_TEST(windows_are_likely)
{
    const char         *path = dense();
    struct corpus      *c = drawn(path, WINDOWS, 1);
    struct eval_options o = {0};
    struct eval_result  own, shuffled;
    struct llmq_err     err = {0};

    ck_assert_int_eq(c->n_windows, WINDOWS);
    ck_assert_int_eq((int)c->n_ids, WINDOWS * LEN);
    ck_assert_str_eq(c->bos, "window");
    for (int w = 0; w < WINDOWS; w++)
        ck_assert_int_eq(c->ids[w * LEN], 0); /* the embedded model's BOS */
    ck_assert_msg(!llmq_eval(path, NULL, c, &o, &own, &err), "%s", err.text);
    for (int w = 0; w + 1 < WINDOWS; w++) /* every other token from the neighbour: what swapped keys would look like */
        for (int t = 1; t < LEN; t += 2)
            c->ids[w * LEN + t] = c->ids[(w + 1) * LEN + t];
    ck_assert_msg(!llmq_eval(path, NULL, c, &o, &shuffled, &err), "%s", err.text);
    ck_assert_msg(own.nll_mean > 1 && own.nll_mean < 5, "%g nats a token", own.nll_mean);
    ck_assert_msg(shuffled.nll_mean > own.nll_mean + 1.5, "%g and %g nats a token", own.nll_mean, shuffled.nll_mean);
    llmq_eval_free(&own);
    llmq_eval_free(&shuffled);
    corpus_close(c);
}
END_TEST

START_TEST(a_window_depends_on_its_number_and_the_seed)
{
    const char    *path = dense();
    struct corpus *many = drawn(path, WINDOWS, 7), *few = drawn(path, 2, 7), *other = drawn(path, 2, 8);
    size_t         bytes = LEN * sizeof(int32_t);

    ck_assert(!memcmp(many->ids, few->ids, 2 * bytes));
    ck_assert(memcmp(few->ids, few->ids + LEN, bytes) != 0);
    ck_assert(memcmp(few->ids, other->ids, bytes) != 0);
    ck_assert_str_ne(few->token_sha256, other->token_sha256);
    corpus_close(many);
    corpus_close(few);
    corpus_close(other);
}
END_TEST

START_TEST(refusals)
{
    struct selfsample_options o = {.windows = 1, .seqlen = 513};
    struct llmq_file         *f;
    struct corpus            *c;
    struct llmq_err           err = {0};
    int                       stop = 1;

    ck_assert_msg(!llmq_file_open(&f, dense(), &err), "%s", err.text);
    ck_assert_int_eq(selfsample(&c, f, &o, &err), LLMQ_EUSAGE);
    ck_assert_msg(strstr(err.text, "512"), "%s", err.text);
    err = (struct llmq_err){0};
    o = (struct selfsample_options){.windows = 1, .seqlen = 16, .cancel = &stop};
    ck_assert_int_eq(selfsample(&c, f, &o, &err), LLMQ_EINTR);
    ck_assert(!c);
    llmq_file_close(f);
}
END_TEST

UNIT_CASE(selfsample, windows_are_likely, a_window_depends_on_its_number_and_the_seed, refusals)

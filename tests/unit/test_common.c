/* common/: errors, allocation, strings, small floats, elementary functions, outputs. */
#include "common/alloc.h"
#include "common/err.h"
#include "common/fmath.h"
#include "common/fp.h"
#include "common/io.h"
#include "common/json.h"
#include "common/rng.h"
#include "common/str.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

START_TEST(fail_within_keeps_the_cause_and_the_code)
{
    struct llmq_err err = {0};

    ck_assert_int_eq(llmq_fail(&err, LLMQ_EFORMAT, "scale %d is NaN", 7), LLMQ_EFORMAT);
    ck_assert_int_eq(llmq_fail_within(&err, "layer %d", 3), LLMQ_EFORMAT);
    ck_assert_str_eq(err.text, "layer 3: scale 7 is NaN");
    ck_assert_int_eq(llmq_err_status(err.code), 4);
}
END_TEST

START_TEST(sizes_do_not_wrap)
{
    struct llmq_err err = {0};
    char           *p;

    ck_assert_int_eq(llmq_alloc((void **)&p, (size_t)1 << 40, (size_t)1 << 40, "x", &err), LLMQ_ENOMEM);
    ck_assert_ptr_null(p);
}
END_TEST

START_TEST(memory_is_zero_and_aligned)
{
    static const size_t sizes[] = {1, 63, 64, 65, 4096, 1 << 20, 5 << 20};
    struct llmq_err     err = {0};

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        unsigned char *p;
        ck_assert_int_eq(LLMQ_NEW(&p, sizes[i], "x", &err), 0);
        ck_assert_uint_eq((uintptr_t)p & 63, 0);
        for (size_t j = 0; j < sizes[i]; j += 61)
            ck_assert_uint_eq(p[j], 0);
        memset(p, 255, sizes[i]);
        llmq_free(p);
    }
}
END_TEST

START_TEST(nth_allocation_fails_once)
{
    struct llmq_err err = {0};
    char           *p, *q;

    llmq_alloc_fail_nth(2);
    ck_assert_int_eq(LLMQ_NEW(&p, 8, "first", &err), 0);
    ck_assert_int_eq(LLMQ_NEW(&q, 8, "second", &err), LLMQ_ENOMEM);
    ck_assert_int_eq(LLMQ_NEW(&q, 8, "third", &err), 0);
    llmq_free(p);
    llmq_free(q);
}
END_TEST

START_TEST(a_string_stops_at_its_maximum)
{
    struct llmq_err err = {0};
    struct llmq_str s;

    llmq_str_init(&s, 10);
    ck_assert_int_eq(llmq_str_append(&s, "12345", 5, &err), 0);
    ck_assert_int_eq(llmq_str_printf(&s, &err, "%d", 67890), 0);
    ck_assert_int_eq(llmq_str_append(&s, "x", 1, &err), LLMQ_ELIMIT);
    ck_assert_str_eq(s.data, "1234567890");
    llmq_str_fini(&s);
}
END_TEST

START_TEST(small_floats_round_trip_and_round_to_even)
{
    for (unsigned i = 0; i < 65536; i++) {
        if ((i & 0x7fff) > 0x7c00)
            continue;
        ck_assert_uint_eq(llmq_f32_to_f16(llmq_f16_to_f32((uint16_t)i)), i);
    }
    ck_assert_uint_eq(llmq_f32_to_f16(65519.0f), 0x7bff);
    ck_assert_uint_eq(llmq_f32_to_f16(65520.0f), 0x7c00);
    ck_assert_uint_eq(llmq_f32_to_f16(0x1.002p0f), 0x3c00); /* a tie goes to even */
    ck_assert_uint_eq(llmq_f32_to_f16(0x1.006p0f), 0x3c02);
    ck_assert_uint_eq(llmq_f32_to_f16(0x1p-25f), 0);
    ck_assert_uint_eq(llmq_f32_to_f16(0x1.8p-25f), 1);
    ck_assert_uint_eq(llmq_f32_to_bf16(0x1.01p0f), 0x3f80);
    ck_assert_uint_eq(llmq_f32_to_bf16(0x1.03p0f), 0x3f82);
    ck_assert(isnan(llmq_bf16_to_f32(llmq_f32_to_bf16(llmq_fp_from_bits(0x7f800001u)))));
}
END_TEST

START_TEST(elementary_functions_keep_their_error_bounds)
{
    for (int i = 0; i < 200000; i++) {
        double x = -700 + 1400.0 * i / 200000, s, c, y = 1e-3 * (i + 1);
        float  f = -87.0f + 175.0f * (float)i / 200000.0f;

        ck_assert(fabs(llmq_exp(x) - exp(x)) <= 4e-16 * exp(x));
        ck_assert(fabs(llmq_log(y) - log(y)) <= 4e-16 * fabs(log(y)) + 1e-17);
        llmq_sincos(x * 1400, &s, &c);
        ck_assert(fabs(s - sin(x * 1400)) <= 4e-16 && fabs(c - cos(x * 1400)) <= 4e-16);
        ck_assert(fabs((double)llmq_expf(f) - exp((double)f)) <= 1.2e-7 * exp((double)f));
    }
    ck_assert_double_eq(llmq_expf(-100.0f), 0.0);
    ck_assert_double_eq(llmq_expf(0.0f), 1.0);
    ck_assert(fabs(llmq_pow(10000.0, -0.37) - pow(10000.0, -0.37)) < 1e-15);
    ck_assert(isinf(llmq_exp(1000)) && llmq_exp(-1000) == 0.0 && isinf(llmq_log(0.0)));
}
END_TEST

START_TEST(an_output_appears_whole_or_not_at_all)
{
    struct llmq_err err = {0};
    struct llmq_out o;
    struct llmq_map m;
    char            path[300];

    snprintf(path, sizeof path, "%s", unit_tmp("out.bin"));
    unlink(path);
    ck_assert_int_eq(llmq_out_open(&o, path, &err), 0);
    ck_assert_int_eq(llmq_out_write(&o, "hello", 5, &err), 0);
    ck_assert_int_ne(access(path, F_OK), 0);
    llmq_out_abort(&o);
    ck_assert_int_ne(access(path, F_OK), 0);
    ck_assert_int_eq(llmq_out_open(&o, path, &err), 0);
    ck_assert_int_eq(llmq_out_write(&o, "hello", 5, &err), 0);
    ck_assert_int_eq(llmq_out_pad(&o, 64, &err), 0);
    ck_assert_int_eq(llmq_out_write_at(&o, 1, "E", 1, &err), 0);
    ck_assert_int_eq(llmq_out_finish(&o, &err), 0);
    ck_assert_int_eq(llmq_map_open(&m, path, &err), 0);
    ck_assert_uint_eq(m.size, 64);
    ck_assert_int_eq(memcmp(m.data, "hEllo\0\0", 7), 0);
    llmq_map_close(&m);
    unlink(path);
}
END_TEST

START_TEST(json_names_key_and_type)
{
    struct llmq_err err = {0};
    json_t         *j;
    int64_t         v = 5;

    ck_assert_int_eq(llmq_json_parse(&j, "{\"a\":\"x\",\"n\":null}", 18, 100, "t.json", &err), 0);
    ck_assert_int_eq(llmq_json_int(j, "a", LLMQ_JSON_REQUIRED, &v, "t.json", &err), LLMQ_EFORMAT);
    ck_assert_str_eq(err.text, "t.json: key \"a\" is a string, expected an integer");
    ck_assert_int_eq(llmq_json_int(j, "n", LLMQ_JSON_OPTIONAL, &v, "t.json", &err), 0);
    ck_assert_int_eq(v, 5);
    ck_assert_int_eq(llmq_json_int(j, "n", LLMQ_JSON_REQUIRED, &v, "t.json", &err), LLMQ_EFORMAT);
    json_decref(j);
    ck_assert_int_eq(llmq_json_parse(&j, "{\"a\":1,\"a\":2}", 13, 100, "t.json", &err), LLMQ_EFORMAT);
}
END_TEST

START_TEST(random_numbers_are_the_published_ones)
{
    struct llmq_rng r;
    uint64_t        x = 1234567;

    ck_assert_uint_eq(llmq_rng_splitmix(&x), 6457827717110365317ull); /* test vector of splitmix64 */
    memcpy(r.s, (uint64_t[4]){1, 2, 3, 4}, sizeof r.s);
    ck_assert_uint_eq(llmq_rng_next(&r), 11520ull); /* test vector of xoshiro256** */
    ck_assert_uint_eq(llmq_rng_next(&r), 0ull);
    ck_assert_uint_eq(llmq_rng_next(&r), 1509978240ull);
}
END_TEST

UNIT_CASE(common, fail_within_keeps_the_cause_and_the_code, sizes_do_not_wrap, memory_is_zero_and_aligned,
          nth_allocation_fails_once, a_string_stops_at_its_maximum, small_floats_round_trip_and_round_to_even,
          elementary_functions_keep_their_error_bounds, an_output_appears_whole_or_not_at_all,
          json_names_key_and_type, random_numbers_are_the_published_ones)

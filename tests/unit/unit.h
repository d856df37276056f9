#ifndef LLMQ_TESTS_UNIT_UNIT_H
#define LLMQ_TESTS_UNIT_UNIT_H

/* A test file registers its cases by itself, so that adding one touches no list:
 *
 *   START_TEST(adds) { ck_assert_int_eq(1 + 1, 2); } END_TEST
 *   UNIT_CASE(sums, adds, more, ...)
 */

#include <check.h>

typedef const TTest *unit_test;
void unit_register(const char *name, const unit_test *tests, int n);

#define UNIT_CASE(name, ...)                                                          \
    __attribute__((constructor)) static void unit_register_##name(void)               \
    {                                                                                 \
        const unit_test tests[] = {__VA_ARGS__};                                      \
        unit_register(#name, tests, (int)(sizeof tests / sizeof tests[0]));           \
    }

/* A path under the build's scratch folder, made when needed; the same buffer is reused. */
const char *unit_tmp(const char *name);

#endif

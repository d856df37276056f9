/* main of the unit tests: runs all registered cases.  CK_FORK=no for a debugger. */
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_CASES = 200 };
static TCase *cases[MAX_CASES];
static int    n_cases;

void unit_register(const char *name, const unit_test *tests, int n)
{
    TCase *t = tcase_create(name);

    tcase_set_timeout(t, 120);
    for (int i = 0; i < n; i++)
        tcase_add_test(t, tests[i]);
    if (n_cases < MAX_CASES)
        cases[n_cases++] = t;
}

const char *unit_tmp(const char *name)
{
    static char path[512];
    static char dir[256];

    if (!dir[0]) {
        snprintf(dir, sizeof dir, "/tmp/llmq-unit.%ld", (long)getppid());
        mkdir(dir, 0700);
    }
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

int main(void)
{
    Suite   *s = suite_create("llmq");
    SRunner *r;
    int      failed;

    for (int i = 0; i < n_cases; i++)
        suite_add_tcase(s, cases[i]);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed || !n_cases ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Reading standard input and files of any kind whole: see input.h. */
#include "cli/input.h"

#include "cli/opt.h"

#include <errno.h>
#include <unistd.h>

int input_read(int fd, const char *name, struct llmq_str *out, struct llmq_err *err)
{
    char buf[65536];

    for (;;) {
        ssize_t n = read(fd, buf, sizeof buf);

        if (cli_interrupted)
            return llmq_fail(err, LLMQ_EINTR, "interrupted");
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return llmq_fail_errno(err, "%s", name);
        if (n == 0)
            return 0;
        if (llmq_str_append(out, buf, (size_t)n, err))
            return llmq_fail_within(err, "%s", name);
    }
}

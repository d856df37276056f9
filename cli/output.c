/* Standard output and the names that outputs get: see output.h. */
#include "cli/output.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Asked of the pipe itself: errno may come from something that happened since. */
static int reader_gone(void)
{
    struct pollfd p = {.fd = STDOUT_FILENO};

    return poll(&p, 1, 0) > 0 && (p.revents & (POLLERR | POLLHUP)) && !(p.revents & POLLNVAL);
}

int output_failed(struct llmq_err *err)
{
    int why = errno;

    if (reader_gone())
        return 0;
    errno = why ? why : EIO;
    return llmq_fail_errno(err, "standard output");
}

int output_flush(struct llmq_err *err)
{
    errno = 0;
    return fflush(stdout) == EOF || ferror(stdout) ? output_failed(err) : 0;
}

/* The folder that holds the name, a dot behind it so that a file in its place is no folder; cut when it is longer than
 * any path can be. */
static const char *parent(const char *path, char *out, size_t size)
{
    const char *slash = strrchr(path, '/');

    if (!slash)
        return ".";
    snprintf(out, size, "%.*s.", (int)(slash + 1 - path), path);
    return out;
}

static int same_inode(const char *a, const char *b)
{
    struct stat s, t;

    return stat(a, &s) == 0 && stat(b, &t) == 0 && s.st_dev == t.st_dev && s.st_ino == t.st_ino;
}

int output_is_same(const char *a, const char *b)
{
    char        da[4096], db[4096];
    const char *na = strrchr(a, '/'), *nb = strrchr(b, '/');

    if (same_inode(a, b))
        return 1;
    return !strcmp(na ? na + 1 : a, nb ? nb + 1 : b) && same_inode(parent(a, da, sizeof da), parent(b, db, sizeof db));
}

/* Is it a file of the checkpoint in directory `input`?  A .llmq that lies there is none. */
static int is_part_of(const char *path, const char *input)
{
    char   dir[4096];
    size_t len = strlen(path);

    return (len < 5 || strcmp(path + len - 5, ".llmq") != 0) && access(path, F_OK) == 0 &&
           same_inode(parent(path, dir, sizeof dir), input);
}

int output_check(const char *option, const char *path, const char *input, struct llmq_err *err)
{
    struct stat st;
    char        dir[4096];
    size_t      len = strlen(path);
    int         there = stat(path, &st) == 0;

    if (!len)
        return llmq_fail(err, LLMQ_EUSAGE, "%s: the name is empty, expected a file's name", option);
    if (there && S_ISDIR(st.st_mode))
        return llmq_fail(err, LLMQ_EUSAGE, "%s %s is a directory, expected a file's name", option, path);
    if (there && !S_ISREG(st.st_mode))
        return llmq_fail(err, LLMQ_EUSAGE, "%s %s is not a regular file, expected one, or a new name", option, path);
    if (output_is_same(path, input))
        return llmq_fail(err, LLMQ_EUSAGE, "%s %s is the input itself, expected another name", option, path);
    if (is_part_of(path, input))
        return llmq_fail(err, LLMQ_EUSAGE, "%s %s is a file of the checkpoint, expected another name", option, path);
    if (path[len - 1] == '/' || access(parent(path, dir, sizeof dir), W_OK | X_OK)) {
        errno = path[len - 1] == '/' ? ENOTDIR : errno;
        return llmq_fail_errno(err, "%s: cannot write here", path);
    }
    return 0;
}

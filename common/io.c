/* Files: see io.h.  Outputs are buffered here (1 MiB), since callers append a few bytes at a time. */
#include "common/io.h"

#include "common/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OUT_BUF = 1 << 20, MAX_OUTPUTS = 16 };

/* Temporary names that a signal handler must remove; slots are claimed atomically. */
static _Atomic(char *) open_tmp[MAX_OUTPUTS];

int llmq_map_open(struct llmq_map *m, const char *path, struct llmq_err *err)
{
    struct stat st;
    int         fd;

    m->data = "";
    m->size = 0;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return llmq_fail_errno(err, "%s: cannot open", path);
    if (fstat(fd, &st) < 0) {
        llmq_fail_errno(err, "%s: cannot stat", path);
        close(fd);
        return err->code;
    }
    if (!S_ISREG(st.st_mode)) {
        close(fd);
        return llmq_fail(err, LLMQ_EIO, "%s: not a regular file", path);
    }
    if (st.st_size > 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED) {
            llmq_fail_errno(err, "%s: cannot map %lld bytes", path, (long long)st.st_size);
            close(fd);
            return err->code;
        }
        m->data = p;
        m->size = (size_t)st.st_size;
    }
    close(fd);
    return 0;
}

void llmq_map_close(struct llmq_map *m)
{
    if (m->size)
        munmap((void *)(uintptr_t)m->data, m->size);
    m->data = "";
    m->size = 0;
}

static void advise(const struct llmq_map *m, size_t offset, size_t len, int advice, int inward)
{
    const size_t page = 4096;
    size_t       end;

    if (offset >= m->size)
        return;
    end = len < m->size - offset ? offset + len : m->size;
    if (inward) { /* only whole pages: a neighbour's bytes stay */
        offset = (offset + page - 1) & ~(page - 1);
        if (end != m->size)
            end &= ~(page - 1);
    } else {
        offset &= ~(page - 1);
    }
    if (offset < end)
        madvise((void *)((uintptr_t)m->data + offset), end - offset, advice);
}

void llmq_map_drop(const struct llmq_map *m, size_t offset, size_t len) { advise(m, offset, len, MADV_DONTNEED, 1); }

void llmq_map_want(const struct llmq_map *m, size_t offset, size_t len) { advise(m, offset, len, MADV_WILLNEED, 0); }

int llmq_read_at(int fd, void *dst, size_t len, uint64_t offset, const char *path, struct llmq_err *err)
{
    char *p = dst;

    while (len) {
        ssize_t n = pread(fd, p, len, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return llmq_fail_errno(err, "%s: read at %llu", path, (unsigned long long)offset);
        if (n == 0)
            return llmq_fail(err, LLMQ_EFORMAT, "%s: ends at byte %llu, %zu more expected", path,
                             (unsigned long long)offset, len);
        p += n;
        offset += (uint64_t)n;
        len -= (size_t)n;
    }
    return 0;
}

static void remember(char *tmp)
{
    for (int i = 0; i < MAX_OUTPUTS; i++) {
        char *none = NULL;
        if (atomic_compare_exchange_strong(&open_tmp[i], &none, tmp))
            return;
    }
}

static void forget(char *tmp)
{
    for (int i = 0; i < MAX_OUTPUTS; i++) {
        char *p = tmp;
        if (atomic_compare_exchange_strong(&open_tmp[i], &p, NULL))
            return;
    }
}

static void release(struct llmq_out *o)
{
    if (o->tmp)
        forget(o->tmp);
    llmq_free(o->path);
    llmq_free(o->tmp);
    llmq_free(o->buf);
    memset(o, 0, sizeof *o);
}

int llmq_out_open(struct llmq_out *o, const char *path, struct llmq_err *err)
{
    size_t len = strlen(path);

    memset(o, 0, sizeof *o);
    if (LLMQ_NEW(&o->path, len + 1, "a path", err) || LLMQ_NEW(&o->tmp, len + 32, "a path", err) ||
        LLMQ_NEW(&o->buf, OUT_BUF, "an output buffer", err)) {
        release(o);
        return err->code;
    }
    memcpy(o->path, path, len);
    snprintf(o->tmp, len + 32, "%s.%ld.tmp", path, (long)getpid());
    o->fd = open(o->tmp, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (o->fd < 0) {
        llmq_fail_errno(err, "%s: cannot write here", path);
        o->fd = 0;
        release(o);
        return err->code;
    }
    remember(o->tmp);
    return 0;
}

static int write_all(struct llmq_out *o, const char *p, size_t len, uint64_t at, struct llmq_err *err)
{
    while (len) {
        ssize_t n = pwrite(o->fd, p, len, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return llmq_fail_errno(err, "%s: write of %zu bytes at %llu", o->path, len, (unsigned long long)at);
        p += n;
        at += (uint64_t)n;
        len -= (size_t)n;
    }
    return 0;
}

static int flush(struct llmq_out *o, struct llmq_err *err)
{
    size_t used = o->used;

    o->used = 0;
    return write_all(o, o->buf, used, o->pos - used, err);
}

int llmq_out_write(struct llmq_out *o, const void *bytes, size_t len, struct llmq_err *err)
{
    if (len >= OUT_BUF - o->used) {
        if (flush(o, err))
            return err->code;
        if (len >= OUT_BUF) {
            if (write_all(o, bytes, len, o->pos, err))
                return err->code;
            o->pos += len;
            return 0;
        }
    }
    if (len)
        memcpy(o->buf + o->used, bytes, len);
    o->used += len;
    o->pos += len;
    return 0;
}

int llmq_out_pad(struct llmq_out *o, size_t align, struct llmq_err *err)
{
    static const char zeros[4096];
    size_t            left = (size_t)(-o->pos & (align - 1));

    while (left) {
        size_t n = left < sizeof zeros ? left : sizeof zeros;
        if (llmq_out_write(o, zeros, n, err))
            return err->code;
        left -= n;
    }
    return 0;
}

int llmq_out_write_at(struct llmq_out *o, uint64_t offset, const void *bytes, size_t len, struct llmq_err *err)
{
    if (flush(o, err))
        return err->code;
    return write_all(o, bytes, len, offset, err);
}

int llmq_out_sync(struct llmq_out *o, struct llmq_err *err)
{
    if (flush(o, err))
        return err->code;
    if (fsync(o->fd) < 0)
        return llmq_fail_errno(err, "%s: sync", o->path);
    return 0;
}

/* The rename is only durable once the directory that holds the name is. */
static void sync_parent(const char *path)
{
    char copy[4096];
    int  fd;

    snprintf(copy, sizeof copy, "%s", path);
    fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    fsync(fd);
    close(fd);
}

int llmq_out_finish_as(struct llmq_out *o, const char *path, struct llmq_err *err)
{
    if (llmq_out_sync(o, err))
        return err->code;
    if (close(o->fd) < 0) {
        o->fd = 0;
        return llmq_fail_errno(err, "%s: close", o->path);
    }
    o->fd = 0;
    if (rename(o->tmp, path) < 0)
        return llmq_fail_errno(err, "%s: rename from %s", path, o->tmp);
    sync_parent(path);
    release(o);
    return 0;
}

int llmq_out_finish(struct llmq_out *o, struct llmq_err *err) { return llmq_out_finish_as(o, o->path, err); }

void llmq_out_abort(struct llmq_out *o)
{
    if (o->fd > 0)
        close(o->fd);
    if (o->tmp)
        unlink(o->tmp);
    release(o);
}

void llmq_out_abort_all_signal(void)
{
    for (int i = 0; i < MAX_OUTPUTS; i++) {
        char *p = atomic_load(&open_tmp[i]);
        if (p)
            unlink(p);
    }
}

uint64_t llmq_peak_rss_bytes(void)
{
    struct rusage ru;

    if (getrusage(RUSAGE_SELF, &ru) < 0)
        return 0;
    return (uint64_t)ru.ru_maxrss * 1024;
}

#ifndef LLMQ_COMMON_IO_H
#define LLMQ_COMMON_IO_H

#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

/* Files: mapped to read, written whole or not at all. */

/* A file mapped read-only.  Closing unmaps; a closed or zeroed map may be closed again.
 * An empty file is a map of size 0 with data "". */
struct llmq_map {
    const char *data;
    size_t      size;
};
int  llmq_map_open(struct llmq_map *m, const char *path, struct llmq_err *err) LLMQ_MUST_CHECK;
void llmq_map_close(struct llmq_map *m);

/* Tells the kernel that bytes [offset, offset + len) are done with: they leave this process's
 * resident memory (the page cache may keep them).  They can still be read again. */
void llmq_map_drop(const struct llmq_map *m, size_t offset, size_t len);
/* Asks for them ahead of their use. */
void llmq_map_want(const struct llmq_map *m, size_t offset, size_t len);

/* A file to read at any offset without mapping it. */
int llmq_read_at(int fd, void *dst, size_t len, uint64_t offset, const char *path, struct llmq_err *err) LLMQ_MUST_CHECK;

/* An output that appears under `path` whole or not at all: bytes go to a temporary file beside
 * it, which finish syncs and renames over the target, and abort removes.  If the process dies
 * first (a signal, a full disk), a `.tmp` file may stay but nothing under the target's name.
 *
 *   open -> write* / write_at* -> finish | abort
 *
 * After an error from write or finish, call abort.  abort of a finished or zeroed output does
 * nothing.  SIGXFSZ is ignored by cli/, so a file-size limit is an LLMQ_EIO like a full disk. */
struct llmq_out {
    int      fd; /* 0: not open */
    uint64_t pos;
    char    *path, *tmp;
    char    *buf;
    size_t   used;
};
int  llmq_out_open(struct llmq_out *o, const char *path, struct llmq_err *err) LLMQ_MUST_CHECK;
int  llmq_out_write(struct llmq_out *o, const void *bytes, size_t len, struct llmq_err *err) LLMQ_MUST_CHECK;
/* Zeros up to the next multiple of align. */
int  llmq_out_pad(struct llmq_out *o, size_t align, struct llmq_err *err) LLMQ_MUST_CHECK;
/* Over bytes that have been written before; does not move pos. */
int  llmq_out_write_at(struct llmq_out *o, uint64_t offset, const void *bytes, size_t len, struct llmq_err *err)
    LLMQ_MUST_CHECK;
/* Everything to disk, so that the temporary file can be opened and checked by its name o->tmp. */
int  llmq_out_sync(struct llmq_out *o, struct llmq_err *err) LLMQ_MUST_CHECK;
int  llmq_out_finish(struct llmq_out *o, struct llmq_err *err) LLMQ_MUST_CHECK;
/* As finish, but under another name (a model that a quality gate rejected). */
int  llmq_out_finish_as(struct llmq_out *o, const char *path, struct llmq_err *err) LLMQ_MUST_CHECK;
void llmq_out_abort(struct llmq_out *o);

/* Removes the temporary files of all open outputs: for a signal handler (async-signal-safe). */
void llmq_out_abort_all_signal(void);

/* The most memory this process has had resident, in bytes. */
uint64_t llmq_peak_rss_bytes(void);

#endif

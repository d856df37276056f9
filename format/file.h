#ifndef LLMQ_FORMAT_FILE_H
#define LLMQ_FORMAT_FILE_H

/* An open .llmq from the inside: what reader.c fills in, and verify.c and describe.c look at. */

#include "format/disk.h"
#include "format/format.h"

#include "common/alloc.h"
#include "common/io.h"

enum { FILE_MAX_ROLE = 32 }; /* role numbers are below */

struct file_range {
    uint64_t begin, end;
};

struct file_section {
    struct disk_section disk;
    char               *text; /* inflated, zero-terminated; NULL for a section that we skip */
};

struct llmq_file {
    struct llmq_map      map;
    struct llmq_arena    arena; /* everything below */
    char                *path;
    uint16_t             major, minor;
    struct llmq_hparams  hparams;
    int                  n_sections, n_tensors;
    struct file_section *sections;
    struct disk_tensor  *entries; /* as on disk, same order as tensors */
    struct llmq_tensor  *tensors;
    int32_t             *index;  /* [n_layers + 1][FILE_MAX_ROLE]: tensor or -1; the last row: no layer */
    struct file_range   *layers; /* [n_layers] bytes of each */
    struct file_range   *used;   /* all that is not padding, by offset; none overlap */
    int                  n_used;
};

/* "layer 3 attn_q", for messages. */
void file_label(const struct llmq_tensor *t, char *out, size_t size);

/* pack.c: padding decodes to exactly 0, and zero points fit their bits. */
int pack_check(const struct llmq_tensor *t, struct llmq_err *err) LLMQ_MUST_CHECK;

/* section.c */
struct llmq_str;
int  section_deflated(int id); /* are sections of this id deflated when we write them? */
int  section_required(int id);
int  section_deflate(struct llmq_str *out, const void *bytes, size_t len, struct llmq_err *err) LLMQ_MUST_CHECK;
int  section_inflate(char *out, uint64_t len, const void *stored, uint64_t stored_len, struct llmq_err *err)
    LLMQ_MUST_CHECK;
/* CRC-32 of any length (zlib's takes 32 bits of it). */
uint32_t section_crc(uint32_t crc, const void *bytes, uint64_t len);

#endif

/* Sections: names, and zlib around their bytes.  The level is fixed, so equal texts give equal files with
 * one zlib; what must compare equal across zlibs is the inflated text, whose CRC stands beside it. */
#include "format/file.h"

#include "common/str.h"

#include <zlib.h>

enum { LEVEL = 9 };

const char *llmq_section_name(int id)
{
    static const char *const names[] = {
        [LLMQ_SECTION_HPARAMS] = "hparams",
        [LLMQ_SECTION_TOKENIZER] = "tokenizer",
        [LLMQ_SECTION_VOCAB] = "vocab",
        [LLMQ_SECTION_MERGES] = "merges",
        [LLMQ_SECTION_CHAT_TEMPLATE] = "chat_template",
        [LLMQ_SECTION_GENERATION] = "generation",
        [LLMQ_SECTION_PROVENANCE] = "provenance",
        [LLMQ_SECTION_NAMES] = "names",
        [LLMQ_SECTION_KV] = "kv",
    };

    return id > 0 && id < (int)(sizeof names / sizeof names[0]) ? names[id] : NULL;
}

int section_required(int id)
{
    switch (id) {
#define X(name, num, required, text) \
    case (num):                      \
        return required;
        LLMQ_SECTION_MAP(X)
#undef X
    default:
        return 0;
    }
}

/* Fixed binary records stay as they are; texts shrink. */
int section_deflated(int id) { return id != LLMQ_SECTION_HPARAMS && id != LLMQ_SECTION_KV; }

uint32_t section_crc(uint32_t crc, const void *bytes, uint64_t len)
{
    const unsigned char *p = bytes;

    while (len) {
        uInt n = len < (1u << 30) ? (uInt)len : 1u << 30;

        crc = (uint32_t)crc32(crc, p, n);
        p += n;
        len -= n;
    }
    return crc;
}

int section_deflate(struct llmq_str *out, const void *bytes, size_t len, struct llmq_err *err)
{
    unsigned char piece[4096];
    z_stream      z = {.next_in = (unsigned char *)(uintptr_t)bytes, .avail_in = (uInt)len};
    int           rc;

    if (len > UINT32_MAX)
        return llmq_fail(err, LLMQ_ELIMIT, "a section of %zu bytes, at most %u are written", len, UINT32_MAX);
    if (deflateInit(&z, LEVEL) != Z_OK)
        return llmq_fail(err, LLMQ_ENOMEM, "no memory to deflate a section");
    do {
        z.next_out = piece;
        z.avail_out = sizeof piece;
        rc = deflate(&z, Z_FINISH);
        if (llmq_str_append(out, piece, sizeof piece - z.avail_out, err)) {
            deflateEnd(&z);
            return err->code;
        }
    } while (rc == Z_OK);
    deflateEnd(&z);
    return rc == Z_STREAM_END ? 0 : llmq_fail(err, LLMQ_EIO, "zlib cannot deflate a section: code %d", rc);
}

/* Exactly len bytes must come out of exactly stored_len. */
int section_inflate(char *out, uint64_t len, const void *stored, uint64_t stored_len, struct llmq_err *err)
{
    z_stream z = {.next_in = (unsigned char *)(uintptr_t)stored};
    int      rc;

    if (stored_len > UINT32_MAX || len > UINT32_MAX)
        return llmq_fail(err, LLMQ_EFORMAT, "%llu bytes deflated to %llu, at most %u are read", (unsigned long long)len,
                         (unsigned long long)stored_len, UINT32_MAX);
    if (inflateInit(&z) != Z_OK)
        return llmq_fail(err, LLMQ_ENOMEM, "no memory to inflate a section");
    z.avail_in = (uInt)stored_len;
    z.next_out = (unsigned char *)out;
    z.avail_out = (uInt)len;
    rc = inflate(&z, Z_FINISH);
    inflateEnd(&z);
    if (rc == Z_MEM_ERROR)
        return llmq_fail(err, LLMQ_ENOMEM, "no memory to inflate a section");
    if (rc != Z_STREAM_END || z.avail_in || z.avail_out)
        return llmq_fail(err, LLMQ_EFORMAT, "does not inflate to the %llu bytes that it states", (unsigned long long)len);
    return 0;
}

/* SHA-256: nettle's, behind a type that keeps its header out of ours. */
#include "format/format.h"

#include <assert.h>
#include <nettle/sha2.h>

static_assert(sizeof(struct sha256_ctx) <= sizeof(struct llmq_sha256), "the opaque state must hold nettle's");

void llmq_sha256_init(struct llmq_sha256 *h) { sha256_init((struct sha256_ctx *)h); }

void llmq_sha256_update(struct llmq_sha256 *h, const void *bytes, size_t len)
{
    if (len)
        sha256_update((struct sha256_ctx *)h, len, bytes);
}

void llmq_sha256_hex(struct llmq_sha256 *h, char out[65])
{
    static const char digits[] = "0123456789abcdef";
    uint8_t           d[SHA256_DIGEST_SIZE];

    sha256_digest((struct sha256_ctx *)h, sizeof d, d);
    for (int i = 0; i < SHA256_DIGEST_SIZE; i++) {
        out[2 * i] = digits[d[i] >> 4];
        out[2 * i + 1] = digits[d[i] & 15];
    }
    out[64] = '\0';
}

#ifndef LLMQ_RUNNER_TEXT_BYTELEVEL_H
#define LLMQ_RUNNER_TEXT_BYTELEVEL_H

#include <stdint.h>

/* The alphabet of byte-level vocabularies: one printable code point below U+0144 for each byte.  Printable Latin-1
 * stands for itself; the 68 other bytes, in order, for U+0100 and on. */

static inline int bytelevel_itself(unsigned b) { return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xff && b != 0xad); }

static inline uint32_t bytelevel_char(unsigned b)
{
    if (bytelevel_itself(b))
        return b;
    if (b <= 0x20)
        return 0x100 + b;
    return b <= 0xa0 ? 0x121 + (b - 0x7f) : 0x143;
}

/* The byte that a code point stands for; -1: none. */
static inline int bytelevel_byte(uint32_t c)
{
    if (c < 0x100)
        return bytelevel_itself(c) ? (int)c : -1;
    if (c <= 0x120)
        return (int)(c - 0x100);
    if (c <= 0x142)
        return (int)(c - 0x121 + 0x7f);
    return c == 0x143 ? 0xad : -1;
}

#endif

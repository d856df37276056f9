#ifndef LLMQ_COMMON_UTF8_H
#define LLMQ_COMMON_UTF8_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* UTF-8 as the Unicode Standard defines it: shortest forms, no surrogates, at most U+10FFFF. */

enum { UTF8_MAX = 4, UTF8_BAD = 0 };

/* Length of the well-formed sequence at s[0..n), n > 0; 0 when there is none.  *part (may be NULL) is then the length of
 * the longest start of a well-formed sequence (at least 1): what one U+FFFD stands for. */
static inline int utf8_sequence(const char *s, size_t n, int *part)
{
    const unsigned char *p = (const unsigned char *)s;
    unsigned             lo = 0x80, hi = 0xbf;
    int                  need, got = 1;

    if (p[0] < 0x80)
        return 1;
    need = p[0] >= 0xc2 && p[0] <= 0xdf ? 2 : p[0] >= 0xe0 && p[0] <= 0xef ? 3 : p[0] >= 0xf0 && p[0] <= 0xf4 ? 4 : 1;
    if (p[0] == 0xe0)
        lo = 0xa0;
    else if (p[0] == 0xed)
        hi = 0x9f;
    else if (p[0] == 0xf0)
        lo = 0x90;
    else if (p[0] == 0xf4)
        hi = 0x8f;
    while (got < need && (size_t)got < n && p[got] >= lo && p[got] <= hi) {
        lo = 0x80;
        hi = 0xbf;
        got++;
    }
    if (part)
        *part = got;
    return need > 1 && got == need ? need : UTF8_BAD;
}

/* Offset of the first byte that is not part of a well-formed sequence; n when all is well. */
static inline size_t utf8_check(const char *s, size_t n)
{
    size_t i = 0;

    while (i < n) {
        uint64_t word;
        int      len;

        if (n - i >= 8) {
            memcpy(&word, s + i, 8);
            if (!(word & 0x8080808080808080ull)) {
                i += 8;
                continue;
            }
        }
        len = utf8_sequence(s + i, n - i, NULL);
        if (!len)
            return i;
        i += (size_t)len;
    }
    return n;
}

/* The rest is for text that has been checked. */

static inline int utf8_len(char lead)
{
    unsigned char c = (unsigned char)lead;

    return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

/* The code point at s; *len is its number of bytes. */
static inline uint32_t utf8_get(const char *s, int *len)
{
    const unsigned char *p = (const unsigned char *)s;

    *len = utf8_len(*s);
    switch (*len) {
    case 1: return p[0];
    case 2: return (uint32_t)(p[0] & 0x1f) << 6 | (p[1] & 0x3f);
    case 3: return (uint32_t)(p[0] & 0x0f) << 12 | (uint32_t)(p[1] & 0x3f) << 6 | (p[2] & 0x3f);
    default:
        return (uint32_t)(p[0] & 0x07) << 18 | (uint32_t)(p[1] & 0x3f) << 12 | (uint32_t)(p[2] & 0x3f) << 6 | (p[3] & 0x3f);
    }
}

/* Where the code point that ends before s + at starts (at > 0). */
static inline size_t utf8_back(const char *s, size_t at)
{
    do
        at--;
    while (at > 0 && ((unsigned char)s[at] & 0xc0) == 0x80);
    return at;
}

/* Writes c (a code point, not a surrogate) into out[UTF8_MAX]; returns the number of bytes. */
static inline int utf8_put(char *out, uint32_t c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

#endif

/* convert/gguf.c: a header, one that is cut anywhere, any bytes. */
#include "common/err.h"
#include "common/rng.h"
#include "convert/gguf.h"
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

struct blob {
    unsigned char b[4096];
    size_t        n;
};

static void put(struct blob *b, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        b->b[b->n++] = (unsigned char)(v >> 8 * i);
}

static void put_text(struct blob *b, const char *s)
{
    put(b, strlen(s), 8);
    memcpy(b->b + b->n, s, strlen(s));
    b->n += strlen(s);
}

/* Two pairs (a string and an array of strings) and one tensor of 64 F16 weights behind alignment. */
static struct blob small_gguf(void)
{
    struct blob b = {.n = 0};

    put(&b, 0x46554747, 4);
    put(&b, 3, 4);
    put(&b, 1, 8);
    put(&b, 2, 8);
    put_text(&b, "general.architecture");
    put(&b, GGUF_STRING, 4);
    put_text(&b, "llama");
    put_text(&b, "words");
    put(&b, GGUF_ARRAY, 4);
    put(&b, GGUF_STRING, 4);
    put(&b, 2, 8);
    put_text(&b, "a");
    put_text(&b, "bc");
    put_text(&b, "w");
    put(&b, 2, 4);
    put(&b, 32, 8);
    put(&b, 2, 8);
    put(&b, 1, 4);
    put(&b, 0, 8);
    while (b.n % 32)
        put(&b, 0, 1);
    for (int i = 0; i < 128; i++)
        put(&b, 0, 1);
    return b;
}

START_TEST(gguf_headers)
{
    struct blob     b = small_gguf();
    struct llmq_err err = {0};
    struct gguf     g;

    ck_assert_msg(!gguf_parse(&g, b.b, b.n, "g", &err), "%s", err.text);
    ck_assert_uint_eq(g.n_pairs, 2);
    ck_assert_uint_eq(g.n_tensors, 1);
    ck_assert_uint_eq(g.tensors[0].weights, 64);
    ck_assert_uint_eq(g.tensors[0].bytes, 128);
    ck_assert_uint_eq(g.tensors[0].offset + 128, b.n);
    gguf_close(&g);
    for (size_t n = 0; n < b.n; n++) { /* cut anywhere: refused, with a name */
        unsigned char *copy = malloc(n ? n : 1);

        memcpy(copy, b.b, n);
        ck_assert_int_eq(gguf_parse(&g, copy, n, "g", &err), LLMQ_EFORMAT);
        ck_assert(!strncmp(err.text, "g: ", 3));
        gguf_close(&g);
        free(copy);
    }
}
END_TEST

START_TEST(gguf_names_twice)
{
    struct blob     b = {.n = 0};
    struct llmq_err err = {0};
    struct gguf     g;

    put(&b, 0x46554747, 4);
    put(&b, 3, 4);
    put(&b, 0, 8);
    put(&b, 2, 8);
    for (int i = 0; i < 2; i++) {
        put_text(&b, "a.key");
        put(&b, GGUF_U8, 4);
        put(&b, 1, 1);
    }
    ck_assert_int_eq(gguf_parse(&g, b.b, b.n, "g", &err), LLMQ_EFORMAT);
    ck_assert_str_eq(err.text, "g: the key a.key is there twice");
    gguf_close(&g);
    b.n = 0;
    put(&b, 0x46554747, 4);
    put(&b, 3, 4);
    put(&b, 2, 8);
    put(&b, 0, 8);
    for (int i = 0; i < 2; i++) {
        put_text(&b, i ? "x" : "y");
        put(&b, 1, 4);
        put(&b, 16, 8);
        put(&b, 0, 4);
        put(&b, 32 * (unsigned)i, 8); /* the first one has 64 bytes */
    }
    while (b.n % 32 || b.n < 256)
        put(&b, 0, 1);
    ck_assert_int_eq(gguf_parse(&g, b.b, b.n, "g", &err), LLMQ_EFORMAT);
    ck_assert_ptr_nonnull(strstr(err.text, "tensor x: it overlaps another"));
    gguf_close(&g);
}
END_TEST

/* Any bytes: an answer, and no access outside them (the asan build looks). */
START_TEST(mangled_gguf)
{
    struct llmq_rng rng;
    struct blob     good = small_gguf();
    int             accepted = 0;

    llmq_rng_seed(&rng, 7);
    for (int round = 0; round < 200000; round++) {
        struct blob     b = good;
        struct llmq_err err = {0};
        struct gguf     g;
        int             changes = 1 + (int)(llmq_rng_next(&rng) % 4);

        while (changes--) {
            static const uint64_t nasty[] = {0, 1, 0x7f, 0xff, 0x80000000, 0xffffffff, 0x7fffffffffffffff, 0xffffffffffffffff, 0x4000000000000000};
            size_t                at = llmq_rng_next(&rng) % (good.n - 128), n = 1u << llmq_rng_next(&rng) % 4;
            uint64_t              v = llmq_rng_next(&rng) % 2 ? nasty[llmq_rng_next(&rng) % 9] : llmq_rng_next(&rng);

            for (size_t i = 0; i < n && at + i < b.n; i++)
                b.b[at + i] = (unsigned char)(v >> 8 * i);
        }
        if (!gguf_parse(&g, b.b, b.n, "g", &err)) {
            accepted++;
            for (size_t i = 0; i < g.n_tensors; i++)
                ck_assert(g.tensors[i].offset <= b.n && g.tensors[i].bytes <= b.n - g.tensors[i].offset);
        } else {
            ck_assert_int_eq(err.code, LLMQ_EFORMAT);
        }
        gguf_close(&g);
    }
    ck_assert_int_gt(accepted, 100);
}
END_TEST

UNIT_CASE(gguf, gguf_headers, gguf_names_twice, mangled_gguf)

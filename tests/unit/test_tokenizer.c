/* runner/text and convert/hftokenizer: round trips, streaming, patterns, and what must be refused.  Parity with the
 * tokenizers library is tests/golden/tokenizers.test.sh. */
#include "common/alloc.h"
#include "common/io.h"
#include "common/rng.h"
#include "common/str.h"
#include "common/utf8.h"
#include "convert/hftokenizer.h"
#include "runner/text/bytelevel.h"
#include "runner/text/onig.h"
#include "runner/text/pattern.h"
#include "runner/text/tokenizer.h"
#include "runner/text/uniset.h"
#include "tests/unit/unit.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const fixtures[] = {"gpt2",  "qwen2",  "llama3",          "deepseek",         "o200k",           "cl100k",
                                       "kimi",  "llama2", "metaspace_first", "metaspace_always", "metaspace_never", "words",
                                       "added", "behaviors", "normal_bytes", "prefix_space"};
enum { N_FIXTURES = sizeof fixtures / sizeof fixtures[0] };

struct sections {
    struct llmq_str config, vocab, merges;
};

static void sections_init(struct sections *s)
{
    llmq_str_init(&s->config, 1 << 24);
    llmq_str_init(&s->vocab, 1 << 24);
    llmq_str_init(&s->merges, 1 << 24);
}

static void sections_fini(struct sections *s)
{
    llmq_str_fini(&s->config);
    llmq_str_fini(&s->vocab);
    llmq_str_fini(&s->merges);
}

static int load(struct tokenizer **t, const struct sections *s, struct llmq_err *err)
{
    return tokenizer_load(t, s->config.data, s->config.len, s->vocab.data, s->vocab.len, s->merges.data, s->merges.len, err);
}

static int from_json(struct tokenizer **t, const char *json, size_t len, struct llmq_err *err)
{
    struct sections s;
    int             rc;

    *t = NULL;
    sections_init(&s);
    rc = hftokenizer_sections(json, len, "tokenizer.json", &s.config, &s.vocab, &s.merges, err);
    if (!rc)
        rc = load(t, &s, err);
    sections_fini(&s);
    return rc;
}

static void fixture_map(struct llmq_map *map, const char *name)
{
    struct llmq_err err = {0};
    char            path[200];

    snprintf(path, sizeof path, "tests/golden/tokenizers/%s.json", name);
    ck_assert_msg(!llmq_map_open(map, path, &err), "%s", err.text);
}

static struct tokenizer *fixture(const char *name)
{
    struct llmq_err   err = {0};
    struct llmq_map   map;
    struct tokenizer *t;

    fixture_map(&map, name);
    ck_assert_msg(!from_json(&t, map.data, map.size, &err), "%s: %s", name, err.text);
    llmq_map_close(&map);
    return t;
}

static uint32_t below(struct llmq_rng *r, uint32_t n) { return (uint32_t)(llmq_rng_next(r) % n); }

static size_t random_text(struct llmq_rng *r, char *out, int chars)
{
    static const uint32_t range[][2] = {{0, 128}, {32, 95}, {97, 26}, {0x80, 0x300}, {0x300, 0x70}, {0x3040, 0x7000}, {0x1f300, 0x400}, {0x10000, 0xfffff}};
    size_t                n = 0;

    for (int i = 0; i < chars; i++) {
        uint32_t k = below(r, 8), c = range[k][0] + below(r, range[k][1]);

        if (c < 0xd800 || c > 0xdfff)
            n += (size_t)utf8_put(out + n, c);
    }
    return n;
}

/* ---- round trips -------------------------------------------------------------------------------- */

START_TEST(decode_undoes_encode)
{
    static const char *const exact[] = {"gpt2", "llama3", "deepseek", "o200k", "cl100k", "llama2"};
    struct llmq_rng          rng;

    llmq_rng_seed(&rng, 1);
    for (size_t k = 0; k < sizeof exact / sizeof exact[0]; k++) {
        struct tokenizer *t = fixture(exact[k]);

        for (int round = 0; round < 300; round++) {
            struct llmq_err  err = {0};
            struct token_ids ids = {0};
            struct llmq_str  back;
            char             text[400];
            size_t           n = random_text(&rng, text, 1 + (int)below(&rng, 60));

            llmq_str_init(&back, 1 << 20);
            ck_assert(!tokenizer_encode(t, text, n, 0, &ids, &err));
            ck_assert(!tokenizer_decode(t, ids.id, ids.n, 0, &back, &err));
            ck_assert_msg(back.len == n && !memcmp(back.data, text, n), "%s: round %d", exact[k], round);
            llmq_str_fini(&back);
            tokenizer_ids_free(&ids);
        }
        tokenizer_free(t);
    }
}
END_TEST

/* Streams ids one by one; each piece is whole code points, and all of them are the text at one go. */
static void check_stream(const struct tokenizer *t, const char *name, const int32_t *ids, size_t n, int skip)
{
    struct llmq_err          err = {0};
    struct tokenizer_stream *s;
    struct llmq_str          all, streamed;
    size_t                   done = 0;

    llmq_str_init(&all, 1 << 20);
    llmq_str_init(&streamed, 1 << 20);
    ck_assert(!tokenizer_decode(t, ids, n, skip, &all, &err));
    ck_assert(!tokenizer_stream_new(&s, t, skip, &err));
    for (size_t i = 0; i <= n; i++) {
        ck_assert(i < n ? !tokenizer_stream_push(s, ids[i], &streamed, &err) : !tokenizer_stream_finish(s, &streamed, &err));
        ck_assert_uint_eq(utf8_check(streamed.data + done, streamed.len - done), streamed.len - done);
        done = streamed.len;
        ck_assert_msg(streamed.len <= all.len && !memcmp(all.data, streamed.data, streamed.len), "%s", name);
    }
    ck_assert_uint_eq(streamed.len, all.len);
    tokenizer_stream_free(s);
    llmq_str_fini(&all);
    llmq_str_fini(&streamed);
}

START_TEST(streaming_is_decoding)
{
    struct llmq_rng rng;

    llmq_rng_seed(&rng, 2);
    for (int k = 0; k < N_FIXTURES; k++) {
        struct tokenizer *t = fixture(fixtures[k]);
        uint32_t          size = (uint32_t)tokenizer_vocab_size(t);

        for (int round = 0; round < 200; round++) {
            int32_t ids[40];
            size_t  n = below(&rng, 40);

            for (size_t i = 0; i < n; i++)
                ids[i] = (int32_t)below(&rng, size + 2) - 1;
            check_stream(t, fixtures[k], ids, n, round & 1);
        }
        tokenizer_free(t);
    }
}
END_TEST

/* SmolLM2's decoder fuses all tokens before it turns letters into bytes; text must still come as ids do. */
START_TEST(fused_bytes_do_not_wait_for_the_end)
{
    static const char json[] =
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"\xc4\xa0\":1,\"\xc3\x83\":2,\"\xc2\xa9\":3},\"merges\":[]},"
        "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Replace\",\"pattern\":"
        "{\"String\":\"\xe2\x96\x81\"},\"content\":\" \"},{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true}]}}";
    struct llmq_err          err = {0};
    struct tokenizer        *t;
    struct tokenizer_stream *s;
    struct llmq_str          out;

    ck_assert_msg(!from_json(&t, json, strlen(json), &err), "%s", err.text);
    llmq_str_init(&out, 100);
    ck_assert(!tokenizer_stream_new(&s, t, 0, &err));
    ck_assert(!tokenizer_stream_push(s, 0, &out, &err) && !tokenizer_stream_push(s, 1, &out, &err));
    ck_assert_str_eq(out.data, "a ");
    ck_assert(!tokenizer_stream_push(s, 2, &out, &err));
    ck_assert_str_eq(out.data, "a ");
    ck_assert(!tokenizer_stream_push(s, 3, &out, &err));
    ck_assert_str_eq(out.data, "a \xc3\xa9");
    ck_assert(!tokenizer_stream_push(s, 2, &out, &err) && !tokenizer_stream_finish(s, &out, &err));
    ck_assert_str_eq(out.data, "a \xc3\xa9\xef\xbf\xbd");
    tokenizer_stream_free(s);
    llmq_str_fini(&out);
    tokenizer_free(t);
}
END_TEST

/* ---- questions ---------------------------------------------------------------------------------- */

START_TEST(special_tokens)
{
    struct llmq_err   err = {0};
    struct tokenizer *t = fixture("llama3");
    struct token_ids  ids = {0};
    int32_t           first;

    ck_assert_int_eq(tokenizer_prefix(t, &first), 1);
    ck_assert_int_eq(first, 0);
    ck_assert_int_eq(tokenizer_token_id(t, "<|end|>", 7), 1);
    ck_assert_int_eq(tokenizer_token_id(t, "nowhere", 7), -1);
    ck_assert(tokenizer_is_special(t, 1) && !tokenizer_is_special(t, 100));
    ck_assert(!tokenizer_encode(t, "<|end|>", 7, TOKENIZER_PARSE_SPECIAL, &ids, &err));
    ck_assert(ids.n == 1 && ids.id[0] == 1);
    ck_assert(!tokenizer_encode(t, "<|end|>", 7, TOKENIZER_ADD_SPECIAL, &ids, &err));
    ck_assert(ids.n > 4 && ids.id[1] == 0 && ids.id[2] != 1);
    ck_assert_int_eq(tokenizer_encode(t, "ab\xc3(", 4, 0, &ids, &err), LLMQ_EFORMAT);
    ck_assert_ptr_nonnull(strstr(err.text, "byte 2"));
    tokenizer_ids_free(&ids);
    tokenizer_free(t);
}
END_TEST

START_TEST(byte_alphabet_is_a_bijection)
{
    for (unsigned b = 0; b < 256; b++)
        ck_assert_int_eq(bytelevel_byte(bytelevel_char(b)), (int)b);
    ck_assert_uint_eq(bytelevel_char(' '), 0x120);
    for (uint32_t c = 0, n = 0; c < 0x400; c++) {
        n += bytelevel_byte(c) >= 0;
        ck_assert(c < 0x3ff || n == 256);
    }
}
END_TEST

START_TEST(utf8_accepts_what_is_well_formed)
{
    static const char *const bad[] = {"\x80", "\xc0\x80", "\xc3", "\xe0\x80\x80", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xff"};
    char                     text[16];

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert_uint_eq(utf8_check(bad[i], strlen(bad[i])), 0);
    for (uint32_t c = 0; c < 0x110000; c += c < 0x900 ? 1 : 251) {
        int n, m;

        if (c >= 0xd800 && c <= 0xdfff)
            continue;
        n = utf8_put(text, c);
        ck_assert_uint_eq(utf8_check(text, (size_t)n), (size_t)n);
        ck_assert_uint_eq(utf8_get(text, &m), c);
        ck_assert_int_eq(n, m);
    }
}
END_TEST

/* ---- patterns ----------------------------------------------------------------------------------- */

START_TEST(sets_are_sets)
{
    struct llmq_err err = {0};
    struct uniset   a = {0}, b = {0};

    ck_assert(!uniset_add(&a, 10, 20, &err) && !uniset_add(&a, 5, 11, &err) && !uniset_add(&a, 30, 40, &err));
    ck_assert(a.n == 2 && a.range[0].lo == 5 && a.range[0].hi == 20);
    ck_assert(!uniset_add(&b, 15, 35, &err) && !uniset_intersect(&a, &b, &err));
    ck_assert(a.n == 2 && a.range[0].lo == 15 && a.range[0].hi == 20 && a.range[1].lo == 30 && a.range[1].hi == 35);
    ck_assert(!uniset_negate(&a, &err) && a.n == 3 && a.range[2].hi == 0x10ffff);
    ck_assert_int_eq(uniset_named(&a, "No_Such", 7, &err), 1);
    ck_assert_int_eq(uniset_named(&a, "Uppercase_Letter", 16, &err), 0);
    uniset_fini(&a);
    uniset_fini(&b);
}
END_TEST

/* Cuts text by a pattern; matches stand in brackets. */
static const char *cut(const char *regex, const char *text)
{
    static char             out[400];
    static struct llmq_err  err;
    struct pattern         *p;
    struct pattern_scratch *s;
    struct pattern_walk     w;
    size_t                  from, to, n = 0;
    int                     is_match, rc;

    if (pattern_compile_regex(&p, regex, "test", &err))
        return "refused";
    ck_assert(!pattern_scratch_new(&s, &err));
    pattern_walk_begin(&w, p, s, text, strlen(text));
    while ((rc = pattern_walk_next(&w, &from, &to, &is_match, &err)) > 0)
        n += (size_t)snprintf(out + n, sizeof out - n, is_match ? "[%.*s]" : "%.*s", (int)(to - from), text + from);
    pattern_scratch_free(s);
    pattern_free(p);
    out[n] = '\0';
    return rc < 0 ? err.text : out;
}

START_TEST(regular_expressions_are_rubys)
{
    static const char *const cases[][3] = {
        {"a{1,2}+", "aaab", "[aaa]b"},          /* one more quantifier, not possessive */
        {"a{2}?b", "aabb", "[aab][b]"},         /* optional, not lazy */
        {"a{,2}b", "aaab", "a[aab]"},
        {"a{,}", "aa{,}", "a[a{,}]"},           /* no interval: letters */
        {"[a-z&&[^aeiou]]+", "hello", "[h]e[ll]o"},
        {"[^a-c[x-z]]", "adxe", "a[d]x[e]"},
        {"[]a]", "]ba", "[]]b[a]"},
        {"\\h+", "xyz12af", "xyz[12af]"},
        {"^b", "ab\nb", "ab\n[b]"},             /* ^ is always the start of a line */
        {".", "a\nb", "[a]\n[b]"},
        {"(?m:.)", "a\nb", "[a][\n][b]"},
        {"x(?i)b|c", "xBxc", "[xB][xc]"},       /* the option reaches over the alternatives */
        {"(?i:'s|'ll)", "I'LL 's", "I['LL] ['s]"},
        {"[[:^alpha:]]", "a1", "a[1]"},
        {"\\p{^L}\\P{Nd}", "1aa11", "[1a]a11"},
        {"\\bcat\\b", "cat concat", "[cat] concat"},
        {"b?", "ab", "[]a[b]"},                 /* no empty match right behind a match */
        {"(?<n>a)(?#no)b", "ab", "[ab]"},
        {"(?x) a # one\n b", "ab", "[ab]"},
        {" ?(?:bb)?+[ b]{2}", " bb", "[ b]b"},  /* PCRE2 10.42 optimizes this wrongly if it may */
        {"[\\w]", "1\xc2\xbd", "[1]\xc2\xbd"},    /* a half is no word in brackets, */
        {"\\w", "1\xc2\xbd", "[1][\xc2\xbd]"},    /* and one outside */
        {" ?(?:bb)?+[ b]{2}", " bb", "[ b]b"},  /* PCRE2 10.42 would optimize this wrongly */
        {"[\\w]", "1\xc2\xbd", "[1]\xc2\xbd"},  /* a half is no word in brackets, and one outside */
        {"\\w", "1\xc2\xbd", "[1][\xc2\xbd]"},
        {"\\s", "a\xe1\xa0\x8e\xc2\x85", "a\xe1\xa0\x8e[\xc2\x85]"}, /* U+180E is no space any more, U+0085 is */
    };
    static const char *const refused[] = {"(", ")", "[a", "*a", "\\1(a)", "(?<n>a)\\k<n>", "\\p{Nope}", "\\pL", "a\\", "(?i:\xc3\xa9)",
                                          "(?i:ss)", "(?i:[\\p{L}])", "\\G", "\\K", "\\X", "[z-a]", "(?~a)", "a{3,1}", "(?(1)a)", "\\x{110000}", "[^a[^b]]"};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        ck_assert_msg(!strcmp(cut(cases[i][0], cases[i][1]), cases[i][2]), "%s on '%s': %s", cases[i][0], cases[i][1],
                      cut(cases[i][0], cases[i][1]));
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        ck_assert_msg(!strcmp(cut(refused[i], "a"), "refused"), "%s: %s", refused[i], cut(refused[i], "a"));
}
END_TEST

START_TEST(hostile_patterns_end)
{
    char deep[3000];

    ck_assert_ptr_nonnull(strstr(cut("(?:a+)+[bc]", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), "splitting text"));
    memset(deep, '(', sizeof deep - 1);
    deep[sizeof deep - 1] = '\0';
    ck_assert_str_eq(cut(deep, "a"), "refused");
    memset(deep, '[', sizeof deep - 1);
    ck_assert_str_eq(cut(deep, "a"), "refused");
    ck_assert_str_eq(cut("(?:(?:(?:a{60000}){60000}){60000}){60000}", "a"), "refused");
}
END_TEST

/* ---- what must be refused ------------------------------------------------------------------------ */

/* A tokenizer.json of a small vocabulary with one part replaced. */
static int try_json(const char *key, const char *value, struct llmq_err *err)
{
    struct tokenizer *t;
    char              json[4000];
    int               rc;

    snprintf(json, sizeof json, "{\"%s\":%s%s}", key, value,
             strcmp(key, "model") ? ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}" : "");
    rc = from_json(&t, json, strlen(json), err);
    tokenizer_free(t);
    return rc;
}

START_TEST(unknown_things_are_refused_by_name)
{
    static const char *const cases[][3] = {
        {"normalizer", "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"\"}", "Precompiled"},
        {"normalizer", "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"BertNormalizer\"}]}", "BertNormalizer"},
        {"normalizer", "{\"type\":\"NFC\",\"mode\":1}", "mode"},
        {"normalizer", "{\"type\":\"Prepend\"}", "prepend"},
        {"normalizer", "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(\"},\"content\":\"\"}", "regular expression"},
        {"pre_tokenizer", "{\"type\":\"UnicodeScripts\"}", "UnicodeScripts"},
        {"pre_tokenizer", "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"Sometimes\",\"invert\":false}", "behavior"},
        {"pre_tokenizer", "{\"type\":\"Metaspace\",\"replacement\":\"__\",\"add_prefix_space\":true}", "replacement"},
        {"post_processor", "{\"type\":\"BertProcessing\",\"sep\":[\"x\",1],\"cls\":[\"x\",1]}", "BertProcessing"},
        {"post_processor", "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}}],\"pair\":[],\"special_tokens\":{}}", "<s>"},
        {"post_processor", "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"a\",\"type_id\":0}}],\"special_tokens\":"
                           "{\"a\":{\"id\":\"a\",\"ids\":[77],\"tokens\":[\"a\"]}}}", "77"},
        {"decoder", "{\"type\":\"CTC\",\"pad_token\":\"\",\"word_delimiter_token\":\"\",\"cleanup\":true}", "CTC"},
        {"decoder", "{\"type\":\"Strip\",\"content\":\" \",\"start\":-1,\"stop\":0}", "start"},
        {"model", "{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"a\",0]],\"byte_fallback\":false}", "Unigram"},
        {"model", "{\"type\":\"BPE\",\"dropout\":0.1,\"vocab\":{},\"merges\":[]}", "dropout"},
        {"model", "{\"type\":\"BPE\",\"backtrack\":true,\"vocab\":{},\"merges\":[]}", "backtrack"},
        {"model", "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}", "id 0 has two tokens"},
        {"model", "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}", "the same token"},
        {"model", "{\"type\":\"BPE\",\"vocab\":{\"a\":4294967295},\"merges\":[]}", "below 4194304"},
        {"model", "{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}", "'b' is not in the vocabulary"},
        {"model", "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[[\"a\",\"b\"]]}", "'ab' is not"},
        {"model", "{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a\"]}", "one space"},
        {"model", "{\"type\":\"BPE\",\"vocab\":{\"\\ud800\":0},\"merges\":[]}", "surrogate"},
        {"model", "{\"type\":\"BPE\",\"vocab\":{\"\xff\":0},\"merges\":[]}", "UTF-8"},
        {"model", "{\"type\":\"BPE\",\"vocab\":{}}", "merges"},
        {"version", "\"2.0\"", "2.0"},
        {"added_tokens", "[{\"id\":5,\"content\":\"x\"}]", "single_word"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct llmq_err err = {0};
        int             rc = try_json(cases[i][0], cases[i][1], &err);

        ck_assert_msg(rc == LLMQ_EFORMAT && strstr(err.text, cases[i][2]), "%s %s: %d %s", cases[i][0], cases[i][1], rc, err.text);
    }
}
END_TEST

START_TEST(damaged_json_is_refused)
{
    struct llmq_map   map;
    struct tokenizer *t;
    char             *deep;
    struct llmq_err   err = {0};

    fixture_map(&map, "added");
    for (size_t n = 0; n < map.size; n += n < 300 ? 1 : 97) {
        ck_assert_int_eq(from_json(&t, map.data, n, &err), LLMQ_EFORMAT);
        ck_assert_ptr_null(t);
    }
    llmq_map_close(&map);
    ck_assert(!LLMQ_NEW(&deep, 200000, "a test", &err));
    memset(deep, '[', 200000);
    memcpy(deep, "{\"normalizer\":", 14);
    ck_assert_int_eq(from_json(&t, deep, 200000, &err), LLMQ_EFORMAT);
    llmq_free(deep);
}
END_TEST

static void put_u32(struct llmq_str *s, size_t at, uint32_t x)
{
    for (int i = 0; i < 4; i++)
        s->data[at + (size_t)i] = (char)(x >> (8 * i));
}

static void fixture_sections(struct sections *s, const char *name)
{
    struct llmq_err err = {0};
    struct llmq_map map;

    fixture_map(&map, name);
    sections_init(s);
    ck_assert(!hftokenizer_sections(map.data, map.size, name, &s->config, &s->vocab, &s->merges, &err));
    llmq_map_close(&map);
}

/* Every cut of each section, and numbers that are wrong: an error, whatever they are. */
START_TEST(damaged_sections_are_refused)
{
    static const uint32_t wrong[] = {0x7fffffff, 0xffffffff, 0xfffffffe, 1000000};
    struct sections       s;
    struct tokenizer     *t;
    struct llmq_err       err = {0};
    size_t                n_vocab, n_merges;

    fixture_sections(&s, "gpt2");
    n_vocab = s.vocab.len;
    n_merges = s.merges.len;
    for (s.vocab.len = 0; s.vocab.len < n_vocab; s.vocab.len += 7)
        ck_assert_int_eq(load(&t, &s, &err), LLMQ_EFORMAT);
    s.vocab.len = n_vocab;
    for (s.merges.len = 0; s.merges.len < n_merges; s.merges.len++)
        ck_assert_int_eq(load(&t, &s, &err), LLMQ_EFORMAT);
    s.merges.len = n_merges;
    ck_assert_int_eq(load(&t, &s, &err), 0);
    tokenizer_free(t);
    for (size_t i = 0; i < 4; i++) {
        struct sections d;

        for (size_t at = 0; at < 16; at += 4) {
            fixture_sections(&d, "gpt2");
            put_u32(&d.merges, at, wrong[i]);
            ck_assert_int_eq(load(&t, &d, &err), LLMQ_EFORMAT);
            sections_fini(&d);
        }
        fixture_sections(&d, "gpt2");
        put_u32(&d.vocab, 0, wrong[i]);
        ck_assert_int_eq(load(&t, &d, &err), LLMQ_EFORMAT);
        put_u32(&d.vocab, 0, 420);
        put_u32(&d.vocab, 4, wrong[i] == 0xffffffff ? 5 : wrong[i]);
        ck_assert_int_eq(load(&t, &d, &err), LLMQ_EFORMAT);
        sections_fini(&d);
    }
    sections_fini(&s);
}
END_TEST

/* ---- memory --------------------------------------------------------------------------------------- */

static int whole_life(const struct llmq_map *map, struct llmq_err *err)
{
    static const char text[] = "The mill, l'\xc3\xa9t\xc3\xa9 <sep>  12 \xe7\xb2\x89 word";
    struct tokenizer *t;
    struct token_ids  ids = {0};
    struct llmq_str   out;
    int               rc = from_json(&t, map->data, map->size, err);

    llmq_str_init(&out, 1000);
    if (!rc)
        rc = tokenizer_encode(t, text, strlen(text), 3, &ids, err);
    if (!rc)
        rc = tokenizer_decode(t, ids.id, ids.n, 1, &out, err);
    llmq_str_fini(&out);
    tokenizer_ids_free(&ids);
    tokenizer_free(t);
    return rc;
}

START_TEST(no_allocation_is_taken_for_granted)
{
    struct llmq_map map;
    size_t          before;
    int             rc = 1, fine = 0;

    fixture_map(&map, "added");
    llmq_alloc_fail_nth(0);
    before = llmq_alloc_live();
    /* A cache or machine code that could not be had is fine; thirty times fine in a row is the end. */
    for (long n = 1; fine < 30 && n < 100000; n++) {
        struct llmq_err err = {0};

        llmq_alloc_fail_nth(n);
        json_set_alloc_funcs(malloc, free); /* jansson 2.14 loses letters of a string that it has no memory for */
        rc = whole_life(&map, &err);
        llmq_alloc_fail_nth(0);
        ck_assert_msg(!rc || rc == LLMQ_ENOMEM, "allocation %ld: %d %s", n, rc, err.text);
        ck_assert_uint_eq(llmq_alloc_live(), before);
        fine = rc ? 0 : fine + 1;
    }
    ck_assert_int_eq(rc, 0);
    llmq_map_close(&map);
}
END_TEST

UNIT_CASE(tokenizer, decode_undoes_encode, streaming_is_decoding, fused_bytes_do_not_wait_for_the_end, special_tokens,
          byte_alphabet_is_a_bijection, utf8_accepts_what_is_well_formed, sets_are_sets, regular_expressions_are_rubys,
          hostile_patterns_end, unknown_things_are_refused_by_name, damaged_json_is_refused, damaged_sections_are_refused,
          no_allocation_is_taken_for_granted)

/* runner/text/corpus.c and wikitext.c.  The expected pages, rows and detokenized texts are what the original Python (data
 * set loaders, lm-eval's task) gave; on the whole of wiki.test.raw the hashes of all three agreed as well. */
#include "common/alloc.h"
#include "common/str.h"
#include "runner/text/builtin.h"
#include "runner/text/corpus.h"
#include "runner/text/wikitext.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

/* ---- WikiText ------------------------------------------------------------------------------------ */

START_TEST(rows_are_joined_by_two_newlines)
{
    static const struct { const char *text, *joined; } known[] = {
        {"", ""},
        {" \n = A = \n \n x y \n", "\n\n = A = \n\n\n\n\n x y \n"},
        {"a\nb", "a\n\n\nb"},                 /* each row keeps its newline */
        {"a\n\n\u3000\u00a0\nb\n", "a\n\n\n\n\n\n\nb\n"}, /* white space is Unicode's */
        {"\n", ""},
    };

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        struct llmq_err err = {0};
        struct llmq_str s;

        llmq_str_init(&s, 1000);
        ck_assert_int_eq(wikitext_join_rows(known[i].text, strlen(known[i].text), &s, &err), 0);
        ck_assert_str_eq(s.data, known[i].joined);
        llmq_str_fini(&s);
    }
}
END_TEST

START_TEST(a_title_starts_a_page)
{
    static const char text[] = " \n = A = \n x\n = = B = = \n y\n = C = \n\n\n = = = D = = = \n=E=\n= F\n= G =\nz";
    static const char *const pages[] = {" = A = \n x\n = = B = = \n y", " = C = \n\n\n = = = D = = = \n=E=\n= F", "= G =\nz"};
    static const size_t words[] = {11, 14, 4};
    const char         *page;
    size_t              at = 0, n, i = 0;

    for (; wikitext_page(text, sizeof text - 1, &at, &page, &n); i++) {
        ck_assert_uint_lt(i, 3);
        ck_assert_uint_eq(n, strlen(pages[i]));
        ck_assert_int_eq(memcmp(page, pages[i], n), 0);
        ck_assert_uint_eq(wikitext_words(page, n), words[i]);
    }
    ck_assert_uint_eq(i, 3);
    ck_assert_uint_eq(wikitext_words(" a  b ", 6), 4); /* empty words at both ends count, as in re.split */
}
END_TEST

START_TEST(detokenizing)
{
    static const struct { const char *in, *out; } known[] = {
        {"1 @,@ 000 @-@ year @.@ 5 : a ; b . c ! d ? e , f", "1,000-year.5: a; b. c! d? e, f"},
        {"the boys ' toys", "the boys' toys"},
        {" ( a b ) [  c\u3000] { d } ( e ( f ) ) ()", " (a b) [c] {d} (e ( f) ) ()"},
        {"\" quoted \" and ' single ' and \" open", "\"quoted\" and'single' and \" open"},
        {"= = = = A = = = = \n = = B = = \n", "==== A ====\n== B ==\n"},
        {"20 \u00b0 C N N it 's", "20\u00b0C 1 N it's"},
        {"/' 5/", "/'[0-9]/"},
        {"", ""},
    };

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        struct llmq_err err = {0};
        struct llmq_str s;

        llmq_str_init(&s, 1000);
        ck_assert_int_eq(wikitext_detokenize(known[i].in, strlen(known[i].in), &s, &err), 0);
        ck_assert_str_eq(s.data, known[i].out);
        llmq_str_fini(&s);
    }
}
END_TEST

/* ---- windows: a tokenizer whose ids are bytes + 1, and id 0 is BOS ------------------------------------- */

static size_t put_utf8(char *out, unsigned c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    out[0] = (char)(0xc0 | c >> 6);
    out[1] = (char)(0x80 | (c & 63));
    return 2;
}

static void put_token(struct llmq_str *s, const char *text, size_t n)
{
    struct llmq_err err = {0};
    uint32_t        len = (uint32_t)n;

    ck_assert_int_eq(llmq_str_append(s, &len, 4, &err), 0);
    ck_assert_int_eq(llmq_str_append(s, text, n, &err), 0);
}

static struct tokenizer *byte_tokenizer(int bos)
{
    static const char head[] = "{\"version\":\"1.0\",\"added_tokens\":[{\"id\":0,\"content\":\"<s>\",\"single_word\":false,\"lstrip\":false,"
                               "\"rstrip\":false,\"normalized\":false,\"special\":true}],\"normalizer\":null,\"pre_tokenizer\":{\"type\":"
                               "\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false},\"post_processor\":",
                      add[] = "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequence\":"
                              "{\"id\":\"A\",\"type_id\":0}}],\"pair\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"Sequence\":{\"id\":\"B\","
                              "\"type_id\":1}}],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[0],\"tokens\":[\"<s>\"]}}}",
                      tail[] = ",\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true},"
                               "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":null,"
                               "\"end_of_word_suffix\":null,\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":false}}";
    uint32_t          count = 257, other = 256, none = 0;
    struct llmq_err   err = {0};
    struct llmq_str   vocab, config;
    struct tokenizer *t;

    llmq_str_init(&vocab, 1 << 16);
    llmq_str_init(&config, 1 << 16);
    ck_assert_int_eq(llmq_str_append(&vocab, &count, 4, &err), 0);
    put_token(&vocab, "<s>", 3);
    for (unsigned b = 0; b < 256; b++) {
        char text[4];
        int  shown = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;

        put_token(&vocab, text, put_utf8(text, shown ? b : other));
        other += !shown;
    }
    ck_assert_int_eq(llmq_str_printf(&config, &err, "%s%s%s", head, bos ? add : "null", tail), 0);
    ck_assert_msg(tokenizer_load(&t, config.data, config.len, vocab.data, vocab.len, &none, 4, &err) == 0, "%s", err.text);
    llmq_str_fini(&vocab);
    llmq_str_fini(&config);
    return t;
}

static const char *write_text(const char *text)
{
    const char *path = unit_tmp("corpus.txt");
    FILE       *f = fopen(path, "w");

    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(text, 1, strlen(text), f), strlen(text));
    fclose(f);
    return path;
}

static struct corpus *open_text(const char *text, int bos, enum corpus_protocol p, int ctx, int windows)
{
    struct tokenizer *t = byte_tokenizer(bos);
    struct llmq_err   err = {0};
    struct corpus    *c;

    ck_assert_msg(corpus_open(&c, write_text(text), t, p, ctx, windows, 0, &err) == 0, "%s", err.text);
    tokenizer_free(t);
    return c;
}

/* A window as text, BOS as ^, a bar in front of the first token that is scored. */
static const char *window_text(const struct corpus *c, int w)
{
    static char                 out[200];
    const struct corpus_window *cw = &c->windows[w];
    int                         n = 0;

    ck_assert_int_lt(w, c->n_windows);
    for (int i = 0; i < cw->len; i++) {
        int32_t id = c->ids[cw->start + (size_t)i];

        if (i == cw->score_from)
            out[n++] = '|';
        out[n++] = id ? (char)(id - 1) : '^';
    }
    out[n] = '\0';
    return out;
}

START_TEST(plain_windows)
{
    struct corpus *c = open_text("abcdefghij", 1, CORPUS_PLAIN, 4, 0);

    ck_assert_int_eq(c->n_windows, 2);
    ck_assert_str_eq(window_text(c, 0), "^|abc");
    ck_assert_str_eq(window_text(c, 1), "d|efg");
    ck_assert_str_eq(c->bos, "start");
    ck_assert_uint_eq(c->n_ids, 11);
    corpus_close(c);
    c = open_text("abcdefgh", 0, CORPUS_PLAIN, 4, 1);
    ck_assert_int_eq(c->n_windows, 1);
    ck_assert_str_eq(c->bos, "none");
    ck_assert_str_eq(c->sha256, "9c56cc51b374c3ba189210d5b6d4bf57790d351c96c47c02190ecf1e430635ab");
    /* of the 32-bit integers 98 .. 105 */
    ck_assert_str_eq(c->token_sha256, "f3a460b5242ef546bb5c630194036fba6886df3dd219e277cf568859c020a487");
    corpus_close(c);
}
END_TEST

START_TEST(gptq_windows)
{
    struct corpus *c = open_text("a\n \nb\n", 0, CORPUS_GPTQ, 4, 0);

    ck_assert_str_eq(window_text(c, 0), "a|\n\n\n"); /* a, its newline, \n\n, nothing, \n\n, b, its newline */
    ck_assert_str_eq(window_text(c, 1), "\n|\nb\n");
    corpus_close(c);
}
END_TEST

START_TEST(llama_cpp_windows)
{
    struct corpus *c = open_text("abcdefghijklmno<s>", 1, CORPUS_LLAMA_CPP, 8, 0);

    ck_assert_int_eq(c->n_windows, 2);
    ck_assert_str_eq(window_text(c, 0), "^abcd|efg"); /* positions 4, 5, 6 predict: 8 - 4 - 1 */
    ck_assert_str_eq(window_text(c, 1), "^ijkl|mno"); /* h was there */
    ck_assert_str_eq(c->bos, "window");
    ck_assert_uint_eq(c->n_ids, 19); /* <s> is three letters */
    corpus_close(c);
    c = open_text("abcdefghijklmnop", 0, CORPUS_LLAMA_CPP, 8, 0);
    ck_assert_str_eq(window_text(c, 1), "ijklm|nop");
    corpus_close(c);
}
END_TEST

static const char pages_text[] = " = A = \nbc\n = D = \nefg";

START_TEST(lm_eval_windows)
{
    static const char *const want[] = {"^|= A", "A| =\n", "=\n|bc", "^|= D"};
    struct corpus           *c = open_text("= A = \nbc\n= D = \n", 1, CORPUS_LM_EVAL, 3, 0);

    /* "= A =\nbc" is 8 tokens: 3, 3, and 2 from inputs that reach back 3; then "= D =\n" */
    ck_assert_int_eq(c->n_windows, 5);
    for (int i = 0; i < 4; i++)
        ck_assert_str_eq(window_text(c, i), want[i]);
    ck_assert_str_eq(window_text(c, 4), "D| =\n");
    ck_assert_uint_eq(c->words, 4 + 4);
    ck_assert_uint_eq(c->bytes, 9 + 7);
    ck_assert_str_eq(c->bos, "document");
    corpus_close(c);
    c = open_text(pages_text, 0, CORPUS_LM_EVAL, 5, 3); /* 10 and 10 tokens: the second page does not fit */
    ck_assert_int_eq(c->n_windows, 2);
    ck_assert_uint_gt(c->words, 0);
    corpus_close(c);
    c = open_text(pages_text, 0, CORPUS_LM_EVAL, 5, 1);
    ck_assert_int_eq(c->n_windows, 1);
    ck_assert_uint_eq(c->words, 0);
    corpus_close(c);
}
END_TEST

static struct corpus *open_calib(const char *text, int samples, int seqlen, int want_rc, struct llmq_err *err)
{
    struct tokenizer *t = byte_tokenizer(1);
    struct corpus    *c;
    int               rc = corpus_open_calib(&c, write_text(text), t, 257, samples, seqlen, err);

    tokenizer_free(t);
    ck_assert_msg(rc == want_rc, "status %d, expected %d: %s", rc, want_rc, err->text);
    return c;
}

START_TEST(calibration_text_of_the_binary)
{
    struct llmq_err   err = {0};
    struct tokenizer *t = byte_tokenizer(1);
    struct corpus    *c;
    size_t            len;
    const char       *text = llmq_calib_builtin(&len);

    ck_assert_int_eq(corpus_open_calib(&c, "builtin", t, 257, 32, 1024, &err), 0);
    ck_assert_int_eq(c->n_windows, 32);
    for (int i = 1; i < 1024; i++) /* after BOS; a byte b is token b + 1 */
        ck_assert_int_eq(c->ids[i], (unsigned char)text[i - 1] + 1);
    corpus_close(c);
    ck_assert_int_eq(corpus_open_calib(&c, "./builtin", t, 257, 32, 1024, &err), LLMQ_EIO);
    tokenizer_free(t);
}
END_TEST

START_TEST(calibration_packs_documents)
{
    struct llmq_err err = {0};
    struct corpus  *c = open_calib("{\"text\": \"abc\"}\n\n{\"ids\": [100, 101]}\n {\"text\": \"h\"} \n", 2, 4, 0, &err);

    ck_assert_int_eq(c->n_windows, 2);
    ck_assert_str_eq(window_text(c, 0), "^|abc");
    ck_assert_str_eq(window_text(c, 1), "c|d^h");
    ck_assert_str_eq(c->bos, "document");
    corpus_close(c);
    c = open_calib("abcdefgh", 9, 4, 0, &err);
    ck_assert_int_eq(c->n_windows, 2);
    ck_assert_str_eq(c->bos, "start");
    ck_assert_str_eq(c->packing, "packed");
    corpus_close(c);
    c = open_calib("ab", 9, 1000, 0, &err); /* less than one window: a short one */
    ck_assert_int_eq(c->n_windows, 1);
    ck_assert_int_eq(c->windows[0].len, 3);
    corpus_close(c);
}
END_TEST

START_TEST(long_calibration_text_is_not_read_to_its_end)
{
    static char     text[40001];
    struct llmq_err err = {0};
    struct corpus  *c;

    for (int i = 0; i < 40000; i++)
        text[i] = i % 50 == 49 ? '\n' : (char)('a' + i % 26);
    strcpy(text + 39000, "\xff");
    c = open_calib(text, 4, 10, 0, &err); /* what is wrong behind the windows does not matter */
    ck_assert_uint_eq(c->n_ids, 40);
    ck_assert_str_eq(window_text(c, 3) + 2, "efghijklm");
    corpus_close(c);
}
END_TEST

START_TEST(calibration_refuses)
{
    static const struct { const char *text, *says; } bad[] = {
        {"", "expected at least 2"},
        {"{\"text\": \"a\"}\n{\"messages\": []}\n", "line 2: \"messages\" are not supported yet"},
        {"{\"text\": \"a\"}\n{\"txt\": \"b\"}\n", "line 2: neither"},
        {"{\"ids\": [1, 257]}\n", "ids[1] is not a token id, expected 0 to 256"},
        {"{\"ids\": [-1, 2]}\n", "ids[0] is not a token id"},
        {"{\"ids\": 5}\n", "\"ids\" is not an array"},
        {"{\"text\": \"a\"}\n{\"text\": \n", "line 2"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct llmq_err err = {0};

        open_calib(bad[i].text, 9, 4, LLMQ_EFORMAT, &err);
        ck_assert_msg(strstr(err.text, bad[i].says) != NULL, "'%s' does not say '%s'", err.text, bad[i].says);
    }
}
END_TEST

START_TEST(evaluation_refuses)
{
    struct tokenizer *t = byte_tokenizer(0);
    struct corpus    *c;
    struct llmq_err   err = {0};

    ck_assert_int_eq(corpus_open(&c, write_text("abc"), t, CORPUS_PLAIN, 4, 0, 0, &err), LLMQ_EFORMAT);
    ck_assert_ptr_nonnull(strstr(err.text, "3 tokens, expected at least one window of 4"));
    ck_assert_int_eq(corpus_open(&c, write_text("abc"), t, CORPUS_PLAIN, 1, 0, 0, &err), LLMQ_EUSAGE);
    ck_assert_int_eq(corpus_open(&c, write_text("= A =\n"), t, CORPUS_LM_EVAL, 4, 0, -1, &err), LLMQ_EUSAGE);
    ck_assert_int_eq(corpus_open(&c, write_text("ab\xff" "cd"), t, CORPUS_PLAIN, 2, 0, 0, &err), LLMQ_EFORMAT);
    ck_assert_int_eq(corpus_open(&c, unit_tmp("none"), t, CORPUS_PLAIN, 2, 0, 0, &err), LLMQ_EIO);
    ck_assert_ptr_null(c);
    tokenizer_free(t);
}
END_TEST

START_TEST(no_memory_is_an_error_wherever_it_happens)
{
    struct tokenizer *t = byte_tokenizer(1);
    const char       *path = write_text(pages_text);

    for (int p = CORPUS_PLAIN; p <= CORPUS_LM_EVAL; p++)
        for (long n = 1;; n++) {
            struct llmq_err err = {0};
            struct corpus  *c;
            int             rc;

            llmq_alloc_fail_nth(n);
            rc = corpus_open(&c, path, t, (enum corpus_protocol)p, 5, 0, 0, &err);
            llmq_alloc_fail_nth(0);
            corpus_close(c);
            if (!rc)
                break;
            ck_assert_int_eq(rc, LLMQ_ENOMEM);
            ck_assert_int_lt((int)n, 1000);
        }
    tokenizer_free(t);
}
END_TEST

UNIT_CASE(corpus, rows_are_joined_by_two_newlines, a_title_starts_a_page, detokenizing, plain_windows, gptq_windows, llama_cpp_windows,
          lm_eval_windows, calibration_text_of_the_binary,
          calibration_packs_documents, long_calibration_text_is_not_read_to_its_end, calibration_refuses,
          evaluation_refuses, no_memory_is_an_error_wherever_it_happens)

/* Text to windows of token ids: see corpus.h.
 *
 * Each protocol is one function that appends ids and cuts them into windows; what they differ in (how the text
 * is joined, where BOS stands, what is scored) is the whole reason why published perplexities cannot be
 * compared with one another, so each follows its original to the token (docs/EVALUATION.md). */
#include "runner/text/corpus.h"

#include "common/alloc.h"
#include "common/io.h"
#include "common/json.h"
#include "common/str.h"
#include "format/format.h"
#include "runner/text/builtin.h"
#include "runner/text/wikitext.h"

#include <stdio.h>
#include <string.h>

enum { AS_LIBRARY = TOKENIZER_ADD_SPECIAL | TOKENIZER_PARSE_SPECIAL };
enum { MAX_LINE = 64 << 20 }; /* bytes of one JSONL line */

/* A corpus while it is made. */
struct build {
    struct corpus          *c;
    const struct tokenizer *t;
    struct token_ids        ids;
    const char             *path, *text; /* the file; text already there: not to be opened */
    size_t                  len;
    int                     n_windows_cap, max_windows;
    int32_t                 prefix_id;
};

const char *corpus_protocol_name(enum corpus_protocol p)
{
    static const char *const names[] = {"plain", "gptq", "llama.cpp", "lm-eval"};

    return names[p];
}

void corpus_close(struct corpus *c)
{
    if (!c)
        return;
    llmq_free(c->ids);
    llmq_free(c->windows);
    llmq_free(c);
}

static int encode(struct build *b, const char *text, size_t len, int flags, struct llmq_err *err)
{
    return tokenizer_encode(b->t, text, len, flags, &b->ids, err) ? llmq_fail_within(err, "%s", b->path) : 0;
}

static int add_id(struct build *b, int32_t id, struct llmq_err *err)
{
    if (b->ids.n == b->ids.cap) {
        size_t   cap = b->ids.cap ? b->ids.cap * 2 : 1024;
        int32_t *p;

        if (LLMQ_NEW(&p, cap, "token ids", err))
            return err->code;
        if (b->ids.n)
            memcpy(p, b->ids.id, b->ids.n * sizeof *p);
        llmq_free(b->ids.id);
        b->ids.id = p;
        b->ids.cap = cap;
    }
    b->ids.id[b->ids.n++] = id;
    return 0;
}

static int add_window(struct build *b, size_t start, int len, int score_from, struct llmq_err *err)
{
    struct corpus *c = b->c;

    if (c->n_windows == b->n_windows_cap) {
        int                   cap = b->n_windows_cap ? b->n_windows_cap * 2 : 64;
        struct corpus_window *w;

        if (LLMQ_NEW(&w, cap, "windows", err))
            return err->code;
        if (c->n_windows)
            memcpy(w, c->windows, (size_t)c->n_windows * sizeof *w);
        llmq_free(c->windows);
        c->windows = w;
        b->n_windows_cap = cap;
    }
    c->windows[c->n_windows++] = (struct corpus_window){start, len, score_from};
    return 0;
}

static int full(const struct build *b) { return b->max_windows > 0 && b->c->n_windows >= b->max_windows; }

/* Windows of ctx one after the other; what is left at the end is left out. */
static int cut_windows(struct build *b, int score_from, struct llmq_err *err)
{
    size_t ctx = (size_t)b->c->ctx;

    for (size_t at = 0; at + ctx <= b->ids.n && !full(b); at += ctx)
        if (add_window(b, at, b->c->ctx, score_from, err))
            return err->code;
    if (b->c->n_windows)
        return 0;
    return llmq_fail(err, LLMQ_EFORMAT, "%s: %zu tokens, expected at least one window of %d (a smaller --ctx would do)", b->path,
                     b->ids.n, b->c->ctx);
}

static int has_bos(const struct build *b, int32_t *bos) { return tokenizer_prefix(b->t, bos) > 0; }

static int open_plain(struct build *b, struct llmq_err *err)
{
    int32_t bos;

    b->c->bos = has_bos(b, &bos) ? "start" : "none";
    return encode(b, b->text, b->len, AS_LIBRARY, err) ? err->code : cut_windows(b, 1, err);
}

static int open_gptq(struct build *b, struct llmq_err *err)
{
    struct llmq_str rows;
    int32_t         bos;
    int             rc;

    b->c->bos = has_bos(b, &bos) ? "start" : "none";
    llmq_str_init(&rows, b->len * 3 + 1); /* an empty line of one byte becomes two newlines and keeps none */
    rc = wikitext_join_rows(b->text, b->len, &rows, err);
    if (!rc)
        rc = encode(b, rows.data, rows.len, AS_LIBRARY, err);
    llmq_str_fini(&rows);
    return rc ? rc : cut_windows(b, 1, err);
}

/* Of ctx positions the second half predicts, and the last of it has nothing to predict: ctx - ctx/2 - 1 tokens. */
static int open_llama_cpp(struct build *b, struct llmq_err *err)
{
    int32_t bos;

    b->c->bos = has_bos(b, &bos) ? "window" : "none";
    if (b->c->ctx < 4)
        return llmq_fail(err, LLMQ_EUSAGE, "a window of %d tokens: protocol llama.cpp needs at least 4", b->c->ctx);
    if (encode(b, b->text, b->len, TOKENIZER_ADD_SPECIAL, err) || cut_windows(b, b->c->ctx / 2 + 1, err))
        return err->code;
    if (has_bos(b, &bos))
        for (int w = 0; w < b->c->n_windows; w++)
            b->ids.id[b->c->windows[w].start] = bos;
    return 0;
}

/* A document's prefix and n tokens stand at `start`.  Each window predicts the next ctx tokens (the last one what
 * is left) from inputs that reach back ctx tokens at most: one token of context, more in the last. */
static int roll_windows(struct build *b, size_t start, size_t n, struct llmq_err *err)
{
    size_t ctx = (size_t)b->c->ctx;

    for (size_t done = 0; done < n && !full(b);) {
        size_t end = n - done < ctx ? n : done + ctx, from = end > ctx ? end - ctx : 0, len = end - from + 1;

        if (add_window(b, start + from, (int)len, (int)(len - (end - done)), err))
            return err->code;
        done = end;
    }
    return 0;
}

/* One page.  Returns 1 when --windows ends the corpus in front of it or inside it. */
static int add_page(struct build *b, const char *page, size_t len, struct llmq_err *err)
{
    struct llmq_str s;
    size_t          start = b->ids.n, n, windows;
    int             rc;

    llmq_str_init(&s, len * 2 + 64);
    rc = wikitext_detokenize(page, len, &s, err);
    if (!rc)
        rc = add_id(b, b->prefix_id, err);
    if (!rc)
        rc = encode(b, s.data, s.len, TOKENIZER_PARSE_SPECIAL, err);
    llmq_str_fini(&s);
    if (rc)
        return rc;
    n = b->ids.n - start - 1;
    windows = (n + (size_t)b->c->ctx - 1) / (size_t)b->c->ctx;
    if (b->max_windows && (size_t)b->c->n_windows + windows > (size_t)b->max_windows) {
        if (b->c->n_windows == 0) /* not even one page fits: its first windows, without a word count */
            return roll_windows(b, start, n, err) ? err->code : 1;
        b->ids.n = start;
        return 1;
    }
    b->c->words += wikitext_words(page, len);
    b->c->bytes += len;
    return roll_windows(b, start, n, err);
}

static int open_lm_eval(struct build *b, struct llmq_err *err)
{
    const char *page;
    size_t      at = 0, n;
    int         rc = 0;

    b->c->bos = "document";
    if (b->prefix_id < 0)
        return llmq_fail(err, LLMQ_EUSAGE, "protocol lm-eval starts a document with the model's BOS or EOS, and it names neither");
    while (!rc && wikitext_page(b->text, b->len, &at, &page, &n))
        rc = add_page(b, page, n, err);
    if (rc < 0)
        return rc;
    return b->c->n_windows ? 0 : llmq_fail(err, LLMQ_EFORMAT, "%s: no text in it", b->path);
}

/* ---- calibration ------------------------------------------------------------------------------------ */

static int add_given_ids(struct build *b, const json_t *ids, int n_vocab, const char *where, struct llmq_err *err)
{
    size_t  i;
    json_t *v;

    if (!json_is_array(ids))
        return llmq_fail(err, LLMQ_EFORMAT, "%s: \"ids\" is not an array", where);
    json_array_foreach(ids, i, v) {
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= n_vocab)
            return llmq_fail(err, LLMQ_EFORMAT, "%s: ids[%zu] is not a token id, expected 0 to %d", where, i, n_vocab - 1);
        if (add_id(b, (int32_t)json_integer_value(v), err))
            return err->code;
    }
    return 0;
}

static int add_record(struct build *b, const json_t *o, int n_vocab, const char *where, struct llmq_err *err)
{
    const json_t *text = json_object_get(o, "text"), *ids = json_object_get(o, "ids");

    if (json_is_string(text))
        return encode(b, json_string_value(text), json_string_length(text), AS_LIBRARY, err) ? llmq_fail_within(err, "%s", where) : 0;
    if (ids)
        return add_given_ids(b, ids, n_vocab, where, err);
    if (json_object_get(o, "messages"))
        return llmq_fail(err, LLMQ_EFORMAT, "%s: \"messages\" are not supported yet, expected \"text\" or \"ids\"", where);
    return llmq_fail(err, LLMQ_EFORMAT, "%s: neither a string \"text\" nor \"ids\" in the object", where);
}

static int add_jsonl(struct build *b, int n_vocab, size_t want, struct llmq_err *err)
{
    const char *end = b->text + b->len;
    char        where[512];
    int         line = 0;

    for (const char *p = b->text, *next; p < end && b->ids.n < want; p = next) {
        const char *nl = memchr(p, '\n', (size_t)(end - p)), *stop = nl ? nl : end;
        json_t     *o;
        int         rc;

        next = nl ? nl + 1 : end;
        line++;
        while (p < stop && wikitext_space(p, stop))
            p++;
        if (p == stop)
            continue;
        snprintf(where, sizeof where, "%s: line %d", b->path, line);
        if (llmq_json_parse(&o, p, (size_t)(stop - p), MAX_LINE, where, err))
            return err->code;
        rc = add_record(b, o, n_vocab, where, err);
        json_decref(o);
        if (rc)
            return rc;
    }
    return 0;
}

/* Only as much of a long text as is needed, cut at a line's end, which never changes the tokens far before it. */
static int add_text(struct build *b, size_t want, struct llmq_err *err)
{
    size_t part = want * 8 + 4096;

    for (; part < b->len; part *= 4) {
        const char *nl = memrchr(b->text, '\n', part);

        if (!nl)
            continue;
        if (encode(b, b->text, (size_t)(nl + 1 - b->text), AS_LIBRARY, err))
            return err->code;
        if (b->ids.n > want + 16)
            return 0;
        b->ids.n = 0;
    }
    return encode(b, b->text, b->len, AS_LIBRARY, err);
}

static int looks_like_jsonl(const struct build *b)
{
    const char *p = b->text, *end = p + b->len, *nl;
    size_t      len = strlen(b->path);

    if (len > 6 && !strcmp(b->path + len - 6, ".jsonl")) /* a damaged first line is not text */
        return 1;
    while (p < end && wikitext_space(p, end))
        p++;
    nl = memchr(p, '\n', (size_t)(end - p));
    end = nl ? nl : end;
    while (end > p && wikitext_space(end - 1, end))
        end--;
    return end - p >= 2 && *p == '{' && end[-1] == '}' && (memmem(p, (size_t)(end - p), "\"text\"", 6) ||
           memmem(p, (size_t)(end - p), "\"ids\"", 5) || memmem(p, (size_t)(end - p), "\"messages\"", 10));
}

static int pack_calib(struct build *b, int n_vocab, struct llmq_err *err)
{
    size_t  seqlen = (size_t)b->c->ctx, want = seqlen * (size_t)b->max_windows;
    int     lines = looks_like_jsonl(b);
    int32_t bos;

    b->c->packing = "packed";
    b->c->bos = !has_bos(b, &bos) ? "none" : lines ? "document" : "start";
    if (lines ? add_jsonl(b, n_vocab, want, err) : add_text(b, want, err))
        return err->code;
    if (b->ids.n > want)
        b->ids.n = want;
    if (b->ids.n < 2)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: %zu tokens, expected at least 2", b->path, b->ids.n);
    for (size_t i = 0; i < b->ids.n; i++)
        if (b->ids.id[i] < 0 || b->ids.id[i] >= n_vocab)
            return llmq_fail(err, LLMQ_EFORMAT, "%s: the tokenizer makes id %d, but the model has %d", b->path, b->ids.id[i], n_vocab);
    if (b->ids.n < seqlen)
        return add_window(b, 0, (int)b->ids.n, 1, err);
    return cut_windows(b, 1, err);
}

/* ---- opening ----------------------------------------------------------------------------------------- */

static void hash_ids(struct corpus *c)
{
    struct llmq_sha256 h;
    unsigned char      le[4];

    llmq_sha256_init(&h);
    for (size_t i = 0; i < c->n_ids; i++) {
        for (int k = 0; k < 4; k++)
            le[k] = (unsigned char)((uint32_t)c->ids[i] >> (8 * k));
        llmq_sha256_update(&h, le, sizeof le);
    }
    llmq_sha256_hex(&h, c->token_sha256);
}

static void hash_text(const struct build *b)
{
    struct llmq_sha256 h;

    llmq_sha256_init(&h);
    llmq_sha256_update(&h, b->text, b->len);
    llmq_sha256_hex(&h, b->c->sha256);
}

static int open_as(struct build *b, int n_vocab, struct llmq_err *err)
{
    if (b->c->ctx < 2)
        return llmq_fail(err, LLMQ_EUSAGE, "a window of %d tokens: expected at least 2", b->c->ctx);
    if (n_vocab)
        return pack_calib(b, n_vocab, err);
    switch (b->c->protocol) {
    case CORPUS_PLAIN:
        return open_plain(b, err);
    case CORPUS_GPTQ:
        return open_gptq(b, err);
    case CORPUS_LLAMA_CPP:
        return open_llama_cpp(b, err);
    case CORPUS_LM_EVAL:
        return open_lm_eval(b, err);
    }
    return llmq_fail(err, LLMQ_EUSAGE, "there is no protocol %d", (int)b->c->protocol);
}

/* n_vocab: 0 for evaluation, otherwise calibration. */
static int build_corpus(struct corpus **out, struct build *b, enum corpus_protocol protocol, int ctx, int n_vocab,
                        struct llmq_err *err)
{
    struct llmq_map m = {0};
    int             rc;

    *out = NULL;
    if (LLMQ_NEW(&b->c, 1, "the corpus", err))
        return err->code;
    b->c->ctx = b->c->stride = ctx;
    b->c->protocol = protocol;
    rc = b->text ? 0 : llmq_map_open(&m, b->path, err);
    if (!b->text) {
        b->text = m.data;
        b->len = m.size;
    }
    if (!rc)
        rc = open_as(b, n_vocab, err);
    b->c->ids = b->ids.id; /* the corpus owns them now, whether it lives or not */
    b->c->n_ids = b->ids.n;
    if (!rc) {
        hash_text(b);
        hash_ids(b->c);
        *out = b->c;
    } else {
        corpus_close(b->c);
    }
    llmq_map_close(&m);
    return rc;
}

int corpus_open(struct corpus **out, const char *path, const struct tokenizer *t, enum corpus_protocol protocol, int ctx,
                int max_windows, int32_t prefix_id, struct llmq_err *err)
{
    struct build b = {.t = t, .path = path, .max_windows = max_windows, .prefix_id = prefix_id};

    return build_corpus(out, &b, protocol, ctx, 0, err);
}

int corpus_open_calib(struct corpus **out, const char *path, const struct tokenizer *t, int n_vocab, int samples, int seqlen,
                      struct llmq_err *err)
{
    struct build b = {.t = t, .path = path, .max_windows = samples, .prefix_id = -1};

    if (!strcmp(path, "builtin"))
        b.text = llmq_calib_builtin(&b.len);
    return build_corpus(out, &b, CORPUS_PLAIN, seqlen, n_vocab, err);
}

int corpus_from_windows(struct corpus **out, const int32_t *ids, int windows, int len, const char *bos, struct llmq_err *err)
{
    struct corpus *c;
    size_t         n = (size_t)windows * (size_t)len;

    *out = NULL;
    if (LLMQ_NEW(&c, 1, "the corpus", err))
        return err->code;
    *c = (struct corpus){.n_ids = n, .n_windows = windows, .ctx = len, .stride = len, .bos = bos, .packing = "window"};
    if (LLMQ_NEW(&c->ids, n, "token ids", err) || LLMQ_NEW(&c->windows, windows, "windows", err)) {
        corpus_close(c);
        return err->code;
    }
    memcpy(c->ids, ids, n * sizeof *ids);
    for (int w = 0; w < windows; w++)
        c->windows[w] = (struct corpus_window){(size_t)w * (size_t)len, len, 1};
    hash_ids(c);
    memcpy(c->sha256, c->token_sha256, sizeof c->sha256); /* the ids are the data */
    *out = c;
    return 0;
}

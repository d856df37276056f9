/* Text to ids and back: see tokenizer.h.
 *
 * encode, as the `tokenizers` library does it: added tokens that are not normalized are cut out of the raw text; what
 * lies between is normalized; added tokens that are normalized are cut out of that; the rest goes through the
 * pre-tokenizer word by word into the model.  The post-processor's template then says which ids stand around it.
 *
 * The parts (added.c, normalize.c, pretok.c, bpe.c, decode.c) know nothing of each other; this file joins them, and
 * reads the configuration that llmq_tokenizer_check has found well-formed. */
#include "runner/text/tokenizer.h"

#include "common/alloc.h"
#include "common/json.h"
#include "common/utf8.h"
#include "format/format.h"
#include "runner/text/added.h"
#include "runner/text/bpe.h"
#include "runner/text/decode.h"
#include "runner/text/normalize.h"
#include "runner/text/pretok.h"

#include <string.h>

enum { CONFIG_MAX = 64 * 1024 * 1024, TEMPLATE_MAX = 256, ID_MAX = 1 << 24, TEXT_MAX = 1 << 30 };

struct tokenizer {
    struct normalize *normalize; /* NULL: none */
    struct pretok    *pretok;    /* NULL: none */
    struct bpe       *bpe;
    struct added     *added;
    struct decode    *decode;
    int32_t           template_id[TEMPLATE_MAX]; /* TEXT: the text's ids */
    int               n_template;
    int               vocab_size;
};
enum { TEXT = -1 };

/* ---- loading ------------------------------------------------------------------------------- */

static int template_push(struct tokenizer *t, int32_t id, struct llmq_err *err)
{
    if (t->n_template == TEMPLATE_MAX)
        return llmq_fail(err, LLMQ_EFORMAT, "tokenizer: a template of more than %d tokens", TEMPLATE_MAX);
    t->template_id[t->n_template++] = id;
    return 0;
}

static int template_special(struct tokenizer *t, const json_t *ids, struct llmq_err *err)
{
    size_t  i;
    json_t *v;

    json_array_foreach(ids, i, v) {
        json_int_t id = json_integer_value(v);

        if (id < 0 || id >= ID_MAX)
            return llmq_fail(err, LLMQ_EFORMAT, "tokenizer: a template's id %lld is out of range", (long long)id);
        if (template_push(t, (int32_t)id, err))
            return err->code;
    }
    return 0;
}

static int load_template(struct tokenizer *t, const json_t *spec, struct llmq_err *err)
{
    const json_t *specials = json_object_get(spec, "special_tokens");
    size_t        i;
    json_t       *v;

    t->n_template = 0;
    json_array_foreach(json_object_get(spec, "single"), i, v) {
        const char *name = json_string_value(json_object_get(json_object_get(v, "SpecialToken"), "id"));

        if (name ? template_special(t, json_object_get(json_object_get(specials, name), "ids"), err)
                 : template_push(t, TEXT, err))
            return err->code;
    }
    return 0;
}

/* ByteLevel only moves offsets, which we do not keep; llmq_tokenizer_check allows one template. */
static int load_processor(struct tokenizer *t, const json_t *spec, struct llmq_err *err)
{
    const char *type = json_string_value(json_object_get(spec, "type"));
    size_t      i;
    json_t     *v;

    if (type && !strcmp(type, "TemplateProcessing"))
        return load_template(t, spec, err);
    if (type && !strcmp(type, "Sequence")) {
        json_array_foreach(json_object_get(spec, "processors"), i, v) {
            if (load_processor(t, v, err))
                return err->code;
        }
    }
    return 0;
}

/* Shows every text that an id may stand for to the decoder. */
static void show_tokens(struct tokenizer *t)
{
    for (int id = 0; id < bpe_count(t->bpe); id++) {
        size_t      len;
        const char *text = bpe_text(t->bpe, id, &len);

        if (text)
            decode_see(t->decode, text, len);
    }
    for (int i = 0; i < added_count(t->added); i++)
        decode_see(t->decode, added_token(t->added, i)->normal, added_token(t->added, i)->normal_len);
}

static int count_ids(struct tokenizer *t, struct llmq_err *err)
{
    t->vocab_size = bpe_count(t->bpe);
    for (int i = 0; i < added_count(t->added); i++) {
        const struct added_token *a = added_token(t->added, i);

        if (a->id >= ID_MAX)
            return llmq_fail(err, LLMQ_EFORMAT, "tokenizer: added token '%s' has id %d, at most %d is allowed", a->content,
                             a->id, ID_MAX - 1);
        if (a->id >= t->vocab_size)
            t->vocab_size = a->id + 1;
    }
    for (int i = 0; i < t->n_template; i++)
        if (t->template_id[i] >= t->vocab_size)
            return llmq_fail(err, LLMQ_EFORMAT, "tokenizer: a template's id %d is beyond the last id %d", t->template_id[i],
                             t->vocab_size - 1);
    return 0;
}

static int load_parts(struct tokenizer *t, const json_t *config, const void *vocab, size_t vocab_len, const void *merges,
                      size_t merges_len, struct llmq_err *err)
{
    if (normalize_load(&t->normalize, json_object_get(config, "normalizer"), err) ||
        pretok_load(&t->pretok, json_object_get(config, "pre_tokenizer"), err) ||
        bpe_load(&t->bpe, json_object_get(config, "model"), vocab, vocab_len, merges, merges_len, err) ||
        added_load(&t->added, json_object_get(config, "added_tokens"), t->normalize, err) ||
        decode_load(&t->decode, json_object_get(config, "decoder"), err) || template_push(t, TEXT, err) ||
        load_processor(t, json_object_get(config, "post_processor"), err) || count_ids(t, err))
        return err->code;
    show_tokens(t);
    return 0;
}

int tokenizer_load(struct tokenizer **out, const char *config, size_t config_len, const void *vocab, size_t vocab_len,
                   const void *merges, size_t merges_len, struct llmq_err *err)
{
    struct tokenizer *t = NULL;
    json_t           *json = NULL;
    int               rc;

    *out = NULL;
    rc = llmq_json_parse(&json, config, config_len, CONFIG_MAX, "section tokenizer", err);
    if (!rc)
        rc = llmq_tokenizer_check(json, "section tokenizer", err);
    if (!rc)
        rc = LLMQ_NEW(&t, 1, "a tokenizer", err);
    if (!rc)
        rc = load_parts(t, json, vocab, vocab_len, merges, merges_len, err);
    json_decref(json);
    if (rc)
        tokenizer_free(t);
    else
        *out = t;
    return rc;
}

int tokenizer_from_file(struct tokenizer **out, const struct llmq_file *f, struct llmq_err *err)
{
    size_t      n_config, n_vocab, n_merges;
    const char *config = llmq_file_section(f, LLMQ_SECTION_TOKENIZER, &n_config);
    const char *vocab = llmq_file_section(f, LLMQ_SECTION_VOCAB, &n_vocab);
    const char *merges = llmq_file_section(f, LLMQ_SECTION_MERGES, &n_merges);

    *out = NULL;
    if (!n_config || !n_vocab)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: it holds no tokenizer", llmq_file_path(f));
    return tokenizer_load(out, config, n_config, vocab, n_vocab, merges, n_merges, err);
}

int tokenizer_from_source(struct tokenizer **out, struct llmq_source *s, struct llmq_err *err)
{
    size_t      n_config, n_vocab, n_merges;
    const char *config = s->section(s, LLMQ_SECTION_TOKENIZER, &n_config);
    const char *vocab = s->section(s, LLMQ_SECTION_VOCAB, &n_vocab);
    const char *merges = s->section(s, LLMQ_SECTION_MERGES, &n_merges);

    *out = NULL;
    if (!n_config || !n_vocab)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: it holds no tokenizer", s->name);
    return tokenizer_load(out, config, n_config, vocab, n_vocab, merges, n_merges, err);
}

void tokenizer_free(struct tokenizer *t)
{
    if (!t)
        return;
    normalize_free(t->normalize);
    pretok_free(t->pretok);
    bpe_free(t->bpe);
    added_free(t->added);
    decode_free(t->decode);
    llmq_free(t);
}

int tokenizer_vocab_size(const struct tokenizer *t) { return t->vocab_size; }

void tokenizer_ids_free(struct token_ids *ids)
{
    llmq_free(ids->id);
    memset(ids, 0, sizeof *ids);
}

/* ---- encoding ------------------------------------------------------------------------------ */

struct encoder {
    const struct tokenizer *t;
    struct pattern_scratch *match;
    struct pretok_scratch  *pretok;
    struct bpe_scratch     *bpe;
    struct llmq_str         text, spare;
    struct added_marks      marks; /* marks.marks: NULL when there are none */
    int                    *found, *apart; /* [vocab_size], or NULL: see count_piece */
    size_t                  lead; /* of the text that is being cut */
    int                     flags;
    struct token_ids       *out;
};

static int on_word(void *ctx, const char *text, size_t len, struct llmq_err *err)
{
    struct encoder *e = ctx;

    return bpe_encode(e->t->bpe, e->bpe, text, len, e->out, err);
}

static int on_normal(void *ctx, const char *text, size_t from, size_t to, int32_t id, struct llmq_err *err)
{
    struct encoder *e = ctx;

    if (id >= 0)
        return bpe_push(e->out, id, err);
    return pretok_apply(e->t->pretok, e->pretok, e->match, text + from, to - from, from < e->lead ? e->lead - from : 0, on_word,
                        e, err);
}

/* Normalized tokens are looked for in text that has no marks any more.  What a piece holds must then be what it holds
 * with a letter in place of each byte of a message. */
static int on_count(void *ctx, const char *text, size_t from, size_t to, int32_t id, struct llmq_err *err)
{
    (void)text, (void)from, (void)to, (void)err;
    if (id >= 0)
        ((int *)ctx)[id]++;
    return 0;
}

static int count_normal(struct encoder *e, size_t from, int *counts, struct llmq_err *err)
{
    size_t lead = from == 0 && e->text.len ? (size_t)utf8_len(e->text.data[0]) : 0;

    if (normalize_apply(e->t->normalize, e->match, &e->text, &e->spare, &lead, err))
        return err->code;
    return added_split(e->t->added, 1, 1, e->text.data, e->text.len, NULL, 0, on_count, counts, err);
}

static int count_piece(struct encoder *e, const char *text, size_t from, size_t to, struct llmq_err *err)
{
    llmq_str_clear(&e->text);
    if (llmq_str_append(&e->text, text + from, to - from, err) || count_normal(e, from, e->found, err))
        return err->code;
    llmq_str_clear(&e->text);
    if (llmq_str_append(&e->text, text + from, to - from, err))
        return err->code;
    for (size_t i = from; i < to; i++)
        if (e->marks.marks[i])
            e->text.data[i - from] = 'x';
    return count_normal(e, from, e->apart, err);
}

static int on_raw(void *ctx, const char *text, size_t from, size_t to, int32_t id, struct llmq_err *err)
{
    struct encoder *e = ctx;
    int             special = e->flags & TOKENIZER_PARSE_SPECIAL;

    if (id >= 0)
        return bpe_push(e->out, id, err);
    if (e->found && count_piece(e, text, from, to, err))
        return err->code;
    e->lead = from == 0 ? (size_t)utf8_len(text[0]) : 0;
    if (!e->t->normalize)
        return added_split(e->t->added, 1, special, text + from, to - from, e->marks.marks ? &e->marks : NULL, from, on_normal, e, err);
    llmq_str_clear(&e->text);
    if (llmq_str_append(&e->text, text + from, to - from, err) ||
        normalize_apply(e->t->normalize, e->match, &e->text, &e->spare, &e->lead, err))
        return err->code;
    return added_split(e->t->added, 1, special, e->text.data, e->text.len, NULL, 0, on_normal, e, err);
}

/* ---- marks ------------------------------------------------------------------------------------- */

static int use_marks(struct encoder *e, const char *text, const char *marks, size_t len, struct llmq_err *err)
{
    if (!marks || !memchr(marks, 1, len))
        return 0;
    e->marks = (struct added_marks){.text = text, .marks = marks, .len = len};
    if (LLMQ_NEW(&e->marks.known, added_count(e->t->added) + 1, "added tokens", err))
        return err->code;
    if (!e->t->normalize || !added_any_normalized(e->t->added))
        return 0;
    return LLMQ_NEW(&e->found, e->t->vocab_size, "counts of tokens", err) || LLMQ_NEW(&e->apart, e->t->vocab_size, "counts of tokens", err)
               ? err->code
               : 0;
}

static int compare_counts(const struct encoder *e, struct llmq_err *err)
{
    for (int i = 0; e->found && i < added_count(e->t->added); i++) {
        const struct added_token *a = added_token(e->t->added, i);

        if (e->found[a->id] != e->apart[a->id] && (a->special || e->apart[a->id]))
            return llmq_fail(err, LLMQ_EFORMAT,
                             "the message holds %s, which this model's tokenizer cannot keep apart from the template's own", a->content);
    }
    return 0;
}

static void encoder_fini(struct encoder *e)
{
    pattern_scratch_free(e->match);
    pretok_scratch_free(e->pretok);
    bpe_scratch_free(e->bpe);
    llmq_str_fini(&e->text);
    llmq_str_fini(&e->spare);
    llmq_free(e->marks.known);
    llmq_free(e->found);
    llmq_free(e->apart);
}

static int encode_text(const struct tokenizer *t, const char *text, const char *marks, size_t len, int flags, struct token_ids *out,
                       struct llmq_err *err)
{
    struct encoder e = {.t = t, .flags = flags, .out = out};
    int            rc;

    llmq_str_init(&e.text, TEXT_MAX);
    llmq_str_init(&e.spare, TEXT_MAX);
    rc = pattern_scratch_new(&e.match, err);
    if (!rc)
        rc = pretok_scratch_new(&e.pretok, t->pretok, err);
    if (!rc)
        rc = bpe_scratch_new(&e.bpe, err);
    if (!rc)
        rc = use_marks(&e, text, marks, len, err);
    if (!rc)
        rc = added_split(t->added, 0, flags & TOKENIZER_PARSE_SPECIAL, text, len, e.marks.marks ? &e.marks : NULL, 0, on_raw, &e, err);
    if (!rc)
        rc = compare_counts(&e, err);
    encoder_fini(&e);
    return rc;
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, int flags, struct token_ids *out, struct llmq_err *err)
{
    return tokenizer_encode_marked(t, text, NULL, len, flags, out, err);
}

int tokenizer_encode_marked(const struct tokenizer *t, const char *text, const char *marks, size_t len, int flags,
                            struct token_ids *out, struct llmq_err *err)
{
    size_t bad = utf8_check(text, len), from = 0, to = 0;
    int    done = 0;

    if (bad != len)
        return llmq_fail(err, LLMQ_EFORMAT, "text: byte %zu is 0x%02x, which is not UTF-8 there", bad, (unsigned char)text[bad]);
    for (int i = 0; i < t->n_template; i++) {
        if (t->template_id[i] >= 0) {
            if ((flags & TOKENIZER_ADD_SPECIAL) && bpe_push(out, t->template_id[i], err))
                return err->code;
        } else if (!done++) {
            from = out->n;
            if (encode_text(t, text, marks, len, flags, out, err))
                return err->code;
            to = out->n;
        } else {
            for (size_t k = from; k < to; k++)
                if (bpe_push(out, out->id[k], err))
                    return err->code;
        }
    }
    return 0;
}

/* ---- decoding ------------------------------------------------------------------------------ */

struct tokenizer_stream {
    const struct tokenizer *t;
    struct decode_run      *run;
    int                     skip_special;
};

int tokenizer_stream_new(struct tokenizer_stream **out, const struct tokenizer *t, int skip_special, struct llmq_err *err)
{
    struct tokenizer_stream *s = NULL;

    *out = NULL;
    if (LLMQ_NEW(&s, 1, "decoding", err))
        return err->code;
    s->t = t;
    s->skip_special = skip_special;
    if (decode_run_new(&s->run, t->decode, err)) {
        llmq_free(s);
        return err->code;
    }
    *out = s;
    return 0;
}

/* As in the library an id without a token is passed over, and a token is special when its text is a special one's. */
int tokenizer_stream_push(struct tokenizer_stream *s, int32_t id, struct llmq_str *out, struct llmq_err *err)
{
    const struct added_token *a = added_by_id(s->t->added, id);
    size_t                    len = a ? a->normal_len : 0;
    const char               *text = a ? a->normal : bpe_text(s->t->bpe, id, &len);

    if (!text || (s->skip_special && a && a->hidden))
        return 0;
    return decode_run_token(s->run, text, len, out, err);
}

int tokenizer_stream_finish(struct tokenizer_stream *s, struct llmq_str *out, struct llmq_err *err)
{
    return decode_run_finish(s->run, out, err);
}

void tokenizer_stream_free(struct tokenizer_stream *s)
{
    if (!s)
        return;
    decode_run_free(s->run);
    llmq_free(s);
}

int tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, int skip_special, struct llmq_str *out,
                     struct llmq_err *err)
{
    struct tokenizer_stream *s;
    int                      rc = tokenizer_stream_new(&s, t, skip_special, err);

    if (!s)
        return rc;
    for (size_t i = 0; i < n && !rc; i++)
        rc = tokenizer_stream_push(s, ids[i], out, err);
    if (!rc)
        rc = tokenizer_stream_finish(s, out, err);
    tokenizer_stream_free(s);
    return rc;
}

/* ---- questions ------------------------------------------------------------------------------ */

const char *tokenizer_token_text(const struct tokenizer *t, int32_t id, size_t *len)
{
    const struct added_token *a = added_by_id(t->added, id);

    if (!a)
        return bpe_text(t->bpe, id, len);
    *len = a->len;
    return a->content;
}

int32_t tokenizer_token_id(const struct tokenizer *t, const char *text, size_t len)
{
    const struct added_token *a = added_by_content(t->added, text, len);

    return a ? a->id : bpe_find(t->bpe, text, len);
}

int tokenizer_is_special(const struct tokenizer *t, int32_t id)
{
    const struct added_token *a = added_by_id(t->added, id);

    return a && a->special;
}

int tokenizer_is_added(const struct tokenizer *t, const char *text, size_t len) { return added_by_content(t->added, text, len) != NULL; }

int tokenizer_prefix(const struct tokenizer *t, int32_t *first)
{
    int n = 0;

    while (n < t->n_template && t->template_id[n] >= 0)
        n++;
    if (first)
        *first = n ? t->template_id[0] : -1;
    return n;
}

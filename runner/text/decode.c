/* Decoders: see decode.h.
 *
 * The `tokenizers` library maps the whole list of tokens through one decoder after the other.  Here each step passes on
 * what it is sure of at once: a token travels as pieces of text with a mark on its last one, and a step keeps back only
 * what a later piece could change (a start of the text to be replaced, a run of byte tokens, half a code point).
 * Decoding at one go is the same machine run to its end, so the two cannot differ.
 *
 * One step looks at whole tokens: ByteLevel leaves a token as it is when a single character in it is outside the
 * alphabet of bytes.  After Fuse that token is all of the text, and nothing would be certain before the end.  But when
 * no token of the vocabulary holds such a character (decode_see finds out at load), it cannot happen, and pieces
 * pass at once. */
#include "runner/text/decode.h"

#include "common/alloc.h"
#include "common/utf8.h"
#include "runner/text/bytelevel.h"
#include "runner/text/component.h"

#include <string.h>

enum kind { BYTE_LEVEL, BYTE_FALLBACK, FUSE, REPLACE, STRIP, METASPACE, BPE_DECODER, SEQUENCE, N_KINDS, JOIN };
static const char *const kind_name[N_KINDS] = {"ByteLevel", "ByteFallback", "Fuse",       "Replace",
                                               "Strip",     "Metaspace",    "BPEDecoder", "Sequence"};
enum { MAX_STEPS = 32, MAX_DEPTH = 16, HELD_MAX = 1 << 30 };

struct step {
    enum kind       kind;
    char           *text; /* Replace: what is looked for when it is a String; BPEDecoder: the suffix */
    size_t          len;
    char           *with; /* Replace */
    size_t          with_len;
    struct pattern *pattern;         /* Replace by a Regex */
    uint32_t        mark;            /* Strip's content, Metaspace's replacement */
    size_t          start, stop;     /* Strip */
    int             keep_first;      /* Metaspace: the first token's mark becomes a space too */
};

struct decode {
    struct step step[MAX_STEPS];
    int         n;
    int         bytes_only; /* no token seen so far can fail in ByteLevel */
};

/* ---- loading ------------------------------------------------------------------------------- */

static int copy_text(char **out, size_t *len, const json_t *v, struct llmq_err *err)
{
    *len = json_string_length(v);
    if (LLMQ_NEW(out, *len + 1, "a decoder", err))
        return err->code;
    if (*len)
        memcpy(*out, json_string_value(v), *len);
    return 0;
}

static int load_mark(uint32_t *out, const json_t *v, struct llmq_err *err)
{
    int n = 0;

    *out = json_string_length(v) ? utf8_get(json_string_value(v), &n) : 0;
    if (!n || (size_t)n != json_string_length(v))
        return llmq_fail(err, LLMQ_EFORMAT, "tokenizer: a decoder's character is not one character");
    return 0;
}

static size_t count(const json_t *spec, const char *key)
{
    json_int_t n = json_integer_value(json_object_get(spec, key));

    return n > 0 ? (size_t)n : 0;
}

static int load_replace(struct step *s, const json_t *spec, struct llmq_err *err)
{
    const json_t *p = json_object_get(spec, "pattern");

    if (copy_text(&s->with, &s->with_len, json_object_get(spec, "content"), err) ||
        copy_text(&s->text, &s->len, json_object_get(p, "String"), err))
        return err->code;
    return s->len ? 0 : pattern_compile(&s->pattern, p, "tokenizer: decoder Replace", err);
}

static int load_step(struct step *s, const json_t *spec, struct llmq_err *err)
{
    const char *scheme = json_string_value(json_object_get(spec, "prepend_scheme"));

    switch (s->kind) {
    case REPLACE: return load_replace(s, spec, err);
    case STRIP:
        s->start = count(spec, "start");
        s->stop = count(spec, "stop");
        return load_mark(&s->mark, json_object_get(spec, "content"), err);
    case METASPACE:
        s->keep_first = (scheme && !strcmp(scheme, "never")) || json_is_false(json_object_get(spec, "add_prefix_space"));
        return load_mark(&s->mark, json_object_get(spec, "replacement"), err);
    case BPE_DECODER:
        if (copy_text(&s->text, &s->len, json_object_get(spec, "suffix"), err))
            return err->code;
        return s->len ? 0 : llmq_fail(err, LLMQ_EFORMAT, "tokenizer: decoder BPEDecoder has an empty suffix");
    default: return 0;
    }
}

static int load(struct decode *d, const json_t *spec, int depth, struct llmq_err *err)
{
    int          k = component_kind(spec, kind_name, N_KINDS, "decoder", err);
    size_t      i;
    json_t     *v;

    if (k < 0)
        return err->code;
    if (d->n == MAX_STEPS || depth > MAX_DEPTH)
        return llmq_fail(err, LLMQ_EFORMAT, "tokenizer: more than %d decoders, or nested deeper than %d", MAX_STEPS, MAX_DEPTH);
    if (k == SEQUENCE) {
        json_array_foreach(json_object_get(spec, "decoders"), i, v) {
            if (load(d, v, depth + 1, err))
                return err->code;
        }
        return 0;
    }
    d->step[d->n].kind = (enum kind)k;
    return load_step(&d->step[d->n++], spec, err);
}

int decode_load(struct decode **out, const json_t *spec, struct llmq_err *err)
{
    struct decode *d = NULL;

    *out = NULL;
    if (LLMQ_NEW(&d, 1, "a decoder", err))
        return err->code;
    d->bytes_only = 1;
    if (!spec || json_is_null(spec)) {
        d->step[d->n++].kind = JOIN;
    } else if (load(d, spec, 0, err)) {
        decode_free(d);
        return err->code;
    }
    *out = d;
    return 0;
}

void decode_free(struct decode *d)
{
    for (int i = 0; d && i < d->n; i++) {
        llmq_free(d->step[i].text);
        llmq_free(d->step[i].with);
        pattern_free(d->step[i].pattern);
    }
    llmq_free(d);
}

static int in_alphabet(const char *text, size_t len)
{
    for (size_t at = 0; at < len;) {
        int n;

        if (bytelevel_byte(utf8_get(text + at, &n)) < 0)
            return 0;
        at += (size_t)n;
    }
    return 1;
}

/* The byte that a token such as <0x0A> stands for; -1: it is not one. */
static int byte_token(const char *t, size_t len)
{
    int value = 0, from = 3;

    if (len != 6 || memcmp(t, "<0x", 3) != 0 || t[5] != '>')
        return -1;
    from += t[3] == '+'; /* as Rust's from_str_radix */
    for (int i = from; i < 5; i++) {
        int c = (unsigned char)t[i], d = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;

        if (d < 0)
            return -1;
        value = value * 16 + d;
    }
    return value;
}

static int contains(const char *text, size_t len, const char *what, size_t n)
{
    return n <= len && memmem(text, len, what, n) != NULL;
}

static int count_kind(const struct decode *d, enum kind k)
{
    int n = 0;

    for (int i = 0; i < d->n; i++)
        n += d->step[i].kind == k;
    return n;
}

/* Could this token, on its own or with its neighbours, bring something other than the alphabet to ByteLevel? */
void decode_see(struct decode *d, const char *text, size_t len)
{
    char mark[UTF8_MAX];

    if (!d->bytes_only)
        return;
    d->bytes_only = in_alphabet(text, len) && count_kind(d, BYTE_LEVEL) == 1;
    for (int i = 0; i < d->n && d->bytes_only && d->step[i].kind != BYTE_LEVEL; i++) {
        const struct step *s = &d->step[i];

        if (s->kind == BYTE_FALLBACK)
            d->bytes_only = byte_token(text, len) < 0;
        else if (s->kind == REPLACE) /* what is outside the alphabet cannot be found in it */
            d->bytes_only = s->len && !in_alphabet(s->text, s->len);
        else if (s->kind == METASPACE)
            d->bytes_only = !contains(text, len, mark, (size_t)utf8_put(mark, s->mark));
        else if (s->kind == BPE_DECODER)
            d->bytes_only = 0;
    }
}

/* ---- running -------------------------------------------------------------------------------- */

struct state {
    struct llmq_str held;   /* what waits, as the step's kind says */
    struct llmq_str gather; /* a token that is not complete yet, for steps that need all of it */
    size_t          token; /* tokens that have ended */
    size_t          cut;   /* Strip: characters taken off the start of this token */
    int             begun; /* Strip: something else has come */
    size_t          waiting; /* Strip: characters at the end that may have to go */
    int             have;  /* BPEDecoder: held is a token */
};

struct decode_run {
    const struct decode    *d;
    struct state            state[MAX_STEPS + 1];
    struct pattern_scratch *scratch;
    struct llmq_str        *out;
};

static const char lost[] = "\xef\xbf\xbd"; /* U+FFFD */

int decode_run_new(struct decode_run **out, const struct decode *d, struct llmq_err *err)
{
    struct decode_run *r = NULL;

    *out = NULL;
    if (LLMQ_NEW(&r, 1, "decoding", err))
        return err->code;
    r->d = d;
    for (int i = 0; i < d->n; i++) {
        llmq_str_init(&r->state[i].held, HELD_MAX);
        llmq_str_init(&r->state[i].gather, HELD_MAX);
    }
    for (int i = 0; i < d->n; i++)
        if (d->step[i].pattern && !r->scratch && pattern_scratch_new(&r->scratch, err)) {
            decode_run_free(r);
            return err->code;
        }
    *out = r;
    return 0;
}

void decode_run_free(struct decode_run *r)
{
    if (!r)
        return;
    for (int i = 0; i < r->d->n; i++) {
        llmq_str_fini(&r->state[i].held);
        llmq_str_fini(&r->state[i].gather);
    }
    pattern_scratch_free(r->scratch);
    llmq_free(r);
}

/* A piece of the current token arrives at step i; end: it is the token's last. */
static int piece(struct decode_run *r, int i, const char *text, size_t len, int end, struct llmq_err *err);

/* Forgets the first n bytes of what is held. */
static void drop_held(struct state *st, size_t n)
{
    if (n < st->held.len)
        memmove(st->held.data, st->held.data + n, st->held.len - n);
    st->held.len -= n;
}

/* ByteFallback: held are the bytes of a run of byte tokens. */
static int flush_bytes(struct decode_run *r, int i, struct llmq_err *err)
{
    struct state *st = &r->state[i];
    size_t        n = st->held.len;
    int           rc = 0;

    if (!n)
        return 0;
    if (utf8_check(st->held.data, n) == n)
        rc = piece(r, i + 1, st->held.data, n, 1, err);
    else
        for (size_t k = 0; k < n && !rc; k++)
            rc = piece(r, i + 1, lost, 3, 1, err);
    st->held.len = 0;
    return rc;
}

static int byte_fallback(struct decode_run *r, int i, const char *text, size_t len, struct llmq_err *err)
{
    int  b = byte_token(text, len);
    char c = (char)b;

    if (b >= 0)
        return llmq_str_append(&r->state[i].held, &c, 1, err);
    return flush_bytes(r, i, err) || piece(r, i + 1, text, len, 1, err) ? err->code : 0;
}

/* How many bytes at the end of text could begin the text that is looked for. */
static size_t begun(const char *text, size_t len, const struct step *s)
{
    for (size_t n = s->len - 1 < len ? s->len - 1 : len; n > 0; n--)
        if (!memcmp(text + len - n, s->text, n))
            return n;
    return 0;
}

static int replace_text(struct decode_run *r, int i, const char *text, size_t len, int end, struct llmq_err *err)
{
    const struct step *s = &r->d->step[i];
    struct state      *st = &r->state[i];
    int                joined = st->held.len > 0;
    size_t             at = 0, keep;
    const char        *hit;

    if (joined) {
        if (llmq_str_append(&st->held, text, len, err))
            return err->code;
        text = st->held.data;
        len = st->held.len;
    }
    while ((hit = memmem(text + at, len - at, s->text, s->len)) != NULL) {
        if (piece(r, i + 1, text + at, (size_t)(hit - text) - at, 0, err) || piece(r, i + 1, s->with, s->with_len, 0, err))
            return err->code;
        at = (size_t)(hit - text) + s->len;
    }
    keep = end ? 0 : begun(text + at, len - at, s);
    if (piece(r, i + 1, text + at, len - at - keep, end, err))
        return err->code;
    if (joined)
        drop_held(st, len - keep);
    else if (keep)
        return llmq_str_append(&st->held, text + len - keep, keep, err);
    return 0;
}

static int replace_pattern(struct decode_run *r, int i, const char *text, size_t len, struct llmq_err *err)
{
    const struct step  *s = &r->d->step[i];
    struct pattern_walk w;
    size_t              from, to;
    int                 is_match, rc = 0;

    if (len) {
        pattern_walk_begin(&w, s->pattern, r->scratch, text, len);
        while ((rc = pattern_walk_next(&w, &from, &to, &is_match, err)) > 0)
            if (is_match ? piece(r, i + 1, s->with, s->with_len, 0, err) : piece(r, i + 1, text + from, to - from, 0, err))
                return err->code;
    }
    return rc ? rc : piece(r, i + 1, "", 0, 1, err);
}

/* Passes n marks on that did not have to go. */
static int put_marks(struct decode_run *r, int i, size_t n, struct llmq_err *err)
{
    char mark[UTF8_MAX];
    int  len = utf8_put(mark, r->d->step[i].mark), rc = 0;

    while (n-- > 0 && !rc)
        rc = piece(r, i + 1, mark, (size_t)len, 0, err);
    return rc;
}

static int strip(struct decode_run *r, int i, const char *text, size_t len, int end, struct llmq_err *err)
{
    const struct step *s = &r->d->step[i];
    struct state      *st = &r->state[i];

    for (size_t at = 0; at < len;) {
        int n;

        if (utf8_get(text + at, &n) != s->mark) {
            if (put_marks(r, i, st->waiting, err) || piece(r, i + 1, text + at, (size_t)n, 0, err))
                return err->code;
            st->waiting = 0;
            st->begun = 1;
        } else if (!st->begun && st->cut < s->start) {
            st->cut++;
        } else {
            st->begun = 1;
            st->waiting++;
        }
        at += (size_t)n;
    }
    if (st->waiting > s->stop) {
        if (put_marks(r, i, st->waiting - s->stop, err))
            return err->code;
        st->waiting = s->stop;
    }
    if (!end)
        return 0;
    st->waiting = st->cut = 0;
    st->begun = 0;
    return piece(r, i + 1, "", 0, 1, err);
}

static int metaspace(struct decode_run *r, int i, const char *text, size_t len, int end, struct llmq_err *err)
{
    const struct step *s = &r->d->step[i];
    struct state      *st = &r->state[i];
    size_t             done = 0;

    for (size_t at = 0; at < len;) {
        int n, hit = utf8_get(text + at, &n) == s->mark;

        if (hit && (piece(r, i + 1, text + done, at - done, 0, err) ||
                    ((st->token || s->keep_first) && piece(r, i + 1, " ", 1, 0, err))))
            return err->code;
        at += (size_t)n;
        if (hit)
            done = at;
    }
    st->token += (size_t)end;
    return piece(r, i + 1, text + done, len - done, end, err);
}

/* Passes on what of held is sure to be text; the rest, at most three bytes unless it is the end, waits. */
static int put_bytes(struct decode_run *r, int i, int end, struct llmq_err *err)
{
    struct state *st = &r->state[i];
    const char   *p = st->held.data;
    size_t        n = st->held.len, at = 0;

    while (at < n) {
        size_t good = utf8_check(p + at, n - at);
        int    bad = 0;

        if (good && piece(r, i + 1, p + at, good, 0, err))
            return err->code;
        at += good;
        if (at == n)
            break;
        utf8_sequence(p + at, n - at, &bad);
        if (!end && at + (size_t)bad == n && bad < utf8_len(p[at]) && (unsigned char)p[at] >= 0xc2 && (unsigned char)p[at] <= 0xf4)
            break;
        if (piece(r, i + 1, lost, 3, 0, err))
            return err->code;
        at += (size_t)bad;
    }
    drop_held(st, at);
    return 0;
}

/* ByteLevel: held are bytes.  Text is a whole token, or d->bytes_only holds and it can only be in the alphabet. */
static int byte_level(struct decode_run *r, int i, const char *text, size_t len, struct llmq_err *err)
{
    struct state *st = &r->state[i];

    if (!in_alphabet(text, len))
        return llmq_str_append(&st->held, text, len, err) || put_bytes(r, i, 0, err) ? err->code : 0;
    for (size_t at = 0; at < len;) {
        int  n;
        char c = (char)bytelevel_byte(utf8_get(text + at, &n));

        if (llmq_str_append(&st->held, &c, 1, err))
            return err->code;
        at += (size_t)n;
    }
    return put_bytes(r, i, 0, err);
}

/* BPEDecoder: held is the token before, whose suffix is a space only when another follows. */
static int flush_suffix(struct decode_run *r, int i, int last, struct llmq_err *err)
{
    const struct step *s = &r->d->step[i];
    struct state      *st = &r->state[i];
    const char        *p = st->held.data, *hit;
    size_t             at = 0;

    if (!st->have)
        return 0;
    while ((hit = memmem(p + at, st->held.len - at, s->text, s->len)) != NULL) {
        if (piece(r, i + 1, p + at, (size_t)(hit - p) - at, 0, err) || (!last && piece(r, i + 1, " ", 1, 0, err)))
            return err->code;
        at = (size_t)(hit - p) + s->len;
    }
    if (piece(r, i + 1, p + at, st->held.len - at, 1, err))
        return err->code;
    st->held.len = 0;
    st->have = 0;
    return 0;
}

static int bpe_decoder(struct decode_run *r, int i, const char *text, size_t len, struct llmq_err *err)
{
    if (flush_suffix(r, i, 0, err))
        return err->code;
    r->state[i].have = 1;
    return llmq_str_append(&r->state[i].held, text, len, err);
}

static int join(struct decode_run *r, int i, const char *text, size_t len, struct llmq_err *err)
{
    if (r->state[i].token++ && piece(r, i + 1, " ", 1, 0, err))
        return err->code;
    return piece(r, i + 1, text, len, 1, err);
}

/* One piece, or, for a step that looks at whole tokens, one token. */
static int step(struct decode_run *r, int i, const char *text, size_t len, int end, struct llmq_err *err)
{
    switch (r->d->step[i].kind) {
    case BYTE_LEVEL: return byte_level(r, i, text, len, err);
    case BYTE_FALLBACK: return byte_fallback(r, i, text, len, err);
    case FUSE: return piece(r, i + 1, text, len, 0, err);
    case REPLACE:
        return r->d->step[i].pattern ? replace_pattern(r, i, text, len, err) : replace_text(r, i, text, len, end, err);
    case STRIP: return strip(r, i, text, len, end, err);
    case METASPACE: return metaspace(r, i, text, len, end, err);
    case BPE_DECODER: return bpe_decoder(r, i, text, len, err);
    default: return join(r, i, text, len, err);
    }
}

static int needs_whole(const struct decode *d, int i)
{
    switch (d->step[i].kind) {
    case BYTE_LEVEL: return !d->bytes_only;
    case BYTE_FALLBACK:
    case BPE_DECODER:
    case JOIN: return 1;
    case REPLACE: return d->step[i].pattern != NULL;
    default: return 0;
    }
}

static int piece(struct decode_run *r, int i, const char *text, size_t len, int end, struct llmq_err *err)
{
    struct llmq_str *g = &r->state[i].gather;
    int              rc;

    if (!len && !end)
        return 0;
    if (i == r->d->n)
        return llmq_str_append(r->out, text, len, err);
    if (!needs_whole(r->d, i) || (end && !g->len))
        return step(r, i, text, len, end, err);
    if (llmq_str_append(g, text, len, err))
        return err->code;
    if (!end)
        return 0;
    rc = step(r, i, g->data, g->len, 1, err);
    llmq_str_clear(g);
    return rc;
}

int decode_run_token(struct decode_run *r, const char *text, size_t len, struct llmq_str *out, struct llmq_err *err)
{
    r->out = out;
    return piece(r, 0, text, len, 1, err);
}

/* Step by step, what each keeps back; what it then passes on reaches the steps behind it before they end. */
int decode_run_finish(struct decode_run *r, struct llmq_str *out, struct llmq_err *err)
{
    int rc = 0;

    r->out = out;
    for (int i = 0; i < r->d->n && !rc; i++) {
        switch (r->d->step[i].kind) {
        case BYTE_FALLBACK: rc = flush_bytes(r, i, err); break;
        case BPE_DECODER: rc = flush_suffix(r, i, 1, err); break;
        case BYTE_LEVEL: rc = put_bytes(r, i, 1, err) || piece(r, i + 1, "", 0, 1, err) ? err->code : 0; break;
        case FUSE: rc = piece(r, i + 1, "", 0, 1, err); break;
        default: break;
        }
    }
    return rc;
}

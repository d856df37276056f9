/* Normalizers: see normalize.h.
 *
 * Normal forms come from utf8proc, run by run: a run is cut where nothing can act across, that is before a code point
 * that every form leaves alone whatever stands before it (the low ones), and around the code points which newer Unicode
 * versions changed from what the `tokenizers` library knows (unicode_rust_inert), which are copied. */
#include "runner/text/normalize.h"

#include "common/alloc.h"
#include "common/utf8.h"
#include "runner/text/bytelevel.h"
#include "runner/text/component.h"
#include "runner/text/uniset.h"

#include <string.h>
#include <utf8proc.h>

enum kind { NFC, NFD, NFKC, NFKD, LOWERCASE, STRIP, STRIP_ACCENTS, PREPEND, REPLACE, NMT, BYTE_LEVEL, SEQUENCE, N_KINDS };
static const char *const kind_name[N_KINDS] = {"NFC",   "NFD",          "NFKC",    "NFKD",    "Lowercase", "Strip",
                                               "StripAccents", "Prepend", "Replace", "Nmt", "ByteLevel", "Sequence"};
enum { MAX_STEPS = 64, MAX_DEPTH = 16 };

struct step {
    enum kind       kind;
    int             left, right;
    char           *text; /* Prepend, Replace: what is put in */
    size_t          len;
    struct pattern *pattern;
};

struct normalize {
    struct step step[MAX_STEPS];
    int         n;
};

/* ---- loading ------------------------------------------------------------------------------- */

static int copy_text(struct step *s, const json_t *v, struct llmq_err *err)
{
    s->len = json_string_length(v);
    if (LLMQ_NEW(&s->text, s->len + 1, "a normalizer", err))
        return err->code;
    memcpy(s->text, json_string_value(v), s->len);
    return 0;
}

static int load(struct normalize *n, const json_t *spec, int depth, struct llmq_err *err);

static int load_list(struct normalize *n, const json_t *list, int depth, struct llmq_err *err)
{
    size_t  i;
    json_t *v;

    json_array_foreach(list, i, v) {
        if (load(n, v, depth + 1, err))
            return err->code;
    }
    return 0;
}

static int load(struct normalize *n, const json_t *spec, int depth, struct llmq_err *err)
{
    struct step *s = &n->step[n->n];
    int          k = component_kind(spec, kind_name, N_KINDS, "normalizer", err);

    if (k < 0)
        return err->code;
    if (n->n == MAX_STEPS || depth > MAX_DEPTH)
        return llmq_fail(err, LLMQ_EFORMAT, "tokenizer: more than %d normalizers, or nested deeper than %d", MAX_STEPS, MAX_DEPTH);
    if (k == SEQUENCE)
        return load_list(n, json_object_get(spec, "normalizers"), depth, err);
    s->kind = (enum kind)k;
    n->n++;
    s->left = json_is_true(json_object_get(spec, "strip_left"));
    s->right = json_is_true(json_object_get(spec, "strip_right"));
    if (k == PREPEND)
        return copy_text(s, json_object_get(spec, "prepend"), err);
    if (k == REPLACE && copy_text(s, json_object_get(spec, "content"), err))
        return err->code;
    return k == REPLACE ? pattern_compile(&s->pattern, json_object_get(spec, "pattern"), "tokenizer: normalizer Replace", err) : 0;
}

int normalize_load(struct normalize **out, const json_t *spec, struct llmq_err *err)
{
    struct normalize *n = NULL;

    *out = NULL;
    if (!spec || json_is_null(spec))
        return 0;
    if (LLMQ_NEW(&n, 1, "a normalizer", err))
        return err->code;
    if (load(n, spec, 0, err)) {
        normalize_free(n);
        return err->code;
    }
    if (n->n)
        *out = n;
    else
        normalize_free(n);
    return 0;
}

void normalize_free(struct normalize *n)
{
    for (int i = 0; n && i < n->n; i++) {
        llmq_free(n->step[i].text);
        pattern_free(n->step[i].pattern);
    }
    llmq_free(n);
}

/* ---- steps: each reads `in` and appends to `out` -------------------------------------------- */

static int put(struct llmq_str *out, uint32_t c, struct llmq_err *err)
{
    char bytes[UTF8_MAX];

    return llmq_str_append(out, bytes, (size_t)utf8_put(bytes, c), err);
}

/* One run through utf8proc. */
static int normal_run(struct llmq_str *out, const char *in, size_t len, utf8proc_option_t form, struct llmq_err *err)
{
    utf8proc_int32_t  some[256], *buf = some, *more = NULL;
    utf8proc_ssize_t  n = utf8proc_decompose((const utf8proc_uint8_t *)in, (utf8proc_ssize_t)len, buf, 256, form);
    int               rc = 0;

    if (n > 255) {
        if (LLMQ_NEW(&more, (size_t)n + 1, "a normal form", err))
            return err->code;
        buf = more;
        n = utf8proc_decompose((const utf8proc_uint8_t *)in, (utf8proc_ssize_t)len, buf, n, form);
    }
    if (n >= 0)
        n = utf8proc_normalize_utf32(buf, n, form);
    if (n < 0)
        rc = llmq_fail(err, LLMQ_EFORMAT, "a normal form: %s", utf8proc_errmsg(n));
    for (utf8proc_ssize_t i = 0; !rc && i < n; i++)
        rc = put(out, (uint32_t)buf[i], err);
    llmq_free(more);
    return rc;
}

/* Below this, every code point is its own normal form unless a mark follows it. */
static uint32_t low_limit(enum kind k)
{
    return k == NFC ? 0x300 : k == NFD ? 0xc0 : 0xa0;
}

static int normal_form(struct llmq_str *out, const char *in, size_t len, enum kind k, struct llmq_err *err)
{
    utf8proc_option_t form = UTF8PROC_STABLE | (k == NFC || k == NFKC ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                             (k == NFKC || k == NFKD ? UTF8PROC_COMPAT : 0);
    uint32_t          low = low_limit(k);
    size_t            at = 0, run = 0, last_low = SIZE_MAX;

    /* [run, at) waits; when at its end stand low code points only, all but the last of them are done. */
    while (at < len) {
        int      n, inert;
        uint32_t c = utf8_get(in + at, &n);

        if (c < low) {
            if (last_low == SIZE_MAX && run < at && normal_run(out, in + run, at - run, form, err))
                return err->code;
            if (last_low != SIZE_MAX && llmq_str_append(out, in + run, at - run, err))
                return err->code;
            run = last_low = at;
        } else {
            inert = c >= 0x300 && unicode_in(&unicode_rust_inert, c);
            if (inert && run < at && normal_run(out, in + run, at - run, form, err))
                return err->code;
            if (inert && llmq_str_append(out, in + at, (size_t)n, err))
                return err->code;
            if (inert)
                run = at + (size_t)n;
            last_low = SIZE_MAX;
        }
        at += (size_t)n;
    }
    return run < len ? normal_run(out, in + run, len - run, form, err) : 0;
}

static int lowercase(struct llmq_str *out, const char *in, size_t len, struct llmq_err *err)
{
    for (size_t at = 0; at < len;) {
        uint32_t c[2];
        int      n, k = unicode_lower(utf8_get(in + at, &n), c);

        for (int i = 0; i < k; i++)
            if (put(out, c[i], err))
                return err->code;
        at += (size_t)n;
    }
    return 0;
}

static int strip(struct llmq_str *out, const char *in, size_t len, const struct step *s, size_t *lead, struct llmq_err *err)
{
    size_t from = 0, to = len;
    int    n;

    while (s->left && from < to && unicode_in(&unicode_rust_space, utf8_get(in + from, &n)))
        from += (size_t)n;
    while (s->right && from < to && unicode_in(&unicode_rust_space, utf8_get(in + utf8_back(in, to), &n)))
        to = utf8_back(in, to);
    *lead = *lead > from ? *lead - from : 0;
    return llmq_str_append(out, in + from, to - from, err);
}

static int strip_accents(struct llmq_str *out, const char *in, size_t len, size_t *lead, struct llmq_err *err)
{
    for (size_t at = 0; at < len;) {
        int      n;
        uint32_t c = utf8_get(in + at, &n);

        if (!unicode_in(&unicode_rust_mark, c)) {
            if (llmq_str_append(out, in + at, (size_t)n, err))
                return err->code;
        } else if (at == 0) {
            *lead = 0;
        }
        at += (size_t)n;
    }
    return 0;
}

/* SentencePiece's control characters, and what it takes for a space. */
static int nmt(struct llmq_str *out, const char *in, size_t len, struct llmq_err *err)
{
    for (size_t at = 0; at < len;) {
        int      n;
        uint32_t c = utf8_get(in + at, &n);

        at += (size_t)n;
        if ((c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f || c == 0x9f)
            continue;
        if (c == 9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 || (c >= 0x200b && c <= 0x200f) || c == 0x2028 ||
            c == 0x2029 || c == 0x2581 || c == 0xfeff || c == 0xfffd)
            c = ' ';
        if (put(out, c, err))
            return err->code;
    }
    return 0;
}

static int byte_level(struct llmq_str *out, const char *in, size_t len, struct llmq_err *err)
{
    for (size_t i = 0; i < len; i++)
        if (put(out, bytelevel_char((unsigned char)in[i]), err))
            return err->code;
    return 0;
}

static int replace(struct llmq_str *out, const char *in, size_t len, const struct step *s, struct pattern_scratch *scratch,
                   size_t *lead, struct llmq_err *err)
{
    struct pattern_walk w;
    size_t              from, to;
    int                 is_match, rc;

    if (!len)
        return 0;
    pattern_walk_begin(&w, s->pattern, scratch, in, len);
    while ((rc = pattern_walk_next(&w, &from, &to, &is_match, err)) > 0) {
        if (is_match && from == 0 && to > 0)
            *lead = to <= *lead ? s->len + *lead - to : 0;
        if (is_match ? llmq_str_append(out, s->text, s->len, err) : llmq_str_append(out, in + from, to - from, err))
            return err->code;
    }
    return rc;
}

static int apply(const struct step *s, struct pattern_scratch *scratch, const struct llmq_str *in, struct llmq_str *out,
                 size_t *lead, struct llmq_err *err)
{
    switch (s->kind) {
    case STRIP: return strip(out, in->data, in->len, s, lead, err);
    case STRIP_ACCENTS: return strip_accents(out, in->data, in->len, lead, err);
    case REPLACE: return replace(out, in->data, in->len, s, scratch, lead, err);
    case PREPEND:
        if (!in->len)
            return 0;
        *lead = *lead ? *lead + s->len : 0;
        return llmq_str_append(out, s->text, s->len, err) || llmq_str_append(out, in->data, in->len, err) ? err->code : 0;
    case LOWERCASE: return lowercase(out, in->data, in->len, err);
    case NMT: return nmt(out, in->data, in->len, err);
    case BYTE_LEVEL: return byte_level(out, in->data, in->len, err);
    default: return normal_form(out, in->data, in->len, s->kind, err);
    }
}

int normalize_apply(const struct normalize *n, struct pattern_scratch *scratch, struct llmq_str *text, struct llmq_str *spare,
                    size_t *lead, struct llmq_err *err)
{
    for (int i = 0; n && i < n->n; i++) {
        size_t          had = *lead;
        struct llmq_str t;

        llmq_str_clear(spare);
        if (apply(&n->step[i], scratch, text, spare, lead, err))
            return err->code;
        t = *text;
        *text = *spare;
        *spare = t;
        /* A step that changes characters keeps the first one first, whatever its new length. */
        if (had && *lead == had && n->step[i].kind != REPLACE)
            *lead = text->len ? (size_t)utf8_len(text->data[0]) > had ? (size_t)utf8_len(text->data[0]) : had : 0;
        if (*lead > text->len)
            *lead = text->len;
    }
    return 0;
}


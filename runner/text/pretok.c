/* Pre-tokenizers: see pretok.h.
 *
 * Every step is one of three things: it changes the text (ByteLevel's prefix space and alphabet, Metaspace's marks), it
 * marks parts of it as matches (a pattern, a test of single characters), and it puts neighbouring parts together or
 * leaves some out (the five behaviours).  The `tokenizers` library does the last on a list; here a part waits only
 * until the next one says whether they belong together. */
#include "runner/text/pretok.h"

#include "common/alloc.h"
#include "common/str.h"
#include "common/utf8.h"
#include "runner/text/bytelevel.h"
#include "runner/text/component.h"
#include "runner/text/uniset.h"

#include <string.h>

enum kind { SPLIT, BYTE_LEVEL, DIGITS, PUNCTUATION, WHITESPACE, WHITESPACE_SPLIT, METASPACE, DELIMITER, SEQUENCE, N_KINDS,
            BYTE_MAP /* the second half of ByteLevel */ };
static const char *const kind_name[N_KINDS] = {"Split",           "ByteLevel", "Digits",    "Punctuation", "Whitespace",
                                               "WhitespaceSplit", "Metaspace", "CharDelimiterSplit", "Sequence"};
enum behavior { ISOLATED, REMOVED, MERGED_WITH_PREVIOUS, MERGED_WITH_NEXT, CONTIGUOUS, N_BEHAVIORS };
static const char *const behavior_name[N_BEHAVIORS] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
enum prepend { ALWAYS, FIRST, NEVER };
enum { MAX_STEPS = 32, MAX_DEPTH = 16, WORK_MAX = 1 << 30 };

static const char gpt2_regex[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

struct step {
    enum kind       kind;
    enum behavior   behavior;
    int             invert, prefix_space, split;
    enum prepend    prepend;
    uint32_t        mark;     /* Metaspace's replacement, a delimiter */
    struct pattern *pattern;  /* NULL: none */
};

struct pretok {
    struct step step[MAX_STEPS + 1]; /* one more: ByteLevel takes two */
    int         n;
};

/* Changed text of each step lives here while the steps behind it read it. */
struct pretok_scratch {
    struct llmq_str text[MAX_STEPS + 1];
    int             n;
};

struct run {
    const struct pretok    *p;
    struct pretok_scratch  *s;
    struct pattern_scratch *match;
    pretok_word_fn          word;
    void                   *ctx;
    struct llmq_err        *err;
};

/* ---- loading ------------------------------------------------------------------------------- */

static int load_behavior(struct step *s, const json_t *spec, struct llmq_err *err)
{
    const char *name = json_string_value(json_object_get(spec, "behavior"));
    int         i = 0;

    s->behavior = ISOLATED;
    if (!name)
        return 0;
    while (i < N_BEHAVIORS && strcmp(name, behavior_name[i]) != 0)
        i++;
    if (i == N_BEHAVIORS)
        return llmq_fail(err, LLMQ_EFORMAT, "tokenizer: behavior '%s' is not known", name);
    s->behavior = (enum behavior)i;
    return 0;
}

static int load_char(uint32_t *out, const json_t *v, const char *what, struct llmq_err *err)
{
    int n = 0;

    *out = json_string_length(v) ? utf8_get(json_string_value(v), &n) : 0;
    if (!n || (size_t)n != json_string_length(v))
        return llmq_fail(err, LLMQ_EFORMAT, "tokenizer: %s is not one character", what);
    return 0;
}

/* Older files have add_prefix_space instead of prepend_scheme. */
static int load_metaspace(struct step *s, const json_t *spec, struct llmq_err *err)
{
    const json_t *split = json_object_get(spec, "split"), *old = json_object_get(spec, "add_prefix_space");
    const char   *scheme = json_string_value(json_object_get(spec, "prepend_scheme"));

    s->behavior = MERGED_WITH_NEXT;
    s->split = !json_is_false(split);
    s->prepend = !scheme || !strcmp(scheme, "always") ? ALWAYS : !strcmp(scheme, "first") ? FIRST : NEVER;
    if (json_is_false(old) && scheme && s->prepend != NEVER)
        return llmq_fail(err, LLMQ_EFORMAT, "tokenizer: Metaspace: add_prefix_space is false, but prepend_scheme is '%s'", scheme);
    if (json_is_false(old))
        s->prepend = NEVER;
    return load_char(&s->mark, json_object_get(spec, "replacement"), "Metaspace's replacement", err);
}

static int load_step(struct step *s, const json_t *spec, struct llmq_err *err)
{
    switch (s->kind) {
    case SPLIT:
        s->invert = json_is_true(json_object_get(spec, "invert"));
        if (load_behavior(s, spec, err))
            return err->code;
        return pattern_compile(&s->pattern, json_object_get(spec, "pattern"), "tokenizer: pre-tokenizer Split", err);
    case BYTE_LEVEL:
        s->prefix_space = json_is_true(json_object_get(spec, "add_prefix_space"));
        s->behavior = ISOLATED;
        return json_is_false(json_object_get(spec, "use_regex"))
                   ? 0
                   : pattern_compile_regex(&s->pattern, gpt2_regex, "tokenizer: pre-tokenizer ByteLevel", err);
    case DIGITS: s->behavior = json_is_true(json_object_get(spec, "individual_digits")) ? ISOLATED : CONTIGUOUS; return 0;
    case PUNCTUATION: return load_behavior(s, spec, err);
    case METASPACE: return load_metaspace(s, spec, err);
    case DELIMITER:
        s->behavior = REMOVED;
        return load_char(&s->mark, json_object_get(spec, "delimiter"), "a delimiter", err);
    default: s->behavior = REMOVED; return 0;
    }
}

static int load(struct pretok *p, const json_t *spec, int depth, struct llmq_err *err)
{
    int          k = component_kind(spec, kind_name, N_KINDS, "pre-tokenizer", err);
    size_t      i;
    json_t     *v;

    if (k < 0)
        return err->code;
    if (p->n >= MAX_STEPS || depth > MAX_DEPTH)
        return llmq_fail(err, LLMQ_EFORMAT, "tokenizer: more than %d pre-tokenizers, or nested deeper than %d", MAX_STEPS, MAX_DEPTH);
    if (k == SEQUENCE) {
        json_array_foreach(json_object_get(spec, "pretokenizers"), i, v) {
            if (load(p, v, depth + 1, err))
                return err->code;
        }
        return 0;
    }
    p->step[p->n].kind = (enum kind)k;
    if (load_step(&p->step[p->n++], spec, err))
        return err->code;
    if (k == BYTE_LEVEL)
        p->step[p->n++].kind = BYTE_MAP;
    return 0;
}

int pretok_load(struct pretok **out, const json_t *spec, struct llmq_err *err)
{
    struct pretok *p = NULL;

    *out = NULL;
    if (!spec || json_is_null(spec))
        return 0;
    if (LLMQ_NEW(&p, 1, "a pre-tokenizer", err))
        return err->code;
    if (load(p, spec, 0, err)) {
        pretok_free(p);
        return err->code;
    }
    *out = p;
    return 0;
}

void pretok_free(struct pretok *p)
{
    for (int i = 0; p && i < p->n; i++)
        pattern_free(p->step[i].pattern);
    llmq_free(p);
}

int pretok_scratch_new(struct pretok_scratch **out, const struct pretok *p, struct llmq_err *err)
{
    if (LLMQ_NEW(out, 1, "pre-tokenizing", err))
        return err->code;
    (*out)->n = p ? p->n : 0;
    for (int i = 0; i < (*out)->n; i++)
        llmq_str_init(&(*out)->text[i], WORK_MAX);
    return 0;
}

void pretok_scratch_free(struct pretok_scratch *s)
{
    for (int i = 0; s && i < s->n; i++)
        llmq_str_fini(&s->text[i]);
    llmq_free(s);
}

/* ---- putting parts together ----------------------------------------------------------------- */

static int next_step(struct run *r, int i, const char *text, size_t len, size_t lead);

/* Parts of one text as they come; [from, to) waits. */
struct joiner {
    struct run  *r;
    int          step;
    const char  *text;
    size_t       lead;
    size_t       from, to;
    int          waiting, last_match;
};

static int emit(struct joiner *j, size_t from, size_t to)
{
    return next_step(j->r, j->step + 1, j->text + from, to - from, from < j->lead ? j->lead - from : 0);
}

/* Does a part belong to the one that waits? */
static int joins(const struct joiner *j, enum behavior b, int is_match)
{
    switch (b) {
    case CONTIGUOUS: return is_match == j->last_match;
    case MERGED_WITH_PREVIOUS: return is_match && !j->last_match;
    case MERGED_WITH_NEXT: return !is_match && j->last_match;
    default: return 0;
    }
}

static int part(struct joiner *j, size_t from, size_t to, int is_match)
{
    enum behavior b = j->r->p->step[j->step].behavior;
    int           rc = 0;

    if (b == ISOLATED || b == REMOVED)
        return b == REMOVED && is_match ? 0 : emit(j, from, to);
    if (j->waiting && joins(j, b, is_match)) {
        j->to = to;
    } else {
        rc = j->waiting ? emit(j, j->from, j->to) : 0;
        j->from = from;
        j->to = to;
        j->waiting = 1;
    }
    j->last_match = is_match;
    return rc;
}

static int finish(struct joiner *j)
{
    int rc = j->waiting ? emit(j, j->from, j->to) : 0;

    j->waiting = 0;
    return rc;
}

/* ---- marking parts ------------------------------------------------------------------------- */

static int by_pattern(struct joiner *j, const struct step *s, size_t len)
{
    struct pattern_walk w;
    size_t              from, to;
    int                 is_match, rc;

    pattern_walk_begin(&w, s->pattern, j->r->match, j->text, len);
    while ((rc = pattern_walk_next(&w, &from, &to, &is_match, j->r->err)) > 0)
        if (part(j, from, to, is_match != s->invert))
            return j->r->err->code;
    return rc;
}

static int is_punctuation(uint32_t c)
{
    return (c >= 0x21 && c <= 0x2f) || (c >= 0x3a && c <= 0x40) || (c >= 0x5b && c <= 0x60) || (c >= 0x7b && c <= 0x7e) ||
           unicode_in(&unicode_rust_punct, c);
}

/* Which characters a step that looks at single ones takes for a match. */
static int matches(const struct step *s, uint32_t c)
{
    switch (s->kind) {
    case DIGITS: return unicode_in(&unicode_rust_numeric, c);
    case PUNCTUATION: return is_punctuation(c);
    case WHITESPACE_SPLIT: return unicode_in(&unicode_rust_space, c);
    default: return c == s->mark;
    }
}

static int by_character(struct joiner *j, const struct step *s, size_t len)
{
    size_t done = 0;

    for (size_t at = 0; at < len;) {
        int      n;
        uint32_t c = utf8_get(j->text + at, &n);

        if (matches(s, c)) {
            if ((done < at && part(j, done, at, 0)) || part(j, at, at + (size_t)n, 1))
                return j->r->err->code;
            done = at + (size_t)n;
        }
        at += (size_t)n;
    }
    return done < len ? part(j, done, len, 0) : 0;
}

/* Whitespace: runs of word characters, and of what is neither word nor space; spaces go. */
static int by_word(struct joiner *j, size_t len)
{
    size_t from = 0;
    int    last = 0;

    for (size_t at = 0; at <= len;) {
        int      n = 1, class = 0;
        uint32_t c = at < len ? utf8_get(j->text + at, &n) : 0;

        if (at < len)
            class = unicode_in(&unicode_rust_word, c) ? 1 : unicode_in(&unicode_rust_space, c) ? 0 : 2;
        if (class != last) {
            if (last && emit(j, from, at))
                return j->r->err->code;
            from = at;
            last = class;
        }
        at += (size_t)n;
    }
    return 0;
}

/* ---- changing text -------------------------------------------------------------------------- */

static int put(struct llmq_str *out, uint32_t c, struct llmq_err *err)
{
    char bytes[UTF8_MAX];

    return llmq_str_append(out, bytes, (size_t)utf8_put(bytes, c), err);
}

/* Spaces become marks; one more is put in front where the scheme says so. */
static int metaspace(struct run *r, const struct step *s, struct llmq_str *out, const char *text, size_t len, size_t *lead)
{
    char     mark[UTF8_MAX];
    size_t   n_mark = (size_t)utf8_put(mark, s->mark), new_lead = 0;
    int      at_mark = text[0] == ' ' || (len >= n_mark && !memcmp(text, mark, n_mark));

    llmq_str_clear(out);
    if (!at_mark && (s->prepend == ALWAYS || (s->prepend == FIRST && *lead))) {
        if (put(out, s->mark, r->err))
            return r->err->code;
        new_lead = *lead ? n_mark : 0;
    }
    for (size_t at = 0, next; at < len; at = next) {
        const char *space = memchr(text + at, ' ', len - at);

        next = space ? (size_t)(space - text) : len;
        if (llmq_str_append(out, text + at, next - at, r->err) || (space && put(out, s->mark, r->err)))
            return r->err->code;
        next += space != NULL;
    }
    if (*lead)
        *lead = new_lead + (text[0] == ' ' ? n_mark : *lead);
    return 0;
}

static int prefix_space(struct run *r, struct llmq_str *out, const char *text, size_t len, size_t *lead)
{
    llmq_str_clear(out);
    *lead += *lead != 0;
    return llmq_str_append(out, " ", 1, r->err) || llmq_str_append(out, text, len, r->err) ? r->err->code : 0;
}

/* Text in the alphabet of bytes, some at a time. */
static int byte_alphabet(struct run *r, struct llmq_str *out, const char *text, size_t len, size_t *lead)
{
    char   some[512];
    size_t n = 0, was = *lead;

    llmq_str_clear(out);
    for (size_t k = 0; k < len; k++) {
        n += (size_t)utf8_put(some + n, bytelevel_char((unsigned char)text[k]));
        if (k + 1 == was)
            *lead = out->len + n;
        if (n > sizeof some - UTF8_MAX || k + 1 == len) {
            if (llmq_str_append(out, some, n, r->err))
                return r->err->code;
            n = 0;
        }
    }
    return 0;
}

/* ---- steps ---------------------------------------------------------------------------------- */

static int change(struct run *r, int i, const char **text, size_t *len, size_t *lead)
{
    const struct step *s = &r->p->step[i];
    struct llmq_str   *out = &r->s->text[i];
    int                rc;

    if (s->kind == METASPACE)
        rc = metaspace(r, s, out, *text, *len, lead);
    else if (s->kind == BYTE_MAP)
        rc = byte_alphabet(r, out, *text, *len, lead);
    else if (s->kind == BYTE_LEVEL && s->prefix_space && **text != ' ')
        rc = prefix_space(r, out, *text, *len, lead);
    else
        return 0;
    *text = out->data;
    *len = out->len;
    return rc;
}

static int next_step(struct run *r, int i, const char *text, size_t len, size_t lead)
{
    const struct step *s = &r->p->step[i];
    struct joiner      j = {.r = r, .step = i};
    int                rc;

    if (!len)
        return 0;
    if (i == r->p->n)
        return r->word(r->ctx, text, len, r->err);
    if (change(r, i, &text, &len, &lead))
        return r->err->code;
    j.text = text;
    j.lead = lead;
    if (s->kind == BYTE_MAP || (s->kind == BYTE_LEVEL && !s->pattern) || (s->kind == METASPACE && !s->split))
        return next_step(r, i + 1, text, len, lead);
    if (s->kind == WHITESPACE)
        return by_word(&j, len);
    rc = s->pattern ? by_pattern(&j, s, len) : by_character(&j, s, len);
    return rc ? rc : finish(&j);
}

int pretok_apply(const struct pretok *p, struct pretok_scratch *s, struct pattern_scratch *match, const char *text, size_t len,
                 size_t lead, pretok_word_fn word, void *ctx, struct llmq_err *err)
{
    struct run r = {p, s, match, word, ctx, err};

    if (!len)
        return 0;
    return p ? next_step(&r, 0, text, len, lead) : word(ctx, text, len, err);
}

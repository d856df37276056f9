/* Added tokens: see added.h.
 *
 * The leftmost match counts, the longest of those that begin there.  Tokens of one kind are sorted by their bytes, so
 * those that begin with a given text stand side by side: a search narrows that stretch byte by byte and remembers the
 * last token that ended.  A table of first bytes skips the rest of the text. */
#include "runner/text/added.h"

#include "common/alloc.h"
#include "common/utf8.h"
#include "runner/text/uniset.h"

#include <stdlib.h>
#include <string.h>

struct ref {
    const struct added_token *token;
};

struct index {
    struct ref   *sorted; /* by the text that is looked for */
    int           n;
    unsigned char first[256];
};

struct added {
    struct added_token *token;
    int                 n;
    struct ref         *by_id;
    struct index        index[2]; /* [normalized] */
};

/* ---- loading ------------------------------------------------------------------------------- */

static int copy_text(char **out, const char *text, size_t len, struct llmq_err *err)
{
    if (LLMQ_NEW(out, len + 1, "added tokens", err))
        return err->code;
    memcpy(*out, text, len);
    return 0;
}

static int normal_text(struct added_token *t, const struct normalize *n, struct llmq_err *err)
{
    struct pattern_scratch *scratch = NULL;
    struct llmq_str         text, spare;
    size_t                  lead = 0;
    int                     rc;

    llmq_str_init(&text, 1 << 20);
    llmq_str_init(&spare, 1 << 20);
    rc = llmq_str_append(&text, t->content, t->len, err);
    if (!rc && t->normalized && n) {
        rc = pattern_scratch_new(&scratch, err);
        if (!rc)
            rc = normalize_apply(n, scratch, &text, &spare, &lead, err);
    }
    t->normal_len = text.len;
    if (!rc)
        rc = copy_text(&t->normal, text.data, text.len, err);
    pattern_scratch_free(scratch);
    llmq_str_fini(&text);
    llmq_str_fini(&spare);
    return rc;
}

static int load_token(struct added_token *t, const json_t *v, const struct normalize *n, struct llmq_err *err)
{
    const json_t *content = json_object_get(v, "content");

    t->len = json_string_length(content);
    t->id = (int32_t)json_integer_value(json_object_get(v, "id"));
    t->single_word = json_is_true(json_object_get(v, "single_word"));
    t->lstrip = json_is_true(json_object_get(v, "lstrip"));
    t->rstrip = json_is_true(json_object_get(v, "rstrip"));
    t->normalized = json_is_true(json_object_get(v, "normalized"));
    t->special = json_is_true(json_object_get(v, "special"));
    if (!t->len || t->id < 0)
        return llmq_fail(err, LLMQ_EFORMAT, "tokenizer: an added token has no content or no id");
    return copy_text(&t->content, json_string_value(content), t->len, err) || normal_text(t, n, err) ? err->code : 0;
}

static int compare(const char *a, size_t na, const char *b, size_t nb)
{
    int c = memcmp(a, b, na < nb ? na : nb);

    return c ? c : na < nb ? -1 : na > nb;
}

static int by_normal(const void *a, const void *b)
{
    const struct added_token *x = ((const struct ref *)a)->token, *y = ((const struct ref *)b)->token;

    return compare(x->normal, x->normal_len, y->normal, y->normal_len);
}

static int by_id(const void *a, const void *b)
{
    const struct added_token *x = ((const struct ref *)a)->token, *y = ((const struct ref *)b)->token;

    return x->id < y->id ? -1 : x->id > y->id;
}

static int build_index(struct added *a, int normalized, struct llmq_err *err)
{
    struct index *x = &a->index[normalized];

    if (LLMQ_NEW(&x->sorted, a->n + 1, "added tokens", err))
        return err->code;
    for (int i = 0; i < a->n; i++) {
        const struct added_token *t = &a->token[i];

        if (t->normalized != normalized)
            continue;
        if (!t->normal_len)
            return llmq_fail(err, LLMQ_EFORMAT, "tokenizer: added token '%s' normalizes to nothing", t->content);
        x->first[(unsigned char)t->normal[0]] = 1;
        x->sorted[x->n++].token = t;
    }
    if (x->n)
        qsort(x->sorted, (size_t)x->n, sizeof *x->sorted, by_normal);
    for (int i = 1; i < x->n; i++)
        if (!by_normal(&x->sorted[i - 1], &x->sorted[i]))
            return llmq_fail(err, LLMQ_EFORMAT, "tokenizer: added tokens %d and %d have the same text", x->sorted[i - 1].token->id,
                             x->sorted[i].token->id);
    return 0;
}

static int fill(struct added *a, const json_t *list, const struct normalize *n, struct llmq_err *err)
{
    size_t  i, size = json_array_size(list);
    json_t *v;

    if (LLMQ_NEW(&a->token, size + 1, "added tokens", err) || LLMQ_NEW(&a->by_id, size + 1, "added tokens", err))
        return err->code;
    json_array_foreach(list, i, v) {
        a->by_id[i].token = &a->token[i];
        a->n = (int)i + 1;
        if (load_token(&a->token[i], v, n, err))
            return err->code;
    }
    if (a->n)
        qsort(a->by_id, (size_t)a->n, sizeof *a->by_id, by_id);
    for (int k = 1; k < a->n; k++)
        if (a->by_id[k].token->id == a->by_id[k - 1].token->id)
            return llmq_fail(err, LLMQ_EFORMAT, "tokenizer: two added tokens have id %d", a->by_id[k].token->id);
    for (int k = 0; k < a->n; k++) {
        struct added_token       *t = &a->token[k];
        const struct added_token *same = t->normalized ? added_by_content(a, t->normal, t->normal_len) : t;

        t->hidden = same && same->special;
    }
    return build_index(a, 0, err) || build_index(a, 1, err) ? err->code : 0;
}

int added_load(struct added **out, const json_t *list, const struct normalize *n, struct llmq_err *err)
{
    struct added *a;

    *out = NULL;
    if (LLMQ_NEW(&a, 1, "added tokens", err))
        return err->code;
    if (fill(a, list, n, err)) {
        added_free(a);
        return err->code;
    }
    *out = a;
    return 0;
}

void added_free(struct added *a)
{
    if (!a)
        return;
    for (int i = 0; i < a->n; i++) {
        llmq_free(a->token[i].content);
        llmq_free(a->token[i].normal);
    }
    llmq_free(a->token);
    llmq_free(a->by_id);
    llmq_free(a->index[0].sorted);
    llmq_free(a->index[1].sorted);
    llmq_free(a);
}

int                       added_count(const struct added *a) { return a->n; }
const struct added_token *added_token(const struct added *a, int i) { return &a->token[i]; }

const struct added_token *added_by_id(const struct added *a, int32_t id)
{
    int lo = 0, hi = a->n - 1;

    while (lo <= hi) {
        int mid = (lo + hi) / 2;

        if (a->by_id[mid].token->id == id)
            return a->by_id[mid].token;
        if (a->by_id[mid].token->id < id)
            lo = mid + 1;
        else
            hi = mid - 1;
    }
    return NULL;
}

const struct added_token *added_by_content(const struct added *a, const char *text, size_t len)
{
    for (int i = 0; i < a->n; i++)
        if (a->token[i].len == len && !memcmp(a->token[i].content, text, len))
            return &a->token[i];
    return NULL;
}

/* ---- finding -------------------------------------------------------------------------------- */

/* First of sorted[lo, hi) whose byte `at` is at least c (c may be 256); all of them agree before `at`. */
static int lower_bound(const struct index *x, int lo, int hi, size_t at, int c)
{
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        int b = x->sorted[mid].token->normal_len > at ? (unsigned char)x->sorted[mid].token->normal[at] : -1;

        if (b < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static const struct added_token *longest_at(const struct index *x, const char *text, size_t len)
{
    const struct added_token *best = NULL;
    int                       lo = 0, hi = x->n;

    for (size_t at = 0; at < len && lo < hi; at++) {
        int c = (unsigned char)text[at];

        lo = lower_bound(x, lo, hi, at, c);
        hi = lower_bound(x, lo, hi, at, c + 1);
        if (lo < hi && x->sorted[lo].token->normal_len == at + 1)
            best = x->sorted[lo].token;
    }
    return best;
}

static int word_before(const char *text, size_t at)
{
    int n;

    return at > 0 && unicode_in(&unicode_rust_word, utf8_get(text + utf8_back(text, at), &n));
}

static int word_after(const char *text, size_t at, size_t len)
{
    int n;

    return at < len && unicode_in(&unicode_rust_word, utf8_get(text + at, &n));
}

/* Widens [*from, *to) over the spaces that the token takes along; not to the left of `done`. */
static void widen(const struct added_token *t, const char *text, size_t len, size_t done, size_t *from, size_t *to)
{
    size_t at = *from;
    int    n;

    while (t->lstrip && at > 0 && unicode_in(&unicode_rust_space, utf8_get(text + utf8_back(text, at), &n)))
        at = utf8_back(text, at);
    if (t->lstrip)
        *from = at > done ? at : done;
    while (t->rstrip && *to < len && unicode_in(&unicode_rust_space, utf8_get(text + *to, &n)))
        *to += (size_t)n;
}

static int holds_unmarked(const struct added_marks *m, const struct added_token *t)
{
    const char *at = m->text, *end = m->text + m->len;

    while ((at = memmem(at, (size_t)(end - at), t->normal, t->normal_len)) != NULL) {
        if (!memchr(m->marks + (at - m->text), 1, t->normal_len))
            return 1;
        at++;
    }
    return 0;
}

/* Whether a message's bytes take part in this match, so that it must stay text. */
static int from_message(const struct added *a, const struct added_marks *m, const struct added_token *t, size_t at)
{
    char *known;

    if (!m || !memchr(m->marks + at, 1, t->normal_len))
        return 0;
    if (t->special)
        return 1;
    known = &m->known[t - a->token];
    if (!*known)
        *known = holds_unmarked(m, t) ? 'y' : 'n';
    return *known == 'y';
}

/* The longest token at text[at]; where a message takes part in it, the longest that ends before the message. */
static const struct added_token *token_at(const struct added *a, const struct index *x, const char *text, size_t at, size_t len,
                                          const struct added_marks *m, size_t offset)
{
    const struct added_token *t = x->first[(unsigned char)text[at]] ? longest_at(x, text + at, len - at) : NULL;
    const char               *here, *message;

    if (!t || !from_message(a, m, t, offset + at))
        return t;
    here = m->marks + offset + at;
    message = memchr(here, 1, t->normal_len);
    return message > here ? longest_at(x, text + at, (size_t)(message - here)) : NULL;
}

int added_split(const struct added *a, int normalized, int special, const char *text, size_t len, const struct added_marks *marks,
                size_t offset, added_found_fn found, void *ctx, struct llmq_err *err)
{
    const struct index *x = &a->index[normalized];
    size_t              done = 0, at = 0;

    while (x->n && at < len) {
        const struct added_token *t = token_at(a, x, text, at, len, marks, offset);
        size_t                    from = at, to;

        if (!t) {
            at++;
            continue;
        }
        at = to = from + t->normal_len;
        if ((!special && t->special) || (t->single_word && (word_before(text, from) || word_after(text, to, len))))
            continue;
        widen(t, text, len, done, &from, &to);
        if ((done < from && found(ctx, text, done, from, -1, err)) || found(ctx, text, from, to, t->id, err))
            return err->code;
        done = to;
    }
    return done < len ? found(ctx, text, done, len, -1, err) : 0;
}

int added_any_normalized(const struct added *a) { return a->index[1].n > 0; }

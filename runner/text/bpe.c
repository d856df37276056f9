/* The BPE model: see bpe.h.
 *
 * A word begins as one symbol per character; the pair of neighbours with the lowest rank is merged, the leftmost of
 * equals first, until no pair has a rank.  Short words look for the lowest rank in an array, long ones (text without a
 * pre-tokenizer is one word) in a heap whose stale entries are recognised when they come up: n log n.
 *
 * Tokens are found by hash, pairs by another; both tables are open-addressed, at most half full, filled straight from
 * the sections.  A cache of words per thread saves most of the work on natural text. */
#include "runner/text/bpe.h"

#include "common/alloc.h"
#include "common/utf8.h"
#include "runner/text/tokenizer.h"

#include <string.h>

enum {
    DIRECT = 0x400,    /* characters whose token is found by index */
    SHORT_WORD = 40,   /* symbols; beyond it the heap is quicker */
    CACHE_AFTER = 256, /* words */
    CACHE_SLOTS = 8192,
    CACHE_WORD = 16,   /* bytes of a word that is kept */
    CACHE_IDS = 6
};
#define NONE UINT32_MAX
#define HOLE UINT32_MAX

struct merge {
    uint32_t left, right, rank, result; /* rank NONE: an empty slot */
};

struct vocab_slot {
    uint32_t hash, id; /* id NONE: empty */
};

struct bpe {
    char              *blob;      /* all tokens, back to back */
    uint32_t          *from;      /* [n + 1] into blob */
    uint8_t           *is_hole;   /* [n] */
    uint32_t           n;
    struct vocab_slot *slot;
    uint32_t           slot_mask;
    struct merge      *merge;
    uint32_t           merge_mask;
    int32_t            direct[DIRECT]; /* token of a character; -1: none */
    int32_t            byte_token[256]; /* <0x00> ...; -1: none */
    char              *prefix, *suffix, *unk; /* NULL: none */
    size_t             prefix_len, suffix_len, unk_len;
    int32_t            unk_id;                 /* -1: unk is not in the vocabulary */
    int                fuse_unk, byte_fallback, ignore_merges;
};

/* ---- tables --------------------------------------------------------------------------------- */

static uint32_t hash_bytes(const char *p, size_t n)
{
    uint64_t h = 0x9e3779b97f4a7c15ull ^ n, w;

    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&w, p, 8);
        h = (h ^ w) * 0xff51afd7ed558ccdull;
        h ^= h >> 32;
    }
    w = 0;
    memcpy(&w, p, n);
    h = (h ^ w) * 0xff51afd7ed558ccdull;
    h ^= h >> 32;
    h *= 0xc4ceb9fe1a85ec53ull;
    return (uint32_t)(h >> 32);
}

static uint32_t hash_pair(uint32_t a, uint32_t b)
{
    uint64_t h = ((uint64_t)a << 32 | b) * 0x9e3779b97f4a7c15ull;

    return (uint32_t)(h >> 32) ^ (uint32_t)(h >> 15);
}

/* A power of two of at least twice n. */
static uint32_t table_size(uint32_t n)
{
    uint32_t size = 16;

    while (size < 2 * n)
        size *= 2;
    return size;
}

static uint32_t load_u32(const char *p)
{
    const unsigned char *u = (const unsigned char *)p;

    return u[0] | (uint32_t)u[1] << 8 | (uint32_t)u[2] << 16 | (uint32_t)u[3] << 24;
}

const char *bpe_text(const struct bpe *b, int32_t id, size_t *len)
{
    if (id < 0 || (uint32_t)id >= b->n || b->is_hole[id])
        return NULL;
    *len = b->from[id + 1] - b->from[id];
    return b->blob + b->from[id];
}

int bpe_count(const struct bpe *b) { return (int)b->n; }

int32_t bpe_find(const struct bpe *b, const char *text, size_t len)
{
    uint32_t h = hash_bytes(text, len);

    for (uint32_t i = h & b->slot_mask; b->slot[i].id != NONE; i = (i + 1) & b->slot_mask) {
        uint32_t id = b->slot[i].id, from = b->from[id];

        if (b->slot[i].hash == h && b->from[id + 1] - from == len && !memcmp(b->blob + from, text, len))
            return (int32_t)id;
    }
    return -1;
}

static const struct merge *find_merge(const struct bpe *b, uint32_t left, uint32_t right)
{
    uint32_t i = hash_pair(left, right) & b->merge_mask;

    for (; b->merge[i].rank != NONE; i = (i + 1) & b->merge_mask)
        if (b->merge[i].left == left && b->merge[i].right == right)
            return &b->merge[i];
    return NULL;
}

/* ---- loading -------------------------------------------------------------------------------- */

/* The section's size justifies every allocation: a token costs at least four bytes of it. */
static int vocab_sizes(struct bpe *b, const char *p, size_t len, struct llmq_err *err)
{
    size_t at = 4;

    if (len < 4 || load_u32(p) > (len - 4) / 4 || load_u32(p) > INT32_MAX / 4 || len > INT32_MAX)
        return llmq_fail(err, LLMQ_EFORMAT, "section vocab: %zu bytes are too few for the %u tokens it states", len,
                         len < 4 ? 0 : load_u32(p));
    b->n = load_u32(p);
    if (LLMQ_NEW(&b->blob, len, "the vocabulary", err) || LLMQ_NEW(&b->from, (size_t)b->n + 1, "the vocabulary", err) ||
        LLMQ_NEW(&b->is_hole, (size_t)b->n + 1, "the vocabulary", err))
        return err->code;
    for (uint32_t id = 0; id < b->n; id++) {
        uint32_t n = len - at >= 4 ? load_u32(p + at) : 0, keep = n == HOLE ? 0 : n;

        if (len - at < 4 || keep > len - at - 4)
            return llmq_fail(err, LLMQ_EFORMAT, "section vocab: it ends inside token %u of %u", id, b->n);
        b->is_hole[id] = n == HOLE;
        memcpy(b->blob + b->from[id], p + at + 4, keep);
        if (utf8_check(b->blob + b->from[id], keep) != keep)
            return llmq_fail(err, LLMQ_EFORMAT, "section vocab: token %u is not UTF-8", id);
        b->from[id + 1] = b->from[id] + keep;
        at += 4 + keep;
    }
    if (at != len)
        return llmq_fail(err, LLMQ_EFORMAT, "section vocab: %zu bytes follow the last token", len - at);
    return 0;
}

static int load_vocab(struct bpe *b, const char *p, size_t len, struct llmq_err *err)
{
    uint32_t size;

    if (vocab_sizes(b, p, len, err))
        return err->code;
    size = table_size(b->n);
    b->slot_mask = size - 1;
    if (LLMQ_NEW(&b->slot, size, "the vocabulary", err))
        return err->code;
    memset(b->slot, 0xff, size * sizeof *b->slot);
    for (uint32_t id = 0; id < b->n; id++) {
        size_t      n;
        const char *text = bpe_text(b, (int32_t)id, &n);
        uint32_t    h, i;

        if (!text)
            continue;
        if (bpe_find(b, text, n) >= 0)
            return llmq_fail(err, LLMQ_EFORMAT, "section vocab: tokens %d and %u are the same", bpe_find(b, text, n), id);
        h = hash_bytes(text, n);
        for (i = h & b->slot_mask; b->slot[i].id != NONE; i = (i + 1) & b->slot_mask)
            ;
        b->slot[i] = (struct vocab_slot){h, id};
    }
    return 0;
}

/* The result must be the two texts in a row (the right one without its prefix). */
static int check_merge(const struct bpe *b, uint32_t rank, uint32_t left, uint32_t right, uint32_t result, struct llmq_err *err)
{
    size_t      nl, nr, n;
    const char *l = left < b->n ? bpe_text(b, (int32_t)left, &nl) : NULL;
    const char *r = right < b->n ? bpe_text(b, (int32_t)right, &nr) : NULL;
    const char *t = result < b->n ? bpe_text(b, (int32_t)result, &n) : NULL;

    if (!l || !r || !t)
        return llmq_fail(err, LLMQ_EFORMAT, "section merges: merge %u names id %u, which is no token of %u", rank,
                         !l ? left : !r ? right : result, b->n);
    if (nr < b->prefix_len || n != nl + nr - b->prefix_len || memcmp(t, l, nl) != 0 ||
        memcmp(t + nl, r + b->prefix_len, nr - b->prefix_len) != 0)
        return llmq_fail(err, LLMQ_EFORMAT, "section merges: merge %u of tokens %u and %u does not give token %u", rank, left,
                         right, result);
    return 0;
}

static int load_merges(struct bpe *b, const char *p, size_t len, struct llmq_err *err)
{
    uint32_t n, size;

    if (len < 4 || (len - 4) % 12 || load_u32(p) != (len - 4) / 12 || load_u32(p) > INT32_MAX / 4)
        return llmq_fail(err, LLMQ_EFORMAT, "section merges: %zu bytes, expected 4 and 12 for each of %u merges", len,
                         len < 4 ? 0 : load_u32(p));
    n = load_u32(p);
    size = table_size(n);
    b->merge_mask = size - 1;
    if (LLMQ_NEW(&b->merge, size, "the merges", err))
        return err->code;
    memset(b->merge, 0xff, size * sizeof *b->merge);
    p += 4;
    for (uint32_t rank = 0; rank < n; rank++, p += 12) {
        struct merge m = {load_u32(p), load_u32(p + 4), rank, load_u32(p + 8)};
        uint32_t     i = hash_pair(m.left, m.right) & b->merge_mask;

        if (check_merge(b, rank, m.left, m.right, m.result, err))
            return err->code;
        /* Of two merges of one pair the later counts, as in the library. */
        while (b->merge[i].rank != NONE && (b->merge[i].left != m.left || b->merge[i].right != m.right))
            i = (i + 1) & b->merge_mask;
        b->merge[i] = m;
    }
    return 0;
}

static int copy_text(char **out, size_t *len, const json_t *v, struct llmq_err *err)
{
    *len = 0;
    if (!json_is_string(v))
        return 0;
    *len = json_string_length(v);
    if (LLMQ_NEW(out, *len + 1, "the tokenizer's model", err))
        return err->code;
    memcpy(*out, json_string_value(v), *len);
    return 0;
}

static int load_options(struct bpe *b, const json_t *model, struct llmq_err *err)
{
    if (copy_text(&b->prefix, &b->prefix_len, json_object_get(model, "continuing_subword_prefix"), err) ||
        copy_text(&b->suffix, &b->suffix_len, json_object_get(model, "end_of_word_suffix"), err) ||
        copy_text(&b->unk, &b->unk_len, json_object_get(model, "unk_token"), err))
        return err->code;
    b->fuse_unk = json_is_true(json_object_get(model, "fuse_unk"));
    b->byte_fallback = json_is_true(json_object_get(model, "byte_fallback"));
    b->ignore_merges = json_is_true(json_object_get(model, "ignore_merges"));
    return 0;
}

static void fill_shortcuts(struct bpe *b)
{
    static const char hex[] = "0123456789ABCDEF";

    b->unk_id = b->unk ? bpe_find(b, b->unk, b->unk_len) : -1;
    for (uint32_t c = 0; c < DIRECT; c++) {
        char text[UTF8_MAX];

        b->direct[c] = bpe_find(b, text, (size_t)utf8_put(text, c));
    }
    for (int i = 0; i < 256; i++) {
        char text[6] = {'<', '0', 'x', hex[i >> 4], hex[i & 15], '>'};

        b->byte_token[i] = bpe_find(b, text, 6);
    }
}

int bpe_load(struct bpe **out, const json_t *model, const void *vocab, size_t vocab_len, const void *merges,
             size_t merges_len, struct llmq_err *err)
{
    struct bpe *b;

    *out = NULL;
    if (LLMQ_NEW(&b, 1, "the tokenizer's model", err))
        return err->code;
    if (load_options(b, model, err) || load_vocab(b, vocab, vocab_len, err) || load_merges(b, merges, merges_len, err)) {
        bpe_free(b);
        return err->code;
    }
    fill_shortcuts(b);
    *out = b;
    return 0;
}

void bpe_free(struct bpe *b)
{
    if (!b)
        return;
    llmq_free(b->blob);
    llmq_free(b->from);
    llmq_free(b->is_hole);
    llmq_free(b->slot);
    llmq_free(b->merge);
    llmq_free(b->prefix);
    llmq_free(b->suffix);
    llmq_free(b->unk);
    llmq_free(b);
}

/* ---- words ---------------------------------------------------------------------------------- */

struct symbol {
    uint32_t id;
    int32_t  prev, next; /* -1: none */
    int      gone;
};

struct candidate {
    uint32_t rank, left, right;
    int32_t  at;
};

struct cached {
    uint8_t len, n; /* len 0: empty */
    char    word[CACHE_WORD];
    int32_t id[CACHE_IDS];
};

struct bpe_scratch {
    struct symbol    *symbol;
    size_t            n, cap;
    struct candidate *heap;
    size_t            heap_n, heap_cap;
    char             *text; /* a character with prefix and suffix */
    size_t            text_cap;
    struct cached    *cache;
    size_t            words; /* so far: a short text is not worth a cache */
};

int bpe_scratch_new(struct bpe_scratch **out, struct llmq_err *err) { return LLMQ_NEW(out, 1, "tokenizing", err); }

void bpe_scratch_free(struct bpe_scratch *s)
{
    if (!s)
        return;
    llmq_free(s->symbol);
    llmq_free(s->heap);
    llmq_free(s->text);
    llmq_free(s->cache);
    llmq_free(s);
}

/* Doubles an array when it is full. */
static int grow(void **array, size_t n, size_t *cap, size_t size, struct llmq_err *err)
{
    size_t more = *cap ? *cap * 2 : 64;
    void  *p;

    if (n < *cap)
        return 0;
    if (llmq_alloc(&p, more, size, "tokenizing", err))
        return err->code;
    if (n)
        memcpy(p, *array, n * size);
    llmq_free(*array);
    *array = p;
    *cap = more;
    return 0;
}

int bpe_push(struct token_ids *out, int32_t id, struct llmq_err *err)
{
    if (out->n == out->cap && grow((void **)&out->id, out->n, &out->cap, sizeof *out->id, err))
        return err->code;
    out->id[out->n++] = id;
    return 0;
}

static int add_symbol(struct bpe_scratch *s, uint32_t id, struct llmq_err *err)
{
    if (s->n == s->cap && grow((void **)&s->symbol, s->n, &s->cap, sizeof *s->symbol, err))
        return err->code;
    if (s->n > INT32_MAX / 2)
        return llmq_fail(err, LLMQ_ELIMIT, "a word of more than %d characters", INT32_MAX / 2);
    if (s->n)
        s->symbol[s->n - 1].next = (int32_t)s->n;
    s->symbol[s->n] = (struct symbol){.id = id, .prev = (int32_t)s->n - 1, .next = -1};
    s->n++;
    return 0;
}

/* A character dressed with the prefix of continuing characters and the suffix of the last one. */
static int dress(const struct bpe *b, struct bpe_scratch *s, const char **text, size_t *len, int first, int last,
                 struct llmq_err *err)
{
    size_t pre = first ? 0 : b->prefix_len, post = last ? b->suffix_len : 0;

    if (!pre && !post)
        return 0;
    if (!s->text && LLMQ_NEW(&s->text, b->prefix_len + b->suffix_len + UTF8_MAX, "tokenizing", err))
        return err->code;
    if (pre)
        memcpy(s->text, b->prefix, pre);
    memcpy(s->text + pre, *text, *len);
    if (post)
        memcpy(s->text + pre + *len, b->suffix, post);
    *text = s->text;
    *len += pre + post;
    return 0;
}

/* 1: the bytes of a character that has no token stand as byte tokens; 0: some byte has none. */
static int byte_symbols(const struct bpe *b, struct bpe_scratch *s, const char *text, size_t len, struct llmq_err *err)
{
    for (size_t i = 0; i < len; i++)
        if (b->byte_token[(unsigned char)text[i]] < 0)
            return 0;
    for (size_t i = 0; i < len; i++)
        if (add_symbol(s, (uint32_t)b->byte_token[(unsigned char)text[i]], err))
            return err->code;
    return 1;
}

/* An unknown character: *pending is a run of them that has no symbol yet.  Byte tokens overtake such a run, and a
 * character is lost when there is no unknown token: both as in the library. */
static int unknown(const struct bpe *b, struct bpe_scratch *s, const char *text, size_t len, int *pending, struct llmq_err *err)
{
    int rc = b->byte_fallback ? byte_symbols(b, s, text, len, err) : 0;

    if (rc)
        return rc < 0 ? rc : 0;
    if (!b->unk)
        return 0;
    if (*pending && !b->fuse_unk && add_symbol(s, (uint32_t)b->unk_id, err))
        return err->code;
    if (b->unk_id < 0)
        return llmq_fail(err, LLMQ_EFORMAT, "tokenizer: the unknown token '%s' is not in the vocabulary", b->unk);
    *pending = 1;
    return 0;
}

static int symbols(const struct bpe *b, struct bpe_scratch *s, const char *text, size_t len, struct llmq_err *err)
{
    int pending = 0;

    s->n = 0;
    for (size_t at = 0; at < len;) {
        int         n, plain;
        uint32_t    c = utf8_get(text + at, &n);
        const char *t = text + at;
        size_t      t_len = (size_t)n;
        int32_t     id;

        if (dress(b, s, &t, &t_len, at == 0, at + (size_t)n == len, err))
            return err->code;
        plain = t == text + at;
        id = plain && c < DIRECT ? b->direct[c] : bpe_find(b, t, t_len);
        at += (size_t)n;
        if (id < 0) {
            if (unknown(b, s, t, t_len, &pending, err))
                return err->code;
            continue;
        }
        if (pending && add_symbol(s, (uint32_t)b->unk_id, err))
            return err->code;
        pending = 0;
        if (add_symbol(s, (uint32_t)id, err))
            return err->code;
    }
    return pending ? add_symbol(s, (uint32_t)b->unk_id, err) : 0;
}

/* ---- merging -------------------------------------------------------------------------------- */

static uint32_t pair_rank(const struct bpe *b, const struct symbol *sym, int n, int i, uint32_t *result)
{
    const struct merge *m = i + 1 < n ? find_merge(b, sym[i].id, sym[i + 1].id) : NULL;

    *result = m ? m->result : 0;
    return m ? m->rank : NONE;
}

static void merge_short(const struct bpe *b, struct bpe_scratch *s)
{
    uint32_t       rank[SHORT_WORD], result[SHORT_WORD];
    struct symbol *sym = s->symbol;
    int            n = (int)s->n;

    for (int i = 0; i < n; i++)
        rank[i] = pair_rank(b, sym, n, i, &result[i]);
    for (;;) {
        int best = 0;

        for (int i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best])
                best = i;
        if (n < 2 || rank[best] == NONE)
            break;
        sym[best].id = result[best];
        n--;
        for (int i = best + 1; i < n; i++) {
            sym[i].id = sym[i + 1].id;
            rank[i] = rank[i + 1];
            result[i] = result[i + 1];
        }
        rank[best] = pair_rank(b, sym, n, best, &result[best]);
        if (best > 0)
            rank[best - 1] = pair_rank(b, sym, n, best - 1, &result[best - 1]);
    }
    s->n = (size_t)n;
}

static int before(const struct candidate *a, const struct candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static int heap_push(const struct bpe *b, struct bpe_scratch *s, int32_t at, struct llmq_err *err)
{
    const struct symbol *left = &s->symbol[at];
    const struct merge  *m = left->next >= 0 ? find_merge(b, left->id, s->symbol[left->next].id) : NULL;
    struct candidate     c;
    size_t               i = s->heap_n;

    if (!m)
        return 0;
    if (s->heap_n == s->heap_cap && grow((void **)&s->heap, s->heap_n, &s->heap_cap, sizeof *s->heap, err))
        return err->code;
    c = (struct candidate){m->rank, m->left, m->right, at};
    for (s->heap_n++; i > 0 && before(&c, &s->heap[(i - 1) / 2]); i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = c;
    return 0;
}

static struct candidate heap_pop(struct bpe_scratch *s)
{
    struct candidate top = s->heap[0], last = s->heap[--s->heap_n];
    size_t           i = 0;

    for (size_t child; (child = 2 * i + 1) < s->heap_n; i = child) {
        if (child + 1 < s->heap_n && before(&s->heap[child + 1], &s->heap[child]))
            child++;
        if (!before(&s->heap[child], &last))
            break;
        s->heap[i] = s->heap[child];
    }
    s->heap[i] = last;
    return top;
}

static int merge_long(const struct bpe *b, struct bpe_scratch *s, struct llmq_err *err)
{
    size_t n = 0;

    s->heap_n = 0;
    for (size_t i = 0; i < s->n; i++)
        if (heap_push(b, s, (int32_t)i, err))
            return err->code;
    while (s->heap_n) {
        struct candidate c = heap_pop(s);
        struct symbol   *left = &s->symbol[c.at], *right = left->next >= 0 ? &s->symbol[left->next] : NULL;

        if (left->gone || !right || left->id != c.left || right->id != c.right)
            continue;
        left->id = find_merge(b, c.left, c.right)->result;
        right->gone = 1;
        left->next = right->next;
        if (left->next >= 0)
            s->symbol[left->next].prev = c.at;
        if ((left->prev >= 0 && heap_push(b, s, left->prev, err)) || heap_push(b, s, c.at, err))
            return err->code;
    }
    for (size_t i = 0; i < s->n; i++)
        if (!s->symbol[i].gone)
            s->symbol[n++] = s->symbol[i];
    s->n = n;
    return 0;
}

/* ---- one word ------------------------------------------------------------------------------- */

static struct cached *cache_slot(struct bpe_scratch *s, const char *text, size_t len)
{
    struct llmq_err err;

    if (len > CACHE_WORD || len == 0 || s->words++ < CACHE_AFTER)
        return NULL;
    if (!s->cache && LLMQ_NEW(&s->cache, CACHE_SLOTS, "a cache of words", &err))
        return NULL;
    return &s->cache[hash_bytes(text, len) % CACHE_SLOTS];
}

static void cache_put(struct cached *slot, const char *text, size_t len, const int32_t *ids, size_t n)
{
    if (!slot || n > CACHE_IDS)
        return;
    slot->len = (uint8_t)len;
    slot->n = (uint8_t)n;
    memcpy(slot->word, text, len);
    if (ids)
        memcpy(slot->id, ids, n * sizeof *ids);
}

static int encode_word(const struct bpe *b, struct bpe_scratch *s, const char *text, size_t len, struct token_ids *out,
                       struct llmq_err *err)
{
    int32_t whole = b->ignore_merges ? bpe_find(b, text, len) : -1;

    if (whole >= 0)
        return bpe_push(out, whole, err);
    if (symbols(b, s, text, len, err))
        return err->code;
    if (s->n <= SHORT_WORD)
        merge_short(b, s);
    else if (merge_long(b, s, err))
        return err->code;
    for (size_t i = 0; i < s->n; i++)
        if (bpe_push(out, (int32_t)s->symbol[i].id, err))
            return err->code;
    return 0;
}

int bpe_encode(const struct bpe *b, struct bpe_scratch *s, const char *text, size_t len, struct token_ids *out,
               struct llmq_err *err)
{
    struct cached *slot = cache_slot(s, text, len);
    size_t         before_n = out->n;

    if (slot && slot->len == len && !memcmp(slot->word, text, len)) {
        for (int i = 0; i < slot->n; i++)
            if (bpe_push(out, slot->id[i], err))
                return err->code;
        return 0;
    }
    if (encode_word(b, s, text, len, out, err))
        return err->code;
    cache_put(slot, text, len, out->n > before_n ? out->id + before_n : NULL, out->n - before_n);
    return 0;
}


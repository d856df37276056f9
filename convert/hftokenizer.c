/* tokenizer.json to sections: see hftokenizer.h.
 *
 * The vocabulary and the merges are 99 % of the file, and a vocabulary may hold the token U+0000, which jansson refuses
 * as a key.  So a small scanner walks the outer two levels: it copies everything else into a short text that jansson
 * then parses and checks, and reads vocabulary and merges itself, straight into tables.
 *
 * Ids of added tokens are the ones that the `tokenizers` library gives them, which ignores what the file says: a token
 * that the vocabulary has keeps its id, others are numbered from the vocabulary's size on. */
#include "convert/hftokenizer.h"

#include "common/alloc.h"
#include "common/io.h"
#include "common/json.h"
#include "common/utf8.h"
#include "convert/convert.h"
#include "format/format.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_DEPTH = 64, MAX_ID = 1 << 22, MAX_TOKEN = 1 << 20, MAX_JSON = 256 << 20 };
#define HOLE UINT32_MAX

struct scan {
    const char      *s, *where;
    size_t           len, at;
    int              depth;
    struct llmq_err *err;
};

/* A part of the text. */
struct span {
    size_t from, to; /* to 0: absent */
};

struct token {
    size_t   from; /* into the blob */
    uint32_t len;  /* HOLE: no token has this id */
};

struct vocab {
    struct llmq_str blob;
    struct token   *token; /* by id */
    uint32_t        n, cap, count;
    uint32_t       *slot; /* hash table of ids; HOLE: empty */
    uint32_t        mask;
};

/* ---- scanning ------------------------------------------------------------------------------- */

static int bad(struct scan *j, const char *expected)
{
    return llmq_fail(j->err, LLMQ_EFORMAT, "%s: byte %zu: expected %s", j->where, j->at, expected);
}

static char peek(struct scan *j)
{
    while (j->at < j->len && strchr(" \t\r\n", j->s[j->at]) && j->s[j->at])
        j->at++;
    return j->at < j->len ? j->s[j->at] : '\0';
}

static int expect(struct scan *j, char c, const char *what)
{
    if (peek(j) != c)
        return bad(j, what);
    j->at++;
    return 0;
}

static int hex4(struct scan *j, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++, j->at++) {
        int c = j->at < j->len ? j->s[j->at] : 0;
        int d = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;

        if (d < 0)
            return bad(j, "four hexadecimal digits after \\u");
        *out = *out * 16 + (uint32_t)d;
    }
    return 0;
}

/* Behind "\u". */
static int unicode_escape(struct scan *j, uint32_t *c)
{
    uint32_t low;

    if (hex4(j, c))
        return j->err->code;
    if (*c < 0xd800 || *c > 0xdfff)
        return 0;
    if (*c > 0xdbff || j->len - j->at < 2 || j->s[j->at] != '\\' || j->s[j->at + 1] != 'u')
        return bad(j, "the second half of a surrogate pair");
    j->at += 2;
    if (hex4(j, &low))
        return j->err->code;
    if (low < 0xdc00 || low > 0xdfff)
        return bad(j, "the second half of a surrogate pair");
    *c = 0x10000 + ((*c - 0xd800) << 10) + (low - 0xdc00);
    return 0;
}

static int escape(struct scan *j, struct llmq_str *out)
{
    static const char letter[] = "\"\\/bfnrt", code[] = "\"\\/\b\f\n\r\t";
    char              c = j->at < j->len ? j->s[j->at++] : '\0', bytes[UTF8_MAX];
    const char       *l = c ? strchr(letter, c) : NULL;
    uint32_t          u;

    if (l)
        return llmq_str_append(out, &code[l - letter], 1, j->err);
    if (c != 'u')
        return bad(j, "an escape that JSON has");
    if (unicode_escape(j, &u))
        return j->err->code;
    return llmq_str_append(out, bytes, (size_t)utf8_put(bytes, u), j->err);
}

/* A string, its escapes undone, appended to out. */
static int string(struct scan *j, struct llmq_str *out)
{
    size_t start = out->len;

    if (expect(j, '"', "a string"))
        return j->err->code;
    for (;;) {
        size_t from = j->at;

        while (j->at < j->len && j->s[j->at] != '"' && j->s[j->at] != '\\' && (unsigned char)j->s[j->at] >= 0x20)
            j->at++;
        if (llmq_str_append(out, j->s + from, j->at - from, j->err))
            return j->err->code;
        if (j->at == j->len || (unsigned char)j->s[j->at] < 0x20)
            return bad(j, "the end of a string");
        if (j->s[j->at++] == '"')
            break;
        if (escape(j, out))
            return j->err->code;
    }
    if (utf8_check(out->data + start, out->len - start) != out->len - start)
        return bad(j, "a string in UTF-8");
    return 0;
}

static int skip_string(struct scan *j)
{
    if (expect(j, '"', "a string"))
        return j->err->code;
    for (; j->at < j->len && j->s[j->at] != '"'; j->at++)
        j->at += j->s[j->at] == '\\';
    if (j->at >= j->len)
        return bad(j, "the end of a string");
    j->at++;
    return 0;
}

/* Over one value; what is kept of it is parsed in full later. */
static int skip_value(struct scan *j)
{
    char c = peek(j), close = c == '{' ? '}' : ']';

    if (c == '"')
        return skip_string(j);
    if (c != '{' && c != '[') {
        while (j->at < j->len && !strchr(",]} \t\r\n", j->s[j->at]))
            j->at++;
        return 0;
    }
    if (++j->depth > MAX_DEPTH)
        return bad(j, "JSON nested less deep");
    j->at++;
    for (int first = 1; peek(j) != close; first = 0) {
        if ((!first && expect(j, ',', "a comma")) || (c == '{' && (skip_string(j) || expect(j, ':', "a colon"))) || skip_value(j))
            return j->err->code;
    }
    j->at++;
    j->depth--;
    return 0;
}

/* Calls each for every member of the object at hand, standing at its value, which it reads. */
typedef int (*member_fn)(struct scan *j, const struct llmq_str *key, void *ctx);
static int members(struct scan *j, member_fn each, void *ctx)
{
    struct llmq_str key;
    int             rc = expect(j, '{', "an object");

    llmq_str_init(&key, MAX_TOKEN);
    for (int first = 1; !rc && peek(j) != '}'; first = 0) {
        llmq_str_clear(&key);
        rc = (!first && expect(j, ',', "a comma")) || string(j, &key) || expect(j, ':', "a colon") || each(j, &key, ctx)
                 ? j->err->code
                 : 0;
    }
    llmq_str_fini(&key);
    if (!rc)
        j->at++;
    return rc;
}

/* ---- the short text -------------------------------------------------------------------------- */

struct outline {
    struct llmq_str *text;
    struct span      vocab, merges;
    int              seen_model, n; /* n: members written to the object at hand */
};

static int is(const struct llmq_str *key, const char *name) { return key->len == strlen(name) && !memcmp(key->data, name, key->len); }

/* Copies `"name": value` as it is. */
static int copy_member(struct scan *j, const struct llmq_str *key, struct outline *o)
{
    size_t from;

    peek(j);
    from = j->at;
    if (skip_value(j))
        return j->err->code;
    if (memchr(key->data, '"', key->len) || memchr(key->data, '\\', key->len) || memchr(key->data, '\0', key->len))
        return bad(j, "a plain key");
    return llmq_str_printf(o->text, j->err, "%s\"%s\":", o->n++ ? "," : "", key->data) ||
                   llmq_str_append(o->text, j->s + from, j->at - from, j->err)
               ? j->err->code
               : 0;
}

static int take_span(struct scan *j, struct span *s)
{
    if (s->to)
        return bad(j, "vocab and merges once");
    peek(j);
    s->from = j->at;
    if (skip_value(j))
        return j->err->code;
    s->to = j->at;
    return 0;
}

static int model_member(struct scan *j, const struct llmq_str *key, void *ctx)
{
    struct outline *o = ctx;

    if (is(key, "vocab"))
        return take_span(j, &o->vocab);
    if (is(key, "merges"))
        return take_span(j, &o->merges);
    return copy_member(j, key, o);
}

static int top_member(struct scan *j, const struct llmq_str *key, void *ctx)
{
    static const char *const kept[] = {"version", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder"};
    struct outline          *o = ctx;

    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        if (is(key, kept[i]))
            return copy_member(j, key, o);
    if (!is(key, "model"))
        return skip_value(j); /* truncation and padding are the caller's business, not the model's */
    if (o->seen_model++)
        return bad(j, "key \"model\" once");
    if (llmq_str_printf(o->text, j->err, "%s\"model\":{", o->n ? "," : ""))
        return j->err->code;
    o->n = 0;
    if (members(j, model_member, o))
        return j->err->code;
    o->n = 1;
    return llmq_str_append(o->text, "}", 1, j->err);
}

static int read_outline(struct scan *j, struct outline *o)
{
    if (llmq_str_append(o->text, "{", 1, j->err) || members(j, top_member, o) || llmq_str_append(o->text, "}", 1, j->err))
        return j->err->code;
    if (peek(j) || j->at != j->len)
        return bad(j, "the end of the file");
    return 0;
}

/* ---- vocabulary ------------------------------------------------------------------------------ */

static uint32_t hash_bytes(const char *p, size_t n)
{
    uint32_t h = 2166136261u;

    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)p[i]) * 16777619u;
    return h ^ h >> 15;
}

static uint32_t find_slot(const struct vocab *v, const char *text, size_t len)
{
    uint32_t i = hash_bytes(text, len) & v->mask;

    for (; v->slot[i] != HOLE; i = (i + 1) & v->mask) {
        const struct token *t = &v->token[v->slot[i]];

        if (t->len == len && !memcmp(v->blob.data + t->from, text, len))
            break;
    }
    return i;
}

static uint32_t find_token(const struct vocab *v, const char *text, size_t len) { return v->slot[find_slot(v, text, len)]; }

/* Room for ids below n. */
static int grow_tokens(struct vocab *v, uint32_t n, struct llmq_err *err)
{
    uint32_t      cap = v->cap ? v->cap : 1024;
    struct token *more;

    while (cap < n)
        cap *= 2;
    if (cap == v->cap)
        return 0;
    if (LLMQ_NEW(&more, cap, "a vocabulary", err))
        return err->code;
    for (uint32_t i = 0; i < cap; i++)
        more[i] = i < v->n ? v->token[i] : (struct token){0, HOLE};
    llmq_free(v->token);
    v->token = more;
    v->cap = cap;
    return 0;
}

static int read_id(struct scan *j, uint32_t *id)
{
    int n = 0;

    *id = 0;
    peek(j);
    for (; j->at < j->len && j->s[j->at] >= '0' && j->s[j->at] <= '9' && *id < MAX_ID; n++)
        *id = *id * 10 + (uint32_t)(j->s[j->at++] - '0');
    if (!n || *id >= MAX_ID)
        return bad(j, "a token id below 4194304");
    return 0;
}

static int vocab_member(struct scan *j, const struct llmq_str *key, void *ctx)
{
    struct vocab *v = ctx;
    uint32_t      id;

    if (read_id(j, &id) || grow_tokens(v, id + 1, j->err))
        return j->err->code;
    if (v->token[id].len != HOLE)
        return llmq_fail(j->err, LLMQ_EFORMAT, "%s: vocabulary: id %u has two tokens", j->where, id);
    v->token[id] = (struct token){v->blob.len, (uint32_t)key->len};
    v->count++;
    if (id >= v->n)
        v->n = id + 1;
    return llmq_str_append(&v->blob, key->data, key->len, j->err);
}

static int index_vocab(struct vocab *v, const char *where, struct llmq_err *err)
{
    uint32_t size = 16;

    while (size < 2 * v->count)
        size *= 2;
    v->mask = size - 1;
    if (LLMQ_NEW(&v->slot, size, "a vocabulary", err))
        return err->code;
    memset(v->slot, 0xff, size * sizeof *v->slot);
    for (uint32_t id = 0; id < v->n; id++) {
        uint32_t i;

        if (v->token[id].len == HOLE)
            continue;
        i = find_slot(v, v->blob.data + v->token[id].from, v->token[id].len);
        if (v->slot[i] != HOLE)
            return llmq_fail(err, LLMQ_EFORMAT, "%s: vocabulary: ids %u and %u have the same token", where, v->slot[i], id);
        v->slot[i] = id;
    }
    return 0;
}

static int put_u32(struct llmq_str *out, uint32_t x, struct llmq_err *err)
{
    char b[4] = {(char)x, (char)(x >> 8), (char)(x >> 16), (char)(x >> 24)};

    return llmq_str_append(out, b, 4, err);
}

static int write_vocab(const struct vocab *v, struct llmq_str *out, struct llmq_err *err)
{
    if (put_u32(out, v->n, err))
        return err->code;
    for (uint32_t id = 0; id < v->n; id++) {
        const struct token *t = &v->token[id];

        if (put_u32(out, t->len, err) || (t->len != HOLE && llmq_str_append(out, v->blob.data + t->from, t->len, err)))
            return err->code;
    }
    return 0;
}

static int read_vocab(struct scan *j, struct vocab *v, struct llmq_str *out)
{
    if (grow_tokens(v, 1, j->err) || members(j, vocab_member, v) || index_vocab(v, j->where, j->err))
        return j->err->code;
    return write_vocab(v, out, j->err);
}

static void vocab_fini(struct vocab *v)
{
    llmq_str_fini(&v->blob);
    llmq_free(v->token);
    llmq_free(v->slot);
}

/* ---- merges ---------------------------------------------------------------------------------- */

struct merge_reader {
    const struct vocab *v;
    struct llmq_str    *out;
    struct llmq_str     left, right, joined;
    size_t              prefix_len; /* of continuing subwords: the right one loses it */
    uint32_t            n;
};

static int unknown_token(struct scan *j, const struct merge_reader *m, const struct llmq_str *s)
{
    return llmq_fail(j->err, LLMQ_EFORMAT, "%s: merge %u: '%.*s' is not in the vocabulary", j->where, m->n,
                     (int)(s->len < 100 ? s->len : 100), s->data);
}

static int put_merge(struct scan *j, struct merge_reader *m)
{
    uint32_t a = find_token(m->v, m->left.data, m->left.len), b = find_token(m->v, m->right.data, m->right.len), c;

    if (a == HOLE || b == HOLE)
        return unknown_token(j, m, a == HOLE ? &m->left : &m->right);
    if (m->right.len < m->prefix_len)
        return llmq_fail(j->err, LLMQ_EFORMAT, "%s: merge %u: the right side is shorter than the prefix", j->where, m->n);
    llmq_str_clear(&m->joined);
    if (llmq_str_append(&m->joined, m->left.data, m->left.len, j->err) ||
        llmq_str_append(&m->joined, m->right.data + m->prefix_len, m->right.len - m->prefix_len, j->err))
        return j->err->code;
    c = find_token(m->v, m->joined.data, m->joined.len);
    if (c == HOLE)
        return unknown_token(j, m, &m->joined);
    m->n++;
    return put_u32(m->out, a, j->err) || put_u32(m->out, b, j->err) || put_u32(m->out, c, j->err) ? j->err->code : 0;
}

/* "a b" */
static int legacy_merge(struct scan *j, struct merge_reader *m)
{
    char *space;

    if (string(j, &m->left))
        return j->err->code;
    if (m->left.len >= 8 && !memcmp(m->left.data, "#version", 8))
        return 0;
    space = memchr(m->left.data, ' ', m->left.len);
    if (!space || memchr(space + 1, ' ', m->left.len - (size_t)(space + 1 - m->left.data)))
        return bad(j, "a merge of two tokens with one space between");
    if (llmq_str_append(&m->right, space + 1, m->left.len - (size_t)(space + 1 - m->left.data), j->err))
        return j->err->code;
    m->left.len = (size_t)(space - m->left.data);
    return put_merge(j, m);
}

/* ["a", "b"] */
static int pair_merge(struct scan *j, struct merge_reader *m)
{
    if (expect(j, '[', "a pair") || string(j, &m->left) || expect(j, ',', "a comma") || string(j, &m->right) ||
        expect(j, ']', "the end of a pair"))
        return j->err->code;
    return put_merge(j, m);
}

static int merge_list(struct scan *j, struct merge_reader *m)
{
    if (expect(j, '[', "an array of merges"))
        return j->err->code;
    for (int first = 1; peek(j) != ']'; first = 0) {
        llmq_str_clear(&m->left);
        llmq_str_clear(&m->right);
        if (!first && expect(j, ',', "a comma"))
            return j->err->code;
        if (peek(j) == '[' ? pair_merge(j, m) : legacy_merge(j, m))
            return j->err->code;
    }
    return 0;
}

static int read_merges(struct scan *j, const struct vocab *v, size_t prefix_len, struct llmq_str *out)
{
    struct merge_reader m = {.v = v, .out = out, .prefix_len = prefix_len};
    size_t              start = out->len;
    int                 rc;

    llmq_str_init(&m.left, MAX_TOKEN);
    llmq_str_init(&m.right, MAX_TOKEN);
    llmq_str_init(&m.joined, MAX_TOKEN);
    rc = put_u32(out, 0, j->err) || merge_list(j, &m) ? j->err->code : 0;
    for (int i = 0; i < 4 && !rc; i++)
        out->data[start + (size_t)i] = (char)(m.n >> (8 * i));
    llmq_str_fini(&m.left);
    llmq_str_fini(&m.right);
    llmq_str_fini(&m.joined);
    return rc;
}

/* ---- added tokens ---------------------------------------------------------------------------- */

/* Puts one token into kept: at the place of an earlier one with its content, whose id it takes, or at the end. */
static int keep_added(const struct vocab *v, struct vocab *seen, json_t *kept, json_t *t, struct llmq_err *err)
{
    const json_t *content = json_object_get(t, "content");
    const char   *text = json_string_value(content);
    size_t        len = json_string_length(content);
    uint32_t      slot = find_slot(seen, text, len), at = seen->slot[slot], id = find_token(v, text, len);

    if (at == HOLE) {
        at = seen->n++;
        seen->slot[slot] = at;
        seen->token[at] = (struct token){seen->blob.len, (uint32_t)len};
        if (llmq_str_append(&seen->blob, text, len, err))
            return err->code;
        if (id == HOLE)
            id = v->count + seen->count++;
        return json_object_set_new(t, "id", json_integer(id)) || json_array_append(kept, t);
    }
    return json_object_set(t, "id", json_object_get(json_array_get(kept, at), "id")) || json_array_set(kept, at, t);
}

static int resolve_added(const struct vocab *v, json_t *config, const char *where, struct llmq_err *err)
{
    json_t      *list = json_object_get(config, "added_tokens"), *kept = json_array(), *t;
    struct vocab seen = {0};
    uint32_t     size = 16;
    size_t       i;
    int          rc;

    while (size < 2 * json_array_size(list))
        size *= 2;
    seen.mask = size - 1;
    llmq_str_init(&seen.blob, MAX_JSON);
    rc = !kept || LLMQ_NEW(&seen.slot, size, "added tokens", err) || LLMQ_NEW(&seen.token, size, "added tokens", err);
    if (!rc)
        memset(seen.slot, 0xff, size * sizeof *seen.slot);
    json_array_foreach(list, i, t) {
        if (!rc && json_string_length(json_object_get(t, "content")))
            rc = keep_added(v, &seen, kept, t, err);
    }
    rc = rc || json_object_set(config, "added_tokens", kept);
    json_decref(kept);
    vocab_fini(&seen);
    return rc ? llmq_fail(err, LLMQ_ENOMEM, "%s: no memory for added tokens", where) : 0;
}

/* ---- all of it ------------------------------------------------------------------------------- */

struct dump {
    struct llmq_str *out;
    struct llmq_err *err;
};

static int dump_bytes(const char *bytes, size_t len, void *ctx)
{
    struct dump *d = ctx;

    return llmq_str_append(d->out, bytes, len, d->err);
}

static int write_config(const json_t *config, struct llmq_str *out, const char *where, struct llmq_err *err)
{
    struct dump d = {out, err};

    err->code = 0; /* looked at afterwards, since jansson 2.14 forgets that writing a key failed */
    if (!json_dump_callback(config, dump_bytes, &d, JSON_COMPACT) && !err->code)
        return 0;
    return err->code ? err->code : llmq_fail(err, LLMQ_ENOMEM, "%s: no memory for the tokenizer's configuration", where);
}

/* Parses and checks the short text. */
static int parse_outline(json_t **config, const struct outline *o, const char *where, struct llmq_err *err)
{
    const char *version = "1.0";

    if (llmq_json_parse(config, o->text->data, o->text->len, MAX_JSON, where, err) ||
        llmq_tokenizer_check(*config, where, err) || llmq_json_str(*config, "version", LLMQ_JSON_OPTIONAL, &version, where, err))
        return err->code;
    if (strcmp(version, "1.0") != 0)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: version \"%s\", expected \"1.0\"", where, version);
    if (!o->vocab.to || !o->merges.to)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: key \"model\": \"%s\" is missing", where, o->vocab.to ? "merges" : "vocab");
    return 0;
}

static int sections(struct scan *j, struct outline *o, json_t **config, struct vocab *v, struct llmq_str *out,
                    struct llmq_str *vocab, struct llmq_str *merges)
{
    size_t prefix_len;

    if (read_outline(j, o) || parse_outline(config, o, j->where, j->err))
        return j->err->code;
    prefix_len = json_string_length(json_object_get(json_object_get(*config, "model"), "continuing_subword_prefix"));
    j->at = o->vocab.from;
    if (read_vocab(j, v, vocab))
        return j->err->code;
    j->at = o->merges.from;
    if (read_merges(j, v, prefix_len, merges) || resolve_added(v, *config, j->where, j->err))
        return j->err->code;
    return write_config(*config, out, j->where, j->err);
}

int hftokenizer_sections(const char *json, size_t len, const char *where, struct llmq_str *config, struct llmq_str *vocab,
                         struct llmq_str *merges, struct llmq_err *err)
{
    struct scan     j = {.s = json, .len = len, .where = where, .err = err};
    struct llmq_str text;
    struct outline  o = {.text = &text};
    struct vocab    v = {0};
    json_t         *parsed = NULL;
    int             rc;

    if (len > MAX_JSON)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: %zu bytes, at most %d are read", where, len, MAX_JSON);
    llmq_str_init(&text, MAX_JSON);
    llmq_str_init(&v.blob, MAX_JSON);
    rc = sections(&j, &o, &parsed, &v, config, vocab, merges);
    json_decref(parsed);
    vocab_fini(&v);
    llmq_str_fini(&text);
    return rc;
}

int convert_tokenizer(const char *path, struct llmq_str *config, struct llmq_str *vocab, struct llmq_str *merges, struct llmq_err *err)
{
    struct llmq_str file;
    struct llmq_map map;
    struct stat     st;
    int             rc, is_dir = !stat(path, &st) && S_ISDIR(st.st_mode);

    llmq_str_init(&file, 1 << 16);
    rc = llmq_str_printf(&file, err, "%s%s", path, is_dir ? "/tokenizer.json" : "");
    if (!rc && is_dir && access(file.data, F_OK))
        rc = llmq_fail(err, LLMQ_EFORMAT, "%s: tokenizer.json is missing, expected a Hugging Face checkpoint's directory", path);
    if (!rc)
        rc = llmq_map_open(&map, file.data, err);
    if (!rc) {
        rc = hftokenizer_sections(map.data, map.size, file.data, config, vocab, merges, err);
        llmq_map_close(&map);
    }
    llmq_str_fini(&file);
    return rc;
}

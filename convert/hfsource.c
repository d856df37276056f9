/* A Hugging Face directory as a llmq_source (convert_open).
 *
 * Opening does all the checking that needs no weights: configuration, tokenizer, template, shard headers, and
 * the closed world: every tensor of the checkpoint has a place in the model or is known to be harmless, and
 * every place has a tensor of the right shape and a type that holds weights.  After that, reading rows is a
 * pread at an offset that has been checked. */
#include "convert/hfsource.h"

#include "common/alloc.h"
#include "common/ckd.h"
#include "common/io.h"
#include "common/json.h"
#include "common/str.h"
#include "convert/arch.h"
#include "convert/convert.h"
#include "convert/foreign.h"
#include "convert/hfconfig.h"
#include "convert/hftokenizer.h"
#include "convert/safetensors.h"

#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MAX_CONFIG = 16 << 20,     /* bytes of a configuration file */
    MAX_TOKENIZER = 256 << 20, /* bytes of tokenizer.json, and of each section made from it */
    MAX_TEMPLATE = 4 << 20,
    MAX_SMALL = 8,             /* files besides the shards */
    N_SECTIONS = 16,
    HASH_BUF = 1 << 20
};

/* A file that went into the model, for the provenance. */
struct source_file {
    const char *name;
    char        sha256[65];
    uint64_t    size_bytes;
};

struct hfsource {
    struct llmq_source                base;
    struct llmq_arena                 arena;
    const char                       *dir;
    struct safetensors                st;
    struct llmq_hparams               h;
    const struct arch_family         *family;
    struct llmq_tensor               *tensors; /* in file order */
    const struct safetensors_tensor **from;    /* where each one's bytes are */
    struct llmq_str                   section[N_SECTIONS];

    struct source_file small[MAX_SMALL], *shard;
    int                n_small;
    struct llmq_sha256 hash;
    int                hash_shard; /* the one being hashed; n_shards: all done */
    uint64_t           hash_at;
    char              *hash_buf;
    struct llmq_str    files;
};

/* ---- small files ------------------------------------------------------------------------------ */

static int path_of(const struct hfsource *s, const char *name, char *out, size_t size, struct llmq_err *err)
{
    if ((size_t)snprintf(out, size, "%s/%s", s->dir, name) >= size)
        return llmq_fail(err, LLMQ_EUSAGE, "%.200s...: the path is too long", s->dir);
    return 0;
}

static int present(const struct hfsource *s, const char *name)
{
    char            path[PATH_MAX];
    struct llmq_err ignored = {0};

    return !path_of(s, name, path, sizeof path, &ignored) && access(path, F_OK) == 0;
}

/* Maps a file and notes its hash.  path (PATH_MAX) keeps the full name for messages. */
static int take_file(struct hfsource *s, const char *name, struct llmq_map *map, char *path, struct llmq_err *err)
{
    struct source_file *f = &s->small[s->n_small];

    if (path_of(s, name, path, PATH_MAX, err) || llmq_map_open(map, path, err))
        return err->code;
    f->name = name;
    f->size_bytes = map->size;
    llmq_sha256_init(&s->hash);
    llmq_sha256_update(&s->hash, map->data, map->size);
    llmq_sha256_hex(&s->hash, f->sha256);
    s->n_small++;
    return 0;
}

typedef int (*json_parser)(json_t **out, const char *text, size_t len, size_t max_bytes, const char *where,
                           struct llmq_err *err);

/* Parses a JSON file; *out stays NULL when the file is absent. */
static int take_json(struct hfsource *s, const char *name, json_parser parse, json_t **out, struct llmq_err *err)
{
    struct llmq_map map;
    char            path[PATH_MAX];
    int             rc;

    *out = NULL;
    if (!present(s, name))
        return 0;
    if (take_file(s, name, &map, path, err))
        return err->code;
    rc = parse(out, map.data, map.size, MAX_CONFIG, path, err);
    llmq_map_close(&map);
    if (!rc && !json_is_object(*out))
        rc = llmq_fail(err, LLMQ_EFORMAT, "%s: not a JSON object", path);
    return rc;
}

/* ---- text sections ------------------------------------------------------------------------------ */

/* Added tokens may lie behind the vocabulary; none may lie behind the embedding's last row. */
static int check_vocab(const struct hfsource *s, const json_t *config, struct llmq_err *err)
{
    const struct llmq_str *vocab = &s->section[LLMQ_SECTION_VOCAB];
    const json_t          *added = json_object_get(config, "added_tokens");
    const unsigned char   *p = (const unsigned char *)vocab->data;
    uint64_t               rows = 0;

    if (vocab->len >= 4)
        rows = (uint64_t)p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24;
    for (size_t i = 0; i < json_array_size(added); i++) {
        json_int_t id = json_integer_value(json_object_get(json_array_get(added, i), "id"));

        if (id >= 0 && (uint64_t)id >= rows)
            rows = (uint64_t)id + 1;
    }
    if (rows > s->h.n_vocab)
        return llmq_fail(err, LLMQ_EFORMAT,
                         "%s/tokenizer.json: token ids up to %llu, but vocab_size in config.json is %u", s->dir,
                         (unsigned long long)(rows - 1), s->h.n_vocab);
    return 0;
}

static int take_tokenizer(struct hfsource *s, json_t **config, struct llmq_err *err)
{
    struct llmq_str *c = &s->section[LLMQ_SECTION_TOKENIZER];
    struct llmq_map  map;
    char             path[PATH_MAX];
    int              rc;

    if (!present(s, "tokenizer.json"))
        return llmq_fail(err, LLMQ_EFORMAT,
                         "%s: tokenizer.json is missing; other tokenizer files are not read: load the tokenizer in "
                         "transformers and save it with save_pretrained",
                         s->dir);
    if (take_file(s, "tokenizer.json", &map, path, err))
        return err->code;
    rc = map.size > MAX_TOKENIZER
             ? llmq_fail(err, LLMQ_EFORMAT, "%s: %zu bytes, at most %d are read", path, map.size, MAX_TOKENIZER)
             : hftokenizer_sections(map.data, map.size, path, c, &s->section[LLMQ_SECTION_VOCAB],
                                    &s->section[LLMQ_SECTION_MERGES], err);
    llmq_map_close(&map);
    if (!rc)
        rc = llmq_json_parse(config, c->data, c->len, MAX_TOKENIZER, path, err);
    return rc ? rc : check_vocab(s, *config, err);
}

/* chat_template in tokenizer_config.json: a string, or a list of named ones. */
static const json_t *template_in(const json_t *v)
{
    const json_t *e;

    for (size_t i = 0; i < json_array_size(v); i++) {
        const char *name;

        e = json_array_get(v, i);
        name = json_string_value(json_object_get(e, "name"));
        if (name && !strcmp(name, "default"))
            return json_object_get(e, "template");
    }
    return json_is_string(v) ? v : NULL;
}

static int take_template(struct hfsource *s, const json_t *tokenizer_config, struct llmq_err *err)
{
    struct llmq_str *out = &s->section[LLMQ_SECTION_CHAT_TEMPLATE];
    const json_t    *t = template_in(json_object_get(tokenizer_config, "chat_template"));
    json_t          *text;
    struct llmq_map  map;
    char             path[PATH_MAX];
    int              rc;

    if (!present(s, "chat_template.jinja"))
        return t ? llmq_str_append(out, json_string_value(t), json_string_length(t), err) : 0;
    if (take_file(s, "chat_template.jinja", &map, path, err))
        return err->code;
    text = json_stringn(map.data, map.size); /* NULL for what is not UTF-8 */
    rc = text ? llmq_str_append(out, map.data, map.size, err)
              : llmq_fail(err, LLMQ_EFORMAT, "%s: the chat template is not UTF-8", path);
    json_decref(text);
    llmq_map_close(&map);
    return rc;
}

/* Keys with a leading underscore are book-keeping; one of them is the path that a model was loaded from. */
static int take_generation(struct hfsource *s, const json_t *doc, struct llmq_err *err)
{
    struct llmq_str *out = &s->section[LLMQ_SECTION_GENERATION];
    json_t          *copy = doc ? json_copy((json_t *)(uintptr_t)doc) : json_object();
    const char      *key;
    json_t          *v;
    void            *next;
    int              rc;

    if (!copy)
        return llmq_fail(err, LLMQ_ENOMEM, "generation_config.json: no memory");
    json_object_foreach_safe(copy, next, key, v)
        if (key[0] == '_')
            json_object_del(copy, key);
    rc = llmq_json_text(copy, out, err);
    json_decref(copy);
    return rc;
}

/* ---- special tokens ------------------------------------------------------------------------------ */

struct token_lookup {
    const struct hfsource *s;
    const json_t          *added; /* tokenizer.json's added_tokens */
};

/* The id of a token by its text: added tokens first, then the vocabulary. */
static int32_t token_id(void *ctx, const char *text, size_t len)
{
    const struct token_lookup *l = ctx;
    const struct llmq_str     *v = &l->s->section[LLMQ_SECTION_VOCAB];
    size_t                     at = 4;

    for (size_t i = 0; i < json_array_size(l->added); i++) {
        const json_t *e = json_array_get(l->added, i), *c = json_object_get(e, "content");

        if (json_is_string(c) && json_string_length(c) == len && !memcmp(json_string_value(c), text, len))
            return (int32_t)json_integer_value(json_object_get(e, "id"));
    }
    for (int32_t id = 0; at + 4 <= v->len; id++) {
        const unsigned char *p = (const unsigned char *)v->data + at;
        uint32_t n = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;

        at += 4;
        if (n == UINT32_MAX)
            continue;
        if (n > v->len - at)
            break;
        if (n == len && !memcmp(v->data + at, text, len))
            return id;
        at += n;
    }
    return -1;
}

static int take_texts(struct hfsource *s, struct llmq_err *err)
{
    json_t *config = NULL, *generation = NULL, *tokenizer = NULL, *machine = NULL;
    char    path[PATH_MAX];
    int     rc;

    rc = path_of(s, "config.json", path, sizeof path, err);
    if (!rc)
        rc = take_json(s, "config.json", llmq_json_parse, &config, err);
    if (!rc && !config)
        rc = llmq_fail(err, LLMQ_EFORMAT, "%s: config.json is missing, expected a Hugging Face checkpoint's directory", s->dir);
    if (!rc)
        rc = hfconfig_hparams(config, path, &s->h, &s->family, err);
    if (!rc)
        rc = take_json(s, "generation_config.json", llmq_json_parse, &generation, err);
    if (!rc)
        rc = take_json(s, "tokenizer_config.json", llmq_json_parse_reals, &tokenizer, err);
    if (!rc)
        rc = take_tokenizer(s, &machine, err);
    if (!rc)
        rc = take_template(s, tokenizer, err);
    if (!rc)
        rc = take_generation(s, generation, err);
    if (!rc) {
        struct token_lookup  l = {s, json_object_get(machine, "added_tokens")};
        struct hfconfig_docs d = {generation, config, tokenizer, token_id, &l};

        if (hfconfig_special_tokens(&d, &s->h, err))
            rc = llmq_fail_within(err, "%s", s->dir);
    }
    json_decref(machine);
    json_decref(tokenizer);
    json_decref(generation);
    json_decref(config);
    return rc;
}

/* ---- the closed world ------------------------------------------------------------------------------ */

static int needed(const struct llmq_hparams *h, int role)
{
    int list[24], n = llmq_role_list(h, llmq_role_per_layer(role), list);

    for (int i = 0; i < n; i++)
        if (list[i] == role)
            return 1;
    return 0;
}

/* Are the bytes of two tensors of one size the same?  1, 0, or an error code. */
static int same_bytes(const struct safetensors *st, const struct safetensors_tensor *a, const struct safetensors_tensor *b,
                      struct llmq_err *err)
{
    char *buf;
    int   same = 1, rc = 0;

    if (LLMQ_NEW(&buf, 2 * (size_t)HASH_BUF, "a window", err))
        return err->code;
    for (uint64_t at = 0; !rc && same && at < a->bytes; at += HASH_BUF) {
        size_t n = a->bytes - at < HASH_BUF ? (size_t)(a->bytes - at) : HASH_BUF;

        rc = safetensors_read(st, a, at, buf, n, err);
        if (!rc)
            rc = safetensors_read(st, b, at, buf + HASH_BUF, n, err);
        same = !rc && !memcmp(buf, buf + HASH_BUF, n);
    }
    llmq_free(buf);
    return rc ? rc : same;
}

/* Tied models need no head of their own; one that equals the table is a second copy of it. */
static int check_tied_head(struct hfsource *s, const struct safetensors_tensor *head, struct llmq_err *err)
{
    char                             name[SAFETENSORS_MAX_NAME];
    const struct safetensors_tensor *table;
    int                              same = 0;

    table = safetensors_find(&s->st, arch_spell(s->family, LLMQ_ROLE_EMBED, 0, name, sizeof name));
    if (!table)
        return 0; /* the missing table is reported in its place */
    if (table->dtype == head->dtype && table->bytes == head->bytes)
        same = same_bytes(&s->st, head, table, err);
    if (same)
        return same < 0 ? same : 0;
    return llmq_fail(err, LLMQ_EFORMAT, "%s: tensor %s differs from %s, but config.json ties them (tie_word_embeddings)",
                     s->st.shards[head->shard].path, head->name, name);
}

/* One tensor of the checkpoint: placed, harmless, or refused by name. */
static int check_place(struct hfsource *s, const struct safetensors_tensor *t, struct llmq_err *err)
{
    char shape[128];
    int  role, layer;

    if (arch_role(s->family, t->name, &role, &layer)) {
        if (arch_harmless(s->family, t->name))
            return 0;
        return llmq_fail(err, LLMQ_EFORMAT, "%s: tensor %s (%s %s) has no place in a model of type \"%s\"",
                         s->st.shards[t->shard].path, t->name, t->type, safetensors_shape(t, shape, sizeof shape),
                         s->family->model_type);
    }
    if (layer != LLMQ_NO_LAYER && (uint32_t)layer >= s->h.n_layers)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: tensor %s is of layer %d, but num_hidden_layers in config.json is %u",
                         s->st.shards[t->shard].path, t->name, layer, s->h.n_layers);
    if (role == LLMQ_ROLE_LM_HEAD && s->h.tied)
        return check_tied_head(s, t, err);
    if (!needed(&s->h, role))
        return llmq_fail(err, LLMQ_EFORMAT, "%s: tensor %s is there, but config.json states no such bias",
                         s->st.shards[t->shard].path, t->name);
    return 0;
}

static int check_shape(struct hfsource *s, const struct safetensors_tensor *t, uint32_t n, uint32_t k,
                       struct llmq_err *err)
{
    char shape[128];
    int  ok = k == 1 && t->rank == 1 ? t->shape[0] == n : t->rank == 2 && t->shape[0] == n && t->shape[1] == k;

    if (!ok && k == 1)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: tensor %s has shape %s, expected [%u] by config.json",
                         s->st.shards[t->shard].path, t->name, safetensors_shape(t, shape, sizeof shape), n);
    if (!ok)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: tensor %s has shape %s, expected [%u, %u] by config.json",
                         s->st.shards[t->shard].path, t->name, safetensors_shape(t, shape, sizeof shape), n, k);
    if (t->dtype == LLMQ_DTYPE_NONE)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: tensor %s has element type %s, expected F32, F16 or BF16",
                         s->st.shards[t->shard].path, t->name, t->type);
    return 0;
}

/* The next entry of the destination: its tensor is found and checked. */
static int bind_role(struct hfsource *s, int role, int layer, struct llmq_err *err)
{
    struct llmq_tensor              *d = &s->tensors[s->base.n_tensors];
    const struct safetensors_tensor *t;
    char                             name[SAFETENSORS_MAX_NAME];

    t = safetensors_find(&s->st, arch_spell(s->family, role, layer, name, sizeof name));
    if (!t)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: tensor %s is missing%s", s->dir, name,
                         role == LLMQ_ROLE_LM_HEAD ? "; config.json does not say \"tie_word_embeddings\": true" : "");
    if (llmq_role_shape(&s->h, role, &d->n, &d->k))
        return llmq_fail(err, LLMQ_EFORMAT, "%s: role %d is not known", name, role);
    if (check_shape(s, t, d->n, d->k, err))
        return err->code;
    d->role = (uint16_t)role;
    d->layer = (uint16_t)layer;
    d->expert = LLMQ_NO_EXPERT;
    d->layout = LLMQ_LAYOUT_ROWS;
    d->scheme.kind = LLMQ_KIND_DENSE;
    d->scheme.dtype = (uint8_t)t->dtype;
    d->rel_err = -1;
    d->name = t->name;
    s->from[s->base.n_tensors++] = t;
    return llmq_tensor_sizes(d, err);
}

static int bind_all(struct hfsource *s, struct llmq_err *err)
{
    int    outer[24], inner[24];
    int    n_outer = llmq_role_list(&s->h, 0, outer), n_inner = llmq_role_list(&s->h, 1, inner);
    size_t total = (size_t)n_outer + (size_t)n_inner * s->h.n_layers;

    for (int i = 0; i < s->st.n_tensors; i++)
        if (check_place(s, &s->st.tensors[i], err))
            return err->code;
    if (LLMQ_ARENA_NEW(&s->arena, &s->tensors, total, "a tensor list", err) ||
        llmq_arena_alloc(&s->arena, (void **)&s->from, (size_t)total, sizeof(void *), "a tensor list", err))
        return err->code;
    for (int i = 0; i < n_outer; i++) {
        if (outer[i] == LLMQ_ROLE_FINAL_NORM)
            for (uint32_t l = 0; l < s->h.n_layers; l++)
                for (int j = 0; j < n_inner; j++)
                    if (bind_role(s, inner[j], (int)l, err))
                        return err->code;
        if (bind_role(s, outer[i], LLMQ_NO_LAYER, err))
            return err->code;
    }
    return 0;
}

/* ---- provenance -------------------------------------------------------------------------------- */

static int hash_begin(struct hfsource *s, struct llmq_err *err)
{
    struct llmq_map map;
    char            path[PATH_MAX];

    if (s->st.index_path) {
        if (take_file(s, "model.safetensors.index.json", &map, path, err))
            return err->code;
        llmq_map_close(&map);
    }
    if (LLMQ_ARENA_NEW(&s->arena, &s->shard, s->st.n_shards, "a file list", err) ||
        LLMQ_NEW(&s->hash_buf, HASH_BUF, "a window", err))
        return err->code;
    llmq_sha256_init(&s->hash);
    return 0;
}

static int hash_window(struct hfsource *s, uint64_t *n, struct llmq_err *err)
{
    const struct safetensors_shard *f = &s->st.shards[s->hash_shard];
    uint64_t                        left = f->size_bytes - s->hash_at;

    *n = left < HASH_BUF ? left : HASH_BUF;
    if (llmq_read_at(f->fd, s->hash_buf, (size_t)*n, s->hash_at, f->path, err))
        return err->code;
    llmq_sha256_update(&s->hash, s->hash_buf, (size_t)*n);
    s->hash_at += *n;
    if (s->hash_at == f->size_bytes) {
        struct source_file *out = &s->shard[s->hash_shard++];

        llmq_sha256_hex(&s->hash, out->sha256);
        out->name = f->name;
        out->size_bytes = f->size_bytes;
        llmq_sha256_init(&s->hash);
        s->hash_at = 0;
    }
    return 0;
}

static const char *files_json(struct llmq_source *base, struct llmq_err *err);

int hfsource_hash_some(struct llmq_source *base, uint64_t max_bytes, int *done, struct llmq_err *err)
{
    struct hfsource *s = base->impl;
    uint64_t         n;

    *done = base->files_json != files_json || s->hash_shard == s->st.n_shards;
    while (!*done && max_bytes) {
        if (hash_window(s, &n, err))
            return err->code;
        max_bytes -= n < max_bytes ? n : max_bytes;
        *done = s->hash_shard == s->st.n_shards;
    }
    return 0;
}

static int by_file_name(const void *a, const void *b)
{
    const struct source_file *const *x = a, *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

static int list_files(const struct hfsource *s, const struct source_file **list)
{
    int n = 0;

    for (int i = 0; i < s->n_small; i++)
        list[n++] = &s->small[i];
    for (int i = 0; i < s->st.n_shards; i++)
        list[n++] = &s->shard[i];
    qsort(list, (size_t)n, sizeof(void *), by_file_name);
    return n;
}

static const char *files_json(struct llmq_source *base, struct llmq_err *err)
{
    struct hfsource           *s = base->impl;
    const struct source_file **list;
    json_t                    *array;
    int                        done, n, rc = 0;

    if (s->files.len)
        return s->files.data;
    if (hfsource_hash_some(base, UINT64_MAX, &done, err) ||
        llmq_arena_alloc(&s->arena, (void **)&list, (size_t)MAX_SMALL + (size_t)s->st.n_shards, sizeof(void *), "a file list", err))
        return NULL;
    n = list_files(s, list);
    array = json_array();
    for (int i = 0; !rc && i < n; i++)
        rc = json_array_append_new(array, json_pack("{s:s, s:s, s:I}", "name", list[i]->name, "sha256", list[i]->sha256,
                                                    "size_bytes", (json_int_t)list[i]->size_bytes));
    rc = rc ? llmq_fail(err, LLMQ_ENOMEM, "the list of source files: no memory") : llmq_json_text(array, &s->files, err);
    json_decref(array);
    return rc ? NULL : s->files.data;
}

/* ---- the source ---------------------------------------------------------------------------------- */

static const char *source_section(struct llmq_source *base, int id, size_t *len)
{
    struct hfsource *s = base->impl;

    *len = 0;
    if (id < 0 || id >= N_SECTIONS)
        return "";
    *len = s->section[id].len;
    return s->section[id].data;
}

static int source_read(struct llmq_source *base, int index, uint32_t row, uint32_t rows, void *dst, struct llmq_err *err)
{
    struct hfsource          *s = base->impl;
    const struct llmq_tensor *t;
    size_t                    stride;

    if (index < 0 || index >= base->n_tensors || rows > s->tensors[index].n || row > s->tensors[index].n - rows)
        return llmq_fail(err, LLMQ_EUSAGE, "tensor %d has no rows %u to %llu", index, row, (unsigned long long)row + rows);
    t = &s->tensors[index];
    stride = (size_t)t->k * llmq_dtype_bytes(t->scheme.dtype);
    return safetensors_read(&s->st, s->from[index], (uint64_t)row * stride, dst, rows * stride, err);
}

static void source_close(struct llmq_source *base)
{
    struct hfsource *s = base->impl;

    for (int i = 0; i < N_SECTIONS; i++)
        llmq_str_fini(&s->section[i]);
    llmq_str_fini(&s->files);
    llmq_free(s->hash_buf);
    safetensors_close(&s->st);
    llmq_arena_free(&s->arena);
    llmq_free(s);
}

/* The directory's own name, whatever way it was spelled ("." too). */
static int name_source(struct hfsource *s, struct llmq_err *err)
{
    char real[PATH_MAX], *name;

    name = realpath(s->dir, real) ? basename(real) : real;
    s->base.name = name == real ? "model" : llmq_arena_str(&s->arena, name, strlen(name), err);
    return s->base.name ? 0 : err->code;
}

static int source_fill(struct hfsource *s, const char *dir, struct llmq_err *err)
{
    struct stat st;

    s->dir = llmq_arena_str(&s->arena, dir, strlen(dir), err);
    if (!s->dir)
        return err->code;
    if (stat(dir, &st) < 0)
        return llmq_fail_errno(err, "%s", dir);
    if (!S_ISDIR(st.st_mode))
        return llmq_fail(err, LLMQ_EFORMAT, "%s: %s; expected a Hugging Face checkpoint's directory", dir,
                         foreign_kind(dir) == FOREIGN_GGUF ? "a GGUF file, which is not converted yet" : "not a directory");
    if (name_source(s, err) || take_texts(s, err) || safetensors_open(&s->st, dir, err) || bind_all(s, err))
        return err->code;
    return hash_begin(s, err);
}

int convert_open(struct llmq_source **out, const char *dir, struct llmq_err *err)
{
    struct hfsource *s;

    *out = NULL;
    if (LLMQ_NEW(&s, 1, "a source", err))
        return err->code;
    for (int i = 0; i < N_SECTIONS; i++)
        llmq_str_init(&s->section[i], i == LLMQ_SECTION_CHAT_TEMPLATE ? MAX_TEMPLATE : MAX_TOKENIZER);
    llmq_str_init(&s->files, MAX_CONFIG);
    s->base.impl = s;
    s->base.section = source_section;
    s->base.read = source_read;
    s->base.close = source_close;
    s->base.files_json = files_json;
    if (source_fill(s, dir, err)) {
        source_close(&s->base);
        return err->code;
    }
    s->base.hparams = &s->h;
    s->base.tensors = s->tensors;
    *out = &s->base;
    return 0;
}

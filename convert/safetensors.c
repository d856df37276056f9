/* Safetensors: see safetensors.h.
 *
 * A file is eight bytes of header length N (little-endian), N bytes of JSON, and the data; the JSON maps each
 * name to {dtype, shape, data_offsets: [begin, end]}, relative to the end of the header.
 *
 * Rules held here, in this order: N within the file and at most 100 MB (as the reference reader); JSON without
 * duplicate keys; known element type; end - begin == elements x size; sorted ranges touching each other from 0
 * to the end of the file, so that nothing overlaps and nothing is hidden in a hole; with an index, its map
 * and the shards agree both ways and a shard's name is a plain file name. */
#include "convert/safetensors.h"

#include "common/ckd.h"
#include "common/io.h"
#include "common/json.h"
#include "format/format.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_HEADER = 100 * 1000 * 1000, MAX_INDEX = 100 * 1000 * 1000, MAX_SHARDS = 900 };

static const char INDEX_NAME[] = "model.safetensors.index.json", SINGLE_NAME[] = "model.safetensors";

/* ---- element types ------------------------------------------------------------------------- */

static const struct element {
    const char *name;
    int         bits, dtype;
} elements[] = {
    {"F32", 32, LLMQ_DTYPE_F32}, {"F16", 16, LLMQ_DTYPE_F16}, {"BF16", 16, LLMQ_DTYPE_BF16},
    {"F64", 64, 0},     {"I64", 64, 0},     {"U64", 64, 0},     {"C64", 64, 0},     {"I32", 32, 0},    {"U32", 32, 0},
    {"I16", 16, 0},     {"U16", 16, 0},     {"I8", 8, 0},       {"U8", 8, 0},       {"BOOL", 8, 0},    {"F8_E4M3", 8, 0},
    {"F8_E5M2", 8, 0},  {"F8_E8M0", 8, 0},  {"F6_E2M3", 6, 0},  {"F6_E3M2", 6, 0},  {"F4", 4, 0},
};

static const struct element *element_find(const char *name)
{
    for (size_t i = 0; i < sizeof elements / sizeof elements[0]; i++)
        if (!strcmp(elements[i].name, name))
            return &elements[i];
    return NULL;
}

const char *safetensors_shape(const struct safetensors_tensor *t, char *out, size_t size)
{
    size_t at = 0;

    snprintf(out, size, "[]");
    for (int i = 0; i < t->rank && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%llu%s", i ? ", " : "[", (unsigned long long)t->shape[i],
                               i == t->rank - 1 ? "]" : "");
    return out;
}

/* ---- one header ---------------------------------------------------------------------------- */

static int parse_shape(struct safetensors_tensor *t, const json_t *shape, const char *where, struct llmq_err *err)
{
    if (!json_is_array(shape))
        return llmq_fail(err, LLMQ_EFORMAT, "%s: tensor %s: \"shape\" is missing or not an array", where, t->name);
    if (json_array_size(shape) > SAFETENSORS_MAX_RANK)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: tensor %s: %zu dimensions, at most %d are read", where, t->name,
                         json_array_size(shape), SAFETENSORS_MAX_RANK);
    t->rank = (int)json_array_size(shape);
    for (int i = 0; i < t->rank; i++) {
        const json_t *d = json_array_get(shape, (size_t)i);

        if (!json_is_integer(d) || json_integer_value(d) < 0)
            return llmq_fail(err, LLMQ_EFORMAT, "%s: tensor %s: dimension %d is not a whole number from 0 up", where,
                             t->name, i);
        t->shape[i] = (uint64_t)json_integer_value(d);
    }
    return 0;
}

/* Fills offset with the begin as the file states it (relative to the data) and bytes. */
static int parse_range(struct safetensors_tensor *t, const json_t *range, uint64_t data_bytes, const char *where,
                       struct llmq_err *err)
{
    const json_t *b = json_array_get(range, 0), *e = json_array_get(range, 1);
    json_int_t    begin, end;

    if (!json_is_array(range) || json_array_size(range) != 2 || !json_is_integer(b) || !json_is_integer(e))
        return llmq_fail(err, LLMQ_EFORMAT, "%s: tensor %s: \"data_offsets\" is not two integers", where, t->name);
    begin = json_integer_value(b);
    end = json_integer_value(e);
    if (begin < 0 || end < begin)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: tensor %s: data_offsets %lld to %lld, expected 0 <= begin <= end",
                         where, t->name, (long long)begin, (long long)end);
    if ((uint64_t)end > data_bytes)
        return llmq_fail(err, LLMQ_EFORMAT,
                         "%s: tensor %s ends at byte %lld of the data, but the file holds %llu: it is truncated", where,
                         t->name, (long long)end, (unsigned long long)data_bytes);
    t->offset = (uint64_t)begin;
    t->bytes = (uint64_t)(end - begin);
    return 0;
}

static int check_bytes(const struct safetensors_tensor *t, int bits, const char *where, struct llmq_err *err)
{
    uint64_t count = 1, total;
    char     shape[128];

    for (int i = 0; i < t->rank; i++)
        if (llmq_ckd_mul(&count, count, t->shape[i]))
            return llmq_fail(err, LLMQ_EFORMAT, "%s: tensor %s: shape %s is too large to exist", where, t->name,
                             safetensors_shape(t, shape, sizeof shape));
    if (llmq_ckd_mul(&total, count, (uint64_t)bits) || total % 8 != 0 || total / 8 != t->bytes)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: tensor %s: %llu bytes, expected %s of %s", where, t->name,
                         (unsigned long long)t->bytes, safetensors_shape(t, shape, sizeof shape), t->type);
    return 0;
}

static int parse_tensor(struct safetensors_tensor *t, const char *name, const json_t *entry, uint64_t data_bytes,
                        const char *where, struct llmq_arena *arena, struct llmq_err *err)
{
    const struct element *el;
    const char           *type = NULL;
    char                  at[SAFETENSORS_MAX_NAME + 300];

    if (!name[0] || strlen(name) > SAFETENSORS_MAX_NAME)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: a tensor's name has %zu bytes, expected 1 to %d", where, strlen(name),
                         SAFETENSORS_MAX_NAME);
    t->name = llmq_arena_str(arena, name, strlen(name), err);
    if (!t->name)
        return err->code;
    snprintf(at, sizeof at, "%.200s: tensor %s", where, name);
    if (!json_is_object(entry))
        return llmq_fail(err, LLMQ_EFORMAT, "%s: its entry is not an object", at);
    if (llmq_json_str(entry, "dtype", LLMQ_JSON_REQUIRED, &type, at, err))
        return err->code;
    el = element_find(type);
    if (!el)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: unknown element type \"%.32s\"", at, type);
    t->type = el->name;
    t->dtype = el->dtype;
    if (parse_shape(t, json_object_get(entry, "shape"), where, err) ||
        parse_range(t, json_object_get(entry, "data_offsets"), data_bytes, where, err))
        return err->code;
    return check_bytes(t, el->bits, where, err);
}

static int by_offset(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a, *y = b;

    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Sorts by offset and checks that the ranges tile the data. */
static int check_tiling(struct safetensors_tensor *t, int n, uint64_t data_bytes, const char *where,
                        struct llmq_err *err)
{
    uint64_t at = 0;

    qsort(t, (size_t)n, sizeof *t, by_offset);
    for (int i = 0; i < n; i++) {
        if (t[i].offset < at)
            return llmq_fail(err, LLMQ_EFORMAT, "%s: tensor %s begins at byte %llu of the data, inside tensor %s", where,
                             t[i].name, (unsigned long long)t[i].offset, t[i - 1].name);
        if (t[i].offset > at)
            return llmq_fail(err, LLMQ_EFORMAT, "%s: bytes %llu to %llu of the data, in front of tensor %s, belong to none",
                             where, (unsigned long long)at, (unsigned long long)t[i].offset, t[i].name);
        at += t[i].bytes;
    }
    if (at != data_bytes)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: the tensors end at byte %llu of the data, the file at %llu", where,
                         (unsigned long long)at, (unsigned long long)data_bytes);
    return 0;
}

static int check_metadata(const json_t *meta, const char *where, struct llmq_err *err)
{
    const char *key;
    json_t     *v;

    if (!json_is_object(meta))
        return llmq_fail(err, LLMQ_EFORMAT, "%s: \"__metadata__\" is not an object", where);
    json_object_foreach((json_t *)(uintptr_t)meta, key, v)
        if (!json_is_string(v))
            return llmq_fail(err, LLMQ_EFORMAT, "%s: \"__metadata__\": the value of \"%.64s\" is not a string", where, key);
    return 0;
}

static int parse_entries(json_t *root, uint64_t data_bytes, const char *where, struct llmq_arena *arena,
                         struct safetensors_tensor *t, int *n_tensors, struct llmq_err *err)
{
    const char *key;
    json_t     *entry;
    int         n = 0;

    json_object_foreach(root, key, entry) {
        if (!strcmp(key, "__metadata__")) {
            if (check_metadata(entry, where, err))
                return err->code;
            continue;
        }
        if (parse_tensor(&t[n], key, entry, data_bytes, where, arena, err))
            return err->code;
        n++;
    }
    *n_tensors = n;
    return check_tiling(t, n, data_bytes, where, err);
}

int safetensors_parse(const char *json, size_t len, uint64_t file_bytes, const char *where, int shard,
                      struct llmq_arena *arena, struct safetensors_tensor **tensors, int *n_tensors,
                      struct llmq_err *err)
{
    json_t  *root = NULL;
    uint64_t data_start, data_bytes;
    int      rc;

    *tensors = NULL;
    *n_tensors = 0;
    if (llmq_ckd_add(&data_start, (uint64_t)len, 8u) || llmq_ckd_sub(&data_bytes, file_bytes, data_start))
        return llmq_fail(err, LLMQ_EFORMAT, "%s: a header of %zu bytes, but the file has %llu", where, len,
                         (unsigned long long)file_bytes);
    rc = llmq_json_parse(&root, json, len, MAX_HEADER, where, err);
    if (rc)
        return rc;
    if (!json_is_object(root))
        rc = llmq_fail(err, LLMQ_EFORMAT, "%s: the header is not a JSON object", where);
    else
        rc = LLMQ_ARENA_NEW(arena, tensors, json_object_size(root), "a tensor list", err);
    if (!rc)
        rc = parse_entries(root, data_bytes, where, arena, *tensors, n_tensors, err);
    json_decref(root);
    for (int i = 0; !rc && i < *n_tensors; i++) {
        (*tensors)[i].shard = shard;
        (*tensors)[i].offset += data_start;
    }
    return rc;
}

/* ---- files --------------------------------------------------------------------------------- */

static char *join(struct llmq_arena *arena, const char *dir, const char *name, struct llmq_err *err)
{
    size_t ld = strlen(dir), ln = strlen(name);
    char  *p;

    while (ld > 1 && dir[ld - 1] == '/')
        ld--;
    if (LLMQ_ARENA_NEW(arena, &p, ld + ln + 2, "a path", err))
        return NULL;
    memcpy(p, dir, ld);
    p[ld] = '/';
    memcpy(p + ld + 1, name, ln);
    return p;
}

static int shard_open(struct safetensors_shard *s, struct llmq_err *err)
{
    struct stat st;

    s->fd = open(s->path, O_RDONLY | O_CLOEXEC);
    if (s->fd < 0 && errno == ENOENT)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: the shard is missing", s->path);
    if (s->fd < 0)
        return llmq_fail_errno(err, "%s: cannot open", s->path);
    if (fstat(s->fd, &st) < 0)
        return llmq_fail_errno(err, "%s: cannot stat", s->path);
    if (!S_ISREG(st.st_mode))
        return llmq_fail(err, LLMQ_EFORMAT, "%s: not a regular file", s->path);
    s->size_bytes = (uint64_t)st.st_size;
    (void)posix_fadvise(s->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    return 0;
}

/* The header's JSON, in memory of its own. */
static int read_header(const struct safetensors_shard *s, char **json, size_t *n, struct llmq_err *err)
{
    unsigned char head[8];
    uint64_t      len = 0;

    *json = NULL;
    *n = 0;
    if (s->size_bytes < 8)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: %llu bytes, too short for a safetensors file", s->path,
                         (unsigned long long)s->size_bytes);
    if (llmq_read_at(s->fd, head, 8, 0, s->path, err))
        return err->code;
    for (int i = 7; i >= 0; i--)
        len = len << 8 | head[i];
    if (len > s->size_bytes - 8 || len > MAX_HEADER)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: a header of %llu bytes, expected at most %llu", s->path,
                         (unsigned long long)len,
                         (unsigned long long)(s->size_bytes - 8 < MAX_HEADER ? s->size_bytes - 8 : MAX_HEADER));
    *n = (size_t)len;
    if (LLMQ_NEW(json, len, "a safetensors header", err))
        return err->code;
    if (llmq_read_at(s->fd, *json, *n, 8, s->path, err)) {
        llmq_free(*json);
        *json = NULL;
    }
    return err->code;
}

/* Opens a shard and parses its header. */
static int shard_load(struct safetensors *st, int shard, struct safetensors_tensor **t, int *n, struct llmq_err *err)
{
    struct safetensors_shard *s = &st->shards[shard];
    char                     *json;
    size_t                    len;
    int                       rc = shard_open(s, err);

    if (!rc)
        rc = read_header(s, &json, &len, err);
    if (rc)
        return rc;
    rc = safetensors_parse(json, len, s->size_bytes, s->path, shard, &st->arena, t, n, err);
    llmq_free(json);
    return rc;
}

int safetensors_read(const struct safetensors *st, const struct safetensors_tensor *t, uint64_t offset, void *dst,
                     size_t len, struct llmq_err *err)
{
    const struct safetensors_shard *s = &st->shards[t->shard];

    return llmq_read_at(s->fd, dst, len, t->offset + offset, s->path, err);
}

/* ---- shards and index ---------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a, *y = b;
    int                              c = strcmp(x->name, y->name);

    return c ? c : (x->shard > y->shard) - (x->shard < y->shard);
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *st, const char *name)
{
    struct safetensors_tensor key = {.name = name};
    int                       lo = 0, hi = st->n_tensors;

    while (lo < hi) {
        int mid = lo + (hi - lo) / 2, c = strcmp(st->tensors[mid].name, key.name);

        if (!c)
            return &st->tensors[mid];
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

static int shard_index(const struct safetensors *st, const char *name)
{
    for (int i = 0; i < st->n_shards; i++)
        if (!strcmp(st->shards[i].name, name))
            return i;
    return -1;
}

static int add_shard(struct safetensors *st, const char *dir, const char *name, struct llmq_err *err)
{
    struct safetensors_shard *s = &st->shards[st->n_shards];

    s->fd = -1;
    s->name = llmq_arena_str(&st->arena, name, strlen(name), err);
    s->path = s->name ? join(&st->arena, dir, name, err) : NULL;
    if (!s->path)
        return err->code;
    st->n_shards++;
    return 0;
}

static int by_shard_name(const void *a, const void *b)
{
    const struct safetensors_shard *x = a, *y = b;

    return strcmp(x->name, y->name);
}

/* The shards that the map names, sorted, so that nothing depends on the order inside the JSON. */
static int shards_of_map(struct safetensors *st, const char *dir, json_t *map, struct llmq_err *err)
{
    const char *key;
    json_t     *v;

    json_object_foreach(map, key, v) {
        const char *name = json_string_value(v);

        if (!name)
            return llmq_fail(err, LLMQ_EFORMAT, "%s: weight_map: the shard of \"%.128s\" is not a string",
                             st->index_path, key);
        if (shard_index(st, name) >= 0)
            continue;
        if (!name[0] || strchr(name, '/') || name[0] == '.' || strlen(name) > 255)
            return llmq_fail(err, LLMQ_EFORMAT, "%s: weight_map: \"%.64s\" is not a plain file name", st->index_path, name);
        if (st->n_shards == MAX_SHARDS)
            return llmq_fail(err, LLMQ_EFORMAT, "%s: more than %d shards", st->index_path, MAX_SHARDS);
        if (add_shard(st, dir, name, err))
            return err->code;
    }
    qsort(st->shards, (size_t)st->n_shards, sizeof *st->shards, by_shard_name);
    return 0;
}

/* Index and shards must name the same tensors in the same files. */
static int check_map(const struct safetensors *st, json_t *map, struct llmq_err *err)
{
    const char *key;
    json_t     *v;

    for (int i = 0; i < st->n_tensors; i++) {
        const struct safetensors_tensor *t = &st->tensors[i];
        const char                      *in = st->shards[t->shard].name;

        v = json_object_get(map, t->name);
        if (!v)
            return llmq_fail(err, LLMQ_EFORMAT, "%s: tensor %s of shard %s is not in weight_map", st->index_path,
                             t->name, in);
        if (strcmp(json_string_value(v), in) != 0)
            return llmq_fail(err, LLMQ_EFORMAT, "%s: weight_map places tensor %s in %s, found in %s", st->index_path,
                             t->name, json_string_value(v), in);
    }
    json_object_foreach(map, key, v)
        if (!safetensors_find(st, key))
            return llmq_fail(err, LLMQ_EFORMAT, "%s: weight_map places tensor %.256s in %s, which does not hold it",
                             st->index_path, key, json_string_value(v));
    return 0;
}

/* All shards' headers into one sorted list. */
static int load_shards(struct safetensors *st, struct llmq_err *err)
{
    struct safetensors_tensor **part = NULL;
    int                        *count = NULL, total = 0, rc;

    rc = llmq_arena_alloc(&st->arena, (void **)&part, (size_t)st->n_shards, sizeof(void *), "a shard list", err);
    if (!rc)
        rc = LLMQ_ARENA_NEW(&st->arena, &count, st->n_shards, "a shard list", err);
    for (int i = 0; !rc && i < st->n_shards; i++) {
        rc = shard_load(st, i, &part[i], &count[i], err);
        if (!rc && llmq_ckd_add(&total, total, count[i]))
            rc = llmq_fail(err, LLMQ_EFORMAT, "%s: too many tensors", st->shards[i].path);
    }
    if (!rc)
        rc = LLMQ_ARENA_NEW(&st->arena, &st->tensors, total, "a tensor list", err);
    for (int i = 0; !rc && i < st->n_shards; i++) {
        memcpy(st->tensors + st->n_tensors, part[i], (size_t)count[i] * sizeof **part);
        st->n_tensors += count[i];
    }
    if (rc)
        return rc;
    qsort(st->tensors, (size_t)st->n_tensors, sizeof *st->tensors, by_name);
    for (int i = 1; i < st->n_tensors; i++)
        if (!strcmp(st->tensors[i].name, st->tensors[i - 1].name))
            return llmq_fail(err, LLMQ_EFORMAT, "tensor %s is in two shards: %s and %s", st->tensors[i].name,
                             st->shards[st->tensors[i - 1].shard].name, st->shards[st->tensors[i].shard].path);
    return 0;
}

static int open_indexed(struct safetensors *st, const char *dir, int single_too, struct llmq_err *err)
{
    json_t *root = NULL, *map;
    int     rc;

    rc = llmq_json_load(&root, st->index_path, MAX_INDEX, err);
    if (rc)
        return rc;
    map = json_object_get(root, "weight_map");
    if (!json_is_object(map) || !json_object_size(map))
        rc = llmq_fail(err, LLMQ_EFORMAT, "%s: key \"weight_map\" is missing, empty or not an object", st->index_path);
    else
        rc = LLMQ_ARENA_NEW(&st->arena, &st->shards, MAX_SHARDS, "a shard list", err);
    if (!rc)
        rc = shards_of_map(st, dir, map, err);
    /* Both spellings in one place: a leftover of one download, and no way to tell which is meant. */
    if (!rc && single_too && shard_index(st, SINGLE_NAME) < 0)
        rc = llmq_fail(err, LLMQ_EFORMAT, "%s: there is also a %s, which the index does not name; remove one of them",
                       st->index_path, SINGLE_NAME);
    if (!rc)
        rc = load_shards(st, err);
    if (!rc)
        rc = check_map(st, map, err);
    json_decref(root);
    return rc;
}

/* What is there instead, so that the message can say what to do. */
static int nothing_found(const char *dir, struct llmq_err *err)
{
    const char    *seen = "";
    struct dirent *e;
    DIR           *d = opendir(dir);

    if (!d)
        return llmq_fail_errno(err, "%s: cannot read the directory", dir);
    while ((e = readdir(d)))
        if (strstr(e->d_name, ".bin") || strstr(e->d_name, ".pth"))
            seen = "; PyTorch pickles are not read: save the model with safe_serialization";
        else if (strstr(e->d_name, ".safetensors"))
            seen = "; *.safetensors files of other names need an index";
    closedir(d);
    return llmq_fail(err, LLMQ_EFORMAT, "%s: neither %s nor %s is there%s", dir, SINGLE_NAME, INDEX_NAME, seen);
}

int safetensors_open(struct safetensors *st, const char *dir, struct llmq_err *err)
{
    char *index, *single;
    int   has_single;

    memset(st, 0, sizeof *st);
    index = join(&st->arena, dir, INDEX_NAME, err);
    single = index ? join(&st->arena, dir, SINGLE_NAME, err) : NULL;
    if (!single)
        return err->code;
    has_single = access(single, F_OK) == 0;
    if (access(index, F_OK) == 0) {
        st->index_path = index;
        return open_indexed(st, dir, has_single, err);
    }
    if (!has_single)
        return nothing_found(dir, err);
    if (LLMQ_ARENA_NEW(&st->arena, &st->shards, 1, "a shard list", err) || add_shard(st, dir, SINGLE_NAME, err))
        return err->code;
    return load_shards(st, err);
}

int safetensors_open_file(struct safetensors *st, const char *path, struct llmq_err *err)
{
    const char *slash = strrchr(path, '/');

    memset(st, 0, sizeof *st);
    if (LLMQ_ARENA_NEW(&st->arena, &st->shards, 1, "a shard list", err))
        return err->code;
    st->shards[0] = (struct safetensors_shard){.fd = -1, .name = slash ? slash + 1 : path,
                                               .path = llmq_arena_str(&st->arena, path, strlen(path), err)};
    if (!st->shards[0].path)
        return err->code;
    st->n_shards = 1;
    return load_shards(st, err);
}

int safetensors_metadata(const struct safetensors *st, int shard, json_t **out, struct llmq_err *err)
{
    const struct safetensors_shard *s = &st->shards[shard];
    json_t                         *header = NULL;
    char                           *json;
    size_t                          len;

    *out = NULL;
    if (read_header(s, &json, &len, err))
        return err->code;
    if (!llmq_json_parse(&header, json, len, MAX_HEADER, s->path, err)) {
        json_t *found = json_object_get(header, "__metadata__");

        *out = found ? json_incref(found) : json_object();
        if (!*out)
            (void)!llmq_fail(err, LLMQ_ENOMEM, "%s: no memory for its metadata", s->path);
    }
    json_decref(header);
    llmq_free(json);
    return err->code;
}

void safetensors_close(struct safetensors *st)
{
    for (int i = 0; i < st->n_shards; i++)
        if (st->shards[i].fd >= 0)
            close(st->shards[i].fd);
    llmq_arena_free(&st->arena);
    memset(st, 0, sizeof *st);
    st->n_shards = 0;
}

/* Model files of other kinds as JSON: see foreign.h. */
#include "convert/foreign.h"

#include "convert/gguf.h"
#include "convert/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { SHORT_ARRAY = 16 };

enum foreign_kind foreign_kind(const char *path)
{
    unsigned char head[9] = {0};
    struct stat   st;
    FILE         *f = stat(path, &st) == 0 && S_ISREG(st.st_mode) ? fopen(path, "rb") : NULL;
    size_t        n = f ? fread(head, 1, sizeof head, f) : 0;

    if (f)
        fclose(f);
    if (n >= 4 && !memcmp(head, "GGUF", 4))
        return FOREIGN_GGUF;
    /* eight bytes of the header's length, and its first: no header has 4 GiB */
    return n == 9 && head[8] == '{' && !head[4] && !head[5] && !head[6] && !head[7] ? FOREIGN_SAFETENSORS : FOREIGN_NONE;
}

/* ---- what both have ---------------------------------------------------------------------------------------- */

struct listing {
    json_t  *tensors, *schemes;
    uint64_t weights, bytes;
    int      unknown; /* a type whose size is not known */
};

static json_t *size_json(uint64_t n) { return json_integer(n <= INT64_MAX ? (json_int_t)n : INT64_MAX); }

static void add_to(json_t *object, const char *key, uint64_t n)
{
    json_object_set_new(object, key, size_json((uint64_t)json_integer_value(json_object_get(object, key)) + n));
}

static json_t *scheme_entry(struct listing *l, const char *scheme)
{
    size_t  i;
    json_t *s;

    json_array_foreach(l->schemes, i, s) {
        if (!strcmp(json_string_value(json_object_get(s, "scheme")), scheme))
            return s;
    }
    s = json_pack("{s:s, s:i, s:i, s:i}", "scheme", scheme, "tensors", 0, "weights", 0, "bytes", 0);
    return json_array_append_new(l->schemes, s) ? NULL : s;
}

/* Takes shape over. */
static int add_tensor(struct listing *l, const char *name, size_t len, const char *scheme, json_t *shape, uint64_t weights, uint64_t offset,
                      uint64_t bytes, int known)
{
    json_t *s = scheme_entry(l, scheme);
    json_t *t = json_pack("{s:s%, s:s, s:o, s:o, s:o}", "name", name, len, "scheme", scheme, "shape", shape, "offset", size_json(offset), "bytes",
                          known ? size_json(bytes) : json_null());

    l->weights += weights;
    l->bytes += bytes;
    l->unknown |= !known;
    if (!s || !t || json_array_append_new(l->tensors, t))
        return -1;
    add_to(s, "tensors", 1);
    add_to(s, "weights", weights);
    if (known)
        add_to(s, "bytes", bytes);
    else
        json_object_set_new(s, "bytes", json_null());
    return 0;
}

static int finish(struct listing *l, const char *kind, json_t *version, uint64_t file_bytes, json_t *metadata, json_t **out, struct llmq_err *err)
{
    double bits = l->weights ? 8.0 * (double)l->bytes / (double)l->weights : 0;

    *out = json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "kind", kind, "format_version", version, "file_bytes", size_json(file_bytes),
                     "weights", size_json(l->weights), "bits_per_weight", l->unknown ? json_null() : json_real(bits), "metadata", metadata, "schemes",
                     l->schemes, "tensors", l->tensors);
    l->schemes = l->tensors = NULL;
    return *out ? 0 : llmq_fail(err, LLMQ_ENOMEM, "out of memory for a listing");
}

static void drop(struct listing *l)
{
    json_decref(l->tensors);
    json_decref(l->schemes);
}

/* ---- safetensors -------------------------------------------------------------------------------------------- */

static int list_safetensors(const struct safetensors *st, struct listing *l)
{
    for (int i = 0; i < st->n_tensors; i++) {
        const struct safetensors_tensor *t = &st->tensors[i];
        json_t                          *shape = json_array();
        uint64_t                         weights = 1;

        for (int k = 0; k < t->rank; k++) {
            json_array_append_new(shape, size_json(t->shape[k]));
            weights *= t->shape[k];
        }
        if (add_tensor(l, t->name, strlen(t->name), t->type, shape, weights, t->offset, t->bytes, 1))
            return -1;
    }
    return 0;
}

static int describe_safetensors(const char *path, struct listing *l, json_t **out, struct llmq_err *err)
{
    struct safetensors st;
    json_t            *metadata;

    if (!safetensors_open_file(&st, path, err) && !safetensors_metadata(&st, 0, &metadata, err)) {
        if (list_safetensors(&st, l)) {
            json_decref(metadata);
            (void)!llmq_fail(err, LLMQ_ENOMEM, "%s: no memory for its listing", path);
        } else {
            (void)!finish(l, "safetensors", json_null(), st.shards[0].size_bytes, metadata, out, err);
        }
    }
    safetensors_close(&st);
    return err->code;
}

/* ---- GGUF --------------------------------------------------------------------------------------------------- */

static json_t *value_json(const struct gguf_value *v);

static json_t *array_json(const struct gguf_value *v)
{
    const unsigned char *at = v->array.at;
    struct gguf_value    element;
    json_t              *list;

    if (v->array.n > SHORT_ARRAY)
        return json_pack("{s:s, s:o}", "array", gguf_type_name(v->array.type), "length", size_json(v->array.n));
    list = json_array();
    for (uint64_t i = 0; i < v->array.n; i++) {
        gguf_element(v, &at, &element);
        json_array_append_new(list, value_json(&element));
    }
    return list;
}

static json_t *value_json(const struct gguf_value *v)
{
    switch (v->type) {
    case GGUF_I8:
    case GGUF_I16:
    case GGUF_I32:
    case GGUF_I64: return json_integer(v->i);
    case GGUF_F32:
    case GGUF_F64: return isfinite(v->f) ? json_real(v->f) : json_null();
    case GGUF_BOOL: return json_boolean(v->u);
    case GGUF_STRING: return json_stringn(v->text.p, v->text.n);
    case GGUF_ARRAY: return array_json(v);
    default: return size_json(v->u);
    }
}

static json_t *pairs_json(const struct gguf *g)
{
    json_t *object = json_object();

    for (size_t i = 0; i < g->n_pairs; i++)
        if (json_object_setn_new(object, g->pairs[i].key.p, g->pairs[i].key.n, value_json(&g->pairs[i].value))) {
            json_decref(object);
            return NULL;
        }
    return object;
}

static int list_gguf(const struct gguf *g, struct listing *l)
{
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        const char               *type = gguf_tensor_type_name(t->type);
        json_t                   *shape = json_array();
        char                      other[24];

        for (int k = t->rank; k-- > 0;)
            json_array_append_new(shape, size_json(t->shape[k]));
        snprintf(other, sizeof other, "type %u", t->type);
        if (add_tensor(l, t->name.p, t->name.n, type ? type : other, shape, t->weights, t->offset, t->bytes, type != NULL))
            return -1;
    }
    return 0;
}

static int describe_gguf(const char *path, struct listing *l, json_t **out, struct llmq_err *err)
{
    struct gguf g;

    if (!gguf_open(&g, path, err)) {
        json_t *metadata = pairs_json(&g);

        if (!metadata || list_gguf(&g, l)) {
            json_decref(metadata);
            (void)!llmq_fail(err, LLMQ_ENOMEM, "%s: no memory for its listing", path);
        } else {
            (void)!finish(l, "gguf", json_integer(g.version), g.map.size, metadata, out, err);
        }
    }
    gguf_close(&g);
    return err->code;
}

int foreign_describe(const char *path, json_t **out, struct llmq_err *err)
{
    struct listing l = {.tensors = json_array(), .schemes = json_array()};
    int            rc;

    *out = NULL;
    switch (foreign_kind(path)) {
    case FOREIGN_GGUF: rc = describe_gguf(path, &l, out, err); break;
    case FOREIGN_SAFETENSORS: rc = describe_safetensors(path, &l, out, err); break;
    default: rc = llmq_fail(err, LLMQ_EFORMAT, "%s: neither a safetensors nor a GGUF file", path);
    }
    drop(&l);
    return rc;
}

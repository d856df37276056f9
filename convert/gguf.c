/* GGUF headers: see gguf.h. */
#include "convert/gguf.h"

#include "common/ckd.h"
#include "common/utf8.h"

#include <stdlib.h>
#include <string.h>

enum { HEADER_BYTES = 24, MIN_PAIR = 8 + 4 + 1, MIN_TENSOR = 8 + 4 + 4 + 8, MAX_TEXT = 1 << 30, DEFAULT_ALIGNMENT = 32 };

/* ---- types ------------------------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    int         bytes; /* 0: of no fixed size */
} value_types[GGUF_N_TYPES] = {{"u8", 1},   {"i8", 1},     {"u16", 2},   {"i16", 2}, {"u32", 4}, {"i32", 4}, {"f32", 4},
                               {"bool", 1}, {"string", 0}, {"array", 0}, {"u64", 8}, {"i64", 8}, {"f64", 8}};

/* ggml's numbers: weights in a block, and its bytes. */
static const struct {
    uint32_t    type;
    const char *name;
    int         block, bytes;
} tensor_types[] = {
    {0, "F32", 1, 4},        {1, "F16", 1, 2},        {2, "Q4_0", 32, 18},     {3, "Q4_1", 32, 20},     {6, "Q5_0", 32, 22},
    {7, "Q5_1", 32, 24},     {8, "Q8_0", 32, 34},     {9, "Q8_1", 32, 36},     {10, "Q2_K", 256, 84},   {11, "Q3_K", 256, 110},
    {12, "Q4_K", 256, 144},  {13, "Q5_K", 256, 176},  {14, "Q6_K", 256, 210},  {15, "Q8_K", 256, 292},  {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74}, {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50}, {20, "IQ4_NL", 32, 18},  {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},  {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},       {25, "I16", 1, 2},       {26, "I32", 1, 4},
    {27, "I64", 1, 8},       {28, "F64", 1, 8},       {29, "IQ1_M", 256, 56},  {30, "BF16", 1, 2},      {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},  {39, "MXFP4", 32, 17},
};
enum { N_TENSOR_TYPES = sizeof tensor_types / sizeof tensor_types[0] };

const char *gguf_type_name(int type) { return type >= 0 && type < GGUF_N_TYPES ? value_types[type].name : "?"; }

static int find_type(uint32_t type)
{
    int i = 0;

    while (i < N_TENSOR_TYPES && tensor_types[i].type != type)
        i++;
    return i;
}

const char *gguf_tensor_type_name(uint32_t type)
{
    int i = find_type(type);

    return i < N_TENSOR_TYPES ? tensor_types[i].name : NULL;
}

/* ---- bytes ------------------------------------------------------------------------------------------------ */

struct cursor {
    const unsigned char *begin, *at, *end;
    const char          *where;
};

static size_t left(const struct cursor *c) { return (size_t)(c->end - c->at); }

static int ends_early(const struct cursor *c, const char *what, struct llmq_err *err)
{
    return llmq_fail(err, LLMQ_EFORMAT, "%s: the GGUF file ends at byte %zu, inside %s", c->where, (size_t)(c->end - c->begin), what);
}

static uint64_t little(const unsigned char *p, int n)
{
    uint64_t v = 0;

    for (int i = n; i-- > 0;)
        v = v << 8 | p[i];
    return v;
}

static int get_uint(struct cursor *c, int bytes, const char *what, uint64_t *out, struct llmq_err *err)
{
    *out = 0;
    if (left(c) < (size_t)bytes)
        return ends_early(c, what, err);
    *out = little(c->at, bytes);
    c->at += bytes;
    return 0;
}

static int get_text(struct cursor *c, const char *what, struct gguf_text *out, struct llmq_err *err)
{
    uint64_t n;
    size_t   bad;

    if (get_uint(c, 8, what, &n, err))
        return err->code;
    if (n > left(c) || n > MAX_TEXT)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: %s at byte %zu states %llu bytes, and %zu are left", c->where, what, (size_t)(c->at - c->begin) - 8,
                         (unsigned long long)n, left(c));
    *out = (struct gguf_text){(const char *)c->at, (size_t)n};
    bad = utf8_check(out->p, out->n);
    if (bad != out->n)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: %s at byte %zu is not UTF-8", c->where, what, (size_t)(c->at - c->begin) + bad);
    c->at += n;
    return 0;
}

/* Names are printed: no control characters. */
static int get_name(struct cursor *c, const char *what, struct gguf_text *out, struct llmq_err *err)
{
    if (get_text(c, what, out, err))
        return err->code;
    for (size_t i = 0; i < out->n; i++)
        if ((unsigned char)out->p[i] < ' ' || out->p[i] == 0x7f)
            return llmq_fail(err, LLMQ_EFORMAT, "%s: %s before byte %zu holds the control character 0x%02x", c->where, what,
                             (size_t)(c->at - c->begin), (unsigned char)out->p[i]);
    return out->n ? 0 : llmq_fail(err, LLMQ_EFORMAT, "%s: %s before byte %zu is empty", c->where, what, (size_t)(c->at - c->begin));
}

/* ---- metadata --------------------------------------------------------------------------------------------- */

static void scalar(const unsigned char *p, int type, struct gguf_value *out)
{
    int      bytes = value_types[type].bytes, shift = 64 - 8 * bytes;
    uint64_t u = little(p, bytes);
    uint32_t low = (uint32_t)u;
    float    f;

    out->type = type;
    switch (type) {
    case GGUF_I8:
    case GGUF_I16:
    case GGUF_I32:
    case GGUF_I64: out->i = (int64_t)(u << shift) >> shift; break;
    case GGUF_F32:
        memcpy(&f, &low, sizeof f);
        out->f = (double)f;
        break;
    case GGUF_F64: memcpy(&out->f, &u, sizeof u); break;
    default: out->u = type == GGUF_BOOL ? u != 0 : u;
    }
}

static int get_array(struct cursor *c, struct gguf_value *v, struct llmq_err *err)
{
    struct gguf_text text;
    uint64_t         type, n, bytes;

    if (get_uint(c, 4, "an array's type", &type, err) || get_uint(c, 8, "an array's length", &n, err))
        return err->code;
    if (type >= GGUF_N_TYPES || type == GGUF_ARRAY)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: an array of type %llu before byte %zu, which is not supported", c->where, (unsigned long long)type,
                         (size_t)(c->at - c->begin));
    v->array.type = (int)type;
    v->array.n = n;
    v->array.at = c->at;
    if (type == GGUF_STRING) {
        while (n--)
            if (get_text(c, "a string in an array", &text, err))
                return err->code;
        return 0;
    }
    if (llmq_ckd_mul(&bytes, n, (uint64_t)value_types[type].bytes) || bytes > left(c))
        return llmq_fail(err, LLMQ_EFORMAT, "%s: an array of %llu %s before byte %zu, and %zu bytes are left", c->where, (unsigned long long)n,
                         gguf_type_name((int)type), (size_t)(c->at - c->begin), left(c));
    c->at += bytes;
    return 0;
}

static int get_value(struct cursor *c, struct gguf_value *v, struct llmq_err *err)
{
    uint64_t type;

    if (get_uint(c, 4, "a value's type", &type, err))
        return err->code;
    if (type >= GGUF_N_TYPES)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: a value of type %llu before byte %zu, expected 0 to %d", c->where, (unsigned long long)type,
                         (size_t)(c->at - c->begin), GGUF_N_TYPES - 1);
    v->type = (int)type;
    if (type == GGUF_STRING)
        return get_text(c, "a string", &v->text, err);
    if (type == GGUF_ARRAY)
        return get_array(c, v, err);
    if (left(c) < (size_t)value_types[type].bytes)
        return ends_early(c, "a value", err);
    scalar(c->at, (int)type, v);
    c->at += value_types[type].bytes;
    return 0;
}

void gguf_element(const struct gguf_value *array, const unsigned char **at, struct gguf_value *out)
{
    if (array->array.type != GGUF_STRING) {
        scalar(*at, array->array.type, out);
        *at += value_types[array->array.type].bytes;
        return;
    }
    out->type = GGUF_STRING;
    out->text = (struct gguf_text){(const char *)*at + 8, (size_t)little(*at, 8)};
    *at += 8 + out->text.n;
}

static int is_key(const struct gguf_text *t, const char *key) { return t->n == strlen(key) && !memcmp(t->p, key, t->n); }

static int get_pairs(struct gguf *g, struct cursor *c, size_t n, struct llmq_err *err)
{
    if (LLMQ_ARENA_NEW(&g->arena, &g->pairs, n + 1, "metadata", err))
        return err->code;
    for (size_t i = 0; i < n; i++) {
        struct gguf_pair *p = &g->pairs[i];

        if (get_name(c, "a key", &p->key, err) || get_value(c, &p->value, err))
            return err->code;
        g->n_pairs++;
        if (!is_key(&p->key, "general.alignment"))
            continue;
        if (p->value.type != GGUF_U32 || p->value.u < 1 || p->value.u > 1 << 20 || (p->value.u & (p->value.u - 1)))
            return llmq_fail(err, LLMQ_EFORMAT, "%s: general.alignment is no power of two from 1 to 1048576", c->where);
        g->alignment = (uint32_t)p->value.u;
    }
    return 0;
}

/* ---- tensors ---------------------------------------------------------------------------------------------- */

static int fail_tensor(const struct cursor *c, const struct gguf_tensor *t, const char *what, uint64_t found, struct llmq_err *err)
{
    return llmq_fail(err, LLMQ_EFORMAT, "%s: tensor %.*s: %s %llu", c->where, t->name.n < 200 ? (int)t->name.n : 200, t->name.p, what,
                     (unsigned long long)found);
}

static int count_bytes(const struct cursor *c, struct gguf_tensor *t, struct llmq_err *err)
{
    int i = find_type(t->type);

    if (i == N_TENSOR_TYPES)
        return 0;
    if (t->shape[0] % (uint64_t)tensor_types[i].block)
        return fail_tensor(c, t, "blocks that do not fill rows of", t->shape[0], err);
    if (llmq_ckd_mul(&t->bytes, t->weights / (uint64_t)tensor_types[i].block, (uint64_t)tensor_types[i].bytes))
        return fail_tensor(c, t, "too many weights:", t->weights, err);
    return 0;
}

static int get_tensor(struct cursor *c, struct gguf_tensor *t, struct llmq_err *err)
{
    uint64_t rank, type;

    if (get_name(c, "a tensor's name", &t->name, err) || get_uint(c, 4, "a tensor's rank", &rank, err))
        return err->code;
    if (rank < 1 || rank > GGUF_MAX_RANK)
        return fail_tensor(c, t, "expected 1 to 4 dimensions, found", rank, err);
    t->rank = (int)rank;
    t->weights = 1;
    for (int i = 0; i < t->rank; i++) {
        if (get_uint(c, 8, "a tensor's shape", &t->shape[i], err))
            return err->code;
        if (!t->shape[i] || llmq_ckd_mul(&t->weights, t->weights, t->shape[i]) || t->weights > INT64_MAX)
            return fail_tensor(c, t, "no shape with a dimension of", t->shape[i], err);
    }
    if (get_uint(c, 4, "a tensor's type", &type, err) || get_uint(c, 8, "a tensor's offset", &t->offset, err))
        return err->code;
    t->type = (uint32_t)type;
    return count_bytes(c, t, err);
}

static int get_tensors(struct gguf *g, struct cursor *c, size_t n, struct llmq_err *err)
{
    if (LLMQ_ARENA_NEW(&g->arena, &g->tensors, n + 1, "a tensor list", err))
        return err->code;
    for (size_t i = 0; i < n; i++) {
        if (get_tensor(c, &g->tensors[i], err))
            return err->code;
        g->n_tensors++;
    }
    return 0;
}

/* ---- nothing twice ------------------------------------------------------------------------------------------- */

static int by_text(const void *a, const void *b)
{
    const struct gguf_text *x = *(const struct gguf_text *const *)a, *y = *(const struct gguf_text *const *)b;
    int                     c = memcmp(x->p, y->p, x->n < y->n ? x->n : y->n);

    return c ? c : (x->n > y->n) - (x->n < y->n);
}

/* Names stand `stride` bytes apart. */
static int no_name_twice(struct gguf *g, const struct gguf_text *first, size_t stride, size_t n, const char *what, const char *where,
                         struct llmq_err *err)
{
    const struct gguf_text **order;

    if (llmq_arena_alloc(&g->arena, (void **)&order, n + 1, sizeof(void *), "a list of names", err))
        return err->code;
    for (size_t i = 0; i < n; i++)
        order[i] = (const struct gguf_text *)(const void *)((const char *)first + i * stride);
    qsort((void *)order, n, sizeof(void *), by_text);
    for (size_t i = 1; i < n; i++)
        if (!by_text(&order[i - 1], &order[i]))
            return llmq_fail(err, LLMQ_EFORMAT, "%s: %s %.*s is there twice", where, what, order[i]->n < 200 ? (int)order[i]->n : 200, order[i]->p);
    return 0;
}

static int by_offset(const void *a, const void *b)
{
    const struct gguf_tensor *x = *(const struct gguf_tensor *const *)a, *y = *(const struct gguf_tensor *const *)b;

    return (x->offset > y->offset) - (x->offset < y->offset);
}

static int none_overlap(struct gguf *g, const struct cursor *c, struct llmq_err *err)
{
    const struct gguf_tensor **order;

    if (llmq_arena_alloc(&g->arena, (void **)&order, g->n_tensors + 1, sizeof(void *), "a list of tensors", err))
        return err->code;
    for (size_t i = 0; i < g->n_tensors; i++)
        order[i] = &g->tensors[i];
    qsort((void *)order, g->n_tensors, sizeof(void *), by_offset);
    for (size_t i = 1; i < g->n_tensors; i++)
        if (order[i - 1]->bytes > order[i]->offset - order[i - 1]->offset)
            return fail_tensor(c, order[i], "it overlaps another at", order[i]->offset, err);
    return 0;
}

/* Offsets count from the first aligned byte behind the list. */
static int place_tensors(struct gguf *g, const struct cursor *c, struct llmq_err *err)
{
    uint64_t size = (uint64_t)(c->end - c->begin), base = (uint64_t)(c->at - c->begin);

    base = (base + g->alignment - 1) / g->alignment * g->alignment;
    for (size_t i = 0; i < g->n_tensors; i++) {
        struct gguf_tensor *t = &g->tensors[i];

        if (t->offset % g->alignment)
            return fail_tensor(c, t, "an offset that is not aligned:", t->offset, err);
        if (llmq_ckd_add(&t->offset, t->offset, base) || t->offset > size || t->bytes > size - t->offset)
            return fail_tensor(c, t, "its bytes reach beyond the end of the file at", size, err);
    }
    return no_name_twice(g, &g->pairs->key, sizeof *g->pairs, g->n_pairs, "the key", c->where, err) ||
                   no_name_twice(g, &g->tensors->name, sizeof *g->tensors, g->n_tensors, "the tensor", c->where, err) || none_overlap(g, c, err)
               ? err->code
               : 0;
}

int gguf_parse(struct gguf *g, const void *bytes, size_t size, const char *where, struct llmq_err *err)
{
    struct cursor c = {bytes, bytes, (const unsigned char *)bytes + size, where};
    uint64_t      version, tensors, pairs;

    memset(g, 0, sizeof *g);
    g->alignment = DEFAULT_ALIGNMENT;
    if (size < HEADER_BYTES)
        return ends_early(&c, "the header", err);
    if (memcmp(bytes, "GGUF", 4) != 0)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: not a GGUF file", where);
    c.at += 4;
    if (get_uint(&c, 4, "the version", &version, err) || get_uint(&c, 8, "the header", &tensors, err) || get_uint(&c, 8, "the header", &pairs, err))
        return err->code;
    g->version = (uint32_t)version;
    if (version != 2 && version != 3)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: GGUF version %llu%s, expected 2 or 3", where, (unsigned long long)version,
                         version && !(version & 0xffff) ? " (big-endian)" : "");
    if (pairs > left(&c) / MIN_PAIR || tensors > left(&c) / MIN_TENSOR)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: %llu tensors and %llu keys, which %zu bytes cannot hold", where, (unsigned long long)tensors,
                         (unsigned long long)pairs, left(&c));
    if (get_pairs(g, &c, (size_t)pairs, err) || get_tensors(g, &c, (size_t)tensors, err))
        return err->code;
    return place_tensors(g, &c, err);
}

int gguf_open(struct gguf *g, const char *path, struct llmq_err *err)
{
    struct llmq_map map;

    memset(g, 0, sizeof *g);
    if (llmq_map_open(&map, path, err))
        return err->code;
    (void)!gguf_parse(g, map.data, map.size, path, err);
    g->map = map;
    return err->code;
}

void gguf_close(struct gguf *g)
{
    llmq_arena_free(&g->arena);
    if (g->map.data)
        llmq_map_close(&g->map);
    memset(g, 0, sizeof *g);
}

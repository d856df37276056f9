/* jansson with limits and our errors: see json.h. */
#include "common/json.h"

#include "common/alloc.h"
#include "common/io.h"
#include "common/str.h"
#include "common/utf8.h"

#include <string.h>

/* jansson says where a key stands twice, not which: it is the string that ends there. */
static int duplicate(const char *text, size_t len, const json_error_t *why, const char *where, struct llmq_err *err)
{
    size_t end = why->position > 0 && (size_t)why->position <= len ? (size_t)why->position : 0, start;

    if (end < 2 || text[--end] != '"')
        return llmq_fail(err, LLMQ_EFORMAT, "%s: line %d, column %d: duplicate key", where, why->line, why->column);
    for (start = end; start > 0 && end - start < 256 && text[start - 1] != '"'; start--)
        ;
    return llmq_fail(err, LLMQ_EFORMAT, "%s: line %d, column %d: duplicate key \"%.*s\"", where, why->line, why->column,
                     (int)(end - start), text + start);
}

static int parse(json_t **out, const char *text, size_t len, size_t max_bytes, size_t flags, const char *where,
                 struct llmq_err *err)
{
    json_error_t why;

    *out = NULL;
    if (len > max_bytes)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: %zu bytes of JSON, at most %zu are read", where, len, max_bytes);
    /* JSON_ALLOW_NUL: a vocabulary may hold the token U+0000. */
    *out = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | flags, &why);
    /* Out of memory before the first byte leaves no error at all. */
    if (!*out && (json_error_code(&why) == json_error_out_of_memory || !why.text[0]))
        return llmq_fail(err, LLMQ_ENOMEM, "%s: no memory to parse %zu bytes of JSON", where, len);
    if (!*out && json_error_code(&why) == json_error_duplicate_key)
        return duplicate(text, len, &why, where, err);
    if (!*out)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: line %d, column %d: %s", where, why.line, why.column, why.text);
    return 0;
}

int llmq_json_parse(json_t **out, const char *text, size_t len, size_t max_bytes, const char *where,
                    struct llmq_err *err)
{
    return parse(out, text, len, max_bytes, 0, where, err);
}

int llmq_json_parse_reals(json_t **out, const char *text, size_t len, size_t max_bytes, const char *where,
                          struct llmq_err *err)
{
    return parse(out, text, len, max_bytes, JSON_DECODE_INT_AS_REAL, where, err);
}

int llmq_json_load(json_t **out, const char *path, size_t max_bytes, struct llmq_err *err)
{
    struct llmq_map map;
    int             rc;

    *out = NULL;
    if (llmq_map_open(&map, path, err))
        return err->code;
    rc = llmq_json_parse(out, map.data, map.size, max_bytes, path, err);
    llmq_map_close(&map);
    return rc;
}

static const char *type_name(const json_t *v)
{
    static const char *const name[] = {"an object", "an array", "a string", "an integer",
                                       "a number",  "true",     "false",    "null"};
    return name[json_typeof(v)];
}

/* 0: the member is there; 1: it is absent and may be; otherwise an error code. */
static int member(const json_t *obj, const char *key, int need, const json_t **v, const char *where,
                  struct llmq_err *err)
{
    *v = json_object_get(obj, key);
    if (*v && !json_is_null(*v))
        return 0;
    if (!need)
        return 1;
    return llmq_fail(err, LLMQ_EFORMAT, "%s: key \"%s\" is missing", where, key);
}

static int wrong(const json_t *v, const char *key, const char *expected, const char *where, struct llmq_err *err)
{
    return llmq_fail(err, LLMQ_EFORMAT, "%s: key \"%s\" is %s, expected %s", where, key, type_name(v), expected);
}

int llmq_json_int(const json_t *obj, const char *key, int need, int64_t *out, const char *where, struct llmq_err *err)
{
    const json_t *v;
    int           rc = member(obj, key, need, &v, where, err);

    if (rc)
        return rc > 0 ? 0 : rc;
    if (!json_is_integer(v))
        return wrong(v, key, "an integer", where, err);
    *out = json_integer_value(v);
    return 0;
}

int llmq_json_real(const json_t *obj, const char *key, int need, double *out, const char *where, struct llmq_err *err)
{
    const json_t *v;
    int           rc = member(obj, key, need, &v, where, err);

    if (rc)
        return rc > 0 ? 0 : rc;
    if (!json_is_number(v))
        return wrong(v, key, "a number", where, err);
    *out = json_number_value(v);
    return 0;
}

int llmq_json_bool(const json_t *obj, const char *key, int need, int *out, const char *where, struct llmq_err *err)
{
    const json_t *v;
    int           rc = member(obj, key, need, &v, where, err);

    if (rc)
        return rc > 0 ? 0 : rc;
    if (!json_is_boolean(v))
        return wrong(v, key, "true or false", where, err);
    *out = json_is_true(v);
    return 0;
}

int llmq_json_str(const json_t *obj, const char *key, int need, const char **out, const char *where,
                  struct llmq_err *err)
{
    const json_t *v;
    int           rc = member(obj, key, need, &v, where, err);

    if (rc)
        return rc > 0 ? 0 : rc;
    if (!json_is_string(v))
        return wrong(v, key, "a string", where, err);
    *out = json_string_value(v);
    return 0;
}

json_t *llmq_json_name(const char *bytes)
{
    size_t          len = strlen(bytes), good;
    json_t         *v = json_string(bytes);
    struct llmq_err ignored;
    char           *text;

    if (v || LLMQ_NEW(&text, len + 1, "a name", &ignored))
        return v;
    memcpy(text, bytes, len + 1);
    while ((good = utf8_check(text, len)) < len)
        text[good] = '?';
    v = json_string(text);
    llmq_free(text);
    return v;
}

struct dump {
    struct llmq_str *out;
    struct llmq_err *err;
};

static int dump_piece(const char *text, size_t len, void *ctx)
{
    struct dump *d = ctx;

    return llmq_str_append(d->out, text, len, d->err) ? -1 : 0;
}

int llmq_json_text(const json_t *v, struct llmq_str *out, struct llmq_err *err)
{
    struct dump d = {out, err};

    err->code = 0;
    if (json_dump_callback(v, dump_piece, &d, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY) && !err->code)
        return llmq_fail(err, LLMQ_ENOMEM, "no memory to write JSON");
    return err->code;
}

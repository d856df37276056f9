/* What a TOKENIZER section may say: see llmq_tokenizer_check.
 *
 * One table: kind of component, type, and its options.  A component or an option that is not here is refused by name,
 * both when a checkpoint is converted and when a file is loaded, so a tokenizer never means something else than its
 * checkpoint said.  runner/text reads the options without checking them again. */
#include "format/format.h"

#include "common/json.h"

#include <string.h>

enum { MAX_OPTIONS = 7, MAX_DEPTH = 16 };

struct option {
    const char *name;
    char        type; /* see check_value; upper case: must be there */
};

struct component {
    const char   *kind, *type;
    struct option option[MAX_OPTIONS];
};

#define NORMALIZER "normalizer"
#define PRE "pre_tokenizer"
#define POST "post_processor"
#define DECODER "decoder"

static const struct component components[] = {
    {NORMALIZER, "NFC", {{0}}},
    {NORMALIZER, "NFD", {{0}}},
    {NORMALIZER, "NFKC", {{0}}},
    {NORMALIZER, "NFKD", {{0}}},
    {NORMALIZER, "Lowercase", {{0}}},
    {NORMALIZER, "StripAccents", {{0}}},
    {NORMALIZER, "Nmt", {{0}}},
    {NORMALIZER, "ByteLevel", {{0}}},
    {NORMALIZER, "Strip", {{"strip_left", 'B'}, {"strip_right", 'B'}}},
    {NORMALIZER, "Prepend", {{"prepend", 'S'}}},
    {NORMALIZER, "Replace", {{"pattern", 'P'}, {"content", 'S'}}},
    {NORMALIZER, "Sequence", {{"normalizers", 'L'}}},
    {PRE, "ByteLevel", {{"add_prefix_space", 'B'}, {"trim_offsets", 'b'}, {"use_regex", 'b'}}},
    {PRE, "Split", {{"pattern", 'P'}, {"behavior", 'M'}, {"invert", 'B'}}},
    {PRE, "Digits", {{"individual_digits", 'B'}}},
    {PRE, "Punctuation", {{"behavior", 'm'}}},
    {PRE, "Whitespace", {{0}}},
    {PRE, "WhitespaceSplit", {{0}}},
    {PRE, "CharDelimiterSplit", {{"delimiter", 'C'}}},
    {PRE, "Metaspace", {{"replacement", 'C'}, {"add_prefix_space", 'b'}, {"prepend_scheme", 'e'}, {"split", 'b'}, {"str_rep", 's'}}},
    {PRE, "Sequence", {{"pretokenizers", 'L'}}},
    {POST, "ByteLevel", {{"add_prefix_space", 'b'}, {"trim_offsets", 'b'}, {"use_regex", 'b'}}},
    {POST, "TemplateProcessing", {{"single", 'T'}, {"pair", 'a'}, {"special_tokens", 'O'}}},
    {POST, "Sequence", {{"processors", 'L'}}},
    {DECODER, "ByteLevel", {{"add_prefix_space", 'b'}, {"trim_offsets", 'b'}, {"use_regex", 'b'}}},
    {DECODER, "ByteFallback", {{0}}},
    {DECODER, "Fuse", {{0}}},
    {DECODER, "Replace", {{"pattern", 'P'}, {"content", 'S'}}},
    {DECODER, "Strip", {{"content", 'C'}, {"start", 'N'}, {"stop", 'N'}}},
    {DECODER, "Metaspace", {{"replacement", 'C'}, {"add_prefix_space", 'b'}, {"prepend_scheme", 'e'}, {"split", 'b'}, {"str_rep", 's'}}},
    {DECODER, "BPEDecoder", {{"suffix", 'S'}}},
    {DECODER, "Sequence", {{"decoders", 'L'}}},
    {"model", "BPE", {{"dropout", 'd'}, {"unk_token", 's'}, {"continuing_subword_prefix", 's'}, {"end_of_word_suffix", 's'},
                      {"fuse_unk", 'b'}, {"byte_fallback", 'b'}, {"ignore_merges", 'b'}}},
};
enum { N_COMPONENTS = sizeof components / sizeof components[0] };

struct place {
    const char       *where, *kind;
    const char       *type;
    int               depth, templates;
    struct llmq_err  *err;
};

static int refuse(const struct place *p, const char *what, const char *expected)
{
    return llmq_fail(p->err, LLMQ_EFORMAT, "%s: %s %s: \"%s\" is not %s", p->where, p->kind, p->type, what, expected);
}

static int one_of(const json_t *v, const char *const *names)
{
    const char *s = json_string_value(v);

    for (; s && *names; names++)
        if (!strcmp(s, *names))
            return 1;
    return 0;
}

static int is_char(const json_t *v)
{
    const char *s = json_string_value(v);
    size_t      n = json_string_length(v), chars = 0;

    for (size_t i = 0; i < n; i++)
        chars += ((unsigned char)s[i] & 0xc0) != 0x80;
    return chars == 1;
}

static int is_pattern(const json_t *v)
{
    return json_is_object(v) && json_object_size(v) == 1 &&
           (json_is_string(json_object_get(v, "String")) || json_is_string(json_object_get(v, "Regex")));
}

/* [{"Sequence": {"id": "A", ..}}, {"SpecialToken": {"id": name, ..}}, ..] */
static int is_template(const json_t *v)
{
    size_t  i;
    json_t *piece;

    if (!json_is_array(v))
        return 0;
    json_array_foreach(v, i, piece) {
        const json_t *a = json_object_get(piece, "Sequence"), *token = json_object_get(piece, "SpecialToken");
        const char   *id = json_string_value(json_object_get(a ? a : token, "id"));

        if (json_object_size(piece) != 1 || !id || (a && strcmp(id, "A") != 0))
            return 0;
    }
    return 1;
}

/* {name: {"id": name, "ids": [..], "tokens": [..]}} */
static int is_specials(const json_t *v)
{
    const char *name;
    json_t     *token, *id;
    size_t      i;

    if (!json_is_object(v))
        return 0;
    json_object_foreach((json_t *)v, name, token) {
        const json_t *ids = json_object_get(token, "ids");

        if (!json_is_array(ids))
            return 0;
        json_array_foreach(ids, i, id) {
            if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX)
                return 0;
        }
    }
    return 1;
}

static int check_component(struct place *p, const json_t *v);

static int check_list(struct place *p, const char *name, const json_t *v)
{
    const char *type = p->type;
    size_t      i;
    json_t     *item;

    if (!json_is_array(v))
        return refuse(p, name, "an array");
    json_array_foreach(v, i, item) {
        if (check_component(p, item))
            return p->err->code;
    }
    p->type = type;
    return 0;
}

static int check_value(struct place *p, const char *name, char type, const json_t *v)
{
    static const char *const behaviors[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous", NULL};
    static const char *const schemes[] = {"always", "first", "never", NULL};

    switch (type | 32) {
    case 'b': return json_is_boolean(v) ? 0 : refuse(p, name, "true or false");
    case 's': return json_is_string(v) ? 0 : refuse(p, name, "a string");
    case 'c': return is_char(v) ? 0 : refuse(p, name, "one character");
    case 'n':
        return json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) <= INT32_MAX ? 0 : refuse(p, name, "a count");
    case 'p': return is_pattern(v) ? 0 : refuse(p, name, "a String or a Regex");
    case 'm': return one_of(v, behaviors) ? 0 : refuse(p, name, "a behavior that is supported");
    case 'e': return one_of(v, schemes) ? 0 : refuse(p, name, "always, first or never");
    case 't': return is_template(v) ? 0 : refuse(p, name, "a template of the text and special tokens");
    case 'o': return is_specials(v) ? 0 : refuse(p, name, "an object of special tokens");
    case 'd': return json_is_number(v) && json_number_value(v) == 0 ? 0 : refuse(p, name, "null: it makes ids random");
    case 'l': return check_list(p, name, v);
    default: return 0;
    }
}

/* Every special token of a template must be defined; a second template would see pieces, not a text. */
static int check_template(struct place *p, const json_t *v)
{
    size_t  i;
    json_t *piece;

    if (p->templates++)
        return refuse(p, "TemplateProcessing", "supported twice");
    json_array_foreach(json_object_get(v, "single"), i, piece) {
        const char *name = json_string_value(json_object_get(json_object_get(piece, "SpecialToken"), "id"));

        if (name && !json_object_get(json_object_get(v, "special_tokens"), name))
            return refuse(p, name, "among the special_tokens");
    }
    return 0;
}

static int check_options(struct place *p, const struct component *c, const json_t *v)
{
    const char *name;
    json_t     *value;

    json_object_foreach((json_t *)v, name, value) {
        int i = 0;

        if (!strcmp(name, "type"))
            continue;
        while (i < MAX_OPTIONS && c->option[i].name && strcmp(c->option[i].name, name) != 0)
            i++;
        if (i == MAX_OPTIONS || !c->option[i].name)
            return refuse(p, name, "an option that is supported");
        if (json_is_null(value) && c->option[i].type >= 'a')
            continue;
        if (check_value(p, name, c->option[i].type, value))
            return p->err->code;
    }
    for (int i = 0; i < MAX_OPTIONS && c->option[i].name; i++)
        if (c->option[i].type < 'a' && !json_object_get(v, c->option[i].name))
            return refuse(p, c->option[i].name, "there");
    return !strcmp(c->type, "TemplateProcessing") ? check_template(p, v) : 0;
}

static int check_component(struct place *p, const json_t *v)
{
    const char *type = json_string_value(json_object_get(v, "type"));
    int         i = 0, rc;

    if (!json_is_object(v))
        return llmq_fail(p->err, LLMQ_EFORMAT, "%s: %s is not an object", p->where, p->kind);
    /* Files of before 2020 leave the model's type out. */
    if (!type && !strcmp(p->kind, "model"))
        type = "BPE";
    while (type && i < N_COMPONENTS && (strcmp(components[i].kind, p->kind) != 0 || strcmp(components[i].type, type) != 0))
        i++;
    if (!type || i == N_COMPONENTS)
        return llmq_fail(p->err, LLMQ_EFORMAT, "%s: %s \"%s\" is not supported", p->where, p->kind, type ? type : "without a type");
    if (++p->depth > MAX_DEPTH)
        return llmq_fail(p->err, LLMQ_EFORMAT, "%s: %s: nested deeper than %d", p->where, p->kind, MAX_DEPTH);
    p->type = type;
    rc = check_options(p, &components[i], v);
    p->depth--;
    return rc;
}

static int check_added(const json_t *list, const char *where, struct llmq_err *err)
{
    static const char *const flags[] = {"single_word", "lstrip", "rstrip", "normalized", "special"};
    size_t                   i;
    json_t                  *v;

    if (list && !json_is_array(list))
        return llmq_fail(err, LLMQ_EFORMAT, "%s: added_tokens is not an array", where);
    json_array_foreach(list, i, v) {
        int64_t     id = -1;
        const char *content;
        int         unused;

        if (!json_is_object(v))
            return llmq_fail(err, LLMQ_EFORMAT, "%s: added token %zu is not an object", where, i);
        if (llmq_json_int(v, "id", LLMQ_JSON_REQUIRED, &id, where, err) ||
            llmq_json_str(v, "content", LLMQ_JSON_REQUIRED, &content, where, err))
            return err->code;
        for (size_t k = 0; k < sizeof flags / sizeof flags[0]; k++)
            if (llmq_json_bool(v, flags[k], LLMQ_JSON_REQUIRED, &unused, where, err))
                return err->code;
        if (id < 0 || id > INT32_MAX)
            return llmq_fail(err, LLMQ_EFORMAT, "%s: added token %zu has id %lld", where, i, (long long)id);
    }
    return 0;
}

int llmq_tokenizer_check(const struct json_t *config, const char *where, struct llmq_err *err)
{
    static const char *const kinds[] = {NORMALIZER, PRE, POST, DECODER, "model"};

    if (!json_is_object(config))
        return llmq_fail(err, LLMQ_EFORMAT, "%s: it is not a JSON object", where);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct place  p = {.where = where, .kind = kinds[i], .type = "", .err = err};
        const json_t *v = json_object_get(config, kinds[i]);

        if ((!v || json_is_null(v)) && i < 4)
            continue;
        if (!v)
            return llmq_fail(err, LLMQ_EFORMAT, "%s: key \"model\" is missing", where);
        if (check_component(&p, v))
            return err->code;
    }
    return check_added(json_object_get(config, "added_tokens"), where, err);
}

/* llmq tokenize: text to ids and back, from a model file, a checkpoint or a bare tokenizer.json. */
#include "cli/doc.h"
#include "cli/input.h"
#include "cli/opt.h"
#include "common/io.h"
#include "common/json.h"
#include "common/str.h"
#include "convert/convert.h"
#include "runner/text/tokenizer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_INPUT = 1 << 30, MAX_SECTION = 512 << 20, MAX_LINE = 256 << 20 };

static struct {
    const char *text, *file;
    int         decode, lines, no_special, no_parse_special, skip_special;
} opt;

static const struct opt opts[] = {
    {"text", 'p', OPT_STR, &opt.text, "TEXT", NULL, "the text", 0, 0},
    {"file", 'f', OPT_STR, &opt.file, "FILE", NULL, "read it from a file (- for standard input)", 0, 0},
    {"decode", 0, OPT_FLAG, &opt.decode, NULL, NULL, "ids to text: the input is numbers", 0, 0},
    {"lines", 0, OPT_FLAG, &opt.lines, NULL, NULL, "many at once: each line is a JSON string (or array of ids)", 0, 0},
    {"no-special", 0, OPT_FLAG, &opt.no_special, NULL, NULL, "do not add tokens such as BOS", 0, 0},
    {"no-parse-special", 0, OPT_FLAG, &opt.no_parse_special, NULL, NULL, "special tokens in the text are ordinary text", 0, 0},
    {"skip-special", 0, OPT_FLAG, &opt.skip_special, NULL, NULL, "leave special tokens out when decoding", 0, 0},
    {0},
};

/* ---- the tokenizer ------------------------------------------------------------------------------------------ */

static int from_checkpoint(struct tokenizer **t, const char *path, struct llmq_err *err)
{
    struct llmq_str config, vocab, merges;
    int             rc;

    llmq_str_init(&config, MAX_SECTION);
    llmq_str_init(&vocab, MAX_SECTION);
    llmq_str_init(&merges, MAX_SECTION);
    rc = convert_tokenizer(path, &config, &vocab, &merges, err);
    if (!rc && tokenizer_load(t, config.data, config.len, vocab.data, vocab.len, merges.data, merges.len, err))
        rc = llmq_fail_within(err, "%s", path);
    llmq_str_fini(&config);
    llmq_str_fini(&vocab);
    llmq_str_fini(&merges);
    return rc;
}

static int from_model(struct tokenizer **t, const char *path, struct llmq_err *err)
{
    struct llmq_file *f;
    int               rc;

    if (doc_check_model_path(path, err) || llmq_file_open(&f, path, err))
        return err->code;
    rc = tokenizer_from_file(t, f, err);
    llmq_file_close(f);
    return rc;
}

/* A file that begins as JSON is a tokenizer.json. */
static int begins_as_json(const char *path)
{
    char    c[64] = "";
    int     fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, c, sizeof c - 1);

    if (fd >= 0)
        close(fd);
    return n > 0 && c[strspn(c, " \t\r\n")] == '{';
}

static int open_tokenizer(struct tokenizer **t, const char *path, struct llmq_err *err)
{
    struct stat st;

    if ((!stat(path, &st) && S_ISDIR(st.st_mode)) || begins_as_json(path))
        return from_checkpoint(t, path, err);
    return from_model(t, path, err);
}

/* ---- the input ---------------------------------------------------------------------------------------------- */

static int read_input(struct llmq_str *out, struct llmq_err *err)
{
    int fd, rc;

    if (opt.text && opt.file)
        return llmq_fail(err, LLMQ_EUSAGE, "--text and --file: only one of them can be the input");
    if (opt.text)
        return llmq_str_append(out, opt.text, strlen(opt.text), err);
    if (!opt.file || !strcmp(opt.file, "-"))
        return input_read(0, "standard input", out, err);
    fd = open(opt.file, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return llmq_fail_errno(err, "%s", opt.file);
    rc = input_read(fd, opt.file, out, err);
    close(fd);
    return rc;
}

/* ---- one text ----------------------------------------------------------------------------------------------- */

static int encode_flags(void)
{
    return (opt.no_special ? 0 : TOKENIZER_ADD_SPECIAL) | (opt.no_parse_special ? 0 : TOKENIZER_PARSE_SPECIAL);
}

static int push_id(struct llmq_str *ids, int32_t id, struct llmq_err *err)
{
    return llmq_str_append(ids, &id, sizeof id, err);
}

/* Numbers with blanks or commas between; a JSON array is fine as well. */
static int parse_ids(const char *text, struct llmq_str *ids, struct llmq_err *err)
{
    const char *p = text;

    for (;;) {
        char *end;
        long  id;

        p += strspn(p, " \t\r\n,[]");
        if (!*p)
            return 0;
        errno = 0;
        id = strtol(p, &end, 10);
        if (end == p || errno || id < 0 || id > INT32_MAX)
            return llmq_fail(err, LLMQ_EUSAGE, "input: '%.20s' is not a token id", p);
        if (push_id(ids, (int32_t)id, err))
            return err->code;
        p = end;
    }
}

static void print_ids(const struct token_ids *ids, const char *open, const char *between, const char *close)
{
    fputs(open, stdout);
    for (size_t i = 0; i < ids->n; i++)
        printf("%s%d", i ? between : "", ids->id[i]);
    fputs(close, stdout);
}

/* ids, or the text when ids is NULL. */
static int print_json(const struct tokenizer *t, const struct token_ids *ids, const struct llmq_str *text, struct llmq_err *err)
{
    json_t *doc = doc_new("llmq.tokenize/1", NULL, "scalar", 0), *list = json_array(), *rest;

    for (size_t i = 0; ids && i < ids->n; i++)
        json_array_append_new(list, json_integer(ids->id[i]));
    rest = ids ? json_pack("{s:i, s:I, s:O}", "vocab_size", tokenizer_vocab_size(t), "tokens", (json_int_t)ids->n, "token_ids", list)
               : json_pack("{s:i, s:s%}", "vocab_size", tokenizer_vocab_size(t), "text", text->data, text->len);
    json_decref(list);
    if (!doc || !rest || json_object_update(doc, rest)) {
        json_decref(doc);
        json_decref(rest);
        return llmq_fail(err, LLMQ_ENOMEM, "no memory for the document");
    }
    json_decref(rest);
    return doc_print(doc, err);
}

static int encode_one(const struct tokenizer *t, const struct llmq_str *in, struct llmq_err *err)
{
    struct token_ids ids = {0};
    int              rc = tokenizer_encode(t, in->data, in->len, encode_flags(), &ids, err);

    if (!rc && common_opt.json)
        rc = print_json(t, &ids, NULL, err);
    else if (!rc)
        print_ids(&ids, "", " ", "\n");
    tokenizer_ids_free(&ids);
    return rc;
}

static int decode_one(const struct tokenizer *t, const struct llmq_str *in, struct llmq_err *err)
{
    struct llmq_str ids, text;
    int             rc;

    llmq_str_init(&ids, MAX_INPUT);
    llmq_str_init(&text, MAX_INPUT);
    rc = parse_ids(in->data, &ids, err);
    if (!rc)
        rc = tokenizer_decode(t, (const int32_t *)(const void *)ids.data, ids.len / sizeof(int32_t), opt.skip_special, &text, err);
    if (!rc && common_opt.json)
        rc = print_json(t, NULL, &text, err);
    else if (!rc)
        fwrite(text.data, 1, text.len, stdout);
    llmq_str_fini(&ids);
    llmq_str_fini(&text);
    return rc;
}

/* ---- many texts --------------------------------------------------------------------------------------------- */

/* One line of JSON: a string or an array of integers. */
static int parse_line(json_t **out, const char *line, size_t len, size_t nr, struct llmq_err *err)
{
    json_error_t why;

    *out = json_loadb(line, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);
    if (!*out)
        return llmq_fail(err, LLMQ_EFORMAT, "input, line %zu: %s", nr, why.text);
    if (opt.decode ? json_is_array(*out) : json_is_string(*out))
        return 0;
    json_decref(*out);
    return llmq_fail(err, LLMQ_EFORMAT, "input, line %zu: expected %s", nr, opt.decode ? "an array of ids" : "a string");
}

static int encode_line(const struct tokenizer *t, const json_t *v, struct token_ids *ids, struct llmq_err *err)
{
    ids->n = 0;
    if (tokenizer_encode(t, json_string_value(v), json_string_length(v), encode_flags(), ids, err))
        return err->code;
    print_ids(ids, "[", ",", "]\n");
    return 0;
}

static int decode_line(const struct tokenizer *t, const json_t *v, struct token_ids *ids, struct llmq_err *err)
{
    struct llmq_str list, text;
    size_t          i;
    json_t         *id, *out;
    int             rc = 0;

    (void)ids;
    llmq_str_init(&list, MAX_LINE);
    llmq_str_init(&text, MAX_LINE);
    json_array_foreach(v, i, id) {
        json_int_t n = json_integer_value(id);

        if (!rc)
            rc = push_id(&list, n < 0 || n > INT32_MAX ? -1 : (int32_t)n, err);
    }
    if (!rc)
        rc = tokenizer_decode(t, (const int32_t *)(const void *)list.data, list.len / sizeof(int32_t), opt.skip_special, &text, err);
    if (!rc) {
        out = json_stringn(text.data, text.len);
        json_dumpf(out, stdout, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
        putchar('\n');
        json_decref(out);
    }
    llmq_str_fini(&list);
    llmq_str_fini(&text);
    return rc;
}

static int each_line(const struct tokenizer *t, const struct llmq_str *in, struct llmq_err *err)
{
    struct token_ids ids = {0};
    size_t           at = 0, nr = 0;
    int              rc = 0;

    while (at < in->len && !rc) {
        const char *end = memchr(in->data + at, '\n', in->len - at);
        size_t      len = end ? (size_t)(end - in->data) - at : in->len - at;
        json_t     *v = NULL;

        rc = parse_line(&v, in->data + at, len, ++nr, err);
        if (!rc) {
            rc = opt.decode ? decode_line(t, v, &ids, err) : encode_line(t, v, &ids, err);
            if (rc)
                llmq_fail_within(err, "input, line %zu", nr);
            json_decref(v);
        }
        at += len + 1;
    }
    tokenizer_ids_free(&ids);
    return rc;
}

static int run(int argc, char **argv, struct llmq_err *err)
{
    struct tokenizer *t = NULL;
    struct llmq_str   in;
    int               rc;

    cli_end_at_once = 1;
    if (argc != 1)
        return llmq_fail(err, LLMQ_EUSAGE, "%d models, expected one: llmq tokenize MODEL -p TEXT", argc);
    llmq_str_init(&in, MAX_INPUT);
    rc = open_tokenizer(&t, argv[0], err);
    if (!rc)
        rc = read_input(&in, err);
    if (!rc)
        rc = opt.lines ? each_line(t, &in, err) : opt.decode ? decode_one(t, &in, err) : encode_one(t, &in, err);
    tokenizer_free(t);
    llmq_str_fini(&in);
    return rc;
}

const struct cmd cmd_tokenize = {"tokenize", "MODEL [options]", "text to token ids and back", opts, run};

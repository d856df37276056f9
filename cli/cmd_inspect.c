/* llmq inspect: what is inside a .llmq, a safetensors or a GGUF file. */
#include "cli/doc.h"
#include "cli/opt.h"
#include "cli/output.h"
#include "common/json.h"
#include "common/str.h"
#include "convert/foreign.h"
#include "format/format.h"

#include <stdio.h>
#include <string.h>

static struct {
    int         tensors, sums;
    const char *section;
} opt;

static const struct opt opts[] = {
    {"tensors", 0, OPT_FLAG, &opt.tensors, NULL, NULL, "list the tensors", 0, 0},
    {"sums", 0, OPT_FLAG, &opt.sums, NULL, NULL, "list them with the SHA-256 of their values", 0, 0},
    {"section", 0, OPT_STR, &opt.section, "NAME", NULL, "print one section's bytes and nothing else", 0, 0},
    {0},
};

static const size_t max_text = (size_t)1 << 30;

static int print_section(const struct llmq_file *f, const char *name, struct llmq_err *err)
{
    for (int id = 1; llmq_section_name(id); id++) {
        size_t      len;
        const char *bytes = llmq_file_section(f, id, &len);

        if (strcmp(llmq_section_name(id), name) != 0)
            continue;
        if (!len)
            return llmq_fail(err, LLMQ_EUSAGE, "%s: has no section '%s'", llmq_file_path(f), name);
        if (fwrite(bytes, 1, len, stdout) != len)
            return output_failed(err);
        return 0;
    }
    return llmq_fail(err, LLMQ_EUSAGE, "--section: there is no section '%s'", name);
}

static int print_text(const struct llmq_file *f, int what, struct llmq_err *err)
{
    struct llmq_str s;

    llmq_str_init(&s, max_text);
    if (!llmq_file_describe(f, what, &s, err))
        fwrite(s.data, 1, s.len, stdout);
    llmq_str_fini(&s);
    return err->code;
}

static int print_json(const struct llmq_file *f, int what, struct llmq_err *err)
{
    struct llmq_str s;
    json_t         *model, *doc, *part = NULL;

    if (doc_model(&model, f, 1, err))
        return err->code;
    doc = doc_new("llmq.inspect/1", model, "scalar", 0);
    llmq_str_init(&s, max_text);
    if (llmq_file_describe(f, what | LLMQ_DESCRIBE_JSON, &s, err) ||
        llmq_json_parse(&part, s.data, s.len, max_text, "the listing", err)) {
        json_decref(doc);
        doc = NULL;
    } else {
        json_object_update(doc, part);
    }
    json_decref(part);
    llmq_str_fini(&s);
    return doc ? doc_print(doc, err) : err->code;
}

/* ---- files of other kinds --------------------------------------------------------------------------------- */

enum { WIDEST = 100 };

/* Bytes of a control character at s: C0 and DEL take one, C1 two; 0 when it is none.  A terminal would obey them. */
static int control(const unsigned char *s)
{
    return *s < ' ' || *s == 0x7f ? 1 : *s == 0xc2 && s[1] >= 0x80 && s[1] < 0xa0 ? 2 : 0;
}

/* A name: '?' for each control character. */
static int print_name(const char *name)
{
    const unsigned char *s = (const unsigned char *)name;
    int                  width = 0;

    while (*s) {
        int n = control(s);

        putchar(n ? '?' : *s);
        width += n || (*s & 0xc0) != 0x80;
        s += n ? n : 1;
    }
    return width;
}

static void print_padded(const char *name, int width)
{
    int n = print_name(name);

    printf("%*s", n < width ? width - n : 0, "");
}

/* A string's beginning: no more than fits a line, and up to a control character. */
static void print_start(const char *s, size_t n)
{
    size_t end = 0;

    while (end < n && end < WIDEST && !control((const unsigned char *)s + end))
        end++;
    while (end < n && end > 0 && ((unsigned char)s[end] & 0xc0) == 0x80)
        end--;
    printf("%.*s", (int)end, s);
    if (end < n)
        printf("... (%zu bytes)", n);
}

static void print_value(const json_t *v)
{
    size_t  i;
    json_t *e;

    switch (json_typeof(v)) {
    case JSON_STRING: print_start(json_string_value(v), json_string_length(v)); break;
    case JSON_INTEGER: printf("%lld", (long long)json_integer_value(v)); break;
    case JSON_REAL: printf("%.9g", json_real_value(v)); break;
    case JSON_OBJECT:
        printf("%lld x %s", (long long)json_integer_value(json_object_get(v, "length")), json_string_value(json_object_get(v, "array")));
        break;
    case JSON_ARRAY:
        putchar('[');
        json_array_foreach(v, i, e) {
            printf("%s", i ? ", " : "");
            print_value(e);
        }
        putchar(']');
        break;
    default: printf("%s", json_is_true(v) ? "true" : json_is_false(v) ? "false" : "null");
    }
}

static void print_bytes(const json_t *bytes)
{
    if (json_is_null(bytes))
        printf("%15s bytes", "?");
    else
        printf("%15lld bytes", (long long)json_integer_value(bytes));
}

static void print_totals(const json_t *doc)
{
    const json_t *bits = json_object_get(doc, "bits_per_weight"), *schemes = json_object_get(doc, "schemes");
    size_t        i;
    json_t       *s;

    printf("file        %s", json_string_value(json_object_get(doc, "kind")));
    if (json_is_integer(json_object_get(doc, "format_version")))
        printf(" version %lld", (long long)json_integer_value(json_object_get(doc, "format_version")));
    printf(", %lld bytes\n", (long long)json_integer_value(json_object_get(doc, "file_bytes")));
    printf("weights     %lld in %zu tensors", (long long)json_integer_value(json_object_get(doc, "weights")),
           json_array_size(json_object_get(doc, "tensors")));
    if (json_is_real(bits))
        printf("; %.3f bits per weight", json_real_value(bits));
    putchar('\n');
    json_array_foreach(schemes, i, s) {
        printf("            %-20s %5lld tensors %14lld weights", json_string_value(json_object_get(s, "scheme")),
               (long long)json_integer_value(json_object_get(s, "tensors")), (long long)json_integer_value(json_object_get(s, "weights")));
        print_bytes(json_object_get(s, "bytes"));
        putchar('\n');
    }
}

static void print_foreign(const json_t *doc)
{
    const char *key, *title = "metadata";
    size_t      i;
    json_t     *v;

    print_totals(doc);
    json_object_foreach(json_object_get(doc, "metadata"), key, v) {
        printf("%-12s", title);
        print_padded(key, 40);
        putchar(' ');
        print_value(v);
        putchar('\n');
        title = "";
    }
    if (!opt.tensors)
        return;
    json_array_foreach(json_object_get(doc, "tensors"), i, v) {
        print_padded(json_string_value(json_object_get(v, "name")), 50);
        printf(" %-8s", json_string_value(json_object_get(v, "scheme")));
        print_bytes(json_object_get(v, "bytes"));
        printf("  ");
        print_value(json_object_get(v, "shape"));
        putchar('\n');
    }
}

static int inspect_foreign(const char *path, struct llmq_err *err)
{
    json_t *found, *doc;

    if (opt.sums || opt.section)
        return llmq_fail(err, LLMQ_EUSAGE, "%s is no .llmq: --%s cannot be", path, opt.sums ? "sums" : "section");
    if (foreign_describe(path, &found, err))
        return err->code;
    if (!common_opt.json) {
        print_foreign(found);
        json_decref(found);
        return 0;
    }
    doc = doc_new("llmq.inspect/1", NULL, "none", 0);
    if (doc && json_object_update(doc, found)) {
        json_decref(doc);
        doc = NULL;
    }
    json_decref(found);
    return doc_print(doc, err);
}

static int run(int argc, char **argv, struct llmq_err *err)
{
    int               what = (opt.tensors ? LLMQ_DESCRIBE_TENSORS : 0) | (opt.sums ? LLMQ_DESCRIBE_SUMS : 0);
    struct llmq_file *f;

    cli_end_at_once = 1;
    if (argc != 1)
        return llmq_fail(err, LLMQ_EUSAGE, "%d files, expected one: llmq inspect FILE", argc);
    if (foreign_kind(argv[0]) != FOREIGN_NONE)
        return inspect_foreign(argv[0], err);
    if (doc_check_model_path(argv[0], err) || llmq_file_open(&f, argv[0], err))
        return err->code;
    if (opt.section)
        print_section(f, opt.section, err);
    else if (common_opt.json)
        print_json(f, what, err);
    else
        print_text(f, what, err);
    llmq_file_close(f);
    return err->code;
}

const struct cmd cmd_inspect = {"inspect", "FILE [options]", "what is inside a model file", opts, run};

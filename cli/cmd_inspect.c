/* llmq inspect: what is inside a .llmq. */
#include "cli/doc.h"
#include "cli/opt.h"
#include "cli/output.h"
#include "common/json.h"
#include "common/str.h"
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

static int run(int argc, char **argv, struct llmq_err *err)
{
    int               what = (opt.tensors ? LLMQ_DESCRIBE_TENSORS : 0) | (opt.sums ? LLMQ_DESCRIBE_SUMS : 0);
    struct llmq_file *f;

    cli_end_at_once = 1;
    if (argc != 1)
        return llmq_fail(err, LLMQ_EUSAGE, "%d files, expected one: llmq inspect FILE", argc);
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

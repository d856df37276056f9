/* llmq convert: a Hugging Face checkpoint becomes a .llmq. */
#include "cli/doc.h"
#include "cli/opt.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/json.h"
#include "convert/convert.h"
#include "format/format.h"
#include "runner/text/tokenizer.h"

#include <stdio.h>
#include <string.h>

static const char *out_path, *dtype = "auto";

static const struct opt opts[] = {
    {"output", 'o', OPT_STR, &out_path, "FILE", NULL, "the .llmq to write", 0, 0},
    {"dtype", 0, OPT_CHOICE, &dtype, "auto|bf16|fp16|fp32", "auto", "element type of all tensors; auto keeps each one's", 0, 0},
    {0},
};

static int dtype_of(const char *name)
{
    return !strcmp(name, "bf16")   ? LLMQ_DTYPE_BF16
           : !strcmp(name, "fp16") ? LLMQ_DTYPE_F16
           : !strcmp(name, "fp32") ? LLMQ_DTYPE_F32
                                   : LLMQ_DTYPE_NONE;
}

static void on_progress(void *ctx, uint64_t done, uint64_t total)
{
    progress_update(ctx, (double)done, (double)total, NULL);
}

static int print_json(struct llmq_source *src, const struct llmq_file *f, double wall_s, struct llmq_err *err)
{
    const char *files = src->files_json(src, err);
    json_t     *source, *model, *doc;

    if (!files || llmq_json_parse(&source, files, strlen(files), 16 << 20, "the list of source files", err))
        return err->code;
    if (doc_model(&model, f, 1, err)) {
        json_decref(source);
        return err->code;
    }
    doc = doc_new("llmq.convert/1", model, "scalar", 0);
    json_object_set_new(doc, "source", source);
    json_object_set_new(doc, "tensors", json_integer(llmq_file_tensor_count(f)));
    json_object_set_new(doc, "wall_s", doc_real(wall_s));
    return doc_print(doc, err);
}

static void print_line(const struct llmq_file *f, double wall_s)
{
    char   size[24], rate[24], mem[24], scheme[64];
    double bytes = (double)llmq_file_size(f);

    doc_scheme(f, scheme, sizeof scheme);
    printf("%s: %d tensors, %s, %s, %.1f s (%s/s), %s of memory\n", out_path, llmq_file_tensor_count(f), scheme,
           progress_bytes(bytes, size, sizeof size), wall_s,
           progress_bytes(wall_s > 0 ? bytes / wall_s : 0, rate, sizeof rate),
           progress_bytes((double)llmq_peak_rss_bytes(), mem, sizeof mem));
}

static int report(struct llmq_source *src, double wall_s, struct llmq_err *err)
{
    struct llmq_file *f;
    int               rc = 0;

    if (llmq_file_open(&f, out_path, err))
        return err->code;
    if (common_opt.json)
        rc = print_json(src, f, wall_s, err);
    else if (!common_opt.quiet)
        print_line(f, wall_s);
    llmq_file_close(f);
    return rc;
}

/* A pattern that cannot be run would otherwise be found out by the first who opens the file. */
static int check_tokenizer(struct llmq_source *src, struct llmq_err *err)
{
    struct tokenizer *t;
    size_t            len;

    src->section(src, LLMQ_SECTION_TOKENIZER, &len);
    if (!len)
        return 0;
    if (tokenizer_from_source(&t, src, err))
        return err->code;
    tokenizer_free(t);
    return 0;
}

static int check_output(const char *src, struct llmq_err *err)
{
    if (!out_path)
        return llmq_fail(err, LLMQ_EUSAGE, "-o FILE is missing: where to write the .llmq");
    return output_check("-o", out_path, src, err);
}

static int run(int argc, char **argv, struct llmq_err *err)
{
    struct convert_options o = {.dtype = dtype_of(dtype), .progress = on_progress, .cancel = &cli_interrupted,
                                .version = cli_version()};
    struct llmq_source    *src;
    struct progress        p;
    double                 start = llmq_clock_s();
    int                    rc;

    if (argc != 1)
        return llmq_fail(err, LLMQ_EUSAGE, "%d arguments, expected one: llmq convert CHECKPOINT -o FILE.llmq", argc);
    if (check_output(argv[0], err) || convert_open(&src, argv[0], err))
        return err->code;
    if (check_tokenizer(src, err)) {
        src->close(src);
        return err->code;
    }
    progress_begin(&p, "convert", PROGRESS_BYTES);
    o.progress_ctx = &p;
    rc = convert_write(src, out_path, &o, err);
    progress_end(&p);
    if (!rc)
        rc = report(src, llmq_clock_s() - start, err);
    src->close(src);
    return rc;
}

const struct cmd cmd_convert = {
    "convert", "SRC -o OUT.llmq [options]", "a Hugging Face checkpoint becomes a .llmq file", opts, run,
};

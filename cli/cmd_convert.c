/* llmq convert: a Hugging Face checkpoint becomes a .llmq. */
#include "cli/opt.h"
#include "cli/progress.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/json.h"
#include "common/parallel.h"
#include "common/str.h"
#include "convert/convert.h"
#include "format/format.h"

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

/* "bf16", or "bf16, f32" where tensors differ. */
static const char *dtypes_of(const struct llmq_file *f, char *out, size_t size)
{
    int    seen[LLMQ_DTYPE_COUNT] = {0};
    size_t at = 0;

    for (int i = 0; i < llmq_file_tensor_count(f); i++)
        seen[llmq_file_tensor(f, i)->scheme.dtype] = 1;
    out[0] = '\0';
    for (int d = 1; d < LLMQ_DTYPE_COUNT; d++)
        if (seen[d] && at < size)
            at += (size_t)snprintf(out + at, size - at, "%s%s", at ? ", " : "", llmq_dtype_name(d));
    return out;
}

static int hash_file(const char *path, char hex[65], struct llmq_err *err)
{
    enum { WINDOW = 4 << 20 };
    struct llmq_sha256 h;
    struct llmq_map    m;

    if (llmq_map_open(&m, path, err))
        return err->code;
    llmq_sha256_init(&h);
    for (size_t at = 0; at < m.size; at += WINDOW) {
        size_t n = m.size - at < WINDOW ? m.size - at : WINDOW;

        llmq_sha256_update(&h, m.data + at, n);
        llmq_map_drop(&m, at, n);
    }
    llmq_sha256_hex(&h, hex);
    llmq_map_close(&m);
    return 0;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static int print_json(struct llmq_source *src, const struct llmq_file *f, double wall_s, struct llmq_err *err)
{
    char            hex[65], scheme[64];
    const char     *files = src->files_json(src, err);
    json_t         *source, *doc;
    struct llmq_str text;
    int             rc;

    if (!files || hash_file(out_path, hex, err) ||
        llmq_json_parse(&source, files, strlen(files), 16 << 20, "the list of source files", err))
        return err->code;
    doc = json_pack("{s:s, s:s, s:{s:s, s:s, s:s, s:f, s:I}, s:o, s:i, s:i, s:s, s:f, s:I, s:i}", "schema",
                    "llmq.convert/1", "version", cli_version(), "model", "name", base_name(out_path), "sha256", hex,
                    "scheme", dtypes_of(f, scheme, sizeof scheme), "bits_per_weight", llmq_file_bits_per_weight(f),
                    "size_bytes", (json_int_t)llmq_file_size(f), "source", source, "tensors", llmq_file_tensor_count(f),
                    "threads", llmq_parallel_threads(), "device", "cpu", "wall_s", wall_s, "peak_rss_bytes",
                    (json_int_t)llmq_peak_rss_bytes(), "exit_code", 0);
    llmq_str_init(&text, 32 << 20);
    rc = doc ? llmq_json_text(doc, &text, err) : llmq_fail(err, LLMQ_ENOMEM, "no memory for the JSON document");
    if (!rc)
        puts(text.data);
    llmq_str_fini(&text);
    json_decref(doc);
    return rc;
}

static void print_line(const struct llmq_file *f, double wall_s)
{
    char   size[24], rate[24], mem[24], scheme[64];
    double bytes = (double)llmq_file_size(f);

    printf("%s: %d tensors, %s, %s, %.1f s (%s/s), %s of memory\n", out_path, llmq_file_tensor_count(f),
           dtypes_of(f, scheme, sizeof scheme), progress_bytes(bytes, size, sizeof size), wall_s,
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

static int run(int argc, char **argv, struct llmq_err *err)
{
    struct convert_options o = {.dtype = dtype_of(dtype), .progress = on_progress, .cancel = &cli_interrupted,
                                .version = cli_version()};
    struct llmq_source    *src;
    struct progress        p;
    double                 start = llmq_clock_s();
    int                    rc;

    if (argc != 1)
        return llmq_fail(err, LLMQ_EUSAGE, "%d arguments, expected one: the checkpoint's directory", argc);
    if (!out_path)
        return llmq_fail(err, LLMQ_EUSAGE, "-o FILE is missing: where to write the .llmq");
    if (convert_open(&src, argv[0], err))
        return err->code;
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
    "convert", "SRC -o OUT.llmq [options]", "Convert a Hugging Face checkpoint to a .llmq file.", opts, run,
};

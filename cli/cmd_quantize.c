/* llmq quantize: a checkpoint or an unquantized .llmq becomes a quantized .llmq. */
#include "cli/calibset.h"
#include "cli/doc.h"
#include "cli/opt.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "common/io.h"
#include "common/json.h"
#include "common/log.h"
#include "common/parallel.h"
#include "common/str.h"
#include "convert/convert.h"
#include "quantize/quantize.h"

#include <string.h>
#include <sys/stat.h>

enum { MAX_REPORT = 256 << 20 };

static const char *out_path, *bits, *group, *lm_head = "int8", *calib_path = "builtin", *report_path;
static int         rtn, awq, gptq, sym, asym, dry_run, no_clip, no_scale;
static int         samples = 32, seqlen;
static uint64_t    seed;

static const struct opt opts[] = {
    {"output", 'o', OPT_STR, &out_path, "FILE", NULL, "the .llmq to write", 0, 0},
    {"rtn", 0, OPT_FLAG, &rtn, NULL, NULL, "round to nearest: INT4, group 128, symmetric", 0, 0},
    {"awq", 0, OPT_FLAG, &awq, NULL, NULL, "activation-aware scales and clipping: INT4, group 128, asymmetric", 0, 0},
    {"gptq", 0, OPT_FLAG, &gptq, NULL, NULL, "error-compensated codes: INT4, group 128, symmetric; with --awq on its scales", 0, 0},
    {"bits", 0, OPT_CHOICE, &bits, "4|8", "4", "bits of a weight", 0, 0},
    {"group-size", 0, OPT_CHOICE, &group, "32|64|128|256|channel", "128", "weights that share a scale", 0, 0},
    {"sym", 0, OPT_FLAG, &sym, NULL, NULL, "no zero points", 0, 0},
    {"asym", 0, OPT_FLAG, &asym, NULL, NULL, "zero points", 0, 0},
    {"lm-head", 0, OPT_CHOICE, &lm_head, "int8|none", "int8", "output head (and a table tied to it); none keeps it", 0, 0},
    {"calib", 0, OPT_STR, &calib_path, "FILE|builtin|self", "builtin", "calibration text, JSON lines with \"text\" or \"ids\", or the model's own", 0, 0},
    {"calib-samples", 0, OPT_INT, &samples, "N", "32", "windows of calibration text", 1, 1 << 20},
    {"calib-seqlen", 0, OPT_INT, &seqlen, "N", "the smaller of 1024 and the context", "tokens in a window", 2, 1 << 20},
    {"seed", 0, OPT_U64, &seed, "N", "0", "seed of every random choice", 0, 0},
    {"report", 0, OPT_STR, &report_path, "FILE.json", NULL, "write what was done to each tensor", 0, 0},
    {"dry-run", 0, OPT_FLAG, &dry_run, NULL, NULL, "print the plan, its sizes and its cost, and write nothing", 0, 0},
    {"no-clip", 0, OPT_FLAG, &no_clip, NULL, NULL, "leave AWQ's clipping out", 0, 0},
    {"no-scale", 0, OPT_FLAG, &no_scale, NULL, NULL, "leave AWQ's scale search out", 0, 0},
    {0},
};

/* ---- input ------------------------------------------------------------------------------------------ */

static int open_file(struct llmq_source **src, const char *path, struct llmq_err *err)
{
    struct llmq_file *f;
    struct llmq_map   m;
    int               gguf, rc = llmq_map_open(&m, path, err);

    if (rc)
        return rc;
    gguf = m.size >= 4 && !memcmp(m.data, "GGUF", 4);
    llmq_map_close(&m);
    if (gguf)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: a GGUF file, expected a Hugging Face directory or an unquantized .llmq", path);
    rc = llmq_file_open(&f, path, err);
    if (rc)
        return rc;
    if (llmq_source_from_file(src, f, err)) {
        llmq_file_close(f);
        return err->code;
    }
    return 0;
}

static int open_source(struct llmq_source **src, const char *path, struct llmq_err *err)
{
    struct stat st;

    if (stat(path, &st))
        return llmq_fail_errno(err, "%s", path);
    return S_ISDIR(st.st_mode) ? convert_open(src, path, err) : open_file(src, path, err);
}

static int method(void) { return (awq ? QUANTIZE_AWQ : 0) | (gptq ? QUANTIZE_GPTQ : 0); }
static int calibrated(void) { return method() != QUANTIZE_RTN; }

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* ---- options ------------------------------------------------------------------------------------------ */

/* What only calibration uses would be ignored in silence. */
static int check_rtn(struct llmq_err *err)
{
    static const char *const names[] = {"calib", "calib-samples", "calib-seqlen", "no-clip", "no-scale"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (opt_given(&cmd_quantize, names[i]))
            return llmq_fail(err, LLMQ_EUSAGE, "--%s needs a method that calibrates, but --rtn was given", names[i]);
    return 0;
}

static int check_outputs(const char *src, struct llmq_err *err)
{
    if (!out_path && !dry_run)
        return llmq_fail(err, LLMQ_EUSAGE, "no output given, expected -o FILE");
    if (out_path && !dry_run && output_check("-o", out_path, src, err))
        return err->code;
    if (report_path && output_check("--report", report_path, src, err))
        return err->code;
    if (out_path && report_path && output_is_same(out_path, report_path))
        return llmq_fail(err, LLMQ_EUSAGE, "-o and --report are both %s, expected two names", out_path);
    return 0;
}

static int check_use(int argc, char **argv, struct llmq_err *err)
{
    if (argc != 1)
        return llmq_fail(err, LLMQ_EUSAGE, "%d arguments, expected one: llmq quantize MODEL --awq -o FILE.llmq", argc);
    if (rtn == calibrated())
        return llmq_fail(err, LLMQ_EUSAGE, rtn ? "--rtn excludes --awq and --gptq" : "no method given, expected --rtn, --awq, --gptq or --awq --gptq");
    if (sym && asym)
        return llmq_fail(err, LLMQ_EUSAGE, "--sym and --asym exclude each other");
    if (rtn && check_rtn(err))
        return err->code;
    return check_outputs(argv[0], err);
}

static int group_size(void)
{
    static const struct { const char *text; int size; } sizes[] = {{"32", 32}, {"64", 64}, {"128", 128}, {"256", 256}, {"channel", 0}};

    for (size_t i = 0; group && i < sizeof sizes / sizeof sizes[0]; i++)
        if (!strcmp(group, sizes[i].text))
            return sizes[i].size;
    return 128;
}

static void set_options(struct quantize_options *o)
{
    *o = (struct quantize_options){.method = method(), .bits = bits && !strcmp(bits, "8") ? 8 : 4,
                                   .group = group_size(), .symmetric = sym || (!awq && !asym),
                                   .head_bits = !strcmp(lm_head, "int8") ? 8 : 0, .head_group = 128, .seed = seed,
                                   .isa = common_opt.isa, .dry_run = dry_run, .no_clip = no_clip, .no_scale = no_scale,
                                   .version = cli_version(), .cancel = &cli_interrupted};
}

static int get_calib(struct corpus **c, struct llmq_source *src, const char *path, struct llmq_err *err)
{
    struct calibset_options o = {.from = calib_path, .samples = samples, .seqlen = seqlen, .seed = seed, .source = path,
                              .beside = out_path, .dry_run = dry_run};

    return calibrated() ? calibset_open(c, src, &o, err) : 0;
}

/* The options that decide what the file holds, as one JSON object. */
static int options_json(const struct quantize_options *o, struct llmq_str *s, struct llmq_err *err)
{
    static const char *const truth[] = {"false", "true"};

    if (llmq_str_printf(s, err, "{\"bits\": %d, \"group_size\": %d, \"symmetric\": %s, \"lm_head\": \"%s\"", o->bits, o->group,
                        truth[o->symmetric], lm_head))
        return err->code;
    if (calibrated() &&
        llmq_str_printf(s, err, ", \"scale\": %s, \"clip\": %s, \"calib_samples\": %d", truth[!no_scale], truth[!no_clip], samples))
        return err->code;
    return llmq_str_append(s, "}", 1, err);
}

/* ---- output -------------------------------------------------------------------------------------------- */

/* Tensors of one role and scheme are one line of the plan. */
static void print_role(const struct quantize_report *r, int first)
{
    const struct quantize_tensor_report *t = &r->tensors[first];
    uint64_t                             bytes = 0;
    int                                  count = 0;
    char                                 scheme[64], size[24];

    for (int i = 0; i < r->n_tensors; i++) {
        if (r->tensors[i].role != t->role || memcmp(&r->tensors[i].scheme, &t->scheme, sizeof t->scheme) != 0)
            continue;
        if (i < first)
            return;
        bytes += r->tensors[i].bytes;
        count++;
    }
    llmq_scheme_name(&t->scheme, scheme, sizeof scheme);
    printf("  %-10s %4d x %6u x %-6u %-20s %s\n", llmq_role_name(t->role), count, t->n, t->k, scheme,
           progress_bytes((double)bytes, size, sizeof size));
}

static void print_plan(const struct quantize_report *r)
{
    char size[24], peak[24];

    printf("plan (nothing is written):\n");
    for (int i = 0; i < r->n_tensors; i++)
        print_role(r, i);
    printf("size about %s (%.2f bits per weight), memory about %s, time about %.0f s with %d threads\n",
           progress_bytes((double)r->size_bytes, size, sizeof size), r->bits_per_weight,
           progress_bytes((double)r->peak_bytes, peak, sizeof peak), r->wall_s, llmq_parallel_threads());
}

static double mean_of(const struct quantize_report *r, int rtn_too)
{
    double sum = 0;
    int    n = 0;

    for (int i = 0; i < r->n_tensors; i++)
        if (r->tensors[i].layer != LLMQ_NO_LAYER && r->tensors[i].rel_err >= 0) {
            sum += rtn_too ? r->tensors[i].rtn_rel_err : r->tensors[i].rel_err;
            n++;
        }
    return n ? sum / n : 0;
}

static void print_summary(const struct quantize_report *r)
{
    char size[24], peak[24];

    printf("%s: %s, %.2f bits per weight, mean relative error %.4f", out_path, progress_bytes((double)r->size_bytes, size, sizeof size),
           r->bits_per_weight, mean_of(r, 0));
    if (calibrated())
        printf(" (round to nearest: %.4f)", mean_of(r, 1));
    printf(", %.1f s (%.1f s of CPU), %s of memory\n", r->wall_s, r->cpu_s, progress_bytes((double)r->peak_bytes, peak, sizeof peak));
}

/* A document with the keys that all have.  `path` is where the model is, which may not be its name yet; NULL: there is
 * none, it was a dry run. */
static int new_doc(json_t **doc, const char *schema, const struct quantize_report *r, const char *path, struct llmq_err *err)
{
    struct llmq_file *f = NULL;
    json_t           *model = NULL;

    *doc = NULL;
    if (path && (llmq_file_open(&f, path, err) || doc_model(&model, f, 1, err))) {
        llmq_file_close(f);
        return err->code;
    }
    llmq_file_close(f);
    if (model)
        json_object_set_new(model, "name", llmq_json_name(base_name(out_path)));
    *doc = doc_new(schema, model, r->isa, 0);
    return *doc ? 0 : llmq_fail(err, LLMQ_ENOMEM, "out of memory for a JSON document");
}

/* The summary; per tensor is in --report. */
static int print_json(const struct quantize_report *r, struct llmq_err *err)
{
    json_t *doc;

    if (new_doc(&doc, "llmq.quantize-summary/1", r, dry_run ? NULL : out_path, err))
        return err->code;
    json_object_set_new(doc, "method", json_string(quantize_method_name(method())));
    json_object_set_new(doc, "dry_run", json_boolean(dry_run));
    json_object_set_new(doc, "size_bytes", json_integer((json_int_t)r->size_bytes));
    json_object_set_new(doc, "bits_per_weight", doc_real(r->bits_per_weight));
    json_object_set_new(doc, "rel_err_mean", dry_run ? json_null() : doc_real(mean_of(r, 0)));
    json_object_set_new(doc, "rtn_rel_err_mean", dry_run ? json_null() : doc_real(mean_of(r, 1)));
    json_object_set_new(doc, "warnings", json_integer(r->n_warnings));
    json_object_set_new(doc, "wall_s", doc_real(r->wall_s));
    json_object_set_new(doc, "cpu_s", doc_real(r->cpu_s));
    if (dry_run) /* expected, not measured */
        json_object_set_new(doc, "peak_rss_bytes", json_integer((json_int_t)r->peak_bytes));
    return doc_print(doc, err);
}

/* A report is written while the model has only its temporary name, so that a job whose report fails leaves no model. */
struct pending {
    const struct quantize_report  *r;
    const struct quantize_options *o;
    struct llmq_source            *src;
    struct llmq_out                out;
};

/* What quantize/ knows, and the keys that all documents have. */
static int report_text(const struct pending *p, const char *model_path, struct llmq_str *text, struct llmq_err *err)
{
    json_t *doc = NULL, *own = NULL;

    if (quantize_report_json(p->r, p->src, p->o, text, err) ||
        llmq_json_parse(&own, text->data, text->len, MAX_REPORT, "the report", err) ||
        new_doc(&doc, "llmq.quantize/1", p->r, model_path, err))
        goto out;
    llmq_str_clear(text);
    if (json_object_update(doc, own))
        llmq_fail(err, LLMQ_ENOMEM, "out of memory for the report");
    else if (!llmq_json_text(doc, text, err))
        (void)!llmq_str_append(text, "\n", 1, err);
out:
    json_decref(own);
    json_decref(doc);
    return err->code;
}

/* All but its name: llmq_out_finish gives it that. */
static int write_report(void *ctx, const char *model_path, struct llmq_err *err)
{
    struct pending *p = ctx;
    struct llmq_str text;

    llmq_str_init(&text, MAX_REPORT);
    if (!report_text(p, model_path, &text, err) && !llmq_out_open(&p->out, report_path, err) &&
        !llmq_out_write(&p->out, text.data, text.len, err))
        (void)!llmq_out_sync(&p->out, err);
    llmq_str_fini(&text);
    return err->code;
}

static int show(const struct quantize_report *r, struct llmq_err *err)
{
    for (int i = 0; i < r->n_warnings; i++)
        llmq_log_line(LLMQ_LOG_WARN, "%s", r->warnings[i]);
    if (common_opt.json)
        return print_json(r, err);
    if (dry_run)
        print_plan(r);
    else if (!common_opt.quiet)
        print_summary(r);
    return 0;
}

/* ---- the command ------------------------------------------------------------------------------------------ */

static void on_progress(void *ctx, const struct quantize_progress *p)
{
    char note[96];

    if (p->layer < 0)
        snprintf(note, sizeof note, "%s", p->stage);
    else
        snprintf(note, sizeof note, "layer %d of %d, %s", p->layer + 1, p->n_layers, p->stage);
    progress_update(ctx, p->fraction, 1.0, note);
}

static int quantize(struct llmq_source *src, struct quantize_options *o, struct llmq_err *err)
{
    struct quantize_report r = {0};
    struct pending         report = {.r = &r, .o = o, .src = src};
    struct progress        p;

    progress_begin(&p, "quantize", PROGRESS_FRACTION);
    o->progress = on_progress;
    o->progress_ctx = &p;
    o->before_commit = report_path ? write_report : NULL;
    o->before_commit_ctx = &report;
    (void)!llmq_quantize(src, out_path, o, &r, err);
    progress_end(&p);
    if (!err->code && report_path && dry_run)
        (void)!write_report(&report, NULL, err);
    if (!err->code && report_path)
        (void)!llmq_out_finish(&report.out, err);
    llmq_out_abort(&report.out);
    if (!err->code)
        (void)!show(&r, err);
    quantize_report_free(&r);
    return err->code;
}

static int run(int argc, char **argv, struct llmq_err *err)
{
    struct quantize_options o;
    struct llmq_source     *src = NULL;
    struct corpus          *calib = NULL;
    struct llmq_str         json;

    llmq_str_init(&json, 1 << 16);
    if (check_use(argc, argv, err))
        goto out;
    set_options(&o);
    if (options_json(&o, &json, err) || open_source(&src, argv[0], err) || get_calib(&calib, src, argv[0], err))
        goto out;
    o.command_json = json.data;
    o.calib = calib;
    o.calib_name = calibrated() ? base_name(calib_path) : NULL;
    (void)!quantize(src, &o, err);
out:
    if (calib)
        corpus_close(calib);
    if (src)
        src->close(src);
    llmq_str_fini(&json);
    return err->code;
}

const struct cmd cmd_quantize = {
    "quantize", "SRC -o OUT.llmq --awq|--gptq|--rtn [options]", "a checkpoint or an unquantized .llmq becomes a quantized .llmq", opts, run,
};

/* llmq verify: reads every byte of a .llmq and checks it. */
#include "cli/doc.h"
#include "cli/opt.h"
#include "cli/progress.h"
#include "format/format.h"

#include <stdio.h>

static const struct opt opts[] = {{0}};

static void on_bytes(void *ctx, uint64_t done, uint64_t total)
{
    progress_update(ctx, (double)done, (double)total, NULL);
}

static int check(const struct llmq_file *f, struct llmq_err *err)
{
    struct progress p;
    int             rc;

    progress_begin(&p, "verify", PROGRESS_BYTES);
    rc = llmq_file_verify(f, on_bytes, &p, &cli_interrupted, err);
    progress_end(&p);
    return rc;
}

/* f may be NULL: the file could not be opened.  `bad` is what is wrong with it, if anything. */
static int print_json(const struct llmq_file *f, const struct llmq_err *bad, struct llmq_err *err)
{
    json_t *model = NULL, *doc;

    if (f && !bad->code && doc_model(&model, f, 1, err))
        return err->code;
    doc = doc_new("llmq.verify/1", model, "scalar", llmq_err_status(bad->code));
    if (doc) {
        json_object_set_new(doc, "ok", json_boolean(!bad->code));
        json_object_set_new(doc, "error", bad->code ? json_string(bad->text) : json_null());
        json_object_set_new(doc, "tensors", f ? json_integer(llmq_file_tensor_count(f)) : json_null());
    }
    return doc_print(doc, err);
}

static int run(int argc, char **argv, struct llmq_err *err)
{
    struct llmq_file *f = NULL;
    struct llmq_err   bad = {0};

    if (argc != 1)
        return llmq_fail(err, LLMQ_EUSAGE, "%d files, expected one: llmq verify FILE", argc);
    if (!doc_check_model_path(argv[0], &bad) && !llmq_file_open(&f, argv[0], &bad))
        (void)!check(f, &bad);
    if (common_opt.json)
        print_json(f, &bad, err);
    else if (!bad.code)
        printf("%s: ok, %d tensors, %llu bytes\n", argv[0], llmq_file_tensor_count(f), (unsigned long long)llmq_file_size(f));
    llmq_file_close(f);
    if (bad.code)
        *err = bad;
    return err->code;
}

const struct cmd cmd_verify = {"verify", "FILE [options]", "check a model file completely", opts, run};

/* Calibration data for quantize: see calibset.h. */
#include "cli/calibset.h"

#include "cli/opt.h"
#include "cli/progress.h"
#include "common/alloc.h"
#include "common/log.h"
#include "common/str.h"
#include "convert/convert.h"
#include "runner/selfsample.h"
#include "runner/text/tokenizer.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the model's own windows ------------------------------------------------------------------------------ */

/* The runner runs .llmq files, so a checkpoint becomes one first.  It loses its name as soon as it is mapped: however this
 * ends, nothing stays behind. */
static int open_converted(struct llmq_file **f, struct llmq_source *src, const char *beside, struct llmq_err *err)
{
    struct convert_options co = {.cancel = &cli_interrupted, .version = cli_version()};
    struct llmq_str        path;

    llmq_str_init(&path, 1 << 16);
    if (!llmq_str_printf(&path, err, "%s.%ld.self", beside, (long)getpid()) && !convert_write(src, path.data, &co, err)) {
        (void)!llmq_file_open(f, path.data, err);
        unlink(path.data);
    }
    llmq_str_fini(&path);
    return err->code;
}

static int open_model(struct llmq_file **f, struct llmq_source *src, const struct calibset_options *o, struct llmq_err *err)
{
    struct stat st;

    if (stat(o->source, &st))
        return llmq_fail_errno(err, "%s", o->source);
    return S_ISDIR(st.st_mode) ? open_converted(f, src, o->beside, err) : llmq_file_open(f, o->source, err);
}

static void on_progress(void *ctx, long done, long total) { progress_update(ctx, (double)done, (double)total, "the model's own text"); }

static int draw(struct corpus **out, struct llmq_source *src, const struct calibset_options *o, int seqlen, struct llmq_err *err)
{
    struct selfsample_options so = {.windows = o->samples, .seqlen = seqlen, .seed = o->seed, .device = common_opt.device,
                                    .isa = common_opt.isa, .progress = on_progress, .cancel = &cli_interrupted};
    struct llmq_file         *f = NULL;
    struct progress           p;

    if (open_model(&f, src, o, err))
        return err->code;
    progress_begin(&p, "sample", PROGRESS_TOKENS);
    so.progress_ctx = &p;
    (void)!selfsample(out, f, &so, err);
    progress_end(&p);
    llmq_file_close(f);
    return err->code;
}

/* What a plan needs to know about windows: how many, how long. */
static int undrawn(struct corpus **out, const struct calibset_options *o, int seqlen, struct llmq_err *err)
{
    int32_t *zeros;

    if (LLMQ_NEW(&zeros, (size_t)o->samples * (size_t)seqlen, "windows", err))
        return err->code;
    if (!corpus_from_windows(out, zeros, o->samples, seqlen, "window", err))
        (*out)->sha256[0] = (*out)->token_sha256[0] = '\0';
    llmq_free(zeros);
    return err->code;
}

/* ---- text ----------------------------------------------------------------------------------------------------- */

static int open_text(struct corpus **out, struct llmq_source *src, const struct calibset_options *o, int seqlen, struct llmq_err *err)
{
    struct tokenizer *t;
    int               rc;

    if (tokenizer_from_source(&t, src, err))
        return err->code;
    rc = corpus_open_calib(out, o->from, t, (int)src->hparams->n_vocab, o->samples, seqlen, err);
    tokenizer_free(t);
    if (!rc && (*out)->n_windows < o->samples)
        llmq_log_line(LLMQ_LOG_WARN, "%s: %d windows of %d asked for, found text for %d", o->from, o->samples, seqlen, (*out)->n_windows);
    return rc;
}

int calibset_open(struct corpus **out, struct llmq_source *src, const struct calibset_options *o, struct llmq_err *err)
{
    int most = src->hparams->ctx_len < 1024 ? (int)src->hparams->ctx_len : 1024, seqlen = o->seqlen ? o->seqlen : most;

    if ((uint32_t)seqlen > src->hparams->ctx_len)
        return llmq_fail(err, LLMQ_EUSAGE, "--calib-seqlen: %d, but the model's context is %u", seqlen, src->hparams->ctx_len);
    if (strcmp(o->from, "self") != 0)
        return open_text(out, src, o, seqlen, err);
    return o->dry_run ? undrawn(out, o, seqlen, err) : draw(out, src, o, seqlen, err);
}

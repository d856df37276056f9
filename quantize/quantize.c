/* llmq_quantize: plan, run the method, copy the text sections, note where everything comes from.  See quantize.h. */
#include "quantize/method.h"

#include "common/clock.h"
#include "common/io.h"
#include "common/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_WARNINGS = 256 };

int job_cancelled(const struct job *j, struct llmq_err *err)
{
    if (j->o->cancel && __atomic_load_n(j->o->cancel, __ATOMIC_RELAXED))
        return llmq_fail(err, LLMQ_EINTR, "interrupted");
    return 0;
}

void job_progress(struct job *j, int layer, const char *stage, double work)
{
    struct quantize_progress p = {.layer = layer, .n_layers = (int)j->hp->n_layers, .stage = stage};

    j->work_done += work;
    p.fraction = j->work_total > 0 ? j->work_done / j->work_total : 0;
    if (j->o->progress)
        j->o->progress(j->o->progress_ctx, &p);
}

int job_warn(struct job *j, struct llmq_err *err, const char *fmt, ...)
{
    char    text[400], *copy;
    va_list ap;

    if (j->rep->n_warnings == MAX_WARNINGS)
        return 0;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    copy = llmq_arena_str(j->rep->arena, text, strlen(text), err);
    if (!copy)
        return err->code;
    j->rep->warnings[j->rep->n_warnings++] = copy;
    return 0;
}

static int sections(struct job *j, struct llmq_err *err)
{
    static const int ids[] = {LLMQ_SECTION_TOKENIZER, LLMQ_SECTION_VOCAB, LLMQ_SECTION_MERGES, LLMQ_SECTION_CHAT_TEMPLATE,
                              LLMQ_SECTION_GENERATION};

    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        size_t      len = 0;
        const char *text = j->src->section(j->src, ids[i], &len);
        if (len && llmq_writer_section(j->w, ids[i], text, len, err))
            return err->code;
    }
    return 0;
}

static int provenance(struct job *j, struct llmq_err *err)
{
    struct llmq_str s;

    llmq_str_init(&s, 64u << 20);
    if (!provenance_json(j, &s, err))
        (void)!llmq_writer_section(j->w, LLMQ_SECTION_PROVENANCE, s.data, s.len, err);
    llmq_str_fini(&s);
    return err->code;
}

static void measure(struct job *j, const char *path, double cpu_start)
{
    struct stat st;

    if (stat(path, &st) == 0)
        j->rep->size_bytes = (uint64_t)st.st_size;
    j->rep->peak_bytes = llmq_peak_rss_bytes();
    j->rep->wall_s = llmq_clock_s() - j->started;
    j->rep->cpu_s = llmq_clock_cpu_s() - cpu_start;
}

static int finish(struct job *j, double cpu_start, struct llmq_err *err)
{
    const char *path = llmq_writer_tmp_path(j->w);

    if (llmq_writer_close_file(j->w, err))
        return err->code;
    measure(j, path, cpu_start);
    if (j->o->before_commit && j->o->before_commit(j->o->before_commit_ctx, path, err))
        return err->code;
    return llmq_writer_commit(j->w, NULL, err);
}

static int run(struct job *j, const char *path, struct llmq_err *err)
{
    double cpu = llmq_clock_cpu_s();

    j->started = llmq_clock_s();
    if (llmq_writer_open(&j->w, path, j->hp, err))
        return err->code;
    if (sections(j, err) || (j->o->method != QUANTIZE_RTN ? layers_run(j, err) : rtn_run(j, err)) || provenance(j, err) ||
        finish(j, cpu, err))
        llmq_writer_abort(j->w);
    return err->code;
}

int llmq_quantize(struct llmq_source *src, const char *path, const struct quantize_options *o, struct quantize_report *report,
                  struct llmq_err *err)
{
    struct quantize_report own = {0};
    struct job             j = {.src = src, .o = o, .hp = src->hparams, .rep = report ? report : &own};

    memset(j.rep, 0, sizeof *j.rep);
    snprintf(j.rep->isa, sizeof j.rep->isa, "%s", o->dry_run ? "none" : "scalar"); /* AWQ runs a model and says more */
    if (LLMQ_NEW(&j.rep->arena, 1, "a report", err) ||
        LLMQ_ARENA_NEW(j.rep->arena, &j.rep->warnings, MAX_WARNINGS, "warnings", err) || plan_make(&j, err))
        goto out;
    if (!o->dry_run)
        (void)!run(&j, path, err);
out:
    if (!report)
        quantize_report_free(&own);
    return err->code;
}

void quantize_report_free(struct quantize_report *r)
{
    if (r->arena)
        llmq_arena_free(r->arena);
    llmq_free(r->arena);
    memset(r, 0, sizeof *r);
}

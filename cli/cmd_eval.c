/* llmq eval: perplexity, distance from a baseline, gates. */
#include "cli/doc.h"
#include "cli/opt.h"
#include "cli/progress.h"
#include "common/log.h"
#include "runner/eval.h"
#include "runner/text/corpus.h"
#include "runner/text/tokenizer.h"

#include <math.h>
#include <string.h>

enum { DEFAULT_CTX = 2048 };

static struct {
    const char *data, *protocol, *baseline, *kv_dtype;
    int         windows, ctx;
    double      max_ppl, max_ppl_increase, max_kld, min_top1;
} opt = {.protocol = "plain", .kv_dtype = "f16"};

static const struct opt opts[] = {
    {"data", 0, OPT_STR, &opt.data, "FILE", NULL, "text to evaluate on", 0, 0},
    {"protocol", 0, OPT_CHOICE, &opt.protocol, "plain|gptq|llama.cpp|lm-eval", "plain", "how text becomes windows, and what is scored", 0, 0},
    {"windows", 0, OPT_INT, &opt.windows, "N", "all", "score the first N windows", 1, 100000000},
    {"ctx", 0, OPT_INT, &opt.ctx, "N", "2048, or the model's context if that is smaller", "tokens in a window", 2, 1 << 24},
    {"baseline", 0, OPT_STR, &opt.baseline, "FILE", NULL, "model to compare with, on the same tokens", 0, 0},
    {"kv-cache-dtype", 0, OPT_CHOICE, &opt.kv_dtype, "f32|f16", "f16", "type of stored keys and values", 0, 0},
    {"max-ppl", 0, OPT_REAL, &opt.max_ppl, "X", NULL, "gate: perplexity", 0, 0},
    {"max-ppl-increase", 0, OPT_PERCENT, &opt.max_ppl_increase, "PERCENT", NULL, "gate: perplexity over the baseline's", 0, 0},
    {"max-kld", 0, OPT_REAL, &opt.max_kld, "X", NULL, "gate: mean KL divergence from the baseline", 0, 0},
    {"min-top1", 0, OPT_PERCENT, &opt.min_top1, "PERCENT", NULL, "gate: tokens with the baseline's first choice", 0, 100},
    {0},
};

/* ---- gates --------------------------------------------------------------------------------------------- */

enum verdict { PASS, FAIL, UNDECIDED };
static const char *const verdict_name[] = {"pass", "fail", "undecided"};

/* A gate holds when the far end of the 95 % interval holds; it fails when the value itself does not. */
struct gate {
    const char  *name;
    double       limit, value, bound;
    enum verdict verdict;
    double       windows; /* undecided: about how many would decide it, if the value stays; NaN: cannot be told */
    int          percent; /* its numbers are fractions that people read and give in percent */
};

struct gates {
    struct gate g[4];
    int         n;
};

static struct gate *add_gate(struct gates *gs, const char *name, double limit, double value, double bound, int windows)
{
    double       sign = strncmp(name, "min", 3) ? 1 : -1, room = sign * (limit - value), half = sign * (bound - value);
    struct gate *g = &gs->g[gs->n++];

    *g = (struct gate){name, limit, value, bound, UNDECIDED, NAN, 0};
    if (!(room >= 0))
        g->verdict = FAIL;
    else if (half <= room) /* not so for NaN: one window has no interval */
        g->verdict = PASS;
    else if (room > 0 && half == half)
        g->windows = ceil(windows * (half / room) * (half / room));
    return g;
}

static void judge(struct gates *gs, const struct cmd *cmd, const struct eval_result *r)
{
    double t = llmq_eval_t95(r->windows - 1);

    if (opt_given(cmd, "max-ppl"))
        add_gate(gs, "max-ppl", opt.max_ppl, r->ppl, r->ppl_high, r->windows);
    if (opt_given(cmd, "max-ppl-increase"))
        add_gate(gs, "max-ppl-increase", opt.max_ppl_increase, r->increase, r->increase_high, r->windows)->percent = 1;
    if (opt_given(cmd, "max-kld"))
        add_gate(gs, "max-kld", opt.max_kld, r->kl_mean, r->kl_mean + t * r->kl_stderr, r->windows);
    if (opt_given(cmd, "min-top1"))
        add_gate(gs, "min-top1", opt.min_top1, r->top1, r->top1 - t * r->top1_stderr, r->windows)->percent = 1;
}

static int gates_failed(const struct gates *gs)
{
    for (int i = 0; i < gs->n; i++)
        if (gs->g[i].verdict != PASS)
            return 1;
    return 0;
}

struct number {
    char text[40];
};

static struct number gate_number(const struct gate *g, double x)
{
    struct number n;

    snprintf(n.text, sizeof n.text, g->percent ? "%.6g %%" : "%.6g", g->percent ? 100 * x : x);
    return n;
}

/* The message of the worst gate. */
static int report_gates(const struct gates *gs, struct llmq_err *err)
{
    const struct gate *worst = NULL;

    for (int i = 0; i < gs->n; i++)
        if (gs->g[i].verdict == FAIL || (gs->g[i].verdict == UNDECIDED && !worst))
            worst = &gs->g[i];
    if (!worst)
        return 0;

    struct number value = gate_number(worst, worst->value), limit = gate_number(worst, worst->limit), bound = gate_number(worst, worst->bound);

    if (worst->verdict == FAIL)
        return llmq_fail(err, LLMQ_EGATE, "gate %s: %s, expected at %s %s", worst->name, value.text,
                         strncmp(worst->name, "min", 3) ? "most" : "least", limit.text);
    if (worst->windows == worst->windows)
        return llmq_fail(err, LLMQ_EGATE, "gate %s is undecided: %s is within %s, but its bound %s is not; about %.0f windows would decide it",
                         worst->name, value.text, limit.text, bound.text, worst->windows);
    return llmq_fail(err, LLMQ_EGATE, "gate %s is undecided: %s against %s, and more windows are needed", worst->name, value.text, limit.text);
}

/* ---- output ---------------------------------------------------------------------------------------------- */

/* A value with its standard error, of which one window has none. */
static void print_value(const char *name, double value, double se, int digits, const char *unit)
{
    printf("%-22s %.*f%s", name, digits, value, unit);
    if (se - se == 0)
        printf(" +- %.*f%s", digits, se, unit);
}

static void print_interval(const char *name, double value, double low, double high, int digits, const char *unit)
{
    printf("%-22s %+.*f%s", name, digits, value, unit);
    if (low - low == 0)
        printf("   95 %% interval %+.*f to %+.*f%s", digits, low, digits, high, unit);
    putchar('\n');
}

static void print_pair(const struct eval_result *r)
{
    printf("baseline perplexity    %.4f\n", r->base_ppl);
    print_interval("perplexity increase", 100 * r->increase, 100 * r->increase_low, 100 * r->increase_high, 3, " %");
    print_interval("delta NLL", r->delta_mean, r->delta_low, r->delta_high, 6, "");
    print_value("KL divergence", r->kl_mean, r->kl_stderr, 6, "");
    printf("   99 %% %.5f   99.9 %% %.5f   max %.4f\n", r->kl_p99, r->kl_p999, r->kl_max);
    print_value("same first choice", 100 * r->top1, 100 * r->top1_stderr, 3, " %");
    printf("\nRMS change of p        %.3f %%\n", 100 * r->prob_change_rms);
}

static void print_gates(const struct gates *gs)
{
    for (int i = 0; i < gs->n; i++) {
        const struct gate *g = &gs->g[i];

        printf("gate %-17s %s   limit %s   value %s   bound %s\n", g->name, verdict_name[g->verdict], gate_number(g, g->limit).text,
               gate_number(g, g->value).text, gate_number(g, g->bound).text);
    }
}

static void print_text(const struct corpus *c, const struct eval_result *r, const struct gates *gs)
{
    printf("data                   sha256 %.16s  %zu tokens (ids sha256 %.16s)\n", c->sha256, c->n_ids, c->token_sha256);
    printf("protocol               %s: window %d, stride %d, BOS %s, KV %s\n", corpus_protocol_name(c->protocol), c->ctx, c->stride, c->bos,
           opt.kv_dtype);
    printf("scored                 %ld tokens in %d windows\n", r->tokens_scored, r->windows);
    print_value("NLL", r->nll_mean, r->nll_stderr, 6, "");
    putchar('\n');
    print_value("perplexity", r->ppl, r->ppl_stderr, 4, "");
    putchar('\n');
    if (r->word_ppl > 0)
        printf("word perplexity        %.4f   (%zu words)\n", r->word_ppl, c->words);
    if (r->has_baseline)
        print_pair(r);
    print_gates(gs);
    printf("speed                  %.1f tokens/s, %.1f s, %s\n", r->tokens_per_s, r->seconds, r->isa);
}

static json_t *pair_json(const struct eval_result *r, json_t *model)
{
    return json_pack("{s:o, s:o, s:{s:o, s:o, s:o}, s:{s:o, s:o, s:o, s:o, s:o, s:b}, s:o, s:o}", "model", model, "ppl",
                     doc_real(r->base_ppl), "delta_nll", "mean", doc_real(r->delta_mean), "ci95_low", doc_real(r->delta_low), "ci95_high",
                     doc_real(r->delta_high), "kl", "mean", doc_real(r->kl_mean), "stderr", doc_real(r->kl_stderr), "p99",
                     doc_real(r->kl_p99), "p999", doc_real(r->kl_p999), "max", doc_real(r->kl_max), "exact", 1, "top1_agreement",
                     doc_real(r->top1), "prob_change_rms", doc_real(r->prob_change_rms));
}

static json_t *gates_json(const struct gates *gs)
{
    json_t *a = json_array();

    for (int i = 0; a && i < gs->n; i++)
        json_array_append_new(a, json_pack("{s:s, s:o, s:o, s:o, s:s}", "name", gs->g[i].name, "limit", doc_real(gs->g[i].limit), "value",
                                           doc_real(gs->g[i].value), "bound", doc_real(gs->g[i].bound), "verdict",
                                           verdict_name[gs->g[i].verdict]));
    return a;
}

static int model_json(json_t **out, const char *path, struct llmq_err *err)
{
    struct llmq_file *f;
    int               rc;

    if (llmq_file_open(&f, path, err))
        return err->code;
    rc = doc_model(out, f, 1, err);
    llmq_file_close(f);
    return rc;
}

static int print_json(const char *model_path, const struct corpus *c, const struct eval_result *r, const struct gates *gs, struct llmq_err *err)
{
    json_t *model = NULL, *base = NULL, *doc, *rest;

    if (model_json(&model, model_path, err) || (opt.baseline && model_json(&base, opt.baseline, err)))
        return json_decref(model), err->code;
    doc = doc_new("llmq.eval/1", model, r->isa, gates_failed(gs) ? llmq_err_status(LLMQ_EGATE) : 0);
    rest = json_pack("{s:{s:s, s:I, s:s}, s:{s:s, s:i, s:i, s:s, s:s}, s:i, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "data", "sha256",
                     c->sha256, "tokens", (json_int_t)c->n_ids, "token_sha256", c->token_sha256, "protocol", "name",
                     corpus_protocol_name(c->protocol), "window_tokens", c->ctx, "stride_tokens", c->stride, "bos", c->bos, "kv_cache_dtype",
                     opt.kv_dtype, "windows", r->windows, "tokens_scored", (json_int_t)r->tokens_scored, "nll_mean", doc_real(r->nll_mean),
                     "nll_stderr", doc_real(r->nll_stderr), "ppl", doc_real(r->ppl), "ppl_stderr", doc_real(r->ppl_stderr), "word_ppl",
                     r->word_ppl > 0 ? doc_real(r->word_ppl) : json_null(), "tokens_per_s", doc_real(r->tokens_per_s), "baseline",
                     base ? pair_json(r, base) : json_null(), "gates", gates_json(gs));
    if (!doc || !rest || json_object_update(doc, rest)) {
        json_decref(doc);
        doc = NULL;
    }
    json_decref(rest);
    return doc_print(doc, err);
}

/* ---- the job ---------------------------------------------------------------------------------------------- */

static void on_window(void *ctx, int window, int windows, long tokens, double ppl)
{
    char note[96];

    (void)tokens;
    snprintf(note, sizeof note, "window %d of %d, perplexity %.4f", window, windows, ppl);
    progress_update(ctx, window, windows, note);
}

static enum corpus_protocol protocol_of(const char *name)
{
    int p = CORPUS_PLAIN;

    while (p < CORPUS_LM_EVAL && strcmp(corpus_protocol_name(p), name) != 0)
        p++;
    return p;
}

/* Opens the text with the model's tokenizer; the file is needed for nothing else here. */
static int open_corpus(struct corpus **c, const char *model_path, struct llmq_err *err)
{
    const struct llmq_hparams *hp;
    struct tokenizer          *t = NULL;
    struct llmq_file          *f;
    int                        ctx = opt.ctx, rc = llmq_file_open(&f, model_path, err);

    if (rc)
        return rc;
    hp = llmq_file_hparams(f);
    if (!ctx)
        ctx = hp->ctx_len < DEFAULT_CTX ? (int)hp->ctx_len : DEFAULT_CTX;
    rc = tokenizer_from_file(&t, f, err);
    if (!rc && (uint32_t)ctx > llmq_hparams_max_ctx(hp))
        rc = llmq_fail(err, LLMQ_EUSAGE, "--ctx %d: the model was made for at most %u", ctx, llmq_hparams_max_ctx(hp));
    if (!rc)
        rc = corpus_open(c, opt.data, t, protocol_of(opt.protocol), ctx, opt.windows, hp->bos_id >= 0 ? hp->bos_id : hp->n_eos ? hp->eos_id[0] : -1,
                         err);
    tokenizer_free(t);
    llmq_file_close(f);
    return rc;
}

static int evaluate(const char *model_path, const struct corpus *c, struct eval_result *r, struct llmq_err *err)
{
    struct progress     p;
    struct eval_options o = {.device = common_opt.device, .isa = common_opt.isa, .kv_dtype = opt.kv_dtype, .progress = on_window,
                             .progress_ctx = &p, .cancel = &cli_interrupted};
    int                 rc;

    if (opt.windows > c->n_windows && c->protocol != CORPUS_LM_EVAL)
        llmq_log_line(LLMQ_LOG_WARN, "the text has %d windows, %d were asked for", c->n_windows, opt.windows);
    progress_begin(&p, "eval", PROGRESS_FRACTION);
    rc = llmq_eval(model_path, opt.baseline, c, &o, r, err);
    progress_end(&p);
    return rc;
}

static int check_usage(int argc, char **argv, struct llmq_err *err)
{
    if (argc != 1)
        return llmq_fail(err, LLMQ_EUSAGE, "%d models, expected one: llmq eval MODEL --data FILE", argc);
    if (!opt.data)
        return llmq_fail(err, LLMQ_EUSAGE, "--data FILE is needed: the text to evaluate on");
    if (!opt.baseline && (opt_given(&cmd_eval, "max-ppl-increase") || opt_given(&cmd_eval, "max-kld") || opt_given(&cmd_eval, "min-top1")))
        return llmq_fail(err, LLMQ_EUSAGE, "--max-ppl-increase, --max-kld and --min-top1 compare with a model: --baseline FILE is needed");
    if (opt.baseline && doc_check_model_path(opt.baseline, err))
        return err->code;
    return doc_check_model_path(argv[0], err);
}

static int run(int argc, char **argv, struct llmq_err *err)
{
    struct corpus     *c = NULL;
    struct eval_result r = {0};
    struct gates       gs = {0};
    int                rc = check_usage(argc, argv, err);

    if (!rc)
        rc = open_corpus(&c, argv[0], err);
    if (!rc)
        rc = evaluate(argv[0], c, &r, err);
    if (!rc) {
        judge(&gs, &cmd_eval, &r);
        if (common_opt.json)
            rc = print_json(argv[0], c, &r, &gs, err);
        else
            print_text(c, &r, &gs);
    }
    llmq_eval_free(&r);
    corpus_close(c);
    return rc ? rc : report_gates(&gs, err);
}

const struct cmd cmd_eval = {"eval", "MODEL --data FILE [options]", "perplexity, and distance from a baseline", opts, run};

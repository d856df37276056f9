/* llmq run: one prompt in, text out as it becomes certain. */
#include "cli/doc.h"
#include "cli/input.h"
#include "cli/opt.h"
#include "cli/output.h"
#include "common/json.h"
#include "common/str.h"
#include "runner/runner.h"
#include "runner/text/tokenizer.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PROMPT = 64 << 20, MAX_TEXT = 64 << 20 };

static struct {
    const char *prompt, *file, *system, *template_name, *kv_dtype;
    int         raw, max_tokens, top_k, ignore_eos, ctx, stats;
    double      temperature, top_p, min_p, repetition_penalty;
    uint64_t    seed;
} opt = {.max_tokens = 256, .top_p = 1, .repetition_penalty = 1, .kv_dtype = "f16"};

static const struct opt opts[] = {
    {"prompt", 'p', OPT_STR, &opt.prompt, "TEXT", NULL, "the prompt", 0, 0},
    {"file", 'f', OPT_STR, &opt.file, "FILE", NULL, "read the prompt from a file (- for standard input)", 0, 0},
    {"raw", 0, OPT_FLAG, &opt.raw, NULL, NULL, "no chat template: continue the prompt as it is", 0, 0},
    {"system", 0, OPT_STR, &opt.system, "TEXT", NULL, "system message", 0, 0},
    {"chat-template", 0, OPT_CHOICE, &opt.template_name, "chatml|none", "the model's", "chat template to use", 0, 0},
    {"max-tokens", 'n', OPT_INT, &opt.max_tokens, "N", "256", "make at most N tokens", 1, 1 << 24},
    {"temperature", 0, OPT_REAL, &opt.temperature, "X", "the model's, or 0", "0 takes the likeliest token, larger is wilder", 0, 0},
    {"top-k", 0, OPT_INT, &opt.top_k, "N", "the model's, or 0", "choose among the N likeliest (0: no limit)", 0, 1 << 24},
    {"top-p", 0, OPT_REAL, &opt.top_p, "X", "the model's, or 1", "choose among the likeliest that hold X of the probability", 0, 0},
    {"min-p", 0, OPT_REAL, &opt.min_p, "X", "the model's, or 0", "leave out tokens less likely than X times the likeliest", 0, 0},
    {"repetition-penalty", 0, OPT_REAL, &opt.repetition_penalty, "X", "the model's, or 1", "make tokens that were there less likely", 0, 0},
    {"seed", 0, OPT_U64, &opt.seed, "N", "0", "where random choices start", 0, 0},
    {"ignore-eos", 0, OPT_FLAG, &opt.ignore_eos, NULL, NULL, "go on behind an end token", 0, 0},
    {"ctx", 0, OPT_INT, &opt.ctx, "N", "4096, or the model's context if that is smaller", "tokens of prompt and answer together", 2, 1 << 24},
    {"kv-cache-dtype", 0, OPT_CHOICE, &opt.kv_dtype, "f32|f16", "f16", "type of stored keys and values", 0, 0},
    {"stats", 0, OPT_FLAG, &opt.stats, NULL, NULL, "speed and memory on stderr when done", 0, 0},
    {0},
};

/* ---- the prompt ----------------------------------------------------------------------------------------- */

static int read_file(const char *path, struct llmq_str *out, struct llmq_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc;

    if (fd < 0)
        return llmq_fail_errno(err, "%s", path);
    rc = input_read(fd, path, out, err);
    close(fd);
    return rc;
}

/* A file's last newlines end its last line; in a chat message they would be part of it. */
static void strip_newlines(struct llmq_str *s)
{
    while (s->len && (s->data[s->len - 1] == '\n' || s->data[s->len - 1] == '\r'))
        s->data[--s->len] = '\0';
}

static int get_prompt(struct llmq_str *out, struct llmq_err *err)
{
    int rc;

    if (opt.prompt)
        return llmq_str_append(out, opt.prompt, strlen(opt.prompt), err);
    if (opt.file && strcmp(opt.file, "-") != 0)
        rc = read_file(opt.file, out, err);
    else if (opt.file || !isatty(STDIN_FILENO))
        rc = input_read(STDIN_FILENO, "standard input", out, err);
    else
        return llmq_fail(err, LLMQ_EUSAGE, "no prompt: give one with -p, -f or on standard input (a chat on the terminal comes later)");
    if (rc)
        return rc;
    if (!opt.raw)
        strip_newlines(out);
    if (memchr(out->data, '\0', out->len))
        return llmq_fail(err, LLMQ_EFORMAT, "the prompt holds a zero byte, expected text");
    return 0;
}

static int encode_prompt(const struct llmq_engine *e, struct token_ids *ids, struct llmq_err *err)
{
    const struct tokenizer *t = llmq_engine_tokenizer(e);
    struct llmq_str         text;
    int                     rc;

    llmq_str_init(&text, MAX_PROMPT);
    rc = get_prompt(&text, err);
    if (!rc && opt.raw)
        rc = tokenizer_encode(t, text.data, text.len, TOKENIZER_ADD_SPECIAL | TOKENIZER_PARSE_SPECIAL, ids, err);
    else if (!rc)
        rc = llmq_chat_encode(llmq_engine_file(e), t, opt.template_name, opt.system, text.data, ids, err);
    llmq_str_fini(&text);
    return rc;
}

/* ---- sampling --------------------------------------------------------------------------------------------- */

static int check_range(const char *name, double v, double low, double high, struct llmq_err *err)
{
    if (v >= low && v <= high)
        return 0;
    if (!opt_given(&cmd_run, name))
        return llmq_fail(err, LLMQ_EFORMAT, "the model's generation defaults: %s %g is out of range, expected %g to %g", name, v, low, high);
    return llmq_fail(err, LLMQ_EUSAGE, "--%s: %g is out of range, expected %g to %g", name, v, low, high);
}

/* The model's generation defaults fill in what the command line leaves open; temperature and limits only when
 * the model asks for sampling, as Hugging Face's generate does. */
static int read_defaults(const struct llmq_file *f, struct llmq_err *err)
{
    size_t      len;
    const char *text = llmq_file_section(f, LLMQ_SECTION_GENERATION, &len), *where = "the model's generation defaults";
    double      temperature = 1, top_p = 1, min_p = 0, penalty = 1;
    int64_t     top_k = 0;
    int         sample = 0, rc;
    json_t     *o;

    if (!len)
        return 0;
    if (llmq_json_parse(&o, text, len, 1 << 20, where, err))
        return err->code;
    rc = llmq_json_bool(o, "do_sample", LLMQ_JSON_OPTIONAL, &sample, where, err) ||
         llmq_json_real(o, "temperature", LLMQ_JSON_OPTIONAL, &temperature, where, err) ||
         llmq_json_real(o, "top_p", LLMQ_JSON_OPTIONAL, &top_p, where, err) ||
         llmq_json_real(o, "min_p", LLMQ_JSON_OPTIONAL, &min_p, where, err) ||
         llmq_json_int(o, "top_k", LLMQ_JSON_OPTIONAL, &top_k, where, err) ||
         llmq_json_real(o, "repetition_penalty", LLMQ_JSON_OPTIONAL, &penalty, where, err);
    json_decref(o);
    if (rc)
        return err->code;
    if (!opt_given(&cmd_run, "repetition-penalty"))
        opt.repetition_penalty = penalty;
    if (!sample)
        return 0;
    if (!opt_given(&cmd_run, "temperature"))
        opt.temperature = temperature;
    if (!opt_given(&cmd_run, "top-p"))
        opt.top_p = top_p;
    if (!opt_given(&cmd_run, "min-p"))
        opt.min_p = min_p;
    if (!opt_given(&cmd_run, "top-k"))
        opt.top_k = top_k > 0 && top_k < INT32_MAX ? (int)top_k : 0;
    return 0;
}

static int get_sampling(const struct llmq_file *f, struct llmq_sampling *s, struct llmq_err *err)
{
    if (read_defaults(f, err) || check_range("temperature", opt.temperature, 0, 1000, err) || check_range("top-p", opt.top_p, 0, 1, err) ||
        check_range("min-p", opt.min_p, 0, 1, err) || check_range("repetition-penalty", opt.repetition_penalty, 0.01, 100, err))
        return err->code;
    *s = (struct llmq_sampling){.temperature = (float)opt.temperature, .top_k = opt.top_k, .top_p = (float)opt.top_p,
                                .min_p = (float)opt.min_p, .repetition_penalty = (float)opt.repetition_penalty, .seed = opt.seed};
    return 0;
}

/* ---- generation ------------------------------------------------------------------------------------------- */

/* Everything that is made. */
struct answer {
    struct llmq_str          text;
    struct tokenizer_stream *stream;
    json_t                  *ids;
    size_t                   shown; /* bytes of text that are on stdout */
    int                      gone;  /* stdout's reader has had enough */
    enum llmq_finish         finish;
};

static int show(struct answer *a, struct llmq_err *err)
{
    size_t n = a->text.len - a->shown;

    if (common_opt.json || !n || a->gone)
        return 0;
    if (fwrite(a->text.data + a->shown, 1, n, stdout) != n || fflush(stdout)) {
        a->gone = 1;
        return output_failed(err);
    }
    a->shown = a->text.len;
    return 0;
}

static int take(struct answer *a, const struct llmq_step_out *o, struct llmq_err *err)
{
    a->finish = o->finish;
    if (o->id < 0)
        return 0;
    if (json_array_append_new(a->ids, json_integer(o->id)))
        return llmq_fail(err, LLMQ_ENOMEM, "out of memory for token ids");
    if (o->finish != LLMQ_FINISH_STOP && tokenizer_stream_push(a->stream, o->id, &a->text, err))
        return err->code;
    return show(a, err);
}

/* An interruption, or a reader that left, ends the loop like a limit does: what was made stays. */
static int generate(struct llmq_engine *e, struct answer *a, struct llmq_err *err)
{
    struct llmq_step_out o;

    while (a->finish == LLMQ_FINISH_NONE && !cli_interrupted && !a->gone)
        if (llmq_engine_step(e, &o, err) || take(a, &o, err))
            return err->code;
    if (tokenizer_stream_finish(a->stream, &a->text, err) || show(a, err))
        return err->code;
    if (!common_opt.json && !a->gone && (!a->text.len || a->text.data[a->text.len - 1] != '\n'))
        putchar('\n');
    return 0;
}

static const char *finish_name(const struct answer *a)
{
    return a->finish == LLMQ_FINISH_STOP ? "stop" : a->finish == LLMQ_FINISH_LENGTH ? "length" : "cancelled";
}

/* ---- reports ------------------------------------------------------------------------------------------------ */

static double rate(double n, double s) { return s > 0 && n > 0 ? n / s : 0; }

/* The first token is the prefill's; the others are what decoding took its time for. */
static double decode_rate(const struct llmq_engine_stats *st) { return rate(st->completion_tokens - 1, st->decode_s); }

static void print_stats(const struct llmq_engine *e, const struct answer *a)
{
    struct llmq_engine_stats st;

    llmq_engine_get_stats(e, &st);
    fprintf(stderr, "load      %.3f s\n", st.load_s);
    fprintf(stderr, "prompt    %d tokens, %.1f tokens/s, first token after %.3f s\n", st.prompt_tokens, rate(st.prompt_tokens, st.prefill_s),
            st.ttft_s);
    fprintf(stderr, "answer    %d tokens, %.1f tokens/s, ended by %s\n", st.completion_tokens, decode_rate(&st), finish_name(a));
    fprintf(stderr, "KV        %s, %d of %d pages of %d tokens\n", st.kv_dtype, st.pages_used, st.pages_total, st.page_tokens);
    fprintf(stderr, "kernels   %s\n", llmq_engine_isa(e));
}

static int print_json(const struct llmq_engine *e, const struct answer *a, const struct llmq_sampling *s, struct llmq_err *err)
{
    struct llmq_engine_stats st;
    json_t                  *model, *doc, *rest;

    llmq_engine_get_stats(e, &st);
    if (doc_model(&model, llmq_engine_file(e), 1, err))
        return err->code;
    doc = doc_new("llmq.run/1", model, llmq_engine_isa(e), cli_interrupted ? llmq_err_status(LLMQ_EINTR) : 0);
    rest = json_pack("{s:s%, s:O, s:i, s:i, s:s, s:{s:o, s:i, s:o, s:o, s:o, s:I}, s:o, s:o, s:o, s:o, s:{s:s, s:i, s:i, s:i}}", "text",
                     a->text.data, a->text.len, "token_ids", a->ids, "prompt_tokens", st.prompt_tokens, "completion_tokens",
                     st.completion_tokens, "finish_reason", finish_name(a), "sampling", "temperature", doc_real(opt.temperature), "top_k",
                     s->top_k, "top_p", doc_real(opt.top_p), "min_p", doc_real(opt.min_p), "repetition_penalty",
                     doc_real(opt.repetition_penalty), "seed", (json_int_t)s->seed, "load_s", doc_real(st.load_s), "ttft_s",
                     doc_real(st.ttft_s), "prefill_tokens_per_s", doc_real(rate(st.prompt_tokens, st.prefill_s)), "decode_tokens_per_s",
                     doc_real(decode_rate(&st)), "kv", "dtype", st.kv_dtype, "page_tokens", st.page_tokens, "pages_used", st.pages_used,
                     "pages_total", st.pages_total);
    if (!doc || !rest || json_object_update(doc, rest)) {
        json_decref(doc);
        doc = NULL;
    }
    json_decref(rest);
    return doc_print(doc, err);
}

/* ---- the job -------------------------------------------------------------------------------------------------- */

static int submit(struct llmq_engine *e, const struct llmq_sampling *s, struct llmq_err *err)
{
    struct token_ids ids = {0};
    int              rc = encode_prompt(e, &ids, err);

    if (!rc) {
        struct llmq_request r = {.ids = ids.id, .n_ids = (int)ids.n, .max_new = opt.max_tokens, .ignore_eos = opt.ignore_eos, .sampling = *s};

        rc = ids.n > INT32_MAX ? llmq_fail(err, LLMQ_ELIMIT, "the prompt has %zu tokens", ids.n) : llmq_engine_submit(e, &r, err);
    }
    tokenizer_ids_free(&ids);
    return rc;
}

static int answer(struct llmq_engine *e, struct llmq_err *err)
{
    struct answer        a = {.ids = json_array()};
    struct llmq_sampling s;
    int                  rc;

    llmq_str_init(&a.text, MAX_TEXT);
    rc = get_sampling(llmq_engine_file(e), &s, err) || submit(e, &s, err) ||
                 tokenizer_stream_new(&a.stream, llmq_engine_tokenizer(e), 1, err) || generate(e, &a, err)
             ? err->code
             : 0;
    if (!rc && opt.stats)
        print_stats(e, &a);
    if (!rc && common_opt.json)
        rc = print_json(e, &a, &s, err);
    tokenizer_stream_free(a.stream);
    json_decref(a.ids);
    llmq_str_fini(&a.text);
    return !rc && cli_interrupted ? llmq_fail(err, LLMQ_EINTR, "interrupted") : rc;
}

static int check_usage(int argc, char **argv, struct llmq_err *err)
{
    if (argc != 1)
        return llmq_fail(err, LLMQ_EUSAGE, "%d models, expected one: llmq run MODEL -p PROMPT", argc);
    if (opt.prompt && opt.file)
        return llmq_fail(err, LLMQ_EUSAGE, "--prompt and --file cannot go together");
    if (opt.raw && (opt.system || opt.template_name))
        return llmq_fail(err, LLMQ_EUSAGE, "--raw means no chat template: --system and --chat-template cannot go with it");
    if (!opt.prompt && !opt.file && isatty(STDIN_FILENO))
        return llmq_fail(err, LLMQ_EUSAGE, "no prompt: give one with -p, -f or on standard input (a chat on the terminal comes later)");
    return doc_check_model_path(argv[0], err);
}

static int run(int argc, char **argv, struct llmq_err *err)
{
    struct llmq_engine_options o = {.device = common_opt.device, .isa = common_opt.isa, .kv_dtype = opt.kv_dtype, .ctx = opt.ctx};
    struct llmq_engine        *e;
    int                        rc;

    if (check_usage(argc, argv, err) || llmq_engine_open(&e, argv[0], &o, err))
        return err->code;
    rc = answer(e, err);
    llmq_engine_close(e);
    return rc;
}

const struct cmd cmd_run = {"run", "MODEL [-p TEXT] [options]", "make text with a model on this machine", opts, run};

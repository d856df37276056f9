/* llmq run: one prompt in, text out as it becomes certain; or a conversation on the terminal (chat.c). */
#include "cli/chat.h"
#include "cli/doc.h"
#include "cli/generate.h"
#include "cli/input.h"
#include "cli/opt.h"
#include "common/json.h"
#include "common/str.h"
#include "runner/runner.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PROMPT = 64 << 20 };

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
    {"chat-template", 0, OPT_CHOICE, &opt.template_name, LLMQ_CHAT_NAMES, "the model's", "chat template to use", 0, 0},
    {"max-tokens", 'n', OPT_INT, &opt.max_tokens, "N", "256, or in a conversation what the context has room for", "make at most N tokens for an answer", 1, 1 << 24},
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
    else
        rc = input_read(STDIN_FILENO, "standard input", out, err);
    if (rc)
        return rc;
    if (!opt.raw)
        strip_newlines(out);
    if (memchr(out->data, '\0', out->len))
        return llmq_fail(err, LLMQ_EFORMAT, "the prompt holds a zero byte, expected text");
    return 0;
}

static int encode_chat(const struct llmq_engine *e, const char *text, struct token_ids *ids, int32_t *stop, struct llmq_err *err)
{
    struct llmq_message m[2] = {{LLMQ_CHAT_SYSTEM, opt.system}, {LLMQ_CHAT_USER, text}};
    int                 skip = opt.system == NULL, rc;
    struct llmq_chat   *c;

    if (llmq_chat_open(&c, llmq_engine_file(e), llmq_engine_tokenizer(e), opt.template_name, err))
        return err->code;
    rc = llmq_chat_encode(c, m + skip, (size_t)(2 - skip), ids, err);
    *stop = llmq_chat_stop(c);
    llmq_chat_close(c);
    return rc;
}

/* stop: what ends an answer beside the model's end tokens, or -1. */
static int encode_prompt(const struct llmq_engine *e, struct token_ids *ids, int32_t *stop, struct llmq_err *err)
{
    const struct tokenizer *t = llmq_engine_tokenizer(e);
    struct llmq_str         text;
    int                     rc;

    *stop = -1;
    llmq_str_init(&text, MAX_PROMPT);
    rc = get_prompt(&text, err);
    if (!rc && opt.raw)
        rc = tokenizer_encode(t, text.data, text.len, TOKENIZER_ADD_SPECIAL | TOKENIZER_PARSE_SPECIAL, ids, err);
    else if (!rc)
        rc = encode_chat(e, text.data, ids, stop, err);
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

/* ---- one answer -------------------------------------------------------------------------------------------- */

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
                     st.completion_tokens, "finish_reason", answer_finish_name(a), "sampling", "temperature", doc_real(opt.temperature), "top_k",
                     s->top_k, "top_p", doc_real(opt.top_p), "min_p", doc_real(opt.min_p), "repetition_penalty",
                     doc_real(opt.repetition_penalty), "seed", (json_int_t)s->seed, "load_s", doc_real(st.load_s), "ttft_s",
                     doc_real(st.ttft_s), "prefill_tokens_per_s", doc_real(answer_prefill_rate(&st)), "decode_tokens_per_s",
                     doc_real(answer_decode_rate(&st)), "kv", "dtype", st.kv_dtype, "page_tokens", st.page_tokens, "pages_used", st.pages_used,
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
    int32_t          stop;
    int              rc = encode_prompt(e, &ids, &stop, err);

    if (!rc) {
        struct llmq_request r = {.ids = ids.id, .n_ids = (int)ids.n, .max_new = opt.max_tokens, .ignore_eos = opt.ignore_eos,
                                 .stop_id = {stop}, .n_stop = stop >= 0, .sampling = *s};

        rc = ids.n > INT32_MAX ? llmq_fail(err, LLMQ_ELIMIT, "the prompt has %zu tokens", ids.n) : llmq_engine_submit(e, &r, err);
    }
    tokenizer_ids_free(&ids);
    return rc;
}

static int one_answer(struct llmq_engine *e, const struct llmq_sampling *s, struct llmq_err *err)
{
    struct answer a;
    int           rc = answer_init(&a, e, common_opt.json, err) || submit(e, s, err) || answer_make(&a, e, err) ? err->code : 0;

    if (!rc && opt.stats)
        answer_print_stats(&a, e);
    if (!rc && common_opt.json)
        rc = print_json(e, &a, s, err);
    answer_fini(&a);
    return !rc && cli_interrupted ? llmq_fail(err, LLMQ_EINTR, "interrupted") : rc;
}

/* A person at a terminal who brought no prompt wants to talk. */
static int is_conversation(void) { return !opt.prompt && !opt.file && isatty(STDIN_FILENO); }

static int answer(struct llmq_engine *e, struct llmq_err *err)
{
    struct chat_options o = {.template_name = opt.template_name, .system = opt.system, .ignore_eos = opt.ignore_eos, .stats = opt.stats,
                             .max_tokens = opt_given(&cmd_run, "max-tokens") ? opt.max_tokens : 0};

    if (get_sampling(llmq_engine_file(e), &o.sampling, err))
        return err->code;
    return is_conversation() ? chat_talk(e, &o, err) : one_answer(e, &o.sampling, err);
}

static int check_usage(int argc, char **argv, struct llmq_err *err)
{
    if (argc != 1)
        return llmq_fail(err, LLMQ_EUSAGE, "%d models, expected one: llmq run MODEL -p PROMPT", argc);
    if (opt.prompt && opt.file)
        return llmq_fail(err, LLMQ_EUSAGE, "--prompt and --file cannot go together");
    if (opt.raw && (opt.system || opt.template_name))
        return llmq_fail(err, LLMQ_EUSAGE, "--raw means no chat template: --system and --chat-template cannot go with it");
    if (is_conversation() && (opt.raw || common_opt.json))
        return llmq_fail(err, LLMQ_EUSAGE, "no prompt: give one with -p, -f or on standard input (a conversation has no %s)",
                         opt.raw ? "--raw" : "--json");
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

/* A conversation on the terminal: see chat.h.
 *
 * The whole history goes through the template for each answer; the engine keeps the keys and values of what the new
 * prompt shares with the one before, so only the new message is read. */
#include "cli/chat.h"

#include "cli/generate.h"
#include "cli/opt.h"
#include "cli/output.h"
#include "common/alloc.h"
#include "common/io.h"
#include "common/str.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAX_MESSAGE = 16 << 20, IN_SIZE = 65536, LOOK_MS = 100, LINE_MAX_BYTES = 4095 };

struct chat {
    struct llmq_engine        *e;
    struct llmq_chat          *template;
    const struct chat_options *o;
    struct llmq_message       *m; /* contents are owned */
    size_t                     n, cap, n_system;
    struct answer              last; /* of the last answer; ids NULL: none yet */
    uint64_t                   seed;
    char                       in[IN_SIZE];
    size_t                     in_at, in_n;
    int                        done, hinted;
};

/* ---- the history ------------------------------------------------------------------------------------------- */

static int push(struct chat *c, enum llmq_chat_role role, const char *text, size_t len, struct llmq_err *err)
{
    char *copy;

    if (c->n == c->cap) {
        struct llmq_message *bigger;
        size_t               cap = c->cap ? 2 * c->cap : 16;

        if (LLMQ_NEW(&bigger, cap, "messages", err))
            return err->code;
        if (c->n)
            memcpy(bigger, c->m, c->n * sizeof *bigger);
        llmq_free(c->m);
        c->m = bigger;
        c->cap = cap;
    }
    if (LLMQ_NEW(&copy, len + 1, "a message", err))
        return err->code;
    memcpy(copy, text, len);
    copy[len] = '\0';
    c->m[c->n++] = (struct llmq_message){role, copy};
    return 0;
}

static void pop(struct chat *c, size_t n)
{
    while (c->n > n)
        llmq_free((char *)c->m[--c->n].content);
}

/* ---- answers ------------------------------------------------------------------------------------------------- */

static int submit(struct chat *c, struct llmq_err *err)
{
    const struct chat_options *o = c->o;
    struct token_ids           ids = {0};
    int                        rc = llmq_chat_encode(c->template, c->m, c->n, &ids, err);

    if (!rc && ids.n > INT32_MAX)
        rc = llmq_fail(err, LLMQ_ELIMIT, "the conversation has %zu tokens", ids.n);
    if (!rc) {
        struct llmq_request r = {.ids = ids.id, .n_ids = (int)ids.n, .max_new = o->max_tokens ? o->max_tokens : INT32_MAX,
                                 .ignore_eos = o->ignore_eos, .stop_id = {llmq_chat_stop(c->template)},
                                 .n_stop = llmq_chat_stop(c->template) >= 0, .sampling = o->sampling};

        r.sampling.seed = c->seed;
        rc = llmq_engine_submit(c->e, &r, err);
    }
    tokenizer_ids_free(&ids);
    return rc;
}

static void say_why(const struct chat *c)
{
    struct llmq_engine_stats st;

    llmq_engine_get_stats(c->e, &st);
    if (c->last.finish == LLMQ_FINISH_NONE)
        fprintf(stderr, "[stopped; /regen makes another answer]\n");
    else if (c->last.finish == LLMQ_FINISH_LENGTH && st.prompt_tokens + st.completion_tokens >= st.ctx)
        fprintf(stderr, "[the context of %d tokens is full: /reset begins anew, --ctx N gives more]\n", st.ctx);
    else if (c->last.finish == LLMQ_FINISH_LENGTH)
        fprintf(stderr, "[cut after %d tokens: --max-tokens]\n", st.completion_tokens);
    if (c->o->stats)
        answer_print_stats(&c->last, c->e);
}

/* SIGINT has stopped an answer or a line, and is dealt with; SIGTERM ends the conversation. */
static int stopped(struct llmq_err *err)
{
    if (cli_signal == SIGINT) {
        cli_interrupted = 0;
        return 0;
    }
    return llmq_fail(err, LLMQ_EINTR, "interrupted");
}

/* The history ends with the user's message, and then with the answer too.  A message that cannot be answered is taken
 * back, so that the next one can. */
static int respond(struct chat *c, struct llmq_err *err)
{
    struct llmq_err why = {0};

    if (submit(c, &why)) {
        fprintf(stderr, "%s%s\n", why.text,
                why.code == LLMQ_ELIMIT ? "; /reset begins anew, --ctx N gives more" : c->n > c->n_system + 1 ? "; /reset begins anew" : "");
        pop(c, c->n - 1);
        return 0;
    }
    if (c->last.ids)
        answer_fini(&c->last);
    if (answer_init(&c->last, c->e, 0, err) || answer_make(&c->last, c->e, err))
        return err->code;
    if (c->last.gone)
        c->done = 1;
    fflush(stdout);
    if (c->last.finish == LLMQ_FINISH_NONE && !c->last.text.len) {
        fprintf(stderr, "[stopped before the answer; the question is taken back]\n");
        pop(c, c->n - 1);
        return cli_interrupted ? stopped(err) : 0;
    }
    say_why(c);
    if (push(c, LLMQ_CHAT_ASSISTANT, c->last.text.len ? c->last.text.data : "", c->last.text.len, err))
        return err->code;
    return cli_interrupted ? stopped(err) : 0;
}

/* ---- commands -------------------------------------------------------------------------------------------------- */

static int do_help(struct chat *c, const char *arg, struct llmq_err *err);

static int do_reset(struct chat *c, const char *arg, struct llmq_err *err)
{
    (void)arg, (void)err;
    pop(c, c->n_system);
    fprintf(stderr, "[a new conversation]\n");
    return 0;
}

static int do_regen(struct chat *c, const char *arg, struct llmq_err *err)
{
    (void)arg;
    if (c->n == c->n_system) {
        fprintf(stderr, "there is no answer yet\n");
        return 0;
    }
    if (c->o->sampling.temperature <= 0)
        fprintf(stderr, "[temperature 0: the same answer comes again; --temperature 0.8 varies it]\n");
    pop(c, c->n - 1);
    c->seed++;
    return respond(c, err);
}

static json_t *history(const struct chat *c)
{
    static const char *const role[] = {"system", "user", "assistant"};
    json_t                  *list = json_array();

    for (size_t i = 0; i < c->n; i++)
        if (json_array_append_new(list, json_pack("{s:s, s:s}", "role", role[c->m[i].role], "content", c->m[i].content))) {
            json_decref(list);
            return NULL;
        }
    return list;
}

struct sink {
    struct llmq_out *out;
    struct llmq_err *err;
};

static int on_json(const char *text, size_t len, void *ctx)
{
    struct sink *k = ctx;

    return llmq_out_write(k->out, text, len, k->err) ? -1 : 0;
}

static int write_json(const char *path, const json_t *j, struct llmq_err *err)
{
    struct llmq_out out;
    struct sink     k = {&out, err};

    if (llmq_out_open(&out, path, err))
        return err->code;
    if (json_dump_callback(j, on_json, &k, JSON_INDENT(2)) && !err->code)
        (void)!llmq_fail(err, LLMQ_ENOMEM, "%s: out of memory for JSON", path);
    if (err->code || llmq_out_write(&out, "\n", 1, err) || llmq_out_finish(&out, err))
        llmq_out_abort(&out);
    return err->code;
}

static int do_save(struct chat *c, const char *arg, struct llmq_err *err)
{
    struct llmq_err why = {0};
    json_t         *list;

    if (!*arg) {
        fprintf(stderr, "/save FILE: it needs the name of a file\n");
        return 0;
    }
    list = history(c);
    if (!list)
        return llmq_fail(err, LLMQ_ENOMEM, "out of memory for %zu messages", c->n);
    if (output_check("/save", arg, llmq_file_path(llmq_engine_file(c->e)), &why) || write_json(arg, list, &why))
        fprintf(stderr, "%s\n", why.text);
    else
        fprintf(stderr, "[%zu messages in %s]\n", c->n, arg);
    json_decref(list);
    return 0;
}

static int do_stats(struct chat *c, const char *arg, struct llmq_err *err)
{
    struct llmq_engine_stats st;

    (void)arg, (void)err;
    if (!c->last.ids) {
        fprintf(stderr, "there is no answer yet\n");
        return 0;
    }
    answer_print_stats(&c->last, c->e);
    llmq_engine_get_stats(c->e, &st);
    fprintf(stderr, "context   %d of %d tokens, %zu messages\n", st.prompt_tokens + st.completion_tokens, st.ctx, c->n);
    return 0;
}

static int do_exit(struct chat *c, const char *arg, struct llmq_err *err)
{
    (void)arg, (void)err;
    c->done = 1;
    return 0;
}

static const struct command {
    const char *name, *arg, *help;
    int (*run)(struct chat *c, const char *arg, struct llmq_err *err);
} commands[] = {
    {"/help", "", "this list", do_help},
    {"/reset", "", "forget the conversation (the system message stays)", do_reset},
    {"/regen", "", "make the last answer again, from the next seed", do_regen},
    {"/save", " FILE", "write the messages to a file, as JSON", do_save},
    {"/stats", "", "speed and memory of the last answer", do_stats},
    {"/exit", "", "end; so does Ctrl-D", do_exit},
};

static int do_help(struct chat *c, const char *arg, struct llmq_err *err)
{
    (void)c, (void)arg, (void)err;
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        fprintf(stderr, "  %s%-*s %s\n", commands[i].name, (int)(12 - strlen(commands[i].name)), commands[i].arg, commands[i].help);
    fprintf(stderr, "  Ctrl-C stops an answer.  A line that ends with \\ goes on in the next; \"\"\" begins and ends a message of\n"
                    "  many lines.  A message that begins with / is written with //.\n");
    return 0;
}

static int command(struct chat *c, char *line, struct llmq_err *err)
{
    size_t n = strcspn(line, " \t");
    char  *arg = line + n + strspn(line + n, " \t"), *end = arg + strlen(arg);

    while (end > arg && (end[-1] == ' ' || end[-1] == '\t'))
        *--end = '\0';
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strlen(commands[i].name) == n && !memcmp(commands[i].name, line, n)) {
            if (*arg && !*commands[i].arg) {
                fprintf(stderr, "%s takes nothing, found '%s'\n", commands[i].name, arg);
                return 0;
            }
            return commands[i].run(c, arg, err);
        }
    fprintf(stderr, "there is no %.*s; /help lists the commands, // begins a message with /\n", (int)n, line);
    return 0;
}

/* ---- lines ----------------------------------------------------------------------------------------------------- */

enum line { LINE, LINE_END, LINE_BROKEN, LINE_CUT };

static int fill(struct chat *c, enum line *got, struct llmq_err *err)
{
    struct pollfd wait = {.fd = STDIN_FILENO, .events = POLLIN};
    ssize_t       n;

    /* A signal may come between any two instructions, or to another thread: it is looked for, not waited for. */
    while (!cli_interrupted && poll(&wait, 1, LOOK_MS) == 0)
        ;
    n = cli_interrupted ? -1 : read(STDIN_FILENO, c->in, sizeof c->in);
    if (cli_interrupted) {
        *got = LINE_BROKEN;
        return stopped(err);
    }
    if (n < 0 && errno != EINTR)
        return llmq_fail_errno(err, "standard input");
    if (n == 0)
        *got = LINE_END;
    c->in_at = 0;
    c->in_n = n > 0 ? (size_t)n : 0;
    return 0;
}

/* Appends one line, without its newline. */
static int get_line(struct chat *c, const char *prompt, struct llmq_str *out, enum line *got, struct llmq_err *err)
{
    size_t before = out->len;

    *got = LINE;
    fputs(prompt, stderr);
    for (;;) {
        char *from = c->in + c->in_at, *end = memchr(from, '\n', c->in_n - c->in_at);
        size_t n = (end ? (size_t)(end - from) : c->in_n - c->in_at);

        if (llmq_str_append(out, from, n, err))
            return err->code;
        c->in_at += n + (end != NULL);
        if (end) {
            *got = out->len - before >= LINE_MAX_BYTES ? LINE_CUT : LINE; /* a terminal passes no more of a line on */
            return 0;
        }
        if (fill(c, got, err) || *got == LINE_BROKEN)
            return err->code;
        if (*got == LINE_END) {
            *got = out->len > before ? LINE : LINE_END;
            return 0;
        }
    }
}

static const char fence[] = "\"\"\"";

/* The rest of a message that """ began: until a line that ends with it. */
static int get_block(struct chat *c, struct llmq_str *out, enum line *got, struct llmq_err *err)
{
    size_t n = sizeof fence - 1;

    int    lines = 0;

    memmove(out->data, out->data + n, out->len - n + 1);
    out->len -= n;
    while (out->len < n || memcmp(out->data + out->len - n, fence, n) != 0) {
        if ((lines++ || out->len) && llmq_str_append(out, "\n", 1, err)) /* none where nothing follows the fence */
            return err->code;
        if (get_line(c, ". ", out, got, err) || *got == LINE_BROKEN || *got == LINE_CUT)
            return err->code;
        if (*got == LINE_END) { /* it ends the message, and not the conversation */
            fputc('\n', stderr);
            *got = LINE;
            return 0;
        }
    }
    out->len -= n;
    if (out->len && out->data[out->len - 1] == '\n')
        out->len--;
    out->data[out->len] = '\0';
    return 0;
}

static int get_message(struct chat *c, struct llmq_str *out, int *fenced, enum line *got, struct llmq_err *err)
{
    *fenced = 0;
    if (get_line(c, "> ", out, got, err) || *got != LINE)
        return err->code;
    *fenced = out->len >= sizeof fence - 1 && !memcmp(out->data, fence, sizeof fence - 1);
    if (*fenced)
        return get_block(c, out, got, err);
    while (*got == LINE && out->len && out->data[out->len - 1] == '\\') {
        out->data[out->len - 1] = '\n';
        if (get_line(c, ". ", out, got, err))
            return err->code;
    }
    if (*got == LINE_END) {
        fputc('\n', stderr);
        *got = LINE;
    }
    return 0;
}

/* ---- the conversation ------------------------------------------------------------------------------------------- */

static int is_blank(const char *s) { return s[strspn(s, " \t\r\n")] == '\0'; }

static int turn(struct chat *c, char *text, size_t len, int fenced, struct llmq_err *err)
{
    if (strlen(text) != len) {
        fprintf(stderr, "the message holds a zero byte, expected text\n");
        return 0;
    }
    if (is_blank(text))
        return 0;
    if (!fenced && text[0] == '/' && text[1] != '/')
        return command(c, text, err);
    text += !fenced && text[0] == '/';
    return push(c, LLMQ_CHAT_USER, text, strlen(text), err) || respond(c, err) ? err->code : 0;
}

/* At the prompt, one Ctrl-C clears the line and says how to leave; a second one leaves. */
static int broken(struct chat *c, struct llmq_err *err)
{
    if (c->hinted)
        return llmq_fail(err, LLMQ_EINTR, "interrupted");
    fprintf(stderr, "\n[/exit or Ctrl-D ends the conversation, and so does Ctrl-C once more]\n");
    c->hinted = 1;
    return 0;
}

static int one_turn(struct chat *c, struct llmq_str *line, struct llmq_err *err)
{
    enum line got;
    int       fenced;

    llmq_str_clear(line);
    if (get_message(c, line, &fenced, &got, err))
        return err->code;
    if (got == LINE_BROKEN)
        return broken(c, err);
    c->hinted = 0;
    if (got == LINE_CUT) {
        fprintf(stderr, "a terminal cuts a line after %d bytes, so this one may lack its end: \"\"\" begins a message of many lines\n", LINE_MAX_BYTES);
        return 0;
    }
    if (got == LINE_END) {
        fputc('\n', stderr);
        c->done = 1;
        return 0;
    }
    return turn(c, line->data, line->len, fenced, err);
}

/* A system message that the template cannot take is found out before the first question. */
static int begin(struct chat *c, struct llmq_err *err)
{
    struct llmq_str trial = {.max = MAX_MESSAGE};
    int             rc;

    if (llmq_chat_open(&c->template, llmq_engine_file(c->e), llmq_engine_tokenizer(c->e), c->o->template_name, err))
        return err->code;
    if (c->o->system && push(c, LLMQ_CHAT_SYSTEM, c->o->system, strlen(c->o->system), err))
        return err->code;
    c->n_system = c->n;
    if (push(c, LLMQ_CHAT_USER, "?", 1, err))
        return err->code;
    rc = llmq_chat_prompt(c->template, c->m, c->n, &trial, err);
    pop(c, c->n_system);
    llmq_str_fini(&trial);
    if (!rc && !common_opt.quiet)
        fprintf(stderr, "[/help lists the commands, Ctrl-D ends]\n");
    return rc;
}

int chat_talk(struct llmq_engine *e, const struct chat_options *o, struct llmq_err *err)
{
    struct llmq_str line = {.max = MAX_MESSAGE};
    struct chat    *c;
    int             rc;

    if (LLMQ_NEW(&c, 1, "a conversation", err))
        return err->code;
    c->e = e;
    c->o = o;
    c->seed = o->sampling.seed;
    rc = begin(c, err);
    while (!rc && !c->done)
        rc = one_turn(c, &line, err);
    llmq_str_fini(&line);
    pop(c, 0);
    llmq_free(c->m);
    if (c->last.ids)
        answer_fini(&c->last);
    llmq_chat_close(c->template);
    llmq_free(c);
    return rc;
}

/* The command table and dispatch.  cli/ is the only code that prints results or exits. */
#include "cli/about.h"
#include "cli/opt.h"
#include "cli/output.h"
#include "common/io.h"
#include "common/log.h"
#include "common/parallel.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct cmd *const cli_commands[] = {
    &cmd_convert, &cmd_quantize, &cmd_eval, &cmd_run, &cmd_plan, &cmd_inspect, &cmd_verify, &cmd_tokenize, &cmd_completion, NULL,
};

struct common_options common_opt = {.device = "auto", .progress = "auto"};

const struct opt common_opts[] = {
    {"threads", 0, OPT_INT, &common_opt.threads, "N", "all cores", "cores to use", 1, 4096},
    {"device", 0, OPT_CHOICE, &common_opt.device, "cpu|auto", "auto", "where to run", 0, 0},
    {"isa", 0, OPT_CHOICE, &common_opt.isa, "scalar|avx2|avx512", "the best there is", "use no newer instructions", 0, 0},
    {"json", 0, OPT_FLAG, &common_opt.json, NULL, NULL, "one JSON document on stdout", 0, 0},
    {"progress", 0, OPT_CHOICE, &common_opt.progress, "auto|none", "auto", "progress on stderr", 0, 0},
    {"verbose", 'v', OPT_FLAG, &common_opt.verbose, NULL, NULL, "say more on stderr", 0, 0},
    {"quiet", 'q', OPT_FLAG, &common_opt.quiet, NULL, NULL, "only errors on stderr", 0, 0},
    {0},
};

int cli_interrupted, cli_signal, cli_end_at_once;

/* The first signal asks the job to end in order; a second one ends it at once, leaving nothing behind. */
static void on_signal(int sig)
{
    static const char text[] = "llmq: interrupted\n";
    int               again;

    cli_signal = sig;
    again = __atomic_exchange_n(&cli_interrupted, 1, __ATOMIC_SEQ_CST);
    if (cli_end_at_once && write(STDERR_FILENO, text, sizeof text - 1) >= 0)
        _exit(llmq_err_status(LLMQ_EINTR));
    if (again) {
        llmq_out_abort_all_signal();
        _exit(128 + sig);
    }
}

static void install_signals(void)
{
    struct sigaction sa;

    memset(&sa, 0, sizeof sa);
    sa.sa_handler = on_signal;
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    signal(SIGXFSZ, SIG_IGN); /* a write past the limit then fails with EFBIG, which we report */
    signal(SIGPIPE, SIG_IGN);
}

static void usage(void)
{
    printf("usage: llmq COMMAND [options]\n\ncommands:\n");
    for (int i = 0; cli_commands[i]; i++)
        printf("  %-11s%s\n", cli_commands[i]->name, cli_commands[i]->summary);
    printf("\n`llmq COMMAND --help` lists a command's options; `llmq --version` says which llmq this is.\n");
}

static const struct cmd *find_command(const char *name)
{
    for (int i = 0; cli_commands[i]; i++)
        if (!strcmp(name, cli_commands[i]->name))
            return cli_commands[i];
    return NULL;
}

struct job {
    const struct cmd *c;
    int               argc;
    char            **argv;
    struct llmq_err   err;
};

static void run_job(void *ctx)
{
    struct job *j = ctx;

    (void)!j->c->run(j->argc, j->argv, &j->err);
}

static void perform(struct job *j, enum opt_ask ask)
{
    if (ask == OPT_ASK_HELP) {
        opt_help(j->c, stdout);
    } else if (ask == OPT_ASK_OPTIONS) {
        opt_dump(j->c, stdout);
    } else if (ask == OPT_ASK_VERSION) {
        (void)!about_print(common_opt.json, &j->err);
    } else {
        llmq_log_set_level(common_opt.quiet ? LLMQ_LOG_ERROR : common_opt.verbose ? LLMQ_LOG_DEBUG : LLMQ_LOG_INFO);
        llmq_parallel_set_threads(common_opt.threads);
        llmq_parallel_run(run_job, j);
    }
}

static int run_command(const struct cmd *c, int argc, char **argv)
{
    struct job   j = {c, argc, argv, {0}};
    enum opt_ask ask = OPT_ASK_NOTHING;

    if (!opt_parse(c, &j.argc, argv, &ask, &j.err))
        perform(&j, ask);
    if (!j.err.code && !output_flush(&j.err))
        return 0;
    fprintf(stderr, "llmq %s: %s\n", c->name, j.err.text);
    return llmq_err_status(j.err.code);
}

/* What can stand in a command's place; 0 when it was none of these. */
static int answer_question(const char *word, const char *next, struct llmq_err *err)
{
    const struct cmd *c = next ? find_command(next) : NULL;

    if (!strcmp(word, "--list-commands"))
        for (int i = 0; cli_commands[i]; i++)
            puts(cli_commands[i]->name);
    else if (!strcmp(word, "--version"))
        (void)!about_print(next && !strcmp(next, "--json"), err);
    else if (!strcmp(word, "help") && c)
        opt_help(c, stdout);
    else if (!strcmp(word, "--help") || !strcmp(word, "-h") || !strcmp(word, "help"))
        usage();
    else
        return 0;
    return 1;
}

int main(int argc, char **argv)
{
    const struct cmd *c = argc >= 2 ? find_command(argv[1]) : NULL;
    struct llmq_err   err = {0};

    install_signals();
    if (argc < 2)
        return fprintf(stderr, "llmq: no command given, expected llmq COMMAND [options]; `llmq --help` lists the commands\n"), 2;
    if (c)
        return run_command(c, argc - 2, argv + 2);
    if (answer_question(argv[1], argc >= 3 ? argv[2] : NULL, &err)) {
        if (!err.code && !output_flush(&err))
            return 0;
        fprintf(stderr, "llmq: %s\n", err.text);
        return llmq_err_status(err.code);
    }
    if (argv[1][0] == '-')
        fprintf(stderr, "llmq: unknown option '%s' before the command, expected llmq COMMAND [options]\n", argv[1]);
    else
        fprintf(stderr, "llmq: there is no command '%s'; `llmq --help` lists them\n", argv[1]);
    return 2;
}

#ifndef LLMQ_CLI_OPT_H
#define LLMQ_CLI_OPT_H

#include "common/err.h"

#include <stdint.h>
#include <stdio.h>

/* A subcommand is one table.  The parser, --help, --help-options and the man page test all read it, so an
 * option cannot exist in one and not in the others. */

enum opt_type {
    OPT_FLAG,   /* int *: set to 1 */
    OPT_INT,    /* int *, within [min, max] when max > min */
    OPT_U64,    /* uint64_t * */
    OPT_SIZE,   /* uint64_t * bytes: 600M, 3Gi */
    OPT_REAL,   /* double * */
    OPT_PERCENT, /* double *, within [min, max] % when max > min: "1%" is 0.01, "0.01" is 0.01, "1" is refused */
    OPT_STR,    /* const char ** */
    OPT_CHOICE  /* const char **, one of arg's alternatives separated by | */
};

struct opt {
    const char   *name;  /* long name, without dashes */
    char          letter; /* one-letter form, or 0 */
    enum opt_type type;
    void         *value;
    const char   *arg;  /* placeholder or alternatives; NULL for a flag */
    const char   *def;  /* default as shown to the user, or NULL */
    const char   *help;
    long          min, max;
};

struct cmd {
    const char       *name, *args, *summary;
    const struct opt *opts; /* ends at a NULL name */
    /* argv[0 .. argc-1] are the arguments that are not options. */
    int (*run)(int argc, char **argv, struct llmq_err *err);
};

/* Options that every command has; main.c owns them. */
struct common_options {
    int         threads, json, verbose, quiet;
    const char *device, *isa, *progress;
};
extern struct common_options common_opt;
extern const struct opt      common_opts[]; /* ends at a NULL name */

/* Set by SIGINT and SIGTERM; long jobs look at it and end with LLMQ_EINTR. */
extern int cli_interrupted, cli_signal; /* cli_signal: which of the two it was */

/* A command that only reads sets this, and is then ended by the first signal. */
extern int cli_end_at_once;

enum opt_ask { OPT_ASK_NOTHING, OPT_ASK_HELP, OPT_ASK_OPTIONS, OPT_ASK_VERSION };

/* Sorts argv into options (set) and arguments (kept, counted in *argc).  "--" ends options; --name=value and
 * --name value are the same; unknown names are LLMQ_EUSAGE with the nearest known one.  A question ends the
 * parsing: what stands behind it does not matter. */
int  opt_parse(const struct cmd *cmd, int *argc, char **argv, enum opt_ask *ask, struct llmq_err *err) LLMQ_MUST_CHECK;
void opt_help(const struct cmd *cmd, FILE *out);
void opt_dump(const struct cmd *cmd, FILE *out); /* name, letter, argument, default: tab-separated */
int  opt_given(const struct cmd *cmd, const char *name); /* was it on the command line? */

extern const struct cmd cmd_convert, cmd_quantize, cmd_eval, cmd_run, cmd_plan, cmd_inspect, cmd_verify, cmd_tokenize, cmd_completion;
extern const struct cmd *const cli_commands[]; /* ends at NULL */

const char *cli_version(void); /* "0.1.0" */

#endif

/* llmq completion: what a shell needs to complete llmq's command lines, written out from the option tables.
 *
 * A script holds everything, so that completing starts no llmq.  What may follow an option is told from its table:
 * alternatives (OPT_CHOICE), or for a text its placeholder, in which FILE and DIR mean files and small letters a word. */
#include "cli/opt.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const struct opt opts[] = {{0}};

/* They are in no table: every command has them. */
static const struct opt questions[] = {
    {"help", 'h', OPT_FLAG, NULL, NULL, NULL, "list the options", 0, 0},
    {"version", 0, OPT_FLAG, NULL, NULL, NULL, "say which llmq this is", 0, 0},
    {0},
};

/* ---- what may follow ---------------------------------------------------------------------------------------- */

enum { WORDS_SIZE = 256 };

/* The alternatives of "FILE|builtin|self" that are words, with blanks between. */
static void words_in(const char *arg, char out[WORDS_SIZE])
{
    size_t used = 0;

    out[0] = '\0';
    while (arg && *arg) {
        size_t n = strcspn(arg, "| ");

        if ((islower((unsigned char)*arg) || isdigit((unsigned char)*arg)) && used + n + 2 < WORDS_SIZE)
            used += (size_t)snprintf(out + used, WORDS_SIZE - used, "%s%.*s", used ? " " : "", (int)n, arg);
        if (arg[n] != '|')
            return;
        arg += n + 1;
    }
}

static int wants_file(const struct opt *o) { return o->type == OPT_STR && (strstr(o->arg, "FILE") || strstr(o->arg, "DIR")); }

static void words_of(const struct opt *o, char out[WORDS_SIZE])
{
    out[0] = '\0';
    if (o->type == OPT_CHOICE || o->type == OPT_STR)
        words_in(o->arg, out);
}

/* A command whose first argument is a word has the alternatives there; the others take files. */
static void words_of_args(const struct cmd *c, char out[WORDS_SIZE]) { words_in(c->args, out); }

/* The options of a command, its own first, then the common ones, then the questions. */
static const struct opt *list_of(const struct cmd *c, int i)
{
    const struct opt *lists[] = {c->opts, common_opts, questions};

    return i < 3 ? lists[i] : NULL;
}

/* text, with a backslash before each character of `special`; a quote as a quoted shell word needs it. */
static void put(const char *text, const char *special, const char *quote)
{
    for (; *text; text++)
        if (*text == '\'')
            fputs(quote, stdout);
        else
            printf("%s%c", strchr(special, *text) ? "\\" : "", *text);
}

/* ---- bash --------------------------------------------------------------------------------------------------- */

static void bash_option(const struct cmd *c, const struct opt *o)
{
    char words[WORDS_SIZE];

    words_of(o, words);
    printf("    %s:--%s", c->name, o->name);
    if (o->letter)
        printf(" | %s:-%c", c->name, o->letter);
    printf(") words='%s' files=%d ;;\n", words, wants_file(o));
}

static void bash_command(const struct cmd *c)
{
    const struct opt *o;
    char              words[WORDS_SIZE];

    words_of_args(c, words);
    printf("    %s:) words='%s' files=%d options='", c->name, words, !words[0]);
    for (int l = 0; (o = list_of(c, l)) != NULL; l++)
        for (; o->name; o++)
            printf("%s--%s", l || o != c->opts ? " " : "", o->name);
    puts("' ;;");
}

static void bash(void)
{
    printf("# bash completion for llmq %s, written by `llmq completion bash`\n", cli_version());
    fputs("_llmq()\n{\n"
          "    local cur=${COMP_WORDS[COMP_CWORD]} prev='' cmd=${COMP_WORDS[1]} words='' files=0 options=''\n"
          "    COMPREPLY=()\n"
          "    if ((COMP_CWORD == 1)); then\n"
          "        mapfile -t COMPREPLY < <(compgen -W '", stdout);
    for (int i = 0; cli_commands[i]; i++)
        printf("%s ", cli_commands[i]->name);
    fputs("help --help --version' -- \"$cur\")\n        return\n    fi\n"
          "    ((COMP_CWORD > 1)) && prev=${COMP_WORDS[COMP_CWORD - 1]}\n"
          "    # bash makes three words of --name=value\n"
          "    if [[ $cur == = ]]; then\n"
          "        cur=''\n"
          "    elif [[ $prev == = ]] && ((COMP_CWORD > 2)); then\n"
          "        prev=${COMP_WORDS[COMP_CWORD - 2]}\n"
          "    fi\n"
          "    [[ $prev == -* ]] || prev=''\n"
          "    case $cmd:$prev in\n", stdout);
    for (int i = 0; cli_commands[i]; i++) {
        const struct opt *o;

        for (int l = 0; (o = list_of(cli_commands[i], l)) != NULL; l++)
            for (; o->name; o++)
                if (o->type != OPT_FLAG)
                    bash_option(cli_commands[i], o);
    }
    fputs("    *) prev='' ;;\n    esac\n"
          "    [[ $prev ]] || case $cmd: in\n", stdout);
    for (int i = 0; cli_commands[i]; i++)
        bash_command(cli_commands[i]);
    fputs("    help:) words='", stdout);
    for (int i = 0; cli_commands[i]; i++)
        printf("%s%s", i ? " " : "", cli_commands[i]->name);
    fputs("' ;;\n    esac\n"
          "    [[ $cur == -* ]] && words=$options files=0\n"
          "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
          "    if ((files)); then\n"
          "        compopt -o filenames 2> /dev/null\n"
          "        mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- \"$cur\")\n"
          "    fi\n"
          "}\n"
          "complete -F _llmq llmq\n", stdout);
}

/* ---- zsh ---------------------------------------------------------------------------------------------------- */

/* ":placeholder:action" behind an option that takes a value. */
static void zsh_value(const char *arg, const char *words, int files)
{
    putchar(':');
    put(arg, ":", "'\\''");
    if (files && words[0])
        printf(": _llmq_file_or %s", words);
    else if (words[0])
        printf(":(%s)", words);
    else
        fputs(files ? ":_files" : ": ", stdout);
}

/* One spec for each form: "-o+" takes its value in the same word or the next, "--output=" behind = or in the next. */
static void zsh_option(const struct opt *o)
{
    char words[WORDS_SIZE];

    words_of(o, words);
    for (int form = o->letter ? 0 : 1; form < 2; form++) {
        fputs("            '", stdout);
        if (o->letter)
            printf("(-%c --%s)", o->letter, o->name);
        if (form)
            printf("--%s%s[", o->name, o->type == OPT_FLAG ? "" : "=");
        else
            printf("-%c%s[", o->letter, o->type == OPT_FLAG ? "" : "+");
        put(o->help, "[]\\", "'\\''");
        putchar(']');
        if (o->type != OPT_FLAG)
            zsh_value(o->arg, words, wants_file(o));
        puts("' \\");
    }
}

static void zsh_command(const struct cmd *c)
{
    const struct opt *o;
    char              words[WORDS_SIZE];

    words_of_args(c, words);
    printf("    %s)\n        _arguments -s \\\n", c->name);
    for (int l = 0; (o = list_of(c, l)) != NULL; l++)
        for (; o->name; o++)
            zsh_option(o);
    if (words[0])
        printf("            '1:argument:(%s)'\n        ;;\n", words);
    else
        puts("            '*:file:_files'\n        ;;");
}

static void zsh(void)
{
    printf("#compdef llmq\n# zsh completion for llmq %s, written by `llmq completion zsh`\n", cli_version());
    fputs("_llmq_file_or() {\n    compadd -- \"$@\"\n    _files\n}\n"
          "_llmq() {\n    local -a commands\n    commands=(\n", stdout);
    for (int i = 0; cli_commands[i]; i++) {
        printf("        '%s:", cli_commands[i]->name);
        put(cli_commands[i]->summary, ":", "'\\''");
        puts("'");
    }
    fputs("    )\n"
          "    if (( CURRENT == 2 )); then\n"
          "        _describe -t commands command commands\n"
          "        compadd -- help --help --version\n"
          "        return\n"
          "    fi\n"
          "    shift words\n    (( CURRENT-- ))\n"
          "    case $words[1] in\n", stdout);
    for (int i = 0; cli_commands[i]; i++)
        zsh_command(cli_commands[i]);
    fputs("    help) _describe -t commands command commands ;;\n    esac\n}\n"
          "# Loaded from fpath, or sourced.\n"
          "if [[ $funcstack[1] == _llmq ]]; then\n    _llmq \"$@\"\nelse\n    compdef _llmq llmq\nfi\n", stdout);
}

/* ---- fish --------------------------------------------------------------------------------------------------- */

static void fish_option(const struct cmd *c, const struct opt *o)
{
    char words[WORDS_SIZE];

    words_of(o, words);
    printf("complete -c llmq -n '__llmq_is %s' -l %s", c->name, o->name);
    if (o->letter)
        printf(" -s %c", o->letter);
    if (o->type != OPT_FLAG)
        fputs(wants_file(o) ? " -r -F" : " -x", stdout);
    if (words[0])
        printf(" -a '%s'", words);
    fputs(" -d '", stdout);
    put(o->help, "\\", "\\'");
    puts("'");
}

static void fish(void)
{
    printf("# fish completion for llmq %s, written by `llmq completion fish`\n", cli_version());
    fputs("function __llmq_is\n"
          "    set -l words (commandline -opc)\n"
          "    test (count $words) -ge 2; and test $words[2] = $argv[1]\n"
          "end\n"
          "function __llmq_first\n"
          "    test (count (commandline -opc)) -eq 1\n"
          "end\n"
          "complete -c llmq -f\n"
          "complete -c llmq -n __llmq_first -a help -d 'a command'\"'\"'s options'\n"
          "complete -c llmq -n __llmq_first -l help -d 'list the commands'\n"
          "complete -c llmq -n __llmq_first -l version -d 'say which llmq this is'\n", stdout);
    for (int i = 0; cli_commands[i]; i++) {
        const struct cmd *c = cli_commands[i];
        const struct opt *o;
        char              words[WORDS_SIZE];

        words_of_args(c, words);
        printf("complete -c llmq -n __llmq_first -a %s -d '", c->name);
        put(c->summary, "\\", "\\'");
        printf("'\ncomplete -c llmq -n '__llmq_is help' -a %s\n", c->name);
        printf("complete -c llmq -n '__llmq_is %s' %s'%s'\n", c->name, words[0] ? "-a " : "-F -a ", words);
        for (int l = 0; (o = list_of(c, l)) != NULL; l++)
            for (; o->name; o++)
                fish_option(c, o);
    }
}

static int run(int argc, char **argv, struct llmq_err *err)
{
    static const struct { const char *name; void (*write)(void); } shells[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};

    if (argc != 1)
        return llmq_fail(err, LLMQ_EUSAGE, "%d arguments, expected one: llmq completion bash|zsh|fish", argc);
    for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++)
        if (!strcmp(argv[0], shells[i].name)) {
            shells[i].write();
            return 0;
        }
    return llmq_fail(err, LLMQ_EUSAGE, "'%s' is not one of bash|zsh|fish", argv[0]);
}

const struct cmd cmd_completion = {"completion", "bash|zsh|fish", "a script that completes command lines in a shell", opts, run};

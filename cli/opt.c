/* Option tables: parse, --help, --help-options.  See opt.h. */
#include "cli/opt.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Which options were given: by address of their value. */
static const void *given[64];
static int         n_given;

static const struct opt *find_in(const struct opt *o, const char *name, size_t len)
{
    for (; o->name; o++)
        if (strlen(o->name) == len && !memcmp(o->name, name, len))
            return o;
    return NULL;
}

static const struct opt *find(const struct cmd *cmd, const char *name, size_t len)
{
    const struct opt *o = find_in(cmd->opts, name, len);

    return o ? o : find_in(common_opts, name, len);
}

static const struct opt *find_letter(const struct cmd *cmd, char c)
{
    for (const struct opt *o = cmd->opts; o->name; o++)
        if (o->letter == c)
            return o;
    for (const struct opt *o = common_opts; o->name; o++)
        if (o->letter == c)
            return o;
    return NULL;
}

int opt_given(const struct cmd *cmd, const char *name)
{
    const struct opt *o = find(cmd, name, strlen(name));

    for (int i = 0; o && i < n_given; i++)
        if (given[i] == o->value)
            return 1;
    return 0;
}

/* Levenshtein distance, for names of at most 31 letters. */
static int distance(const char *a, size_t la, const char *b)
{
    int    row[33], lb = (int)strlen(b);

    if (la > 31 || lb > 31)
        return 99;
    for (int j = 0; j <= lb; j++)
        row[j] = j;
    for (size_t i = 1; i <= la; i++) {
        int diag = row[0];
        row[0] = (int)i;
        for (int j = 1; j <= lb; j++) {
            int up = row[j], cost = diag + (a[i - 1] != b[j - 1]);
            cost = up + 1 < cost ? up + 1 : cost;
            row[j] = row[j - 1] + 1 < cost ? row[j - 1] + 1 : cost;
            diag = up;
        }
    }
    return row[lb];
}

static int unknown(const struct cmd *cmd, const char *name, size_t len, struct llmq_err *err)
{
    const struct opt *lists[] = {cmd->opts, common_opts};
    const char       *best = NULL;
    int               best_d = 4;

    for (int l = 0; l < 2; l++)
        for (const struct opt *o = lists[l]; o->name; o++) {
            int d = distance(name, len, o->name);
            if (d < best_d) {
                best_d = d;
                best = o->name;
            }
        }
    if (best)
        return llmq_fail(err, LLMQ_EUSAGE, "unknown option '--%.*s'; did you mean '--%s'?", (int)len, name, best);
    return llmq_fail(err, LLMQ_EUSAGE, "unknown option '--%.*s'; `llmq %s --help` lists them", (int)len, name,
                     cmd->name);
}

static int set_int(const struct opt *o, const char *text, struct llmq_err *err)
{
    char *end;
    long  v;

    errno = 0;
    v = strtol(text, &end, 10);
    if (errno || end == text || *end || v < INT_MIN || v > INT_MAX)
        return llmq_fail(err, LLMQ_EUSAGE, "--%s: '%s' is not a whole number", o->name, text);
    if (o->max > o->min && (v < o->min || v > o->max))
        return llmq_fail(err, LLMQ_EUSAGE, "--%s: %ld is out of range, expected %ld to %ld", o->name, v, o->min,
                         o->max);
    *(int *)o->value = (int)v;
    return 0;
}

static int set_u64(const struct opt *o, const char *text, int with_unit, struct llmq_err *err)
{
    static const struct { const char *unit; uint64_t bytes; } units[] = {
        {"", 1},          {"K", 1000},         {"M", 1000000},       {"G", 1000000000},
        {"Ki", 1ull << 10}, {"Mi", 1ull << 20}, {"Gi", 1ull << 30}};
    char              *end;
    unsigned long long v;

    errno = 0;
    v = strtoull(text, &end, 10);
    if (!errno && end != text && *text != '-' && v <= INT64_MAX) /* JSON documents state it */
        for (size_t i = 0; i < (with_unit ? sizeof units / sizeof units[0] : 1); i++)
            if (!strcmp(end, units[i].unit) && v <= INT64_MAX / units[i].bytes) {
                *(uint64_t *)o->value = v * units[i].bytes;
                return 0;
            }
    return llmq_fail(err, LLMQ_EUSAGE, "--%s: '%s' is not %s", o->name, text,
                     with_unit ? "a size such as 600M or 3Gi" : "a whole number from 0 up");
}

static int set_real(const struct opt *o, const char *text, struct llmq_err *err)
{
    char  *end;
    double v;

    errno = 0;
    v = strtod(text, &end);
    if (!errno && end != text && o->type == OPT_PERCENT && *end == '%') {
        v /= 100;
        end++;
    }
    if (errno || end == text || *end || v != v || v - v != 0)
        return llmq_fail(err, LLMQ_EUSAGE, "--%s: '%s' is not a number", o->name, text);
    if (o->type == OPT_PERCENT && end[-1] != '%' && v >= 1) /* 2 for 2 % would be a gate that never closes */
        return llmq_fail(err, LLMQ_EUSAGE, "--%s: '%s' has no unit, expected %s%% or a fraction below 1", o->name, text, text);
    if (o->type == OPT_PERCENT && o->max > o->min && (100 * v < (double)o->min || 100 * v > (double)o->max))
        return llmq_fail(err, LLMQ_EUSAGE, "--%s: %s is out of range, expected %ld%% to %ld%%", o->name, text, o->min, o->max);
    *(double *)o->value = v;
    return 0;
}

static int set_choice(const struct opt *o, const char *text, struct llmq_err *err)
{
    size_t len = strlen(text);

    for (const char *p = o->arg; p;) {
        const char *bar = strchr(p, '|');
        size_t      n = bar ? (size_t)(bar - p) : strlen(p);

        if (n == len && !memcmp(p, text, n)) {
            *(const char **)o->value = text;
            return 0;
        }
        p = bar ? bar + 1 : NULL;
    }
    return llmq_fail(err, LLMQ_EUSAGE, "--%s: '%s' is not one of %s", o->name, text, o->arg);
}

static int set_value(const struct opt *o, const char *text, struct llmq_err *err)
{
    if (n_given < (int)(sizeof given / sizeof given[0]))
        given[n_given++] = o->value;
    switch (o->type) {
    case OPT_FLAG:
        *(int *)o->value = 1;
        return 0;
    case OPT_INT:
        return set_int(o, text, err);
    case OPT_U64:
        return set_u64(o, text, 0, err);
    case OPT_SIZE:
        return set_u64(o, text, 1, err);
    case OPT_REAL:
    case OPT_PERCENT:
        return set_real(o, text, err);
    case OPT_CHOICE:
        return set_choice(o, text, err);
    case OPT_STR:
        *(const char **)o->value = text;
        return 0;
    }
    return 0;
}

/* One option at argv[i] (long or short); returns how many words it took, or an error code. */
static int take_option(const struct cmd *cmd, int argc, char **argv, int i, struct llmq_err *err)
{
    const char       *a = argv[i], *value = NULL;
    const struct opt *o;

    if (a[1] == '-') {
        const char *eq = strchr(a, '=');
        size_t      len = eq ? (size_t)(eq - a - 2) : strlen(a + 2);

        o = find(cmd, a + 2, len);
        if (!o)
            return unknown(cmd, a + 2, len, err);
        value = eq ? eq + 1 : NULL;
        if (value && o->type == OPT_FLAG)
            return llmq_fail(err, LLMQ_EUSAGE, "--%s takes no value", o->name);
    } else {
        o = find_letter(cmd, a[1]);
        if (!o)
            return llmq_fail(err, LLMQ_EUSAGE, "unknown option '-%c'; `llmq %s --help` lists them", a[1], cmd->name);
        value = a[2] ? a + 2 : NULL;
        if (value && o->type == OPT_FLAG)
            return llmq_fail(err, LLMQ_EUSAGE, "unknown option '%s': -%c takes no value", a, a[1]);
    }
    if (o->type == OPT_FLAG || value)
        return set_value(o, value, err) ? err->code : 1;
    if (i + 1 >= argc)
        return llmq_fail(err, LLMQ_EUSAGE, "--%s needs a value: %s", o->name, o->arg);
    return set_value(o, argv[i + 1], err) ? err->code : 2;
}

/* --help, -h and their like, where an option is expected: as another option's value they are a value. */
static enum opt_ask question(const char *word)
{
    return !strcmp(word, "--help") || !strcmp(word, "-h") ? OPT_ASK_HELP
           : !strcmp(word, "--help-options")              ? OPT_ASK_OPTIONS
           : !strcmp(word, "--version")                   ? OPT_ASK_VERSION
                                                          : OPT_ASK_NOTHING;
}

int opt_parse(const struct cmd *cmd, int *argc, char **argv, enum opt_ask *ask, struct llmq_err *err)
{
    int kept = 0, words = *argc, only_args = 0;

    n_given = 0;
    for (int i = 0; i < words;) {
        char *a = argv[i];

        if (!only_args && !strcmp(a, "--")) {
            only_args = 1;
            i++;
        } else if (only_args || a[0] != '-' || a[1] == '\0') {
            argv[kept++] = a;
            i++;
        } else if ((*ask = question(a)) != OPT_ASK_NOTHING) {
            return 0;
        } else {
            int n = take_option(cmd, words, argv, i, err);
            if (n < 0)
                return n;
            i += n;
        }
    }
    *argc = kept;
    return 0;
}

static void help_list(const struct opt *o, FILE *out)
{
    for (; o->name; o++) {
        char left[64], letter[8] = "    ";

        if (o->letter)
            snprintf(letter, sizeof letter, "-%c, ", o->letter);
        snprintf(left, sizeof left, "%s--%s%s%s", letter, o->name, o->arg ? " " : "", o->arg ? o->arg : "");
        fprintf(out, "  %-36s%s%s", left, strlen(left) > 35 ? "\n                                      " : "", o->help);
        if (o->def)
            fprintf(out, " [%s]", o->def);
        fputc('\n', out);
    }
}

void opt_help(const struct cmd *cmd, FILE *out)
{
    fprintf(out, "usage: llmq %s %s\n\n%s\n\noptions:\n", cmd->name, cmd->args, cmd->summary);
    help_list(cmd->opts, out);
    fprintf(out, "\noptions of every command:\n");
    help_list(common_opts, out);
}

void opt_dump(const struct cmd *cmd, FILE *out)
{
    const struct opt *lists[] = {cmd->opts, common_opts};

    for (int l = 0; l < 2; l++)
        for (const struct opt *o = lists[l]; o->name; o++)
            fprintf(out, "%s\t%.1s\t%s\t%s\n", o->name, o->letter ? &o->letter : "", o->arg ? o->arg : "",
                    o->def ? o->def : "");
}

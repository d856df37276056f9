/* Chat templates: see chat.h.
 *
 * A template is recognised by its meaning, not by its name: its Jinja statements are brought into one spelling
 * (no white space outside literals, one kind of quote, joined literals) and must then be the statements of
 * ChatML, one after the other, with nothing in between.  Anything else is refused, since a prompt that is
 * almost right makes a model quietly worse.
 *
 * Only the template's own <|im_start|> and <|im_end|> become special tokens when a prompt is encoded; the same
 * letters inside a message stay letters, so that a message cannot end itself and speak for someone else. */
#include "runner/text/chat.h"

#include "runner/runner.h"
#include "runner/text/tokenizer.h"

#include <string.h>

static const char im_start[] = "<|im_start|>", im_end[] = "<|im_end|>";

/* ---- recognising ---------------------------------------------------------------------------------- */

/* Q marks a literal's ends in the normal form, whatever quotes were used. */
#define Q "\1"

/* Statements of one template in order; '?' marks those of the part that may be missing, which is all or nothing. */
enum { REQUIRED, GUARD, DEFAULT };
enum { FIXED, SYSTEM_LITERAL };
static const struct statement {
    int         part, kind;
    const char *form;
} chatml[] = {
    {GUARD, FIXED, "%ifnotadd_generation_promptisdefined"},
    {GUARD, FIXED, "%setadd_generation_prompt=false"},
    {GUARD, FIXED, "%endif"},
    {REQUIRED, FIXED, "%formessageinmessages"},
    {DEFAULT, FIXED, "%ifloop.firstandmessages[0].role!=" Q "system" Q},
    {DEFAULT, SYSTEM_LITERAL, "{" Q "<|im_start|>system\n"},
    {DEFAULT, FIXED, "%endif"},
    {REQUIRED, FIXED, "{" Q "<|im_start|>" Q "+message.role+" Q "\n" Q "+message.content+" Q "<|im_end|>\n" Q},
    {REQUIRED, FIXED, "%endfor"},
    {REQUIRED, FIXED, "%ifadd_generation_prompt"},
    {REQUIRED, FIXED, "{" Q "<|im_start|>assistant\n" Q},
    {REQUIRED, FIXED, "%endif"},
};
enum { N_CHATML = sizeof chatml / sizeof chatml[0] };

static int is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/* The normal form of a statement that starts at p, behind its opening brace; returns where it ends (behind the
 * closing brace), or NULL when it does not end or memory is out (*rc). */
static const char *normalise(const char *p, const char *end, struct llmq_str *s, int *rc, struct llmq_err *err)
{
    const char close = *p == '%' ? '%' : '}';
    char       quote = 0;

    *rc = llmq_str_append(s, p++, 1, err);
    for (; p + 1 < end && !*rc; p++) {
        char c = *p;

        if (!quote && c == close && p[1] == '}')
            return p + 2;
        if (c == Q[0])
            return NULL;
        if (!quote && (is_space(c) || (c == '-' && (p[1] == close || s->len == 1))))
            continue; /* white space, and the dashes of {%- and -%} */
        if (quote && c == '\\') {
            p++;
            c = *p == 'n' ? '\n' : *p == 't' ? '\t' : *p;
        } else if (quote ? c == quote : c == '\'' || c == '"') {
            quote = quote ? 0 : c;
            c = Q[0];
        }
        *rc = llmq_str_append(s, &c, 1, err);
    }
    return NULL;
}

/* Takes out every occurrence of `what` (same length as or longer than `with`), putting `with` there. */
static void rewrite(struct llmq_str *s, const char *what, const char *with)
{
    size_t n = strlen(what), w = strlen(with);

    for (char *p = s->data; (p = memmem(p, s->len - (size_t)(p - s->data), what, n)); p += w) {
        memcpy(p, with, w);
        memmove(p + w, p + n, s->len - (size_t)(p - s->data) - n);
        s->len -= n - w;
    }
}

/* A statement of the wanted kind?  A system literal's text is appended to system. */
static int is_statement(const struct statement *want, const struct llmq_str *s, struct llmq_str *system, int *rc, struct llmq_err *err)
{
    static const char tail[] = "<|im_end|>\n" Q;
    size_t            n = strlen(want->form), t = sizeof tail - 1;

    if (want->kind == FIXED)
        return s->len == n && !memcmp(s->data, want->form, n);
    if (s->len < n + t || memcmp(s->data, want->form, n) != 0 || memcmp(s->data + s->len - t, tail, t) != 0 ||
        memchr(s->data + n, Q[0], s->len - n - 1) || memmem(s->data + n, s->len - n - t, im_end, sizeof im_end - 1))
        return 0;
    *rc = llmq_str_append(system, s->data + n, s->len - n - t, err);
    return !*rc;
}

/* Steps over space between statements that Jinja, as transformers sets it up, leaves out: the newline behind a
 * block, the indentation of a block, what a dash eats, and a newline at the very end.  Returns where the next
 * statement opens or the text ends, or NULL when something would be printed. */
static const char *skip_between(const char *text, const char *p, const char *end)
{
    int         block = p - text >= 2 && p[-2] == '%', dash = p - text >= 3 && p[-3] == '-';
    const char *q = p;

    while (q < end && is_space(*q))
        q++;
    if (q == end)
        return q - p <= 1 + block || dash ? q : NULL;
    if (end - q < 4 || q[0] != '{' || (q[1] != '%' && q[1] != '{'))
        return NULL;
    if (q == p || dash || q[2] == '-')
        return q;
    if (p != text && !(block && *p++ == '\n'))
        return NULL;
    while (p < q && (*p == ' ' || *p == '\t') && q[1] == '%')
        p++;
    return p == q ? q : NULL;
}

/* The index behind the statement that s is, when it may stand at index at; -1 when it may not. */
static int advance(int at, const struct llmq_str *s, int *skipped, struct llmq_str *system, int *rc, struct llmq_err *err)
{
    while (at < N_CHATML) {
        int part = chatml[at].part;

        if (is_statement(&chatml[at], s, system, rc, err))
            return at + 1;
        if (*rc || part == REQUIRED || (at > 0 && chatml[at - 1].part == part))
            return -1;
        skipped[part] = 1;
        while (at < N_CHATML && chatml[at].part == part)
            at++;
    }
    return -1;
}

int chat_is_chatml(const char *text, size_t len, struct llmq_str *default_system, int *has_default, struct llmq_err *err)
{
    const char     *p = text, *end = text + len;
    struct llmq_str s;
    int             at = 0, rc = 0, skipped[3] = {0};

    llmq_str_init(&s, len + 16);
    while (at >= 0 && !rc && (p = skip_between(text, p, end)) && p < end) {
        llmq_str_clear(&s);
        p = normalise(p + 1, end, &s, &rc, err);
        if (!p || rc)
            break;
        rewrite(&s, Q "+" Q, "");
        rewrite(&s, "[" Q "role" Q "]", ".role");
        rewrite(&s, "[" Q "content" Q "]", ".content");
        at = advance(at, &s, skipped, default_system, &rc, err);
    }
    llmq_str_fini(&s);
    *has_default = !skipped[DEFAULT];
    return rc ? rc : p == end && at == N_CHATML;
}

/* ---- rendering -------------------------------------------------------------------------------------- */

/* Where a prompt goes: its text, and with a tokenizer its ids too. */
struct sink {
    struct llmq_str         text;  /* all of it */
    size_t                  taken; /* of the text, already among the ids */
    const struct tokenizer *t;
    struct token_ids       *ids;
};

static int put(struct sink *k, const char *text, struct llmq_err *err) { return llmq_str_append(&k->text, text, strlen(text), err); }

/* A tokenizer may have the template's tokens without calling them special; they then come out of ordinary text. */
static int check_letters(const struct sink *k, size_t from, struct llmq_err *err)
{
    int32_t start = tokenizer_token_id(k->t, im_start, sizeof im_start - 1), end = tokenizer_token_id(k->t, im_end, sizeof im_end - 1);

    for (size_t i = from; i < k->ids->n; i++)
        if (k->ids->id[i] == start || k->ids->id[i] == end)
            return llmq_fail(err, LLMQ_EFORMAT, "the message holds %s, which this model's tokenizer cannot keep apart from the template's own",
                             k->ids->id[i] == start ? im_start : im_end);
    return 0;
}

/* Encodes the ordinary text that is waiting. */
static int flush(struct sink *k, struct llmq_err *err)
{
    size_t from = k->taken, n = k->t ? k->ids->n : 0;

    k->taken = k->text.len;
    if (!k->t)
        return 0;
    return tokenizer_encode(k->t, k->text.data + from, k->text.len - from, 0, k->ids, err) || check_letters(k, n, err) ? err->code : 0;
}

static int put_special(struct sink *k, const char *name, struct llmq_err *err)
{
    if (flush(k, err) || put(k, name, err))
        return err->code;
    k->taken = k->text.len;
    return k->t ? tokenizer_encode(k->t, name, strlen(name), TOKENIZER_PARSE_SPECIAL, k->ids, err) : 0;
}

static int put_message(struct sink *k, const char *role, const char *content, struct llmq_err *err)
{
    return put_special(k, im_start, err) || put(k, role, err) || put(k, "\n", err) || put(k, content, err) ||
                   put_special(k, im_end, err) || put(k, "\n", err)
               ? err->code
               : 0;
}

static int put_chatml(struct sink *k, const char *system, const char *user, struct llmq_err *err)
{
    if (system && put_message(k, "system", system, err))
        return err->code;
    return put_message(k, "user", user, err) || put_special(k, im_start, err) || put(k, "assistant\n", err) || flush(k, err) ? err->code
                                                                                                                        : 0;
}

/* No template: the user's text is the prompt. */
static int put_none(struct sink *k, const char *system, const char *user, struct llmq_err *err)
{
    if (system)
        return llmq_fail(err, LLMQ_EUSAGE, "a system message needs a chat template, and the template is none");
    if (put(k, user, err))
        return err->code;
    return k->t ? tokenizer_encode(k->t, user, strlen(user), TOKENIZER_ADD_SPECIAL, k->ids, err) : 0;
}

/* The file's own template. */
static int put_recognised(struct sink *k, const struct llmq_file *f, const char *system, const char *user, struct llmq_err *err)
{
    size_t          len;
    const char     *text = llmq_file_section(f, LLMQ_SECTION_CHAT_TEMPLATE, &len);
    struct llmq_str own;
    int             has_default, rc;

    if (!len)
        return llmq_fail(err, LLMQ_EUSAGE, "the model has no chat template: pass --chat-template chatml or none, or --raw");
    llmq_str_init(&own, len + 1);
    rc = chat_is_chatml(text, len, &own, &has_default, err);
    if (rc == 0)
        rc = llmq_fail(err, LLMQ_EUSAGE, "the model's chat template is not one that is known: pass --chat-template chatml or none, or --raw");
    if (rc > 0)
        rc = put_chatml(k, system ? system : has_default ? own.data : NULL, user, err);
    llmq_str_fini(&own);
    return rc;
}

static int render(struct sink *k, const struct llmq_file *f, const char *name, const char *system, const char *user, struct llmq_err *err)
{
    llmq_str_init(&k->text, strlen(user) + (system ? strlen(system) : 0) + (1 << 20));
    if (!name)
        return put_recognised(k, f, system, user, err);
    if (!strcmp(name, "chatml"))
        return put_chatml(k, system, user, err);
    if (!strcmp(name, "none"))
        return put_none(k, system, user, err);
    return llmq_fail(err, LLMQ_EUSAGE, "there is no chat template '%s', expected chatml or none", name);
}

int llmq_chat_prompt(const struct llmq_file *f, const char *template_name, const char *system, const char *user, struct llmq_str *out,
                     struct llmq_err *err)
{
    struct sink k = {0};
    int         rc = render(&k, f, template_name, system, user, err);

    if (!rc)
        rc = llmq_str_append(out, k.text.data, k.text.len, err);
    llmq_str_fini(&k.text);
    return rc;
}

int llmq_chat_encode(const struct llmq_file *f, const struct tokenizer *t, const char *template_name, const char *system,
                     const char *user, struct token_ids *out, struct llmq_err *err)
{
    struct sink k = {.t = t, .ids = out};
    int         rc = render(&k, f, template_name, system, user, err);

    llmq_str_fini(&k.text);
    return rc;
}

/* Chat: messages, a template (the file's own, or one of ours by name), and the ids of what it renders.  See runner.h.
 *
 * Every template is Jinja, ours too, so there is one way in which a prompt is made.  The interpreter tells which bytes
 * came from a message, and the tokenizer keeps those from becoming the template's special tokens. */
#include "common/alloc.h"
#include "common/str.h"
#include "common/utf8.h"
#include "format/format.h"
#include "runner/text/chat.h"
#include "runner/text/jinja.h"
#include "runner/text/tokenizer.h"

#include <jansson.h>
#include <string.h>
#include <time.h>

enum { TEXT_MAX = 64 << 20, MAX_LETTERS = 5 };
#define PASS_ONE "pass --chat-template " LLMQ_CHAT_NAMES ", or --raw with a prompt"

struct style {
    const char *name, *text;
    const char *letters[MAX_LETTERS]; /* what the template's structure is said with: refused in messages of others than the
                                         model where the tokenizer has no such token to keep apart */
    int         add_special;
};

#define CHATML                                                                                             \
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}" \
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
#define TAKE_TURNS                                                                       \
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) or m.role == 'system' %}"        \
    "{{ raise_exception('the messages of user and assistant must take turns') }}{% endif %}"
#define SPLIT_SYSTEM(before, after)                                                                                                  \
    "{% if messages[0].role == 'system' %}{% set system = " before " + messages[0].content + " after " %}{% set rest = messages[1:] %}" \
    "{% else %}{% set system = '' %}{% set rest = messages %}{% endif %}"

static const struct style styles[] = {
    {"chatml", CHATML, {"<|im_start|>", "<|im_end|>", NULL}, 0},
    {"llama2",
     SPLIT_SYSTEM("'<<SYS>>\n'", "'\n<</SYS>>\n\n'") "{% for m in rest %}" TAKE_TURNS
     "{% if m.role == 'user' %}{{ bos_token + '[INST] ' + ((system if loop.first else '') + m.content) | trim + ' [/INST]' }}"
     "{% else %}{{ ' ' + m.content | trim + ' ' + eos_token }}{% endif %}{% endfor %}",
     {"[INST]", "[/INST]", "<<SYS>>", "<</SYS>>", NULL}, 0},
    {"llama3",
     "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content | trim + '<|eot_id|>' }}"
     "{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
     {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", NULL}, 0},
    {"mistral",
     SPLIT_SYSTEM("''", "'\n\n'") "{{ bos_token }}{% for m in rest %}" TAKE_TURNS
     "{% if m.role == 'user' %}{{ '[INST] ' + (system if loop.first else '') + m.content + ' [/INST]' }}"
     "{% else %}{{ ' ' + m.content | trim + eos_token }}{% endif %}{% endfor %}",
     {"[INST]", "[/INST]", NULL}, 0},
    {"qwen",
     "{% if messages[0].role != 'system' %}"
     "{{ '<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n' }}{% endif %}" CHATML,
     {"<|im_start|>", "<|im_end|>", NULL}, 0},
    {"none",
     "{% for m in messages %}{% if m.role == 'system' %}"
     "{{ raise_exception('a system message needs a chat template, and the template is none') }}{% endif %}"
     "{{ m.content }}{% if not loop.last %}{{ '\n' }}{% endif %}{% endfor %}",
     {NULL}, TOKENIZER_ADD_SPECIAL},
};

struct llmq_chat {
    const struct style     *style; /* NULL: the file's own */
    const struct tokenizer *t;
    struct jinja           *jinja;
    json_t                 *bos, *eos;
    int32_t                 stop;
};

/* ---- rendering ------------------------------------------------------------------------------------------ */

static json_t *message_json(const struct llmq_message *m)
{
    static const char *const name[] = {"system", "user", "assistant"};

    return json_pack("{s:s, s:s}", "role", name[m->role], "content", m->content);
}

static int check_messages(const struct llmq_chat *c, const struct llmq_message *m, size_t n, struct llmq_err *err)
{
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(m[i].content), bad = utf8_check(m[i].content, len);

        if (bad != len)
            return llmq_fail(err, LLMQ_EFORMAT, "message %zu: byte %zu is 0x%02x, which is not UTF-8 there", i + 1, bad,
                             (unsigned char)m[i].content[bad]);
        for (int k = 0; c->style && m[i].role != LLMQ_CHAT_ASSISTANT && c->style->letters[k]; k++)
            if (strstr(m[i].content, c->style->letters[k]) && !tokenizer_is_added(c->t, c->style->letters[k], strlen(c->style->letters[k])))
                return llmq_fail(err, LLMQ_EFORMAT, "message %zu holds %s, which in the %s template is the template's own to say", i + 1,
                                 c->style->letters[k], c->style->name);
    }
    return 0;
}

static int make_context(const struct llmq_chat *c, const struct llmq_message *m, size_t n, int ask, json_t **out, struct llmq_err *err)
{
    json_t *list = json_array();
    int     bad = !list;

    for (size_t i = 0; i < n && !bad; i++)
        bad = json_array_append_new(list, message_json(&m[i]));
    *out = bad ? NULL : json_pack("{s:O, s:b, s:O, s:O}", "messages", list, "add_generation_prompt", ask, "bos_token", c->bos, "eos_token", c->eos);
    json_decref(list);
    return *out ? 0 : llmq_fail(err, LLMQ_ENOMEM, "out of memory for %zu messages", n);
}

/* ask: up to where an answer begins. */
static int render(const struct llmq_chat *c, const struct llmq_message *m, size_t n, int ask, struct llmq_str *text, struct llmq_str *marks,
                  struct llmq_err *err)
{
    struct llmq_err why = {0};
    json_t         *context;
    int             rc;

    if (check_messages(c, m, n, err) || make_context(c, m, n, ask, &context, err))
        return err->code;
    rc = jinja_render(c->jinja, context, time(NULL), text, marks, &why);
    json_decref(context);
    if (!rc)
        return 0;
    if (rc == LLMQ_EUSAGE)
        return llmq_fail(err, rc, "%s", why.text);
    return llmq_fail(err, rc, "the model's %s; " PASS_ONE, why.text);
}

int llmq_chat_prompt(const struct llmq_chat *c, const struct llmq_message *m, size_t n, struct llmq_str *out, struct llmq_err *err)
{
    struct llmq_str text = {.max = TEXT_MAX}, marks = {.max = TEXT_MAX};
    int             rc = render(c, m, n, 1, &text, &marks, err);

    if (!rc)
        rc = llmq_str_append(out, text.data, text.len, err);
    llmq_str_fini(&text);
    llmq_str_fini(&marks);
    return rc;
}

int llmq_chat_encode(const struct llmq_chat *c, const struct llmq_message *m, size_t n, struct token_ids *out, struct llmq_err *err)
{
    struct llmq_str text = {.max = TEXT_MAX}, marks = {.max = TEXT_MAX};
    int             flags = TOKENIZER_PARSE_SPECIAL | (c->style ? c->style->add_special : 0);
    int             rc = render(c, m, n, 1, &text, &marks, err);

    if (!rc)
        rc = tokenizer_encode_marked(c->t, text.data, marks.data, text.len, flags, out, err);
    llmq_str_fini(&text);
    llmq_str_fini(&marks);
    return rc;
}

/* ---- opening -------------------------------------------------------------------------------------------- */

static int32_t first_special(const struct tokenizer *t, const char *text, size_t len)
{
    struct llmq_err  ignored = {0};
    struct token_ids ids = {0};
    int32_t          found = -1;

    if (!tokenizer_encode(t, text, len, TOKENIZER_PARSE_SPECIAL, &ids, &ignored))
        for (size_t i = 0; i < ids.n && found < 0; i++)
            if (tokenizer_is_special(t, ids.id[i]))
                found = ids.id[i];
    tokenizer_ids_free(&ids);
    return found;
}

/* A conversation that ends with an answer, and what the template puts behind it. */
static int32_t find_stop(const struct llmq_chat *c)
{
    static const struct llmq_message talk[] = {{LLMQ_CHAT_USER, "question"}, {LLMQ_CHAT_ASSISTANT, "answer"}};
    struct llmq_err                  ignored = {0};
    struct llmq_str                  text = {.max = TEXT_MAX}, marks = {.max = TEXT_MAX};
    int32_t                          stop = -1;

    if (!render(c, talk, 2, 0, &text, &marks, &ignored)) {
        const char *last = text.len ? memrchr(marks.data, 1, marks.len) : NULL;

        if (last)
            stop = first_special(c->t, text.data + (last - marks.data) + 1, text.len - (size_t)(last - marks.data) - 1);
    }
    llmq_str_fini(&text);
    llmq_str_fini(&marks);
    return stop;
}

static int token_json(const struct tokenizer *t, int32_t id, json_t **out, struct llmq_err *err)
{
    size_t      len = 0;
    const char *text = id < 0 ? "" : tokenizer_token_text(t, id, &len);

    *out = text ? json_stringn(text, len) : json_string("");
    return *out ? 0 : llmq_fail(err, LLMQ_ENOMEM, "out of memory for a token's text");
}

static int own_template(struct llmq_chat *c, const char *text, size_t len, struct llmq_err *err)
{
    struct llmq_err why = {0};

    if (!len)
        return llmq_fail(err, LLMQ_EUSAGE, "the model has no chat template: " PASS_ONE);
    if (jinja_parse(&c->jinja, text, len, &why))
        return llmq_fail(err, why.code == LLMQ_ENOMEM ? LLMQ_ENOMEM : LLMQ_EUSAGE, "the model's %s; " PASS_ONE, why.text);
    return 0;
}

static int named_template(struct llmq_chat *c, const char *name, struct llmq_err *err)
{
    for (size_t i = 0; i < sizeof styles / sizeof styles[0]; i++)
        if (!strcmp(styles[i].name, name))
            c->style = &styles[i];
    if (!c->style)
        return llmq_fail(err, LLMQ_EUSAGE, "there is no chat template '%s', expected " LLMQ_CHAT_NAMES, name);
    if (!strcmp(name, "mistral") && tokenizer_is_special(c->t, tokenizer_token_id(c->t, "[INST]", 6)))
        return llmq_fail(err, LLMQ_EUSAGE, "this model has [INST] as a token, and mistral writes it in letters: use the model's own chat template");
    return jinja_parse(&c->jinja, c->style->text, strlen(c->style->text), err);
}

int chat_new(struct llmq_chat **out, const struct tokenizer *t, const char *name, const char *own, size_t len, int32_t bos, int32_t eos,
             struct llmq_err *err)
{
    struct llmq_chat *c;

    *out = NULL;
    if (LLMQ_NEW(&c, 1, "a chat template", err))
        return err->code;
    c->t = t;
    if ((name ? named_template(c, name, err) : own_template(c, own, len, err)) || token_json(t, bos, &c->bos, err) ||
        token_json(t, eos, &c->eos, err)) {
        llmq_chat_close(c);
        return err->code;
    }
    c->stop = find_stop(c);
    *out = c;
    return 0;
}

int llmq_chat_open(struct llmq_chat **out, const struct llmq_file *f, const struct tokenizer *t, const char *name, struct llmq_err *err)
{
    const struct llmq_hparams *hp = llmq_file_hparams(f);
    size_t                     len;
    const char                *own = llmq_file_section(f, LLMQ_SECTION_CHAT_TEMPLATE, &len);

    return chat_new(out, t, name, own, len, hp->bos_id, hp->n_eos ? hp->eos_id[0] : -1, err);
}

void llmq_chat_close(struct llmq_chat *c)
{
    if (!c)
        return;
    jinja_free(c->jinja);
    json_decref(c->bos);
    json_decref(c->eos);
    llmq_free(c);
}

int32_t llmq_chat_stop(const struct llmq_chat *c) { return c->stop; }

/* runner/text/chat.c: which templates mean ChatML.  What each accepted one renders was compared with Jinja's own
 * output (jinja2 3.1, set up as transformers does). */
#include "common/err.h"
#include "runner/runner.h"
#include "runner/text/chat.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

#define MESSAGE "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
#define ASK "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
#define FOR "{% for message in messages %}"

static int recognise(const char *text, char *system, size_t size)
{
    struct llmq_err err = {0};
    struct llmq_str s;
    int             has, rc;

    llmq_str_init(&s, strlen(text) + 1);
    rc = chat_is_chatml(text, strlen(text), &s, &has, &err);
    ck_assert_int_ge(rc, 0);
    snprintf(system, size, "%s", has ? s.data : "(none)");
    llmq_str_fini(&s);
    return rc;
}

START_TEST(chatml_in_the_spellings_of_checkpoints)
{
    static const struct { const char *text, *system; } known[] = {
        /* SmolLM2: real newlines inside the literals */
        {"{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful AI "
         "assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + "
         "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}\n",
         "You are a helpful AI assistant named SmolLM, trained by Hugging Face"},
        {FOR MESSAGE "{% endfor %}" ASK, "(none)"},
        {"{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}" FOR MESSAGE "{% endfor %}" ASK, "(none)"},
        {"{%- for message in messages -%}\n  {%- if loop.first and messages[0].role != \"system\" -%}\n    {{- \"<|im_start|>system\\nBe it's "
         "\\\"kind\\\".<|im_end|>\\n\" -}}\n  {%- endif -%}\n  {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}\n"
         "{%- endfor -%}\n{%- if add_generation_prompt -%}\n  {{- '<|im_start|>assistant\\n' -}}\n{%- endif -%}\n",
         "Be it's \"kind\"."},
        {"{% for message in messages %}\n    {% if loop.first and messages[0]['role'] != 'system' %}\n{{ '<|im_start|>system\nX<|im_end|>\n' }}"
         "{% endif %}\n" MESSAGE "{% endfor %}\n{% if add_generation_prompt %}\n{{ '<|im_start|>assistant\n' }}{% endif %}\n\n",
         "X"},
    };
    char system[200];

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        ck_assert_msg(recognise(known[i].text, system, sizeof system) == 1, "template %zu is not recognised", i);
        ck_assert_str_eq(system, known[i].system);
    }
}
END_TEST

START_TEST(almost_chatml_is_refused)
{
    static const char *const other[] = {
        "",
        "{{ messages[0]['content'] }}",
        FOR MESSAGE "{% endfor %}",                                    /* never asks */
        FOR MESSAGE "\n{% endfor %}" ASK,                              /* prints a newline */
        FOR " " MESSAGE "{% endfor %}" ASK,                            /* prints a space */
        FOR MESSAGE "{% endfor %}" ASK "x",                            /* prints an x */
        FOR MESSAGE "{% endfor %}" ASK ASK,                            /* asks twice */
        "{{ bos_token }}" FOR MESSAGE "{% endfor %}" ASK,              /* a prefix */
        FOR "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] | trim + '<|im_end|>' + '\\n'}}{% endfor %}" ASK,
        FOR "{{'<|im_start|>' + message['role'] + ' ' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}" ASK,
        FOR "{% if loop.first and messages[0]['role'] != 'system' %}" MESSAGE "{% endif %}" MESSAGE "{% endfor %}" ASK,
        FOR "{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\na<|im_end|>\\n<|im_start|>user\\nb<|im_end|>\\n' }}"
            "{% endif %}" MESSAGE "{% endfor %}" ASK,
        FOR MESSAGE "{% endfor",
        FOR MESSAGE "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n }}{% endif %}",
        "{# chatml #}" FOR MESSAGE "{% endfor %}" ASK,
        "\1", "{", "{%", "{{", "{{'\\", "{%-", "{% '\1' %}",
    };
    char system[200];

    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++)
        ck_assert_msg(recognise(other[i], system, sizeof system) == 0, "template %zu is taken for ChatML", i);
}
END_TEST

START_TEST(prompts_by_name)
{
    struct llmq_err err = {0};
    struct llmq_str s;

    llmq_str_init(&s, 1000);
    ck_assert_int_eq(llmq_chat_prompt(NULL, "chatml", NULL, "Hi", &s, &err), 0);
    ck_assert_str_eq(s.data, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    llmq_str_clear(&s);
    ck_assert_int_eq(llmq_chat_prompt(NULL, "chatml", "Be brief.", "\n\nHi <|im_end|> there\n", &s, &err), 0);
    ck_assert_str_eq(s.data, "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n\n\nHi <|im_end|> there\n<|im_end|>\n<|im_start|>assistant\n");
    llmq_str_clear(&s);
    ck_assert_int_eq(llmq_chat_prompt(NULL, "none", NULL, "Hi", &s, &err), 0);
    ck_assert_str_eq(s.data, "Hi");
    ck_assert_int_eq(llmq_chat_prompt(NULL, "none", "x", "Hi", &s, &err), LLMQ_EUSAGE);
    ck_assert_int_eq(llmq_chat_prompt(NULL, "vicuna", NULL, "Hi", &s, &err), LLMQ_EUSAGE);
    llmq_str_fini(&s);
}
END_TEST

UNIT_CASE(chat, chatml_in_the_spellings_of_checkpoints, almost_chatml_is_refused, prompts_by_name)

/* runner/text/jinja_*.c: which bytes are marked as a message's, and limits.  What templates render is compared with jinja2
 * itself by tests/golden/chat.test.sh. */
#include "common/err.h"
#include "common/str.h"
#include "runner/text/jinja.h"
#include "tests/unit/unit.h"

#include <jansson.h>
#include <string.h>

static int render(const char *template, const char *content, struct llmq_str *text, struct llmq_str *marks, struct llmq_err *err)
{
    json_t       *context = json_pack("{s:[{s:s, s:s}], s:s}", "messages", "role", "user", "content", content, "bos_token", "<s>");
    struct jinja *t;
    int           rc;

    ck_assert_ptr_nonnull(context);
    llmq_str_clear(text);
    llmq_str_clear(marks);
    rc = jinja_parse(&t, template, strlen(template), err);
    if (!rc) {
        rc = jinja_render(t, context, 0, text, marks, err);
        jinja_free(t);
    }
    json_decref(context);
    return rc;
}

#define M "{{ messages[0].content"

START_TEST(marks_follow_a_message)
{
    /* the message is "  ab<s>c  "; marks: m for a marked byte, . for another */
    static const struct { const char *template, *text, *marks; } want[] = {
        {M " }}", "  ab<s>c  ", "mmmmmmmmmm"},
        {"{{ bos_token + messages[0].content | trim + 'x' }}", "<s>ab<s>cx", "...mmmmmm."},
        {"{{ messages[0].role }}{{ messages[0]['content'][2:4] }}", "userab", "....mm"},
        {M ".strip().split('<s>') | join('<s>') }}", "ab<s>c", "mm...m"},
        {M ".replace('ab', '<s>') | trim }}", "<s><s>c", "...mmmm"},
        {M " | upper | trim }}", "AB<S>C", "mmmmmm"},
        {"{% set x = messages[0].content | trim %}{% for c in x %}{{ c if loop.first else '' }}{% endfor %}|{{ x ~ x }}", "a|ab<s>cab<s>c",
         "m.mmmmmmmmmmmm"},
        {"{% macro f(x) %}[{{ x }}]{% endmacro %}{{ f(messages[0].content.strip()) }}", "[ab<s>c]", ".mmmmmm."},
        {"{{ '%s' }}{{ 'a' if 'ab' in messages[0].content }}", "%sa", "..."},
        {"{% set ns = namespace(x='') %}{% for m in messages %}{% set ns.x = ns.x + m.content.strip() + '!' %}{% endfor %}{{ ns.x }}", "ab<s>c!", "mmmmmm."},
        {"{{ messages[0] | tojson }}", "{\"role\": \"user\", \"content\": \"  ab<s>c  \"}", NULL},
    };
    struct llmq_str text = {.max = 1 << 20}, marks = {.max = 1 << 20};
    struct llmq_err err = {0};

    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        ck_assert_msg(!render(want[i].template, "  ab<s>c  ", &text, &marks, &err), "%s: %s", want[i].template, err.text);
        ck_assert_str_eq(text.data, want[i].text);
        ck_assert_uint_eq(marks.len, text.len);
        for (size_t k = 0; want[i].marks && k < marks.len; k++)
            ck_assert_msg(marks.data[k] == (want[i].marks[k] == 'm'), "%s: byte %zu of '%s'", want[i].template, k, text.data);
    }
    /* in JSON, what the message said is marked, wherever it stands */
    for (size_t k = 0; k < strlen("  ab<s>c  "); k++)
        ck_assert_int_eq(marks.data[(size_t)(strstr(text.data, "  ab") - text.data) + k], 1);
    llmq_str_fini(&text);
    llmq_str_fini(&marks);
}
END_TEST

/* A template is untrusted: each of these ends with an error that names a limit, long before Check's patience does. */
START_TEST(hostile_templates_end)
{
    static const char *const bad[] = {
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{{ 'aaaa' * 1000000000 }}",
        "{{ range(1000000000000) | list }}",
        "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
        "{% set ns = namespace(x='a' * 1000000) %}{% for i in range(100000) %}{{ ns.x.replace('a', 'aaaa') | length }}{% endfor %}",
        "{% set x = 'a' * 1000000 %}{% for i in range(100000) %}{{ x.rfind('b') }}{{ x.find('aab') }}{{ x.count('ab') }}{% endfor %}",
        "{% set x = 'a' * 1000000 %}{% set y = 'b' + 'a' * 300000 %}{% for i in range(100000) %}{{ x.rfind(y) }}{% endfor %}",
        "{% set x = 'a' * 1000000 %}{% set y = 'a' * 300000 + 'b' %}{% for i in range(100000) %}{{ x.rfind(y) }}{{ x.split(y) | length }}{% endfor %}",
        "{% set x = ' a' * 500000 %}{% for i in range(100000) %}{{ x.strip() | length }}{{ x | trim | length }}{{ x.lstrip(' a') }}{% endfor %}",
        "{{ ('a' * 1000000).strip('b' * 1000000 + 'a') | length }}{{ ('a' * 30000000).strip('b' * 30000000 + 'a') }}",
        "{% set x = range(100000) | list %}{% for i in x %}{{ x | unique | list | length }}{{ x | sort | length }}{{ x | map('string') | join | length }}{% endfor %}",
        "{% set x = range(100000) | list %}{{ x | unique | list }}{% for i in x %}{{ -1 in x }}{% endfor %}",
        "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = ns.x + [ns.x] %}{% endfor %}{{ ns.x }}",
        "{% set x = 'a' * 1000 %}{% for i in range(100000) %}{{ x }}{% endfor %}",
    };
    struct llmq_str text = {.max = 64 << 20}, marks = {.max = 64 << 20};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct llmq_err err = {0};
        int             rc = render(bad[i], "x", &text, &marks, &err);

        ck_assert_msg(rc == LLMQ_EFORMAT || rc == LLMQ_ELIMIT, "%s: %d %s", bad[i], rc, err.text);
    }
    llmq_str_fini(&text);
    llmq_str_fini(&marks);
}
END_TEST

/* Nesting of every kind, far beyond what a stack bears. */
START_TEST(deep_templates_are_refused)
{
    static const struct { const char *open, *middle, *close; } nest[] = {
        {"(", "1", ")"}, {"[", "1", "]"}, {"{1:", "1", "}"}, {"not ", "1", ""}, {"-", "1", ""}, {"f(", "1", ")"}, {"1 if 1 else ", "1", ""}, {"1+", "1", ""},
        {"", "x", ".a"}, {"", "x", "[0]"}, {"", "x", "|trim"}, {"1~", "1", ""}, {"1 and ", "1", ""}, {"2**", "1", ""},
    };
    struct llmq_str text = {.max = 64 << 20}, marks = {.max = 64 << 20}, t = {.max = 64 << 20};

    for (size_t i = 0; i < sizeof nest / sizeof nest[0]; i++) {
        struct llmq_err err = {0};

        llmq_str_clear(&t);
        ck_assert(!llmq_str_append(&t, "{{ ", 3, &err));
        for (int k = 0; k < 100000; k++)
            ck_assert(!llmq_str_append(&t, nest[i].open, strlen(nest[i].open), &err));
        ck_assert(!llmq_str_append(&t, nest[i].middle, strlen(nest[i].middle), &err));
        for (int k = 0; k < 100000; k++)
            ck_assert(!llmq_str_append(&t, nest[i].close, strlen(nest[i].close), &err));
        ck_assert(!llmq_str_append(&t, " }}", 3, &err));
        ck_assert_msg(render(t.data, "x", &text, &marks, &err) == LLMQ_EFORMAT, "%s", nest[i].open);
        ck_assert_msg(strstr(err.text, "nested") || strstr(err.text, "open brackets"), "%s: %s", nest[i].open, err.text);
    }
    llmq_str_clear(&t);
    for (int k = 0; k < 100000; k++) {
        struct llmq_err err = {0};

        ck_assert(!llmq_str_append(&t, "{% if 1 %}", 10, &err));
    }
    {
        struct llmq_err err = {0};

        ck_assert_int_eq(render(t.data, "x", &text, &marks, &err), LLMQ_EFORMAT);
    }
    llmq_str_fini(&text);
    llmq_str_fini(&marks);
    llmq_str_fini(&t);
}
END_TEST

UNIT_CASE(jinja, marks_follow_a_message, hostile_templates_end, deep_templates_are_refused)

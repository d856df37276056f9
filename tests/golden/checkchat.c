/* checkchat CASES.json [DIR]: templates rendered as jinja2 renders them (tests/golden/gen/chat.py), with TZ=UTC.
 *
 * A case that jinja2 refuses must fail here too; what it renders must be the same bytes, or be refused by a message
 * that says what is not supported.  CHECKCHAT_STRICT also counts what renders here and not there as different;
 * CHECKCHAT_VERBOSE prints what was refused as unsupported. */
#include "common/alloc.h"
#include "common/io.h"
#include "runner/text/jinja.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const time_t NOW = 1720083907; /* 2024-07-04 09:05:07 UTC */

struct suite {
    json_t     *root;
    const char *dir;
    int         passed, failed, unsupported, stricter;
};

static const char *text_of(const json_t *c, const char *key, size_t *n)
{
    const json_t *s = json_object_get(c, key);

    *n = json_string_length(s);
    return json_string_value(s);
}

static void complain(struct suite *s, const json_t *c, const char *what, const char *text, size_t n)
{
    size_t      want_n;
    const char *want = text_of(c, "text", &want_n);

    s->failed++;
    printf("%s: %s\n", json_string_value(json_object_get(c, "name")), what);
    if (json_object_get(c, "template"))
        printf("    template: %s\n", json_string_value(json_object_get(c, "template")));
    printf("    expected: %s\n", want ? want : json_string_value(json_object_get(c, json_object_get(c, "error") ? "error" : "refused")));
    printf("    found:    %.*s\n", (int)n, text);
}

/* Parses and renders one case. */
static int render(const struct suite *s, const json_t *c, struct llmq_str *text, struct llmq_str *marks, struct llmq_err *err)
{
    size_t         n;
    const char    *template = text_of(c, "template", &n), *file = json_string_value(json_object_get(c, "file"));
    const json_t  *context = json_object_get(json_object_get(s->root, "contexts"), json_string_value(json_object_get(c, "context")));
    struct jinja  *t;
    struct llmq_map map = {0};
    char           path[512];
    int            rc;

    if (file) {
        snprintf(path, sizeof path, "%s/%s", s->dir, file);
        if (llmq_map_open(&map, path, err))
            return err->code;
        template = (const char *)map.data;
        n = map.size;
    }
    rc = jinja_parse(&t, template, n, err) || jinja_render(t, context, NOW, text, marks, err);
    jinja_free(t);
    if (file)
        llmq_map_close(&map);
    return rc ? err->code : 0;
}

static void judge(struct suite *s, const json_t *c, int rc, const struct llmq_str *text, const struct llmq_str *marks, const struct llmq_err *err)
{
    size_t      n;
    const char *want = text_of(c, "text", &n), *refused = json_string_value(json_object_get(c, "refused"));

    if (!rc && marks->len != text->len) {
        complain(s, c, "as many marks as bytes are expected", text->data, text->len);
    } else if (want && rc) {
        int known = strstr(err->text, "not supported") || strstr(err->text, "there is no ") || strstr(err->text, "is supported");

        s->stricter += known;
        if (!known || getenv("CHECKCHAT_STRICT"))
            complain(s, c, "it failed", err->text, strlen(err->text));
        else
            s->passed++;
    } else if (want && (text->len != n || memcmp(text->data ? text->data : "", want, n) != 0)) {
        complain(s, c, "another text", text->data, text->len);
    } else if (!want && !rc) {
        complain(s, c, "it must fail", text->data, text->len);
    } else if (refused && (err->code != LLMQ_EUSAGE || !strstr(err->text, refused))) {
        complain(s, c, "another refusal", err->text, strlen(err->text));
    } else if (!want && !refused && (err->code != LLMQ_EFORMAT || strncmp(err->text, "chat template", 13) != 0)) {
        complain(s, c, "another error", err->text, strlen(err->text));
    } else {
        if (getenv("CHECKCHAT_VERBOSE") && rc)
            printf("%s: %s\n    %s\n", json_string_value(json_object_get(c, "name")), err->text, json_string_value(json_object_get(c, refused ? "refused" : "error")));
        s->passed++;
    }
}

int main(int argc, char **argv)
{
    struct suite  s = {.dir = argc > 2 ? argv[2] : "."};
    json_error_t  why;
    json_t       *c;
    size_t        i;

    s.root = argc > 1 ? json_load_file(argv[1], JSON_ALLOW_NUL, &why) : NULL;
    if (!s.root) {
        fprintf(stderr, "usage: checkchat CASES.json [DIR]: %s\n", argc > 1 ? why.text : "no file");
        return 2;
    }
    setenv("TZ", "UTC", 1);
    json_array_foreach(json_object_get(s.root, "cases"), i, c)
    {
        struct llmq_str text = {.max = 1 << 24}, marks = {.max = 1 << 24};
        struct llmq_err err = {0};
        int             rc = render(&s, c, &text, &marks, &err);

        judge(&s, c, rc, &text, &marks, &err);
        llmq_str_fini(&text);
        llmq_str_fini(&marks);
    }
    printf("chat: %d templates as jinja2 renders them (%d of them refused as unsupported), %d not\n", s.passed, s.stricter, s.failed);
    json_decref(s.root);
    return s.failed || !s.passed;
}

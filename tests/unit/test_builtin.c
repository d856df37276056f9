/* runner/text/builtin.c: the calibration text in the binary is whole, is UTF-8, and begins with a mixture. */
#include "runner/text/builtin.h"
#include "tests/unit/unit.h"

#include <string.h>
#include <utf8proc.h>

static const char *text;
static size_t      len;

static int begins_with(const char *what, size_t within) { return memmem(text, within, what, strlen(what)) != NULL; }

START_TEST(is_text)
{
    text = llmq_calib_builtin(&len);
    ck_assert(len > 100000 && text[len - 1] == '\n');
    for (size_t at = 0; at < len;) {
        utf8proc_int32_t c;
        utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(len - at), &c);

        ck_assert_msg(n > 0, "not UTF-8 at byte %zu", at);
        ck_assert_msg(c != 0 && c != 0xfffd, "code point %d at byte %zu", (int)c, at);
        at += (size_t)n;
    }
}
END_TEST

/* 32 windows of 1024 tokens are about 100 kB; half of that must already hold a bit of everything. */
START_TEST(begins_mixed)
{
    text = llmq_calib_builtin(&len);
    ck_assert(begins_with("#include", 50000)); /* code */
    ck_assert(begins_with("Solution.", 50000)); /* mathematics */
    ck_assert(begins_with("Deutsch", 50000) && begins_with("\xd8\xa7", 50000)); /* languages, Arabic */
    ck_assert(begins_with("### Assistant", 50000));
    ck_assert(begins_with("\"sensors\"", 50000)); /* JSON */
    ck_assert(begins_with("HALVORSUND", 50000)); /* news */
}
END_TEST

UNIT_CASE(builtin, is_text, begins_mixed)

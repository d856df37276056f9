#ifndef LLMQ_COMMON_ERR_H
#define LLMQ_COMMON_ERR_H

/* The one error idiom.
 *
 * A function that can fail returns int: 0, or a negative LLMQ_E* code.  Its last
 * parameter is a struct llmq_err, never NULL, which the function that first sees
 * the fault fills in; callers between there and the top only pass it on, or put
 * what they know in front of it ("layer 3: ...").  Nothing below cli/ prints an
 * error or exits.
 *
 * A message says what, where, found, expected: lower case, no full stop. */

/* name, number, exit status of the process, text */
#define LLMQ_ERR_MAP(X)                                \
    X(EUSAGE, 1, 2, "wrong use")                       \
    X(EIO, 2, 1, "input or output error")              \
    X(EFORMAT, 3, 4, "damaged or unsupported input")   \
    X(ENOMEM, 4, 1, "out of memory")                   \
    X(EDEVICE, 5, 1, "device error")                   \
    X(ELIMIT, 6, 1, "a limit was reached")             \
    X(EGATE, 7, 3, "a quality gate did not hold")      \
    X(EINTR, 8, 130, "interrupted")

enum llmq_errcode {
    LLMQ_OK = 0,
#define X(name, n, status, text) LLMQ_##name = -(n),
    LLMQ_ERR_MAP(X)
#undef X
};

struct llmq_err {
    int  code;
    char text[508];
};

#define LLMQ_MUST_CHECK __attribute__((warn_unused_result))
#define LLMQ_PRINTF(f, a) __attribute__((format(printf, f, a)))

/* The code's meaning in words, and the exit status that the command line gives it. */
const char *llmq_err_name(int code);
int         llmq_err_status(int code);

/* Writes code and text; returns code.  A later call replaces an earlier one. */
int llmq_fail(struct llmq_err *err, int code, const char *fmt, ...) LLMQ_PRINTF(3, 4);

/* Puts context in front of the text that is there ("context: text"); returns the code. */
int llmq_fail_within(struct llmq_err *err, const char *fmt, ...) LLMQ_PRINTF(2, 3);

/* LLMQ_EIO with the meaning of errno behind the text. */
int llmq_fail_errno(struct llmq_err *err, const char *fmt, ...) LLMQ_PRINTF(2, 3);

/* `make lint` reads one file at a time, and must not think that a failure may be 0. */
#if defined(__clang_analyzer__) && !defined(LLMQ_ERR_C)
#define llmq_fail(err, failed, ...)  ((void)(llmq_fail)(err, failed, __VA_ARGS__), (err)->code = (failed))
#define llmq_fail_within(err, ...)   ((void)(llmq_fail_within)(err, __VA_ARGS__), LLMQ_EIO)
#define llmq_fail_errno(err, ...)    ((void)(llmq_fail_errno)(err, __VA_ARGS__), (err)->code = LLMQ_EIO)
#endif

#endif

#ifndef LLMQ_CLI_PROGRESS_H
#define LLMQ_CLI_PROGRESS_H

/* How far a long job is, on stderr: what, percent, amount, rate, time left, memory.
 *
 * On a terminal one line is redrawn ten times a second at most; elsewhere (a log file, CI) a plain line
 * appears when 10 s or 5 % have passed.  --progress none and --quiet print nothing, so callers call these
 * always.  One thread at a time. */

enum progress_unit { PROGRESS_FRACTION, PROGRESS_BYTES, PROGRESS_TOKENS };

struct progress {
    const char        *what;
    enum progress_unit unit;
    int                on, tty, drawn;
    double             start_s, last_s, last_fraction;
};

/* what: a verb for the line's front ("convert"); kept, not copied.  unit: what done and total count. */
void progress_begin(struct progress *p, const char *what, enum progress_unit unit);
/* note (may be NULL): what is being worked on, "layer 3 of 30, attn_q". */
void progress_update(struct progress *p, double done, double total, const char *note);
/* Clears the redrawn line, so that what follows starts at column 0. */
void progress_end(struct progress *p);

/* "912 MB", "2.14 GB": decimal units, three digits. */
const char *progress_bytes(double bytes, char *out, int size);

#endif

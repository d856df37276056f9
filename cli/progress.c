/* Progress lines: see progress.h.  The rate is the mean since the start and the time left follows from it:
 * a moving average jumps about when layers differ in size, and the two would contradict each other. */
#include "cli/progress.h"

#include "cli/opt.h"
#include "common/clock.h"
#include "common/io.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Seconds between redraws on a terminal; least and most between plain lines. */
static const double REDRAW_S = 0.1, PLAIN_MIN_S = 1.0, PLAIN_S = 10.0, PLAIN_STEP = 0.05;

const char *progress_bytes(double bytes, char *out, int size)
{
    static const char *const unit[] = {"B", "kB", "MB", "GB", "TB"};
    int                      u = 0;

    while (bytes >= 999.5 && u < 4) {
        bytes /= 1000;
        u++;
    }
    snprintf(out, (size_t)size, "%.*f %s", u == 0 || bytes >= 99.95 ? 0 : bytes >= 9.995 ? 1 : 2, bytes, unit[u]);
    return out;
}

static void duration(double s, char *out, size_t size)
{
    long t = s > 0 && s < 1e9 ? (long)(s + 0.5) : 0;

    if (t >= 3600)
        snprintf(out, size, "%ld:%02ld:%02ld", t / 3600, t / 60 % 60, t % 60);
    else
        snprintf(out, size, "%ld:%02ld", t / 60, t % 60);
}

/* "  912 MB of 2.14 GB  850 MB/s", in the unit that done and total have. */
static void amounts(const struct progress *p, double done, double total, double elapsed, char *out, size_t size)
{
    char   a[24], b[24], r[24];
    double rate = elapsed > 0 ? done / elapsed : 0;

    out[0] = '\0';
    if (p->unit == PROGRESS_BYTES)
        snprintf(out, size, "  %s of %s  %s/s", progress_bytes(done, a, sizeof a), progress_bytes(total, b, sizeof b),
                 progress_bytes(rate, r, sizeof r));
    else if (p->unit == PROGRESS_TOKENS)
        snprintf(out, size, "  %.0f of %.0f tokens  %.*f tokens/s", done, total, rate < 100, rate);
}

void progress_begin(struct progress *p, const char *what, enum progress_unit unit)
{
    memset(p, 0, sizeof *p);
    p->what = what;
    p->unit = unit;
    p->on = !common_opt.quiet && strcmp(common_opt.progress, "none") != 0;
    p->tty = isatty(STDERR_FILENO);
    p->start_s = p->last_s = llmq_clock_s();
}

/* A redrawn line must not wrap. */
static int terminal_width(void)
{
    struct winsize w;

    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 1 ? w.ws_col - 1 : 79;
}

static int due(const struct progress *p, double now, double fraction)
{
    double since = now - p->last_s;

    if (p->tty)
        return since >= REDRAW_S || !p->drawn;
    return since >= PLAIN_S || (since >= PLAIN_MIN_S && fraction - p->last_fraction >= PLAIN_STEP);
}

void progress_update(struct progress *p, double done, double total, const char *note)
{
    double fraction = total > 0 ? done / total : 0, now, elapsed;
    char   line[256], amount[96], left[24] = "?", mem[24];

    if (!p->on)
        return;
    now = llmq_clock_s();
    if (!due(p, now, fraction))
        return;
    elapsed = now - p->start_s;
    if (fraction > 0)
        duration(elapsed * (1 - fraction) / fraction, left, sizeof left);
    amounts(p, done, total, elapsed, amount, sizeof amount);
    snprintf(line, sizeof line, "%s  %3.0f %%%s  %s left  %s memory%s%s", p->what, 100 * fraction, amount, left,
             progress_bytes((double)llmq_peak_rss_bytes(), mem, sizeof mem), note ? "  " : "", note ? note : "");
    if (p->tty)
        fprintf(stderr, "\r%.*s\033[K", terminal_width(), line);
    else
        fprintf(stderr, "%s\n", line);
    p->last_s = now;
    p->last_fraction = fraction;
    p->drawn = 1;
}

void progress_end(struct progress *p)
{
    if (p->on && p->tty && p->drawn)
        fputs("\r\033[K", stderr);
    p->on = 0;
}

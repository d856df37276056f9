/* The reference pick: see sampler.h.
 *
 * Tokens have one total order: higher score first, lower id first among equals.  Top-k, top-p and min-p all
 * keep a prefix of that order, so what they leave is described by its last token, the cut.  The draw walks
 * the survivors in order of id: a limit that removes nothing (top-k as large as the vocabulary) therefore
 * gives the same token as no limit.  Nothing is sorted beyond what top-p has to look at: quickselect brings
 * the best few forward, and the order being total, its choice of pivots cannot be seen in the result. */
#include "runner/engine/sampler.h"

#include "common/alloc.h"
#include "common/fmath.h"

#include <math.h>

enum { FIRST_CHUNK = 64 }; /* of the sorted prefix that top-p reads; grows eightfold */

struct sampler {
    int      n;
    float   *score;
    double  *weight;
    int32_t *order; /* ids; a prefix of it is the best so far */
    uint8_t *seen;
};

int sampler_new(struct sampler **out, int n_vocab, struct llmq_err *err)
{
    struct sampler *s;

    *out = NULL;
    if (LLMQ_NEW(&s, 1, "the sampler", err))
        return err->code;
    s->n = n_vocab;
    if (LLMQ_NEW(&s->score, n_vocab, "the sampler's scores", err) || LLMQ_NEW(&s->order, n_vocab, "the sampler's order", err) ||
        LLMQ_NEW(&s->seen, n_vocab, "the sampler's marks", err) || LLMQ_NEW(&s->weight, n_vocab, "the sampler's weights", err)) {
        sampler_free(s);
        return err->code;
    }
    *out = s;
    return 0;
}

void sampler_free(struct sampler *s)
{
    if (!s)
        return;
    llmq_free(s->score);
    llmq_free(s->order);
    llmq_free(s->seen);
    llmq_free(s->weight);
    llmq_free(s);
}

/* Does a stand before b? */
static int before(const struct sampler *s, int32_t a, int32_t b)
{
    return s->score[a] != s->score[b] ? s->score[a] > s->score[b] : a < b;
}

/* NaN would break the order, so it ranks as minus infinity. */
static void load_scores(struct sampler *s, const float *logits)
{
    for (int i = 0; i < s->n; i++)
        s->score[i] = logits[i] == logits[i] ? logits[i] : -INFINITY;
}

static void penalize(struct sampler *s, float penalty, const int32_t *history, int n)
{
    for (int i = 0; i < n; i++) {
        int32_t id = history[i];

        if (id < 0 || id >= s->n || s->seen[id])
            continue;
        s->seen[id] = 1;
        s->score[id] = s->score[id] < 0 ? s->score[id] * penalty : s->score[id] / penalty;
    }
    for (int i = 0; i < n; i++)
        if (history[i] >= 0 && history[i] < s->n)
            s->seen[history[i]] = 0;
}

static int32_t best(const struct sampler *s)
{
    int32_t b = 0;

    for (int32_t i = 1; i < s->n; i++)
        if (s->score[i] > s->score[b])
            b = i;
    return b;
}

static void swap_ids(int32_t *a, int32_t *b)
{
    int32_t t = *a;

    *a = *b;
    *b = t;
}

/* Splits order[lo, hi) at its middle id; returns where that id ends up. */
static int partition(struct sampler *s, int lo, int hi)
{
    int32_t *o = s->order, pivot = o[lo + (hi - lo) / 2];
    int      at = lo;

    swap_ids(&o[lo + (hi - lo) / 2], &o[hi - 1]);
    for (int i = lo; i < hi - 1; i++)
        if (before(s, o[i], pivot))
            swap_ids(&o[i], &o[at++]);
    swap_ids(&o[at], &o[hi - 1]);
    return at;
}

/* Brings the first `want` of order[lo, hi) in the order to its front, unsorted. */
static void select_best(struct sampler *s, int lo, int hi, int want)
{
    int target = lo + want;

    while (hi - lo > 1 && target > lo && target < hi) {
        int at = partition(s, lo, hi);

        if (at < target)
            lo = at + 1;
        else
            hi = at;
    }
}

/* Heapsort of order[lo, hi): no recursion, no worst case. */
static void sift_down(const struct sampler *s, int32_t *o, int root, int n)
{
    for (int child; (child = 2 * root + 1) < n; root = child) {
        if (child + 1 < n && before(s, o[child], o[child + 1]))
            child++;
        if (!before(s, o[root], o[child]))
            return;
        swap_ids(&o[root], &o[child]);
    }
}

static void sort_range(struct sampler *s, int lo, int hi)
{
    int32_t *o = s->order + lo;
    int      n = hi - lo;

    for (int i = n / 2 - 1; i >= 0; i--)
        sift_down(s, o, i, n);
    for (int end = n - 1; end > 0; end--) {
        swap_ids(&o[0], &o[end]);
        sift_down(s, o, 0, end);
    }
}

static int32_t last_of(const struct sampler *s, int count)
{
    int32_t last = s->order[0];

    for (int i = 1; i < count; i++)
        if (before(s, last, s->order[i]))
            last = s->order[i];
    return last;
}

static double weight_of(const struct sampler *s, int32_t id, float max) { return llmq_exp((double)s->score[id] - max); }

/* Keeps a token while those before it weigh less than top_p of the total.  order[0, count) holds the survivors. */
static int32_t cut_top_p(struct sampler *s, int count, double top_p, float max)
{
    double total = 0, sum = 0;
    int    sorted = 0, chunk = FIRST_CHUNK;

    for (int i = 0; i < count; i++) /* the survivors' order here is fixed by the input, hence so is the sum */
        total += weight_of(s, s->order[i], max);
    for (int i = 0; i < count; i++) {
        if (i == sorted) {
            sorted = count - i < chunk ? count : i + chunk;
            select_best(s, i, count, sorted - i);
            sort_range(s, i, sorted);
            chunk *= 8;
        }
        sum += weight_of(s, s->order[i], max);
        if (sum >= top_p * total)
            return s->order[i];
    }
    return s->order[count - 1];
}

/* The last token that top-k and top-p keep, or -1 for all. */
static int32_t find_cut(struct sampler *s, const struct llmq_sampling *p, float max)
{
    int count = s->n, by_k = p->top_k > 0 && p->top_k < s->n;

    if (!by_k && p->top_p >= 1)
        return -1;
    for (int i = 0; i < s->n; i++)
        s->order[i] = i;
    if (by_k) {
        count = p->top_k;
        select_best(s, 0, s->n, count);
    }
    return p->top_p < 1 ? cut_top_p(s, count, p->top_p, max) : last_of(s, count);
}

static int survives(const struct sampler *s, int32_t id, int32_t cut) { return cut < 0 || !before(s, cut, id); }

static int32_t draw(struct sampler *s, int32_t cut, float min_p, float max, struct llmq_rng *rng)
{
    double  total = 0, sum = 0, u = llmq_rng_unit(rng);
    int32_t last = 0;

    for (int32_t i = 0; i < s->n; i++) {
        double w = survives(s, i, cut) ? weight_of(s, i, max) : 0;

        s->weight[i] = w >= min_p ? w : 0;
        total += s->weight[i];
    }
    for (int32_t i = 0; i < s->n; i++) {
        if (s->weight[i] <= 0)
            continue;
        last = i;
        sum += s->weight[i];
        if (sum > u * total)
            break;
    }
    return last; /* also when rounding left u at the very end */
}

int32_t sampler_pick(struct sampler *s, const float *logits, const struct llmq_sampling *p, const int32_t *history, int n_history,
                     struct llmq_rng *rng)
{
    int32_t top;
    float   max;

    load_scores(s, logits);
    if (p->repetition_penalty > 0 && p->repetition_penalty != 1)
        penalize(s, p->repetition_penalty, history, n_history);
    top = best(s);
    if (p->temperature <= 0 || !isfinite(s->score[top]))
        return top;
    for (int i = 0; i < s->n; i++)
        s->score[i] /= p->temperature;
    max = s->score[top];
    return isfinite(max) ? draw(s, find_cut(s, p, max), p->min_p, max, rng) : top;
}

/* Attention over pages.
 *
 * A sequence's keys are taken in partitions of CPU_PART at absolute multiples of it.  Per query row and
 * partition: m = max score, e = exp(score - m), l = sum e, p = e V; partitions are merged in ascending order,
 *   M' = max(M, m), a = exp(M - M'), b = exp(m - M'), O = O a + p b, L = L a + l b   (the first one is copied),
 * and the result is O / L.  All of that depends only on a row's position, so decoding, reading a prompt in
 * pieces of any length, and splitting the partitions among threads give the same bits.
 *
 * The query heads that share a key head are rows of one tile (row = token * heads per key head + head), so keys and
 * values are read once for all.  With many rows they are first turned and converted into scratch. */
#include "runner/cpu/backend_cpu.h"

#include "common/fmath.h"

#include <string.h>

enum { TILE_ROWS = 96, FEW_ROWS = 8 };

struct job {
    struct backend            *be;
    const struct op_attention *op;
    int                        gq; /* query heads per key head */
    int                        dtype;
    int                        seq, part0, parts; /* split along the sequence: which, and the partitions in flight */
};

/* Rows of one sequence and key head. */
struct tile {
    int seq, head, row0, row1;
    int first_limit; /* keys that token 0 of the sequence's tokens sees */
};

/* Keys and values of one partition. */
struct part {
    int          base, n;
    const void  *k[CPU_PART], *v[CPU_PART];
    int          v_dtype;
    const float *turned; /* keys in blocks of 16, or NULL: use k */
};

static int limit_of(const struct job *j, const struct tile *t, int row) { return t->first_limit + row / j->gq; }

/* Index of a row's head in q and out. */
static size_t row_at(const struct job *j, const struct tile *t, int row)
{
    int token = j->op->q_start[t->seq] + row / j->gq, head = t->head * j->gq + row % j->gq;

    return ((size_t)token * (size_t)j->op->n_heads + (size_t)head) * (size_t)j->op->kv.head_dim;
}

static void find_rows(const struct job *j, const struct tile *t, struct part *p)
{
    const struct kv_view *kv = &j->op->kv;
    const int32_t        *pages = j->op->page_table + j->op->page_start[t->seq];
    size_t                row = (size_t)kv->head_dim * (kv->dtype == KV_F16 ? 2 : 4);

    for (int i = 0; i < p->n;) {
        int    page = (p->base + i) / kv->page_tokens, place = (p->base + i) % kv->page_tokens;
        size_t at = (((size_t)pages[page] * (size_t)kv->n_kv_heads + (size_t)t->head) * (size_t)kv->page_tokens +
                     (size_t)place) * row;

        for (; place < kv->page_tokens && i < p->n; place++, i++, at += row) {
            p->k[i] = (const char *)kv->k + at;
            p->v[i] = (const char *)kv->v + at;
        }
    }
    p->v_dtype = j->dtype;
    p->turned = NULL;
}

/* Turns the keys, and converts the values unless they are floats already. */
static void copy_rows(const struct job *j, struct part *p, float *scratch)
{
    size_t hd = (size_t)j->op->kv.head_dim;
    float *kt = scratch, *v = scratch + CPU_PART * hd;

    for (int i = 0; i < p->n; i += CPU_LANES)
        j->be->k.keys_turn(kt + (size_t)i * hd, p->k + i, j->dtype, p->n - i < CPU_LANES ? p->n - i : CPU_LANES,
                           (int)hd);
    p->turned = kt;
    for (int i = 0; i < p->n && j->dtype != LLMQ_DTYPE_F32; i++) {
        j->be->k.widen(v + (size_t)i * hd, p->v[i], j->dtype, hd);
        p->v[i] = v + (size_t)i * hd;
    }
    p->v_dtype = LLMQ_DTYPE_F32;
}

/* m, l and p (out: [rows][hd]) of up to CPU_ROWS rows; s: CPU_ROWS * CPU_PART floats. */
static void part_rows(const struct job *j, const struct tile *t, const struct part *p, int row, int rows, float *s,
                      float *m, float *l, float *out)
{
    const struct cpu_kernels *kern = &j->be->k;
    const float              *q[CPU_ROWS];
    int                       n[CPU_ROWS], hd = j->op->kv.head_dim;

    for (int r = 0; r < rows; r++) {
        n[r] = limit_of(j, t, row + r) - p->base;
        n[r] = n[r] < p->n ? n[r] : p->n;
        q[r] = j->op->q + row_at(j, t, row + r);
    }
    if (p->turned)
        kern->scores_many(s, q, rows, p->turned, n[rows - 1], hd, j->op->scale);
    else
        kern->scores_few(s, q, rows, p->k, j->dtype, n[rows - 1], hd, j->op->scale);
    for (int r = 0; r < rows; r++)
        kern->softmax(s + r * CPU_PART, n[r], &m[r], &l[r]);
    kern->values(out, s, rows, n, p->v, p->v_dtype, hd);
}

/* Takes a partition's m, l, p into a row's M, L, O. */
static void merge_row(const struct job *j, int first, float *M, float *L, float *O, float m, float l, const float *p)
{
    float top, a, b;

    if (first) {
        memcpy(O, p, (size_t)j->op->kv.head_dim * sizeof *O);
        *M = m;
        *L = l;
        return;
    }
    top = *M > m ? *M : m;
    a = llmq_expf(*M - top);
    b = llmq_expf(m - top);
    j->be->k.merge(O, p, a, b, j->op->kv.head_dim);
    *L = *L * a + l * b;
    *M = top;
}

static void run_tile(const struct job *j, const struct tile *t, float *scratch)
{
    size_t      hd = (size_t)j->op->kv.head_dim;
    int         last = limit_of(j, t, t->row1 - 1), many = t->row1 - t->row0 > FEW_ROWS && hd <= CPU_MAX_TURN_HD;
    float       M[TILE_ROWS] = {0}, L[TILE_ROWS] = {0}, m[CPU_ROWS], l[CPU_ROWS]; /* M, L: set by partition 0 */
    float      *s = scratch, *out = s + CPU_ROWS * CPU_PART, *copies = out + CPU_ROWS * j->be->max_k;
    struct part p;

    for (p.base = 0; p.base < last; p.base += CPU_PART) {
        int row = t->row0;

        p.n = last - p.base < CPU_PART ? last - p.base : CPU_PART;
        find_rows(j, t, &p);
        if (many)
            copy_rows(j, &p, copies);
        while (limit_of(j, t, row) <= p.base) /* tokens before this partition */
            row++;
        for (int rows; row < t->row1; row += rows) {
            rows = t->row1 - row < CPU_ROWS ? t->row1 - row : CPU_ROWS;
            part_rows(j, t, &p, row, rows, s, m, l, out);
            for (int r = 0; r < rows; r++)
                merge_row(j, p.base == 0, &M[row + r - t->row0], &L[row + r - t->row0],
                          j->op->out + row_at(j, t, row + r), m[r], l[r], out + (size_t)r * hd);
        }
    }
    for (int row = t->row0; row < t->row1; row++)
        j->be->k.divide(j->op->out + row_at(j, t, row), L[row - t->row0], (int)hd);
}

static int seq_rows(const struct job *j, int seq)
{
    return (j->op->q_start[seq + 1] - j->op->q_start[seq]) * j->gq;
}

static void set_tile(const struct job *j, struct tile *t, int seq, int head, int row0)
{
    int rows = seq_rows(j, seq);

    t->seq = seq;
    t->head = head;
    t->row0 = row0;
    t->row1 = rows - row0 < TILE_ROWS ? rows : row0 + TILE_ROWS;
    t->first_limit = j->op->kv_len[seq] - rows / j->gq + 1;
}

static long seq_tiles(const struct job *j, int seq)
{
    return (long)((seq_rows(j, seq) + TILE_ROWS - 1) / TILE_ROWS) * j->op->kv.n_kv_heads;
}

static void tiles_piece(void *ctx, long begin, long end, int thread)
{
    const struct job *j = ctx;
    long              first = 0;

    for (int seq = 0; seq < j->op->seqs; seq++) {
        long n = seq_tiles(j, seq), i = begin > first ? begin : first;

        for (; i < end && i < first + n; i++) {
            struct tile t;

            set_tile(j, &t, seq, (int)((i - first) % j->op->kv.n_kv_heads),
                     (int)((i - first) / j->op->kv.n_kv_heads) * TILE_ROWS);
            run_tile(j, &t, cpu_scratch(j->be, thread));
        }
        first += n;
    }
}

/* ---- one token of few sequences: partitions among threads -------------------------------------------- */

/* Results of partition i of those in flight: p of every head, then m, then l of every head. */
static float *split_at(const struct job *j, int i)
{
    return j->be->split + (size_t)i * (size_t)j->op->n_heads * (size_t)(j->op->kv.head_dim + 2);
}

static void split_piece(void *ctx, long begin, long end, int thread)
{
    const struct job *j = ctx;
    int               heads = j->op->kv.n_kv_heads, hd = j->op->kv.head_dim, all = j->op->n_heads;

    for (long i = begin; i < end; i++) {
        int         at = (int)(i / heads), head = (int)(i % heads);
        float      *p = split_at(j, at), *m = p + all * hd, *l = m + all;
        struct tile t;
        struct part part;

        set_tile(j, &t, j->seq, head, 0);
        part.base = (j->part0 + at) * CPU_PART;
        part.n = t.first_limit - part.base < CPU_PART ? t.first_limit - part.base : CPU_PART;
        find_rows(j, &t, &part);
        for (int row = 0; row < j->gq; row += CPU_ROWS) {
            int h = head * j->gq + row, rows = j->gq - row < CPU_ROWS ? j->gq - row : CPU_ROWS;

            part_rows(j, &t, &part, row, rows, cpu_scratch(j->be, thread), m + h, l + h, p + h * hd);
        }
    }
}

static void split_merge(const struct job *j, float *M, float *L)
{
    int    all = j->op->n_heads, hd = j->op->kv.head_dim;
    float *out = j->op->out + (size_t)j->op->q_start[j->seq] * (size_t)(all * hd);

    for (int i = 0; i < j->parts; i++) {
        const float *p = split_at(j, i), *m = p + all * hd, *l = m + all;

        for (int h = 0; h < all; h++)
            merge_row(j, j->part0 + i == 0, &M[h], &L[h], out + h * hd, m[h], l[h], p + h * hd);
    }
}

static void run_split(struct job *j)
{
    const struct op_attention *op = j->op;
    int                        all = op->n_heads, hd = op->kv.head_dim;
    float                     *M = split_at(j, CPU_SPLIT_PARTS), *L = M + all;

    for (j->seq = 0; j->seq < op->seqs; j->seq++) {
        int total = (op->kv_len[j->seq] + CPU_PART - 1) / CPU_PART;

        for (j->part0 = 0; j->part0 < total; j->part0 += j->parts) {
            j->parts = total - j->part0 < CPU_SPLIT_PARTS ? total - j->part0 : CPU_SPLIT_PARTS;
            cpu_for(j->be, (long)j->parts * op->kv.n_kv_heads, 2.0 * CPU_PART * hd * j->gq, split_piece, j);
            split_merge(j, M, L);
        }
        for (int h = 0; h < all; h++)
            j->be->k.divide(op->out + ((size_t)op->q_start[j->seq] * (size_t)all + (size_t)h) * (size_t)hd, L[h], hd);
    }
}

/* Worth it when whole tiles would leave threads without work, and there is more than a partition each. */
static int wants_split(const struct job *j)
{
    const struct op_attention *op = j->op;
    int                        longest = 0;

    for (int s = 0; s < op->seqs; s++) {
        if (op->q_start[s + 1] - op->q_start[s] != 1)
            return 0;
        longest = op->kv_len[s] > longest ? op->kv_len[s] : longest;
    }
    return j->be->threads > 1 && op->seqs * op->kv.n_kv_heads < 4 * j->be->threads && longest > 2 * CPU_PART &&
           (size_t)op->n_heads * (size_t)op->kv.head_dim <= j->be->max_k;
}

void cpu_attention(struct backend *be, const struct op_attention *op)
{
    struct job j = {.be = be, .op = op, .gq = op->n_heads / op->kv.n_kv_heads,
                    .dtype = op->kv.dtype == KV_F16 ? LLMQ_DTYPE_F16 : LLMQ_DTYPE_F32};
    long       tiles = 0;
    double     work = 0;

    if (wants_split(&j)) {
        run_split(&j);
        return;
    }
    for (int s = 0; s < op->seqs; s++) {
        tiles += seq_tiles(&j, s);
        work += (double)seq_rows(&j, s) * op->kv.n_kv_heads * op->kv_len[s] * op->kv.head_dim;
    }
    cpu_for(be, tiles, tiles ? work / (double)tiles : 0, tiles_piece, &j);
}

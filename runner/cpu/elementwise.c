/* Everything but linear and attention: op -> rows -> threads -> kernel slot. */
#include "runner/cpu/backend_cpu.h"

#include "common/fmath.h"
#include "common/fp.h"

#include <string.h>

/* ---- embed ----------------------------------------------------------------------------------------- */

/* Row `id` out of tiles: (float)(code - zero) * scale, as llmq_dequant_rows. */
static void tiles_row(float *out, const struct weight *w, size_t id)
{
    size_t          groups = llmq_scheme_groups(&w->scheme, w->k), o = id % LLMQ_TILE_N, block = id / LLMQ_TILE_N;
    size_t          width = w->scheme.group ? w->scheme.group : w->k;
    int             four = w->scheme.bits == 4;
    const uint8_t  *tile = (const uint8_t *)w->data + block * w->k_pad * 2 * w->scheme.bits;
    const uint16_t *scales = (const uint16_t *)w->scales + block * groups * LLMQ_TILE_N + o;
    const uint8_t  *zeros = w->zeros ? (const uint8_t *)w->zeros + block * groups * LLMQ_TILE_N + o : NULL;

    for (size_t g = 0; g < groups; g++) {
        size_t end = (g + 1) * width < w->k ? (g + 1) * width : w->k;
        float  scale = llmq_f16_to_f32(scales[g * LLMQ_TILE_N]);
        int    zero = zeros ? zeros[g * LLMQ_TILE_N] : four ? 8 : 128;

        for (size_t k = g * width; k < end; k++) {
            size_t         i = k % LLMQ_TILE_K;
            const uint8_t *at = tile + k / LLMQ_TILE_K * (four ? 512 : 1024) + o * 4 + i % 4;
            int            code = four ? at[i % 32 / 4 * 64] >> (i < 32 ? 0 : 4) & 15 : at[i / 4 * 64];

            out[k] = (float)(code - zero) * scale;
        }
    }
}

struct embed_job {
    const struct backend  *be;
    const struct op_embed *op;
};

static void embed_piece(void *ctx, long begin, long end, int thread)
{
    const struct embed_job *j = ctx;
    const struct weight    *w = j->op->table;
    size_t                  k = w->k;

    (void)thread;
    for (long t = begin; t < end; t++) {
        size_t id = (size_t)j->op->ids[t];

        if (w->scheme.kind == LLMQ_KIND_INT)
            tiles_row(j->op->out + (size_t)t * k, w, id);
        else
            j->be->k.widen(j->op->out + (size_t)t * k,
                           (const char *)w->data + id * k * llmq_dtype_bytes(w->scheme.dtype), w->scheme.dtype, k);
    }
}

void cpu_embed(struct backend *be, const struct op_embed *op)
{
    struct embed_job j = {be, op};

    cpu_for(be, op->tokens, 4.0 * op->table->k, embed_piece, &j);
}

/* ---- norm --------------------------------------------------------------------------------------------- */

struct rmsnorm_job {
    const struct backend    *be;
    const struct op_rmsnorm *op;
};

static void rmsnorm_piece(void *ctx, long begin, long end, int thread)
{
    const struct rmsnorm_job *j = ctx;
    size_t                    d = (size_t)j->op->d;

    (void)thread;
    for (size_t t = (size_t)begin; t < (size_t)end; t++)
        j->be->k.rmsnorm(j->op->out + t * d, j->op->x + t * d, j->op->w, j->op->d, j->op->eps);
}

void cpu_rmsnorm(struct backend *be, const struct op_rmsnorm *op)
{
    struct rmsnorm_job j = {be, op};

    cpu_for(be, op->tokens, 2.0 * op->d, rmsnorm_piece, &j);
}

/* ---- rotation, and keys and values into their pages ------------------------------------------------------ */

struct rope_job {
    const struct backend    *be;
    const struct op_rope_kv *op;
};

static void store_row(const struct backend *be, const struct kv_view *kv, void *pages, int slot, int head,
                      const float *row)
{
    size_t hd = (size_t)kv->head_dim, page = (size_t)(slot / kv->page_tokens), place = (size_t)(slot % kv->page_tokens);
    size_t at = ((page * (size_t)kv->n_kv_heads + (size_t)head) * (size_t)kv->page_tokens + place) * hd;

    if (kv->dtype == KV_F16)
        be->k.narrow_f16((uint16_t *)pages + at, row, hd);
    else
        memcpy((float *)pages + at, row, hd * sizeof *row);
}

static void rope_piece(void *ctx, long begin, long end, int thread)
{
    const struct rope_job   *j = ctx;
    const struct op_rope_kv *op = j->op;
    int                      heads = op->kv.n_kv_heads, hd = op->kv.head_dim;

    (void)thread;
    for (long t = begin; t < end; t++) {
        const float *cs = op->cos_sin + (size_t)op->pos[t] * (size_t)hd;
        float       *q = op->q + (size_t)t * (size_t)(op->n_heads * hd);
        float       *k = op->k + (size_t)t * (size_t)(heads * hd);
        const float *v = op->v + (size_t)t * (size_t)(heads * hd);

        for (int h = 0; h < op->n_heads; h++)
            j->be->k.rope(q + h * hd, cs, hd / 2);
        for (int h = 0; h < heads; h++) {
            j->be->k.rope(k + h * hd, cs, hd / 2);
            store_row(j->be, &op->kv, op->kv.k, op->slot[t], h, k + h * hd);
            store_row(j->be, &op->kv, op->kv.v, op->slot[t], h, v + h * hd);
        }
    }
}

void cpu_rope_kv(struct backend *be, const struct op_rope_kv *op)
{
    struct rope_job j = {be, op};

    cpu_for(be, op->tokens, 4.0 * (op->n_heads + 2 * op->kv.n_kv_heads) * op->kv.head_dim, rope_piece, &j);
}

/* ---- activation --------------------------------------------------------------------------------------------- */

enum { SWIGLU_PIECE = 1024 };

struct swiglu_job {
    const struct backend   *be;
    const struct op_swiglu *op;
};

static void swiglu_piece(void *ctx, long begin, long end, int thread)
{
    const struct swiglu_job *j = ctx;
    size_t                   first = (size_t)begin * SWIGLU_PIECE, last = (size_t)end * SWIGLU_PIECE;

    (void)thread;
    if (last > j->op->count)
        last = j->op->count;
    j->be->k.swiglu(j->op->out + first, j->op->gate + first, j->op->up + first, last - first);
}

void cpu_swiglu(struct backend *be, const struct op_swiglu *op)
{
    struct swiglu_job j = {be, op};

    cpu_for(be, (long)((op->count + SWIGLU_PIECE - 1) / SWIGLU_PIECE), 16.0 * SWIGLU_PIECE, swiglu_piece, &j);
}

/* ---- statistics ------------------------------------------------------------------------------------------------ */

/* The Gram matrix in square blocks of its lower triangle, one block to a thread at a time for all tokens:
 * threads split elements, never tokens.  A chunk's columns are copied side by side first, because rows of a
 * power of two apart would fall into the same cache sets; blocks are large because that copy has a price. */
enum { GRAM_BLOCK = 128, GRAM_SMALL = 64 };

struct gram_job {
    const struct backend *be;
    const struct op_gram *op;
    int                   block; /* side of a block */
};

static void pack(float *dst, const struct gram_job *j, int token, int tokens, int col)
{
    size_t       k = (size_t)j->op->k, block = (size_t)j->block;
    size_t       cols = k - (size_t)col < block ? k - (size_t)col : block;
    const float *src = j->op->x + (size_t)token * k + (size_t)col;

    for (int t = 0; t < tokens; t++, src += k, dst += block) {
        for (size_t c = 0; t + 8 < tokens && c < cols; c += 16)
            __builtin_prefetch(src + 8 * k + c);
        memcpy(dst, src, cols * sizeof *dst);
    }
}

/* A chunk of n tokens into the block at (i0, j0), from the packed columns. */
static void gram_chunk(const struct gram_job *j, int i0, int j0, const float *xi, const float *xj, int n)
{
    const struct op_gram *op = j->op;
    int                   rows = op->k - i0 < j->block ? op->k - i0 : j->block;
    int                   cols = op->k - j0 < j->block ? op->k - j0 : j->block;

    for (int c = 0; c < cols; c += CPU_GRAM_J)
        for (int r = 0; r < rows; r += CPU_GRAM_I) {
            int m = rows - r < CPU_GRAM_I ? rows - r : CPU_GRAM_I;

            if (j0 + c > i0 + r + m - 1) /* all above the diagonal */
                continue;
            j->be->k.gram(op->g + (size_t)(i0 + r) * (size_t)op->k + (size_t)(j0 + c), (size_t)op->k, xi + r, xj + c,
                          (size_t)j->block, n, m, cols - c < CPU_GRAM_J ? cols - c : CPU_GRAM_J, i0 + r - (j0 + c));
        }
}

static void gram_piece(void *ctx, long begin, long end, int thread)
{
    const struct gram_job *j = ctx;
    float                 *xi = cpu_scratch(j->be, thread), *xj = xi + CPU_GRAM_TOKENS * GRAM_BLOCK;

    for (long b = begin; b < end; b++) {
        long row = 0, col;

        while ((row + 1) * (row + 2) / 2 <= b) /* block b is in row `row` of the triangle */
            row++;
        col = b - row * (row + 1) / 2;
        for (int t = 0; t < j->op->tokens; t += CPU_GRAM_TOKENS) {
            int n = j->op->tokens - t < CPU_GRAM_TOKENS ? j->op->tokens - t : CPU_GRAM_TOKENS;

            pack(xi, j, t, n, (int)row * j->block);
            if (row != col)
                pack(xj, j, t, n, (int)col * j->block);
            gram_chunk(j, (int)row * j->block, (int)col * j->block, xi, row != col ? xj : xi, n);
        }
    }
}

void cpu_gram(struct backend *be, const struct op_gram *op)
{
    struct gram_job j = {be, op, GRAM_BLOCK};
    long            side = ((long)op->k + GRAM_BLOCK - 1) / GRAM_BLOCK;

    if (side * (side + 1) / 2 < 8L * be->threads) {
        j.block = GRAM_SMALL;
        side = ((long)op->k + GRAM_SMALL - 1) / GRAM_SMALL;
    }
    cpu_for(be, side * (side + 1) / 2, (double)j.block * j.block * op->tokens, gram_piece, &j);
}

struct lse_job {
    const struct backend      *be;
    const struct op_logsumexp *op;
};

static void lse_piece(void *ctx, long begin, long end, int thread)
{
    const struct lse_job *j = ctx;
    double                sum;

    (void)thread;
    for (long r = begin; r < end; r++) {
        j->be->k.logsumexp(j->op->logits + (size_t)r * (size_t)j->op->n, j->op->n, &j->op->max[r], &sum);
        j->op->lse[r] = (double)j->op->max[r] + llmq_log(sum);
    }
}

void cpu_logsumexp(struct backend *be, const struct op_logsumexp *op)
{
    struct lse_job j = {be, op};

    cpu_for(be, op->rows, 16.0 * op->n, lse_piece, &j);
}

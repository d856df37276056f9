/* checklogits MODEL.llmq EXPECT.bin: logits against those of transformers (tests/golden/gen/tiny_llama.py).
 *
 * With F32 pages every compared logit must be within 1e-4 of the range that transformers' logits span, and the
 * argmax the same at every position.  The same tokens are run at once, in pieces and one by one, on every
 * instruction set that this machine has: all must give the same bits. */
#include "common/alloc.h"
#include "common/io.h"
#include "common/parallel.h"
#include "runner/model/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct expect {
    struct llmq_map map;
    uint32_t        tokens, rows, vocab;
    const int32_t  *ids, *argmax, *row;
    const float    *logits;
    float           range;
};

static int load(struct expect *e, const char *path, struct llmq_err *err)
{
    const uint32_t *u;

    if (llmq_map_open(&e->map, path, err))
        return err->code;
    u = (const uint32_t *)(const void *)e->map.data;
    if (e->map.size < 16 || u[0] != 0x3154474c)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: not an expectation file", path);
    e->tokens = u[1];
    e->rows = u[2];
    e->vocab = u[3];
    e->ids = (const int32_t *)(u + 4);
    e->argmax = e->ids + e->tokens;
    e->row = e->argmax + e->tokens;
    e->logits = (const float *)(const void *)(e->row + e->rows);
    memcpy(&e->range, e->logits + (size_t)e->rows * e->vocab, sizeof e->range);
    return 0;
}

enum { PAGE = 16 };

/* Runs the tokens in pieces of `piece`; all logits into out [tokens][vocab]. */
static int run(const struct llmq_file *f, const struct expect *e, const char *isa, int piece, float *out, struct llmq_err *err)
{
    int                  n = (int)e->tokens, pages = (n + PAGE - 1) / PAGE;
    struct model_options o = {.isa = isa, .max_tokens = piece, .max_ctx = n, .max_logits = piece};
    struct model        *m;
    struct kv_store     *kv;
    int32_t             *pos, *slot, *table, *rows;

    if (model_open(&m, f, &o, err) || kv_store_new(&kv, m, KV_F32, pages, PAGE, (int)m->hp.n_layers, err) ||
        LLMQ_NEW(&pos, n, "positions", err) || LLMQ_NEW(&slot, n, "slots", err) || LLMQ_NEW(&table, pages, "pages", err) ||
        LLMQ_NEW(&rows, n, "rows", err))
        return err->code;
    for (int i = 0; i < pages; i++)
        table[i] = (i * 7 + 3) % pages; /* pages need not be in order */
    if (pages % 7 == 0)
        for (int i = 0; i < pages; i++)
            table[i] = pages - 1 - i;
    for (int done = 0; done < n; done += piece) {
        int          t = n - done < piece ? n - done : piece;
        int32_t      q_start[2] = {0, t}, kv_len = done + t, page_start[2] = {0, pages};
        struct batch b = {.tokens = t, .seqs = 1, .ids = e->ids + done, .pos = pos, .q_start = q_start, .kv_len = &kv_len,
                          .page_start = page_start, .page_table = table, .slot = slot, .n_logits = t, .logit_rows = rows};

        for (int i = 0; i < t; i++) {
            pos[i] = done + i;
            slot[i] = table[pos[i] / PAGE] * PAGE + pos[i] % PAGE;
            rows[i] = i;
        }
        if (model_forward(m, kv, &b, err))
            return err->code;
        memcpy(out + (size_t)done * e->vocab, m->logits, (size_t)t * e->vocab * sizeof(float));
    }
    llmq_free(pos);
    llmq_free(slot);
    llmq_free(table);
    llmq_free(rows);
    kv_store_free(kv, m);
    model_close(m);
    return 0;
}

static int compare(const struct expect *e, const float *got, const char *name)
{
    double worst = 0;
    int    wrong = 0;

    for (uint32_t r = 0; r < e->rows; r++)
        for (uint32_t v = 0; v < e->vocab; v++) {
            double d = fabs((double)got[(size_t)e->row[r] * e->vocab + v] - (double)e->logits[(size_t)r * e->vocab + v]);
            worst = d > worst || d != d ? d : worst;
        }
    for (uint32_t t = 0; t < e->tokens; t++) {
        uint32_t best = 0;
        for (uint32_t v = 1; v < e->vocab; v++)
            if (got[(size_t)t * e->vocab + v] > got[(size_t)t * e->vocab + best])
                best = v;
        wrong += (int32_t)best != e->argmax[t];
    }
    printf("%s: largest difference %.2g of the range, %d of %u argmaxes differ\n", name, worst / (double)e->range, wrong, e->tokens);
    return !(worst <= 1e-4 * (double)e->range) || wrong;
}

int main(int argc, char **argv)
{
    static const char *const isas[] = {"scalar", "avx2", "avx512"};
    struct llmq_err          err = {0};
    struct llmq_file        *f = NULL;
    struct expect            e;
    float                   *a, *b;
    int                      bad;

    if (argc != 3)
        return 2;
    llmq_parallel_set_threads(0);
    if (llmq_file_open(&f, argv[1], &err) || load(&e, argv[2], &err) ||
        LLMQ_NEW(&a, (size_t)e.tokens * e.vocab, "logits", &err) || LLMQ_NEW(&b, (size_t)e.tokens * e.vocab, "logits", &err) ||
        run(f, &e, NULL, (int)e.tokens, a, &err)) {
        fprintf(stderr, "checklogits: %s\n", err.text);
        return 1;
    }
    bad = compare(&e, a, argv[1]);
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++)
        for (int piece = 1; piece < 300; piece = piece * 6 + 1) {
            if (run(f, &e, isas[i], piece, b, &err)) {
                if (err.code == LLMQ_EDEVICE) /* this machine lacks it */
                    break;
                fprintf(stderr, "checklogits: %s\n", err.text);
                return 1;
            }
            if (memcmp(a, b, (size_t)e.tokens * e.vocab * sizeof(float)) != 0) {
                printf("%s: %s in pieces of %d differs from the best set at once\n", argv[1], isas[i], piece);
                bad = 1;
            }
        }
    llmq_free(a);
    llmq_free(b);
    llmq_map_close(&e.map);
    llmq_file_close(f);
    return bad;
}

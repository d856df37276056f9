/* Which tensor becomes what, before anything is computed: schemes, sizes, memory, work. */
#include "quantize/method.h"

#include "common/parallel.h"
#include "runner/text/corpus.h"

#include <string.h>

/* Multiply-adds a second and core: only for the time that --dry-run expects. */
#define RATE 15e9

static struct llmq_scheme int_scheme(int bits, int group, int symmetric)
{
    return (struct llmq_scheme){.kind = LLMQ_KIND_INT, .bits = (uint8_t)bits, .symmetric = (uint8_t)symmetric,
                                .scale_dtype = LLMQ_DTYPE_F16, .group = (uint32_t)group};
}

void plan_scheme(const struct quantize_options *o, const struct llmq_hparams *hp, const struct llmq_tensor *t, struct llmq_scheme *out)
{
    int bits = t->role == LLMQ_ROLE_LM_HEAD || (t->role == LLMQ_ROLE_EMBED && hp->tied) ? o->head_bits
               : t->role == LLMQ_ROLE_EMBED                                             ? o->embed_bits
                                                                                        : o->bits;

    if (t->k == 1) /* norms and biases: few, and folding changes them */
        *out = (struct llmq_scheme){.kind = LLMQ_KIND_DENSE, .dtype = LLMQ_DTYPE_F32};
    else if (!bits)
        *out = t->scheme;
    else if (t->role == LLMQ_ROLE_LM_HEAD || t->role == LLMQ_ROLE_EMBED)
        *out = int_scheme(bits, o->head_group, 1);
    else
        *out = int_scheme(bits, o->group, o->symmetric);
}

static int is_table(const struct llmq_tensor *t) { return t->role == LLMQ_ROLE_LM_HEAD || t->role == LLMQ_ROLE_EMBED; }

double plan_work(const struct quantize_options *o, const struct llmq_tensor *t)
{
    double weights = (double)t->n * t->k, tokens = 0;

    if (o->method == QUANTIZE_RTN || is_table(t) || t->k == 1)
        return weights * 30;
    for (int i = 0; i < o->calib->n_windows; i++)
        tokens += o->calib->windows[i].len;
    return weights * (1.5 * tokens + 6.0 * t->k + 2000);
}

/* ---- memory ------------------------------------------------------------------------------------------ */

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* The most that one stage holds: float weights, statistics, the search's rows. */
static uint64_t stage_peak(const struct llmq_hparams *h)
{
    uint64_t d = h->d_model, ff = h->d_ff, q = (uint64_t)h->n_heads * h->head_dim, kv = (uint64_t)h->n_kv_heads * h->head_dim;
    uint64_t qkv = 4 * d * (q + 2 * kv) + 8 * d * d + 2 * d * (q + 2 * kv), o = 4 * d * q + 8 * q * q + 2 * q * d;
    uint64_t up = 4 * d * 2 * ff + 8 * d * d + 2 * d * 2 * ff, down = 4 * d * ff + 8 * ff * ff + 2 * d * ff;

    return larger(larger(qkv, o), larger(up, down));
}

static uint64_t expected_peak(const struct job *j, uint64_t layer_bytes, uint64_t layer_weights, uint64_t tables)
{
    const struct llmq_hparams *h = j->hp;
    uint64_t q = (uint64_t)h->n_heads * h->head_dim, tokens = 0, longest, base = 48u << 20;

    if (j->o->method == QUANTIZE_RTN)
        return base + larger(tables, layer_bytes) + (32u << 20);
    for (int i = 0; i < j->o->calib->n_windows; i++)
        tokens += (uint64_t)j->o->calib->windows[i].len;
    longest = (uint64_t)calib_longest(j->o->calib);
    return base + 4 * tokens * (h->d_model + larger(q, h->d_ff)) + 4 * longest * (2 * h->d_model + 4 * q + 2 * (uint64_t)h->d_ff) +
           larger(stage_peak(h) + layer_bytes + layer_weights, tables);
}

/* ---- the plan ------------------------------------------------------------------------------------------ */

static int check_options(const struct job *j, struct llmq_err *err)
{
    const struct quantize_options *o = j->o;
    struct llmq_scheme             s = int_scheme(o->bits, o->group, o->symmetric), head = int_scheme(o->head_bits, o->head_group, 1);

    if (llmq_scheme_check(&s, "the scheme asked for", err) || (o->head_bits && llmq_scheme_check(&head, "the output head's scheme", err)))
        return err->code;
    if (o->method != QUANTIZE_RTN && (!o->calib || !o->calib->n_windows))
        return llmq_fail(err, LLMQ_EUSAGE, "AWQ and GPTQ need calibration text");
    return 0;
}

static int plan_tensor(struct job *j, const struct llmq_tensor *t, struct quantize_tensor_report *r, struct llmq_err *err)
{
    struct llmq_tensor out = *t;

    plan_scheme(j->o, j->hp, t, &out.scheme);
    out.layout = out.scheme.kind == LLMQ_KIND_INT ? LLMQ_LAYOUT_TILES : LLMQ_LAYOUT_ROWS;
    if (llmq_tensor_sizes(&out, err))
        return err->code;
    *r = (struct quantize_tensor_report){.name = t->name, .role = t->role, .layer = t->layer == LLMQ_NO_LAYER ? LLMQ_NO_LAYER : t->layer,
                                         .n = t->n, .k = t->k, .scheme = out.scheme, .rel_err = -1, .rtn_rel_err = -1,
                                         .clip_rate = 0, .bytes = out.data_bytes + out.scale_bytes + out.zero_bytes};
    return 0;
}

int plan_make(struct job *j, struct llmq_err *err)
{
    struct quantize_report *rep = j->rep;
    uint64_t                layer_bytes = 0, layer_weights = 0, tables = 0, bytes = 0, vectors = 0;
    double                  weights = 0;

    if (check_options(j, err) ||
        LLMQ_ARENA_NEW(rep->arena, &rep->tensors, j->src->n_tensors, "a report", err) ||
        LLMQ_ARENA_NEW(rep->arena, &rep->layers, j->hp->n_layers, "a report", err))
        return err->code;
    rep->n_layers = (int)j->hp->n_layers;
    for (int i = 0; i < rep->n_layers; i++)
        rep->layers[i].rel_err = -1;
    for (int i = 0; i < j->src->n_tensors; i++) {
        const struct llmq_tensor      *t = &j->src->tensors[i];
        struct quantize_tensor_report *r = &rep->tensors[rep->n_tensors];

        j->work_total += plan_work(j->o, t);
        if (t->k == 1) {
            vectors += 4 * (uint64_t)t->n;
            continue;
        }
        if (plan_tensor(j, t, r, err))
            return llmq_fail_within(err, "%s", t->name);
        rep->n_tensors++;
        bytes += r->bytes;
        weights += (double)t->n * t->k;
        tables = is_table(t) ? larger(tables, r->bytes) : tables;
        layer_bytes += t->layer == 0 ? r->bytes : 0;
        layer_weights += t->layer == 0 ? (uint64_t)t->n * t->k : 0;
    }
    rep->bits_per_weight = weights > 0 ? 8.0 * (double)bytes / weights : 0;
    rep->size_bytes = bytes + vectors;
    rep->peak_bytes = expected_peak(j, layer_bytes, layer_weights, tables);
    rep->wall_s = j->work_total / (RATE * llmq_parallel_threads());
    rep->cpu_s = j->work_total / RATE;
    return 0;
}

/* Sizes of a model that is not there yet: see modelplan.h.  Shapes come from the format's role table and schemes from
 * the quantizer's own rule, so that a plan cannot say something else than what is then written. */
#include "quantize/modelplan.h"

#include "common/alloc.h"
#include "common/ckd.h"
#include "quantize/method.h"

#include <string.h>

enum { MAX_ROLES = 24, PIECE = 256, HPARAMS_BYTES = 128 };

/* ---- the tensors ------------------------------------------------------------------------------------------ */

struct tensors {
    struct llmq_tensor *t;
    size_t              n;
};

static int is_table(int role) { return role == LLMQ_ROLE_EMBED || role == LLMQ_ROLE_LM_HEAD; }

static int add_tensor(struct tensors *list, const struct llmq_hparams *h, const struct quantize_options *o, int role, int layer,
                      struct llmq_err *err)
{
    struct llmq_tensor *t = &list->t[list->n];

    memset(t, 0, sizeof *t);
    t->role = (uint16_t)role;
    t->layer = (uint16_t)layer;
    t->expert = LLMQ_NO_EXPERT;
    t->scheme = (struct llmq_scheme){.kind = LLMQ_KIND_DENSE, .dtype = LLMQ_DTYPE_BF16};
    if (llmq_role_shape(h, role, &t->n, &t->k))
        return llmq_fail(err, LLMQ_EFORMAT, "role %d is not known", role);
    if (o)
        plan_scheme(o, h, t, &t->scheme);
    t->layout = t->scheme.kind == LLMQ_KIND_INT ? LLMQ_LAYOUT_TILES : LLMQ_LAYOUT_ROWS;
    list->n++;
    return llmq_tensor_sizes(t, err);
}

static int add_roles(struct tensors *list, const struct llmq_hparams *h, const struct quantize_options *o, const int *roles, int n,
                     int layer, struct llmq_err *err)
{
    for (int i = 0; i < n; i++)
        if (add_tensor(list, h, o, roles[i], layer, err))
            return err->code;
    return 0;
}

/* All tensors in file order; the caller frees list->t. */
static int list_tensors(const struct llmq_hparams *h, const struct quantize_options *o, struct tensors *list, struct llmq_err *err)
{
    int outer[MAX_ROLES], inner[MAX_ROLES], n_outer = llmq_role_list(h, 0, outer), n_inner = llmq_role_list(h, 1, inner), rc;

    list->n = 0;
    if (LLMQ_NEW(&list->t, (size_t)n_outer + (size_t)n_inner * h->n_layers, "a list of tensors", err))
        return err->code;
    rc = add_roles(list, h, o, outer, 1, LLMQ_NO_LAYER, err); /* the embedding stands before the layers */
    for (uint32_t l = 0; l < h->n_layers && !rc; l++)
        rc = add_roles(list, h, o, inner, n_inner, (int)l, err);
    if (!rc)
        rc = add_roles(list, h, o, outer + 1, n_outer - 1, LLMQ_NO_LAYER, err);
    if (rc)
        llmq_free(list->t);
    return rc;
}

static uint64_t bytes_of(const struct llmq_tensor *t) { return t->data_bytes + t->scale_bytes + t->zero_bytes; }

static int too_large(struct llmq_err *err) { return llmq_fail(err, LLMQ_ELIMIT, "a model of these sizes takes more than 2^64 bytes"); }

/* ---- parameters ------------------------------------------------------------------------------------------- */

int modelplan_params(const struct llmq_hparams *h, struct modelplan_params *out, struct llmq_err *err)
{
    struct tensors list;
    int            bad = 0;

    memset(out, 0, sizeof *out);
    if (list_tensors(h, NULL, &list, err))
        return err->code;
    for (size_t i = 0; i < list.n; i++) {
        const struct llmq_tensor *t = &list.t[i];
        uint64_t                  weights = (uint64_t)t->n * t->k;
        uint64_t                 *kind = t->k == 1 ? &out->vectors : t->role == LLMQ_ROLE_EMBED ? &out->embed
                                                               : t->role == LLMQ_ROLE_LM_HEAD ? &out->head
                                                                                              : &out->layers;

        bad |= llmq_ckd_add(kind, *kind, weights) | llmq_ckd_add(&out->total, out->total, weights);
    }
    llmq_free(list.t);
    return bad ? too_large(err) : 0;
}

/* ---- weights ---------------------------------------------------------------------------------------------- */

static int check_ranks(const struct llmq_hparams *h, int ranks, struct llmq_err *err)
{
    uint32_t r = (uint32_t)ranks;

    if (ranks < 1)
        return llmq_fail(err, LLMQ_EUSAGE, "%d ranks, expected at least 1", ranks);
    if (h->n_heads % r)
        return llmq_fail(err, LLMQ_EUSAGE, "%u query heads cannot be divided over %d ranks", h->n_heads, ranks);
    if (h->n_kv_heads % r && r % h->n_kv_heads)
        return llmq_fail(err, LLMQ_EUSAGE, "%u key and value heads can be neither divided over %d ranks nor repeated on them", h->n_kv_heads, ranks);
    if (h->d_ff % r)
        return llmq_fail(err, LLMQ_EUSAGE, "a feed-forward width of %u cannot be divided over %d ranks", h->d_ff, ranks);
    return 0;
}

static uint32_t kv_heads_of_rank(const struct llmq_hparams *h, int ranks)
{
    return h->n_kv_heads >= (uint32_t)ranks ? h->n_kv_heads / (uint32_t)ranks : 1;
}

/* A rank's part: outputs of q, k, v, gate, up and the tables, inputs of o and down (Megatron-LM, arXiv 1909.08053, section 3). */
static int rank_bytes(const struct llmq_hparams *h, const struct llmq_tensor *whole, int ranks, uint64_t *bytes, struct llmq_err *err)
{
    struct llmq_tensor t = *whole;
    uint32_t           r = (uint32_t)ranks;

    switch (t.k == 1 ? 0 : t.role) {
    case LLMQ_ROLE_ATTN_Q:
    case LLMQ_ROLE_MLP_GATE:
    case LLMQ_ROLE_MLP_UP: t.n /= r; break;
    case LLMQ_ROLE_ATTN_K:
    case LLMQ_ROLE_ATTN_V: t.n = kv_heads_of_rank(h, ranks) * h->head_dim; break;
    case LLMQ_ROLE_ATTN_O:
    case LLMQ_ROLE_MLP_DOWN: t.k /= r; break;
    case LLMQ_ROLE_EMBED:
    case LLMQ_ROLE_LM_HEAD: t.n = (t.n + r - 1) / r; break;
    default: break;
    }
    if (llmq_tensor_sizes(&t, err))
        return err->code;
    *bytes = bytes_of(&t);
    return 0;
}

static int sum_up(const struct llmq_hparams *h, const struct tensors *list, int ranks, struct modelplan_size *out, struct llmq_err *err)
{
    double matrices = 0, weights = 0;

    for (size_t i = 0; i < list->n; i++) {
        const struct llmq_tensor *t = &list->t[i];
        uint64_t                  part = 0;

        if (rank_bytes(h, t, ranks, &part, err))
            return err->code;
        if (llmq_ckd_add(&out->weight_bytes, out->weight_bytes, bytes_of(t)) || llmq_ckd_add(&out->rank_bytes, out->rank_bytes, part))
            return too_large(err);
        if (t->k == 1)
            continue;
        matrices += (double)bytes_of(t);
        weights += (double)t->n * t->k;
        if (!is_table(t->role))
            llmq_scheme_name(&t->scheme, out->scheme, sizeof out->scheme);
    }
    out->bits_per_weight = 8 * matrices / weights;
    return 0;
}

int modelplan_size(const struct llmq_hparams *h, const struct quantize_options *o, uint64_t text_bytes, int ranks,
                   struct modelplan_size *out, struct llmq_err *err)
{
    const uint64_t hparams = HPARAMS_BYTES;
    struct tensors list;
    int            rc;

    memset(out, 0, sizeof *out);
    if (check_ranks(h, ranks, err) || list_tensors(h, o, &list, err))
        return err->code;
    rc = sum_up(h, &list, ranks, out, err);
    if (!rc && out->weight_bytes > UINT64_MAX / 2)
        rc = too_large(err);
    if (!rc && llmq_ckd_add(&out->file_bytes, llmq_file_bytes(list.t, list.n, &hparams, 1), text_bytes))
        rc = too_large(err);
    llmq_free(list.t);
    return rc;
}

/* ---- at run time -------------------------------------------------------------------------------------------- */

int modelplan_kv(const struct llmq_hparams *h, uint64_t tokens, int element_bytes, int ranks, uint64_t *bytes, struct llmq_err *err)
{
    if (check_ranks(h, ranks, err))
        return err->code;
    *bytes = 2ull * h->n_layers * kv_heads_of_rank(h, ranks) * h->head_dim * (unsigned)element_bytes;
    return llmq_ckd_mul(bytes, *bytes, tokens) ? too_large(err) : 0;
}

int modelplan_scratch(const struct llmq_hparams *h, uint64_t ctx, uint64_t *bytes, struct llmq_err *err)
{
    uint64_t q = (uint64_t)h->n_heads * h->head_dim, kv = (uint64_t)h->n_kv_heads * h->head_dim, table;

    *bytes = sizeof(float) * (PIECE * (2 * (uint64_t)h->d_model + 2 * q + 2 * kv + 2 * (uint64_t)h->d_ff) + h->d_model + (uint64_t)h->n_vocab);
    if (llmq_ckd_mul(&table, ctx, sizeof(float) * h->head_dim) || llmq_ckd_add(bytes, *bytes, table))
        return too_large(err);
    return 0;
}

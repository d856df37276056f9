#ifndef LLMQ_QUANTIZE_METHOD_H
#define LLMQ_QUANTIZE_METHOD_H

/* What the files of quantize/ share: the job, a matrix on its way through it, statistics of a linear's input. */

#include "common/alloc.h"
#include "quantize/grid.h"
#include "quantize/quantize.h"
#include "runner/model/model.h"

/* A matrix between its source and its packed form.  Arrays live in the arena that made them. */
struct qmat {
    int                            index; /* in the source */
    struct llmq_scheme             scheme;
    uint32_t                       n, k, groups;
    float                         *w;      /* [n][k]; columns are scaled in place by folding */
    float                         *scales; /* [n][groups] */
    uint8_t                       *zeros;  /* [n][groups] */
    uint8_t                       *codes;  /* [n][k] */
    struct llmq_tensor             packed;
    struct quantize_tensor_report *rep;
};

/* What a stage saw going into its linears. */
struct stats {
    uint32_t k;
    size_t   n;    /* tokens seen */
    double  *g;    /* [k][k] sum of x x^T, lower triangle; gone after stats_finish */
    float   *h;    /* [k][k] g / n, in g's memory; NULL until stats_finish */
    float   *spare; /* [k][k] the other half of g's memory: NULL until stats_finish */
    double  *mean;  /* [k] mean |x| */
};

struct job {
    struct llmq_source            *src;
    const struct quantize_options *o;
    const struct llmq_hparams     *hp;
    struct quantize_report        *rep;
    struct llmq_writer            *w;
    struct model                  *m; /* AWQ only, as are the following */
    float                         *h;     /* [tokens][d] hidden states of all windows */
    float                         *act;   /* [tokens][wide] input of o, then of down */
    size_t                         tokens;
    struct kv_store               *kv;    /* one layer, one window */
    struct window_batch           *wb;
    double                         work_done, work_total; /* multiply-adds */
    double                         started;
};

/* ---- quantize.c ---- */
int  job_cancelled(const struct job *j, struct llmq_err *err) LLMQ_MUST_CHECK; /* LLMQ_EINTR */
void job_progress(struct job *j, int layer, const char *stage, double work);
int  job_warn(struct job *j, struct llmq_err *err, const char *fmt, ...) LLMQ_PRINTF(3, 4) LLMQ_MUST_CHECK;

/* ---- plan.c ---- */
/* How a tensor of the source will be stored. */
void   plan_scheme(const struct quantize_options *o, const struct llmq_hparams *hp, const struct llmq_tensor *t,
                   struct llmq_scheme *out);
/* Checks options against the model and fills the report: one entry per matrix, sizes, expected memory. */
int    plan_make(struct job *j, struct llmq_err *err) LLMQ_MUST_CHECK;
double plan_work(const struct quantize_options *o, const struct llmq_tensor *t); /* multiply-adds for one matrix */

/* ---- qmat.c: reading and packing ---- */
/* A source tensor as float, [n][k]; sha256 (may be NULL) gets the hash of its raw elements. */
int qmat_read(struct job *j, int index, uint32_t row, uint32_t rows, float *out, struct llmq_sha256 *sha, struct llmq_err *err) LLMQ_MUST_CHECK;
/* Finds, reads and makes room: w in `work`, the rest in `keep`. */
int qmat_load(struct job *j, struct llmq_arena *work, struct llmq_arena *keep, int role, int layer, struct qmat *q, struct llmq_err *err) LLMQ_MUST_CHECK;
/* Codes and scales to packed bytes (room was made by qmat_load). */
int qmat_pack(struct qmat *q, struct llmq_err *err) LLMQ_MUST_CHECK;
/* A source tensor's packed form by the plan, with room for its bytes. */
int qmat_packed(struct job *j, struct llmq_arena *a, int index, struct llmq_tensor *t, struct llmq_err *err) LLMQ_MUST_CHECK;
/* A float vector as a tensor of the file. */
int qmat_vector(const struct llmq_tensor *like, const float *v, struct llmq_tensor *out, struct llmq_err *err) LLMQ_MUST_CHECK;
/* Writes a tensor and notes its hash in the report (NULL for those without an entry). */
int qmat_write(struct job *j, struct llmq_tensor *t, struct quantize_tensor_report *rep, struct llmq_err *err) LLMQ_MUST_CHECK;
/* Report entry of a source tensor. */
struct quantize_tensor_report *qmat_report(const struct job *j, int index);

/* ---- rtn.c ---- */
/* Round to nearest, a few rows at a time, into out (memory of `keep`): for tables too large to hold as float. */
int rtn_stream(struct job *j, struct llmq_arena *keep, int index, struct llmq_tensor *out, struct llmq_err *err) LLMQ_MUST_CHECK;
int rtn_run(struct job *j, struct llmq_err *err) LLMQ_MUST_CHECK;
/* Writes a tensor that stays dense: vectors as F32, matrices as they are. */
int rtn_dense(struct job *j, int index, struct llmq_err *err) LLMQ_MUST_CHECK;

/* ---- calib.c: windows as batches ---- */
struct window_batch {
    struct batch b;
    int32_t     *pos, *slot, *pages;
    int32_t      start[2], kv_len[1], page_start[2];
};
enum { CALIB_PAGE = 256 };
int  calib_open(struct job *j, struct llmq_arena *arena, struct llmq_err *err) LLMQ_MUST_CHECK; /* checks windows, makes room */
int  calib_embed(struct job *j, const struct llmq_tensor *packed, int index, struct llmq_err *err) LLMQ_MUST_CHECK;
const struct batch *calib_batch(struct job *j, int tokens);
int  calib_longest(const struct corpus *c);

/* ---- observe.c ---- */
int  stats_init(struct stats *s, struct llmq_arena *a, uint32_t k, struct llmq_err *err) LLMQ_MUST_CHECK;
void stats_add(struct stats *s, struct model *m, const float *x, int tokens); /* one window */
void stats_finish(struct stats *s);
/* NULL, or why these statistics cannot guide anything. */
const char *stats_fault(const struct stats *s);
void stats_scale(struct stats *s, const float *scale); /* as if every x[j] had been x[j] / scale[j] */

/* ---- stage.c: the linears that share an input ---- */
struct stage {
    struct qmat       *mat[3];
    int                n;
    struct stats      *stats;
    /* Input j comes from channel map(j) of the producer: heads > 0 for o (shared KV heads), else itself. */
    uint32_t           head_dim, share; /* share: query heads per KV head; 0: channel j itself */
    const struct qmat *rows;         /* the producer is this matrix's rows, or NULL: a norm */
    float             *s;            /* out: [k] factors of the inputs; all 1 when the identity won */
    int                scaled;       /* out: s is not the identity */
    const char        *fault;        /* out: NULL, or why it was rounded to nearest */
};
/* Searches, scales the matrices' columns and the statistics, chooses grids and codes, packs. */
int  stage_decide(struct job *j, struct stage *st, struct llmq_arena *work, struct llmq_err *err) LLMQ_MUST_CHECK;
uint32_t stage_producer(const struct stage *st, uint32_t input); /* the producer's channel of an input */
uint32_t stage_producers(const struct stage *st);

/* ---- search.c ---- */
struct search;
/* Samples rows and measures channels; st's matrices and statistics are not scaled yet. */
int  search_new(struct search **out, struct job *j, const struct stage *st, struct llmq_arena *a, struct llmq_err *err) LLMQ_MUST_CHECK;
/* Fills st->s, st->scaled and, when no loss is finite, st->fault. */
void search_run(struct search *s, struct stage *st);
/* Output errors of the finished matrices, on the sampled rows, into their reports. */
void search_measure(struct search *s);

/* ---- gptq.c ---- */
/* The damped statistics of one stage, A = H + damp diag(H), and their factor. */
struct geometry {
    uint32_t  k;
    float     damp;
    float    *h;        /* [k][k] H, undamped; of the stage's statistics */
    uint32_t *order;    /* [k] columns from the least to the most important: place -> column */
    float    *l;        /* [k][k] unit lower, by places: A = L diag(pivot) L^T; in the statistics' spare half */
    float    *pivot;    /* [k] by places */
    float    *weight;   /* [k] pivots by column */
};
/* Factors the statistics.  *fault: NULL, or why they cannot be factored with any damping. */
int geometry_new(struct job *j, const struct stats *st, struct geometry *g, struct llmq_arena *work, const char **fault, struct llmq_err *err) LLMQ_MUST_CHECK;
/* Grids of every row and group, under the weights of the geometry. */
void gptq_grids(struct qmat *q, const struct geometry *g);
/* Codes, given the grids. */
int gptq_codes(struct job *j, struct qmat *q, const struct geometry *g, struct llmq_err *err) LLMQ_MUST_CHECK;

/* ---- descend.c ---- */
/* Codes, scales and zero points, improved one at a time: never upwards in the loss under the geometry. */
int descend_matrix(struct job *j, struct qmat *q, const struct geometry *g, struct llmq_err *err) LLMQ_MUST_CHECK;

/* ---- clip.c ---- */
/* Grids of every row and group, from min-max, shrunk where that lowers the output error; refitted. */
int clip_matrix(struct job *j, struct qmat *q, const struct stats *st, struct llmq_err *err) LLMQ_MUST_CHECK;

/* ---- fold.c ---- */
void fold_columns(float *w, uint32_t n, uint32_t k, const float *s); /* w[r][j] *= s[j] */
void fold_divide(float *x, size_t rows, uint32_t k, const float *s); /* x[r][j] /= s[j] */
/* The producer's rows: a row's codes stand for any scaling of it, so only scales (and its bias) change. */
void fold_rows(struct qmat *producer, float *bias, const float *s);
/* Factors lo[r] <= s[r] <= hi[r] leave all scales of the producer's row r normal F16 values (1 is always allowed). */
void fold_limits(const struct qmat *producer, float *lo, float *hi);

/* ---- layer.c ---- */
int layers_run(struct job *j, struct llmq_err *err) LLMQ_MUST_CHECK;

/* ---- report.c ---- */
int provenance_json(const struct job *j, struct llmq_str *out, struct llmq_err *err) LLMQ_MUST_CHECK;

#endif

#ifndef LLMQ_QUANTIZE_QUANTIZE_H
#define LLMQ_QUANTIZE_QUANTIZE_H

/* PUBLIC.  Any dense source -> a quantized .llmq.
 *
 * llmq_quantize walks the model once, layer by layer: reads a layer's weights, runs the calibration windows
 * through it (AWQ), decides, packs, writes, and goes on with the layer's quantized output.  Memory: one layer's
 * weights as float, one hidden state of all calibration tokens, statistics of one stage. */

#include "common/err.h"
#include "format/format.h"

#include <stdint.h>

struct corpus;

/* Bits: AWQ and GPTQ go together. */
enum quantize_method { QUANTIZE_RTN = 0, QUANTIZE_AWQ = 1, QUANTIZE_GPTQ = 2 };

const char *quantize_method_name(int method); /* "rtn", "awq", "gptq", "awq+gptq" */

struct quantize_progress { /* one call per finished tensor and per stage */
    int         layer, n_layers;
    const char *stage; /* "attn_q", "lm_head", ... */
    double      fraction; /* of the whole job's expected work */
};

struct quantize_options {
    int         method;                     /* QUANTIZE_RTN, or bits */
    int         bits, group, symmetric;     /* group 0: channel */
    int         head_bits, head_group;      /* output head (and a tied table): bits 0 = keep as it is */
    int         embed_bits;                 /* untied embedding: 0 = keep */
    uint64_t    seed;
    const char *isa;                        /* cap, or NULL */
    const struct corpus *calib;             /* AWQ, GPTQ */
    const char *calib_name;                 /* base name, for provenance */
    int         dry_run;                    /* plan only: fills the report, writes nothing */
    int         no_clip, no_scale;          /* ablations: leave AWQ's clipping or scaling out */
    const char *command_json;               /* options as given, JSON object text, for provenance; may be NULL */
    const char *version;                    /* of this program, for provenance; may be NULL */
    void      (*progress)(void *ctx, const struct quantize_progress *p);
    void       *progress_ctx;
    int        *cancel;
    /* The file is complete and checked, under the name `path`, but has not got its own yet; the report is filled.  What
     * fails here fails the job, and the output's path stays as it was.  May be NULL. */
    int       (*before_commit)(void *ctx, const char *path, struct llmq_err *err);
    void       *before_commit_ctx;
};

struct quantize_tensor_report {
    const char        *name;
    int                role, layer;
    uint32_t           n, k;
    struct llmq_scheme scheme;
    double             rel_err, rtn_rel_err; /* ||(W - Q) X|| / ||W X||; -1: not measured */
    double             clip_rate;            /* share of weights at the grid's ends by clipping */
    double             seconds;
    uint64_t           bytes;
    const char        *fallback;             /* NULL, or why a simpler method was used */
    char               source_sha256[65], sha256[65]; /* of the source's elements and of the stored bytes; "" until then */
};

struct quantize_layer_report {
    double rel_err; /* of the layer's output against the unquantized layer on the same input; -1: not measured */
    double seconds;
};

struct quantize_report {
    struct quantize_tensor_report *tensors;
    int                            n_tensors;
    struct quantize_layer_report  *layers;
    int                            n_layers;
    double                         bits_per_weight;
    uint64_t                       size_bytes, peak_bytes; /* peak: expected (dry run) or measured */
    double                         wall_s, cpu_s;
    char                         **warnings;
    int                            n_warnings;
    struct llmq_arena             *arena;
    char                           isa[16]; /* instruction set that the job used; "none" for a dry run */
};

/* report may be NULL; otherwise it is filled even when the job fails, and released with quantize_report_free. */
int  llmq_quantize(struct llmq_source *src, const char *path, const struct quantize_options *o,
                   struct quantize_report *report, struct llmq_err *err) LLMQ_MUST_CHECK;
void quantize_report_free(struct quantize_report *r);
struct llmq_str;
/* `quantize --report`: the JSON document of the command line's contract. */
int  quantize_report_json(const struct quantize_report *r, struct llmq_source *src, const struct quantize_options *o,
                          struct llmq_str *out, struct llmq_err *err) LLMQ_MUST_CHECK;

#endif

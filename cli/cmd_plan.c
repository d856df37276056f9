/* llmq plan: what a model will weigh, before anything is converted or run. */
#include "cli/doc.h"
#include "cli/opt.h"
#include "cli/progress.h"
#include "common/str.h"
#include "convert/convert.h"
#include "format/format.h"
#include "quantize/modelplan.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
    int      ctx, batch, ranks;
    uint64_t memory;
} opt = {.batch = 1, .ranks = 1};

static const struct opt opts[] = {
    {"ctx", 0, OPT_INT, &opt.ctx, "N", "the model's context, unscaled", "tokens of one sequence", 1, 1 << 28},
    {"batch", 0, OPT_INT, &opt.batch, "N", "1", "sequences at the same time", 1, 1 << 24},
    {"memory", 0, OPT_SIZE, &opt.memory, "SIZE", "this machine's", "memory to fit into (of one rank): 16G, 24Gi", 0, 0},
    {"tensor-parallel", 0, OPT_INT, &opt.ranks, "N", "1", "divide the model over N devices", 1, 4096},
    {0},
};

/* ---- what is asked ---------------------------------------------------------------------------------------- */

static const struct {
    int bits, group, symmetric; /* bits 0: as converted; group 0: channel */
} schemes[] = {{0, 0, 0}, {8, 128, 1}, {8, 0, 1}, {4, 32, 0}, {4, 64, 0}, {4, 128, 0}, {4, 128, 1}};
static const struct {
    const char *name;
    int         bytes;
} kinds[] = {{"f16", 2}, {"f32", 4}};
enum { N_SCHEMES = sizeof schemes / sizeof schemes[0], N_KV = sizeof kinds / sizeof kinds[0] };

struct fit {
    int64_t sequences, longest; /* of opt.ctx tokens; of one sequence, capped by what the model can do */
};

struct plan {
    struct llmq_hparams     h;
    uint64_t                text_bytes; /* of sections; 0: not known */
    uint64_t                ctx, memory, scratch, kv_token[N_KV], kv_sequence[N_KV], kv_all[N_KV];
    struct modelplan_params params;
    struct modelplan_size   size[N_SCHEMES];
    struct fit              fit[N_SCHEMES][N_KV];
};

/* ---- the source ------------------------------------------------------------------------------------------- */

static int add_section(struct plan *p, int id, const struct llmq_str *s, struct llmq_err *err)
{
    uint64_t stored;

    if (llmq_section_stored_bytes(id, s->data, s->len, &stored, err))
        return err->code;
    p->text_bytes += stored;
    return 0;
}

/* The tokenizer is most of the text in a file. */
static int read_tokenizer(struct plan *p, const char *dir, struct llmq_err *err)
{
    struct llmq_str config = {.max = 1 << 30}, vocab = {.max = 1 << 30}, merges = {.max = 1 << 30};
    int             rc = convert_tokenizer(dir, &config, &vocab, &merges, err);

    rc = rc || add_section(p, LLMQ_SECTION_TOKENIZER, &config, err) || add_section(p, LLMQ_SECTION_VOCAB, &vocab, err) ||
                 add_section(p, LLMQ_SECTION_MERGES, &merges, err)
             ? err->code
             : 0;
    llmq_str_fini(&config);
    llmq_str_fini(&vocab);
    llmq_str_fini(&merges);
    return rc;
}

static int has_tokenizer(const char *dir)
{
    char path[4096];

    return (size_t)snprintf(path, sizeof path, "%s/tokenizer.json", dir) < sizeof path && access(path, R_OK) == 0;
}

static int ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);

    return n >= m && !strcmp(s + n - m, end);
}

static int read_file(struct plan *p, const char *path, struct llmq_err *err)
{
    struct llmq_file *f;

    if (doc_check_model_path(path, err) || llmq_file_open(&f, path, err))
        return err->code;
    p->h = *llmq_file_hparams(f);
    for (int id = 1; llmq_section_name(id); id++) {
        size_t      len;
        const char *bytes = llmq_file_section(f, id, &len);
        uint64_t    stored = 0;

        if (len && id != LLMQ_SECTION_HPARAMS && llmq_section_stored_bytes(id, bytes, len, &stored, err))
            break;
        p->text_bytes += stored;
    }
    llmq_file_close(f);
    return err->code;
}

/* A configuration's neighbours stand beside it. */
static int folder_of(const char *path, int is_folder, char *out, size_t size, struct llmq_err *err)
{
    const char *slash = strrchr(path, '/');
    int         n = is_folder ? (int)strlen(path) : slash ? (int)(slash - path) + 1 : 1;

    if ((size_t)snprintf(out, size, "%.*s", n, is_folder || slash ? path : ".") >= size)
        return llmq_fail(err, LLMQ_EUSAGE, "%s: too long a path", path);
    return 0;
}

static int read_source(struct plan *p, const char *path, struct llmq_err *err)
{
    char        folder[4096];
    struct stat st;

    if (stat(path, &st))
        return llmq_fail_errno(err, "%s", path);
    if (!S_ISDIR(st.st_mode) && !ends_with(path, ".json"))
        return read_file(p, path, err);
    if (convert_config(path, &p->h, err) || folder_of(path, S_ISDIR(st.st_mode), folder, sizeof folder, err))
        return err->code;
    return has_tokenizer(folder) ? read_tokenizer(p, folder, err) : 0;
}

/* ---- arithmetic ------------------------------------------------------------------------------------------- */

static void set_options(struct quantize_options *o, int i)
{
    *o = (struct quantize_options){.bits = schemes[i].bits, .group = schemes[i].group, .symmetric = schemes[i].symmetric,
                                   .head_bits = 8, .head_group = 128};
}

static void fit(struct plan *p, int i, int k)
{
    uint64_t most = llmq_hparams_max_ctx(&p->h), used = p->size[i].rank_bytes + p->scratch, room = p->memory > used ? p->memory - used : 0;

    p->fit[i][k].sequences = p->kv_sequence[k] ? (int64_t)(room / p->kv_sequence[k]) : 0;
    room = p->kv_token[k] ? room / p->kv_token[k] : 0;
    p->fit[i][k].longest = (int64_t)(room < most ? room : most);
}

static int compute(struct plan *p, struct llmq_err *err)
{
    p->ctx = opt.ctx ? (uint64_t)opt.ctx : p->h.ctx_len;
    if (p->ctx > llmq_hparams_max_ctx(&p->h))
        return llmq_fail(err, LLMQ_EUSAGE, "--ctx %d: the model was made for at most %u", opt.ctx, llmq_hparams_max_ctx(&p->h));
    p->memory = opt.memory ? opt.memory : (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    if (modelplan_params(&p->h, &p->params, err) || modelplan_scratch(&p->h, p->ctx, &p->scratch, err))
        return err->code;
    for (int k = 0; k < N_KV; k++)
        if (modelplan_kv(&p->h, 1, kinds[k].bytes, opt.ranks, &p->kv_token[k], err) ||
            modelplan_kv(&p->h, p->ctx, kinds[k].bytes, opt.ranks, &p->kv_sequence[k], err) ||
            modelplan_kv(&p->h, p->ctx * (uint64_t)opt.batch, kinds[k].bytes, opt.ranks, &p->kv_all[k], err))
            return err->code;
    for (int i = 0; i < N_SCHEMES; i++) {
        struct quantize_options o;

        set_options(&o, i);
        if (modelplan_size(&p->h, schemes[i].bits ? &o : NULL, p->text_bytes, opt.ranks, &p->size[i], err))
            return err->code;
        for (int k = 0; k < N_KV; k++)
            fit(p, i, k);
    }
    return 0;
}

/* ---- what is printed ---------------------------------------------------------------------------------------- */

/* 6738415616 as "6.74 G". */
static const char *count(uint64_t n, char *out, size_t size)
{
    static const char *const unit[] = {"", " k", " M", " G", " T"};
    double                   v = (double)n;
    int                      u = 0;

    while (v >= 999.5 && u < 4) {
        v /= 1000;
        u++;
    }
    snprintf(out, size, "%.*f%s", u == 0 || v >= 99.95 ? 0 : v >= 9.995 ? 1 : 2, v, unit[u]);
    return out;
}

static void print_model(const struct plan *p)
{
    const struct llmq_hparams     *h = &p->h;
    const struct modelplan_params *n = &p->params;
    char                           a[16], b[16], c[16], d[16], e[16];

    printf("model        %u layers, d_model %u, %u heads x %u (%u with keys and values), d_ff %u\n", h->n_layers, h->d_model, h->n_heads,
           h->head_dim, h->n_kv_heads, h->d_ff);
    printf("             vocabulary %u, %s output head, context %u", h->n_vocab, h->tied ? "tied" : "its own", h->ctx_len);
    if (llmq_hparams_max_ctx(h) > h->ctx_len)
        printf(", up to %u by its RoPE scaling", llmq_hparams_max_ctx(h));
    putchar('\n');
    printf("parameters   %s: layers %s, embedding %s, output head %s, norms and biases %s\n", count(n->total, a, sizeof a),
           count(n->layers, b, sizeof b), count(n->embed, c, sizeof c), h->tied ? "tied" : count(n->head, d, sizeof d),
           count(n->vectors, e, sizeof e));
}

static void print_sizes(const struct plan *p)
{
    char a[16], b[16], c[16];

    printf("\n%-18s%12s%12s%12s%s\n", "weights", "bits/weight", "in memory", "file", opt.ranks > 1 ? "    per rank" : "");
    for (int i = 0; i < N_SCHEMES; i++) {
        const struct modelplan_size *s = &p->size[i];

        printf("%-18s%12.3f%12s%12s", s->scheme, s->bits_per_weight, progress_bytes((double)s->weight_bytes, a, sizeof a),
               progress_bytes((double)s->file_bytes, b, sizeof b));
        if (opt.ranks > 1)
            printf("%12s", progress_bytes((double)s->rank_bytes, c, sizeof c));
        putchar('\n');
    }
    if (!p->text_bytes)
        printf("There is no tokenizer.json: a file is larger by the tokenizer's text.\n");
}

static void print_kv(const struct plan *p)
{
    char a[16], b[16], c[16], title[40], all[24];

    snprintf(title, sizeof title, "%llu tokens", (unsigned long long)p->ctx);
    snprintf(all, sizeof all, "x %d", opt.batch);
    printf("\n%-18s%12s%16s%16s\n", opt.ranks > 1 ? "KV cache, a rank" : "KV cache", "per token", title, all);
    for (int k = 0; k < N_KV; k++)
        printf("%-18s%12s%16s%16s\n", kinds[k].name, progress_bytes((double)p->kv_token[k], a, sizeof a),
               progress_bytes((double)p->kv_sequence[k], b, sizeof b), progress_bytes((double)p->kv_all[k], c, sizeof c));
}

static void print_fit(const struct plan *p)
{
    char a[16], b[16], title[40];

    snprintf(title, sizeof title, "sequences of %llu", (unsigned long long)p->ctx);
    printf("\nIn %s%s, beside the weights and %s of work space:\n", progress_bytes((double)p->memory, a, sizeof a),
           opt.memory ? "" : " (this machine's memory)", progress_bytes((double)p->scratch, b, sizeof b));
    printf("%-18s%24s%24s\n%-18s", "", title, "longest single context", "weights");
    for (int column = 0; column < 2 * N_KV; column++)
        printf("%8s %3s", "KV", kinds[column % N_KV].name);
    putchar('\n');
    for (int i = 0; i < N_SCHEMES; i++) {
        printf("%-18s", p->size[i].scheme);
        for (int k = 0; k < N_KV; k++)
            printf("%12lld", (long long)p->fit[i][k].sequences);
        for (int k = 0; k < N_KV; k++)
            printf("%12lld", (long long)p->fit[i][k].longest);
        putchar('\n');
    }
}

static json_t *kv_json(const struct plan *p)
{
    json_t *list = json_array();

    for (int k = 0; k < N_KV; k++)
        json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:I}", "dtype", kinds[k].name, "bytes_per_token", (json_int_t)p->kv_token[k],
                                              "bytes_per_sequence", (json_int_t)p->kv_sequence[k], "bytes", (json_int_t)p->kv_all[k]));
    return list;
}

static json_t *schemes_json(const struct plan *p)
{
    json_t *list = json_array();

    for (int i = 0; i < N_SCHEMES; i++) {
        const struct modelplan_size *s = &p->size[i];
        json_t                      *fits = json_array();

        for (int k = 0; k < N_KV; k++)
            json_array_append_new(fits, json_pack("{s:s, s:I, s:I}", "kv_dtype", kinds[k].name, "sequences", (json_int_t)p->fit[i][k].sequences,
                                                  "longest_context", (json_int_t)p->fit[i][k].longest));
        json_array_append_new(list, json_pack("{s:s, s:o, s:I, s:I, s:I, s:o}", "scheme", s->scheme, "bits_per_weight", doc_real(s->bits_per_weight),
                                              "weight_bytes", (json_int_t)s->weight_bytes, "file_bytes", (json_int_t)s->file_bytes, "rank_bytes",
                                              (json_int_t)s->rank_bytes, "fits", fits));
    }
    return list;
}

static int print_json(const struct plan *p, struct llmq_err *err)
{
    const struct llmq_hparams     *h = &p->h;
    const struct modelplan_params *n = &p->params;
    json_t                        *doc = doc_new("llmq.plan/1", NULL, "none", 0), *rest;

    rest = json_pack("{s:{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:b}, s:{s:I, s:I, s:I, s:I, s:I}, s:o, s:o, s:I, s:i, s:i, s:I, s:I}", "hparams",
                     "n_layers", (int)h->n_layers, "d_model", (int)h->d_model, "n_heads", (int)h->n_heads, "n_kv_heads", (int)h->n_kv_heads,
                     "head_dim", (int)h->head_dim, "d_ff", (int)h->d_ff, "n_vocab", (int)h->n_vocab, "ctx_len", (int)h->ctx_len, "max_ctx", (int)llmq_hparams_max_ctx(h),
                     "tied", (int)h->tied, "parameters", "total", (json_int_t)n->total, "layers", (json_int_t)n->layers, "embedding",
                     (json_int_t)n->embed, "output_head", (json_int_t)n->head, "vectors", (json_int_t)n->vectors, "schemes", schemes_json(p), "kv",
                     kv_json(p), "ctx", (json_int_t)p->ctx, "batch", opt.batch, "tensor_parallel", opt.ranks, "memory_bytes",
                     (json_int_t)p->memory, "scratch_bytes", (json_int_t)p->scratch);
    if (!doc || !rest || json_object_update(doc, rest)) {
        json_decref(doc);
        doc = NULL;
    }
    json_decref(rest);
    return doc_print(doc, err);
}

static int run(int argc, char **argv, struct llmq_err *err)
{
    struct plan p = {0};

    cli_end_at_once = 1;
    if (argc != 1)
        return llmq_fail(err, LLMQ_EUSAGE, "%d sources, expected one: llmq plan SRC", argc);
    if (read_source(&p, argv[0], err) || compute(&p, err))
        return err->code;
    if (common_opt.json)
        return print_json(&p, err);
    print_model(&p);
    print_sizes(&p);
    print_kv(&p);
    print_fit(&p);
    return 0;
}

const struct cmd cmd_plan = {"plan", "SRC [options]", "what a model will weigh, before anything is run", opts, run};

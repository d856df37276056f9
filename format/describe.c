/* The listing behind `llmq inspect`: text for people, JSON for pipelines.  Strings from the file are printed
 * as JSON with escapes, never raw, so that a file cannot talk to the terminal. */
#include "format/file.h"

#include "common/json.h"
#include "common/str.h"

#include <stdio.h>
#include <string.h>

/* ---- what is in the file, by scheme --------------------------------------------------------- */

struct share {
    char     scheme[32];
    int      tensors;
    uint64_t weights, bytes;
};
enum { MAX_SHARES = 16 };

static uint64_t tensor_bytes(const struct llmq_tensor *t) { return t->data_bytes + t->scale_bytes + t->zero_bytes; }

static int count_shares(const struct llmq_file *f, struct share out[MAX_SHARES])
{
    int n = 0;

    for (int i = 0; i < f->n_tensors; i++) {
        const struct llmq_tensor *t = &f->tensors[i];
        char                      name[32];
        int                       s = 0;

        llmq_scheme_name(&t->scheme, name, sizeof name);
        while (s < n && strcmp(out[s].scheme, name) != 0)
            s++;
        if (s == n) {
            if (n == MAX_SHARES)
                continue;
            memset(&out[n], 0, sizeof out[n]);
            memcpy(out[n++].scheme, name, sizeof name);
        }
        out[s].tensors++;
        out[s].weights += (uint64_t)t->n * t->k;
        out[s].bytes += tensor_bytes(t);
    }
    return n;
}

struct totals {
    uint64_t weights, tensor_bytes, text_bytes, other_bytes;
};

static struct totals count_totals(const struct llmq_file *f)
{
    struct totals t = {0};

    for (int i = 0; i < f->n_tensors; i++) {
        t.weights += (uint64_t)f->tensors[i].n * f->tensors[i].k;
        t.tensor_bytes += tensor_bytes(&f->tensors[i]);
    }
    for (int i = 0; i < f->n_sections; i++)
        t.text_bytes += f->sections[i].disk.stored_bytes;
    t.other_bytes = f->map.size - t.tensor_bytes - t.text_bytes;
    return t;
}

/* ---- text ------------------------------------------------------------------------------------ */

static const char *rope_name(uint32_t type)
{
    static const char *const names[] = {"default", "linear", "dynamic", "llama3", "yarn"};
    return type < sizeof names / sizeof names[0] ? names[type] : "?";
}

static int text_model(const struct llmq_file *f, struct llmq_str *s, struct llmq_err *err)
{
    const struct llmq_hparams *h = &f->hparams;

    if (llmq_str_printf(s, err, "file        %llu bytes, format %u.%u\n", (unsigned long long)f->map.size, f->major, f->minor) ||
        llmq_str_printf(s, err, "model       llama: %u layers, d_model %u, d_ff %u, %u heads x %u, %u kv heads\n", h->n_layers,
                        h->d_model, h->d_ff, h->n_heads, h->head_dim, h->n_kv_heads) ||
        llmq_str_printf(s, err, "            vocabulary %u, context %u, %s output head\n", h->n_vocab, h->ctx_len,
                        h->tied ? "tied" : "own") ||
        llmq_str_printf(s, err, "            rope %s, theta %g, factor %g; rms epsilon %g\n", rope_name(h->rope_type),
                        (double)h->rope_theta, (double)h->rope_factor, (double)h->rms_eps) ||
        llmq_str_printf(s, err, "tokens      begin %d, end", h->bos_id))
        return err->code;
    for (uint32_t i = 0; i < h->n_eos; i++)
        if (llmq_str_printf(s, err, " %d", h->eos_id[i]))
            return err->code;
    return llmq_str_printf(s, err, "%s\n", h->n_eos ? "" : " none");
}

static int text_shares(const struct llmq_file *f, struct llmq_str *s, struct llmq_err *err)
{
    struct totals t = count_totals(f);
    struct share  shares[MAX_SHARES];
    int           n = count_shares(f, shares);

    if (llmq_str_printf(s, err, "weights     %llu in %d tensors; matrices %.3f bits per weight\n",
                        (unsigned long long)t.weights, f->n_tensors, llmq_file_bits_per_weight(f)))
        return err->code;
    for (int i = 0; i < n; i++)
        if (llmq_str_printf(s, err, "            %-20s %5d tensors %14llu weights %14llu bytes\n", shares[i].scheme,
                            shares[i].tensors, (unsigned long long)shares[i].weights, (unsigned long long)shares[i].bytes))
            return err->code;
    return llmq_str_printf(s, err, "bytes       tensors %llu, sections %llu, other %llu (%.3f %%)\n",
                           (unsigned long long)t.tensor_bytes, (unsigned long long)t.text_bytes,
                           (unsigned long long)t.other_bytes, 100.0 * (double)t.other_bytes / (double)f->map.size);
}

static int text_sections(const struct llmq_file *f, struct llmq_str *s, struct llmq_err *err)
{
    for (int i = 0; i < f->n_sections; i++) {
        const struct disk_section *d = &f->sections[i].disk;

        if (llmq_str_printf(s, err, "%-12s%-20s %10llu bytes, %llu in the file%s\n", i ? "" : "sections", d->name,
                            (unsigned long long)d->bytes, (unsigned long long)d->stored_bytes,
                            f->sections[i].text ? "" : " (not known here)"))
            return err->code;
    }
    return 0;
}

struct dump {
    struct llmq_str *s;
    struct llmq_err *err;
};

static int dump_piece(const char *bytes, size_t len, void *ctx)
{
    struct dump *d = ctx;

    return llmq_str_append(d->s, bytes, len, d->err);
}

/* Appends j and a line end; takes over the reference. */
static int dump_json(json_t *j, struct llmq_str *s, struct llmq_err *err)
{
    struct dump d = {s, err};
    int         rc = json_dump_callback(j, dump_piece, &d, JSON_INDENT(2) | JSON_ENSURE_ASCII | JSON_ENCODE_ANY);

    json_decref(j);
    if (err->code)
        return err->code;
    return rc ? llmq_fail(err, LLMQ_ENOMEM, "no memory to print JSON") : llmq_str_append(s, "\n", 1, err);
}

static int text_provenance(const struct llmq_file *f, struct llmq_str *s, struct llmq_err *err)
{
    size_t          len;
    const char     *text = llmq_file_section(f, LLMQ_SECTION_PROVENANCE, &len);
    struct llmq_err bad = {0};
    json_t         *j;

    if (!len)
        return 0;
    if (llmq_json_parse(&j, text, len, len, "provenance", &bad))
        return llmq_str_printf(s, err, "provenance  not JSON\n");
    if (llmq_str_printf(s, err, "provenance\n")) {
        json_decref(j);
        return err->code;
    }
    return dump_json(j, s, err);
}

static void tensor_sum(const struct llmq_tensor *t, float *row, char out[65])
{
    struct llmq_sha256 h;

    llmq_sha256_init(&h);
    for (uint32_t o = 0; o < t->n; o++) {
        llmq_dequant_rows(t, o, 1, row);
        llmq_sha256_update(&h, row, (size_t)t->k * sizeof *row);
    }
    llmq_sha256_hex(&h, out);
}

static int text_tensor(const struct llmq_tensor *t, const char *sum, struct llmq_str *s, struct llmq_err *err)
{
    char label[64], scheme[32], rel[24] = "";

    file_label(t, label, sizeof label);
    llmq_scheme_name(&t->scheme, scheme, sizeof scheme);
    if (t->rel_err >= 0)
        snprintf(rel, sizeof rel, "%.5f", (double)t->rel_err);
    return llmq_str_printf(s, err, "%-24s %8u x %-8u %-18s %12llu %8s %s%s%s\n", label, t->n, t->k, scheme,
                           (unsigned long long)tensor_bytes(t), rel, sum, sum[0] ? " " : "", t->name);
}

static int text(const struct llmq_file *f, int what, float *row, struct llmq_str *s, struct llmq_err *err)
{
    char sum[65] = "";

    if (text_model(f, s, err) || text_shares(f, s, err) || text_sections(f, s, err) || text_provenance(f, s, err))
        return err->code;
    if (!(what & (LLMQ_DESCRIBE_TENSORS | LLMQ_DESCRIBE_SUMS)))
        return 0;
    if (llmq_str_printf(s, err, "\n%-24s %8s   %-8s %-18s %12s %8s %s\n", "tensor", "outputs", "inputs", "scheme", "bytes",
                        "rel_err", what & LLMQ_DESCRIBE_SUMS ? "sha256 of its floats, name" : "name"))
        return err->code;
    for (int i = 0; i < f->n_tensors; i++) {
        if (what & LLMQ_DESCRIBE_SUMS)
            tensor_sum(&f->tensors[i], row, sum);
        if (text_tensor(&f->tensors[i], sum, s, err))
            return err->code;
    }
    return 0;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *json_hparams(const struct llmq_hparams *h)
{
    json_t *eos = json_array();

    for (uint32_t i = 0; i < h->n_eos; i++)
        json_array_append_new(eos, json_integer(h->eos_id[i]));
    return json_pack(
        "{ss si si si si si si si si sb si si s{ss sf sf si sf sf sf} sf si so}", "arch", "llama", "n_layers", h->n_layers,
        "d_model", h->d_model, "n_heads", h->n_heads, "n_kv_heads", h->n_kv_heads, "head_dim", h->head_dim, "d_ff", h->d_ff,
        "n_vocab", h->n_vocab, "ctx_len", h->ctx_len, "tied", (int)h->tied, "attn_bias", h->attn_bias, "mlp_bias",
        h->mlp_bias, "rope", "type", rope_name(h->rope_type), "theta", (double)h->rope_theta, "factor",
        (double)h->rope_factor, "orig_ctx", h->rope_orig_ctx, "low", (double)h->rope_low, "high", (double)h->rope_high,
        "attn_factor", (double)h->rope_attn_factor, "rms_eps", (double)h->rms_eps, "bos_id", h->bos_id, "eos_id", eos);
}

static json_t *json_shares(const struct llmq_file *f)
{
    struct share shares[MAX_SHARES];
    int          n = count_shares(f, shares);
    json_t      *a = json_array();

    for (int i = 0; i < n; i++)
        json_array_append_new(a, json_pack("{ss si sI sI}", "scheme", shares[i].scheme, "tensors", shares[i].tensors,
                                           "weights", (json_int_t)shares[i].weights, "bytes", (json_int_t)shares[i].bytes));
    return a;
}

static json_t *json_sections(const struct llmq_file *f)
{
    json_t *a = json_array();

    for (int i = 0; i < f->n_sections; i++) {
        const struct disk_section *d = &f->sections[i].disk;

        json_array_append_new(a, json_pack("{ss sI sI sI}", "name", d->name, "id", (json_int_t)d->id, "bytes",
                                           (json_int_t)d->bytes, "stored_bytes", (json_int_t)d->stored_bytes));
    }
    return a;
}

static json_t *json_provenance(const struct llmq_file *f)
{
    size_t          len;
    const char     *text_ = llmq_file_section(f, LLMQ_SECTION_PROVENANCE, &len);
    struct llmq_err bad = {0};
    json_t         *j;

    if (!len || llmq_json_parse(&j, text_, len, len, "provenance", &bad))
        return json_null();
    return j;
}

static json_t *json_tensor(const struct llmq_file *f, int i, const char *sum)
{
    const struct llmq_tensor *t = &f->tensors[i];
    const struct disk_part   *p = f->entries[i].part;
    char                      scheme[32];
    json_t                   *j;

    llmq_scheme_name(&t->scheme, scheme, sizeof scheme);
    j = json_pack("{ss ss so so s[ii] ss si so sI sI sI sI}", "name", t->name, "role", llmq_role_name(t->role), "layer",
                  t->layer == LLMQ_NO_LAYER ? json_null() : json_integer(t->layer), "expert",
                  t->expert == LLMQ_NO_EXPERT ? json_null() : json_integer(t->expert), "shape", t->n, t->k, "scheme", scheme,
                  "layout", t->layout, "rel_err", t->rel_err < 0 ? json_null() : json_real((double)t->rel_err), "offset",
                  (json_int_t)p[0].offset, "data_bytes", (json_int_t)t->data_bytes, "scale_bytes",
                  (json_int_t)t->scale_bytes, "zero_bytes", (json_int_t)t->zero_bytes);
    if (j && sum[0])
        json_object_set_new(j, "sha256_f32", json_string(sum));
    return j;
}

static json_t *json_tensors(const struct llmq_file *f, int what, float *row)
{
    json_t *a = json_array();
    char    sum[65] = "";

    for (int i = 0; i < f->n_tensors; i++) {
        if (what & LLMQ_DESCRIBE_SUMS)
            tensor_sum(&f->tensors[i], row, sum);
        json_array_append_new(a, json_tensor(f, i, sum));
    }
    return a;
}

static json_t *json_file(const struct llmq_file *f, int what, float *row)
{
    struct totals t = count_totals(f);
    char          version[16];

    snprintf(version, sizeof version, "%u.%u", f->major, f->minor);
    return json_pack("{ss so sI s{sI sI sI} so so so so}", "format_version", version, "hparams", json_hparams(&f->hparams),
                     "weights", (json_int_t)t.weights, "bytes", "tensors", (json_int_t)t.tensor_bytes, "sections",
                     (json_int_t)t.text_bytes, "other", (json_int_t)t.other_bytes, "schemes", json_shares(f), "sections",
                     json_sections(f), "tensors", json_tensors(f, what, row), "provenance", json_provenance(f));
}

static int json(const struct llmq_file *f, int what, float *row, struct llmq_str *s, struct llmq_err *err)
{
    json_t *j = json_file(f, what, row);

    if (!j)
        return llmq_fail(err, LLMQ_ENOMEM, "%s: no memory for the listing", f->path);
    return dump_json(j, s, err);
}

int llmq_file_describe(const struct llmq_file *f, int what, struct llmq_str *s, struct llmq_err *err)
{
    uint32_t longest = 1;
    float   *row;
    int      rc;

    for (int i = 0; i < f->n_tensors; i++)
        longest = f->tensors[i].k > longest ? f->tensors[i].k : longest;
    if (LLMQ_NEW(&row, longest, "a row", err))
        return err->code;
    rc = what & LLMQ_DESCRIBE_JSON ? json(f, what, row, s, err) : text(f, what, row, s, err);
    llmq_free(row);
    return rc;
}

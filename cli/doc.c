/* What JSON documents and model arguments have in common: see doc.h. */
#include "cli/doc.h"

#include "cli/opt.h"
#include "cli/output.h"
#include "common/io.h"
#include "common/json.h"
#include "common/parallel.h"
#include "convert/foreign.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* What another kind of model file is called; NULL for none that is known. */
static const char *other_kind(const char *path)
{
    char  head[4] = {0};
    FILE *f;
    int   zip;

    switch (foreign_kind(path)) {
    case FOREIGN_GGUF: return "a GGUF file";
    case FOREIGN_SAFETENSORS: return "a safetensors file";
    default: break;
    }
    f = fopen(path, "rb");
    zip = f && fread(head, 1, sizeof head, f) == sizeof head && !memcmp(head, "PK\3\4", 4);
    if (f)
        fclose(f);
    return zip ? "a zip archive, perhaps of PyTorch" : NULL;
}

int doc_check_model_path(const char *path, struct llmq_err *err)
{
    const char *kind;
    struct stat st;

    if (stat(path, &st))
        return llmq_fail_errno(err, "%s", path);
    if (S_ISDIR(st.st_mode))
        return llmq_fail(err, LLMQ_EUSAGE, "%s is a directory, expected a .llmq file: `llmq convert` or `llmq quantize` makes one from it",
                         path);
    kind = S_ISREG(st.st_mode) ? other_kind(path) : NULL;
    if (kind)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: %s, expected a .llmq file", path, kind);
    return 0;
}

static int is_layer0_matrix(const struct llmq_tensor *t) { return t->layer == 0 && t->k > 1; }

/* Weights of layer 0 that are stored as t is. */
static uint64_t weights_like(const struct llmq_file *f, const struct llmq_tensor *t)
{
    uint64_t weights = 0;

    for (int i = 0; i < llmq_file_tensor_count(f); i++) {
        const struct llmq_tensor *u = llmq_file_tensor(f, i);

        if (is_layer0_matrix(u) && !memcmp(&u->scheme, &t->scheme, sizeof t->scheme))
            weights += (uint64_t)u->n * u->k;
    }
    return weights;
}

void doc_scheme(const struct llmq_file *f, char *out, size_t size)
{
    uint64_t most = 0;

    snprintf(out, size, "none");
    for (int i = 0; i < llmq_file_tensor_count(f); i++) {
        const struct llmq_tensor *t = llmq_file_tensor(f, i);

        if (is_layer0_matrix(t) && weights_like(f, t) > most) {
            most = weights_like(f, t);
            llmq_scheme_name(&t->scheme, out, size);
        }
    }
}

int doc_model(json_t **out, const struct llmq_file *f, int with_hash, struct llmq_err *err)
{
    char scheme[64], hash[65];

    *out = NULL;
    if (with_hash)
        llmq_file_sha256(f, hash);
    doc_scheme(f, scheme, sizeof scheme);
    *out = json_pack("{s:o, s:o, s:s, s:f, s:I}", "name", llmq_json_name(base_name(llmq_file_path(f))), "sha256",
                     with_hash ? json_string(hash) : json_null(), "scheme", scheme, "bits_per_weight", llmq_file_bits_per_weight(f),
                     "size_bytes", (json_int_t)llmq_file_size(f));
    return *out ? 0 : llmq_fail(err, LLMQ_ENOMEM, "out of memory for a JSON document");
}

json_t *doc_new(const char *schema, json_t *model, const char *isa, int exit_code)
{
    return json_pack("{s:s, s:s, s:o, s:i, s:s, s:s, s:I, s:i}", "schema", schema, "version", cli_version(), "model",
                     model ? model : json_null(), "threads", llmq_parallel_threads(), "isa", isa, "device", "cpu", "peak_rss_bytes",
                     (json_int_t)llmq_peak_rss_bytes(), "exit_code", exit_code);
}

json_t *doc_real(double x) { return x - x == 0 ? json_real(x) : json_null(); }

int doc_print(json_t *doc, struct llmq_err *err)
{
    int failed;

    if (!doc)
        return llmq_fail(err, LLMQ_ENOMEM, "out of memory for a JSON document");
    errno = 0;
    failed = json_dumpf(doc, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(12)) || fputc('\n', stdout) == EOF;
    json_decref(doc);
    return failed ? output_failed(err) : 0;
}

/* What was done, as JSON: the provenance section (only what is the same for equal inputs) and the report (times and
 * memory too). */
#include "quantize/method.h"

#include "common/json.h"
#include "common/str.h"
#include "runner/text/corpus.h"

#include <string.h>

const char *quantize_method_name(int method)
{
    static const char *const names[] = {[QUANTIZE_RTN] = "rtn", [QUANTIZE_AWQ] = "awq", [QUANTIZE_GPTQ] = "gptq",
                                        [QUANTIZE_AWQ | QUANTIZE_GPTQ] = "awq+gptq"};

    return names[method];
}

/* Takes doc over. */
static int dump(json_t *doc, struct llmq_str *out, struct llmq_err *err)
{
    int rc = doc ? llmq_json_text(doc, out, err) : llmq_fail(err, LLMQ_ENOMEM, "no memory for a JSON document");

    json_decref(doc);
    return rc;
}

/* -1 (not measured) is null. */
static json_t *measured(double x) { return x < 0 || !(x - x == 0) ? json_null() : json_real(x); }

static json_t *parsed(const char *text)
{
    return text ? json_loads(text, 0, NULL) : json_null();
}

static json_t *calibration(const struct quantize_options *o)
{
    const struct corpus *c = o->calib;
    json_int_t           tokens = 0;

    if (!c || o->method == QUANTIZE_RTN)
        return json_null();
    for (int i = 0; i < c->n_windows; i++)
        tokens += c->windows[i].len;
    return json_pack("{s:o, s:I, s:i, s:i, s:s?, s:s?, s:s, s:s}", "source",
                     o->calib_name ? llmq_json_name(o->calib_name) : json_null(), "tokens", tokens, "windows",
                     c->n_windows, "seqlen_tokens", c->ctx, "bos", c->bos, "packing", c->packing, "token_sha256",
                     c->token_sha256, "sha256", c->sha256);
}

static json_t *tensor(const struct quantize_tensor_report *t)
{
    char scheme[64];

    llmq_scheme_name(&t->scheme, scheme, sizeof scheme);
    return json_pack("{s:s, s:s, s:o, s:s, s:o, s:s, s:s}", "name", t->name ? t->name : "", "role", llmq_role_name(t->role),
                     "layer", t->layer == LLMQ_NO_LAYER ? json_null() : json_integer(t->layer), "scheme", scheme, "rel_err",
                     measured(t->rel_err), "source_sha256", t->source_sha256, "sha256", t->sha256);
}

/* The report adds what differs from run to run, and what the file states elsewhere. */
static json_t *tensor_in_full(const struct quantize_tensor_report *t)
{
    json_t *o = tensor(t);

    if (!o)
        return NULL;
    json_object_set_new(o, "expert", json_null());
    json_object_set_new(o, "shape", json_pack("[I, I]", (json_int_t)t->n, (json_int_t)t->k));
    json_object_set_new(o, "rtn_rel_err", measured(t->rtn_rel_err));
    json_object_set_new(o, "clip_rate", measured(t->clip_rate));
    json_object_set_new(o, "fallback", t->fallback ? json_string(t->fallback) : json_null());
    json_object_set_new(o, "size_bytes", json_integer((json_int_t)t->bytes));
    json_object_set_new(o, "seconds", json_real(t->seconds));
    return o;
}

static json_t *tensors(const struct quantize_report *r, json_t *(*one)(const struct quantize_tensor_report *))
{
    json_t *list = json_array();

    for (int i = 0; i < r->n_tensors; i++)
        json_array_append_new(list, one(&r->tensors[i]));
    return list;
}

static json_t *layers(const struct quantize_report *r)
{
    json_t *list = json_array();

    for (int i = 0; i < r->n_layers; i++)
        json_array_append_new(list, json_pack("{s:i, s:o, s:f}", "layer", i, "rel_err", measured(r->layers[i].rel_err), "seconds",
                                              r->layers[i].seconds));
    return list;
}

static json_t *warnings(const struct quantize_report *r)
{
    json_t *list = json_array();

    for (int i = 0; i < r->n_warnings; i++)
        json_array_append_new(list, json_string(r->warnings[i]));
    return list;
}

/* Members that both documents have. */
static json_t *common(struct llmq_source *src, const struct quantize_options *o, struct llmq_err *err)
{
    const char *files = src->files_json ? src->files_json(src, err) : NULL;

    if (err->code)
        return NULL;
    return json_pack("{s:s?, s:s, s:o, s:I, s:o, s:o}", "version", o->version, "method", quantize_method_name(o->method), "options",
                     parsed(o->command_json), "seed", (json_int_t)o->seed, "calibration", calibration(o), "source", parsed(files));
}

int provenance_json(const struct job *j, struct llmq_str *out, struct llmq_err *err)
{
    json_t *doc = common(j->src, j->o, err);

    if (err->code)
        return err->code;
    if (doc) {
        json_object_set_new(doc, "tool", json_string("llmq quantize"));
        json_object_set_new(doc, "tensors", tensors(j->rep, tensor));
    }
    return dump(doc, out, err);
}

int quantize_report_json(const struct quantize_report *r, struct llmq_source *src, const struct quantize_options *o,
                         struct llmq_str *out, struct llmq_err *err)
{
    json_t *doc = common(src, o, err);

    if (err->code)
        return err->code;
    if (doc) {
        json_object_set_new(doc, "schema", json_string("llmq.quantize/1"));
        json_object_set_new(doc, "tensors", tensors(r, tensor_in_full));
        json_object_set_new(doc, "layers", layers(r));
        json_object_set_new(doc, "kv", json_null());
        json_object_set_new(doc, "warnings", warnings(r));
        json_object_set_new(doc, "bits_per_weight", json_real(r->bits_per_weight));
        json_object_set_new(doc, "size_bytes", json_integer((json_int_t)r->size_bytes));
        json_object_set_new(doc, "peak_rss_bytes", json_integer((json_int_t)r->peak_bytes));
        json_object_set_new(doc, "dry_run", json_boolean(o->dry_run));
        json_object_set_new(doc, "wall_s", json_real(r->wall_s));
        json_object_set_new(doc, "cpu_s", json_real(r->cpu_s));
        json_object_set_new(doc, "eval", json_null());
    }
    return dump(doc, out, err);
}

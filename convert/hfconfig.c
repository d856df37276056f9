/* config.json as hyperparameters: see hfconfig.h.
 *
 * Two spellings are in use: transformers up to 4 wrote rope_theta and rope_scaling, 5 writes rope_parameters
 * with both inside.  torch_dtype and dtype are not read: each tensor states its own type.  Defaults are
 * transformers' where its configuration classes have had them since the first release; what a checkpoint
 * always states (sizes) is required. */
#include "convert/hfconfig.h"

#include "common/fmath.h"
#include "common/log.h"
#include "convert/convert.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_CONFIG = 16 << 20 };

/* A whole number in [1, INT32_MAX] (zero: not stated, when it need not be). */
static int get_u32(const json_t *obj, const char *key, int need, uint32_t *out, const char *where, struct llmq_err *err)
{
    int64_t v = -1;

    if (llmq_json_int(obj, key, need, &v, where, err))
        return err->code;
    if (!json_object_get(obj, key) || json_is_null(json_object_get(obj, key)))
        return 0;
    if (v < 1 || v > INT32_MAX)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: key \"%s\" is %lld, expected 1 to %d", where, key, (long long)v,
                         INT32_MAX);
    *out = (uint32_t)v;
    return 0;
}

static int get_positive(const json_t *obj, const char *key, int need, double *out, const char *where,
                        struct llmq_err *err)
{
    const json_t *v = json_object_get(obj, key);

    if (llmq_json_real(obj, key, need, out, where, err))
        return err->code;
    if (v && !json_is_null(v) && !(*out > 0 && *out < 1e30))
        return llmq_fail(err, LLMQ_EFORMAT, "%s: key \"%s\" is %g, expected a positive number", where, key, *out);
    return 0;
}

/* ---- what is not understood ------------------------------------------------------------------ */

/* Keys of the wider family that change the mathematics, and the number that leaves it unchanged.
 * null, false and an empty list or object never change it. */
static const struct {
    const char *key;
    double      neutral;
} unsupported[] = {
    {"partial_rotary_factor", 1},  {"embedding_multiplier", 1}, {"residual_multiplier", 1},  {"logits_scaling", 1},
    {"logit_scale", 1},            {"scale_emb", 1},            {"attention_multiplier", 0}, {"scale_depth", 0},
    {"attn_logit_softcapping", 0}, {"final_logit_softcapping", 0}, {"query_pre_attn_scalar", 0}, {"clip_qkv", 0},
    {"num_local_experts", 0},      {"num_experts", 0},          {"n_routed_experts", 0},     {"use_qk_norm", 0},
    {"qk_norm", 0},                {"qk_layernorm", 0},         {"no_rope_layers", 0},       {"use_parallel_residual", 0},
    {"alibi", 0},                  {"attention_sinks", 0},      {"kv_lora_rank", 0},
};

static int is_neutral(const json_t *v, double neutral)
{
    if (!v || json_is_null(v) || json_is_false(v))
        return 1;
    if (json_is_number(v))
        return json_number_value(v) == neutral;
    return (json_is_array(v) && !json_array_size(v)) || (json_is_object(v) && !json_object_size(v));
}

static int refuse_unsupported(const json_t *c, const char *where, struct llmq_err *err)
{
    const json_t *types = json_object_get(c, "layer_types");

    if (!is_neutral(json_object_get(c, "quantization_config"), 0) ||
        !is_neutral(json_object_get(c, "compression_config"), 0))
        return llmq_fail(err, LLMQ_EFORMAT,
                         "%s: the checkpoint is quantized already (\"quantization_config\"); expected one in F32, F16 or BF16",
                         where);
    for (size_t i = 0; i < sizeof unsupported / sizeof unsupported[0]; i++)
        if (!is_neutral(json_object_get(c, unsupported[i].key), unsupported[i].neutral))
            return llmq_fail(err, LLMQ_EFORMAT, "%s: key \"%s\" changes the model in a way that is not supported", where,
                             unsupported[i].key);
    for (size_t i = 0; json_is_array(types) && i < json_array_size(types); i++) {
        const char *t = json_string_value(json_array_get(types, i));

        if (!t || (strcmp(t, "full_attention") != 0 && strcmp(t, "sliding_attention") != 0))
            return llmq_fail(err, LLMQ_EFORMAT,
                             "%s: \"layer_types\" %zu is \"%.32s\", expected \"full_attention\" or \"sliding_attention\"", where, i,
                             t ? t : "?");
    }
    return 0;
}

/* ---- sliding windows --------------------------------------------------------------------------- */

/* Whether any layer has one, as transformers decides it. */
static int has_window(const json_t *c, const struct arch_family *f, const struct llmq_hparams *h, int *yes, const char *where,
                      struct llmq_err *err)
{
    const json_t *types = json_object_get(c, "layer_types");
    int64_t       full_layers = f->window_is_off ? 28 : 0; /* the first ones: Qwen2's default */

    *yes = !f->window_is_off;
    if (f->default_window && !f->window_is_off) /* Mistral: the number alone decides */
        return 0;
    if (llmq_json_bool(c, "use_sliding_window", LLMQ_JSON_OPTIONAL, yes, where, err) ||
        llmq_json_int(c, "max_window_layers", LLMQ_JSON_OPTIONAL, &full_layers, where, err))
        return err->code;
    if (f->window_is_off && full_layers >= (int64_t)h->n_layers)
        *yes = 0;
    if (!json_is_array(types))
        return 0;
    *yes = 0;
    for (size_t i = 0; i < json_array_size(types); i++)
        *yes |= !strcmp(json_string_value(json_array_get(types, i)), "sliding_attention");
    return 0;
}

/* Attention here sees the whole context.  A window cuts nothing off before it is full, so the context ends there. */
static int get_window(const json_t *c, const struct arch_family *f, struct llmq_hparams *h, const char *where, struct llmq_err *err)
{
    const json_t *stated = json_object_get(c, "sliding_window");
    int64_t       w = stated ? 0 : f->default_window;
    int           yes;

    if (has_window(c, f, h, &yes, where, err) ||
        (!json_is_false(stated) && llmq_json_int(c, "sliding_window", LLMQ_JSON_OPTIONAL, &w, where, err)))
        return err->code;
    if (w < 0)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: key \"sliding_window\" is %lld, expected at least 1", where, (long long)w);
    if (yes && w == 0 && json_is_array(json_object_get(c, "layer_types")))
        return llmq_fail(err, LLMQ_EFORMAT, "%s: \"layer_types\" names sliding attention, but \"sliding_window\" is missing", where);
    if (!yes || w == 0 || w >= (int64_t)h->ctx_len)
        return 0;
    if (llmq_hparams_max_ctx(h) > h->ctx_len)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: a sliding window of %lld tokens together with a RoPE scaling that makes the context longer is not supported",
                         where, (long long)w);
    llmq_log_line(LLMQ_LOG_WARN, "%s: layers attend to the last %lld tokens%s; the model is limited to a context of %lld, of %u that it states", where,
             (long long)w, stated ? "" : " (the default)", (long long)w, h->ctx_len);
    h->ctx_len = (uint32_t)w;
    return 0;
}

/* ---- rotary embedding ------------------------------------------------------------------------- */

static const struct {
    const char *name;
    uint32_t    type;
} rope_types[] = {
    {"default", LLMQ_ROPE_DEFAULT}, {"linear", LLMQ_ROPE_LINEAR}, {"dynamic", LLMQ_ROPE_DYNAMIC},
    {"llama3", LLMQ_ROPE_LLAMA3},   {"yarn", LLMQ_ROPE_YARN},
};

/* The object that describes scaling, in either spelling; NULL when there is none. */
static int rope_object(const json_t *c, const json_t **out, const char *where, struct llmq_err *err)
{
    const json_t *a = json_object_get(c, "rope_scaling"), *b = json_object_get(c, "rope_parameters");

    a = json_is_null(a) || (json_is_object(a) && !json_object_size(a)) ? NULL : a;
    b = json_is_null(b) || (json_is_object(b) && !json_object_size(b)) ? NULL : b;
    if (a && b && !json_equal(a, b))
        return llmq_fail(err, LLMQ_EFORMAT, "%s: \"rope_scaling\" and \"rope_parameters\" differ", where);
    *out = a ? a : b;
    if (*out && !json_is_object(*out))
        return llmq_fail(err, LLMQ_EFORMAT, "%s: \"%s\" is not an object", where, a ? "rope_scaling" : "rope_parameters");
    return 0;
}

static int rope_type(const json_t *r, struct llmq_hparams *h, const char *where, struct llmq_err *err)
{
    const char *name = "default";

    if (llmq_json_str(r, "type", LLMQ_JSON_OPTIONAL, &name, where, err) ||
        llmq_json_str(r, "rope_type", LLMQ_JSON_OPTIONAL, &name, where, err))
        return err->code;
    for (size_t i = 0; i < sizeof rope_types / sizeof rope_types[0]; i++)
        if (!strcmp(rope_types[i].name, name)) {
            h->rope_type = rope_types[i].type;
            return 0;
        }
    return llmq_fail(err, LLMQ_EFORMAT, "%s: unknown rope type \"%.32s\", known are default, linear, dynamic, llama3, yarn",
                     where, name);
}

/* A parameter that is not in this list would be left out of the mathematics in silence. */
static int rope_known_keys(const json_t *r, const char *where, struct llmq_err *err)
{
    static const char *const known[] = {"rope_type", "type", "rope_theta", "factor", "low_freq_factor",
                                        "high_freq_factor", "original_max_position_embeddings", "attention_factor",
                                        "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "finetuned"};
    const char *key;
    json_t     *v;

    json_object_foreach((json_t *)(uintptr_t)r, key, v) {
        size_t i, n = sizeof known / sizeof known[0];

        for (i = 0; i < n && strcmp(known[i], key) != 0; i++)
            ;
        if (i < n || json_is_null(v) || (!strcmp(key, "partial_rotary_factor") && json_number_value(v) == 1) ||
            (!strcmp(key, "truncate") && json_is_true(v)))
            continue;
        return llmq_fail(err, LLMQ_EFORMAT, "%s: rope parameter \"%.64s\" is not supported", where, key);
    }
    return 0;
}

/* The context before scaling: transformers takes the one beside the rope parameters first. */
static int rope_original(const json_t *c, const json_t *r, struct llmq_hparams *h, const char *where, struct llmq_err *err)
{
    h->rope_orig_ctx = h->ctx_len;
    if (get_u32(r, "original_max_position_embeddings", LLMQ_JSON_OPTIONAL, &h->rope_orig_ctx, where, err))
        return err->code;
    return get_u32(c, "original_max_position_embeddings", LLMQ_JSON_OPTIONAL, &h->rope_orig_ctx, where, err);
}

static int rope_llama3(const json_t *r, struct llmq_hparams *h, const char *where, struct llmq_err *err)
{
    double low = 0, high = 0;

    if (get_positive(r, "low_freq_factor", LLMQ_JSON_REQUIRED, &low, where, err) ||
        get_positive(r, "high_freq_factor", LLMQ_JSON_REQUIRED, &high, where, err))
        return err->code;
    h->rope_low = (float)low;
    h->rope_high = (float)high;
    return 0;
}

/* yarn's temperature for a context that is `factor` times as long (arXiv 2309.00071, equation 22). */
static double yarn_mscale(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * llmq_log(factor) + 1; }

static int rope_yarn(const json_t *r, struct llmq_hparams *h, const char *where, struct llmq_err *err)
{
    double factor = (double)h->ctx_len / h->rope_orig_ctx, slow = 1, fast = 32, att = 0, m = 0, m_all = 0;

    if (get_positive(r, "factor", LLMQ_JSON_OPTIONAL, &factor, where, err) ||
        get_positive(r, "beta_slow", LLMQ_JSON_OPTIONAL, &slow, where, err) ||
        get_positive(r, "beta_fast", LLMQ_JSON_OPTIONAL, &fast, where, err) ||
        get_positive(r, "attention_factor", LLMQ_JSON_OPTIONAL, &att, where, err) ||
        llmq_json_real(r, "mscale", LLMQ_JSON_OPTIONAL, &m, where, err) ||
        llmq_json_real(r, "mscale_all_dim", LLMQ_JSON_OPTIONAL, &m_all, where, err))
        return err->code;
    if (att == 0)
        att = m != 0 && m_all != 0 ? yarn_mscale(factor, m) / yarn_mscale(factor, m_all) : yarn_mscale(factor, 1);
    h->rope_factor = (float)factor;
    h->rope_low = (float)slow;
    h->rope_high = (float)fast;
    h->rope_attn_factor = (float)att;
    return 0;
}

static int rope_scaled(const json_t *c, const json_t *r, struct llmq_hparams *h, const char *where, struct llmq_err *err)
{
    double factor = 1;
    int    need = h->rope_type == LLMQ_ROPE_YARN ? LLMQ_JSON_OPTIONAL : LLMQ_JSON_REQUIRED;

    if (get_positive(r, "factor", need, &factor, where, err))
        return err->code;
    h->rope_factor = (float)factor;
    if (h->rope_type == LLMQ_ROPE_LINEAR)
        return 0;
    if (rope_original(c, r, h, where, err))
        return err->code;
    /* transformers scales `dynamic` from max_position_embeddings, whatever else is stated. */
    if (h->rope_type == LLMQ_ROPE_DYNAMIC)
        h->rope_orig_ctx = h->ctx_len;
    if (h->rope_type == LLMQ_ROPE_LLAMA3)
        return rope_llama3(r, h, where, err);
    return h->rope_type == LLMQ_ROPE_YARN ? rope_yarn(r, h, where, err) : 0;
}

static int get_rope(const json_t *c, struct llmq_hparams *h, const char *where, struct llmq_err *err)
{
    const json_t *r = NULL;
    double        theta = 10000;

    h->rope_factor = h->rope_attn_factor = 1;
    if (rope_object(c, &r, where, err) || get_positive(c, "rope_theta", LLMQ_JSON_OPTIONAL, &theta, where, err))
        return err->code;
    if (r && (rope_known_keys(r, where, err) || rope_type(r, h, where, err) ||
              get_positive(r, "rope_theta", LLMQ_JSON_OPTIONAL, &theta, where, err)))
        return err->code;
    h->rope_theta = (float)theta;
    return h->rope_type == LLMQ_ROPE_DEFAULT ? 0 : rope_scaled(c, r, h, where, err);
}

/* ---- sizes and flags --------------------------------------------------------------------------- */

static int get_family(const json_t *c, const char *where, const struct arch_family **f, struct llmq_err *err)
{
    const char *type = NULL;
    char        known[256];

    if (llmq_json_str(c, "model_type", LLMQ_JSON_REQUIRED, &type, where, err))
        return err->code;
    *f = arch_find(type);
    if (!*f)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: model_type \"%.64s\" is not known; known are %s", where, type,
                         arch_known(known, sizeof known));
    return 0;
}

static int get_sizes(const json_t *c, struct llmq_hparams *h, const char *where, struct llmq_err *err)
{
    if (get_u32(c, "hidden_size", LLMQ_JSON_REQUIRED, &h->d_model, where, err) ||
        get_u32(c, "intermediate_size", LLMQ_JSON_REQUIRED, &h->d_ff, where, err) ||
        get_u32(c, "num_hidden_layers", LLMQ_JSON_REQUIRED, &h->n_layers, where, err) ||
        get_u32(c, "num_attention_heads", LLMQ_JSON_REQUIRED, &h->n_heads, where, err) ||
        get_u32(c, "vocab_size", LLMQ_JSON_REQUIRED, &h->n_vocab, where, err) ||
        get_u32(c, "max_position_embeddings", LLMQ_JSON_REQUIRED, &h->ctx_len, where, err))
        return err->code;
    h->n_kv_heads = h->n_heads;
    if (get_u32(c, "num_key_value_heads", LLMQ_JSON_OPTIONAL, &h->n_kv_heads, where, err) ||
        get_u32(c, "head_dim", LLMQ_JSON_OPTIONAL, &h->head_dim, where, err))
        return err->code;
    if (!h->head_dim && h->d_model % h->n_heads != 0)
        return llmq_fail(err, LLMQ_EFORMAT,
                         "%s: hidden_size %u is no multiple of num_attention_heads %u, and \"head_dim\" is missing", where,
                         h->d_model, h->n_heads);
    if (!h->head_dim)
        h->head_dim = h->d_model / h->n_heads;
    return 0;
}

static int get_flags(const json_t *c, const struct arch_family *f, struct llmq_hparams *h, const char *where,
                     struct llmq_err *err)
{
    const char *act = "silu";
    double      eps = 0;
    int         attn = 0, mlp = 0, tied = 0;

    if (llmq_json_str(c, "hidden_act", LLMQ_JSON_OPTIONAL, &act, where, err) ||
        get_positive(c, "rms_norm_eps", LLMQ_JSON_REQUIRED, &eps, where, err) ||
        llmq_json_bool(c, "tie_word_embeddings", LLMQ_JSON_OPTIONAL, &tied, where, err) ||
        llmq_json_bool(c, "attention_bias", LLMQ_JSON_OPTIONAL, &attn, where, err) ||
        llmq_json_bool(c, "mlp_bias", LLMQ_JSON_OPTIONAL, &mlp, where, err))
        return err->code;
    if (strcmp(act, "silu") != 0 && strcmp(act, "swish") != 0)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: hidden_act is \"%.32s\", expected \"silu\"", where, act);
    h->rms_eps = (float)eps;
    h->tied = (uint32_t)tied;
    h->attn_bias = f->attn_bias | (attn && f->has_bias_keys ? 15 : 0);
    h->mlp_bias = mlp && f->has_bias_keys ? 7 : 0;
    return 0;
}

int hfconfig_hparams(const json_t *config, const char *where, struct llmq_hparams *h,
                     const struct arch_family **family, struct llmq_err *err)
{
    memset(h, 0, sizeof *h);
    h->bos_id = -1;
    if (!json_is_object(config))
        return llmq_fail(err, LLMQ_EFORMAT, "%s: not a JSON object", where);
    if (get_family(config, where, family, err) || refuse_unsupported(config, where, err) ||
        get_sizes(config, h, where, err) || get_flags(config, *family, h, where, err) ||
        get_rope(config, h, where, err) || get_window(config, *family, h, where, err))
        return err->code;
    h->arch = (*family)->arch;
    return llmq_hparams_check(h, where, err);
}

/* ---- special tokens ----------------------------------------------------------------------------- */

static int add_id(const json_t *v, const char *key, const char *where, int32_t *ids, uint32_t *n, uint32_t max,
                  struct llmq_err *err)
{
    json_int_t id = json_integer_value(v);

    if (!json_is_integer(v) || id < 0 || id > INT32_MAX)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: key \"%s\" is not a token id or a list of them", where, key);
    for (uint32_t i = 0; i < *n; i++)
        if (ids[i] == (int32_t)id)
            return 0;
    if (*n == max)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: key \"%s\" names more than %u tokens", where, key, max);
    ids[(*n)++] = (int32_t)id;
    return 0;
}

/* An id, a list of ids, or nothing. */
static int ids_of(const json_t *doc, const char *key, const char *where, int32_t *ids, uint32_t *n, uint32_t max,
                  struct llmq_err *err)
{
    const json_t *v = doc ? json_object_get(doc, key) : NULL;

    if (!v || json_is_null(v))
        return 0;
    if (!json_is_array(v))
        return add_id(v, key, where, ids, n, max, err);
    for (size_t i = 0; i < json_array_size(v); i++)
        if (add_id(json_array_get(v, i), key, where, ids, n, max, err))
            return err->code;
    return 0;
}

/* tokenizer_config.json's token: a string, or an object with its "content". */
static int id_by_text(const struct hfconfig_docs *d, const char *key, int32_t *ids, uint32_t *n, struct llmq_err *err)
{
    static const char where[] = "tokenizer_config.json";
    const json_t     *v = d->tokenizer ? json_object_get(d->tokenizer, key) : NULL;
    const char       *text, *end, *id_text;
    json_t           *entry;

    if (json_is_object(v))
        v = json_object_get(v, "content");
    if (!v || json_is_null(v))
        return 0;
    if (!json_is_string(v))
        return llmq_fail(err, LLMQ_EFORMAT, "%s: key \"%s\" is not a string", where, key);
    text = json_string_value(v);
    json_object_foreach(json_object_get(d->tokenizer, "added_tokens_decoder"), id_text, entry) {
        int32_t id = 0;

        if (!json_equal(json_object_get(entry, "content"), v))
            continue;
        for (end = id_text; *end >= '0' && *end <= '9' && id < INT32_MAX / 10 - 1; end++)
            id = id * 10 + (*end - '0');
        if (*end || end == id_text)
            return llmq_fail(err, LLMQ_EFORMAT, "%s: added_tokens_decoder: \"%.32s\" is not a token id", where, id_text);
        ids[(*n)++] = id;
        return 0;
    }
    ids[0] = d->token_id ? d->token_id(d->ctx, text, json_string_length(v)) : -1;
    if (ids[0] < 0)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: \"%s\" is \"%.64s\", which is no token of the tokenizer", where, key, text);
    *n = 1;
    return 0;
}

static int first_named(const struct hfconfig_docs *d, const char *id_key, const char *text_key, int32_t *ids, uint32_t *n,
                       uint32_t max, struct llmq_err *err)
{
    *n = 0;
    if (ids_of(d->generation, id_key, "generation_config.json", ids, n, max, err))
        return err->code;
    if (!*n && ids_of(d->config, id_key, "config.json", ids, n, max, err))
        return err->code;
    return *n ? 0 : id_by_text(d, text_key, ids, n, err);
}

int hfconfig_special_tokens(const struct hfconfig_docs *d, struct llmq_hparams *h, struct llmq_err *err)
{
    uint32_t n_bos;
    int32_t  bos;

    if (first_named(d, "eos_token_id", "eos_token", h->eos_id, &h->n_eos, LLMQ_MAX_EOS, err) ||
        first_named(d, "bos_token_id", "bos_token", &bos, &n_bos, 1, err))
        return err->code;
    h->bos_id = n_bos ? bos : -1;
    for (uint32_t i = 0; i < h->n_eos; i++)
        if ((uint32_t)h->eos_id[i] >= h->n_vocab)
            return llmq_fail(err, LLMQ_EFORMAT, "the end token is %d, but the vocabulary has %u rows", h->eos_id[i], h->n_vocab);
    if (n_bos && (uint32_t)bos >= h->n_vocab)
        return llmq_fail(err, LLMQ_EFORMAT, "the begin token is %d, but the vocabulary has %u rows", bos, h->n_vocab);
    return 0;
}

/* ---- a configuration alone ----------------------------------------------------------------------- */

int convert_config(const char *path, struct llmq_hparams *h, struct llmq_err *err)
{
    const struct arch_family *family;
    char                      in_dir[PATH_MAX];
    struct stat               st;
    json_t                   *config;
    int                       rc;

    if (stat(path, &st) < 0)
        return llmq_fail_errno(err, "%s", path);
    if (S_ISDIR(st.st_mode)) {
        if ((size_t)snprintf(in_dir, sizeof in_dir, "%s/config.json", path) >= sizeof in_dir)
            return llmq_fail(err, LLMQ_EUSAGE, "%s: too long a path", path);
        if (access(in_dir, F_OK) < 0 && errno == ENOENT)
            return llmq_fail(err, LLMQ_EFORMAT, "%s: config.json is missing, expected a Hugging Face checkpoint's directory", path);
        path = in_dir;
    }
    if (llmq_json_load(&config, path, MAX_CONFIG, err))
        return err->code;
    rc = hfconfig_hparams(config, path, h, &family, err);
    json_decref(config);
    return rc;
}

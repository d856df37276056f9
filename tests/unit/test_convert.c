/* convert/: safetensors headers, config.json in its spellings, special tokens, tensor names. */
#include "common/alloc.h"
#include "common/json.h"
#include "common/log.h"
#include "common/rng.h"
#include "convert/arch.h"
#include "convert/convert.h"
#include "convert/hfconfig.h"
#include "convert/safetensors.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- safetensors ------------------------------------------------------------------------------- */

static char message[512];

/* Parses a header in a file with data_bytes behind it; the number of tensors, or the error's code. */
static int header(const char *json, uint64_t data_bytes)
{
    struct llmq_arena          arena = {0};
    struct safetensors_tensor *t;
    struct llmq_err            err = {0};
    int                        n, rc;

    rc = safetensors_parse(json, strlen(json), 8 + strlen(json) + data_bytes, "f", 0, &arena, &t, &n, &err);
    snprintf(message, sizeof message, "%s", err.text);
    llmq_arena_free(&arena);
    return rc ? rc : n;
}

START_TEST(headers_that_are_legal)
{
    ck_assert_int_eq(header("{}", 0), 0);
    ck_assert_int_eq(header("{\"__metadata__\":{}}   ", 0), 0);
    ck_assert_int_eq(header("{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4), 1);
    /* Empty tensors may stand anywhere, and the order in the JSON means nothing. */
    ck_assert_int_eq(header("{\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
                            "\"z\":{\"dtype\":\"F16\",\"shape\":[0,9],\"data_offsets\":[4,4]},"
                            "\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
                            16),
                     3);
    ck_assert_int_eq(header("{\"a\":{\"dtype\":\"F4\",\"shape\":[3,2],\"data_offsets\":[0,3]}}", 3), 1);
}
END_TEST

static const struct {
    const char *json;
    uint64_t    data;
    const char *say;
} bad_headers[] = {
    {"", 0, "line 1"},
    {"[]", 0, "not a JSON object"},
    {"{\"a\":7}", 0, "not an object"},
    {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "\"dtype\" is missing"},
    {"{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "expected a string"},
    {"{\"a\":{\"dtype\":\"Q8\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "unknown element type \"Q8\""},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "\"shape\" is missing"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "dimension 0"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}}", 4, "dimension 0"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "\"data_offsets\" is not two integers"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4, "\"data_offsets\" is not two integers"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4, "expected 0 <= begin <= end"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "expected 0 <= begin <= end"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,9223372036854775807]}}", 4, "truncated"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,18446744073709551620]}}", 4, "too big integer"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "4 bytes, expected [2] of F32"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]}}", 4, "too large to exist"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", 0, "0 bytes, expected"},
    {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2, "2 bytes, expected [3] of F4"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", 1, "9 dimensions"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}", 3, "belong to none"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 3, "end at byte 2"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
     3, "tensor b begins at byte 1 of the data, inside tensor a"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
     0, "duplicate key \"a\""},
    {"{\"\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0, "name has 0 bytes"},
    {"{\"__metadata__\":[]}", 0, "\"__metadata__\" is not an object"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "\"__metadata__\": the value of \"a\""},
};

START_TEST(headers_that_are_refused)
{
    for (size_t i = 0; i < sizeof bad_headers / sizeof bad_headers[0]; i++) {
        ck_assert_msg(header(bad_headers[i].json, bad_headers[i].data) == LLMQ_EFORMAT, "accepted: %s", bad_headers[i].json);
        ck_assert_msg(strstr(message, bad_headers[i].say) != NULL, "'%s' lacks '%s'", message, bad_headers[i].say);
    }
}
END_TEST

/* Whatever the bytes are: no crash, and what is accepted lies in the file. */
START_TEST(mangled_headers)
{
    static const char good[] = "{\"__metadata__\":{\"format\":\"pt\"},\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
                               "\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}";
    struct llmq_rng   rng;

    llmq_rng_seed(&rng, 7);
    for (int i = 0; i < 20000; i++) {
        char                       text[sizeof good];
        struct llmq_arena          arena = {0};
        struct safetensors_tensor *t;
        struct llmq_err            err = {0};
        int                        n, flips = 1 + (int)(llmq_rng_next(&rng) % 3);

        memcpy(text, good, sizeof good);
        while (flips--)
            text[llmq_rng_next(&rng) % (sizeof good - 1)] = "0123456789,:[]{}\"-.eUFB\\ \n"[llmq_rng_next(&rng) % 26];
        if (!safetensors_parse(text, sizeof good - 1, 8 + sizeof good - 1 + 16, "f", 0, &arena, &t, &n, &err))
            for (int j = 0; j < n; j++)
                ck_assert_uint_le(t[j].offset + t[j].bytes, 8 + sizeof good - 1 + 16);
        llmq_arena_free(&arena);
    }
}
END_TEST

/* ---- names --------------------------------------------------------------------------------------- */

START_TEST(names_and_places)
{
    const struct arch_family *f = arch_find("llama");
    char                      name[128];
    int                       role, layer;

    ck_assert_ptr_nonnull(f);
    ck_assert_ptr_null(arch_find("llama2"));
    ck_assert_int_eq(arch_role(f, "model.layers.17.self_attn.k_proj.weight", &role, &layer), 0);
    ck_assert_int_eq(role, LLMQ_ROLE_ATTN_K);
    ck_assert_int_eq(layer, 17);
    ck_assert_str_eq(arch_spell(f, role, layer, name, sizeof name), "model.layers.17.self_attn.k_proj.weight");
    ck_assert_int_eq(arch_role(f, "model.norm.weight", &role, &layer), 0);
    ck_assert_int_eq(layer, LLMQ_NO_LAYER);
    ck_assert_int_eq(arch_role(f, "model.layers.01.self_attn.k_proj.weight", &role, &layer), -1);
    ck_assert_int_eq(arch_role(f, "model.layers.-1.self_attn.k_proj.weight", &role, &layer), -1);
    ck_assert_int_eq(arch_role(f, "model.layers.99999.self_attn.k_proj.weight", &role, &layer), -1);
    ck_assert_int_eq(arch_role(f, "model.layers..self_attn.k_proj.weight", &role, &layer), -1);
    ck_assert_int_eq(arch_role(f, "model.layers.1.self_attn.k_proj.weight2", &role, &layer), -1);
    ck_assert(arch_harmless(f, "model.layers.3.self_attn.rotary_emb.inv_freq"));
    ck_assert(!arch_harmless(f, "model.layers.3.self_attn.q_norm.weight"));
}
END_TEST

/* ---- config.json ------------------------------------------------------------------------------------ */

#define SIZES                                                                                                      \
    "\"model_type\":\"llama\",\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":2,"               \
    "\"num_attention_heads\":4,\"vocab_size\":300,\"max_position_embeddings\":512,\"rms_norm_eps\":1e-5"

static int config(const char *text, struct llmq_hparams *h)
{
    const struct arch_family *f;
    struct llmq_err           err = {0};
    json_t                   *j;
    int                       rc;

    ck_assert_int_eq(llmq_json_parse(&j, text, strlen(text), 1 << 20, "config.json", &err), 0);
    rc = hfconfig_hparams(j, "config.json", h, &f, &err);
    snprintf(message, sizeof message, "%s", err.text);
    json_decref(j);
    return rc;
}

START_TEST(defaults)
{
    struct llmq_hparams h;

    ck_assert_int_eq(config("{" SIZES "}", &h), 0);
    ck_assert_uint_eq(h.n_kv_heads, 4);
    ck_assert_uint_eq(h.head_dim, 16);
    ck_assert_uint_eq(h.tied, 0);
    ck_assert_uint_eq(h.attn_bias | h.mlp_bias, 0);
    ck_assert_float_eq(h.rope_theta, 10000);
    ck_assert_float_eq(h.rms_eps, 1e-5f);
    ck_assert_uint_eq(h.rope_type, LLMQ_ROPE_DEFAULT);
    ck_assert_uint_eq(h.rope_orig_ctx, 0);
    ck_assert_int_eq(h.bos_id, -1);
    /* null is absent */
    ck_assert_int_eq(config("{" SIZES ",\"num_key_value_heads\":null,\"head_dim\":null,\"rope_scaling\":null,"
                            "\"sliding_window\":null,\"quantization_config\":null}",
                            &h),
                     0);
    ck_assert_int_eq(config("{" SIZES ",\"num_key_value_heads\":2,\"head_dim\":24,\"attention_bias\":true,"
                            "\"mlp_bias\":true,\"tie_word_embeddings\":true}",
                            &h),
                     0);
    ck_assert_uint_eq(h.n_kv_heads, 2);
    ck_assert_uint_eq(h.head_dim, 24);
    ck_assert_uint_eq(h.attn_bias, 15);
    ck_assert_uint_eq(h.mlp_bias, 7);
    ck_assert_uint_eq(h.tied, 1);
}
END_TEST

START_TEST(rope_in_both_spellings)
{
    struct llmq_hparams a, b;

    ck_assert_int_eq(config("{" SIZES ",\"rope_theta\":5e5,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,"
                            "\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,\"original_max_position_embeddings\":128}}",
                            &a),
                     0);
    ck_assert_int_eq(config("{" SIZES ",\"rope_parameters\":{\"rope_theta\":500000,\"rope_type\":\"llama3\",\"factor\":8,"
                            "\"low_freq_factor\":1,\"high_freq_factor\":4,\"original_max_position_embeddings\":128}}",
                            &b),
                     0);
    ck_assert_int_eq(memcmp(&a, &b, sizeof a), 0);
    ck_assert_uint_eq(a.rope_type, LLMQ_ROPE_LLAMA3);
    ck_assert_float_eq(a.rope_theta, 500000);
    ck_assert_float_eq(a.rope_factor, 8);
    ck_assert_float_eq(a.rope_low, 1);
    ck_assert_float_eq(a.rope_high, 4);
    ck_assert_uint_eq(a.rope_orig_ctx, 128);
    /* the older key for the type */
    ck_assert_int_eq(config("{" SIZES ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}", &a), 0);
    ck_assert_uint_eq(a.rope_type, LLMQ_ROPE_LINEAR);
    ck_assert_uint_eq(a.rope_orig_ctx, 0);
    ck_assert_int_eq(config("{" SIZES ",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}}", &a), 0);
    ck_assert_uint_eq(a.rope_orig_ctx, 512);
}
END_TEST

START_TEST(yarn_temperature)
{
    struct llmq_hparams h;

    ck_assert_int_eq(config("{" SIZES ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,"
                            "\"original_max_position_embeddings\":128}}",
                            &h),
                     0);
    ck_assert_float_eq_tol(h.rope_attn_factor, 1.138629436f, 1e-6f); /* 0.1 ln 4 + 1 */
    ck_assert_float_eq(h.rope_low, 1);
    ck_assert_float_eq(h.rope_high, 32);
    ck_assert_int_eq(config("{" SIZES ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,\"mscale\":1,"
                            "\"mscale_all_dim\":1,\"beta_fast\":16,\"beta_slow\":2}}",
                            &h),
                     0);
    ck_assert_float_eq(h.rope_attn_factor, 1);
    ck_assert_float_eq(h.rope_low, 2);
    ck_assert_float_eq(h.rope_high, 16);
    ck_assert_uint_eq(h.rope_orig_ctx, 512);
    ck_assert_int_eq(config("{" SIZES ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"original_max_position_embeddings\":128}}", &h), 0);
    ck_assert_float_eq(h.rope_factor, 4);
}
END_TEST

START_TEST(configs_that_are_refused)
{
    static const struct {
        const char *text, *say;
    } bad[] = {
        {"[]", "not a JSON object"},
        {"{}", "\"model_type\" is missing"},
        {"{\"model_type\":\"quokka\"}", "\"quokka\" is not known; known are llama, mistral, qwen2"},
        {"{\"model_type\":\"llama\"}", "\"hidden_size\" is missing"},
        {"{" SIZES ",\"hidden_act\":\"gelu\"}", "hidden_act is \"gelu\""},
        {"{" SIZES ",\"num_key_value_heads\":3}", "n_kv_heads"},
        {"{" SIZES ",\"num_key_value_heads\":0}", "\"num_key_value_heads\" is 0"},
        {"{" SIZES ",\"head_dim\":-1}", "\"head_dim\" is -1"},
        {"{" SIZES ",\"head_dim\":15}", "head_dim"},
        {"{" SIZES ",\"head_dim\":99999999999}", "\"head_dim\" is 99999999999"},
        {"{" SIZES ",\"quantization_config\":{\"bits\":4}}", "quantized already"},
        {"{" SIZES ",\"sliding_window\":-1}", "\"sliding_window\" is -1"},
        {"{" SIZES ",\"sliding_window\":128,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":256}}",
         "a sliding window of 128 tokens together with"},
        {"{" SIZES ",\"partial_rotary_factor\":0.5}", "partial_rotary_factor"},
        {"{" SIZES ",\"num_local_experts\":8}", "num_local_experts"},
        {"{" SIZES ",\"layer_types\":[\"full_attention\",\"sliding_attention\"]}", "\"sliding_window\" is missing"},
        {"{" SIZES ",\"layer_types\":[\"full_attention\",\"linear_attention\"]}", "\"layer_types\" 1 is \"linear_attention\""},
        {"{" SIZES ",\"rope_scaling\":{\"rope_type\":\"longrope\",\"factor\":2}}", "unknown rope type \"longrope\""},
        {"{" SIZES ",\"rope_scaling\":{\"rope_type\":\"linear\"}}", "\"factor\" is missing"},
        {"{" SIZES ",\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":0}}", "\"factor\" is 0"},
        {"{" SIZES ",\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":2,\"short_factor\":[1]}}", "short_factor"},
        {"{" SIZES ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":2}}", "\"low_freq_factor\" is missing"},
        {"{" SIZES ",\"rope_scaling\":7}", "\"rope_scaling\" is not an object"},
        {"{" SIZES ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2},\"rope_parameters\":{\"rope_theta\":1e4}}", "differ"},
        {"{" SIZES ",\"tie_word_embeddings\":1}", "expected true or false"},
    };
    struct llmq_hparams h;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ck_assert_msg(config(bad[i].text, &h) == LLMQ_EFORMAT, "accepted: %s", bad[i].text);
        ck_assert_msg(strstr(message, bad[i].say) != NULL, "'%s' lacks '%s'", message, bad[i].say);
    }
}
END_TEST

/* A context ends where a window would begin to cut. */
START_TEST(windows_bound_the_context)
{
#define FAMILY(type, more)                                                                                      \
    "{\"model_type\":\"" type "\",\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":2,\"num_attention_heads\":4," \
    "\"vocab_size\":300,\"max_position_embeddings\":8192,\"rms_norm_eps\":1e-5" more "}"
    static const struct { const char *text; uint32_t ctx; } known[] = {
        {"{" SIZES ",\"sliding_window\":128}", 128},
        {"{" SIZES ",\"sliding_window\":512}", 512},
        {"{" SIZES ",\"sliding_window\":64,\"use_sliding_window\":false}", 512},
        {"{" SIZES ",\"sliding_window\":64,\"layer_types\":[\"full_attention\",\"full_attention\"]}", 512},
        {"{" SIZES ",\"sliding_window\":64,\"layer_types\":[\"full_attention\",\"sliding_attention\"]}", 64},
        {FAMILY("mistral", ""), 4096},                          /* transformers' default when the key is absent */
        {FAMILY("mistral", ",\"sliding_window\":null"), 8192}, /* none */
        {FAMILY("mistral", ",\"sliding_window\":64,\"use_sliding_window\":false"), 64}, /* not a key of Mistral's */
        {FAMILY("qwen2", ""), 8192},                            /* off unless it is on */
        {FAMILY("qwen2", ",\"sliding_window\":32"), 8192},
        {FAMILY("qwen2", ",\"sliding_window\":32,\"use_sliding_window\":true"), 8192}, /* the first 28 layers have none */
        {FAMILY("qwen2", ",\"sliding_window\":32,\"use_sliding_window\":true,\"max_window_layers\":1"), 32},
    };
    struct llmq_hparams h;

    llmq_log_set_level(LLMQ_LOG_ERROR);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        ck_assert_msg(!config(known[i].text, &h), "%s: %s", known[i].text, message);
        ck_assert_msg(h.ctx_len == known[i].ctx, "%s: %u", known[i].text, h.ctx_len);
        ck_assert_uint_eq(h.attn_bias, strstr(known[i].text, "qwen2") ? 7 : 0);
    }
    llmq_log_set_level(LLMQ_LOG_INFO);
}
END_TEST

/* Qwen2.5's 32,768 tokens become 131,072 with YaRN; a context that is stated long already stays. */
START_TEST(stretched_contexts)
{
    struct llmq_hparams h;

    ck_assert(!config(FAMILY("qwen2", ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4.0,\"original_max_position_embeddings\":8192}"), &h));
    ck_assert_uint_eq(h.ctx_len, 8192);
    ck_assert_uint_eq(llmq_hparams_max_ctx(&h), 32768);
    ck_assert(!config(FAMILY("llama", ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4.0,\"original_max_position_embeddings\":2048}"), &h));
    ck_assert_uint_eq(llmq_hparams_max_ctx(&h), 8192);
    ck_assert(!config(FAMILY("llama", ",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2.0}"), &h));
    ck_assert_uint_eq(llmq_hparams_max_ctx(&h), 16384);
    ck_assert(!config(FAMILY("llama", ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.0}"), &h));
    ck_assert_uint_eq(llmq_hparams_max_ctx(&h), 8192);
}
END_TEST

/* ---- special tokens ----------------------------------------------------------------------------------- */

static int32_t lookup(void *ctx, const char *text, size_t len)
{
    (void)ctx;
    return len == 3 && !memcmp(text, "<e>", 3) ? 42 : -1;
}

static int tokens(const char *generation, const char *main_config, const char *tokenizer, struct llmq_hparams *h)
{
    struct llmq_err      err = {0};
    json_t              *j[3] = {NULL, NULL, NULL};
    const char          *text[3] = {generation, main_config, tokenizer};
    struct hfconfig_docs d = {.token_id = lookup};
    int                  rc;

    for (int i = 0; i < 3; i++)
        if (text[i])
            ck_assert_int_eq(llmq_json_parse(&j[i], text[i], strlen(text[i]), 1 << 20, "x", &err), 0);
    d.generation = j[0];
    d.config = j[1];
    d.tokenizer = j[2];
    memset(h, 0, sizeof *h);
    h->n_vocab = 100;
    rc = hfconfig_special_tokens(&d, h, &err);
    snprintf(message, sizeof message, "%s", err.text);
    for (int i = 0; i < 3; i++)
        json_decref(j[i]);
    return rc;
}

START_TEST(the_first_file_that_names_an_end_token_counts)
{
    struct llmq_hparams h;

    ck_assert_int_eq(tokens("{\"eos_token_id\":[3,4,3]}", "{\"eos_token_id\":2,\"bos_token_id\":1}", NULL, &h), 0);
    ck_assert_uint_eq(h.n_eos, 2);
    ck_assert_int_eq(h.eos_id[0], 3);
    ck_assert_int_eq(h.eos_id[1], 4);
    ck_assert_int_eq(h.bos_id, 1);
    /* SmolLM2: its tokenizer_config names another token than its config */
    ck_assert_int_eq(tokens("{\"eos_token_id\":null}", "{\"eos_token_id\":2}", "{\"eos_token\":\"<e>\"}", &h), 0);
    ck_assert_int_eq(h.eos_id[0], 2);
    ck_assert_int_eq(tokens(NULL, "{}", "{\"eos_token\":\"<e>\"}", &h), 0);
    ck_assert_int_eq(h.eos_id[0], 42);
    ck_assert_int_eq(h.bos_id, -1);
    ck_assert_int_eq(tokens(NULL, "{}", "{\"eos_token\":{\"content\":\"<x>\"},\"added_tokens_decoder\":{\"7\":{\"content\":\"<x>\"}}}", &h), 0);
    ck_assert_int_eq(h.eos_id[0], 7);
    ck_assert_int_eq(tokens(NULL, "{}", NULL, &h), 0);
    ck_assert_uint_eq(h.n_eos, 0);
}
END_TEST

START_TEST(end_tokens_that_are_refused)
{
    struct llmq_hparams h;

    ck_assert_int_eq(tokens("{\"eos_token_id\":100}", "{}", NULL, &h), LLMQ_EFORMAT);
    ck_assert_int_eq(tokens("{\"eos_token_id\":-1}", "{}", NULL, &h), LLMQ_EFORMAT);
    ck_assert_int_eq(tokens("{\"eos_token_id\":\"2\"}", "{}", NULL, &h), LLMQ_EFORMAT);
    ck_assert_int_eq(tokens("{\"eos_token_id\":[1,2,3,4,5,6,7,8,9]}", "{}", NULL, &h), LLMQ_EFORMAT);
    ck_assert_int_eq(tokens(NULL, "{}", "{\"eos_token\":\"<none>\"}", &h), LLMQ_EFORMAT);
    ck_assert_ptr_nonnull(strstr(message, "<none>"));
    ck_assert_int_eq(tokens(NULL, "{}", "{\"eos_token\":\"<x>\",\"added_tokens_decoder\":{\"999999999999\":{\"content\":\"<x>\"}}}", &h),
                     LLMQ_EFORMAT);
}
END_TEST

/* ---- a whole checkpoint --------------------------------------------------------------------------------- */

static void put(const char *dir, const char *name, const void *bytes, size_t len)
{
    char  path[600];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(bytes, 1, len, f), len);
    ck_assert_int_eq(fclose(f), 0);
}

static void add_tensor(char *header, size_t size, float *data, size_t *n, const char *name, int rows, int cols)
{
    size_t at = strlen(header), count = (size_t)(cols ? rows * cols : rows);
    char   shape[32];

    snprintf(shape, sizeof shape, cols ? "%d,%d" : "%d", rows, cols);
    snprintf(header + at, size - at, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}", at > 1 ? "," : "", name,
             shape, *n * 4, (*n + count) * 4);
    for (size_t i = 0; i < count; i++, ++*n)
        data[*n] = (float)*n / 64;
}

/* One layer, four tokens; the weights count up in sixty-fourths. */
static const char *tiny_checkpoint(void)
{
    static const char config_text[] =
        "{\"model_type\":\"llama\",\"hidden_size\":4,\"intermediate_size\":6,\"num_hidden_layers\":1,\"num_attention_heads\":2,"
        "\"vocab_size\":4,\"max_position_embeddings\":16,\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":true,\"eos_token_id\":3}";
    static const char tokenizer_text[] =
        "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[],\"normalizer\":null,"
        "\"pre_tokenizer\":null,\"post_processor\":null,\"decoder\":null,\"model\":{\"type\":\"BPE\",\"dropout\":null,"
        "\"unk_token\":null,\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"fuse_unk\":false,"
        "\"byte_fallback\":false,\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"c\":3},\"merges\":[[\"a\",\"b\"]]}}";
    static const struct { const char *name; int rows, cols; } shape[] = {
        {"model.embed_tokens.weight", 4, 4}, {"model.norm.weight", 4, 0},
        {"model.layers.0.input_layernorm.weight", 4, 0}, {"model.layers.0.post_attention_layernorm.weight", 4, 0},
        {"model.layers.0.self_attn.q_proj.weight", 4, 4}, {"model.layers.0.self_attn.k_proj.weight", 4, 4},
        {"model.layers.0.self_attn.v_proj.weight", 4, 4}, {"model.layers.0.self_attn.o_proj.weight", 4, 4},
        {"model.layers.0.mlp.gate_proj.weight", 6, 4}, {"model.layers.0.mlp.up_proj.weight", 6, 4},
        {"model.layers.0.mlp.down_proj.weight", 4, 6}};
    static char dir[512], file[16384];
    char        header_text[4096] = "{";
    float       data[256];
    size_t      n = 0, len;
    uint64_t    header_len;

    snprintf(dir, sizeof dir, "%s", unit_tmp("checkpoint"));
    mkdir(dir, 0700);
    put(dir, "config.json", config_text, strlen(config_text));
    put(dir, "tokenizer.json", tokenizer_text, strlen(tokenizer_text));
    for (size_t i = 0; i < sizeof shape / sizeof shape[0]; i++)
        add_tensor(header_text, sizeof header_text - 2, data, &n, shape[i].name, shape[i].rows, shape[i].cols);
    len = strlen(header_text);
    header_text[len++] = '}';
    header_len = len;
    memcpy(file, &header_len, 8);
    memcpy(file + 8, header_text, len);
    memcpy(file + 8 + len, data, n * 4);
    put(dir, "model.safetensors", file, 8 + len + n * 4);
    return dir;
}

START_TEST(a_checkpoint_becomes_a_source_and_a_file)
{
    struct llmq_err        err = {0};
    struct convert_options o = {.dtype = LLMQ_DTYPE_BF16};
    struct llmq_source    *s;
    struct llmq_file      *f;
    float                  row[4];
    char                   path[512];
    size_t                 len;

    ck_assert_msg(!convert_open(&s, tiny_checkpoint(), &err), "%s", err.text);
    ck_assert_int_eq(s->n_tensors, 11);
    ck_assert_str_eq(s->name, "checkpoint");
    ck_assert_int_eq(s->tensors[0].role, LLMQ_ROLE_EMBED);
    ck_assert_int_eq(s->tensors[10].role, LLMQ_ROLE_FINAL_NORM);
    ck_assert_str_eq(s->section(s, LLMQ_SECTION_GENERATION, &len), "{}");
    ck_assert_int_eq(s->read(s, 0, 2, 1, row, &err), 0);
    ck_assert_float_eq(row[1], 9.0f / 64);
    ck_assert_int_eq(s->read(s, 0, 3, 2, row, &err), LLMQ_EUSAGE);
    ck_assert_int_eq(s->read(s, 0, UINT32_MAX, 2, row, &err), LLMQ_EUSAGE);
    snprintf(path, sizeof path, "%s", unit_tmp("convert-bf16.llmq"));
    ck_assert_msg(!convert_write(s, path, &o, &err), "%s", err.text);
    s->close(s);
    ck_assert_msg(!llmq_file_open(&f, path, &err), "%s", err.text);
    ck_assert_msg(!llmq_file_verify(f, NULL, NULL, NULL, &err), "%s", err.text);
    llmq_dequant_rows(llmq_file_find(f, LLMQ_ROLE_EMBED, LLMQ_NO_LAYER, LLMQ_NO_EXPERT), 2, 1, row);
    ck_assert_float_eq(row[1], 9.0f / 64);
    ck_assert_ptr_nonnull(strstr(llmq_file_section(f, LLMQ_SECTION_PROVENANCE, &len), "\"options\":{\"dtype\":\"bf16\"}"));
    llmq_file_close(f);
    unlink(path);
}
END_TEST

/* The Nth allocation fails, for every N that the job reaches: an error, no leak, nothing under the target's name. */
START_TEST(every_allocation_may_fail)
{
    const char            *dir = tiny_checkpoint();
    struct convert_options o = {0};
    char                   path[512];
    int                    rc = -1;
    long                   n;

    snprintf(path, sizeof path, "%s", unit_tmp("convert-torture.llmq"));
    for (n = 1; rc && n < 20000; n++) {
        struct llmq_source *s = NULL;
        struct llmq_err     err = {0};
        size_t              live;

        llmq_alloc_fail_nth(0);
        live = llmq_alloc_live();
        llmq_alloc_fail_nth(n);
        rc = convert_open(&s, dir, &err);
        if (!rc)
            rc = convert_write(s, path, &o, &err);
        if (s)
            s->close(s);
        llmq_alloc_fail_nth(0);
        if (rc) {
            ck_assert_msg(rc == LLMQ_ENOMEM && err.code == rc && err.text[0], "allocation %ld: %d '%s'", n, rc, err.text);
            ck_assert_msg(access(path, F_OK) != 0, "allocation %ld: a file stands there", n);
        }
        ck_assert_msg(llmq_alloc_live() == live, "allocation %ld: %zu blocks leaked", n, llmq_alloc_live() - live);
    }
    ck_assert_int_eq(rc, 0);
    ck_assert_int_gt(n, 30);
    unlink(path);
}
END_TEST

UNIT_CASE(convert, a_checkpoint_becomes_a_source_and_a_file, every_allocation_may_fail)
UNIT_CASE(safetensors, headers_that_are_legal, headers_that_are_refused, mangled_headers)
UNIT_CASE(arch, names_and_places)
UNIT_CASE(hfconfig, defaults, rope_in_both_spellings, yarn_temperature, configs_that_are_refused, windows_bound_the_context,
          stretched_contexts, the_first_file_that_names_an_end_token_counts, end_tokens_that_are_refused)

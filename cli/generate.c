/* One answer: see generate.h. */
#include "cli/generate.h"

#include "cli/opt.h"
#include "cli/output.h"

#include <stdio.h>

enum { MAX_TEXT = 64 << 20 };

int answer_init(struct answer *a, const struct llmq_engine *e, int hidden, struct llmq_err *err)
{
    *a = (struct answer){.ids = json_array(), .hidden = hidden};
    llmq_str_init(&a->text, MAX_TEXT);
    if (!a->ids)
        return llmq_fail(err, LLMQ_ENOMEM, "out of memory for token ids");
    return tokenizer_stream_new(&a->stream, llmq_engine_tokenizer(e), 1, err);
}

void answer_fini(struct answer *a)
{
    tokenizer_stream_free(a->stream);
    json_decref(a->ids);
    llmq_str_fini(&a->text);
}

static int show(struct answer *a, struct llmq_err *err)
{
    size_t n = a->text.len - a->shown;

    if (a->hidden || !n || a->gone)
        return 0;
    if (fwrite(a->text.data + a->shown, 1, n, stdout) != n || fflush(stdout)) {
        a->gone = 1;
        return output_failed(err);
    }
    a->shown = a->text.len;
    return 0;
}

static int take(struct answer *a, const struct llmq_step_out *o, struct llmq_err *err)
{
    a->finish = o->finish;
    if (o->id < 0)
        return 0;
    if (json_array_append_new(a->ids, json_integer(o->id)))
        return llmq_fail(err, LLMQ_ENOMEM, "out of memory for token ids");
    if (o->finish != LLMQ_FINISH_STOP && tokenizer_stream_push(a->stream, o->id, &a->text, err))
        return err->code;
    return show(a, err);
}

int answer_make(struct answer *a, struct llmq_engine *e, struct llmq_err *err)
{
    struct llmq_step_out o;

    while (a->finish == LLMQ_FINISH_NONE && !cli_interrupted && !a->gone)
        if (llmq_engine_step(e, &o, err) || take(a, &o, err))
            return err->code;
    llmq_engine_cancel(e);
    if (tokenizer_stream_finish(a->stream, &a->text, err) || show(a, err))
        return err->code;
    if (!a->hidden && !a->gone && (!a->text.len || a->text.data[a->text.len - 1] != '\n'))
        putchar('\n');
    return 0;
}

const char *answer_finish_name(const struct answer *a)
{
    return a->finish == LLMQ_FINISH_STOP ? "stop" : a->finish == LLMQ_FINISH_LENGTH ? "length" : "cancelled";
}

static double rate(double n, double s) { return s > 0 && n > 0 ? n / s : 0; }

double answer_prefill_rate(const struct llmq_engine_stats *st) { return rate(st->prompt_tokens - st->cached_tokens, st->prefill_s); }

/* The first token is the prefill's; the others are what decoding took its time for. */
double answer_decode_rate(const struct llmq_engine_stats *st) { return rate(st->completion_tokens - 1, st->decode_s); }

void answer_print_stats(const struct answer *a, const struct llmq_engine *e)
{
    struct llmq_engine_stats st;
    char                     cached[40] = "";

    llmq_engine_get_stats(e, &st);
    if (st.cached_tokens)
        snprintf(cached, sizeof cached, " (%d kept from before)", st.cached_tokens);
    fprintf(stderr, "load      %.3f s\n", st.load_s);
    fprintf(stderr, "prompt    %d tokens%s, %.1f tokens/s, first token after %.3f s\n", st.prompt_tokens, cached, answer_prefill_rate(&st),
            st.ttft_s);
    fprintf(stderr, "answer    %d tokens, %.1f tokens/s, ended by %s\n", st.completion_tokens, answer_decode_rate(&st), answer_finish_name(a));
    fprintf(stderr, "KV        %s, %d of %d pages of %d tokens\n", st.kv_dtype, st.pages_used, st.pages_total, st.page_tokens);
    fprintf(stderr, "kernels   %s\n", llmq_engine_isa(e));
}

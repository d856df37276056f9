/* Rotary position embedding: the table of cosines and sines (Su et al., "RoFormer", 2021, eq. 34), with the
 * scalings that checkpoints state.  Angles are computed in double and stored as float; frequencies are rounded to
 * float first, as transformers holds them, so that long positions agree with it. */
#include "common/fmath.h"
#include "runner/model/model.h"

#define TWO_PI 6.283185307179586

/* transformers' float inv_freq of pair i: 1 / theta^(2i / head_dim). */
static double base_freq(const struct llmq_hparams *hp, int i)
{
    return 1.0 / llmq_pow((double)hp->rope_theta, 2.0 * i / (double)hp->head_dim);
}

/* Llama 3.1: long wavelengths are stretched by `factor`, short ones kept, those between blended. */
static double llama3_freq(const struct llmq_hparams *hp, double f)
{
    double wavelen = TWO_PI / f, orig = hp->rope_orig_ctx, low = hp->rope_low, high = hp->rope_high, t;

    if (wavelen < orig / high)
        return f;
    if (wavelen > orig / low)
        return f / hp->rope_factor;
    t = (orig / wavelen - low) / (high - low);
    return (1 - t) * f / hp->rope_factor + t * f;
}

static double scaled_freq(const struct llmq_hparams *hp, int i)
{
    double f = base_freq(hp, i);

    switch (hp->rope_type) {
    case LLMQ_ROPE_LINEAR:
        return f / hp->rope_factor;
    case LLMQ_ROPE_LLAMA3:
        return llama3_freq(hp, f);
    default:
        return f;
    }
}

void model_rope_table(const struct llmq_hparams *hp, int max_ctx, float *cos_sin)
{
    int half = (int)hp->head_dim / 2;

    for (int i = 0; i < half; i++) {
        float freq = (float)scaled_freq(hp, i);
        for (int pos = 0; pos < max_ctx; pos++) {
            double s, c;
            float *row = cos_sin + (size_t)pos * hp->head_dim;

            /* transformers multiplies in float: the product's rounding is part of the reference */
            llmq_sincos((double)((float)pos * freq), &s, &c);
            row[i] = (float)c;
            row[half + i] = (float)s;
        }
    }
}

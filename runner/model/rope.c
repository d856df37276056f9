/* Rotary position embedding: the table of cosines and sines (Su et al., "RoFormer", 2021, eq. 34), with the
 * scalings that checkpoints state.  Angles are computed in double and stored as float; frequencies are rounded to
 * float first, as transformers holds them, so that long positions agree with it. */
#include "common/fmath.h"
#include "runner/model/model.h"

#include <math.h>

#define TWO_PI 6.283185307179586

/* transformers' float inv_freq of pair i: 1 / theta^(2i / head_dim). */
static double base_freq(const struct llmq_hparams *hp, double theta, int i)
{
    return 1.0 / llmq_pow(theta, 2.0 * i / (double)hp->head_dim);
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

/* The pair that turns `rotations` times in the original context (YaRN, arXiv 2309.00071, section 3.2). */
static double yarn_pair(const struct llmq_hparams *hp, double rotations)
{
    return hp->head_dim * llmq_log(hp->rope_orig_ctx / (rotations * TWO_PI)) / (2 * llmq_log((double)hp->rope_theta));
}

/* YaRN: pairs that turn often are kept, slow ones stretched, with a ramp between (equations 18 and 19 there). */
static double yarn_freq(const struct llmq_hparams *hp, double f, int i)
{
    double low = floor(yarn_pair(hp, hp->rope_high)), high = ceil(yarn_pair(hp, hp->rope_low)), ramp;

    low = low > 0 ? low : 0;
    high = high < hp->head_dim - 1 ? high : hp->head_dim - 1;
    if (low == high)
        high += 0.001;
    ramp = (i - low) / (high - low);
    ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
    return f / hp->rope_factor * ramp + f * (1 - ramp);
}

/* Dynamic NTK scaling: beyond the original context theta grows with the sequence.  Each token is turned by the theta of
 * the sequence that ends with it, which is what generation with a cache does; transformers' prefill takes the prompt's
 * last one for all of it, and so depends on how a prompt is cut. */
static double dynamic_theta(const struct llmq_hparams *hp, int pos)
{
    double len = pos + 1, orig = hp->rope_orig_ctx, d = hp->head_dim;

    if (len <= orig)
        return (double)hp->rope_theta;
    return (double)hp->rope_theta * llmq_pow(hp->rope_factor * len / orig - (hp->rope_factor - 1), d / (d - 2));
}

static double scaled_freq(const struct llmq_hparams *hp, int i, int pos)
{
    double f = base_freq(hp, (double)hp->rope_theta, i);

    switch (hp->rope_type) {
    case LLMQ_ROPE_LINEAR: return f / hp->rope_factor;
    case LLMQ_ROPE_LLAMA3: return llama3_freq(hp, f);
    case LLMQ_ROPE_YARN: return yarn_freq(hp, f, i);
    case LLMQ_ROPE_DYNAMIC: return pos < (int)hp->rope_orig_ctx ? f : base_freq(hp, dynamic_theta(hp, pos), i);
    default: return f;
    }
}

void model_rope_table(const struct llmq_hparams *hp, int max_ctx, float *cos_sin)
{
    int half = (int)hp->head_dim / 2;

    for (int i = 0; i < half; i++) {
        float freq = (float)scaled_freq(hp, i, 0);

        for (int pos = 0; pos < max_ctx; pos++) {
            double s, c;
            float *row = cos_sin + (size_t)pos * hp->head_dim;

            if (hp->rope_type == LLMQ_ROPE_DYNAMIC && pos >= (int)hp->rope_orig_ctx)
                freq = (float)scaled_freq(hp, i, pos);
            /* transformers multiplies in float: the product's rounding is part of the reference */
            llmq_sincos((double)((float)pos * freq), &s, &c);
            row[i] = (float)c * hp->rope_attn_factor;
            row[half + i] = (float)s * hp->rope_attn_factor;
        }
    }
}

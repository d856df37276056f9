/* The calibration text inside the binary: see builtin.h.
 *
 * The build mixes calib_data/[name].txt into one text and writes it as numbers, because a string literal of that
 * length is beyond what C promises. */
#include "runner/text/builtin.h"

static const unsigned char text[] = {
#include "calib_builtin.inc"
};

const char *llmq_calib_builtin(size_t *len)
{
    *len = sizeof text;
    return (const char *)text;
}

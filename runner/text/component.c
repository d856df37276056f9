/* What the normalizer, the pre-tokenizer and the decoder have in common when they are loaded: see component.h. */
#include "runner/text/component.h"

#include <string.h>

int component_kind(const json_t *spec, const char *const *names, int n_names, const char *what, struct llmq_err *err)
{
    const char *type = json_string_value(json_object_get(spec, "type"));

    for (int k = 0; type && k < n_names; k++)
        if (!strcmp(type, names[k]))
            return k;
    return llmq_fail(err, LLMQ_EFORMAT, "tokenizer: %s '%s' is not supported", what, type ? type : "without a type");
}

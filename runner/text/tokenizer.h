#ifndef LLMQ_RUNNER_TEXT_TOKENIZER_H
#define LLMQ_RUNNER_TEXT_TOKENIZER_H

/* PUBLIC.  Text to token ids and back, as the checkpoint's tokenizer.json states it.
 *
 * A tokenizer is loaded from three sections of a .llmq (TOKENIZER, VOCAB, MERGES; format/format.h) and is
 * read-only afterwards: any number of threads may use one.  It interprets the pipeline (added tokens,
 * normalizer, pre-tokenizer, model, post-processor, decoder) component by component; a component that
 * it does not know is refused by name when it is loaded. */

#include "common/err.h"
#include "common/str.h"

#include <stddef.h>
#include <stdint.h>

struct tokenizer;
struct llmq_file;
struct llmq_source;

/* The caller owns *out.  Section bytes are not needed afterwards. */
int  tokenizer_load(struct tokenizer **out, const char *config, size_t config_len, const void *vocab, size_t vocab_len,
                    const void *merges, size_t merges_len, struct llmq_err *err) LLMQ_MUST_CHECK;
/* The same from an opened file or source; LLMQ_EFORMAT when it has no tokenizer. */
int  tokenizer_from_file(struct tokenizer **out, const struct llmq_file *f, struct llmq_err *err) LLMQ_MUST_CHECK;
int  tokenizer_from_source(struct tokenizer **out, struct llmq_source *s, struct llmq_err *err) LLMQ_MUST_CHECK;
void tokenizer_free(struct tokenizer *t);

int tokenizer_vocab_size(const struct tokenizer *t); /* highest id + 1 */

/* A growing list of ids; zero-initialise, release with tokenizer_ids_free. */
struct token_ids {
    int32_t *id;
    size_t   n, cap;
};
void tokenizer_ids_free(struct token_ids *ids);

enum tokenizer_flags {
    TOKENIZER_ADD_SPECIAL = 1,  /* run the post-processor (BOS and the like) */
    TOKENIZER_PARSE_SPECIAL = 2 /* added tokens that are special are recognised in the text; without it their
                                   letters are ordinary text (untrusted input) */
};
/* Appends the ids of text (UTF-8; LLMQ_EFORMAT names the first byte that is not).  ADD_SPECIAL | PARSE_SPECIAL is
 * what the `tokenizers` library's encode(text) does. */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, int flags, struct token_ids *out,
                     struct llmq_err *err) LLMQ_MUST_CHECK;

/* The same for a rendered chat template: marks[i] is 1 where byte i of text came from a message, else 0.  A special token
 * that a marked byte takes part in stays letters, and so does any other added token that the template itself uses in
 * this text.  LLMQ_EFORMAT when a normalizer makes such tokens out of messages, which leaves nothing to tell them by. */
int tokenizer_encode_marked(const struct tokenizer *t, const char *text, const char *marks, size_t len, int flags,
                            struct token_ids *out, struct llmq_err *err) LLMQ_MUST_CHECK;

/* Appends the text of ids to out.  Bytes that are not UTF-8 become U+FFFD as the library does it.
 * skip_special leaves special added tokens out. */
int tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, int skip_special, struct llmq_str *out,
                     struct llmq_err *err) LLMQ_MUST_CHECK;

/* A token's text, as the vocabulary or the added tokens spell it (in the model's alphabet, not decoded); NULL: none. */
const char *tokenizer_token_text(const struct tokenizer *t, int32_t id, size_t *len);
/* The id of a token's exact text as the vocabulary or the added tokens spell it; -1: none. */
int32_t tokenizer_token_id(const struct tokenizer *t, const char *text, size_t len);
int     tokenizer_is_special(const struct tokenizer *t, int32_t id);
int     tokenizer_is_added(const struct tokenizer *t, const char *text, size_t len); /* is this text an added token? */
/* What the post-processor puts in front of a single text: number of ids, and the first (or -1). */
int     tokenizer_prefix(const struct tokenizer *t, int32_t *first);

/* Streaming: text that has become certain as ids arrive.  It equals tokenizer_decode of all ids, cut
 * so that no code point is split.  push appends new certain text to out; finish appends the rest. */
struct tokenizer_stream;
int  tokenizer_stream_new(struct tokenizer_stream **out, const struct tokenizer *t, int skip_special, struct llmq_err *err) LLMQ_MUST_CHECK;
int  tokenizer_stream_push(struct tokenizer_stream *s, int32_t id, struct llmq_str *out, struct llmq_err *err) LLMQ_MUST_CHECK;
int  tokenizer_stream_finish(struct tokenizer_stream *s, struct llmq_str *out, struct llmq_err *err) LLMQ_MUST_CHECK;
void tokenizer_stream_free(struct tokenizer_stream *s);

#endif

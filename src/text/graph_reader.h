/** Words of the readers of tokenizer.json: paths of values, refusals that name them, flags. */
#ifndef TGI_TEXT_GRAPH_READER_H
#define TGI_TEXT_GRAPH_READER_H

#include "files/json_file.h"
#include "tokenizer_state.h"

enum { TGI_PLACE_BYTES = 160 };

/** Path of a value in the document: "pre_tokenizer: pretokenizers[1]: type". */
typedef struct tgi_place {
  char text[TGI_PLACE_BYTES];
} tgi_place;

tgi_place tgi_place_of(const char *format, ...) __attribute__((format(printf, 1, 2)));

/** A document, and the tokenizer that is made of it. */
typedef struct tgi_graph_reader {
  const tgi_json *json;
  tg_tokenizer *t;
  tg_error *error;
} tgi_graph_reader;

/** `<path>: <where>: expected <rule>, got <value>`. */
void tgi_graph_fill_refusal(const tgi_graph_reader *r, tg_status status, const json_t *value,
                            const char *where, const char *rule);

/** UNSUPPORTED, and BAD_FILE; inline, so that analysers see the status. */
static inline tg_status tgi_graph_unsupported(const tgi_graph_reader *r, const json_t *value,
                                              const char *where, const char *rule)
{
  tgi_graph_fill_refusal(r, TG_UNSUPPORTED, value, where, rule);
  return TG_UNSUPPORTED;
}

static inline tg_status tgi_graph_unexpected(const tgi_graph_reader *r, const json_t *value,
                                             const char *where, const char *rule)
{
  tgi_graph_fill_refusal(r, TG_BAD_FILE, value, where, rule);
  return TG_BAD_FILE;
}

tg_status tgi_graph_no_memory(const tgi_graph_reader *r, size_t bytes);

/** Whether a member is absent, null, false or an empty string, list or object. */
bool tgi_graph_is_void(const json_t *parent, const char *key);

/** Whether a member `type` is this text. */
bool tgi_graph_has_type(const json_t *stage, const char *type);

/** true or false; `otherwise` where the key is absent or null. Errors: BAD_FILE. */
tg_status tgi_graph_flag(const tgi_graph_reader *r, const json_t *parent, const char *where,
                         const char *key, bool otherwise, bool *out);

/**
 * An array of added tokens, numbered as Hugging Face's library numbers them: by the vocabulary, or
 * with the next free id. Comes after the vocabulary and the normaliser. Errors: BAD_FILE,
 * UNSUPPORTED, NO_MEMORY.
 */
tg_status tgi_graph_read_added(const tgi_graph_reader *r, const json_t *list);

#endif

/**
 * What tokenizer.json says but for its long lists: the model's settings, added tokens, normaliser,
 * pre-tokenizer, post-processor, decoder. What is read is what is supported; the rest is
 * UNSUPPORTED, with its path in the document.
 */
#ifndef TGI_TEXT_TOKENIZER_GRAPH_H
#define TGI_TEXT_TOKENIZER_GRAPH_H

#include "files/json_file.h"
#include "tokenizer_state.h"

/**
 * Reads the document into `t`, which has the vocabulary already. Errors: BAD_FILE, UNSUPPORTED,
 * NO_MEMORY.
 */
tg_status tgi_graph_read(const tgi_json *json, tg_tokenizer *t, tg_error *error);

#endif

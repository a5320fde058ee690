/**
 * A conversation as tokens: the text that a chat template makes of it, and which tokens the
 * assistant wrote, which alone count as targets.
 */
#ifndef TGI_DATA_CONVERSATION_TOKENS_H
#define TGI_DATA_CONVERSATION_TOKENS_H

#include "files/json_file.h"
#include "tegula/chat_template.h"
#include "text/tokenizer_state.h"
#include <stdbool.h>

/** How conversations are read, and memory of calls. Memory starts zeroed. */
typedef struct tgi_chat_reader {
  const tg_chat_template *chat_template;
  const tg_tokenizer *tokenizer;
  const json_t *arguments; /* an object of more variables of the template; NULL: none */
  const char *name, *date; /* as in tg_chat_request */
  bool trust;              /* text of users and tools may become control tokens */
  tgi_spanned_ids tokens;
  uint8_t *counted;
  size_t counted_capacity;
} tgi_chat_reader;

/** What a template is given, as JSON. */
typedef struct tgi_chat_parts {
  const char *line; /* "<path>: line <number>", for messages */
  char *messages;   /* the list */
  size_t *ends;     /* where each message ends in it, without the comma */
  char *prefix;     /* room for the list of the first messages */
  const json_t *list;
  char *tools, *documents, *arguments;
} tgi_chat_parts;

/** Renders the first `count` messages. Errors: BAD_FILE, naming the line; NO_MEMORY. */
tg_status tgi_chat_render_first(const tgi_chat_reader *reader, const tgi_chat_parts *parts,
                                size_t count, bool add_generation_prompt, tg_chat_text *text,
                                tg_error *error);

/** Encodes what was rendered, by the reader's rule of trust. Errors: as above. */
tg_status tgi_chat_encode(const tgi_chat_reader *reader, const char *line, const tg_chat_text *text,
                          tgi_spanned_ids *tokens, tg_error *error);

/**
 * Reads an object with "messages", and perhaps "tools", "documents" and "chat_template_kwargs" (an
 * object of variables); other keys are variables of the template, which go before the reader's
 * arguments. The ids are in reader->tokens, and counted[i] says whether the assistant wrote a byte
 * of token i, as transformers' `return_assistant_tokens_mask` says. Where the template has no marks
 * of generated text, the assistant's text is what stands between the header that
 * add_generation_prompt makes and the token that ends its turn, inclusive.
 *
 * Errors: BAD_FILE (the template refuses the messages, ...), naming the line; NO_MEMORY.
 */
tg_status tgi_conversation_read(tgi_chat_reader *reader, const tgi_json *line, tg_error *error);

/** Frees the memory of calls. */
void tgi_chat_reader_free(tgi_chat_reader *reader);

#endif

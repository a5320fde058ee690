/** A conversation to the ids that the model is given. */
#ifndef TGI_CLI_CHAT_CHAT_PROMPT_H
#define TGI_CLI_CHAT_CHAT_PROMPT_H

#include "conversation.h"
#include "tegula/chat_template.h"
#include "tegula/tokenizer.h"

/** What all prompts of a chat are made with; all of it is borrowed. */
typedef struct tgi_chat_form {
  const tg_chat_template *chat_template;
  const tg_tokenizer *tokenizer;
  const char *name;      /* of one of several templates; NULL: the usual one */
  const char *date;      /* NULL: now */
  const char *arguments; /* JSON; NULL: none */
  bool trust_content;    /* what users wrote may become special tokens */
} tgi_chat_form;

typedef struct tgi_chat_prompt {
  int32_t *ids;
  int64_t count;
  bool thinking; /* it ends within a thought: the template wrote its beginning */
} tgi_chat_prompt;

/**
 * The ids up to where the answer begins. The template writes what begins a text; nothing is added
 * to that. Errors: those of tg_chat_template_render and tg_tokenizer_encode_marked; *out is then
 * zeroed.
 */
tg_status tgi_chat_prompt_make(const tgi_chat_form *form, const tgi_conversation *c,
                               tgi_chat_prompt *out, tg_error *error);

void tgi_chat_prompt_free(tgi_chat_prompt *prompt);

/** The text that ends an answer, and the id where that is a token. */
typedef struct tgi_end_mark {
  char text[64]; /* "": an answer ends without one, or with one that is a token */
  int32_t id;    /* -1: none */
} tgi_end_mark;

/** What the template writes behind an answer, up to the first white space. */
tgi_end_mark tgi_chat_end_mark(const tgi_chat_form *form);

/** Whether the template has channels, as GPT-OSS's, instead of <think>. */
bool tgi_chat_has_channels(const tgi_chat_form *form);

#endif

/**
 * Templates as tokens, by the rules of Jinja with trim_blocks and lstrip_blocks: a newline behind a
 * block is dropped, and white space before a block that begins its line; "-" strips all white
 * space, "+" keeps what would be dropped.
 */
#ifndef TGI_CHAT_SYNTAX_TEMPLATE_LEXER_H
#define TGI_CHAT_SYNTAX_TEMPLATE_LEXER_H

#include "chat/values/template_value.h"

typedef enum tgi_token_kind {
  TGI_TOKEN_TEXT,  /* text */
  TGI_TOKEN_PRINT, /* {{ */
  TGI_TOKEN_PRINT_END,
  TGI_TOKEN_BLOCK, /* {% */
  TGI_TOKEN_BLOCK_END,
  TGI_TOKEN_NAME,     /* text */
  TGI_TOKEN_STRING,   /* text, without quotes and escapes */
  TGI_TOKEN_NUMBER,   /* value */
  TGI_TOKEN_OPERATOR, /* text */
  TGI_TOKEN_END
} tgi_token_kind;

typedef struct tgi_token {
  tgi_token_kind kind;
  tgi_place place;
  tgi_string *text;
  tgi_value value;
} tgi_token;

/** Tokens of valid UTF-8; the last is an END. Fails with BAD_FILE. */
tgi_token *tgi_tokenize(tgi_job *job, const char *text, size_t size);

#endif

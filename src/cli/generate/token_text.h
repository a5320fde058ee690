/** A token's bytes as a JSON string. */
#ifndef TGI_CLI_TOKEN_TEXT_H
#define TGI_CLI_TOKEN_TEXT_H

#include "tegula/tokenizer.h"
#include <jansson.h>

/** JSON holds characters: bytes that are none become U+FFFD. NULL without memory. */
json_t *tgi_token_text(tg_token token);

#endif

/** Numbers to add to the logits of ids, as command lines write them. */
#ifndef TGI_CLI_LOGIT_BIAS_H
#define TGI_CLI_LOGIT_BIAS_H

#include "tegula/model.h"

/** Starts zeroed; `items` is to be freed. */
typedef struct tgi_bias_list {
  tg_logit_bias *items;
  size_t count, capacity;
} tgi_bias_list;

/** Errors: NO_MEMORY. */
tg_status tgi_bias_add(tgi_bias_list *list, int32_t id, double value, tg_error *error);

/**
 * Adds "ID=VALUE,ID=VALUE"; also "ID+VALUE" and "ID-VALUE", as llama.cpp writes them. A value is a
 * number or -inf. Errors: BAD_ARGUMENT (anything else, or an id beyond the vocabulary, with the
 * byte), NO_MEMORY.
 */
tg_status tgi_bias_parse(const char *text, int32_t vocab_size, tgi_bias_list *list,
                         tg_error *error);

#endif

/** The hash of a chat template: its texts and the names of special tokens. */
#ifndef TGI_DATA_TEMPLATE_KEY_H
#define TGI_DATA_TEMPLATE_KEY_H

#include "files/hash128.h"
#include "tegula/chat_template.h"

void tgi_hasher_add_template(tgi_hasher *hasher, const tg_chat_template *chat_template);

#endif

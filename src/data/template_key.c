#include "template_key.h"

#include "chat/template_set.h"
#include <string.h>

void tgi_hasher_add_template(tgi_hasher *hasher, const tg_chat_template *chat_template)
{
  for (size_t i = 0; i < chat_template->num_templates; i++) {
    const tgi_named_template *t = &chat_template->templates[i];
    tgi_hasher_add_item(hasher, t->name, strlen(t->name));
    tgi_hasher_add_item(hasher, t->text, strlen(t->text));
  }
  for (size_t i = 0; i < chat_template->num_tokens; i++) {
    const tgi_special_name *t = &chat_template->tokens[i];
    tgi_hasher_add_item(hasher, t->key, strlen(t->key));
    tgi_hasher_add_item(hasher, t->token, strlen(t->token));
  }
}

/** What a loaded template is: one or several trees by name, and the names of special tokens. */
#ifndef TGI_CHAT_TEMPLATE_SET_H
#define TGI_CHAT_TEMPLATE_SET_H

#include "chat/syntax/template_node.h"
#include "tegula/chat_template.h"

typedef struct tgi_named_template {
  char *name; /* "default", "tool_use", ... */
  char *path; /* what messages call it */
  char *text; /* terminated */
  tgi_tree tree;
  tg_error error; /* why it was not understood */
} tgi_named_template;

typedef struct tgi_special_name {
  char *key, *token; /* "bos_token", "<s>" */
} tgi_special_name;

struct tg_chat_template {
  tgi_named_template *templates;
  size_t num_templates;
  tgi_special_name *tokens;
  size_t num_tokens;
};

/**
 * Adds a template, which messages call `path`. What is wrong with its text is kept for the one who
 * renders with it. Errors: NO_MEMORY.
 */
tg_status tgi_template_set_add(tg_chat_template *set, const char *name, const char *path,
                               const char *text, size_t size, tg_error *error);

/** Adds or replaces a special token. Errors: NO_MEMORY. */
tg_status tgi_template_set_token(tg_chat_template *set, const char *key, const char *token,
                                 tg_error *error);

/** NULL: there is none of this name. */
const tgi_named_template *tgi_template_set_find(const tg_chat_template *set, const char *name);

/** tg_chat_template_render with fewer steps than TG_CHAT_TEMPLATE_MAX_STEPS. */
tg_status tgi_chat_template_render(const tg_chat_template *set, const tg_chat_request *args,
                                   int64_t steps, tg_chat_text *out, tg_error *error);

/** Texts of the library's own templates; NULL for another name. */
const char *tgi_builtin_template(const char *name);

#endif

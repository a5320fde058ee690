#include "template_set.h"
#include "files/file_error.h"
#include <stdlib.h>
#include <string.h>

static char *copy_text(const char *text, size_t size)
{
  char *copy = malloc(size + 1);
  if (copy) {
    memcpy(copy, text, size);
    copy[size] = '\0';
  }
  return copy;
}

tg_status tgi_template_set_add(tg_chat_template *set, const char *name, const char *path,
                               const char *text, size_t size, tg_error *error)
{
  tgi_named_template *templates =
      realloc(set->templates, (set->num_templates + 1) * sizeof *templates);
  if (!templates) {
    return tgi_file_error_memory(error, path, sizeof *templates);
  }
  set->templates = templates;
  tgi_named_template added = {
      .name = strdup(name), .path = strdup(path), .text = copy_text(text, size)};
  tg_status status = TG_NO_MEMORY;
  if (added.name && added.path && added.text) {
    status = tgi_tree_parse(path, text, size, &added.tree, &added.error);
  } else {
    tgi_file_error_memory(&added.error, path, size + 1);
  }
  templates[set->num_templates++] = added;
  if (status == TG_NO_MEMORY) {
    if (error) {
      *error = added.error;
    }
    return status;
  }
  return TG_OK;
}

tg_status tgi_template_set_token(tg_chat_template *set, const char *key, const char *token,
                                 tg_error *error)
{
  char *copy = strdup(token);
  for (size_t i = 0; copy && i < set->num_tokens; i++) {
    if (strcmp(set->tokens[i].key, key) == 0) {
      free(set->tokens[i].token);
      set->tokens[i].token = copy;
      return TG_OK;
    }
  }
  char *name = strdup(key);
  tgi_special_name *tokens = realloc(set->tokens, (set->num_tokens + 1) * sizeof *tokens);
  set->tokens = tokens ? tokens : set->tokens;
  if (!copy || !name || !tokens) {
    free(copy);
    free(name);
    return tgi_file_error_memory(error, key, strlen(token) + 1);
  }
  tokens[set->num_tokens++] = (tgi_special_name){name, copy};
  return TG_OK;
}

const tgi_named_template *tgi_template_set_find(const tg_chat_template *set, const char *name)
{
  for (size_t i = 0; i < set->num_templates; i++) {
    if (strcmp(set->templates[i].name, name) == 0) {
      return &set->templates[i];
    }
  }
  return NULL;
}

void tg_chat_template_destroy(tg_chat_template *set)
{
  if (!set) {
    return;
  }
  for (size_t i = 0; i < set->num_templates; i++) {
    free(set->templates[i].name);
    free(set->templates[i].path);
    free(set->templates[i].text);
    tgi_arena_free(&set->templates[i].tree.arena);
  }
  for (size_t i = 0; i < set->num_tokens; i++) {
    free(set->tokens[i].key);
    free(set->tokens[i].token);
  }
  free(set->templates);
  free(set->tokens);
  free(set);
}

const char *tg_chat_template_text(const tg_chat_template *set, const char *name)
{
  const tgi_named_template *found = tgi_template_set_find(set, name);
  return found ? found->text : NULL;
}

bool tg_chat_template_mentions(const tg_chat_template *set, const char *variable)
{
  const bool marks = strcmp(variable, "generation") == 0;
  for (size_t i = 0; i < set->num_templates; i++) {
    const tgi_tree *tree = &set->templates[i].tree;
    if (marks ? tree->marks_generation : tgi_tree_find(tree, variable) > TGI_NAME_VARARGS) {
      return true;
    }
  }
  return false;
}

/* Where the template of a model directory comes from. */
#include "files/file_error.h"
#include "files/file_map.h"
#include "files/json_file.h"
#include "template_set.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { kPath = 4096 };
#define CONFIG_LIMIT ((size_t)64 << 20)

typedef struct source {
  tg_chat_template *set;
  const char *directory;
  tg_error *error;
} source;

static tg_status join(const source *s, const char *name, char path[kPath])
{
  if (snprintf(path, kPath, "%s/%s", s->directory, name) >= kPath) {
    return tgi_file_error(s->error, TG_IO, s->directory, TGI_NO_BYTE,
                          "a path below %d bytes, got a longer one", kPath);
  }
  return TG_OK;
}

static bool exists(const char *path)
{
  struct stat info;
  return stat(path, &info) == 0;
}

static tg_status add_file(const source *s, const char *name, const char *path)
{
  tgi_file_map map;
  tg_status status = tgi_file_map_open(path, TG_CHAT_TEMPLATE_MAX_BYTES, &map, s->error);
  if (status == TG_OK) {
    status = tgi_template_set_add(s->set, name, path, map.data, map.size, s->error);
    tgi_file_map_close(&map);
  }
  return status;
}

/* ---- files of templates ---- */

static tg_status add_jinja(const source *s)
{
  char path[kPath];
  tg_status status = join(s, "chat_template.jinja", path);
  return status == TG_OK && exists(path) ? add_file(s, "default", path) : status;
}

/** `<name>.jinja`, and no hidden file. */
static bool is_template(const char *name)
{
  const size_t size = strlen(name);
  return size > 6 && name[0] != '.' && strcmp(name + size - 6, ".jinja") == 0;
}

static tg_status add_additional(const source *s)
{
  char path[kPath];
  tg_status status = join(s, "additional_chat_templates", path);
  DIR *folder = status == TG_OK ? opendir(path) : NULL;
  if (!folder) {
    return status; /* most have none */
  }
  struct dirent *entry;
  while (status == TG_OK && (entry = readdir(folder)) != NULL) {
    char file[kPath + 300], name[300];
    if (!is_template(entry->d_name)) {
      continue;
    }
    snprintf(file, sizeof file, "%s/%.256s", path, entry->d_name);
    snprintf(name, sizeof name, "%.*s", (int)strlen(entry->d_name) - 6, entry->d_name);
    if (!tgi_template_set_find(s->set, name)) {
      status = add_file(s, name, file);
    }
  }
  closedir(folder);
  return status;
}

/* ---- tokenizer_config.json ---- */

static tg_status refuse(const source *s, const tgi_json *json, const json_t *value,
                        const char *rule)
{
  return tgi_json_refuse(json, TG_BAD_FILE, value, s->error, "chat_template: expected %s", rule);
}

static tg_status add_listed(const source *s, const tgi_json *json, const char *name,
                            const json_t *text)
{
  char path[kPath + 112];
  snprintf(path, sizeof path, "%s: %.100s", json->path, name);
  return tgi_template_set_add(s->set, name, path, json_string_value(text), json_string_length(text),
                              s->error);
}

/** A text, or a list of {"name", "template"}; null and nothing are none. */
static tg_status add_from_config(const source *s, const tgi_json *json)
{
  const json_t *value = json_object_get(json->root, "chat_template");
  if (!value || json_is_null(value)) {
    return TG_OK;
  }
  if (json_is_string(value)) {
    return add_listed(s, json, "default", value);
  }
  if (!json_is_array(value)) {
    return refuse(s, json, value, "a text or a list of names and texts");
  }
  tg_status status = TG_OK;
  for (size_t i = 0; status == TG_OK && i < json_array_size(value); i++) {
    const json_t *item = json_array_get(value, i);
    const json_t *name = json_object_get(item, "name"), *text = json_object_get(item, "template");
    status = json_is_string(name) && json_is_string(text)
                 ? add_listed(s, json, json_string_value(name), text)
                 : refuse(s, json, item, "texts for name and template");
  }
  return status;
}

/** A token stands as its text, or as an object with its text as "content". */
static tg_status add_token(const source *s, const char *key, const json_t *value)
{
  const json_t *text = json_is_object(value) ? json_object_get(value, "content") : value;
  return json_is_string(text)
             ? tgi_template_set_token(s->set, key, json_string_value(text), s->error)
             : TG_OK;
}

/** Every key that ends with "_token". */
static tg_status add_tokens(const source *s, json_t *object)
{
  const char *key;
  json_t *value;
  json_object_foreach(object, key, value)
  {
    const size_t size = strlen(key);
    if (size > 6 && strcmp(key + size - 6, "_token") == 0) {
      const tg_status status = add_token(s, key, value);
      if (status != TG_OK) {
        return status;
      }
    }
  }
  return TG_OK;
}

static tg_status add_extra_tokens(const source *s, json_t *object)
{
  const char *key;
  json_t *value;
  json_object_foreach(object, key, value)
  {
    const tg_status status = add_token(s, key, value);
    if (status != TG_OK) {
      return status;
    }
  }
  return TG_OK;
}

/**
 * A file of the directory, if it is there; messages call it `path`. Integers beyond 64 bits stand
 * in many of these files, in keys that are not read here.
 */
static tg_status load_config(const source *s, const char *name, char path[kPath], tgi_json *json)
{
  *json = (tgi_json){0};
  const tg_status status = join(s, name, path);
  return status == TG_OK && exists(path)
             ? tgi_json_load(path, CONFIG_LIMIT, JSON_DECODE_INT_AS_REAL, json, s->error)
             : status;
}

/** Before tokenizer_config.json listed all added tokens, this file named the special ones. */
static tg_status add_mapped_tokens(const source *s, const tgi_json *config)
{
  if (json_object_get(config->root, "added_tokens_decoder")) {
    return TG_OK;
  }
  char path[kPath];
  tgi_json json;
  tg_status status = load_config(s, "special_tokens_map.json", path, &json);
  status = status ? status : add_tokens(s, json.root);
  json_decref(json.root);
  return status;
}

static tg_status read_config(const source *s, bool templates)
{
  char path[kPath];
  tgi_json json;
  tg_status status = load_config(s, "tokenizer_config.json", path, &json);
  if (status == TG_OK && json.root && templates) {
    status = add_from_config(s, &json);
  }
  status = status ? status : add_tokens(s, json.root);
  status =
      status ? status : add_extra_tokens(s, json_object_get(json.root, "extra_special_tokens"));
  status = status ? status : add_mapped_tokens(s, &json);
  json_decref(json.root);
  return status;
}

/* ---- the choice ---- */

static tg_status collect(const source *s, const char *chosen)
{
  const char *own = chosen ? tgi_builtin_template(chosen) : NULL;
  tg_status status = s->directory ? tgi_find_directory(s->directory, s->error) : TG_OK;
  if (status != TG_OK) {
    return status;
  }
  if (own) {
    status = tgi_template_set_add(s->set, "default", chosen, own, strlen(own), s->error);
  } else if (chosen) {
    status = add_file(s, "default", chosen);
  } else {
    status = add_jinja(s);
    status = status ? status : add_additional(s);
  }
  if (status == TG_OK && s->directory) {
    status = read_config(s, s->set->num_templates == 0);
  }
  if (status == TG_OK && s->set->num_templates == 0) {
    status = tgi_file_error(s->error, TG_UNSUPPORTED, s->directory, TGI_NO_BYTE,
                            "a chat template in chat_template.jinja or tokenizer_config.json, got "
                            "none (a base model has none; chatml and llama3 can be chosen)");
  }
  return status;
}

/** A default that is not understood is reported now, others when they are asked for. */
static tg_status check_default(const tg_chat_template *set, tg_error *error)
{
  const tgi_named_template *usual = tgi_template_set_find(set, "default");
  if (usual && usual->error.status != TG_OK && error) {
    *error = usual->error;
  }
  return usual ? usual->error.status : TG_OK;
}

static tg_status finish(tg_status status, tg_chat_template *set, tg_chat_template **out,
                        tg_error *error)
{
  status = status ? status : check_default(set, error);
  if (status != TG_OK) {
    tg_chat_template_destroy(set);
    return status;
  }
  *out = set;
  return TG_OK;
}

tg_status tg_chat_template_load(const char *directory, const char *chosen, tg_chat_template **out,
                                tg_error *error)
{
  *out = NULL;
  tg_chat_template *set = calloc(1, sizeof *set);
  if (!set) {
    return tgi_file_error_memory(error, "chat_template_load", sizeof *set);
  }
  if (!directory && !chosen) {
    free(set);
    return tgi_file_error(error, TG_BAD_ARGUMENT, "chat_template_load", TGI_NO_BYTE,
                          "a directory or a source, got neither");
  }
  return finish(collect(&(source){set, directory, error}, chosen), set, out, error);
}

tg_status tg_chat_template_create(const char *name, const char *text, size_t size,
                                  tg_chat_template **out, tg_error *error)
{
  *out = NULL;
  tg_chat_template *set = calloc(1, sizeof *set);
  if (!set) {
    return tgi_file_error_memory(error, name, sizeof *set);
  }
  return finish(tgi_template_set_add(set, "default", name, text, size, error), set, out, error);
}

#include "conversation.h"

#include "core/error_record.h"
#include "core/growing.h"
#include "files/json_file.h"
#include "files/utf8.h"
#include <string.h>

static const char kSystem[] = "system", kUser[] = "user", kAssistant[] = "assistant";
static const size_t kLargestFile = (size_t)64 << 20;

static void free_message(tgi_message *m)
{
  free(m->content);
  free(m->thought);
}

static bool has_system(const tgi_conversation *c)
{
  return c->count > 0 && c->messages[0].role == kSystem;
}

const char *tgi_conversation_system(const tgi_conversation *c)
{
  return has_system(c) ? c->messages[0].content : NULL;
}

/* ---- adding ---- */

static tg_status no_memory(size_t bytes, tg_error *error)
{
  return tgi_error_set(error, TG_NO_MEMORY, "conversation: expected %zu bytes of memory, got none",
                       bytes);
}

/** A terminated copy. */
static tg_status copy(tgi_said said, char **out, size_t *size, tg_error *error)
{
  const size_t valid = tgi_utf8_valid_bytes(said.bytes, said.size);
  if (valid != said.size) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "conversation: byte %zu: expected UTF-8, got 0x%02x", valid,
                         (unsigned)(unsigned char)said.bytes[valid]);
  }
  *out = malloc(said.size + 1);
  if (!*out) {
    return no_memory(said.size + 1, error);
  }
  memcpy(*out, said.bytes, said.size);
  (*out)[said.size] = '\0';
  *size = said.size;
  return TG_OK;
}

static tg_status make(const char *role, tgi_said content, tgi_said thought, tgi_message *out,
                      tg_error *error)
{
  *out = (tgi_message){.role = role};
  tg_status status = copy(content, &out->content, &out->content_size, error);
  if (status == TG_OK && thought.size > 0) {
    status = copy(thought, &out->thought, &out->thought_size, error);
  }
  if (status != TG_OK) {
    free_message(out);
  }
  return status;
}

/** At the place `at`, 0 or behind the last. */
static tg_status add(tgi_conversation *c, size_t at, const char *role, tgi_said content,
                     tgi_said thought, tg_error *error)
{
  tgi_message *grown = tgi_grow(c->messages, &c->room, c->count + 1, sizeof *grown);
  if (!grown) {
    return no_memory((c->count + 1) * sizeof *grown, error);
  }
  c->messages = grown;
  tgi_message message;
  const tg_status status = make(role, content, thought, &message, error);
  if (status == TG_OK) {
    memmove(grown + at + 1, grown + at, (c->count - at) * sizeof *grown);
    grown[at] = message;
    c->count++;
  }
  return status;
}

tg_status tgi_conversation_set_system(tgi_conversation *c, const char *text, tg_error *error)
{
  const bool had = has_system(c);
  tg_status status = TG_OK;
  if (text) {
    status = add(c, 0, kSystem, (tgi_said){text, strlen(text)}, (tgi_said){NULL, 0}, error);
  }
  if (status == TG_OK && had) {
    const size_t old = text ? 1 : 0;
    free_message(&c->messages[old]);
    c->count--;
    memmove(c->messages + old, c->messages + old + 1, (c->count - old) * sizeof *c->messages);
  }
  return status;
}

tg_status tgi_conversation_ask(tgi_conversation *c, tgi_said question, tg_error *error)
{
  return add(c, c->count, kUser, question, (tgi_said){NULL, 0}, error);
}

tg_status tgi_conversation_answer(tgi_conversation *c, tgi_said answer, tgi_said thought,
                                  tg_error *error)
{
  return add(c, c->count, kAssistant, answer, thought, error);
}

/* ---- taking back ---- */

static void keep(tgi_conversation *c, size_t count)
{
  while (c->count > count) {
    free_message(&c->messages[--c->count]);
  }
}

bool tgi_conversation_undo(tgi_conversation *c)
{
  size_t last = c->count;
  while (last > 0 && c->messages[last - 1].role != kUser) {
    last--;
  }
  if (last == 0) {
    return false;
  }
  keep(c, last - 1);
  return true;
}

void tgi_conversation_reset(tgi_conversation *c)
{
  keep(c, has_system(c) ? 1 : 0);
}

void tgi_conversation_free(tgi_conversation *c)
{
  keep(c, 0);
  free(c->messages);
  *c = (tgi_conversation){0};
}

/* ---- as JSON ---- */

static json_t *list(const tgi_conversation *c)
{
  tgi_json_begin();
  json_t *all = json_array();
  for (size_t i = 0; i < c->count; i++) {
    const tgi_message *m = &c->messages[i];
    json_t *object = json_object();
    json_object_set_new(object, "role", json_string(m->role));
    if (m->thought) {
      json_object_set_new(object, "reasoning_content", json_stringn(m->thought, m->thought_size));
    }
    json_object_set_new(object, "content", json_stringn(m->content, m->content_size));
    json_array_append_new(all, object);
  }
  return all;
}

tg_status tgi_conversation_text(const tgi_conversation *c, char **text, tg_error *error)
{
  return tgi_json_text("conversation", list(c), 0, text, error);
}

tg_status tgi_conversation_save(const tgi_conversation *c, const char *path, tg_error *error)
{
  return tgi_json_save(path, list(c), 0, error);
}

static const char *role_of(const json_t *message)
{
  static const char *const roles[] = {kSystem, kUser, kAssistant};
  const char *name = json_string_value(json_object_get(message, "role"));
  for (size_t i = 0; name && i < sizeof roles / sizeof roles[0]; i++) {
    if (strcmp(roles[i], name) == 0) {
      return roles[i];
    }
  }
  return NULL;
}

static tgi_said text_of(const json_t *value)
{
  return (tgi_said){json_string_value(value), json_string_length(value)};
}

static tg_status load_message(tgi_conversation *c, const tgi_json *json, size_t index,
                              tg_error *error)
{
  json_t *m = json_array_get(json->root, index);
  const char *role = role_of(m);
  const json_t *content = json_object_get(m, "content");
  const json_t *thought = json_object_get(m, "reasoning_content");
  if (!role || (role == kSystem && index > 0)) {
    return tgi_json_refuse(json, TG_BAD_FILE, json_object_get(m, "role"), error,
                           "[%zu].role: expected %suser or assistant", index,
                           index > 0 ? "" : "system, ");
  }
  if (!json_is_string(content)) {
    return tgi_json_refuse(json, TG_BAD_FILE, content, error, "[%zu].content: expected a text",
                           index);
  }
  if (thought && !json_is_string(thought)) {
    return tgi_json_refuse(json, TG_BAD_FILE, thought, error,
                           "[%zu].reasoning_content: expected a text", index);
  }
  const char *key;
  json_t *value;
  json_object_foreach(m, key, value)
  {
    if (strcmp(key, "role") != 0 && value != content && value != thought) {
      return tgi_json_refuse(json, TG_BAD_FILE, value, error,
                             "[%zu].%.40s: expected role, content and reasoning_content alone",
                             index, key);
    }
  }
  return add(c, c->count, role, text_of(content), text_of(thought), error);
}

tg_status tgi_conversation_load(tgi_conversation *c, const char *path, tg_error *error)
{
  tgi_json json;
  tgi_conversation loaded = {0};
  tg_status status = tgi_json_load(path, kLargestFile, JSON_ALLOW_NUL, &json, error);
  if (status == TG_OK && !json_is_array(json.root)) {
    status =
        tgi_json_refuse(&json, TG_BAD_FILE, NULL, error, "the whole: expected a list of messages");
  }
  for (size_t i = 0; status == TG_OK && i < json_array_size(json.root); i++) {
    status = load_message(&loaded, &json, i, error);
  }
  json_decref(json.root);
  if (status == TG_OK) {
    tgi_conversation_free(c);
    *c = loaded;
  } else {
    tgi_conversation_free(&loaded);
  }
  return status;
}

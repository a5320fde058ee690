#include "chat_values.h"
#include <string.h>

/** A list of 1, at least `size` long. */
static const uint8_t *ones(tgi_converter *c, size_t size)
{
  if (size > c->num_ones) {
    c->num_ones = size < 4096 ? 4096 : 2 * size;
    c->ones = tgi_job_allocate(c->job, c->num_ones);
    memset(c->ones, 1, c->num_ones);
  }
  return c->ones;
}

static tgi_value convert_text(tgi_converter *c, const char *bytes, size_t size, bool untrusted)
{
  tgi_string *s = tgi_string_new(c->job, bytes, size);
  s->ink = untrusted && size > 0 ? ones(c, size) : NULL;
  return tgi_text(s);
}

static tgi_value convert_object(tgi_converter *c, const json_t *json, bool untrusted)
{
  tgi_dict *dict = tgi_dict_new(c->job);
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)json, key, value)
  {
    tgi_dict_set(c->job, dict, convert_text(c, key, strlen(key), untrusted),
                 tgi_convert_json(c, value, untrusted));
  }
  return tgi_from_dict(TGI_DICT, dict);
}

tgi_value tgi_convert_json(tgi_converter *c, const json_t *json, bool untrusted)
{
  tgi_value v = tgi_none();
  tgi_job_enter(c->job);
  switch (json_typeof(json)) {
  case JSON_OBJECT:
    v = convert_object(c, json, untrusted);
    break;
  case JSON_ARRAY: {
    tgi_list *list = tgi_list_new(c->job);
    for (size_t i = 0; i < json_array_size(json); i++) {
      tgi_list_add(c->job, list, tgi_convert_json(c, json_array_get(json, i), untrusted));
    }
    v = tgi_from_list(TGI_LIST, list);
    break;
  }
  case JSON_STRING:
    v = convert_text(c, json_string_value(json), json_string_length(json), untrusted);
    break;
  case JSON_INTEGER:
    v = tgi_int(json_integer_value(json));
    break;
  case JSON_REAL:
    v = tgi_real(json_real_value(json));
    break;
  case JSON_TRUE:
  case JSON_FALSE:
    v = tgi_bool(json_is_true(json));
    break;
  case JSON_NULL:
    break;
  }
  tgi_job_leave(c->job);
  return v;
}

tgi_value tgi_convert_objects(tgi_converter *c, const json_t *json, const char *what,
                              bool untrusted)
{
  if (!json_is_array(json)) {
    tgi_job_fail(c->job, TG_BAD_ARGUMENT, "%s that are a list, got an object", what);
  }
  for (size_t i = 0; i < json_array_size(json); i++) {
    if (!json_is_object(json_array_get(json, i))) {
      tgi_job_fail(c->job, TG_BAD_ARGUMENT, "%s that are objects, got another value at index %zu",
                   what, i);
    }
  }
  return tgi_convert_json(c, json, untrusted);
}

/* ---- messages ---- */

static bool is_trusted_role(const json_t *role)
{
  const char *name = json_string_value(role);
  return name && (strcmp(name, "system") == 0 || strcmp(name, "developer") == 0 ||
                  strcmp(name, "assistant") == 0);
}

/**
 * Letters, digits, "_" and "-": no special token is in there, but some templates spell one around
 * it ("<|" + role + "|>").
 */
static bool is_plain_role(const json_t *role)
{
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
  const char *name = json_string_value(role);
  return name && strspn(name, plain) == json_string_length(role);
}

/** What the model thought, under whichever name it comes; NULL: nothing. */
static const json_t *find_reasoning(const json_t *message)
{
  static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    const json_t *value = json_object_get(message, names[i]);
    if (value && !json_is_null(value)) {
      return value;
    }
  }
  return NULL;
}

static void set(tgi_converter *c, tgi_dict *dict, const char *key, tgi_value value)
{
  tgi_dict_set(c->job, dict, convert_text(c, key, strlen(key), false), value);
}

static tgi_value convert_message(tgi_converter *c, const json_t *message)
{
  const json_t *role = json_object_get(message, "role");
  const bool untrusted = !is_trusted_role(role);
  const json_t *reasoning = find_reasoning(message);
  tgi_dict *dict = tgi_dict_new(c->job);
  if (reasoning) {
    set(c, dict, "thinking", tgi_convert_json(c, reasoning, untrusted));
  }
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)message, key, value)
  {
    if (!json_is_null(value)) {
      const bool plain = value == role && is_plain_role(role);
      set(c, dict, key, tgi_convert_json(c, value, untrusted && !plain));
    }
  }
  if (reasoning) {
    set(c, dict, "reasoning_content", tgi_convert_json(c, reasoning, untrusted));
  }
  return tgi_from_dict(TGI_DICT, dict);
}

tgi_value tgi_convert_messages(tgi_converter *c, const json_t *json)
{
  if (!json_is_array(json) || json_array_size(json) == 0) {
    tgi_job_fail(c->job, TG_BAD_ARGUMENT, "messages that are a list of at least one, got %s",
                 json_is_array(json) ? "an empty list" : "an object");
  }
  tgi_list *list = tgi_list_new(c->job);
  for (size_t i = 0; i < json_array_size(json); i++) {
    const json_t *message = json_array_get(json, i);
    if (!json_is_object(message)) {
      tgi_job_fail(c->job, TG_BAD_ARGUMENT,
                   "messages that are objects, got another value at index %zu", i);
    }
    tgi_list_add(c->job, list, convert_message(c, message));
  }
  return tgi_from_list(TGI_LIST, list);
}

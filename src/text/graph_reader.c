#include "graph_reader.h"
#include "files/file_error.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

tgi_place tgi_place_of(const char *format, ...)
{
  tgi_place place;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(place.text, sizeof place.text, format, arguments);
  va_end(arguments);
  return place;
}

void tgi_graph_fill_refusal(const tgi_graph_reader *r, tg_status status, const json_t *value,
                            const char *where, const char *rule)
{
  tgi_json_fill_refusal(r->json, status, value, r->error, "%s: expected %s", where, rule);
}

tg_status tgi_graph_no_memory(const tgi_graph_reader *r, size_t bytes)
{
  return tgi_file_error_memory(r->error, r->json->path, bytes);
}

bool tgi_graph_is_void(const json_t *parent, const char *key)
{
  const json_t *value = json_object_get(parent, key);
  if (json_is_string(value)) {
    return json_string_length(value) == 0;
  }
  if (json_is_array(value) || json_is_object(value)) {
    return json_array_size(value) + json_object_size(value) == 0; /* a wrong type has none */
  }
  return !value || json_is_null(value) || json_is_false(value);
}

bool tgi_graph_has_type(const json_t *stage, const char *type)
{
  const char *found = json_string_value(json_object_get(stage, "type"));
  return found && strcmp(found, type) == 0;
}

tg_status tgi_graph_flag(const tgi_graph_reader *r, const json_t *parent, const char *where,
                         const char *key, bool otherwise, bool *out)
{
  const json_t *value = json_object_get(parent, key);
  *out = !value || json_is_null(value) ? otherwise : json_is_true(value);
  return !value || json_is_null(value) || json_is_boolean(value)
             ? TG_OK
             : tgi_graph_unexpected(r, value, tgi_place_of("%s: %s", where, key).text,
                                    "true or false");
}

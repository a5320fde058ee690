#include "config_keys.h"
#include "file_error.h"
#include <stdio.h>

uint32_t tgi_config_find(const tgi_config_keys *keys, const char *key)
{
  const uint32_t node = tgi_json_member(keys->json, TGI_JSON_ROOT, key);
  return node && tgi_json_kind_of(keys->json, node) != TGI_JSON_NULL ? node : 0;
}

void tgi_config_unexpected(tgi_config_keys *keys, const char *key, const char *rule)
{
  if (keys->status != TG_OK) {
    return;
  }
  const uint32_t node = tgi_json_member(keys->json, TGI_JSON_ROOT, key);
  if (node) {
    keys->status = tgi_json_unexpected(keys->json, node, keys->error, "%s: %s", key, rule);
  } else {
    keys->status = tgi_file_error(keys->error, TG_BAD_FILE, keys->json->path,
                                  tgi_json_byte(keys->json, TGI_JSON_ROOT),
                                  "the key \"%s\": %s, got none", key, rule);
  }
}

void tgi_config_unsupported(tgi_config_keys *keys, const char *key, const char *known)
{
  if (keys->status != TG_OK) {
    return;
  }
  const tgi_json *json = keys->json;
  const uint32_t node = tgi_json_member(json, TGI_JSON_ROOT, key);
  const tgi_quoted found = tgi_quote(json->text + json->nodes[node].begin,
                                     json->nodes[node].end - json->nodes[node].begin);
  keys->status = tgi_file_error(keys->error, TG_UNSUPPORTED, json->path, tgi_json_byte(json, node),
                                "%s: %s, got %s", key, known, found.text);
}

static int32_t read_integer(tgi_config_keys *keys, const char *key, int32_t low, int32_t high)
{
  const uint32_t node = tgi_config_find(keys, key);
  int64_t value;
  if (node && tgi_json_int64(keys->json, node, &value) && value >= low && value <= high) {
    return (int32_t)value;
  }
  char rule[64];
  snprintf(rule, sizeof rule, "an integer from %d to %d", low, high);
  tgi_config_unexpected(keys, key, rule);
  return low;
}

int32_t tgi_config_required(tgi_config_keys *keys, const char *key, int32_t low, int32_t high)
{
  return read_integer(keys, key, low, high);
}

int32_t tgi_config_integer(tgi_config_keys *keys, const char *key, int32_t low, int32_t high,
                           int32_t otherwise)
{
  return tgi_config_find(keys, key) ? read_integer(keys, key, low, high) : otherwise;
}

double tgi_config_positive(tgi_config_keys *keys, const char *key, double high, double otherwise)
{
  const uint32_t node = tgi_config_find(keys, key);
  if (!node) {
    return otherwise;
  }
  double value;
  if (tgi_json_double(keys->json, node, &value) && value > 0 && value <= high) {
    return value;
  }
  char rule[64];
  snprintf(rule, sizeof rule, "a number above 0, at most %g", high);
  tgi_config_unexpected(keys, key, rule);
  return otherwise;
}

bool tgi_config_bool(tgi_config_keys *keys, const char *key, bool otherwise)
{
  const uint32_t node = tgi_config_find(keys, key);
  if (!node) {
    return otherwise;
  }
  const tgi_json_kind kind = tgi_json_kind_of(keys->json, node);
  if (kind != TGI_JSON_TRUE && kind != TGI_JSON_FALSE) {
    tgi_config_unexpected(keys, key, "true or false");
  }
  return kind == TGI_JSON_TRUE;
}

void tgi_config_eos(tgi_config_keys *keys, int32_t otherwise, tgi_config *config)
{
  static const char key[] = "eos_token_id";
  const tgi_json *json = keys->json;
  config->num_eos_token_ids = 0;
  if (!tgi_json_member(json, TGI_JSON_ROOT, key)) {
    if (otherwise >= 0) {
      config->eos_token_ids[config->num_eos_token_ids++] = otherwise;
    }
    return;
  }
  const uint32_t node = tgi_config_find(keys, key);
  if (!node) { /* null: none */
    return;
  }
  if (tgi_json_kind_of(json, node) != TGI_JSON_ARRAY) {
    config->eos_token_ids[config->num_eos_token_ids++] = read_integer(keys, key, 0, INT32_MAX);
    return;
  }
  for (uint32_t i = tgi_json_first(json, node); i; i = tgi_json_next(json, node, i)) {
    int64_t value;
    if (config->num_eos_token_ids == TGI_MAX_EOS_IDS || !tgi_json_int64(json, i, &value) ||
        value < 0 || value > INT32_MAX) {
      tgi_config_unexpected(keys, key, "at most 8 integers that are not negative");
      return;
    }
    config->eos_token_ids[config->num_eos_token_ids++] = (int32_t)value;
  }
}

#include "config_keys.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const json_t *get(const tgi_config_keys *keys, const char *key)
{
  return json_object_get(keys->object, key);
}

const json_t *tgi_config_find(const tgi_config_keys *keys, const char *key)
{
  const json_t *value = get(keys, key);
  return json_is_null(value) ? NULL : value;
}

void tgi_config_unexpected(tgi_config_keys *keys, const char *key, const char *rule)
{
  if (keys->status == TG_OK) {
    keys->status = tgi_json_refuse(keys->json, TG_BAD_FILE, get(keys, key), keys->error,
                                   "%s%s: expected %s", keys->place, key, rule);
  }
}

void tgi_config_unsupported(tgi_config_keys *keys, const char *key, const char *known)
{
  if (keys->status == TG_OK) {
    keys->status = tgi_json_refuse(keys->json, TG_UNSUPPORTED, get(keys, key), keys->error,
                                   "%s%s: expected %s", keys->place, key, known);
  }
}

bool tgi_config_whole(const json_t *value, int32_t low, int32_t high, int32_t *out)
{
  const double number = json_is_real(value) ? json_real_value(value) : -HUGE_VAL;
  if (!(number >= low && number <= high && floor(number) == number)) {
    return false;
  }
  *out = (int32_t)number;
  return true;
}

int32_t tgi_config_required(tgi_config_keys *keys, const char *key, int32_t low, int32_t high)
{
  int32_t value = low;
  if (!tgi_config_whole(tgi_config_find(keys, key), low, high, &value)) {
    char rule[64];
    snprintf(rule, sizeof rule, "an integer from %d to %d", low, high);
    tgi_config_unexpected(keys, key, rule);
  }
  return value;
}

int32_t tgi_config_integer(tgi_config_keys *keys, const char *key, int32_t low, int32_t high,
                           int32_t otherwise)
{
  return tgi_config_find(keys, key) ? tgi_config_required(keys, key, low, high) : otherwise;
}

double tgi_config_number(tgi_config_keys *keys, const char *key, double low, double high,
                         double otherwise)
{
  const json_t *value = tgi_config_find(keys, key);
  if (!value) {
    return otherwise;
  }
  const double number = json_is_real(value) ? json_real_value(value) : -HUGE_VAL;
  if (number >= low && number <= high) {
    return number;
  }
  char rule[80];
  snprintf(rule, sizeof rule, "a number from %g to %g", low, high);
  tgi_config_unexpected(keys, key, rule);
  return otherwise;
}

double tgi_config_above(tgi_config_keys *keys, const char *key, double low, double high,
                        double otherwise)
{
  const json_t *value = tgi_config_find(keys, key);
  if (!value) {
    return otherwise;
  }
  const double number = json_is_real(value) ? json_real_value(value) : -HUGE_VAL;
  if (number > low && number <= high) {
    return number;
  }
  char rule[80];
  snprintf(rule, sizeof rule, "a number above %g, at most %g", low, high);
  tgi_config_unexpected(keys, key, rule);
  return otherwise;
}

double tgi_config_positive(tgi_config_keys *keys, const char *key, double high, double otherwise)
{
  return tgi_config_above(keys, key, 0, high, otherwise);
}

bool tgi_config_bool(tgi_config_keys *keys, const char *key, bool otherwise)
{
  const json_t *value = tgi_config_find(keys, key);
  if (value && !json_is_boolean(value)) {
    tgi_config_unexpected(keys, key, "true or false");
  }
  return value ? json_is_true(value) : otherwise;
}

size_t tgi_config_choice(tgi_config_keys *keys, const char *key, const char *const *names,
                         size_t count, size_t otherwise, const char *known)
{
  const json_t *value = tgi_config_find(keys, key);
  if (!value) {
    return otherwise;
  }
  if (!json_is_string(value)) {
    tgi_config_unexpected(keys, key, "a name");
    return otherwise;
  }
  for (size_t i = 0; i < count; i++) {
    if (strcmp(json_string_value(value), names[i]) == 0) {
      return i;
    }
  }
  tgi_config_unsupported(keys, key, known);
  return otherwise;
}

int32_t tgi_config_ids(tgi_config_keys *keys, const char *key, int32_t *ids)
{
  const json_t *value = get(keys, key);
  if (!value || json_is_null(value)) { /* null: none */
    return value ? 0 : -1;
  }
  if (!json_is_array(value)) {
    ids[0] = tgi_config_required(keys, key, 0, INT32_MAX);
    return 1;
  }
  const size_t count = json_array_size(value);
  bool good = count <= TGI_MAX_EOS_IDS;
  for (size_t i = 0; good && i < count; i++) {
    good = tgi_config_whole(json_array_get(value, i), 0, INT32_MAX, &ids[i]);
  }
  if (!good) {
    tgi_config_unexpected(keys, key, "at most 8 integers that are not negative");
  }
  return good ? (int32_t)count : 0;
}

void tgi_config_eos(tgi_config_keys *keys, int32_t otherwise, tgi_config *config)
{
  const int32_t count = tgi_config_ids(keys, "eos_token_id", config->eos_token_ids);
  config->num_eos_token_ids = count;
  if (count < 0) {
    config->num_eos_token_ids = otherwise >= 0;
    config->eos_token_ids[0] = otherwise >= 0 ? otherwise : 0;
  }
}

json_t *tgi_config_bos_value(const tgi_config *config)
{
  return config->bos_token_id < 0 ? json_null() : json_integer(config->bos_token_id);
}

json_t *tgi_config_eos_value(const tgi_config *config)
{
  if (config->num_eos_token_ids == 0) {
    return json_null();
  }
  if (config->num_eos_token_ids == 1) {
    return json_integer(config->eos_token_ids[0]);
  }
  json_t *list = json_array();
  for (int32_t i = 0; i < config->num_eos_token_ids; i++) {
    json_array_append_new(list, json_integer(config->eos_token_ids[i]));
  }
  return list;
}

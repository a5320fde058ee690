#include "generation_config.h"
#include "config_keys.h"
#include "files/file_error.h"
#include "files/file_map.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_LIMIT ((size_t)1 << 20)

static void add_stop_id(tgi_generation_config *c, int32_t id)
{
  for (int32_t i = 0; i < c->num_stop_ids; i++) {
    if (c->stop_ids[i] == id) {
      return;
    }
  }
  c->stop_ids[c->num_stop_ids++] = id; /* both files have TGI_MAX_EOS_IDS at most */
}

void tgi_generation_config_start(const tgi_config *config, tgi_generation_config *out)
{
  *out = (tgi_generation_config){.says = {.temperature = 1,
                                          .top_p = 1,
                                          .repetition_penalty = 1,
                                          .bos_token_id = config->bos_token_id,
                                          .pad_token_id = -1}};
  for (int32_t i = 0; i < config->num_eos_token_ids; i++) {
    add_stop_id(out, config->eos_token_ids[i]);
  }
}

/** A number in [low, high]. */
static float read_number(tgi_config_keys *keys, const char *key, double low, double high,
                         double otherwise)
{
  const json_t *value = tgi_config_find(keys, key);
  const double number = json_is_real(value) ? json_real_value(value) : low - 1;
  if (value && !(number >= low && number <= high)) {
    char rule[80];
    snprintf(rule, sizeof rule, "a number from %g to %g", low, high);
    tgi_config_unexpected(keys, key, rule);
  }
  return (float)(value ? number : otherwise);
}

/** Files say -1 for none, too. */
static int32_t read_id(tgi_config_keys *keys, const char *key, int32_t otherwise)
{
  return tgi_config_integer(keys, key, -1, INT32_MAX, otherwise);
}

static void read_keys(tgi_config_keys *keys, tgi_generation_config *out)
{
  tg_generation_config *c = &out->says;
  c->given = true;
  c->temperature = read_number(keys, "temperature", 0, 1000, 1);
  if (!tgi_config_bool(keys, "do_sample", true)) {
    c->temperature = 0;
  }
  c->top_k = tgi_config_integer(keys, "top_k", 0, INT32_MAX, 0);
  c->top_p = read_number(keys, "top_p", 0, 1, 1);
  c->min_p = read_number(keys, "min_p", 0, 1, 0);
  c->repetition_penalty = (float)tgi_config_positive(keys, "repetition_penalty", TGI_MAX_REAL, 1);
  c->max_new_tokens = tgi_config_integer(keys, "max_new_tokens", 0, INT32_MAX, 0);
  c->bos_token_id = read_id(keys, "bos_token_id", c->bos_token_id);
  c->pad_token_id = read_id(keys, "pad_token_id", -1);
  int32_t ids[TGI_MAX_EOS_IDS];
  const int32_t count = tgi_config_ids(keys, "eos_token_id", ids);
  for (int32_t i = 0; i < count; i++) {
    add_stop_id(out, ids[i]);
  }
}

tg_status tgi_generation_config_parse(const char *path, const char *text, size_t size,
                                      tgi_generation_config *out, tg_error *error)
{
  tgi_json json;
  tg_status status = tgi_json_parse(path, text, size, 0, TGI_CONFIG_FLAGS, &json, error);
  if (status != TG_OK) {
    return status;
  }
  if (json_is_object(json.root)) {
    tgi_config_keys keys = {.json = &json, .object = json.root, .place = "", .error = error};
    read_keys(&keys, out);
    status = keys.status;
  } else {
    status = tgi_json_refuse(&json, TG_BAD_FILE, json.root, error, "expected an object");
  }
  json_decref(json.root);
  return status;
}

tg_status tgi_generation_config_read(const char *path, tgi_generation_config *out, tg_error *error)
{
  struct stat info;
  if (stat(path, &info) != 0 && errno == ENOENT) {
    return TG_OK;
  }
  tgi_file_map map;
  tg_status status = tgi_file_map_open(path, FILE_LIMIT, &map, error);
  if (status != TG_OK) {
    return status;
  }
  status = tgi_generation_config_parse(path, map.data, map.size, out, error);
  if (status == TG_OK) {
    out->text = malloc(map.size);
    out->size = map.size;
    status = out->text ? TG_OK : tgi_file_error_memory(error, path, map.size);
  }
  if (status == TG_OK) {
    memcpy(out->text, map.data, map.size);
  }
  tgi_file_map_close(&map);
  return status;
}

void tgi_generation_config_free(tgi_generation_config *config)
{
  free(config->text);
  config->text = NULL;
}

/* Takes exactly the tokenizer.json files whose encoding is one id per byte; whatever else is valid
 * is UNSUPPORTED. */
#include "byte_alphabet.h"
#include "files/file_error.h"
#include "files/file_map.h"
#include "files/json_file.h"
#include "files/utf8.h"
#include "special_tokens.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_LIMIT ((size_t)1 << 28)
#define ADDED_LIMIT 1024

/** UNSUPPORTED. */
static tg_status unsupported(const tgi_json *json, const json_t *value, tg_error *error,
                             const char *key, const char *rule)
{
  return tgi_json_refuse(json, TG_UNSUPPORTED, value, error,
                         "%s: expected a byte-level tokenizer (%s)", key, rule);
}

static tg_status unexpected(const tgi_json *json, const json_t *value, tg_error *error,
                            const char *key, const char *rule)
{
  return tgi_json_refuse(json, TG_BAD_FILE, value, error, "%s: expected %s", key, rule);
}

/** Whether a member is absent, null, false or an empty string, list or object. */
static bool is_void(const json_t *parent, const char *key)
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

static bool has_type(const json_t *stage, const char *type)
{
  const char *found = json_string_value(json_object_get(stage, "type"));
  return found && strcmp(found, type) == 0;
}

/** The stages around the model must leave one id per byte. */
static tg_status check_stages(const tgi_json *json, tg_error *error)
{
  const json_t *before = json_object_get(json->root, "pre_tokenizer");
  const json_t *after = json_object_get(json->root, "post_processor");
  const json_t *decoder = json_object_get(json->root, "decoder");
  if (!is_void(json->root, "normalizer")) {
    return unsupported(json, json_object_get(json->root, "normalizer"), error, "normalizer",
                       "null");
  }
  if (!has_type(before, "ByteLevel") || !is_void(before, "add_prefix_space")) {
    return unsupported(json, before, error, "pre_tokenizer", "ByteLevel, no prefix space");
  }
  if (!has_type(decoder, "ByteLevel")) {
    return unsupported(json, decoder, error, "decoder", "ByteLevel");
  }
  const bool adds_nothing =
      is_void(json->root, "post_processor") || has_type(after, "ByteLevel") ||
      (has_type(after, "TemplateProcessing") && is_void(after, "special_tokens"));
  return adds_nothing ? TG_OK : unsupported(json, after, error, "post_processor", "adds no tokens");
}

/** The byte that a vocabulary key spells, or -1. */
static int spelled_byte(const char *key)
{
  const size_t size = strlen(key);
  uint32_t point;
  return size > 0 && tgi_utf8_decode(key, size, &point) == size ? tgi_point_to_byte(point) : -1;
}

/** An entry that spells no byte must be an added token, which some files list here too. */
static bool is_added(const char *key, json_int_t id, const tg_tokenizer *tokenizer)
{
  const json_int_t index = id - TGI_BYTE_TOKENS;
  return index >= 0 && index < (json_int_t)tokenizer->count &&
         strcmp(key, tokenizer->tokens[index].text) == 0;
}

static tg_status check_vocab(const tgi_json *json, json_t *vocab, const tg_tokenizer *tokenizer,
                             tg_error *error)
{
  if (!json_is_object(vocab)) {
    return unexpected(json, vocab, error, "model: vocab", "an object");
  }
  int known = 0;
  const char *key;
  json_t *value;
  json_object_foreach(vocab, key, value)
  {
    char place[TGI_QUOTED_BYTES + 32];
    snprintf(place, sizeof place, "model: vocab: \"%s\"", tgi_quote(key, strlen(key)).text);
    const json_int_t id = json_integer_value(value);
    if (!json_is_integer(value) || id < 0) {
      return unexpected(json, value, error, place, "an id, an integer that is not negative");
    }
    if (spelled_byte(key) == id) {
      known++; /* keys differ, and so do their bytes */
    } else if (!is_added(key, id, tokenizer)) {
      return unsupported(json, value, error, place, "tokens of one byte, whose value is the id");
    }
  }
  return known == TGI_BYTE_TOKENS
             ? TG_OK
             : unsupported(json, vocab, error, "model: vocab", "a token for every byte");
}

static tg_status check_model(const tgi_json *json, const tg_tokenizer *tokenizer, tg_error *error)
{
  const json_t *model = json_object_get(json->root, "model");
  if (!json_is_object(model)) {
    return unexpected(json, model, error, "model", "an object");
  }
  if (!has_type(model, "BPE")) {
    return unsupported(json, json_object_get(model, "type"), error, "model: type", "BPE");
  }
  const json_t *merges = json_object_get(model, "merges");
  if (!json_is_array(merges)) {
    return unexpected(json, merges, error, "model: merges", "an array");
  }
  if (json_array_size(merges) > 0) {
    return unsupported(json, merges, error, "model: merges", "none");
  }
  if (!is_void(model, "continuing_subword_prefix") || !is_void(model, "end_of_word_suffix")) {
    return unsupported(json, model, error, "model", "no subword prefix or suffix");
  }
  return check_vocab(json, json_object_get(model, "vocab"), tokenizer, error);
}

static tg_status add_token(const tgi_json *json, const json_t *token, tg_tokenizer *tokenizer,
                           tg_error *error)
{
  char place[32];
  snprintf(place, sizeof place, "added_tokens[%zu]", tokenizer->count);
  const json_t *id = json_object_get(token, "id");
  const char *content = json_string_value(json_object_get(token, "content"));
  if (!json_is_integer(id) || !content || !*content) {
    return unexpected(json, token, error, place, "an added token with id and content");
  }
  if (json_integer_value(id) != TGI_BYTE_TOKENS + (json_int_t)tokenizer->count) {
    return unsupported(json, id, error, place, "added tokens with ids from 256 on, in order");
  }
  if (!is_void(token, "single_word") || !is_void(token, "lstrip") || !is_void(token, "rstrip")) {
    return unsupported(json, token, error, place, "added tokens that match as they are");
  }
  for (size_t i = 0; i < tokenizer->count; i++) {
    if (strcmp(tokenizer->tokens[i].text, content) == 0) {
      return unexpected(json, token, error, place, "each content once");
    }
  }
  char *text = strdup(content);
  if (!text) {
    return tgi_file_error_memory(error, json->path, strlen(content) + 1);
  }
  tgi_tokenizer_add(tokenizer, text, !is_void(token, "special"));
  return TG_OK;
}

static tg_status add_tokens(const tgi_json *json, tg_tokenizer **out, tg_error *error)
{
  const json_t *list = json_object_get(json->root, "added_tokens");
  if (list && !json_is_array(list)) {
    return unexpected(json, list, error, "added_tokens", "an array");
  }
  const size_t count = json_array_size(list);
  if (count > ADDED_LIMIT) {
    return unsupported(json, list, error, "added_tokens", "at most 1024 of them");
  }
  tg_tokenizer *tokenizer = tgi_tokenizer_allocate(count);
  if (!tokenizer) {
    return tgi_file_error_memory(error, json->path, (count + 1) * sizeof *tokenizer->tokens);
  }
  tg_status status = TG_OK;
  for (size_t i = 0; i < count && status == TG_OK; i++) {
    status = add_token(json, json_array_get(list, i), tokenizer, error);
  }
  if (status == TG_OK) {
    *out = tokenizer;
  } else {
    tg_tokenizer_destroy(tokenizer);
  }
  return status;
}

static tg_status read_tokenizer(const tgi_json *json, tg_tokenizer **out, tg_error *error)
{
  if (!json_is_object(json->root)) {
    return tgi_json_refuse(json, TG_BAD_FILE, json->root, error, "expected an object");
  }
  tg_tokenizer *tokenizer = NULL;
  tg_status status = add_tokens(json, &tokenizer, error);
  if (status == TG_OK) {
    status = check_model(json, tokenizer, error);
  }
  if (status == TG_OK) {
    status = check_stages(json, error);
  }
  if (status == TG_OK) {
    *out = tokenizer;
  } else {
    tg_tokenizer_destroy(tokenizer);
  }
  return status;
}

tg_status tgi_tokenizer_parse(const char *path, const char *text, size_t size, tg_tokenizer **out,
                              tg_error *error)
{
  *out = NULL;
  tgi_json json;
  tg_status status = tgi_json_parse(path, text, size, 0, 0, &json, error);
  if (status == TG_OK) {
    status = read_tokenizer(&json, out, error);
    json_decref(json.root);
  }
  return status;
}

tg_status tg_tokenizer_load(const char *directory, tg_tokenizer **out, tg_error *error)
{
  *out = NULL;
  tg_status status = tgi_find_directory(directory, error);
  if (status != TG_OK) {
    return status;
  }
  static const char name[] = "/tokenizer.json";
  const size_t size = strlen(directory) + sizeof name;
  char *path = malloc(size);
  if (!path) {
    return tgi_file_error_memory(error, directory, size);
  }
  snprintf(path, size, "%s%s", directory, name);
  tgi_json json;
  status = tgi_json_load(path, FILE_LIMIT, 0, &json, error);
  if (status == TG_OK) {
    status = read_tokenizer(&json, out, error);
    json_decref(json.root);
  }
  free(path);
  return status;
}

/* Takes exactly the tokenizer.json files whose encoding is one id per byte; whatever else is valid
 * is UNSUPPORTED. */
#include "byte_alphabet.h"
#include "file_error.h"
#include "file_map.h"
#include "json_reader.h"
#include "special_tokens.h"
#include "utf8.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_LIMIT ((size_t)1 << 28)
#define ADDED_LIMIT 1024

/** UNSUPPORTED at a node. */
static tg_status unsupported(const tgi_json *json, uint32_t node, tg_error *error, const char *rule)
{
  const tgi_quoted found = tgi_quote(json->text + json->nodes[node].begin,
                                     json->nodes[node].end - json->nodes[node].begin);
  return tgi_file_error(error, TG_UNSUPPORTED, json->path, tgi_json_byte(json, node),
                        "a byte-level tokenizer (%s), got %s", rule, found.text);
}

/** Whether a member is absent, null, false or an empty string, list or object. */
static bool is_void(const tgi_json *json, uint32_t parent, const char *key)
{
  const uint32_t node = tgi_json_member(json, parent, key);
  if (!node) {
    return true;
  }
  switch (tgi_json_kind_of(json, node)) {
  case TGI_JSON_NULL:
  case TGI_JSON_FALSE:
    return true;
  case TGI_JSON_STRING:
    return tgi_json_equals(json, node, "");
  case TGI_JSON_ARRAY:
  case TGI_JSON_OBJECT:
    return tgi_json_size(json, node) == 0;
  default:
    return false;
  }
}

static bool has_type(const tgi_json *json, uint32_t node, const char *type)
{
  const uint32_t found = node ? tgi_json_member(json, node, "type") : 0;
  return found && tgi_json_equals(json, found, type);
}

/** The stages around the model must leave one id per byte. */
static tg_status check_stages(const tgi_json *json, tg_error *error)
{
  const uint32_t before = tgi_json_member(json, TGI_JSON_ROOT, "pre_tokenizer");
  const uint32_t after = tgi_json_member(json, TGI_JSON_ROOT, "post_processor");
  const uint32_t decoder = tgi_json_member(json, TGI_JSON_ROOT, "decoder");
  if (!is_void(json, TGI_JSON_ROOT, "normalizer")) {
    return unsupported(json, tgi_json_member(json, TGI_JSON_ROOT, "normalizer"), error,
                       "normalizer null");
  }
  if (!has_type(json, before, "ByteLevel") || !is_void(json, before, "add_prefix_space")) {
    return unsupported(json, before, error, "pre_tokenizer ByteLevel, no prefix space");
  }
  if (!has_type(json, decoder, "ByteLevel")) {
    return unsupported(json, decoder, error, "decoder ByteLevel");
  }
  const bool adds_nothing =
      is_void(json, TGI_JSON_ROOT, "post_processor") || has_type(json, after, "ByteLevel") ||
      (has_type(json, after, "TemplateProcessing") && is_void(json, after, "special_tokens"));
  return adds_nothing ? TG_OK
                      : unsupported(json, after, error, "post_processor that adds no tokens");
}

/** The byte that a vocabulary key spells, or -1. */
static int spelled_byte(const tgi_json *json, uint32_t key)
{
  char text[64];
  if (tgi_json_string_bound(json, key) >= sizeof text) {
    return -1;
  }
  const size_t size = tgi_json_string(json, key, text);
  uint32_t point;
  return size > 0 && tgi_utf8_decode(text, size, &point) == size ? tgi_point_to_byte(point) : -1;
}

/** An entry that spells no byte must be an added token, which some files list here too. */
static bool is_added(const tgi_json *json, uint32_t key, int64_t id, const tg_tokenizer *tokenizer)
{
  const int64_t index = id - TGI_BYTE_TOKENS;
  return index >= 0 && index < (int64_t)tokenizer->count &&
         tgi_json_equals(json, key, tokenizer->tokens[index].text);
}

static tg_status check_vocab(const tgi_json *json, uint32_t model, const tg_tokenizer *tokenizer,
                             tg_error *error)
{
  const uint32_t vocab = tgi_json_member(json, model, "vocab");
  if (!vocab || tgi_json_kind_of(json, vocab) != TGI_JSON_OBJECT) {
    return tgi_json_unexpected(json, vocab ? vocab : model, error, "model: an object \"vocab\"");
  }
  int known = 0;
  for (uint32_t key = tgi_json_first(json, vocab); key; key = tgi_json_next(json, vocab, key + 1)) {
    int64_t id;
    if (!tgi_json_int64(json, key + 1, &id) || id < 0) {
      return tgi_json_unexpected(json, key + 1, error, "an id, an integer that is not negative");
    }
    const int byte = spelled_byte(json, key);
    if (byte >= 0 && byte == id) {
      known++; /* keys differ, and so do their bytes */
    } else if (!is_added(json, key, id, tokenizer)) {
      return unsupported(json, key, error, "tokens of one byte, whose value is the id");
    }
  }
  if (known != TGI_BYTE_TOKENS) {
    return unsupported(json, vocab, error, "a token for every byte");
  }
  return TG_OK;
}

static tg_status check_model(const tgi_json *json, const tg_tokenizer *tokenizer, tg_error *error)
{
  const uint32_t model = tgi_json_member(json, TGI_JSON_ROOT, "model");
  if (!model || tgi_json_kind_of(json, model) != TGI_JSON_OBJECT) {
    return tgi_json_unexpected(json, model, error, "an object \"model\"");
  }
  if (!has_type(json, model, "BPE")) {
    return unsupported(json, model, error, "model of type BPE");
  }
  const uint32_t merges = tgi_json_member(json, model, "merges");
  if (!merges || tgi_json_kind_of(json, merges) != TGI_JSON_ARRAY) {
    return tgi_json_unexpected(json, merges ? merges : model, error, "model: an array \"merges\"");
  }
  if (tgi_json_size(json, merges) > 0) {
    return unsupported(json, merges, error, "no merges");
  }
  if (!is_void(json, model, "continuing_subword_prefix") ||
      !is_void(json, model, "end_of_word_suffix")) {
    return unsupported(json, model, error, "no subword prefix or suffix");
  }
  return check_vocab(json, model, tokenizer, error);
}

static tg_status add_token(const tgi_json *json, uint32_t node, tg_tokenizer *tokenizer,
                           tg_error *error)
{
  int64_t id;
  const uint32_t number = tgi_json_member(json, node, "id");
  const uint32_t content = tgi_json_member(json, node, "content");
  if (!number || !tgi_json_int64(json, number, &id) || !content ||
      tgi_json_kind_of(json, content) != TGI_JSON_STRING || tgi_json_equals(json, content, "")) {
    return tgi_json_unexpected(json, node, error, "an added token with id and content");
  }
  if (id != TGI_BYTE_TOKENS + (int64_t)tokenizer->count) {
    return unsupported(json, number, error, "added tokens with ids from 256 on, in order");
  }
  if (!is_void(json, node, "single_word") || !is_void(json, node, "lstrip") ||
      !is_void(json, node, "rstrip")) {
    return unsupported(json, node, error, "added tokens that match as they are");
  }
  const size_t size = tgi_json_string_bound(json, content) + 1;
  char *text = malloc(size);
  if (!text) {
    return tgi_file_error_memory(error, json->path, size);
  }
  tgi_json_string(json, content, text);
  for (size_t i = 0; i < tokenizer->count; i++) {
    if (strcmp(tokenizer->tokens[i].text, text) == 0) {
      free(text);
      return tgi_json_unexpected(json, content, error, "each added token once");
    }
  }
  tgi_tokenizer_add(tokenizer, text, !is_void(json, node, "special"));
  return TG_OK;
}

static tg_status add_tokens(const tgi_json *json, tg_tokenizer **out, tg_error *error)
{
  const uint32_t list = tgi_json_member(json, TGI_JSON_ROOT, "added_tokens");
  if (list && tgi_json_kind_of(json, list) != TGI_JSON_ARRAY) {
    return tgi_json_unexpected(json, list, error, "added_tokens: an array");
  }
  const size_t count = list ? tgi_json_size(json, list) : 0;
  if (count > ADDED_LIMIT) {
    return unsupported(json, list, error, "at most 1024 added tokens");
  }
  tg_tokenizer *tokenizer = tgi_tokenizer_allocate(count);
  if (!tokenizer) {
    return tgi_file_error_memory(error, json->path, (count + 1) * sizeof *tokenizer->tokens);
  }
  tg_status status = TG_OK;
  for (uint32_t node = list ? tgi_json_first(json, list) : 0; node && status == TG_OK;
       node = tgi_json_next(json, list, node)) {
    status = add_token(json, node, tokenizer, error);
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
  tg_status status = tgi_json_read(path, text, size, 0, &json, error);
  if (status != TG_OK) {
    return status;
  }
  if (tgi_json_kind_of(&json, TGI_JSON_ROOT) != TGI_JSON_OBJECT) {
    status = tgi_json_unexpected(&json, TGI_JSON_ROOT, error, "an object");
  }
  tg_tokenizer *tokenizer = NULL;
  if (status == TG_OK) {
    status = add_tokens(&json, &tokenizer, error);
  }
  if (status == TG_OK) {
    status = check_model(&json, tokenizer, error);
  }
  if (status == TG_OK) {
    status = check_stages(&json, error);
  }
  if (status == TG_OK) {
    *out = tokenizer;
  } else {
    tg_tokenizer_destroy(tokenizer);
  }
  tgi_json_free(&json);
  return status;
}

tg_status tg_tokenizer_load(const char *directory, tg_tokenizer **out, tg_error *error)
{
  *out = NULL;
  static const char name[] = "/tokenizer.json";
  const size_t size = strlen(directory) + sizeof name;
  char *path = malloc(size);
  if (!path) {
    return tgi_file_error_memory(error, directory, size);
  }
  snprintf(path, size, "%s%s", directory, name);
  tgi_file_map map;
  tg_status status = tgi_file_map_open(path, FILE_LIMIT, &map, error);
  if (status == TG_OK) {
    status = tgi_tokenizer_parse(path, map.data, map.size, out, error);
    tgi_file_map_close(&map);
  }
  free(path);
  return status;
}

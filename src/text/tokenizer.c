#include "tegula/tokenizer.h"
#include "core/error_record.h"
#include "files/file_error.h"
#include "files/file_map.h"
#include "files/json_file.h"
#include "tokenizer_state.h"
#include <stdlib.h>
#include <string.h>

/* ---- making ---- */

tg_tokenizer *tgi_tokenizer_allocate(void)
{
  tg_tokenizer *t = calloc(1, sizeof *t);
  if (t) {
    t->bos = t->eos = t->pad = -1;
  }
  return t;
}

tg_status tgi_tokenizer_complete(tg_tokenizer *t, const char *path, const char *place,
                                 tg_error *error)
{
  for (int byte = 0; byte < 256; byte++) {
    const char text = (char)byte;
    t->byte_ids[byte] = tgi_vocabulary_find(&t->vocabulary, &text, 1);
    if (t->byte_ids[byte] < 0) {
      tgi_file_error_fill_at(error, TG_UNSUPPORTED, path, TGI_NO_BYTE,
                             "%sexpected a token for every byte, got none for 0x%02x", place,
                             (unsigned)byte);
      return TG_UNSUPPORTED;
    }
  }
  t->wholeness = calloc(t->vocabulary.count, sizeof *t->wholeness);
  return t->wholeness ? TG_OK : tgi_file_error_memory(error, path, t->vocabulary.count);
}

void tg_tokenizer_destroy(tg_tokenizer *t)
{
  if (!t) {
    return;
  }
  for (int i = 0; i < t->num_patterns; i++) {
    tgi_pattern_free(t->patterns[i]);
  }
  tgi_vocabulary_free(&t->vocabulary);
  tgi_merge_table_free(&t->merges);
  tgi_added_tokens_free(&t->added);
  tgi_added_tokens_free(&t->added_normalised);
  tgi_kept_files_free(&t->files);
  free((void *)t->wholeness);
  free(t->late);
  free(t->nfc);
  free(t);
}

/* ---- loading and saving ---- */

/** Id of the token that the settings give a name to: a string, or an object with its content. */
static tg_status read_name(tg_tokenizer *t, const tgi_json *json, const char *name, int32_t *out,
                           tg_error *error)
{
  const json_t *value = json_object_get(json->root, name);
  const json_t *text = json_is_object(value) ? json_object_get(value, "content") : value;
  bool short_of_memory;
  if (!value || json_is_null(value)) {
    return TG_OK;
  }
  if (!json_is_string(text)) {
    return tgi_json_refuse(json, TG_BAD_FILE, value, error, "%s: expected the text of a token",
                           name);
  }
  *out = tgi_vocabulary_find_name(&t->vocabulary, json_string_value(text), json_string_length(text),
                                  &short_of_memory);
  return short_of_memory ? tgi_file_error_memory(error, json->path, json_string_length(text))
                         : TG_OK;
}

static tg_status read_names(tg_tokenizer *t, const char *directory, tg_error *error)
{
  const tgi_kept_file *file = tgi_kept_files_find(&t->files, "tokenizer_config.json");
  if (!file) {
    return TG_OK;
  }
  char *path = tgi_path_in(directory, file->name);
  tgi_json json;
  /* model_max_length may be an integer of 31 digits */
  tg_status status =
      path ? tgi_json_parse(path, file->text, file->size, 0, JSON_DECODE_INT_AS_REAL, &json, error)
           : tgi_file_error_memory(error, directory, strlen(directory) + 23);
  if (status == TG_OK) {
    status = read_name(t, &json, "bos_token", &t->bos, error);
    status = status ? status : read_name(t, &json, "eos_token", &t->eos, error);
    status = status ? status : read_name(t, &json, "pad_token", &t->pad, error);
    json_decref(json.root);
  }
  free(path);
  return status;
}

static tg_status read_files(const tgi_kept_files *files, const char *directory, tg_tokenizer **out,
                            tg_error *error)
{
  const tgi_kept_file *whole = tgi_kept_files_find(files, "tokenizer.json");
  const tgi_paired_texts pair = {.vocabulary = tgi_kept_files_find(files, "vocab.json"),
                                 .merges = tgi_kept_files_find(files, "merges.txt"),
                                 .settings = tgi_kept_files_find(files, "tokenizer_config.json"),
                                 .directory = directory};
  if (!whole && pair.vocabulary && pair.merges) {
    return tgi_tokenizer_pair(&pair, out, error);
  }
  char *path = tgi_path_in(directory, "tokenizer.json");
  tg_status status;
  if (!path) {
    status = tgi_file_error_memory(error, directory, strlen(directory) + 16);
  } else if (whole) {
    status = tgi_tokenizer_parse(path, whole->text, whole->size, out, error);
  } else {
    status = tgi_file_error(error, TG_IO, path, TGI_NO_BYTE,
                            "to open it for reading (or vocab.json and merges.txt), got no such "
                            "file");
  }
  free(path);
  return status;
}

tg_status tg_tokenizer_load(const char *directory, tg_tokenizer **out, tg_error *error)
{
  tgi_kept_files files = {0};
  tg_tokenizer *t = NULL;
  *out = NULL;
  tg_status status = tgi_find_directory(directory, error);
  status = status ? status : tgi_kept_files_read(directory, &files, error);
  status = status ? status : read_files(&files, directory, &t, error);
  if (status != TG_OK) {
    tgi_kept_files_free(&files);
    return status;
  }
  t->files = files;
  status = read_names(t, directory, error);
  if (status == TG_OK) {
    *out = t;
  } else {
    tg_tokenizer_destroy(t);
  }
  return status;
}

tg_status tg_tokenizer_save(const tg_tokenizer *t, const char *directory, tg_error *error)
{
  return tgi_kept_files_save(&t->files, directory, error);
}

/* ---- what it holds ---- */

int32_t tg_tokenizer_vocab_size(const tg_tokenizer *t)
{
  return (int32_t)t->vocabulary.count;
}

int32_t tg_tokenizer_special(const tg_tokenizer *t, const char *name)
{
  if (strcmp(name, "bos_token") == 0) {
    return t->bos;
  }
  if (strcmp(name, "eos_token") == 0) {
    return t->eos;
  }
  return strcmp(name, "pad_token") == 0 ? t->pad : -1;
}

tg_token tg_tokenizer_piece(const tg_tokenizer *t, int32_t id)
{
  return tgi_vocabulary_token(&t->vocabulary, id);
}

/* ---- decoding ---- */

/** Adds up the ids' bytes, and copies them where `text` is given. */
static size_t put_bytes(const tg_tokenizer *t, const int32_t *ids, size_t count, bool skip,
                        char *text)
{
  size_t total = 0;
  for (size_t i = 0; i < count; i++) {
    const tg_token token = tgi_vocabulary_token(&t->vocabulary, ids[i]);
    if (skip && token.kind == TG_TOKEN_SPECIAL) {
      continue;
    }
    if (text) {
      memcpy(text + total, token.bytes, token.size);
    }
    total += token.size;
  }
  return total;
}

tg_status tg_tokenizer_decode(const tg_tokenizer *t, const int32_t *ids, size_t count,
                              uint32_t flags, char *text, size_t capacity, size_t *size,
                              tg_error *error)
{
  const bool skip = flags & TG_TOKENIZER_SKIP_SPECIAL;
  *size = 0;
  if (flags & ~TG_TOKENIZER_SKIP_SPECIAL) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "tokenizer_decode: flags: expected 0 or SKIP_SPECIAL, got %u", flags);
  }
  for (size_t i = 0; i < count; i++) {
    if (ids[i] < 0) {
      return tgi_error_set(error, TG_BAD_ARGUMENT,
                           "tokenizer_decode: ids[%zu]: expected an id of at least 0, got %d", i,
                           ids[i]);
    }
  }
  *size = put_bytes(t, ids, count, skip, NULL);
  if (capacity == 0) {
    return TG_OK;
  }
  if (capacity < *size) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "tokenizer_decode: capacity: expected at least %zu, got %zu", *size,
                         capacity);
  }
  put_bytes(t, ids, count, skip, text);
  return TG_OK;
}

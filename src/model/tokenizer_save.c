/* tokenizer.json in the form of the tokenizers library (0.23): BPE without merges, so that every
 * byte is a token. */
#include "byte_alphabet.h"
#include "durable_file.h"
#include "file_error.h"
#include "json_writer.h"
#include "special_tokens.h"
#include "utf8.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put_added_tokens(tgi_json_writer *writer, const tg_tokenizer *tokenizer)
{
  tgi_json_open_array(writer, "added_tokens");
  for (size_t i = 0; i < tokenizer->count; i++) {
    tgi_json_open_object(writer, NULL);
    tgi_json_put_integer(writer, "id", TGI_BYTE_TOKENS + (int64_t)i);
    tgi_json_put_string(writer, "content", tokenizer->tokens[i].text);
    tgi_json_put_bool(writer, "single_word", false);
    tgi_json_put_bool(writer, "lstrip", false);
    tgi_json_put_bool(writer, "rstrip", false);
    tgi_json_put_bool(writer, "normalized", false);
    tgi_json_put_bool(writer, "special", tokenizer->tokens[i].special);
    tgi_json_close_object(writer);
  }
  tgi_json_close_array(writer);
}

/** A pre-tokenizer or decoder; without merges, splitting by the regex would change nothing. */
static void put_byte_level(tgi_json_writer *writer, const char *key)
{
  tgi_json_open_object(writer, key);
  tgi_json_put_string(writer, "type", "ByteLevel");
  tgi_json_put_bool(writer, "add_prefix_space", false);
  tgi_json_put_bool(writer, "trim_offsets", true);
  tgi_json_put_bool(writer, "use_regex", false);
  tgi_json_close_object(writer);
}

static void put_model(tgi_json_writer *writer)
{
  static const char *const absent[] = {"dropout", "unk_token", "continuing_subword_prefix",
                                       "end_of_word_suffix"};
  tgi_json_open_object(writer, "model");
  tgi_json_put_string(writer, "type", "BPE");
  for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++) {
    tgi_json_put_null(writer, absent[i]);
  }
  tgi_json_put_bool(writer, "fuse_unk", false);
  tgi_json_put_bool(writer, "byte_fallback", false);
  tgi_json_put_bool(writer, "ignore_merges", false);
  tgi_json_open_object(writer, "vocab");
  for (int byte = 0; byte < TGI_BYTE_TOKENS; byte++) {
    char text[5] = {0};
    tgi_utf8_encode(tgi_byte_to_point((unsigned char)byte), text);
    tgi_json_put_integer(writer, text, byte);
  }
  tgi_json_close_object(writer);
  tgi_json_open_array(writer, "merges");
  tgi_json_close_array(writer);
  tgi_json_close_object(writer);
}

static void put_tokenizer(tgi_json_writer *writer, const tg_tokenizer *tokenizer)
{
  tgi_json_open_object(writer, NULL);
  tgi_json_put_string(writer, "version", "1.0");
  tgi_json_put_null(writer, "truncation");
  tgi_json_put_null(writer, "padding");
  put_added_tokens(writer, tokenizer);
  tgi_json_put_null(writer, "normalizer");
  put_byte_level(writer, "pre_tokenizer");
  tgi_json_put_null(writer, "post_processor");
  put_byte_level(writer, "decoder");
  put_model(writer);
  tgi_json_close_object(writer);
  tgi_json_put_raw(writer, "\n", 1);
}

static void put_settings(tgi_json_writer *writer, const tg_tokenizer *tokenizer)
{
  tgi_json_open_object(writer, NULL);
  /* The class of both transformers 4 and 5 that reads tokenizer.json as it stands. */
  tgi_json_put_string(writer, "tokenizer_class", "PreTrainedTokenizerFast");
  if (tg_tokenizer_end_of_text(tokenizer) >= 0) {
    tgi_json_put_string(writer, "bos_token", TGI_END_OF_TEXT);
    tgi_json_put_string(writer, "eos_token", TGI_END_OF_TEXT);
  }
  tgi_json_put_bool(writer, "clean_up_tokenization_spaces", false);
  tgi_json_close_object(writer);
  tgi_json_put_raw(writer, "\n", 1);
}

static tg_status save(const char *directory, const char *name,
                      void (*put)(tgi_json_writer *writer, const tg_tokenizer *tokenizer),
                      const tg_tokenizer *tokenizer, tg_error *error)
{
  const size_t size = strlen(directory) + 1 + strlen(name) + 1;
  char *path = malloc(size);
  if (!path) {
    return tgi_file_error_memory(error, name, size);
  }
  snprintf(path, size, "%s/%s", directory, name);
  tgi_json_writer writer = {.indent = 2};
  put(&writer, tokenizer);
  const tg_status status = tgi_json_writer_ok(&writer)
                               ? tgi_durable_file_save(path, writer.text, writer.size, error)
                               : tgi_file_error_memory(error, path, writer.capacity * 2);
  tgi_json_writer_free(&writer);
  free(path);
  return status;
}

tg_status tg_tokenizer_save(const tg_tokenizer *tokenizer, const char *directory, tg_error *error)
{
  const tg_status status = save(directory, "tokenizer.json", put_tokenizer, tokenizer, error);
  if (status != TG_OK) {
    return status;
  }
  return save(directory, "tokenizer_config.json", put_settings, tokenizer, error);
}

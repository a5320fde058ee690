/* tokenizer.json in the form of the tokenizers library (0.23): BPE without merges, so that every
 * byte is a token. */
#include "byte_alphabet.h"
#include "files/file_error.h"
#include "files/json_file.h"
#include "files/utf8.h"
#include "special_tokens.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *added_tokens(const tg_tokenizer *tokenizer)
{
  json_t *list = json_array();
  for (size_t i = 0; i < tokenizer->count; i++) {
    json_array_append_new(list, json_pack("{s:I, s:s, s:b, s:b, s:b, s:b, s:b}", "id",
                                          TGI_BYTE_TOKENS + (json_int_t)i, "content",
                                          tokenizer->tokens[i].text, "single_word", 0, "lstrip", 0,
                                          "rstrip", 0, "normalized", 0, "special",
                                          (int)tokenizer->tokens[i].special));
  }
  return list;
}

/** A pre-tokenizer or decoder; without merges, splitting by the regex would change nothing. */
static json_t *byte_level(void)
{
  return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                   "trim_offsets", 1, "use_regex", 0);
}

static json_t *model(void)
{
  json_t *vocab = json_object();
  for (int byte = 0; byte < TGI_BYTE_TOKENS; byte++) {
    char text[5] = {0};
    tgi_utf8_encode(tgi_byte_to_point((unsigned char)byte), text);
    json_object_set_new(vocab, text, json_integer(byte));
  }
  json_t *bpe = json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b}", "type", "BPE", "dropout",
                          "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                          "fuse_unk", 0, "byte_fallback", 0, "ignore_merges", 0);
  json_object_set_new(bpe, "vocab", vocab);
  json_object_set_new(bpe, "merges", json_array());
  return bpe;
}

static void put_tokenizer(json_t *root, const tg_tokenizer *tokenizer)
{
  json_object_set_new(root, "version", json_string("1.0"));
  json_object_set_new(root, "truncation", json_null());
  json_object_set_new(root, "padding", json_null());
  json_object_set_new(root, "added_tokens", added_tokens(tokenizer));
  json_object_set_new(root, "normalizer", json_null());
  json_object_set_new(root, "pre_tokenizer", byte_level());
  json_object_set_new(root, "post_processor", json_null());
  json_object_set_new(root, "decoder", byte_level());
  json_object_set_new(root, "model", model());
}

static void put_settings(json_t *root, const tg_tokenizer *tokenizer)
{
  /* The class of both transformers 4 and 5 that reads tokenizer.json as it stands. */
  json_object_set_new(root, "tokenizer_class", json_string("PreTrainedTokenizerFast"));
  if (tg_tokenizer_end_of_text(tokenizer) >= 0) {
    json_object_set_new(root, "bos_token", json_string(TGI_END_OF_TEXT));
    json_object_set_new(root, "eos_token", json_string(TGI_END_OF_TEXT));
  }
  json_object_set_new(root, "clean_up_tokenization_spaces", json_false());
}

static tg_status save(const char *directory, const char *name,
                      void (*put)(json_t *root, const tg_tokenizer *tokenizer),
                      const tg_tokenizer *tokenizer, tg_error *error)
{
  const size_t size = strlen(directory) + 1 + strlen(name) + 1;
  char *path = malloc(size);
  if (!path) {
    return tgi_file_error_memory(error, name, size);
  }
  snprintf(path, size, "%s/%s", directory, name);
  json_t *root = tgi_json_new();
  put(root, tokenizer);
  const tg_status status = tgi_json_save(path, root, 0, error);
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

/* The tokenizer of the 256 bytes: the files that Hugging Face's library (0.23) would write for a
 * BPE without merges, read back like those of any other. */
#include "bpe/byte_alphabet.h"
#include "files/file_error.h"
#include "files/json_file.h"
#include "files/utf8.h"
#include "tokenizer_state.h"
#include <string.h>

/** A pre-tokenizer or decoder; without merges, splitting by the regex would change nothing. */
static json_t *byte_level(void)
{
  return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                   "trim_offsets", 1, "use_regex", 0);
}

static json_t *model(void)
{
  json_t *vocab = json_object();
  for (int byte = 0; byte < 256; byte++) {
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

static void put_tokenizer(json_t *root)
{
  json_object_set_new(root, "version", json_string("1.0"));
  json_object_set_new(root, "truncation", json_null());
  json_object_set_new(root, "padding", json_null());
  json_object_set_new(root, "added_tokens",
                      json_pack("[{s:i, s:s, s:b, s:b, s:b, s:b, s:b}]", "id", 256, "content",
                                TGI_END_OF_TEXT, "single_word", 0, "lstrip", 0, "rstrip", 0,
                                "normalized", 0, "special", 1));
  json_object_set_new(root, "normalizer", json_null());
  json_object_set_new(root, "pre_tokenizer", byte_level());
  json_object_set_new(root, "post_processor", json_null());
  json_object_set_new(root, "decoder", byte_level());
  json_object_set_new(root, "model", model());
}

static void put_settings(json_t *root)
{
  /* The class of both transformers 4 and 5 that reads tokenizer.json as it stands. */
  json_object_set_new(root, "tokenizer_class", json_string("PreTrainedTokenizerFast"));
  json_object_set_new(root, "bos_token", json_string(TGI_END_OF_TEXT));
  json_object_set_new(root, "eos_token", json_string(TGI_END_OF_TEXT));
  json_object_set_new(root, "clean_up_tokenization_spaces", json_false());
}

/** Keeps a document as the file `name`, with a newline at its end. */
static tg_status keep(tgi_kept_files *files, const char *name, void (*put)(json_t *root),
                      tg_error *error)
{
  json_t *root = tgi_json_new();
  char *text;
  put(root);
  tg_status status = tgi_json_text(name, root, JSON_INDENT(2), &text, error);
  if (status == TG_OK) {
    const size_t size = strlen(text);
    text[size] = '\n'; /* in place of the terminator */
    status = tgi_kept_files_put(files, name, text, size + 1)
                 ? TG_OK
                 : tgi_file_error_memory(error, name, size + 2);
    tgi_json_free_text(text);
  }
  return status;
}

tg_status tg_tokenizer_create_bytes(tg_tokenizer **out, tg_error *error)
{
  static const char name[] = "tokenizer.json";
  tgi_kept_files files = {0};
  *out = NULL;
  tg_status status = keep(&files, name, put_tokenizer, error);
  status = status ? status : keep(&files, "tokenizer_config.json", put_settings, error);
  if (status == TG_OK) {
    const tgi_kept_file *file = tgi_kept_files_find(&files, name);
    status = tgi_tokenizer_parse(name, file->text, file->size, out, error);
  }
  if (status != TG_OK) {
    tgi_kept_files_free(&files);
    return status;
  }
  (*out)->files = files;
  (*out)->bos = (*out)->eos = 256;
  return TG_OK;
}

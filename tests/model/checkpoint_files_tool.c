/*
 * checkpoint_files_tool DIRECTORY PRESET VOCAB_SIZE: writes the preset's config.json and the
 * byte-level tokenizer's files, for transformers to read
 * (tests/python/runtime/test_checkpoint_files.py).
 */
#include "model/preset.h"
#include "tegula/tokenizer.h"
#include <stdio.h>
#include <stdlib.h>

static tg_status write_files(const char *directory, const char *preset, int32_t vocab_size,
                             tg_error *error)
{
  tgi_config config;
  tg_status status = tgi_preset(preset, vocab_size, &config, error);
  if (status != TG_OK) {
    return status;
  }
  char path[4096];
  snprintf(path, sizeof path, "%s/config.json", directory);
  status = tgi_config_write(&config, path, error);
  if (status != TG_OK) {
    return status;
  }
  tg_tokenizer *tokenizer;
  status = tg_tokenizer_create_bytes(&tokenizer, error);
  if (status == TG_OK) {
    status = tg_tokenizer_save(tokenizer, directory, error);
  }
  tg_tokenizer_destroy(tokenizer);
  return status;
}

int main(int argc, char **argv)
{
  if (argc != 4) {
    fprintf(stderr, "usage: checkpoint_files_tool DIRECTORY PRESET VOCAB_SIZE\n");
    return 2;
  }
  tg_error error = {0};
  if (write_files(argv[1], argv[2], atoi(argv[3]), &error) == TG_OK) {
    return 0;
  }
  fprintf(stderr, "%s: %s\n", tg_status_name(error.status), error.text);
  return 1;
}

/* Any bytes: a file of prompts is read or refused with a message that names a line, and what is
 * read is in range. */
#include "cli/generate/prompt_list.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
  if (!condition) {
    abort();
  }
}

static void check_refusal(const uint8_t *data, size_t size, tg_status status, const tg_error *error)
{
  int64_t lines = 1;
  long long line = 0;
  for (size_t i = 0; i < size; i++) {
    lines += data[i] == '\n';
  }
  require(status == error->status && strstr(error->text, "expected "));
  if (strcmp(error->text, "fuzz: expected a prompt, got none") != 0) {
    require(sscanf(error->text, "fuzz: line %lld: ", &line) == 1 && line >= 1 && line <= lines);
    require(status == TG_BAD_FILE || status == TG_BAD_ARGUMENT);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static tg_tokenizer *tokenizer;
  const tgi_generation_numbers numbers = tgi_generation_defaults().numbers;
  tgi_prompt_list list = {0};
  tg_error error = {0};
  require(tokenizer || tg_tokenizer_create_bytes(&tokenizer, NULL) == TG_OK);
  const tg_status status =
      tgi_prompt_list_parse("fuzz", (const char *)data, size, tokenizer, &numbers, &list, &error);
  if (status != TG_OK) {
    check_refusal(data, size, status, &error);
  }
  for (size_t i = 0; status == TG_OK && i < list.count; i++) {
    const tgi_generation_numbers *n = &list.items[i].numbers;
    require(list.items[i].prompt.count > 0 && n->max_tokens >= -1 && n->max_tokens != 0);
    require(n->temperature >= 0 && n->top_p >= 0 && n->top_p <= 1 && n->min_p >= 0 &&
            n->min_p <= 1);
    require(n->top_k >= 0 && n->seed >= 0 && n->repeat_last_n >= -1 && n->repetition_penalty > 0);
  }
  tgi_prompt_list_free(&list);
  return 0;
}

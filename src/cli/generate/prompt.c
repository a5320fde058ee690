#include "prompt.h"
#include "cli/text_input.h"
#include "core/error_record.h"
#include "text/tokenizer_state.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

tg_status tgi_prompt_encode(const tg_tokenizer *tokenizer, const char *text, size_t size,
                            tgi_prompt *out, tg_error *error)
{
  size_t count = 0;
  if (size == 0) {
    return tgi_error_set(error, TG_BAD_ARGUMENT, "prompt: expected text, got none");
  }
  const tg_status status = tgi_tokenizer_encode_all(tokenizer, text, size, TG_TOKENIZER_ADD_SPECIAL,
                                                    &out->ids, &count, error);
  out->count = (int64_t)count;
  return status;
}

tg_status tgi_prompt_read(const tg_tokenizer *tokenizer, const char *path, tgi_prompt *out,
                          tg_error *error)
{
  tgi_text_input input = {0};
  tg_status status = tgi_text_input_open(path, &input, error);
  if (status == TG_OK) {
    const bool cut = !input.block && input.size > 0 && input.text[input.size - 1] == '\n';
    status = tgi_prompt_encode(tokenizer, input.text, input.size - cut, out, error);
    if (status == TG_BAD_ARGUMENT) {
      const tg_error inner = *error;
      tgi_error_set(error, status, "%s: %.400s", input.name, inner.text);
    }
  }
  tgi_text_input_close(&input);
  return status;
}

tg_status tgi_prompt_parse(const char *text, tgi_prompt *out, tg_error *error)
{
  out->ids = malloc((strlen(text) + 1) * sizeof *out->ids);
  if (!out->ids) {
    return tgi_error_set(error, TG_NO_MEMORY, "--tokens: expected memory, got none");
  }
  for (const char *at = text; *at;) {
    char *end;
    errno = 0;
    const long value = strtol(at, &end, 10);
    if (end == at || errno != 0 || value < 0 || value > INT32_MAX || !strchr(", ", *end)) {
      return tgi_error_set(error, TG_BAD_ARGUMENT,
                           "--tokens: byte %zu: expected ids separated by commas, got \"%.40s\"",
                           (size_t)(at - text), at);
    }
    out->ids[out->count++] = (int32_t)value;
    end += strspn(end, " ");
    at = end + (*end == ',');
    at += strspn(at, " ");
    if (*end == ',' && !*at) {
      return tgi_error_set(error, TG_BAD_ARGUMENT, "--tokens: expected an id behind \"%.40s\"",
                           text);
    }
  }
  return TG_OK;
}

void tgi_prompt_free(tgi_prompt *prompt)
{
  free(prompt->ids);
  *prompt = (tgi_prompt){0};
}

#include "prompt.h"
#include "core/error_record.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tg_status read_input(char **text, size_t *size, tg_error *error)
{
  size_t capacity = 1 << 16;
  *text = malloc(capacity);
  *size = 0;
  while (*text && !feof(stdin) && !ferror(stdin)) {
    *size += fread(*text + *size, 1, capacity - *size, stdin);
    if (*size == capacity) {
      capacity *= 2;
      char *more = realloc(*text, capacity);
      if (!more) {
        free(*text);
      }
      *text = more;
    }
  }
  if (!*text) {
    return tgi_error_set(error, TG_NO_MEMORY,
                         "standard input: expected %zu bytes of memory, got none", capacity);
  }
  return ferror(stdin) ? tgi_error_set(error, TG_IO, "standard input: expected to read, got %s",
                                       strerror(errno))
                       : TG_OK;
}

static tg_status encode(const tg_tokenizer *tokenizer, const char *text, size_t size,
                        tgi_prompt *out, tg_error *error)
{
  size_t count = 0;
  if (size == 0) {
    return tgi_error_set(error, TG_BAD_ARGUMENT, "prompt: expected text, got none");
  }
  const tg_status status = tg_tokenizer_encode(tokenizer, text, size, 0, NULL, 0, &count, error);
  if (status != TG_OK) {
    return status;
  }
  out->ids = malloc(count * sizeof *out->ids);
  out->count = (int64_t)count;
  return out->ids ? tg_tokenizer_encode(tokenizer, text, size, 0, out->ids, count, &count, error)
                  : tgi_error_set(error, TG_NO_MEMORY, "prompt: expected memory, got none");
}

tg_status tgi_prompt_encode(const tg_tokenizer *tokenizer, const char *text, tgi_prompt *out,
                            tg_error *error)
{
  if (strcmp(text, "-") != 0) {
    return encode(tokenizer, text, strlen(text), out, error);
  }
  char *input = NULL;
  size_t size = 0;
  tg_status status = read_input(&input, &size, error);
  status = status ? status : encode(tokenizer, input, size, out, error);
  free(input);
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
    at = end + strspn(end, ", ");
  }
  return TG_OK;
}

void tgi_prompt_free(tgi_prompt *prompt)
{
  free(prompt->ids);
  *prompt = (tgi_prompt){0};
}

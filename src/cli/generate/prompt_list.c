#include "prompt_list.h"

#include "cli/text_input.h"
#include "core/error_record.h"
#include "core/growing.h"
#include "files/file_error.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct reading {
  const char *name; /* of the file */
  const tg_tokenizer *tokenizer;
  const tgi_generation_numbers *numbers;
  tgi_prompt_list *list;
  tg_error *error;
} reading;

static tg_status encode(const reading *r, const tgi_json *json, tgi_listed_prompt *p)
{
  const json_t *text = json_object_get(json->root, "prompt");
  if (!json_is_string(text)) {
    return tgi_json_refuse(json, TG_BAD_FILE, text, r->error, "prompt: expected a text");
  }
  const tg_status status = tgi_prompt_encode(r->tokenizer, json_string_value(text),
                                             json_string_length(text), &p->prompt, r->error);
  if (status != TG_OK && r->error) {
    const tg_error inner = *r->error;
    tgi_error_set(r->error, status, "%s: %.300s", json->path, inner.text);
  }
  return status;
}

static tg_status read_object(const reading *r, const tgi_json *json, tgi_listed_prompt *p)
{
  if (!json_is_object(json->root)) {
    return tgi_json_refuse(json, TG_BAD_FILE, json->root, r->error, "expected an object");
  }
  const char *key;
  json_t *value;
  uint64_t given = 0;
  tg_status status = TG_OK;
  json_object_foreach(json->root, key, value)
  {
    status =
        status ? status : tgi_generation_number(&p->numbers, key, value, json, &given, r->error);
  }
  return status ? status : encode(r, json, p);
}

static tg_status read_line(const reading *r, const char *text, size_t size, int64_t line)
{
  tgi_prompt_list *list = r->list;
  char name[256];
  tgi_json json;
  tgi_listed_prompt *grown = tgi_grow(list->items, &list->capacity, list->count + 1, sizeof *grown);
  if (!grown) {
    return tgi_file_error_memory(r->error, r->name, sizeof *grown);
  }
  list->items = grown;
  const size_t length = strlen(r->name), most = 200;
  snprintf(name, sizeof name, "%s: line %lld", r->name + (length > most ? length - most : 0),
           (long long)line);
  tg_status status = tgi_json_parse(name, text, size, 0, 0, &json, r->error);
  if (status != TG_OK) {
    return status;
  }
  tgi_listed_prompt *p = &list->items[list->count++];
  *p = (tgi_listed_prompt){.numbers = *r->numbers, .line = line};
  status = read_object(r, &json, p);
  json_decref(json.root);
  return status;
}

static bool is_empty(const char *text, size_t size)
{
  while (size > 0 && strchr(" \t\r", text[size - 1]) && text[size - 1]) {
    size--;
  }
  return size == 0;
}

tg_status tgi_prompt_list_parse(const char *name, const char *text, size_t size,
                                const tg_tokenizer *tokenizer,
                                const tgi_generation_numbers *numbers, tgi_prompt_list *out,
                                tg_error *error)
{
  const reading r = {name, tokenizer, numbers, out, error};
  tg_status status = TG_OK;
  int64_t line = 1;
  for (size_t at = 0; at < size && status == TG_OK; line++) {
    const char *newline = memchr(text + at, '\n', size - at);
    const size_t end = newline ? (size_t)(newline - text) : size;
    if (!is_empty(text + at, end - at)) {
      status = read_line(&r, text + at, end - at, line);
    }
    at = end + 1;
  }
  if (status == TG_OK && out->count == 0) {
    status = tgi_file_error(error, TG_BAD_FILE, name, TGI_NO_BYTE, "a prompt, got none");
  }
  return status;
}

tg_status tgi_prompt_list_read(const char *path, const tg_tokenizer *tokenizer,
                               const tgi_generation_numbers *numbers, tgi_prompt_list *out,
                               tg_error *error)
{
  tgi_text_input input = {0};
  tg_status status = tgi_text_input_open(path, &input, error);
  if (status == TG_OK) {
    status =
        tgi_prompt_list_parse(input.name, input.text, input.size, tokenizer, numbers, out, error);
  }
  tgi_text_input_close(&input);
  return status;
}

void tgi_prompt_list_free(tgi_prompt_list *list)
{
  for (size_t i = 0; i < list->count; i++) {
    tgi_prompt_free(&list->items[i].prompt);
  }
  free(list->items);
  *list = (tgi_prompt_list){0};
}

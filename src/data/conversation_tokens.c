#include "conversation_tokens.h"

#include "answer_spans.h"
#include "core/growing.h"
#include "files/file_error.h"
#include <stdlib.h>
#include <string.h>

/* ---- rendering ---- */

/* An error of template or tokenizer, as one of the line. */
static tg_status name_line(const char *line, tg_status status, tg_error *error)
{
  if (status == TG_OK || status == TG_NO_MEMORY) {
    return status;
  }
  if (error) {
    const tg_error inner = *error;
    tgi_file_error_fill_at(error, TG_BAD_FILE, line, TGI_NO_BYTE, "%s", inner.text);
  }
  return TG_BAD_FILE;
}

tg_status tgi_chat_render_first(const tgi_chat_reader *reader, const tgi_chat_parts *parts,
                                size_t count, bool add_generation_prompt, tg_chat_text *text,
                                tg_error *error)
{
  const size_t size = count > 0 ? parts->ends[count - 1] : 1;
  memcpy(parts->prefix, parts->messages, size);
  memcpy(parts->prefix + size, "]", 2);
  const tg_chat_request request = {.messages = parts->prefix,
                                   .tools = parts->tools,
                                   .documents = parts->documents,
                                   .arguments = parts->arguments,
                                   .name = reader->name,
                                   .date = reader->date,
                                   .add_generation_prompt = add_generation_prompt};
  return name_line(parts->line,
                   tg_chat_template_render(reader->chat_template, &request, text, error), error);
}

tg_status tgi_chat_encode(const tgi_chat_reader *reader, const char *line, const tg_chat_text *text,
                          tgi_spanned_ids *tokens, tg_error *error)
{
  _Static_assert(sizeof(tg_text_range) == sizeof(tg_byte_range), "both are a begin and an end");
  tg_text_range *ranges = NULL;
  const size_t count = reader->trust ? 0 : text->num_untrusted;
  if (count > 0) {
    ranges = malloc(count * sizeof *ranges);
    if (!ranges) {
      return tgi_file_error_memory(error, line, count * sizeof *ranges);
    }
  }
  for (size_t i = 0; i < count; i++) {
    ranges[i] = (tg_text_range){text->untrusted[i].begin, text->untrusted[i].end};
  }
  const tgi_marked_text marked = {text->text, text->size, ranges, count};
  const tg_status status = tgi_tokenizer_encode_spans(reader->tokenizer, &marked, 0, tokens, error);
  free(ranges);
  return name_line(line, status, error);
}

/* ---- the line ---- */

/* Dumps the messages one by one, so that any number of the first ones is a part of the text. */
static tg_status dump_messages(tgi_chat_parts *parts, tg_error *error)
{
  const size_t count = json_array_size(parts->list);
  size_t size = 1, capacity = 0;
  parts->ends = malloc((count + 1) * sizeof *parts->ends);
  parts->messages = tgi_grow(NULL, &capacity, 2, 1);
  if (!parts->ends || !parts->messages) {
    return tgi_file_error_memory(error, parts->line, (count + 1) * sizeof *parts->ends);
  }
  parts->messages[0] = '[';
  for (size_t i = 0; i < count; i++) {
    char *text;
    tgi_json_begin();
    const tg_status status = tgi_json_text(parts->line, json_incref(json_array_get(parts->list, i)),
                                           JSON_COMPACT | JSON_ENCODE_ANY, &text, error);
    if (status != TG_OK) {
      return status;
    }
    const size_t length = strlen(text);
    char *grown = tgi_grow(parts->messages, &capacity, size + length + 2, 1);
    if (grown) {
      parts->messages = grown;
      grown[size] = ',';
      memcpy(grown + size + (i > 0), text, length + 1);
      size += length + (i > 0);
      parts->ends[i] = size;
    }
    tgi_json_free_text(text);
    if (!grown) {
      return tgi_file_error_memory(error, parts->line, size + length + 2);
    }
  }
  parts->prefix = malloc(size + 2);
  return parts->prefix ? TG_OK : tgi_file_error_memory(error, parts->line, size + 2);
}

/* The text of a value that is a list; none for null. */
static tg_status dump_list(const tgi_json *line, const char *key, char **text, tg_error *error)
{
  json_t *value = json_object_get(line->root, key);
  if (!value || json_is_null(value)) {
    return TG_OK;
  }
  if (!json_is_array(value)) {
    return tgi_json_refuse(line, TG_BAD_FILE, value, error, "%s: expected a list of objects", key);
  }
  tgi_json_begin();
  return tgi_json_text(line->path, json_incref(value), JSON_COMPACT, text, error);
}

/* Variables: the reader's arguments, replaced by the line's other keys, and by those in
 * chat_template_kwargs. */
static tg_status dump_arguments(const tgi_chat_reader *reader, const tgi_json *line, char **text,
                                tg_error *error)
{
  static const char *const taken[] = {"messages", "tools", "documents", "chat_template_kwargs"};
  json_t *more = json_object_get(line->root, "chat_template_kwargs"), *value;
  if (more && !json_is_object(more) && !json_is_null(more)) {
    return tgi_json_refuse(line, TG_BAD_FILE, more, error,
                           "chat_template_kwargs: expected an object");
  }
  json_t *all = tgi_json_new();
  const char *key;
  json_object_update(all, (json_t *)(uintptr_t)reader->arguments);
  json_object_foreach(line->root, key, value)
  {
    bool is_taken = false;
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++) {
      is_taken = is_taken || strcmp(key, taken[i]) == 0;
    }
    if (!is_taken) {
      json_object_set(all, key, value);
    }
  }
  if (json_is_object(more)) {
    json_object_update(all, more);
  }
  return tgi_json_text(line->path, all, JSON_COMPACT, text, error);
}

static void free_parts(tgi_chat_parts *parts)
{
  free(parts->messages);
  free(parts->ends);
  free(parts->prefix);
  tgi_json_free_text(parts->tools);
  tgi_json_free_text(parts->documents);
  tgi_json_free_text(parts->arguments);
}

/* ---- which tokens count ---- */

static tg_status count_tokens(tgi_chat_reader *reader, const char *line,
                              const tg_byte_range *ranges, size_t num_ranges, tg_error *error)
{
  const tgi_spanned_ids *tokens = &reader->tokens;
  uint8_t *grown = tgi_grow(reader->counted, &reader->counted_capacity, tokens->count + 1, 1);
  if (!grown) {
    return tgi_file_error_memory(error, line, tokens->count + 1);
  }
  reader->counted = grown;
  size_t range = 0;
  for (size_t i = 0; i < tokens->count; i++) {
    const tg_text_range span = tokens->spans.list[i];
    while (range < num_ranges && span.begin >= ranges[range].end) {
      range++;
    }
    grown[i] = range < num_ranges && span.end > ranges[range].begin;
  }
  return TG_OK;
}

static tg_status read_rendered(tgi_chat_reader *reader, const tgi_chat_parts *parts,
                               const tg_chat_text *whole, tg_error *error)
{
  tgi_answers answers = {0};
  tg_status status = tgi_chat_encode(reader, parts->line, whole, &reader->tokens, error);
  if (status == TG_OK && tg_chat_template_mentions(reader->chat_template, "generation")) {
    return count_tokens(reader, parts->line, whole->generated, whole->num_generated, error);
  }
  status = status ? status : tgi_find_answers(reader, parts, whole, &answers, error);
  status = status ? status : count_tokens(reader, parts->line, answers.list, answers.count, error);
  free(answers.list);
  return status;
}

tg_status tgi_conversation_read(tgi_chat_reader *reader, const tgi_json *line, tg_error *error)
{
  tgi_chat_parts parts = {.line = line->path, .list = json_object_get(line->root, "messages")};
  tg_chat_text whole = {0};
  tg_status status = dump_messages(&parts, error);
  status = status ? status : dump_list(line, "tools", &parts.tools, error);
  status = status ? status : dump_list(line, "documents", &parts.documents, error);
  status = status ? status : dump_arguments(reader, line, &parts.arguments, error);
  status = status ? status
                  : tgi_chat_render_first(reader, &parts, json_array_size(parts.list), false,
                                          &whole, error);
  status = status ? status : read_rendered(reader, &parts, &whole, error);
  tg_chat_text_release(&whole);
  free_parts(&parts);
  return status;
}

void tgi_chat_reader_free(tgi_chat_reader *reader)
{
  tgi_spanned_ids_free(&reader->tokens);
  free(reader->counted);
  reader->counted = NULL;
  reader->counted_capacity = 0;
}

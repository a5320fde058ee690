#include "json_lines.h"

#include "files/file_error.h"
#include <stdio.h>
#include <string.h>

static bool is_blank(const char *text, size_t size)
{
  for (size_t i = 0; i < size; i++) {
    if (!strchr(" \t\r\n", text[i]) || text[i] == '\0') {
      return false;
    }
  }
  return true;
}

/* The end of a long path is kept, with the number behind it. */
static void name_line(tgi_json_lines *lines)
{
  enum { kMostOfPath = TGI_LINE_NAME_BYTES - 96 };
  const size_t size = strlen(lines->path);
  const bool cut = size > kMostOfPath;
  snprintf(lines->name, sizeof lines->name, "%s%.*s: line %llu", cut ? "..." : "", kMostOfPath,
           lines->path + (cut ? size - kMostOfPath : 0), (unsigned long long)lines->number);
}

static tg_status parse(tgi_json_lines *lines, const char *text, size_t size, tg_error *error)
{
  if (size >= (size_t)1 << 31) {
    return tgi_file_error(error, TG_BAD_FILE, lines->name, TGI_NO_BYTE,
                          "a line below 2^31 bytes, got %zu", size);
  }
  const tg_status status =
      tgi_json_parse(lines->name, text, size, 0, JSON_ALLOW_NUL, &lines->json, error);
  if (status == TG_OK && !json_is_object(lines->json.root)) {
    return tgi_json_refuse(&lines->json, TG_BAD_FILE, lines->json.root, error,
                           "expected a JSON object");
  }
  return status;
}

tg_status tgi_json_lines_next(tgi_json_lines *lines, bool *found, tg_error *error)
{
  *found = false;
  tgi_json_lines_end(lines);
  while (lines->at < lines->size) {
    const char *line = lines->text + lines->at;
    const char *newline = memchr(line, '\n', lines->size - lines->at);
    const size_t size = newline ? (size_t)(newline - line) : lines->size - lines->at;
    lines->at += size + (newline != NULL);
    lines->number++;
    if (!is_blank(line, size)) {
      name_line(lines);
      *found = true;
      return parse(lines, line, size, error);
    }
  }
  return TG_OK;
}

void tgi_json_lines_end(tgi_json_lines *lines)
{
  json_decref(lines->json.root);
  lines->json = (tgi_json){0};
}

tg_status tgi_json_line_kind(const tgi_json_lines *lines, bool *has_messages, tg_error *error)
{
  const json_t *messages = json_object_get(lines->json.root, "messages");
  const json_t *text = json_object_get(lines->json.root, "text");
  *has_messages = messages != NULL;
  if (!messages && !text) {
    return tgi_file_error(error, TG_BAD_FILE, lines->name, TGI_NO_BYTE,
                          "an object with \"text\" or \"messages\", got one without");
  }
  if (messages && text) {
    return tgi_file_error(error, TG_BAD_FILE, lines->name, TGI_NO_BYTE,
                          "an object with \"text\" or \"messages\", got one with both");
  }
  if (messages && !json_is_array(messages)) {
    return tgi_json_refuse(&lines->json, TG_BAD_FILE, messages, error,
                           "messages: expected a list of objects");
  }
  if (text && !json_is_string(text)) {
    return tgi_json_refuse(&lines->json, TG_BAD_FILE, text, error, "text: expected a text");
  }
  return TG_OK;
}

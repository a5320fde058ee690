#include "answer_spans.h"

#include "core/growing.h"
#include "files/file_error.h"
#include <stdlib.h>
#include <string.h>

/* A search through one conversation. */
typedef struct search {
  const tgi_chat_reader *reader;
  const tgi_chat_parts *parts;
  const tg_chat_text *whole;
  size_t behind;         /* byte of `whole` behind the last answer */
  tgi_spanned_ids other; /* ids of a text of the first messages */
} search;

static bool begins_with(const tg_chat_text *whole, const tg_chat_text *first)
{
  return first->size <= whole->size && memcmp(whole->text, first->text, first->size) == 0;
}

static bool is_special(const search *s, int32_t id)
{
  return tg_tokenizer_piece(s->reader->tokenizer, id).kind == TG_TOKEN_SPECIAL;
}

static tg_status refuse(const search *s, size_t message, tg_error *error)
{
  return tgi_file_error(error, TG_BAD_FILE, s->parts->line, TGI_NO_BYTE,
                        "to find the assistant's text of messages[%zu] in what the template makes "
                        "of the conversation, got a template that writes it in another way and "
                        "does not mark it by {%% generation %%}",
                        message);
}

static size_t shared_ids(const tgi_spanned_ids *a, const tgi_spanned_ids *b)
{
  size_t n = 0;
  while (n < a->count && n < b->count && a->ids[n] == b->ids[n]) {
    n++;
  }
  return n;
}

/* ---- where an answer begins ---- */

/* The header: what the beginning of an answer adds to the messages before. It stays valid until
 * s->other is filled again. */
static tg_status find_header(search *s, size_t message, const tg_chat_text *opened,
                             const int32_t **ids, size_t *count, tg_error *error)
{
  tg_chat_text before = {0};
  tgi_spanned_ids without = {0};
  *ids = NULL;
  *count = 0;
  tg_status status = tgi_chat_render_first(s->reader, s->parts, message, false, &before, error);
  status = status ? status : tgi_chat_encode(s->reader, s->parts->line, &before, &without, error);
  status = status ? status : tgi_chat_encode(s->reader, s->parts->line, opened, &s->other, error);
  if (status == TG_OK) {
    const size_t shared = shared_ids(&without, &s->other);
    *ids = s->other.ids + shared;
    *count = s->other.count - shared;
  }
  tg_chat_text_release(&before);
  tgi_spanned_ids_free(&without);
  return status;
}

/*
 * Looks for the header in the whole, behind the last answer. What it ends with may be missing there
 * (thoughts that are opened or closed for the model), but not its first two tokens, which name the
 * assistant.
 */
static bool find_header_again(const search *s, const int32_t *header, size_t count, size_t *begin)
{
  const tgi_spanned_ids *tokens = &s->reader->tokens;
  const size_t wanted = count < 2 ? count : 2;
  for (size_t i = 0; i < tokens->count && wanted > 0; i++) {
    size_t n = 0;
    while (n < count && i + n < tokens->count && tokens->ids[i + n] == header[n]) {
      n++;
    }
    if (n >= wanted && tokens->spans.list[i].begin >= s->behind) {
      *begin = tokens->spans.list[i + n - 1].end;
      return true;
    }
  }
  return false;
}

/* *first is the first token of the header: every header of the template begins with it, or at least
 * the assistant's. -1: it is not known, as it was not needed. */
static tg_status find_begin(search *s, size_t message, size_t *begin, int32_t *first,
                            tg_error *error)
{
  tg_chat_text opened = {0};
  const int32_t *header = NULL;
  size_t count = 0;
  *first = -1;
  if (message == 0) {
    return tgi_file_error(error, TG_BAD_FILE, s->parts->line, TGI_NO_BYTE,
                          "a message before the assistant's first one, got none (the template "
                          "does not mark the assistant's text by {%% generation %%})");
  }
  tg_status status = tgi_chat_render_first(s->reader, s->parts, message, true, &opened, error);
  if (status == TG_OK && begins_with(s->whole, &opened) && opened.size >= s->behind) {
    *begin = opened.size;
  } else if (status == TG_OK) {
    status = find_header(s, message, &opened, &header, &count, error);
    if (status == TG_OK && !find_header_again(s, header, count, begin)) {
      status = refuse(s, message, error);
    }
    *first = status == TG_OK ? header[0] : -1;
  }
  tg_chat_text_release(&opened);
  return status;
}

/* ---- where it ends ---- */

/* Behind the last special token of bytes begin .. limit - 1, or `otherwise`. */
static size_t behind_special(const search *s, size_t begin, size_t limit, size_t otherwise)
{
  const tgi_spanned_ids *tokens = &s->reader->tokens;
  size_t end = otherwise;
  for (size_t i = 0; i < tokens->count && tokens->spans.list[i].end <= limit; i++) {
    if (tokens->spans.list[i].begin >= begin && is_special(s, tokens->ids[i])) {
      end = tokens->spans.list[i].end;
    }
  }
  return end;
}

static bool holds_untrusted(const search *s, size_t begin, size_t end)
{
  for (size_t i = 0; i < s->whole->num_untrusted; i++) {
    if (s->whole->untrusted[i].begin < end && s->whole->untrusted[i].end > begin) {
      return true;
    }
  }
  return false;
}

/* The end of an answer that was written in another way when it was the last: `closed` is the text
 * of then. */
static tg_status find_end_again(search *s, size_t message, const tg_chat_text *closed, size_t begin,
                                int32_t first, size_t *end, tg_error *error)
{
  const tgi_spanned_ids *tokens = &s->reader->tokens;
  const tg_status status = tgi_chat_encode(s->reader, s->parts->line, closed, &s->other, error);
  if (status != TG_OK) {
    return status;
  }
  int32_t last = -1;
  for (size_t i = 0; i < s->other.count; i++) {
    last = is_special(s, s->other.ids[i]) ? s->other.ids[i] : last;
  }
  size_t limit = s->whole->size;
  for (size_t i = 0; i < tokens->count && limit == s->whole->size; i++) {
    const tg_text_range span = tokens->spans.list[i];
    if (span.begin >= begin && tokens->ids[i] == last) {
      *end = span.end;
      return TG_OK;
    }
    if (span.begin >= begin && tokens->ids[i] == first) {
      limit = span.begin;
    }
  }
  *end = behind_special(s, begin, limit, begin);
  return *end > begin && !holds_untrusted(s, begin, *end) ? TG_OK : refuse(s, message, error);
}

static tg_status find_end(search *s, size_t message, size_t begin, int32_t first, size_t *end,
                          tg_error *error)
{
  tg_chat_text closed = {0};
  tg_status status = tgi_chat_render_first(s->reader, s->parts, message + 1, false, &closed, error);
  if (status == TG_OK && begins_with(s->whole, &closed) && closed.size >= begin) {
    *end = behind_special(s, begin, closed.size, closed.size);
  } else if (status == TG_OK) {
    if (first < 0) { /* the header's first token, where the begin was found without */
      const int32_t *header;
      size_t count;
      tg_chat_text opened = {0};
      status = tgi_chat_render_first(s->reader, s->parts, message, true, &opened, error);
      status = status ? status : find_header(s, message, &opened, &header, &count, error);
      first = status == TG_OK && count > 0 ? header[0] : -1;
      tg_chat_text_release(&opened);
    }
    status = status ? status : find_end_again(s, message, &closed, begin, first, end, error);
  }
  tg_chat_text_release(&closed);
  return status;
}

/* ---- all of them ---- */

static bool is_assistant(const json_t *message)
{
  const char *role = json_string_value(json_object_get(message, "role"));
  return role && strcmp(role, "assistant") == 0;
}

static tg_status add(tgi_answers *answers, size_t begin, size_t end, const char *line,
                     tg_error *error)
{
  tg_byte_range *grown =
      tgi_grow(answers->list, &answers->capacity, answers->count + 1, sizeof *grown);
  if (!grown) {
    return tgi_file_error_memory(error, line, (answers->count + 1) * sizeof *grown);
  }
  answers->list = grown;
  grown[answers->count++] = (tg_byte_range){begin, end};
  return TG_OK;
}

tg_status tgi_find_answers(const tgi_chat_reader *reader, const tgi_chat_parts *parts,
                           const tg_chat_text *whole, tgi_answers *answers, tg_error *error)
{
  search s = {.reader = reader, .parts = parts, .whole = whole};
  tg_status status = TG_OK;
  for (size_t i = 0; i < json_array_size(parts->list) && status == TG_OK; i++) {
    size_t begin = 0, end = 0;
    int32_t first;
    if (!is_assistant(json_array_get(parts->list, i))) {
      continue;
    }
    status = find_begin(&s, i, &begin, &first, error);
    status = status ? status : find_end(&s, i, begin, first, &end, error);
    if (status == TG_OK && end > begin) {
      status = add(answers, begin, end, parts->line, error);
      s.behind = end;
    }
  }
  tgi_spanned_ids_free(&s.other);
  return status;
}

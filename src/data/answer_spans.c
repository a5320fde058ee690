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
  size_t first;          /* the first answer */
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

/* What the beginning of an answer adds to the messages before. */
typedef struct header {
  const int32_t *ids; /* valid until s->other is filled again */
  size_t count;
  size_t own; /* so many of its first tokens begin no other message */
} header;

static tg_status encode_first(const search *s, size_t count, tgi_spanned_ids *ids, tg_error *error)
{
  tg_chat_text text = {0};
  tg_status status = tgi_chat_render_first(s->reader, s->parts, count, false, &text, error);
  status = status ? status : tgi_chat_encode(s->reader, s->parts->line, &text, ids, error);
  tg_chat_text_release(&text);
  return status;
}

/* How many tokens of the header stand at `at`. */
static size_t shared_at(const tgi_spanned_ids *tokens, size_t at, const header *h)
{
  size_t n = 0;
  while (n < h->count && at + n < tokens->count && tokens->ids[at + n] == h->ids[n]) {
    n++;
  }
  return n;
}

static tg_status find_header(search *s, size_t message, const tg_chat_text *opened, header *h,
                             tg_error *error)
{
  tgi_spanned_ids before = {0};
  tg_status status = encode_first(s, message, &before, error);
  status = status ? status : tgi_chat_encode(s->reader, s->parts->line, opened, &s->other, error);
  if (status == TG_OK) {
    const size_t shared = shared_ids(&before, &s->other);
    *h = (header){s->other.ids + shared, s->other.count - shared, 1};
    status = encode_first(s, s->first, &before, error); /* no answer is in there */
  }
  for (size_t i = 0; i < before.count && status == TG_OK; i++) {
    const size_t n = shared_at(&before, i, h);
    h->own = n >= h->own ? n + 1 : h->own;
  }
  tgi_spanned_ids_free(&before);
  return status;
}

/*
 * Looks for the header in the whole, behind the last answer. What it ends with may be missing there
 * (thoughts that are opened or closed for the model), but not the tokens that tell it from other
 * headers.
 */
static bool find_header_again(const search *s, const header *h, size_t *begin)
{
  const tgi_spanned_ids *tokens = &s->reader->tokens;
  for (size_t i = 0; i < tokens->count && h->own <= h->count; i++) {
    const size_t n = shared_at(tokens, i, h);
    if (n >= h->own && tokens->spans.list[i].begin >= s->behind) {
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
  header h = {0};
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
    status = find_header(s, message, &opened, &h, error);
    if (status == TG_OK && !find_header_again(s, &h, begin)) {
      status = refuse(s, message, error);
    }
    *first = status == TG_OK ? h.ids[0] : -1;
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
  return *end > begin ? TG_OK : refuse(s, message, error);
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
      header h = {0};
      tg_chat_text opened = {0};
      status = tgi_chat_render_first(s->reader, s->parts, message, true, &opened, error);
      status = status ? status : find_header(s, message, &opened, &h, error);
      first = status == TG_OK && h.count > 0 ? h.ids[0] : -1;
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
  const size_t count = json_array_size(parts->list);
  while (s.first < count && !is_assistant(json_array_get(parts->list, s.first))) {
    s.first++;
  }
  for (size_t i = s.first; i < count && status == TG_OK; i++) {
    size_t begin = 0, end = 0;
    int32_t first;
    if (!is_assistant(json_array_get(parts->list, i))) {
      continue;
    }
    status = find_begin(&s, i, &begin, &first, error);
    status = status ? status : find_end(&s, i, begin, first, &end, error);
    if (status == TG_OK && holds_untrusted(&s, begin, end)) { /* no user's text is learnt */
      status = refuse(&s, i, error);
    }
    if (status == TG_OK && end > begin) {
      status = add(answers, begin, end, parts->line, error);
      s.behind = end;
    }
  }
  tgi_spanned_ids_free(&s.other);
  return status;
}

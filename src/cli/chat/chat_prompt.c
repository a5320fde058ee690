#include "chat_prompt.h"

#include "core/error_record.h"
#include "files/json_file.h"
#include <stdlib.h>
#include <string.h>

static const char kWhite[] = " \t\r\n";

static tg_status render(const tgi_chat_form *form, const tgi_conversation *c, bool prompt,
                        tg_chat_text *out, tg_error *error)
{
  char *messages;
  tg_status status = tgi_conversation_text(c, &messages, error);
  if (status == TG_OK) {
    status = tg_chat_template_render(form->chat_template,
                                     &(tg_chat_request){.messages = messages,
                                                        .arguments = form->arguments,
                                                        .name = form->name,
                                                        .date = form->date,
                                                        .add_generation_prompt = prompt},
                                     out, error);
  }
  tgi_json_free_text(messages);
  return status;
}

/* ---- ids ---- */

/** The ids of the text: counted, then written. */
static tg_status encode(const tgi_chat_form *form, const tg_chat_text *text,
                        const tg_text_range *ranges, size_t num_ranges, tgi_chat_prompt *out,
                        tg_error *error)
{
  size_t count = 0;
  tg_status status = tg_tokenizer_encode_marked(form->tokenizer, text->text, text->size, ranges,
                                                num_ranges, 0, NULL, 0, &count, error);
  if (status != TG_OK) {
    return status;
  }
  out->ids = malloc((count + 1) * sizeof *out->ids);
  if (!out->ids) {
    return tgi_error_set(error, TG_NO_MEMORY, "chat: expected room for %zu ids, got none", count);
  }
  out->count = (int64_t)count;
  return count == 0 ? TG_OK
                    : tg_tokenizer_encode_marked(form->tokenizer, text->text, text->size, ranges,
                                                 num_ranges, 0, out->ids, count, &count, error);
}

static tg_status encode_text(const tgi_chat_form *form, const tg_chat_text *text,
                             tgi_chat_prompt *out, tg_error *error)
{
  const size_t count = form->trust_content ? 0 : text->num_untrusted;
  tg_text_range *ranges = calloc(count + 1, sizeof *ranges);
  if (!ranges) {
    return tgi_error_set(error, TG_NO_MEMORY, "chat: expected room for %zu ranges, got none",
                         count);
  }
  for (size_t i = 0; i < count; i++) {
    ranges[i] = (tg_text_range){text->untrusted[i].begin, text->untrusted[i].end};
  }
  const tg_status status = encode(form, text, ranges, count, out, error);
  free(ranges);
  return status;
}

/** The place of the last `mark` in text that is terminated; NULL: none. */
static const char *find_last(const char *text, const char *mark)
{
  const char *last = NULL;
  for (const char *at = strstr(text, mark); at; at = strstr(at + 1, mark)) {
    last = at;
  }
  return last;
}

/** Whether a thought is open at the end, behind all that users wrote. */
static bool ends_in_thought(const tg_chat_text *text)
{
  const size_t from = text->num_untrusted ? text->untrusted[text->num_untrusted - 1].end : 0;
  const char *open = find_last(text->text + from, "<think>");
  return open && !strstr(open, "</think>");
}

tg_status tgi_chat_prompt_make(const tgi_chat_form *form, const tgi_conversation *c,
                               tgi_chat_prompt *out, tg_error *error)
{
  tg_chat_text text;
  *out = (tgi_chat_prompt){0};
  tg_status status = render(form, c, true, &text, error);
  if (status == TG_OK) {
    out->thinking = ends_in_thought(&text);
    status = encode_text(form, &text, out, error);
  }
  tg_chat_text_release(&text);
  if (status != TG_OK) {
    tgi_chat_prompt_free(out);
  }
  return status;
}

void tgi_chat_prompt_free(tgi_chat_prompt *prompt)
{
  free(prompt->ids);
  *prompt = (tgi_chat_prompt){0};
}

/* ---- how answers end ---- */

/** The text as a mark; by its id where it begins with an added token. */
static tgi_end_mark mark_of(const tgi_chat_form *form, const char *text, size_t size)
{
  tgi_end_mark mark = {"", -1};
  int32_t ids[3 * sizeof mark.text];
  size_t count = 0;
  if (size == 0 || size >= sizeof mark.text ||
      tg_tokenizer_encode(form->tokenizer, text, size, 0, ids, sizeof ids / sizeof *ids, &count,
                          NULL) != TG_OK ||
      count == 0) {
    return mark;
  }
  const tg_token_kind kind = tg_tokenizer_piece(form->tokenizer, ids[0]).kind;
  if (kind == TG_TOKEN_ADDED || kind == TG_TOKEN_SPECIAL) {
    mark.id = ids[0];
  } else {
    memcpy(mark.text, text, size);
  }
  return mark;
}

tgi_end_mark tgi_chat_end_mark(const tgi_chat_form *form)
{
  static const char kAnswer[] = "4711 answered";
  tgi_end_mark mark = {"", -1};
  tgi_conversation c = {0};
  tg_chat_text text = {0};
  tg_status status = tgi_conversation_ask(&c, (tgi_said){"asked", 5}, NULL);
  if (status == TG_OK) {
    status = tgi_conversation_answer(&c, (tgi_said){kAnswer, sizeof kAnswer - 1},
                                     (tgi_said){NULL, 0}, NULL);
  }
  /* A template that refuses this says nothing about its marks. */
  if (status == TG_OK && render(form, &c, false, &text, NULL) == TG_OK) {
    const char *at = find_last(text.text, kAnswer);
    if (at) {
      at += sizeof kAnswer - 1;
      at += strspn(at, kWhite);
      mark = mark_of(form, at, strcspn(at, kWhite));
    }
  }
  tg_chat_text_release(&text);
  tgi_conversation_free(&c);
  return mark;
}

bool tgi_chat_has_channels(const tgi_chat_form *form)
{
  const char *text =
      tg_chat_template_text(form->chat_template, form->name ? form->name : "default");
  return text && strstr(text, "<|channel|>");
}

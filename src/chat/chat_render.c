/* A conversation to text: arguments to values, the rendering, its text and ranges to the caller. */
#include "chat_date.h"
#include "chat_values.h"
#include "files/file_error.h"
#include "template_render.h"
#include "template_set.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** The JSON of one rendering; an absent one has no root. */
typedef struct conversation {
  tgi_json messages, tools, documents, arguments;
} conversation;

/* ---- arguments ---- */

static tg_status parse_json(const char *what, const char *text, tgi_json *json, tg_error *error)
{
  *json = (tgi_json){.path = what};
  if (!text) {
    return TG_OK;
  }
  const size_t size = strnlen(text, TG_CHAT_TEMPLATE_MAX_JSON + 1);
  if (size > TG_CHAT_TEMPLATE_MAX_JSON) {
    return tgi_file_error(error, TG_BAD_ARGUMENT, what, size - 1, "at most %d bytes, got more",
                          TG_CHAT_TEMPLATE_MAX_JSON);
  }
  tg_status status = tgi_json_parse(what, text, size, 0, JSON_ALLOW_NUL, json, error);
  if (status == TG_BAD_FILE) {
    status = TG_BAD_ARGUMENT; /* it is no file */
    if (error) {
      error->status = status;
    }
  }
  return status;
}

static tg_status parse_conversation(const tg_chat_request *args, conversation *c, tg_error *error)
{
  tg_status status =
      parse_json("messages", args->messages ? args->messages : "[]", &c->messages, error);
  status = status ? status : parse_json("tools", args->tools, &c->tools, error);
  status = status ? status : parse_json("documents", args->documents, &c->documents, error);
  return status ? status : parse_json("arguments", args->arguments, &c->arguments, error);
}

static void release_conversation(conversation *c)
{
  json_decref(c->messages.root);
  json_decref(c->tools.root);
  json_decref(c->documents.root);
  json_decref(c->arguments.root);
}

static void set_date(tgi_run *run, const char *date)
{
  if (date && !tgi_chat_date(date, &run->now)) {
    tgi_job_fail(&run->job, TG_BAD_ARGUMENT,
                 "a date such as 2026-11-27 or 2026-11-27T09:30:00, got \"%s\"",
                 tgi_quote(date, strlen(date)).text);
  }
  if (!date && tgi_tree_find(run->tree, "strftime_now") >= 0) {
    const time_t now = time(NULL);
    localtime_r(&now, &run->now);
  }
}

/* ---- variables ---- */

/** A variable of the template; one that it does not mention is left out. */
static void set_variable(tgi_run *run, const char *name, tgi_value value)
{
  const int32_t id = tgi_tree_find(run->tree, name);
  if (id >= 0) {
    tgi_scope_set(run, run->scope, id, value);
  }
}

static void set_arguments(tgi_run *run, tgi_converter *converter, const json_t *arguments)
{
  static const char *const taken[] = {"messages", "tools", "documents", "add_generation_prompt"};
  if (arguments && !json_is_object(arguments)) {
    tgi_job_fail(&run->job, TG_BAD_ARGUMENT, "arguments that are an object, got a list");
  }
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)arguments, key, value)
  {
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++) {
      if (strcmp(key, taken[i]) == 0) {
        tgi_job_fail(&run->job, TG_BAD_ARGUMENT, "arguments of other names, got \"%s\"", key);
      }
    }
    set_variable(run, key, tgi_convert_json(converter, value, false));
  }
}

static void set_variables(tgi_run *run, const tg_chat_template *set, const tg_chat_request *args,
                          const conversation *c)
{
  tgi_converter converter = {.job = &run->job};
  for (size_t i = 0; i < set->num_tokens; i++) {
    const char *token = set->tokens[i].token;
    set_variable(run, set->tokens[i].key,
                 tgi_text(tgi_string_new(&run->job, token, strlen(token))));
  }
  set_arguments(run, &converter, c->arguments.root);
  set_variable(run, "messages", tgi_convert_messages(&converter, c->messages.root));
  set_variable(run, "tools",
               c->tools.root ? tgi_convert_objects(&converter, c->tools.root, "tools", false)
                             : tgi_none());
  set_variable(run, "documents",
               c->documents.root
                   ? tgi_convert_objects(&converter, c->documents.root, "documents", true)
                   : tgi_none());
  set_variable(run, "add_generation_prompt", tgi_bool(args->add_generation_prompt));
}

/* ---- results ---- */

/** Ranges of the bytes with marks; counts them where `ranges` is NULL. */
static size_t find_untrusted(const tgi_writer *text, tg_byte_range *ranges)
{
  size_t count = 0;
  for (size_t at = 0; text->ink && at < text->size;) {
    const uint8_t *next = memchr(text->ink + at, 1, text->size - at);
    if (!next) {
      break;
    }
    const size_t begin = (size_t)(next - text->ink);
    const uint8_t *stop = memchr(next, 0, text->size - begin);
    at = stop ? (size_t)(stop - text->ink) : text->size;
    if (ranges) {
      ranges[count] = (tg_byte_range){begin, at};
    }
    count++;
  }
  return count;
}

/** Byte offset of a code point, from that of one before it. */
static size_t byte_of(const tgi_writer *text, size_t point, size_t *known_point, size_t *known_byte)
{
  size_t at = *known_byte;
  for (; *known_point < point && at < text->size; ++*known_point) {
    do {
      at++;
    } while (at < text->size && ((unsigned char)text->bytes[at] & 0xc0) == 0x80);
  }
  *known_byte = at;
  return at;
}

static size_t find_generated(const tgi_run *run, tg_byte_range *ranges)
{
  size_t count = 0, point = 0, byte = 0;
  for (const tgi_span *span = run->spans; span; span = span->next) {
    size_t end_point, end_byte;
    if (span->begin < point) { /* nested marks: from the start again */
      point = byte = 0;
    }
    const size_t begin = byte_of(&run->text, span->begin, &point, &byte);
    end_point = point;
    end_byte = byte;
    const size_t end = byte_of(&run->text, span->end, &end_point, &end_byte);
    if (end > begin) {
      if (ranges) {
        ranges[count] = (tg_byte_range){begin, end};
      }
      count++;
    }
  }
  return count;
}

static tg_status take_result(const tgi_run *run, tg_chat_text *out, tg_error *error)
{
  const tgi_writer *text = &run->text;
  out->num_untrusted = find_untrusted(text, NULL);
  out->num_generated = find_generated(run, NULL);
  out->text = malloc(text->size + 1);
  out->untrusted = calloc(out->num_untrusted + 1, sizeof *out->untrusted);
  out->generated = calloc(out->num_generated + 1, sizeof *out->generated);
  if (!out->text || !out->untrusted || !out->generated) {
    tg_chat_text_release(out);
    return tgi_file_error_memory(error, "chat_template_render", text->size + 1);
  }
  memcpy(out->text, text->bytes ? text->bytes : "", text->size);
  out->text[text->size] = '\0';
  out->size = text->size;
  find_untrusted(text, out->untrusted);
  find_generated(run, out->generated);
  return TG_OK;
}

void tg_chat_text_release(tg_chat_text *text)
{
  free(text->text);
  free(text->untrusted);
  free(text->generated);
  *text = (tg_chat_text){0};
}

/* ---- the rendering ---- */

/** The run is the caller's, as what a jump passes by is lost. */
static bool try_render(tgi_run *run, const tg_chat_template *set, const tg_chat_request *args,
                       const conversation *c)
{
  if (setjmp(run->job.out) != 0) {
    return false;
  }
  run->text = tgi_writer_begin(&run->job);
  run->out = &run->text;
  run->scope = tgi_scope_new(run, NULL);
  set_date(run, args->date);
  set_variables(run, set, args, c);
  tgi_execute(run, run->tree->statements);
  return true;
}

static tg_status choose(const tg_chat_template *set, const tg_chat_request *args,
                        const tgi_named_template **chosen, tg_error *error)
{
  const char *name = args->name;
  if (!name) {
    name = args->tools && tgi_template_set_find(set, "tool_use") ? "tool_use" : "default";
  }
  *chosen = tgi_template_set_find(set, name);
  if (!*chosen) {
    if (error) {
      error->status = TG_BAD_ARGUMENT;
      snprintf(error->text, sizeof error->text,
               "chat_template_render: name: expected one of the templates, got \"%.80s\"", name);
    }
    return TG_BAD_ARGUMENT;
  }
  if ((*chosen)->error.status != TG_OK && error) {
    *error = (*chosen)->error;
  }
  return (*chosen)->error.status;
}

tg_status tgi_chat_template_render(const tg_chat_template *set, const tg_chat_request *args,
                                   int64_t steps, tg_chat_text *out, tg_error *error)
{
  const tgi_named_template *chosen;
  *out = (tg_chat_text){0};
  tg_status status = choose(set, args, &chosen, error);
  if (status != TG_OK) {
    return status;
  }
  conversation c = {0};
  tgi_run *run = calloc(1, sizeof *run);
  status = run ? parse_conversation(args, &c, error)
               : tgi_file_error_memory(error, "chat_template_render", sizeof *run);
  if (status == TG_OK) {
    run->job.name = chosen->path;
    run->job.error = error;
    run->job.steps = TG_CHAT_TEMPLATE_MAX_STEPS - steps;
    run->tree = &chosen->tree;
    status = try_render(run, set, args, &c) ? take_result(run, out, error) : run->job.status;
    tgi_arena_free(&run->job.arena);
  }
  free(run);
  release_conversation(&c);
  return status;
}

tg_status tg_chat_template_render(const tg_chat_template *set, const tg_chat_request *args,
                                  tg_chat_text *out, tg_error *error)
{
  return tgi_chat_template_render(set, args, TG_CHAT_TEMPLATE_MAX_STEPS, out, error);
}

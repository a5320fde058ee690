/* The note in a checkpoint's trainer_state.json: {"train-file":"a.txt","lr":0.001,...}. */
#include "train_options.h"

#include "core/error_record.h"
#include "files/file_map.h"
#include "files/json_file.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Options of one call, which are not part of the run. */
static const char *const passing[] = {"out", "resume", "threads",  "device",
                                      "log", "quiet",  "no-cache", "show-data"};

/* Options that may change when a run is resumed: most do not affect the weights; the schedule is a
 * function of the step, and micro-batches differ in rounding alone, but for the auxiliary loss of
 * routers: tgi_train_prepare compares them then. The training text is compared by content, not by
 * name. */
static const char *const free_to_change[] = {
    "train-file",     "val-file",    "eval-every",   "eval-tokens",   "save-every", "schedule",
    "decay-fraction", "micro-batch", "sample-every", "sample-prompt", "keep"};

/* Options that notes of earlier versions lack: they then have the defaults. */
static const char *const newer[] = {
    "schedule", "decay-fraction", "micro-batch",   "sample-every",   "sample-prompt",
    "keep",     "template-arg",   "trust-content", "freeze-experts", "router-aux-loss"};

#define IS_ONE_OF(name, list) is_one_of(name, list, sizeof(list) / sizeof((list)[0]))

static bool is_one_of(const char *name, const char *const *list, size_t n)
{
  for (size_t i = 0; i < n; i++) {
    if (strcmp(list[i], name) == 0) {
      return true;
    }
  }
  return false;
}

static const void *value_of(const tgi_train_options *options, const tgi_option *o)
{
  return (const char *)options + o->offset;
}

/* ---- writing ---- */

static json_t *list_texts(const tgi_option_list *list)
{
  json_t *texts = json_array();
  for (int i = 0; i < list->count; i++) {
    json_array_append_new(texts, json_string(list->items[i]));
  }
  return texts;
}

static void write_option(json_t *w, const tgi_option *o, const void *value)
{
  switch (o->kind) {
  case TGI_OPTION_FLAG:
    json_object_set_new(w, o->name, json_boolean(*(const bool *)value));
    break;
  case TGI_OPTION_TEXT:
    if (*(const char *const *)value) {
      json_object_set_new(w, o->name, json_string(*(const char *const *)value));
    }
    break;
  case TGI_OPTION_I32:
    json_object_set_new(w, o->name, json_integer(*(const int32_t *)value));
    break;
  case TGI_OPTION_I64:
    json_object_set_new(w, o->name, json_integer(*(const int64_t *)value));
    break;
  case TGI_OPTION_F64:
    json_object_set_new(w, o->name, json_real(*(const double *)value));
    break;
  case TGI_OPTION_LIST:
    json_object_set_new(w, o->name, list_texts(value));
    break;
  }
}

tg_status tgi_train_note_write(const tgi_train_options *options, const tgi_text_identity *text,
                               tgi_note *note, tg_error *error)
{
  json_t *w = tgi_json_new();
  char hash[17], *json = NULL;
  snprintf(hash, sizeof hash, "%016llx", (unsigned long long)text->hash);
  for (const tgi_option *o = tgi_train_command_line.options; o->name; o++) {
    if (!IS_ONE_OF(o->name, passing)) {
      write_option(w, o, value_of(options, o));
    }
  }
  json_object_set_new(w, "train_hash", json_string(hash));
  json_object_set_new(w, "train_tokens", json_integer(text->train_tokens));
  tg_status status = tgi_json_text("note", w, JSON_COMPACT, &json, error);
  if (status == TG_OK && strlen(json) >= TGI_NOTE_BYTES) {
    status = tgi_error_set(error, TG_BAD_ARGUMENT, "note: expected below %d bytes, got %zu",
                           TGI_NOTE_BYTES, strlen(json));
  }
  if (status == TG_OK) {
    strcpy(note->text, json);
  }
  tgi_json_free_text(json);
  return status;
}

/* ---- reading ---- */

/* Reads the note's text and the number of steps done from trainer_state.json. */
static tg_status find_note(const char *path, tgi_note *note, int64_t *done, tg_error *error)
{
  tgi_json json = {0};
  tg_status status = tgi_json_load(path, 1 << 20, 0, &json, error);
  if (status != TG_OK) {
    return status;
  }
  const json_t *text = json_object_get(json.root, "note");
  *done = json_integer_value(json_object_get(json.root, "step")); /* tg_trainer_resume checks it */
  if (!json_is_string(text) || json_string_length(text) >= TGI_NOTE_BYTES) {
    status = tgi_json_refuse(&json, TG_BAD_FILE, text, error,
                             "note: expected one that tegula train wrote");
  } else {
    strcpy(note->text, json_string_value(text));
  }
  json_decref(json.root);
  return status;
}

/* Storage for the strings of a note. TGI_NOTE_BYTES suffice: strings are shorter than their JSON.
 */
typedef struct string_room {
  char *at;
} string_room;

static const char *keep_text(const json_t *node, string_room *room)
{
  const char *text = strcpy(room->at, json_string_value(node));
  room->at += json_string_length(node) + 1;
  return text;
}

static bool read_list(const json_t *node, tgi_option_list *list, string_room *room)
{
  *list = (tgi_option_list){.count = 0};
  if (!json_is_array(node) || json_array_size(node) > TGI_MAX_LISTED) {
    return false;
  }
  for (size_t i = 0; i < json_array_size(node); i++) {
    const json_t *item = json_array_get(node, i);
    if (!json_is_string(item)) {
      return false;
    }
    list->items[list->count++] = keep_text(item, room);
  }
  return true;
}

static bool read_option(const json_t *node, const tgi_option *o, void *value, string_room *room)
{
  switch (o->kind) {
  case TGI_OPTION_FLAG:
    *(bool *)value = json_is_true(node);
    return true;
  case TGI_OPTION_TEXT:
    if (!json_is_string(node)) {
      return false;
    }
    *(const char **)value = keep_text(node, room);
    return true;
  case TGI_OPTION_I32:
    if (!json_is_integer(node) || (double)json_integer_value(node) > o->max ||
        json_integer_value(node) < -0x7fffffff) {
      return false;
    }
    *(int32_t *)value = (int32_t)json_integer_value(node);
    return true;
  case TGI_OPTION_I64:
    *(int64_t *)value = json_integer_value(node);
    return json_is_integer(node);
  case TGI_OPTION_F64:
    *(double *)value = json_number_value(node);
    return json_is_number(node);
  case TGI_OPTION_LIST:
    return read_list(node, value, room);
  }
  return false;
}

static bool same_list(const tgi_option_list *a, const tgi_option_list *b)
{
  bool same = a->count == b->count;
  for (int i = 0; i < a->count && same; i++) {
    same = strcmp(a->items[i], b->items[i]) == 0;
  }
  return same;
}

static bool same_value(const tgi_option *o, const void *a, const void *b)
{
  const char *const *left = a, *const *right = b;
  switch (o->kind) {
  case TGI_OPTION_FLAG:
    return *(const bool *)a == *(const bool *)b;
  case TGI_OPTION_TEXT:
    return *left && *right ? strcmp(*left, *right) == 0 : *left == *right;
  case TGI_OPTION_I32:
    return *(const int32_t *)a == *(const int32_t *)b;
  case TGI_OPTION_I64:
    return *(const int64_t *)a == *(const int64_t *)b;
  case TGI_OPTION_F64:
    return *(const double *)a == *(const double *)b;
  case TGI_OPTION_LIST:
    return same_list(a, b);
  }
  return false;
}

static void print_value(const tgi_option *o, const void *value, char *text, size_t bytes)
{
  const char *name = o->kind == TGI_OPTION_TEXT ? *(const char *const *)value : NULL;
  if (o->kind == TGI_OPTION_TEXT) {
    snprintf(text, bytes, "%.100s", name ? name : "none");
  } else if (o->kind == TGI_OPTION_LIST) {
    const tgi_option_list *list = value;
    snprintf(text, bytes, "%.100s", list->count > 0 ? list->items[0] : "none");
  } else if (o->kind == TGI_OPTION_I32) {
    snprintf(text, bytes, "%d", *(const int32_t *)value);
  } else if (o->kind == TGI_OPTION_I64) {
    snprintf(text, bytes, "%lld", (long long)*(const int64_t *)value);
  } else {
    snprintf(text, bytes, "%.17g", *(const double *)value);
  }
}

static tg_status refuse(const tgi_option *o, const void *saved, const void *given, tg_error *error)
{
  char was[128], is[128];
  print_value(o, saved, was, sizeof was);
  print_value(o, given, is, sizeof is);
  return tgi_error_set(error, TG_BAD_ARGUMENT, "--%s: expected %s (the checkpoint's value), got %s",
                       o->name, was, is);
}

/* A finished run may go on to more steps: those that are done stay what they are. */
static tg_status check_steps(int64_t was, int64_t is, int64_t done, tg_error *error)
{
  if (is == was || (is > was && done >= was)) {
    return TG_OK;
  }
  return done >= was
             ? tgi_error_set(error, TG_BAD_ARGUMENT,
                             "--steps: expected at least %lld (the checkpoint's, all done), got "
                             "%lld",
                             (long long)was, (long long)is)
             : tgi_error_set(error, TG_BAD_ARGUMENT,
                             "--steps: expected %lld (the checkpoint's value; %lld are done, and "
                             "only a finished run can be extended), got %lld",
                             (long long)was, (long long)done, (long long)is);
}

static tg_status read_identity(const tgi_json *json, tgi_text_identity *text, tg_error *error)
{
  const json_t *hash = json_object_get(json->root, "train_hash");
  const json_t *tokens = json_object_get(json->root, "train_tokens");
  if (!json_is_string(hash) || json_string_length(hash) != 16) {
    return tgi_json_refuse(json, TG_BAD_FILE, hash, error, "train_hash: expected 16 digits");
  }
  if (!json_is_integer(tokens)) {
    return tgi_json_refuse(json, TG_BAD_FILE, tokens, error, "train_tokens: expected an integer");
  }
  text->train_tokens = json_integer_value(tokens);
  text->hash = strtoull(json_string_value(hash), NULL, 16);
  return TG_OK;
}

static tg_status apply(const tgi_json *json, int64_t done, tgi_train_options *options,
                       const tgi_parsed *given, tgi_text_identity *text, int32_t *micro_batch,
                       string_room *room, tg_error *error)
{
  const tgi_option *rows = tgi_train_command_line.options;
  tgi_train_options saved = *options;
  for (int i = 0; rows[i].name; i++) {
    const tgi_option *o = &rows[i];
    const json_t *node = json_object_get(json->root, o->name);
    if (IS_ONE_OF(o->name, passing) || (!node && IS_ONE_OF(o->name, newer))) {
      continue;
    }
    void *was = (char *)&saved + o->offset, *is = (char *)options + o->offset;
    if (o->kind == TGI_OPTION_TEXT) {
      *(const char **)was = NULL; /* a string that the note lacks was not given */
    }
    if ((!node && o->kind != TGI_OPTION_TEXT) || (node && !read_option(node, o, was, room))) {
      return tgi_json_refuse(json, TG_BAD_FILE, node, error, "%s: expected a value of --%s",
                             o->name, o->name);
    }
    if (given->given[i] && is == (void *)&options->steps) {
      const tg_status status = check_steps(saved.steps, options->steps, done, error);
      if (status != TG_OK) {
        return status;
      }
    } else if (given->given[i] && !IS_ONE_OF(o->name, free_to_change) && !same_value(o, was, is)) {
      return refuse(o, was, is, error);
    }
    if (!given->given[i]) {
      memcpy(is, was,
             o->kind == TGI_OPTION_I32    ? sizeof(int32_t)
             : o->kind == TGI_OPTION_FLAG ? sizeof(bool)
             : o->kind == TGI_OPTION_LIST ? sizeof(tgi_option_list)
                                          : sizeof(int64_t));
    }
  }
  *micro_batch = saved.micro_batch;
  return read_identity(json, text, error);
}

tg_status tgi_train_note_apply(tgi_train_options *options, const tgi_parsed *given,
                               tgi_text_identity *text, int32_t *micro_batch, tgi_note *note,
                               tg_error *error)
{
  char path[4096 + 32];
  tgi_note *json_text = malloc(sizeof *json_text);
  tgi_json json = {0};
  snprintf(path, sizeof path, "%.4096s/trainer_state.json", options->out);
  tg_status status = json_text
                         ? tgi_find_directory(options->out, error)
                         : tgi_error_set(error, TG_NO_MEMORY, "note: expected memory, got none");
  int64_t done = 0;
  status = status ? status : find_note(path, json_text, &done, error);
  if (status == TG_OK) {
    status = tgi_json_parse(path, json_text->text, strlen(json_text->text), 0, 0, &json, error);
  }
  if (status == TG_OK) {
    string_room room = {note->text};
    status = apply(&json, done, options, given, text, micro_batch, &room, error);
  }
  json_decref(json.root);
  free(json_text);
  return status;
}

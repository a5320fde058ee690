/* The note in a checkpoint's trainer_state.json: {"train-file":"a.txt","lr":0.001,...}. */
#include "train_options.h"

#include "core/error_record.h"
#include "model/file_map.h"
#include "model/json_reader.h"
#include "model/json_writer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Options that are about this call, not about the run. */
static const char *const passing[] = {"out", "resume", "threads", "log", "quiet"};

/* Options that may change when a run goes on: they do not touch the weights. The text is compared
 * by its content, not by its name. */
static const char *const free_to_change[] = {"train-file", "val-file", "eval-every", "eval-tokens",
                                             "save-every"};

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

static void write_option(tgi_json_writer *w, const tgi_option *o, const void *value)
{
  switch (o->kind) {
  case TGI_OPTION_FLAG:
    tgi_json_put_bool(w, o->name, *(const bool *)value);
    break;
  case TGI_OPTION_TEXT:
    if (*(const char *const *)value) {
      tgi_json_put_string(w, o->name, *(const char *const *)value);
    }
    break;
  case TGI_OPTION_I32:
    tgi_json_put_integer(w, o->name, *(const int32_t *)value);
    break;
  case TGI_OPTION_I64:
    tgi_json_put_integer(w, o->name, *(const int64_t *)value);
    break;
  case TGI_OPTION_F64:
    tgi_json_put_real(w, o->name, *(const double *)value);
    break;
  }
}

tg_status tgi_train_note_write(const tgi_train_options *options, const tgi_text_identity *text,
                               tgi_note *note, tg_error *error)
{
  tgi_json_writer w = {.indent = 0};
  char hash[17];
  snprintf(hash, sizeof hash, "%016llx", (unsigned long long)text->hash);
  tgi_json_open_object(&w, NULL);
  for (const tgi_option *o = tgi_train_command_line.options; o->name; o++) {
    if (!IS_ONE_OF(o->name, passing)) {
      write_option(&w, o, value_of(options, o));
    }
  }
  tgi_json_put_string(&w, "train_hash", hash);
  tgi_json_put_integer(&w, "train_tokens", text->train_tokens);
  tgi_json_close_object(&w);
  tg_status status = TG_OK;
  if (!tgi_json_writer_ok(&w)) {
    status = tgi_error_set(error, TG_NO_MEMORY, "note: expected memory, got none");
  } else if (w.size >= TGI_NOTE_BYTES) {
    status = tgi_error_set(error, TG_BAD_ARGUMENT, "note: expected below %d bytes, got %zu",
                           TGI_NOTE_BYTES, w.size);
  } else {
    memcpy(note->text, w.text, w.size);
    note->text[w.size] = '\0';
  }
  tgi_json_writer_free(&w);
  return status;
}

/* ---- reading ---- */

/* The note's text out of trainer_state.json. */
static tg_status find_note(const char *path, tgi_note *note, tg_error *error)
{
  tgi_file_map map;
  tgi_json json = {0};
  tg_status status = tgi_file_map_open(path, 1 << 20, &map, error);
  if (status == TG_OK) {
    status = tgi_json_read(path, map.data, map.size, 0, &json, error);
  }
  if (status == TG_OK) {
    const uint32_t node = tgi_json_member(&json, TGI_JSON_ROOT, "note");
    if (node == 0 || tgi_json_kind_of(&json, node) != TGI_JSON_STRING ||
        tgi_json_string_bound(&json, node) >= TGI_NOTE_BYTES) {
      status = tgi_json_unexpected(&json, node, error, "\"note\" of a run of this program");
    } else {
      (void)tgi_json_string(&json, node, note->text);
    }
  }
  tgi_json_free(&json);
  tgi_file_map_close(&map);
  return status;
}

/* Decodes the strings of the note into memory behind it: they are shorter than their JSON. */
typedef struct string_room {
  char *at;
} string_room;

static bool read_option(const tgi_json *json, uint32_t node, const tgi_option *o, void *value,
                        string_room *room)
{
  int64_t whole;
  switch (o->kind) {
  case TGI_OPTION_FLAG:
    *(bool *)value = tgi_json_kind_of(json, node) == TGI_JSON_TRUE;
    return true;
  case TGI_OPTION_TEXT:
    if (tgi_json_kind_of(json, node) != TGI_JSON_STRING) {
      return false;
    }
    *(const char **)value = room->at;
    room->at += tgi_json_string(json, node, room->at) + 1;
    return true;
  case TGI_OPTION_I32:
    if (!tgi_json_int64(json, node, &whole) || (double)whole > o->max ||
        whole < (int64_t)-0x7fffffff) {
      return false;
    }
    *(int32_t *)value = (int32_t)whole;
    return true;
  case TGI_OPTION_I64:
    return tgi_json_int64(json, node, value);
  case TGI_OPTION_F64:
    return tgi_json_double(json, node, value);
  }
  return false;
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
  }
  return false;
}

static void print_value(const tgi_option *o, const void *value, char *text, size_t bytes)
{
  const char *name = o->kind == TGI_OPTION_TEXT ? *(const char *const *)value : NULL;
  if (o->kind == TGI_OPTION_TEXT) {
    snprintf(text, bytes, "%.100s", name ? name : "none");
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
  return tgi_error_set(error, TG_BAD_ARGUMENT,
                       "--%s: expected %s, with which the checkpoint was trained, got %s", o->name,
                       was, is);
}

static tg_status read_identity(const tgi_json *json, tgi_text_identity *text, tg_error *error)
{
  const uint32_t hash = tgi_json_member(json, TGI_JSON_ROOT, "train_hash");
  const uint32_t tokens = tgi_json_member(json, TGI_JSON_ROOT, "train_tokens");
  char digits[32] = "";
  if (hash && tgi_json_kind_of(json, hash) == TGI_JSON_STRING &&
      tgi_json_string_bound(json, hash) < sizeof digits) {
    (void)tgi_json_string(json, hash, digits);
  }
  if (strlen(digits) != 16 || !tokens || !tgi_json_int64(json, tokens, &text->train_tokens)) {
    return tgi_json_unexpected(json, TGI_JSON_ROOT, error, "the identity of a text");
  }
  text->hash = strtoull(digits, NULL, 16);
  return TG_OK;
}

static tg_status apply(const tgi_json *json, tgi_train_options *options, const tgi_parsed *given,
                       tgi_text_identity *text, string_room *room, tg_error *error)
{
  const tgi_option *rows = tgi_train_command_line.options;
  tgi_train_options saved = *options;
  for (int i = 0; rows[i].name; i++) {
    const tgi_option *o = &rows[i];
    const uint32_t node = tgi_json_member(json, TGI_JSON_ROOT, o->name);
    if (IS_ONE_OF(o->name, passing)) {
      continue;
    }
    void *was = (char *)&saved + o->offset, *is = (char *)options + o->offset;
    if (o->kind == TGI_OPTION_TEXT) {
      *(const char **)was = NULL; /* a text that the note lacks was not given */
    }
    if (node == 0 && o->kind != TGI_OPTION_TEXT) {
      return tgi_json_unexpected(json, TGI_JSON_ROOT, error, "an object with \"%s\"", o->name);
    }
    if (node != 0 && !read_option(json, node, o, was, room)) {
      return tgi_json_unexpected(json, node, error, "a value of --%s", o->name);
    }
    if (given->given[i] && !IS_ONE_OF(o->name, free_to_change) && !same_value(o, was, is)) {
      return refuse(o, was, is, error);
    }
    if (!given->given[i]) {
      memcpy(is, was,
             o->kind == TGI_OPTION_I32    ? sizeof(int32_t)
             : o->kind == TGI_OPTION_FLAG ? sizeof(bool)
                                          : sizeof(int64_t));
    }
  }
  return read_identity(json, text, error);
}

tg_status tgi_train_note_apply(tgi_train_options *options, const tgi_parsed *given,
                               tgi_text_identity *text, tgi_note *note, tg_error *error)
{
  char path[4096 + 32];
  tgi_note *json_text = malloc(sizeof *json_text);
  tgi_json json = {0};
  snprintf(path, sizeof path, "%.4096s/trainer_state.json", options->out);
  tg_status status = json_text
                         ? find_note(path, json_text, error)
                         : tgi_error_set(error, TG_NO_MEMORY, "note: expected memory, got none");
  if (status == TG_OK) {
    status = tgi_json_read(path, json_text->text, strlen(json_text->text), 0, &json, error);
  }
  if (status == TG_OK) {
    string_room room = {note->text};
    status = apply(&json, options, given, text, &room, error);
  }
  tgi_json_free(&json);
  free(json_text);
  return status;
}

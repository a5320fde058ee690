/*
 * tokenizer.json: the vocabulary and the merges, which are nearly all of it, are read where they
 * stand (json_scan.h). The rest is copied without them, and read as a tree.
 */
#include "core/growing.h"
#include "files/file_error.h"
#include "files/json_scan.h"
#include "graph_reader.h"
#include "token_lists.h"
#include "tokenizer_graph.h"
#include <string.h>

/** A value in the text; `end` is 0 if there is none. */
typedef struct span {
  size_t begin, end;
  size_t strings; /* that it holds */
} span;

typedef struct lists {
  span vocabulary, merges;
} lists;

typedef struct member {
  const char *name;
  span *value;
} member;

/** Passes over an object and notes the values of some members. */
static tg_status find_members(tgi_json_scan *scan, const member *wanted, size_t count)
{
  size_t strings;
  if (!tgi_json_scan_take(scan, '{')) {
    return tgi_json_scan_skip(scan, &strings);
  }
  do {
    tgi_json_string key;
    tg_status status = tgi_json_scan_string(scan, &key);
    const member *found = NULL;
    for (size_t i = 0; i < count && status == TG_OK; i++) {
      const bool is =
          strlen(wanted[i].name) == key.size && memcmp(wanted[i].name, key.bytes, key.size) == 0;
      found = is ? &wanted[i] : found;
    }
    if (status == TG_OK && !tgi_json_scan_take(scan, ':')) {
      status = tgi_json_scan_refuse(scan, scan->at, "a colon");
    }
    const size_t begin = tgi_json_scan_next(scan);
    status = status ? status : tgi_json_scan_skip(scan, &strings);
    if (found) {
      *found->value = (span){begin, scan->at, strings};
    }
    if (status != TG_OK) {
      return status;
    }
  } while (tgi_json_scan_take(scan, ','));
  return TG_OK;
}

/** Where the lists stand. Passes over `{}` and what is broken: the tree's reader sees it. */
static tg_status find_lists(tgi_json_scan *scan, lists *out)
{
  span model = {0};
  const member in_root[] = {{"model", &model}};
  const member in_model[] = {{"vocab", &out->vocabulary}, {"merges", &out->merges}};
  *out = (lists){0};
  tg_status status = find_members(scan, in_root, 1);
  if (status == TG_OK && model.end > 0) {
    const size_t end = scan->at;
    scan->at = model.begin;
    status = find_members(scan, in_model, 2);
    scan->at = end;
  }
  return status;
}

/** The text with `null` in the place of both lists; NULL without memory. */
static char *without_lists(const tgi_json_scan *scan, const lists *l, size_t *size)
{
  static const char null[] = "null";
  const bool vocabulary_first = l->vocabulary.begin < l->merges.begin;
  const span cuts[2] = {vocabulary_first ? l->vocabulary : l->merges,
                        vocabulary_first ? l->merges : l->vocabulary};
  size_t from = 0, used = 0, cut = 0;
  for (int i = 0; i < 2; i++) {
    cut += cuts[i].end - cuts[i].begin;
  }
  char *text = malloc(scan->size - cut + 2 * sizeof null);
  for (int i = 0; text && i < 2; i++) {
    if (cuts[i].end > 0) {
      memcpy(text + used, scan->text + from, cuts[i].begin - from);
      used += cuts[i].begin - from;
      memcpy(text + used, null, sizeof null - 1);
      used += sizeof null - 1;
      from = cuts[i].end;
    }
  }
  if (text) {
    memcpy(text + used, scan->text + from, scan->size - from);
    *size = used + scan->size - from;
  }
  return text;
}

/** The document as a tree, without the lists. */
static tg_status read_tree(tgi_json_scan *scan, lists *l, tgi_json *json, tg_error *error)
{
  size_t size = 0;
  tg_status status = find_lists(scan, l);
  char *text = status == TG_OK ? without_lists(scan, l, &size) : NULL;
  if (text) {
    status = tgi_json_parse(scan->path, text, size, 0, 0, json, error);
    free(text);
  } else if (status == TG_OK) {
    status = tgi_file_error_memory(error, scan->path, scan->size);
  }
  if (status == TG_BAD_FILE) { /* read as a whole, for the byte that is wrong */
    const tg_status whole = tgi_json_parse(scan->path, scan->text, scan->size, 0, 0, json, error);
    if (whole == TG_OK) {
      json_decref(json->root);
    }
    status = whole ? whole : status;
  }
  return status;
}

static tg_status read_lists(tgi_json_scan *scan, const lists *l, const tgi_json *json,
                            tg_tokenizer *t, tg_error *error)
{
  const tgi_graph_reader r = {json, t, error};
  const json_t *model = json_object_get(json->root, "model");
  if (!json_is_object(json->root)) {
    return tgi_json_refuse(json, TG_BAD_FILE, json->root, error, "expected an object");
  }
  if (!json_is_object(model)) {
    return tgi_graph_unexpected(&r, model, "model", "an object");
  }
  if (l->vocabulary.end == 0) {
    return tgi_graph_unexpected(&r, NULL, "model: vocab", "an object");
  }
  if (l->merges.end == 0) {
    return tgi_graph_unexpected(&r, NULL, "model: merges", "an array");
  }
  scan->place = "model: vocab";
  scan->at = l->vocabulary.begin;
  tg_status status = tgi_read_vocabulary(scan, l->vocabulary.strings, &t->vocabulary);
  scan->place = "model: merges";
  scan->at = l->merges.begin;
  return status ? status : tgi_read_merges(scan, l->merges.strings, &t->vocabulary, &t->merges);
}

tg_status tgi_tokenizer_parse(const char *path, const char *text, size_t size, tg_tokenizer **out,
                              tg_error *error)
{
  tgi_json_scan scan = {.path = path, .text = text, .size = size, .error = error};
  tgi_json json = {.path = path};
  lists l;
  *out = NULL;
  tg_tokenizer *t = tgi_tokenizer_allocate();
  tg_status status = t ? TG_OK : tgi_file_error_memory(error, path, sizeof *t);
  status = status ? status : read_tree(&scan, &l, &json, error);
  if (status == TG_OK) {
    status = read_lists(&scan, &l, &json, t, error);
    status = status ? status : tgi_graph_read(&json, t, error);
    status = status ? status : tgi_tokenizer_complete(t, path, "model: vocab: ", error);
    json_decref(json.root);
  }
  free(scan.unescaped);
  if (status == TG_OK) {
    *out = t;
  } else {
    tg_tokenizer_destroy(t);
  }
  return status;
}

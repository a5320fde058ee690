/*
 * vocab.json and merges.txt: what tokenizer.json would say besides follows from the class of the
 * tokenizer, as transformers has it.
 */
#include "files/file_error.h"
#include "files/json_scan.h"
#include "graph_reader.h"
#include "token_lists.h"
#include "tokenizer_graph.h"
#include <stdio.h>
#include <string.h>

#define SETTINGS_LIMIT ((size_t)1 << 28)

typedef struct family {
  const char *classes[3]; /* tokenizer_class; ended by NULL */
  const char *types[7];   /* model_type of config.json, where there is no class */
  const char *graph;
} family;

#define QWEN2_PATTERN                                                                              \
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| "                \
  "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"

static const family families[] = {
    {{"GPT2Tokenizer", "GPT2TokenizerFast"},
     {"gpt2"},
     "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
     "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\"}}"},
    {{"Qwen2Tokenizer", "Qwen2TokenizerFast"},
     {"qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl", "qwen3", "qwen3_moe"},
     "{\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":\"Sequence\","
     "\"pretokenizers\":[{\"type\":\"Split\",\"behavior\":\"Isolated\",\"invert\":false,"
     "\"pattern\":{\"Regex\":\"" QWEN2_PATTERN "\"}},"
     "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]},"
     "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\"}}"},
};

static const family *find_family(const char *name, bool is_class)
{
  for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
    const char *const *names = is_class ? families[i].classes : families[i].types;
    for (; *names; names++) {
      if (strcmp(*names, name) == 0) {
        return &families[i];
      }
    }
  }
  return NULL;
}

/** By model_type of config.json. */
static tg_status family_of_model(const tgi_paired_texts *texts, const family **out, tg_error *error)
{
  char *path = tgi_path_in(texts->directory, "config.json");
  tgi_json json;
  if (!path) {
    return tgi_file_error_memory(error, texts->directory, strlen(texts->directory) + 13);
  }
  tg_status status = tgi_json_load(path, SETTINGS_LIMIT, JSON_DECODE_INT_AS_REAL, &json, error);
  if (status == TG_OK) {
    const json_t *type = json_object_get(json.root, "model_type");
    const char *name = json_string_value(type);
    *out = name ? find_family(name, false) : NULL;
    if (!*out) {
      status = tgi_json_refuse(&json, TG_UNSUPPORTED, type, error,
                               "model_type: expected gpt2, qwen2 or qwen3 for vocab.json and "
                               "merges.txt without a tokenizer_class");
    }
    json_decref(json.root);
  }
  free(path);
  return status;
}

static tg_status choose_family(const tgi_paired_texts *texts, const tgi_json *settings,
                               const family **out, tg_error *error)
{
  const json_t *class = settings->root ? json_object_get(settings->root, "tokenizer_class") : NULL;
  const char *name = json_string_value(class);
  if (!name) {
    return family_of_model(texts, out, error);
  }
  *out = find_family(name, true);
  return *out ? TG_OK
              : tgi_json_refuse(settings, TG_UNSUPPORTED, class, error,
                                "tokenizer_class: expected GPT2Tokenizer or Qwen2Tokenizer for "
                                "vocab.json and merges.txt");
}

/** {"151643": {"content": ...}, ...} as an array with ids, in their order. */
static json_t *list_added(json_t *decoder)
{
  json_t *list = json_array();
  const char *key;
  json_t *token;
  json_object_foreach(decoder, key, token)
  {
    char *end;
    const long long id = strtoll(key, &end, 10);
    json_t *copy = json_copy(token);
    if (*key && !*end) {
      json_object_set_new(copy, "id", json_integer(id)); /* refused where it is no object */
    }
    size_t at = json_array_size(list);
    while (at > 0 && json_integer_value(json_object_get(json_array_get(list, at - 1), "id")) > id) {
      at--;
    }
    json_array_insert_new(list, at, copy);
  }
  return list;
}

/** The added tokens of tokenizer_config.json; without any, the classes have this one. */
static json_t *added_tokens(const tgi_json *settings, const tgi_vocabulary *v, int32_t end_of_text)
{
  json_t *decoder = settings->root ? json_object_get(settings->root, "added_tokens_decoder") : NULL;
  if (json_is_object(decoder)) {
    return list_added(decoder);
  }
  const json_int_t id = end_of_text >= 0 ? end_of_text : (json_int_t)v->entries;
  return json_pack("[{s:I, s:s, s:b, s:b}]", "id", id, "content", TGI_END_OF_TEXT, "special", 1,
                   "normalized", 0);
}

static tg_status read_lists(const tgi_paired_texts *texts, tg_tokenizer *t, tg_error *error)
{
  char *vocabulary = tgi_path_in(texts->directory, texts->vocabulary->name);
  char *merges = tgi_path_in(texts->directory, texts->merges->name);
  tgi_json_scan scan = {.path = vocabulary,
                        .text = texts->vocabulary->text,
                        .size = texts->vocabulary->size,
                        .error = error};
  tg_status status = TG_OK;
  if (!vocabulary || !merges) {
    status = tgi_file_error_memory(error, texts->directory, strlen(texts->directory) + 12);
  }
  status = status ? status : tgi_read_vocabulary(&scan, 0, &t->vocabulary);
  if (status == TG_OK && tgi_json_scan_next(&scan) < scan.size) {
    status = tgi_json_scan_refuse(&scan, scan.at, "nothing behind the object");
  }
  status = status ? status
                  : tgi_read_merges_text(merges, texts->merges->text, texts->merges->size,
                                         &t->vocabulary, &t->merges, error);
  free(scan.unescaped);
  free(vocabulary);
  free(merges);
  return status;
}

/** Reads the family's graph with the added tokens of the settings. */
static tg_status read_graph(const family *kin, const tgi_json *settings, const char *path,
                            tg_tokenizer *t, tg_error *error)
{
  tgi_json graph;
  bool short_of_memory;
  const int32_t end_of_text = tgi_vocabulary_find_name(&t->vocabulary, TGI_END_OF_TEXT,
                                                       strlen(TGI_END_OF_TEXT), &short_of_memory);
  tg_status status =
      short_of_memory ? tgi_file_error_memory(error, path, strlen(TGI_END_OF_TEXT))
                      : tgi_json_parse(path, kin->graph, strlen(kin->graph), 0, 0, &graph, error);
  if (status != TG_OK) {
    return status;
  }
  json_object_set_new(graph.root, "added_tokens",
                      added_tokens(settings, &t->vocabulary, end_of_text));
  status = tgi_json_missing() == 0 ? tgi_graph_read(&graph, t, error)
                                   : tgi_file_error_memory(error, path, tgi_json_missing());
  json_decref(graph.root);
  return status;
}

static tg_status complete(const tgi_paired_texts *texts, tg_tokenizer *t, tg_error *error)
{
  char *path = tgi_path_in(texts->directory, texts->vocabulary->name);
  const tg_status status =
      path ? tgi_tokenizer_complete(t, path, "", error)
           : tgi_file_error_memory(error, texts->directory, strlen(texts->directory) + 12);
  free(path);
  return status;
}

static tg_status assemble(const tgi_paired_texts *texts, const tgi_json *settings, tg_tokenizer *t,
                          tg_error *error)
{
  const family *kin = NULL;
  tg_status status = choose_family(texts, settings, &kin, error);
  status = status ? status : read_lists(texts, t, error);
  status = status ? status : read_graph(kin, settings, settings->path, t, error);
  return status ? status : complete(texts, t, error);
}

tg_status tgi_tokenizer_pair(const tgi_paired_texts *texts, tg_tokenizer **out, tg_error *error)
{
  *out = NULL;
  tg_tokenizer *t = tgi_tokenizer_allocate();
  char *path = tgi_path_in(texts->directory, "tokenizer_config.json");
  tgi_json settings = {.path = path};
  tg_status status = TG_OK;
  if (!t || !path) {
    status = tgi_file_error_memory(error, texts->directory, sizeof *t);
  } else if (texts->settings) {
    status = tgi_json_parse(path, texts->settings->text, texts->settings->size, 0,
                            JSON_DECODE_INT_AS_REAL, &settings, error);
  }
  status = status ? status : assemble(texts, &settings, t, error);
  json_decref(settings.root);
  free(path);
  if (status == TG_OK) {
    *out = t;
  } else {
    tg_tokenizer_destroy(t);
  }
  return status;
}

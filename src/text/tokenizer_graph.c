#include "tokenizer_graph.h"
#include "graph_reader.h"
#include <string.h>

/* What ByteLevel splits by, unless told not to: GPT-2's pattern. */
static const char kByteLevelPattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* ---- the model ---- */

static tg_status read_model(const tgi_graph_reader *r, const json_t *model)
{
  const json_t *type = json_object_get(model, "type");
  const json_t *dropout = json_object_get(model, "dropout");
  if (!json_is_object(model)) {
    return tgi_graph_unexpected(r, model, "model", "an object");
  }
  if (type && !tgi_graph_has_type(model, "BPE")) { /* old files have no type */
    return tgi_graph_unsupported(r, type, "model: type", "BPE");
  }
  if (dropout && !json_is_null(dropout) &&
      !(json_is_number(dropout) && json_number_value(dropout) == 0)) {
    return tgi_graph_unsupported(r, dropout, "model: dropout", "none");
  }
  if (!tgi_graph_is_void(model, "continuing_subword_prefix") ||
      !tgi_graph_is_void(model, "end_of_word_suffix")) {
    return tgi_graph_unsupported(r, model, "model", "no subword prefix or suffix");
  }
  return tgi_graph_flag(r, model, "model", "ignore_merges", false, &r->t->ignore_merges);
}

/* ---- normaliser ---- */

/** NFC, or a sequence of nothing else. */
static tg_status read_normalizer(const tgi_graph_reader *r, const json_t *stage, const char *where,
                                 bool *normalise)
{
  const json_t *list = json_object_get(stage, "normalizers");
  if (tgi_graph_has_type(stage, "NFC")) {
    *normalise = true;
    return TG_OK;
  }
  if (!tgi_graph_has_type(stage, "Sequence") || !json_is_array(list)) {
    return tgi_graph_unsupported(r, stage, where, "NFC or none");
  }
  tg_status status = TG_OK;
  for (size_t i = 0; i < json_array_size(list) && status == TG_OK; i++) {
    const json_t *inner = json_array_get(list, i);
    const tgi_place at = tgi_place_of("%s: normalizers[%zu]", where, i);
    status = tgi_graph_has_type(inner, "Sequence") ? tgi_graph_unsupported(r, inner, at.text, "NFC")
                                                   : read_normalizer(r, inner, at.text, normalise);
  }
  return status;
}

static tg_status read_normalising(const tgi_graph_reader *r, const json_t *root)
{
  bool normalise = false;
  tg_status status = TG_OK;
  if (!tgi_graph_is_void(root, "normalizer")) {
    status = read_normalizer(r, json_object_get(root, "normalizer"), "normalizer", &normalise);
  }
  if (status == TG_OK && normalise) {
    r->t->nfc = tgi_point_map_make(tgi_nfc_points, tgi_nfc_points_count);
    status = r->t->nfc ? TG_OK : tgi_graph_no_memory(r, sizeof *r->t->nfc);
  }
  return status;
}

/* ---- pre-tokenizer ---- */

static tg_status add_pattern(const tgi_graph_reader *r, const json_t *stage, const char *text,
                             size_t size, const char *where)
{
  tg_tokenizer *t = r->t;
  if (t->num_patterns == TGI_MAX_PATTERNS) {
    return tgi_graph_unsupported(r, stage, where, "at most 8 patterns");
  }
  const tg_status status = tgi_pattern_compile(text, size, r->json->path, where,
                                               &t->patterns[t->num_patterns], r->error);
  if (status != TG_OK) {
    return status;
  }
  t->num_patterns++;
  if (tgi_pattern_has_classes(t->patterns[t->num_patterns - 1]) && !t->late) {
    t->late = tgi_point_map_make(tgi_late_points, tgi_late_points_count);
    return t->late ? TG_OK : tgi_graph_no_memory(r, sizeof *t->late);
  }
  return TG_OK;
}

/** The last step of every pre-tokenizer: text becomes bytes. */
static tg_status read_byte_level(const tgi_graph_reader *r, const json_t *stage, const char *where)
{
  bool prefix, by_pattern;
  tg_status status = tgi_graph_flag(r, stage, where, "add_prefix_space", false, &prefix);
  if (status == TG_OK && prefix) {
    status = tgi_graph_unsupported(r, json_object_get(stage, "add_prefix_space"),
                                   tgi_place_of("%s: add_prefix_space", where).text, "false");
  }
  status = status ? status : tgi_graph_flag(r, stage, where, "use_regex", true, &by_pattern);
  return status || !by_pattern
             ? status
             : add_pattern(r, stage, kByteLevelPattern, sizeof kByteLevelPattern - 1, where);
}

static tg_status read_split(const tgi_graph_reader *r, const json_t *stage, const char *where)
{
  const json_t *pattern = json_object_get(stage, "pattern");
  const json_t *regex = json_object_get(pattern, "Regex");
  const json_t *behavior = json_object_get(stage, "behavior");
  bool invert;
  const tg_status status = tgi_graph_flag(r, stage, where, "invert", false, &invert);
  if (status != TG_OK) {
    return status;
  }
  if (!json_is_string(regex)) {
    return tgi_graph_unsupported(r, pattern, tgi_place_of("%s: pattern", where).text,
                                 "{\"Regex\": ...}");
  }
  const char *how = json_string_value(behavior);
  if (invert || !how || strcmp(how, "Isolated") != 0) {
    return tgi_graph_unsupported(r, invert ? stage : behavior,
                                 tgi_place_of("%s: behavior", where).text,
                                 "\"Isolated\" and no invert");
  }
  return add_pattern(r, stage, json_string_value(regex), json_string_length(regex),
                     tgi_place_of("%s: pattern: Regex", where).text);
}

static tg_status read_sequence(const tgi_graph_reader *r, const json_t *stage, const char *where)
{
  const json_t *list = json_object_get(stage, "pretokenizers");
  const size_t count = json_array_size(list);
  if (count == 0) {
    return tgi_graph_unsupported(r, stage, where, "Split any number of times, then ByteLevel");
  }
  tg_status status = TG_OK;
  for (size_t i = 0; i < count && status == TG_OK; i++) {
    const json_t *inner = json_array_get(list, i);
    const tgi_place at = tgi_place_of("%s: pretokenizers[%zu]", where, i);
    const bool last = i + 1 == count;
    if (!tgi_graph_has_type(inner, last ? "ByteLevel" : "Split")) {
      status = tgi_graph_unsupported(r, inner, at.text, last ? "ByteLevel at the end" : "Split");
    } else {
      status = last ? read_byte_level(r, inner, at.text) : read_split(r, inner, at.text);
    }
  }
  return status;
}

static tg_status read_splitting(const tgi_graph_reader *r, const json_t *root)
{
  static const char where[] = "pre_tokenizer";
  const json_t *stage = json_object_get(root, where);
  if (tgi_graph_has_type(stage, "Sequence")) {
    return read_sequence(r, stage, where);
  }
  return tgi_graph_has_type(stage, "ByteLevel")
             ? read_byte_level(r, stage, where)
             : tgi_graph_unsupported(r, stage, where, "ByteLevel, or a Sequence that ends with it");
}

/* ---- post-processor, decoder ---- */

/** The ids of a special token of the template. */
static tg_status read_around(const tgi_graph_reader *r, const json_t *stage, const json_t *item,
                             const char *where, tgi_around *around)
{
  const char *name =
      json_string_value(json_object_get(json_object_get(item, "SpecialToken"), "id"));
  const json_t *token = json_object_get(json_object_get(stage, "special_tokens"), name ? name : "");
  const json_t *ids = json_object_get(token, "ids");
  if (!json_is_array(ids)) {
    return tgi_graph_unexpected(r, item, where,
                                "a Sequence, or a SpecialToken with ids in special_tokens");
  }
  for (size_t i = 0; i < json_array_size(ids); i++) {
    const json_t *id = json_array_get(ids, i);
    if (!json_is_integer(id) || json_integer_value(id) < 0 ||
        json_integer_value(id) >= (json_int_t)r->t->vocabulary.count) {
      return tgi_graph_unexpected(r, id, where, "an id of the vocabulary");
    }
    if (around->count == TGI_MAX_AROUND) {
      return tgi_graph_unsupported(r, ids, where, "at most 8 tokens at each end");
    }
    around->ids[around->count++] = (int32_t)json_integer_value(id);
  }
  return TG_OK;
}

static tg_status read_template(const tgi_graph_reader *r, const json_t *stage, const char *where)
{
  const json_t *list = json_object_get(stage, "single");
  bool behind = false;
  if (!json_is_array(list)) {
    return tgi_graph_unexpected(r, list, tgi_place_of("%s: single", where).text, "an array");
  }
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *item = json_array_get(list, i);
    const tgi_place at = tgi_place_of("%s: single[%zu]", where, i);
    if (json_object_get(item, "Sequence")) {
      if (behind) {
        return tgi_graph_unsupported(r, item, at.text, "the text once");
      }
      behind = true;
      continue;
    }
    const tg_status status =
        read_around(r, stage, item, at.text, behind ? &r->t->behind : &r->t->before);
    if (status != TG_OK) {
      return status;
    }
  }
  return behind
             ? TG_OK
             : tgi_graph_unsupported(r, list, tgi_place_of("%s: single", where).text, "the text");
}

static tg_status read_post_processor(const tgi_graph_reader *r, const json_t *stage,
                                     const char *where, int *templates)
{
  if (tgi_graph_has_type(stage, "ByteLevel")) { /* it changes offsets alone */
    return TG_OK;
  }
  if (tgi_graph_has_type(stage, "TemplateProcessing") && ++*templates == 1) {
    return read_template(r, stage, where);
  }
  return tgi_graph_unsupported(r, stage, where, "ByteLevel and one TemplateProcessing, or none");
}

static tg_status read_post_processing(const tgi_graph_reader *r, const json_t *root)
{
  static const char where[] = "post_processor";
  const json_t *stage = json_object_get(root, where);
  const json_t *list = json_object_get(stage, "processors");
  int templates = 0;
  if (tgi_graph_is_void(root, where)) {
    return TG_OK;
  }
  if (!tgi_graph_has_type(stage, "Sequence") || !json_is_array(list)) {
    return read_post_processor(r, stage, where, &templates);
  }
  tg_status status = TG_OK;
  for (size_t i = 0; i < json_array_size(list) && status == TG_OK; i++) {
    status = read_post_processor(r, json_array_get(list, i),
                                 tgi_place_of("%s: processors[%zu]", where, i).text, &templates);
  }
  return status;
}

tg_status tgi_graph_read(const tgi_json *json, tg_tokenizer *t, tg_error *error)
{
  const tgi_graph_reader r = {json, t, error};
  const json_t *root = json->root, *decoder = json_object_get(root, "decoder");
  tg_status status = read_model(&r, json_object_get(root, "model"));
  status = status ? status : read_normalising(&r, root);
  status = status ? status : read_splitting(&r, root);
  status = status ? status : tgi_graph_read_added(&r, json_object_get(root, "added_tokens"));
  status = status ? status : read_post_processing(&r, root);
  if (status == TG_OK && !tgi_graph_has_type(decoder, "ByteLevel")) {
    status = tgi_graph_unsupported(&r, decoder, "decoder", "ByteLevel");
  }
  return status;
}

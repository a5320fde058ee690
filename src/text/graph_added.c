#include "graph_reader.h"
#include "unicode/nfc.h"

/** The id that Hugging Face's library gives to the next token that the vocabulary lacks. */
static int32_t next_id(int32_t last_added, size_t model_tokens)
{
  return last_added >= (int32_t)model_tokens ? last_added + 1 : (int32_t)model_tokens;
}

typedef struct added {
  const char *content;
  size_t size;
  bool lstrip, rstrip, normalised, special, single_word;
  int64_t id;
} added;

static tg_status read_added(const tgi_graph_reader *r, const json_t *token, const char *where,
                            added *a)
{
  const json_t *content = json_object_get(token, "content");
  const json_t *id = json_object_get(token, "id");
  if (!json_is_string(content) || json_string_length(content) == 0 || !json_is_integer(id)) {
    return tgi_graph_unexpected(r, token, where, "an added token with id and content");
  }
  *a = (added){.content = json_string_value(content),
               .size = json_string_length(content),
               .id = json_integer_value(id)};
  tg_status status = tgi_graph_flag(r, token, where, "single_word", false, &a->single_word);
  status = status ? status : tgi_graph_flag(r, token, where, "lstrip", false, &a->lstrip);
  status = status ? status : tgi_graph_flag(r, token, where, "rstrip", false, &a->rstrip);
  status = status ? status : tgi_graph_flag(r, token, where, "special", false, &a->special);
  status =
      status ? status : tgi_graph_flag(r, token, where, "normalized", !a->special, &a->normalised);
  if (status == TG_OK && a->single_word) {
    return tgi_graph_unsupported(r, token, where, "an added token that is found within words too");
  }
  return status;
}

/** Enters a token into the vocabulary, or marks one that is there as added. */
static tg_status enter(const tgi_graph_reader *r, const json_t *token, const char *where,
                       const added *a, int32_t *last_added, size_t model_tokens)
{
  tgi_vocabulary *v = &r->t->vocabulary;
  const tg_token_kind kind = a->special ? TG_TOKEN_SPECIAL : TG_TOKEN_ADDED;
  bool short_of_memory;
  int32_t id = tgi_vocabulary_find_name(v, a->content, a->size, &short_of_memory);
  if (short_of_memory) {
    return tgi_graph_no_memory(r, a->size);
  }
  if (id >= 0 && v->tokens[id].kind != TG_TOKEN_ORDINARY) {
    return tgi_graph_unexpected(r, token, where, "each content once");
  }
  const bool known = id >= 0;
  id = known ? id : next_id(*last_added, model_tokens);
  if (a->id != id || id >= TGI_MAX_IDS) {
    return tgi_json_refuse(r->json, TG_BAD_FILE, json_object_get(token, "id"), r->error,
                           "%s: id: expected %d (%s)", where, id,
                           known ? "as the vocabulary has it"
                                 : "the next, as Hugging Face's library numbers them");
  }
  *last_added = id > *last_added ? id : *last_added;
  if (known) {
    v->tokens[id].kind = (uint8_t)kind;
    return TG_OK;
  }
  switch (tgi_vocabulary_insert(v, a->content, a->size, id, kind)) {
  case TGI_INSERTED:
    return TG_OK;
  case TGI_NO_ROOM:
    return tgi_graph_no_memory(r, v->arena_size + a->size);
  default:
    return tgi_graph_unexpected(r, token, where, "an id that no token of the vocabulary has");
  }
}

/** Enters the content into the set that finds it: normalised, if it is found in normalised text.
 * The library decodes such a token normalised, too. */
static tg_status find_by(const tgi_graph_reader *r, const added *a, tgi_nfc *nfc, int32_t id)
{
  const tgi_added_token token = {.id = id, .lstrip = a->lstrip, .rstrip = a->rstrip};
  const char *content = a->content;
  size_t size = a->size;
  bool changed = false;
  if (a->normalised && r->t->nfc) {
    if (!tgi_nfc_normalise(nfc, r->t->nfc, content, size, &changed)) {
      return tgi_graph_no_memory(r, size);
    }
    content = changed ? nfc->text : content;
    size = changed ? nfc->size : size;
    if (changed && !tgi_vocabulary_rename(&r->t->vocabulary, id, content, size)) {
      return tgi_graph_no_memory(r, size);
    }
  }
  tgi_added_tokens *set = a->normalised ? &r->t->added_normalised : &r->t->added;
  return tgi_added_tokens_add(set, content, size, token)
             ? TG_OK
             : tgi_graph_no_memory(r, size * sizeof *set->nodes);
}

/** Special tokens come first: of two whose normalised contents are equal, one is found. */
static tg_status find_all(const tgi_graph_reader *r, const json_t *list, bool special)
{
  tgi_nfc nfc = {0};
  tg_status status = TG_OK;
  for (size_t i = 0; i < json_array_size(list) && status == TG_OK; i++) {
    added a;
    status = read_added(r, json_array_get(list, i), tgi_place_of("added_tokens[%zu]", i).text, &a);
    if (status == TG_OK && a.special == special) {
      status = find_by(r, &a, &nfc, (int32_t)a.id);
    }
  }
  tgi_nfc_free(&nfc);
  return status;
}

tg_status tgi_graph_read_added(const tgi_graph_reader *r, const json_t *list)
{
  if (list && !json_is_array(list)) {
    return tgi_graph_unexpected(r, list, "added_tokens", "an array");
  }
  const size_t model_tokens = r->t->vocabulary.entries;
  int32_t last_added = -1;
  tg_status status = TG_OK;
  for (size_t i = 0; i < json_array_size(list) && status == TG_OK; i++) {
    const json_t *token = json_array_get(list, i);
    const tgi_place where = tgi_place_of("added_tokens[%zu]", i);
    added a;
    status = read_added(r, token, where.text, &a);
    status = status ? status : enter(r, token, where.text, &a, &last_added, model_tokens);
  }
  status = status ? status : find_all(r, list, true);
  return status ? status : find_all(r, list, false);
}

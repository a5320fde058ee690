#include "vocabulary.h"
#include "byte_alphabet.h"
#include "byte_words.h"
#include "core/growing.h"
#include "text/unicode/point_map.h"

enum { kFirstSlots = 1024 };

bool tgi_spelled_bytes(const char *name, size_t size, char *out, size_t *out_size)
{
  size_t used = 0;
  for (size_t at = 0; at < size; used++) {
    const int byte = tgi_point_to_byte(tgi_point_at(name + at));
    if (byte < 0) {
      return false;
    }
    out[used] = (char)byte;
    at += tgi_point_bytes((unsigned char)name[at]);
  }
  *out_size = used;
  return true;
}

/** Writes the name behind the arena, as it will stand there. False without memory. */
static bool spell(tgi_vocabulary *v, const char *name, size_t size, tgi_token *token)
{
  char *grown = tgi_grow(v->arena, &v->arena_capacity, v->arena_size + size, 1);
  if (!grown) {
    return false;
  }
  v->arena = grown;
  size_t used = size;
  token->spelled = tgi_spelled_bytes(name, size, grown + v->arena_size, &used);
  if (!token->spelled) {
    memcpy(grown + v->arena_size, name, size);
  }
  token->at = (uint32_t)v->arena_size;
  token->size = (uint32_t)used;
  return true;
}

static tgi_slot *find_slot(const tgi_vocabulary *v, const char *bytes, size_t size, bool spelled,
                           uint64_t hash)
{
  const size_t mask = v->num_slots - 1;
  const size_t key = size << 1 | spelled;
  for (size_t i = hash & mask; v->num_slots > 0 && v->slots[i].index > 0; i = (i + 1) & mask) {
    tgi_slot *slot = &v->slots[i];
    if (slot->hash == hash && slot->key == key &&
        (size <= TGI_EXACT_BYTES ||
         memcmp(v->arena + v->tokens[slot->index - 1].at, bytes, size) == 0)) {
      return slot;
    }
  }
  return NULL;
}

static int32_t find(const tgi_vocabulary *v, const char *bytes, size_t size, bool spelled,
                    uint64_t hash)
{
  const tgi_slot *slot = find_slot(v, bytes, size, spelled, hash);
  return slot ? (int32_t)slot->index - 1 : -1;
}

static void put_slot(tgi_slot *slots, size_t num_slots, const tgi_token *token, uint64_t hash,
                     int32_t id)
{
  size_t i = hash & (num_slots - 1);
  while (slots[i].index > 0) {
    i = (i + 1) & (num_slots - 1);
  }
  slots[i] = (tgi_slot){hash, (uint32_t)id + 1, token->size << 1 | token->spelled};
}

bool tgi_vocabulary_reserve(tgi_vocabulary *v, size_t entries)
{
  if (2 * entries <= v->num_slots) {
    return true;
  }
  size_t room = kFirstSlots;
  while (room < 2 * entries) {
    room *= 2;
  }
  tgi_slot *slots = calloc(room, sizeof *slots);
  if (!slots) {
    return false;
  }
  for (size_t id = 0; id < v->count; id++) {
    const tgi_token *token = &v->tokens[id];
    if (token->kind != TG_TOKEN_NONE) {
      put_slot(slots, room, token, tgi_hash_bytes(v->arena + token->at, token->size), (int32_t)id);
    }
  }
  free(v->slots);
  v->slots = slots;
  v->num_slots = room;
  return true;
}

/** Room for the id, with no tokens below it that were not there. */
static bool make_tokens(tgi_vocabulary *v, int32_t id)
{
  const size_t count = (size_t)id + 1;
  if (count <= v->count) {
    return true;
  }
  tgi_token *grown = tgi_grow(v->tokens, &v->token_capacity, count, sizeof *grown);
  if (!grown) {
    return false;
  }
  memset(grown + v->count, 0, (count - v->count) * sizeof *grown);
  v->tokens = grown;
  v->count = count;
  return true;
}

tgi_insertion tgi_vocabulary_insert(tgi_vocabulary *v, const char *name, size_t size, int32_t id,
                                    tg_token_kind kind)
{
  tgi_token token = {.kind = (uint8_t)kind};
  if (!tgi_vocabulary_reserve(v, v->entries + 1) || !spell(v, name, size, &token)) {
    return TGI_NO_ROOM;
  }
  const char *bytes = v->arena + v->arena_size;
  const uint64_t hash = tgi_hash_bytes(bytes, token.size);
  if (find(v, bytes, token.size, token.spelled, hash) >= 0) {
    return TGI_NAME_TAKEN;
  }
  if ((size_t)id < v->count && v->tokens[id].kind != TG_TOKEN_NONE) {
    return TGI_ID_TAKEN;
  }
  if (!make_tokens(v, id)) {
    return TGI_NO_ROOM;
  }
  v->tokens[id] = token;
  v->arena_size += token.size;
  v->entries++;
  put_slot(v->slots, v->num_slots, &token, hash, id);
  return TGI_INSERTED;
}

bool tgi_vocabulary_rename(tgi_vocabulary *v, int32_t id, const char *name, size_t size)
{
  const tgi_token old = v->tokens[id];
  tgi_token token = {.kind = old.kind};
  if (!spell(v, name, size, &token)) {
    return false;
  }
  const char *was = v->arena + old.at, *is = v->arena + token.at;
  tgi_slot *slot = find_slot(v, was, old.size, old.spelled, tgi_hash_bytes(was, old.size));
  if (slot) {
    slot->key = UINT32_MAX; /* found by no name; those behind it still are */
  }
  const uint64_t hash = tgi_hash_bytes(is, token.size);
  if (!find_slot(v, is, token.size, token.spelled, hash)) {
    put_slot(v->slots, v->num_slots, &token, hash, id);
  }
  v->arena_size += token.size;
  v->tokens[id] = token;
  return true;
}

int32_t tgi_vocabulary_find_name(tgi_vocabulary *v, const char *name, size_t size,
                                 bool *short_of_memory)
{
  tgi_token token;
  *short_of_memory = !spell(v, name, size, &token);
  if (*short_of_memory) {
    return -1;
  }
  const char *bytes = v->arena + v->arena_size;
  return find(v, bytes, token.size, token.spelled, tgi_hash_bytes(bytes, token.size));
}

int32_t tgi_vocabulary_find(const tgi_vocabulary *v, const char *bytes, size_t size)
{
  return find(v, bytes, size, true, tgi_hash_bytes(bytes, size));
}

tg_token tgi_vocabulary_token(const tgi_vocabulary *v, int32_t id)
{
  if (id < 0 || (size_t)id >= v->count || v->tokens[id].kind == TG_TOKEN_NONE) {
    return (tg_token){"", 0, TG_TOKEN_NONE};
  }
  const tgi_token *token = &v->tokens[id];
  return (tg_token){v->arena + token->at, token->size, (tg_token_kind)token->kind};
}

void tgi_vocabulary_free(tgi_vocabulary *v)
{
  free(v->arena);
  free(v->tokens);
  free(v->slots);
  *v = (tgi_vocabulary){0};
}

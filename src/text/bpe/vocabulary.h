/**
 * Tokens by id and by name. Their bytes stand in one arena.
 *
 * Files spell tokens in the byte alphabet (byte_alphabet.h). What is spelled so stands here as the
 * bytes that it means, and can result from text. A name with any other character stands here as it
 * is in the file, and is found by that name alone.
 */
#ifndef TGI_TEXT_VOCABULARY_H
#define TGI_TEXT_VOCABULARY_H

#include "tegula/tokenizer.h"
#include <stdbool.h>

enum { TGI_MAX_IDS = 1 << 22 }; /* ids are below; the largest vocabularies have 2^18 */

typedef struct tgi_token {
  uint32_t at, size; /* in the arena */
  uint8_t kind;      /* tg_token_kind */
  bool spelled;      /* in the byte alphabet */
} tgi_token;

/** Where a name is found. Names of up to 8 bytes differ in hash or size: their bytes, which are
 * elsewhere in memory, are not looked at. */
typedef struct tgi_slot {
  uint64_t hash;
  uint32_t index; /* id + 1; 0: empty */
  uint32_t key;   /* size << 1, and 1 if spelled */
} tgi_slot;

/** Starts zeroed. */
typedef struct tgi_vocabulary {
  char *arena;
  size_t arena_size, arena_capacity;
  tgi_token *tokens;
  size_t count; /* one more than the largest id */
  size_t token_capacity;
  size_t entries; /* ids with a token */
  tgi_slot *slots;
  size_t num_slots; /* a power of two, more than twice `entries` */
} tgi_vocabulary;

typedef enum tgi_insertion {
  TGI_INSERTED,
  TGI_NAME_TAKEN,
  TGI_ID_TAKEN,
  TGI_NO_ROOM, /* memory */
} tgi_insertion;

/** Room for so many tokens. False without memory. */
bool tgi_vocabulary_reserve(tgi_vocabulary *v, size_t entries);

/** Adds a token under an id from 0 to TGI_MAX_IDS - 1. `name` is valid UTF-8 and not empty. */
tgi_insertion tgi_vocabulary_insert(tgi_vocabulary *v, const char *name, size_t size, int32_t id,
                                    tg_token_kind kind);

/**
 * Lets a token that is there stand for what another name spells; it is found by that name from then
 * on, or by neither if another token has it. False without memory.
 */
bool tgi_vocabulary_rename(tgi_vocabulary *v, int32_t id, const char *name, size_t size);

/** Id of a name as files spell it, or -1. Also -1 without memory for the name: *short_of_memory. */
int32_t tgi_vocabulary_find_name(tgi_vocabulary *v, const char *name, size_t size,
                                 bool *short_of_memory);

/** Id of the spelled token that stands for these bytes, or -1. */
int32_t tgi_vocabulary_find(const tgi_vocabulary *v, const char *bytes, size_t size);

/** A token's bytes; none for an id without one. */
tg_token tgi_vocabulary_token(const tgi_vocabulary *v, int32_t id);

/**
 * The bytes that a name spells, written to `out`, which holds `size` bytes. False: it has other
 * characters.
 */
bool tgi_spelled_bytes(const char *name, size_t size, char *out, size_t *out_size);

void tgi_vocabulary_free(tgi_vocabulary *v);

#endif

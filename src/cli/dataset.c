#include "dataset.h"

#include "core/error_record.h"
#include "files/file_error.h"
#include "files/file_map.h"
#include "text/tokenizer_state.h"
#include <stdlib.h>
#include <string.h>

enum { kIgnored = -100 };

/* ---- files ---- */

/* FNV-1a on words of eight bytes: it identifies a file, and is no cryptographic hash. */
static uint64_t hash_bytes(const char *bytes, size_t size)
{
  uint64_t hash = 0xcbf29ce484222325u ^ size, word = 0;
  for (size_t i = 0; i < size; i += sizeof word) {
    const size_t n = size - i < sizeof word ? size - i : sizeof word;
    word = 0;
    memcpy(&word, bytes + i, n);
    hash = (hash ^ word) * 0x100000001b3u;
    hash ^= hash >> 32;
  }
  return hash;
}

/* The tokenizer's error holds the byte offset of invalid UTF-8; this adds the file's name. */
static tg_status name_file(const char *path, tg_status status, tg_error *error)
{
  if (error && status == TG_BAD_ARGUMENT) {
    const tg_error inner = *error;
    return tgi_error_set(error, TG_BAD_FILE, "%s: %s", path, inner.text);
  }
  return status;
}

static tg_status encode(const char *path, const tgi_file_map *map, const tg_tokenizer *tokenizer,
                        tgi_dataset *out, tg_error *error)
{
  size_t count = 0;
  const tg_status status =
      tgi_tokenizer_encode_all(tokenizer, map->data, map->size, 0, &out->ids, &count, error);
  out->count = (int64_t)count;
  out->hash = hash_bytes(map->data, map->size);
  return name_file(path, status, error);
}

tg_status tgi_dataset_load(const char *path, const tg_tokenizer *tokenizer, tgi_dataset *out,
                           tg_error *error)
{
  tgi_file_map map;
  *out = (tgi_dataset){NULL, 0, 0};
  tg_status status = tgi_file_map_open(path, SIZE_MAX / 8, &map, error);
  if (status == TG_OK && map.size == 0) {
    status = tgi_file_error(error, TG_BAD_FILE, path, TGI_NO_BYTE, "text, got an empty file");
  } else if (status == TG_OK) {
    status = encode(path, &map, tokenizer, out, error);
  }
  tgi_file_map_close(&map);
  if (status != TG_OK) {
    tgi_dataset_free(out);
  }
  return status;
}

void tgi_dataset_free(tgi_dataset *dataset)
{
  free(dataset->ids);
  *dataset = (tgi_dataset){NULL, 0, 0};
}

/* ---- batches for training ---- */

/* splitmix64's finaliser over two words. */
static uint64_t mix(uint64_t a, uint64_t b)
{
  uint64_t z = a * 0x9e3779b97f4a7c15u + b;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

/*
 * A permutation of 0 .. n - 1: a Feistel network on the next even number of bits, iterated until
 * the result is below n (Black & Rogaway 2002, "Ciphers with arbitrary finite domains").
 */
static uint64_t permute(uint64_t i, uint64_t n, uint64_t key)
{
  int half = 1;
  while (half < 32 && (n - 1) >> (2 * half)) {
    half++;
  }
  const uint64_t mask = ((uint64_t)1 << half) - 1;
  do {
    uint64_t left = i >> half, right = i & mask;
    for (uint64_t round = 0; round < 4; round++) {
      const uint64_t next = left ^ (mix(key + round, right) & mask);
      left = right;
      right = next;
    }
    i = left << half | right;
  } while (i >= n);
  return i;
}

void tgi_batch_for_training(tgi_tokens tokens, uint64_t seed, int64_t step, tgi_batch_shape shape,
                            int32_t *ids, int32_t *targets)
{
  const int64_t spare = tokens.count - shape.length;
  const uint64_t offsets = (uint64_t)(spare < shape.length ? spare : shape.length);
  const uint64_t windows = ((uint64_t)tokens.count - offsets) / (uint64_t)shape.length;
  const size_t row_bytes = (size_t)shape.length * sizeof *ids;
  for (int64_t row = 0; row < shape.rows; row++) {
    const uint64_t sample = (uint64_t)(step * shape.rows + row);
    const uint64_t key = mix(seed, sample / windows);
    const uint64_t window = permute(sample % windows, windows, key);
    const int32_t *from = tokens.ids + mix(key, 0) % offsets + window * (uint64_t)shape.length;
    memcpy(ids + row * shape.length, from, row_bytes);
    memcpy(targets + row * shape.length, from + 1, row_bytes);
  }
}

/* ---- batches for evaluation ---- */

static int64_t half_row(tgi_batch_shape shape)
{
  return shape.length > 1 ? shape.length / 2 : 1;
}

static int64_t count_windows(tgi_tokens tokens, tgi_batch_shape shape)
{
  const int64_t after_first = tokens.count - 1 - shape.length, step = half_row(shape);
  return 1 + (after_first > 0 ? (after_first + step - 1) / step : 0);
}

int64_t tgi_batches_for_evaluation(tgi_tokens tokens, tgi_batch_shape shape)
{
  return (count_windows(tokens, shape) + shape.rows - 1) / shape.rows;
}

int64_t tgi_batch_for_evaluation(tgi_tokens tokens, int64_t index, tgi_batch_shape shape,
                                 int32_t *ids, int32_t *targets)
{
  const int64_t windows = count_windows(tokens, shape), step = half_row(shape);
  int64_t scored = 0;
  for (int64_t row = 0; row < shape.rows; row++) {
    const int64_t window = index * shape.rows + row, start = window * step;
    const int64_t first = window == 0 ? 0 : shape.length - step;
    for (int64_t i = 0; i < shape.length; i++) {
      const int64_t at = start + i, out = row * shape.length + i;
      const bool inside = window < windows && at + 1 < tokens.count;
      ids[out] = inside ? tokens.ids[at] : 0;
      targets[out] = inside && i >= first ? tokens.ids[at + 1] : kIgnored;
      scored += inside && i >= first;
    }
  }
  return scored;
}

tg_status tgi_tokens_bytes(tgi_tokens tokens, const tg_tokenizer *tokenizer, int64_t *bytes,
                           tg_error *error)
{
  size_t size = 0;
  const tg_status status =
      tg_tokenizer_decode(tokenizer, tokens.ids + 1, (size_t)(tokens.count - 1),
                          TG_TOKENIZER_SKIP_SPECIAL, NULL, 0, &size, error);
  *bytes = (int64_t)size;
  return status;
}

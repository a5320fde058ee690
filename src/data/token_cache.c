#define _GNU_SOURCE /* memfd_create */
#include "token_cache.h"

#include "core/growing.h"
#include "files/file_error.h"
#include "token_file.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char kFirst[8] = {'T', 'G', 'T', 'C', 'A', 'C', 'H', 'E'};
static const char kLast[8] = {'T', 'G', 'T', 'C', 'L', 'A', 'S', 'T'};

enum { kVersion = 1, kPiece = 1 << 16, kHeader = 32, kFooter = 64 };

/* The file's last bytes. */
typedef struct footer {
  uint64_t count, num_documents, counted_bytes, left_out;
  tgi_hash128 hash;
  uint64_t zero;
  char last[8];
} footer;

_Static_assert(sizeof(footer) == kFooter, "the footer is written as it stands");

static uint64_t pad(uint64_t bytes)
{
  return (bytes + 7) / 8 * 8;
}

static void make_header(tgi_hash128 key, int32_t vocab_size, unsigned char out[kHeader])
{
  const uint32_t words[2] = {kVersion, (uint32_t)tgi_token_bytes(vocab_size)};
  memcpy(out, kFirst, sizeof kFirst);
  memcpy(out + 8, words, sizeof words);
  memcpy(out + 16, &key, sizeof key);
}

/* ---- reading ---- */

static tg_status refuse(const char *path, const char *what, tg_error *error)
{
  return tgi_file_error(error, TG_BAD_FILE, path, TGI_NO_BYTE,
                        "tokens as they were written, got %s", what);
}

/* Whether the parts that the footer tells of fill the file. */
static bool fits(const footer *f, size_t size, uint64_t id_bytes)
{
  const uint64_t most = size;
  if (f->count > most || f->num_documents > most || f->counted_bytes > most ||
      f->left_out > INT64_MAX) {
    return false;
  }
  if (f->counted_bytes != 0 && f->counted_bytes != (f->count + 7) / 8) {
    return false;
  }
  return kHeader + pad(f->count * id_bytes) + 8 * f->num_documents + pad(f->counted_bytes) +
             kFooter ==
         size;
}

static bool ends_rise(const uint64_t *ends, uint64_t documents, uint64_t count)
{
  uint64_t last = 0;
  for (uint64_t i = 0; i < documents; i++) {
    if (ends[i] <= last || ends[i] > count) {
      return false;
    }
    last = ends[i];
  }
  return last == count;
}

/* Takes the map, also on failure. */
static tg_status take_map(const char *path, tgi_file_map map, tgi_token_store *store,
                          tg_error *error)
{
  *store =
      (tgi_token_store){.maps = malloc(sizeof *store->maps), .parts = malloc(sizeof *store->parts)};
  if (!store->maps || !store->parts) {
    tgi_file_map_close(&map);
    tgi_store_close(store);
    return tgi_file_error_memory(error, path, sizeof *store->maps + sizeof *store->parts);
  }
  store->maps[0] = map;
  store->num_maps = 1;
  return TG_OK;
}

static tg_status read_map(const char *path, tgi_hash128 key, int32_t vocab_size,
                          tgi_token_store *store, tgi_token_cache_info *info, tg_error *error)
{
  const tgi_file_map *map = &store->maps[0];
  const int32_t id_bytes = (int32_t)tgi_token_bytes(vocab_size);
  unsigned char header[kHeader];
  footer f;
  make_header(key, vocab_size, header);
  if (map->size < kHeader + kFooter || memcmp(map->data, header, kHeader) != 0) {
    return refuse(path, "another header", error);
  }
  memcpy(&f, map->data + map->size - kFooter, kFooter);
  if (memcmp(f.last, kLast, sizeof kLast) != 0 || f.zero != 0 ||
      !fits(&f, map->size, (uint64_t)id_bytes)) {
    return refuse(path, "another size", error);
  }
  tgi_hasher hasher = {0};
  const size_t numbers = offsetof(footer, hash);
  tgi_hasher_add(&hasher, map->data + kHeader, map->size - kHeader - kFooter + numbers);
  if (!tgi_hash_equal(tgi_hasher_end(&hasher), f.hash)) {
    return refuse(path, "other bytes", error);
  }
  const char *at = map->data + kHeader;
  store->parts[0] = (tgi_token_part){.ids = at, .id_bytes = id_bytes};
  store->num_parts = 1;
  store->count = (int64_t)f.count;
  at += pad(f.count * (uint64_t)id_bytes);
  store->ends = (const uint64_t *)(const void *)at; /* aligned: all before is a multiple of 8 */
  store->num_documents = (int64_t)f.num_documents;
  at += 8 * f.num_documents;
  store->counted = f.counted_bytes > 0 ? (const uint8_t *)at : NULL;
  int64_t place;
  if (!ends_rise(store->ends, f.num_documents, f.count) ||
      tgi_store_largest(store, &place) >= vocab_size) {
    return refuse(path, "documents or ids out of range", error);
  }
  *info = (tgi_token_cache_info){(int64_t)f.left_out, f.hash};
  return TG_OK;
}

tg_status tgi_token_cache_open(const char *path, tgi_hash128 key, int32_t vocab_size,
                               tgi_token_store *store, tgi_token_cache_info *info, tg_error *error)
{
  tgi_file_map map;
  *store = (tgi_token_store){0};
  tg_status status = tgi_file_map_open(path, SIZE_MAX / 8, &map, error);
  status = status ? status : take_map(path, map, store, error);
  if (status == TG_OK) {
    status = read_map(path, key, vocab_size, store, info, error);
    if (status != TG_OK) {
      tgi_store_close(store);
    }
  }
  return status;
}

/* ---- writing ---- */

static tg_status flush(tgi_token_writer *w, tg_error *error)
{
  const tg_status status = tgi_durable_file_write(&w->file, w->piece, w->piece_size, error);
  w->piece_size = 0;
  return status;
}

static tg_status put(tgi_token_writer *w, const void *bytes, size_t size, tg_error *error)
{
  const unsigned char *at = bytes;
  tg_status status = TG_OK;
  while (size > 0 && status == TG_OK) {
    const size_t room = kPiece - w->piece_size, some = size < room ? size : room;
    memcpy(w->piece + w->piece_size, at, some);
    w->piece_size += some;
    at += some;
    size -= some;
    status = w->piece_size == kPiece ? flush(w, error) : TG_OK;
  }
  return status;
}

static tg_status put_hashed(tgi_token_writer *w, const void *bytes, size_t size, tg_error *error)
{
  tgi_hasher_add(&w->hasher, bytes, size);
  return put(w, bytes, size, error);
}

static tg_status put_padding(tgi_token_writer *w, uint64_t behind, tg_error *error)
{
  static const unsigned char zeros[8];
  return put_hashed(w, zeros, (size_t)(pad(behind) - behind), error);
}

tg_status tgi_token_writer_begin(const char *path, tgi_hash128 key, int32_t vocab_size,
                                 tgi_token_writer *w, tg_error *error)
{
  static char name[] = "tokens in memory";
  unsigned char header[kHeader];
  *w = (tgi_token_writer){.key = key, .vocab_size = vocab_size};
  if (path) {
    const tg_status status = tgi_durable_file_begin(path, &w->file, error);
    if (status != TG_OK) {
      return status;
    }
  } else {
    const int fd = memfd_create("tegula-tokens", MFD_CLOEXEC);
    if (fd < 0) {
      return tgi_file_error_system(error, name, TGI_NO_BYTE, "make a file in memory", errno);
    }
    w->in_memory = true;
    w->file = (tgi_durable_file){.path = name, .fd = fd};
  }
  w->piece = malloc(kPiece);
  if (!w->piece) {
    tgi_token_writer_drop(w);
    return tgi_file_error_memory(error, path ? path : name, kPiece);
  }
  make_header(key, vocab_size, header);
  return put(w, header, kHeader, error);
}

static tg_status put_ids(tgi_token_writer *w, const int32_t *ids, int64_t count, tg_error *error)
{
  uint16_t narrow[1024];
  tg_status status = TG_OK;
  if (tgi_token_bytes(w->vocab_size) == sizeof *ids) {
    return put_hashed(w, ids, (size_t)count * sizeof *ids, error);
  }
  for (int64_t from = 0; from < count && status == TG_OK; from += 1024) {
    const int64_t n = count - from < 1024 ? count - from : 1024;
    for (int64_t i = 0; i < n; i++) {
      narrow[i] = (uint16_t)ids[from + i];
    }
    status = put_hashed(w, narrow, (size_t)n * sizeof *narrow, error);
  }
  return status;
}

static tg_status note_counted(tgi_token_writer *w, const uint8_t *counted, int64_t count,
                              tg_error *error)
{
  const size_t before = (size_t)(w->count + 7) / 8, wanted = (size_t)(w->count + count + 7) / 8;
  uint8_t *grown = tgi_grow(w->counted, &w->counted_capacity, wanted, 1);
  if (!grown) {
    return tgi_file_error_memory(error, w->file.path, wanted);
  }
  w->counted = grown;
  memset(grown + before, 0, wanted - before);
  for (int64_t i = 0; i < count; i++) {
    const bool counts = !counted || counted[i];
    const int64_t at = w->count + i;
    grown[at / 8] = (uint8_t)(grown[at / 8] | counts << at % 8);
    w->some_do_not = w->some_do_not || !counts;
  }
  return TG_OK;
}

tg_status tgi_token_writer_add(tgi_token_writer *w, const int32_t *ids, const uint8_t *counted,
                               int64_t count, tg_error *error)
{
  const size_t documents = (size_t)w->num_documents + 1;
  uint64_t *grown = tgi_grow(w->ends, &w->ends_capacity, documents, sizeof *grown);
  if (!grown) {
    return tgi_file_error_memory(error, w->file.path, documents * sizeof *grown);
  }
  w->ends = grown;
  tg_status status = note_counted(w, counted, count, error);
  status = status ? status : put_ids(w, ids, count, error);
  w->count += count;
  grown[w->num_documents++] = (uint64_t)w->count;
  return status;
}

static tg_status finish(tgi_token_writer *w, tg_error *error)
{
  const uint64_t id_bytes = tgi_token_bytes(w->vocab_size);
  footer f = {.count = (uint64_t)w->count,
              .num_documents = (uint64_t)w->num_documents,
              .counted_bytes = w->some_do_not ? (uint64_t)(w->count + 7) / 8 : 0,
              .left_out = (uint64_t)w->left_out};
  tg_status status = put_padding(w, f.count * id_bytes, error);
  status = status ? status : put_hashed(w, w->ends, 8 * f.num_documents, error);
  status = status ? status : put_hashed(w, w->counted, f.counted_bytes, error);
  status = status ? status : put_padding(w, f.counted_bytes, error);
  tgi_hasher_add(&w->hasher, &f, offsetof(footer, hash));
  f.hash = tgi_hasher_end(&w->hasher);
  memcpy(f.last, kLast, sizeof kLast);
  status = status ? status : put(w, &f, kFooter, error);
  return status ? status : flush(w, error);
}

static tg_status map_memory(const tgi_token_writer *w, tgi_file_map *map, tg_error *error)
{
  const size_t size = (size_t)w->file.written;
  void *data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, w->file.fd, 0);
  if (data == MAP_FAILED) {
    return tgi_file_error_system(error, w->file.path, TGI_NO_BYTE, "map it", errno);
  }
  *map = (tgi_file_map){.data = data, .size = size, .mapping = data};
  return TG_OK;
}

tg_status tgi_token_writer_commit(tgi_token_writer *w, tgi_token_store *store,
                                  tgi_token_cache_info *info, tg_error *error)
{
  tgi_file_map map;
  tg_status status = finish(w, error);
  *store = (tgi_token_store){0};
  if (status == TG_OK && w->in_memory) {
    status = map_memory(w, &map, error);
    status = status ? status : take_map(w->file.path, map, store, error);
    status = status ? status : read_map(w->file.path, w->key, w->vocab_size, store, info, error);
  } else if (status == TG_OK) {
    char *path = strdup(w->file.path); /* commit frees its own */
    status = path ? tgi_durable_file_commit(&w->file, error)
                  : tgi_file_error_memory(error, w->file.path, strlen(w->file.path) + 1);
    status =
        status ? status : tgi_token_cache_open(path, w->key, w->vocab_size, store, info, error);
    free(path);
  }
  tgi_token_writer_drop(w);
  if (status != TG_OK) {
    tgi_store_close(store);
  }
  return status;
}

void tgi_token_writer_drop(tgi_token_writer *w)
{
  if (w->in_memory) {
    close(w->file.fd);
  } else {
    tgi_durable_file_drop(&w->file);
  }
  free(w->piece);
  free(w->ends);
  free(w->counted);
  *w = (tgi_token_writer){0};
}

/* A block as safetensors files. Matrices that the file holds the other way round, and elements of
 * another dtype, are made piece by piece while the file is written: a save takes no second copy. */
#include "weights.h"

#include "core/error_record.h"
#include "files/json_file.h"
#include "files/safetensors_writer.h"
#include "tegula/device.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kPieceBytes = 8 << 20, kPathBytes = 4096, kNameBytes = 96 };

/* A tensor on its way: the arg of make_rows. */
typedef struct outgoing {
  const tgi_block_source *from;
  tgi_parameter q;
  tg_context *ctx; /* a CPU's */
  int64_t shape[3];
  char name[kNameBytes];
} outgoing;

/* Elements of a row of the file; those of a vector are rows. */
static int64_t columns(const outgoing *o)
{
  return o->q.ndim > 1 ? o->shape[o->q.ndim - 1] : 1;
}

static size_t row_bytes(const outgoing *o)
{
  return (size_t)columns(o) * tg_dtype_bytes(o->from->file_dtype);
}

static const char *elements_of(const outgoing *o)
{
  return (const char *)o->from->block + (size_t)o->q.offset * tg_dtype_bytes(o->from->dtype);
}

/* The tgi_tensor_piece: rows of the file. */
static tg_status make_rows(void *arg, uint64_t begin, size_t size, void *to, tg_error *error)
{
  const outgoing *o = arg;
  const int64_t first = (int64_t)(begin / row_bytes(o)), rows = (int64_t)(size / row_bytes(o));
  const int64_t cols = columns(o);
  const int64_t row = o->q.transposed ? 1 : cols;
  const char *at = elements_of(o) + (size_t)(first * row) * tg_dtype_bytes(o->from->dtype);
  tg_tensor from = tg_tensor_2d((void *)(uintptr_t)at, o->from->dtype, rows, cols);
  from.stride[0] = row;
  from.stride[1] = o->q.transposed ? o->shape[0] : 1;
  const tg_status status =
      tg_memory_convert(o->ctx, tg_tensor_2d(to, o->from->file_dtype, rows, cols), from);
  return status ? tgi_error_set(error, status, "%s: %s", o->name, tg_context_message(o->ctx))
                : TG_OK;
}

static tgi_tensor_source describe(outgoing *o)
{
  const bool as_it_lies = !o->q.transposed && o->from->dtype == o->from->file_dtype;
  const size_t row = row_bytes(o);
  return (tgi_tensor_source){.name = o->name,
                             .dtype = tgi_file_dtype_of_op(o->from->file_dtype),
                             .ndim = o->q.ndim,
                             .shape = o->shape,
                             .data = as_it_lies ? elements_of(o) : NULL,
                             .make = make_rows,
                             .arg = o,
                             .piece = (1 + kPieceBytes / row) * row};
}

/* All parameters of a block, as the tensors that go to files. */
typedef struct shipment {
  tg_context *ctx;
  outgoing *items;
  tgi_tensor_source *sources;
  size_t count;
} shipment;

static void unload(shipment *s)
{
  tg_context_destroy(s->ctx);
  free(s->items);
  free(s->sources);
}

static size_t pieces_of(const tgi_block_source *from, int p)
{
  const tgi_parameter *q = &from->parameters->list[p];
  return from->without_experts && tgi_parameter_is_experts(q) ? 0 : tgi_parameter_pieces(q);
}

static tg_status load_up(shipment *s, const tgi_block_source *from, tg_error *error)
{
  const tgi_parameters *all = from->parameters;
  *s = (shipment){.count = 0};
  for (int p = 0; p < all->count; p++) {
    s->count += pieces_of(from, p);
  }
  tg_status status =
      tg_context_create(&(tg_context_options){.backend = TG_BACKEND_CPU}, &s->ctx, error);
  s->items = calloc(s->count, sizeof *s->items);
  s->sources = calloc(s->count, sizeof *s->sources);
  if (status == TG_OK && (!s->items || !s->sources)) {
    status = tgi_error_set(error, TG_NO_MEMORY, "weights: expected room for %zu tensors, got none",
                           s->count);
  }
  if (status != TG_OK) {
    unload(s);
    return status;
  }
  size_t next = 0;
  for (int p = 0; p < all->count; p++) {
    for (size_t i = 0; i < pieces_of(from, p); i++, next++) {
      outgoing *o = &s->items[next];
      *o = (outgoing){.from = from, .q = tgi_parameter_piece(&all->list[p], i), .ctx = s->ctx};
      memcpy(o->shape, o->q.shape, sizeof o->shape);
      if (o->q.transposed) {
        o->shape[0] = o->q.shape[1];
        o->shape[1] = o->q.shape[0];
      }
      snprintf(o->name, sizeof o->name, "%s%s", from->prefix, o->q.name);
      s->sources[next] = describe(o);
    }
  }
  return TG_OK;
}

tg_status tgi_block_write(const tgi_block_source *from, const char *path, tg_error *error)
{
  shipment s;
  tg_status status = load_up(&s, from, error);
  if (status == TG_OK) {
    status = tgi_safetensors_write(path, s.sources, s.count, NULL, 0, error);
    unload(&s);
  }
  return status;
}

/* ---- shards ---- */

static uint64_t bytes_of(const shipment *s, size_t p)
{
  const outgoing *o = &s->items[p];
  return (uint64_t)tgi_parameter_elements(&o->q) * tg_dtype_bytes(o->from->file_dtype);
}

/* The end of the shard that begins at tensor `p`: as many as fit, one at least. */
static size_t shard_end(const shipment *s, size_t p, uint64_t most)
{
  uint64_t bytes = 0;
  const size_t first = p;
  while (p < s->count && (p == first || bytes_of(s, p) <= most - bytes)) {
    bytes += bytes_of(s, p);
    if (bytes > most) {
      return p + 1;
    }
    p++;
  }
  return p;
}

static size_t count_shards(const shipment *s, uint64_t most)
{
  size_t shards = 0;
  for (size_t p = 0; p < s->count; p = shard_end(s, p, most)) {
    shards++;
  }
  return shards;
}

static void name_shard(char name[kNameBytes], size_t number, size_t shards)
{
  snprintf(name, kNameBytes, "model-%05zu-of-%05zu.safetensors", number, shards);
}

static tg_status join(char path[kPathBytes], const char *directory, const char *name,
                      tg_error *error)
{
  if (snprintf(path, kPathBytes, "%s/%s", directory, name) >= kPathBytes) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "weights: directory: expected a path below %d bytes, got %zu", kPathBytes,
                         strlen(directory));
  }
  return TG_OK;
}

static tg_status write_index(const shipment *s, uint64_t most, const char *directory,
                             tg_error *error)
{
  char path[kPathBytes], name[kNameBytes];
  tg_status status = join(path, directory, "model.safetensors.index.json", error);
  if (status != TG_OK) {
    return status;
  }
  const size_t shards = count_shards(s, most);
  uint64_t total = 0;
  size_t number = 1;
  json_t *root = tgi_json_new(), *map = json_object();
  for (size_t p = 0; p < s->count; number++) {
    const size_t end = shard_end(s, p, most);
    name_shard(name, number, shards);
    for (; p < end; p++) {
      json_object_set_new(map, s->items[p].name, json_string(name));
      total += bytes_of(s, p);
    }
  }
  json_t *metadata = json_object();
  json_object_set_new(metadata, "total_parameters",
                      json_integer(s->items[0].from->parameters->num_parameters));
  json_object_set_new(metadata, "total_size", json_integer((json_int_t)total));
  json_object_set_new(root, "metadata", metadata);
  json_object_set_new(root, "weight_map", map);
  return tgi_json_save(path, root, JSON_SORT_KEYS, error);
}

static tg_status write_shards(const shipment *s, uint64_t most, const char *directory,
                              tg_error *error)
{
  const size_t shards = count_shards(s, most);
  size_t number = 1;
  tg_status status = TG_OK;
  for (size_t p = 0; p < s->count && status == TG_OK; number++) {
    char path[kPathBytes], name[kNameBytes] = "model.safetensors";
    const size_t end = shard_end(s, p, most);
    if (shards > 1) {
      name_shard(name, number, shards);
    }
    status = join(path, directory, name, error);
    if (status == TG_OK) {
      status = tgi_safetensors_write(path, s->sources + p, end - p, NULL, 0, error);
    }
    p = end;
  }
  return status == TG_OK && shards > 1 ? write_index(s, most, directory, error) : status;
}

tg_status tgi_block_write_shards(const tgi_block_source *from, uint64_t most, const char *directory,
                                 tg_error *error)
{
  shipment s;
  tg_status status = load_up(&s, from, error);
  if (status == TG_OK) {
    status = write_shards(&s, most, directory, error);
    unload(&s);
  }
  return status;
}

bool tgi_is_weight_file(const char *name)
{
  static const char shard[] = "model-", ending[] = ".safetensors";
  const size_t size = strlen(name);
  if (strcmp(name, "model.safetensors") == 0 || strcmp(name, "model.safetensors.index.json") == 0) {
    return true;
  }
  return strncmp(name, shard, sizeof shard - 1) == 0 && strstr(name, "-of-") &&
         size > sizeof ending && strcmp(name + size - (sizeof ending - 1), ending) == 0;
}

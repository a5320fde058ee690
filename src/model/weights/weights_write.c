/* A block as safetensors files. Matrices that the file holds the other way round, and elements of
 * another dtype, are made piece by piece while the file is written: a save takes no second copy. */
#include "weights.h"

#include "core/error_record.h"
#include "files/json_file.h"
#include "files/safetensors/safetensors_writer.h"
#include "tegula/device.h"
#include "tegula/grouped_linear_mxfp4.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kPieceBytes = 8 << 20, kPathBytes = 4096, kNameBytes = 96 };

/* What stays in MXFP4 is two tensors. */
typedef enum part { ELEMENTS, BLOCKS, SCALES } part;

/* A tensor on its way: the arg of make_rows, and of make_part. */
typedef struct outgoing {
  const tgi_block_source *from;
  tgi_parameter q;
  tg_context *ctx; /* a CPU's */
  part part;
  int32_t ndim;
  int64_t shape[4];
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

/* The tgi_tensor_piece of blocks or scales: all of them at once. */
static tg_status make_part(void *arg, uint64_t begin, size_t size, void *to, tg_error *error)
{
  const outgoing *o = arg;
  const char *at = (const char *)o->from->mxfp4 + o->q.mxfp4_at;
  tg_grouped_linear_mxfp4_pack_source args = {
      .packed = tg_tensor_1d((void *)(uintptr_t)at, TG_U8, tgi_mxfp4_bytes(&o->q))};
  tg_error refused;
  *(o->part == BLOCKS ? &args.blocks : &args.scales) = tg_tensor_view(to, TG_U8, o->ndim, o->shape);
  (void)begin;
  (void)size;
  const tg_status status = tg_grouped_linear_mxfp4_unpack(&args, &refused);
  return status ? tgi_error_set(error, status, "%s: %s", o->name, refused.text) : TG_OK;
}

static uint64_t bytes_of(const outgoing *o)
{
  uint64_t bytes = o->part == ELEMENTS ? tg_dtype_bytes(o->from->file_dtype) : 1;
  for (int i = 0; i < o->ndim; i++) {
    bytes *= (uint64_t)o->shape[i];
  }
  return bytes;
}

static tgi_tensor_source describe(outgoing *o)
{
  if (o->part != ELEMENTS) {
    return (tgi_tensor_source){.name = o->name,
                               .dtype = TGI_FILE_U8,
                               .ndim = o->ndim,
                               .shape = o->shape,
                               .make = make_part,
                               .arg = o,
                               .piece = bytes_of(o)};
  }
  const bool as_it_lies = !o->q.transposed && o->from->dtype == o->from->file_dtype;
  const size_t row = row_bytes(o);
  return (tgi_tensor_source){.name = o->name,
                             .dtype = tgi_file_dtype_of_op(o->from->file_dtype),
                             .ndim = o->ndim,
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
  if (tgi_parameter_is_mxfp4(q)) {
    return from->mxfp4 ? 2 : 0;
  }
  return from->without_experts && tgi_parameter_is_experts(q) ? 0 : tgi_parameter_pieces(q);
}

/* Tensor i of a parameter. */
static outgoing address(const tgi_block_source *from, const tgi_parameter *q, size_t i,
                        tg_context *ctx)
{
  outgoing o = {.from = from, .q = *q, .ctx = ctx};
  if (tgi_parameter_is_mxfp4(q)) { /* [experts, in, out] */
    o.part = i == 0 ? BLOCKS : SCALES;
    o.ndim = i == 0 ? 4 : 3;
    o.shape[0] = q->shape[0];
    o.shape[1] = q->shape[2];
    o.shape[2] = q->shape[1] / 32;
    o.shape[3] = 16;
    snprintf(o.name, sizeof o.name, "%s%s_%s", from->prefix, q->name, i == 0 ? "blocks" : "scales");
    return o;
  }
  o.q = tgi_parameter_piece(q, i);
  o.ndim = o.q.ndim;
  memcpy(o.shape, o.q.shape, sizeof o.q.shape);
  if (o.q.transposed) {
    o.shape[0] = o.q.shape[1];
    o.shape[1] = o.q.shape[0];
  }
  snprintf(o.name, sizeof o.name, "%s%s", from->prefix, o.q.name);
  return o;
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
      s->items[next] = address(from, &all->list[p], i, s->ctx);
      s->sources[next] = describe(&s->items[next]);
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

/* The end of the shard that begins at tensor `p`: as many as fit, one at least. */
static size_t shard_end(const shipment *s, size_t p, uint64_t most)
{
  uint64_t bytes = 0;
  const size_t first = p;
  while (p < s->count && (p == first || bytes_of(&s->items[p]) <= most - bytes)) {
    bytes += bytes_of(&s->items[p]);
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
      total += bytes_of(&s->items[p]);
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

/* Pools of device memory.
 *
 * A block is as large as what was asked for, rounded up a little; it serves a later request of its
 * size, or of up to an eighth less. Whoever gives a block back waits for his stream first, so the
 * next owner may use any. Blocks are few and large (a session has three), so a list does. */
#include "cuda/runtime/memory_pool.h"

#include "core/device_state.h"
#include "cuda/runtime/runtime_status.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct pool_block {
  struct pool_block *next;
  void *memory;
  size_t bytes;
  bool taken;
} pool_block;

struct tgi_memory_pool {
  tgi_memory_pool *next;
  int index, contexts;
  pool_block *blocks;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tgi_memory_pool *pools; /* of GPUs that have a context */

/* Releases the blocks that nobody has; with `all`, forgets the others too: they are their owners'.
 * Returns the bytes released. */
static size_t trim(tgi_memory_pool *pool, bool all)
{
  size_t released = 0;
  for (pool_block **at = &pool->blocks; *at;) {
    pool_block *b = *at;
    if (b->taken && !all) {
      at = &b->next;
      continue;
    }
    if (!b->taken) {
      cudaFree(b->memory);
      released += b->bytes;
    }
    *at = b->next;
    free(b);
  }
  (void)cudaGetLastError();
  return released;
}

tgi_memory_pool *tgi_memory_pool_open(int index)
{
  pthread_mutex_lock(&lock);
  tgi_memory_pool *pool = pools;
  while (pool && pool->index != index) {
    pool = pool->next;
  }
  if (!pool && (pool = calloc(1, sizeof *pool)) != NULL) {
    pool->index = index;
    pool->next = pools;
    pools = pool;
  }
  if (pool) {
    pool->contexts++;
  }
  pthread_mutex_unlock(&lock);
  return pool;
}

void tgi_memory_pool_close(tgi_memory_pool *pool)
{
  if (!pool) {
    return;
  }
  pthread_mutex_lock(&lock);
  if (--pool->contexts == 0) {
    tgi_memory_pool **at = &pools;
    while (*at != pool) {
      at = &(*at)->next;
    }
    *at = pool->next;
    trim(pool, true);
    free(pool);
  }
  pthread_mutex_unlock(&lock);
}

/* Small blocks to 512 bytes, others to the driver's pages of 2 MiB. */
static size_t block_size(size_t bytes)
{
  const size_t unit = bytes < (size_t)1 << 20 ? 512 : (size_t)2 << 20;
  return bytes > SIZE_MAX - unit ? bytes : (bytes + unit - 1) / unit * unit;
}

static pool_block *find_free(const tgi_memory_pool *pool, size_t size)
{
  pool_block *best = NULL;
  for (pool_block *b = pool->blocks; b; b = b->next) {
    if (!b->taken && b->bytes >= size && b->bytes - size <= size / 8 &&
        (!best || b->bytes < best->bytes)) {
      best = b;
    }
  }
  return best;
}

/* From the driver; once more after a trim where it has no more. */
static tg_status allocate(const tg_context *ctx, size_t size, void **memory)
{
  tg_status status = tgi_device_allocate(ctx, size, memory);
  if (status != TG_NO_MEMORY) {
    return status;
  }
  const size_t released = trim(ctx->device->pool, false);
  if (released > 0) {
    status = tgi_device_allocate(ctx, size, memory);
  }
  if (status == TG_NO_MEMORY) {
    const tgi_message said = *ctx->message;
    tgi_report(ctx, status, "%.400s; %zu bytes kept for reuse were released", said.text, released);
  }
  return status;
}

static tg_status add_block(const tg_context *ctx, size_t size, pool_block **out)
{
  pool_block *b = calloc(1, sizeof *b);
  if (!b) {
    return tgi_report(ctx, TG_NO_MEMORY, "memory: expected %zu bytes of the host's, got none",
                      sizeof *b);
  }
  const tg_status status = allocate(ctx, size, &b->memory);
  if (status != TG_OK) {
    free(b);
    return status;
  }
  b->bytes = size;
  b->next = ctx->device->pool->blocks;
  ctx->device->pool->blocks = b;
  *out = b;
  return TG_OK;
}

tg_status tgi_device_take(const tg_context *ctx, size_t bytes, void **out)
{
  *out = NULL;
  if (bytes == 0) {
    return TG_OK;
  }
  const size_t size = block_size(bytes);
  pthread_mutex_lock(&lock);
  pool_block *b = find_free(ctx->device->pool, size);
  const tg_status status = b ? TG_OK : add_block(ctx, size, &b);
  if (status == TG_OK) {
    b->taken = true;
    *out = b->memory;
  }
  pthread_mutex_unlock(&lock);
  return status;
}

void tgi_device_give_back(const tg_context *ctx, void *memory)
{
  cudaStreamSynchronize(ctx->device->stream); /* a device that is lost tells the next call */
  (void)cudaGetLastError();
  pthread_mutex_lock(&lock);
  pool_block *b = ctx->device->pool->blocks;
  while (b && b->memory != memory) {
    b = b->next;
  }
  if (b) {
    b->taken = false;
  }
  pthread_mutex_unlock(&lock);
  if (!b) { /* of a pool that is gone */
    tgi_device_free(ctx, memory);
  }
}

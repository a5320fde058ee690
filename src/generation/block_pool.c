#include "block_pool.h"

#include <stdlib.h>

bool tgi_block_pool_open(tgi_block_pool *pool, int64_t count)
{
  *pool = (tgi_block_pool){.users = calloc((size_t)count, sizeof *pool->users),
                           .free = malloc((size_t)count * sizeof *pool->free),
                           .count = count};
  if (!pool->users || !pool->free) {
    tgi_block_pool_close(pool);
    return false;
  }
  for (int64_t i = 0; i < count; i++) { /* the first one is taken first */
    pool->free[i] = (int32_t)(count - 1 - i);
  }
  pool->num_free = count;
  return true;
}

void tgi_block_pool_close(tgi_block_pool *pool)
{
  free(pool->users);
  free(pool->free);
  *pool = (tgi_block_pool){.count = 0};
}

int32_t tgi_block_take(tgi_block_pool *pool)
{
  if (pool->num_free == 0) {
    return -1;
  }
  const int32_t block = pool->free[--pool->num_free];
  pool->users[block] = 1;
  return block;
}

void tgi_block_share(tgi_block_pool *pool, int32_t block)
{
  pool->users[block]++;
}

void tgi_block_drop(tgi_block_pool *pool, int32_t block)
{
  if (--pool->users[block] == 0) {
    pool->free[pool->num_free++] = block;
  }
}

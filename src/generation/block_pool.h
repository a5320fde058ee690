/** Which blocks of a pool are free, and how many users the others have. */
#ifndef TGI_GENERATION_BLOCK_POOL_H
#define TGI_GENERATION_BLOCK_POOL_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tgi_block_pool {
  int32_t *users; /* [count]; 0: free */
  int32_t *free;  /* [num_free] */
  int64_t count, num_free;
} tgi_block_pool;

/** All blocks free. False: no memory; the pool is then empty. */
bool tgi_block_pool_open(tgi_block_pool *pool, int64_t count);

void tgi_block_pool_close(tgi_block_pool *pool);

/** A free block, which has one user then; -1: none is free. */
int32_t tgi_block_take(tgi_block_pool *pool);

/** One user more. */
void tgi_block_share(tgi_block_pool *pool, int32_t block);

/** One user less; without users the block is free. */
void tgi_block_drop(tgi_block_pool *pool, int32_t block);

#endif

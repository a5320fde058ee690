/* Plan of a mixture of experts on the CPU.
 *
 * Method     A stable counting sort. Each block of slots counts its experts; a pass over
 *            experts and blocks turns the counts into the first place of each expert in each
 *            block; then each block places its slots in order.
 * Work       Blocks of 4096 slots.
 * Bound      Latency: 12 bytes a slot.
 */
#include "ops/moe_plan/plan_indices.h"

#include <stdio.h>

enum { kBlock = 4096 };

static int64_t blocks_of(int64_t slots)
{
  return (slots + kBlock - 1) / kBlock;
}

/* The workspace: [blocks, experts + 1], counts and then places. */
static int32_t *places_of(const tg_moe_plan_fwd_args *a, int64_t block)
{
  return (int32_t *)a->workspace + block * a->offsets.shape[0];
}

static int64_t block_end(const tg_moe_plan_fwd_args *a, int64_t block)
{
  const int64_t end = (block + 1) * kBlock;
  return end < a->slot.shape[0] ? end : a->slot.shape[0];
}

static void count_blocks(void *arg, int64_t begin, int64_t end, int thread)
{
  const tg_moe_plan_fwd_args *a = arg;
  (void)thread;
  for (int64_t b = begin; b < end; b++) {
    int32_t *count = places_of(a, b);
    memset(count, 0, (size_t)a->offsets.shape[0] * sizeof *count);
    for (int64_t s = b * kBlock; s < block_end(a, b); s++) {
      count[slot_expert(a, s)]++;
    }
  }
}

static void place_blocks(void *arg, int64_t begin, int64_t end, int thread)
{
  const tg_moe_plan_fwd_args *a = arg;
  const int64_t experts = a->offsets.shape[0] - 1;
  int32_t *slot = a->slot.data, *row = a->row.data;
  (void)thread;
  for (int64_t b = begin; b < end; b++) {
    int32_t *place = places_of(a, b);
    for (int64_t s = b * kBlock; s < block_end(a, b); s++) {
      const int64_t e = slot_expert(a, s);
      const int32_t r = place[e]++;
      slot[r] = (int32_t)s;
      row[s] = e < experts ? r : -1;
    }
  }
}

static void find_places(const tg_moe_plan_fwd_args *a)
{
  const int64_t experts = a->offsets.shape[0] - 1, blocks = blocks_of(a->slot.shape[0]);
  int32_t *offsets = a->offsets.data, sum = 0;
  for (int64_t e = 0; e <= experts; e++) {
    offsets[e] = sum;
    for (int64_t b = 0; b < blocks; b++) {
      const int32_t count = places_of(a, b)[e];
      places_of(a, b)[e] = sum;
      sum += count;
    }
  }
}

size_t TGI_WORKSPACE(moe_plan_fwd)(const tg_context *ctx, const tg_moe_plan_fwd_args *a)
{
  (void)ctx;
  return (size_t)(blocks_of(a->slot.shape[0]) * a->offsets.shape[0]) * sizeof(int32_t);
}

tg_status TGI_KERNEL(moe_plan_fwd)(const tg_context *ctx, const tg_moe_plan_fwd_args *a)
{
  tg_moe_plan_fwd_args args = *a;
  const tg_status status = check_indices(ctx, a);
  if (status == TG_OK) {
    const int64_t blocks = blocks_of(a->slot.shape[0]);
    tgi_for(ctx, blocks, 1, count_blocks, &args);
    find_places(a);
    tgi_for(ctx, blocks, 1, place_blocks, &args);
  }
  return status;
}

void TGI_PLAN(moe_plan_fwd)(const tg_context *ctx, const tg_moe_plan_fwd_args *a, char *text,
                            size_t bytes)
{
  (void)ctx;
  snprintf(text, bytes, "%lld blocks of %d slots", (long long)blocks_of(a->slot.shape[0]), kBlock);
}

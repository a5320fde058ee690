/**
 * Sums over the rows of a matrix, with the same bits at any number of threads: the rows are cut
 * into blocks by their number alone, each block adds into a row of partial sums of its own, and a
 * second loop adds the blocks in order, with what each addition loses.
 */
#ifndef TGI_CPU_COLUMN_SUMS_H
#define TGI_CPU_COLUMN_SUMS_H

#include "core/context_state.h"
#include "cpu/simd.h"

enum { TGI_SUM_BLOCKS_MAX = 64, TGI_SUM_BLOCK_ROWS_MIN = 16 };

typedef struct tgi_row_blocks {
  int64_t rows, block_rows, count;
} tgi_row_blocks;

static inline tgi_row_blocks tgi_cut_rows(int64_t rows)
{
  int64_t each = (rows + TGI_SUM_BLOCKS_MAX - 1) / TGI_SUM_BLOCKS_MAX;
  each = each > TGI_SUM_BLOCK_ROWS_MIN ? each : TGI_SUM_BLOCK_ROWS_MIN;
  return (tgi_row_blocks){rows, each, (rows + each - 1) / each};
}

/** target[j] += the partial sums of all blocks, whose rows lie `stride` floats apart. */
typedef struct tgi_column_sums {
  void *target;
  int dtype;
  const float *partial;
  int64_t cols, stride, blocks;
} tgi_column_sums;

static inline void tgi_sum_columns(void *arg, int64_t begin, int64_t end, int thread)
{
  const tgi_column_sums *s = arg;
  (void)thread;
  for (int64_t j = begin; j < end; j += TGI_LANES) {
    const int64_t n = tgi_min_i64(TGI_LANES, end - j);
    vf sum = vf_zero(), lost = vf_zero();
    for (int64_t block = 0; block < s->blocks; block++) {
      const vf x = vf_load_part_f32(s->partial + block * s->stride + j, n);
      const vf next = sum + x, added = next - sum;
      lost = lost + ((sum - (next - added)) + (x - added));
      sum = next;
    }
    /* Infinite sums have lost NaN. */
    const vf all = vf_select(vf_lt(vf_abs(sum), vf_set1(INFINITY)), sum + lost, sum);
    TGI_SWITCH_FLOAT(s->dtype, T,
                     vf_store_part(s->target, T, j, n, vf_load_part(s->target, T, j, n) + all));
  }
}

static inline void tgi_add_column_sums(const tg_context *ctx, tgi_column_sums s)
{
  tgi_for(ctx, s.cols, 1024, tgi_sum_columns, &s);
}

#endif

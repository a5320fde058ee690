/** Groups of a matrix [rows, cols] that share a scale. */
#ifndef TGI_OPS_QUANT_GROUPS_H
#define TGI_OPS_QUANT_GROUPS_H

#include "tegula/quantize_int8.h"
#include <stdbool.h>

static inline int64_t tgi_quant_groups(tg_quant_granularity g, int64_t rows, int64_t cols)
{
  return g == TG_QUANT_PER_TENSOR ? 1 : g == TG_QUANT_PER_ROW ? rows : cols;
}

/** Rows and columns of one group. */
typedef struct tgi_quant_block {
  int64_t row_begin, row_end, col_begin, col_end;
} tgi_quant_block;

static inline tgi_quant_block tgi_quant_block_of(tg_quant_granularity g, int64_t group,
                                                 int64_t rows, int64_t cols)
{
  const bool by_row = g == TG_QUANT_PER_ROW, by_column = g == TG_QUANT_PER_COLUMN;
  return (tgi_quant_block){by_row ? group : 0, by_row ? group + 1 : rows, by_column ? group : 0,
                           by_column ? group + 1 : cols};
}

#endif

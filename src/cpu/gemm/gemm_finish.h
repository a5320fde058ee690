/** What follows a product: bias, activation, residual and rounding, on one tile of sums. */
#ifndef TGI_CPU_GEMM_FINISH_H
#define TGI_CPU_GEMM_FINISH_H

#include "cpu/gemm/gemm.h"

/**
 * Writes rows [i0, i0 + m) and columns [j0, j0 + n) of the result. The product there is tile, or
 * before + tile where before is not NULL. The tile has TGI_GEMM_NR columns and is overwritten.
 */
#define tgi_gemm_finish TGI_GEMM_NAME(gemm_finish)
void tgi_gemm_finish(const tgi_gemm_result *c, float *tile, const float *before,
                     int64_t before_stride, int64_t i0, int64_t j0, int64_t m, int64_t n);

#endif

/** Products with few rows: B is read once, transposed in registers, and never stored. */
#ifndef TGI_CPU_GEMV_H
#define TGI_CPU_GEMV_H

#include "cpu/gemm/gemm.h"

/* Rows that share a square of B in registers; and rows that are taken, in strips of so many, of
 * which the second one finds its columns of B in the cache. With more the packed kernel is as fast.
 */
enum { TGI_GEMV_MAX_M = TGI_LANES == 16 ? 8 : 4, TGI_GEMV_MOST = TGI_LANES == 16 ? 12 : 4 };

#define tgi_gemv_takes TGI_GEMM_NAME(gemv_takes)
bool tgi_gemv_takes(const tgi_gemm_problem *p);

/** Columns of a task. */
#define tgi_gemv_grain TGI_GEMM_NAME(gemv_grain)
int64_t tgi_gemv_grain(const tgi_gemm_problem *p);

#define tgi_gemv_workspace TGI_GEMM_NAME(gemv_workspace)
size_t tgi_gemv_workspace(const tgi_gemm_problem *p);

/** Computes p, in blocks of block_k units: the bits of tgi_gemm on the same rows among others. */
#define tgi_gemv TGI_GEMM_NAME(gemv)
void tgi_gemv(const tg_context *ctx, const tgi_gemm_problem *p, int64_t block_k, void *workspace);

#endif

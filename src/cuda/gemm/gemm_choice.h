/** Whether cublasLt or a plan of our own runs a dense product, where there are both. A rule of
 * numbers alone, so that it can be tested without a GPU; docs/kernels/products.md has the
 * measurements behind it. */
#ifndef TGI_CUDA_GEMM_CHOICE_H
#define TGI_CUDA_GEMM_CHOICE_H

#include "cuda/gemm/gemm_problem.h"

/** True for 1 to 64 rows of activations: a row has the same bits however many rows there are, so
 * cublasLt never runs them. */
static inline bool tgi_gemm_is_first_class(const tgi_gemm_problem *problem)
{
  return problem->a.major == TGI_GEMM_ALONG_K && problem->m <= TGI_GEMM_FEW_ROWS;
}

/** True if cublasLt is faster on this product than the plan, on an H100 or H200. */
bool tgi_gemm_prefers_lt(const tgi_gemm_problem *problem, const tgi_gemm_plan *plan);

#endif

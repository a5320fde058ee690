/** Products in one kind of unit; gemm.h picks the kind. */
#ifndef TGI_CPU_GEMM_PRODUCT_H
#define TGI_CPU_GEMM_PRODUCT_H

#include "cpu/gemm/gemm.h"

#define tgi_product_run TGI_GEMM_NAME(product_run)
#define tgi_product_workspace TGI_GEMM_NAME(product_workspace)
#define tgi_product_workspace_within TGI_GEMM_NAME(product_workspace_within)
#define tgi_product_explain TGI_GEMM_NAME(product_explain)

/** m and n are at least 1. */
void tgi_product_run(const tg_context *ctx, const tgi_gemm_problem *p, void *workspace);
size_t tgi_product_workspace(const tg_context *ctx, const tgi_gemm_problem *p);
size_t tgi_product_workspace_within(const tg_context *ctx, const tgi_gemm_problem *p);
void tgi_product_explain(const tg_context *ctx, const tgi_gemm_problem *p, char *text,
                         size_t bytes);

/** The functions of the translation units that have VDPBF16PS; for bf16 operands alone. */
void tgi_product_run_avx512_bf16(const tg_context *ctx, const tgi_gemm_problem *p, void *workspace);
size_t tgi_product_workspace_avx512_bf16(const tg_context *ctx, const tgi_gemm_problem *p);
size_t tgi_product_workspace_within_avx512_bf16(const tg_context *ctx, const tgi_gemm_problem *p);
void tgi_product_explain_avx512_bf16(const tg_context *ctx, const tgi_gemm_problem *p, char *text,
                                     size_t bytes);

#endif

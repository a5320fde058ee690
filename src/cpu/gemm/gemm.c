/* Entry to products: picks f32 units or pairs of bf16. */
#include "cpu/gemm/gemm.h"

#include "cpu/gemm/gemm_product.h"
#include <stdio.h>

typedef struct functions {
  void (*run)(const tg_context *ctx, const tgi_gemm_problem *p, void *workspace);
  size_t (*workspace)(const tg_context *ctx, const tgi_gemm_problem *p);
  size_t (*workspace_within)(const tg_context *ctx, const tgi_gemm_problem *p);
  void (*explain)(const tg_context *ctx, const tgi_gemm_problem *p, char *text, size_t bytes);
} functions;

static const functions units = {tgi_product_run, tgi_product_workspace,
                                tgi_product_workspace_within, tgi_product_explain};

#ifdef __AVX512F__
static const functions pairs = {tgi_product_run_avx512_bf16, tgi_product_workspace_avx512_bf16,
                                tgi_product_workspace_within_avx512_bf16,
                                tgi_product_explain_avx512_bf16};
#endif

static const functions *choose(const tg_context *ctx, const tgi_gemm_problem *p)
{
#ifdef __AVX512F__
  if (ctx->processor.avx512_bf16 && p->a.dtype == TG_BF16 && p->b.dtype == TG_BF16) {
    return &pairs;
  }
#else
  (void)ctx;
  (void)p;
#endif
  return &units;
}

static bool is_empty(const tgi_gemm_problem *p)
{
  return p->m == 0 || p->n == 0;
}

size_t tgi_gemm_workspace(const tg_context *ctx, const tgi_gemm_problem *p)
{
  return is_empty(p) ? 0 : choose(ctx, p)->workspace(ctx, p);
}

size_t tgi_gemm_workspace_within(const tg_context *ctx, const tgi_gemm_problem *p)
{
  return is_empty(p) ? 0 : choose(ctx, p)->workspace_within(ctx, p);
}

void tgi_gemm(const tg_context *ctx, const tgi_gemm_problem *p, void *workspace)
{
  if (!is_empty(p)) {
    choose(ctx, p)->run(ctx, p, workspace);
  }
}

void tgi_gemm_explain(const tg_context *ctx, const tgi_gemm_problem *p, char *text, size_t bytes)
{
  if (is_empty(p)) {
    snprintf(text, bytes, "nothing");
  } else {
    choose(ctx, p)->explain(ctx, p, text, bytes);
  }
}

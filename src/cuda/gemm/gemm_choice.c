/* Which dense products cublasLt runs: see gemm_choice.h. */
#include "cuda/gemm/gemm_choice.h"

#include <stddef.h>

enum { kLongSums = 2048 };

typedef enum layout { NT, NN, TN } layout;

/* cublasLt's time over the plan's in thousandths: geometric means of what was measured in the class
 * on an H200, layers of Qwen3 0.6B and 8B at 4096 and 8192 rows and cubes of 1024 to 8192. */
typedef struct class_ratio {
  layout of;
  int tile_n;
  bool long_sums; /* kLongSums products or more */
  int ratio;
} class_ratio;

static const class_ratio ratios[] = {
    {NT, 256, false, 936}, {NT, 256, true, 972},  {NT, 192, false, 1040}, {NT, 192, true, 964},
    {NN, 256, false, 970}, {NN, 256, true, 988},  {NN, 192, false, 1067}, {NN, 192, true, 1007},
    {TN, 256, true, 990},  {TN, 192, true, 1006},
};

static layout layout_of(const tgi_gemm_problem *p)
{
  return p->a.major == TGI_GEMM_ACROSS_K ? TN : p->b.major == TGI_GEMM_ACROSS_K ? NN : NT;
}

bool tgi_gemm_prefers_lt(const tgi_gemm_problem *p, const tgi_gemm_plan *plan)
{
  if (tgi_gemm_is_first_class(p) || !p->c.vectors) { /* which cublasLt stores element by element */
    return false;
  }
  if (p->reads) { /* not measured: residuals, and sums added to 16 bits */
    return true;
  }
  for (size_t i = 0; i < sizeof ratios / sizeof ratios[0]; i++) {
    const class_ratio *r = &ratios[i];
    if (r->of == layout_of(p) && r->tile_n == plan->tile_n && r->long_sums == (p->k >= kLongSums)) {
      return r->ratio < 1000;
    }
  }
  return true; /* grids too small for these tiles */
}

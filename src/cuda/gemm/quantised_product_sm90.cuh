/** How the ops run products with packed quantised weights on Hopper: which blocks take how many
 * rows, and where a cluster of two shares the runs of k. */
#ifndef TGI_CUDA_QUANTISED_PRODUCT_SM90_CUH
#define TGI_CUDA_QUANTISED_PRODUCT_SM90_CUH

#include "cuda/gemm/gemm_quantised_sm90.cuh"
#include "cuda/gemm/quantised_product.cuh"

extern "C" {
#include "ops/quantised_refusals.h"
}

inline namespace TGI_CUDA_ENTRY
{

/** Rows of x in a block, and blocks of a cluster. */
struct wide_form {
  int rows, blocks;
};

/** 64 rows where that makes a block for half of the device at least, 32 else, and two blocks that
 * share k where that is not enough either. */
inline wide_form wide_form_of(const tg_context *ctx, int64_t rows, int64_t out)
{
  const int64_t groups = divide_up(out, (int64_t)TGI_WIDE_OUTPUTS);
  const int64_t half = ctx->device->multiprocessors / 2;
  const int of_block = rows > 32 && 2 * groups * divide_up(rows, (int64_t)64) > half ? 64 : 32;
  return {of_block, groups * divide_up(rows, (int64_t)of_block) > half ? 1 : 2};
}

template <typename Operand, typename T, typename B>
tg_status launch_wide(const tg_context *ctx, const quantised_product &p, int blocks)
{
  const auto kernel = quantised_wide_kernel<Operand, T, B>;
  constexpr int kTile = Operand::template rows<B::kTiles>::kTileBytes;
  static_assert(B::kPanels * TGI_PANEL_ROWS == TGI_WIDE_OUTPUTS, "as the refusals count them");
  const int groups = (int)divide_up(p.w.out, (int64_t)TGI_WIDE_OUTPUTS);
  const int64_t strips = divide_up(p.rows, (int64_t)B::kRows);
  cluster_launch l;
  const cudaError_t e = prepare_clusters(ctx, (const void *)kernel, blocks, B::kThreads,
                                         B::shared_bytes(p, kTile, blocks), &l);
  return launch_clusters(ctx, e, kernel, &l, (int)(groups * strips), p, groups);
}

template <typename Operand, typename T>
tg_status multiply_wide_as(const tg_context *ctx, const quantised_product &p)
{
  /* Stages of 64 rows and 8-bit weights take 64 KiB. */
  constexpr int kStages = Operand::kMostStageBytes > 3072 ? 2 : 3;
  const wide_form form = wide_form_of(ctx, p.rows, p.w.out);
  return form.rows == 32 ? launch_wide<Operand, T, wide_block<4, 3>>(ctx, p, form.blocks)
                         : launch_wide<Operand, T, wide_block<8, kStages>>(ctx, p, form.blocks);
}

template <typename Operand, typename Args>
tg_status multiply_wide(const tg_context *ctx, const Args *a, const quantised_product &p)
{
  return a->x.dtype == TG_BF16 ? multiply_wide_as<Operand, bf16>(ctx, p)
                               : multiply_wide_as<Operand, f16>(ctx, p);
}

template <typename Args>
void tell_wide(const tg_context *ctx, const Args *a, char *text, size_t bytes)
{
  const wide_form f = wide_form_of(ctx, a->x.shape[0], a->y.shape[1]);
  snprintf(text, bytes, "tensor cores, weight widened in registers, %d x 128 tiles%s", f.rows,
           f.blocks > 1 ? ", two parts of k" : "");
}

} // namespace TGI_CUDA_ENTRY

#endif

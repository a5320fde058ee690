/** How the ops run products with packed quantised weights on Hopper: few rows as on sm80, in
 * kernels that may begin early; of more rows which blocks take how many, and where a cluster of two
 * shares the runs of k. */
#ifndef TGI_CUDA_QUANTISED_PRODUCT_SM90_CUH
#define TGI_CUDA_QUANTISED_PRODUCT_SM90_CUH

#include "cuda/gemm/gemm_quantised_sm90.cuh"
#include "cuda/gemm/quantised_product.cuh"

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
  const int64_t groups = divide_up(out, (int64_t)kWideOutputs);
  const int64_t half = ctx->device->multiprocessors / 2;
  const int of_block = rows > 32 && 2 * groups * divide_up(rows, (int64_t)64) > half ? 64 : 32;
  return {of_block, groups * divide_up(rows, (int64_t)of_block) > half ? 1 : 2};
}

/** A kernel, the rows of x in its blocks, and their shared memory. */
struct wide_choice {
  void (*kernel)(quantised_product, int);
  int rows;
  size_t shared;
};

template <typename Operand, typename T, typename B>
wide_choice wide_choice_of(const quantised_product &p, int blocks)
{
  constexpr int kTile = Operand::template rows<B::kTiles>::kTileBytes;
  return {quantised_wide_kernel<Operand, T, B>, B::kRows, B::shared_bytes(p, kTile, blocks)};
}

template <typename Operand, typename T>
wide_choice wide_choice_as(const quantised_product &p, const wide_form &form)
{
  /* Stages of 64 rows and 8-bit weights take 64 KiB. */
  constexpr int kStages = Operand::kMostStageBytes > 3072 ? 2 : 3;
  return form.rows == 32 ? wide_choice_of<Operand, T, wide_block<4, 3>>(p, form.blocks)
                         : wide_choice_of<Operand, T, wide_block<8, kStages>>(p, form.blocks);
}

/** Starts the kernel: its code once for all of an op's. */
template <typename Operand, typename Args>
tg_status multiply_wide(const tg_context *ctx, const Args *a, const quantised_product &p)
{
  const wide_form form = wide_form_of(ctx, p.rows, p.w.out);
  const wide_choice c = a->x.dtype == TG_BF16 ? wide_choice_as<Operand, bf16>(p, form)
                                              : wide_choice_as<Operand, f16>(p, form);
  const int groups = (int)divide_up(p.w.out, (int64_t)kWideOutputs);
  const int64_t strips = divide_up(p.rows, (int64_t)c.rows);
  cluster_launch l;
  const cudaError_t e =
      prepare_clusters(ctx, (const void *)c.kernel, form.blocks, kWideThreads, c.shared, &l);
  let_clusters_overlap(ctx, &l);
  return launch_clusters(ctx, e, c.kernel, &l, (int)(groups * strips), p, groups);
}

template <typename Operand, typename Args>
tg_status multiply_on_hopper(const tg_context *ctx, const Args *a, const quantised_product &p)
{
  if (p.rows > kFewRows) {
    return multiply_wide<Operand>(ctx, a, p);
  }
  return a->x.dtype == TG_BF16 ? multiply_few<Operand, bf16>(ctx, p)
                               : multiply_few<Operand, f16>(ctx, p);
}

template <typename Args>
void tell_on_hopper(const tg_context *ctx, const Args *a, char *text, size_t bytes)
{
  if (a->x.shape[0] <= kFewRows) {
    tell_quantised(ctx, a, text, bytes);
    return;
  }
  const wide_form f = wide_form_of(ctx, a->x.shape[0], a->y.shape[1]);
  snprintf(text, bytes, "tensor cores, weight widened in registers, %d x 128 tiles%s", f.rows,
           f.blocks > 1 ? ", two parts of k" : "");
}

} // namespace TGI_CUDA_ENTRY

#endif

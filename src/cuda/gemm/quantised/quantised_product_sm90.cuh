/** How the ops run products with packed quantised weights on Hopper: few rows as on sm80, in
 * kernels that may begin early; of more rows which blocks take how many, and where a cluster of two
 * shares the runs of k. */
#ifndef TGI_CUDA_QUANTISED_PRODUCT_SM90_CUH
#define TGI_CUDA_QUANTISED_PRODUCT_SM90_CUH

#include "cuda/gemm/quantised/quantised_product.cuh"
#include "cuda/gemm/quantised/quantised_sm90.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** Rows of x in a block, and blocks of a cluster. */
struct wide_form {
  int rows, blocks;
};

/** 64 rows where that makes enough blocks, 32 else; and two blocks that share k where that makes a
 * wave of no more than the device's multiprocessors. */
inline wide_form wide_form_of(const tg_context *ctx, int64_t rows, int64_t out)
{
  const int64_t groups = divide_up(out, (int64_t)kWideOutputs), all = ctx->device->multiprocessors;
  const int64_t large = groups * divide_up(rows, (int64_t)64);
  const int64_t small = groups * divide_up(rows, (int64_t)32);
  return rows > 32 && 4 * large > all ? wide_form{64, 2 * large > all ? 1 : 2}
                                      : wide_form{32, 2 * small > all ? 1 : 2};
}

/** The kernels: the one that makes tiles of x, and the product; and its shared memory. */
struct wide_choice {
  void (*to_tiles)(tiles_of_x);
  void (*multiply)(quantised_product, const uint8_t *, int);
  size_t shared;
};

template <typename Operand, typename T, typename B>
wide_choice wide_choice_of(const quantised_product &p, int blocks)
{
  return {rows_to_tiles<B::kRows>, quantised_wide_kernel<Operand, T, B>,
          B::shared_bytes(p, blocks)};
}

template <typename Operand, typename T>
wide_choice wide_choice_as(const quantised_product &p, const wide_form &form)
{
  /* Stages of 64 rows and 8-bit weights take 64 KiB. */
  constexpr int kStages = Operand::kMostStageBytes > 3072 ? 2 : 3;
  return form.rows == 32 ? wide_choice_of<Operand, T, wide_block<4, 3>>(p, form.blocks)
                         : wide_choice_of<Operand, T, wide_block<8, kStages>>(p, form.blocks);
}

/** Starts the kernels: the code once for all of an op's. */
template <typename Operand, typename Args>
tg_status multiply_wide(const tg_context *ctx, const Args *a, const quantised_product &p)
{
  const wide_form form = wide_form_of(ctx, p.rows, p.w.out);
  const wide_choice c = a->x.dtype == TG_BF16 ? wide_choice_as<Operand, bf16>(p, form)
                                              : wide_choice_as<Operand, f16>(p, form);
  const int groups = (int)divide_up(p.w.out, (int64_t)kWideOutputs);
  tiles_of_x t = {};
  t.x = static_cast<const char *>(p.x);
  t.to = static_cast<uint4 *>(a->workspace);
  t.rows = p.rows;
  t.in = p.w.in;
  t.x_step = p.x_step * 2;
  t.chunks = divide_up(p.w.in, kChunk);
  t.strips = divide_up(p.rows, (int64_t)form.rows);
  const dim3 grid(
      (unsigned)divide_up(t.strips * t.chunks * form.rows * kChunkSteps, kTilesThreads));
  /* Clusters do not find their places beside blocks at work: they would be slower. */
  const tg_status status = form.blocks == 1
                               ? launch_overlapping(ctx, c.to_tiles, grid, kTilesThreads, 0, t)
                               : launch(ctx, c.to_tiles, grid, kTilesThreads, 0, t);
  if (status != TG_OK) {
    return status;
  }
  cluster_launch l;
  const cudaError_t e =
      prepare_clusters(ctx, (const void *)c.multiply, form.blocks, kWideThreads, c.shared, &l);
  let_clusters_follow(&l);
  return launch_clusters(ctx, e, c.multiply, &l, (int)(groups * t.strips), p,
                         static_cast<const uint8_t *>(a->workspace), groups);
}

/** Bytes of the tiles of x. */
template <typename Args> size_t tiles_bytes(const tg_context *ctx, const Args *a)
{
  const int64_t rows = a->x.shape[0], chunks = divide_up(a->x.shape[1], (int64_t)kChunk);
  if (rows <= kFewRows) {
    return 0;
  }
  const wide_form form = wide_form_of(ctx, rows, a->y.shape[1]);
  return (size_t)(divide_up(rows, (int64_t)form.rows) * form.rows * chunks * kChunk * 2);
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
  snprintf(text, bytes, "x in tiles, then wgmma, weight widened in registers, %d x 128 tiles%s",
           f.rows, f.blocks > 1 ? ", two parts of k" : "");
}

} // namespace TGI_CUDA_ENTRY

#endif

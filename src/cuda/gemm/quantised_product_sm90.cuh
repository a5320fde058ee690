/** How the ops run products with packed quantised weights on Hopper: by gemm_quantised_sm90.cuh,
 * whatever the number of rows, but where quantised_product.cuh widens the weight once. */
#ifndef TGI_CUDA_QUANTISED_PRODUCT_SM90_CUH
#define TGI_CUDA_QUANTISED_PRODUCT_SM90_CUH

#include "cuda/gemm/gemm_quantised_sm90.cuh"
#include "cuda/gemm/quantised_product.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** Parts of k, from W's shape alone: those with which the tiles of an H200, which take 128 rows of
 * W each, would be done first. Of clusters of so many blocks it runs kClusters at once; what a wave
 * costs besides is as long as eight chunks. */
inline int quantised_parts(int64_t out, int64_t in)
{
  static const int64_t kClusters[kMostParts] = {132, 64, 40, 28, 20, 18, 14, 14};
  const int64_t tiles = divide_up(out, kTileOutputs), chunks = divide_up(in, kChunk);
  int64_t least = INT64_MAX;
  int best = 1;
  for (int parts = 1; parts <= kMostParts && parts <= chunks; parts++) {
    const int64_t waves = divide_up(tiles, kClusters[parts - 1]);
    const int64_t time = waves * (8 + divide_up(chunks, parts));
    if (time < least) {
      least = time;
      best = parts;
    }
  }
  return best;
}

inline int wide_tokens(int64_t rows)
{
  return rows <= 8 ? 8 : rows <= 16 ? 16 : rows <= 32 ? 32 : rows <= 64 ? 64 : 128;
}

template <typename Operand, typename T, typename B, typename Args>
tg_status launch_wide(const tg_context *ctx, const Args *a, const quantised_product &p)
{
  const auto kernel = quantised_wide_kernel<Operand, T, B>;
  const int y_bytes = (int)tg_dtype_bytes(p.y_dtype);
  const int barriers = 2 * kMostStages * (int)sizeof(mbarrier);
  const int most = ctx->device->shared_bytes - 1024 - barriers;
  quantised_tiling t = {};
  t.parts = quantised_parts(p.w.out, p.w.in);
  t.strips = (int)divide_up(p.rows, (int64_t)B::kTokens);
  t.stage_bytes = B::stage_bytes(p);
  t.stages = most / t.stage_bytes < kMostStages ? most / t.stage_bytes : kMostStages;
  t.packs_of_y = (uintptr_t)p.y % (unsigned)(4 * y_bytes) == 0 && p.y_step % 4 == 0;
  const int ring =
      t.stages * t.stage_bytes > B::kSumBytes ? t.stages * t.stage_bytes : B::kSumBytes;
  const size_t shared = (size_t)(1024 + ring + barriers);
  const tg_tensor x = pages_of(&a->x);
  CUtensorMap map;
  const tg_status status = make_page_map(ctx, &x, B::kTokens, &map);
  if (status != TG_OK) {
    return status;
  }
  cluster_launch l;
  const cudaError_t e =
      prepare_clusters(ctx, (const void *)kernel, t.parts, B::kThreads, shared, &l);
  const int64_t tiles = divide_up(p.w.out, kTileOutputs);
  return launch_clusters(ctx, e, kernel, &l, (int)(tiles * t.strips), map, p, t);
}

template <typename Operand, typename T, typename Args>
tg_status multiply_wide_as(const tg_context *ctx, const Args *a, const quantised_product &p)
{
  switch (wide_tokens(p.rows)) {
  case 8:
    return launch_wide<Operand, T, wide_block<8, 2, 2>>(ctx, a, p);
  case 16:
    return launch_wide<Operand, T, wide_block<16, 2, 2>>(ctx, a, p);
  case 32:
    return launch_wide<Operand, T, wide_block<32, 2, 2>>(ctx, a, p);
  case 64:
    return launch_wide<Operand, T, wide_block<64, 2, 1>>(ctx, a, p);
  default:
    return launch_wide<Operand, T, wide_block<128, 1, 1>>(ctx, a, p);
  }
}

template <typename Operand, typename Args>
tg_status multiply_wide(const tg_context *ctx, const Args *a, const quantised_product &p)
{
  if (widens_quantised(ctx, a)) {
    return multiply_widened<Operand>(ctx, p, a->workspace);
  }
  return a->x.dtype == TG_BF16 ? multiply_wide_as<Operand, bf16>(ctx, a, p)
                               : multiply_wide_as<Operand, f16>(ctx, a, p);
}

template <typename Args>
void tell_wide(const tg_context *ctx, const Args *a, char *text, size_t bytes)
{
  const int tokens = wide_tokens(a->x.shape[0]);
  const int parts = quantised_parts(a->y.shape[1], a->x.shape[1]);
  if (widens_quantised(ctx, a)) {
    tell_quantised(ctx, a, text, bytes);
  } else {
    snprintf(text, bytes, "wgmma, weight widened in registers, %d x 128 tiles, %d part%s of k",
             tokens, parts, parts > 1 ? "s" : "");
  }
}

} // namespace TGI_CUDA_ENTRY

#endif

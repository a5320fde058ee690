/**
 * Packed quantised weights as bf16 matrices [out, in] in memory, for products of many rows: values
 * as the operands of quantised_sm80.cuh have them, times their scale, rounded once. Rows are
 * padded to multiples of 16 bytes.
 */
#ifndef TGI_CUDA_QUANTISED_WIDEN_CUH
#define TGI_CUDA_QUANTISED_WIDEN_CUH

#include "cuda/gemm/quantised/quantised_sm80.cuh"

#include <type_traits>

inline namespace TGI_CUDA_ENTRY
{

constexpr int kWidenThreads = kWarp * kChunkSteps; /* a step for a warp */

/** Elements from row to row. */
inline int64_t widened_step(int64_t in)
{
  return divide_up(in, 8) * 8;
}

namespace
{

/** A block widens a chunk of a panel. */
template <typename Operand>
__global__ void __launch_bounds__(kWidenThreads)
    widen_weight_kernel(const quantised_product p, bf16 *to, int64_t to_step)
{
  extern __shared__ __align__(128) uint8_t shared[];
  const int lane = threadIdx.x % kWarp, g = lane / 4, q = lane % 4, step = threadIdx.x / kWarp;
  const int64_t chunks = divide_up(p.w.in, kChunk);
  const int64_t panel = blockIdx.x / chunks, chunk = blockIdx.x - panel * chunks;
  Operand operand(p);
  const bool fits = operand.read_header(p, p.w.data, blockIdx.x == 0 && threadIdx.x == 0);
  const int64_t k0 = chunk * kChunk, columns = p.w.in - k0;
  const uint32_t w = shared_address(shared);
  uint32_t a[2][2][4] = {};
  float scale[4] = {CUDART_NAN_F, CUDART_NAN_F, CUDART_NAN_F, CUDART_NAN_F};
  const int64_t k = k0 + step * kStep + 8 * q;
  if (fits) {
    operand.visit([&](auto form) {
      form.template begin<1>(p, panel, (int)chunk);
      if (step == 0) { /* a warp copies, as it does for a product */
        form.template copy<1, false>(1, columns < kChunk ? (int)columns : kChunk, w, 0);
      }
      commit_copies();
      wait_for_copies<0>();
      __syncthreads();
      uint32_t words[decltype(form)::kWords], less[4];
      form.load(words, w, step);
      form.template zero_points<bf16>(less, w, step);
      form.template widen<bf16>(a, words, less);
      form.scales(scale, w, step);
    });
  }
  if (k >= p.w.in) {
    return;
  }
#pragma unroll
  for (int r = 0; r < 4; r++) {
    const int64_t o = panel * TGI_PANEL_ROWS + 4 * g + r;
    uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const uint32_t v = a[i / 2][r / 2][r % 2 + i % 2 * 2];
      pairs[i] = round_pair<bf16>(half_of<bf16>(v, 0) * scale[r], half_of<bf16>(v, 1) * scale[r]);
    }
    if (o < p.w.out) {
      store_words(to + o * to_step + k, pairs);
    }
  }
}

} // namespace

template <typename Operand>
tg_status widen_weight(const tg_context *ctx, const quantised_product &p, bf16 *to)
{
  const int64_t blocks = divide_up(p.w.out, TGI_PANEL_ROWS) * divide_up(p.w.in, kChunk);
  return launch(ctx, widen_weight_kernel<Operand>, dim3((unsigned)blocks), kWidenThreads,
                (size_t)p.stage_bytes, p, to, widened_step(p.w.in));
}

} // namespace TGI_CUDA_ENTRY

#endif

/**
 * Matrix products for whatever cublasLt is not there for: C = finish(alpha A B + bias), every
 * stride and size, any mix of f32, f16 and bf16.
 *
 * Method  Tiles of C: 128 x 64, 8 x 8 for a thread (64 x 32, 4 x 4, where that fills the device
 *         better). Tiles of A and B of 8 steps along k pass through registers as they are stored,
 *         while the tile before is multiplied, then widened to f32 into one of two buffers.
 * Sums    Blocks of kSumBlock products along k, each one chain of fused multiply-adds in the order
 *         of k; blocks are added in order, in shared memory. So an element's bits depend on its row
 *         of A and its column of B alone: not on m, n, strides, alignment, tiles or the device.
 * Bound   f32 arithmetic; 16 loads from shared memory for 64 multiply-adds.
 */
#ifndef TGI_CUDA_GEMM_TILE_CUH
#define TGI_CUDA_GEMM_TILE_CUH

#include "cuda/gemm/gemm_loader.cuh"

inline namespace TGI_CUDA_ENTRY
{

constexpr int kSumBlock = 128; /* products of a chain; what else computes such sums keeps to it */

namespace
{

/** What becomes of alpha * sum + bias before C is written: nothing. In here so that every file, of
 * every entry, has kernels of its own. */
struct gemm_plain {
  __device__ float operator()(float v, int64_t, int64_t, int64_t) const
  {
    return v;
  }
};

} // namespace

struct gemm_task {
  gemm_lines a, b;
  int64_t k, inner, tiles_m, tiles_n, tiles;
  void *c;
  int64_t c_row_step, c_col_step, c_batch_step, c_batch_step2;
  const void *bias;
  tg_dtype c_dtype, bias_dtype;
  float alpha;
  bool accumulate, c_vectors;
};

/** The floats at kGroup * g + 4 * part + 0 .. 3, for g = 0 .. kN / 4. */
template <int kN, int kGroup>
__device__ __forceinline__ void fragment(float (&v)[kN], const float *row, int part)
{
#pragma unroll
  for (int g = 0; g < kN / 4; g++) {
    const float4 f = *reinterpret_cast<const float4 *>(row + g * kGroup + 4 * part);
    v[4 * g] = f.x;
    v[4 * g + 1] = f.y;
    v[4 * g + 2] = f.z;
    v[4 * g + 3] = f.w;
  }
}

/** total += sum (or = 0 + sum), and sum = 0: the end of a block of products. */
template <int kM, int kN>
__device__ __forceinline__ void end_sum_block(float (&sum)[kM][kN], float *total, bool first)
{
  constexpr int kStride = 8 * kN + 4;
  const int tx = threadIdx.x % 8, ty = threadIdx.x / 8;
#pragma unroll
  for (int i = 0; i < kM; i++) {
#pragma unroll
    for (int j = 0; j < kN; j += 4) {
      float4 *cell = reinterpret_cast<float4 *>(total + (i / 4 * 64 + 4 * ty + i % 4) * kStride +
                                                j / 4 * 32 + 4 * tx);
      const float4 was = first ? make_float4(0, 0, 0, 0) : *cell;
      *cell = make_float4(was.x + sum[i][j], was.y + sum[i][j + 1], was.z + sum[i][j + 2],
                          was.w + sum[i][j + 3]);
      sum[i][j] = sum[i][j + 1] = sum[i][j + 2] = sum[i][j + 3] = 0;
    }
  }
}

/** C's tile from the totals. */
template <int kRows, int kCols, typename Finish>
__device__ __forceinline__ void gemm_finish(const gemm_task &p, const float *total, int64_t outer,
                                            int64_t inner, int64_t row0, int64_t col0,
                                            const Finish &finish)
{
  constexpr int kStride = kCols + 4, kQuads = kCols / 4;
  const bool rows_fast = p.c_col_step != 1 && p.c_row_step == 1;
  const int64_t start = outer * p.c_batch_step + inner * p.c_batch_step2;
#pragma unroll 1
  for (int e = threadIdx.x; e < kRows * kQuads; e += kGemmThreads) {
    const int r = rows_fast ? e % kRows : e / kQuads, q = rows_fast ? e / kRows : e % kQuads;
    const int64_t row = row0 + r, col = col0 + 4 * q;
    if (row >= p.a.lines || col >= p.b.lines) {
      continue;
    }
    const int count = p.b.lines - col < 4 ? (int)(p.b.lines - col) : 4;
    const int64_t to = start + row * p.c_row_step + col * p.c_col_step;
    float v[4];
    fragment<4, 4>(v, total + r * kStride + 4 * q, 0);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if (i < count) {
        v[i] = p.alpha * v[i];
        if (p.bias) {
          v[i] = v[i] + load_any(p.bias, p.bias_dtype, col + i);
        }
        v[i] = finish(v[i], outer * p.inner + inner, row, col + i);
        if (p.accumulate) {
          v[i] = v[i] + load_any(p.c, p.c_dtype, to + i * p.c_col_step);
        }
      }
    }
    if (p.c_vectors && count == 4) {
      if (p.c_dtype == TG_F32) {
        store(static_cast<float *>(p.c) + to, v);
      } else if (p.c_dtype == TG_F16) {
        store(static_cast<f16 *>(p.c) + to, v);
      } else {
        store(static_cast<bf16 *>(p.c) + to, v);
      }
    } else {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        if (i < count) {
          store_any(p.c, p.c_dtype, to + i * p.c_col_step, v[i]);
        }
      }
    }
  }
}

/** Threads lie 16 x 8 over a tile; each has kM x kN of its elements, in groups of 4 x 4. */
template <int kM, int kN, typename Finish>
__global__ void __launch_bounds__(kGemmThreads, 3)
    gemm_tile_kernel(const gemm_task p, const Finish finish)
{
  constexpr int kRows = 16 * kM, kCols = 8 * kN;
  using a_loader = gemm_loader<kRows>;
  using b_loader = gemm_loader<kCols>;
  __shared__ __align__(16) float a_tile[2][kGemmK * a_loader::kStride];
  __shared__ __align__(16) float b_tile[2][kGemmK * b_loader::kStride];
  __shared__ __align__(16) float total[kRows * (kCols + 4)];
  const int tx = threadIdx.x % 8, ty = threadIdx.x / 8;

  for (int64_t tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
    const int64_t rest = tile / p.tiles_m, batch = rest / p.tiles_n;
    const int64_t row0 = (tile - rest * p.tiles_m) * kRows;
    const int64_t col0 = (rest - batch * p.tiles_n) * kCols;
    const int64_t outer = batch / p.inner, inner = batch - outer * p.inner;
    a_loader a;
    b_loader b;
    a.begin(p.a, row0, outer, inner);
    b.begin(p.b, col0, outer, inner);
    float sum[kM][kN];
#pragma unroll
    for (int i = 0; i < kM; i++) {
#pragma unroll
      for (int j = 0; j < kN; j++) {
        sum[i][j] = 0;
      }
    }
    if (p.k == 0) {
      end_sum_block(sum, total, true);
    } else {
      const int ks = p.k < kGemmK ? (int)p.k : kGemmK;
      a.get(p.a, ks);
      b.get(p.b, ks);
      a.put(p.a, a_tile[0]);
      b.put(p.b, b_tile[0]);
    }
    __syncthreads();
    int buffer = 0;
    for (int64_t k = 0; k < p.k; k += kGemmK) {
      const int64_t left = p.k - k - kGemmK;
      if (left > 0) {
        const int ks = left < kGemmK ? (int)left : kGemmK;
        a.get(p.a, ks);
        b.get(p.b, ks);
      }
#pragma unroll
      for (int s = 0; s < kGemmK; s++) {
        float u[kM], v[kN];
        fragment<kM, 64>(u, a_tile[buffer] + s * a_loader::kStride, ty);
        fragment<kN, 32>(v, b_tile[buffer] + s * b_loader::kStride, tx);
#pragma unroll
        for (int i = 0; i < kM; i++) {
#pragma unroll
          for (int j = 0; j < kN; j++) {
            sum[i][j] = fmaf(u[i], v[j], sum[i][j]);
          }
        }
      }
      if (left <= 0 || (k + kGemmK) % kSumBlock == 0) {
        end_sum_block(sum, total, k < kSumBlock);
      }
      buffer ^= 1;
      if (left > 0) {
        a.put(p.a, a_tile[buffer]);
        b.put(p.b, b_tile[buffer]);
      }
      __syncthreads();
    }
    gemm_finish<kRows, kCols>(p, total, outer, inner, row0, col0, finish);
    __syncthreads();
  }
}

template <int kM, int kN, typename Finish>
tg_status gemm_launch(const tg_context *ctx, const gemm_call &call, const Finish &finish)
{
  const int64_t bytes = (int64_t)tg_dtype_bytes(call.c_dtype);
  gemm_task p = {};
  p.a = gemm_lines_of(call.a, true, call.m);
  p.b = gemm_lines_of(call.b, false, call.n);
  p.k = call.k;
  p.inner = call.inner;
  p.tiles_m = divide_up(call.m, 16 * kM);
  p.tiles_n = divide_up(call.n, 8 * kN);
  p.tiles = p.tiles_m * p.tiles_n * call.outer * call.inner;
  p.c = call.c;
  p.c_dtype = call.c_dtype;
  p.c_row_step = call.c_row_step;
  p.c_col_step = call.c_col_step;
  p.c_batch_step = call.c_batch_step;
  p.c_batch_step2 = call.c_batch_step2;
  p.bias = call.bias;
  p.bias_dtype = call.bias_dtype;
  p.alpha = call.alpha;
  p.accumulate = call.accumulate;
  p.c_vectors = call.c_col_step == 1 && (uintptr_t)call.c % (4 * bytes) == 0 &&
                call.c_row_step % 4 == 0 && call.c_batch_step % 4 == 0 &&
                call.c_batch_step2 % 4 == 0;
  return launch(ctx, gemm_tile_kernel<kM, kN, Finish>, grid_of(p.tiles), kGemmThreads, 0, p,
                finish);
}

/** Large tiles where there are enough of them for the device; the bits are the same. */
inline bool gemm_takes_large_tiles(const tg_context *ctx, const gemm_call &call)
{
  const int64_t tiles = divide_up(call.m, 128) * divide_up(call.n, 64) * call.outer * call.inner;
  return call.m > 64 && tiles >= ctx->device->multiprocessors;
}

/**
 * C = finish(alpha A B + bias) (+ C) on the context's stream. Finish: a callable by value with
 * float operator()(float v, int64_t batch, int64_t row, int64_t col) const on the device, called
 * once for each element by the thread that will write it (batch counts outer * inner); it may read
 * that element of other tensors, also of C, and write others. Its type belongs in a file's
 * anonymous namespace.
 */
template <typename Finish>
tg_status gemm_tile(const tg_context *ctx, const gemm_call &call, const Finish &finish)
{
  if (call.m <= 0 || call.n <= 0 || call.outer <= 0 || call.inner <= 0) {
    return TG_OK;
  }
  return gemm_takes_large_tiles(ctx, call) ? gemm_launch<8, 8>(ctx, call, finish)
                                           : gemm_launch<4, 4>(ctx, call, finish);
}

/** One line about how `call` would run. */
inline void gemm_tile_plan(const tg_context *ctx, const gemm_call &call, char *text, size_t bytes)
{
  snprintf(text, bytes, "f32 multiply-adds, tiles of %s, blocks of %d products",
           gemm_takes_large_tiles(ctx, call) ? "128 x 64" : "64 x 32", kSumBlock);
}

} // namespace TGI_CUDA_ENTRY

#endif

/**
 * Rows of the normalisations: the layout of a row over threads, row reductions, and dispatch on the
 * dtypes of such ops.
 *
 * A vector is 16 bytes of the normalised row. Of the n threads of a row, thread t owns the vectors
 * t, t + n, t + 2n, ... and adds them in this order. The order is the same whether rows stay in
 * registers or are read twice, and whether loads are vectorised or by element. It depends on the
 * number of columns and the dtype alone, so neither other rows nor strides change a bit.
 */
#ifndef TGI_CUDA_NORM_ROWS_CUH
#define TGI_CUDA_NORM_ROWS_CUH

#include "cuda/reduce.cuh"
#include "cuda/rows/row_bits.cuh"

inline namespace TGI_CUDA_ENTRY
{

/* ---- layout of rows over threads ---- */

/** Depends on the number of columns and the dtype alone. */
struct row_layout {
  int threads; /* per row: a power of two, or whole warps if the block has one row */
  int rows;    /* per block */
  int shift;   /* threadIdx.x >> shift is the row in the block */
  int vectors; /* per thread, rounded up to a compiled number; 0: too many for registers */
};

constexpr row_layout make_layout(int threads, int rows, int vectors)
{
  row_layout l = {threads, rows, 10, vectors};
  while (rows > 1 && l.shift > 0 && 1 << (l.shift - 1) >= threads) {
    l.shift--;
  }
  return l;
}

constexpr int power_of_two_for(int64_t n)
{
  int p = 1;
  while (p < n) {
    p *= 2;
  }
  return p;
}

constexpr int whole_warps_for(int64_t threads)
{
  return (int)divide_up(threads, kWarp) * kWarp;
}

/**
 * Layout for a kernel that reads a row, holds it in registers and writes it; a vector has `lanes`
 * elements. A row uses part of a warp while that leaves at most 2 vectors per thread. Longer rows
 * have 2 vectors per thread up to `short_row` vectors, then 4 or 8. They use one warp if 4 vectors
 * per thread suffice, else a block of their own. A row of exactly 4 full vectors per lane uses two
 * warps.
 */
constexpr row_layout lay_rows(int64_t cols, int lanes, int short_row)
{
  const int64_t n = divide_up(cols, lanes);
  if (n <= 2 * kWarp) {
    const int threads = power_of_two_for(divide_up(n, 2));
    return make_layout(threads, 256 / threads, 2);
  }
  if (n < 4 * kWarp && n > short_row) {
    return make_layout(kWarp, 4, 4);
  }
  const bool two = n <= short_row || n == 4 * kWarp;
  const int vectors = two ? 2 : n <= 2048 ? 4 : n <= 3072 ? 8 : 0;
  return make_layout(vectors ? whole_warps_for(divide_up(n, vectors)) : 1024, 1, vectors);
}

/** Columns whose sums a thread accumulates over rows. */
constexpr int kSumsEach = 16;
constexpr int kGradientThreads = 512; /* largest block; leaves 128 registers per thread */

/**
 * Layout for a kernel whose threads accumulate column sums, 16 columns each. Rows longer than 8192
 * elements are read in pieces: `vectors` is then 0. Short rows share blocks of 256 threads.
 */
inline row_layout lay_gradient_rows(int64_t cols)
{
  const int64_t n = divide_up(cols, kSumsEach);
  if (n <= 4 * kWarp) {
    const int threads = power_of_two_for(n);
    return make_layout(threads, 256 / threads, 1);
  }
  const bool held = n <= kGradientThreads;
  return make_layout(held ? whole_warps_for(n) : kGradientThreads, 1, held);
}

/** Largest block of a kernel with this many vectors per thread in registers. */
constexpr int most_threads(int vectors)
{
  return vectors == 2 ? 256 : vectors == 4 ? 512 : 384;
}

/** A grid with one block for each of n pieces; block_index() is the piece. The second dimension
 * replaces a grid-stride loop, whose registers would lower the occupancy of short blocks. */
inline dim3 grid_for(int64_t n)
{
  const int64_t width = n < INT32_MAX ? n : INT32_MAX;
  return dim3((unsigned)width, (unsigned)divide_up(n, width));
}

/** Can be n or more, since the last row of the grid may be partial. */
__device__ __forceinline__ int64_t block_index()
{
  return (int64_t)blockIdx.y * gridDim.x + blockIdx.x;
}

/** Place of a thread: its row in the block, and its index in the row. */
struct row_place {
  int row, thread;
};

__device__ __forceinline__ row_place place_of(const row_layout &l)
{
  return {(int)threadIdx.x >> l.shift, (int)threadIdx.x & ((1 << l.shift) - 1)};
}

/** 1 / sqrt(v) within 1 ulp; NaN below 0. It has no branch: the exact root and quotient each have
 * one, with a slow path for denormals and other special numbers. */
__device__ __forceinline__ float inverse_root(float v)
{
  const float r = rsqrtf(v);
  return r > 0 ? fmaf(0.5f * r, fmaf(-(v * r), r, 1.0f), r) : r; /* r = 0 for infinity */
}

constexpr int kFewWarps = 8;

/**
 * All-reduce: sums N values over the threads of a row and leaves the totals in each of them. All
 * threads of the block must call it. `scratch` is shared memory of N * 32 floats; it may be reused
 * after the caller's next barrier. The call has a barrier inside if a row has more than one warp.
 */
template <int N>
__device__ __forceinline__ void row_sum(float (&v)[N], const row_layout &l, float *scratch)
{
  if (l.threads < kWarp) {
    for (int step = l.threads / 2; step > 0; step /= 2) {
#pragma unroll
      for (int i = 0; i < N; i++) {
        v[i] += __shfl_xor_sync(kAllLanes, v[i], step);
      }
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < N; i++) {
    v[i] = warp_sum(v[i]);
  }
  if (l.threads == kWarp) {
    return;
  }
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = l.threads / kWarp;
  if (lane == 0) {
#pragma unroll
    for (int i = 0; i < N; i++) {
      scratch[i * kWarp + warp] = v[i];
    }
  }
  __syncthreads();
  const int first = ((int)threadIdx.x >> l.shift) * warps;
  if (warps > kFewWarps) {
#pragma unroll
    for (int i = 0; i < N; i++) {
      v[i] = warp_sum(lane < warps ? scratch[i * kWarp + first + lane] : 0.0f);
    }
    return;
  }
  if (warps == 2) {
#pragma unroll
    for (int i = 0; i < N; i++) {
      v[i] = scratch[i * kWarp + first] + scratch[i * kWarp + first + 1];
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < N; i++) { /* every thread reads all parts: lower latency than shuffles */
    float part[kFewWarps];
#pragma unroll
    for (int w = 0; w < kFewWarps; w++) {
      part[w] = scratch[i * kWarp + first + w];
    }
#pragma unroll
    for (int w = 2; w < kFewWarps; w++) {
      part[w] = w < warps ? part[w] : 0.0f;
    }
    v[i] =
        ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
  }
}

/** Upper bound of the static shared memory of a gradient kernel. */
constexpr size_t kDeclaredShared = 5 * 1024;

/** True if the GPU has shared_with_room(bytes) per block. */
inline bool shared_has_room(const tg_context *ctx, size_t bytes)
{
  return bytes + 2 * kDeclaredShared <= (size_t)ctx->device->shared_bytes;
}

/** The dynamic shared memory to request for `bytes` usable ones. launch() raises a kernel's limit
 * to the request, but that limit includes the kernel's static shared memory. */
inline size_t shared_with_room(size_t bytes)
{
  return bytes + kDeclaredShared > (size_t)kSharedBytes ? bytes + kDeclaredShared : bytes;
}

/** Bytes of shared memory that store_sums needs. */
inline size_t sums_shared_bytes(const row_layout &l)
{
  return l.rows > 1 ? (size_t)(l.threads * l.rows) * kSumsEach * sizeof(float) : 0;
}

/**
 * Adds the sums of the block's rows in row order and stores them at `to`, which has room for whole
 * vectors. All threads of the block must call it. `shared` may be reused after the caller's next
 * barrier.
 */
template <int kV, int kN>
__device__ __forceinline__ void store_sums(float *to, const float (&sums)[kV][kN],
                                           const row_layout &l, row_place place, int cols,
                                           float *shared)
{
  const int width = l.threads * kV * kN;
  float *own = l.rows == 1 ? to : shared + place.row * width;
#pragma unroll
  for (int k = 0; k < kV; k++) {
    const int j = (place.thread + k * l.threads) * kN;
#pragma unroll
    for (int i = 0; i < kN && j < cols; i += 4) {
      *reinterpret_cast<float4 *>(own + j + i) =
          make_float4(sums[k][i], sums[k][i + 1], sums[k][i + 2], sums[k][i + 3]);
    }
  }
  if (l.rows == 1) {
    return;
  }
  __syncthreads();
  for (int j = threadIdx.x; j < cols; j += blockDim.x) {
    float sum = 0;
    for (int r = 0; r < l.rows; r++) {
      sum += shared[r * width + j];
    }
    to[j] = sum;
  }
}

/* ---- views ---- */

/** True if the rows of all present views consist of aligned vectors of `lanes` elements. */
template <int kCount>
bool rows_are_vectors(int64_t cols, int lanes, const tg_tensor *const (&views)[kCount])
{
  bool whole = cols % lanes == 0;
  for (int k = 0; k < kCount; k++) {
    whole = whole && (!tgi_present(views[k]) || rows_aligned(views[k], 16));
  }
  return whole;
}

/** Elements from row to row; 0 for an absent view. */
inline int64_t row_step(const tg_tensor *t)
{
  return tgi_present(t) ? tgi_stride(t, 0) : 0;
}

/** Loads a read-only vector at this point of the program: the compiler would otherwise move the
 * load behind a barrier, close to its first use. */
__device__ __forceinline__ uint4 load_constant_now(const uint4 *from)
{
  uint4 v;
  asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(__cvta_generic_to_global(from)));
  return v;
}

template <typename A, typename B> constexpr bool kSame = false;
template <typename A> constexpr bool kSame<A, A> = true;

/** True for dtypes with fixed-width kernels besides the general ones: only bf16, from sm80 on,
 * since each such kernel adds 3 KB per GPU architecture to the library. */
template <typename X, typename W, typename Y> constexpr bool has_fixed_rows()
{
  return TGI_VIRTUAL >= 80 && kSame<X, bf16> && kSame<W, bf16> && kSame<Y, bf16>;
}

/** Text of the plan of a kernel with the layout of lay_rows. */
inline void explain_rows(int64_t rows, bool whole, const row_layout &l, char *text, size_t bytes)
{
  snprintf(text, bytes, "%lld blocks of %d rows of %d threads, %s",
           (long long)divide_up(rows, l.rows), l.rows, l.threads,
           whole && l.vectors ? "rows in registers" : "rows read again");
}

/* ---- dtypes ---- */

/** x is also the dtype of tensors shaped like x; y is that of dy in a backward. */
template <typename X, typename W, typename Y> struct norm_types {
  using x = X;
  using weight = W;
  using y = Y;
};

template <bool kWide, typename X, typename Run>
tg_status with_weight_type(const tg_tensor *weight, const tg_tensor *y, Run run)
{
  if constexpr (kWide) {
    if (y->dtype == TG_F32) {
      return run(norm_types<X, float, float>());
    }
  }
  return weight->dtype == TG_F32 ? run(norm_types<X, float, X>()) : run(norm_types<X, X, X>());
}

/** Returns run(norm_types<...>()). The contracts allow the dtypes (T, T, T) and (T, f32, T) for
 * (x, weight, y), and with kWide also (T, f32, f32). */
template <bool kWide, typename Run>
tg_status with_norm_types(const tg_tensor *x, const tg_tensor *weight, const tg_tensor *y, Run run)
{
  switch (x->dtype) {
  case TG_F16:
    return with_weight_type<kWide, f16>(weight, y, run);
  case TG_BF16:
    return with_weight_type<kWide, bf16>(weight, y, run);
  default:
    return run(norm_types<float, float, float>());
  }
}

} // namespace TGI_CUDA_ENTRY

#endif

/**
 * Rows of logits on CUDA: vectors of rows wherever they begin, targets, and what a loss is divided
 * by. For cross_entropy in both directions.
 *
 * Vocabularies are often odd (50257), so rows of 16-bit logits begin at any even address. Elements
 * are cut into vectors of 16 bytes from the row's first element on, so that which thread adds which
 * elements depends on the vocabulary and the dtype alone; a vector that is not aligned is put
 * together from two aligned ones, the second of which the next lane has read.
 */
#ifndef TGI_OPS_LOSS_ROWS_CUH
#define TGI_OPS_LOSS_ROWS_CUH

#include "cuda/exp2.cuh"
#include "cuda/fault.cuh"
#include "cuda/int_list.cuh"
#include "cuda/reduce.cuh"
#include "cuda/vec.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

constexpr float kLog2E = 0x1.715476p+0f;
constexpr int kRowThreads = 512; /* of a row's block, at most */
constexpr int kAhead = 4;        /* vectors of a thread at once */

__device__ __forceinline__ float capped(float x, float softcap)
{
  return softcap * tanhf(x / softcap);
}

/* ---- vectors ---- */

template <typename T> __device__ __forceinline__ void widen(float (&v)[kLanes<T>], uint4 bits)
{
  const uint32_t u[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    if constexpr (sizeof(T) == 4) {
      v[i] = __uint_as_float(u[i]);
    } else {
      const pack<T, 2> two = *reinterpret_cast<const pack<T, 2> *>(&u[i]);
      v[2 * i] = to_f32(two.e[0]);
      v[2 * i + 1] = to_f32(two.e[1]);
    }
  }
}

template <typename T> __device__ __forceinline__ uint4 narrow(const float (&v)[kLanes<T>])
{
  uint32_t u[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    if constexpr (sizeof(T) == 4) {
      u[i] = __float_as_uint(v[i]);
    } else {
      pack<T, 2> two;
      two.e[0] = from_f32<T>(v[2 * i]);
      two.e[1] = from_f32<T>(v[2 * i + 1]);
      u[i] = *reinterpret_cast<const uint32_t *>(&two);
    }
  }
  return make_uint4(u[0], u[1], u[2], u[3]);
}

/** The 16 bytes that begin `skip` bytes into `a`, b following a. skip: 0 .. 15, of all lanes. */
__device__ __forceinline__ uint4 shifted(uint4 a, uint4 b, unsigned skip)
{
  uint32_t w[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
  if (skip & 8) {
#pragma unroll
    for (int i = 0; i < 6; i++) {
      w[i] = w[i + 2];
    }
  }
  if (skip & 4) {
#pragma unroll
    for (int i = 0; i < 5; i++) {
      w[i] = w[i + 1];
    }
  }
  const unsigned bits = 8 * (skip & 3);
  return make_uint4(__funnelshift_r(w[0], w[1], bits), __funnelshift_r(w[1], w[2], bits),
                    __funnelshift_r(w[2], w[3], bits), __funnelshift_r(w[3], w[4], bits));
}

/**
 * N vectors of a row, `apart` vectors from one to the next; this thread's first is `vector`, that
 * of the lane before it `vector - 1`. All lanes of a warp come here, and the row goes on for a
 * vector behind each of them.
 */
template <int N, typename T>
__device__ __forceinline__ void load_row_vectors(uint4 (&v)[N], const T *row, int64_t vector,
                                                 int apart)
{
  const unsigned skip = (unsigned)((uintptr_t)row % 16);
  const uint4 *from = reinterpret_cast<const uint4 *>((uintptr_t)row - skip) + vector;
  if (skip == 0) {
#pragma unroll
    for (int u = 0; u < N; u++) {
      v[u] = from[(int64_t)u * apart];
    }
    return;
  }
  uint4 last[N]; /* behind the last lane's */
#pragma unroll
  for (int u = 0; u < N; u++) {
    v[u] = from[(int64_t)u * apart];
    last[u] = make_uint4(0, 0, 0, 0);
    if (threadIdx.x % kWarp == kWarp - 1) {
      last[u] = from[(int64_t)u * apart + 1];
    }
  }
#pragma unroll
  for (int u = 0; u < N; u++) {
    uint4 next;
    next.x = __shfl_down_sync(kAllLanes, v[u].x, 1);
    next.y = __shfl_down_sync(kAllLanes, v[u].y, 1);
    next.z = __shfl_down_sync(kAllLanes, v[u].z, 1);
    next.w = __shfl_down_sync(kAllLanes, v[u].w, 1);
    v[u] = shifted(v[u], threadIdx.x % kWarp == kWarp - 1 ? last[u] : next, skip);
  }
}

/* ---- targets ---- */

/** Which rows count, and n of the contract. By value to kernels. */
struct target_rule {
  int_list targets;
  const void *num_items; /* NULL: num_items_in_batch */
  tg_dtype num_items_dtype;
  int64_t rows, vocab, ignore_index, num_items_in_batch;
  tg_reduction reduction;
  bool has_ignore_index;
  fault_site bad;
};

#define TARGET_RULE(ctx, op_dir, a)                                                                \
  target_rule                                                                                      \
  {                                                                                                \
    int_list_of(&(a)->targets), (a)->num_items.data, (a)->num_items.dtype, (a)->logits.shape[0],   \
        (a)->logits.shape[1], (a)->ignore_index, (a)->num_items_in_batch, (a)->reduction,          \
        (a)->has_ignore_index, FAULT_SITE(ctx, op_dir, targets)                                    \
  }

__device__ __forceinline__ bool is_ignored(const target_rule &r, int64_t target)
{
  return r.has_ignore_index && target == r.ignore_index;
}

__device__ __forceinline__ bool is_class(const target_rule &r, int64_t target)
{
  return target >= 0 && target < r.vocab;
}

/** Rows that are not ignored, of those that this thread of the block sees. */
__device__ __forceinline__ int64_t count_rows(const target_rule &r)
{
  int64_t n = 0;
  for (int64_t i = threadIdx.x; i < r.rows && r.reduction == TG_REDUCTION_MEAN; i += blockDim.x) {
    n += !is_ignored(r, int_at(r.targets, i));
  }
  return n;
}

/** n of the contract; counted: rows that are not ignored. */
__device__ __forceinline__ double divisor(const target_rule &r, int64_t counted)
{
  if (r.reduction == TG_REDUCTION_MEAN) {
    return (double)counted;
  }
  if (r.reduction != TG_REDUCTION_NUM_ITEMS) {
    return 1;
  }
  return !r.num_items                  ? (double)r.num_items_in_batch
         : r.num_items_dtype == TG_F32 ? (double)*static_cast<const float *>(r.num_items)
         : r.num_items_dtype == TG_I64 ? (double)*static_cast<const int64_t *>(r.num_items)
                                       : (double)*static_cast<const int32_t *>(r.num_items);
}

/** n of the contract, in every thread; with a mean the block counts the rows that are not ignored.
 * scratch: 32 elements that the call owns until the next barrier after it. */
__device__ __forceinline__ double count_items(const target_rule &rule, int64_t *scratch)
{
  int64_t counted[1] = {0};
  if (rule.reduction == TG_REDUCTION_MEAN) {
    counted[0] = count_rows(rule);
    block_sum(counted, scratch);
  }
  return divisor(rule, counted[0]);
}

/** Threads of a row's block: by its length alone. */
inline int row_threads(int64_t vocab, tg_dtype dtype)
{
  const int64_t vectors = vocab * (int64_t)tg_dtype_bytes(dtype) / 16;
  return vectors > 1024 ? kRowThreads : vectors > 256 ? 256 : vectors > 64 ? 128 : 32;
}

} // namespace TGI_CUDA_ENTRY

#endif

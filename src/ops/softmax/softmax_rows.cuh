/**
 * How rows of softmax, forward and backward, lie on the device: which threads take a row, in
 * vectors of 16 bytes, and where these wait between the two passes over it.
 *
 * Vector v of thread t of a row's `threads` is the row's vector v * threads + t. The first ones of
 * a thread, up to kMostKept, stay in registers, the next ones in shared memory that only their
 * thread reads, the rest is read again (from the second-level cache, as a rule). A thread takes its
 * vectors in order, wherever they are, so the order of sums depends on the width and the dtype
 * alone, not on alignment, the device's shared memory or other rows.
 */
#ifndef TGI_OPS_SOFTMAX_SOFTMAX_ROWS_CUH
#define TGI_OPS_SOFTMAX_SOFTMAX_ROWS_CUH

#include "cuda/reduce.cuh"
#include "cuda/x2.cuh"

#include <float.h>

inline namespace TGI_CUDA_ENTRY
{

constexpr int kMostKept = 4;
constexpr int kShortVectors = 2; /* of a thread whose row is short */
constexpr int kShortThreads = 512, kLongThreads = 1024;
constexpr int64_t kMostCols = (int64_t)1 << 30; /* that kernels for aligned rows count in 32 bits */
constexpr int kScratchBytes = 512; /* of shared memory before the vectors: for sums over a block */

/** The plan of a call. */
struct softmax_plan {
  int threads;     /* of a row */
  int rows;        /* of a block: several where a warp is enough for one */
  int kept;        /* vectors of a thread in registers */
  int shared;      /* ... in shared memory */
  int64_t vectors; /* ... in all */
  size_t shared_bytes;
  bool aligned;
};

/** Threads of a row of so many vectors, where both passes read one tensor: a warp, which waits for
 * nobody, or as many as have a vector, then two, of it in registers; up to 8192, of which a
 * multiprocessor holds two rows, kShortThreads. */
inline int threads_for_one(int64_t vectors)
{
  return vectors <= 2 * kWarp ? kWarp
         : vectors <= 128     ? 128
         : vectors <= 512     ? 256
         : vectors <= 8192    ? kShortThreads
                              : kLongThreads;
}

/** The same where they read two. */
inline int threads_for_two(int64_t vectors)
{
  return vectors <= kMostKept * kWarp ? kWarp
         : vectors <= 256             ? 128
         : vectors <= 1024            ? 256
         : vectors <= 5120            ? kShortThreads
                                      : kLongThreads;
}

/** For rows like those of t, in `tensors` tensors that both passes read. Without alignment a thread
 * has the same vectors, but none in registers unless it is all of one tensor: results must not
 * depend on it. */
inline softmax_plan plan_softmax(const tg_context *ctx, const tg_tensor *t, int tensors,
                                 bool aligned)
{
  const int64_t vectors = divide_up(t->shape[1] * (int64_t)tg_dtype_bytes(t->dtype), 16);
  softmax_plan p = {};
  p.threads = tensors == 1 ? threads_for_one(vectors) : threads_for_two(vectors);
  p.vectors = divide_up(vectors, p.threads);
  p.rows = p.threads > kWarp ? 1 : tensors == 1 && p.vectors == 2 ? 4 : 8;
  p.shared_bytes = kScratchBytes;
  p.aligned = aligned;
  const bool few = p.vectors <= kShortVectors;
  p.kept = few && (aligned || tensors == 1)      ? (int)p.vectors
           : !aligned || t->shape[1] > kMostCols ? 0
                                                 : kMostKept;
  if (p.vectors > p.kept) {
    const int64_t slot = (int64_t)16 * tensors * p.threads * p.rows;
    const int64_t slots = (ctx->device->shared_bytes - kScratchBytes) / slot;
    const int64_t rest = p.vectors - p.kept;
    p.shared = (int)(rest <= slots ? rest : slots);
    p.shared_bytes += (size_t)(p.shared * slot);
  }
  return p;
}

inline void describe_softmax(const softmax_plan *p, char *text, size_t bytes)
{
  snprintf(text, bytes,
           "%d threads a row, %d rows a block; vectors of a thread: %d in registers, %d in shared "
           "memory, %lld read twice",
           p->threads, p->rows, p->kept, p->shared,
           (long long)(p->vectors > p->kept ? p->vectors - p->kept - p->shared : 0));
}

/* ---- device ---- */

/** Whether a kernel that keeps kKept vectors in registers is called for rows with more of them. */
template <int kKept> constexpr bool kShares = kKept == 0 || kKept == kMostKept;

/** 16 bytes as f32. */
__device__ __forceinline__ void widen(float (&v)[4], uint4 raw, float)
{
  v[0] = __uint_as_float(raw.x);
  v[1] = __uint_as_float(raw.y);
  v[2] = __uint_as_float(raw.z);
  v[3] = __uint_as_float(raw.w);
}

__device__ __forceinline__ void widen(float (&v)[8], uint4 raw, bf16)
{
  const uint32_t word[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    v[2 * i] = __uint_as_float(word[i] << 16);
    v[2 * i + 1] = __uint_as_float(word[i] & 0xffff0000u);
  }
}

__device__ __forceinline__ void widen(float (&v)[8], uint4 raw, f16)
{
  const uint32_t word[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    v[2 * i] = __half2float(__ushort_as_half((unsigned short)(word[i] & 0xffffu)));
    v[2 * i + 1] = __half2float(__ushort_as_half((unsigned short)(word[i] >> 16)));
  }
}

/** What elements of a row are counted with: 32 bits save registers. */
template <bool kAligned> struct row_index {
  using type = int64_t;
};

template <> struct row_index<true> {
  using type = int32_t;
};

template <bool kAligned> using index_of = typename row_index<kAligned>::type;

/** 16 bytes, one element of T moved out at the low end, bits of another in at the high one. */
template <typename T> __device__ __forceinline__ uint4 shift_in(uint4 raw, uint32_t bits)
{
  if (sizeof(T) == 4) {
    return {raw.y, raw.z, raw.w, bits};
  }
  return {__funnelshift_r(raw.x, raw.y, 16), __funnelshift_r(raw.y, raw.z, 16),
          __funnelshift_r(raw.z, raw.w, 16), __funnelshift_r(raw.w, bits, 16)};
}

template <typename T> struct bits_of {
  using type = uint16_t;
};

template <> struct bits_of<float> {
  using type = uint32_t;
};

template <typename T> __device__ __forceinline__ uint32_t to_bits(float v)
{
  const T element = from_f32<T>(v);
  typename bits_of<T>::type bits;
  memcpy(&bits, &element, sizeof bits);
  return bits;
}

/** The vector at element j of a row, `rest` where the row has ended. The loop is one, as registers
 * are short where this is called. */
template <bool kAligned, typename T>
__device__ __forceinline__ uint4 fetch(const T *row, index_of<kAligned> j, index_of<kAligned> cols,
                                       float rest)
{
  constexpr int kN = kLanes<T>;
  if (kAligned && j + kN <= cols) {
    return *reinterpret_cast<const uint4 *>(row + j);
  }
  const typename bits_of<T>::type *from =
      reinterpret_cast<const typename bits_of<T>::type *>(row + j);
  const uint32_t end = to_bits<T>(rest);
  uint4 raw = {};
#pragma unroll 1
  for (int i = 0; i < kN; i++) {
    raw = shift_in<T>(raw, i < cols - j ? from[i] : end);
  }
  return raw;
}

/** 16 bytes of results in one store. */
__device__ __forceinline__ void store_vector(float *to, const float (&v)[4])
{
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(__cvta_generic_to_global(to)), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3])
               : "memory");
}

template <typename T> __device__ __forceinline__ void store_vector(T *to, const float (&v)[8])
{
  uint32_t word[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    word[i] = two_from_f32<T>(v[2 * i], v[2 * i + 1]);
  }
  /* Said in so many words, as the compiler makes four stores of an assignment. */
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(__cvta_generic_to_global(to)), "r"(word[0]), "r"(word[1]), "r"(word[2]),
                 "r"(word[3])
               : "memory");
}

template <bool kAligned, typename T>
__device__ __forceinline__ void put(T *row, index_of<kAligned> j, index_of<kAligned> cols,
                                    const float (&v)[kLanes<T>])
{
  constexpr int kN = kLanes<T>;
  if (kAligned && j + kN <= cols) {
    store_vector(row + j, v);
    return;
  }
  typename bits_of<T>::type *to = reinterpret_cast<typename bits_of<T>::type *>(row + j);
  uint4 raw;
  store(reinterpret_cast<T *>(&raw), v);
#pragma unroll 1
  for (int i = 0; i < kN && i < cols - j; i++) {
    to[i] = (typename bits_of<T>::type)raw.x;
    raw = shift_in<T>(raw, 0);
  }
}

/** A vector after the end of a row. */
template <typename T> __device__ __forceinline__ uint4 after_end()
{
  const uint32_t v = to_bits<T>(-CUDART_INF_F) * (sizeof(T) == 2 ? 0x10001u : 1u);
  return {v, v, v, v};
}

/** As fetch and put, where kAligned means whole vectors too: the way around costs registers that a
 * row needs. */
template <bool kAligned, typename T>
__device__ __forceinline__ uint4 fetch_vector(const T *x, index_of<kAligned> j,
                                              index_of<kAligned> cols)
{
  if constexpr (kAligned) {
    return j < cols ? *reinterpret_cast<const uint4 *>(x + j) : after_end<T>();
  } else {
    return fetch<false>(x, j, cols, -CUDART_INF_F);
  }
}

template <bool kAligned, typename T>
__device__ __forceinline__ void put_vector(T *y, index_of<kAligned> j, index_of<kAligned> cols,
                                           const float (&v)[kLanes<T>])
{
  if constexpr (kAligned) {
    if (j < cols) {
      store_vector(y + j, v);
    }
  } else {
    put<false, T>(y, j, cols, v);
  }
}

/** As fetch, to the thread's place in shared memory, where it is after hold_wait(). */
template <bool kAligned, typename T>
__device__ __forceinline__ void hold(uint4 *place, const T *row, index_of<kAligned> j,
                                     index_of<kAligned> cols, float rest)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if (kAligned && j + kLanes<T> <= cols) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(place)), "l"(row + j)
                 : "memory");
    return;
  }
#endif
  *place = fetch<kAligned>(row, j, cols, rest);
}

/** Has the vector at element j brought into the second-level cache. */
template <typename T>
__device__ __forceinline__ void prefetch(const T *row, int64_t j, int64_t cols)
{
  if (j < cols) {
    asm volatile("prefetch.global.L2 [%0];" : : "l"(row + j));
  }
}

__device__ __forceinline__ void hold_wait()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" : : : "memory");
#endif
}

} // namespace TGI_CUDA_ENTRY

#endif

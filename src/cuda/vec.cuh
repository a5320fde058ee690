/** Elements and 16-byte vectors of f32, f16 and bf16, as f32 in registers; the switch from a dtype
 * to its type. */
#ifndef TGI_CUDA_VEC_CUH
#define TGI_CUDA_VEC_CUH

#include "cuda/launch.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

inline namespace TGI_CUDA_ENTRY
{

using f16 = __half;
using bf16 = __nv_bfloat16;

/** A code of e4m3: an operand of products, no number to compute with. */
struct e4m3 {
  uint8_t code;
};

__device__ __forceinline__ float to_f32(float v)
{
  return v;
}

__device__ __forceinline__ float to_f32(f16 v)
{
  return __half2float(v);
}

__device__ __forceinline__ float to_f32(bf16 v)
{
  return __bfloat162float(v);
}

/** Rounds to nearest even. */
template <typename T> __device__ __forceinline__ T from_f32(float v);

template <> __device__ __forceinline__ float from_f32<float>(float v)
{
  return v;
}

template <> __device__ __forceinline__ f16 from_f32<f16>(float v)
{
  return __float2half_rn(v);
}

template <> __device__ __forceinline__ bf16 from_f32<bf16>(float v)
{
  return __float2bfloat16_rn(v);
}

/** v rounded to T and back. */
template <typename T> __device__ __forceinline__ float rounded(float v)
{
  return to_f32(from_f32<T>(v));
}

/** N elements of T that are loaded or stored at once. */
template <typename T, int N> struct alignas(sizeof(T) * N) pack {
  T e[N];
};

/** Elements of T in 16 bytes. */
template <typename T> constexpr int kLanes = 16 / (int)sizeof(T);

/** N elements from an address aligned to them, as f32. */
template <typename T, int N> __device__ __forceinline__ void load(float (&v)[N], const T *from)
{
  const pack<T, N> p = *reinterpret_cast<const pack<T, N> *>(from);
#pragma unroll
  for (int i = 0; i < N; i++) {
    v[i] = to_f32(p.e[i]);
  }
}

template <typename T, int N> __device__ __forceinline__ void store(T *to, const float (&v)[N])
{
  pack<T, N> p;
#pragma unroll
  for (int i = 0; i < N; i++) {
    p.e[i] = from_f32<T>(v[i]);
  }
  *reinterpret_cast<pack<T, N> *>(to) = p;
}

/** Four or two words to an address aligned to all of them, in one store: said in so many words, for
 * of an assignment the compiler may make one store a word. */
__device__ __forceinline__ void store_words(void *to, const uint32_t (&w)[4])
{
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(__cvta_generic_to_global(to)), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])
               : "memory");
}

__device__ __forceinline__ void store_words(void *to, const uint32_t (&w)[2])
{
  asm volatile("st.global.v2.b32 [%0], {%1, %2};"
               :
               : "l"(__cvta_generic_to_global(to)), "r"(w[0]), "r"(w[1])
               : "memory");
}

/** True if the rows of a view may be read in packs of `bytes` bytes: its start and its strides are
 * multiples (the last axis is contiguous). */
inline bool rows_aligned(const tg_tensor *t, int bytes)
{
  bool aligned = (uintptr_t)t->data % (unsigned)bytes == 0;
  for (int axis = 0; axis + 1 < t->ndim; axis++) {
    const int64_t step = tgi_stride(t, axis) * (int64_t)tg_dtype_bytes(t->dtype);
    aligned = aligned && (t->shape[axis] <= 1 || step % bytes == 0);
  }
  return aligned;
}

/** Runs the statements with T naming the type of a float dtype. */
#define SWITCH_FLOAT(dtype, T, ...)                                                                \
  do {                                                                                             \
    switch (dtype) {                                                                               \
    case TG_F32: {                                                                                 \
      using T = float;                                                                             \
      __VA_ARGS__;                                                                                 \
    } break;                                                                                       \
    case TG_F16: {                                                                                 \
      using T = f16;                                                                               \
      __VA_ARGS__;                                                                                 \
    } break;                                                                                       \
    case TG_BF16: {                                                                                \
      using T = bf16;                                                                              \
      __VA_ARGS__;                                                                                 \
    } break;                                                                                       \
    default:                                                                                       \
      break;                                                                                       \
    }                                                                                              \
  } while (0)

} // namespace TGI_CUDA_ENTRY

#endif

/** Results of gemm_sm80.cuh: 8 neighbours of a row at a time, of any dtype and alignment. */
#ifndef TGI_CUDA_GEMM_FINISH_SM80_CUH
#define TGI_CUDA_GEMM_FINISH_SM80_CUH

#include "cuda/gemm/gemm_loader.cuh"
#include "cuda/gemm/sm80/gemm_sm80.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** A matrix that is written, or read beside what is written; NULL: there is none. */
struct mma_result {
  void *data;
  tg_dtype dtype; /* T or f32; of TF32: f32 */
  int64_t step;
  bool vectors; /* 8 elements from a multiple of 8 on are aligned to 16 bytes */
};

inline mma_result mma_result_of(const tg_tensor *t)
{
  mma_result r = {};
  if (t && tgi_present(t)) {
    r.data = t->data;
    r.dtype = t->dtype;
    r.step = tgi_stride(t, t->ndim - 2);
    r.vectors = rows_aligned(t, 16);
  }
  return r;
}

/** Sums of 8 columns. */
__device__ __forceinline__ void load_sums(float (&v)[kMmaChunk], const float *from)
{
#pragma unroll
  for (int i = 0; i < kMmaChunk; i += 4) {
    const float4 f = *reinterpret_cast<const float4 *>(from + i);
    v[i] = f.x;
    v[i + 1] = f.y;
    v[i + 2] = f.z;
    v[i + 3] = f.w;
  }
}

/** `count` of 8 elements from element `at` on. */
template <typename T>
__device__ __forceinline__ void store_chunk(const mma_result &r, int64_t at, int count,
                                            const float (&v)[kMmaChunk])
{
  if (r.vectors && count == kMmaChunk) {
    if (r.dtype == TG_F32) {
      float *to = static_cast<float *>(r.data) + at;
#pragma unroll
      for (int i = 0; i < kMmaChunk; i += 4) {
        *reinterpret_cast<float4 *>(to + i) = make_float4(v[i], v[i + 1], v[i + 2], v[i + 3]);
      }
      return;
    }
    if constexpr (!kIsTf32<T>) {
      uint32_t w[4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        w[i] = round_pair<T>(v[2 * i], v[2 * i + 1]);
      }
      store_words(static_cast<T *>(r.data) + at, w);
      return;
    }
  }
#pragma unroll
  for (int i = 0; i < kMmaChunk; i++) {
    if (i < count) {
      store_any(r.data, r.dtype, at + i, v[i]);
    }
  }
}

/** v += the same of what is there. */
template <typename T>
__device__ __forceinline__ void add_chunk(const mma_result &r, int64_t at, int count,
                                          float (&v)[kMmaChunk])
{
  if (r.vectors && count == kMmaChunk && (kIsTf32<T> || r.dtype != TG_F32)) {
    float old[kMmaChunk];
    if constexpr (kIsTf32<T>) {
      load_sums(old, static_cast<const float *>(r.data) + at);
    } else {
      load(old, static_cast<const T *>(r.data) + at);
    }
#pragma unroll
    for (int i = 0; i < kMmaChunk; i++) {
      v[i] += old[i];
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kMmaChunk; i++) {
    if (i < count) {
      v[i] += load_any(r.data, r.dtype, at + i);
    }
  }
}

/** v as it is where it is stored. */
template <typename T>
__device__ __forceinline__ void round_chunk(tg_dtype dtype, float (&v)[kMmaChunk])
{
  if (dtype != TG_F32) {
#pragma unroll
    for (int i = 0; i < kMmaChunk; i++) {
      v[i] = rounded<T>(v[i]);
    }
  }
}

} // namespace TGI_CUDA_ENTRY

#endif

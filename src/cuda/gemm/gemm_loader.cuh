/** Operands of e.cuh: matrices of any strides and dtype, and how a block brings tiles
 * of them into shared memory as f32. */
#ifndef TGI_CUDA_GEMM_LOADER_CUH
#define TGI_CUDA_GEMM_LOADER_CUH

#include "cuda/gemm/plain_product.h"
#include "cuda/vec.cuh"

inline namespace TGI_CUDA_ENTRY
{

constexpr int kGemmThreads = 128;
constexpr int kGemmK = 8; /* steps along k of a tile */

/** Element i behind `data`, as f32; the dtype is the same for all threads. */
__device__ __forceinline__ float load_any(const void *data, tg_dtype dtype, int64_t i)
{
  if (dtype == TG_F32) {
    return static_cast<const float *>(data)[i];
  }
  return dtype == TG_F16 ? to_f32(static_cast<const f16 *>(data)[i])
                         : to_f32(static_cast<const bf16 *>(data)[i]);
}

__device__ __forceinline__ void store_any(void *data, tg_dtype dtype, int64_t i, float v)
{
  if (dtype == TG_F32) {
    static_cast<float *>(data)[i] = v;
  } else if (dtype == TG_F16) {
    static_cast<f16 *>(data)[i] = from_f32<f16>(v);
  } else {
    static_cast<bf16 *>(data)[i] = from_f32<bf16>(v);
  }
}

/** How the threads of a block share out the loads of an operand's tile. "Lines" are rows of A and
 * columns of B. */
enum gemm_pattern {
  kVectorsAlongK, /* aligned vectors */
  kVectorsAlongLines,
  kElementsAlongK, /* neighbouring threads: neighbours in k */
  kElementsAlongLines,
};

/** An operand as [lines, k]. */
struct gemm_lines {
  const char *data;
  int64_t line_bytes, k_bytes; /* steps */
  int64_t lines, batch_bytes, batch2_bytes, share;
  tg_dtype dtype;
  gemm_pattern pattern;
};

inline gemm_lines gemm_lines_of(const gemm_operand &o, bool is_a, int64_t lines)
{
  const int64_t bytes = (int64_t)tg_dtype_bytes(o.dtype);
  gemm_lines l = {};
  l.data = static_cast<const char *>(o.data);
  l.line_bytes = (is_a ? o.row_step : o.col_step) * bytes;
  l.k_bytes = (is_a ? o.col_step : o.row_step) * bytes;
  l.lines = lines;
  l.batch_bytes = o.batch_step * bytes;
  l.batch2_bytes = o.batch_step2 * bytes;
  l.share = o.share < 1 ? 1 : o.share;
  l.dtype = o.dtype;
  const bool along_k = l.k_bytes == bytes, along_lines = l.line_bytes == bytes;
  const int64_t other = along_k ? l.line_bytes : l.k_bytes;
  const bool aligned = (uintptr_t)o.data % 16 == 0 && other % 16 == 0 && l.batch_bytes % 16 == 0 &&
                       l.batch2_bytes % 16 == 0;
  if (along_k) {
    l.pattern = aligned ? kVectorsAlongK : kElementsAlongK;
  } else if (along_lines) {
    l.pattern = aligned ? kVectorsAlongLines : kElementsAlongLines;
  } else {
    l.pattern = l.k_bytes < l.line_bytes ? kElementsAlongK : kElementsAlongLines;
  }
  return l;
}

/** kBytes of 4-byte words, from an address aligned to them or to 16. */
template <int kBytes> __device__ __forceinline__ void load_words(uint32_t *to, const char *from)
{
  if constexpr (kBytes >= 16) {
#pragma unroll
    for (int i = 0; i < kBytes / 16; i++) {
      const uint4 v = reinterpret_cast<const uint4 *>(from)[i];
      to[4 * i] = v.x;
      to[4 * i + 1] = v.y;
      to[4 * i + 2] = v.z;
      to[4 * i + 3] = v.w;
    }
  } else if constexpr (kBytes == 8) {
    const uint2 v = *reinterpret_cast<const uint2 *>(from);
    to[0] = v.x;
    to[1] = v.y;
  } else {
    to[0] = *reinterpret_cast<const uint32_t *>(from);
  }
}

__device__ __forceinline__ float widen(uint32_t bits, tg_dtype dtype)
{
  return dtype == TG_F32   ? __uint_as_float(bits)
         : dtype == TG_F16 ? __half2float(__ushort_as_half((unsigned short)bits))
                           : __uint_as_float(bits << 16);
}

/** One thread's part of the tiles of an operand, kLines x kGemmK. */
template <int kLines> struct gemm_loader {
  static constexpr int kPer = kLines * kGemmK / kGemmThreads;
  static constexpr int kStride = kLines + 4; /* of k in a buffer; + 4: see `put` */
  const char *at;
  int line, k; /* of its first element in a tile */
  int lines;   /* that exist of the tile's */
  uint32_t raw[kPer];

  __device__ __forceinline__ void begin(const gemm_lines &o, int64_t first_line, int64_t outer,
                                        int64_t inner)
  {
    const int t = threadIdx.x;
    switch (o.pattern) {
    case kVectorsAlongK:
      line = t / (kGemmK / kPer);
      k = t % (kGemmK / kPer) * kPer;
      break;
    case kVectorsAlongLines:
      line = t % (kLines / kPer) * kPer;
      k = t / (kLines / kPer);
      break;
    case kElementsAlongK:
      line = t / kGemmK;
      k = t % kGemmK;
      break;
    case kElementsAlongLines:
      line = t % kLines;
      k = t / kLines;
      break;
    }
    const int64_t left = o.lines - first_line;
    lines = left < kLines ? (int)left : kLines;
    at = o.data + outer * o.batch_bytes + inner / o.share * o.batch2_bytes +
         (first_line + line) * o.line_bytes + k * o.k_bytes;
  }

  /** Reads the next tile, of which `ks` steps exist. */
  __device__ __forceinline__ void get(const gemm_lines &o, int ks)
  {
    const bool wide = o.dtype == TG_F32;
    if (o.pattern <= kVectorsAlongLines) {
      const bool along_k = o.pattern == kVectorsAlongK;
      const bool some = along_k ? line < lines : k < ks;
      const int count = !some ? 0 : along_k ? ks - k : lines - line;
      if (count >= kPer) {
        if (wide) {
          load_words<4 * kPer>(raw, at);
        } else {
          load_words<2 * kPer>(raw, at);
        }
      } else {
#pragma unroll
        for (int i = 0; i < kPer; i++) {
          raw[i] = 0;
        }
#pragma unroll
        for (int i = 0; i < kPer; i++) {
          if (i < count) {
            if (wide) {
              raw[i] = reinterpret_cast<const uint32_t *>(at)[i];
            } else {
              raw[i / 2] |= (uint32_t) reinterpret_cast<const unsigned short *>(at)[i]
                            << 16 * (i % 2);
            }
          }
        }
      }
    } else {
      const bool along_k = o.pattern == kElementsAlongK;
      constexpr int kLineStep = kGemmThreads / kGemmK, kKStep = kGemmThreads / kLines;
      const int64_t step = along_k ? kLineStep * o.line_bytes : kKStep * o.k_bytes;
#pragma unroll
      for (int i = 0; i < kPer; i++) {
        const bool exists =
            along_k ? k < ks && line + kLineStep * i < lines : line < lines && k + kKStep * i < ks;
        const char *from = at + i * step;
        raw[i] = !exists ? 0
                 : wide  ? *reinterpret_cast<const uint32_t *>(from)
                         : *reinterpret_cast<const unsigned short *>(from);
      }
    }
    at += kGemmK * o.k_bytes;
  }

  /** Writes what was read as f32, [k][line]. With the stride, neither the threads' lines nor their
   * parts of k meet in a bank. */
  __device__ __forceinline__ void put(const gemm_lines &o, float *tile) const
  {
    float v[kPer];
    if (o.pattern <= kVectorsAlongLines && o.dtype != TG_F32) {
#pragma unroll
      for (int i = 0; i < kPer; i++) {
        const uint32_t word = raw[i / 2];
        v[i] = widen(i % 2 ? word >> 16 : word & 0xffffu, o.dtype);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kPer; i++) {
        v[i] = widen(raw[i], o.dtype);
      }
    }
    float *to = tile + k * kStride + line;
    int step = 1;
    if (o.pattern == kVectorsAlongK) {
      step = kStride;
    } else if (o.pattern == kElementsAlongK) {
      step = kGemmThreads / kGemmK;
    } else if (o.pattern == kElementsAlongLines) {
      step = kGemmThreads / kLines * kStride;
    }
#pragma unroll
    for (int i = 0; i < kPer; i++) {
      to[i * step] = v[i];
    }
  }
};

} // namespace TGI_CUDA_ENTRY

#endif

/** Rows of x as e4m3 codes with a scale each: given, or made in the workspace as the contract of
 * linear_fp8_fp8 defines them. */
#ifndef TGI_OPS_FP8_ROWS_CUH
#define TGI_OPS_FP8_ROWS_CUH

#include "cuda/quantize_math.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

constexpr int kFp8Threads = 256;

/** Codes of all rows. */
struct fp8_rows {
  const uint8_t *codes;
  int64_t step; /* bytes from row to row */
  const float *scale;
};

inline int64_t fp8_aligned(int64_t bytes)
{
  return divide_up(bytes, 256) * 256;
}

/** Bytes of the workspace that codes and scales take: none where they are given. */
inline int64_t fp8_rows_bytes(const tg_linear_fp8_fp8_fwd_args *a)
{
  return a->x.dtype == TG_F8_E4M3 ? 0
                                  : fp8_aligned(a->x.shape[0] * divide_up(a->x.shape[1], 16) * 16) +
                                        fp8_aligned(a->x.shape[0] * 4);
}

/** Where they lie, or will lie. */
inline fp8_rows fp8_rows_of(const tg_linear_fp8_fp8_fwd_args *a)
{
  const int64_t step = divide_up(a->x.shape[1], 16) * 16;
  char *memory = static_cast<char *>(a->workspace);
  if (a->x.dtype == TG_F8_E4M3) {
    return {static_cast<const uint8_t *>(a->x.data), tgi_stride(&a->x, 0),
            static_cast<const float *>(a->x_scale.data)};
  }
  return {reinterpret_cast<const uint8_t *>(memory), step,
          reinterpret_cast<const float *>(memory + fp8_aligned(a->x.shape[0] * step))};
}

/** Rounded to nearest, ties to even; core/values/half.h has the same for the CPU. 464 and less:
 * 448. */
__device__ __forceinline__ uint32_t to_e4m3(float v)
{
#if TGI_VIRTUAL >= 90
  unsigned short pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(v));
  return pair & 0xffu;
#else
  const uint32_t bits = __float_as_uint(v), magnitude = bits & 0x7fffffffu;
  const uint32_t sign = bits >> 24 & 0x80u;
  if (magnitude > 0x43e80000u) {
    return sign | 0x7fu;
  }
  if (magnitude < 0x3c800000u) { /* the result is denormal: an addition rounds it */
    return sign | (__float_as_uint(__uint_as_float(magnitude) + 0x1p14f) - 0x46800000u);
  }
  return sign | (magnitude - 0x3c000000u + 0x7ffffu + (magnitude >> 20 & 1u)) >> 20;
#endif
}

struct fp8_rows_task {
  const void *x;
  int64_t rows, in, x_step, step;
  uint8_t *codes;
  float *scale;
  bool aligned; /* rows of x, to 16 bytes */
};

namespace
{ /* every file, of every entry, has kernels of its own */

/** Codes of a vector of x. */
template <typename T>
__device__ __forceinline__ void put_codes(uint8_t *to, const pack<T, kLanes<T>> &x, float scale)
{
  pack<uint8_t, kLanes<T>> codes;
#pragma unroll
  for (int i = 0; i < kLanes<T>; i++) {
    codes.e[i] = (uint8_t)to_e4m3(to_f32(x.e[i]) / scale);
  }
  *reinterpret_cast<pack<uint8_t, kLanes<T>> *>(to) = codes;
}

/** A block makes a row; its first vectors stay in registers between the two passes. (On other GPUs
 * than Hopper more of them would spill.) */
template <typename T>
__global__ void __launch_bounds__(kFp8Threads) fp8_rows_kernel(const fp8_rows_task p)
{
  constexpr int kN = kLanes<T>, kHeld = TGI_VIRTUAL >= 90 ? 4 : 1, kPass = kN * kFp8Threads;
  __shared__ float scratch[2 * kWarp];
  const int t = (int)threadIdx.x;
  for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
    const T *x = static_cast<const T *>(p.x) + row * p.x_step;
    uint8_t *codes = p.codes + row * p.step;
    const int64_t whole = p.aligned ? p.in / kN * kN : 0;
    pack<T, kN> held[kHeld];
    quant_bounds b = {0, 0};
    const auto widen = [&b](const pack<T, kN> &v) {
#pragma unroll
      for (int i = 0; i < kN; i++) {
        b.widen(fabsf(to_f32(v.e[i])));
      }
    };
    const auto vector_at = [x](int64_t k) { return *reinterpret_cast<const pack<T, kN> *>(x + k); };
#pragma unroll
    for (int j = 0; j < kHeld; j++) {
      const int64_t k = (int64_t)kN * t + j * kPass;
      if (k < whole) {
        held[j] = vector_at(k);
      }
    }
#pragma unroll
    for (int j = 0; j < kHeld; j++) {
      if ((int64_t)kN * t + j * kPass < whole) {
        widen(held[j]);
      }
    }
    for (int64_t k = (int64_t)kN * t + kHeld * kPass; k < whole; k += kPass) {
      widen(vector_at(k));
    }
    for (int64_t k = whole + t; k < p.in; k += kFp8Threads) {
      b.widen(fabsf(to_f32(x[k])));
    }
    const float most = unite_block(b, scratch).high, least = 0x1p-126f;
    const float scale = !isfinite(most)         ? CUDART_NAN_F
                        : most / 448.0f > least ? most / 448.0f
                                                : least;
    if (t == 0) {
      p.scale[row] = scale;
    }
#pragma unroll
    for (int j = 0; j < kHeld; j++) {
      const int64_t k = (int64_t)kN * t + j * kPass;
      if (k < whole) {
        put_codes(codes + k, held[j], scale);
      }
    }
    for (int64_t k = (int64_t)kN * t + kHeld * kPass; k < whole; k += kPass) {
      put_codes(codes + k, vector_at(k), scale);
    }
    for (int64_t k = whole + t; k < p.in; k += kFp8Threads) {
      codes[k] = (uint8_t)to_e4m3(to_f32(x[k]) / scale);
    }
    __syncthreads();
  }
}

/** Makes codes and scales that are not given. */
tg_status make_fp8_rows(const tg_context *ctx, const tg_linear_fp8_fp8_fwd_args *a)
{
  const fp8_rows to = fp8_rows_of(a);
  fp8_rows_task p = {};
  p.x = a->x.data;
  p.rows = a->x.shape[0];
  p.in = a->x.shape[1];
  p.x_step = tgi_stride(&a->x, 0);
  p.step = to.step;
  p.codes = const_cast<uint8_t *>(to.codes);
  p.scale = const_cast<float *>(to.scale);
  p.aligned = rows_aligned(&a->x, 16);
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->x.dtype, T,
               status = launch(ctx, fp8_rows_kernel<T>, grid_of(p.rows), kFp8Threads, 0, p));
  return status;
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif

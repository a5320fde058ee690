/**
 * Both operands of int8 times int8 as rows that TMA copies: [rows, in] and [out, in], row after row
 * at multiples of 16 bytes, with scales, sums and zero points beside them. Their integers are those
 * of cuda/digits.cuh and of the packed weight.
 */
#ifndef TGI_OPS_INT8_ROWS_SM90_CUH
#define TGI_OPS_INT8_ROWS_SM90_CUH

#include "cuda/digits.cuh"
#include "cuda/packed_weight.cuh"

extern "C" {
#include "ops/linear_int8/linear_int8_packed.h"
}

inline namespace TGI_CUDA_ENTRY
{

constexpr int kInt8Threads = 256;
constexpr int kInt8Lines = 128; /* of a panel, that a block of threads turns at a time */

struct int8_rows {
  const void *x;
  packed_weight w;
  int64_t rows, in, out, x_step;
  int64_t step;                               /* bytes from row to row of codes and weights */
  int64_t panels, panel_bytes, lines, pieces; /* of a panel, of kInt8Lines */
  bool aligned;                               /* rows of x, to 16 bytes */
  int8_t *codes, *weights, *zero;
  float *row_scale, *column_scale; /* of x: NaN if it is not finite, or the weight no such one */
  int32_t *row_sum;
};

/** Says where the parts lie in `memory`, and returns the bytes that they take. */
inline size_t int8_rows_lay_out(int8_rows *r, void *memory)
{
  const int64_t sizes[] = {r->rows * r->step, r->out * r->step, r->rows * 4,
                           r->rows * 4,       r->out * 4,       r->out};
  char *at[6];
  int64_t bytes = 0;
  for (int i = 0; i < 6; i++) {
    at[i] = memory ? static_cast<char *>(memory) + bytes : nullptr;
    bytes += divide_up(sizes[i], 256) * 256;
  }
  r->codes = reinterpret_cast<int8_t *>(at[0]);
  r->weights = reinterpret_cast<int8_t *>(at[1]);
  r->row_scale = reinterpret_cast<float *>(at[2]);
  r->row_sum = reinterpret_cast<int32_t *>(at[3]);
  r->column_scale = reinterpret_cast<float *>(at[4]);
  r->zero = reinterpret_cast<int8_t *>(at[5]);
  return (size_t)bytes;
}

/** rint(v / by) of a rule's `by`, |v| <= 127 by: with `inverse` = 1 / by the rest v - q by is
 * exact, and says whether q is the nearest. */
__device__ __forceinline__ int whole_quotient(float v, float by, float inverse)
{
  constexpr float kWhole = 12582912.0f; /* 1.5 * 2^23: a sum's last bit is 1 */
  const float q = __fmaf_rn(v, inverse, kWhole) - kWhole;
  const float rest = __fmaf_rn(-q, by, v);
  return fabsf(rest) < 0.5f * by ? (int)q : (int)rintf(v / by);
}

namespace
{ /* every file, of every entry, has kernels of its own */

/** A block makes a row; its first vectors stay in registers between the two passes. */
template <typename T>
__global__ void __launch_bounds__(kInt8Threads) int8_codes_kernel(const int8_rows p)
{
  constexpr int kN = kLanes<T>, kHeld = 4, kPass = kN * kInt8Threads;
  __shared__ float scratch[2 * kWarp];
  __shared__ int sums[kWarp];
  const int t = (int)threadIdx.x;
  let_next_begin();
  const bool fits = packed_header_fits(p.w, blockIdx.x == 0 && t == 0);
  for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
    const T *x = static_cast<const T *>(p.x) + row * p.x_step;
    int8_t *codes = p.codes + row * p.step;
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
    for (int64_t k = whole + t; k < p.in; k += kInt8Threads) {
      b.widen(fabsf(to_f32(x[k])));
    }
    const digits_rule rule = digits_rule_of<1>(unite_block(b, scratch).high);
    const float inverse = 1.0f / rule.by;
    int sum = 0;
    const auto code_of = [&](float v) {
      const int code = rule.finite ? whole_quotient(v, rule.by, inverse) : 0;
      sum += code;
      return (int8_t)code;
    };
    const auto put = [&](int64_t k, const pack<T, kN> &v) {
      pack<int8_t, kN> to;
#pragma unroll
      for (int i = 0; i < kN; i++) {
        to.e[i] = code_of(to_f32(v.e[i]));
      }
      *reinterpret_cast<pack<int8_t, kN> *>(codes + k) = to;
    };
#pragma unroll
    for (int j = 0; j < kHeld; j++) {
      const int64_t k = (int64_t)kN * t + j * kPass;
      if (k < whole) {
        put(k, held[j]);
      }
    }
    for (int64_t k = (int64_t)kN * t + kHeld * kPass; k < whole; k += kPass) {
      put(k, vector_at(k));
    }
    for (int64_t k = whole + t; k < p.in; k += kInt8Threads) {
      codes[k] = code_of(to_f32(x[k]));
    }
    int total[1] = {sum};
    block_sum(total, sums);
    if (t == 0) {
      p.row_scale[row] = rule.finite && fits ? rule.by : CUDART_NAN_F;
      p.row_sum[row] = total[0];
    }
    __syncthreads();
  }
}

/** A block turns pieces of panels: 128 lines of four columns of 32 rows become 32 rows of 512
 * columns. Both sides are whole lines of memory. In shared memory the 16 bytes c of row r lie at
 * c ^ r / 4, so that lanes write words of different rows, and read a row, from all banks. */
__global__ void __launch_bounds__(kInt8Threads) int8_weights_kernel(const int8_rows p)
{
  constexpr int kUnits = kInt8Lines * 8 / kInt8Threads; /* of 16 bytes, of a thread */
  __shared__ __align__(16) uint32_t words[TGI_PANEL_ROWS * kInt8Lines];
  const int t = (int)threadIdx.x;
  for (int64_t block = blockIdx.x; block < p.panels * p.pieces; block += gridDim.x) {
    const int64_t panel = block / p.pieces, piece = block - panel * p.pieces;
    const uint8_t *head = p.w.data + TGI_PACKED_HEADER_BYTES + panel * p.panel_bytes;
    const uint8_t *from =
        head + TGI_INT8_PANEL_HEAD + piece * (kInt8Lines * TGI_INT8_LINE_BYTES) + 16 * t;
    const int64_t left = p.lines - piece * kInt8Lines;
    uint4 v[kUnits];
#pragma unroll
    for (int i = 0; i < kUnits; i++) {
      const int line = (i * kInt8Threads + t) / 8;
      v[i] = line < left ? *reinterpret_cast<const uint4 *>(from + 16 * i * kInt8Threads)
                         : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < kUnits; i++) {
      const int line = (i * kInt8Threads + t) / 8, four = t % 8; /* rows 4 four .. + 3 */
      const uint32_t w[4] = {v[i].x, v[i].y, v[i].z, v[i].w};
#pragma unroll
      for (int r = 0; r < 4; r++) {
        /* 128 + W as a byte is W with its sign turned. */
        words[(4 * four + r) * kInt8Lines + 4 * (line / 4 ^ four) + line % 4] = w[r] ^ 0x80808080u;
      }
    }
    if (piece == 0 && t < TGI_PANEL_ROWS && panel * TGI_PANEL_ROWS + t < p.out) {
      const int64_t o = panel * TGI_PANEL_ROWS + t;
      p.column_scale[o] = packed_float(head + 4 * t, true);
      p.zero[o] = (int8_t)(int)(packed_float(head + 4 * (TGI_PANEL_ROWS + t), true) - 128.0f);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kUnits; i++) {
      const int row = (i * kInt8Threads + t) / kWarp, c = t % kWarp;
      const int64_t o = panel * TGI_PANEL_ROWS + row;
      const int64_t k = TGI_INT8_LINE_K * (piece * kInt8Lines + 4 * c);
      if (o < p.out && k < p.step) {
        *reinterpret_cast<uint4 *>(p.weights + o * p.step + k) =
            *reinterpret_cast<const uint4 *>(&words[row * kInt8Lines + 4 * (c ^ row / 4)]);
      }
    }
    __syncthreads();
  }
  await_kernel_before(); /* what follows both waits for this one alone */
}

/** Makes all of them. */
tg_status make_int8_rows(const tg_context *ctx, const int8_rows &r, tg_dtype x_dtype)
{
  tg_status status = TG_OK;
  SWITCH_FLOAT(x_dtype, T,
               status = launch(ctx, int8_codes_kernel<T>, grid_of(r.rows), kInt8Threads, 0, r));
  return status != TG_OK ? status
                         : launch_next(ctx, int8_weights_kernel, grid_of(r.panels * r.pieces),
                                       kInt8Threads, 0, r);
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif

/**
 * Rows of x as integers in signed digits of 8 bits, X = d[0] + 256 d[1] + 65536 d[2] or fewer: what
 * linear_int8 and linear_int4 multiply with their weights. The integers are those of the CPU
 * (core/values/fixed_point.h, cpu/digits.h), so sums of products are the same numbers.
 *
 * A strip holds kStripRows rows. For each unit of eight neighbours in k it has the words of the
 * first four, all digits of all rows side by side, then those of the second four; words past the
 * last row and value are 0.
 */
#ifndef TGI_CUDA_DIGITS_CUH
#define TGI_CUDA_DIGITS_CUH

#include "cuda/quantize_math.cuh"

inline namespace TGI_CUDA_ENTRY
{

constexpr int kDigitsThreads = 256;
constexpr int kUnitK = 8;          /* values of k in a unit */
constexpr int kUnitsTogether = 16; /* units of a strip are a multiple */
constexpr int kDigitsBlock = 32;   /* values of k that are summed together */

struct digit_strips {
  const void *x;
  int64_t rows, in, x_step;
  int planes, strip_rows; /* digits; rows of a strip: 1, 4 or 8 */
  int unit_words;         /* a multiple of 4 */
  int64_t strips, units, blocks;
  uint32_t *words;     /* [strips][units][unit_words] */
  double *scale;       /* [strips * strip_rows]: x = X * scale, about; NaN: not finite */
  int64_t *sums;       /* [strips * strip_rows]: of X */
  int32_t *block_sums; /* [strips][blocks][strip_rows]: of X over each kDigitsBlock */
};

/** Words of a unit, in whole vectors of four. */
constexpr int unit_words_of(int planes, int strip_rows)
{
  return (2 * planes * strip_rows + 3) / 4 * 4;
}

/** Rows of a strip whose sums, one for each digit, fit the registers of a thread. */
constexpr int most_strip_rows(int planes)
{
  return planes == 3 ? 4 : 8;
}

inline int strip_rows_for(int64_t rows, int planes)
{
  return rows == 1 ? 1 : rows <= 4 ? 4 : most_strip_rows(planes);
}

/** Describes digits of x in `memory`, and returns the bytes that they take. strip_rows: 0 or one of
 * its numbers. */
inline size_t digits_lay_out(digit_strips *d, const tg_tensor *x, int planes, void *memory,
                             int strip_rows = 0)
{
  *d = digit_strips{};
  d->x = x->data;
  d->rows = x->shape[0];
  d->in = x->shape[1];
  d->x_step = tgi_stride(x, 0);
  d->planes = planes;
  d->strip_rows = strip_rows ? strip_rows : strip_rows_for(d->rows, planes);
  d->unit_words = unit_words_of(planes, d->strip_rows);
  d->strips = divide_up(d->rows, d->strip_rows);
  d->units = divide_up(d->in, kUnitK * kUnitsTogether) * kUnitsTogether;
  d->blocks = d->units / (kDigitsBlock / kUnitK);
  const int64_t rows = d->strips * d->strip_rows;
  const int64_t words = divide_up(d->strips * d->units * d->unit_words * 4, 256) * 256;
  const int64_t scales = divide_up(rows * 8, 256) * 256, sums = scales;
  const int64_t block_sums = divide_up(rows * d->blocks * 4, 256) * 256;
  char *at = static_cast<char *>(memory);
  if (at) {
    d->words = reinterpret_cast<uint32_t *>(at);
    d->scale = reinterpret_cast<double *>(at + words);
    d->sums = reinterpret_cast<int64_t *>(at + words + scales);
    d->block_sums = reinterpret_cast<int32_t *>(at + words + scales + sums);
  }
  return (size_t)(words + scales + sums + block_sums);
}

/** The largest e with most * 2^e <= 127 * 256^(digits - 1); 0 for 0. */
__device__ __forceinline__ int fixed_point_exponent(float most, int digits)
{
  int exponent;
  if (most == 0) {
    return 0;
  }
  const float fraction = frexpf(most, &exponent);
  return 8 * digits - 1 - exponent - (fraction * 128 > 127 ? 1 : 0);
}

/** 2^e for -126 <= e <= 127. */
__device__ __forceinline__ float power_of_2(int e)
{
  return __uint_as_float((unsigned)(e + 127) << 23);
}

/** How a row is made integers: divided by `by`, or times two powers of 2. */
struct digits_rule {
  float by, first, second;
  double scale;
  bool finite;
};

template <int kPlanes> __device__ __forceinline__ digits_rule digits_rule_of(float most)
{
  digits_rule r = {};
  r.finite = isfinite(most);
  if (!r.finite) {
    r.scale = CUDART_NAN;
  } else if (kPlanes == 1) {
    r.by = most > 0 ? scale_up(most / 127.0f) : 1.0f;
    r.scale = (double)r.by;
  } else {
    /* Beyond one power's range: two, the first of which rounds only what becomes 0. */
    const int exponent = fixed_point_exponent(most, kPlanes), half = exponent / 2;
    r.first = power_of_2(half);
    r.second = power_of_2(exponent - half);
    r.scale = ldexp(1.0, -exponent);
  }
  return r;
}

namespace
{ /* every file, of every entry, has kernels of its own */

/** A block makes a row. */
template <typename T, int kPlanes>
__global__ void __launch_bounds__(kDigitsThreads, 4) digits_kernel(const digit_strips d)
{
  __shared__ float scratch[2 * kWarp];
  __shared__ int64_t sums[kWarp];
  const int t = threadIdx.x, line = d.strip_rows * kPlanes;
  for (int64_t i = blockIdx.x; i < d.strips * d.strip_rows; i += gridDim.x) {
    const int64_t strip = i / d.strip_rows, r = i - strip * d.strip_rows;
    const int64_t in = i < d.rows ? d.in : 0;
    const T *x = static_cast<const T *>(d.x) + i * d.x_step;
    quant_bounds b = {0, 0};
#pragma unroll 4
    for (int64_t k = t; k < in; k += kDigitsThreads) {
      b.widen(fabsf(to_f32(x[k])));
    }
    const digits_rule rule = digits_rule_of<kPlanes>(unite_block(b, scratch).high);
    int64_t total = 0;
    for (int64_t first = 0; first < d.units; first += kDigitsThreads) {
      const int64_t u = first + t;
      uint32_t words[2][kPlanes] = {};
      int sum = 0;
#pragma unroll
      for (int j = 0; j < kUnitK; j++) {
        const int64_t k = u * kUnitK + j;
        int X = 0;
        if (k < in && rule.finite) {
          const float v = to_f32(x[k]);
          X = (int)rintf(kPlanes == 1 ? v / rule.by : v * rule.first * rule.second);
        }
        sum += X;
#pragma unroll
        for (int p = 0; p < kPlanes; p++) {
          const int digit = (int)(int8_t)X;
          words[j / 4][p] |= (uint32_t)(digit & 255) << 8 * (j % 4);
          X = (X - digit) >> 8;
        }
      }
      if (u < d.units) {
        uint32_t *to = d.words + (strip * d.units + u) * d.unit_words + r * kPlanes;
#pragma unroll
        for (int p = 0; p < kPlanes; p++) {
          to[p] = words[0][p];
          to[line + p] = words[1][p];
        }
      }
      total += sum;
      sum += __shfl_xor_sync(kAllLanes, sum, 1); /* four units are a block of sums */
      sum += __shfl_xor_sync(kAllLanes, sum, 2);
      if (u < d.units && t % 4 == 0) {
        d.block_sums[(strip * d.blocks + u / 4) * d.strip_rows + r] = sum;
      }
    }
    int64_t all[1] = {total};
    block_sum(all, sums);
    if (t == 0) {
      d.sums[i] = all[0];
      d.scale[i] = rule.scale;
    }
    __syncthreads();
  }
}

template <int kPlanes>
tg_status make_digits(const tg_context *ctx, const digit_strips &d, tg_dtype dtype)
{
  tg_status status = TG_OK;
  SWITCH_FLOAT(dtype, T,
               status = launch(ctx, digits_kernel<T, kPlanes>, grid_of(d.strips * d.strip_rows),
                               kDigitsThreads, 0, d));
  return status;
}

} // namespace

/** Signed digits that X has for results of a dtype. */
inline int digits_for(tg_dtype result)
{
  return result == TG_F32 ? 3 : 2;
}

/** sums[i] += the products of four weights with the digits of word i of a unit's half, kLine words
 * that begin at word kFirst of the unit. */
template <int kFirst, int kLine>
__device__ __forceinline__ void add_products(const uint32_t *unit, int weights, int (&sums)[kLine])
{
  /* Whole vectors: what a half has of one begins and ends within it. */
#pragma unroll
  for (int v = kFirst / 4; v < (kFirst + kLine + 3) / 4; v++) {
    const uint4 x = reinterpret_cast<const uint4 *>(unit)[v];
    const uint32_t word[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int at = 4 * v + i - kFirst;
      if (at >= 0 && at < kLine) {
        sums[at] = __dp4a((int)word[i], weights, sums[at]);
      }
    }
  }
}

} // namespace TGI_CUDA_ENTRY

#endif

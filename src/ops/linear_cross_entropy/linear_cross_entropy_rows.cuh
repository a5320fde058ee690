/**
 * linear_cross_entropy on CUDA: what is done row by row. Rows that are not ignored are numbered,
 * and lie side by side in a chunk; numbers from `counted` on are empty: zeros in, zeros out.
 */
#ifndef TGI_OPS_LINEAR_CROSS_ENTROPY_ROWS_CUH
#define TGI_OPS_LINEAR_CROSS_ENTROPY_ROWS_CUH

#include "cuda/fault.cuh"
#include "cuda/gemm/product.cuh"
#include "cuda/reduce.cuh"

#include <float.h>
#include <math.h>

inline namespace TGI_CUDA_ENTRY
{

namespace
{

constexpr int kCollectThreads = 1024;
constexpr int kCopyThreads = 256;
constexpr int kAddCols = 4 * kCopyThreads;
constexpr int kBiasGroup = 64; /* rows whose sum is taken before it is added */

/** The largest logit of some, the first of equals; the first NaN if there is one. */
struct lce_largest {
  float x;
  int is_nan;
  int64_t j;
};

/** What one scan found in a row. */
struct lce_sums {
  double sum, z_sum;   /* of exp(z - most); of z */
  float most;          /* largest z, but finite */
  lce_largest largest; /* logit, before the cap */
};

/** What is known of a row by its number. */
struct lce_row {
  int64_t i, target, argmax;
  double sum, z_sum;    /* of exp(z - shift); of z */
  float largest, shift; /* logit, before the cap; maximum of z, but finite */
  float hit, lse, loss; /* hit: z of the target */
  int has_nan;          /* argmax is the first NaN */
  lce_sums chunk;       /* of the columns that were scanned last */
};

struct lce_totals {
  int64_t counted;
  double divisor;
  int has_bad; /* a target out of range */
};

/** Scalars and vectors of a call; NULL where absent. */
struct lce_call {
  const void *targets, *num_items;
  tg_dtype targets_dtype, num_items_dtype, argmax_dtype;
  int64_t rows, vocab, ignore_index, num_items_in_batch;
  const float *dloss, *given_lse; /* given_lse: of a backward */
  float *loss, *token_loss, *log_prob, *lse;
  void *argmax;
  float label_smoothing, z_loss, softcap;
  tg_reduction reduction;
  bool has_ignore_index, forward;
  fault_site site;
  lce_row *row;
  lce_totals *totals;
};

/** Logits and their gradients: numbers row0 .. row0 + rows - 1, columns col0 .. col0 + cols - 1. */
struct lce_chunk {
  int64_t row0, rows, col0, cols;
  float *logits;
  void *dlogits;           /* where logits begins, or apart from it */
  int64_t stride, dstride; /* elements from row to row */
};

__device__ inline int64_t load_int(const void *data, tg_dtype dtype, int64_t i)
{
  return dtype == TG_I32 ? static_cast<const int32_t *>(data)[i]
                         : static_cast<const int64_t *>(data)[i];
}

enum lce_kind { kCounted, kIgnored, kBad };

__device__ inline lce_kind kind_of(const lce_call &c, int64_t target)
{
  if (c.has_ignore_index && target == c.ignore_index) {
    return kIgnored;
  }
  return target < 0 || target >= c.vocab ? kBad : kCounted;
}

/** The results of row i of the problem. */
__device__ inline void store_results(const lce_call &c, int64_t i, float loss, float log_prob,
                                     float lse, int64_t argmax)
{
  if (c.token_loss) {
    c.token_loss[i] = loss;
  }
  if (c.log_prob) {
    c.log_prob[i] = log_prob;
  }
  if (c.lse) {
    c.lse[i] = lse;
  }
  if (c.reduction == TG_REDUCTION_NONE) {
    c.loss[i] = loss;
  }
  if (c.argmax && c.argmax_dtype == TG_I32) {
    static_cast<int32_t *>(c.argmax)[i] = (int32_t)argmax;
  } else if (c.argmax) {
    static_cast<int64_t *>(c.argmax)[i] = argmax;
  }
}

__device__ inline double divisor_of(const lce_call &c, int64_t counted)
{
  if (c.reduction == TG_REDUCTION_MEAN) {
    return (double)counted;
  }
  if (c.reduction != TG_REDUCTION_NUM_ITEMS) {
    return 1;
  }
  if (!c.num_items) {
    return (double)c.num_items_in_batch;
  }
  return c.num_items_dtype == TG_F32 ? (double)*static_cast<const float *>(c.num_items)
                                     : (double)load_int(c.num_items, c.num_items_dtype, 0);
}

/** Numbers the rows; the others have their results at once. One block. */
__global__ void __launch_bounds__(kCollectThreads) linear_cross_entropy_collect_kernel(lce_call c)
{
  __shared__ int in_warp[kWarp];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  int64_t counted = 0;
  bool bad = false;
  for (int64_t base = 0; base < c.rows; base += kCollectThreads) {
    const int64_t i = base + threadIdx.x;
    bool counts = false;
    int64_t target = 0;
    if (i < c.rows) {
      target = load_int(c.targets, c.targets_dtype, i);
      const lce_kind kind = kind_of(c, target);
      counts = kind == kCounted;
      if (kind == kBad) {
        record_fault(c.site, i, target, 0, c.vocab - 1);
        bad = true;
      }
      if (!counts && c.forward) {
        const float v = kind == kBad ? CUDART_NAN_F : 0.0f;
        store_results(c, i, v, v, v, -1);
      }
    }
    const unsigned vote = __ballot_sync(kAllLanes, counts);
    if (lane == 0) {
      in_warp[warp] = __popc(vote);
    }
    __syncthreads();
    int before = __popc(vote & ((1u << lane) - 1)), all = 0;
    for (int w = 0; w < kCollectThreads / kWarp; w++) {
      before += w < warp ? in_warp[w] : 0;
      all += in_warp[w];
    }
    if (counts) {
      lce_row r = {};
      r.i = i;
      r.target = target;
      r.largest = -CUDART_INF_F;
      r.shift = -FLT_MAX; /* finite: a row of -infinity has lse -infinity */
      r.lse = c.given_lse ? c.given_lse[i] : 0;
      c.row[counted + before] = r;
    }
    counted += all;
    __syncthreads();
  }
  const int has_bad = __syncthreads_or(bad);
  if (threadIdx.x == 0) {
    c.totals->counted = counted;
    c.totals->divisor = divisor_of(c, counted);
    c.totals->has_bad = has_bad;
  }
}

/** dhidden of the rows that have no number. A block for a row. */
template <typename T>
__global__ void __launch_bounds__(kCopyThreads)
    linear_cross_entropy_clear_kernel(lce_call c, T *dhidden, int64_t step, int64_t size)
{
  for (int64_t i = blockIdx.x; i < c.rows; i += gridDim.x) {
    const lce_kind kind = kind_of(c, load_int(c.targets, c.targets_dtype, i));
    for (int64_t k = threadIdx.x; k < size && kind != kCounted; k += kCopyThreads) {
      dhidden[i * step + k] = from_f32<T>(kind == kBad ? CUDART_NAN_F : 0.0f);
    }
  }
}

/** Rows of the group side by side, in units of T. A block for a row. */
template <typename T>
__global__ void __launch_bounds__(kCopyThreads)
    linear_cross_entropy_gather_kernel(lce_call c, lce_chunk chunk, const T *hidden, int64_t step,
                                       int64_t units, T *to)
{
  for (int64_t r = blockIdx.x; r < chunk.rows; r += gridDim.x) {
    const int64_t number = chunk.row0 + r;
    const bool exists = number < c.totals->counted;
    const T *from = hidden + (exists ? c.row[number].i * step : 0);
    for (int64_t k = threadIdx.x; k < units; k += kCopyThreads) {
      to[r * units + k] = exists ? from[k] : T{};
    }
  }
}

/** dbias sums += the columns of the group. A thread for a column. */
template <typename T>
__global__ void __launch_bounds__(kCopyThreads)
    linear_cross_entropy_bias_kernel(lce_chunk chunk, float *sums)
{
  const T *dx = static_cast<const T *>(chunk.dlogits);
  const int64_t stride = chunk.dstride;
  for (int64_t j = blockIdx.x * (int64_t)kCopyThreads + threadIdx.x; j < chunk.cols;
       j += gridDim.x * (int64_t)kCopyThreads) {
    float total = sums[j];
    for (int64_t r = 0; r < chunk.rows; r += kBiasGroup) {
      const int64_t end = r + kBiasGroup < chunk.rows ? r + kBiasGroup : chunk.rows;
      float sum = 0;
      for (int64_t i = r; i < end; i++) {
        sum += to_f32(dx[i * stride + j]);
      }
      total += sum;
    }
    sums[j] = total;
  }
}

/** dhidden of the group's rows from their sums. A block for a row. */
template <typename T>
__global__ void __launch_bounds__(kCopyThreads)
    linear_cross_entropy_scatter_kernel(lce_call c, lce_chunk chunk, const float *sums, T *dhidden,
                                        int64_t step, int64_t size)
{
  const int64_t counted = c.totals->counted;
  for (int64_t r = blockIdx.x; r < chunk.rows && chunk.row0 + r < counted; r += gridDim.x) {
    T *to = dhidden + c.row[chunk.row0 + r].i * step;
    for (int64_t k = threadIdx.x; k < size; k += kCopyThreads) {
      to[k] = from_f32<T>(sums[r * size + k]);
    }
  }
}

/** to[rows, cols] += sums, or = sums. A block for kAddCols columns of a row; kWide: in fours. */
template <bool kWide, typename T>
__global__ void __launch_bounds__(kCopyThreads)
    linear_cross_entropy_add_kernel(const float *sums, T *to, int64_t step, int64_t rows,
                                    int64_t cols, bool overwrite)
{
  constexpr int kEach = kWide ? 4 : 1;
  const int64_t pieces = divide_up(cols, kAddCols);
  for (int64_t block = blockIdx.x; block < rows * pieces; block += gridDim.x) {
    const int64_t row = block / pieces, first = (block - row * pieces) * kAddCols;
    const int64_t end = first + kAddCols < cols ? first + kAddCols : cols;
    for (int64_t j = first + kEach * threadIdx.x; j < end; j += kEach * kCopyThreads) {
      float v[kEach], was[kEach] = {};
      load(v, sums + row * cols + j);
      if (!overwrite) {
        load(was, to + row * step + j);
      }
#pragma unroll
      for (int k = 0; k < kEach; k++) {
        v[k] = was[k] + v[k];
      }
      store(to + row * step + j, v);
    }
  }
}

/** The sum of the rows' losses over n, in f64. One block. */
__global__ void __launch_bounds__(kCollectThreads) linear_cross_entropy_loss_kernel(lce_call c)
{
  __shared__ double scratch[kWarp];
  double sum[1] = {0};
  for (int64_t n = threadIdx.x; n < c.totals->counted; n += kCollectThreads) {
    sum[0] += (double)c.row[n].loss;
  }
  block_sum(sum, scratch);
  if (threadIdx.x == 0) {
    c.loss[0] = c.totals->has_bad ? CUDART_NAN_F : (float)(sum[0] / c.totals->divisor);
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif

/** Attention forward without tensor cores (attention.cu): the kernel of tiles, and the one that
 * adds splits. Running softmax (arXiv:1805.02867) over tiles of 64 keys; bound by f32 arithmetic.
 */
#ifndef TGI_OPS_ATTENTION_ROWS_CUH
#define TGI_OPS_ATTENTION_ROWS_CUH

#include "ops/attention/any/attention_tile.cuh"

#include <math.h>

inline namespace TGI_CUDA_ENTRY
{

namespace
{

constexpr int kSplitKeys = 256;
constexpr int kCombineThreads = 128;

template <typename T> struct fwd_job {
  attention_call c;
  heads_view<const T> q, k, v;
  heads_view<T> out;
  float *lse;
  any_vector sinks;
  int64_t places, parts, splits; /* tiles of rows; of v_dim; of the keys */
  float *sums; /* [batch][kv_heads][splits][rows][v_dim + 2]: sums, maximum, sum of exponentials */
};

struct row_end {
  float mine, total, lse;
};

/** The final factor and lse of a row, from its maximum m and sum l. */
__device__ __forceinline__ row_end finish_row(float m, float l, float sink)
{
  const float now = fmaxf(sink, m), base = now > -CUDART_INF_F ? now : 0.0f;
  row_end r;
  r.mine = expf(m - base);
  r.total = fmaf(l, r.mine, expf(sink - base));
  r.lse = base + logf(r.total);
  return r;
}

template <typename T>
__device__ __forceinline__ void write_lse(const fwd_job<T> &job, const tgi_attention_sequence &s,
                                          int64_t query, int64_t head, float value)
{
  if (job.lse) {
    job.lse[(s.q_index * job.c.l.q_heads + head) * job.c.l.nq + s.q_first + query] = value;
  }
}

template <int kRows> struct fwd_shared {
  alignas(16) tile a, b; /* queries, then probabilities; keys, then values */
  int64_t q_at[kRows], low[kRows], high[kRows];
  int64_t k_at[kTile], v_at[kTile];
  place_found at;
};

/** Scores of a tile to probabilities. Updates m and l; `factor`: of earlier sums. */
template <int kI>
__device__ __forceinline__ void softmax_tile(const attention_call &c, float (&s)[kI][4],
                                             const row_sees_keys<kI> &sees, float (&m)[kI],
                                             float (&l)[kI], float (&factor)[kI])
{
  const int tx = threadIdx.x % 16;
#pragma unroll
  for (int i = 0; i < kI; i++) {
    float most = m[i];
#pragma unroll
    for (int j = 0; j < 4; j++) {
      float v = c.scale * s[i][j];
      if (c.softcap > 0) {
        v = c.softcap * tanhf(v / c.softcap);
      }
      s[i][j] = sees(tx + 16 * j, i) ? v : -CUDART_INF_F;
      most = fmaxf(most, s[i][j]); /* fmaxf drops a NaN, which then shows in the sum */
    }
#pragma unroll
    for (int step = 8; step > 0; step /= 2) {
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, step));
    }
    const float base = most > -CUDART_INF_F ? most : 0.0f; /* nothing seen yet: e^-inf = 0 */
    factor[i] = expf(m[i] - base);
    m[i] = most;
    float sum = 0;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      s[i][j] = expf(s[i][j] - base);
      sum += s[i][j];
    }
    l[i] = fmaf(l[i], factor[i], sum);
  }
}

/** Writes the results of the tile's rows, or the sums of a split. acc: elements c0 + 64 n + tx * 4
 * + j. */
template <typename T, int kI, int kC>
__device__ __forceinline__ void write_rows(const fwd_job<T> &job, const tgi_attention_sequence &s,
                                           int64_t kv_head, int64_t first, int64_t rows,
                                           int64_t part, int64_t split, const float (&m)[kI],
                                           float (&l)[kI], const float (&acc)[kC][kI][4])
{
  const tgi_attention_layout &y = job.c.l;
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  const int64_t c0 = part * kC * kTile + tx * 4;
#pragma unroll
  for (int i = 0; i < kI; i++) {
#pragma unroll
    for (int step = 8; step > 0; step /= 2) {
      l[i] += __shfl_xor_sync(kAllLanes, l[i], step);
    }
    const int64_t row = first + ty * kI + i;
    if (row >= rows) {
      continue;
    }
    if (job.splits > 1) {
      float *to = job.sums + (((s.b * y.kv_heads + kv_head) * job.splits + split) * rows + row) *
                                 (y.v_dim + 2);
#pragma unroll
      for (int n = 0; n < kC; n++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
          if (c0 + n * kTile + j < y.v_dim) {
            to[c0 + n * kTile + j] = acc[n][i][j];
          }
        }
      }
      if (tx == 0 && part == 0) {
        to[y.v_dim] = m[i];
        to[y.v_dim + 1] = l[i];
      }
      continue;
    }
    const int64_t query = row / y.group, head = kv_head * y.group + row % y.group;
    const row_end end = finish_row(m[i], l[i], job.sinks.data ? job.sinks.at(head) : -CUDART_INF_F);
    const float factor = end.mine / end.total;
    const int64_t to = job.out.at(s.q_index, s.q_first + query, head);
#pragma unroll
    for (int n = 0; n < kC; n++) {
      float v[4];
#pragma unroll
      for (int j = 0; j < 4; j++) {
        v[j] = end.total == 0 ? 0.0f : acc[n][i][j] * factor;
      }
      store_four(job.out, to, c0 + n * kTile, y.v_dim, v);
    }
    if (tx == 0 && part == 0) {
      write_lse(job, s, query, head, end.lse);
    }
  }
}

/** Writes NaN to rows of a sequence whose data is out of range. */
template <typename T, int kRows, int kCols>
__device__ void write_nan(const fwd_job<T> &job, const tgi_attention_sequence &s, int64_t kv_head,
                          int64_t first, int64_t rows, int64_t part)
{
  const tgi_attention_layout &y = job.c.l;
  const int64_t c0 = part * kCols, cols = y.v_dim - c0 < kCols ? y.v_dim - c0 : kCols;
  for (int64_t e = threadIdx.x; e < kRows * cols; e += blockDim.x) {
    const int64_t row = first + e / cols;
    if (row < rows) {
      const int64_t query = row / y.group, head = kv_head * y.group + row % y.group;
      job.out.data[job.out.at(s.q_index, s.q_first + query, head) + c0 + e % cols] =
          from_f32<T>(CUDART_NAN_F);
      if (part == 0 && e % cols == 0) {
        write_lse(job, s, query, head, CUDART_NAN_F);
      }
    }
  }
}

/** kI: rows of a thread; kC: groups of 64 elements of the values. */
template <typename T, int kI, int kC>
__global__ void __launch_bounds__(kTileThreads, kI == 1  ? 3
                                                : kC < 4 ? 2
                                                         : 1)
    attention_fwd_kernel(const fwd_job<T> job)
{
  constexpr int kRows = 16 * kI;
  __shared__ fwd_shared<kRows> sh;
  const tgi_attention_layout &y = job.c.l;
  const int ty = threadIdx.x / 16;
  const int64_t tasks = job.places * y.kv_heads * job.parts * job.splits;
  for (int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
    const int64_t part = task % job.parts, split = task / job.parts % job.splits;
    const int64_t rest = task / job.parts / job.splits;
    const int64_t kv_head = rest % y.kv_heads, place = job.places - 1 - rest / y.kv_heads;
    find_place(job.c, false, place, y.group, kRows, sh.at);
    const tgi_attention_sequence &s = sh.at.s;
    const int64_t first = sh.at.number * kRows, rows = s.nq * y.group;
    if (first >= rows) {
      continue;
    }
    if (s.count < 0) {
      if (job.splits == 1) {
        write_nan<T, kRows, kC * kTile>(job, s, kv_head, first, rows, part);
      }
      continue;
    }
    if (threadIdx.x < kRows) {
      const int64_t row = first + threadIdx.x, query = row / y.group;
      int64_t low = 0, high = 0, at = -1;
      if (row < rows) {
        visible_keys(y, s, query, &low, &high);
        at = job.q.at(s.q_index, s.q_first + query, kv_head * y.group + row % y.group);
      }
      sh.low[threadIdx.x] = low;
      sh.high[threadIdx.x] = high;
      sh.q_at[threadIdx.x] = at;
    }
    const int64_t last = (first + kRows < rows ? first + kRows : rows) - 1;
    int64_t begin, end, unused;
    visible_keys(y, s, first / y.group, &begin, &unused);
    visible_keys(y, s, last / y.group, &unused, &end);
    if (job.splits > 1) {
      const int64_t split_begin = split * kSplitKeys, split_end = split_begin + kSplitKeys;
      begin = begin > split_begin ? begin : split_begin;
      end = end < split_end ? end : split_end;
      if (begin >= end) {
        continue;
      }
    }

    float acc[kC][kI][4], m[kI], l[kI];
#pragma unroll
    for (int n = 0; n < kC; n++) {
      clear(acc[n]);
    }
#pragma unroll
    for (int i = 0; i < kI; i++) {
      m[i] = -CUDART_INF_F;
      l[i] = 0;
    }
    for (int64_t start = begin / kTile * kTile; start < end; start += kTile) {
      if (threadIdx.x < kTile) {
        const int64_t row = start + threadIdx.x;
        const bool wanted = row >= begin && row < end;
        sh.k_at[threadIdx.x] = wanted ? key_offset(job.c, s, job.k, row, kv_head) : -1;
        sh.v_at[threadIdx.x] = wanted ? key_offset(job.c, s, job.v, row, kv_head) : -1;
      }
      float p[kI][4], factor[kI];
      row_sees_keys<kI> sees;
      multiply_rows(p, sh.a, sh.b, job.q, sh.q_at, job.k, sh.k_at, y.head_dim);
#pragma unroll
      for (int i = 0; i < kI; i++) {
        sees.low[i] = in_tile(sh.low[ty * kI + i], start);
        sees.high[i] = in_tile(sh.high[ty * kI + i], start);
      }
      softmax_tile(job.c, p, sees, m, l, factor);
      __syncthreads();
      put_turned(sh.a, p);
#pragma unroll
      for (int n = 0; n < kC; n++) {
        const int64_t c0 = (part * kC + n) * kTile;
        if (c0 < y.v_dim) {
          if (n > 0) {
            __syncthreads();
          }
          const bool bad = load_straight(sh.b, job.v, sh.v_at, c0, y.v_dim);
          float sum[kI][4];
          clear(sum);
          if (__syncthreads_or(bad)) { /* keeps 0 times NaN from rows that do not see the key */
            add_products(sum, sh.a, sh.b, kTile, sees);
          } else {
            add_products(sum, sh.a, sh.b, kTile, sees_all());
          }
#pragma unroll
          for (int i = 0; i < kI; i++) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
              acc[n][i][j] = fmaf(acc[n][i][j], factor[i], sum[i][j]);
            }
          }
        }
      }
    }
    write_rows<T, kI, kC>(job, s, kv_head, first, rows, part, split, m, l, acc);
  }
}

/** Adds the splits of a sequence, in order. A block for a row. */
template <typename T>
__global__ void __launch_bounds__(kCombineThreads)
    attention_fwd_combine_kernel(const fwd_job<T> job)
{
  const tgi_attention_layout &y = job.c.l;
  const int64_t rows = y.nq * y.group, tasks = y.batch * y.kv_heads * rows;
  for (int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
    const int64_t row = task % rows, kv_head = task / rows % y.kv_heads;
    const tgi_attention_sequence s = sequence_at(job.c, task / rows / y.kv_heads);
    if (s.count < 0) {
      for (int64_t c0 = 0; c0 * kCombineThreads < y.v_dim; c0++) {
        write_nan<T, 1, kCombineThreads>(job, s, kv_head, row, rows, c0);
      }
      continue;
    }
    const int64_t query = row / y.group, head = kv_head * y.group + row % y.group;
    int64_t begin, end, unused;
    visible_keys(y, s, 0, &begin, &unused);
    visible_keys(y, s, y.nq - 1, &unused, &end);
    const int64_t from = begin / kSplitKeys, to = end > begin ? divide_up(end, kSplitKeys) : from;
    const int64_t step = rows * (y.v_dim + 2);
    const float *sums =
        job.sums + (s.b * y.kv_heads + kv_head) * job.splits * step + row * (y.v_dim + 2);
    float m = -CUDART_INF_F, l = 0;
    for (int64_t i = from; i < to; i++) {
      m = fmaxf(m, sums[i * step + y.v_dim]);
    }
    const float base = m > -CUDART_INF_F ? m : 0.0f;
    for (int64_t i = from; i < to; i++) {
      l = fmaf(sums[i * step + y.v_dim + 1], expf(sums[i * step + y.v_dim] - base), l);
    }
    const row_end done = finish_row(m, l, job.sinks.data ? job.sinks.at(head) : -CUDART_INF_F);
    const int64_t out = job.out.at(s.q_index, query, head);
    for (int64_t c = threadIdx.x; c < y.v_dim; c += kCombineThreads) {
      float sum = 0;
      for (int64_t i = from; i < to; i++) {
        sum = fmaf(sums[i * step + c], expf(sums[i * step + y.v_dim] - base), sum);
      }
      job.out.data[out + c] = from_f32<T>(done.total == 0 ? 0.0f : sum * (done.mine / done.total));
    }
    if (threadIdx.x == 0) {
      write_lse(job, s, query, head, done.lse);
    }
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif

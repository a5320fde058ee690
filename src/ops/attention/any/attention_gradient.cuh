/** Attention backward without tensor cores (attention_bwd.cu): the kernels of dq, and of dk and dv.
 * They recompute scores and p from the saved lse; every element of a result is one thread's sum in
 * a fixed order. Bound by f32 arithmetic. */
#ifndef TGI_OPS_ATTENTION_GRADIENT_CUH
#define TGI_OPS_ATTENTION_GRADIENT_CUH

#include "ops/attention/any/attention_tile.cuh"

#include <math.h>

inline namespace TGI_CUDA_ENTRY
{

namespace
{

template <typename T> struct bwd_job {
  attention_call c;
  heads_view<const T> dout, q, k, v, out;
  heads_view<T> dq, dk, dv;
  const float *lse;
  float *delta; /* in the layout of lse */
  int64_t row_places, key_places;
  int64_t q_parts, v_parts; /* of head_dim and v_dim */
};

__device__ __forceinline__ int64_t lse_at(const tgi_attention_layout &l,
                                          const tgi_attention_sequence &s, int64_t query,
                                          int64_t head)
{
  return (s.q_index * l.q_heads + head) * l.nq + s.q_first + query;
}

/** One pair: s to p, and dp to the gradient of the score, without the scale. */
__device__ __forceinline__ void gradient(const attention_call &c, bool visible, float lse,
                                         float delta, float *s, float *dp)
{
  float v = c.scale * *s, slope = 1;
  if (c.softcap > 0) {
    const float t = tanhf(v / c.softcap);
    v = c.softcap * t;
    slope = fmaf(-t, t, 1.0f);
  }
  const float p = visible ? expf(v - lse) : 0.0f;
  *s = p;
  *dp = visible ? p * (*dp - delta) * slope : 0.0f;
}

struct bwd_shared {
  alignas(16) tile a, b;
  int64_t a_at[kTile], a2_at[kTile], b_at[kTile],
      b2_at[kTile]; /* of q and dout, and of k and v; or the other way round */
  int64_t low[kTile], high[kTile];
  float lse[kTile], delta[kTile];
  place_found at;
};

/** Whether row k sees key i of a thread; low and high are relative to the tile of keys. */
struct key_sees_rows {
  static constexpr int kUnroll = 1;
  const bwd_shared &sh;

  __device__ bool operator()(int k, int i) const
  {
    const int key = threadIdx.x / 16 * 4 + i;
    return key >= (int)sh.low[k] && key < (int)sh.high[k];
  }
};

/** Writes the offsets of a row's q and dout, and the keys that it sees. Rows without a probability
 * see none. */
template <typename T>
__device__ __forceinline__ void set_row(const bwd_job<T> &job, const tgi_attention_sequence &s,
                                        int64_t kv_head, int64_t row, bool exists, int place,
                                        bwd_shared &sh, int64_t *q_at, int64_t *dout_at)
{
  const tgi_attention_layout &l = job.c.l;
  int64_t low = 0, high = 0;
  float lse = 0, delta = 0;
  *q_at = *dout_at = -1;
  if (exists) {
    const int64_t query = row / l.group, head = kv_head * l.group + row % l.group;
    const int64_t at = lse_at(l, s, query, head);
    lse = job.lse[at];
    delta = job.delta[at];
    *q_at = job.q.at(s.q_index, s.q_first + query, head);
    *dout_at = job.dout.at(s.q_index, s.q_first + query, head);
    if (lse != -CUDART_INF_F) {
      visible_keys(l, s, query, &low, &high);
    }
  }
  sh.low[place] = low;
  sh.high[place] = high;
  sh.lse[place] = lse;
  sh.delta[place] = delta;
}

/** acc += p b over a tile of kTile. `bad`: b has a NaN or an infinity somewhere. */
template <typename Sees>
__device__ __forceinline__ void add_tile(float (&acc)[4][4], const bwd_shared &sh, bool bad,
                                         const Sees &sees)
{
  float sum[4][4];
  clear(sum);
  if (bad) { /* keeps 0 times NaN from rows and keys that are masked */
    add_products(sum, sh.a, sh.b, kTile, sees);
  } else {
    add_products(sum, sh.a, sh.b, kTile, sees_all());
  }
#pragma unroll
  for (int i = 0; i < 4; i++) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
      acc[i][j] += sum[i][j];
    }
  }
}

/** Writes four adjacent elements of a result, or NaN. */
template <typename T>
__device__ __forceinline__ void write_four(const heads_view<T> &t, int64_t at, int64_t c,
                                           int64_t width, const float (&sum)[4], float scale,
                                           bool nan)
{
  float v[4];
#pragma unroll
  for (int j = 0; j < 4; j++) {
    v[j] = nan ? CUDART_NAN_F : scale * sum[j];
  }
  store_four(t, at, c, width, v);
}

/** dq. kC: groups of 64 elements of head_dim. */
template <typename T, int kC>
__global__ void __launch_bounds__(kTileThreads, kC < 4 ? 2 : 1)
    attention_bwd_queries_kernel(const bwd_job<T> job)
{
  __shared__ bwd_shared sh;
  const tgi_attention_layout &y = job.c.l;
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  const int64_t tasks = job.row_places * y.kv_heads * job.q_parts;
  for (int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
    const int64_t part = task % job.q_parts, rest = task / job.q_parts;
    const int64_t kv_head = rest % y.kv_heads, place = job.row_places - 1 - rest / y.kv_heads;
    find_place(job.c, false, place, y.group, kTile, sh.at);
    const tgi_attention_sequence &s = sh.at.s;
    const int64_t first = sh.at.number * kTile, rows = s.nq * y.group;
    if (first >= rows) {
      continue;
    }
    const int64_t last = (first + kTile < rows ? first + kTile : rows) - 1;
    int64_t begin = 0, end = 0, unused;
    if (s.count >= 0) {
      visible_keys(y, s, first / y.group, &begin, &unused);
      visible_keys(y, s, last / y.group, &unused, &end);
      if (threadIdx.x < kTile) {
        const int64_t row = first + threadIdx.x;
        set_row(job, s, kv_head, row, row < rows, threadIdx.x, sh, &sh.a_at[threadIdx.x],
                &sh.a2_at[threadIdx.x]);
      }
    }
    float acc[kC][4][4];
#pragma unroll
    for (int n = 0; n < kC; n++) {
      clear(acc[n]);
    }
    for (int64_t start = begin / kTile * kTile; start < end; start += kTile) {
      if (threadIdx.x < kTile) {
        const int64_t row = start + threadIdx.x;
        const bool wanted = row >= begin && row < end;
        sh.b_at[threadIdx.x] = wanted ? key_offset(job.c, s, job.k, row, kv_head) : -1;
        sh.b2_at[threadIdx.x] = wanted ? key_offset(job.c, s, job.v, row, kv_head) : -1;
      }
      float p[4][4], ds[4][4];
      multiply_rows(p, sh.a, sh.b, job.q, sh.a_at, job.k, sh.b_at, y.head_dim);
      multiply_rows(ds, sh.a, sh.b, job.dout, sh.a2_at, job.v, sh.b2_at, y.v_dim);
      row_sees_keys<4> sees;
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int row = ty * 4 + i;
        sees.low[i] = in_tile(sh.low[row], start);
        sees.high[i] = in_tile(sh.high[row], start);
#pragma unroll
        for (int j = 0; j < 4; j++) {
          gradient(job.c, sees(tx + 16 * j, i), sh.lse[row], sh.delta[row], &p[i][j], &ds[i][j]);
        }
      }
      __syncthreads();
      put_turned(sh.a, ds);
#pragma unroll
      for (int n = 0; n < kC; n++) {
        const int64_t c0 = (part * kC + n) * kTile;
        if (c0 < y.head_dim) {
          if (n > 0) {
            __syncthreads();
          }
          const bool bad = load_straight(sh.b, job.k, sh.b_at, c0, y.head_dim);
          add_tile(acc[n], sh, __syncthreads_or(bad), sees);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int64_t row = first + ty * 4 + i;
      if (row < rows) {
        const int64_t at =
            job.dq.at(s.q_index, s.q_first + row / y.group, kv_head * y.group + row % y.group);
#pragma unroll
        for (int n = 0; n < kC; n++) {
          write_four(job.dq, at, (part * kC + n) * kTile + tx * 4, y.head_dim, acc[n][i],
                     job.c.scale, s.count < 0);
        }
      }
    }
  }
}

/** Queries [*begin, *end) that may see a key row of [start, start + kTile). */
__device__ __forceinline__ void queries_of_tile(const tgi_attention_layout &l,
                                                const tgi_attention_sequence &s, int64_t start,
                                                int64_t *begin, int64_t *end)
{
  int64_t from = 0, to = s.nq;
  if (l.causal) {
    from = start - s.position;
  } else if (l.window > 0) {
    from = start - s.position - l.window + 1;
  }
  if (l.window > 0) {
    to = start + kTile + l.window - 1 - s.position;
  }
  *begin = from > 0 ? from : 0;
  *end = to < s.nq ? to : s.nq;
}

/** dk and dv. kK, kV: groups of 64 elements of each; one of them may be 0. */
template <typename T, int kK, int kV>
__global__ void __launch_bounds__(kTileThreads, kK + kV < 4 ? 2 : 1)
    attention_bwd_keys_kernel(const bwd_job<T> job)
{
  __shared__ bwd_shared sh;
  const tgi_attention_layout &y = job.c.l;
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  const int64_t parts = kV == 0 ? job.q_parts : kK == 0 ? job.v_parts : 1;
  const int64_t tasks = job.key_places * y.kv_heads * parts;
  const bool wants_dk = kK > 0 && job.dk.data, wants_dv = kV > 0 && job.dv.data;
  for (int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
    const int64_t part = task % parts, rest = task / parts;
    const int64_t kv_head = rest % y.kv_heads, place = rest / y.kv_heads;
    find_place(job.c, true, place, 1, kTile, sh.at);
    const tgi_attention_sequence &s = sh.at.s;
    const int64_t start = sh.at.number * kTile;
    if (start >= s.extent) {
      continue;
    }
    if (threadIdx.x < kTile) {
      const int64_t row = start + threadIdx.x;
      const bool key = s.count >= 0 && row >= s.first && row < s.first + s.count;
      sh.a_at[threadIdx.x] = key ? job.k.at(s.k_index, s.k_first + row, kv_head) : -1;
      sh.a2_at[threadIdx.x] = key ? job.v.at(s.k_index, s.k_first + row, kv_head) : -1;
    }
    int64_t begin = 0, end = 0;
    if (s.count > 0) {
      queries_of_tile(y, s, start, &begin, &end);
    }
    float dk[kK + 1][4][4], dv[kV + 1][4][4]; /* + 1: arrays of 0 elements do not exist */
#pragma unroll
    for (int n = 0; n < kK; n++) {
      clear(dk[n]);
    }
#pragma unroll
    for (int n = 0; n < kV; n++) {
      clear(dv[n]);
    }
    for (int64_t first = begin * y.group / kTile * kTile; first < end * y.group; first += kTile) {
      __syncthreads(); /* the rows of the tile before are no longer read */
      if (threadIdx.x < kTile) {
        const int64_t row = first + threadIdx.x;
        set_row(job, s, kv_head, row, row < end * y.group, threadIdx.x, sh, &sh.b_at[threadIdx.x],
                &sh.b2_at[threadIdx.x]);
        sh.low[threadIdx.x] = in_tile(sh.low[threadIdx.x], start);
        sh.high[threadIdx.x] = in_tile(sh.high[threadIdx.x], start);
      }
      const key_sees_rows sees = {sh};
      float p[4][4], ds[4][4];
      multiply_rows(p, sh.a, sh.b, job.k, sh.a_at, job.q, sh.b_at, y.head_dim);
      clear(ds);
      if (wants_dk) {
        multiply_rows(ds, sh.a, sh.b, job.v, sh.a2_at, job.dout, sh.b2_at, y.v_dim);
      }
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const int row = tx + 16 * j;
        const float lse = sh.lse[row], delta = sh.delta[row];
#pragma unroll
        for (int i = 0; i < 4; i++) {
          gradient(job.c, sees(row, i), lse, delta, &p[i][j], &ds[i][j]);
        }
      }
      if (wants_dv) {
        __syncthreads();
        put_turned(sh.a, p);
#pragma unroll
        for (int n = 0; n < kV; n++) {
          const int64_t c0 = (part * kV + n) * kTile;
          if (c0 < y.v_dim) {
            if (n > 0) {
              __syncthreads();
            }
            const bool bad = load_straight(sh.b, job.dout, sh.b2_at, c0, y.v_dim);
            add_tile(dv[n], sh, __syncthreads_or(bad), sees);
          }
        }
      }
      if (wants_dk) {
        __syncthreads();
        put_turned(sh.a, ds);
#pragma unroll
        for (int n = 0; n < kK; n++) {
          const int64_t c0 = (part * kK + n) * kTile;
          if (c0 < y.head_dim) {
            if (n > 0) {
              __syncthreads();
            }
            const bool bad = load_straight(sh.b, job.q, sh.b_at, c0, y.head_dim);
            add_tile(dk[n], sh, __syncthreads_or(bad), sees);
          }
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int64_t row = start + ty * 4 + i;
      if (row < s.extent) {
        if (wants_dk) {
          const int64_t at = job.dk.at(s.k_index, s.k_first + row, kv_head);
#pragma unroll
          for (int n = 0; n < kK; n++) {
            write_four(job.dk, at, (part * kK + n) * kTile + tx * 4, y.head_dim, dk[n][i],
                       job.c.scale, s.count < 0);
          }
        }
        if (wants_dv) {
          const int64_t at = job.dv.at(s.k_index, s.k_first + row, kv_head);
#pragma unroll
          for (int n = 0; n < kV; n++) {
            write_four(job.dv, at, (part * kV + n) * kTile + tx * 4, y.v_dim, dv[n][i], 1.0f,
                       s.count < 0);
          }
        }
      }
    }
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif

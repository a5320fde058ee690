/**
 * Attention forward of one query a sequence on Hopper: the kernel's arguments, which keys a
 * sequence has, and the addition of partial sums.
 *
 * A chunk's sums are those of its units, folded in the order of the keys: by the warp that has all
 * of them or, where other warps have some, by the block that adds the chunks, with the same
 * operations. Each block of a cluster adds a part of the elements. All warps send their sums to its
 * shared memory (st.async), which counts them on a barrier, so that a block waits for nothing else.
 */
#ifndef TGI_OPS_ATTENTION_FEW_SUMS_SM90_CUH
#define TGI_OPS_ATTENTION_FEW_SUMS_SM90_CUH

#include "cuda/mbarrier.cuh"
#include "cuda/mma.cuh"
#include "ops/attention/cuda/attention_hidden.cuh"
#include "ops/attention/sm90/attention_few_plan_sm90.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** Steps in bytes. */
struct few_cluster_job {
  const char *k, *v; /* what is loaded first comes first */
  int64_t k_batch, v_batch, k_head, v_head;
  uint32_t k_row, v_row;
  int begin, end;           /* keys that are seen, without lengths */
  int keys, run, fold;      /* of a unit; entries of a warp; units of an entry are 1 << fold */
  int first;                /* sequence of the launch */
  bool lengths;             /* these are on the device */
  int group, each, inverse; /* fours of elements of a block; 2^16 / each */
  int entries, chunk;       /* of a sequence, at most; of a chunk they are 1 << chunk */
  int shift;                /* blocks of a cluster are 1 << shift */
  const char *q;
  int64_t q_batch, q_head;
  float exponent; /* scores, after the cap, to exponents of 2 */
  float softcap, cap_by;
  uint16_t *out;
  int64_t out_batch, out_head; /* in elements */
  float *lse;                  /* NULL: not wanted */
  any_vector sinks;
  const int32_t *key_start, *key_count, *query_start;
  int extent;
  key_rule rule;
  fault_site start_site, count_site;
};

/** Sums of entries: groups of four elements, and the maximum and sum of each head. */
struct few_lines {
  float4 *fours; /* [entry][each] */
  float2 *ends;  /* [entry][group] */
};

struct few_range {
  int begin, end;
  bool bad; /* the data is out of range */
};

/** The keys that sequence b's query sees. */
__device__ __forceinline__ few_range read_range(const few_cluster_job &job, int b)
{
  const int first = job.key_start ? job.key_start[b] : 0;
  const bool start = first < 0 || first > job.extent;
  const int most = start ? job.extent : job.extent - first;
  const int count = job.key_count ? job.key_count[b] : most, value = start ? first : count;
  const bool bad = start || value < 0 || value > most;
  if (bad && threadIdx.x == 0 && blockIdx.x == 0 && blockIdx.y == 0) {
    record_fault(start ? job.start_site : job.count_site, b, value, 0, most);
  }
  query_place x = {};
  x.first = first;
  x.end = first + (bad ? 0 : count);
  x.position = near_position(job.query_start ? job.query_start[b] : first + count - 1);
  const key_span seen = span_of(job.rule, x, 0);
  return bad || seen.high <= seen.low ? few_range{0, 0, bad}
                                      : few_range{seen.low, seen.high, false};
}

/** The groups of four elements that the block adds: `count` of them, from `from` on. */
struct few_share {
  int from, count;
};

__device__ __forceinline__ few_share share_of(const few_cluster_job &job, int fours)
{
  const int from = (int)blockIdx.x * job.each;
  return {from, max(0, min(job.each, fours - from))};
}

/** Entries of a sequence. */
__device__ __forceinline__ int parts_of(const few_cluster_job &job, const few_range &seen)
{
  const int keys = job.keys << job.fold;
  return (seen.end - seen.begin + keys - 1) / keys;
}

/** A row's sums so far: the maximum of its exponents, and the sum of its powers. */
struct few_top {
  float top, sum;
};

/** Adds a unit's maximum and sum. Returns the factors of the elements so far, and of the unit's. */
__device__ __forceinline__ float2 fold_ends(few_top &to, float2 unit)
{
  const float top = fmaxf(to.top, unit.x), base = top > -CUDART_INF_F ? top : 0.0f;
  const float2 by = {exp2_flushed(to.top - base), exp2_flushed(unit.x - base)};
  to.top = top;
  to.sum = fmaf(unit.y, by.y, to.sum * by.x);
  return by;
}

__device__ __forceinline__ float4 fold_four(float4 to, float2 by, float4 unit)
{
  return make_float4(fmaf(unit.x, by.y, to.x * by.x), fmaf(unit.y, by.y, to.y * by.x),
                     fmaf(unit.z, by.y, to.z * by.x), fmaf(unit.w, by.y, to.w * by.x));
}

/** Sends a warp's `count` entries, from `first` on, to the blocks that add them. `own`: where they
 * are. */
__device__ __forceinline__ void send_entries(const few_cluster_job &job, const few_lines &own,
                                             const few_lines &come, mbarrier *all_here, int first,
                                             int count, int fours)
{
  const int lane = threadIdx.x % kWarp;
#pragma unroll 1
  for (int entry = 0; entry < count; entry++) {
    const float4 *const line = own.fours + entry * fours;
    const float2 *const ends = own.ends + entry * job.group;
#pragma unroll 4
    for (int four = lane; four < fours; four += kWarp) {
      const int block = four * job.inverse >> 16;
      store_counted(come.fours + ((first + entry) * job.each + four - block * job.each), all_here,
                    block, line[four]);
    }
#pragma unroll 1
    for (int i = lane; i < job.group << job.shift; i += kWarp) {
      const int head = i >> job.shift, block = i - (head << job.shift);
      store_counted(come.ends + ((first + entry) * job.group + head), all_here, block, ends[head]);
    }
  }
}

/** Computes for two heads, from r on, the factors of chunks and of folded units. By a warp, a lane
 * for each chunk. The sum includes the sink; writes lse. */
__device__ __forceinline__ void weigh_chunks(const few_cluster_job &job, const few_lines &come,
                                             float2 *folds, float (&weights)[kClusterRows][kChunks],
                                             int b, int r, int parts, bool bad)
{
  const int l = threadIdx.x % kChunks, heads = job.group;
  r += (int)threadIdx.x % kWarp / kChunks;
  const int at = min(r, heads - 1), first = l << job.chunk;
  const int head = (int)blockIdx.y * heads + at;
  const float sink = job.sinks.data ? job.sinks.at(head) : -CUDART_INF_F;
  few_top chunk = {-CUDART_INF_F, 0};
  if (job.chunk == 0) {
    if (first < parts) {
      const float2 end = come.ends[first * heads + at];
      chunk = {end.x, end.y};
    }
  } else {
    float2 end[kMostUnits];
#pragma unroll
    for (int unit = 0; unit < kMostUnits; unit++) {
      const bool exists = unit < 1 << job.chunk && first + unit < parts;
      end[unit] = exists ? come.ends[(first + unit) * heads + at] : make_float2(-CUDART_INF_F, 0);
    }
    chunk = {end[0].x, end[0].y};
#pragma unroll
    for (int unit = 1; unit < kMostUnits; unit++) {
      if (unit < 1 << job.chunk && first + unit < parts) {
        const float2 by = fold_ends(chunk, end[unit]);
        if (r < heads) {
          folds[(first + unit) * heads + at] = by;
        }
      }
    }
  }
  float top = chunk.top;
#pragma unroll
  for (int i = kChunks / 2; i > 0; i /= 2) {
    top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, i));
  }
  const float base = top > -CUDART_INF_F ? top : 0.0f, by = exp2_flushed(chunk.top - base);
  float sum = chunk.sum * by;
#pragma unroll
  for (int i = kChunks / 2; i > 0; i /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, i);
  }
  const row_result result = finish_row(top, bad ? CUDART_NAN_F : sum, sink);
  if (r < heads) {
    weights[r][l] = by * result.factor;
    if (job.lse && l == 0 && blockIdx.x == 0) {
      job.lse[(int64_t)b * gridDim.y * heads + head] = result.lse;
    }
  }
}

/** Adds chunks first .. first + 3 of a group of four elements. `each`: distance between entries. */
__device__ __forceinline__ float4 add_chunks(const few_cluster_job &job, const float4 *fours,
                                             int each, const float2 *folds, const float *weights,
                                             int first, int parts)
{
  float4 v[4], sum = {0, 0, 0, 0};
  const int entry = first << job.chunk;
#pragma unroll
  for (int c = 0; c < 4; c++) {
    const int mine = entry + (c << job.chunk);
    v[c] = mine < parts ? fours[mine * each] : float4{0, 0, 0, 0};
  }
#pragma unroll 1
  for (int unit = 1; unit < 1 << job.chunk; unit++) { /* four independent chains */
#pragma unroll
    for (int c = 0; c < 4; c++) {
      const int mine = entry + (c << job.chunk) + unit;
      if (mine < parts) {
        v[c] = fold_four(v[c], folds[mine * job.group], fours[mine * each]);
      }
    }
  }
#pragma unroll
  for (int c = 0; c < 4; c++) {
    if (entry + (c << job.chunk) < parts) {
      const float by = weights[first + c];
      sum = make_float4(fmaf(v[c].x, by, sum.x), fmaf(v[c].y, by, sum.y), fmaf(v[c].z, by, sum.z),
                        fmaf(v[c].w, by, sum.w));
    }
  }
  return sum;
}

/** Adds this block's part of the elements, once all have arrived, and stores it. A warp has eight
 * groups of four at a time, a lane of each eight for every four chunks. */
template <typename T, int kCols>
__device__ __forceinline__ void add_entries(const few_cluster_job &job, const few_lines &come,
                                            float2 *folds, int b, const few_range &seen)
{
  __shared__ float weights[kClusterRows][kChunks];
  constexpr int kFours = kCols / 4; /* of a head */
  const int warps = (int)blockDim.x / kWarp, warp = threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp, parts = parts_of(job, seen);
  const few_share mine = share_of(job, job.group * kFours);
  for (int r = warp * 2; r < job.group; r += 2 * warps) {
    weigh_chunks(job, come, folds, weights, b, r, parts, seen.bad);
  }
  __syncthreads();
#pragma unroll 1
  for (int i = warp * 8; i < mine.count; i += warps * 8) {
    const int four = min(i + lane % 8, mine.count - 1);
    const int r = (mine.from + four) / kFours, column = (mine.from + four) % kFours * 4;
    const float4 part =
        add_chunks(job, come.fours + four, job.each, folds + r, weights[r], lane / 8 * 4, parts);
    float sum[4] = {part.x, part.y, part.z, part.w};
#pragma unroll
    for (int k = 0; k < 4; k++) { /* the parts in order */
      const float more[3] = {__shfl_sync(kAllLanes, sum[k], lane % 8 + 8),
                             __shfl_sync(kAllLanes, sum[k], lane % 8 + 16),
                             __shfl_sync(kAllLanes, sum[k], lane % 8 + 24)};
      sum[k] = seen.bad ? CUDART_NAN_F : ((sum[k] + more[0]) + more[1]) + more[2];
    }
    if (lane < 8 && i + lane < mine.count) {
      const uint32_t words[2] = {round_pair<T>(sum[0], sum[1]), round_pair<T>(sum[2], sum[3])};
      store_words(job.out + b * job.out_batch + ((int)blockIdx.y * job.group + r) * job.out_head +
                      column,
                  words);
    }
  }
}

/* ---- host ---- */

inline few_cluster_job cluster_job_of(const tg_context *ctx, const tg_attention_fwd_args *a,
                                      const few_cluster_plan &p)
{
  few_cluster_job job = {};
  job.q = static_cast<const char *>(a->q.data);
  job.k = static_cast<const char *>(a->k.data);
  job.v = static_cast<const char *>(a->v.data);
  job.q_batch = 2 * tgi_stride(&a->q, 0);
  job.q_head = 2 * tgi_stride(&a->q, 2);
  job.k_batch = 2 * tgi_stride(&a->k, 0);
  job.k_head = 2 * tgi_stride(&a->k, 2);
  job.v_batch = 2 * tgi_stride(&a->v, 0);
  job.v_head = 2 * tgi_stride(&a->v, 2);
  job.k_row = (uint32_t)(2 * tgi_stride(&a->k, 1));
  job.v_row = (uint32_t)(2 * tgi_stride(&a->v, 1));
  job.end = (int)p.l.extent;
  job.begin = p.window > 0 && p.window < job.end ? job.end - p.window : 0;
  job.keys = p.keys;
  job.run = p.run;
  job.group = (int)p.l.group;
  while (p.folds && 1 << job.fold < p.units) {
    job.fold++;
  }
  while (!p.folds && 1 << job.chunk < p.units) {
    job.chunk++;
  }
  job.entries = p.entries;
  while (1 << job.shift < p.blocks) {
    job.shift++;
  }
  job.each = p.each;
  job.inverse = (65535 + p.each) / p.each;
  job.lengths = p.lengths;
  job.exponent = (a->softcap > 0 ? 1.0f : a->scale) * kLog2E;
  job.softcap = a->softcap;
  job.cap_by = a->softcap > 0 ? a->scale / a->softcap : 0.0f;
  job.out = static_cast<uint16_t *>(a->out.data);
  job.out_batch = tgi_stride(&a->out, 0);
  job.out_head = tgi_stride(&a->out, 2);
  job.lse = static_cast<float *>(a->lse.data);
  job.sinks = {a->sinks.data, a->sinks.dtype};
  job.key_start = p.l.key_start;
  job.key_count = p.l.key_count;
  job.query_start = p.l.query_start;
  job.extent = (int)p.l.extent;
  job.rule = {a->causal, p.window};
  job.start_site = FAULT_SITE(ctx, attention_fwd, key_start);
  job.count_site = FAULT_SITE(ctx, attention_fwd, key_count);
  return job;
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif

/** Attention forward on tensor cores: the plan, which the host decides from a call's shapes and the
 * number of multiprocessors alone. */
#ifndef TGI_OPS_ATTENTION_FWD_PLAN_CUH
#define TGI_OPS_ATTENTION_FWD_PLAN_CUH

#include "ops/attention/cuda/attention_work.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

struct attention_fwd_plan {
  bool taken;
  bool tf32; /* of f32 elements; else they have 16 bits */
  tgi_attention_layout l;
  int window;     /* 0: masks nothing */
  int qk, values; /* elements of a head that products cover */
  int rows, keys; /* of a tile */
  int splits;     /* of the keys; a second kernel adds their sums. 1: none */
  int sides;      /* 1: rows see all keys up to some last one; 2: from some first one on */
  bool lengths;   /* some are on the device: a scheduler kernel lists the tiles */
  bool narrow;    /* attention_fwd_narrow_sm90.cuh */
  bool longest_first, counted; /* counted: blocks take items through an atomic counter */
  int chunk, half;             /* query_work */
  int blocks;
  int shift;      /* of costs, in the list */
  int64_t places; /* of the list */
  size_t records, bytes;
  size_t sums, ends; /* of splits, in the workspace */
};

/** One function and file for each range of head sizes, because they compile slowly. */
tg_status run_attention_fwd_64(const tg_context *ctx, const tg_attention_fwd_args *a,
                               const attention_fwd_plan &p);
tg_status run_attention_fwd_96(const tg_context *ctx, const tg_attention_fwd_args *a,
                               const attention_fwd_plan &p);
tg_status run_attention_fwd_128(const tg_context *ctx, const tg_attention_fwd_args *a,
                                const attention_fwd_plan &p);
tg_status run_attention_fwd_192(const tg_context *ctx, const tg_attention_fwd_args *a,
                                const attention_fwd_plan &p);
tg_status run_attention_fwd_256(const tg_context *ctx, const tg_attention_fwd_args *a,
                                const attention_fwd_plan &p);

/** The same of f32, for all head sizes. */
tg_status run_attention_fwd_tf32(const tg_context *ctx, const tg_attention_fwd_args *a,
                                 const attention_fwd_plan &p);

namespace
{

constexpr int kFewQueries = 16, kFewRows = 64, kFewKeys = 256;

/** True if reading the keys bounds the call: a tile of 128 queries of one head would be mostly
 * padding, and each head of a group would read its keys separately. */
inline bool has_few_queries(const tgi_attention_layout &l)
{
  return !l.packed_q && !l.packed_k &&
         (l.nq <= kFewQueries || (l.nq * l.group <= kFewRows && l.extent > kFewKeys));
}

/** True if 32-bit counters suffice for the extents. */
inline bool has_counters(const tg_attention_fwd_args *a, const tgi_attention_layout &l)
{
  return l.nq < kMostRows && l.extent < kMostRows && l.batch > 0 &&
         l.batch * l.q_heads * divide_up(l.nq, 64) < INT32_MAX / 2 &&
         (a->window < kMostWindow || !tgi_present(&a->query_start));
}

/** True if tiles can compute the call. Block tables, few queries and extents beyond 32-bit counters
 * go to other kernels. */
inline bool takes_shape(const tg_attention_fwd_args *a, const tgi_attention_layout &l)
{
  return !l.has_table && !has_few_queries(l) && has_counters(a, l);
}

/** Chunks of heads, where keys and values exceed so many second-level caches: as many heads as fill
 * the multiprocessors `waves` times with the longer half of their tiles. */
inline void set_chunks(const tg_context *ctx, attention_fwd_plan &p, double caches, int waves)
{
  const int64_t tiles = divide_up(p.l.nq, p.rows), pairs = p.l.batch * p.l.q_heads;
  const double bytes = (p.tf32 ? 4.0 : 2.0) * (double)(p.l.batch * p.l.kv_heads * p.l.extent) *
                       (double)(p.l.head_dim + p.l.v_dim);
  p.chunk = (int)pairs;
  p.half = (int)tiles;
  if (bytes > caches * (double)ctx->device->l2_bytes) {
    const int64_t half = (tiles + 1) / 2, fill = waves * ctx->device->multiprocessors / half;
    const int64_t chunk = divide_up(fill > 1 ? fill : 1, p.l.group) * p.l.group;
    if (chunk < pairs) {
      p.chunk = (int)chunk;
      p.half = (int)half;
    }
  }
}

/** Products cover 64, 96, 128, 192 or 256 elements; 0: a head has more. */
inline int elements_of(const tgi_attention_layout &l)
{
  static const int sizes[] = {64, 96, 128, 192, 256};
  const int64_t widest = l.head_dim > l.v_dim ? l.head_dim : l.v_dim;
  int elements = 0;
  for (int i = 4; i >= 0; i--) {
    elements = widest <= sizes[i] ? sizes[i] : elements;
  }
  return elements;
}

/** 192 has a variant with values of 128. */
inline void set_elements(attention_fwd_plan &p)
{
  p.qk = elements_of(p.l);
  p.values = p.qk == 192 && p.l.v_dim <= 128 ? 128 : p.qk;
}

/** The call as if the rows of every tensor were vectors, for the size of its workspace. */
inline tg_attention_fwd_args shapes_alone(tg_attention_fwd_args shapes)
{
  tg_tensor *const tensors[] = {&shapes.q, &shapes.k, &shapes.v, &shapes.out};
  for (tg_tensor *t : tensors) {
    forget_memory(t);
  }
  return shapes;
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif

/* Attention backward on CUDA, without tensor cores.
 *
 * Method     p is recomputed from the saved lse, tile by tile (arXiv:2307.08691, section 3.1).
 *            First delta; then dq; then dk and dv. Both recompute the scores, so every element of a
 *            result is one thread's sum in a fixed order.
 * Work       dq: a thread block for 64 rows (attention_sequences.cuh) of one kv head. dk, dv: a
 *            block for 64 keys of one kv head, which loops over the rows of all its heads; both at
 *            once up to 128 elements, else one after the other. Up to 256 elements of a head for a
 *            block. dsinks: a block for a head.
 * Sums       Tiles of 64 are summed separately before they are added.
 * Bound      f32 arithmetic: 7 products of tiles, where 5 are the minimum.
 */
#include "ops/attention/any/attention_gradient.cuh"
#include "ops/attention/cuda/attention_bwd_calls.cuh"
#include "ops/attention/cuda/attention_portable.cuh"
#include "ops/kernels.cuh"

namespace
{

constexpr int kDeltaThreads = 128;

/** delta by the same operations as dp in multiply_rows: where a row sees one key, out is its value
 * and dp - delta is exactly 0. A thread for a row. */
template <typename T>
__global__ void __launch_bounds__(kDeltaThreads)
    attention_bwd_delta_kernel(const bwd_job<T> job, int64_t rows)
{
  const tgi_attention_layout &l = job.c.l;
  for (int64_t i = blockIdx.x * (int64_t)kDeltaThreads + threadIdx.x; i < rows;
       i += gridDim.x * (int64_t)kDeltaThreads) {
    const int64_t head = i % l.q_heads, query = i / l.q_heads % l.nq, index = i / l.q_heads / l.nq;
    const T *dout = job.dout.data + job.dout.at(index, query, head);
    const T *out = job.out.data + job.out.at(index, query, head);
    float sum = 0;
    for (int64_t c = 0; c < l.v_dim; c += kPiece) {
      float x[kPiece], y[kPiece];
      load_piece(x, dout + c, l.v_dim - c, job.dout.aligned);
      load_piece(y, out + c, l.v_dim - c, job.out.aligned);
#pragma unroll
      for (int k = 0; k < kPiece; k++) {
        sum = fmaf(x[k], y[k], sum);
      }
    }
    job.delta[(index * l.q_heads + head) * l.nq + query] = sum;
  }
}

/* ---- host ---- */

struct bwd_plan {
  tgi_attention_layout l;
  bool lengths, joint; /* joint: dk and dv together */
  size_t records, bytes;
};

bwd_plan plan_bwd(const tg_attention_bwd_args *a)
{
  bwd_plan p = {};
  p.l = tgi_attention_bwd_layout(a);
  p.lengths = has_lengths(p.l, &a->key_start, &a->key_count, &a->query_start);
  p.joint = p.l.head_dim <= 2 * kTile && p.l.v_dim <= 2 * kTile;
  p.records = record_bytes(p.l, p.lengths);
  p.bytes = p.records + (size_t)(a->q.shape[0] * p.l.q_heads * p.l.nq) * sizeof(float);
  return p;
}

template <typename T>
tg_status run_queries(const tg_context *ctx, const bwd_plan &p, bwd_job<T> job)
{
  const int chunks = p.l.head_dim <= kTile ? 1 : p.l.head_dim <= 2 * kTile ? 2 : 4;
  job.q_parts = divide_up(p.l.head_dim, chunks * kTile);
  const dim3 grid = grid_of(job.row_places * p.l.kv_heads * job.q_parts);
  switch (chunks) {
  case 1:
    return launch(ctx, attention_bwd_queries_kernel<T, 1>, grid, kTileThreads, 0, job);
  case 2:
    return launch(ctx, attention_bwd_queries_kernel<T, 2>, grid, kTileThreads, 0, job);
  default:
    return launch(ctx, attention_bwd_queries_kernel<T, 4>, grid, kTileThreads, 0, job);
  }
}

template <typename T> tg_status run_keys(const tg_context *ctx, const bwd_plan &p, bwd_job<T> job)
{
  const int64_t blocks = job.key_places * p.l.kv_heads;
  if (p.l.head_dim <= kTile && p.l.v_dim <= kTile) {
    return launch(ctx, attention_bwd_keys_kernel<T, 1, 1>, grid_of(blocks), kTileThreads, 0, job);
  }
  if (p.joint) {
    return launch(ctx, attention_bwd_keys_kernel<T, 2, 2>, grid_of(blocks), kTileThreads, 0, job);
  }
  job.q_parts = divide_up(p.l.head_dim, 4 * kTile);
  job.v_parts = divide_up(p.l.v_dim, 4 * kTile);
  tg_status status = TG_OK;
  if (job.dk.data) {
    status = launch(ctx, attention_bwd_keys_kernel<T, 4, 0>, grid_of(blocks * job.q_parts),
                    kTileThreads, 0, job);
  }
  if (status == TG_OK && job.dv.data) {
    status = launch(ctx, attention_bwd_keys_kernel<T, 0, 4>, grid_of(blocks * job.v_parts),
                    kTileThreads, 0, job);
  }
  return status;
}

template <typename T>
tg_status run_bwd(const tg_context *ctx, const tg_attention_bwd_args *a, const bwd_plan &p)
{
  bwd_job<T> job = {};
  job.c.l = p.l;
  job.c.scale = a->scale;
  job.c.softcap = a->softcap;
  job.dout = view_of<const T>(&a->dout);
  job.q = view_of<const T>(&a->q);
  job.k = view_of<const T>(&a->k);
  job.v = view_of<const T>(&a->v);
  job.out = view_of<const T>(&a->out);
  job.dq = view_of<T>(&a->dq);
  job.dk = view_of<T>(&a->dk);
  job.dv = view_of<T>(&a->dv);
  job.lse = static_cast<const float *>(a->lse.data);
  job.delta = reinterpret_cast<float *>(static_cast<char *>(a->workspace) + p.records);
  job.row_places = tile_places(p.l.batch, p.l.nq * p.l.group, p.l.packed_q, kTile);
  job.key_places = tile_places(p.l.batch, p.l.extent, p.l.packed_k, kTile);
  const int64_t rows = a->q.shape[0] * p.l.q_heads * p.l.nq;
  tg_status status = TG_OK;
  if (p.lengths) {
    job.c.records = static_cast<tgi_attention_sequence *>(a->workspace);
    status = read_lengths(ctx, a, p.l);
  }
  if (status == TG_OK) {
    status = launch(ctx, attention_bwd_delta_kernel<T>, grid_of(divide_up(rows, kDeltaThreads)),
                    kDeltaThreads, 0, job, rows);
  }
  if (status == TG_OK && tgi_present(&a->dq) && p.l.batch > 0) {
    status = run_queries(ctx, p, job);
  }
  if (status == TG_OK && (tgi_present(&a->dk) || tgi_present(&a->dv)) && p.l.batch > 0) {
    status = run_keys(ctx, p, job);
  }
  return status == TG_OK ? add_to_sinks(ctx, a, p.l, job.delta) : status;
}

} // namespace

inline namespace TGI_CUDA_ENTRY
{

size_t plain_attention_bwd_bytes(const tg_attention_bwd_args *a)
{
  return plan_bwd(a).bytes;
}

tg_status run_plain_attention_bwd(const tg_context *ctx, const tg_attention_bwd_args *a)
{
  const bwd_plan p = plan_bwd(a);
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->q.dtype, T, status = run_bwd<T>(ctx, a, p));
  return status;
}

void tell_plain_attention_bwd(const tg_attention_bwd_args *a, char *text, size_t bytes)
{
  const bwd_plan p = plan_bwd(a);
  snprintf(text, bytes, "f32 multiply-adds, tiles of %d rows and %d keys, dk and dv %s", kTile,
           kTile, p.joint ? "together" : "one after the other");
}

} // namespace TGI_CUDA_ENTRY

PLAIN_ATTENTION_ENTRY(attention_bwd)

/* Attention forward on CUDA, without tensor cores.
 *
 * Method     Running softmax (arXiv:1805.02867) over tiles of 64 keys (arXiv:2307.08691): scores in
 *            registers, probabilities and values through shared memory, f32 throughout.
 * Work       A thread block for 64 rows (attention_sequences.cuh) of one kv head, or 16 where a
 *            sequence has no more, and up to 256 elements of the values. A sequence's last rows
 *            come first, since a causal mask gives them most keys. Where a sequence's rows fit one
 *            tile (decoding), its keys are split (split-KV): a block for each split writes partial
 *            sums, and a second kernel adds them in order. Tiles and splits depend on shapes alone.
 * Bound      f32 arithmetic: two products of tiles, 16 multiply-adds for 2 reads of shared memory.
 */
#include "ops/attention/any/attention_rows.cuh"
#include "ops/attention/cuda/attention_portable.cuh"
#include "ops/attention/cuda/attention_records.cuh"
#include "ops/kernels.cuh"

namespace
{

/* ---- host ---- */

struct fwd_plan {
  tgi_attention_layout l;
  bool lengths;
  int tile_rows, chunks; /* chunks: of 64 elements of the values in a block */
  int64_t splits;
  size_t records, bytes;
};

fwd_plan plan_fwd(const tg_attention_fwd_args *a)
{
  fwd_plan p = {};
  p.l = tgi_attention_fwd_layout(a);
  p.lengths = has_lengths(p.l, &a->key_start, &a->key_count, &a->query_start);
  const int64_t rows = p.l.nq * p.l.group;
  p.tile_rows = !p.l.packed_q && rows <= 16 ? 16 : kTile;
  p.chunks = p.l.v_dim <= kTile ? 1 : p.l.v_dim <= 2 * kTile ? 2 : 4;
  p.splits = 1;
  if (!p.l.packed_q && !p.l.packed_k && rows <= kTile && p.l.extent > kSplitKeys) {
    p.splits = divide_up(p.l.extent, kSplitKeys);
  }
  p.records = record_bytes(p.l, p.lengths);
  p.bytes = p.records;
  if (p.splits > 1) {
    p.bytes +=
        (size_t)(p.l.batch * p.l.kv_heads * p.splits * rows * (p.l.v_dim + 2)) * sizeof(float);
  }
  return p;
}

template <typename T, int kI>
tg_status run_tiles(const tg_context *ctx, const fwd_plan &p, const fwd_job<T> &job)
{
  const dim3 grid = grid_of(job.places * p.l.kv_heads * job.parts * job.splits);
  switch (p.chunks) {
  case 1:
    return launch(ctx, attention_fwd_kernel<T, kI, 1>, grid, kTileThreads, 0, job);
  case 2:
    return launch(ctx, attention_fwd_kernel<T, kI, 2>, grid, kTileThreads, 0, job);
  default:
    return launch(ctx, attention_fwd_kernel<T, kI, 4>, grid, kTileThreads, 0, job);
  }
}

template <typename T>
tg_status run_fwd(const tg_context *ctx, const tg_attention_fwd_args *a, const fwd_plan &p)
{
  fwd_job<T> job = {};
  job.c.l = p.l;
  job.c.scale = a->scale;
  job.c.softcap = a->softcap;
  job.q = view_of<const T>(&a->q);
  job.k = view_of<const T>(&a->k);
  job.v = view_of<const T>(&a->v);
  job.out = view_of<T>(&a->out);
  job.lse = static_cast<float *>(a->lse.data);
  job.sinks = {a->sinks.data, a->sinks.dtype};
  job.places = tile_places(p.l.batch, p.l.nq * p.l.group, p.l.packed_q, p.tile_rows);
  job.parts = divide_up(p.l.v_dim, p.chunks * kTile);
  job.splits = p.splits;
  job.sums = reinterpret_cast<float *>(static_cast<char *>(a->workspace) + p.records);
  tg_status status = TG_OK;
  if (p.lengths) {
    tgi_attention_sequence *records = static_cast<tgi_attention_sequence *>(a->workspace);
    const attention_sites sites = {
        FAULT_SITE(ctx, attention_fwd, cu_seqlens_q), FAULT_SITE(ctx, attention_fwd, cu_seqlens_k),
        FAULT_SITE(ctx, attention_fwd, key_start), FAULT_SITE(ctx, attention_fwd, key_count),
        FAULT_SITE(ctx, attention_fwd, block_table)};
    job.c.records = records;
    status =
        launch(ctx, attention_sequences_kernel, dim3(1), kRecordThreads, 0, p.l, sites, records);
  }
  if (status == TG_OK && p.l.batch > 0) {
    status = p.tile_rows == kTile ? run_tiles<T, 4>(ctx, p, job) : run_tiles<T, 1>(ctx, p, job);
  }
  if (status == TG_OK && p.splits > 1) {
    status = launch(ctx, attention_fwd_combine_kernel<T>, grid_of(p.l.batch * p.l.q_heads * p.l.nq),
                    kCombineThreads, 0, job);
  }
  return status;
}

} // namespace

inline namespace TGI_CUDA_ENTRY
{

size_t plain_attention_fwd_bytes(const tg_attention_fwd_args *a)
{
  return plan_fwd(a).bytes;
}

tg_status run_plain_attention_fwd(const tg_context *ctx, const tg_attention_fwd_args *a)
{
  const fwd_plan p = plan_fwd(a);
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->q.dtype, T, status = run_fwd<T>(ctx, a, p));
  return status;
}

void tell_plain_attention_fwd(const tg_attention_fwd_args *a, char *text, size_t bytes)
{
  const fwd_plan p = plan_fwd(a);
  snprintf(text, bytes, "f32 multiply-adds, tiles of %d rows and %d keys, %lld splits of the keys",
           p.tile_rows, kTile, (long long)p.splits);
}

} // namespace TGI_CUDA_ENTRY

PLAIN_ATTENTION_ENTRY(attention_fwd)

/* Attention backward on Hopper, by tensor cores.
 *
 * Method     Two kernels, as on any GPU: dq, and dk with dv, each with the scores computed anew, so
 *            that every element is one sum in a fixed order. The first one makes delta, too, by the
 *            products that make dp: where a row sees one key, dp - delta is exactly 0.
 * Work       dq: a block for 128 queries of a head. dk, dv: a block for 128 keys of a kv head,
 *            which takes the queries of all its heads.
 * Bound      Tensor cores: 7 products of tiles where the fewest possible are 5.
 * Takes      f16 and bf16, heads of up to 128 elements, in steps of 8; tensors whose rows are
 *            16-byte vectors.
 */
#include "ops/attention/attention_bwd_keys_sm90.cuh"
#include "ops/attention/attention_bwd_queries_sm90.cuh"
#include "ops/attention/attention_bwd_sinks.cuh"

namespace
{

struct bwd_plan {
  bool taken, lengths;
  tgi_attention_layout l;
  int d, window;
  size_t records, bytes;
};

bool has_pages_or_nothing(const tg_tensor *t)
{
  return !tgi_present(t) || has_pages(t);
}

bwd_plan plan_bwd(const tg_attention_bwd_args *a)
{
  bwd_plan p = {};
  p.l = tgi_attention_bwd_layout(a);
  p.lengths = has_lengths(p.l, &a->key_start, &a->key_count, &a->query_start);
  const int64_t widest = p.l.head_dim > p.l.v_dim ? p.l.head_dim : p.l.v_dim;
  p.d = widest <= 64 ? 64 : widest <= 96 ? 96 : 128;
  p.taken = widest <= 128 && has_pages(&a->q) && has_pages(&a->k) && has_pages(&a->v) &&
            has_pages(&a->out) && has_pages(&a->dout) && has_pages_or_nothing(&a->dq) &&
            has_pages_or_nothing(&a->dk) && has_pages_or_nothing(&a->dv) && p.l.nq < kMostRows &&
            p.l.extent < kMostRows && p.l.batch > 0 &&
            (a->window < kMostWindow || !tgi_present(&a->query_start));
  p.window = a->window < kMostWindow ? a->window : 0;
  p.records = record_bytes(p.l, p.lengths);
  p.bytes =
      p.taken ? p.records + (size_t)(a->q.shape[0] * p.l.q_heads * p.l.nq) * sizeof(float) : 0;
  return p;
}

template <typename S>
tg_status run_shape(const tg_context *ctx, const tg_attention_bwd_args *a, const bwd_plan &p,
                    bwd_job job)
{
  CUtensorMap q_tile, q_block, k_tile, k_block, v_tile, v_block, dout_tile, dout_block, out, dq, dk,
      dv;
  const struct {
    CUtensorMap *map;
    const tg_tensor *of;
    int rows;
  } maps[] = {
      {&q_tile, &a->q, kGroupRows},
      {&q_block, &a->q, S::kQueries},
      {&k_tile, &a->k, S::kTileRows},
      {&k_block, &a->k, S::kKeys},
      {&v_tile, &a->v, S::kTileRows},
      {&v_block, &a->v, S::kKeys},
      {&dout_tile, &a->dout, kGroupRows},
      {&dout_block, &a->dout, S::kQueries},
      {&out, &a->out, kGroupRows},
      {&dq, tgi_present(&a->dq) ? &a->dq : &a->q, kGroupRows},
      {&dk, tgi_present(&a->dk) ? &a->dk : &a->k, kGroupRows},
      {&dv, tgi_present(&a->dv) ? &a->dv : &a->v, kGroupRows},
  };
  tg_status status = TG_OK;
  for (size_t i = 0; i < sizeof maps / sizeof maps[0] && status == TG_OK; i++) {
    status = make_page_map(ctx, maps[i].of, maps[i].rows, maps[i].map);
  }
  job.work.size = S::kTileRows;
  job.work.keys = S::kKeys;
  job.places = tile_places(p.l.batch, p.l.nq, p.l.packed_q, S::kTileRows);
  job.packed = p.l.packed_q;
  if (status == TG_OK) {
    status = launch(ctx, attention_bwd_dq_kernel<S>, grid_of(job.places * p.l.q_heads), S::kThreads,
                    sizeof(queries_shared<S>), q_tile, k_block, v_block, dout_tile, out, dq, job);
  }
  job.places = tile_places(p.l.batch, p.l.extent, p.l.packed_k, S::kTileRows);
  job.packed = p.l.packed_k;
  if (status == TG_OK && (job.dk.data || job.dv.data)) {
    status =
        launch(ctx, attention_bwd_dkv_kernel<S>, grid_of(job.places * p.l.kv_heads), S::kThreads,
               sizeof(keys_shared<S>), q_block, k_tile, v_tile, dout_block, dk, dv, job);
  }
  return status;
}

template <typename T>
tg_status run_bwd(const tg_context *ctx, const tg_attention_bwd_args *a, const bwd_plan &p,
                  const bwd_job &job)
{
  if (a->softcap > 0) {
    return p.d == 64   ? run_shape<bwd_shape<T, 64, 64, 96, true>>(ctx, a, p, job)
           : p.d == 96 ? run_shape<bwd_shape<T, 96, 80, 64, true>>(ctx, a, p, job)
                       : run_shape<bwd_shape<T, 128, 80, 64, true>>(ctx, a, p, job);
  }
  return p.d == 64   ? run_shape<bwd_shape<T, 64, 128, 128, false>>(ctx, a, p, job)
         : p.d == 96 ? run_shape<bwd_shape<T, 96, 96, 64, false>>(ctx, a, p, job)
                     : run_shape<bwd_shape<T, 128, 80, 64, false>>(ctx, a, p, job);
}

} // namespace

extern "C" size_t TGI_WORKSPACE(attention_bwd)(const tg_context *, const tg_attention_bwd_args *a)
{
  return plan_bwd(a).bytes;
}

extern "C" tg_status TGI_KERNEL(attention_bwd)(const tg_context *ctx,
                                               const tg_attention_bwd_args *a)
{
  const bwd_plan p = plan_bwd(a);
  if (!p.taken) {
    return TG_UNSUPPORTED;
  }
  tg_status status = TG_OK;
  bwd_job job = {};
  job.c.l = p.l;
  job.c.scale = a->scale;
  job.c.softcap = a->softcap;
  job.work.rule = {a->causal, p.window};
  job.work.q_heads = (int)p.l.q_heads;
  job.work.group = (int)p.l.group;
  job.work.nq = (int)p.l.nq;
  job.dq = view_of<uint16_t>(&a->dq);
  job.dk = view_of<uint16_t>(&a->dk);
  job.dv = view_of<uint16_t>(&a->dv);
  job.lse = static_cast<const float *>(a->lse.data);
  job.delta = reinterpret_cast<float *>(static_cast<char *>(a->workspace) + p.records);
  job.exponent = (a->softcap > 0 ? 1.0f : a->scale) * kLog2E;
  job.cap_by = a->softcap > 0 ? a->scale / a->softcap : 0.0f;
  job.scale = a->scale;
  job.cap = a->softcap;
  job.head_dim = (int)p.l.head_dim;
  job.v_dim = (int)p.l.v_dim;
  if (p.lengths) {
    tgi_attention_sequence *records = static_cast<tgi_attention_sequence *>(a->workspace);
    const attention_sites sites = {
        FAULT_SITE(ctx, attention_bwd, cu_seqlens_q), FAULT_SITE(ctx, attention_bwd, cu_seqlens_k),
        FAULT_SITE(ctx, attention_bwd, key_start), FAULT_SITE(ctx, attention_bwd, key_count),
        FAULT_SITE(ctx, attention_bwd, key_count)}; /* no blocks here */
    job.c.records = records;
    status =
        launch(ctx, attention_sequences_kernel, dim3(1), kRecordThreads, 0, p.l, sites, records);
  }
  if (status == TG_OK) {
    status = a->q.dtype == TG_F16 ? run_bwd<f16>(ctx, a, p, job) : run_bwd<bf16>(ctx, a, p, job);
  }
  if (status == TG_OK && tgi_present(&a->dsinks)) {
    status = launch(ctx, attention_bwd_sinks_kernel, grid_of(p.l.q_heads), kSinkThreads, 0,
                    a->q.shape[0], p.l.q_heads, p.l.nq, job.lse, (const float *)job.delta,
                    any_vector{a->sinks.data, a->sinks.dtype}, a->dsinks.data, a->dsinks.dtype);
  }
  return status;
}

extern "C" void TGI_PLAN(attention_bwd)(const tg_context *, const tg_attention_bwd_args *a,
                                        char *text, size_t bytes)
{
  const bwd_plan p = plan_bwd(a);
  if (p.taken) {
    snprintf(text, bytes, "wgmma, dq by 128 queries, then dk and dv by 128 keys, %d elements", p.d);
  }
}

/** Attention forward on tensor cores: launches a planned call. First what its tiles read on the
 * device, then the tiles. */
#ifndef TGI_OPS_ATTENTION_FWD_ITEMS_CUH
#define TGI_OPS_ATTENTION_FWD_ITEMS_CUH

#include "ops/attention/cuda/attention_fwd_plan.cuh"
#include "ops/attention/cuda/attention_list.cuh"
#include "ops/attention/cuda/attention_records.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** By one thread. A kernel rather than a memset, because programmatic dependent launch lets the
 * next kernel begin before this one ends. */
__global__ void attention_clear_kernel(int *count)
{
  let_next_begin();
  *count = 0;
}

/** Launches what prepares the work items on the device. */
inline tg_status prepare_items(const tg_context *ctx, const tg_attention_fwd_args *a,
                               const attention_fwd_plan &p)
{
  if (!p.lengths) {
    return p.counted ? launch(ctx, attention_clear_kernel, dim3(1), 1, 0,
                              static_cast<int *>(a->workspace))
                     : TG_OK;
  }
  tgi_attention_sequence *records = static_cast<tgi_attention_sequence *>(a->workspace);
  const attention_sites sites = {
      FAULT_SITE(ctx, attention_fwd, cu_seqlens_q), FAULT_SITE(ctx, attention_fwd, cu_seqlens_k),
      FAULT_SITE(ctx, attention_fwd, key_start), FAULT_SITE(ctx, attention_fwd, key_count),
      FAULT_SITE(ctx, attention_fwd, block_table)};
  const attention_call c = {p.l, records, a->scale, a->softcap};
  query_work w = {};
  w.rule = {a->causal, p.window};
  w.size = p.rows;
  w.keys = p.keys;
  w.list = reinterpret_cast<query_list *>(static_cast<char *>(a->workspace) + p.records);
  tg_status status =
      launch(ctx, attention_sequences_kernel, dim3(1), kRecordThreads, 0, p.l, sites, records);
  if (status == TG_OK) {
    status =
        launch_next(ctx, attention_list_kernel, dim3(1), kListThreads, 0, c, w, p.places, p.shift);
  }
  return status;
}

/** Launches the tiles of a planned call. */
inline tg_status run_planned(const tg_context *ctx, const tg_attention_fwd_args *a,
                             const attention_fwd_plan &p)
{
  const tg_status status = prepare_items(ctx, a, p);
  if (status != TG_OK) {
    return status;
  }
  switch (p.qk) {
  case 64:
    return run_attention_fwd_64(ctx, a, p);
  case 96:
    return run_attention_fwd_96(ctx, a, p);
  case 128:
    return run_attention_fwd_128(ctx, a, p);
  case 192:
    return run_attention_fwd_192(ctx, a, p);
  default:
    return run_attention_fwd_256(ctx, a, p);
  }
}

/** The order of a plan's tiles, in words. */
inline const char *order_of(const attention_fwd_plan &p)
{
  return p.lengths ? "listed" : p.longest_first ? "longest first" : "in order";
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif

/** Attention backward by mma.sync: the plan, which the host decides from a call's shapes and the
 * GPU's shared memory alone. */
#ifndef TGI_OPS_ATTENTION_BWD_PLAN_SM80_CUH
#define TGI_OPS_ATTENTION_BWD_PLAN_SM80_CUH

#include "ops/attention/sm80/attention_bwd_job_sm80.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

struct attention_bwd_plan {
  bool taken, lengths;
  bool tf32; /* of f32 elements; else they have 16 bits */
  bool adds; /* dq is summed by the kernel of dk and dv */
  tgi_attention_layout l;
  int window, qk, values; /* elements of a head that products cover */
  bool little;            /* shared memory is 99 KiB */
  int rows, keys;         /* dq: queries of a tile, and keys of a block */
  int tile_keys, queries; /* dk, dv: keys of a tile; where dq is summed, queries of a block */
  int shift;              /* of costs, in the list */
  int64_t places;         /* of tiles of queries */
  int64_t sums;           /* blocks of queries that dq is summed in */
  size_t records, list, terms, bytes;
};

/** Launches dq, and dk with dv. One function and file for each range of head sizes, because they
 * compile slowly. What they read on the device exists already, delta too. */
tg_status run_attention_bwd_64(const tg_context *ctx, const tg_attention_bwd_args *a,
                               const attention_bwd_plan &p);
tg_status run_attention_bwd_96(const tg_context *ctx, const tg_attention_bwd_args *a,
                               const attention_bwd_plan &p);
tg_status run_attention_bwd_128(const tg_context *ctx, const tg_attention_bwd_args *a,
                                const attention_bwd_plan &p);
tg_status run_attention_bwd_192(const tg_context *ctx, const tg_attention_bwd_args *a,
                                const attention_bwd_plan &p);
tg_status run_attention_bwd_256(const tg_context *ctx, const tg_attention_bwd_args *a,
                                const attention_bwd_plan &p);

/** The same of f32, for all sizes of heads. */
tg_status run_attention_bwd_tf32(const tg_context *ctx, const tg_attention_bwd_args *a,
                                 const attention_bwd_plan &p);

namespace
{

inline bwd_tiles_job job_of(const tg_attention_bwd_args *a, const attention_bwd_plan &p)
{
  bwd_tiles_job job = {};
  char *const memory = static_cast<char *>(a->workspace);
  query_work &w = job.work;
  w = work_of(p.l, {a->causal, p.window}, p.rows, p.keys);
  w.longest_first = a->causal && p.window == 0 && !p.lengths;
  w.list = p.lengths ? reinterpret_cast<query_list *>(memory + p.records) : NULL;
  job.c.l = p.l;
  job.c.records = p.lengths ? reinterpret_cast<tgi_attention_sequence *>(memory) : NULL;
  job.c.scale = a->scale;
  job.c.softcap = a->softcap;
  job.q = words_of<const uint16_t>(&a->q);
  job.k = words_of<const uint16_t>(&a->k);
  job.v = words_of<const uint16_t>(&a->v);
  job.out = words_of<const uint16_t>(&a->out);
  job.dout = words_of<const uint16_t>(&a->dout);
  job.dq = words_of<uint16_t>(&a->dq);
  job.dk = words_of<uint16_t>(&a->dk);
  job.dv = words_of<uint16_t>(&a->dv);
  job.lse = static_cast<const float *>(a->lse.data);
  job.delta = reinterpret_cast<float *>(memory + p.records + p.list);
  job.sums = p.adds ? job.delta + p.terms / sizeof(float) : NULL;
  job.head_dim = (int)p.l.head_dim;
  job.v_dim = (int)p.l.v_dim;
  job.key_items = tile_places(p.l.batch, p.l.extent, p.l.packed_k, p.tile_keys) * p.l.kv_heads;
  job.scale = a->scale;
  job.softcap = a->softcap;
  job.exponent = (a->softcap > 0 ? 1.0f : a->scale) * kLog2E;
  job.cap_by = a->softcap > 0 ? a->scale / a->softcap : 0.0f;
  return job;
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif

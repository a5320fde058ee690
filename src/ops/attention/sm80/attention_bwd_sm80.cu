/* Attention backward by mma.sync, on GPUs from compute capability 8.0 on: the plan and the entry's
 * functions.
 *
 * Method     As in attention_bwd.cu (arXiv:2307.08691, section 3.1): delta; then dq; then dk and
 *            dv. Both recompute the scores by tensor cores, so every element is one sum in a fixed
 *            order. p and the gradients of scores, rounded, are register operands. Where any order
 *            is allowed, up to 128 elements, the kernel of dk and dv also adds dq to sums in
 *            memory.
 * Work       dq: a thread block for 128 queries of a head, as in the forward. dk, dv: a block for
 *            128 keys of a kv head, which loops over the queries of its group's heads. Above 128
 *            elements: a block for 64 keys, in which pairs of warps share the products of 16 keys;
 *            where shared memory is 99 KiB, 64 queries and 32 keys.
 * f32        With allow_tf32, by the same kernels: what a tile keeps (q and dout, or k and v) is
 *            rounded to TF32 in shared memory, all else where it becomes an operand. 64 queries or
 *            keys where heads have more than 64 elements and shared memory is below 200 KiB. Always
 *            in the fixed order.
 * Bits       The bits of an element depend on extents, mask, head_dim and shared memory.
 * Bound      Tensor cores and shared memory: 7 products of tiles, where 5 are the minimum.
 * Takes      As attention_sm80.cu: heads of up to 256 elements, of f32 up to 128, in steps of 8.
 *            All else goes to the kernels of attention_bwd.cu.
 */
#include "ops/attention/cuda/attention_bwd_calls.cuh"
#include "ops/attention/cuda/attention_list.cuh"
#include "ops/attention/cuda/attention_portable.cuh"
#include "ops/attention/sm80/attention_bwd_plan_sm80.cuh"
#include "ops/attention/sm80/attention_plan_sm80.cuh"
#include "ops/kernels.cuh"

namespace
{

/** True if the rows of the call's tensors are vectors. */
bool have_vectors(const tg_attention_bwd_args *a, bool tf32)
{
  const tg_tensor *const needed[] = {&a->q, &a->k, &a->v, &a->out, &a->dout};
  const tg_tensor *const wanted[] = {&a->dq, &a->dk, &a->dv};
  bool have = true;
  for (const tg_tensor *t : needed) {
    have = have && has_vectors(t, tf32);
  }
  for (const tg_tensor *t : wanted) {
    have = have && (!tgi_present(t) || has_vectors(t, tf32));
  }
  return have;
}

/** Queries of a tile, keys of a block, and keys of a tile, as products and shared memory allow. */
void set_tiles(attention_bwd_plan &p)
{
  const bool wide = p.qk > 128;
  p.rows = wide && p.little ? 64 : 128;
  p.keys = p.qk == 64 || (p.qk == 192 && !p.little) ? 64 : 32;
  p.tile_keys = !wide ? 128 : p.little ? 32 : 64;
}

/** The same of f32: products cover 64 or 128 elements of a head. */
void set_tiles_tf32(const tg_context *ctx, attention_bwd_plan &p)
{
  p.qk = p.values = p.qk == 96 ? 128 : p.qk;
  const bool little = p.qk == 128 && ctx->device->shared_bytes < kLargeShared;
  p.rows = p.tile_keys = little ? 64 : 128;
  p.keys = little ? 16 : 32;
}

attention_bwd_plan plan_bwd(const tg_context *ctx, const tg_attention_bwd_args *a)
{
  attention_bwd_plan p = {};
  const tgi_attention_layout l = tgi_attention_bwd_layout(a);
  const int64_t widest = l.head_dim > l.v_dim ? l.head_dim : l.v_dim;
  p.l = l;
  p.tf32 = allows_tf32(a);
  p.taken = widest <= (p.tf32 ? 128 : 256) && l.nq < kMostRows && l.extent < kMostRows &&
            l.batch > 0 && l.batch * l.q_heads * divide_up(l.nq, 64) < INT32_MAX / 2 &&
            l.batch * l.kv_heads * divide_up(l.extent, 32) < INT32_MAX / 2 &&
            (a->window < kMostWindow || !tgi_present(&a->query_start)) && have_vectors(a, p.tf32);
  if (!p.taken) {
    return p;
  }
  p.window = a->window < kMostWindow ? a->window : 0;
  p.qk = widest <= 64 ? 64 : widest <= 96 ? 96 : widest <= 128 ? 128 : widest <= 192 ? 192 : 256;
  p.values = p.qk == 192 && l.v_dim <= 128 ? 128 : p.qk;
  p.little = ctx->device->shared_bytes < kMediumShared;
  p.queries = p.qk == 64 ? 32 : 64;
  if (p.tf32) {
    set_tiles_tf32(ctx, p);
  } else {
    set_tiles(p);
  }
  p.lengths = has_lengths(l, &a->key_start, &a->key_count, &a->query_start);
  p.places = tile_places(l.batch, l.nq, l.packed_q, p.rows);
  p.records = record_bytes(l, p.lengths);
  p.list =
      p.lengths
          ? (offsetof(query_list, place) + (size_t)p.places * sizeof(query_place) + 255) / 256 * 256
          : 0;
  const size_t rows = (size_t)(a->q.shape[0] * l.q_heads * l.nq);
  p.adds = a->allow_nondeterministic && !p.tf32 && tgi_present(&a->dq) &&
           (tgi_present(&a->dk) || tgi_present(&a->dv)) &&
           (p.qk == 64 || (p.qk <= 128 && !p.little));
  p.terms = (rows * sizeof(float) + 255) / 256 * 256;
  p.sums = p.adds ? tile_places(l.batch, l.nq, l.packed_q, p.queries) * l.q_heads : 0;
  p.bytes = p.records + p.list + p.terms + (size_t)(p.sums * p.queries * p.qk) * sizeof(float);
  while (l.extent / p.keys >> p.shift >= kCosts) {
    p.shift++;
  }
  return p;
}

/** Prepares what tiles read on the device: records of sequences, and a list of tiles. */
tg_status prepare_lengths(const tg_context *ctx, const tg_attention_bwd_args *a,
                          const attention_bwd_plan &p, const bwd_tiles_job &job)
{
  tg_status status = read_lengths(ctx, a, p.l);
  if (status == TG_OK) {
    status = launch(ctx, attention_list_kernel, dim3(1), kListThreads, 0, job.c, job.work, p.places,
                    p.shift);
  }
  return status;
}

/** The kernels before the tiles: lengths, the list of tiles, and delta. */
template <typename T>
tg_status prepare_tiles(const tg_context *ctx, const tg_attention_bwd_args *a,
                        const attention_bwd_plan &p, const bwd_tiles_job &job)
{
  const int64_t squares = divide_up(p.l.nq, 16) * p.l.q_heads * a->q.shape[0];
  const tg_status status = p.lengths ? prepare_lengths(ctx, a, p, job) : TG_OK;
  return status == TG_OK ? launch(ctx, attention_bwd_delta_tiles_kernel<T>,
                                  grid_of(divide_up(squares, kDeltaThreads / kWarp)), kDeltaThreads,
                                  0, job, squares)
                         : status;
}

template <typename T>
tg_status run_bwd(const tg_context *ctx, const tg_attention_bwd_args *a,
                  const attention_bwd_plan &p)
{
  const bwd_tiles_job job = job_of(a, p);
  tg_status status = prepare_tiles<T>(ctx, a, p, job);
  if (status == TG_OK) {
    if constexpr (kIsTf32<T>) {
      status = run_attention_bwd_tf32(ctx, a, p);
    } else {
      const auto run = p.qk == 64    ? run_attention_bwd_64
                       : p.qk == 96  ? run_attention_bwd_96
                       : p.qk == 128 ? run_attention_bwd_128
                       : p.qk == 192 ? run_attention_bwd_192
                                     : run_attention_bwd_256;
      status = run(ctx, a, p);
    }
  }
  return status == TG_OK ? add_to_sinks(ctx, a, p.l, job.delta) : status;
}

} // namespace

extern "C" size_t TGI_WORKSPACE(attention_bwd)(const tg_context *ctx,
                                               const tg_attention_bwd_args *a)
{
  const tg_attention_bwd_args shapes = shapes_alone(*a);
  const size_t plain = plain_attention_bwd_bytes(a), bytes = plan_bwd(ctx, &shapes).bytes;
  return bytes > plain ? bytes : plain;
}

extern "C" tg_status TGI_KERNEL(attention_bwd)(const tg_context *ctx,
                                               const tg_attention_bwd_args *a)
{
  const attention_bwd_plan p = plan_bwd(ctx, a);
  if (!p.taken) {
    return run_plain_attention_bwd(ctx, a);
  }
  return p.tf32                 ? run_bwd<tf32>(ctx, a, p)
         : a->q.dtype == TG_F16 ? run_bwd<f16>(ctx, a, p)
                                : run_bwd<bf16>(ctx, a, p);
}

extern "C" void TGI_PLAN(attention_bwd)(const tg_context *ctx, const tg_attention_bwd_args *a,
                                        char *text, size_t bytes)
{
  const attention_bwd_plan p = plan_bwd(ctx, a);
  if (!p.taken) {
    tell_plain_attention_bwd(a, text, bytes);
    return;
  }
  snprintf(text, bytes, "mma%s, tiles of %d, %d elements, dq %s, %s", p.tf32 ? " in TF32" : "",
           p.rows, p.qk, p.adds ? "added up with dk and dv" : "apart from dk and dv",
           p.lengths   ? "listed"
           : a->causal ? "longest first"
                       : "in order");
}

/* Attention forward by mma.sync, on GPUs from compute capability 8.0 on: the plans and the entry's
 * functions.
 *
 * Method     Running softmax (arXiv:1805.02867) over blocks of keys (arXiv:2307.08691), from the
 *            last one down. Products of f16 or bf16 accumulate in f32 registers; probabilities stay
 *            there and are the operand of the product with values. Only blocks of keys that some
 *            query of a warp does not see are masked.
 * Work       A thread block for 128 queries of a head: 32 for each of four warps up to 128
 *            elements, above that 16 for each of eight (four where shared memory is 99 KiB). The
 *            longest tiles come first where a causal mask makes them differ. With lengths on the
 *            device, a one-block scheduler kernel builds the tile list.
 * Few        Few queries (decoding) and block tables have a kernel of their own: tiles of 64 rows
 *            of a kv head's group, split-KV; the last block of a tile adds the splits
 *            (arXiv:2311.01282).
 * Bits       A row's bits depend on the blocks of keys, and so on extents, mask, head_dim and
 *            shared memory; with few queries on the splits, and so on shapes.
 * Bound      Tensor cores, and the instructions of a warp between its products; few queries:
 *            memory.
 * f32        With allow_tf32, by the same kernel: queries are rounded to TF32 in shared memory;
 *            keys, values and probabilities where they become operands. Elements have twice the
 *            bytes, so tiles differ.
 * Takes      f16 and bf16, heads of up to 256 elements; f32 with allow_tf32, heads of up to 128;
 *            both in steps of 8; tensors whose rows are 16-byte vectors. All else goes to the
 *            kernels of attention.cu: f32, packed queries with a block table, few queries of f32.
 */
#include "ops/attention/cuda/attention_fwd_items.cuh"
#include "ops/attention/cuda/attention_portable.cuh"
#include "ops/attention/sm80/attention_few_plan_sm80.cuh"
#include "ops/kernels.cuh"

namespace
{

/** Tiles of 16-bit elements, as registers and shared memory allow. */
void set_tiles(const tg_context *ctx, attention_fwd_plan &p)
{
  const bool medium = ctx->device->shared_bytes >= kMediumShared;
  p.rows = medium || p.qk <= 128 ? 128 : 64;
  p.keys = !medium && p.qk == 256 ? 32 : medium && p.qk == 64 ? 96 : 64;
}

/** The same of f32: products cover 64 or 128 elements of a head. */
void set_tiles_tf32(const tg_context *ctx, attention_fwd_plan &p)
{
  const bool large = ctx->device->shared_bytes > kLargeShared;
  p.qk = p.values = p.qk == 96 ? 128 : p.qk;
  p.rows = p.qk == 64 ? 128 : large ? 256 : 64;
  p.keys = p.qk == 128 && large ? 64 : 32;
}

attention_fwd_plan plan_fwd(const tg_context *ctx, const tg_attention_fwd_args *a)
{
  attention_fwd_plan p = {};
  p.l = tgi_attention_fwd_layout(a);
  p.tf32 = allows_tf32(a);
  set_elements(p);
  p.taken = takes_shape(a, p.l) && p.qk > 0 && (p.qk <= 128 || !p.tf32) &&
            has_vectors(&a->q, p.tf32) && has_vectors(&a->k, p.tf32) &&
            has_vectors(&a->v, p.tf32) && has_vectors(&a->out, p.tf32);
  if (!p.taken) {
    return p;
  }
  if (p.tf32) {
    set_tiles_tf32(ctx, p);
  } else {
    set_tiles(ctx, p);
  }
  p.window = a->window < kMostWindow ? a->window : 0;
  p.lengths = has_lengths(p.l, &a->key_start, &a->key_count, &a->query_start);
  p.longest_first = a->causal && p.window == 0 && !p.lengths;
  set_chunks(ctx, p, 1.6, 1);
  p.places = tile_places(p.l.batch, p.l.nq, p.l.packed_q, p.rows);
  p.records = record_bytes(p.l, p.lengths);
  p.bytes = p.lengths
                ? p.records + offsetof(query_list, place) + (size_t)p.places * sizeof(query_place)
                : 0;
  while (p.l.extent / p.keys >> p.shift >= kCosts) {
    p.shift++;
  }
  return p;
}

tg_status run_planned_tf32(const tg_context *ctx, const tg_attention_fwd_args *a,
                           const attention_fwd_plan &p)
{
  const tg_status status = prepare_items(ctx, a, p);
  return status == TG_OK ? run_attention_fwd_tf32(ctx, a, p) : status;
}

} // namespace

/** From shapes alone, whether or not rows turn out to be vectors. */
extern "C" size_t TGI_WORKSPACE(attention_fwd)(const tg_context *ctx,
                                               const tg_attention_fwd_args *a)
{
  const tg_attention_fwd_args shapes = shapes_alone(*a);
  const size_t plain = plain_attention_fwd_bytes(a), tiles = plan_fwd(ctx, &shapes).bytes;
  const size_t few = plan_few(ctx, &shapes).bytes, most = few > tiles ? few : tiles;
  return most > plain ? most : plain;
}

extern "C" tg_status TGI_KERNEL(attention_fwd)(const tg_context *ctx,
                                               const tg_attention_fwd_args *a)
{
  const attention_few_plan few = plan_few(ctx, a);
  if (few.taken) {
    return run_few(ctx, a, few);
  }
  const attention_fwd_plan p = plan_fwd(ctx, a);
  if (!p.taken) {
    return run_plain_attention_fwd(ctx, a);
  }
  return p.tf32 ? run_planned_tf32(ctx, a, p) : run_planned(ctx, a, p);
}

extern "C" void TGI_PLAN(attention_fwd)(const tg_context *ctx, const tg_attention_fwd_args *a,
                                        char *text, size_t bytes)
{
  const attention_few_plan few = plan_few(ctx, a);
  if (few.taken) {
    snprintf(text, bytes,
             "mma, tiles of %d rows, %d splits of %d keys, %d elements, ring of %d x %d", few.rows,
             few.splits, few.keys, few.elements, few.stages, kStageKeys);
    return;
  }
  const attention_fwd_plan p = plan_fwd(ctx, a);
  if (!p.taken) {
    tell_plain_attention_fwd(a, text, bytes);
    return;
  }
  snprintf(text, bytes, "mma%s, tiles of %d rows and %d keys, %d elements, %s",
           p.tf32 ? " in TF32" : "", p.rows, p.keys, p.qk, order_of(p));
}

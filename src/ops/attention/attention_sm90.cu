/* Attention forward on Hopper, by tensor cores.
 *
 * Method     Running softmax (arXiv:1805.02867) over blocks of keys (arXiv:2307.08691), the scores
 *            of a block made beside the values of the one before (arXiv:2407.08608): a warpgroup
 *            has 64 queries, their scores, probabilities and results in registers; products by
 *            wgmma, tiles by TMA. Blocks of keys from the last one down; those that hold keys that
 *            some query does not see go through a mask, the others do not.
 * Work       One thread block for each multiprocessor takes tiles of 64 to 192 queries of a head,
 *            the longest first where a causal mask makes them differ. With lengths on the device, a
 *            kernel of one block lists the tiles beforehand, and blocks of the grid count them out.
 *            Where a sequence has few tiles, its keys are split, and a second kernel adds.
 * Bits       A row's depend on the blocks of keys and on splits, and so on the extents, the mask,
 *            head_dim and the number of heads.
 * Bound      Tensor cores; on an H200 the power that they take. Exponentials take half as long.
 * Takes      f16 and bf16, heads of up to 256 elements, in steps of 8; tensors whose rows are
 *            16-byte vectors. Not blocks of keys by a table, and not few queries, for which the
 *            next entry has a kernel.
 */
#include "cuda/tma.cuh"
#include "ops/attention/attention_fwd_add_sm90.cuh"
#include "ops/attention/attention_fwd_items.cuh"

namespace
{

/** Items of each multiprocessor from which on it pays to count them out instead of giving each
 * block its share beforehand: the counter must be cleared, which takes 2 us. In chunks of heads the
 * longest are not all in front, and shares would differ by a third. */
constexpr int kManyItems = 8;

/** Windows up to here take smaller blocks of keys: what is computed and hidden is less. */
constexpr int kNarrowWindow = 256;

/** Queries of a tile, as registers go. Of heads of 64 elements three warpgroups have most in a
 * time; where that leaves multiprocessors idle, fewer have smaller tiles. */
int rows_of_tile(const tg_context *ctx, const tg_attention_fwd_args *a, const attention_fwd_plan &p)
{
  if (p.qk > 64 || a->softcap > 0) {
    return 128;
  }
  if (p.sides == 2 || p.lengths || p.l.packed_q) {
    return 192;
  }
  static const struct {
    int rows, clocks; /* of a tile and a block of keys */
  } sizes[] = {{192, 2500}, {128, 1900}, {64, 1300}};
  int rows = 0;
  double least = 0;
  for (const auto &size : sizes) {
    const int64_t items = p.l.batch * p.l.q_heads * divide_up(p.l.nq, size.rows) * p.splits;
    const double time = (double)divide_up(items, ctx->device->multiprocessors) * size.clocks;
    if (rows == 0 || time < 0.9 * least) {
      rows = size.rows;
      least = time;
    }
  }
  return rows;
}

/** Splits of the keys: as many as make up to 128 items of a sequence by tiles of 128 queries, of at
 * least 512 keys each. Its own shape alone decides, for its bits depend on it, and so its sums take
 * no more than 8.5 MB. */
int splits_of_keys(const attention_fwd_plan &p)
{
  if ((p.qk != 64 && p.qk != 128) || p.sides == 2 || p.lengths || p.l.packed_q || p.l.packed_k) {
    return 1;
  }
  const int64_t tiles = p.l.q_heads * divide_up(p.l.nq, 128);
  const int64_t by_tiles = tiles > 0 ? 128 / tiles : 1, by_keys = p.l.extent / 512;
  const int64_t most = by_tiles < by_keys ? by_tiles : by_keys;
  return (int)(most < 2 ? 1 : most < kMostSplits ? most : kMostSplits);
}

/** What registers and shared memory hold; 160 are 1 to 2 % faster than 128 where there are many
 * blocks, and slower with a causal mask. */
int keys_of_block(const tg_attention_fwd_args *a, const attention_fwd_plan &p)
{
  if (p.qk == 256) {
    return p.sides == 2 ? 64 : 80;
  }
  if (p.values == 192) {
    return 112;
  }
  if (p.qk == 64 && p.window > 0 && p.window <= kNarrowWindow && a->softcap == 0) {
    return 64;
  }
  const bool many = p.splits == 1 && !a->causal && !p.l.packed_k && p.l.extent >= 4096;
  return p.qk == 128 && p.sides == 1 && many ? 160 : 128;
}

attention_fwd_plan plan_fwd(const tg_context *ctx, const tg_attention_fwd_args *a)
{
  attention_fwd_plan p = {};
  p.l = tgi_attention_fwd_layout(a);
  set_elements(p);
  p.taken = takes_shape(a, p.l) && p.qk > 0 && has_pages(&a->q) && has_pages(&a->k) &&
            has_pages(&a->v) && has_pages(&a->out);
  if (!p.taken) {
    return p;
  }
  p.window = a->window < kMostWindow ? a->window : 0;
  p.lengths = has_lengths(p.l, &a->key_start, &a->key_count, &a->query_start);
  p.sides = p.window > 0 || a->softcap > 0 || tgi_present(&a->key_start) ? 2 : 1;
  p.splits = splits_of_keys(p);
  p.rows = rows_of_tile(ctx, a, p);
  p.keys = keys_of_block(a, p);
  p.longest_first = a->causal && p.window == 0 && !p.lengths;
  set_chunks(ctx, p);
  p.places = tile_places(p.l.batch, p.l.nq, p.l.packed_q, p.rows);
  const bool uneven = p.longest_first || divide_up(p.l.nq, kGroupRows) % divide_up(p.l.nq, p.rows);
  const bool chunks = p.longest_first && p.chunk < p.l.batch * p.l.q_heads;
  const int64_t items = p.places * p.l.q_heads * p.splits;
  p.counted = uneven && !p.lengths && (chunks || items > kManyItems * ctx->device->multiprocessors);
  p.records = record_bytes(p.l, p.lengths);
  p.bytes = p.lengths
                ? p.records + offsetof(query_list, place) + (size_t)p.places * sizeof(query_place)
            : p.counted ? sizeof(int)
                        : 0;
  if (p.splits > 1) {
    const size_t rows = (size_t)(p.l.batch * p.l.q_heads * p.l.nq * p.splits);
    p.sums = 256; /* behind the counter */
    p.ends = p.sums + rows * (size_t)p.l.v_dim * sizeof(float);
    p.bytes = p.ends + rows * sizeof(float2);
  }
  while (p.l.extent / p.keys >> p.shift >= kCosts) {
    p.shift++;
  }
  p.blocks = (int)blocks_for(ctx, items, 1);
  return p;
}

} // namespace

extern "C" size_t TGI_WORKSPACE(attention_fwd)(const tg_context *ctx,
                                               const tg_attention_fwd_args *a)
{
  const tg_attention_fwd_args shapes = shapes_alone(*a);
  return plan_fwd(ctx, &shapes).bytes;
}

extern "C" tg_status TGI_KERNEL(attention_fwd)(const tg_context *ctx,
                                               const tg_attention_fwd_args *a)
{
  const attention_fwd_plan p = plan_fwd(ctx, a);
  if (!p.taken) {
    return TG_UNSUPPORTED;
  }
  const tg_status status = run_planned(ctx, a, p);
  return status == TG_OK && p.splits > 1 ? add_splits(ctx, a, p) : status;
}

extern "C" void TGI_PLAN(attention_fwd)(const tg_context *ctx, const tg_attention_fwd_args *a,
                                        char *text, size_t bytes)
{
  const attention_fwd_plan p = plan_fwd(ctx, a);
  if (p.taken) {
    char splits[40] = "";
    if (p.splits > 1) {
      snprintf(splits, sizeof splits, ", keys in %d splits", p.splits);
    }
    snprintf(text, bytes, "wgmma, tiles of %d rows and %d keys, %d elements%s, %s, %d blocks",
             p.rows, p.keys, p.qk, splits, order_of(p), p.blocks);
  }
}

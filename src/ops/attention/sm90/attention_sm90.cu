/* Attention forward on Hopper, by tensor cores: the plans and the entry's functions.
 *
 * Method     Running softmax (arXiv:1805.02867) over blocks of keys (arXiv:2307.08691), in a
 *            warp-specialised, persistent kernel (arXiv:2407.08608): a producer thread loads tiles
 *            by TMA into multi-stage pipelines; each consumer warp group has 64 queries and
 *            multiplies by wgmma. The scores of a block overlap with the values of the block
 *            before. Scores, probabilities and results stay in registers. Blocks go from the last
 *            one down; only those with keys that some query does not see are masked.
 * Work       One thread block for each multiprocessor; it loops over tiles of 64 to 192 queries of
 *            a head. The longest tiles come first where a causal mask makes them differ. With
 *            lengths on the device, a one-block scheduler kernel builds the tile list, and blocks
 *            take tiles through an atomic counter. Where a sequence has few tiles, its keys are
 *            split (split-KV), and a second kernel adds the parts.
 * Few        Decoding: one query a sequence, up to 8 heads for a kv head, of 64 or 128 elements, up
 *            to 1024 or 512 keys. Keys and values are loaded straight into registers; small batches
 *            use thread block clusters, whose blocks add in shared memory.
 * Bits       A row's bits depend on the blocks of keys and on splits, and so on the extents, the
 *            mask, head_dim and the number of heads.
 * Bound      Tensor cores, and on an H200 the power that they draw. Exponentials need half as long.
 * Takes      f16 and bf16, heads of up to 256 elements in steps of 8, and tensors whose rows are
 *            16-byte vectors. Block tables and other calls of few queries go to the next entry.
 */
#include "cuda/tma.cuh"
#include "ops/attention/cuda/attention_fwd_items.cuh"
#include "ops/attention/sm90/attention_few_plan_sm90.cuh"
#include "ops/attention/sm90/attention_fwd_add_sm90.cuh"
#include "ops/kernels.cuh"

namespace
{

/** Work items for each multiprocessor from which on an atomic counter pays, rather than fixed
 * shares: clearing the counter costs 1 us. In chunks of heads the longest items are not all in
 * front, and fixed shares would differ by a third. */
constexpr int kManyItems = 8;

/** Windows up to this many keys use smaller blocks of keys: less is computed and then masked. */
constexpr int kNarrowWindow = 256;

/** Up to this many tiles of a head, chunks of heads pay as soon as keys and values exceed the
 * second-level cache. */
constexpr int kFewTiles = 16;

/** Multiprocessors that splits are chosen for: those of an H100 (SXM) and an H200. */
constexpr int kSplitFor = 132;

struct tile_choice {
  int rows;
  double clocks; /* time of all tiles of the call */
};

/** The tile size that needs the least time for `pairs` heads of a sequence. Three warp groups have
 * the highest throughput at 64 elements. Smaller tiles are chosen only if they save a tenth, where
 * larger ones would leave multiprocessors idle. */
tile_choice best_tiles(const attention_fwd_plan &p, int64_t pairs, int splits, int multiprocessors)
{
  static const struct {
    int rows, clocks; /* of a tile and a block of keys */
  } sizes[] = {{192, 2500}, {128, 1900}, {64, 1300}};
  const int64_t blocks = divide_up(divide_up(p.l.extent, 128), splits);
  tile_choice best = {};
  for (const auto &size : sizes) {
    if (p.qk > 64 && size.rows != 128) {
      continue;
    }
    const int64_t rounds =
        divide_up(pairs * divide_up(p.l.nq, size.rows) * splits, multiprocessors);
    const double clocks = (double)(rounds * blocks) * size.clocks;
    if (best.rows == 0 || clocks < 0.9 * best.clocks) {
      best = {size.rows, clocks};
    }
  }
  return best;
}

/** Queries of a tile, as registers allow. */
int rows_of_tile(const tg_context *ctx, const tg_attention_fwd_args *a, const attention_fwd_plan &p)
{
  if (p.qk > 64 || a->softcap > 0) {
    return 128;
  }
  if (p.sides == 2 || p.lengths || p.l.packed_q) {
    return 192;
  }
  return best_tiles(p, p.l.batch * p.l.q_heads, p.splits, ctx->device->multiprocessors).rows;
}

/** The number of splits of the keys. Bits depend on it, so a sequence's own shape decides, as if it
 * ran alone on a GPU of 132 multiprocessors. Each further split must save a tenth. Writing a row's
 * sums of a split costs as much as 270 keys, and 2 us more; a batch may pay that without a gain. So
 * from 16 tiles on, a split must have more keys the more tiles a sequence has; beyond 512 tiles
 * there are no splits. */
int splits_of_keys(const attention_fwd_plan &p)
{
  if ((p.qk != 64 && p.qk != 128) || p.sides == 2 || p.lengths || p.l.packed_q || p.l.packed_k) {
    return 1;
  }
  const int64_t tiles = p.l.q_heads * divide_up(p.l.nq, 128);
  const int64_t keys = tiles > 16 ? 32 * tiles : 512;
  int splits = 1;
  double least = best_tiles(p, p.l.q_heads, 1, kSplitFor).clocks;
  for (int more = 2; tiles <= 512 && more <= kMostSplits && more * keys <= p.l.extent; more++) {
    const double clocks = best_tiles(p, p.l.q_heads, more, kSplitFor).clocks;
    if (clocks < 0.9 * least) {
      splits = more;
      least = clocks;
    }
  }
  return splits;
}

/** Keys of a block, as registers and shared memory allow. 160 are 1 to 2 % faster than 128 where
 * there are many blocks, and slower with a causal mask. */
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

/** True if 64 queries see two or three blocks of 64 keys, and the rows of each warp group begin at
 * a block's first key. The kernel for that computes three blocks. */
bool is_narrow(const tg_attention_fwd_args *a, const attention_fwd_plan &p)
{
  return p.qk == 64 && p.keys == 64 && a->causal && p.window > 65 && p.window <= 129 &&
         !p.lengths && (p.l.extent - p.l.nq) % 64 == 0;
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
  p.narrow = is_narrow(a, p);
  p.longest_first = a->causal && p.window == 0 && !p.lengths;
  set_chunks(ctx, p, 1.6, 1);
  if (divide_up(p.l.nq, p.rows) <= kFewTiles && p.chunk == p.l.batch * p.l.q_heads) {
    set_chunks(ctx, p, 1.0, 2);
  }
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
  if (!uneven && p.window == 0 && !p.lengths) {
    p.blocks =
        (int)divide_up(items, divide_up(items, p.blocks)); /* an equal number of tiles for each */
  }
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
  const few_cluster_plan few = plan_few_clusters(ctx, a);
  if (few.taken) {
    return run_few_clusters(ctx, a, few);
  }
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
  const few_cluster_plan few = plan_few_clusters(ctx, a);
  if (few.taken) {
    snprintf(text, bytes, "mma, chunks of %d keys, clusters of %d blocks of %d warps of %d %s",
             few.units * few.keys, few.blocks, few.warps, few.run, few.folds ? "chunks" : "units");
    return;
  }
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

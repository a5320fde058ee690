/* Attention backward on Hopper, by tensor cores: the plans and the entry's functions.
 *
 * Method     p is recomputed from the saved lse, tile by tile (arXiv:2307.08691, section 3.1). One
 *            kernel computes the terms of rows (lse, delta); a persistent, warp-specialised kernel
 *            computes blocks of keys, each with all queries that see them, in 5 products of tiles;
 *            a third kernel rounds dq, unless the last block to add to a tile does so.
 * Work       A block of keys has 128 keys of a kv head, or 64 above 128 elements. It loops over the
 *            queries of all its heads in tiles of 32 to 128, and keeps dk and dv in registers.
 *            Where there are few blocks, each is two work items with half of the heads. One thread
 *            block for each multiprocessor takes items through an atomic counter, with a causal
 *            mask the longer ones first, and heads in chunks whose sums of dq stay in the
 *            second-level cache.
 * Order      Partial sums of dq are added in memory in the order of the blocks of keys: a counter
 *            for each tile gives the turn. With allow_nondeterministic, up to 128 elements and
 *            without softcap, they are added in any order, to sums that the first kernel clears.
 * NaN        Rows with a NaN are recomputed along visible pairs alone.
 * Bound      Tensor cores, and the power that they draw.
 * Takes      f16 and bf16, heads of up to 256 elements in steps of 8, and tensors whose rows are
 *            16-byte vectors.
 */
#include "cuda/tma.cuh"
#include "ops/attention/cuda/attention_bwd_calls.cuh"
#include "ops/attention/sm90/attention_bwd_sums_sm90.cuh"
#include "ops/kernels.cuh"

namespace
{

constexpr double kCachedSums = 0.6; /* of the second-level cache */

/* Below so many blocks of keys each is two work items. Otherwise half of 132 multiprocessors would
 * have none or, with a causal mask, one or two of uneven length. From shapes alone, as the
 * workspace size is. */
constexpr int64_t kFew = 67, kFewCausal = 256;

constexpr int64_t kFewBlocks = 8; /* of keys of a pair */

bool has_pages_or_nothing(const tg_tensor *t)
{
  return !tgi_present(t) || has_pages(t);
}

bool takes_shape(const tg_attention_bwd_args *a, const attention_bwd_plan &p)
{
  return p.d > 0 && has_pages(&a->q) && has_pages(&a->k) && has_pages(&a->v) &&
         has_pages(&a->out) && has_pages(&a->dout) && has_pages_or_nothing(&a->dq) &&
         has_pages_or_nothing(&a->dk) && has_pages_or_nothing(&a->dv) && p.l.batch > 0 &&
         p.l.nq < kMostRows && p.l.extent < kMostRows &&
         p.query_tiles * p.l.q_heads < INT32_MAX / 2 &&
         p.key_tiles * p.l.kv_heads < INT32_MAX / 2 &&
         (a->window < kMostWindow || !tgi_present(&a->query_start));
}

/** Chunks of pairs (sequence, kv head) that run at one time. The fewer blocks of a pair run at
 * once, the shorter its last block waits for its first. But the blocks of a chunk share the sums of
 * dq in the second-level cache, where all sums are too many to stay there. In any order nothing
 * waits, so a chunk fills the multiprocessors once; so it does in order where pairs have few blocks
 * of equal length. */
void set_chunks(const tg_context *ctx, const tg_attention_bwd_args *a, attention_bwd_plan &p)
{
  const int64_t blocks = divide_up(p.l.extent, p.keys), pairs = p.l.batch * p.l.kv_heads;
  const int64_t half = a->causal ? (blocks + 1) / 2 : blocks;
  const int64_t wave = (int64_t)ctx->device->multiprocessors / (half * p.parts);
  const int64_t fill = 2 * (int64_t)ctx->device->multiprocessors / (half * p.parts);
  const int64_t cached = (int64_t)(kCachedSums * (double)ctx->device->l2_bytes) /
                         (p.l.nq * p.l.group * p.columns * (int64_t)sizeof(float));
  const bool alike = !a->causal && blocks <= kFewBlocks;
  const int64_t wanted = !p.ordered || alike ? wave : fill > cached ? fill : cached;
  const int64_t chunk = wanted > 1 ? wanted : 1;
  p.chunk = (int)(chunk < pairs ? chunk : pairs);
  p.half = (int)(chunk < pairs ? half : blocks);
}

/** The key from which on blocks add to second sums of dq; kMostRows: none. In order, the blocks of
 * a pair start one behind the other, two tiles' time apart. Where all run at once, two halves that
 * do not wait for each other start in half the time. With more blocks, or a mask, second sums cost
 * more than they save. From a sequence's shape alone, as if it ran alone on the GPU, because the
 * bits of dq depend on it. */
int64_t second_sums(const tg_attention_bwd_args *a, const attention_bwd_plan &p)
{
  const int64_t blocks = divide_up(p.l.extent, p.keys);
  const bool plain = !a->causal && p.window == 0 && !p.lengths;
  const bool one_round = blocks <= 2 * kFewBlocks && blocks * p.l.kv_heads < 2 * kFew;
  return p.ordered && p.rounds && plain && one_round && blocks > kFewBlocks ? blocks / 2 * p.keys
                                                                            : kMostRows;
}

/** Reserves n 4-byte values at the workspace's end so far; returns their offset. */
size_t put_words(attention_bwd_plan &p, int64_t n)
{
  const size_t at = p.bytes;
  p.bytes += ((size_t)n * 4 + 255) / 256 * 256;
  return at;
}

attention_bwd_plan plan_bwd(const tg_context *ctx, const tg_attention_bwd_args *a)
{
  attention_bwd_plan p = {};
  p.l = tgi_attention_bwd_layout(a);
  const int64_t widest = p.l.head_dim > p.l.v_dim ? p.l.head_dim : p.l.v_dim;
  p.d = widest <= 64    ? 64
        : widest <= 96  ? 96
        : widest <= 128 ? 128
        : widest <= 192 ? 192
        : widest <= 256 ? 256
                        : 0;
  p.values = p.d == 192 && p.l.v_dim <= 128 && !(a->softcap > 0) ? 128 : p.d;
  p.columns = p.d == 96 ? 128 : p.d;
  p.keys = p.d > 128 ? 64 : 128;
  /* As registers allow. A masked tile costs as much as a whole one, so tiles are smaller with
   * masks. */
  const bool masks = a->causal || a->window > 0;
  p.queries = p.d > 128             ? 64
              : a->softcap > 0      ? (p.d == 128 ? 32 : 64)
              : p.d == 64           ? 128
              : p.d == 96 || !masks ? 80
                                    : 64;
  p.query_tiles = tile_places(p.l.batch, p.l.nq, p.l.packed_q, p.queries);
  p.key_tiles = tile_places(p.l.batch, p.l.extent, p.l.packed_k, p.keys);
  p.taken = takes_shape(a, p);
  if (!p.taken) {
    return p;
  }
  p.window = a->window < kMostWindow ? a->window : 0;
  p.lengths = has_lengths(p.l, &a->key_start, &a->key_count, &a->query_start);
  p.ordered = !a->allow_nondeterministic || a->softcap > 0 || p.d > 128;
  p.rounds = tgi_present(&a->dq) && p.d <= 128 && !(p.ordered && p.d == 64);
  const int64_t blocks = p.key_tiles * p.l.kv_heads;
  const bool few = blocks < (a->causal ? kFewCausal : kFew);
  p.parts = few && p.d <= 128 && p.l.group % 2 == 0 ? 2 : 1;
  set_chunks(ctx, a, p);
  p.second_from = second_sums(a, p);
  const int64_t rows = p.query_tiles * p.l.q_heads * p.queries;
  const int64_t sums = p.second_from < kMostRows ? 2 : 1;
  p.bytes = record_bytes(p.l, p.lengths);
  p.places = put_words(p, blocks * p.parts * (int64_t)(sizeof(key_place) / 4));
  p.sums = put_words(p, tgi_present(&a->dq) ? sums * rows * p.columns : 0);
  p.minus = put_words(p, rows);
  p.delta = put_words(p, rows);
  p.turns = put_words(p, sums * p.query_tiles * p.l.q_heads);
  p.lost_tile = put_words(p, p.query_tiles * p.l.q_heads);
  p.counts = put_words(p, counts_of(p));
  p.part_sums = put_words(p, p.parts > 1 ? blocks * kJoined * kGroupRows * p.d : 0);
  p.sink_delta = put_words(p, tgi_present(&a->dsinks) ? a->q.shape[0] * p.l.q_heads * p.l.nq : 0);
  return p;
}

template <typename T>
tg_status run_bwd(const tg_context *ctx, const tg_attention_bwd_args *a,
                  const attention_bwd_plan &p)
{
  const bwd_job job = job_of(a, p);
  const auto terms = p.l.v_dim <= 64    ? attention_bwd_terms_kernel<T, 8>
                     : p.l.v_dim <= 128 ? attention_bwd_terms_kernel<T, 16>
                                        : attention_bwd_terms_kernel<T, 32>;
  const auto run = p.d == 64    ? run_attention_bwd_64
                   : p.d == 96  ? run_attention_bwd_96
                   : p.d == 128 ? run_attention_bwd_128
                   : p.d == 192 ? run_attention_bwd_192
                                : run_attention_bwd_256;
  const int places = (int)(p.query_tiles * p.l.q_heads);
  tg_status status = p.lengths ? read_lengths(ctx, a, p.l) : TG_OK;
  if (status == TG_OK) {
    status = launch_kernel(ctx, p.lengths, terms, grid_of(places), kSumThreads, 0, job);
  }
  if (status == TG_OK) {
    status = run(ctx, a, p);
  }
  if (status == TG_OK) { /* overlaps the last tiles */
    status = add_to_sinks(ctx, a, p.l, job.sink_delta);
  }
  if (status == TG_OK && p.rounds) {
    const auto round = p.second_from < kMostRows ? attention_bwd_round_kernel<T, true>
                                                 : attention_bwd_round_kernel<T, false>;
    status = launch_next(ctx, round, grid_of(places), kSumThreads, 0, job);
  }
  if (status == TG_OK && job.hides) {
    const int tiles = job.dq.data ? places : 0;
    status = launch_next(ctx, attention_bwd_repair_kernel<T>,
                         dim3(blocks_for(ctx, divide_up(tiles + job.items, kSumThreads), 2)),
                         kSumThreads, 0, job, tiles);
  }
  return status;
}

} // namespace

/** From shapes alone: as if every tensor could be loaded by TMA. */
extern "C" size_t TGI_WORKSPACE(attention_bwd)(const tg_context *ctx,
                                               const tg_attention_bwd_args *a)
{
  const tg_attention_bwd_args shapes = shapes_alone(*a);
  return plan_bwd(ctx, &shapes).bytes;
}

extern "C" tg_status TGI_KERNEL(attention_bwd)(const tg_context *ctx,
                                               const tg_attention_bwd_args *a)
{
  const attention_bwd_plan p = plan_bwd(ctx, a);
  if (!p.taken) {
    return TG_UNSUPPORTED;
  }
  return a->q.dtype == TG_F16 ? run_bwd<f16>(ctx, a, p) : run_bwd<bf16>(ctx, a, p);
}

extern "C" void TGI_PLAN(attention_bwd)(const tg_context *ctx, const tg_attention_bwd_args *a,
                                        char *text, size_t bytes)
{
  const attention_bwd_plan p = plan_bwd(ctx, a);
  if (p.taken) {
    snprintf(text, bytes, "wgmma, blocks of %d keys%s, tiles of %d queries, %d elements, sums %s",
             p.keys, p.parts > 1 ? " in 2 parts" : "", p.queries, p.d,
             p.ordered ? "in order" : "in any order");
  }
}

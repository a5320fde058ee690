/* Attention forward on Hopper, by tensor cores.
 *
 * Method     Running softmax (arXiv:1805.02867) over blocks of keys (arXiv:2307.08691), the scores
 *            of a block made beside the values of the one before (arXiv:2407.08608): a warpgroup
 *            has 64 queries, their scores, probabilities and results in registers; products by
 *            wgmma, tiles by TMA. Blocks of keys from the last one down; those that hold keys that
 *            some query does not see go through a mask, the others do not.
 * Work       One thread block for each multiprocessor takes tiles of 128 or 192 queries of a head,
 *            the longest first where a causal mask makes them differ. With lengths on the device, a
 *            kernel of one block lists the tiles beforehand, and blocks of the grid count them out.
 * Bits       A row's depend on the blocks of keys, and so on the extents, the mask and head_dim.
 * Bound      Tensor cores; on an H200 the power that they take. Exponentials take half as long.
 * Takes      f16 and bf16, heads of up to 256 elements, in steps of 8; tensors whose rows are
 *            16-byte vectors. Not blocks of keys by a table, and not few queries with many keys,
 *            which the next entry cuts into splits.
 */
#include "cuda/tma.cuh"
#include "ops/attention/attention_plan_sm90.cuh"
#include "ops/attention/attention_work_sm90.cuh"

namespace
{

constexpr int kFewRows = 64, kFewKeys = 256; /* the next entry's splits begin there */

/** Items of each multiprocessor from which on it pays to count them out instead of giving each
 * block its share beforehand: the counter must be cleared, which takes 2 us. */
constexpr int kManyItems = 8;

/** Windows up to here take smaller blocks of keys: what is computed and hidden is less. */
constexpr int kNarrowWindow = 256;

bool takes_shape(const tg_attention_fwd_args *a, const attention_fwd_plan &p)
{
  const bool few =
      !p.l.packed_q && !p.l.packed_k && p.l.nq * p.l.group <= kFewRows && p.l.extent > kFewKeys;
  const int64_t window = a->window;
  return !p.l.has_table && !few && has_pages(&a->q) && has_pages(&a->k) && has_pages(&a->v) &&
         has_pages(&a->out) && p.qk > 0 && p.l.nq < kMostRows && p.l.extent < kMostRows &&
         p.l.batch > 0 && p.l.batch * p.l.q_heads * divide_up(p.l.nq, 64) < INT32_MAX / 2 &&
         (window < kMostWindow || !tgi_present(&a->query_start));
}

/** Heads at a time where keys and values are far more than the second-level cache holds: as many as
 * fill the multiprocessors with the longer half of their tiles. */
void set_chunks(const tg_context *ctx, attention_fwd_plan &p)
{
  const int64_t tiles = divide_up(p.l.nq, p.rows), pairs = p.l.batch * p.l.q_heads;
  const double bytes =
      2.0 * (double)(p.l.batch * p.l.kv_heads * p.l.extent) * (double)(p.l.head_dim + p.l.v_dim);
  p.chunk = (int)pairs;
  p.half = (int)tiles;
  if (bytes > 1.6 * (double)ctx->device->l2_bytes) {
    const int64_t half = (tiles + 1) / 2, fill = ctx->device->multiprocessors / half;
    const int64_t chunk = divide_up(fill > 1 ? fill : 1, p.l.group) * p.l.group;
    if (chunk < pairs) {
      p.chunk = (int)chunk;
      p.half = (int)half;
    }
  }
}

/** Products take 64, 96, 128, 192 or 256 elements; 192 also with values of 128. */
void set_elements(attention_fwd_plan &p)
{
  static const int sizes[] = {64, 96, 128, 192, 256};
  const int64_t widest = p.l.head_dim > p.l.v_dim ? p.l.head_dim : p.l.v_dim;
  for (int i = 4; i >= 0; i--) {
    p.qk = widest <= sizes[i] ? sizes[i] : p.qk;
  }
  p.values = p.qk == 192 && p.l.v_dim <= 128 ? 128 : p.qk;
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
  const bool many = !a->causal && !p.l.packed_k && p.l.extent >= 4096;
  return p.qk == 128 && p.sides == 1 && many ? 160 : 128;
}

attention_fwd_plan plan_fwd(const tg_context *ctx, const tg_attention_fwd_args *a)
{
  attention_fwd_plan p = {};
  p.l = tgi_attention_fwd_layout(a);
  set_elements(p);
  p.taken = takes_shape(a, p);
  if (!p.taken) {
    return p;
  }
  p.window = a->window < kMostWindow ? a->window : 0;
  p.lengths = has_lengths(p.l, &a->key_start, &a->key_count, &a->query_start);
  p.sides = p.window > 0 || a->softcap > 0 || tgi_present(&a->key_start) ? 2 : 1;
  p.rows = p.qk == 64 && a->softcap == 0 ? 192 : 128;
  p.keys = keys_of_block(a, p);
  p.longest_first = a->causal && p.window == 0 && !p.lengths;
  set_chunks(ctx, p);
  p.places = tile_places(p.l.batch, p.l.nq, p.l.packed_q, p.rows);
  const bool uneven = p.longest_first || divide_up(p.l.nq, kGroupRows) % divide_up(p.l.nq, p.rows);
  p.counted =
      uneven && !p.lengths && p.places * p.l.q_heads > kManyItems * ctx->device->multiprocessors;
  p.records = record_bytes(p.l, p.lengths);
  p.bytes = p.lengths
                ? p.records + offsetof(query_list, place) + (size_t)p.places * sizeof(query_place)
            : p.counted ? sizeof(int)
                        : 0;
  while (p.l.extent / p.keys >> p.shift >= kCosts) {
    p.shift++;
  }
  p.blocks = (int)blocks_for(ctx, p.places * p.l.q_heads, 1);
  return p;
}

/** What the tiles need on the device before. */
tg_status prepare_items(const tg_context *ctx, const tg_attention_fwd_args *a,
                        const attention_fwd_plan &p)
{
  if (!p.lengths) {
    return p.counted ? fill_bytes(ctx, a->workspace, 0, sizeof(int)) : TG_OK;
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
    status = launch(ctx, attention_list_kernel, dim3(1), kListThreads, 0, c, w, p.places, p.shift);
  }
  return status;
}

} // namespace

/** From shapes alone: as if every tensor had pages. */
extern "C" size_t TGI_WORKSPACE(attention_fwd)(const tg_context *ctx,
                                               const tg_attention_fwd_args *a)
{
  tg_attention_fwd_args shapes = *a;
  tg_tensor *const tensors[] = {&shapes.q, &shapes.k, &shapes.v, &shapes.out};
  for (tg_tensor *t : tensors) {
    t->data = NULL;
    memset(t->stride, 0, sizeof t->stride); /* contiguous */
  }
  return plan_fwd(ctx, &shapes).bytes;
}

extern "C" tg_status TGI_KERNEL(attention_fwd)(const tg_context *ctx,
                                               const tg_attention_fwd_args *a)
{
  const attention_fwd_plan p = plan_fwd(ctx, a);
  if (!p.taken) {
    return TG_UNSUPPORTED;
  }
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

extern "C" void TGI_PLAN(attention_fwd)(const tg_context *ctx, const tg_attention_fwd_args *a,
                                        char *text, size_t bytes)
{
  const attention_fwd_plan p = plan_fwd(ctx, a);
  if (p.taken) {
    snprintf(text, bytes, "wgmma, tiles of %d rows and %d keys, %d elements, %s, %d blocks", p.rows,
             p.keys, p.qk,
             p.lengths         ? "listed"
             : p.longest_first ? "longest first"
                               : "in order",
             p.blocks);
  }
}

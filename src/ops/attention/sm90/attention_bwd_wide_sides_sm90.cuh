/**
 * Attention backward on Hopper, heads of more than 128 elements: the two consumer warp groups.
 *
 * Both have all 64 keys of a block. One, the side of values, makes scores, p and dv; the other one
 * makes dp, ds and dk. p goes to the second warp group through shared memory, thread by thread; ds
 * goes to double-buffered shared memory, for the tile's part of dq, of which each warp group makes
 * some columns one tile later. Scores and dp are transposed, keys as rows, so that p and ds are
 * register operands of the products that accumulate dv and dk.
 */
#ifndef TGI_OPS_ATTENTION_BWD_WIDE_SIDES_SM90_CUH
#define TGI_OPS_ATTENTION_BWD_WIDE_SIDES_SM90_CUH

#include "ops/attention/sm90/attention_bwd_scores_sm90.cuh"
#include "ops/attention/sm90/attention_bwd_wide_tiles_sm90.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** What a side computes. kOfValues: scores, p and dv; else dp, ds and dk. */
template <typename S, bool kOfValues_> struct bwd_side {
  using T = typename S::T;
  static constexpr bool kOfValues = kOfValues_;
  static constexpr int kGroup = kOfValues ? 0 : 1;
  static constexpr int kPage = kOfValues ? 0 : S::kFirstPages; /* of dq: the side's first one */
  static constexpr int kColumns =
      (kOfValues ? S::kFirstPages : S::kPages - S::kFirstPages) * kPageCols;
  using product = bwd_wide_part<S, kOfValues ? S::kHeadDim : S::kValueDim>; /* scores or dp */
  using result = bwd_wide_part<S, kOfValues ? S::kValueDim : S::kHeadDim>;  /* dv or dk */
};

/** A thread of a side, for as long as the kernel runs. */
template <typename S> struct side_state {
  const bwd_job &job;
  bwd_shared<S> &sh;
  int thread, lane, warp, col0; /* the thread's place in its warp group; its first column */
  uint32_t k_page, v_page;
  unsigned n; /* position in the query pipeline: tiles so far */
};

/** A thread's registers. References: the arrays must stay apart, for the compiler keeps an array in
 * registers only once its loops are unrolled. */
template <typename S, typename Side> struct side_registers {
  float (&s)[S::kQueries / 2]; /* scores or dp, then p or ds */
  float (&sum)[Side::result::kHeadDim / 2], (&dq)[Side::kColumns / 2];
  uint32_t (&a)[S::kQueries / 4]; /* s, rounded */
};

/** A tile of queries in its stage. */
struct side_stage {
  unsigned st, u; /* stage; buffer of ds */
  uint32_t q_page, dout_page;
  int query; /* its first one */
};

/** Issues the side's columns of dq, from ds in `buffer`. */
template <typename Side, typename S>
__device__ __forceinline__ void make_dq(const side_state<S> &c, const side_registers<S, Side> &r,
                                        unsigned buffer)
{
  const uint64_t ds = page_operand(shared_address(c.sh.ds[buffer]));
  const uint64_t k = page_operand(c.k_page + Side::kPage * S::kKeyPage, S::kKeyPage);
#pragma unroll
  for (int i = 0; i < S::kKeys / 16; i++) {
    multiply<typename S::T, Side::kColumns, false, true>(r.dq, operand_at(ds, i * 32),
                                                         operand_at(k, i * 16 * kPageRow), i > 0);
  }
  wgmma_commit();
}

/** Adds the n-th tile's columns of dq to the sums in memory. */
template <typename Side, typename S>
__device__ __forceinline__ void finish_dq(const side_state<S> &c, const side_registers<S, Side> &r,
                                          const key_place &x, unsigned n)
{
  if (c.thread == 0) {
    arrive(&c.sh.ds_empty[n & 1]);
  }
  add_columns<S>(r.dq, c.job, x, n, Side::kPage, c.sh);
}

/** Which columns of the tile the thread's two keys are seen by. */
template <typename S>
__device__ __forceinline__ void find_columns(const side_state<S> &c, const side_stage &t,
                                             const key_place &x, int (&low)[2], int (&high)[2])
{
  const int from = t.query + c.col0;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const key_span seen = queries_of(c.job.rule, x, x.key0 + 16 * c.warp + c.lane / 4 + 8 * r);
    low[r] = seen.low - from;
    high[r] = seen.high - from;
  }
}

/** Scores to p, which the other side reads in f32. */
template <typename Side, typename S>
__device__ __forceinline__ void
make_probabilities(const side_state<S> &c, const side_registers<S, Side> &r, const side_stage &t,
                   const key_place &x, bool hides)
{
  using product = typename Side::product;
  int low[2], high[2];
  if (S::kSoftcap) {
    find_columns(c, t, x, low, high);
    make_capped_p<product>(r.a, r.s, c.job, c.sh.minus[t.st] + c.col0, low, high);
  } else {
    make_p<product>(r.s, c.job, column_terms{c.sh.minus[t.st] + c.col0});
    if (hides) {
      find_columns(c, t, x, low, high);
      hide_queries(r.s, low, high);
    }
    round_pairs<typename S::T>(r.a, r.s);
  }
  wait_for(&c.sh.p_empty[c.warp], c.n & 1 ^ 1);
#pragma unroll
  for (int i = 0; i < S::kQueries / 8; i++) {
    c.sh.p[i][c.thread] = {r.s[4 * i], r.s[4 * i + 1], r.s[4 * i + 2], r.s[4 * i + 3]};
  }
  __syncwarp();
  if (c.lane == 0) {
    arrive(&c.sh.p_full[c.warp]);
  }
}

/** dp to ds, which both sides read from shared memory for dq. */
template <typename Side, typename S>
__device__ __forceinline__ void make_gradients(const side_state<S> &c,
                                               const side_registers<S, Side> &r,
                                               const side_stage &t, const key_place &x, bool hides)
{
  constexpr int kN = S::kQueries;
  float p[kN / 2];
  wait_for(&c.sh.p_full[c.warp], c.n & 1);
#pragma unroll
  for (int i = 0; i < kN / 8; i++) {
    const float4 four = c.sh.p[i][c.thread];
    p[4 * i] = four.x;
    p[4 * i + 1] = four.y;
    p[4 * i + 2] = four.z;
    p[4 * i + 3] = four.w;
  }
  make_ds<typename Side::product>(r.s, p, c.sh.delta[t.st] + c.col0);
  if (hides) {
    int low[2], high[2];
    find_columns(c, t, x, low, high);
    hide_queries(r.s, low, high);
  }
  round_pairs<typename S::T>(r.a, r.s);
  wait_for(&c.sh.ds_empty[t.u], c.n / 2 & 1 ^ 1);
#pragma unroll
  for (int i = 0; i < kN / 16; i++) {
    store_matrices_turned(page_chunk(shared_address(c.sh.ds[t.u]),
                                     16 * i + 8 * (c.lane / 16) + c.lane % 8,
                                     2 * c.warp + c.lane / 8 % 2),
                          r.a[4 * i], r.a[4 * i + 1], r.a[4 * i + 2], r.a[4 * i + 3]);
  }
  publish_to_copies();
  __syncwarp(); /* all lanes have read p and written ds */
  if (c.lane == 0) {
    arrive(&c.sh.p_empty[c.warp]);
    arrive(&c.sh.ds_full[t.u]);
  }
}

/** The product that adds to dv or dk; dq of the tile before leaves while it runs. */
template <typename Side, typename S>
__device__ __forceinline__ void add_tile(const side_state<S> &c, const side_registers<S, Side> &r,
                                         const side_stage &t, const key_place &x, int turn)
{
  if (!S::kEarly && turn > 0) {
    wait_for(&c.sh.ds_full[t.u ^ 1], (c.n - 1) / 2 & 1);
  }
  wgmma_fence();
  if (!S::kEarly) {
    make_dq(c, r, t.u ^ 1);
  }
  add_queries<typename Side::result>(
      r.sum, r.a, page_operand(Side::kOfValues ? t.dout_page : t.q_page, S::kQueryPage));
  wgmma_commit();
  wgmma_wait<1>();
  settle(r.dq);
  if (turn > 0) {
    finish_dq(c, r, x, c.n - 1); /* overlaps the product */
  }
  wgmma_wait<0>();
  settle(r.sum);
  __syncwarp(); /* all lanes have read minus and delta */
  if (c.lane == 0) {
    arrive(&c.sh.empty[t.st]);
  }
}

/** The last tile's dq, and the item's dv or dk. */
template <typename Side, typename S>
__device__ __forceinline__ void end_item(const side_state<S> &c, const side_registers<S, Side> &r,
                                         const CUtensorMap *map, const key_place &x, int tiles,
                                         unsigned item)
{
  constexpr bool kOfValues = Side::kOfValues;
  const bwd_job &job = c.job;
  if (tiles > 0) {
    wait_for(&c.sh.ds_full[(c.n - 1) & 1], (c.n - 1) / 2 & 1);
    wgmma_fence();
    make_dq(c, r, (c.n - 1) & 1);
    wgmma_wait<0>();
    settle(r.dq);
    finish_dq(c, r, x, c.n - 1);
  }
  __syncwarp();
  if (c.lane == 0) {
    arrive(&c.sh.keys_read);
  }
  wait_for(&c.sh.keys_read, item & 1); /* both sides have read keys and values */
  store_keys<typename Side::result>(map, kOfValues ? job.dv : job.dk, r.sum,
                                    kOfValues ? 1.0f : job.scale, kOfValues ? c.v_page : c.k_page,
                                    job, x, 0, Side::kGroup,
                                    (int)(kOfValues ? job.c.l.v_dim : job.c.l.head_dim));
  sync_some(2 + Side::kGroup, kWarpgroup); /* all threads have read the rows that they store */
  if (c.thread == 0) {
    wait_for_store_reads();
    arrive(&c.sh.keys_empty);
  }
}

/** All items of a side. */
template <typename S, bool kOfValues>
__device__ __forceinline__ void compute_side(const CUtensorMap *map, const bwd_job &job,
                                             bwd_shared<S> &sh)
{
  using side = bwd_side<S, kOfValues>;
  constexpr int kN = S::kQueries, kStages = S::kStages;
  const int thread = threadIdx.x % kWarpgroup, lane = threadIdx.x % kWarp, warp = thread / kWarp;
  side_state<S> c = {
      job, sh, thread, lane, warp, 2 * (lane % 4), shared_address(sh.k), shared_address(sh.v), 0};
  float s[kN / 2], sum[side::result::kHeadDim / 2], dq[side::kColumns / 2];
  uint32_t a[kN / 4];
  const side_registers<S, side> r = {s, sum, dq, a};
  auto uniform = [](int i) { return __shfl_sync(kAllLanes, i, 0); };
#pragma unroll 1
  for (unsigned item = 0;; item++) {
    wait_for(&sh.keys_full, item & 1);
    const key_place &x = sh.place[item % kItemPlaces];
    if (uniform(x.state) == kNoMore) {
      return;
    }
#pragma unroll
    for (int i = 0; i < side::result::kHeadDim / 2; i++) {
      sum[i] = 0;
    }
    const int tiles = uniform((x.high_tile - x.low_tile) * (int)job.c.l.group);
#pragma unroll 1
    for (int turn = 0; turn < tiles; turn++, c.n++) {
      side_stage t;
      t.st = c.n % kStages, t.u = c.n & 1;
      t.q_page = shared_address(sh.q[t.st]), t.dout_page = shared_address(sh.dout[t.st]);
      wait_for(&sh.full[t.st], c.n / kStages & 1);
      if (S::kEarly && turn > 0) {
        wait_for(&sh.ds_full[t.u ^ 1], (c.n - 1) / 2 & 1);
      }
      wgmma_fence();
      multiply_heads<typename side::product, kN>(
          s, page_operand(kOfValues ? c.k_page : c.v_page), S::kKeyPage,
          page_operand(kOfValues ? t.q_page : t.dout_page), S::kQueryPage);
      wgmma_commit();
      if (S::kEarly) {
        make_dq(c, r, t.u ^ 1); /* of the tile before; in an item's first turn nothing reads it */
      }
      t.query = sh.tile[c.n % kTilePlaces].tile * kN;
      const bool hides = uniform(hides_any(job.rule, x, x.key0, t.query, kN));
      wgmma_wait<S::kEarly ? 1 : 0>();
      settle(s);
      if constexpr (kOfValues) {
        make_probabilities(c, r, t, x, hides);
      } else {
        make_gradients(c, r, t, x, hides);
      }
      add_tile(c, r, t, x, turn);
    }
    end_item(c, r, map, x, tiles, item);
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif

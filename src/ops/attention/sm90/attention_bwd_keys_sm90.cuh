/**
 * Attention backward on Hopper, heads of up to 128 elements: a consumer warp group.
 *
 * A warp group has 64 keys of a block, and goes through the tiles of queries that see them. It
 * computes scores and dp transposed, keys as rows, so that p and ds are register operands of the
 * products that accumulate dv and dk. ds also goes to double-buffered shared memory: both warp
 * groups' halves make the tile's part of dq, one tile later. So the two warp groups drift apart,
 * and one computes exponentials while the other multiplies.
 */
#ifndef TGI_OPS_ATTENTION_BWD_KEYS_SM90_CUH
#define TGI_OPS_ATTENTION_BWD_KEYS_SM90_CUH

#include "ops/attention/sm90/attention_bwd_results_sm90.cuh"
#include "ops/attention/sm90/attention_bwd_scores_sm90.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** A thread of a consumer warp group, for as long as the kernel runs. */
template <typename S> struct bwd_consumer {
  const bwd_job &job;
  bwd_shared<S> &sh;
  int group, thread, lane, warp; /* warp group; the thread's place in it */
  int col0, first;               /* the thread's first column; the warp group's first key */
  uint32_t k_page, v_page;
  uint64_t k_columns; /* keys as operand of the warp group's part of dq */
  unsigned n;         /* position in the query pipeline: tiles so far */
};

/** A thread's registers. References: the arrays must stay apart, for the compiler keeps an array in
 * registers only once its loops are unrolled. */
template <typename S> struct bwd_registers {
  float (&s)[S::kQueries / 2], (&dp)[S::kQueries / 2];
  float (&dk)[S::kHeadDim / 2], (&dv)[S::kHeadDim / 2], (&dq)[S::kPart / 2];
  uint32_t (&p)[S::kQueries / 4], (&ds)[S::kQueries / 4]; /* rounded, as operands */
};

/** A tile of queries in its stage. */
struct bwd_stage {
  unsigned st, u; /* stage; buffer of ds */
  uint32_t q_page, dout_page;
  column_terms minus, delta;
  int query, key; /* the tile's first query; the warp group's first key */
};

/** Issues the tile's part of dq, from ds in `buffer`. */
template <typename S>
__device__ __forceinline__ void make_dq(const bwd_consumer<S> &c, const bwd_registers<S> &r,
                                        unsigned buffer)
{
  const uint64_t b = page_operand(shared_address(c.sh.ds[buffer][0]) +
                                  (S::kPages == 2 ? 0 : c.group * S::kPart * kPageRow));
#pragma unroll
  for (int i = 0; i < S::kKeys / 16; i++) {
    multiply<typename S::T, S::kPart, true, false>(
        r.dq, operand_at(c.k_columns, i * 16 * kPageRow),
        operand_at(b, i / 4 * S::kQueryPage + i % 4 * 32), i > 0);
  }
  wgmma_commit();
}

/** Issues scores and dp, a group of products each. early: with kReadsFirst, minus. */
template <typename S>
__device__ __forceinline__ void issue_scores(const bwd_consumer<S> &c, const bwd_registers<S> &r,
                                             const bwd_stage &t, float2 (&early)[S::kQueries / 8])
{
  constexpr int kN = S::kQueries;
  if (S::kReadsFirst) {
#pragma unroll
    for (int i = 0; i < kN / 8; i++) {
      early[i] = t.minus(i);
      asm volatile("" : "+f"(early[i].x), "+f"(early[i].y)); /* keeps the load here */
      const float2 d = t.delta(i);
      r.dp[4 * i] = r.dp[4 * i + 2] = d.x;
      r.dp[4 * i + 1] = r.dp[4 * i + 3] = d.y;
    }
    settle(r.dp);
  }
  wgmma_fence();
  multiply_heads<S, kN>(r.s, page_operand(c.k_page), S::kKeyPage, page_operand(t.q_page),
                        S::kQueryPage);
  wgmma_commit();
  multiply_heads<S, kN, S::kReadsFirst>(r.dp, page_operand(c.v_page), S::kKeyPage,
                                        page_operand(t.dout_page), S::kQueryPage);
  wgmma_commit();
}

/** Which columns of the tile the thread's two keys are seen by. */
template <typename S>
__device__ __forceinline__ void find_columns(const bwd_consumer<S> &c, const bwd_stage &t,
                                             const key_place &x, int (&low)[2], int (&high)[2])
{
  const int from = t.query + c.col0;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const key_span seen = queries_of(c.job.rule, x, t.key + 16 * c.warp + c.lane / 4 + 8 * r);
    low[r] = seen.low - from;
    high[r] = seen.high - from;
  }
}

/** Scores to p; with a softcap masked and rounded, too. */
template <typename S>
__device__ __forceinline__ void
make_probabilities(const bwd_consumer<S> &c, const bwd_registers<S> &r, const bwd_stage &t,
                   const key_place &x, const float2 (&early)[S::kQueries / 8])
{
  if constexpr (S::kSoftcap) {
    int low[2], high[2];
    find_columns(c, t, x, low, high);
    make_capped_p<S>(r.p, r.s, c.job, t.minus.first, low, high);
  } else if constexpr (S::kReadsFirst) {
    make_p<S>(r.s, c.job, [&](int i) { return early[i]; });
  } else {
    make_p<S>(r.s, c.job, t.minus);
  }
}

/** Zeros in p where a query does not see a key. */
template <typename S>
__device__ __forceinline__ void mask_probabilities(const bwd_consumer<S> &c,
                                                   const bwd_registers<S> &r, const bwd_stage &t,
                                                   const key_place &x)
{
  int low[2], high[2];
  find_columns(c, t, x, low, high);
  if (S::kHidesTwice) {
    hide_queries(r.s, low, high);
  } else {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      keep_columns(r.s, i, column_bits(low[i], high[i]), 0.0f);
    }
  }
}

/** dp to ds, rounded, in registers and, for dq, in shared memory. */
template <typename S>
__device__ __forceinline__ void make_gradients(const bwd_consumer<S> &c, const bwd_registers<S> &r,
                                               const bwd_stage &t, const key_place &x, bool hides)
{
  if constexpr (S::kReadsFirst) {
    make_ds<S>(r.dp, r.s);
  } else {
    make_ds<S>(r.dp, r.s, t.delta.first);
  }
  if (S::kHidesTwice && hides) {
    int low[2], high[2];
    find_columns(c, t, x, low, high);
    hide_queries(r.dp, low, high);
  }
  round_pairs<typename S::T>(r.ds, r.dp);
  wait_for(&c.sh.ds_empty[t.u], c.n / 2 & 1 ^ 1);
#pragma unroll
  for (int i = 0; i < S::kQueries / 16; i++) {
    store_matrices_turned(page_chunk(shared_address(c.sh.ds[t.u][c.group]),
                                     16 * i + 8 * (c.lane / 16) + c.lane % 8,
                                     2 * c.warp + c.lane / 8 % 2),
                          r.ds[4 * i], r.ds[4 * i + 1], r.ds[4 * i + 2], r.ds[4 * i + 3]);
  }
  publish_to_copies();
  __syncwarp();
  if (c.lane == 0) {
    arrive(&c.sh.ds_full[t.u]);
  }
}

/** Issues dq of the tile before, then the products that accumulate dv and dk; that part of dq is
 * added to memory while these run. `before`: the place of the tile before, unused in the first
 * turn. */
template <typename S>
__device__ __forceinline__ void add_tile(const bwd_consumer<S> &c, const bwd_registers<S> &r,
                                         const bwd_stage &t, const CUtensorMap *dq_map,
                                         const key_place &x, int turn, int before)
{
  if (turn > 0) {
    wait_for(&c.sh.ds_full[t.u ^ 1], (c.n - 1) / 2 & 1);
  }
  wgmma_fence();
  make_dq(c, r, t.u ^ 1); /* in an item's first turn nothing reads it */
  add_queries<S>(r.dv, r.p, page_operand(t.dout_page, S::kQueryPage));
  add_queries<S>(r.dk, r.ds, page_operand(t.q_page, S::kQueryPage));
  wgmma_commit();
  wgmma_wait<1>();
  settle(r.dq);
  if (turn > 0) { /* overlaps the products for dv and dk */
    if (c.thread == 0) {
      arrive(&c.sh.ds_empty[t.u ^ 1]);
    }
    add_sums<S>(dq_map, r.dq, c.job, x, c.n - 1, before, c.group, c.sh);
  }
  wgmma_wait<0>();
  settle(r.dk);
  settle(r.dv);
  __syncwarp(); /* all lanes have read minus and delta */
  if (c.lane == 0) {
    arrive(&c.sh.empty[t.st]);
  }
}

/** The last tile's dq, and the item's dk and dv. */
template <typename S>
__device__ __forceinline__ void end_item(const bwd_consumer<S> &c, const bwd_registers<S> &r,
                                         const CUtensorMap *dq_map, const CUtensorMap *dk_map,
                                         const CUtensorMap *dv_map, const key_place &x, int tiles,
                                         int before)
{
  const bwd_job &job = c.job;
  if (tiles > 0) {
    const unsigned u = (c.n - 1) & 1;
    wait_for(&c.sh.ds_full[u], (c.n - 1) / 2 & 1);
    wgmma_fence();
    make_dq(c, r, u);
    wgmma_wait<0>();
    settle(r.dq);
    if (c.thread == 0) {
      arrive(&c.sh.ds_empty[u]);
    }
  }
  if (c.lane == 0) { /* the next item's keys load while this one's results leave */
    arrive(&c.sh.keys_empty);
  }
  if (tiles > 0) {
    add_sums<S>(dq_map, r.dq, job, x, c.n - 1, before, c.group, c.sh);
  }
  if (job.dv.data && join_parts<S>(r.dv, job, x, 0, c.group, c.sh)) {
    wait_for_staged(c.group);
    store_keys<S>(dv_map, job.dv, r.dv, 1.0f, shared_address(c.sh.staged[0][c.group]), job, x,
                  c.first, c.group, (int)job.c.l.v_dim);
  }
  if (job.dk.data && join_parts<S>(r.dk, job, x, 1, c.group, c.sh)) {
    wait_for_staged(c.group);
    store_keys<S>(dk_map, job.dk, r.dk, job.scale,
                  shared_address(c.sh.staged[S::kStaged - 1][c.group]), job, x, c.first, c.group,
                  (int)job.c.l.head_dim);
  }
}

template <typename S>
__device__ __forceinline__ void compute_keys(const CUtensorMap *dq_map, const CUtensorMap *dk_map,
                                             const CUtensorMap *dv_map, const bwd_job &job,
                                             bwd_shared<S> &sh, int group)
{
  constexpr int kN = S::kQueries, kStages = S::kStages;
  const int heads = job.heads, q_heads = (int)job.c.l.q_heads;
  const int thread = threadIdx.x % kWarpgroup, lane = threadIdx.x % kWarp, warp = thread / kWarp;
  const int col0 = 2 * (lane % 4), first = kGroupRows * group;
  const uint32_t k_page = shared_address(sh.k) + first * kPageRow;
  const uint32_t v_page = shared_address(sh.v) + first * kPageRow;
  const uint64_t k_columns =
      page_operand(shared_address(sh.k) + (S::kPages == 2 ? group * S::kKeyPage : 0));
  bwd_consumer<S> c = {job,  sh,    group,  thread, lane,      warp,
                       col0, first, k_page, v_page, k_columns, 0};
  float s[kN / 2], dp[kN / 2], dk[S::kHeadDim / 2], dv[S::kHeadDim / 2], dq[S::kPart / 2];
  uint32_t p[kN / 4], ds[kN / 4];
  auto uniform = [](int i) { return __shfl_sync(kAllLanes, i, 0); };
  const bwd_registers<S> r = {s, dp, dk, dv, dq, p, ds};
#pragma unroll 1
  for (unsigned item = 0;; item++) {
    wait_for(&sh.keys_full, item & 1);
    const key_place &x = sh.place[item % kItemPlaces];
    if (uniform(x.state) == kNoMore) {
      return;
    }
#pragma unroll
    for (int i = 0; i < S::kHeadDim / 2; i++) {
      dk[i] = dv[i] = 0;
    }
    const int high_tile = uniform(x.high_tile), tiles = (high_tile - uniform(x.low_tile)) * heads;
    /* Tiles from query whole_low to whole_high see all of the warp group's keys. */
    const int key = x.key0 + c.first;
    const bool edge = key < x.first || key + kGroupRows > x.end;
    const int whole_low =
        uniform(edge ? kMostRows : queries_of(job.rule, x, key + kGroupRows - 1).low);
    const int whole_high = uniform(queries_of(job.rule, x, key).high) - kN;
    int tile = high_tile - 1, head = 0, before = 0;
    int place = uniform((x.q_tile + tile) * q_heads + first_head(job, x));
#pragma unroll 1
    for (int turn = 0; turn < tiles; turn++, c.n++) {
      float2 early[kN / 8];
      bwd_stage t;
      t.st = c.n % kStages, t.u = c.n & 1;
      t.q_page = shared_address(sh.q[t.st]), t.dout_page = shared_address(sh.dout[t.st]);
      t.minus = {sh.minus[t.st] + c.col0}, t.delta = {sh.delta[t.st] + c.col0};
      wait_for(&sh.full[t.st], c.n / kStages & 1);
      issue_scores(c, r, t, early);
      t.query = tile * kN, t.key = key;
      const bool hides = t.query < whole_low || t.query > whole_high;
      wgmma_wait<1>();
      settle(s);
      make_probabilities(c, r, t, x, early);
      if (!S::kSoftcap) {
        if (hides) {
          mask_probabilities(c, r, t, x);
        }
        round_pairs<typename S::T>(p, s);
      }
      wgmma_wait<0>();
      settle(dp);
      make_gradients(c, r, t, x, hides);
      add_tile(c, r, t, dq_map, x, turn, before);
      before = place++;
      if (++head == heads) {
        head = 0;
        tile--;
        place -= heads + q_heads;
      }
    }
    end_item(c, r, dq_map, dk_map, dv_map, x, tiles, before);
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif

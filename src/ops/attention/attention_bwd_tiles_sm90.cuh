/** Attention backward on Hopper: shapes of tiles, where they lie in shared memory, and the thread
 * that fetches them. */
#ifndef TGI_OPS_ATTENTION_BWD_TILES_SM90_CUH
#define TGI_OPS_ATTENTION_BWD_TILES_SM90_CUH

#include "cuda/tma.cuh"
#include "cuda/warpgroup.cuh"
#include "cuda/wgmma.cuh"
#include "ops/attention/attention_bwd_plan_sm90.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** kD: elements of q, k and v that products take. kQueries: of a tile. kCap: softcap. */
template <typename T_, int kD_, int kQueries_, bool kCap_> struct bwd_shape {
  using T = T_;
  static constexpr int kD = kD_, kQueries = kQueries_;
  static constexpr bool kCap = kCap_;
  static constexpr int kPages = (kD + kPageCols - 1) / kPageCols;
  static constexpr int kGroups = 2, kThreads = (kGroups + 1) * kWarpgroup, kStages = 2;
  static constexpr int kKeyPage = kKeyRows * kPageRow, kQueryPage = kQueries * kPageRow;
  /* Of a tile's sums of dq a warpgroup makes a page of columns, or half of the only page's rows. */
  static constexpr int kPart = kPages == 2 ? kQueries : kQueries / 2;
  static constexpr int kLoaderRegisters = kCap ? 40 : 24, kRegisters = kCap ? 232 : 240;
};

template <typename S> struct alignas(1024) bwd_shared {
  uint8_t k[S::kPages * S::kKeyPage], v[S::kPages * S::kKeyPage];
  uint8_t q[S::kStages][S::kPages * S::kQueryPage], dout[S::kStages][S::kPages * S::kQueryPage];
  uint8_t ds[2][S::kGroups][S::kQueryPage]; /* rows are queries, a page for 64 keys */
  float minus[S::kStages][S::kQueries], delta[S::kStages][S::kQueries];
  mbarrier keys_full, full[S::kStages], empty[S::kStages], ds_full[2], ds_empty[2];
  key_place place;
};

/* ---- fetching ---- */

template <typename S>
__device__ __forceinline__ void fetch_queries(const CUtensorMap *q_map, const CUtensorMap *k_map,
                                              const CUtensorMap *v_map, const CUtensorMap *dout_map,
                                              const bwd_job &job, bwd_shared<S> &sh)
{
  const key_place &x = sh.place;
  const int low = x.low_tile, high = x.high_tile, group = (int)job.c.l.group;
  const int q_heads = (int)job.c.l.q_heads, q_row = x.q_row, q_index = x.q_index;
  if (high <= low) {
    return;
  }
  arrive_expecting(&sh.keys_full, 2 * S::kPages * S::kKeyPage);
#pragma unroll
  for (int i = 0; i < S::kPages; i++) {
    load_page(shared_address(sh.k) + i * S::kKeyPage, k_map, i * kPageCols, x.k_row, x.kv_head,
              x.k_index, &sh.keys_full);
    load_page(shared_address(sh.v) + i * S::kKeyPage, v_map, i * kPageCols, x.k_row, x.kv_head,
              x.k_index, &sh.keys_full);
  }
  unsigned n = 0;
#pragma unroll 1
  for (int head = x.kv_head * group; head < (x.kv_head + 1) * group; head++) {
#pragma unroll 1
    for (int tile = low; tile < high; tile++, n++) {
      const int s = n % S::kStages;
      const int64_t rows = ((int64_t)(x.q_tile + tile) * q_heads + head) * S::kQueries;
      wait_for(&sh.empty[s], n / S::kStages & 1 ^ 1);
      arrive_expecting(&sh.full[s],
                       2 * S::kPages * S::kQueryPage + 2 * S::kQueries * (int)sizeof(float));
      bulk_load(sh.minus[s], job.minus + rows, S::kQueries * (int)sizeof(float),
                 &sh.full[s]);
      bulk_load(sh.delta[s], job.delta + rows, S::kQueries * (int)sizeof(float),
                 &sh.full[s]);
#pragma unroll
      for (int i = 0; i < S::kPages; i++) {
        load_page(shared_address(sh.q[s]) + i * S::kQueryPage, q_map, i * kPageCols,
                  q_row + tile * S::kQueries, head, q_index, &sh.full[s]);
      }
#pragma unroll
      for (int i = 0; i < S::kPages; i++) {
        load_page(shared_address(sh.dout[s]) + i * S::kQueryPage, dout_map, i * kPageCols,
                  q_row + tile * S::kQueries, head, q_index, &sh.full[s]);
      }
    }
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif

/**
 * Weights' way into a block: a thread fills a ring in shared memory, across matrices, layers and
 * into the head without a stop. A stage is 8 rows of kStageK, of which each warp has its chunk: one
 * copy, for each costs the thread and the unit that copies some hundred cycles.
 */
#ifndef TGI_CUDA_DECODE_RING_CUH
#define TGI_CUDA_DECODE_RING_CUH

#include "cuda/decode/decode_state.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** The copy that comes next: matrices in order, tiles of the block, parts of k. */
struct decode_cursor {
  int layer, matrix, tile, part;
  int tiles, parts, first_tile;
};

template <typename S> __device__ __forceinline__ int matrix_k(int matrix)
{
  return matrix == kMatrixOut ? S::kQuery : matrix == kMatrixDown ? S::kInner : S::kHidden;
}

template <typename S>
__device__ __forceinline__ void begin_matrix(decode_cursor &c, const decode_job &job, int block)
{
  const int m = c.matrix, rows = m == kMatrixQkv ? S::kQkv : m == kMatrixUp ? S::kUp : S::kHidden;
  const int all = m == kMatrixHead ? (job.vocab + 7) / 8 : rows / 8;
  c.first_tile = (int)((int64_t)all * block / S::kBlocks);
  c.tiles = (int)((int64_t)all * (block + 1) / S::kBlocks) - c.first_tile;
  c.parts = matrix_k<S>(m) / S::kStageK;
  c.tile = c.part = 0;
  if (c.tiles == 0) { /* of the head, with few ids: nothing is left */
    c.matrix = kMatrices;
  }
}

template <typename S>
__device__ __forceinline__ void next_copy(decode_cursor &c, const decode_job &job, int block)
{
  if (++c.part < c.parts) {
    return;
  }
  c.part = 0;
  if (++c.tile < c.tiles) {
    return;
  }
  if (++c.matrix == kMatrixHead && ++c.layer < job.layers) {
    c.matrix = kMatrixQkv;
  }
  if (c.matrix < kMatrices) {
    begin_matrix<S>(c, job, block);
  }
}

/** Gates and ups of a gated model take turns, tile by tile. */
template <typename S> __device__ __forceinline__ int copy_row(const decode_cursor &c)
{
  const int tile = c.first_tile + c.tile;
  if (!S::kGpt && c.matrix == kMatrixUp) {
    return tile / 2 * 8 + tile % 2 * S::kInner;
  }
  return tile * 8;
}

template <typename S>
__device__ __forceinline__ void start_copy(const decode_cursor &c, const decode_maps &maps,
                                           uint32_t to, mbarrier *full)
{
  arrive_expecting(full, S::kStageBytes);
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
               ".L2::cache_hint [%0], [%1, {%2, %3, %4, %5}], [%6], %7;"
               :
               : "r"(to), "l"(&maps.of[c.matrix]), "r"(0), "r"(copy_row<S>(c)),
                 "r"(c.part * (S::kStageK / S::kAtom)), "r"(c.matrix == kMatrixHead ? 0 : c.layer),
                 "r"(shared_address(full)),
                 "l"(0x12f0000000000000ull) /* evicted first: read once a token */
               : "memory");
}

/** By one thread. */
template <typename S>
__device__ __forceinline__ void fill_ring(const decode_maps &maps, const decode_job &job,
                                          uint32_t ring, mbarrier *full, int block)
{
  mbarrier *empty = full + job.stages;
  decode_cursor c = {};
  begin_matrix<S>(c, job, block);
  for (int slot = 0, parity = 1; c.matrix < kMatrices;) {
    wait_for(empty + slot, parity);
    start_copy<S>(c, maps, ring + slot * S::kStageBytes, full + slot);
    next_copy<S>(c, job, block);
    if (++slot == job.stages) {
      slot = 0;
      parity ^= 1;
    }
  }
}

} // namespace TGI_CUDA_ENTRY

#endif

/**
 * Two products of one x on Hopper, and an activation of both:
 *
 *   gate = x G^T,  up = x U^T,  y = act(gate, up)
 *
 * Method  gemm_sm90.cuh with tiles of 96 columns of gate and the same 96 of up: B of a stage comes
 *         from two tensor maps, so that the weights stay where they are. A consumer leaves its
 *         rounded gate and up in shared memory, in pages of 32 columns, which TMA stores if they
 *         are wanted. Three warps compute y from them beside the next tile's products.
 * Work    A tile of 128 rows and 96 columns of y for a block at a time.
 * Sums    As in gemm_sm90.cuh: an element has the bits of a product of its own.
 * Bound   Tensor cores. Beside two products and a pass of the activation this saves the pass's
 *         reading of gate and up, and hides its arithmetic and its store.
 */
#ifndef TGI_CUDA_GEMM_GATED_SM90_CUH
#define TGI_CUDA_GEMM_GATED_SM90_CUH

#include "cuda/gemm/gemm_epilogue.cuh"
#include "cuda/gemm/sm90/gemm_sm90.cuh"

inline namespace TGI_CUDA_ENTRY
{

constexpr int kGatedColumns = 96; /* of y in a tile */
constexpr int kGatedPages = 3;    /* of a consumer's gate, and of its up */
constexpr int kGatedPage = 64 * kHalfPageRow;
using gated_tile_form = gemm_form<false, false, 2 * kGatedColumns>;

struct gated_maps {
  CUtensorMap x, gate_weight, up_weight, gate, up;
};

/** Act: two elements of y from words of two of gate and of up. */
template <typename T, typename Act> struct gemm_gated_epilogue {
  static constexpr bool kMayTakeSums = false;
  T *y;
  int64_t y_step;
  int n; /* columns of y */
  bool saves;
  Act act;

  /* Of either weight. */
  __device__ __forceinline__ int first_column(int column_tile) const
  {
    return column_tile * kGatedColumns;
  }

  __device__ __forceinline__ int second_column(int column_tile) const
  {
    return column_tile * kGatedColumns;
  }

  __device__ __forceinline__ bool takes_sums() const
  {
    return false;
  }

  __device__ __forceinline__ void prepare(float *, const gemm_place &, int) const {}

  __device__ __forceinline__ void fill(const gemm_place &, bool, int) const {}

  /** Starts the copies of gate's and up's pages, whose maps follow each other. */
  __device__ __forceinline__ void store_pages(const gemm_shared &s, const CUtensorMap *gate,
                                              const gemm_place &p) const
  {
    for (int half = 0; half < 2 && 64 * half < p.rows; half++) {
      for (int page = 0; page < 2 * kGatedPages; page++) {
        const int column = first_column(p.column_tile) + page % kGatedPages * kHalfPageCols;
        if (column < n) {
          store_page(gate + page / kGatedPages, column, p.row + 64 * half, 0, 0,
                     s.result + half * (gated_tile_form::kResult / 2) + page * kGatedPage);
        }
      }
    }
    commit_stores();
  }

  /** Neighbouring threads read two rows of a page, which lie in different banks. */
  __device__ __forceinline__ void store_y(const gemm_shared &s, const gemm_place &p,
                                          int thread) const
  {
    constexpr int kDown = kGemmFinishers / (4 * kGatedPages);
    const int page = thread / 8 % kGatedPages, chunk = thread % 4, rows = gemm_rows_of(p);
    const int column = first_column(p.column_tile) + page * kHalfPageCols + 8 * chunk;
    if (column >= n) {
      return;
    }
    T *to = y + p.row * y_step + column;
#pragma unroll 2
    for (int row = thread / 24 * 2 + thread / 4 % 2; row < rows; row += kDown) {
      const uint32_t from =
          s.result + row / 64 * (gated_tile_form::kResult / 2) + page * kGatedPage;
      const uint32_t at = half_page_chunk(from, row % 64, chunk);
      uint32_t gate[4], up[4];
      load_shared(gate, at);
      load_shared(up, at + kGatedPages * kGatedPage);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        gate[i] = act(gate[i], up[i]);
      }
      store_words(to + row * y_step, gate);
    }
  }

  template <typename Form>
  __device__ __forceinline__ void finish(const gemm_shared &s, const CUtensorMap *gate,
                                         const gemm_place &p, int, int thread) const
  {
    if (saves && thread == 0) {
      store_pages(s, gate, p);
    }
    store_y(s, p, thread);
    if (saves && thread == 0) {
      wait_for_store_reads();
    }
  }
};

/** Leaves a warpgroup's gate and up rounded to T, in pages of 32 columns. */
template <typename T>
__device__ __forceinline__ void gemm_leave_gated(const float (&d)[kGatedColumns],
                                                 const gemm_shared &s, int consumer)
{
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x % kWarpgroup / 32;
  const uint32_t pages = s.result + consumer * (gated_tile_form::kResult / 2);
#pragma unroll
  for (int j = 0; j < 4; j += 2) { /* pages are constants away: few addresses stay in registers */
    const uint32_t to = half_page_chunk(pages, 16 * warp + lane % 16, j + lane / 16);
#pragma unroll
    for (int page = 0; page < 2 * kGatedPages; page++) {
      const float *v = d + 16 * page + 4 * j;
      store_matrices(to + page * kGatedPage, round_pair<T>(v[0], v[1]), round_pair<T>(v[2], v[3]),
                     round_pair<T>(v[4], v[5]), round_pair<T>(v[6], v[7]));
    }
  }
}

template <typename T>
__device__ __forceinline__ void gemm_consume_gated(const gemm_shared &s,
                                                   const gemm_dense_tiles &tiles)
{
  const int consumer = (int)threadIdx.x / kWarpgroup - 1;
  ring_turn<gated_tile_form::kStages> turn;
  gemm_place p;
  unsigned given = 0; /* parity of the tiles handed over */
  const int count = tiles.count(s.ends);
  for (int tile = (int)blockIdx.x; tile < count; tile += (int)gridDim.x) {
    tiles.find(s.ends, tile, &p);
    if (64 * consumer >= p.rows) {
      gemm_pass_by(s, turn, p);
      wait_for(s.result_empty, given);
    } else {
      float d[kGatedColumns];
      gemm_multiply<T, gated_tile_form, false>(d, s, turn, p, consumer);
      wait_for(s.result_empty, given);
      gemm_leave_gated<T>(d, s, consumer);
    }
    gemm_hand_over(s);
    given ^= 1;
  }
}

namespace
{

template <typename T, typename Epilogue>
__global__ void __launch_bounds__(kGemmSm90Threads, 1)
    gemm_gated_kernel(const __grid_constant__ gated_maps maps,
                      const __grid_constant__ gemm_dense_tiles tiles,
                      const __grid_constant__ Epilogue epilogue)
{
  extern __shared__ char gemm_memory[];
  const gemm_shared s = gemm_open<gated_tile_form>(gemm_memory, tiles.groups);
  if (threadIdx.x >= kWarpgroup) {
    take_registers<216>();
    gemm_consume_gated<T>(s, tiles);
    return;
  }
  give_registers<72>();
  if (threadIdx.x == 0) {
    gemm_produce<gated_tile_form>(s, tiles, epilogue, &maps.x, &maps.gate_weight, &maps.up_weight);
  } else if (threadIdx.x >= 32) {
    gemm_finish_tiles<gated_tile_form>(s, tiles, epilogue, &maps.gate);
  }
}

} // namespace

/** The products' operands and results, as pages_of names them. */
struct gated_matrices {
  tg_tensor x, gate_weight, up_weight, gate, up;
};

/** Starts the kernel of a plan. */
template <typename T, typename Epilogue>
tg_status gemm_launch_gated_sm90(const tg_context *ctx, const tgi_gemm_plan &plan,
                                 const gated_matrices &m, const gemm_dense_tiles &tiles,
                                 const Epilogue &epilogue)
{
  gated_maps g;
  const page_map maps[5] = {{&g.x, &m.x, kGemmTileM},
                            {&g.gate_weight, &m.gate_weight, kGatedColumns},
                            {&g.up_weight, &m.up_weight, kGatedColumns},
                            {&g.gate, &m.gate, 64, kHalfPageRow},
                            {&g.up, &m.up, 64, kHalfPageRow}};
  const tg_status status = make_page_maps(ctx, maps);
  return status != TG_OK ? status
                         : launch(ctx, gemm_gated_kernel<T, Epilogue>, dim3((unsigned)plan.blocks),
                                  kGemmSm90Threads, plan.shared, g, tiles, epilogue);
}

} // namespace TGI_CUDA_ENTRY

#endif

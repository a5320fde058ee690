/**
 * Dense products on Hopper whose consumers store their tiles themselves: C = op(A) op(B) with what
 * `linear` has behind the sums, or with scales of rows and columns.
 *
 * Method  The producer and the products of gemm_sm90.cuh. When a tile is done, each warpgroup
 *         brings its 64 rows, in blocks of 128 bytes a row, to memory: bias, saved values, GELU and
 *         residual in f32, one rounding, two blocks of shared memory in turns, TMA; or where rows
 *         of C begin anywhere, by the warps (gemm_loose_rows_sm90.cuh). Meanwhile the producer
 *         fills the stages of the next tile.
 * Work    Tiles of 128 x 256, which leave no room for a whole result in shared memory, or of 128 x
 *         128 where there are few of those; of the fewest, each by the blocks of a cluster in parts
 *         along k (gemm_split_sm90.cuh).
 * Sums    As in gemm_sm90.cuh: whatever the width of a tile, an element has the same bits. Sums of
 *         parts are added up in their order.
 * Bound   Tensor cores.
 */
#ifndef TGI_CUDA_GEMM_IN_STEP_SM90_CUH
#define TGI_CUDA_GEMM_IN_STEP_SM90_CUH

#include "cuda/gemm/sm90/gemm_finish_sm90.cuh"
#include "cuda/gemm/sm90/gemm_loose_rows_sm90.cuh"
#include "cuda/gemm/sm90/gemm_split_sm90.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** A warpgroup's rows of a tile, from sums to memory. */
template <typename C, typename Form, typename Way>
__device__ __forceinline__ void
    gemm_store_rows(typename Way::sum (&d)[Form::kN / 2], const gemm_shared &s,
                    const gemm_in_step_job &job, const gemm_place &p, const CUtensorMap *c,
                    int consumer, const gemm_scales<Form::kN, Way::kIntegers> &scales)
{
  constexpr int kColumns = kPageRow / (int)sizeof(C), kValues = kColumns / 2;
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x % kWarpgroup / 32;
  const bool leads = threadIdx.x % kWarpgroup == 0;
  const int row = p.row + 64 * consumer, first = p.column_tile * Form::kN;
  const float *bias = s.bias + consumer * Form::kN + 2 * (lane % 4);
  constexpr bool kIsHalf = sizeof(C) == 2;
  /* Wide tiles have no registers left for the pairs of loose rows. */
  constexpr bool kMayBeLoose = Way::kActs && Form::kN == 128;
  constexpr int kBlocks = Form::kN / kColumns;
  uint32_t pairs[Form::kN / 4];
  /* Wide tiles across k have no registers left for the next block's. */
  constexpr bool kAhead = !Way::kParts && !(Form::kTurnB && Form::kN == 256);
  const bool adds_pairs = !Way::kScales && job.add && job.n % 2 == 0;
  const auto part_of = [&](int block) -> gemm_part {
    return {row + 16 * warp + lane / 4, job.tiles.m, first + block * kColumns + 2 * (lane % 4),
            job.n};
  };
  gemm_addends<C, Way::kScales ? 4 : kValues> next;
  if (adds_pairs && kAhead) {
    next.read(part_of(0), job.add, job.add_step);
  }
  sync_some(1 + consumer, kWarpgroup); /* the bias, or columns' scales, are there */
#pragma unroll
  for (int block = 0; block < kBlocks; block++) {
    const int column = first + block * kColumns;
    if constexpr (Way::kParts) {
      if (!gemm_owns<kBlocks>(consumer, block)) {
        continue;
      }
      gemm_add_parts<kValues>(d + kValues * block, s, kValues * block);
    }
    if (adds_pairs && !kAhead) {
      next.read(part_of(block), job.add, job.add_step);
    }
    const auto addends = next;
    if (adds_pairs && kAhead && block + 1 < kBlocks) {
      next.read(part_of(block + 1), job.add, job.add_step);
    }
    const uint32_t page = s.result + (2 * consumer + block % 2) * kGemmBlock;
    const gemm_part at = part_of(block);
    float scaled[kValues]; /* integers */
    float *v = scaled;
    if constexpr (Way::kIntegers) {
      const int8_t *zero = scales.zeros(s, consumer) + 2 * (lane % 4);
      gemm_scale_integers<kValues>(v, d + kValues * block, job, at, bias + block * kColumns,
                                   zero + block * kColumns, scales.row, scales.row_sum);
    } else {
      v = d + kValues * block;
      if constexpr (Way::kScales) {
        gemm_scale_part<kValues>(v, job, at, bias + block * kColumns, scales.row);
      } else {
        gemm_finish_part<C, kValues, Way::kActs>(v, job, at, bias + block * kColumns);
        if (adds_pairs) {
          addends.add_to(v);
        } else if (job.add) {
          gemm_add_rows<C, kValues>(v, at, job.add, job.add_step);
        }
      }
    }
    if (kMayBeLoose && job.loose) {
      if constexpr (kIsHalf) {
#pragma unroll
        for (int i = 0; i < kValues / 2; i++) {
          pairs[kValues / 2 * block + i] = round_pair<C>(v[2 * i], v[2 * i + 1]);
        }
      } else { /* a warp writes and reads its own 16 rows of the page */
        gemm_leave_page<C>(v, page);
        __syncwarp();
        gemm_store_loose_page(static_cast<C *>(job.c), job.c_step, row + 16 * warp, job.tiles.m,
                              column, job.n, page, 16 * warp);
      }
      continue;
    }
    if (job.c && column + kColumns > job.n) {
      gemm_save_rows<C, kValues>(v, at, job.c, job.c_step);
      if (leads) {
        commit_stores(); /* of nothing: pages take turns */
      }
      continue;
    }
    if (leads) {
      wait_for_earlier_store_reads(); /* of this page */
    }
    sync_some(1 + consumer, kWarpgroup);
    gemm_leave_page<C>(v, page);
    publish_to_copies();
    sync_some(1 + consumer, kWarpgroup);
    if (leads) {
      if (column < job.n && job.adds) {
        add_page(c, column, row, 0, 0, page);
      } else if (column < job.n) {
        store_page(c, column, row, 0, 0, page);
      }
      commit_stores();
    }
  }
  if constexpr (kMayBeLoose && kIsHalf) {
    if (job.loose) {
      gemm_store_loose(pairs, s.result + (4 * consumer + warp) * (kGemmBlock / 2),
                       static_cast<uint16_t *>(job.c), job.c_step, row + 16 * warp, job.tiles.m,
                       first, job.n);
    }
  }
  /* Behind blocks without barriers: the next tile's takes its place. */
  if (job.c && (job.bias || Way::kScales)) {
    sync_some(1 + consumer, kWarpgroup);
  }
}

template <typename Form>
__device__ __forceinline__ void gemm_read_bias(const gemm_shared &s, const gemm_in_step_job &job,
                                               const gemm_place &p, int consumer)
{
  for (int i = (int)threadIdx.x % kWarpgroup; i < Form::kN && job.bias; i += kWarpgroup) {
    const int column = p.column_tile * Form::kN + i;
    s.bias[consumer * Form::kN + i] =
        column < job.n ? load_any(job.bias, job.bias_dtype, column) : 0.0f;
  }
}

template <typename Way, typename Form>
__device__ __forceinline__ void
    gemm_store_rows_as(typename Way::sum (&d)[Form::kN / 2], const gemm_shared &s,
                       const gemm_in_step_job &job, const gemm_place &p, const CUtensorMap *c,
                       int consumer, const gemm_scales<Form::kN, Way::kIntegers> &scales)
{
  if (job.is_f32) {
    gemm_store_rows<float, Form, Way>(d, s, job, p, c, consumer, scales);
  } else {
    gemm_store_rows<typename Way::result, Form, Way>(d, s, job, p, c, consumer, scales);
  }
}

template <typename Way, typename Form>
__device__ __forceinline__ void
gemm_consume_in_step(const gemm_shared &s, const gemm_in_step_job &job, const CUtensorMap *c)
{
  const int consumer = (int)threadIdx.x / kWarpgroup - 1;
  ring_turn<Form::kStages> turn;
  gemm_place p;
  const int count = job.tiles.count(s.ends);
  for (int tile = (int)blockIdx.x; tile < count; tile += (int)gridDim.x) {
    job.tiles.find(s.ends, tile, &p);
    if (64 * consumer >= p.rows) {
      gemm_pass_by(s, turn, p);
      continue;
    }
    gemm_scales<Form::kN, Way::kIntegers> scales = {};
    if constexpr (Way::kScales) {
      scales.read(job, p, consumer);
    } else {
      gemm_read_bias<Form>(s, job, p, consumer);
    }
    typename Way::sum d[Form::kN / 2];
    if constexpr (Way::kApart) {
      gemm_multiply_apart<typename Way::operand, Form>(d, s, turn, p, consumer);
    } else {
      gemm_multiply<typename Way::operand, Form, false>(d, s, turn, p, consumer);
    }
    if constexpr (Way::kScales) {
      scales.share(s.bias + consumer * Form::kN, scales.zeros(s, consumer));
    }
    gemm_store_rows_as<Way, Form>(d, s, job, p, c, consumer, scales);
  }
  if (threadIdx.x % kWarpgroup == 0) {
    wait_for_store_reads();
  }
}

/** The cluster's tile: this block's part of its sums, then the results that this block stores. */
template <typename Way, typename Form>
__device__ __forceinline__ void gemm_consume_part(const gemm_shared &s, const gemm_in_step_job &job,
                                                  const CUtensorMap *c)
{
  const int consumer = (int)threadIdx.x / kWarpgroup - 1;
  const gemm_part_tiles tiles = {job.tiles};
  ring_turn<Form::kStages> turn;
  gemm_place p;
  tiles.find(s.ends, (int)blockIdx.x, &p);
  const bool has_rows = 64 * consumer < p.rows;
  if (has_rows) {
    float d[Form::kN / 2];
    gemm_read_bias<Form>(s, job, p, consumer);
    gemm_multiply<typename Way::operand, Form, false>(d, s, turn, p, consumer);
    gemm_leave_part<Form>(d, s, p.rows > 64);
  } else {
    gemm_pass_by(s, turn, p);
  }
  cluster_barrier(cluster_blocks());
  if (has_rows) {
    float d[Form::kN / 2];
    const gemm_scales<Form::kN, Way::kIntegers> none = {};
    gemm_store_rows_as<Way, Form>(d, s, job, p, c, consumer, none);
    if (threadIdx.x % kWarpgroup == 0) {
      wait_for_store_reads();
    }
  }
  cluster_barrier(cluster_blocks()); /* others still read this block's sums */
}

namespace
{

template <typename Way, typename Form>
__global__ void __launch_bounds__(kGemmSm90Threads, 1)
    gemm_in_step_kernel(const __grid_constant__ CUtensorMap a,
                        const __grid_constant__ CUtensorMap b,
                        const __grid_constant__ CUtensorMap c,
                        const __grid_constant__ gemm_in_step_job job)
{
  /* There is no room to align it here. */
  extern __shared__ __align__(1024) char gemm_aligned_memory[];
  const gemm_shared s = gemm_open<Form>(gemm_aligned_memory, job.tiles.groups);
  if (threadIdx.x >= kWarpgroup) {
    take_registers<240>();
    if constexpr (Way::kParts) {
      gemm_consume_part<Way, Form>(s, job, &c);
    } else {
      gemm_consume_in_step<Way, Form>(s, job, &c);
    }
    return;
  }
  give_registers<24>();
  if (threadIdx.x == 0) {
    if constexpr (Way::kParts) {
      gemm_produce<Form>(s, gemm_part_tiles{job.tiles}, job, &a, &b, &b);
    } else {
      gemm_produce<Form>(s, job.tiles, job, &a, &b, &b);
    }
  }
}

} // namespace

/** A kernel, and the rows of A's and B's boxes. */
struct gemm_in_step_choice {
  void (*kernel)(CUtensorMap, CUtensorMap, CUtensorMap, gemm_in_step_job);
  int a_rows, b_rows;
  bool in_parts;
};

/** One function for all kernels: its code would be as large for each of them. */
__attribute__((noinline)) inline tg_status
gemm_start_in_step_sm90(const tg_context *ctx, const tgi_gemm_plan &plan, const gemm_matrices &m,
                        const gemm_in_step_job &job, const gemm_in_step_choice &choice)
{
  CUtensorMap a, b, c;
  const page_map maps[3] = {
      {&a, &m.a, choice.a_rows}, {&b, &m.b, choice.b_rows}, {&c, job.loose ? &m.a : &m.c, 64}};
  const tg_status status = make_page_maps(ctx, maps);
  if (status != TG_OK) {
    return status;
  }
  if (!choice.in_parts) {
    return launch(ctx, choice.kernel, dim3((unsigned)plan.blocks), kGemmSm90Threads, plan.shared, a,
                  b, c, job);
  }
  cluster_launch l;
  const cudaError_t e = prepare_clusters(ctx, (const void *)choice.kernel, plan.parts,
                                         kGemmSm90Threads, plan.shared, &l);
  return launch_clusters(ctx, e, choice.kernel, &l, (int)plan.tiles, a, b, c, job);
}

/** Starts the kernel of a plan. */
template <typename Way, typename Form>
tg_status gemm_launch_in_step_sm90(const tg_context *ctx, const tgi_gemm_plan &plan,
                                   const gemm_matrices &m, gemm_in_step_job job)
{
  job.run = Form::kN / 2;
  const gemm_in_step_choice choice = {gemm_in_step_kernel<Way, Form>,
                                      Form::kTurnA ? kGemmTileK : kGemmTileM,
                                      Form::kTurnB ? kGemmTileK : Form::kN / 2, Way::kParts};
  return gemm_start_in_step_sm90(ctx, plan, m, job, choice);
}

} // namespace TGI_CUDA_ENTRY

#endif

/**
 * Matrix products of 16-bit operands, and of f32 ones in TF32 (T = tf32), on tensor cores from
 * compute capability 8.0 on: every size, layout and alignment, products of experts too.
 *
 * Method  A block multiplies a tile of C. Tiles of A and B pass through a ring of stages in shared
 *         memory (cp.async; single elements where rows do not begin at multiples of 16 bytes), and
 *         by ldmatrix to registers, where mma.sync adds up in f32. Matrices that lie across k are
 *         turned by ldmatrix, those of f32 by loads of words. f32 is rounded to TF32 in registers.
 *         What follows the sums reads them from shared memory, row by row.
 * Sums    One chain for an element, in the order of k, 16 at a time (TF32: 8): its bits depend on
 *         its row of A and its column of B alone, not on the tile's shape or place.
 * Bound   Tensor cores; few rows: memory.
 */
#ifndef TGI_CUDA_GEMM_SM80_CUH
#define TGI_CUDA_GEMM_SM80_CUH

#include "cuda/gemm/sm80/gemm_operand_sm80.cuh"
#include "cuda/half_pair.cuh"
#include "cuda/reduce.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** A tile of kM x kN, kWordsOf 16-bit words along k in a stage, kHalvesOf of them an element; warps
 * lie kDown x kAcross over it; kBlocks of them share a multiprocessor. */
template <int kHalvesOf, int kMOf, int kNOf, int kWordsOf, int kStagesOf, int kDownOf,
          int kAcrossOf, int kBlocksOf>
struct mma_shape {
  static constexpr int kM = kMOf, kN = kNOf, kK = kWordsOf / kHalvesOf, kStages = kStagesOf;
  static constexpr int kDown = kDownOf, kAcross = kAcrossOf, kBlocks = kBlocksOf;
  static constexpr int kThreads = kDown * kAcross * kWarp;
  static constexpr int kWarpM = kM / kDown, kWarpN = kN / kAcross;
  /* Bytes, with what may lie between rows of both operands. */
  static constexpr int kStage = 2 * kWordsOf * (kM + kN) + (kHalvesOf == 1 ? 0 : 64 * kK);
  static constexpr int kPitch = kN + 8; /* of sums: no two quarters of a half warp in a bank */
  static constexpr int kSums = 4 * kWarpM * kPitch;
  static constexpr int kBytes = kStages * kStage > kSums ? kStages *kStage : kSums;
  static_assert(kWarpM % 16 == 0 && kWarpN % 16 == 0 && kWordsOf % 32 == 0, "whole instructions");
};

template <typename T> using mma_large_of = mma_shape<kHalves<T>, 128, 128, 32, 4, 2, 2, 2>;
template <typename T> using mma_middle_of = mma_shape<kHalves<T>, 64, 64, 64, 4, 2, 2, 3>;
template <typename T>
using mma_few_of = mma_shape<kHalves<T>, 16, 32, 128, kIsTf32<T> ? 5 : 6, 1, 2, 2>;

/* Of 16-bit operands. */
using mma_large = mma_large_of<bf16>;
using mma_middle = mma_middle_of<bf16>;
using mma_few = mma_few_of<bf16>;

/** What a block's threads have in common about its tile; a job's `place` sets it. */
struct mma_place {
  int64_t row0, col0; /* of C, within the group's matrix or among all rows */
  int64_t end;        /* of C's rows, from which on there are none of this tile */
  int64_t first;      /* row that step 0 is, across k */
  int64_t group;
  int steps;
  bool leads; /* the one tile that records what is wrong with the rows that it shares with others */
  bool none;  /* rows of no group */
  bool skips; /* nothing to do */
};

template <typename Shape> struct mma_lists {
  mma_place place;
  uint32_t a[Shape::kM], b[Shape::kN]; /* which rows lines are, of operands along k */
  uint32_t step[2][Shape::kK];         /* which rows steps are, of a gathered operand across k */
  bool bad[Shape::kM];                 /* lines of A that are none of its matrix */
  bool bad_step;                       /* or a step is none */
};

/** Where a warp reads its fragments: matrices of 16 lines and 16 steps (TF32: 8). Their four
 * quarters follow each other with lines first, as A's, or with steps first. */
template <typename Tile, bool kTurned, bool kLinesFirst> struct mma_fragments {
  int row, chunk; /* of words: the column */

  __device__ __forceinline__ void begin(int line0)
  {
    const int lane = (int)threadIdx.x % kWarp;
    if constexpr (Tile::kWords) {
      row = lane % 4;
      chunk = line0 + lane / 4;
      return;
    }
    const int inner = lane / 8 % 2, outer = lane / 16;
    const int line_half = kLinesFirst ? inner : outer, step_half = kLinesFirst ? outer : inner;
    row = lane % 8 + 8 * (kTurned ? step_half : line_half) + (kTurned ? 0 : line0);
    chunk = kTurned ? line0 / kMmaChunk + line_half : step_half;
  }

  /** Lines 16 i .. of the warp's. */
  __device__ __forceinline__ void load(uint32_t (&to)[4], uint32_t tile, int step, int i) const
  {
    if constexpr (Tile::kWords) {
      const uint32_t from = tile + row * Tile::kPitch + 4 * chunk;
#pragma unroll
      for (int m = 0; m < 4; m++) {
        const int line_half = kLinesFirst ? m % 2 : m / 2, step_half = kLinesFirst ? m / 2 : m % 2;
        to[m] = load_shared(from + (8 * step + 4 * step_half) * Tile::kPitch +
                            4 * (16 * i + 8 * line_half));
      }
    } else if constexpr (kTurned) {
      load_matrices_turned(to, tile + Tile::place_of(row + 16 * step, chunk + 2 * i));
    } else {
      load_matrices(to, tile + Tile::place_of(row + 16 * i, chunk + 2 * step));
    }
  }
};

/** A block's way through the stages of a tile. kGathers: the operand, of two across k, whose steps
 * are gathered: 1 is A, 2 is B. kLists: lines of operands along k are listed. */
template <typename T, typename Shape, bool kATurned, bool kBTurned, int kGathers, bool kLists>
struct mma_pipeline {
  using a_tile = mma_tile<T, Shape::kM, Shape::kK, Shape::kThreads, kATurned,
                          kATurned ? kGathers == 1 : kLists>;
  using b_tile = mma_tile<T, Shape::kN, Shape::kK, Shape::kThreads, kBTurned,
                          kBTurned ? kGathers == 2 : kLists>;
  static constexpr int kStage = a_tile::kBytes + b_tile::kBytes;
  static constexpr int kSteps = Shape::kK * kHalves<T> / 16, kParts = kSteps - 1;
  static constexpr int kRows = Shape::kWarpM / 16, kColumns = Shape::kWarpN / 8;
  static constexpr int kPairs = kColumns / 2;
  static_assert(kStage <= Shape::kStage, "stages fit");

  a_tile a;
  b_tile b;
  mma_fragments<a_tile, kATurned, true> from_a;
  mma_fragments<b_tile, kBTurned, false> from_b;
  uint32_t stages, reading, writing; /* shared memory; the stage that is multiplied, and copied */
  int steps, count;                  /* of stages */
  int64_t first;                     /* row of step 0, of a gathered operand */
  bool bad;                          /* a step of the thread's is none */

  __device__ __forceinline__ uint32_t behind(uint32_t stage) const
  {
    const uint32_t next = stage + kStage;
    return next == stages + Shape::kStages * kStage ? stages : next;
  }

  template <int kPart, bool kWhole>
  __device__ __forceinline__ void copy(const mma_lists<Shape> &s, int stage)
  {
    const int k0 = stage * Shape::kK;
    const uint32_t *list_a = kATurned ? s.step[stage % 2] : s.a;
    const uint32_t *list_b = kBTurned ? s.step[stage % 2] : s.b;
    if constexpr (kWhole) {
      a.template copy_whole<kPart, kParts>(writing, k0, list_a);
      b.template copy_whole<kPart, kParts>(writing + a_tile::kBytes, k0, list_b);
    } else {
      a.template copy_any<kPart, kParts>(writing, k0, steps, list_a);
      b.template copy_any<kPart, kParts>(writing + a_tile::kBytes, k0, steps, list_b);
    }
  }

  /** Which rows the steps of a stage are; behind the last one it is the last. */
  template <typename Job>
  __device__ __forceinline__ void list_steps(mma_lists<Shape> &s, const Job &job, int stage)
  {
    if constexpr (kGathers != 0) {
      static_assert(Shape::kThreads % Shape::kK == 0, "threads write one step or the same one");
      const int i = (int)threadIdx.x % Shape::kK, k = stage * Shape::kK + i;
      const int64_t at = job.step_at(first + (k < steps ? k : steps - 1));
      bad = bad || at < 0;
      s.step[stage % 2][i] = at < 0 ? 0 : (uint32_t)at;
    }
  }

  /** Fills all stages but one. */
  template <typename Job> __device__ __forceinline__ void begin(mma_lists<Shape> &s, const Job &job)
  {
    const int warp = (int)threadIdx.x / kWarp;
    from_a.begin(warp / Shape::kAcross * Shape::kWarpM);
    from_b.begin(warp % Shape::kAcross * Shape::kWarpN);
    reading = writing = stages;
#pragma unroll 1
    for (int i = 0; i < Shape::kStages - 1; i++) {
      list_steps(s, job, i);
      if constexpr (kGathers != 0) {
        __syncthreads();
      }
      if (i < count) {
        a.template copy_any<0, 1>(writing, i * Shape::kK, steps, kATurned ? s.step[i % 2] : s.a);
        b.template copy_any<0, 1>(writing + a_tile::kBytes, i * Shape::kK, steps,
                                  kBTurned ? s.step[i % 2] : s.b);
      }
      commit_copies();
      writing = behind(writing);
    }
    list_steps(s, job, Shape::kStages - 1);
    wait_for_copies<Shape::kStages - 2>();
    __syncthreads();
  }

  /** The tile's sums. The stages whose copies need no look at the edges come first. */
  template <typename Job>
  __device__ __forceinline__ void run(float (&sum)[kRows][kColumns][4], mma_lists<Shape> &s,
                                      const Job &job)
  {
    steps = s.place.steps;
    first = s.place.first;
    count = (steps + Shape::kK - 1) / Shape::kK;
    bad = false;
    if (count == 0) {
      return;
    }
    begin(s, job);
    uint32_t fa[2][kRows][4], fb[2][4];
    load_rows<0, kRows>(fa[0], 0);
    from_b.load(fb[0], reading + a_tile::kBytes, 0, 0);
    int k = 0;
    const int whole = a.fast && b.fast ? steps / Shape::kK : 0;
#pragma unroll 1
    for (; k + Shape::kStages - 1 < whole; k++) {
      run_stage<0, true>(sum, s, job, fa, fb, k);
    }
#pragma unroll 1
    for (; k < count; k++) {
      run_stage<0, false>(sum, s, job, fa, fb, k);
    }
    if (bad) {
      s.bad_step = true;
    }
    wait_for_copies<0>();
    __syncthreads();
  }

  template <int kBegin, int kEnd>
  __device__ __forceinline__ void load_rows(uint32_t (&fa)[kRows][4], int step) const
  {
#pragma unroll
    for (int i = kBegin; i < kEnd; i++) {
      from_a.load(fa[i], reading, step, i);
    }
  }

  /** Step kStep of stage k. */
  template <int kStep, bool kWhole, typename Job>
  __device__ __forceinline__ void run_stage(float (&sum)[kRows][kColumns][4], mma_lists<Shape> &s,
                                            const Job &job, uint32_t (&fa)[2][kRows][4],
                                            uint32_t (&fb)[2][4], int k)
  {
    if constexpr (kStep < kSteps) {
      const int coming = k + Shape::kStages - 1;
      if constexpr (kStep < kParts) {
        if (kWhole || coming < count) {
          copy<kStep, kWhole>(s, coming);
        }
      }
      if constexpr (kStep == 0) {
        list_steps(s, job, coming + 1);
      }
      run_pairs<kStep, 0>(sum, fa, fb);
      run_stage<kStep + 1, kWhole>(sum, s, job, fa, fb, k);
    }
  }

  /** Pair kPair of the eight columns that a step multiplies with all rows, TF32 rounded before its
   * first use. Meanwhile the next pair is read, and rows of the next step: of a stage's last step
   * with its last pair, behind the barrier where the next stage is there and nobody reads this one
   * any more. */
  template <int kStep, int kPair>
  __device__ __forceinline__ void run_pairs(float (&sum)[kRows][kColumns][4],
                                            uint32_t (&fa)[2][kRows][4], uint32_t (&fb)[2][4])
  {
    if constexpr (kPair < kPairs) {
      constexpr bool kLastStep = kStep == kSteps - 1, kLastPair = kPair == kPairs - 1;
      constexpr int kNext = (kStep + 1) % kSteps, kUsed = (kStep * kPairs + kPair) % 2;
      if constexpr (kLastStep && kLastPair) {
        commit_copies();
        wait_for_copies<Shape::kStages - 2>();
        __syncthreads();
        reading = behind(reading);
        writing = behind(writing);
        load_rows<0, kRows>(fa[kNext % 2], kNext);
      } else if constexpr (!kLastStep) {
        load_rows<kPair * kRows / kPairs, (kPair + 1) * kRows / kPairs>(fa[kNext % 2], kNext);
      }
      from_b.load(fb[1 - kUsed], reading + a_tile::kBytes, kLastPair ? kNext : kStep,
                  kLastPair ? 0 : kPair + 1);
      round_words<T>(fb[kUsed]);
#pragma unroll
      for (int i = 0; kPair == 0 && i < kRows; i++) {
        round_words<T>(fa[kStep % 2][i]);
      }
#pragma unroll
      for (int j = 0; j < 2; j++) {
#pragma unroll
        for (int i = 0; i < kRows; i++) {
          multiply_small<T>(sum[i][2 * kPair + j], fa[kStep % 2][i], fb[kUsed][2 * j],
                            fb[kUsed][2 * j + 1], true);
        }
      }
      run_pairs<kStep, kPair + 1>(sum, fa, fb);
    }
  }
};

template <typename Shape, bool kATurned, bool kBTurned, typename Job>
__device__ __forceinline__ void list_lines(mma_lists<Shape> &s, const Job &job)
{
  if (threadIdx.x == 0) {
    s.bad_step = false;
  }
  if constexpr (Job::kLists) {
    for (int i = (int)threadIdx.x; !kATurned && i < Shape::kM; i += Shape::kThreads) {
      const int64_t at = job.a_line(s.place, i);
      s.bad[i] = at < 0;
      s.a[i] = at < 0 ? 0 : (uint32_t)at;
    }
    for (int i = (int)threadIdx.x; !kBTurned && i < Shape::kN; i += Shape::kThreads) {
      s.b[i] = (uint32_t)job.template b_line<Shape>(s.place, i);
    }
  }
}

/**
 * Job, by value:
 *   int64_t tiles()                        how many there are
 *   void place(s, tile)                    s.place, by all threads, who meet behind it
 *   kLists                                 lines of operands along k are listed:
 *   int64_t a_line(p, i), b_line(p, i)     which row line i is; 0: there is no such line; of A also
 *                                          kBadRow, which `finish` sees to
 *   int64_t a_lines(p, &exist), b_...      else: row of the first line, and how many there are
 *   int64_t a_column(p, c, &exist), b_...  first column of chunk c, of operands across k
 *   kGathers                               the operand, of two across k, whose steps are gathered:
 *                                          1 is A, 2 is B, 0 none
 *   int64_t step_at(r)                     which row of it step r of all groups is, or kBadRow
 *   void finish(s, sums, first)            what follows the sums of kWarpM rows of the tile from
 *                                          `first` on: sums[row][Shape::kPitch], by all threads
 *   mma_operand a, b
 */
template <typename T, typename Shape, bool kATurned, bool kBTurned, typename Job>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    gemm_mma_kernel(const __grid_constant__ Job job)
{
  using pipeline = mma_pipeline<T, Shape, kATurned, kBTurned, Job::kGathers, Job::kLists>;
  extern __shared__ __align__(128) char raw[];
  __shared__ mma_lists<Shape> s;
  float *sums = reinterpret_cast<float *>(raw);
  const int warp = (int)threadIdx.x / kWarp, lane = (int)threadIdx.x % kWarp;
  const int64_t tiles = job.tiles();
#pragma unroll 1
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    __syncthreads();
    job.template place<Shape>(s, tile);
    __syncthreads();
    if (s.place.skips) {
      continue;
    }
    list_lines<Shape, kATurned, kBTurned>(s, job);
    pipeline run;
    run.stages = shared_address(raw);
    int exist = 0;
    int64_t first = 0, column = 0;
    if constexpr (kATurned) {
      first = Job::kGathers == 1 ? 0 : s.place.first;
      column = job.template a_column<Shape>(s.place, pipeline::a_tile::chunk(), &exist);
    } else if constexpr (!Job::kLists) {
      first = job.a_lines(s.place, &exist);
    }
    run.a.begin(job.a, 0, first, column, exist);
    first = column = 0;
    if constexpr (kBTurned) {
      first = Job::kGathers == 2 ? 0 : s.place.first;
      column = job.template b_column<Shape>(s.place, pipeline::b_tile::chunk(), &exist);
    } else if constexpr (!Job::kLists) {
      first = job.b_lines(s.place, &exist);
    }
    run.b.begin(job.b, s.place.group, first, column, exist);
    __syncthreads();
    float sum[pipeline::kRows][pipeline::kColumns][4] = {};
    run.run(sum, s, job);
#pragma unroll 1
    for (int pass = 0; pass < Shape::kDown; pass++) {
      if (pass == warp / Shape::kAcross) {
        float *to =
            sums + lane / 4 * Shape::kPitch + warp % Shape::kAcross * Shape::kWarpN + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < pipeline::kRows; i++) {
#pragma unroll
          for (int j = 0; j < pipeline::kColumns; j++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
              *reinterpret_cast<float2 *>(to + (16 * i + 8 * h) * Shape::kPitch + 8 * j) =
                  make_float2(sum[i][j][2 * h], sum[i][j][2 * h + 1]);
            }
          }
        }
      }
      __syncthreads();
      job.template finish<Shape>(s, sums, pass * Shape::kWarpM);
      __syncthreads();
    }
  }
}

/** Whether a block may have the shared memory that the tiles need. */
template <typename Shape> bool mma_fits(const tg_context *ctx)
{
  return ctx->device->shared_bytes >= Shape::kBytes + (int)sizeof(mma_lists<Shape>);
}

template <typename T, typename Shape, bool kATurned, bool kBTurned, typename Job>
tg_status gemm_mma_launch(const tg_context *ctx, const Job &job, int64_t tiles)
{
  return launch(ctx, gemm_mma_kernel<T, Shape, kATurned, kBTurned, Job>, grid_of(tiles),
                Shape::kThreads, Shape::kBytes, job);
}

} // namespace TGI_CUDA_ENTRY

#endif

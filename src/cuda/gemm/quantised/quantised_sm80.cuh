/**
 * Products of 16-bit rows x with packed quantised weights on tensor cores, from compute capability
 * 8.0 on: y = x W^T + bias, with W made 16-bit floats in registers, exactly.
 *
 * The weight is the left operand. Lane 4 g + q of a warp has rows 4 g to 4 g + 3 of a panel and,
 * of 32 columns, 8 q to 8 q + 7: what it reads of a panel lies together, and of a row of x it reads
 * 16 bytes. The order of k within a product is free as long as both operands have the same.
 *
 * Order of sums. Columns are cut into chunks of 128 and the chunks into kTeams runs of equal length
 * but for the last ones. A run is a chain of matrix products in the order of k, or of its groups'
 * sums, each scaled; of the runs the first half is added in order, then the other half, then the
 * two. So `in` alone decides the order: not the rows, not the launch.
 *
 * A block has some panels, some rows of x and a team of warps for each run. Chunks come to a ring
 * of stages by asynchronous copies. A warp copies its own panels, and its share of x, which lies in
 * a stage as the lanes read it; so a team of one warp needs no barrier. Teams meet at the end only.
 *
 * An operand (ops/linear_int4/int4_operand.cuh and others) says how a chunk of a panel is copied,
 * and how 32 columns of it become fragments.
 */
#ifndef TGI_CUDA_QUANTISED_SM80_CUH
#define TGI_CUDA_QUANTISED_SM80_CUH

#include "cuda/gemm/gemm_loader.cuh"
#include "cuda/half_pair.cuh"
#include "cuda/mma.cuh"
#include "cuda/packed_weight.cuh"
#include "cuda/reduce.cuh"

#include <type_traits>

inline namespace TGI_CUDA_ENTRY
{

constexpr int kTeams = 8;
constexpr int kChunk = 128, kStep = 32, kChunkSteps = kChunk / kStep;
constexpr int kHeaderRoom = 128; /* of a block's shared memory, for the weight's header */

struct quantised_product {
  const void *x, *bias; /* x: or its digits */
  void *y;
  packed_weight w;
  int64_t rows, x_step, y_step; /* steps in elements */
  int64_t panel_bytes;
  int stage_bytes;             /* of a chunk of a panel, in shared memory */
  int group_shift, head_bytes; /* int4: see int4_operand; 0 head_bytes: the header says */
  int64_t digit_units;         /* int8 with int8: of a strip of digits, their scales, their sums */
  const double *digit_scale;
  const int64_t *digit_sums;
  tg_dtype bias_dtype, y_dtype;
};

/** 16 bytes from memory to shared memory if `exists`; else nothing happens. */
__device__ __forceinline__ void copy_if(uint32_t to, const void *from, bool exists)
{
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0;\n"
               "@p cp.async.cg.shared.global [%0], [%1], 16; }"
               :
               : "r"(to), "l"(__cvta_generic_to_global(from)), "r"((uint32_t)exists)
               : "memory");
}

/** The value, which the compiler does not make again where it is used. */
__device__ __forceinline__ int held(int v)
{
  asm volatile("" : "+r"(v));
  return v;
}

/** a * b + c of pairs. */
template <typename T>
__device__ __forceinline__ uint32_t multiply_add_pair(uint32_t a, uint32_t b, uint32_t c)
{
  uint32_t d;
  if constexpr (kIsBf16<T>) {
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  } else {
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  }
  return d;
}

/** a + b of pairs. */
template <typename T> __device__ __forceinline__ uint32_t add_pair(uint32_t a, uint32_t b)
{
  return multiply_add_pair<T>(a, kIsBf16<T> ? 0x3f803f80u : 0x3c003c00u, b);
}

/** What a block of a kernel is: panels in all and of a warp, tiles of eight rows of x. */
template <int Panels, int OfWarp, int Tiles, int Stages> struct quantised_block {
  static constexpr int kPanels = Panels, kOfWarp = OfWarp, kTiles = Tiles, kStages = Stages;
  static constexpr int kPanelWarps = Panels / OfWarp;
  static constexpr int kTeamThreads = kWarp * kPanelWarps;
  static constexpr int kThreads = kTeamThreads * kTeams;
  static constexpr int kRows = 8 * Tiles; /* of x */
  static constexpr int kPartStep = TGI_PANEL_ROWS * Panels + 4;
  static constexpr int kPartBytes = kTeams * kRows * kPartStep * 4;
  static_assert(Panels % OfWarp == 0, "warps have equal numbers of panels");

  /** tile_bytes: of eight rows of x and a chunk. */
  __host__ __device__ static int stage_bytes(const quantised_product &p, int tile_bytes)
  {
    return Tiles * tile_bytes + Panels * p.stage_bytes;
  }

  static size_t shared_bytes(const quantised_product &p, int tile_bytes)
  {
    const int ring = kTeams * Stages * stage_bytes(p, tile_bytes);
    return (size_t)(kHeaderRoom + (ring > kPartBytes ? ring : kPartBytes));
  }
};

/** Rows of x on their way to a team. A warp copies two rows of a chunk at a time, a half row of 128
 * bytes by eight neighbouring lanes; in shared memory a step's 16 bytes of a lane lie where that
 * lane reads them. Rows that do not exist are zeros. */
template <int kTiles> struct rows_of_x {
  static constexpr int kTileBytes = 8 * 2 * kChunk;
  const char *row; /* the lane's first one, of its next chunk */
  int64_t step;    /* bytes to the lane's next row */
  int rows;        /* that there are from its first one on */
  int place;

  __device__ __forceinline__ rows_of_x(const quantised_product &p, int64_t row0, int64_t chunk)
  {
    const int lane = threadIdx.x % kWarp, unit = lane % 16;
    const int64_t left = p.rows - row0 - lane / 16;
    const int64_t first = left > 0 ? row0 + lane / 16 : 0;
    row = static_cast<const char *>(p.x) + (first * p.x_step + chunk * kChunk + 8 * unit) * 2;
    step = 4 * p.x_step;
    rows = held(left < 8 * kTiles ? (int)left : 8 * kTiles);
    place = held((unit / 4 * kWarp + lane / 16 * 4 + unit % 4) * 16);
  }

  /** Copies the next chunk, which has `columns` columns, a multiple of 8, all or less than all of
   * them: the part of the team's warp `warp` of `kWarps`. */
  template <int kWarps, bool kAll>
  __device__ __forceinline__ void copy(uint32_t to, int columns, int warp)
  {
    const bool is_in_row = kAll || 8 * ((int)threadIdx.x % 16) < columns;
    const char *from = row + warp * step;
    const uint32_t mine = to + place + warp * 8 * 16;
#pragma unroll
    for (int i = 0; i < 4 * kTiles; i += kWarps) { /* rows 2 (i + warp) and 2 (i + warp) + 1 */
      copy_chunk(mine + i / 4 * kTileBytes + i % 4 * 8 * 16, from,
                 is_in_row && 2 * (i + warp) < rows);
      from += kWarps * step;
    }
    row += 2 * kChunk;
  }
};

/** total += scale of its row * factor * sum. */
template <int kFactor, int kTiles>
__device__ __forceinline__ void
add_scaled(float (&total)[2][kTiles][4], const float (&sum)[2][kTiles][4], const float (&scale)[4])
{
#pragma unroll
  for (int m = 0; m < 2; m++) {
#pragma unroll
    for (int n = 0; n < kTiles; n++) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const float v = kFactor == 1 ? sum[m][n][i] : sum[m][n][i] * (float)kFactor;
        total[m][n][i] = fmaf(scale[2 * m + i / 2], v, total[m][n][i]);
      }
    }
  }
}

/** A lane's part of a step: its words of the panels and of the rows of x. */
template <int kPanels, int kTiles, int kWords> struct step_words {
  uint32_t w[kPanels][kWords], x[kTiles][4];

  template <typename Form>
  __device__ __forceinline__ void load(const Form &form, uint32_t w_at, int stage_bytes,
                                       uint32_t x_at, int step)
  {
#pragma unroll
    for (int i = 0; i < kPanels; i++) {
      form.load(w[i], w_at + i * stage_bytes, step);
    }
    const int lane = threadIdx.x % kWarp;
#pragma unroll
    for (int n = 0; n < kTiles; n++) {
      load_shared(x[n], x_at + ((n * kChunkSteps + step) * kWarp + lane) * 16);
    }
  }
};

/** total[i] += the products of a chunk of panel i, at w + i * stage_bytes, with the rows at x.
 * kAll: there are kChunkSteps steps. */
template <typename T, bool kAll, int kPanels, int kTiles, typename Form>
__device__ __forceinline__ void multiply_chunk(const Form &form,
                                               float (&total)[kPanels][2][kTiles][4], uint32_t w,
                                               int stage_bytes, uint32_t x, int steps)
{
  float of_group[Form::kScaled ? kPanels : 1][2][kTiles][4] = {};
  uint32_t less[kPanels][4];
  /* Where registers allow it, the next step's words are loaded ahead of a step's products. */
  constexpr bool kAhead = kAll && kPanels * kTiles < 4;
  step_words<kPanels, kTiles, Form::kWords> now, next;
  now.load(form, w, stage_bytes, x, 0);
  /* Not written into the loop: nvcc 13.0 then orders the code so that a row takes 3 % longer. */
  const auto multiply_step = [&](int step) {
    if (kAhead && step > 0) {
      now = next;
    } else if (step > 0) {
      now.load(form, w, stage_bytes, x, step);
    }
    if (kAhead && step + 1 < kChunkSteps) {
      next.load(form, w, stage_bytes, x, step + 1);
    }
#pragma unroll
    for (int i = 0; i < kPanels; i++) {
      float(&sum)[2][kTiles][4] = Form::kScaled ? of_group[i] : total[i];
      uint32_t a[2][2][4];
      if (form.begins_group(step)) {
        form.template zero_points<T>(less[i], w + i * stage_bytes, step);
      }
      form.template widen<T>(a, now.w[i], less[i]);
#pragma unroll
      for (int n = 0; n < kTiles; n++) {
        const uint32_t(&of_x)[4] = now.x[n];
#pragma unroll
        for (int m = 0; m < 2; m++) {
          const bool add = !Form::kScaled || !form.begins_group(step);
          multiply_small<T>(sum[m][n], a[0][m], of_x[0], of_x[1], add);
          multiply_small<T>(sum[m][n], a[1][m], of_x[2], of_x[3], true);
        }
      }
      if constexpr (Form::kScaled) {
        if (form.ends_group(step) || (!kAll && step + 1 == steps)) {
          float scale[4];
          form.scales(scale, w + i * stage_bytes, step);
          add_scaled<Form::template kFactor<T>>(total[i], sum, scale);
        }
      }
    }
  };
#pragma unroll(kAll ? kChunkSteps : 1)
  for (int step = 0; step < (kAll ? kChunkSteps : steps); step++) {
    multiply_step(step);
  }
}

/** y of a row and an output from their sum of all runs; NaN if the weight does not fit. */
template <typename Operand, typename Sum>
__device__ __forceinline__ float finish_sum(const Operand &operand, const quantised_product &p,
                                            int64_t row, int64_t o, Sum sum, bool fits)
{
  if constexpr (Operand::kOnlyFinite) {
    sum = fmaf(0.0f, sum, sum); /* infinity becomes NaN, as on every entry */
  }
  float y = operand.finish(p, row, o, sum);
  if (p.bias) {
    y = y + load_any(p.bias, p.bias_dtype, o);
  }
  return fits ? y : CUDART_NAN_F;
}

/** Stores it. */
template <typename Operand, typename Sum>
__device__ __forceinline__ void store_sum(const Operand &operand, const quantised_product &p,
                                          int64_t row, int64_t o, Sum sum, bool fits)
{
  store_any(p.y, p.y_dtype, row * p.y_step + o, finish_sum(operand, p, row, o, sum, fits));
}

/** What a warp multiplies: panels, and of k the chunks of its team's run. */
struct run_part {
  int64_t panel, row0; /* the first ones */
  int own;             /* panels, or less than 1 */
  int warp;            /* of the team */
  int first, end;      /* chunks */
  int stage_bytes, x_at;
  uint32_t ring; /* the team's stages, in each the panels and, at x_at, rows of x */
  int barrier;   /* of a team of several warps */

  __device__ __forceinline__ void set_run(int chunks, int run_number)
  {
    const int run = (chunks + kTeams - 1) / kTeams;
    first = run_number * run;
    end = first + run < chunks ? first + run : chunks;
  }
};

/** The weight's header on its way to shared memory, by the block's first warp. */
__device__ __forceinline__ void copy_header(const quantised_product &p, const uint8_t *to)
{
  copy_if(shared_address(to) + 16 * threadIdx.x, p.w.data + 16 * threadIdx.x,
          16 * threadIdx.x < TGI_PACKED_HEADER_BYTES);
}

/** total = the sums of a run. On return all of the thread's copies have come. */
template <typename T, typename B, typename Operand, typename Sum>
__device__ __forceinline__ void sum_run(const Operand &operand, const quantised_product &p,
                                        const run_part &r,
                                        Sum (&total)[B::kOfWarp][2][B::kTiles][4])
{
  constexpr int kOfWarp = B::kOfWarp, kStages = B::kStages;
  const int own_at = r.warp * kOfWarp * p.stage_bytes, end = r.end;
  const int whole = end < (int)(p.w.in / kChunk) ? end : (int)(p.w.in / kChunk);
  const int columns_left = (int)(p.w.in % kChunk); /* of the chunk behind the whole ones */
  operand.visit([&](auto form) {
    typename Operand::template rows<B::kTiles> rows(p, r.row0, r.first);
    form.template begin<kOfWarp>(p, r.panel, r.first);
    const auto copy_weight = [&](int chunk, uint32_t stage) {
      if (chunk < whole) {
        form.template copy<kOfWarp, true>(r.own, kChunk, stage + own_at, p.stage_bytes);
      } else if (chunk < end) {
        form.template copy<kOfWarp, false>(r.own, columns_left, stage + own_at, p.stage_bytes);
      }
    };
    const auto copy_rows = [&](int chunk, uint32_t stage) {
      if (chunk < whole) {
        rows.template copy<B::kPanelWarps, true>(stage + r.x_at, kChunk, r.warp);
      } else if (chunk < end) {
        rows.template copy<B::kPanelWarps, false>(stage + r.x_at, columns_left, r.warp);
      }
      commit_copies();
    };
#pragma unroll
    for (int i = 0; i < kStages - 1; i++) {
      copy_weight(r.first + i, r.ring + i * r.stage_bytes);
    }
    await_kernel_before(); /* which may have made x */
    let_next_begin();      /* all before this kernel has ended when the next reads its weight */
#pragma unroll
    for (int i = 0; i < kStages - 1; i++) {
      copy_rows(r.first + i, r.ring + i * r.stage_bytes);
    }
    const uint32_t last = r.ring + (kStages - 1) * r.stage_bytes;
    uint32_t at = r.ring, before = last; /* the chunk's stage, and that of the one before it */
#pragma unroll 1
    for (int chunk = r.first; chunk < end; chunk++) {
      wait_for_copies<kStages - 2>();
      if constexpr (B::kPanelWarps == 1) {
        __syncwarp();
      } else {
        sync_some(r.barrier, B::kTeamThreads);
      }
      copy_weight(chunk + kStages - 1, before);
      copy_rows(chunk + kStages - 1, before);
      if (chunk < whole) {
        form.template multiply<T, true>(total, at + own_at, p.stage_bytes, at + r.x_at,
                                        kChunkSteps);
      } else {
        form.template multiply<T, false>(total, at + own_at, p.stage_bytes, at + r.x_at,
                                         (columns_left + kStep - 1) / kStep);
      }
      before = at;
      at = at == last ? r.ring : at + r.stage_bytes;
    }
  });
  wait_for_copies<0>();
}

/** Leaves a team's sums for the block: of row r of x, output o of the block at r * step + o. */
template <int kOfWarp, int kTiles, typename Sum>
__device__ __forceinline__ void leave_sums(const Sum (&total)[kOfWarp][2][kTiles][4], Sum *to,
                                           int step, int warp)
{
  const int g = threadIdx.x % kWarp / 4, q = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < kOfWarp; i++) {
#pragma unroll
    for (int n = 0; n < kTiles; n++) {
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const pack<Sum, 4> four = {
            {total[i][0][n][j], total[i][0][n][2 + j], total[i][1][n][j], total[i][1][n][2 + j]}};
        *reinterpret_cast<pack<Sum, 4> *>(to + (8 * n + 2 * q + j) * step +
                                          (warp * kOfWarp + i) * TGI_PANEL_ROWS + 4 * g) = four;
      }
    }
  }
}

/** Half of the runs' sums of an element, `apart` from each other, in their order. */
template <typename Sum> __device__ __forceinline__ Sum add_half(const Sum *first, int apart)
{
  Sum sum = first[0];
#pragma unroll
  for (int t = 1; t < kTeams / 2; t++) {
    sum = sum + first[t * apart];
  }
  return sum;
}

namespace
{

template <typename Operand, typename T, typename B>
__global__ void __launch_bounds__(B::kThreads, 1)
    quantised_product_kernel(const quantised_product p)
{
  constexpr int kTiles = B::kTiles, kOfWarp = B::kOfWarp;
  extern __shared__ __align__(128) uint8_t shared[];
  const int team = threadIdx.x / B::kTeamThreads;
  using sum_type = typename std::conditional<Operand::kIntegers, int, float>::type;
  const int64_t panel0 = (int64_t)blockIdx.x * B::kPanels;
  const bool recorder = blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0;

  Operand operand(p);
  bool fits = true;
  if (operand.needs_header()) {
    fits = operand.read_header(p, p.w.data, recorder);
  }
  const bool later = !operand.needs_header();
  if (threadIdx.x < kWarp) {
    copy_header(p, shared);
  }
  run_part r;
  r.warp = threadIdx.x % B::kTeamThreads / kWarp;
  r.panel = panel0 + r.warp * kOfWarp;
  r.row0 = (int64_t)blockIdx.y * B::kRows;
  const int64_t left = divide_up(p.w.out, TGI_PANEL_ROWS) - r.panel;
  r.own = left < kOfWarp ? (int)left : kOfWarp;
  r.set_run(fits ? (int)divide_up(p.w.in, kChunk) : 0, team);
  r.stage_bytes = B::stage_bytes(p, Operand::template rows<kTiles>::kTileBytes);
  r.x_at = B::kPanels * p.stage_bytes;
  r.ring = shared_address(shared) + kHeaderRoom + team * B::kStages * r.stage_bytes;
  r.barrier = 1 + team;
  sum_type total[kOfWarp][2][kTiles][4] = {};
  sum_run<T, B>(operand, p, r, total);
  __syncthreads();
  if (later) {
    fits = operand.read_header(p, shared, recorder);
  }
  constexpr int kApart = B::kRows * B::kPartStep;
  sum_type *all = reinterpret_cast<sum_type *>(shared + kHeaderRoom);
  leave_sums(total, all + team * kApart, B::kPartStep, r.warp);
  __syncthreads();
  constexpr int kColumns = B::kPanels * TGI_PANEL_ROWS;
#pragma unroll 1
  for (int i = threadIdx.x; i < B::kRows * kColumns; i += B::kThreads) {
    const int row_of_block = i / kColumns, c = i % kColumns;
    const int64_t row = r.row0 + row_of_block, o = panel0 * TGI_PANEL_ROWS + c;
    if (row < p.rows && o < p.w.out) {
      const sum_type *first = all + row_of_block * B::kPartStep + c;
      const sum_type half = add_half(first, kApart);
      store_sum(operand, p, row, o, half + add_half(first + kTeams / 2 * kApart, kApart), fits);
    }
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif

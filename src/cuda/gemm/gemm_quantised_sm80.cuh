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
#ifndef TGI_CUDA_GEMM_QUANTISED_SM80_CUH
#define TGI_CUDA_GEMM_QUANTISED_SM80_CUH

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

/** Up to 16 bytes from memory to shared memory, then zeros. The address is aligned to 16. */
__device__ __forceinline__ void copy_some(uint32_t to, const void *from, int bytes)
{
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(to), "l"(__cvta_generic_to_global(from)), "r"(bytes)
               : "memory");
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
    return (size_t)(ring > kPartBytes ? ring : kPartBytes);
  }
};

/** Rows of x on their way to a team. A warp copies two rows of a chunk at a time, a half row of 128
 * bytes by eight neighbouring lanes; in shared memory a step's 16 bytes of a lane lie where that
 * lane reads them. */
template <int kTiles> struct rows_of_x {
  static constexpr int kTileBytes = 8 * 2 * kChunk;
  const char *row; /* the lane's first one, of its next chunk */
  const quantised_product &product;
  int rows; /* that there are from its first one on */
  uint32_t place;

  __device__ __forceinline__ rows_of_x(const quantised_product &p, int64_t row0, int64_t chunk)
      : product(p)
  {
    const int lane = threadIdx.x % kWarp, unit = lane % 16;
    const int64_t left = p.rows - row0 - lane / 16;
    const int64_t first = left > 0 ? row0 + lane / 16 : 0;
    row = static_cast<const char *>(p.x) + (first * p.x_step + chunk * kChunk + 8 * unit) * 2;
    rows = left < 8 * kTiles ? (int)left : 8 * kTiles;
    place = (unit / 4 * kWarp + lane / 16 * 4 + unit % 4) * 16;
  }

  /** Copies the next chunk, which has `columns` columns, all or less than all of them: the part of
   * the team's warp `warp` of `kWarps`. */
  template <int kWarps, bool kAll>
  __device__ __forceinline__ void copy(uint32_t to, int columns, int warp)
  {
    const int left = 2 * (columns - 8 * ((int)threadIdx.x % 16));
    const int most = kAll || left > 16 ? 16 : left < 0 ? 0 : left;
    const int64_t step = 4 * product.x_step; /* to the lane's next row */
    const char *from = row + warp * step;
    const uint32_t mine = to + place + warp * 8 * 16;
    const int left_rows = rows - 2 * warp;
#pragma unroll
    for (int i = 0; i < 4 * kTiles; i += kWarps) { /* rows 2 (i + warp) and 2 (i + warp) + 1 */
      const int bytes = 2 * i < left_rows ? most : 0;
      copy_some(mine + i / 4 * kTileBytes + i % 4 * 8 * 16, bytes ? from : row, bytes);
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

/** A lane's part of a step: its words of the panels and of the rows of x, of which many come a tile
 * at a time, one ahead of its products: registers do not hold all. */
template <int kPanels, int kTiles, int kWords> struct step_words {
  static constexpr int kHeld = kTiles < 8 ? kTiles : 2;
  uint32_t w[kPanels][kWords], x[kHeld][4];

  template <typename Form>
  __device__ __forceinline__ void load(const Form &form, uint32_t w_at, int stage_bytes,
                                       uint32_t x_at, int step)
  {
#pragma unroll
    for (int i = 0; i < kPanels; i++) {
      form.load(w[i], w_at + i * stage_bytes, step);
    }
#pragma unroll
    for (int n = 0; n < (kHeld < kTiles ? 1 : kTiles); n++) {
      load_tile(n, x_at, step);
    }
  }

  __device__ __forceinline__ void load_tile(int n, uint32_t x_at, int step)
  {
    const int lane = threadIdx.x % kWarp;
    load_shared(x[n % kHeld], x_at + ((n * kChunkSteps + step) * kWarp + lane) * 16);
  }

  /** Before the products of tile n. */
  __device__ __forceinline__ void load_ahead(int n, uint32_t x_at, int step)
  {
    if (kHeld < kTiles && n + 1 < kTiles) {
      load_tile(n + 1, x_at, step);
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
  static_assert(kTiles < 8 || kPanels == 1, "tiles that are loaded for one panel");
  step_words<kPanels, kTiles, Form::kWords> now, next;
  now.load(form, w, stage_bytes, x, 0);
  /* of_groups: the step's number from the beginning of a group on */
  const auto multiply_step = [&](int step, int of_groups) {
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
      if (form.begins_group(of_groups)) {
        form.template zero_points<T>(less[i], w + i * stage_bytes, step);
      }
      form.template widen<T>(a, now.w[i], less[i]);
#pragma unroll
      for (int n = 0; n < kTiles; n++) {
        now.load_ahead(n, x, step);
        const uint32_t(&of_x)[4] = now.x[n % now.kHeld];
#pragma unroll
        for (int m = 0; m < 2; m++) {
          const bool add = !Form::kScaled || !form.begins_group(of_groups);
          multiply_small<T>(sum[m][n], a[0][m], of_x[0], of_x[1], add);
          multiply_small<T>(sum[m][n], a[1][m], of_x[2], of_x[3], true);
        }
      }
      if constexpr (Form::kScaled) {
        if (form.ends_group(of_groups) || (!kAll && step + 1 == steps)) {
          float scale[4];
          form.scales(scale, w + i * stage_bytes, step);
          add_scaled<Form::template kFactor<T>>(total[i], sum, scale);
        }
      }
    }
  };
  if constexpr (kAll && kTiles >= 8) { /* groups in turns, which keep no registers between them */
#pragma unroll 1
    for (int first = 0; first < kChunkSteps; first += Form::kSteps) {
#pragma unroll
      for (int i = 0; i < Form::kSteps; i++) {
        multiply_step(first + i, i);
      }
    }
  } else {
#pragma unroll(kAll ? kChunkSteps : 1)
    for (int step = 0; step < (kAll ? kChunkSteps : steps); step++) {
      multiply_step(step, step);
    }
  }
}

/** Stores y of a row and an output from their sum of all runs; NaN if the weight does not fit. */
template <typename Operand, typename Sum>
__device__ __forceinline__ void store_sum(const Operand &operand, const quantised_product &p,
                                          int64_t row, int64_t o, Sum sum, bool fits)
{
  if constexpr (Operand::kOnlyFinite) {
    sum = fmaf(0.0f, sum, sum); /* infinity becomes NaN, as on every entry */
  }
  float y = operand.finish(p, row, o, sum);
  if (p.bias) {
    y = y + load_any(p.bias, p.bias_dtype, o);
  }
  store_any(p.y, p.y_dtype, row * p.y_step + o, fits ? y : CUDART_NAN_F);
}

namespace
{

template <typename Operand, typename T, typename B>
__global__ void __launch_bounds__(B::kThreads, 1)
    quantised_product_kernel(const quantised_product p)
{
  constexpr int kTiles = B::kTiles, kOfWarp = B::kOfWarp, kStages = B::kStages;
  extern __shared__ __align__(128) uint8_t shared[];
  const int lane = threadIdx.x % kWarp, g = lane / 4, q = lane % 4;
  const int team = threadIdx.x / B::kTeamThreads, warp = threadIdx.x % B::kTeamThreads / kWarp;
  using sum_type = typename std::conditional<Operand::kIntegers, int, float>::type;
  using rows_type = typename Operand::template rows<kTiles>;
  const int stage_bytes = B::stage_bytes(p, rows_type::kTileBytes);
  const int64_t panel0 = (int64_t)blockIdx.x * B::kPanels, row0 = (int64_t)blockIdx.y * B::kRows;
  const int64_t own0 = panel0 + warp * kOfWarp, left = divide_up(p.w.out, TGI_PANEL_ROWS) - own0;
  const int own = left < kOfWarp ? (int)left : kOfWarp; /* panels, or less than 1 */
  const bool recorder = blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0;

  Operand operand(p); /* before the header is read, if it can */
  bool fits = true;
  if (operand.needs_header()) {
    fits = operand.read_header(p, recorder);
  }
  const int chunks = fits ? (int)divide_up(p.w.in, kChunk) : 0;
  const int run = (chunks + kTeams - 1) / kTeams, first = team * run;
  const int end = first + run < chunks ? first + run : chunks;
  const uint32_t ring = shared_address(shared) + team * kStages * stage_bytes;
  const uint32_t own_at = warp * kOfWarp * p.stage_bytes, x_at = B::kPanels * p.stage_bytes;
  sum_type total[kOfWarp][2][kTiles][4] = {};
  const bool early = !operand.needs_header();
  operand.visit([&](auto form) {
    rows_type rows(p, row0, first);
    form.template begin<kOfWarp>(p, own0, first);
    const auto copy = [&](int chunk, int stage) {
      const uint32_t to = ring + stage * stage_bytes;
      const int64_t columns = p.w.in - (int64_t)chunk * kChunk;
      if (chunk < end && columns >= kChunk) {
        form.template copy<kOfWarp, true>(own, kChunk, to + own_at, p.stage_bytes);
        rows.template copy<B::kPanelWarps, true>(to + x_at, kChunk, warp);
      } else if (chunk < end) {
        form.template copy<kOfWarp, false>(own, (int)columns, to + own_at, p.stage_bytes);
        rows.template copy<B::kPanelWarps, false>(to + x_at, (int)columns, warp);
      }
      commit_copies();
    };
#pragma unroll
    for (int i = 0; i < kStages - 1; i++) {
      copy(first + i, i);
    }
    if (early) {
      fits = operand.read_header(p, recorder);
      form.complete(operand);
    }
    int stage = 0, next_stage = kStages - 1;
#pragma unroll 1
    for (int chunk = first; chunk < end; chunk++) {
      wait_for_copies<kStages - 2>();
      if constexpr (B::kPanelWarps == 1) {
        __syncwarp();
      } else {
        sync_some(1 + team, B::kTeamThreads);
      }
      copy(chunk + kStages - 1, next_stage);
      const uint32_t at = ring + stage * stage_bytes;
      const int64_t columns = p.w.in - (int64_t)chunk * kChunk;
      if (columns >= kChunk) {
        form.template multiply<T, true>(total, at + own_at, p.stage_bytes, at + x_at, kChunkSteps);
      } else {
        form.template multiply<T, false>(total, at + own_at, p.stage_bytes, at + x_at,
                                         (int)divide_up(columns, kStep));
      }
      stage = stage + 1 == kStages ? 0 : stage + 1;
      next_stage = next_stage + 1 == kStages ? 0 : next_stage + 1;
    }
  });
  wait_for_copies<0>();
  __syncthreads();

  sum_type *parts = reinterpret_cast<sum_type *>(shared) + team * B::kRows * B::kPartStep;
#pragma unroll
  for (int i = 0; i < kOfWarp; i++) {
#pragma unroll
    for (int n = 0; n < kTiles; n++) {
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const pack<sum_type, 4> four = {
            {total[i][0][n][j], total[i][0][n][2 + j], total[i][1][n][j], total[i][1][n][2 + j]}};
        *reinterpret_cast<pack<sum_type, 4> *>(parts + (8 * n + 2 * q + j) * B::kPartStep +
                                               (warp * kOfWarp + i) * TGI_PANEL_ROWS + 4 * g) =
            four;
      }
    }
  }
  __syncthreads();
  const sum_type *all = reinterpret_cast<const sum_type *>(shared);
  constexpr int kColumns = B::kPanels * TGI_PANEL_ROWS, kHalf = kTeams / 2;
#pragma unroll 1
  for (int i = threadIdx.x; i < B::kRows * kColumns; i += B::kThreads) {
    const int r = i / kColumns, c = i % kColumns;
    const int64_t row = row0 + r, o = panel0 * TGI_PANEL_ROWS + c;
    if (row >= p.rows || o >= p.w.out) {
      continue;
    }
    sum_type half[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
#pragma unroll
      for (int t = 0; t < kHalf; t++) {
        const sum_type v = all[((h * kHalf + t) * B::kRows + r) * B::kPartStep + c];
        half[h] = t == 0 ? v : half[h] + v;
      }
    }
    sum_type sum = half[0] + half[1];
    store_sum(operand, p, row, o, sum, fits);
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif

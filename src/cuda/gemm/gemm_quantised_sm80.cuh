/**
 * Products of 16-bit rows x with packed quantised weights on tensor cores, from compute capability
 * 8.0 on: y = x W^T + bias, with W made 16-bit floats in registers, exactly.
 *
 * The weight is the left operand. Lane 4 g + q of a warp has rows 4 g to 4 g + 3 of a panel and,
 * of 32 columns, 8 q to 8 q + 7: what it reads of a panel lies together, and of a row of x it reads
 * 16 bytes. The order of k within a product is free as long as both operands have the same.
 *
 * Order of sums. Columns are cut into chunks of 128 and the chunks into kSums runs of equal length
 * but for the last ones. A run is a chain of matrix products in the order of k, or of its groups'
 * sums, each scaled; of the runs the first half is added in order, then the other half, then the
 * two. So `in` alone decides the order: not the rows, not the launch.
 *
 * A block has some panels, up to 64 rows of x and kTeams teams of warps. A team walks along its
 * runs of chunks, which come to its own ring of stages by asynchronous copies; its warps share the
 * panels among them, and where kParts is 2 the rows. Teams meet at the end only.
 *
 * An operand (gemm_operand_*.cuh) says how a chunk of a panel is copied, and how 32 columns of it
 * become fragments.
 */
#ifndef TGI_CUDA_GEMM_QUANTISED_SM80_CUH
#define TGI_CUDA_GEMM_QUANTISED_SM80_CUH

#include "cuda/gemm/gemm_loader.cuh"
#include "cuda/half_pair.cuh"
#include "cuda/mma.cuh"
#include "cuda/packed_weight.cuh"
#include "cuda/reduce.cuh"

inline namespace TGI_CUDA_ENTRY
{

constexpr int kSums = 8;
constexpr int kChunk = 128, kStep = 32, kChunkSteps = kChunk / kStep;
constexpr int kXRowBytes = 2 * kChunk;
constexpr int kMostQuantisedRows = 64; /* of a block */

struct quantised_product {
  const void *x, *bias;
  void *y;
  packed_weight w;
  int64_t rows, x_step, y_step;     /* steps in elements */
  int64_t panel_bytes, chunk_bytes; /* 0: the header says */
  int stage_bytes;                  /* of a chunk of a panel, in shared memory */
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

/** What a block of a kernel is. */
template <int Panels, int PanelWarps, int Teams, int Parts, int Tiles, int Stages>
struct quantised_block {
  static constexpr int kPanelWarps = PanelWarps, kTeams = Teams, kParts = Parts, kTiles = Tiles;
  static constexpr int kPanels = Panels, kStages = Stages;
  static constexpr int kOfWarp = Panels / PanelWarps; /* panels */
  static constexpr int kTeamThreads = kWarp * PanelWarps * Parts;
  static constexpr int kThreads = kTeamThreads * Teams;
  static constexpr int kRows = 8 * Tiles * Parts; /* of x */
  static constexpr int kRounds = kSums / Teams;   /* runs of a team, one after another */
  static constexpr int kPartStep = TGI_PANEL_ROWS * Panels + 4;
  static constexpr int kPartBytes = Teams * kRows * kPartStep * 4;
  static constexpr int kSumBytes = kRounds > 1 ? kThreads *kOfWarp * 8 * Tiles * 4 : 0;
  static_assert(Teams == 2 || Teams == kSums, "the order of sums is that of two halves");
  static_assert(Panels % PanelWarps == 0, "warps have equal numbers of panels");

  __host__ __device__ static int stage_bytes(const quantised_product &p)
  {
    return kRows * kXRowBytes + Panels * p.stage_bytes;
  }

  static size_t shared_bytes(const quantised_product &p)
  {
    const int ring = Teams * Stages * stage_bytes(p) + kSumBytes;
    return (size_t)(ring > kPartBytes ? ring : kPartBytes);
  }
};

/** Copies rows of x, columns of a chunk. Rows' halves of 64 bytes change places in odd rows, so
 * that eight lanes read from all banks. */
template <typename B>
__device__ __forceinline__ void copy_rows(const quantised_product &p, uint32_t to, int64_t row0,
                                          int64_t k0, int thread)
{
  constexpr int kUnits = kXRowBytes / 16;
#pragma unroll
  for (int i = 0; i < divide_up(B::kRows * kUnits, B::kTeamThreads); i++) {
    const int at = i * B::kTeamThreads + thread, r = at / kUnits, unit = at % kUnits;
    const int64_t left = p.w.in - k0 - 8 * unit, row = row0 + r;
    const int bytes = row < p.rows && left > 0 ? (int)(left < 8 ? 2 * left : 16) : 0;
    const char *from =
        static_cast<const char *>(p.x) + (bytes ? (row * p.x_step + k0) * 2 + 16 * unit : 0);
    if (B::kRows * kUnits % B::kTeamThreads == 0 || r < B::kRows) {
      copy_some(to + r * kXRowBytes + 16 * (unit ^ (r & 1) << 2), from, bytes);
    }
  }
}

template <typename B> __device__ __forceinline__ void sync_team(int team)
{
  if constexpr (B::kTeamThreads == kWarp) {
    __syncwarp();
  } else {
    sync_some(1 + team, B::kTeamThreads);
  }
}

/** total += scale of its row * factor * sum; sum = 0. */
template <int kFactor, int kTiles>
__device__ __forceinline__ void add_scaled(float (&total)[2][kTiles][4], float (&sum)[2][kTiles][4],
                                           const float (&scale)[4])
{
#pragma unroll
  for (int m = 0; m < 2; m++) {
#pragma unroll
    for (int n = 0; n < kTiles; n++) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const float v = kFactor == 1 ? sum[m][n][i] : sum[m][n][i] * (float)kFactor;
        total[m][n][i] = fmaf(scale[2 * m + i / 2], v, total[m][n][i]);
        sum[m][n][i] = 0;
      }
    }
  }
}

/** Loads a lane's 16 bytes of row tile n of x, 32 columns from column kStep * step on. */
__device__ __forceinline__ void load_x(uint32_t (&b)[4], uint32_t x, int n, int step)
{
  const int lane = threadIdx.x % kWarp, g = lane / 4, q = lane % 4;
  load_shared(b, x + n * 8 * kXRowBytes + 16 * ((4 * step + q) ^ (g & 1) << 2));
}

/** total[i] += the products of a chunk of panel i, at w + i * stage_bytes, with the rows at x. */
template <typename T, int kPanels, int kTiles, typename Operand>
__device__ __forceinline__ void multiply_chunk(const Operand &operand,
                                               float (&total)[kPanels][2][kTiles][4], uint32_t w,
                                               int stage_bytes, uint32_t x, int steps)
{
  const int lane = threadIdx.x % kWarp, g = lane / 4, q = lane % 4;
  float of_group[Operand::kScaled ? kPanels : 1][2][kTiles][4] = {};
  uint32_t words[kPanels][Operand::kWords], less[kPanels][4];
#pragma unroll
  for (int i = 0; i < kPanels; i++) {
    operand.load(words[i], w + i * stage_bytes, 0, g, q);
  }
#pragma unroll 1
  for (int step = 0; step < steps; step++) {
    if (operand.begins_group(step)) {
#pragma unroll
      for (int i = 0; i < kPanels; i++) {
        operand.template zero_points<T>(less[i], w + i * stage_bytes, step, g);
      }
    }
    uint32_t b[kTiles][4];
#pragma unroll
    for (int n = 0; n < kTiles; n++) {
      load_x(b[n], x, n, step);
    }
#pragma unroll
    for (int i = 0; i < kPanels; i++) {
      float(&sum)[2][kTiles][4] = Operand::kScaled ? of_group[i] : total[i];
      uint32_t a[2][2][4];
      operand.template widen<T>(a, words[i], less[i]);
      if (step + 1 < steps) {
        operand.load(words[i], w + i * stage_bytes, step + 1, g, q);
      }
#pragma unroll
      for (int n = 0; n < kTiles; n++) {
#pragma unroll
        for (int m = 0; m < 2; m++) {
          multiply_small<T>(sum[m][n], a[0][m], b[n][0], b[n][1], true);
          multiply_small<T>(sum[m][n], a[1][m], b[n][2], b[n][3], true);
        }
      }
    }
    if constexpr (Operand::kScaled) {
      if (operand.ends_group(step) || step + 1 == steps) {
#pragma unroll
        for (int i = 0; i < kPanels; i++) {
          float scale[4];
          operand.scales(scale, w + i * stage_bytes, step, g);
          add_scaled<Operand::template kFactor<T>>(total[i], of_group[i], scale);
        }
      }
    }
  }
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
  const int team = threadIdx.x / B::kTeamThreads, thread = threadIdx.x % B::kTeamThreads;
  const int team_warp = thread / kWarp, part = team_warp / B::kPanelWarps;
  const int first_own = team_warp % B::kPanelWarps * kOfWarp; /* of the block's panels */
  const int stage_bytes = B::stage_bytes(p);
  const int64_t panel0 = (int64_t)blockIdx.x * B::kPanels, row0 = (int64_t)blockIdx.y * B::kRows;
  const int64_t panels = divide_up(p.w.out, TGI_PANEL_ROWS);
  const int exist = panels - panel0 < B::kPanels ? (int)(panels - panel0) : B::kPanels;
  const bool recorder = blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0;

  Operand operand(p); /* before the header is read, if it can */
  bool fits = true;
  if (operand.needs_header()) {
    fits = operand.read_header(p, recorder);
  }
  const int64_t chunks = fits ? divide_up(p.w.in, kChunk) : 0, run = divide_up(chunks, kSums);
  const int64_t first = team * B::kRounds * run;
  const int64_t end = first + B::kRounds * run < chunks ? first + B::kRounds * run : chunks;
  const uint32_t ring = shared_address(shared) + team * kStages * stage_bytes;
  const auto copy = [&](int64_t chunk, int stage) {
    if (chunk < end) {
      const uint32_t to = ring + stage * stage_bytes;
#pragma unroll
      for (int i = 0; i < B::kPanels; i++) {
        if (i < exist) {
          operand.template copy<B::kTeamThreads>(p, panel0 + i, chunk, to + i * p.stage_bytes,
                                                 thread);
        }
      }
      copy_rows<B>(p, to + B::kPanels * p.stage_bytes, row0, chunk * kChunk, thread);
    }
    commit_copies();
  };
#pragma unroll
  for (int i = 0; i < kStages - 1; i++) {
    copy(first + i, i);
  }
  if (!operand.needs_header()) {
    fits = operand.read_header(p, recorder);
  }

  float total[kOfWarp][2][kTiles][4] = {};
  float *sums = reinterpret_cast<float *>(shared + B::kTeams * kStages * stage_bytes) + threadIdx.x;
  int stage = 0, next_stage = kStages - 1;
  int64_t left = run; /* chunks of this run */
  bool any = false;   /* runs before this one */
  for (int64_t chunk = first; chunk < end; chunk++) {
    wait_for_copies<kStages - 2>();
    sync_team<B>(team);
    copy(chunk + kStages - 1, next_stage);
    const uint32_t w = ring + stage * stage_bytes + first_own * p.stage_bytes;
    const uint32_t x = ring + stage * stage_bytes + B::kPanels * p.stage_bytes +
                       (part * 8 * kTiles + g) * kXRowBytes;
    const int64_t columns = p.w.in - chunk * kChunk;
    const int steps = columns < kChunk ? (int)divide_up(columns, kStep) : kChunkSteps;
    multiply_chunk<T>(operand, total, w, p.stage_bytes, x, steps);
    stage = stage + 1 == kStages ? 0 : stage + 1;
    next_stage = next_stage + 1 == kStages ? 0 : next_stage + 1;
    if constexpr (B::kRounds > 1) {
      left--;
      if (left == 0 || chunk + 1 == end) {
#pragma unroll
        for (int i = 0; i < kOfWarp * 8 * kTiles; i++) {
          float &t = (&total[0][0][0][0])[i], *sum = sums + i * B::kThreads;
          t = any ? *sum + t : t;
          if (chunk + 1 < end) {
            *sum = t;
            t = 0;
          }
        }
        any = true;
        left = run;
      }
    }
  }
  wait_for_copies<0>();
  __syncthreads();

  float *parts = reinterpret_cast<float *>(shared) + team * B::kRows * B::kPartStep;
#pragma unroll
  for (int i = 0; i < kOfWarp; i++) {
#pragma unroll
    for (int n = 0; n < kTiles; n++) {
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const int row = (part * kTiles + n) * 8 + 2 * q + j;
        *reinterpret_cast<float4 *>(parts + row * B::kPartStep + (first_own + i) * TGI_PANEL_ROWS +
                                    4 * g) = make_float4(total[i][0][n][j], total[i][0][n][2 + j],
                                                         total[i][1][n][j], total[i][1][n][2 + j]);
      }
    }
  }
  __syncthreads();
  const float *all = reinterpret_cast<const float *>(shared);
  constexpr int kColumns = B::kPanels * TGI_PANEL_ROWS, kHalf = B::kTeams / 2;
  for (int i = threadIdx.x; i < B::kRows * kColumns; i += B::kThreads) {
    const int r = i / kColumns, c = i % kColumns;
    const int64_t row = row0 + r, o = panel0 * TGI_PANEL_ROWS + c;
    if (row >= p.rows || o >= p.w.out) {
      continue;
    }
    float half[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
#pragma unroll
      for (int t = 0; t < kHalf; t++) {
        const float v = all[((h * kHalf + t) * B::kRows + r) * B::kPartStep + c];
        half[h] = t == 0 ? v : half[h] + v;
      }
    }
    float sum = half[0] + half[1];
    if constexpr (Operand::kOnlyFinite) {
      sum = fmaf(0.0f, sum, sum); /* infinity becomes NaN, as on every entry */
    }
    float y = operand.finish(p, o, sum);
    if (p.bias) {
      y = y + load_any(p.bias, p.bias_dtype, o);
    }
    store_any(p.y, p.y_dtype, row * p.y_step + o, fits ? y : CUDART_NAN_F);
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif

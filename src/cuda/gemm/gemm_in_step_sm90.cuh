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

#include "cuda/gelu_math.cuh"
#include "cuda/gemm/gemm_epilogue.cuh"
#include "cuda/gemm/gemm_loose_rows_sm90.cuh"
#include "cuda/gemm/gemm_split_sm90.cuh"
#include "cuda/scale_integer.cuh"

extern "C" {
#include "tegula/linear.h"
}

inline namespace TGI_CUDA_ENTRY
{

/** Of what, and how, a product is made. kActs: there may be an activation and saved values.
 * kScales: sums are multiplied by scales of their row and column. kApart: they are added up outside
 * of the tensor core. kParts: blocks of a cluster make a tile in parts. */
template <typename Operand, typename Result, bool kMayAct, bool kHasScales = false,
          bool kAddsApart = false, bool kInParts = false>
struct gemm_in_step_way {
  using operand = Operand;
  using result = Result; /* C may be f32, too */
  using sum = wgmma_sum<Operand>;
  static constexpr bool kActs = kMayAct, kScales = kHasScales, kApart = kAddsApart,
                        kParts = kInParts;
  static constexpr bool kIntegers = std::is_same_v<sum, int>;
  static_assert(kScales || !kIntegers, "integers have scales");
};

/** What becomes of the sums: z = sums + bias; C = act(z) + add. With scales: C = (sums * row_scale)
 * * column_scale + bias; of integers, sums less column_zero * row_sum are whole numbers of 32 bits
 * that f64 would be multiplied with row_scale in. */
struct gemm_in_step_job {
  gemm_dense_tiles tiles;
  int n;
  bool is_f32;      /* C, z and what is added; else the way's result */
  bool adds;        /* C += by TMA; f32 */
  const void *bias; /* NULL: none */
  tg_dtype bias_dtype;
  const void *add; /* NULL: none; may be C */
  int64_t add_step;
  void *z; /* NULL: not wanted */
  int64_t z_step;
  void *c; /* for rows that are not whole vectors of 16 bytes, which TMA cannot end; else NULL */
  int64_t c_step;
  bool loose; /* rows of C do not begin at such vectors, so that TMA stores nothing */
  tg_activation activation;
  const float *row_scale, *column_scale;
  bool one_column_scale; /* for all columns */
  const int32_t *row_sum;
  const int8_t *column_zero;

  __device__ __forceinline__ int first_column(int column_tile) const
  {
    return column_tile * run * 2;
  }

  __device__ __forceinline__ int second_column(int column_tile) const
  {
    return first_column(column_tile) + run;
  }

  int run; /* columns: half of a tile */
};

/** Two neighbours, of which `count` exist, from an address aligned to both. */
template <typename C> __device__ __forceinline__ float2 load_two(const C *from, int count)
{
  if (count < 2) {
    return make_float2(count == 1 ? to_f32(*from) : 0.0f, 0.0f);
  }
  float v[2];
  load(v, from);
  return make_float2(v[0], v[1]);
}

template <typename C>
__device__ __forceinline__ void store_two(C *to, int count, float first, float second)
{
  if (count >= 2) {
    const float v[2] = {first, second};
    store(to, v);
  } else if (count == 1) {
    *to = from_f32<C>(first);
  }
}

/** A thread's part of a block of `kColumns` columns: two rows, 8 apart, and two columns of every 8.
 */
struct gemm_part {
  int row, rows;       /* the first of its rows in C, and how many rows C has */
  int column, columns; /* likewise */

  __device__ __forceinline__ bool has_row(int i) const
  {
    return row + 8 * i < rows;
  }

  /** Of the pair j that exist. */
  __device__ __forceinline__ int count(int j) const
  {
    return columns - column - 8 * j;
  }
};

template <typename C, int kValues>
__device__ __forceinline__ void gemm_add_rows(float *v, const gemm_part &at, const void *add,
                                              int64_t step)
{
  const C *from = static_cast<const C *>(add) + at.row * step + at.column;
  float2 more[kValues / 2];
#pragma unroll
  for (int i = 0; i < 2; i++) {
#pragma unroll
    for (int j = 0; j < kValues / 4; j++) {
      more[2 * j + i] = at.has_row(i) ? load_two(from + 8 * i * step + 8 * j, at.count(j))
                                      : make_float2(0.0f, 0.0f);
    }
  }
#pragma unroll
  for (int i = 0; i < kValues / 2; i++) {
    v[2 * i] += more[i].x;
    v[2 * i + 1] += more[i].y;
  }
}

template <typename C, int kValues>
__device__ __forceinline__ void gemm_save_rows(const float *v, const gemm_part &at, void *z,
                                               int64_t step)
{
  C *to = static_cast<C *>(z) + at.row * step + at.column;
#pragma unroll
  for (int i = 0; i < 2; i++) {
#pragma unroll
    for (int j = 0; j < kValues / 4; j++) {
      if (at.has_row(i)) {
        store_two(to + 8 * i * step + 8 * j, at.count(j), v[4 * j + 2 * i], v[4 * j + 2 * i + 1]);
      }
    }
  }
}

/** The bias from memory: scales of columns have its place. */
template <int kValues>
__device__ __forceinline__ void gemm_add_bias_part(float *v, const gemm_in_step_job &job,
                                                   const gemm_part &at)
{
  if (job.bias) {
#pragma unroll
    for (int j = 0; j < kValues / 2; j++) {
      const int column = j / 2 * 8 + j % 2;
      const float b = at.column + column < at.columns
                          ? load_any(job.bias, job.bias_dtype, at.column + column)
                          : 0.0f;
      v[j / 2 * 4 + j % 2] += b;
      v[j / 2 * 4 + 2 + j % 2] += b;
    }
  }
}

/** Scaled sums and the bias. */
template <int kValues>
__device__ __forceinline__ void gemm_scale_part(float *v, const gemm_in_step_job &job,
                                                const gemm_part &at, const float *scale,
                                                const float (&row)[2])
{
#pragma unroll
  for (int j = 0; j < kValues / 4; j++) {
    const float2 s = *reinterpret_cast<const float2 *>(scale + 8 * j);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      v[4 * j + 2 * i] = v[4 * j + 2 * i] * row[i] * s.x;
      v[4 * j + 2 * i + 1] = v[4 * j + 2 * i + 1] * row[i] * s.y;
    }
  }
  gemm_add_bias_part<kValues>(v, job, at);
}

/** f32(f64(n) * f64(t)) for t of at most 17 significant bits and below 2^122, and |n| < 2^31 - 64:
 * n is a multiple of 128 and a rest of at most 64, whose product with t is exact. */
__device__ __forceinline__ float gemm_scale_integer(int n, float t)
{
  const int up = n + 64;
  const float rest = __int_as_float((up & 127) | 0x4b000000) - 8388672.0f; /* 2^23 + 64 */
  return __fmaf_rn((float)(up & ~127), t, rest * t);
}

/** The same of integers: `v` from `sums`. */
template <int kValues>
__device__ __forceinline__ void
gemm_scale_integers(float *v, const int *sums, const gemm_in_step_job &job, const gemm_part &at,
                    const float *scale, const int8_t *zero, const float (&row)[2],
                    const int (&row_sum)[2])
{
#pragma unroll
  for (int j = 0; j < kValues / 4; j++) {
    const float2 s = *reinterpret_cast<const float2 *>(scale + 8 * j);
    const char2 z = *reinterpret_cast<const char2 *>(zero + 8 * j);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int *n = sums + 4 * j + 2 * i;
      v[4 * j + 2 * i] = gemm_scale_integer(n[0] - z.x * row_sum[i], row[i]) * s.x;
      v[4 * j + 2 * i + 1] = gemm_scale_integer(n[1] - z.y * row_sum[i], row[i]) * s.y;
    }
  }
  gemm_add_bias_part<kValues>(v, job, at);
}

/** Sums to values of C. */
template <typename C, int kValues, bool kActs>
__device__ __forceinline__ void gemm_finish_part(float *v, const gemm_in_step_job &job,
                                                 const gemm_part &at, const float *bias)
{
  if (job.bias) {
#pragma unroll
    for (int j = 0; j < kValues / 4; j++) {
      const float2 b = *reinterpret_cast<const float2 *>(bias + 8 * j);
      v[4 * j] += b.x;
      v[4 * j + 1] += b.y;
      v[4 * j + 2] += b.x;
      v[4 * j + 3] += b.y;
    }
  }
  if (kActs && job.z) {
    gemm_save_rows<C, kValues>(v, at, job.z, job.z_step);
  }
  if (kActs && job.activation == TG_ACTIVATION_GELU_TANH) {
#pragma unroll
    for (int i = 0; i < kValues; i++) {
      v[i] = gelu_tanh<C>(v[i]);
    }
  } else if (kActs && job.activation == TG_ACTIVATION_GELU_ERF) {
#pragma unroll
    for (int i = 0; i < kValues; i++) {
      v[i] = gelu_erf<C>(v[i]);
    }
  }
  if (job.add) {
    gemm_add_rows<C, kValues>(v, at, job.add, job.add_step);
  }
}

/** Leaves a warpgroup's block of 64 rows of 128 bytes as a page: 64 columns of T or 32 of f32. */
template <typename C> __device__ __forceinline__ void gemm_leave_page(const float *v, uint32_t page)
{
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x % kWarpgroup / 32;
  if constexpr (sizeof(C) == 2) {
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      const float *w = v + 4 * j;
      store_matrices(page_chunk(page, 16 * warp + lane % 16, j + lane / 16),
                     round_pair<C>(w[0], w[1]), round_pair<C>(w[2], w[3]),
                     round_pair<C>(w[4], w[5]), round_pair<C>(w[6], w[7]));
    }
  } else {
    const int row = 16 * warp + lane / 4, q = lane % 4;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const uint32_t to = page_chunk(page, row, 2 * j + q / 2) + q % 2 * 8;
      store_pair(to, v[4 * j], v[4 * j + 1]);
      store_pair(to + 8 * kPageRow, v[4 * j + 2], v[4 * j + 3]);
    }
  }
}

/** A thread's scales of a tile: of its two rows, and some of the columns; of integers sums of rows
 * and zero points of columns, too. They are read before the products, beside which they come, and
 * shared behind these. */
template <int kN, bool kIntegers> struct gemm_scales {
  static constexpr int kEach = kN / kWarpgroup; /* columns of a thread */
  float row[2], column[kEach];
  int row_sum[2];
  int8_t zero[kEach];

  /** Where the zero points of a warpgroup lie in shared memory: behind both's scales. */
  __device__ __forceinline__ static int8_t *zeros(const gemm_shared &s, int consumer)
  {
    return reinterpret_cast<int8_t *>(s.bias + kGemmConsumers * kN) + consumer * kN;
  }

  __device__ __forceinline__ void read(const gemm_in_step_job &job, const gemm_place &p,
                                       int consumer)
  {
    const int thread = (int)threadIdx.x % kWarpgroup;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int line = p.row + 64 * consumer + thread / 32 * 16 + thread % 32 / 4 + 8 * i;
      row[i] = line < job.tiles.m ? job.row_scale[line] : 0.0f;
      if (kIntegers) {
        row_sum[i] = line < job.tiles.m ? job.row_sum[line] : 0;
      }
    }
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      const int at = p.column_tile * kN + i * kWarpgroup + thread;
      column[i] = at < job.n ? job.column_scale[job.one_column_scale ? 0 : at] : 0.0f;
      if (kIntegers) {
        zero[i] = at < job.n ? job.column_zero[at] : (int8_t)0;
      }
    }
  }

  __device__ __forceinline__ void share(float *to, int8_t *zeros_to) const
  {
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      to[i * kWarpgroup + threadIdx.x % kWarpgroup] = column[i];
      if (kIntegers) {
        zeros_to[i * kWarpgroup + threadIdx.x % kWarpgroup] = zero[i];
      }
    }
  }
};

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
    const uint32_t page = s.result + (2 * consumer + block % 2) * kGemmBlock;
    const gemm_part at = {row + 16 * warp + lane / 4, job.tiles.m, column + 2 * (lane % 4), job.n};
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
  gemm_turn<Form::kStages> turn;
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
  gemm_turn<Form::kStages> turn;
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

/** Starts the kernel of a plan. */
template <typename Way, typename Form>
tg_status gemm_launch_in_step_sm90(const tg_context *ctx, const tgi_gemm_plan &plan,
                                   const gemm_matrices &m, gemm_in_step_job job)
{
  CUtensorMap a, b, c;
  const page_map maps[3] = {{&a, &m.a, Form::kTurnA ? kGemmTileK : kGemmTileM},
                            {&b, &m.b, Form::kTurnB ? kGemmTileK : Form::kN / 2},
                            {&c, job.loose ? &m.a : &m.c, 64}};
  const tg_status status = make_page_maps(ctx, maps);
  const auto kernel = gemm_in_step_kernel<Way, Form>;
  job.run = Form::kN / 2;
  if (status != TG_OK) {
    return status;
  }
  if constexpr (Way::kParts) {
    cluster_launch l;
    const cudaError_t e =
        prepare_clusters(ctx, (const void *)kernel, plan.parts, kGemmSm90Threads, plan.shared, &l);
    return launch_clusters(ctx, e, kernel, &l, (int)plan.tiles, a, b, c, job);
  } else {
    return launch(ctx, kernel, dim3((unsigned)plan.blocks), kGemmSm90Threads, plan.shared, a, b, c,
                  job);
  }
}

} // namespace TGI_CUDA_ENTRY

#endif

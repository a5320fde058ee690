/**
 * Matrix products on Hopper's tensor cores: C = op(A) op(B), operands of 16 bits, or e4m3 along k,
 * f32 sums; or int8 along k, sums of 32 bits.
 *
 * Method  Persistent blocks, one on each multiprocessor, of three warpgroups. One thread, the
 *         producer, loads tiles of 64 steps of A and B (128 of bytes: 128 bytes a row) by TMA into
 * a ring of stages. Two warpgroups multiply 64 rows each (wgmma), leave a finished tile in shared
 * memory and go on. Three spare warps beside the producer store the tile, or compute an activation
 * from it, while the next tile's products run.
 *
 *           memory --TMA--> [A|B][A|B][A|B][A|B] --wgmma--> registers --> [tile] --> memory
 *                            producer            2 consumer warpgroups     3 warps
 *
 * Work    Tiles of 128 x kN; who multiplies which tile is gemm_grouped.cuh's, what becomes of it an
 *         epilogue's (gemm_epilogue.cuh). A warpgroup none of whose 64 rows exists multiplies
 *         nothing.
 * Sums    An element is one chain over k, in steps of 16 (bytes: 32), within the tensor core: its
 *         bits depend on its row of A and its column of B alone. gemm_multiply_apart takes the sums
 *         of every 128 of k out of the tensor core, which keeps some 14 bits of those of e4m3.
 * Bound   Tensor cores; where groups have few rows, memory.
 */
#ifndef TGI_CUDA_GEMM_SM90_CUH
#define TGI_CUDA_GEMM_SM90_CUH

#include "cuda/gemm/gemm_grouped.cuh"
#include "cuda/mma.cuh"
#include "cuda/tma.cuh"
#include "cuda/warpgroup.cuh"
#include "cuda/wgmma.cuh"

inline namespace TGI_CUDA_ENTRY
{

constexpr int kGemmSm90Threads = 384, kGemmConsumers = 2;
constexpr int kGemmBlock = 8192;   /* bytes of 64 x 64 elements */
constexpr int kGemmFinishers = 96; /* threads */
constexpr int kGemmPieces = 2;     /* of a tile whose f32 sums are stored */

/** Form of a product's operands in memory and size of its tiles. kInStep: consumers store a tile
 * themselves, through two blocks of 64 columns each, in place of a whole tile. kBytes: of an
 * element. */
template <bool kAcrossA, bool kAcrossB, int kColumns, bool kInStep = false, int kBytes = 2>
struct gemm_form {
  static constexpr bool kTurnA = kAcrossA, kTurnB = kAcrossB; /* contiguous across k */
  static constexpr int kN = kColumns, kStages = kColumns == 128 ? 6 : 4;
  static constexpr int kStep = 2 * kGemmTileK / kBytes; /* elements along k */
  static constexpr int kBytesA = kGemmTileM * 2 * kGemmTileK, kBytesB = kN * 2 * kGemmTileK;
  static constexpr int kResult = kInStep ? 4 * kGemmBlock : kN * 2 * kGemmTileM;
};

/** What a block has in shared memory. Addresses of tiles are multiples of 1024. */
struct gemm_shared {
  uint32_t a, b, result;
  mbarrier *full, *empty; /* of each stage */
  mbarrier *result_full, *result_empty;
  float *bias; /* [kN] */
  gemm_ends ends;
};

/** Lays out the block's shared memory and reads the groups' ends. By all threads. */
template <typename Form>
__device__ __forceinline__ gemm_shared gemm_open(char *raw, const gemm_groups &groups)
{
  gemm_shared s;
  const uint32_t start = shared_address(raw);
  char *at = raw + ((1024 - start % 1024) % 1024);
  s.a = shared_address(at);
  s.b = s.a + Form::kStages * Form::kBytesA;
  s.result = s.b + Form::kStages * Form::kBytesB;
  at += Form::kStages * (Form::kBytesA + Form::kBytesB) + Form::kResult;
  s.full = reinterpret_cast<mbarrier *>(at);
  s.empty = s.full + Form::kStages;
  s.result_full = s.empty + Form::kStages;
  s.result_empty = s.result_full + 1;
  s.bias = reinterpret_cast<float *>(s.result_empty + 3);
  s.ends.read(groups, reinterpret_cast<char *>(s.bias + Form::kN));
  if (threadIdx.x == 0) {
    for (int i = 0; i < Form::kStages; i++) {
      init_barrier(s.full + i, 1);
      init_barrier(s.empty + i, kGemmConsumers);
    }
    init_barrier(s.result_full, 4 * kGemmConsumers); /* warps */
    init_barrier(s.result_empty, kGemmFinishers / 32);
    publish_barriers();
  }
  __syncthreads();
  return s;
}

/* ---- producer ---- */

/** Loads the operands' tiles of a step. The columns of a tile are two runs of kN / 2, from `first`
 * and `second` on, which follow each other but in gated halves. Along k the second run has a map of
 * its own, which may be the same. */
template <typename Form>
__device__ __forceinline__ void gemm_load(const gemm_shared &s, int stage, const CUtensorMap *a,
                                          const CUtensorMap *b, const CUtensorMap *second_b,
                                          const gemm_place &p, int k, int first, int second,
                                          bool grouped_b)
{
  mbarrier *full = s.full + stage;
  const uint32_t to_a = s.a + stage * Form::kBytesA, to_b = s.b + stage * Form::kBytesB;
  const int group = grouped_b ? p.group : 0;
  arrive_expecting(full, Form::kBytesA + Form::kBytesB);
  if (Form::kTurnA) {
    load_page(to_a, a, p.row, k, 0, 0, full);
    load_page(to_a + kGemmBlock, a, p.row + 64, k, 0, 0, full);
  } else {
    load_page(to_a, a, k, p.row, 0, 0, full);
  }
  if (Form::kTurnB) {
#pragma unroll
    for (int i = 0; i < Form::kN / 64; i++) {
      load_page(to_b + i * kGemmBlock, b, first + 64 * i, k, 0, group, full);
    }
  } else {
    load_page(to_b, b, k, first, 0, group, full);
    load_page(to_b + Form::kBytesB / 2, second_b, k, second, 0, group, full);
  }
}

template <typename Form, typename Tiles, typename Epilogue>
__device__ __forceinline__ void gemm_produce(const gemm_shared &s, const Tiles &tiles,
                                             const Epilogue &epilogue, const CUtensorMap *a,
                                             const CUtensorMap *b, const CUtensorMap *second_b)
{
  ring_turn<Form::kStages> turn;
  gemm_place p;
  const int count = tiles.count(s.ends);
  for (int tile = (int)blockIdx.x; tile < count; tile += (int)gridDim.x) {
    if (!tiles.find(s.ends, tile, &p)) {
      continue;
    }
    const int first = epilogue.first_column(p.column_tile);
    const int second = epilogue.second_column(p.column_tile);
    for (int i = 0; i < p.steps; i++) {
      wait_for(s.empty + turn.stage, turn.parity ^ 1);
      gemm_load<Form>(s, turn.stage, a, b, second_b, p, p.first_step + i * Form::kStep, first,
                      second, !Tiles::kGroupsOfSteps);
      turn.next();
    }
  }
}

/* ---- consumers ---- */

/** Rows [from, end) of the last step, which belong to the next group, become 0 in both operands'
 * blocks of 64 x 64: each warpgroup its rows of A, and B by all that multiply (`both` or one). */
template <typename Form>
__device__ __forceinline__ void gemm_clear_tail(const gemm_shared &s, int stage, int from, int end,
                                                int consumer, bool both)
{
  constexpr int kBlocksB = Form::kN / 64;
  const int thread = (int)threadIdx.x % kWarpgroup;
  const uint32_t a = s.a + stage * Form::kBytesA + consumer * kGemmBlock;
  const uint32_t b = s.b + stage * Form::kBytesB;
  for (int at = from * kPageRow + 16 * thread; at < end * kPageRow; at += 16 * kWarpgroup) {
    store_shared(a + at, 0, 0, 0, 0);
#pragma unroll
    for (int block = 0; block < kBlocksB; block++) {
      if (!both || block % 2 == consumer) {
        store_shared(b + block * kGemmBlock + at, 0, 0, 0, 0);
      }
    }
  }
  publish_to_copies();
  /* Two barriers: a warpgroup may already be at the next tile's. */
  sync_some(both ? 3 : 4, both ? kGemmConsumers * kWarpgroup : kWarpgroup);
}

/** Adds products 16 j .. 16 j + 15 of a step (of bytes 32 j .. 32 j + 31). */
template <typename T, typename Form>
__device__ __forceinline__ void gemm_multiply_16(wgmma_sum<T> (&d)[Form::kN / 2],
                                                 const gemm_shared &s, int stage, int consumer,
                                                 int j, bool add)
{
  const uint64_t a = page_operand(s.a + stage * Form::kBytesA + consumer * kGemmBlock,
                                  Form::kTurnA ? kGemmBlock : 16);
  const uint64_t b = page_operand(s.b + stage * Form::kBytesB, Form::kTurnB ? kGemmBlock : 16);
  multiply<T, Form::kN, Form::kTurnA, Form::kTurnB>(
      d, operand_at(a, Form::kTurnA ? 2048 * j : 32 * j),
      operand_at(b, Form::kTurnB ? 2048 * j : 32 * j), add);
}

/** The last step of a group that ends within it: no more products than there are rows, to 16. */
template <typename T, typename Form>
__device__ __forceinline__ void
gemm_multiply_tail(wgmma_sum<T> (&d)[Form::kN / 2], const gemm_shared &s,
                   const ring_turn<Form::kStages> &turn, const gemm_place &p, int consumer)
{
  const int parts = (p.tail + 15) / 16;
  wait_for(s.full + turn.stage, turn.parity);
  gemm_clear_tail<Form>(s, turn.stage, p.tail, 16 * parts, consumer, p.rows > 64);
  for (int j = 0; j < parts; j++) {
    wgmma_fence();
    gemm_multiply_16<T, Form>(d, s, turn.stage, consumer, j, p.steps > 1 || j > 0);
    wgmma_commit();
    wgmma_wait<0>();
  }
  settle(d);
  if (threadIdx.x % kWarpgroup == 0) {
    arrive(s.empty + turn.stage);
  }
}

/** d = the tile's sums of this warpgroup's 64 rows. kMayBeNone: there may be no steps, or a tail.
 */
template <typename T, typename Form, bool kMayBeNone>
__device__ __forceinline__ void gemm_multiply(wgmma_sum<T> (&d)[Form::kN / 2], const gemm_shared &s,
                                              ring_turn<Form::kStages> &turn, const gemm_place &p,
                                              int consumer)
{
  const bool leads = threadIdx.x % kWarpgroup == 0;
  const int whole = kMayBeNone && p.tail ? p.steps - 1 : p.steps;
  int before = 0; /* the stage of the step before */
  if (kMayBeNone && whole == 0) {
#pragma unroll
    for (int i = 0; i < Form::kN / 2; i++) {
      d[i] = 0;
    }
  }
  for (int i = 0; i < whole; i++) {
    wait_for(s.full + turn.stage, turn.parity);
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < kGemmTileK / 16; j++) {
      gemm_multiply_16<T, Form>(d, s, turn.stage, consumer, j, i > 0 || j > 0);
    }
    wgmma_commit();
    wgmma_wait<1>(); /* the step before has been read */
    if (leads && i > 0) {
      arrive(s.empty + before);
    }
    before = turn.stage;
    turn.next();
  }
  wgmma_wait<0>();
  settle(d);
  if (leads && whole > 0) {
    arrive(s.empty + before);
  }
  if (kMayBeNone && p.tail) {
    gemm_multiply_tail<T, Form>(d, s, turn, p, consumer);
    turn.next();
  }
}

/** The same, one group, operands of one byte: each step's sums are added up outside of the tensor
 * core, 128 columns at a time, for two sets of all would not fit the registers. So that the halves
 * of a tile do not read A twice from shared memory, which is as busy as the tensor core, it comes
 * from registers. */
template <typename T, typename Form>
__device__ __forceinline__ void gemm_multiply_apart(float (&d)[Form::kN / 2], const gemm_shared &s,
                                                    ring_turn<Form::kStages> &turn,
                                                    const gemm_place &p, int consumer)
{
  constexpr int kSteps = kGemmTileK / 16, kPart = 128; /* columns */
  static_assert(sizeof(T) == 1 && Form::kN % kPart == 0, "parts of bytes");
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x % kWarpgroup / 32;
#pragma unroll
  for (int i = 0; i < Form::kN / 2; i++) {
    d[i] = 0;
  }
  for (int i = 0; i < p.steps; i++) {
    const uint32_t page = s.a + turn.stage * Form::kBytesA + consumer * kGemmBlock;
    const uint32_t columns = s.b + turn.stage * Form::kBytesB;
    uint32_t a[kSteps][4];
    wait_for(s.full + turn.stage, turn.parity);
#pragma unroll
    for (int j = 0; j < kSteps; j++) {
      load_matrices(a[j], page_chunk(page, 16 * warp + lane % 16, 2 * j + lane / 16));
    }
#pragma unroll
    for (int n = 0; n < Form::kN / kPart; n++) {
      float part[kPart / 2];
      const uint64_t b = page_operand(columns + n * kPart * kPageRow);
      wgmma_fence();
#pragma unroll
      for (int j = 0; j < kSteps; j++) {
        multiply_by_registers<T, kPart>(part, a[j], operand_at(b, 32 * j), j > 0);
      }
      wgmma_commit();
      wgmma_wait<0>();
      settle(part);
      if (n + 1 == Form::kN / kPart && threadIdx.x % kWarpgroup == 0) {
        arrive(s.empty + turn.stage);
      }
#pragma unroll
      for (int j = 0; j < kPart / 2; j++) {
        d[n * (kPart / 2) + j] += part[j];
      }
    }
    turn.next();
  }
}

/** The turns of a tile of which this warpgroup has no row. */
template <int kStages>
__device__ __forceinline__ void gemm_pass_by(const gemm_shared &s, ring_turn<kStages> &turn,
                                             const gemm_place &p)
{
  const bool leads = threadIdx.x % kWarpgroup == 0;
  for (int i = 0; i < p.steps; i++) {
    if (leads) {
      wait_for(s.full + turn.stage, turn.parity);
      arrive(s.empty + turn.stage);
    }
    turn.next();
  }
  /* Without products nothing else holds the warps together: one that lagged behind by a turn of the
   * ring would wait for a phase that is over. The barrier is this warpgroup's own, 1 + consumer, at
   * which it also stores (gemm_store_rows): the other one may be at its barrier meanwhile. */
  sync_some((int)threadIdx.x / kWarpgroup, kWarpgroup);
}

/** Adds the tile's bias, which lies in shared memory. */
template <typename Form>
__device__ __forceinline__ void gemm_add_bias(float (&d)[Form::kN / 2], const gemm_shared &s)
{
  const float *bias = s.bias + 2 * (threadIdx.x % 4);
#pragma unroll
  for (int j = 0; j < Form::kN / 8; j++) {
    const float2 v = *reinterpret_cast<const float2 *>(bias + 8 * j);
    d[4 * j] += v.x;
    d[4 * j + 1] += v.y;
    d[4 * j + 2] += v.x;
    d[4 * j + 3] += v.y;
  }
}

/** Leaves the sums rounded to T, in blocks of 64 columns [consumer][block][row]. */
template <typename T, typename Form>
__device__ __forceinline__ void gemm_leave_rounded(const float (&d)[Form::kN / 2],
                                                   const gemm_shared &s, int consumer)
{
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x % kWarpgroup / 32;
  const uint32_t page = s.result + consumer * (Form::kResult / 2);
#pragma unroll
  for (int j = 0; j < 8; j += 2) { /* blocks are constants away: few addresses stay in registers */
    const uint32_t to = page_chunk(page, 16 * warp + lane % 16, j + lane / 16);
#pragma unroll
    for (int block = 0; block < Form::kN / 64; block++) {
      const float *v = d + 32 * block + 4 * j;
      store_matrices(to + block * kGemmBlock, round_pair<T>(v[0], v[1]), round_pair<T>(v[2], v[3]),
                     round_pair<T>(v[4], v[5]), round_pair<T>(v[6], v[7]));
    }
  }
}

/** Where 4 f32 sums, `chunk` of 0 .. kN / 8 - 1, of a row of a piece lie: in blocks of 32 columns,
 * [consumer][block][row]. */
template <typename Form>
__device__ __forceinline__ uint32_t gemm_sums_at(const gemm_shared &s, int row, int chunk)
{
  const uint32_t block = s.result + row / 64 * (Form::kResult / 2) + chunk / 8 * kGemmBlock;
  return page_chunk(block, row % 64, chunk % 8);
}

__device__ __forceinline__ void store_pair(uint32_t to, float low, float high)
{
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" : : "r"(to), "f"(low), "f"(high) : "memory");
}

/** Leaves piece `kPiece` of the sums as they are: half of the columns. */
template <typename Form, int kPiece>
__device__ __forceinline__ void gemm_leave_sums(const float (&d)[Form::kN / 2],
                                                const gemm_shared &s, int consumer)
{
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x % kWarpgroup / 32;
  const int row = 64 * consumer + 16 * warp + lane / 4, q = lane % 4;
#pragma unroll
  for (int j = 0; j < 4; j++) {
    const uint32_t to = gemm_sums_at<Form>(s, row, 2 * j + q / 2) + q % 2 * 8;
#pragma unroll
    for (int block = 0; block < Form::kN / 64; block++) {
      const float *v = d + kPiece * (Form::kN / 4) + 16 * block + 4 * j;
      store_pair(to + block * kGemmBlock, v[0], v[1]);
      store_pair(to + block * kGemmBlock + 8 * kPageRow, v[2], v[3]);
    }
  }
}

__device__ __forceinline__ void gemm_hand_over(const gemm_shared &s)
{
  publish_to_copies();
  __syncwarp();
  if (threadIdx.x % 32 == 0) {
    arrive(s.result_full);
  }
}

template <typename T, typename Form, typename Tiles, typename Epilogue>
__device__ __forceinline__ void gemm_consume(const gemm_shared &s, const Tiles &tiles,
                                             const Epilogue &epilogue)
{
  const int consumer = (int)threadIdx.x / kWarpgroup - 1;
  ring_turn<Form::kStages> turn;
  gemm_place p;
  unsigned given = 0; /* parity of the tiles and pieces handed over */
  const bool sums = epilogue.takes_sums(), biased = epilogue.has_bias();
  const int count = tiles.count(s.ends);
  for (int tile = (int)blockIdx.x; tile < count; tile += (int)gridDim.x) {
    if (!tiles.find(s.ends, tile, &p) || (p.steps == 0 && !Tiles::kGroupsOfSteps)) {
      continue;
    }
    if (64 * consumer >= p.rows) {
      gemm_pass_by(s, turn, p);
      for (int piece = 0; piece < (sums ? kGemmPieces : 1); piece++) {
        wait_for(s.result_empty, given);
        gemm_hand_over(s);
        given ^= 1;
      }
      continue;
    }
    float d[Form::kN / 2];
    gemm_multiply<T, Form, Tiles::kGroupsOfSteps>(d, s, turn, p, consumer);
    wait_for(s.result_empty, given);
    if (biased) {
      gemm_add_bias<Form>(d, s);
    }
    if (!sums) {
      gemm_leave_rounded<T, Form>(d, s, consumer);
    } else {
      gemm_leave_sums<Form, 0>(d, s, consumer);
    }
    gemm_hand_over(s);
    given ^= 1;
    if (Epilogue::kMayTakeSums && sums) {
      wait_for(s.result_empty, given);
      gemm_leave_sums<Form, 1>(d, s, consumer);
      gemm_hand_over(s);
      given ^= 1;
    }
  }
}

/* ---- finishers ---- */

/** The next tile from `tile` on that consumers hand over; those of no group are filled here. */
template <typename Form, typename Tiles, typename Epilogue>
__device__ __forceinline__ int gemm_next_result(const gemm_shared &s, const Tiles &tiles,
                                                const Epilogue &epilogue, int tile, int count,
                                                int thread, gemm_place *p)
{
  for (; tile < count; tile += (int)gridDim.x) {
    if (!tiles.find(s.ends, tile, p)) {
      continue;
    }
    if (p->steps > 0 || Tiles::kGroupsOfSteps) {
      break;
    }
    epilogue.fill(*p, s.ends.bad, thread);
  }
  return tile;
}

template <typename Form, typename Tiles, typename Epilogue>
__device__ __forceinline__ void gemm_finish_tiles(const gemm_shared &s, const Tiles &tiles,
                                                  const Epilogue &epilogue, const CUtensorMap *c)
{
  const int thread = (int)threadIdx.x - 32, count = tiles.count(s.ends);
  const auto release = [&] {
    __syncwarp();
    if (thread % 32 == 0) {
      arrive(s.result_empty);
    }
  };
  gemm_place p, after;
  unsigned taken = 0;
  int tile = gemm_next_result<Form>(s, tiles, epilogue, (int)blockIdx.x, count, thread, &p);
  if (tile < count) {
    epilogue.prepare(s.bias, p, thread);
  }
  release(); /* consumers wait for this once before their first tile */
  while (tile < count) {
    wait_for(s.result_full, taken);
    taken ^= 1;
    epilogue.template finish<Form>(s, c, p, 0, thread);
    if (Epilogue::kMayTakeSums && epilogue.takes_sums()) {
      release();
      wait_for(s.result_full, taken);
      taken ^= 1;
      epilogue.template finish<Form>(s, c, p, 1, thread);
    }
    tile = gemm_next_result<Form>(s, tiles, epilogue, tile + (int)gridDim.x, count, thread, &after);
    p = after;
    if (tile < count) {
      epilogue.prepare(s.bias, p, thread);
    }
    release();
  }
}

namespace
{

template <typename T, typename Form, typename Tiles, typename Epilogue>
__global__ void __launch_bounds__(kGemmSm90Threads, 1)
    gemm_sm90_kernel(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                     const __grid_constant__ CUtensorMap c, const __grid_constant__ Tiles tiles,
                     const __grid_constant__ Epilogue epilogue)
{
  extern __shared__ char gemm_memory[];
  const gemm_shared s = gemm_open<Form>(gemm_memory, tiles.groups);
  if (threadIdx.x >= kWarpgroup) {
    take_registers<216>();
    gemm_consume<T, Form>(s, tiles, epilogue);
    return;
  }
  give_registers<72>();
  if (threadIdx.x == 0) {
    gemm_produce<Form>(s, tiles, epilogue, &a, &b, &b);
  } else if (threadIdx.x >= 32) {
    gemm_finish_tiles<Form>(s, tiles, epilogue, &c);
  }
}

} // namespace

/** A product's operands and result, as pages_of names them. */
struct gemm_matrices {
  tg_tensor a, b, c;
};

/** Starts the kernel of a plan. */
template <typename T, typename Form, typename Tiles, typename Epilogue>
tg_status gemm_launch_sm90(const tg_context *ctx, const tgi_gemm_plan &plan, const gemm_matrices &m,
                           const Tiles &tiles, const Epilogue &epilogue)
{
  CUtensorMap a, b, c;
  const page_map maps[3] = {{&a, &m.a, Form::kTurnA ? kGemmTileK : kGemmTileM},
                            {&b, &m.b, Form::kTurnB ? kGemmTileK : Form::kN / 2},
                            {&c, &m.c, 64}};
  const tg_status status = make_page_maps(ctx, maps);
  return status != TG_OK
             ? status
             : launch(ctx, gemm_sm90_kernel<T, Form, Tiles, Epilogue>, dim3((unsigned)plan.blocks),
                      kGemmSm90Threads, plan.shared, a, b, c, tiles, epilogue);
}

} // namespace TGI_CUDA_ENTRY

#endif

/**
 * The ring of shared memory that long rows of logits go through on Hopper, and who waits for whom:
 * see cross_entropy_sm90.cu.
 */
#ifndef TGI_OPS_CROSS_ENTROPY_RING_CUH
#define TGI_OPS_CROSS_ENTROPY_RING_CUH

#include "cuda/mbarrier.cuh"
#include "ops/cross_entropy/cross_entropy_launch.cuh"

inline namespace TGI_CUDA_ENTRY
{

constexpr int kBlocks = 4; /* of a cluster */
constexpr int kScanners = kRowThreads / kBlocks;
constexpr int kWriters = 256;
constexpr int kSteps = 4;                /* vectors of a scanner in a stage */
constexpr int kStages = 26;              /* of the ring; 8 KiB each */
constexpr int kSpare = 2;                /* stages that a row leaves, at least */
constexpr int kTurns = 2;                /* rows whose sums and facts are kept */
constexpr int64_t kLeastRow = 64 * 1024; /* bytes; shorter ones stay in the second-level cache */

/* The block's warps. */
constexpr int kFinisher = kScanners / kWarp, kLoader = kFinisher + 1, kFirstWriter = kLoader + 1;
constexpr int kRingThreads = kFirstWriter * kWarp + kWriters;

/* A scanner's sums; in the first of the row, z of the target, too. */
using row_sums = float4; /* shift, sum, z_sum, hit */

struct loss_ring {
  uint4 stage[kStages][kSteps * kScanners];
  row_sums sums[kTurns][kRowThreads]; /* of all blocks' scanners */
  row_facts facts[kTurns];
  int64_t counts[kWarp];
  mbarrier full[kStages], empty[kStages];    /* of a stage: loaded; written as gradients */
  mbarrier summed[kTurns], finished[kTurns]; /* of a row's sums: all there; read by all blocks */
  mbarrier known[kTurns], taken[kTurns];     /* of its facts: there; read by all writers */
};

/* How a row lies in the ring, in vectors of 16 bytes. Step s of the row is its vectors 512 s to
 * 512 s + 511, of which a block of rank r has those from 128 r on. */
struct loss_ring_row {
  int vectors, stages;

  /* This block's vectors of a step. */
  __device__ __forceinline__ int of_step(int step, unsigned rank) const
  {
    const int left = vectors - step * kRowThreads - (int)rank * kScanners;
    return left < 0 ? 0 : left < kScanners ? left : kScanners;
  }
};

/* Where a warp is in the ring, or in the turns of rows. */
template <int kNumber> struct loss_ring_place {
  int at;
  unsigned parity;

  __device__ __forceinline__ void advance()
  {
    at++;
    if (at == kNumber) {
      at = 0;
      parity ^= 1;
    }
  }
};

/* The cluster's rows, every n-th; all warps go through them alike. The next row's target is asked
 * for ahead. */
struct row_walk {
  const target_rule &rule;
  int64_t row, apart, target, next;

  __device__ __forceinline__ row_walk(const target_rule &r)
      : rule(r), row(blockIdx.x / kBlocks), apart(gridDim.x / kBlocks), target(0), next(0)
  {
    target = row < rule.rows ? int_at(rule.targets, row) : 0;
    look_ahead();
  }

  __device__ __forceinline__ void look_ahead()
  {
    next = row + apart < rule.rows ? int_at(rule.targets, row + apart) : 0;
  }

  __device__ __forceinline__ bool more() const
  {
    return row < rule.rows;
  }

  __device__ __forceinline__ void advance()
  {
    row += apart;
    target = next;
    look_ahead();
  }

  /* The row goes through the ring. */
  __device__ __forceinline__ bool counts() const
  {
    return !is_ignored(rule, target) && is_class(rule, target);
  }
};

/* By one thread of the block. */
__device__ __forceinline__ void init_loss_ring(loss_ring *m)
{
  for (int i = 0; i < kStages; i++) {
    init_barrier(&m->full[i], 1);
    init_barrier(&m->empty[i], kWriters / kWarp);
  }
  for (int i = 0; i < kTurns; i++) {
    init_barrier(&m->summed[i], 1);
    init_barrier(&m->finished[i], kBlocks);
    init_barrier(&m->known[i], 1);
    init_barrier(&m->taken[i], kWriters / kWarp);
  }
  publish_barriers();
}

/* ---- host ---- */

struct loss_ring_plan {
  bool taken;
  loss_ring_row row;
};

/* Takes what is told by shapes, dtypes, strides and options, and is on a device with room. */
inline loss_ring_plan plan_loss_ring(const tg_context *ctx, const tg_cross_entropy_fwdbwd_args *a)
{
  const int64_t bytes = a->logits.shape[1] * (int64_t)tg_dtype_bytes(a->logits.dtype);
  const int64_t stages = divide_up(bytes / 16, (int64_t)kSteps * kRowThreads);
  loss_ring_plan p = {};
  p.taken = bytes >= kLeastRow && bytes % 16 == 0 && stages <= kStages - kSpare &&
            rows_aligned(&a->logits, 16) && rows_aligned(&a->dlogits, 16) && a->softcap == 0 &&
            !tgi_present(&a->argmax) && a->logits.shape[0] <= INT32_MAX &&
            ctx->device->shared_bytes >= (int)sizeof(loss_ring) &&
            ctx->device->multiprocessors >= kBlocks;
  if (p.taken) {
    p.row = {(int)(bytes / 16), (int)stages};
  }
  return p;
}

} // namespace TGI_CUDA_ENTRY

#endif

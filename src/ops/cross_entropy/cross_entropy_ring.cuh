/**
 * The ring of shared memory that long rows of logits go through on Hopper, and who waits for whom:
 * see cross_entropy_sm90.cu.
 */
#ifndef TGI_OPS_CROSS_ENTROPY_RING_CUH
#define TGI_OPS_CROSS_ENTROPY_RING_CUH

#include "cuda/mbarrier.cuh"
#include "ops/cross_entropy/cross_entropy_launch.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

constexpr int kWriters = 256;
constexpr int kStageVectors = 512;       /* 8 KiB */
constexpr int kStages = 27;              /* of the ring */
constexpr int kHeld = 6;                 /* stages that the writers have in registers */
constexpr int kSpare = 3;                /* stages that a row leaves, at least */
constexpr int64_t kLeastRow = 80 * 1024; /* bytes; shorter ones stay in the second-level cache */

/* Who is who in a block, of kBlocks in a cluster. */
template <int kBlocks> struct loss_ring_team {
  static constexpr int kScanners = kRowThreads / kBlocks;
  static constexpr int kSteps = kStageVectors / kScanners; /* vectors of a scanner in a stage */
  /* Warps: those before the finisher scan. */
  static constexpr int kFinisher = kScanners / kWarp, kLoader = kFinisher + 1;
  static constexpr int kFirstWriter = kLoader + 1;
  /* From a writer's vector to its next, in the row. */
  static constexpr int kApart = kWriters / kScanners * kRowThreads;
  static constexpr int kThreads = kFirstWriter * kWarp + kWriters;
};

using row_sums = float4; /* of a scanner: shift, sum, z_sum; one is free */

struct loss_ring_facts {
  row_facts row;
  float target; /* gradient of its logit */
};

struct loss_ring {
  uint4 stage[kStages][kStageVectors];
  row_sums sums[kRowThreads]; /* of all blocks' scanners */
  loss_ring_facts facts;
  int64_t counts[kWarp];
  mbarrier full[kStages], empty[kStages]; /* of a stage: loaded; read by scanners and writers */
  mbarrier summed, finished;              /* the row's sums: all there; read by all blocks */
  mbarrier known, taken;                  /* its facts: there; read by all writers */
};

/* How a row lies in the ring, in vectors of 16 bytes. Step s of the row is its vectors 512 s to
 * 512 s + 511, of which each block has one for each of its scanners. */
struct loss_ring_row {
  int vectors, stages;

  /* This block's vectors of a step. */
  __device__ __forceinline__ int of_step(int step, unsigned rank, int scanners) const
  {
    const int left = vectors - step * kRowThreads - (int)rank * scanners;
    return left < 0 ? 0 : left < scanners ? left : scanners;
  }
};

/* Where a warp is in the ring. */
struct loss_ring_place {
  int at;
  unsigned parity;

  __device__ __forceinline__ void advance()
  {
    at++;
    if (at == kStages) {
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

  __device__ __forceinline__ row_walk(const target_rule &r, int blocks)
      : rule(r), row(blockIdx.x / blocks), apart(gridDim.x / blocks), target(0), next(0)
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
template <int kBlocks> __device__ __forceinline__ void init_loss_ring(loss_ring *m)
{
#pragma unroll 1
  for (int i = 0; i < kStages; i++) {
    init_barrier(&m->full[i], 1);
    init_barrier(&m->empty[i], (loss_ring_team<kBlocks>::kScanners + kWriters) / kWarp);
  }
  init_barrier(&m->summed, 1);
  init_barrier(&m->finished, kBlocks);
  init_barrier(&m->known, 1);
  init_barrier(&m->taken, kWriters / kWarp);
  publish_barriers();
}

/* ---- host ---- */

struct loss_ring_plan {
  int blocks; /* of a cluster; 0: not taken */
  loss_ring_row row;
};

inline int64_t ring_stages(int64_t bytes, int blocks)
{
  return divide_up(bytes / 16, (int64_t)blocks * kStageVectors);
}

/* Takes what is told by shapes, dtypes, strides and options, and is on a device with room. A
 * cluster has two blocks wherever these have room for the row and kSpare stages. On an H200, 4096
 * rows of bf16, two blocks and four: 151936 columns 649 and 691 us, 201088 859 and 891; 245760,
 * which leave no more than kSpare, 1076 and 1066. */
inline loss_ring_plan plan_loss_ring(const tg_context *ctx, const tg_cross_entropy_fwdbwd_args *a)
{
  const int64_t bytes = a->logits.shape[1] * (int64_t)tg_dtype_bytes(a->logits.dtype);
  const int most = kStages + kHeld - kSpare;
  const int blocks = ring_stages(bytes, 2) <= most ? 2 : 4;
  const int64_t stages = ring_stages(bytes, blocks);
  loss_ring_plan p = {};
  if (bytes >= kLeastRow && bytes % 16 == 0 && stages <= most && rows_aligned(&a->logits, 16) &&
      rows_aligned(&a->dlogits, 16) && a->softcap == 0 && !tgi_present(&a->argmax) &&
      a->logits.shape[0] <= INT32_MAX && ctx->device->shared_bytes >= (int)sizeof(loss_ring) &&
      ctx->device->multiprocessors >= blocks) {
    p.blocks = blocks;
    p.row = {(int)(bytes / 16), (int)stages};
  }
  return p;
}

} // namespace TGI_CUDA_ENTRY

#endif

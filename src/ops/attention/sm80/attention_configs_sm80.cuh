/**
 * Attention by mma.sync: the tile configurations, one struct each, named after the heads and the
 * GPUs that it is for. The host functions choose among them; the kernels are templated on one of
 * them and read its members by name. What follows from a configuration stands beside the kernels:
 * fwd_tile, few_tile, dq_tile, dkv_tile and dkv_wide_tile.
 *
 * A configuration states what was chosen by measuring. Registers bound the rows that a warp has,
 * shared memory the blocks: `_small` is for GPUs with 99 KiB a block (8.6, 8.9, 12.0), `_medium`
 * for those with up to 163 KiB (8.0), too. `_tf32` configurations are for f32 elements, rounded to
 * TF32.
 */
#ifndef TGI_OPS_ATTENTION_CONFIGS_SM80_CUH
#define TGI_OPS_ATTENTION_CONFIGS_SM80_CUH

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/* ---- forward ---- */

/**
 * Members of a forward configuration:
 *
 *   kHeadDim      elements of q and k that products cover; what a head lacks is zeros
 *   kValueDim     the same of v
 *   kQueries      of a tile: kWarpRows for each of kWarps warps
 *   kKeys         of a block of keys
 *   kWarpRows     queries of a warp, 16 or 32: with 32 an operand of keys serves two products
 *   kValueStages  buffers for blocks of values: with 2 they load while the block before is
 * computed. Keys always have two kOccupancy    thread blocks on a multiprocessor, as registers
 * allow
 */
struct fwd_d64 {
  static constexpr int kHeadDim = 64, kValueDim = 64, kQueries = 128, kKeys = 96;
  static constexpr int kWarpRows = 32, kWarps = 4, kValueStages = 2, kOccupancy = 2;
};

struct fwd_d64_small : fwd_d64 {
  static constexpr int kKeys = 64;
};

struct fwd_d96 {
  static constexpr int kHeadDim = 96, kValueDim = 96, kQueries = 128, kKeys = 64;
  static constexpr int kWarpRows = 32, kWarps = 4, kValueStages = 2, kOccupancy = 2;
};

struct fwd_d128 {
  static constexpr int kHeadDim = 128, kValueDim = 128, kQueries = 128, kKeys = 64;
  static constexpr int kWarpRows = 32, kWarps = 4, kValueStages = 2, kOccupancy = 2;
};

/** Two blocks fit on a multiprocessor if values have one buffer. */
struct fwd_d128_medium : fwd_d128 {
  static constexpr int kValueStages = 1;
};

struct fwd_d192 {
  static constexpr int kHeadDim = 192, kValueDim = 192, kQueries = 128, kKeys = 64;
  static constexpr int kWarpRows = 16, kWarps = 8, kValueStages = 1, kOccupancy = 1;
};

struct fwd_d192_small : fwd_d192 {
  static constexpr int kQueries = 64, kWarps = 4;
};

struct fwd_d192_v128 : fwd_d192 {
  static constexpr int kValueDim = 128;
};

struct fwd_d192_v128_small : fwd_d192_small {
  static constexpr int kValueDim = 128;
};

struct fwd_d256 {
  static constexpr int kHeadDim = 256, kValueDim = 256, kQueries = 128, kKeys = 64;
  static constexpr int kWarpRows = 16, kWarps = 8, kValueStages = 1, kOccupancy = 1;
};

struct fwd_d256_small : fwd_d256 {
  static constexpr int kQueries = 64, kKeys = 32, kWarps = 4;
};

struct fwd_d64_tf32 : fwd_d64 {
  static constexpr int kKeys = 32, kOccupancy = 3;
};

/** More than 200 KiB of shared memory (9.0, 10.0). */
struct fwd_d128_tf32_large : fwd_d128 {
  static constexpr int kQueries = 256, kWarps = 8, kValueStages = 1, kOccupancy = 1;
};

struct fwd_d128_tf32 : fwd_d128 {
  static constexpr int kQueries = 64, kKeys = 32, kWarpRows = 16, kOccupancy = 1;
};

/* ---- forward of few queries ---- */

/** kHeadDim: elements of a head that products cover. kHoldsQueries: in registers. */
struct few_d64 {
  static constexpr int kHeadDim = 64;
  static constexpr bool kHoldsQueries = true;
};

struct few_d96 {
  static constexpr int kHeadDim = 96;
  static constexpr bool kHoldsQueries = true;
};

struct few_d128 {
  static constexpr int kHeadDim = 128;
  static constexpr bool kHoldsQueries = true;
};

struct few_d192 {
  static constexpr int kHeadDim = 192;
  static constexpr bool kHoldsQueries = false;
};

struct few_d256 {
  static constexpr int kHeadDim = 256;
  static constexpr bool kHoldsQueries = false;
};

/* ---- backward: dq ---- */

/** Members as in the forward; kStages: buffers for blocks of keys, and of values. */
struct dq_d64 {
  static constexpr int kHeadDim = 64, kValueDim = 64, kQueries = 128, kKeys = 64;
  static constexpr int kWarpRows = 32, kWarps = 4, kStages = 2, kOccupancy = 2;
};

struct dq_d96 {
  static constexpr int kHeadDim = 96, kValueDim = 96, kQueries = 128, kKeys = 32;
  static constexpr int kWarpRows = 32, kWarps = 4, kStages = 2, kOccupancy = 2;
};

struct dq_d128 {
  static constexpr int kHeadDim = 128, kValueDim = 128, kQueries = 128, kKeys = 32;
  static constexpr int kWarpRows = 32, kWarps = 4, kStages = 2, kOccupancy = 2;
};

struct dq_d192 {
  static constexpr int kHeadDim = 192, kValueDim = 192, kQueries = 128, kKeys = 64;
  static constexpr int kWarpRows = 16, kWarps = 8, kStages = 1, kOccupancy = 1;
};

struct dq_d192_small : dq_d192 {
  static constexpr int kQueries = 64, kKeys = 32, kWarps = 4, kStages = 2;
};

struct dq_d192_v128 : dq_d192 {
  static constexpr int kValueDim = 128;
};

struct dq_d192_v128_small : dq_d192_small {
  static constexpr int kValueDim = 128;
};

struct dq_d256 {
  static constexpr int kHeadDim = 256, kValueDim = 256, kQueries = 128, kKeys = 32;
  static constexpr int kWarpRows = 16, kWarps = 8, kStages = 1, kOccupancy = 1;
};

struct dq_d256_small : dq_d256 {
  static constexpr int kQueries = 64, kWarps = 4;
};

struct dq_d64_tf32 : dq_d64 {
  static constexpr int kKeys = 32;
};

struct dq_d128_tf32_large : dq_d128 {
  static constexpr int kOccupancy = 1;
};

struct dq_d128_tf32 : dq_d128 {
  static constexpr int kQueries = 64, kKeys = 16, kWarpRows = 16, kOccupancy = 1;
};

/* ---- backward: dk and dv ---- */

/**
 * Members of a configuration of dk and dv, for heads of up to 128 elements:
 *
 *   kHeadDim    elements of q, k and v that products cover
 *   kKeys       of a tile: kWarpRows for each group of kSharers of the kWarps warps
 *   kQueries    of a block of queries
 *   kWarpRows   keys of a warp
 *   kSharers    warps that share them: each has a part of the block's queries in scores, and a part
 *               of the elements in sums; p and ds then go through shared memory
 *   kOccupancy  thread blocks on a multiprocessor, as registers allow
 *   kAddsDq     the kernel makes dq too, by adding to sums in memory in no fixed order
 */
struct dkv_d64 {
  static constexpr int kHeadDim = 64, kKeys = 128, kQueries = 32;
  static constexpr int kWarpRows = 32, kWarps = 4, kSharers = 1, kOccupancy = 2;
  static constexpr bool kAddsDq = false;
};

struct dkv_d96 {
  static constexpr int kHeadDim = 96, kKeys = 128, kQueries = 64;
  static constexpr int kWarpRows = 16, kWarps = 8, kSharers = 1, kOccupancy = 1;
  static constexpr bool kAddsDq = false;
};

struct dkv_d128 {
  static constexpr int kHeadDim = 128, kKeys = 128, kQueries = 64;
  static constexpr int kWarpRows = 32, kWarps = 8, kSharers = 2, kOccupancy = 1;
  static constexpr bool kAddsDq = false;
};

struct dkv_d128_small {
  static constexpr int kHeadDim = 128, kKeys = 128, kQueries = 32;
  static constexpr int kWarpRows = 16, kWarps = 8, kSharers = 1, kOccupancy = 1;
  static constexpr bool kAddsDq = false;
};

struct dkv_d64_adding_dq : dkv_d64 {
  static constexpr bool kAddsDq = true;
};

struct dkv_d96_adding_dq : dkv_d96 {
  static constexpr bool kAddsDq = true;
};

struct dkv_d128_adding_dq : dkv_d128 {
  static constexpr bool kAddsDq = true;
};

struct dkv_d64_tf32 : dkv_d64 {
};

struct dkv_d128_tf32_large : dkv_d128_small {
};

struct dkv_d128_tf32 : dkv_d128_small {
  static constexpr int kKeys = 64, kQueries = 16, kWarps = 4;
};

/** Heads of more than 128 elements: kWarpPairs pairs of warps, each pair with 16 keys. */
struct dkv_d192 {
  static constexpr int kHeadDim = 192, kValueDim = 192, kKeys = 64, kQueries = 64, kWarpPairs = 4;
};

struct dkv_d192_small : dkv_d192 {
  static constexpr int kKeys = 32, kQueries = 32, kWarpPairs = 2;
};

struct dkv_d192_v128 : dkv_d192 {
  static constexpr int kValueDim = 128;
};

struct dkv_d192_v128_small : dkv_d192_small {
  static constexpr int kValueDim = 128;
};

struct dkv_d256 {
  static constexpr int kHeadDim = 256, kValueDim = 256, kKeys = 64, kQueries = 32, kWarpPairs = 4;
};

struct dkv_d256_small : dkv_d256 {
  static constexpr int kKeys = 32, kQueries = 16, kWarpPairs = 2;
};

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif

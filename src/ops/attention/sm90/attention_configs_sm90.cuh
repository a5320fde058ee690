/**
 * Attention on Hopper: the tile configurations, one struct each, named after the heads and the
 * calls that it is for. The host functions in instances/ choose among them; the kernels are
 * templated on one of them and read its members by name. What follows from a configuration (pages,
 * threads, registers) stands beside the kernels: fwd_tile, bwd_tile and bwd_wide_tile.
 *
 * A configuration states what was chosen by measuring. Shared memory (227 KiB a block) and
 * registers (up to 240 a thread with two consumer warp groups, 160 with three) bound kQueries,
 * kKeys and kStages.
 */
#ifndef TGI_OPS_ATTENTION_CONFIGS_SM90_CUH
#define TGI_OPS_ATTENTION_CONFIGS_SM90_CUH

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/* ---- forward ---- */

/**
 * Members of a forward configuration, with the values that most have:
 *
 *   kHeadDim      elements of q and k that products cover; TMA reads what a head lacks as zeros
 *   kValueDim     the same of v
 *   kQueries      of a tile: 64 for each consumer warp group
 *   kKeys         of a block of keys
 *   kWarpGroups   consumer warp groups; a producer warp group comes on top
 *   kStages       of the key pipeline, and of the value pipeline
 *   kQueryStages  buffers for a tile's queries; with 2, loading the next tile overlaps this one
 *   kPingPong     the warp groups issue their products in turns
 *   kHalfBlock    of a tile's last block of keys, only half is computed where half is enough
 *   kWindow       queries see keys from some first one on: both ends of a row's keys are masked
 *   kSoftcap      scores go through cap * tanh(score / cap)
 *   kSplitKeys    split-KV: a work item is one split of the keys; its sums go to the workspace
 *   kNarrow       all scores of a tile at once, without a running softmax
 */
struct fwd_config {
  static constexpr int kStages = 2, kQueryStages = 2;
  static constexpr bool kPingPong = false, kHalfBlock = false, kWindow = false, kSoftcap = false;
  static constexpr bool kSplitKeys = false, kNarrow = false;
};

/* Heads of up to 64 elements. The softmax is as long as the products: three warp groups where they
 * fill the GPU, else two or one. */

struct fwd_d64 : fwd_config {
  static constexpr int kHeadDim = 64, kValueDim = 64, kKeys = 128;
  static constexpr bool kHalfBlock = true;
};

struct fwd_d64_q64 : fwd_d64 {
  static constexpr int kQueries = 64, kWarpGroups = 1;
};

struct fwd_d64_q128 : fwd_d64 {
  static constexpr int kQueries = 128, kWarpGroups = 2;
  static constexpr bool kPingPong = true;
};

struct fwd_d64_q192 : fwd_d64 {
  static constexpr int kQueries = 192, kWarpGroups = 3;
  static constexpr bool kPingPong = true;
};

struct fwd_d64_q64_split : fwd_d64_q64 {
  static constexpr bool kSplitKeys = true;
};

struct fwd_d64_q128_split : fwd_d64_q128 {
  static constexpr bool kSplitKeys = true;
};

struct fwd_d64_q192_split : fwd_d64_q192 {
  static constexpr bool kSplitKeys = true;
};

struct fwd_d64_window : fwd_d64 {
  static constexpr int kQueries = 192, kWarpGroups = 3, kStages = 4;
  static constexpr bool kWindow = true;
};

/** Windows of up to 256 keys: in smaller blocks less is computed and masked. */
struct fwd_d64_short_window : fwd_d64 {
  static constexpr int kQueries = 192, kWarpGroups = 3, kKeys = 64, kStages = 8;
  static constexpr bool kWindow = true, kHalfBlock = false;
};

/** Causal windows of 66 to 129 keys: 64 queries see three blocks at most. */
struct fwd_d64_narrow_window : fwd_d64_short_window {
  static constexpr bool kNarrow = true;
};

struct fwd_d64_softcap : fwd_d64 {
  static constexpr int kQueries = 128, kWarpGroups = 2, kStages = 4;
  static constexpr bool kWindow = true, kSoftcap = true;
};

/* Heads of up to 96 elements. */

struct fwd_d96 : fwd_config {
  static constexpr int kHeadDim = 96, kValueDim = 96, kQueries = 128, kKeys = 128, kWarpGroups = 2;
};

struct fwd_d96_window : fwd_d96 {
  static constexpr bool kWindow = true;
};

struct fwd_d96_softcap : fwd_d96_window {
  static constexpr bool kSoftcap = true;
};

/* Heads of up to 128 elements. */

struct fwd_d128 : fwd_config {
  static constexpr int kHeadDim = 128, kValueDim = 128, kQueries = 128, kKeys = 128;
  static constexpr int kWarpGroups = 2;
};

/** Without a causal mask, from 4096 keys on. */
struct fwd_d128_long : fwd_d128 {
  static constexpr int kKeys = 160;
};

struct fwd_d128_split : fwd_d128 {
  static constexpr bool kSplitKeys = true;
};

struct fwd_d128_window : fwd_d128 {
  static constexpr bool kWindow = true;
};

struct fwd_d128_softcap : fwd_d128_window {
  static constexpr bool kSoftcap = true;
};

/* Heads of up to 192 elements, with values of up to 128 or 192: shared memory has room for one
 * buffer of queries. */

struct fwd_d192_v128 : fwd_config {
  static constexpr int kHeadDim = 192, kValueDim = 128, kQueries = 128, kKeys = 128;
  static constexpr int kWarpGroups = 2, kQueryStages = 1;
};

struct fwd_d192_v128_window : fwd_d192_v128 {
  static constexpr bool kWindow = true;
};

struct fwd_d192_v128_softcap : fwd_d192_v128_window {
  static constexpr bool kSoftcap = true;
};

struct fwd_d192 : fwd_d192_v128 {
  static constexpr int kValueDim = 192, kKeys = 112;
};

struct fwd_d192_window : fwd_d192 {
  static constexpr bool kWindow = true;
};

struct fwd_d192_softcap : fwd_d192_window {
  static constexpr bool kSoftcap = true;
};

/* Heads of up to 256 elements. */

struct fwd_d256 : fwd_config {
  static constexpr int kHeadDim = 256, kValueDim = 256, kQueries = 128, kKeys = 80;
  static constexpr int kWarpGroups = 2, kQueryStages = 1;
};

struct fwd_d256_window : fwd_d256 {
  static constexpr int kKeys = 64;
  static constexpr bool kWindow = true;
};

struct fwd_d256_softcap : fwd_d256_window {
  static constexpr bool kSoftcap = true;
};

/* ---- backward ---- */

/**
 * Members of a backward configuration, for heads of up to 128 elements:
 *
 *   kHeadDim     elements of q, k and v that products cover
 *   kQueries     of a tile
 *   kKeys        of a block of keys: 64 for each of the consumer warp groups
 *   kWarpGroups  consumer warp groups
 *   kStages      of the query pipeline
 *   kOrdered     partial sums of dq are added in the order of the blocks of keys
 *   kSoftcap     as in the forward
 */
struct bwd_config {
  static constexpr int kKeys = 128, kWarpGroups = 2, kStages = 2;
  static constexpr bool kOrdered = true, kSoftcap = false;
};

struct bwd_d64 : bwd_config {
  static constexpr int kHeadDim = 64, kQueries = 128;
};

struct bwd_d64_any_order : bwd_d64 {
  static constexpr bool kOrdered = false;
};

struct bwd_d64_softcap : bwd_d64 {
  static constexpr int kQueries = 64;
  static constexpr bool kSoftcap = true;
};

struct bwd_d96 : bwd_config {
  static constexpr int kHeadDim = 96, kQueries = 80;
};

struct bwd_d96_any_order : bwd_d96 {
  static constexpr bool kOrdered = false;
};

struct bwd_d96_softcap : bwd_d96 {
  static constexpr int kQueries = 64;
  static constexpr bool kSoftcap = true;
};

struct bwd_d128 : bwd_config {
  static constexpr int kHeadDim = 128, kQueries = 80;
};

struct bwd_d128_any_order : bwd_d128 {
  static constexpr bool kOrdered = false;
};

/** With a causal mask or a window: masked tiles cost as much as whole ones, so they are smaller. */
struct bwd_d128_masked : bwd_d128 {
  static constexpr int kQueries = 64;
};

struct bwd_d128_masked_any_order : bwd_d128_masked {
  static constexpr bool kOrdered = false;
};

struct bwd_d128_softcap : bwd_d128 {
  static constexpr int kQueries = 32;
  static constexpr bool kSoftcap = true;
};

/** Heads of more than 128 elements: 64 keys, which both consumer warp groups share. kValueDim: of
 * v; dimensions are whole pages of 64. Sums of dq are always in order. */
struct bwd_wide_config {
  static constexpr int kQueries = 64, kKeys = 64, kWarpGroups = 2, kStages = 2;
  static constexpr bool kSoftcap = false;
};

struct bwd_d192_v128 : bwd_wide_config {
  static constexpr int kHeadDim = 192, kValueDim = 128;
};

struct bwd_d192 : bwd_wide_config {
  static constexpr int kHeadDim = 192, kValueDim = 192;
};

struct bwd_d192_softcap : bwd_d192 {
  static constexpr bool kSoftcap = true;
};

struct bwd_d256 : bwd_wide_config {
  static constexpr int kHeadDim = 256, kValueDim = 256;
};

struct bwd_d256_softcap : bwd_d256 {
  static constexpr bool kSoftcap = true;
};

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif

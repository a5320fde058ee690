/**
 * A token through a whole transformer: one kernel whose blocks stay, one a multiprocessor.
 *
 * Method  Every block has rows of every matrix. A warp of it, the producer, copies weights into a
 *         ring in shared memory and runs ahead across stages and layers; eight warps multiply, and
 *         exchange activations with the other blocks by words (decode_words.cuh). A layer has six
 *         exchanges: qkv, splits of attention, attention, residual, activation, residual.
 * Launch  Cooperative: blocks wait for each other.
 * Bound   Large models: memory, weights once a token. Small ones: the exchanges.
 */
#ifndef TGI_CUDA_DECODE_KERNEL_CUH
#define TGI_CUDA_DECODE_KERNEL_CUH

#include "cuda/decode/decode_attention.cuh"
#include "cuda/decode/decode_gather.cuh"
#include "cuda/decode/decode_ring.cuh"
#include "cuda/gelu_math.cuh"
#include "cuda/silu_math.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** Shared memory behind the ring. */
template <typename S> struct alignas(16) decode_memory {
  char keys[2 * S::kKeys * S::kKeyBytes];
  char operand[S::kOperand];
  float sums[2 * kDecodeWarps * 8 * kDecodeGroup];
  float reduced[64];
  __nv_bfloat16 query[S::kGroup * S::kHeadDim];
  __nv_bfloat16 newest[2 * S::kHeadDim];
  float2 maxima[kDecodeWarps * S::kGroup];
  mbarrier ring[1]; /* [2][stages]: full, empty */
};

/** Vectors of a layer into the second-level cache, by one block. */
__device__ __forceinline__ void touch(const decode_state &s, const __nv_bfloat16 *v, int elements)
{
  for (int i = s.thread * 64; v && i < elements; i += kDecodeThreads * 64) {
    asm volatile("prefetch.global.L2 [%0];" : : "l"(v + i));
  }
}

template <typename S>
__device__ __forceinline__ void touch_layer(const decode_state &s, const decode_job &job, int layer)
{
  if (s.block != layer * 37 % S::kBlocks) {
    return;
  }
  if (layer == job.layers) {
    touch(s, job.final_norm, S::kHidden);
    touch(s, job.final_norm_bias, S::kHidden);
    return;
  }
  const decode_vectors &v = job.vector;
  touch(s, at_layer(v.norm1, job, layer), S::kHidden);
  touch(s, at_layer(v.norm2, job, layer), S::kHidden);
  if constexpr (S::kGpt) {
    touch(s, at_layer(v.norm1_bias, job, layer), S::kHidden);
    touch(s, at_layer(v.norm2_bias, job, layer), S::kHidden);
    touch(s, at_layer(v.out_bias, job, layer), S::kHidden);
    touch(s, at_layer(v.down_bias, job, layer), S::kHidden);
    touch(s, at_layer(v.qkv_bias, job, layer), S::kQkv);
    touch(s, at_layer(v.up_bias, job, layer), S::kUp);
  } else if constexpr (S::kQkNorm) {
    touch(s, at_layer(v.q_norm, job, layer), S::kHeadDim);
    touch(s, at_layer(v.k_norm, job, layer), S::kHeadDim);
  }
}

template <typename S>
__device__ __forceinline__ float bias_of(const __nv_bfloat16 *vector, const decode_job &job,
                                         int layer, int row)
{
  return S::kGpt ? __bfloat162float(at_layer(vector, job, layer)[row]) : 0.0f;
}

template <typename S>
__device__ __forceinline__ void run_qkv(decode_state &s, const decode_job &job, int layer,
                                        uint32_t epoch)
{
  constexpr int kTiles = S::kQkv / 8 / S::kBlocks;
  touch_layer<S>(s, job, layer + 1);
  const int row = s.block * kTiles * 8 + s.thread;
  const float bias = s.thread < kTiles * 8 ? bias_of<S>(job.vector.qkv_bias, job, layer, row) : 0;
  static_assert(!S::kGpt || kTiles <= kDecodeGroup, "one group has biases");
  const float factor = gather_norm<S>(
      s, job, at_layer(job.vector.norm1, job, layer),
      S::kGpt ? at_layer(job.vector.norm1_bias, job, layer) : nullptr, layer ? 2 * epoch - 2 : 0);
  multiply_tiles<S, S::kHidden>(s, kTiles, job.stages, [&](int first, int rows, const float *sums) {
    if (s.thread < rows) {
      put_float(job.words[TGI_WORDS_QKV] + row + first,
                fmaf(total_of(sums, s.thread), factor, bias), epoch);
    }
  });
}

/** The residual stream's rows of this block: out of attention, then of the MLP. */
template <typename S, int K>
__device__ __forceinline__ void add_to_stream(decode_state &s, const decode_job &job, float bias,
                                              uint32_t epoch)
{
  multiply_tiles<S, K>(s, S::kRows / 8, job.stages, [&](int, int rows, const float *sums) {
    if (s.thread < rows) {
      s.residual += total_of(sums, s.thread) + bias;
      put_copies(job.words[TGI_WORDS_X] + s.block * S::kRows + s.thread, S::kHidden,
                 __float_as_uint(s.residual), epoch);
    }
  });
}

template <typename S>
__device__ __forceinline__ void run_out(decode_state &s, const decode_job &job, int layer,
                                        uint32_t epoch)
{
  const int row = s.block * S::kRows + s.thread;
  const float bias = s.thread < S::kRows ? bias_of<S>(job.vector.out_bias, job, layer, row) : 0;
  gather_pairs<S::kQuery>(s, job.words[TGI_WORDS_ATTENTION], epoch);
  if (layer + 1 < job.layers) {
    fetch_keys<S>(s, job, layer + 1, 0);
  }
  add_to_stream<S, S::kQuery>(s, job, bias, 2 * epoch - 1);
}

/** The activation of two neighbouring rows of a group. */
template <typename S>
__device__ __forceinline__ void leave_inner(const decode_state &s, const decode_job &job, int first,
                                            int rows, const float *sums, float factor, float2 bias,
                                            uint32_t epoch)
{
  decode_word *words = job.words[TGI_WORDS_INNER];
  const int begin = s.block * (S::kUp / S::kBlocks) + first;
  if constexpr (S::kGpt) {
    if (s.thread < rows / 2) {
      const float a = total_of(sums, 2 * s.thread) + bias.x;
      const float b = total_of(sums, 2 * s.thread + 1) + bias.y;
      put_copies(words + begin / 2 + s.thread, S::kInner / 2,
                 pack_pair(gelu_tanh<__nv_bfloat16>(a), gelu_tanh<__nv_bfloat16>(b)), epoch);
    }
  } else if (s.thread < rows / 4) { /* tiles of gates and of ups in turns */
    const int at = s.thread / 4 * 16 + s.thread % 4 * 2;
    const float a = silu<__nv_bfloat16>(total_of(sums, at) * factor);
    const float b = silu<__nv_bfloat16>(total_of(sums, at + 1) * factor);
    put_copies(
        words + begin / 4 + s.thread, S::kInner / 2,
        pack_pair(a * (total_of(sums, at + 8) * factor), b * (total_of(sums, at + 9) * factor)),
        epoch);
  }
}

template <typename S>
__device__ __forceinline__ void run_up(decode_state &s, const decode_job &job, int layer,
                                       uint32_t epoch)
{
  constexpr int kTiles = S::kUp / 8 / S::kBlocks;
  static_assert(!S::kGpt || kTiles <= kDecodeGroup, "one group has biases");
  float2 bias = make_float2(0.0f, 0.0f);
  if (S::kGpt && s.thread < kTiles * 4) {
    const uint32_t pair =
        load_pair(at_layer(job.vector.up_bias, job, layer) + s.block * kTiles * 8 + 2 * s.thread);
    bias = make_float2(low_of(pair), high_of(pair));
  }
  const float factor = gather_norm<S>(
      s, job, at_layer(job.vector.norm2, job, layer),
      S::kGpt ? at_layer(job.vector.norm2_bias, job, layer) : nullptr, 2 * epoch - 1);
  multiply_tiles<S, S::kHidden>(s, kTiles, job.stages, [&](int first, int rows, const float *sums) {
    leave_inner<S>(s, job, first, rows, sums, factor, bias, epoch);
  });
}

template <typename S>
__device__ __forceinline__ void run_down(decode_state &s, const decode_job &job, int layer,
                                         uint32_t epoch)
{
  const int row = s.block * S::kRows + s.thread;
  const float bias = s.thread < S::kRows ? bias_of<S>(job.vector.down_bias, job, layer, row) : 0;
  gather_pairs<S::kInner>(s, job.words[TGI_WORDS_INNER], epoch);
  add_to_stream<S, S::kInner>(s, job, bias, 2 * epoch);
}

/** A logit and its row, so that the larger of two is the better one, and of equals the first row.
 * Above all: a logit from which nothing can be picked. */
__device__ __forceinline__ decode_word rank_of(float logit, int row)
{
  const uint32_t bits = logit == 0 ? 0 : __float_as_uint(logit); /* zeros are equal */
  const uint32_t key = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return logit < INFINITY ? (decode_word)key << 32 | (uint32_t)~row : ~(decode_word)0;
}

/** -1: NaN or +infinity among them, or none finite. */
__device__ __forceinline__ int32_t picked_of(decode_word best)
{
  const uint32_t key = (uint32_t)(best >> 32);
  return key == 0xffffffffu || key <= 0x007fffffu ? -1 : (int32_t) ~(uint32_t)best;
}

__device__ __forceinline__ decode_word best_of_warp(decode_word best)
{
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    const decode_word other = __shfl_xor_sync(kAllLanes, best, step);
    best = other > best ? other : best;
  }
  return best;
}

/** The block that ends last picks among all blocks' best. */
template <typename S>
__device__ __forceinline__ void pick_greedily(decode_state &s, const decode_job &job,
                                              decode_word best)
{
  decode_word *ranks = reinterpret_cast<decode_word *>(s.reduced);
  best = best_of_warp(best);
  decode_sync();
  if (s.lane == 0) {
    ranks[s.warp] = best;
  }
  decode_sync();
  if (s.warp > 0) {
    return;
  }
  best = best_of_warp(s.lane < kDecodeWarps ? ranks[s.lane] : 0);
  unsigned before = 0;
  if (s.lane == 0) {
    __stcg(job.best + s.block, best);
    __threadfence();
    before = atomicInc(job.ended, S::kBlocks - 1);
  }
  if (__shfl_sync(kAllLanes, before, 0) != S::kBlocks - 1) {
    return;
  }
  __threadfence();
  best = 0;
  for (int i = s.lane; i < S::kBlocks; i += 32) {
    const decode_word other = __ldcg(job.best + i);
    best = other > best ? other : best;
  }
  best = best_of_warp(best);
  if (s.lane == 0) {
    *job.greedy = picked_of(best);
  }
}

template <typename S>
__device__ __forceinline__ void run_head(decode_state &s, const decode_job &job)
{
  const uint32_t epoch = job.epoch + job.layers + 1; /* of the layer behind the last */
  const int all = (job.vocab + 7) / 8;
  const int begin = (int)((int64_t)all * s.block / S::kBlocks);
  const int end = (int)((int64_t)all * (s.block + 1) / S::kBlocks);
  const float factor = gather_norm<S>(s, job, job.final_norm, job.final_norm_bias, 2 * epoch - 2);
  decode_word best = 0;
  multiply_tiles<S, S::kHidden>(s, end - begin, job.stages,
                                [&](int first, int rows, const float *sums) {
                                  const int row = begin * 8 + first + s.thread;
                                  if (s.thread < rows && row < job.vocab) {
                                    const float logit = total_of(sums, s.thread) * factor;
                                    const decode_word rank = rank_of(logit, row);
                                    job.logits[row] = logit;
                                    best = rank > best ? rank : best;
                                  }
                                });
  pick_greedily<S>(s, job, best);
}

template <typename S>
__device__ __forceinline__ decode_state open_state(const decode_job &job, char *raw)
{
  decode_state s = {};
  decode_memory<S> *m = reinterpret_cast<decode_memory<S> *>(raw + job.stages * S::kStageBytes);
  s.thread = (int)threadIdx.x;
  s.warp = s.thread / 32;
  s.lane = s.thread % 32;
  s.row = s.lane / 4;
  s.quad = s.lane % 4;
  s.block = (int)blockIdx.x;
  s.ring = shared_address(raw) + s.warp * S::kChunkBytes;
  s.full = m->ring;
  s.empty = s.full + job.stages;
  s.keys = m->keys;
  s.operand = reinterpret_cast<__nv_bfloat16 *>(m->operand);
  s.sums = m->sums;
  s.reduced = m->reduced;
  s.query = m->query;
  s.newest = m->newest;
  s.maxima = m->maxima;
  const int keys = job.position + 1, each = (int)divide_up(keys, S::kSplits);
  s.first_key = s.block % S::kSplits * each;
  const int left = keys - s.first_key;
  s.num_keys = left < 0 ? 0 : left < each ? left : each;
  return s;
}

__device__ __forceinline__ void open_barriers(const decode_state &s, const decode_job &job)
{
  if (s.thread == 0) {
    for (int i = 0; i < job.stages; i++) {
      init_barrier(s.full + i, 1);
      init_barrier(s.empty + i, kDecodeWarps);
    }
    publish_barriers();
  }
  __syncthreads();
}

template <typename S>
__device__ __forceinline__ void take_token(decode_state &s, const decode_job &job)
{
  const int id = __ldcg(job.id);
  s.token = id >= 0 && id < job.vocab ? id : 0;
  if (s.thread < S::kRows) {
    const int row = s.block * S::kRows + s.thread;
    s.residual = __bfloat162float(job.tokens[(int64_t)s.token * S::kHidden + row]);
    if constexpr (S::kGpt) {
      s.residual += __bfloat162float(job.positions[(int64_t)job.position * S::kHidden + row]);
    }
  }
}

namespace
{

template <typename M>
__global__ void __launch_bounds__(kDecodeThreads + 32, 1)
    decode_kernel(const __grid_constant__ decode_maps maps, const __grid_constant__ decode_job job)
{
  using S = decode_shape<M>;
  extern __shared__ __align__(1024) char decode_raw[];
  decode_state s = open_state<S>(job, decode_raw);
  open_barriers(s, job);
  if (s.warp == kDecodeWarps) {
    if (s.lane == 0) {
      fill_ring<S>(maps, job, shared_address(decode_raw), s.full, s.block);
    }
    return;
  }
  fetch_keys<S>(s, job, 0, 0);
  take_token<S>(s, job);
  for (int layer = 0; layer < job.layers; layer++) {
    const uint32_t epoch = job.epoch + layer + 1;
    run_qkv<S>(s, job, layer, epoch);
    attend_split<S>(s, job, layer, epoch);
    combine_splits<S>(s, job, epoch);
    run_out<S>(s, job, layer, epoch);
    run_up<S>(s, job, layer, epoch);
    run_down<S>(s, job, layer, epoch);
  }
  run_head<S>(s, job);
}

} // namespace

/** What the host needs to know of a kernel. */
template <typename M> tgi_decode_instance decode_instance_of()
{
  using S = decode_shape<M>;
  tgi_decode_instance d = {};
  d.name = M::kName;
  d.hidden = M::kHidden;
  d.heads = M::kHeads;
  d.kv_heads = M::kKvHeads;
  d.head_dim = M::kHeadDim;
  d.inner = M::kInner;
  d.gpt = M::kGpt;
  d.qk_norm = M::kQkNorm;
  d.blocks = M::kBlocks;
  d.threads = kDecodeThreads + 32;
  d.atom = S::kAtom;
  d.stage_k = S::kStageK;
  d.fixed_bytes = sizeof(decode_memory<S>);
  d.stage_bytes = S::kStageBytes + 2 * sizeof(mbarrier);
  d.words[TGI_WORDS_X] = (size_t)kDecodeCopies * S::kHidden;
  d.words[TGI_WORDS_QKV] = S::kQkv;
  d.words[TGI_WORDS_PART] = (size_t)S::kHeads * S::kSplits * S::kHeadDim;
  d.words[TGI_WORDS_PART_SUMS] = (size_t)S::kHeads * S::kSplits * 2;
  d.words[TGI_WORDS_ATTENTION] = (size_t)kDecodeCopies * S::kQuery / 2;
  d.words[TGI_WORDS_INNER] = (size_t)kDecodeCopies * S::kInner / 2;
  d.kernel = (const void *)decode_kernel<M>;
  return d;
}

} // namespace TGI_CUDA_ENTRY

#endif

/** x of a stage's product from the words of all blocks, to shared memory as bf16. */
#ifndef TGI_CUDA_DECODE_GATHER_CUH
#define TGI_CUDA_DECODE_GATHER_CUH

#include "cuda/decode/decode_state.cuh"
#include "cuda/exp2.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** Pairs of a vector of kHidden that a thread has. */
template <typename S> constexpr int kPairs = (S::kHidden / 2 + kDecodeThreads - 1) / kDecodeThreads;

template <typename S> __device__ __forceinline__ bool has_pair(int thread, int i)
{
  return S::kHidden / 2 % kDecodeThreads == 0 || thread + i * kDecodeThreads < S::kHidden / 2;
}

/** The residual stream: of the token's embedding, or of the words of `epoch`. */
template <typename S>
__device__ __forceinline__ void take_embedding(const decode_state &s, const decode_job &job,
                                               float2 (&v)[kPairs<S>])
{
  const __nv_bfloat16 *token = job.tokens + (int64_t)s.token * S::kHidden;
  const __nv_bfloat16 *place =
      S::kGpt ? job.positions + (int64_t)job.position * S::kHidden : nullptr;
#pragma unroll
  for (int i = 0; i < kPairs<S>; i++) {
    if (has_pair<S>(s.thread, i)) {
      const int k = 2 * (s.thread + i * kDecodeThreads);
      const uint32_t e = load_pair(token + k), p = S::kGpt ? load_pair(place + k) : 0;
      v[i] = make_float2(low_of(e) + low_of(p), high_of(e) + high_of(p));
    }
  }
}

template <typename S>
__device__ __forceinline__ void take_stream(decode_state &s, const decode_job &job, uint32_t epoch,
                                            float2 (&v)[kPairs<S>])
{
  const decode_word *from = job.words[TGI_WORDS_X] + s.block % kDecodeCopies * S::kHidden;
  ulonglong2 u[kPairs<S>];
  for (bool there = false; !there; keep_watch(s.watch)) {
    there = true;
#pragma unroll
    for (int i = 0; i < kPairs<S>; i++) {
      if (has_pair<S>(s.thread, i)) {
        u[i] = get_words(from + 2 * (s.thread + i * kDecodeThreads));
      }
    }
#pragma unroll
    for (int i = 0; i < kPairs<S>; i++) {
      if (has_pair<S>(s.thread, i)) {
        there = there && is_of(u[i].x, epoch) && is_of(u[i].y, epoch);
      }
    }
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kPairs<S>; i++) {
    v[i] = make_float2(float_of(u[i].x), float_of(u[i].y));
  }
}

/** The block's sums of v and v^2; a barrier. */
template <typename S>
__device__ __forceinline__ float2 sum_moments(const decode_state &s, float2 moments)
{
  const float squares = warp_sum(moments.y), plain = S::kGpt ? warp_sum(moments.x) : 0.0f;
  if (s.lane == 0) {
    s.reduced[s.warp] = squares;
    s.reduced[32 + s.warp] = plain;
  }
  decode_sync();
  float2 all = make_float2(0.0f, 0.0f);
#pragma unroll
  for (int w = 0; w < kDecodeWarps; w++) {
    all.y += s.reduced[w];
    all.x += S::kGpt ? s.reduced[32 + w] : 0.0f;
  }
  return all;
}

/**
 * norm(x), rounded, to the operand. RMSNorm leaves its factor, which is returned, to the product's
 * results, so that one barrier does; LayerNorm takes two and returns 1. `epoch` 0: the embedding.
 */
template <typename S>
__device__ __forceinline__ float gather_norm(decode_state &s, const decode_job &job,
                                             const __nv_bfloat16 *weight, const __nv_bfloat16 *bias,
                                             uint32_t epoch)
{
  constexpr int kMany = kPairs<S>;
  uint32_t *to = reinterpret_cast<uint32_t *>(s.operand);
  uint32_t w[kMany], b[kMany];
  float2 v[kMany], moments = make_float2(0.0f, 0.0f);
#pragma unroll
  for (int i = 0; i < kMany; i++) {
    if (has_pair<S>(s.thread, i)) {
      w[i] = load_pair(weight + 2 * (s.thread + i * kDecodeThreads));
      b[i] = S::kGpt ? load_pair(bias + 2 * (s.thread + i * kDecodeThreads)) : 0;
    }
  }
  if (epoch == 0) {
    take_embedding<S>(s, job, v);
  } else {
    take_stream<S>(s, job, epoch, v);
  }
#pragma unroll
  for (int i = 0; i < kMany; i++) {
    if (has_pair<S>(s.thread, i)) {
      moments.x += v[i].x + v[i].y;
      moments.y += fmaf(v[i].x, v[i].x, v[i].y * v[i].y);
      if constexpr (!S::kGpt) {
        to[s.thread + i * kDecodeThreads] =
            pack_pair(v[i].x * low_of(w[i]), v[i].y * high_of(w[i]));
      }
    }
  }
  const float2 sums = sum_moments<S>(s, moments);
  if constexpr (!S::kGpt) {
    return inverse_root_flushed(sums.y / S::kHidden + job.eps);
  }
  const float mean = sums.x / S::kHidden;
  const float factor =
      inverse_root_flushed(fmaxf(fmaf(-mean, mean, sums.y / S::kHidden), 0.0f) + job.eps);
#pragma unroll
  for (int i = 0; i < kMany; i++) {
    if (has_pair<S>(s.thread, i)) {
      to[s.thread + i * kDecodeThreads] =
          pack_pair(fmaf((v[i].x - mean) * factor, low_of(w[i]), low_of(b[i])),
                    fmaf((v[i].y - mean) * factor, high_of(w[i]), high_of(b[i])));
    }
  }
  decode_sync();
  return 1.0f;
}

/** K values of bf16, two a word, to the operand. */
template <int K>
__device__ __forceinline__ void gather_pairs(decode_state &s, const decode_word *words,
                                             uint32_t epoch)
{
  constexpr int kMany = (K / 4 + kDecodeThreads - 1) / kDecodeThreads;
  const decode_word *from = words + s.block % kDecodeCopies * (K / 2);
  ulonglong2 u[kMany];
  for (bool there = false; !there; keep_watch(s.watch)) {
    there = true;
#pragma unroll
    for (int i = 0; i < kMany; i++) {
      if (K / 4 % kDecodeThreads == 0 || s.thread + i * kDecodeThreads < K / 4) {
        u[i] = get_words(from + 2 * (s.thread + i * kDecodeThreads));
      }
    }
#pragma unroll
    for (int i = 0; i < kMany; i++) {
      if (K / 4 % kDecodeThreads == 0 || s.thread + i * kDecodeThreads < K / 4) {
        there = there && is_of(u[i].x, epoch) && is_of(u[i].y, epoch);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kMany; i++) {
    if (K / 4 % kDecodeThreads == 0 || s.thread + i * kDecodeThreads < K / 4) {
      reinterpret_cast<uint2 *>(s.operand)[s.thread + i * kDecodeThreads] =
          make_uint2((uint32_t)u[i].x, (uint32_t)u[i].y);
    }
  }
  decode_sync();
}

} // namespace TGI_CUDA_ENTRY

#endif

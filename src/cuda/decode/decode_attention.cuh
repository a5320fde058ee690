/**
 * Attention of one token: a block has a key head and one of kSplits runs of its keys.
 *
 * A split's keys and values come kKeys at once, the first of them while the layer before is
 * computed. A warp takes 8 keys at a time: scores by tensor cores, running maxima and
 * sums as in "flash" attention, and sums of values by lanes that have kHeadDim / 32 dimensions
 * each. Warps are added up in shared memory, splits through words.
 */
#ifndef TGI_CUDA_DECODE_ATTENTION_CUH
#define TGI_CUDA_DECODE_ATTENTION_CUH

#include "cuda/decode/decode_product.cuh"
#include "cuda/exp2.cuh"

inline namespace TGI_CUDA_ENTRY
{

constexpr float kDecodeNothing = -1e30f; /* a maximum of no keys */

/** Keys of chunk `first` that are in the cache: all but the token's own. */
__device__ __forceinline__ int cached_keys(const decode_state &s, const decode_job &job, int first,
                                           int most)
{
  const int before = job.position - s.first_key - first, left = s.num_keys - first;
  const int count = before < left ? before : left;
  return count < 0 ? 0 : count < most ? count : most;
}

/** The row of the pool that token `t` has. */
__device__ __forceinline__ int64_t place_of(const decode_job &job, int t)
{
  return job.table ? (int64_t)__ldg(job.table + t / job.block_tokens) * job.block_tokens +
                         t % job.block_tokens
                   : t;
}

/** Starts the copies of the split's keys and values from `first` on, 16 bytes a thread at a time.
 * (Bulk copies of a key each took warps thousands of cycles to start.) */
template <typename S>
__device__ __forceinline__ void fetch_keys(const decode_state &s, const decode_job &job, int layer,
                                           int first)
{
  constexpr int kVectors = S::kHeadDim / 8; /* of a row */
  const int count = cached_keys(s, job, first, S::kKeys);
  const __nv_bfloat16 *keys = job.cache[2 * layer], *values = job.cache[2 * layer + 1];
  const uint32_t to = shared_address(s.keys);
  const int head = s.block / S::kSplits, vector = s.thread % kVectors;
  for (int i = s.thread / kVectors; i < count; i += kDecodeThreads / kVectors) {
    const int64_t row = place_of(job, s.first_key + first + i) * S::kKvHeads + head;
    const int64_t at = row * S::kHeadDim + 8 * vector;
    const uint32_t there = to + i * S::kKeyBytes + 16 * vector;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(there), "l"(keys + at));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :
                 : "r"(there + S::kKeys * S::kKeyBytes), "l"(values + at));
  }
}

/** This thread's copies are there; a barrier follows. */
__device__ __forceinline__ void await_keys()
{
  asm volatile("cp.async.wait_all;" : : : "memory");
}

/** A head's values of the projection, lane + 32 i in v[i]. */
template <int kEach>
__device__ __forceinline__ void take_head(decode_state &s, const decode_word *from, uint32_t epoch,
                                          float (&v)[kEach])
{
  decode_word u[kEach];
  for (bool there = false; !there; keep_watch(s.watch)) {
    there = true;
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      u[i] = get_word(from + s.lane + 32 * i);
    }
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      there = there && is_of(u[i], epoch);
    }
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kEach; i++) {
    v[i] = float_of(u[i]);
  }
}

/** What rotates a head, and scales it where the model has a norm: loaded ahead of the head. */
template <typename S> struct decode_rotation {
  float weight[S::kHeadDim / 32], cos[S::kHeadDim / 64], sin[S::kHeadDim / 64];
};

template <typename S>
__device__ __forceinline__ void load_rotation(const decode_state &s, const decode_job &job,
                                              const __nv_bfloat16 *weight, decode_rotation<S> &r)
{
  const int64_t at = (int64_t)job.position * (S::kHeadDim / 2) + s.lane;
#pragma unroll
  for (int i = 0; i < S::kHeadDim / 32; i++) {
    r.weight[i] = S::kQkNorm ? __bfloat162float(weight[s.lane + 32 * i]) : 1.0f;
  }
#pragma unroll
  for (int i = 0; i < S::kHeadDim / 64; i++) {
    r.cos[i] = __ldg(job.cos + at + 32 * i);
    r.sin[i] = __ldg(job.sin + at + 32 * i);
  }
}

/** Norm, where the model has it, and rotation by halves. */
template <typename S>
__device__ __forceinline__ void rotate_head(const decode_job &job, const decode_rotation<S> &r,
                                            float (&v)[S::kHeadDim / 32])
{
  constexpr int kEach = S::kHeadDim / 32;
  if constexpr (S::kQkNorm) {
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      squares = fmaf(v[i], v[i], squares);
    }
    const float factor = inverse_root_flushed(warp_sum(squares) / S::kHeadDim + job.eps);
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      v[i] *= factor * r.weight[i];
    }
  }
#pragma unroll
  for (int i = 0; i < kEach / 2; i++) {
    const float a = v[i], b = v[i + kEach / 2];
    v[i] = fmaf(a, r.cos[i], -b * r.sin[i]);
    v[i + kEach / 2] = fmaf(b, r.cos[i], a * r.sin[i]);
  }
}

/** The token's queries of the group, a warp each; and its key and value, which the split that has
 * them stores. */
template <typename S>
__device__ __forceinline__ void take_heads(decode_state &s, const decode_job &job, int layer,
                                           uint32_t epoch)
{
  constexpr int kEach = S::kHeadDim / 32;
  const int head = s.block / S::kSplits, kind = s.warp < S::kGroup ? 0 : s.warp - S::kGroup + 1;
  const int own = job.position - s.first_key;
  if (kind > 2 || (kind > 0 && (own < 0 || own >= s.num_keys))) {
    return;
  }
  const int first = kind == 0 ? (head * S::kGroup + s.warp) * S::kHeadDim
                              : S::kQuery + ((kind - 1) * S::kKvHeads + head) * S::kHeadDim;
  const __nv_bfloat16 *weight = kind == 0 ? job.vector.q_norm : job.vector.k_norm;
  const int64_t place = kind > 0 ? place_of(job, job.position) * S::kKvHeads + head : 0;
  decode_rotation<S> rotation;
  if constexpr (!S::kGpt) {
    load_rotation<S>(s, job, S::kQkNorm ? at_layer(weight, job, layer) : weight, rotation);
  }
  float v[kEach];
  take_head(s, job.words[TGI_WORDS_QKV] + first, epoch, v);
  if constexpr (!S::kGpt) {
    if (kind < 2) {
      rotate_head<S>(job, rotation, v);
    }
  }
  __nv_bfloat16 *to =
      kind == 0 ? s.query + s.warp * S::kHeadDim : s.newest + (kind - 1) * S::kHeadDim;
#pragma unroll
  for (int i = 0; i < kEach; i++) {
    to[s.lane + 32 * i] = __float2bfloat16(v[i]);
  }
  if (kind > 0) {
    __nv_bfloat16 *cache = job.cache[2 * layer + kind - 1] + place * S::kHeadDim;
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      cache[s.lane + 32 * i] = __float2bfloat16(v[i]);
    }
  }
}

/** What a warp has of its keys. Of head `row`, in the lanes of that row: the maximum (of scores
 * times log2 e) and this lane's part of the sum. acc: of kHeadDim / 32 dimensions of every head. */
template <typename S> struct decode_sums {
  float most, sum;
  float acc[S::kGroup][S::kHeadDim / 32];
};

/** A row of the split, keys or values, from the cache's copy or the token's own. */
template <typename S>
__device__ __forceinline__ uint32_t key_row(const decode_state &s, int value, int first, int key,
                                            int own)
{
  return first + key == own ? shared_address(s.newest + value * S::kHeadDim)
                            : shared_address(s.keys) + (value * S::kKeys + key) * S::kKeyBytes;
}

/** Scores of 8 keys for all heads: c[0] and c[1] of head `row` and keys 2 quad, 2 quad + 1. */
template <typename S>
__device__ __forceinline__ void score_keys(float (&c)[4], const uint4 (&q)[S::kHeadDim / 32],
                                           uint32_t row)
{
  float d[4] = {}; /* two chains are shorter */
#pragma unroll
  for (int i = 0; i < S::kHeadDim / 32; i++) {
    const uint4 k = load_shared_16(row + (i / 2 * 8 + i % 2) * 16);
    multiply_pairs(c, q[i].x, 0, q[i].y, 0, k.x, k.y);
    multiply_pairs(d, q[i].z, 0, q[i].w, 0, k.z, k.w);
  }
  c[0] += d[0];
  c[1] += d[1];
}

template <int kEach> __device__ __forceinline__ void load_values(uint32_t from, float (&v)[kEach])
{
  uint32_t pair[kEach / 2];
  if constexpr (kEach == 4) {
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
                 : "=r"(pair[0]), "=r"(pair[1])
                 : "r"(from)
                 : "memory");
  } else {
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(pair[0]) : "r"(from) : "memory");
  }
#pragma unroll
  for (int i = 0; i < kEach / 2; i++) {
    v[2 * i] = low_of(pair[i]);
    v[2 * i + 1] = high_of(pair[i]);
  }
}

/** Adds keys tile .. tile + 7 of the chunk's `count`, which begins at key `first` of the split. */
template <typename S>
__device__ __forceinline__ void add_keys(const decode_state &s, const decode_job &job,
                                         decode_sums<S> &sums, const uint4 (&q)[S::kHeadDim / 32],
                                         int first, int tile, int count)
{
  constexpr int kEach = S::kHeadDim / 32;
  const int own = job.position - s.first_key, last = count - 1;
  const int mine = tile + s.row < last ? tile + s.row : last, column = tile + 2 * s.quad;
  float c[4] = {};
  score_keys<S>(c, q, key_row<S>(s, 0, first, mine, own) + 2 * s.quad * 16);
  const float scale = job.scale * 0x1.715476p+0f;
  const float a = column < count ? c[0] * scale : kDecodeNothing;
  const float b = column + 1 < count ? c[1] * scale : kDecodeNothing;
  float most = fmaxf(fmaxf(a, b), sums.most);
  most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 1));
  most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 2));
  const float shrink = exp2_flushed(sums.most - most);
  const float pa = exp2_flushed(a - most), pb = exp2_flushed(b - most);
  sums.most = most;
  sums.sum = fmaf(sums.sum, shrink, pa + pb);
#pragma unroll
  for (int h = 0; h < S::kGroup; h++) {
    const float f = __shfl_sync(kAllLanes, shrink, 4 * h);
#pragma unroll
    for (int e = 0; e < kEach; e++) {
      sums.acc[h][e] *= f;
    }
  }
#pragma unroll
  for (int j = 0; j < 8; j++) {
    float v[kEach];
    load_values(
        key_row<S>(s, 1, first, tile + j < last ? tile + j : last, own) + s.lane * 2 * kEach, v);
#pragma unroll
    for (int h = 0; h < S::kGroup; h++) {
      const float p = __shfl_sync(kAllLanes, j % 2 ? pb : pa, 4 * h + j / 2);
#pragma unroll
      for (int e = 0; e < kEach; e++) {
        sums.acc[h][e] = fmaf(p, v[e], sums.acc[h][e]);
      }
    }
  }
}

/** The warps' sums, added up, to the words of the split. */
template <typename S>
__device__ __forceinline__ void leave_split(decode_state &s, const decode_job &job,
                                            decode_sums<S> &sums, uint32_t epoch)
{
  constexpr int kEach = S::kHeadDim / 32;
  float *out = reinterpret_cast<float *>(s.operand);
  sums.sum += __shfl_xor_sync(kAllLanes, sums.sum, 1);
  sums.sum += __shfl_xor_sync(kAllLanes, sums.sum, 2);
  if (s.quad == 0 && s.row < S::kGroup) {
    s.maxima[s.warp * S::kGroup + s.row] = make_float2(sums.most, sums.sum);
  }
#pragma unroll
  for (int h = 0; h < S::kGroup; h++) {
    float *to = out + (s.warp * S::kGroup + h) * S::kHeadDim + s.lane * kEach;
#pragma unroll
    for (int e = 0; e < kEach; e += 2) {
      *reinterpret_cast<float2 *>(to + e) = make_float2(sums.acc[h][e], sums.acc[h][e + 1]);
    }
  }
  decode_sync();
  for (int o = s.thread; o < S::kGroup * S::kHeadDim; o += kDecodeThreads) {
    const int h = o / S::kHeadDim, d = o % S::kHeadDim;
    const int head = s.block / S::kSplits * S::kGroup + h;
    const int at = head * S::kSplits + s.block % S::kSplits;
    float most = kDecodeNothing, sum = 0.0f, acc = 0.0f, e[kDecodeWarps];
#pragma unroll
    for (int w = 0; w < kDecodeWarps; w++) {
      e[w] = s.maxima[w * S::kGroup + h].x;
      most = fmaxf(most, e[w]);
    }
#pragma unroll
    for (int w = 0; w < kDecodeWarps; w++) {
      const float f = exp2_flushed(e[w] - most);
      sum = fmaf(f, s.maxima[w * S::kGroup + h].y, sum);
      acc = fmaf(f, out[(w * S::kGroup + h) * S::kHeadDim + d], acc);
    }
    put_float(job.words[TGI_WORDS_PART] + (size_t)at * S::kHeadDim + d, acc, epoch);
    if (d == 0) {
      put_float(job.words[TGI_WORDS_PART_SUMS] + 2 * at, most, epoch);
      put_float(job.words[TGI_WORDS_PART_SUMS] + 2 * at + 1, sum, epoch);
    }
  }
  decode_sync(); /* the operand is free */
}

template <typename S>
__device__ __forceinline__ void attend_split(decode_state &s, const decode_job &job, int layer,
                                             uint32_t epoch)
{
  constexpr int kEach = S::kHeadDim / 32;
  decode_sums<S> sums = {};
  sums.most = kDecodeNothing;
  take_heads<S>(s, job, layer, epoch);
  await_keys();
  decode_sync();
  uint4 q[kEach];
#pragma unroll
  for (int i = 0; i < kEach; i++) {
    q[i] = s.row < S::kGroup ? load_shared_16(shared_address(s.query + s.row * S::kHeadDim) +
                                              (i / 2 * 8 + 2 * s.quad + i % 2) * 16)
                             : make_uint4(0, 0, 0, 0);
  }
  for (int first = 0; first < s.num_keys; first += S::kKeys) {
    if (first > 0) {
      decode_sync(); /* the copy before has been read */
      fetch_keys<S>(s, job, layer, first);
      await_keys();
      decode_sync();
    }
    const int count = s.num_keys - first < S::kKeys ? s.num_keys - first : S::kKeys;
    for (int tile = 8 * s.warp; tile < count; tile += 8 * kDecodeWarps) {
      add_keys<S>(s, job, sums, q, first, tile, count);
    }
  }
  leave_split<S>(s, job, sums, epoch);
}

/** Splits to one: a block has kQuery / kBlocks columns, a lane a split. */
template <typename S>
__device__ __forceinline__ void combine_splits(decode_state &s, const decode_job &job,
                                               uint32_t epoch)
{
  constexpr int kColumns = S::kQuery / S::kBlocks, kAtOnce = 32 / S::kSplits;
  for (int j = s.warp * kAtOnce; j < kColumns; j += kDecodeWarps * kAtOnce) {
    const int column = s.block * kColumns + j + s.lane / S::kSplits, head = column / S::kHeadDim;
    const int at = head * S::kSplits + s.lane % S::kSplits;
    decode_word part;
    ulonglong2 both;
    for (bool there = false; !there; keep_watch(s.watch)) {
      part = get_word(job.words[TGI_WORDS_PART] + (size_t)at * S::kHeadDim + column % S::kHeadDim);
      both = get_words(job.words[TGI_WORDS_PART_SUMS] + 2 * at);
      there = is_of(part, epoch) && is_of(both.x, epoch) && is_of(both.y, epoch);
    }
    __syncwarp();
    float most = float_of(both.x);
#pragma unroll
    for (int step = S::kSplits / 2; step > 0; step /= 2) {
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, step));
    }
    const float f = exp2_flushed(float_of(both.x) - most);
    float acc = float_of(part) * f, sum = float_of(both.y) * f;
#pragma unroll
    for (int step = S::kSplits / 2; step > 0; step /= 2) {
      acc += __shfl_xor_sync(kAllLanes, acc, step);
      sum += __shfl_xor_sync(kAllLanes, sum, step);
    }
    acc /= sum;
    const float next = __shfl_down_sync(kAllLanes, acc, S::kSplits);
    if (s.lane % (2 * S::kSplits) == 0) {
      put_copies(job.words[TGI_WORDS_ATTENTION] + column / 2, S::kQuery / 2, pack_pair(acc, next),
                 epoch);
    }
  }
}

} // namespace TGI_CUDA_ENTRY

#endif

/**
 * y = W x for a block's tiles of 8 rows: weights from the ring, x in shared memory.
 *
 * A lane's 16 bytes of W, 8 values of k of row `row`, are the A operand of one m16n8k16 whose lower
 * and upper rows are the same 8 rows: pairs 0 and 2 of the 8 values below, pairs 1 and 3 above. B
 * has x of the former in column 0 and of the latter in column 1, and what counts is c[0] + c[3] of
 * the lanes with quad 0. So W is read once from shared memory and needs no conversion.
 *
 * Warps have a chunk of k of each stage; their sums are added in order through shared memory.
 */
#ifndef TGI_CUDA_DECODE_PRODUCT_CUH
#define TGI_CUDA_DECODE_PRODUCT_CUH

#include "cuda/decode/decode_state.cuh"

inline namespace TGI_CUDA_ENTRY
{

__device__ __forceinline__ void multiply_pairs(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                               uint32_t a3, uint32_t b0, uint32_t b1)
{
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ uint4 load_shared_16(uint32_t from)
{
  uint4 v;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(from)
               : "memory");
  return v;
}

/** Where mma i of a chunk has its weights, from the lane's first: copies of 64 k are swizzled. */
template <typename S> __device__ __forceinline__ uint32_t weight_at(uint32_t lane_at, int i)
{
  return S::kAtom == 64 ? (lane_at ^ (uint32_t)(i % 2 * 16)) + i / 2 * 1024 : lane_at + i * 512;
}

/** The lane's first weights in a stage. */
template <typename S> __device__ __forceinline__ uint32_t lane_weights(const decode_state &s)
{
  return S::kAtom == 64 ? (uint32_t)(s.row * 128 + (((2 * s.quad) ^ s.row) << 4))
                        : (uint32_t)(s.lane * 16);
}

/** x of mma i of the warp's chunk of stage `part` of k; columns beyond 1 are 0. */
template <typename S>
__device__ __forceinline__ uint2 operand_of(const uint32_t *x, int part, int i, int row)
{
  const uint32_t *at =
      x + part * (S::kStageK / 2) + (S::kAtom == 64 ? i / 2 * 32 + i % 2 * 4 : i * 16);
  return row < 2 ? make_uint2(at[0], at[2]) : make_uint2(0, 0);
}

/** The next kMany stages of the ring: the j-th is part part0 + j * part_step of k, and adds to
 * a[j]. */
template <typename S, int kMany, bool kHold, int kHeld>
__device__ __forceinline__ void multiply_stages(decode_state &s, float (&a)[2][2][4], int part0,
                                                int part_step, const uint2 (&held)[kHeld],
                                                const uint32_t *x, int stages)
{
  constexpr int kMmas = S::kChunk / 32;
  const uint32_t lane_at = s.ring + lane_weights<S>(s);
  int slot[kMany];
  uint4 w[kMany][kMmas];
#pragma unroll
  for (int j = 0; j < kMany; j++) {
    slot[j] = s.slot;
    wait_for(s.full + s.slot, s.parity);
    if (++s.slot == stages) {
      s.slot = 0;
      s.parity ^= 1;
    }
  }
#pragma unroll
  for (int j = 0; j < kMany; j++) {
#pragma unroll
    for (int i = 0; i < kMmas; i++) {
      w[j][i] = load_shared_16(weight_at<S>(lane_at, i) + slot[j] * S::kStageBytes);
    }
  }
#pragma unroll
  for (int i = 0; i < kMmas; i++) {
#pragma unroll
    for (int j = 0; j < kMany; j++) {
      const int part = part0 + j * part_step;
      const uint2 b = kHold ? held[kHold ? part * kMmas + i : 0] : operand_of<S>(x, part, i, s.row);
      multiply_pairs(a[j][i % 2], w[j][i].x, w[j][i].y, w[j][i].z, w[j][i].w, b.x, b.y);
    }
  }
  __syncwarp();
  if (s.lane == 0) {
#pragma unroll
    for (int j = 0; j < kMany; j++) {
      arrive(s.empty + slot[j]);
    }
  }
}

__device__ __forceinline__ void keep_tile(const decode_state &s, float *sums, int tile,
                                          const float (&a)[2][4])
{
  if (s.quad == 0) {
    sums[tile * 8 + s.row] = a[0][0] + a[0][3] + (a[1][0] + a[1][3]);
  }
}

/** The sum of row r of a group over the warps. */
__device__ __forceinline__ float total_of(const float *sums, int r)
{
  float v = 0.0f;
#pragma unroll
  for (int w = 0; w < kDecodeWarps; w++) {
    v += sums[w * 8 * kDecodeGroup + r];
  }
  return v;
}

/** Rows of `tiles` tiles, in groups: finish(first row of the group, rows, sums) by all threads. */
template <typename S, int K, typename Finish>
__device__ __forceinline__ void multiply_tiles(decode_state &s, int tiles, int stages,
                                               const Finish &finish)
{
  constexpr int kParts = K / S::kStageK;
  constexpr int kMmas = S::kChunk / 32;
  constexpr bool kHold = kParts * kMmas <= 16; /* x stays in registers */
  const uint32_t *x = reinterpret_cast<const uint32_t *>(s.operand + s.warp * S::kChunk) +
                      s.quad * (S::kAtom == 64 ? 8 : 4) + s.row;
  uint2 held[kHold ? kParts * kMmas : 1];
  if constexpr (kHold) {
#pragma unroll
    for (int i = 0; i < kParts * kMmas; i++) {
      held[i] = operand_of<S>(x, i / kMmas, i % kMmas, s.row);
    }
  } else {
    held[0] = make_uint2(0, 0);
  }
  for (int t0 = 0, turn = 0; t0 < tiles; t0 += kDecodeGroup, turn ^= 1) {
    const int count = tiles - t0 < kDecodeGroup ? tiles - t0 : kDecodeGroup;
    float *all = s.sums + turn * kDecodeWarps * 8 * kDecodeGroup;
    float *mine = all + s.warp * 8 * kDecodeGroup;
    if constexpr (kParts == 1) {
      int i = 0;
      for (; i + 2 <= count; i += 2) {
        float a[2][2][4] = {};
        multiply_stages<S, 2, kHold>(s, a, 0, 0, held, x, stages);
        keep_tile(s, mine, i, a[0]);
        keep_tile(s, mine, i + 1, a[1]);
      }
      if (i < count) {
        float a[2][2][4] = {};
        multiply_stages<S, 1, kHold>(s, a, 0, 0, held, x, stages);
        keep_tile(s, mine, i, a[0]);
      }
    } else {
      for (int i = 0; i < count; i++) {
        float a[2][2][4] = {};
#pragma unroll
        for (int j = 0; j + 2 <= kParts; j += 2) {
          multiply_stages<S, 2, kHold>(s, a, j, 1, held, x, stages);
        }
        if constexpr (kParts % 2 == 1) {
          multiply_stages<S, 1, kHold>(s, a, kParts - 1, 1, held, x, stages);
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
#pragma unroll
          for (int e = 0; e < 4; e++) {
            a[0][h][e] += a[1][h][e];
          }
        }
        keep_tile(s, mine, i, a[0]);
      }
    }
    decode_sync();
    finish(t0 * 8, count * 8, all);
  }
}

} // namespace TGI_CUDA_ENTRY

#endif

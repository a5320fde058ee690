/**
 * Rotations on CUDA: which elements of a head a thread has, and the coefficients of their pairs.
 * For rope and qk_norm_rope.
 *
 * A head is cut into slots of two vectors of N elements whose pairs are complete: with HALVES a
 * vector of first elements and the one of their partners, otherwise, and behind rotary_dim, two
 * neighbours. N is 4, and 8 (16 bytes again) for 16-bit elements that are aligned; a slot of 8 is
 * two neighbouring slots of 4, which lets sums over a head have one order. Heads that cannot be cut
 * this way (a half or head_dim that is no multiple of 4) go pair by pair. Vectors and angles stay
 * packed in registers and become f32 two elements at a time.
 */
#ifndef TGI_OPS_ROTATION_CUH
#define TGI_OPS_ROTATION_CUH

#include "ops/shared/rotation/element_bits.cuh"

inline namespace TGI_CUDA_ENTRY
{

/* Elements of a vector: in general, and where 16 bytes can be read. */
constexpr int kSlotLanes = 4;
template <typename T> constexpr int kSlotWide = kLanes<T>;
constexpr int kSlotBytes = 16;
constexpr int kMostSlots = 32; /* of a head, with vectors of 4: the lanes of a warp */

/** cos and sin as they are read: from the row of position_offset on. */
struct rotation {
  const void *cos, *sin;
  int64_t cos_sequence, cos_token, sin_sequence, sin_token; /* elements from one to the next */
  int64_t head_dim, dim, half;
  bool interleaved, wide;
  bool f32; /* dtype of the tables; else that of q */
};

/** How a pair is rotated: with every step rounded, with one rounding, or back with one. */
enum rotate_mode { kRotateHf, kRotateOnce, kRotateBack };

inline rotation rotation_of(const tg_tensor *cos, const tg_tensor *sin, int64_t head_dim,
                            int64_t rotary_dim, int64_t offset, tg_rope_pairing pairing)
{
  rotation r = {};
  const int64_t bytes = (int64_t)tg_dtype_bytes(cos->dtype);
  r.head_dim = head_dim;
  r.dim = rotary_dim ? rotary_dim : head_dim;
  r.half = r.dim / 2;
  r.interleaved = pairing == TG_ROPE_INTERLEAVED;
  r.wide = cos->shape[2] == r.dim;
  r.f32 = cos->dtype == TG_F32;
  r.cos_sequence = cos->shape[0] == 1 ? 0 : tgi_stride(cos, 0);
  r.sin_sequence = sin->shape[0] == 1 ? 0 : tgi_stride(sin, 0);
  r.cos_token = tgi_stride(cos, 1);
  r.sin_token = tgi_stride(sin, 1);
  r.cos = static_cast<const char *>(cos->data) + offset * r.cos_token * bytes;
  r.sin = static_cast<const char *>(sin->data) + offset * r.sin_token * bytes;
  return r;
}

/** True if the vectors of a view can be read in 16 bytes; absent views count. */
inline bool slots_aligned(const tg_tensor *t)
{
  return !tgi_present(t) || rows_aligned(t, kSlotBytes);
}

/** Division of n = 0 .. most by one number, as a multiplication where n has 31 bits. */
struct divider {
  int64_t by;
  uint32_t factor;
  int shift; /* 0: divide */
};

inline divider divider_of(int64_t by, int64_t most)
{
  divider d = {by > 0 ? by : 1, 0, 0};
  if (most <= INT32_MAX && d.by <= INT32_MAX) {
    int bits = 0;
    while ((int64_t)1 << bits < d.by) {
      bits++;
    }
    d.shift = 31 + bits; /* factor >= 2^shift / by, by less than 1: exact below 2^31 */
    d.factor = (uint32_t)((((uint64_t)1 << d.shift) + (uint64_t)d.by - 1) / (uint64_t)d.by);
  }
  return d;
}

__device__ __forceinline__ int64_t divide(int64_t n, const divider &d)
{
  return d.shift ? (int64_t)(((uint64_t)(uint32_t)n * d.factor) >> d.shift) : n / d.by;
}

/** Both values rounded to T where every step is. */
template <typename T, bool kSteps> __device__ __forceinline__ void step_two(float (&v)[2])
{
  if constexpr (kSteps && sizeof(T) == 2) {
    const float2 two = two_to_f32<T>(two_from_f32<T>(v[0], v[1]));
    v[0] = two.x;
    v[1] = two.y;
  }
}

/** The two elements of a pair. */
template <typename T, int kMode>
__device__ __forceinline__ void rotate_pair(float (&y)[2], const float (&x)[2],
                                            const float (&cos)[2], const float (&sin)[2])
{
  constexpr bool kSteps = kMode == kRotateHf, kBack = kMode == kRotateBack;
  float own[2] = {x[0] * cos[0], x[1] * cos[1]};
  float partner[2] = {x[1] * sin[kBack ? 1 : 0], x[0] * sin[kBack ? 0 : 1]};
  step_two<T, kSteps>(own);
  step_two<T, kSteps>(partner);
  y[0] = kBack ? own[0] + partner[0] : own[0] - partner[0];
  y[1] = kBack ? own[1] - partner[1] : own[1] + partner[1];
}

/* ---- two elements of 16 bits as one word: a rounding for each operation ---- */

template <typename T> __device__ __forceinline__ uint32_t multiply_words(uint32_t a, uint32_t b)
{
  return word_of(__hmul2_rn(in_word<T>(a), in_word<T>(b)));
}

template <typename T> __device__ __forceinline__ uint32_t add_words(uint32_t a, uint32_t b)
{
  return word_of(__hadd2_rn(in_word<T>(a), in_word<T>(b)));
}

/* ---- slots ---- */

/** Slots of a head with vectors of n elements; 0: it cannot be cut into them. */
inline int64_t slots_of(const rotation &r, int64_t n)
{
  if (r.head_dim % n || r.dim % n || (!r.interleaved && r.half % n)) {
    return 0;
  }
  return r.interleaved ? divide_up(r.head_dim / n, 2)
                       : r.half / n + divide_up((r.head_dim - r.dim) / n, 2);
}

/** The lanes of a group; a norm wants 2^n of them. */
inline int lanes_of(int slots, bool normed)
{
  int lanes = normed ? 1 : slots;
  while (lanes < slots) {
    lanes *= 2;
  }
  return lanes;
}

/** True if the heads have slots: of vectors of 4, as many as a warp has lanes. */
inline bool cut_in_slots(const rotation &r)
{
  const int64_t slots = slots_of(r, kSlotLanes);
  return slots > 0 && slots <= kMostSlots;
}

/** True if each slot of vectors of 8 is two of 4. */
inline bool slots_wide(const rotation &r)
{
  return r.head_dim % 16 == 0 && r.dim % 16 == 0;
}

/** The first elements of the two vectors of a slot. */
struct slot_place {
  int at[2];
  bool has[2], rotated[2];
  bool halves; /* the vectors are partners */
};

template <bool kInterleaved, int N>
__device__ __forceinline__ slot_place place_of(const rotation &r, int slot)
{
  const int half = (int)r.half, pairs = half / N;
  slot_place p;
  p.halves = !kInterleaved && slot < pairs;
  if (p.halves) {
    p.at[0] = slot * N;
    p.at[1] = half + slot * N;
  } else {
    p.at[0] = kInterleaved ? 2 * slot * N : 2 * half + 2 * (slot - pairs) * N;
    p.at[1] = p.at[0] + N;
  }
#pragma unroll
  for (int k = 0; k < 2; k++) {
    p.has[k] = N > kSlotLanes || p.at[k] < r.head_dim; /* slots of 8 are whole: slots_wide */
    p.rotated[k] = kInterleaved ? p.at[k] < r.dim : p.halves;
  }
  return p;
}

/** The sum over a slot from the sums of each 4 elements: one order for slots of 4 and of 8. */
template <int N>
__device__ __forceinline__ float slot_sum(const float (&quad)[2][N / kSlotLanes],
                                          const slot_place &p)
{
  if constexpr (N == kSlotLanes) {
    return quad[0][0] + quad[1][0];
  } else {
    const float a = p.halves ? quad[1][0] : quad[0][1], b = p.halves ? quad[0][1] : quad[1][0];
    return (quad[0][0] + a) + (b + quad[1][1]);
  }
}

/** N elements from `at` of a row that is f32 or of dtype T. */
template <bool kAligned, typename T, int N>
__device__ __forceinline__ void load_either(float (&v)[N], const void *base, int64_t at, bool f32)
{
#pragma unroll
  for (int i = 0; i < N; i++) {
    v[i] = sizeof(T) == 4 || f32 ? static_cast<const float *>(base)[at + i]
                                 : to_f32(static_cast<const T *>(base)[at + i]);
  }
}

/** What the elements of a slot read of the tables, of dtype TT; any row's start where nothing is
 * rotated. */
template <typename TT, int N> struct slot_angles {
  element_bits<TT, N> cos[2], sin[2];
};

template <bool kInterleaved, bool kAligned, typename TT, int N>
__device__ __forceinline__ void load_angles(element_bits<TT, N> (&v)[2], const void *table,
                                            int64_t row, bool wide, const slot_place &p)
{
  const TT *from = static_cast<const TT *>(table) + row;
#pragma unroll
  for (int k = 0; k < 2; k++) {
    const int at = p.rotated[k] ? kInterleaved || wide ? p.at[k] : p.at[0] : 0;
    if (kInterleaved && !wide) {
      element_bits<TT, N / 2> narrow;
      load_bits<kAligned>(narrow, from + at / 2);
#pragma unroll
      for (int i = 0; i < N; i += 2) { /* twice what is at i / 2 */
        if constexpr (sizeof(TT) == 4) {
          v[k].w[i] = v[k].w[i + 1] = narrow.w[i / 2];
        } else {
          v[k].w[i / 2] = __byte_perm(narrow.w[i / 4], 0, i / 2 % 2 ? 0x3232 : 0x1010);
        }
      }
    } else {
      load_bits<kAligned>(v[k], from + at);
    }
  }
}

template <bool kInterleaved, bool kAligned, typename TT, int N>
__device__ __forceinline__ void load_angles(slot_angles<TT, N> &g, const rotation &r, int64_t b,
                                            int64_t t, const slot_place &p)
{
  load_angles<kInterleaved, kAligned>(g.cos, r.cos, b * r.cos_sequence + t * r.cos_token, r.wide,
                                      p);
  load_angles<kInterleaved, kAligned>(g.sin, r.sin, b * r.sin_sequence + t * r.sin_token, r.wide,
                                      p);
}

/** The angles of elements 2 i and 2 i + 1 of both vectors. */
struct two_angles {
  float cos[2][2], sin[2][2];
};

template <typename TT, int N>
__device__ __forceinline__ two_angles angles_at(const slot_angles<TT, N> &g, int i)
{
  two_angles a;
#pragma unroll
  for (int k = 0; k < 2; k++) {
    get_two(a.cos[k], g.cos[k], i);
    get_two(a.sin[k], g.sin[k], i);
  }
  return a;
}

/** Elements 2 i and 2 i + 1 of both vectors; what is not rotated stays what it is. */
template <typename T, bool kInterleaved, int kMode>
__device__ __forceinline__ void rotate_two(float (&y)[2][2], const float (&x)[2][2],
                                           const two_angles &a, const slot_place &p)
{
#pragma unroll
  for (int k = 0; k < 2; k++) {
    float out[2];
    if (kInterleaved) {
      rotate_pair<T, kMode>(out, x[k], a.cos[k], a.sin[k]);
      y[k][0] = p.rotated[k] ? out[0] : x[k][0];
      y[k][1] = p.rotated[k] ? out[1] : x[k][1];
    } else {
      const float in[2] = {x[0][k], x[1][k]}, cos[2] = {a.cos[0][k], a.cos[1][k]};
      const float sin[2] = {a.sin[0][k], a.sin[1][k]};
      rotate_pair<T, kMode>(out, in, cos, sin);
      y[0][k] = p.rotated[0] ? out[0] : x[0][k];
      y[1][k] = p.rotated[0] ? out[1] : x[1][k];
    }
  }
}

/** Words i of both vectors with every step rounded: f32 products of such elements are exact and
 * their sums have twice their bits and more, so an operation in 16 bits rounds as one in f32 that
 * is rounded again. */
template <typename T, bool kInterleaved, int N>
__device__ __forceinline__ void rotate_words(element_bits<T, N> (&v)[2], int i,
                                             const slot_angles<T, N> &g, const slot_place &p)
{
  constexpr uint32_t kMinusFirst = 0x8000, kMinusBoth = 0x80008000;
  const uint32_t x[2] = {v[0].w[i], v[1].w[i]};
#pragma unroll
  for (int k = 0; k < 2; k++) {
    const uint32_t partner = kInterleaved ? __byte_perm(x[k], 0, 0x1032) : x[1 - k];
    const uint32_t minus = kInterleaved ? kMinusFirst : k == 0 ? kMinusBoth : 0;
    const uint32_t y = add_words<T>(multiply_words<T>(x[k], g.cos[k].w[i]),
                                    multiply_words<T>(partner, g.sin[k].w[i]) ^ minus);
    v[k].w[i] = p.rotated[kInterleaved ? k : 0] ? y : x[k];
  }
}

/** v rounded to T where every step is. */
template <typename T, bool kSteps> __device__ __forceinline__ float step(float v)
{
  return kSteps ? rounded<T>(v) : v;
}

/* ---- pair by pair ---- */

/** The two elements of a pair and their angles. */
struct one_pair {
  int64_t at[2];
  float cos[2], sin[2];
};

template <typename T>
__device__ __forceinline__ one_pair pair_at(const rotation &r, int64_t b, int64_t t, int64_t pair)
{
  const int64_t cos = b * r.cos_sequence + t * r.cos_token;
  const int64_t sin = b * r.sin_sequence + t * r.sin_token;
  one_pair p;
  p.at[0] = r.interleaved ? 2 * pair : pair;
  p.at[1] = r.interleaved ? 2 * pair + 1 : pair + r.half;
#pragma unroll
  for (int k = 0; k < 2; k++) {
    float c[1], s[1];
    const int64_t at = r.wide ? p.at[k] : pair;
    load_either<false, T>(c, r.cos, cos + at, r.f32);
    load_either<false, T>(s, r.sin, sin + at, r.f32);
    p.cos[k] = c[0];
    p.sin[k] = s[0];
  }
  return p;
}

} // namespace TGI_CUDA_ENTRY

#endif

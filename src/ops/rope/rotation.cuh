/**
 * Rotations on CUDA: which elements of a head a thread has, and the coefficients of their pairs.
 * For rope and qk_norm_rope.
 *
 * A head is cut into slots of two vectors of 4 elements whose pairs are complete: with HALVES a
 * vector of first elements and the one of their partners, otherwise, and behind rotary_dim, two
 * neighbours. Heads that cannot be cut this way (a half or head_dim that is no multiple of 4) go
 * pair by pair. 4, not the 16 bytes of 16-bit elements: the angles of a slot stay in registers.
 */
#ifndef TGI_OPS_ROTATION_CUH
#define TGI_OPS_ROTATION_CUH

#include "cuda/vec.cuh"

inline namespace TGI_CUDA_ENTRY
{

constexpr int kSlotLanes = 4; /* elements of a vector */

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

/** True if the vectors of a view can be read at once; absent views count. */
inline bool slots_aligned(const tg_tensor *t)
{
  return !tgi_present(t) || rows_aligned(t, kSlotLanes * (int)tg_dtype_bytes(t->dtype));
}

/* ---- slots ---- */

/** Slots of a head; 0: it cannot be cut into them. */
inline int64_t slots_of(const rotation &r)
{
  const int64_t n = kSlotLanes;
  if (r.head_dim % n || r.dim % n || (!r.interleaved && r.half % n)) {
    return 0;
  }
  return r.interleaved ? divide_up(r.head_dim / n, 2)
                       : r.half / n + divide_up((r.head_dim - r.dim) / n, 2);
}

/** The first elements of the two vectors of a slot. */
struct slot_place {
  int at[2];
  bool has[2], rotated[2];
};

template <bool kInterleaved>
__device__ __forceinline__ slot_place place_of(const rotation &r, int slot)
{
  constexpr int kN = kSlotLanes;
  const int half = (int)r.half, pairs = half / kN;
  slot_place p;
  if (!kInterleaved && slot < pairs) {
    p.at[0] = slot * kN;
    p.at[1] = half + slot * kN;
  } else {
    p.at[0] = kInterleaved ? 2 * slot * kN : 2 * half + 2 * (slot - pairs) * kN;
    p.at[1] = p.at[0] + kN;
  }
#pragma unroll
  for (int k = 0; k < 2; k++) {
    p.has[k] = p.at[k] < r.head_dim;
    p.rotated[k] = p.at[k] < r.dim;
  }
  return p;
}

/** A vector as it lies in memory. */
template <bool kAligned, typename T>
__device__ __forceinline__ pack<T, kSlotLanes> load_pack(const T *from)
{
  if constexpr (kAligned) {
    return *reinterpret_cast<const pack<T, kSlotLanes> *>(from);
  } else {
    pack<T, kSlotLanes> p;
#pragma unroll
    for (int i = 0; i < kSlotLanes; i++) {
      p.e[i] = from[i];
    }
    return p;
  }
}

template <bool kAligned, typename T>
__device__ __forceinline__ void store_vector(T *to, const float (&v)[kSlotLanes])
{
  if constexpr (kAligned) {
    store(to, v);
  } else {
#pragma unroll
    for (int i = 0; i < kSlotLanes; i++) {
      to[i] = from_f32<T>(v[i]);
    }
  }
}

/** N elements of a row. */
template <bool kAligned, typename T, int N>
__device__ __forceinline__ void load_elements(float (&v)[N], const T *from)
{
  if constexpr (kAligned) {
    load(v, from);
  } else {
#pragma unroll
    for (int i = 0; i < N; i++) {
      v[i] = to_f32(from[i]);
    }
  }
}

/** N elements from `at` of a row that is f32 or of dtype T. */
template <bool kAligned, typename T, int N>
__device__ __forceinline__ void load_either(float (&v)[N], const void *base, int64_t at, bool f32)
{
  if (sizeof(T) == 4 || f32) {
    load_elements<kAligned>(v, static_cast<const float *>(base) + at);
  } else {
    load_elements<kAligned>(v, static_cast<const T *>(base) + at);
  }
}

/** What the elements of a slot read of the tables, of dtype TT; any row's start where nothing is
 * rotated. */
struct slot_angles {
  float cos[2][kSlotLanes], sin[2][kSlotLanes];
};

template <typename TT, bool kInterleaved, bool kAligned>
__device__ __forceinline__ void load_angles(float (&v)[2][kSlotLanes], const void *table,
                                            int64_t row, bool wide, const slot_place &p)
{
  const TT *from = static_cast<const TT *>(table) + row;
#pragma unroll
  for (int k = 0; k < 2; k++) {
    const int at = p.rotated[k] ? kInterleaved || wide ? p.at[k] : p.at[0] : 0;
    if (kInterleaved && !wide) {
      float narrow[kSlotLanes / 2];
      load_elements<kAligned>(narrow, from + at / 2);
#pragma unroll
      for (int i = 0; i < kSlotLanes; i++) {
        v[k][i] = narrow[i / 2];
      }
    } else {
      load_elements<kAligned>(v[k], from + at);
    }
  }
}

template <typename TT, bool kInterleaved, bool kAligned>
__device__ __forceinline__ void load_angles(slot_angles &g, const rotation &r, int64_t b, int64_t t,
                                            const slot_place &p)
{
  load_angles<TT, kInterleaved, kAligned>(g.cos, r.cos, b * r.cos_sequence + t * r.cos_token,
                                          r.wide, p);
  load_angles<TT, kInterleaved, kAligned>(g.sin, r.sin, b * r.sin_sequence + t * r.sin_token,
                                          r.wide, p);
}

/** v rounded to T where every step is. */
template <typename T, bool kSteps> __device__ __forceinline__ float step(float v)
{
  return kSteps ? rounded<T>(v) : v;
}

/** What is not rotated stays what it is. */
template <typename T, bool kInterleaved, int kMode>
__device__ __forceinline__ void rotate_slot(float (&y)[2][kSlotLanes],
                                            const float (&x)[2][kSlotLanes], const slot_angles &g,
                                            const slot_place &p)
{
  constexpr bool kSteps = kMode == kRotateHf, kBack = kMode == kRotateBack;
#pragma unroll
  for (int k = 0; k < 2; k++) {
#pragma unroll
    for (int i = 0; i < kSlotLanes; i++) {
      const int other = kInterleaved ? k : 1 - k, place = kInterleaved ? i ^ 1 : i;
      const bool first = kInterleaved ? i % 2 == 0 : k == 0;
      const float sine = kBack ? g.sin[other][place] : g.sin[k][i];
      const float own = step<T, kSteps>(x[k][i] * g.cos[k][i]);
      const float partner = step<T, kSteps>(x[other][place] * sine);
      const float v = first == kBack ? own + partner : own - partner;
      y[k][i] = p.rotated[k] ? v : x[k][i];
    }
  }
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

template <typename T, int kMode>
__device__ __forceinline__ void rotate_pair(float (&y)[2], const float (&x)[2], const one_pair &p)
{
  constexpr bool kSteps = kMode == kRotateHf, kBack = kMode == kRotateBack;
#pragma unroll
  for (int k = 0; k < 2; k++) {
    const float own = step<T, kSteps>(x[k] * p.cos[k]);
    const float partner = step<T, kSteps>(x[1 - k] * p.sin[kBack ? 1 - k : k]);
    y[k] = (k == 0) == kBack ? own + partner : own - partner;
  }
}

} // namespace TGI_CUDA_ENTRY

#endif

/**
 * The loops of the gated activations, forward and backward: y of gate and up, and the gradients of
 * both of these and dy, element by element. gate and up lie apart, as halves of a row, or
 * interleaved. Outputs may be inputs: a thread reads before it writes.
 *
 * Forms of the loop:
 *   kByPack     gate and up are rows of their own; a thread takes 16 bytes of each tensor. Forward,
 *               all of it one row of whole packs: a kernel without places (gated_fwd_line_kernel)
 *   kByPair     interleaved; a thread takes 16 bytes of the packed tensor, 8 of dy or y, so that
 *               neighbouring threads meet in both
 *   kByElement  any alignment
 * Chunks (a thread's elements) are counted through all rows, so that no width leaves a block idle.
 */
#ifndef TGI_CUDA_GATED_MAP_CUH
#define TGI_CUDA_GATED_MAP_CUH

#include "cuda/x2.cuh"

extern "C" {
#include "core/gate_up_view.h"
}

inline namespace TGI_CUDA_ENTRY
{

constexpr int kGatedThreads = 128;
constexpr int kGatedElements = 8; /* of a thread, one after the other, by element */

enum gated_form { kByPack, kByPair, kByElement };

/** One dtype, T. Interleaved: gate is the packed tensor, up its second element; dgate, dup too. */
template <typename T> struct gated_views {
  const T *gate, *up, *dy;
  T *y, *dgate, *dup;                                                /* NULL: not wanted */
  int64_t gate_step, up_step, dy_step, y_step, dgate_step, dup_step; /* from row to row */
  int64_t spread;             /* elements between neighbours of gate: 2 if interleaved */
  int64_t rows, cols;         /* one row where none of the tensors has gaps */
  int64_t row_chunks, chunks; /* of a row, of all */
};

/** Elements of gate in a chunk. */
template <gated_form kForm, typename T>
constexpr int kGatedChunk = kForm == kByPack   ? kLanes<T>
                            : kForm == kByPair ? kLanes<T> / 2
                                               : 1;

struct gated_place {
  int64_t row, col;
};

template <gated_form kForm, typename T>
__device__ __forceinline__ gated_place place_of(const gated_views<T> &v, int64_t chunk)
{
  constexpr int kN = kGatedChunk<kForm, T>;
  if (v.rows == 1) {
    return {0, chunk * kN};
  }
  if (v.chunks <= INT32_MAX) { /* a short division */
    const uint32_t row = (uint32_t)chunk / (uint32_t)v.row_chunks;
    return {row, (int64_t)((uint32_t)chunk - row * (uint32_t)v.row_chunks) * kN};
  }
  const int64_t row = chunk / v.row_chunks;
  return {row, (chunk - row * v.row_chunks) * kN};
}

/* ---- forward: float operator()(float gate, float up) const, on the device; where kX2 is true the
 * same of two elements, with the same bits: X2 operator()(X2 gate, X2 up) const ---- */

/** What a call of the function takes: elements as f32, or words of two. */
template <typename T, bool kX2> struct gated_lanes {
  using type = float;
  static constexpr int kElements = 1;
};

template <typename T> struct gated_lanes<T, true> {
  using type = x2<T>;
  static constexpr int kElements = 2;
};

/** gate and up of neighbours in an interleaved tensor. */
__device__ __forceinline__ void part(float first, float second, float *gate, float *up)
{
  *gate = first;
  *up = second;
}

template <typename X2> __device__ __forceinline__ void part(X2 first, X2 second, X2 *gate, X2 *up)
{
  *gate = X2(first.x, second.x);
  *up = X2(first.y, second.y);
}

template <typename T, typename Function>
__device__ __forceinline__ void gated_fwd_element(const gated_views<T> &v, int64_t row, int64_t j,
                                                  const Function &function)
{
  const float gate = to_f32(v.gate[row * v.gate_step + j * v.spread]);
  const float up = to_f32(v.up[row * v.up_step + j * v.spread]);
  v.y[row * v.y_step + j] = from_f32<T>(function(gate, up));
}

/** 16 bytes of each. */
template <typename T, typename Function>
__device__ __forceinline__ void gated_fwd_pack(const T *gate_pack, const T *up_pack, T *y_pack,
                                               const Function &function)
{
  using lanes = gated_lanes<T, Function::kX2>;
  constexpr int kCalls = kLanes<T> / lanes::kElements;
  typename lanes::type gate[kCalls], up[kCalls], y[kCalls];
  load(gate, gate_pack);
  load(up, up_pack);
#pragma unroll
  for (int i = 0; i < kCalls; i++) {
    y[i] = function(gate[i], up[i]);
  }
  store(y_pack, y);
}

template <gated_form kForm, typename T, typename Function>
__device__ __forceinline__ void gated_fwd_chunk(const gated_views<T> &v, gated_place at,
                                                const Function &function)
{
  constexpr int kN = kGatedChunk<kForm, T>;
  if (kForm == kByElement || at.col + kN > v.cols) { /* the latter: the end of a row */
#pragma unroll 1
    for (int i = 0; i < kN && at.col + i < v.cols; i++) {
      gated_fwd_element(v, at.row, at.col + i, function);
    }
    return;
  }
  T *const y_chunk = v.y + at.row * v.y_step + at.col;
  if constexpr (kForm == kByPack) {
    gated_fwd_pack(v.gate + at.row * v.gate_step + at.col, v.up + at.row * v.up_step + at.col,
                   y_chunk, function);
  } else {
    using lanes = gated_lanes<T, Function::kX2>;
    constexpr int kCalls = kN / lanes::kElements > 0 ? kN / lanes::kElements : 1;
    typename lanes::type pairs[2 * kCalls], gate, up, y[kCalls];
    load(pairs, v.gate + at.row * v.gate_step + 2 * at.col);
#pragma unroll
    for (int i = 0; i < kCalls; i++) {
      part(pairs[2 * i], pairs[2 * i + 1], &gate, &up);
      y[i] = function(gate, up);
    }
    store(y_chunk, y);
  }
}

/** One row of `packs` packs, a thread each. Its arguments are few, for a launch has them in memory
 * that no multiprocessor has in its cache: another line of it takes a tenth of a microsecond. */
template <typename T, typename Function>
__global__ void __launch_bounds__(kGatedThreads)
    gated_fwd_line_kernel(const T *gate, const T *up, T *y, const int64_t packs,
                          const Function function)
{
  const int64_t pack = (int64_t)blockIdx.x * kGatedThreads + threadIdx.x;
  if (pack < packs) {
    constexpr int kN = kLanes<T>;
    gated_fwd_pack(gate + pack * kN, up + pack * kN, y + pack * kN, function);
  }
}

/** A loop over the grid only where there are more chunks than it has threads. */
template <gated_form kForm, typename T, typename Function>
__global__ void __launch_bounds__(kGatedThreads)
    gated_fwd_kernel(const gated_views<T> v, const Function function)
{
  constexpr int kPer = kForm == kByElement ? kGatedElements : 1;
  for (int64_t block = blockIdx.x; block * (kPer * kGatedThreads) < v.chunks; block += gridDim.x) {
#pragma unroll 1
    for (int k = 0; k < kPer; k++) {
      const int64_t chunk = (block * kPer + k) * kGatedThreads + threadIdx.x;
      if (chunk < v.chunks) {
        gated_fwd_chunk<kForm>(v, place_of<kForm>(v, chunk), function);
      }
    }
  }
}

/* ---- backward: void operator()(float dy, float gate, float up, float *dgate, float *dup) ---- */

template <typename T, typename Function>
__device__ __forceinline__ void gated_bwd_element(const gated_views<T> &v, int64_t row, int64_t j,
                                                  const Function &function)
{
  const float gate = to_f32(v.gate[row * v.gate_step + j * v.spread]);
  const float up = to_f32(v.up[row * v.up_step + j * v.spread]);
  const float dy = to_f32(v.dy[row * v.dy_step + j]);
  float dgate, dup;
  function(dy, gate, up, &dgate, &dup);
  if (v.dgate) {
    v.dgate[row * v.dgate_step + j * v.spread] = from_f32<T>(dgate);
  }
  if (v.dup) {
    v.dup[row * v.dup_step + j * v.spread] = from_f32<T>(dup);
  }
}

template <gated_form kForm, typename T, typename Function>
__device__ __forceinline__ void gated_bwd_chunk(const gated_views<T> &v, gated_place at,
                                                const Function &function)
{
  constexpr int kN = kGatedChunk<kForm, T>;
  if (kForm == kByElement || at.col + kN > v.cols) {
#pragma unroll 1
    for (int i = 0; i < kN && at.col + i < v.cols; i++) {
      gated_bwd_element(v, at.row, at.col + i, function);
    }
    return;
  }
  float dy[kN];
  load(dy, v.dy + at.row * v.dy_step + at.col);
  if (kForm == kByPair) {
    float pairs[2 * kN];
    load(pairs, v.gate + at.row * v.gate_step + 2 * at.col);
#pragma unroll
    for (int i = 0; i < kN; i++) {
      function(dy[i], pairs[2 * i], pairs[2 * i + 1], &pairs[2 * i], &pairs[2 * i + 1]);
    }
    store(v.dgate + at.row * v.dgate_step + 2 * at.col, pairs);
  } else {
    float gate[kN], up[kN];
    load(gate, v.gate + at.row * v.gate_step + at.col);
    load(up, v.up + at.row * v.up_step + at.col);
#pragma unroll
    for (int i = 0; i < kN; i++) {
      function(dy[i], gate[i], up[i], &gate[i], &up[i]);
    }
    if (v.dgate) {
      store(v.dgate + at.row * v.dgate_step + at.col, gate);
    }
    if (v.dup) {
      store(v.dup + at.row * v.dup_step + at.col, up);
    }
  }
}

template <gated_form kForm, typename T, typename Function>
__global__ void __launch_bounds__(kGatedThreads)
    gated_bwd_kernel(const gated_views<T> v, const Function function)
{
  constexpr int kPer = kForm == kByElement ? kGatedElements : 1;
  for (int64_t block = blockIdx.x; block * (kPer * kGatedThreads) < v.chunks; block += gridDim.x) {
#pragma unroll 1
    for (int k = 0; k < kPer; k++) {
      const int64_t chunk = (block * kPer + k) * kGatedThreads + threadIdx.x;
      if (chunk < v.chunks) {
        gated_bwd_chunk<kForm>(v, place_of<kForm>(v, chunk), function);
      }
    }
  }
}

/* ---- host ---- */

/** The inputs of a call, and the gradients of a backward. */
template <typename Args> tgi_gate_up gate_up_of(const Args *a)
{
  return {&a->gate, &a->up, &a->gate_up, a->packing};
}

template <typename Args> tgi_gate_up dgate_up_of(const Args *a)
{
  return {&a->dgate, &a->dup, &a->dgate_up, a->packing};
}

/** What the views of a call have in common. */
struct gated_layout {
  bool dense, by_packs; /* no gaps between rows; all may be read by kByPack or kByPair */
};

inline void lay_out_gated(gated_layout *l, const tg_tensor *t)
{
  l->dense = l->dense && (!tgi_present(t) || tgi_is_dense(t));
}

/** `bytes` of t belong to a thread. Only the start counts in one long row. */
inline void want_gated_packs(gated_layout *l, const tg_tensor *t, int bytes)
{
  if (tgi_present(t)) {
    l->by_packs = l->by_packs &&
                  (l->dense ? (uintptr_t)t->data % (unsigned)bytes == 0 : rows_aligned(t, bytes));
  }
}

template <typename T> void set_gated_view(const tg_tensor *t, T **data, int64_t *step)
{
  if (tgi_present(t)) {
    *data = (T *)t->data;
    *step = tgi_stride(t, 0);
  }
}

/** The views of a call and, as *form, how it runs. dy or y is absent, and all of `out` in the
 * forward. */
template <typename T>
gated_views<T> gated_views_of(const tg_tensor *dy, tgi_gate_up in, const tg_tensor *y,
                              tgi_gate_up out, gated_form *form)
{
  const bool interleaved = in.packing == TG_GATE_UP_INTERLEAVED;
  const tg_tensor *flat = tgi_present(y) ? y : dy;
  tg_tensor gate, up, dgate, dup;
  tgi_gate_up_split(in, &gate, &up);
  tgi_gate_up_split(out, &dgate, &dup);
  const tg_tensor *const parts[] = {&gate, &up, &dgate, &dup};
  const tg_tensor *const packed[] = {in.gate_up, out.gate_up};
  gated_layout l = {true, true};
  lay_out_gated(&l, flat);
  for (int k = 0; k < (interleaved ? 2 : 4); k++) {
    lay_out_gated(&l, interleaved ? packed[k] : parts[k]);
  }
  want_gated_packs(&l, flat, interleaved ? 8 : 16);
  for (int k = 0; k < (interleaved ? 2 : 4); k++) {
    want_gated_packs(&l, interleaved ? packed[k] : parts[k], 16);
  }
  *form = !l.by_packs ? kByElement : interleaved ? kByPair : kByPack;

  gated_views<T> v = {};
  set_gated_view(&gate, const_cast<T **>(&v.gate), &v.gate_step);
  set_gated_view(&up, const_cast<T **>(&v.up), &v.up_step);
  set_gated_view(dy, const_cast<T **>(&v.dy), &v.dy_step);
  set_gated_view(y, &v.y, &v.y_step);
  set_gated_view(&dgate, &v.dgate, &v.dgate_step);
  set_gated_view(&dup, &v.dup, &v.dup_step);
  v.spread = interleaved ? 2 : 1;
  v.rows = l.dense ? 1 : flat->shape[0];
  v.cols = l.dense ? flat->shape[0] * flat->shape[1] : flat->shape[1];
  const int64_t chunk = *form == kByPack   ? kGatedChunk<kByPack, T>
                        : *form == kByPair ? kGatedChunk<kByPair, T>
                                           : 1;
  v.row_chunks = divide_up(v.cols, chunk);
  v.chunks = v.rows * v.row_chunks;
  return v;
}

template <typename T, typename Function>
tg_status gated_fwd(const tg_context *ctx, tgi_gate_up in, const tg_tensor *y, Function function)
{
  const tg_tensor none = {};
  gated_form form;
  const gated_views<T> v =
      gated_views_of<T>(&none, in, y, {&none, &none, &none, in.packing}, &form);
  const int64_t blocks =
      divide_up(v.chunks, (int64_t)kGatedThreads * (form == kByElement ? kGatedElements : 1));
  const dim3 grid = grid_of(blocks);
  if (form == kByPack && v.rows == 1 && v.cols % kLanes<T> == 0 && grid.x == blocks) {
    return launch(ctx, gated_fwd_line_kernel<T, Function>, grid, kGatedThreads, 0, v.gate, v.up,
                  v.y, v.chunks, function);
  }
  return launch(ctx,
                form == kByPack   ? gated_fwd_kernel<kByPack, T, Function>
                : form == kByPair ? gated_fwd_kernel<kByPair, T, Function>
                                  : gated_fwd_kernel<kByElement, T, Function>,
                grid, kGatedThreads, 0, v, function);
}

template <typename T, typename Function>
tg_status gated_bwd(const tg_context *ctx, const tg_tensor *dy, tgi_gate_up in, tgi_gate_up out,
                    Function function)
{
  const tg_tensor none = {};
  gated_form form;
  const gated_views<T> v = gated_views_of<T>(dy, in, &none, out, &form);
  const dim3 grid = grid_of(
      divide_up(v.chunks, (int64_t)kGatedThreads * (form == kByElement ? kGatedElements : 1)));
  return launch(ctx,
                form == kByPack   ? gated_bwd_kernel<kByPack, T, Function>
                : form == kByPair ? gated_bwd_kernel<kByPair, T, Function>
                                  : gated_bwd_kernel<kByElement, T, Function>,
                grid, kGatedThreads, 0, v, function);
}

inline void describe_gated(tg_gate_up_packing packing, char *text, size_t bytes)
{
  snprintf(text, bytes, "one pass, %d threads a block, 16 bytes of %s a thread", kGatedThreads,
           packing == TG_GATE_UP_INTERLEAVED ? "gate_up" : "gate");
}

} // namespace TGI_CUDA_ENTRY

#endif

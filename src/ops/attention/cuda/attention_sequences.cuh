/**
 * Where the CUDA kernels of attention find each sequence, and which keys a query sees.
 *
 * The rows of one kv head's whole group form one list: row r is query r / group of head kv_head *
 * group + r % group. So a group shares its keys' tiles, and few queries with many heads fill a
 * tile. Keys are counted by their row of the extent.
 *
 * Lengths live on the device. Where a call has any, one block first reads and checks them, and
 * writes a record for each sequence to the workspace; a call without lengths needs no records.
 */
#ifndef TGI_OPS_ATTENTION_SEQUENCES_CUH
#define TGI_OPS_ATTENTION_SEQUENCES_CUH

#include "cuda/fault.cuh"
#include "cuda/reduce.cuh"
#include "cuda/vec.cuh"

extern "C" {
#include "ops/attention/attention_layout.h"

#include <string.h>
}

inline namespace TGI_CUDA_ENTRY
{

namespace
{

constexpr int kTile = 64; /* rows, keys and elements of a head in a tile */

/** A tensor [.., .., heads, dim] on the device. */
template <typename T> struct heads_view {
  T *data;
  int64_t step[3];
  bool aligned; /* pieces may be loaded, and packs of 4 stored, as vectors */

  __device__ int64_t at(int64_t index, int64_t row, int64_t head) const
  {
    return index * step[0] + row * step[1] + head * step[2];
  }
};

template <typename T> heads_view<T> view_of(const tg_tensor *t)
{
  heads_view<T> v = {};
  v.data = static_cast<T *>(t->data);
  if (tgi_present(t)) {
    for (int axis = 0; axis < 3; axis++) {
      v.step[axis] = tgi_stride(t, axis);
    }
    v.aligned = rows_aligned(t, 16);
  }
  return v;
}

/** The same counted in words of 16 bits, of which f32 has two. */
template <typename T> heads_view<T> words_of(const tg_tensor *t)
{
  heads_view<T> v = view_of<T>(t);
  for (int axis = 0; axis < 3; axis++) {
    v.step[axis] *= (int64_t)tg_dtype_bytes(t->dtype) / 2;
  }
  return v;
}

/** True if the tensor's rows are 16-byte vectors of 16-bit elements, or with `tf32` of f32. */
inline bool has_vectors(const tg_tensor *t, bool tf32 = false)
{
  const bool half = t->dtype == TG_F16 || t->dtype == TG_BF16;
  bool taken = (tf32 ? t->dtype == TG_F32 : half) && t->shape[3] % 8 == 0 && rows_aligned(t, 16);
  for (int axis = 0; axis < 4; axis++) {
    taken = taken && t->shape[axis] > 0;
  }
  return taken;
}

/** Makes a tensor look as if its rows were vectors, for a workspace that depends on shapes alone.
 */
inline void forget_memory(tg_tensor *t)
{
  t->data = NULL;
  memset(t->stride, 0, sizeof t->stride); /* contiguous */
}

/** Element i of a vector in T or f32. */
struct any_vector {
  const void *data;
  tg_dtype dtype;

  __device__ float at(int64_t i) const
  {
    return dtype == TG_F32   ? static_cast<const float *>(data)[i]
           : dtype == TG_F16 ? to_f32(static_cast<const f16 *>(data)[i])
                             : to_f32(static_cast<const bf16 *>(data)[i]);
  }
};

/* ---- sequences ---- */

/** Where faults of a direction are recorded. */
struct attention_sites {
  fault_site cu_q, cu_k, key_start, key_count, block_table;
};

/** A call's sequences and scalars. A record with count < 0 marks a sequence whose data is out of
 * range: its results are NaN, and nothing of it is read. */
struct attention_call {
  tgi_attention_layout l;
  const tgi_attention_sequence *records; /* NULL: all sequences follow from the shapes */
  float scale, softcap;
};

inline bool has_lengths(const tgi_attention_layout &l, const tg_tensor *key_start,
                        const tg_tensor *key_count, const tg_tensor *query_start)
{
  return l.packed_q || l.packed_k || l.has_table || tgi_present(key_start) ||
         tgi_present(key_count) || tgi_present(query_start);
}

inline size_t record_bytes(const tgi_attention_layout &l, bool lengths)
{
  return lengths ? ((size_t)l.batch * sizeof(tgi_attention_sequence) + 255) / 256 * 256 : 0;
}

/** The sequence according to its data; its lengths (cu) are in range. */
__device__ inline tgi_attention_sequence read_sequence(const tgi_attention_layout &l, int64_t b)
{
  tgi_attention_sequence s = {b, b, 0, l.nq, b, 0, l.extent, 0, 0, 0};
  if (l.cu_q) {
    s.q_index = 0;
    s.q_first = l.cu_q[b];
    s.nq = l.cu_q[b + 1] - s.q_first;
  }
  if (l.cu_k) {
    s.k_index = 0;
    s.k_first = l.cu_k[b];
    s.extent = l.cu_k[b + 1] - s.k_first;
  }
  s.first = l.key_start ? l.key_start[b] : 0;
  s.count = l.key_count ? l.key_count[b] : s.extent - s.first;
  s.position = l.query_start ? l.query_start[b] : s.first + s.count - s.nq;
  return s;
}

__device__ inline tgi_attention_sequence sequence_at(const attention_call &c, int64_t b)
{
  if (c.records) {
    return c.records[b];
  }
  const int64_t nq = c.l.nq, extent = c.l.extent;
  return {b, b, 0, nq, b, 0, extent, 0, extent, extent - nq};
}

/* ---- tiles of rows, and what they see ---- */

/** Slots for tiles of `size` rows, of all sequences. The host does not know the lengths of packed
 * sequences: rounding down and adding b gives each at least the slots that it needs. */
inline int64_t tile_places(int64_t batch, int64_t rows, bool packed, int size)
{
  return packed ? rows / size + batch : divide_up(rows, size) * batch;
}

/** The sequence of slot `place`, and the index of the slot in it. `unit`: rows for each row of the
 * packed axis (heads of a group). */
__device__ inline int64_t sequence_of_place(const attention_call &c, bool of_keys, int64_t place,
                                            int64_t unit, int size, int64_t *number)
{
  const bool packed = of_keys ? c.l.packed_k : c.l.packed_q;
  if (!packed) {
    const int64_t each = divide_up((of_keys ? c.l.extent : c.l.nq) * unit, size);
    *number = place % each;
    return place / each;
  }
  int64_t low = 0, high = c.l.batch, first = 0;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    const int64_t row = of_keys ? c.records[middle].k_first : c.records[middle].q_first;
    if (row * unit / size + middle <= place) {
      low = middle;
      first = row * unit / size + middle;
    } else {
      high = middle;
    }
  }
  *number = place - first;
  return low;
}

/** A slot's sequence and its index there. In shared memory, because registers are for sums. */
struct place_found {
  tgi_attention_sequence s;
  int64_t number;
};

/** Called by all threads of the block; overwrites what is in shared memory. */
__device__ inline void find_place(const attention_call &c, bool of_keys, int64_t place,
                                  int64_t unit, int size, place_found &to)
{
  __syncthreads();
  if (threadIdx.x == 0) {
    int64_t number;
    to.s = sequence_at(c, sequence_of_place(c, of_keys, place, unit, size, &number));
    to.number = number;
  }
  __syncthreads();
}

/** Key rows [low, high) that query i sees; neither bound decreases as i increases. high <= low:
 * none. */
__device__ inline void visible_keys(const tgi_attention_layout &l, const tgi_attention_sequence &s,
                                    int64_t i, int64_t *low, int64_t *high)
{
  const int64_t p = s.position + i, end = s.first + s.count;
  int64_t from = s.first, to = end;
  if (l.causal) {
    to = p + 1 < end ? p + 1 : end;
  } else if (l.window > 0) {
    to = p + l.window < end ? p + l.window : end;
  }
  if (l.window > 0 && p - l.window + 1 > from) {
    from = p - l.window + 1;
  }
  *low = from;
  *high = to;
}

/** v relative to a tile that begins at `start`, clamped to 0 .. kTile. */
__device__ __forceinline__ int in_tile(int64_t v, int64_t start)
{
  return v <= start ? 0 : v >= start + kTile ? kTile : (int)(v - start);
}

/** Elements from k's or v's start to row `row` of the sequence's keys. */
template <typename T>
__device__ inline int64_t key_offset(const attention_call &c, const tgi_attention_sequence &s,
                                     const heads_view<T> &t, int64_t row, int64_t kv_head)
{
  if (c.l.has_table) {
    const int64_t i = row / c.l.block_size;
    return t.at(c.l.block_table[s.b * c.l.max_blocks + i], row - i * c.l.block_size, kv_head);
  }
  return t.at(s.k_index, s.k_first + row, kv_head);
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif

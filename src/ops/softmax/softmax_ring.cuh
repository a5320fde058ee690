/**
 * The ring of shared memory that long rows of softmax go through on Hopper, and the clusters of
 * blocks that share a row: see softmax_sm90.cu.
 */
#ifndef TGI_OPS_SOFTMAX_SOFTMAX_RING_CUH
#define TGI_OPS_SOFTMAX_SOFTMAX_RING_CUH

#include "cuda/cluster.cuh"
#include "ops/softmax/softmax_exp.cuh"

inline namespace TGI_CUDA_ENTRY
{

constexpr int kThreads = 1024;
constexpr int kMostBlocks = 2;           /* of a cluster */
constexpr int kPlaces = 14;              /* of a thread in the ring */
constexpr int kInRegisters = 8;          /* vectors of a thread */
constexpr int kMostVectors = 16;         /* of a thread */
constexpr int64_t kLeastRow = 96 * 1024; /* bytes; shorter ones have several blocks at once */
constexpr int64_t kLongestOfBlock = 128 * 1024; /* bytes that a block takes alone */

struct ring_plan {
  bool taken, aligned;
  int blocks, vectors, clusters;
};

/* The sums of warps, of two rows in turn: who is ahead writes what the others no longer read. */
struct warp_part {
  double sum;
  float top;
};

struct ring_memory {
  warp_part parts[2][kMostBlocks * kWarp];
  uint4 places[kPlaces * kThreads];
};

template <typename T, int kTensors> struct ring_rows {
  const T *in[kTensors];
  T *out;
  int64_t in_step[kTensors], out_step;
  int rows, cols;
  bool aligned;
  float scale;
  softmax_factors by;
};

inline ring_plan plan_ring(const tg_context *ctx, const tg_tensor *t, int tensors, bool aligned)
{
  const int64_t row_vectors = divide_up(t->shape[1] * (int64_t)tg_dtype_bytes(t->dtype), 16);
  const int64_t bytes = row_vectors * 16 * tensors;
  ring_plan p = {};
  p.blocks = bytes > kLongestOfBlock ? kMostBlocks : 1;
  const int64_t mine = divide_up(row_vectors, (int64_t)p.blocks * kThreads) * tensors;
  p.vectors = (int)(mine < INT32_MAX ? divide_up(mine, 4) * 4 : INT32_MAX);
  p.aligned = aligned;
  p.taken = bytes >= kLeastRow && mine <= kMostVectors && t->shape[0] <= 1 << 30 &&
            ctx->device->shared_bytes >= (int)sizeof(ring_memory) &&
            ctx->device->multiprocessors >= p.blocks;
  p.clusters = ctx->device->multiprocessors / p.blocks;
  if (t->shape[0] < p.clusters) {
    p.clusters = (int)t->shape[0];
  }
  return p;
}

/* ---- device ---- */

__device__ __forceinline__ void store_part(warp_part *mine, unsigned block, warp_part v)
{
  const uint32_t to = address_in(mine, block);
  asm volatile("st.shared::cluster.f64 [%0], %1;" : : "r"(to), "d"(v.sum) : "memory");
  asm volatile("st.shared::cluster.f32 [%0 + 8], %1;" : : "r"(to), "f"(v.top) : "memory");
}

/* Until at most kPending groups of the thread's copies are under way. */
template <int kPending> __device__ __forceinline__ void wait_for_copies()
{
  asm volatile("cp.async.wait_group %0;" : : "n"(kPending) : "memory");
}

template <int kN> struct number {
  static constexpr int value = kN;
};

/* Runs body(number<i>()) for i in [kFrom, kTo). */
template <int kFrom, int kTo, typename F> __device__ __forceinline__ void each(F body)
{
  if constexpr (kFrom < kTo) {
    body(number<kFrom>());
    each<kFrom + 1, kTo>(body);
  }
}

/* A thread's ring. Step v of a row is the thread's vector v of each input; kSteps of them are a
 * row, kRing are on their way or held. */
template <typename T, int kTensors, int kVectors> struct ring {
  static constexpr int kSteps = kVectors / kTensors;
  static constexpr int kRing = kPlaces / kTensors;
  /* Of f32 there is more to compute with, so a few registers less are there. */
  static constexpr int kRegisters = sizeof(T) == 4 && kVectors == 12 ? 6 : kInRegisters;
  static constexpr int kKept = (kVectors < kRegisters ? kVectors : kRegisters) / kTensors;

  const ring_rows<T, kTensors> &r;
  uint4 *places; /* the thread's first */
  int base;      /* place of the row's first step */
  int first, step, row, rows_apart;
  float rest; /* what stands after the end of a row */

  __device__ __forceinline__ int place_of(int v) const
  {
    int p = base + v;
    p = p < kRing ? p : p - kRing;
    return p < kRing ? p : p - kRing;
  }

  __device__ __forceinline__ uint4 *at(int v, int tensor) const
  {
    return places + (place_of(v) * kTensors + tensor) * kThreads;
  }

  /* Hides that columns are the same in each row: what follows from them would take registers. */
  __device__ __forceinline__ void forget()
  {
    asm volatile("" : "+r"(first));
  }

  __device__ __forceinline__ int column_of(int v) const
  {
    return first + v * step;
  }

  __device__ __forceinline__ bool whole(int v) const
  {
    return r.aligned && column_of(v) + kLanes<T> <= r.cols;
  }

  /* Asks for step v counted from the place of the present row's first, which must be free; `ahead`
   * rows and `of_row` steps later in the stream. */
  __device__ __forceinline__ void ask(int v, int ahead, int of_row) const
  {
    const int of = row + ahead * rows_apart, j = column_of(of_row);
    if (of < r.rows && whole(of_row)) {
#pragma unroll
      for (int t = 0; t < kTensors; t++) {
        hold<true>(at(v, t), r.in[t] + of * r.in_step[t], j, j + kLanes<T>, rest);
      }
    }
    asm volatile("cp.async.commit_group;" : : : "memory");
  }

  /* The same for vectors that are not whole or aligned, at once. */
  __device__ __forceinline__ void ask_rest(int v, int ahead, int of_row) const
  {
    const int of = row + ahead * rows_apart;
    if (of < r.rows && !whole(of_row)) {
#pragma unroll 1
      for (int t = 0; t < kTensors; t++) {
        const T *const x = (t == 0 ? r.in[0] : r.in[kTensors - 1]) +
                           of * (t == 0 ? r.in_step[0] : r.in_step[kTensors - 1]);
        *at(v, t) = fetch<false>(x, (int64_t)column_of(of_row), (int64_t)r.cols, rest);
      }
    }
  }

  /* For the steps whose places are those of [from, to) of the present row, as they were asked. */
  __device__ __forceinline__ void ask_rests(int from, int to) const
  {
    if (!whole(kSteps - 1)) {
#pragma unroll 1
      for (int v = from; v < to; v++) {
        ask_rest(v, (v + kRing) / kSteps, (v + kRing) % kSteps);
      }
    }
  }

  __device__ __forceinline__ void next_row()
  {
    base = place_of(kSteps);
    row += rows_apart;
  }

  __device__ __forceinline__ void put_results(int v, const float (&results)[kLanes<T>]) const
  {
    const int j = column_of(v);
    T *const y = r.out + row * r.out_step;
    if (whole(v)) {
      store_vector(y + j, results);
    } else {
      put<false, T>(y, (int64_t)j, (int64_t)r.cols, results);
    }
  }
};

template <typename T, int kTensors, int kVectors>
__device__ __forceinline__ ring<T, kTensors, kVectors> start_ring(const ring_rows<T, kTensors> &r,
                                                                  uint4 *places, unsigned rank,
                                                                  unsigned blocks, float rest)
{
  using ring_type = ring<T, kTensors, kVectors>;
  const ring_type g = {r,
                       places + threadIdx.x,
                       0,
                       (int)(rank * kThreads + threadIdx.x) * kLanes<T>,
                       (int)(blocks * kThreads) * kLanes<T>,
                       (int)(blockIdx.x / blocks),
                       (int)(gridDim.x / blocks),
                       rest};
#pragma unroll 1
  for (int v = 0; v < ring_type::kRing; v++) {
    g.ask(v, v / ring_type::kSteps, v % ring_type::kSteps);
    g.ask_rest(v, v / ring_type::kSteps, v % ring_type::kSteps);
  }
  return g;
}

/* ---- host ---- */

template <typename Rows>
tg_status launch_ring(const tg_context *ctx, void (*kernel)(Rows), const ring_plan &p, Rows r)
{
  cluster_launch l;
  const cudaError_t e =
      prepare_clusters(ctx, (const void *)kernel, p.blocks, kThreads, sizeof(ring_memory), &l);
  return launch_clusters(ctx, e, kernel, &l, p.clusters, r);
}

inline void describe_ring(const ring_plan &p, char *text, size_t bytes)
{
  snprintf(text, bytes,
           "rows through a ring in shared memory; %d blocks of %d threads a row, up to %d vectors "
           "of a thread, %d rows at once",
           p.blocks, kThreads, p.vectors, p.clusters);
}

} // namespace TGI_CUDA_ENTRY

#endif

/* Combine on CUDA: the backward.
 *
 * Method     dy: each thread multiplies one vector of its token's row of dout. dweights: a
 *            warp for a slot, a dot product of two rows; lanes add products of a vector in
 *            f32, vectors in f64.
 * Work       A vector of 16 bytes of dy a thread; 8 slots a block; rows that are not aligned,
 *            or no multiple of 16 bytes, go by elements.
 * Bound      Memory: reads dout and y and writes dy.
 */
#include "ops/moe_combine/combine_vectors.cuh"

namespace
{

constexpr int kSlotWarps = kCombineThreads / kWarp;

template <typename T> struct bwd_job {
  combine_slots<T> slots;
  const T *dout, *y;
  T *dy;
  void *dweights;
  const int32_t *slot;
  int64_t tokens, rows, dout_step, y_step, dy_step, dweights_step;
  int64_t row_vectors, blocks;
  fault_site bad_row, bad_slot;
};

template <typename T, int N>
__global__ void __launch_bounds__(kCombineThreads)
    moe_combine_bwd_rows_kernel(const __grid_constant__ bwd_job<T> job)
{
  const int64_t num_slots = job.tokens * job.slots.k;
  for (int64_t block = blockIdx.x; block < job.blocks; block += gridDim.x) {
    const int64_t vector = block * kCombineThreads + threadIdx.x, r = vector / job.row_vectors;
    const int64_t first = (vector - r * job.row_vectors) * N;
    if (r < job.rows) {
      const int s = job.slot[r], t = s / job.slots.k, j = s - t * job.slots.k;
      const bool known = s >= 0 && s < num_slots;
      float v[N];
#pragma unroll
      for (int i = 0; i < N; i++) {
        v[i] = known ? 0.0f : CUDART_NAN_F;
      }
      if (!known && first == 0) {
        record_fault(job.bad_slot, r, s, 0, num_slots - 1);
      }
      if (known && job.slots.row(t, j) == r) {
        const float w = job.slots.weight(t, j);
        load(v, job.dout + (int64_t)t * job.dout_step + first);
#pragma unroll
        for (int i = 0; i < N; i++) {
          v[i] *= w;
        }
      }
      store(job.dy + r * job.dy_step + first, v);
    }
  }
}

/* In every lane. */
template <typename T, int N>
__device__ __forceinline__ double dot_rows(const bwd_job<T> &job, int64_t t, int64_t r)
{
  const T *dout = job.dout + t * job.dout_step, *y = job.y + r * job.y_step;
  double sum = 0;
  for (int64_t v = threadIdx.x % kWarp; v < job.row_vectors; v += kWarp) {
    float a[N], b[N], part = 0;
    load(a, dout + v * N);
    load(b, y + v * N);
#pragma unroll
    for (int i = 0; i < N; i++) {
      part = fmaf(a[i], b[i], part);
    }
    sum += (double)part;
  }
  return warp_sum(sum);
}

/* There are fewer than 2^31 slots: the grid has a warp for each. */
template <typename T, int N>
__global__ void __launch_bounds__(kCombineThreads)
    moe_combine_bwd_slots_kernel(const __grid_constant__ bwd_job<T> job)
{
  const int64_t num_slots = job.tokens * job.slots.k;
  const int64_t s = (int64_t)blockIdx.x * kSlotWarps + threadIdx.x / kWarp;
  if (s >= num_slots) {
    return;
  }
  const int t = (int)s / job.slots.k, j = (int)s - t * job.slots.k;
  const int64_t r = job.slots.row(t, j), to = (int64_t)t * job.dweights_step + j;
  const bool known = r >= -1 && r < job.rows;
  const float sum = known && r >= 0 ? (float)dot_rows<T, N>(job, t, r) : 0.0f;
  if (threadIdx.x % kWarp == 0) {
    if (!known) {
      record_fault(job.bad_row, s, r, -1, job.rows - 1);
    }
    const float v = known ? sum : CUDART_NAN_F;
    if (job.slots.wide) {
      static_cast<float *>(job.dweights)[to] = v;
    } else {
      static_cast<T *>(job.dweights)[to] = from_f32<T>(v);
    }
  }
}

bool in_vectors(const tg_moe_combine_bwd_args *a)
{
  return whole_vectors(&a->dout) && (!tgi_present(&a->y) || rows_aligned(&a->y, 16)) &&
         (!tgi_present(&a->dy) || rows_aligned(&a->dy, 16));
}

template <typename T, int N>
tg_status run(const tg_context *ctx, const tg_moe_combine_bwd_args *a, const bwd_job<T> &job)
{
  tg_status status = TG_OK;
  if (tgi_present(&a->dy)) {
    status = launch(ctx, moe_combine_bwd_rows_kernel<T, N>, grid_of(job.blocks), kCombineThreads, 0,
                    job);
  }
  if (status == TG_OK && tgi_present(&a->dweights)) {
    const dim3 grid = grid_of(divide_up(job.tokens * job.slots.k, (int64_t)kSlotWarps));
    status = launch(ctx, moe_combine_bwd_slots_kernel<T, N>, grid, kCombineThreads, 0, job);
  }
  return status;
}

template <typename T> tg_status backward(const tg_context *ctx, const tg_moe_combine_bwd_args *a)
{
  const bool vectors = in_vectors(a), dy = tgi_present(&a->dy), y = tgi_present(&a->y);
  bwd_job<T> job = {};
  job.slots = combine_slots_of<T>(&a->row, &a->weights);
  job.dout = static_cast<const T *>(a->dout.data);
  job.y = static_cast<const T *>(a->y.data);
  job.dy = static_cast<T *>(a->dy.data);
  job.dweights = a->dweights.data;
  job.slot = static_cast<const int32_t *>(a->slot.data);
  job.tokens = a->dout.shape[0];
  job.rows = dy ? a->dy.shape[0] : a->y.shape[0];
  job.dout_step = tgi_stride(&a->dout, 0);
  job.y_step = y ? tgi_stride(&a->y, 0) : 0;
  job.dy_step = dy ? tgi_stride(&a->dy, 0) : 0;
  job.dweights_step = tgi_present(&a->dweights) ? tgi_stride(&a->dweights, 0) : 0;
  job.row_vectors = vectors ? a->dout.shape[1] / kLanes<T> : a->dout.shape[1];
  job.blocks = divide_up(job.rows * job.row_vectors, (int64_t)kCombineThreads);
  job.bad_row = FAULT_SITE(ctx, moe_combine_bwd, row);
  job.bad_slot = FAULT_SITE(ctx, moe_combine_bwd, slot);
  return vectors ? run<T, kLanes<T>>(ctx, a, job) : run<T, 1>(ctx, a, job);
}

} // namespace

extern "C" tg_status TGI_KERNEL(moe_combine_bwd)(const tg_context *ctx,
                                                 const tg_moe_combine_bwd_args *a)
{
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->dout.dtype, T, status = backward<T>(ctx, a));
  return status;
}

extern "C" void TGI_PLAN(moe_combine_bwd)(const tg_context *, const tg_moe_combine_bwd_args *a,
                                          char *text, size_t bytes)
{
  snprintf(text, bytes, "%s a thread, %d threads a block",
           in_vectors(a) ? "a vector of 16 bytes" : "an element", kCombineThreads);
}

/* Combine on CUDA: the forward. moe_combine_bwd.cu has the backward.
 *
 * Method     Each thread adds up one vector of a token over its k rows, in their order.
 * Work       A vector of 16 bytes of out a thread; rows that are not aligned, or no multiple
 *            of 16 bytes, go by elements.
 * Bound      Memory: reads k rows a token and writes one.
 */
#include "ops/moe_combine/combine_vectors.cuh"

namespace
{

template <typename T> struct fwd_job {
  combine_slots<T> slots;
  const T *y, *residual; /* residual NULL: none */
  T *out;
  int64_t tokens, rows, y_step, residual_step, out_step;
  int64_t row_vectors, blocks;
  bool each; /* every step is rounded */
  fault_site bad_row;
};

/* The sum over a token's slots of N elements from column `first` on; NaN if a row is none. */
template <typename T, int N>
__device__ __forceinline__ void add_slots(float (&sum)[N], const fwd_job<T> &job, int64_t t,
                                          int64_t first)
{
#pragma unroll
  for (int i = 0; i < N; i++) {
    sum[i] = 0;
  }
  for (int j = 0; j < job.slots.k; j++) {
    const int64_t r = job.slots.row(t, j);
    if (r < -1 || r >= job.rows) {
      if (first == 0) {
        record_fault(job.bad_row, t * job.slots.k + j, r, -1, job.rows - 1);
      }
#pragma unroll
      for (int i = 0; i < N; i++) {
        sum[i] = CUDART_NAN_F;
      }
    } else if (r >= 0) {
      const float w = job.slots.weight(t, j);
      float y[N];
      load(y, job.y + r * job.y_step + first);
#pragma unroll
      for (int i = 0; i < N; i++) {
        const float product = y[i] * w;
        sum[i] += job.each ? rounded<T>(product) : product;
      }
    }
  }
}

template <typename T, int N>
__global__ void __launch_bounds__(kCombineThreads)
    moe_combine_fwd_kernel(const __grid_constant__ fwd_job<T> job)
{
  for (int64_t block = blockIdx.x; block < job.blocks; block += gridDim.x) {
    const int64_t vector = block * kCombineThreads + threadIdx.x, t = vector / job.row_vectors;
    const int64_t first = (vector - t * job.row_vectors) * N;
    if (t < job.tokens) {
      float sum[N], residual[N];
      add_slots<T, N>(sum, job, t, first);
      if (job.residual) {
        load(residual, job.residual + t * job.residual_step + first);
#pragma unroll
        for (int i = 0; i < N; i++) {
          sum[i] = (job.each ? rounded<T>(sum[i]) : sum[i]) + residual[i];
        }
      }
      store(job.out + t * job.out_step + first, sum);
    }
  }
}

bool in_vectors(const tg_moe_combine_fwd_args *a)
{
  return whole_vectors(&a->out) && rows_aligned(&a->y, 16) &&
         (!tgi_present(&a->residual) || rows_aligned(&a->residual, 16));
}

template <typename T>
tg_status forward(const tg_context *ctx, const tg_moe_combine_fwd_args *a, fault_site bad_row)
{
  const bool vectors = in_vectors(a), residual = tgi_present(&a->residual);
  fwd_job<T> job = {};
  job.slots = combine_slots_of<T>(&a->row, &a->weights);
  job.y = static_cast<const T *>(a->y.data);
  job.residual = residual ? static_cast<const T *>(a->residual.data) : NULL;
  job.out = static_cast<T *>(a->out.data);
  job.tokens = a->out.shape[0];
  job.rows = a->y.shape[0];
  job.y_step = tgi_stride(&a->y, 0);
  job.residual_step = residual ? tgi_stride(&a->residual, 0) : 0;
  job.out_step = tgi_stride(&a->out, 0);
  job.row_vectors = vectors ? a->out.shape[1] / kLanes<T> : a->out.shape[1];
  job.blocks = divide_up(job.tokens * job.row_vectors, (int64_t)kCombineThreads);
  job.each = a->rounding == TG_ROUNDING_HF;
  job.bad_row = bad_row;
  const dim3 grid = grid_of(job.blocks);
  return vectors ? launch(ctx, moe_combine_fwd_kernel<T, kLanes<T>>, grid, kCombineThreads, 0, job)
                 : launch(ctx, moe_combine_fwd_kernel<T, 1>, grid, kCombineThreads, 0, job);
}

} // namespace

inline namespace TGI_CUDA_ENTRY
{

tg_status run_moe_combine_fwd(const tg_context *ctx, const tg_moe_combine_fwd_args *a,
                              fault_site bad_row)
{
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->y.dtype, T, status = forward<T>(ctx, a, bad_row));
  return status;
}

} // namespace TGI_CUDA_ENTRY

extern "C" tg_status TGI_COMBINE_ROWS(TGI_ENTRY)(const tg_context *ctx,
                                                 const tg_moe_combine_fwd_args *a, int row,
                                                 int slot)
{
  return run_moe_combine_fwd(ctx, a, {ctx->device->fault, row, slot});
}

extern "C" tg_status TGI_KERNEL(moe_combine_fwd)(const tg_context *ctx,
                                                 const tg_moe_combine_fwd_args *a)
{
  return run_moe_combine_fwd(ctx, a, FAULT_SITE(ctx, moe_combine_fwd, row));
}

extern "C" void TGI_PLAN(moe_combine_fwd)(const tg_context *, const tg_moe_combine_fwd_args *a,
                                          char *text, size_t bytes)
{
  snprintf(text, bytes, "%s a thread, %d threads a block",
           in_vectors(a) ? "a vector of 16 bytes" : "an element", kCombineThreads);
}

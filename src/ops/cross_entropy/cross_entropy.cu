/* Cross-entropy on CUDA: the forward.
 *
 * Method     The row is read once: each thread has a running maximum of its own, which corrects its
 *            sum of exponentials where a vector raises it (Milakov & Gimelshein 2018), and the
 *            block's sums are put together in f64. The largest logit's place is found again in the
 *            vector that a thread remembers. A second kernel of one block adds the rows' losses in
 *            f64, in an order that depends on the number of rows alone.
 * Work       A block for a row; its threads depend on the vocabulary and the dtype alone, and so
 *            does who adds what (loss_rows.cuh).
 * Bound      Memory: reads the logits.
 */
#include "ops/cross_entropy/cross_entropy_launch.cuh"
#include "ops/kernels.cuh"

namespace
{

template <typename T, bool kCapped>
__global__ void __launch_bounds__(kRowThreads, kCapped ? 1 : 2)
    cross_entropy_fwd_kernel(const __grid_constant__ loss_job<T> job)
{
  __shared__ row_scratch scratch;
  for (int64_t i = blockIdx.x; i < job.rule.rows; i += gridDim.x) {
    const int64_t target = int_at(job.rule.targets, i);
    if (is_ignored(job.rule, target) || !is_class(job.rule, target)) {
      if (threadIdx.x == 0) {
        put_skipped(job, i, target);
      }
      continue;
    }
    forward_row<kCapped>(job, i, &scratch);
    __syncthreads(); /* shared memory is free again */
  }
}

template <typename T> tg_status forward(const tg_context *ctx, const tg_cross_entropy_fwd_args *a)
{
  const loss_job<T> job = loss_job_of<T>(a, TARGET_RULE(ctx, cross_entropy_fwd, a));
  const tg_status status = launch_rows(ctx, a, job.rule.rows, cross_entropy_fwd_kernel<T, false>,
                                       cross_entropy_fwd_kernel<T, true>, job);
  return status == TG_OK ? reduce_losses(ctx, a, job) : status;
}

} // namespace

extern "C" size_t TGI_WORKSPACE(cross_entropy_fwd)(const tg_context *,
                                                   const tg_cross_entropy_fwd_args *a)
{
  return loss_bytes(a);
}

extern "C" tg_status TGI_KERNEL(cross_entropy_fwd)(const tg_context *ctx,
                                                   const tg_cross_entropy_fwd_args *a)
{
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->logits.dtype, T, status = forward<T>(ctx, a));
  return status;
}

extern "C" void TGI_PLAN(cross_entropy_fwd)(const tg_context *, const tg_cross_entropy_fwd_args *a,
                                            char *text, size_t bytes)
{
  snprintf(text, bytes, "a block of %d threads for a row, read once", block_threads(a));
}

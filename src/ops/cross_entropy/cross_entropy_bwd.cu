/* Cross-entropy on CUDA: the backward.
 *
 * Method     Each logit becomes its gradient through lse; the target's p - 1 is taken in f32 before
 *            it is rounded. A thread writes the elements that it read, so dlogits may be logits.
 * Work       A block for a row. With a mean each block counts the rows that are not ignored first,
 *            as there is no memory to keep the number in, and then goes through as many rows as
 *            make the counting cheap beside them.
 * Bound      Memory: reads and writes the logits.
 */
#include "ops/cross_entropy/cross_entropy_launch.cuh"
#include "ops/kernels.cuh"

namespace
{

template <typename T, bool kCapped>
__global__ void __launch_bounds__(kRowThreads, kCapped ? 1 : 2)
    cross_entropy_bwd_kernel(const __grid_constant__ dlogits_job<T> job)
{
  __shared__ int64_t counts[kWarp];
  const int64_t cols = job.rule.vocab;
  const double n = count_items(job.rule, counts);
  for (int64_t i = blockIdx.x; i < job.rule.rows; i += gridDim.x) {
    const int64_t target = int_at(job.rule.targets, i);
    T *dx = job.dlogits + i * job.dstep;
    if (is_ignored(job.rule, target)) {
      fill_row(dx, cols, 0.0f);
    } else if (!is_class(job.rule, target)) {
      if (threadIdx.x == 0) {
        record_fault(job.rule.bad, i, target, 0, cols - 1);
      }
      fill_row(dx, cols, CUDART_NAN_F);
    } else {
      backward_row<kCapped, false>(job, i, target, job.lse[i], n);
    }
  }
}

template <typename T> tg_status backward(const tg_context *ctx, const tg_cross_entropy_bwd_args *a)
{
  const dlogits_job<T> job = dlogits_job_of<T>(a, TARGET_RULE(ctx, cross_entropy_bwd, a));
  return launch_rows(ctx, a, count_blocks(ctx, a), cross_entropy_bwd_kernel<T, false>,
                     cross_entropy_bwd_kernel<T, true>, job);
}

} // namespace

extern "C" tg_status TGI_KERNEL(cross_entropy_bwd)(const tg_context *ctx,
                                                   const tg_cross_entropy_bwd_args *a)
{
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->logits.dtype, T, status = backward<T>(ctx, a));
  return status;
}

extern "C" void TGI_PLAN(cross_entropy_bwd)(const tg_context *ctx,
                                            const tg_cross_entropy_bwd_args *a, char *text,
                                            size_t bytes)
{
  snprintf(text, bytes, "%lld blocks of %d threads, a row at a time",
           (long long)count_blocks(ctx, a), block_threads(a));
}

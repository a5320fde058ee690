/* Cross-entropy on CUDA: forward and backward in one kernel.
 *
 * Method     The rows of cross_entropy.cu and of cross_entropy_bwd.cu, one after the other: a block
 *            reads a row, has its lse, and turns the row into its gradient at once. The gradient
 *            begins at the row's end, which was read last: of a row that does not stay in the
 *            second-level cache beside those of the other blocks a part does.
 * Work       Blocks as the backward's; with a mean each counts the rows that are not ignored first.
 * Bound      Memory: reads and writes the logits; reads again what the cache does not hold.
 */
#include "ops/cross_entropy/cross_entropy_launch.cuh"
#include "ops/kernels.cuh"

namespace
{

template <typename T, bool kCapped>
__global__ void __launch_bounds__(kRowThreads, kCapped ? 1 : 2)
    cross_entropy_fwdbwd_kernel(const __grid_constant__ loss_job<T> forward,
                                const __grid_constant__ dlogits_job<T> backward)
{
  __shared__ row_scratch scratch;
  __shared__ double n; /* there: the scan needs the registers */
  const target_rule &rule = forward.rule;
  const double counted = count_items(rule, scratch.places);
  if (threadIdx.x == 0) {
    n = counted;
  }
  __syncthreads();
  for (int64_t i = blockIdx.x; i < rule.rows; i += gridDim.x) {
    const int64_t target = int_at(rule.targets, i);
    if (!is_ignored(rule, target) && is_class(rule, target)) {
      forward_row<kCapped>(forward, i, &scratch);
      __syncthreads(); /* the row was read, its target, too; shared memory is free again */
      backward_row<kCapped, true>(backward, i, int_at(rule.targets, i), scratch.lse, n);
      __syncthreads(); /* lse was read */
    } else {
      if (threadIdx.x == 0) {
        put_skipped(forward, i, target);
      }
      fill_row(backward.dlogits + i * backward.dstep, rule.vocab,
               is_ignored(rule, target) ? 0.0f : CUDART_NAN_F);
    }
  }
}

template <typename T> tg_status both(const tg_context *ctx, const tg_cross_entropy_fwdbwd_args *a)
{
  const target_rule rule = TARGET_RULE(ctx, cross_entropy_fwdbwd, a);
  const loss_job<T> forward = loss_job_of<T>(a, rule);
  const dlogits_job<T> backward = dlogits_job_of<T>(a, rule);
  const tg_status status =
      launch_rows(ctx, a, count_blocks(ctx, a), cross_entropy_fwdbwd_kernel<T, false>,
                  cross_entropy_fwdbwd_kernel<T, true>, forward, backward);
  return status == TG_OK ? reduce_losses(ctx, a, forward) : status;
}

} // namespace

extern "C" size_t TGI_WORKSPACE(cross_entropy_fwdbwd)(const tg_context *,
                                                      const tg_cross_entropy_fwdbwd_args *a)
{
  return loss_bytes(a);
}

extern "C" tg_status TGI_KERNEL(cross_entropy_fwdbwd)(const tg_context *ctx,
                                                      const tg_cross_entropy_fwdbwd_args *a)
{
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->logits.dtype, T, status = both<T>(ctx, a));
  return status;
}

extern "C" void TGI_PLAN(cross_entropy_fwdbwd)(const tg_context *ctx,
                                               const tg_cross_entropy_fwdbwd_args *a, char *text,
                                               size_t bytes)
{
  describe_both(ctx, a, text, bytes);
}

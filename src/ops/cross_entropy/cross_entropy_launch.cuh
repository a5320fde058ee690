/**
 * How calls of cross_entropy become kernels on CUDA: their jobs, their blocks, and what becomes of
 * the rows' losses. Args: those of any direction that has what is asked for.
 */
#ifndef TGI_OPS_CROSS_ENTROPY_LAUNCH_CUH
#define TGI_OPS_CROSS_ENTROPY_LAUNCH_CUH

#include "ops/cross_entropy/cross_entropy_bwd_rows.cuh"
#include "ops/cross_entropy/cross_entropy_fwd_rows.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

constexpr int kCountShare = 64; /* logits for each target that is counted, at least */
constexpr int kPlaces = 8;      /* blocks for a multiprocessor, if there are as many rows */

/* The forward's workspace: the rows' losses, if nobody else keeps them. */
template <typename Args> size_t loss_bytes(const Args *a)
{
  const bool held = a->reduction == TG_REDUCTION_NONE || tgi_present(&a->token_loss);
  return held ? 0 : (size_t)a->logits.shape[0] * sizeof(float);
}

template <typename T, typename Args> loss_job<T> loss_job_of(const Args *a, const target_rule &rule)
{
  loss_job<T> job = {};
  job.logits = static_cast<const T *>(a->logits.data);
  job.token_loss = static_cast<float *>(tgi_present(&a->token_loss)         ? a->token_loss.data
                                        : a->reduction == TG_REDUCTION_NONE ? a->loss.data
                                                                            : a->workspace);
  job.log_prob = static_cast<float *>(a->log_prob.data);
  job.lse = static_cast<float *>(a->lse.data);
  job.argmax = int_list_of(&a->argmax);
  job.rule = rule;
  job.step = tgi_stride(&a->logits, 0);
  job.label_smoothing = a->label_smoothing;
  job.z_loss = a->z_loss;
  job.softcap = a->softcap;
  return job;
}

template <typename T, typename Args>
dlogits_job<T> dlogits_job_of(const Args *a, const target_rule &rule)
{
  dlogits_job<T> job = {};
  job.logits = static_cast<const T *>(a->logits.data);
  job.dlogits = static_cast<T *>(a->dlogits.data);
  job.dloss = static_cast<const float *>(a->dloss.data);
  job.lse = static_cast<const float *>(a->lse.data);
  job.rule = rule;
  job.step = tgi_stride(&a->logits, 0);
  job.dstep = tgi_stride(&a->dlogits, 0);
  job.label_smoothing = a->label_smoothing;
  job.z_loss = a->z_loss;
  job.softcap = a->softcap;
  return job;
}

/* Blocks of a kernel that counts the rows of a mean: not one for each row, where counting would
 * take more than a share of it. */
template <typename Args> int64_t count_blocks(const tg_context *ctx, const Args *a)
{
  const int64_t rows = a->logits.shape[0];
  if (a->reduction != TG_REDUCTION_MEAN) {
    return rows;
  }
  const int64_t places = (int64_t)ctx->device->multiprocessors * kPlaces;
  const int64_t least = rows < places ? rows : places;
  const int64_t cheap = a->logits.shape[1] / kCountShare; /* rows / blocks >= rows / cheap */
  return cheap < least ? least : cheap < rows ? cheap : rows;
}

template <typename Args> int block_threads(const Args *a)
{
  return row_threads(a->logits.shape[1], a->logits.dtype);
}

/* Starts the kernel for logits as they are, or the one that caps them. */
template <typename Args, typename... Jobs>
tg_status launch_rows(const tg_context *ctx, const Args *a, int64_t blocks, void (*plain)(Jobs...),
                      void (*capping)(Jobs...), typename same_type<Jobs>::type... jobs)
{
  return launch(ctx, a->softcap > 0 ? capping : plain, grid_of(blocks), block_threads(a), 0,
                jobs...);
}

namespace
{

/* The rows' losses, added in f64 in an order that depends on the number of rows alone. */
template <int kThreads>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_loss_kernel(const float *token_loss, float *loss,
                              const __grid_constant__ target_rule rule)
{
  __shared__ double sums[2 * kWarp];
  double both[2] = {0, (double)count_rows(rule)};
  for (int64_t i = threadIdx.x; i < rule.rows; i += kThreads) {
    both[0] += (double)token_loss[i];
  }
  block_sum(both, sums);
  if (threadIdx.x == 0) {
    loss[0] = (float)(both[0] / divisor(rule, (int64_t)both[1]));
  }
}

} // namespace

/* What becomes of the rows' losses once they are there. */
template <typename T, typename Args>
tg_status reduce_losses(const tg_context *ctx, const Args *a, const loss_job<T> &job)
{
  constexpr int kThreads = 1024;
  float *loss = static_cast<float *>(a->loss.data);
  if (a->reduction != TG_REDUCTION_NONE) {
    return launch(ctx, cross_entropy_loss_kernel<kThreads>, dim3(1), kThreads, 0, job.token_loss,
                  loss, job.rule);
  }
  return job.token_loss == loss
             ? TG_OK
             : copy_bytes(ctx, loss, job.token_loss, (size_t)job.rule.rows * sizeof *loss);
}

inline void describe_both(const tg_context *ctx, const tg_cross_entropy_fwdbwd_args *a, char *text,
                          size_t bytes)
{
  snprintf(text, bytes, "%lld blocks of %d threads, a row at a time, forward, then backward",
           (long long)count_blocks(ctx, a), block_threads(a));
}

} // namespace TGI_CUDA_ENTRY

#endif

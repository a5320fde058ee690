/* Residual addition and RMSNorm on the CPU: entry points and plans of rms_norm_forward.h, with an
 * addition before the norm, and of rms_norm_backward.h, which adds dsum to dx. */
#include "ops/kernels.h"
#include "ops/shared/norms/rms_norm_backward.h"
#include "ops/shared/norms/rms_norm_forward.h"

static norm_forward plan_fwd(const tg_context *ctx, const tg_add_rms_norm_fwd_args *a)
{
  const tg_tensor *x = &a->x, *residual = &a->residual;
  norm_forward job = {.x = x,
                      .residual = residual,
                      .weight = &a->weight,
                      .sum = &a->sum,
                      .y = &a->y,
                      .rstd = &a->rstd,
                      .eps = a->eps,
                      .offset = a->weight_offset,
                      .rounds = a->policy == TG_RMS_NORM_LLAMA};
  job.stream_y = tgi_streams(ctx, &a->y, x) && tgi_streams(ctx, &a->y, residual);
  job.stream_sum =
      job.stream_y && tgi_streams(ctx, &a->sum, x) && tgi_streams(ctx, &a->sum, residual);
  return job;
}

static void fwd_rows(void *arg, int64_t begin, int64_t end, int thread)
{
  (void)thread;
  norm_forward_rows(arg, begin, end, NORM_OF_SUM);
}

tg_status TGI_KERNEL(add_rms_norm_fwd)(const tg_context *ctx, const tg_add_rms_norm_fwd_args *a)
{
  norm_forward job = plan_fwd(ctx, a);
  tgi_for(ctx, a->x.shape[0], tgi_chunk_rows(&a->x), fwd_rows, &job);
  return TG_OK;
}

void TGI_PLAN(add_rms_norm_fwd)(const tg_context *ctx, const tg_add_rms_norm_fwd_args *a,
                                char *text, size_t bytes)
{
  const norm_forward job = plan_fwd(ctx, a);
  norm_forward_plan(&job, text, bytes);
}

static norm_backward plan_bwd(const tg_context *ctx, const tg_add_rms_norm_bwd_args *a)
{
  return (norm_backward){.dy = &a->dy,
                         .x = &a->sum,
                         .weight = &a->weight,
                         .rstd = &a->rstd,
                         .dsum = &a->dsum,
                         .dx = &a->dx,
                         .offset = a->weight_offset,
                         .partial = tgi_present(&a->dweight) ? a->workspace : NULL,
                         .blocks = tgi_cut_rows(a->sum.shape[0]),
                         .stream = tgi_present(&a->dx) && tgi_streams(ctx, &a->dx, &a->dy) &&
                                   tgi_streams(ctx, &a->dx, &a->dsum)};
}

static void bwd_blocks(void *arg, int64_t begin, int64_t end, int thread)
{
  (void)thread;
  norm_backward_blocks(arg, begin, end, NORM_OF_SUM);
}

size_t TGI_WORKSPACE(add_rms_norm_bwd)(const tg_context *ctx, const tg_add_rms_norm_bwd_args *a)
{
  (void)ctx;
  return norm_backward_bytes(&a->sum, &a->dweight);
}

tg_status TGI_KERNEL(add_rms_norm_bwd)(const tg_context *ctx, const tg_add_rms_norm_bwd_args *a)
{
  norm_backward job = plan_bwd(ctx, a);
  tgi_for(ctx, job.blocks.count, 1, bwd_blocks, &job);
  norm_backward_finish(ctx, &job, &a->dweight);
  return TG_OK;
}

void TGI_PLAN(add_rms_norm_bwd)(const tg_context *ctx, const tg_add_rms_norm_bwd_args *a,
                                char *text, size_t bytes)
{
  const norm_backward job = plan_bwd(ctx, a);
  norm_backward_plan(&job, text, bytes);
}

/* RMSNorm on the CPU: entry points and plans of rms_norm_forward.h and rms_norm_backward.h. */
#include "ops/kernels.h"
#include "ops/shared/norms/rms_norm_backward.h"
#include "ops/shared/norms/rms_norm_forward.h"

static norm_forward plan_fwd(const tg_context *ctx, const tg_rms_norm_fwd_args *a)
{
  return (norm_forward){.x = &a->x,
                        .weight = &a->weight,
                        .y = &a->y,
                        .rstd = &a->rstd,
                        .eps = a->eps,
                        .offset = a->weight_offset,
                        .rounds = a->policy == TG_RMS_NORM_LLAMA,
                        .stream_y = tgi_streams(ctx, &a->y, &a->x)};
}

static void fwd_rows(void *arg, int64_t begin, int64_t end, int thread)
{
  (void)thread;
  norm_forward_rows(arg, begin, end, NORM_ALONE);
}

tg_status TGI_KERNEL(rms_norm_fwd)(const tg_context *ctx, const tg_rms_norm_fwd_args *a)
{
  norm_forward job = plan_fwd(ctx, a);
  tgi_for(ctx, a->x.shape[0], tgi_chunk_rows(&a->x), fwd_rows, &job);
  return TG_OK;
}

void TGI_PLAN(rms_norm_fwd)(const tg_context *ctx, const tg_rms_norm_fwd_args *a, char *text,
                            size_t bytes)
{
  const norm_forward job = plan_fwd(ctx, a);
  norm_forward_plan(&job, text, bytes);
}

static norm_backward plan_bwd(const tg_context *ctx, const tg_rms_norm_bwd_args *a)
{
  return (norm_backward){.dy = &a->dy,
                         .x = &a->x,
                         .weight = &a->weight,
                         .rstd = &a->rstd,
                         .dx = &a->dx,
                         .offset = a->weight_offset,
                         .partial = tgi_present(&a->dweight) ? a->workspace : NULL,
                         .blocks = tgi_cut_rows(a->x.shape[0]),
                         .stream = tgi_present(&a->dx) && tgi_streams(ctx, &a->dx, &a->dy)};
}

static void bwd_blocks(void *arg, int64_t begin, int64_t end, int thread)
{
  (void)thread;
  norm_backward_blocks(arg, begin, end, NORM_ALONE);
}

size_t TGI_WORKSPACE(rms_norm_bwd)(const tg_context *ctx, const tg_rms_norm_bwd_args *a)
{
  (void)ctx;
  return norm_backward_bytes(&a->x, &a->dweight);
}

tg_status TGI_KERNEL(rms_norm_bwd)(const tg_context *ctx, const tg_rms_norm_bwd_args *a)
{
  norm_backward job = plan_bwd(ctx, a);
  tgi_for(ctx, job.blocks.count, 1, bwd_blocks, &job);
  norm_backward_finish(ctx, &job, &a->dweight);
  return TG_OK;
}

void TGI_PLAN(rms_norm_bwd)(const tg_context *ctx, const tg_rms_norm_bwd_args *a, char *text,
                            size_t bytes)
{
  const norm_backward job = plan_bwd(ctx, a);
  norm_backward_plan(&job, text, bytes);
}

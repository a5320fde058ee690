/* RMSNorm gated by SiLU on the CPU: entry points and plans of rms_norm_forward.h and
 * rms_norm_backward.h, with a gate. */
#include "ops/kernels.h"
#include "ops/shared/norms/rms_norm_backward.h"
#include "ops/shared/norms/rms_norm_forward.h"

static norm_forward plan_fwd(const tg_context *ctx, const tg_rms_norm_swiglu_fwd_args *a)
{
  return (norm_forward){.x = &a->x,
                        .gate = &a->gate,
                        .weight = &a->weight,
                        .y = &a->y,
                        .rstd = &a->rstd,
                        .eps = a->eps,
                        .rounds = a->rounding == TG_ROUNDING_HF,
                        .stream_y =
                            tgi_streams(ctx, &a->y, &a->x) && tgi_streams(ctx, &a->y, &a->gate)};
}

static void fwd_rows(void *arg, int64_t begin, int64_t end, int thread)
{
  (void)thread;
  norm_forward_rows(arg, begin, end, NORM_GATED);
}

tg_status TGI_KERNEL(rms_norm_swiglu_fwd)(const tg_context *ctx,
                                          const tg_rms_norm_swiglu_fwd_args *a)
{
  norm_forward job = plan_fwd(ctx, a);
  tgi_for(ctx, a->x.shape[0], tgi_chunk_rows(&a->x), fwd_rows, &job);
  return TG_OK;
}

void TGI_PLAN(rms_norm_swiglu_fwd)(const tg_context *ctx, const tg_rms_norm_swiglu_fwd_args *a,
                                   char *text, size_t bytes)
{
  const norm_forward job = plan_fwd(ctx, a);
  norm_forward_plan(&job, text, bytes);
}

/* Streaming depends only on the outputs that are present. */
static bool may_stream(const tg_context *ctx, const tg_rms_norm_swiglu_bwd_args *a,
                       const tg_tensor *t)
{
  return !tgi_present(t) || (tgi_streams(ctx, t, &a->dy) && tgi_streams(ctx, t, &a->gate));
}

static norm_backward plan_bwd(const tg_context *ctx, const tg_rms_norm_swiglu_bwd_args *a)
{
  return (norm_backward){.dy = &a->dy,
                         .x = &a->x,
                         .gate = &a->gate,
                         .weight = &a->weight,
                         .rstd = &a->rstd,
                         .dx = &a->dx,
                         .dgate = &a->dgate,
                         .partial = tgi_present(&a->dweight) ? a->workspace : NULL,
                         .blocks = tgi_cut_rows(a->x.shape[0]),
                         .stream = may_stream(ctx, a, &a->dx) && may_stream(ctx, a, &a->dgate)};
}

static void bwd_blocks(void *arg, int64_t begin, int64_t end, int thread)
{
  (void)thread;
  norm_backward_blocks(arg, begin, end, NORM_GATED);
}

size_t TGI_WORKSPACE(rms_norm_swiglu_bwd)(const tg_context *ctx,
                                          const tg_rms_norm_swiglu_bwd_args *a)
{
  (void)ctx;
  return norm_backward_bytes(&a->x, &a->dweight);
}

tg_status TGI_KERNEL(rms_norm_swiglu_bwd)(const tg_context *ctx,
                                          const tg_rms_norm_swiglu_bwd_args *a)
{
  norm_backward job = plan_bwd(ctx, a);
  tgi_for(ctx, job.blocks.count, 1, bwd_blocks, &job);
  norm_backward_finish(ctx, &job, &a->dweight);
  return TG_OK;
}

void TGI_PLAN(rms_norm_swiglu_bwd)(const tg_context *ctx, const tg_rms_norm_swiglu_bwd_args *a,
                                   char *text, size_t bytes)
{
  const norm_backward job = plan_bwd(ctx, a);
  norm_backward_plan(&job, text, bytes);
}

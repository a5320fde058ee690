/* Rotary position embedding on the CPU; rotate_heads.h has the kernel. */
#include "ops/kernels.h"
#include "ops/shared/rotation/rotate_heads.h"

#include <stdio.h>

static tgi_rotate_job plan(const tg_context *ctx, tgi_rotation r, const tg_tensor *q,
                           const tg_tensor *q_out, const tg_tensor *k, const tg_tensor *k_out)
{
  return (tgi_rotate_job){
      .r = r,
      .side = {tgi_heads_of(ctx, &r, q, q_out), tgi_heads_of(ctx, &r, k, k_out)},
      .tokens = q->shape[0] * q->shape[1],
      .seq = q->shape[1],
      .head_dim = q->shape[3],
      .x = q->dtype,
  };
}

static tgi_rotate_job plan_fwd(const tg_context *ctx, const tg_rope_fwd_args *a)
{
  tgi_rotate_job job =
      plan(ctx, TGI_ROTATION(a, a->q.shape[3]), &a->q, &a->q_out, &a->k, &a->k_out);
  job.steps = a->rounding == TG_ROUNDING_HF && job.x != TG_F32;
  return job;
}

static tgi_rotate_job plan_bwd(const tg_context *ctx, const tg_rope_bwd_args *a)
{
  tgi_rotate_job job =
      plan(ctx, TGI_ROTATION(a, a->dq_out.shape[3]), &a->dq_out, &a->dq, &a->dk_out, &a->dk);
  job.back = true;
  return job;
}

static void rotate_chunk(void *arg, int64_t begin, int64_t end, int thread)
{
  const tgi_rotate_job *job = arg;
  (void)thread;
  TGI_SWITCH_FLOAT(
      job->x, X, const tgi_rotate_kind once = {.x = X, .step = TG_F32}, steps = {.x = X, .step = X};
      if ((int)X != TG_F32 && job->steps) { tgi_rotate_tokens(job, begin, end, steps); } //
      else { tgi_rotate_tokens(job, begin, end, once); });
}

static void describe(const tgi_rotate_job *job, char *text, size_t bytes)
{
  snprintf(text, bytes, "chunks of %lld tokens, %s stores", (long long)tgi_rotate_grain(job),
           job->side[0].stream ? "streaming" : "cached");
}

tg_status TGI_KERNEL(rope_fwd)(const tg_context *ctx, const tg_rope_fwd_args *a)
{
  tgi_rotate_job job = plan_fwd(ctx, a);
  tgi_for(ctx, job.tokens, tgi_rotate_grain(&job), rotate_chunk, &job);
  return TG_OK;
}

void TGI_PLAN(rope_fwd)(const tg_context *ctx, const tg_rope_fwd_args *a, char *text, size_t bytes)
{
  const tgi_rotate_job job = plan_fwd(ctx, a);
  describe(&job, text, bytes);
}

tg_status TGI_KERNEL(rope_bwd)(const tg_context *ctx, const tg_rope_bwd_args *a)
{
  tgi_rotate_job job = plan_bwd(ctx, a);
  tgi_for(ctx, job.tokens, tgi_rotate_grain(&job), rotate_chunk, &job);
  return TG_OK;
}

void TGI_PLAN(rope_bwd)(const tg_context *ctx, const tg_rope_bwd_args *a, char *text, size_t bytes)
{
  const tgi_rotate_job job = plan_bwd(ctx, a);
  describe(&job, text, bytes);
}

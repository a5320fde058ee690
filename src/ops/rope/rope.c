#include "ops/kernels.h"
#include "ops/rope/rotation_checks.h"

/* k and k_out come together. */
static void check_pair(tgi_call *call, const char *argument, const tg_tensor *in,
                       const tg_tensor *out)
{
  if (tgi_present(in) != tgi_present(out)) {
    tgi_fail(call, TG_BAD_ARGUMENT, argument, "expected %s, got %s",
             tgi_present(in) ? "an output beside the input" : "none without the input",
             tgi_present(out) ? "one" : "none");
  }
}

static tgi_call check_fwd(const tg_context *ctx, const tg_rope_fwd_args *a, bool sizing)
{
  tgi_call call = TGI_BEGIN(ctx, rope_fwd, a, sizing);
  if (call.status == TG_OK) {
    TGI_CHECK_ROTATION(&call, a, q);
    tgi_want_range(&call, "rounding", a->rounding, TG_ROUNDING_HF, TG_ROUNDING_ONCE);
    tgi_check_keys(&call, "k", &a->q, &a->k);
    tgi_check_like(&call, "q_out", &a->q_out, &a->q);
    check_pair(&call, "k_out", &a->k, &a->k_out);
    tgi_check_like(&call, "k_out", &a->k_out, &a->k);
    call.empty = tgi_no_heads(&a->q);
  }
  return call;
}

tg_status tg_rope_fwd(tg_context *ctx, const tg_rope_fwd_args *args)
{
  tgi_call call = check_fwd(ctx, args, false);
  return TGI_RUN(&call, rope_fwd, args);
}

tg_status tg_rope_fwd_workspace(const tg_context *ctx, const tg_rope_fwd_args *args, size_t *bytes)
{
  tgi_call call = check_fwd(ctx, args, true);
  return TGI_SIZE(&call, rope_fwd, args, bytes);
}

static tgi_call check_bwd(const tg_context *ctx, const tg_rope_bwd_args *a, bool sizing)
{
  tgi_call call = TGI_BEGIN(ctx, rope_bwd, a, sizing);
  if (call.status == TG_OK) {
    TGI_CHECK_ROTATION(&call, a, dq_out);
    tgi_check_keys(&call, "dk_out", &a->dq_out, &a->dk_out);
    tgi_check_like(&call, "dq", &a->dq, &a->dq_out);
    check_pair(&call, "dk", &a->dk_out, &a->dk);
    tgi_check_like(&call, "dk", &a->dk, &a->dk_out);
    call.empty = tgi_no_heads(&a->dq_out);
  }
  return call;
}

tg_status tg_rope_bwd_workspace(const tg_context *ctx, const tg_rope_bwd_args *args, size_t *bytes)
{
  tgi_call call = check_bwd(ctx, args, true);
  return TGI_SIZE(&call, rope_bwd, args, bytes);
}

tg_status tg_rope_bwd(tg_context *ctx, const tg_rope_bwd_args *args)
{
  tgi_call call = check_bwd(ctx, args, false);
  return TGI_RUN(&call, rope_bwd, args);
}

#include "ops/cross_entropy/loss_facts.h"

static void check_common(tgi_call *call, const tg_tensor *logits, const loss_facts *facts)
{
  if (logits->shape[1] == 0) {
    tgi_fail(call, TG_BAD_SHAPE, "logits", "expected a vocabulary of 1 or more, got 0");
  }
  check_loss_facts(call, facts);
}

static tgi_call check_fwd(const tg_context *ctx, const tg_cross_entropy_fwd_args *a, bool sizing)
{
  tgi_call call = TGI_BEGIN(ctx, cross_entropy_fwd, a, sizing);
  if (call.status == TG_OK) {
    const int64_t rows = a->logits.shape[0];
    const loss_facts facts = LOSS_FACTS(a);
    check_common(&call, &a->logits, &facts);
    TGI_WANT_SHAPE(&call, a, targets, rows);
    TGI_WANT_SHAPE(&call, a, loss, a->reduction == TG_REDUCTION_NONE ? rows : 1);
    TGI_WANT_SHAPE(&call, a, token_loss, rows);
    TGI_WANT_SHAPE(&call, a, log_prob, rows);
    TGI_WANT_SHAPE(&call, a, lse, rows);
    TGI_WANT_SHAPE(&call, a, argmax, rows);
    /* No rows still have a sum: 0, or 0 / n. */
    call.empty = rows == 0 && a->reduction == TG_REDUCTION_NONE;
  }
  return call;
}

tg_status tg_cross_entropy_fwd_workspace(const tg_context *ctx,
                                         const tg_cross_entropy_fwd_args *args, size_t *bytes)
{
  tgi_call call = check_fwd(ctx, args, true);
  return TGI_SIZE(&call, cross_entropy_fwd, args, bytes);
}

tg_status tg_cross_entropy_fwd(tg_context *ctx, const tg_cross_entropy_fwd_args *args)
{
  tgi_call call = check_fwd(ctx, args, false);
  TGI_WANT_WORKSPACE(&call, cross_entropy_fwd, args);
  return TGI_RUN(&call, cross_entropy_fwd, args);
}

static tgi_call check_bwd(const tg_context *ctx, const tg_cross_entropy_bwd_args *a, bool sizing)
{
  tgi_call call = TGI_BEGIN(ctx, cross_entropy_bwd, a, sizing);
  if (call.status == TG_OK) {
    const int64_t rows = a->logits.shape[0];
    const loss_facts facts = LOSS_FACTS(a);
    check_common(&call, &a->logits, &facts);
    TGI_WANT_SHAPE(&call, a, targets, rows);
    TGI_WANT_SHAPE(&call, a, lse, rows);
    TGI_WANT_SHAPE(&call, a, dloss, a->reduction == TG_REDUCTION_NONE ? rows : 1);
    TGI_WANT_SHAPE(&call, a, dlogits, rows, a->logits.shape[1]);
    TGI_WANT_DTYPE(&call, a, dlogits, TG_DTYPE_BIT(a->logits.dtype));
    call.empty = rows == 0;
  }
  return call;
}

tg_status tg_cross_entropy_bwd(tg_context *ctx, const tg_cross_entropy_bwd_args *args)
{
  tgi_call call = check_bwd(ctx, args, false);
  return TGI_RUN(&call, cross_entropy_bwd, args);
}

tg_status tg_cross_entropy_bwd_workspace(const tg_context *ctx,
                                         const tg_cross_entropy_bwd_args *args, size_t *bytes)
{
  tgi_call call = check_bwd(ctx, args, true);
  return TGI_SIZE(&call, cross_entropy_bwd, args, bytes);
}

#include "ops/kernels.h"

/* Facts that both directions share. */
typedef struct common {
  const tg_tensor *logits, *num_items;
  int64_t num_items_in_batch;
  float label_smoothing, z_loss, softcap;
  tg_reduction reduction;
} common;

static void check_scalars(tgi_call *call, const common *c)
{
  tgi_want_range(call, "reduction", c->reduction, TG_REDUCTION_NONE, TG_REDUCTION_NUM_ITEMS);
  if (!(c->label_smoothing >= 0 && c->label_smoothing <= 1)) {
    tgi_fail(call, TG_BAD_ARGUMENT, "label_smoothing", "expected 0 to 1, got %g",
             (double)c->label_smoothing);
  }
  tgi_want_finite(call, "z_loss", c->z_loss);
  if (c->z_loss < 0) {
    tgi_fail(call, TG_BAD_ARGUMENT, "z_loss", "expected 0 or more, got %g", (double)c->z_loss);
  }
  tgi_want_finite(call, "softcap", c->softcap);
  if (c->softcap < 0) {
    tgi_fail(call, TG_BAD_ARGUMENT, "softcap", "expected 0 (none) or more, got %g",
             (double)c->softcap);
  }
}

static void check_num_items(tgi_call *call, const common *c)
{
  if (tgi_present(c->num_items) && tgi_numel(c->num_items) != 1) {
    tgi_fail(call, TG_BAD_SHAPE, "num_items", "expected 1 element, got %lld",
             (long long)tgi_numel(c->num_items));
  }
  if (c->reduction != TG_REDUCTION_NUM_ITEMS) {
    if (tgi_present(c->num_items)) {
      tgi_fail(call, TG_BAD_ARGUMENT, "num_items",
               "expected none without TG_REDUCTION_NUM_ITEMS, got some");
    }
    tgi_want_range(call, "num_items_in_batch", c->num_items_in_batch, 0, 0);
  } else if (tgi_present(c->num_items)) {
    tgi_want_range(call, "num_items_in_batch", c->num_items_in_batch, 0, 0);
  } else {
    tgi_want_range(call, "num_items_in_batch", c->num_items_in_batch, 1, INT64_MAX);
  }
}

static void check_common(tgi_call *call, const common *c)
{
  if (c->logits->shape[1] == 0) {
    tgi_fail(call, TG_BAD_SHAPE, "logits", "expected a vocabulary of 1 or more, got 0");
  }
  check_scalars(call, c);
  check_num_items(call, c);
}

static tgi_call check_fwd(const tg_context *ctx, const tg_cross_entropy_fwd_args *a, bool sizing)
{
  tgi_call call = TGI_BEGIN(ctx, cross_entropy_fwd, a, sizing);
  if (call.status == TG_OK) {
    const int64_t rows = a->logits.shape[0];
    const common c = {&a->logits, &a->num_items, a->num_items_in_batch, a->label_smoothing,
                      a->z_loss,  a->softcap,    a->reduction};
    check_common(&call, &c);
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
    const common c = {&a->logits, &a->num_items, a->num_items_in_batch, a->label_smoothing,
                      a->z_loss,  a->softcap,    a->reduction};
    check_common(&call, &c);
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

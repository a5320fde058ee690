#include "ops/kernels.h"

static void check_slots(tgi_call *call, int64_t tokens, int64_t k)
{
  if (k < 1) {
    tgi_fail(call, TG_BAD_SHAPE, "row", "expected at least 1 row for a token, got %lld",
             (long long)k);
  } else if (tokens > INT32_MAX / k) {
    tgi_fail(call, TG_BAD_SHAPE, "row", "expected fewer than 2^31 of them, got [%lld, %lld]",
             (long long)tokens, (long long)k);
  }
}

void tgi_moe_combine_fwd_check(tgi_call *call, const tg_moe_combine_fwd_args *a)
{
  const int64_t tokens = a->row.shape[0], k = a->row.shape[1], hidden = a->y.shape[1];
  TGI_WANT_SHAPE(call, a, weights, tokens, k);
  TGI_WANT_DTYPE(call, a, weights, tgi_like_or_f32(&a->y));
  TGI_WANT_SHAPE(call, a, residual, tokens, hidden);
  TGI_WANT_DTYPE(call, a, residual, TG_DTYPE_BIT(a->y.dtype));
  TGI_WANT_SHAPE(call, a, out, tokens, hidden);
  TGI_WANT_DTYPE(call, a, out, TG_DTYPE_BIT(a->y.dtype));
  check_slots(call, tokens, k);
  tgi_want_range(call, "rounding", a->rounding, TG_ROUNDING_HF, TG_ROUNDING_ONCE);
  call->empty = tokens == 0 || hidden == 0;
}

void tgi_moe_combine_bwd_check(tgi_call *call, const tg_moe_combine_bwd_args *a)
{
  const int64_t tokens = a->dout.shape[0], hidden = a->dout.shape[1], k = a->row.shape[1];
  const bool dy = tgi_present(&a->dy), dweights = tgi_present(&a->dweights);
  const int64_t rows = dy ? a->dy.shape[0] : a->y.shape[0];
  TGI_WANT_SHAPE(call, a, row, tokens, k);
  TGI_WANT_SHAPE(call, a, weights, tokens, k);
  TGI_WANT_DTYPE(call, a, weights, tgi_like_or_f32(&a->dout));
  TGI_WANT_SHAPE(call, a, y, rows, hidden);
  TGI_WANT_DTYPE(call, a, y, TG_DTYPE_BIT(a->dout.dtype));
  TGI_WANT_SHAPE(call, a, dy, rows, hidden);
  TGI_WANT_DTYPE(call, a, dy, TG_DTYPE_BIT(a->dout.dtype));
  TGI_WANT_SHAPE(call, a, slot, rows);
  TGI_WANT_SHAPE(call, a, dweights, tokens, k);
  if (dweights && !tgi_present(&a->weights)) {
    tgi_fail(call, TG_BAD_ARGUMENT, "weights", "expected a tensor beside dweights, got none");
  }
  TGI_WANT_DTYPE(call, a, dweights, TG_DTYPE_BIT(a->weights.dtype));
  check_slots(call, tokens, k);
  if (dy && !tgi_present(&a->slot)) {
    tgi_fail(call, TG_BAD_ARGUMENT, "slot", "expected a tensor beside dy, got none");
  }
  if (dweights && !tgi_present(&a->y)) {
    tgi_fail(call, TG_BAD_ARGUMENT, "y", "expected a tensor beside dweights, got none");
  }
  if (!dy && !dweights) {
    tgi_fail(call, TG_BAD_ARGUMENT, "dy", "expected dy or dweights, got none");
  }
}

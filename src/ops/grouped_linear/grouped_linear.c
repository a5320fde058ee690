#include "ops/grouped_linear/grouped_checks.h"

static uint32_t weight_dtypes(const tg_tensor *x)
{
  return x->dtype == TG_F32 ? TGI_BITS_FLOATS : tgi_like_or_f32(x);
}

void tgi_grouped_linear_fwd_check(tgi_call *call, const tg_grouped_linear_fwd_args *a)
{
  const grouped_rows g = rows_of_fwd(a);
  const int64_t in = a->x.shape[1], out = a->weight.shape[a->in_first ? 2 : 1];
  TGI_WANT_SHAPE(call, a, weight, g.experts, a->in_first ? in : out, a->in_first ? out : in);
  TGI_WANT_DTYPE(call, a, weight, weight_dtypes(&a->x));
  TGI_WANT_SHAPE(call, a, bias, g.experts, out);
  TGI_WANT_DTYPE(call, a, bias, tgi_like_or_f32(&a->weight));
  want_activation(call, TGI_GATED_CHOICE(a), &a->preactivation);
  if (a->activation != TG_GATED_NONE && out % 2 != 0) {
    tgi_fail(call, TG_BAD_SHAPE, "weight", "expected an even number of outputs, got %lld",
             (long long)out);
  }
  TGI_WANT_SHAPE(call, a, y, g.rows, a->activation == TG_GATED_NONE ? out : out / 2);
  TGI_WANT_DTYPE(call, a, y, tgi_like_or_f32(&a->x));
  TGI_WANT_SHAPE(call, a, preactivation, g.rows, out);
  TGI_WANT_DTYPE(call, a, preactivation, TG_DTYPE_BIT(a->y.dtype));
  want_groups(call, &g, "weight");
  call->empty = g.rows == 0 || out == 0;
}

void tgi_grouped_linear_bwd_check(tgi_call *call, const tg_grouped_linear_bwd_args *a)
{
  const grouped_rows g = rows_of_bwd(a);
  const int64_t in = a->x.shape[1], out = a->weight.shape[a->in_first ? 2 : 1];
  const int64_t first = a->in_first ? in : out, last = a->in_first ? out : in;
  TGI_WANT_SHAPE(call, a, weight, g.experts, first, last);
  TGI_WANT_DTYPE(call, a, weight, weight_dtypes(&a->x));
  TGI_WANT_SHAPE(call, a, dy, g.rows, out);
  TGI_WANT_DTYPE(call, a, dy, tgi_like_or_f32(&a->x));
  TGI_WANT_SHAPE(call, a, dx, g.rows, in);
  TGI_WANT_DTYPE(call, a, dx, TG_DTYPE_BIT(a->x.dtype));
  TGI_WANT_SHAPE(call, a, dweight, g.experts, first, last);
  TGI_WANT_DTYPE(call, a, dweight, tgi_like_or_f32(&a->weight));
  TGI_WANT_SHAPE(call, a, dbias, g.experts, out);
  TGI_WANT_DTYPE(call, a, dbias, tgi_like_or_f32(&a->weight));
  want_groups(call, &g, "weight");
  call->empty = g.rows == 0 && !a->overwrite;
}

#include "ops/grouped_linear/grouped_rows.h"
#include "ops/shared/gated/gated_choice.h"

static uint32_t weight_dtypes(const tg_tensor *x)
{
  return x->dtype == TG_F32 ? TGI_BITS_FLOATS : tgi_like_or_f32(x);
}

/* What both directions have: experts, offsets, slots. */
static void check_groups(tgi_call *call, const grouped_rows *g)
{
  if (g->experts < 1 || g->experts >= INT32_MAX) {
    tgi_fail(call, TG_BAD_SHAPE, "weight", "expected 1 to 2^31 - 2 experts, got %lld",
             (long long)g->experts);
  }
  tgi_want_shape(call, "offsets", g->offsets, 1, (const int64_t[]){g->experts + 1});
  if (g->rows > INT32_MAX) {
    tgi_fail(call, TG_BAD_SHAPE, "offsets", "expected fewer than 2^31 rows, got %lld",
             (long long)g->rows);
  }
  if (!tgi_present(g->slot)) {
    tgi_want_range(call, "slots_per_row", g->slots_per_row, 0, 0);
    return;
  }
  tgi_want_range(call, "slots_per_row", g->slots_per_row, 1, INT32_MAX);
  if (call->status == TG_OK && g->x_rows > INT32_MAX / g->slots_per_row) {
    tgi_fail(call, TG_BAD_SHAPE, "x", "expected fewer than 2^31 slots, got %lld rows of %lld",
             (long long)g->x_rows, (long long)g->slots_per_row);
  }
}

/* An activation halves y's columns; what comes before it is a result only beside one. */
static void check_activation(tgi_call *call, const tg_grouped_linear_fwd_args *a, int64_t out)
{
  tgi_want_gated_choice(call, TGI_GATED_CHOICE(a), TG_GATED_NONE);
  if (a->activation == TG_GATED_NONE && tgi_present(&a->preactivation)) {
    tgi_fail(call, TG_BAD_ARGUMENT, "preactivation",
             "expected none without an activation, got a tensor");
  } else if (a->activation != TG_GATED_NONE && out % 2 != 0) {
    tgi_fail(call, TG_BAD_SHAPE, "weight", "expected an even number of outputs, got %lld",
             (long long)out);
  }
}

void tgi_grouped_linear_fwd_check(tgi_call *call, const tg_grouped_linear_fwd_args *a)
{
  const grouped_rows g = rows_of_fwd(a);
  const int64_t in = a->x.shape[1], out = a->weight.shape[a->in_first ? 2 : 1];
  TGI_WANT_SHAPE(call, a, weight, g.experts, a->in_first ? in : out, a->in_first ? out : in);
  TGI_WANT_DTYPE(call, a, weight, weight_dtypes(&a->x));
  TGI_WANT_SHAPE(call, a, bias, g.experts, out);
  TGI_WANT_DTYPE(call, a, bias, tgi_like_or_f32(&a->weight));
  check_activation(call, a, out);
  TGI_WANT_SHAPE(call, a, y, g.rows, a->activation == TG_GATED_NONE ? out : out / 2);
  TGI_WANT_DTYPE(call, a, y, tgi_like_or_f32(&a->x));
  TGI_WANT_SHAPE(call, a, preactivation, g.rows, out);
  TGI_WANT_DTYPE(call, a, preactivation, TG_DTYPE_BIT(a->y.dtype));
  check_groups(call, &g);
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
  check_groups(call, &g);
  call->empty = g.rows == 0 && !a->overwrite;
}

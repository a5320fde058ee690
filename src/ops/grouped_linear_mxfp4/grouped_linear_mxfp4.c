#include "ops/grouped_linear/grouped_checks.h"
#include "ops/grouped_linear_mxfp4/grouped_mxfp4_rows.h"
#include "ops/grouped_linear_mxfp4/mxfp4_packed.h"

/* Whole groups; then the bytes that such weights have; then, where the host sees it, the header,
 * which kernels trust after this. */
static void want_weight(tgi_call *call, const char *with_in, const tg_tensor *weight,
                        int64_t experts, int64_t out, int64_t in)
{
  if (call->status == TG_OK && in % TGI_MXFP4_GROUP != 0) {
    tgi_fail(call, TG_BAD_SHAPE, with_in, "expected a multiple of 32 inputs, got %lld",
             (long long)in);
  }
  const int64_t bytes = tg_grouped_linear_mxfp4_packed_bytes(experts, out, in);
  if (call->status == TG_OK && (bytes == 0 || bytes != weight->shape[0])) {
    tgi_fail(call, TG_BAD_SHAPE, "weight",
             "expected the %lld bytes of a packed [%lld, %lld, %lld], got %lld", (long long)bytes,
             (long long)experts, (long long)out, (long long)in, (long long)weight->shape[0]);
  }
  if (!tgi_want_packed(call, weight, TGI_MXFP4_MAGIC, TGI_MXFP4_VERSION, out, in)) {
    return;
  }
  const tgi_packed_header h = tgi_packed_header_of(weight->data);
  if (h.experts != experts) {
    tgi_fail(call, TG_BAD_SHAPE, "weight", "expected %lld packed experts, got %lld",
             (long long)experts, (long long)h.experts);
  }
}

void tgi_grouped_linear_mxfp4_fwd_check(tgi_call *call, const tg_grouped_linear_mxfp4_fwd_args *a)
{
  const grouped_rows g = rows_of_mxfp4_fwd(a);
  const int64_t out = outputs_of_mxfp4(a);
  want_groups(call, &g, "offsets");
  want_activation(call, TGI_GATED_CHOICE(a), &a->preactivation);
  TGI_WANT_SHAPE(call, a, bias, g.experts, out);
  TGI_WANT_DTYPE(call, a, bias, tgi_like_or_f32(&a->x));
  TGI_WANT_SHAPE(call, a, y, g.rows, a->y.shape[1]);
  TGI_WANT_DTYPE(call, a, y, tgi_like_or_f32(&a->x));
  TGI_WANT_SHAPE(call, a, preactivation, g.rows, out);
  TGI_WANT_DTYPE(call, a, preactivation, TG_DTYPE_BIT(a->y.dtype));
  want_weight(call, "x", &a->weight, g.experts, out, a->x.shape[1]);
  call->empty = g.rows == 0 || out == 0;
}

void tgi_grouped_linear_mxfp4_bwd_check(tgi_call *call, const tg_grouped_linear_mxfp4_bwd_args *a)
{
  const grouped_rows g = rows_of_mxfp4_bwd(a);
  want_groups(call, &g, "offsets");
  TGI_WANT_DTYPE(call, a, dy, tgi_like_or_f32(&a->dx));
  TGI_WANT_SHAPE(call, a, dx, g.rows, a->dx.shape[1]);
  TGI_WANT_SHAPE(call, a, dbias, g.experts, a->dy.shape[1]);
  TGI_WANT_DTYPE(call, a, dbias, tgi_like_or_f32(&a->dx));
  want_weight(call, "dx", &a->weight, g.experts, a->dy.shape[1], a->dx.shape[1]);
  call->empty = g.rows == 0;
}

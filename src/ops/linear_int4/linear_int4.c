#include "ops/kernels.h"
#include "ops/linear_int4/linear_int4_packed.h"

/* True if some layout of a weight [out, in] has that many bytes. */
static bool is_packed_size(int64_t bytes, int64_t out, int64_t in)
{
  for (int64_t group_size = 32; group_size <= 128; group_size *= 2) {
    for (int form = 0; form < 4; form++) {
      const tgi_int4_layout l = {in, group_size, form & 1 ? TG_F32 : TG_F16, (form & 2) != 0};
      if (bytes > 0 && bytes == tgi_packed_size(out, tgi_int4_panel_bytes(&l))) {
        return true;
      }
    }
  }
  return false;
}

/* The header says what the bytes are; kernels trust it after this. */
static void check_weight(tgi_call *call, const tg_linear_int4_fwd_args *a)
{
  const int64_t in = a->x.shape[1], out = a->y.shape[1];
  if (call->status == TG_OK &&
      (in > INT64_MAX / TGI_INT4_LINE_BYTES / 8 || !is_packed_size(a->weight.shape[0], out, in))) {
    tgi_fail(call, TG_BAD_SHAPE, "weight", "expected the bytes of a packed [%lld, %lld], got %lld",
             (long long)out, (long long)in, (long long)a->weight.shape[0]);
  }
  if (!tgi_want_packed(call, &a->weight, TGI_INT4_MAGIC, TGI_INT4_VERSION, out, in)) {
    return;
  }
  const tgi_packed_header h = tgi_packed_header_of(a->weight.data);
  const bool known = h.scale_dtype == TG_F32 || h.scale_dtype == TG_F16;
  if (!known || !tgi_int4_group_size(h.group_size)) {
    tgi_fail(call, TG_BAD_ARGUMENT, "weight", "expected a weight packed for this op, got others");
    return;
  }
  const tgi_int4_layout l = tgi_int4_layout_of(&h);
  TGI_WANT_SHAPE(call, a, weight, tgi_packed_size(out, tgi_int4_panel_bytes(&l)));
}

void tgi_linear_int4_fwd_check(tgi_call *call, const tg_linear_int4_fwd_args *a)
{
  const int64_t rows = a->x.shape[0], out = a->y.shape[1];
  TGI_WANT_SHAPE(call, a, bias, out);
  TGI_WANT_DTYPE(call, a, bias, tgi_like_or_f32(&a->x));
  TGI_WANT_SHAPE(call, a, y, rows, out);
  TGI_WANT_DTYPE(call, a, y, tgi_like_or_f32(&a->x));
  check_weight(call, a);
  call->empty = rows == 0 || out == 0;
}

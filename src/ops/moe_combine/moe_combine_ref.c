/* Combine, reference: the contract's steps through tgi_round. */
#include "ops/moe_combine/combine_rows.h"

static double sum_of(const tg_moe_combine_fwd_args *a, int64_t t, int64_t i)
{
  const tg_dtype dtype = a->y.dtype;
  double sum = 0;
  for (int64_t j = 0; j < a->row.shape[1]; j++) {
    const int64_t r = slot_row(&a->row, t, j);
    if (r >= 0) {
      const double y = tgi_load(tgi_row(&a->y, r), dtype, i);
      sum += tgi_round(dtype, y * slot_weight(&a->weights, t, j));
    }
  }
  return tgi_round(dtype, sum);
}

tg_status TGI_KERNEL(moe_combine_fwd)(const tg_context *ctx, const tg_moe_combine_fwd_args *a)
{
  const tg_dtype dtype = a->y.dtype;
  const tg_status status = check_rows(ctx, "moe_combine_fwd", &a->row, a->y.shape[0]);
  for (int64_t t = 0; t < a->out.shape[0] && status == TG_OK; t++) {
    for (int64_t i = 0; i < a->out.shape[1]; i++) {
      double v = sum_of(a, t, i);
      if (tgi_present(&a->residual)) {
        v += tgi_load(tgi_row(&a->residual, t), dtype, i);
      }
      tgi_store(tgi_row(&a->out, t), dtype, i, v);
    }
  }
  return status;
}

static void put_dy(const tg_moe_combine_bwd_args *a, int64_t r)
{
  const int64_t k = a->row.shape[1], s = ((const int32_t *)a->slot.data)[r];
  const bool own = slot_row(&a->row, s / k, s % k) == r;
  for (int64_t i = 0; i < a->dy.shape[1]; i++) {
    const double d = tgi_load(tgi_row(&a->dout, s / k), a->dout.dtype, i);
    tgi_store(tgi_row(&a->dy, r), a->dy.dtype, i,
              own ? slot_weight(&a->weights, s / k, s % k) * d : 0);
  }
}

static void put_dweight(const tg_moe_combine_bwd_args *a, int64_t t, int64_t j)
{
  const int64_t r = slot_row(&a->row, t, j);
  double sum = 0;
  for (int64_t i = 0; i < a->dout.shape[1] && r >= 0; i++) {
    sum += tgi_round(a->dout.dtype, tgi_load(tgi_row(&a->dout, t), a->dout.dtype, i) *
                                        tgi_load(tgi_row(&a->y, r), a->y.dtype, i));
  }
  tgi_store(tgi_row(&a->dweights, t), a->dweights.dtype, j, sum);
}

tg_status TGI_KERNEL(moe_combine_bwd)(const tg_context *ctx, const tg_moe_combine_bwd_args *a)
{
  const tg_status status = check_combine_bwd(ctx, a);
  if (status != TG_OK) {
    return status;
  }
  for (int64_t r = 0; tgi_present(&a->dy) && r < a->dy.shape[0]; r++) {
    put_dy(a, r);
  }
  for (int64_t s = 0; tgi_present(&a->dweights) && s < tgi_numel(&a->row); s++) {
    put_dweight(a, s / a->row.shape[1], s % a->row.shape[1]);
  }
  return TG_OK;
}

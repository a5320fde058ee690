/** Rows of experts: which rows an expert has, and which row of x each multiplies. For the op's
 * checks, its reference and its CPU kernels. */
#ifndef TGI_OPS_GROUPED_ROWS_H
#define TGI_OPS_GROUPED_ROWS_H

#include "core/values/half.h"
#include "ops/kernels.h"

typedef struct grouped_rows {
  const tg_tensor *offsets, *slot;
  int64_t experts, rows, x_rows, slots_per_row;
} grouped_rows;

static inline int64_t count_rows(const tg_tensor *x, const tg_tensor *slot)
{
  return tgi_present(slot) ? slot->shape[0] : x->shape[0];
}

static inline grouped_rows rows_of_fwd(const tg_grouped_linear_fwd_args *a)
{
  return (grouped_rows){&a->offsets,        &a->slot,
                        a->weight.shape[0], count_rows(&a->x, &a->slot),
                        a->x.shape[0],      a->slots_per_row};
}

static inline grouped_rows rows_of_bwd(const tg_grouped_linear_bwd_args *a)
{
  return (grouped_rows){&a->offsets,        &a->slot,
                        a->weight.shape[0], count_rows(&a->x, &a->slot),
                        a->x.shape[0],      a->slots_per_row};
}

/** First row of expert e; of e = experts: the first row of none. */
static inline int64_t first_row(const grouped_rows *g, int64_t e)
{
  return ((const int32_t *)g->offsets->data)[e];
}

/** Row of x of row r. */
static inline int64_t source_row(const grouped_rows *g, int64_t r)
{
  return tgi_present(g->slot) ? ((const int32_t *)g->slot->data)[r] / g->slots_per_row : r;
}

/** The weight of row r's slot, of weights [x_rows, slots_per_row]. */
static inline double weight_of_row(const grouped_rows *g, const tg_tensor *weights, int64_t r)
{
  const int64_t s = ((const int32_t *)g->slot->data)[r], t = s / g->slots_per_row;
  return tgi_load(tgi_row(weights, t), weights->dtype, s - t * g->slots_per_row);
}

/** OK, or BAD_ARGUMENT with a message that names the first offset or slot out of range. */
static inline tg_status check_rows(const tg_context *ctx, const char *op, const grouped_rows *g)
{
  for (int64_t e = 0, low = 0; e <= g->experts; e++) {
    const int64_t at = first_row(g, e), high = e == 0 ? 0 : g->rows;
    if (at < low || at > high) {
      return tgi_report(ctx, TG_BAD_ARGUMENT, "%s: offsets[%lld]: expected %lld to %lld, got %lld",
                        op, (long long)e, (long long)low, (long long)high, (long long)at);
    }
    low = at;
  }
  const int64_t slots = g->x_rows * g->slots_per_row;
  for (int64_t r = 0; tgi_present(g->slot) && r < first_row(g, g->experts); r++) {
    const int64_t s = ((const int32_t *)g->slot->data)[r];
    if (s < 0 || s >= slots) {
      return tgi_report(ctx, TG_BAD_ARGUMENT, "%s: slot[%lld]: expected 0 to %lld, got %lld", op,
                        (long long)r, (long long)slots - 1, (long long)s);
    }
  }
  return TG_OK;
}

/** Matrix e of a view of rank 3, as a view of rank 2; matrices may be absent. */
static inline tg_tensor matrix_of(const tg_tensor *t, int64_t e)
{
  tg_tensor m = {.data = t->data, .dtype = t->dtype, .device = t->device};
  if (t->data) {
    m.data = (char *)t->data + e * tgi_stride(t, 0) * (int64_t)tg_dtype_bytes(t->dtype);
  }
  m.ndim = 2;
  for (int axis = 0; axis < 2; axis++) {
    m.shape[axis] = t->shape[axis + 1];
    m.stride[axis] = tgi_stride(t, axis + 1);
  }
  return m;
}

#endif

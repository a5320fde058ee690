#include "ops/grouped_linear/grouped_activation_shape.h"

/* dbias: the backward's. k: each of x's ROWS has N slots, which gather; without: no slots. The f32
 * flags are those of linear. swiglu, clamped: an activation, of halves unless interleaved; pre:
 * with its preactivation. */
const char tgi_grouped_linear_mxfp4_fwd_syntax[] =
    "ROWSxINxOUT_eEXPERTS[_kN][_bias][_yf32][_bf32][_dbias][_swiglu|_clamped][_interleaved][_pre]";
const char tgi_grouped_linear_mxfp4_bwd_syntax[] = "ROWSxINxOUT_eEXPERTS[_yf32][_dbias][_bf32]";

static tg_tensor packed_of(int64_t experts, int64_t out, int64_t in)
{
  return tg_tensor_1d(NULL, TG_U8, tg_grouped_linear_mxfp4_packed_bytes(experts, out, in));
}

void tgi_grouped_linear_mxfp4_fwd_shape(tgi_shape *s, tg_grouped_linear_mxfp4_fwd_args *a)
{
  const int64_t x_rows = tgi_shape_extent(s, 0), in = tgi_shape_extent(s, 1);
  const int64_t out = tgi_shape_extent(s, 2), experts = tgi_shape_i32(s, "e", 1);
  const int64_t k = tgi_shape_i32(s, "k", 0);
  const tg_dtype y = tgi_shape_flag(s, "yf32") ? TG_F32 : s->dtype;
  const tg_dtype bias = tgi_shape_flag(s, "bf32") ? TG_F32 : s->dtype;
  int64_t rows;
  if (__builtin_mul_overflow(x_rows, k > 0 ? k : 1, &rows)) {
    rows = INT64_MAX; /* refused for its size */
  }
  *a = (tg_grouped_linear_mxfp4_fwd_args){
      .x = tg_tensor_2d(NULL, s->dtype, x_rows, in),
      .weight = packed_of(experts, out, in),
      .offsets = tg_tensor_1d(NULL, TG_I32, experts + 1),
      .y = tg_tensor_2d(NULL, y, rows, out),
      .slots_per_row = k,
  };
  (void)tgi_shape_flag(s, "dbias");
  if (tgi_shape_flag(s, "bias")) {
    a->bias = tg_tensor_2d(NULL, bias, experts, out);
  }
  if (k > 0) {
    a->slot = tg_tensor_1d(NULL, TG_I32, rows);
  }
  tgi_read_activation(s, (tgi_activation_slots){&a->activation, &a->packing, &a->alpha, &a->limit,
                                                &a->preactivation, &a->y});
}

void tgi_grouped_linear_mxfp4_fwd_cost(const tg_grouped_linear_mxfp4_fwd_args *a, tgi_cost *cost)
{
  const double out = (double)a->y.shape[1] * (a->activation == TG_GATED_NONE ? 1 : 2);
  const double rows = (double)a->y.shape[0], experts = (double)(a->offsets.shape[0] - 1);
  cost->flops = 2.0 * rows * out * (double)a->x.shape[1];
  if (rows < experts) { /* a row has one expert: no more weights and biases are read */
    const double bias = (double)tgi_numel(&a->bias) * (double)tg_dtype_bytes(a->bias.dtype);
    const double all = (double)a->weight.shape[0] + (a->bias.ndim ? bias : 0);
    cost->read_bytes -= all * (experts - rows) / experts;
  }
}

void tgi_grouped_linear_mxfp4_bwd_shape(tgi_shape *s, tg_grouped_linear_mxfp4_bwd_args *a)
{
  const int64_t rows = tgi_shape_extent(s, 0), in = tgi_shape_extent(s, 1);
  const int64_t out = tgi_shape_extent(s, 2), experts = tgi_shape_i32(s, "e", 1);
  const tg_dtype dy = tgi_shape_flag(s, "yf32") ? TG_F32 : s->dtype;
  *a = (tg_grouped_linear_mxfp4_bwd_args){
      .dy = tg_tensor_2d(NULL, dy, rows, out),
      .weight = packed_of(experts, out, in),
      .offsets = tg_tensor_1d(NULL, TG_I32, experts + 1),
      .dx = tg_tensor_2d(NULL, s->dtype, rows, in),
  };
  const tg_dtype dbias = tgi_shape_flag(s, "bf32") ? TG_F32 : s->dtype;
  if (tgi_shape_flag(s, "dbias")) {
    a->dbias = tg_tensor_2d(NULL, dbias, experts, out);
  }
}

void tgi_grouped_linear_mxfp4_bwd_cost(const tg_grouped_linear_mxfp4_bwd_args *a, tgi_cost *cost)
{
  cost->flops = 2.0 * (double)tgi_numel(&a->dy) * (double)a->dx.shape[1];
}

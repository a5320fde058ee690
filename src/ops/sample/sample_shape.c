#include "ops/shape.h"

/* Numbers are hundredths: t70 is a temperature of 0.7; kN, pN and minN the filters, repN the
 * penalty, histN a history of N ids, with `len` its lengths, with `pos` positions,
 * with `seeds` a seed for each. */
const char tgi_sample_fwd_syntax[] =
    "ROWSxVOCAB[_tN][_kN][_pN][_minN][_repN][_histN][_len][_pos][_seeds][_lp][_i32]";

static float hundredths(tgi_shape *s, const char *key, int64_t fallback)
{
  return (float)tgi_shape_number(s, key, fallback) / 100;
}

void tgi_sample_fwd_shape(tgi_shape *s, tg_sample_fwd_args *a)
{
  const int64_t rows = tgi_shape_extent(s, 0), vocab = tgi_shape_extent(s, 1);
  const int64_t history = tgi_shape_number(s, "hist", -1);
  const tg_dtype ids = tgi_shape_flag(s, "i32") ? TG_I32 : TG_I64;
  *a = (tg_sample_fwd_args){
      .logits = tg_tensor_2d(NULL, s->dtype, rows, vocab),
      .ids = tg_tensor_1d(NULL, ids, rows),
      .seed = 1234567890123,
      .position = 17,
      .temperature = hundredths(s, "t", 100),
      .top_p = hundredths(s, "p", 0),
      .min_p = hundredths(s, "min", 0),
      .repetition_penalty = hundredths(s, "rep", 0),
      .top_k = tgi_shape_i32(s, "k", 0),
  };
  if (history >= 0) {
    a->history = tg_tensor_2d(NULL, ids, rows, history);
  }
  if (tgi_shape_flag(s, "len")) {
    a->history_lengths = tg_tensor_1d(NULL, TG_I32, rows);
  }
  if (tgi_shape_flag(s, "pos")) {
    a->positions = tg_tensor_1d(NULL, TG_I64, rows);
  }
  if (tgi_shape_flag(s, "seeds")) {
    a->seeds = tg_tensor_1d(NULL, ids, rows);
  }
  if (tgi_shape_flag(s, "lp")) {
    a->log_prob = tg_tensor_1d(NULL, TG_F32, rows);
  }
}

void tgi_sample_fwd_cost(const tg_sample_fwd_args *a, tgi_cost *cost)
{
  cost->flops = (a->temperature == 0 ? 1.0 : 20.0) * (double)tgi_numel(&a->logits);
}

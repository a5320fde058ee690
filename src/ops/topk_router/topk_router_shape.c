#include "ops/shape.h"

/* One syntax for both directions. all, renorm: scorings (SELECTED without); mask: a token_mask;
 * counts, sum: counts and prob_sum; wf32: weights in f32. */
#define SYNTAX "TOKENSxEXPERTS_kN[_all|_renorm][_mask][_counts][_sum][_wf32][_i64]"

const char tgi_topk_router_fwd_syntax[] = SYNTAX;
const char tgi_topk_router_bwd_syntax[] = SYNTAX;

static tg_router_scoring scoring(tgi_shape *s)
{
  const bool all = tgi_shape_flag(s, "all");
  return tgi_shape_flag(s, "renorm") ? TG_ROUTER_RENORMALIZED
         : all                       ? TG_ROUTER_ALL
                                     : TG_ROUTER_SELECTED;
}

void tgi_topk_router_fwd_shape(tgi_shape *s, tg_topk_router_fwd_args *a)
{
  const int64_t tokens = tgi_shape_extent(s, 0), experts = tgi_shape_extent(s, 1);
  const int64_t k = tgi_shape_number(s, "k", 1);
  const tg_dtype ids = tgi_shape_flag(s, "i64") ? TG_I64 : TG_I32;
  *a = (tg_topk_router_fwd_args){
      .logits = tg_tensor_2d(NULL, s->dtype, tokens, experts),
      .indices = tg_tensor_2d(NULL, ids, tokens, k),
      .weights = tg_tensor_2d(NULL, tgi_shape_flag(s, "wf32") ? TG_F32 : s->dtype, tokens, k),
      .scoring = scoring(s),
  };
  if (tgi_shape_flag(s, "mask")) {
    a->token_mask = tg_tensor_1d(NULL, ids, tokens);
  }
  if (tgi_shape_flag(s, "counts")) {
    a->counts = tg_tensor_1d(NULL, TG_I32, experts);
  }
  if (tgi_shape_flag(s, "sum")) {
    a->prob_sum = tg_tensor_1d(NULL, TG_F32, experts);
  }
}

void tgi_topk_router_fwd_cost(const tg_topk_router_fwd_args *a, tgi_cost *cost)
{
  const bool all = a->scoring == TG_ROUTER_ALL || tgi_present(&a->prob_sum);
  cost->flops = (all ? 20.0 : 2.0) * (double)tgi_numel(&a->logits);
}

void tgi_topk_router_bwd_shape(tgi_shape *s, tg_topk_router_bwd_args *a)
{
  tg_topk_router_fwd_args f = {.workspace = NULL};
  tgi_topk_router_fwd_shape(s, &f);
  *a = (tg_topk_router_bwd_args){
      .dweights = f.weights,
      .dprob_sum = f.prob_sum,
      .logits = f.logits,
      .indices = f.indices,
      .token_mask = f.token_mask,
      .dlogits = f.logits,
      .scoring = f.scoring,
  };
}

void tgi_topk_router_bwd_cost(const tg_topk_router_bwd_args *a, tgi_cost *cost)
{
  const bool all = a->scoring == TG_ROUTER_ALL || tgi_present(&a->dprob_sum);
  cost->flops = (all ? 24.0 : 1.0) * (double)tgi_numel(&a->logits);
}

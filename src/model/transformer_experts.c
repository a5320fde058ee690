/* Experts in the place of an MLP, forward and backward: the router picks experts for each token,
 * moe_plan sorts the tokens' shares by expert, and each expert computes its rows.
 *
 *   norm2 -> router -> indices, weights -> plan: a row for each token and each of its k experts
 *   norm2 [rows] -> up [rows * k] -> gate -> down [rows * k] -> sum by weights [rows] + middle
 */
#include "transformer.h"

void tgi_experts_lay_out(tgi_expert_activations *e, tgi_memory_plan *plan, const tg_model *model,
                         int64_t rows)
{
  const tgi_config *c = &model->config;
  const int64_t k = c->experts_per_token, slots = rows * k;
  e->logits = tgi_take_2d(plan, model->dtype, rows, c->num_experts);
  e->indices = tgi_take_2d(plan, TG_I32, rows, k);
  e->weights = tgi_take_2d(plan, TG_F32, rows, k);
  e->offsets = tgi_take_1d(plan, TG_I32, c->num_experts + 1);
  e->slot = tgi_take_1d(plan, TG_I32, slots);
  e->row = tgi_take_2d(plan, TG_I32, rows, k);
  e->output = tgi_take_2d(plan, model->dtype, slots, c->hidden_size);
}

/* ---- forward ---- */

/* A layer's row of counts or of prob_sum. */
static tg_tensor sums_of(const tgi_pass *pass, const tgi_layer_activations *l, const tg_tensor *all)
{
  const int64_t layer = l - pass->a->layer;
  return tg_tensor_1d(tgi_advance(all, layer * all->shape[1]), all->dtype, all->shape[1]);
}

static tg_status route(tgi_pass *pass, const tgi_layer_activations *l,
                       const tgi_layer_parameters *p)
{
  const tgi_expert_activations *e = &l->experts;
  tg_linear_fwd_args score = {.x = l->norm2,
                              .weight = tgi_weight(pass->model, p->router),
                              .bias = tgi_weight(pass->model, p->router_bias),
                              .y = e->logits};
  tg_topk_router_fwd_args pick = {.logits = e->logits,
                                  .indices = e->indices,
                                  .weights = e->weights,
                                  .scoring = pass->model->config.router};
  if (pass->routers) {
    pick.token_mask = pass->routers->counted;
    pick.counts = sums_of(pass, l, &pass->routers->counts);
    pick.prob_sum = sums_of(pass, l, &pass->routers->prob_sum);
  }
  tg_moe_plan_fwd_args sort = {
      .indices = e->indices, .offsets = e->offsets, .slot = e->slot, .row = e->row};
  tg_status status = TGI_STEP(pass, linear_fwd, &score);
  if (status == TG_OK) {
    status = TGI_STEP(pass, topk_router_fwd, &pick);
  }
  return status ? status : TGI_STEP(pass, moe_plan_fwd, &sort);
}

static tg_status gate(tgi_pass *pass, const tgi_layer_activations *l)
{
  const tgi_config *c = &pass->model->config;
  const tg_gate_up_packing packing = tgi_gate_packing(c);
  if (c->activation == TGI_SWIGLU) {
    tg_swiglu_fwd_args args = {.gate_up = l->preactivation,
                               .y = l->inner,
                               .packing = packing,
                               .rounding = TG_ROUNDING_ONCE};
    return TGI_STEP(pass, swiglu_fwd, &args);
  }
  tg_swiglu_clamped_fwd_args args = {.gate_up = l->preactivation,
                                     .y = l->inner,
                                     .alpha = (float)c->swiglu_alpha,
                                     .limit = (float)c->swiglu_limit,
                                     .packing = packing,
                                     .rounding = TG_ROUNDING_ONCE};
  return TGI_STEP(pass, swiglu_clamped_fwd, &args);
}

/* z = x W^T + bias of each row's expert; `slot` gathers rows of x. */
static tg_status multiply(tgi_pass *pass, const tg_tensor *x, const tg_tensor *slot, int weight,
                          int bias, const tg_tensor *z, const tgi_expert_activations *e)
{
  const tgi_config *c = &pass->model->config;
  const int64_t share = slot ? c->experts_per_token : 0;
  const tg_tensor none = {0};
  if (tgi_model_keeps_mxfp4(pass->model)) {
    tg_grouped_linear_mxfp4_fwd_args args = {.x = *x,
                                             .weight = tgi_mxfp4_weight(pass->model, weight),
                                             .bias = tgi_weight(pass->model, bias),
                                             .offsets = e->offsets,
                                             .slot = slot ? *slot : none,
                                             .y = *z,
                                             .slots_per_row = share};
    return TGI_STEP(pass, grouped_linear_mxfp4_fwd, &args);
  }
  tg_grouped_linear_fwd_args args = {.x = *x,
                                     .weight = tgi_weight(pass->model, weight),
                                     .bias = tgi_weight(pass->model, bias),
                                     .offsets = e->offsets,
                                     .slot = slot ? *slot : none,
                                     .y = *z,
                                     .slots_per_row = share,
                                     .in_first = c->interleaved_experts};
  return TGI_STEP(pass, grouped_linear_fwd, &args);
}

tg_status tgi_experts_forward(tgi_pass *pass, const tgi_layer_activations *l,
                              const tgi_layer_parameters *p)
{
  const tgi_expert_activations *e = &l->experts;
  tg_moe_combine_fwd_args sum = {.row = e->row,
                                 .weights = e->weights,
                                 .y = e->output,
                                 .residual = l->middle,
                                 .out = l->output,
                                 .rounding = TG_ROUNDING_ONCE};
  tg_status status = route(pass, l, p);
  if (status == TG_OK) {
    status = multiply(pass, &l->norm2, &e->slot, p->experts_up, p->experts_up_bias,
                      &l->preactivation, e);
  }
  if (status == TG_OK) {
    status = gate(pass, l);
  }
  if (status == TG_OK) {
    status = multiply(pass, &l->inner, NULL, p->experts_down, p->experts_down_bias, &e->output, e);
  }
  return status ? status : TGI_STEP(pass, moe_combine_fwd, &sum);
}

/* ---- backward ---- */

/* From dinner to the gradient of the pre-activation, in its place. */
static tg_status gate_bwd(tgi_pass *pass, const tgi_gradients *g, const tgi_layer_activations *l)
{
  const tgi_config *c = &pass->model->config;
  const tg_gate_up_packing packing = tgi_gate_packing(c);
  if (c->activation == TGI_SWIGLU) {
    tg_swiglu_bwd_args args = {.dy = g->dinner,
                               .gate_up = l->preactivation,
                               .dgate_up = l->preactivation,
                               .packing = packing};
    return TGI_STEP(pass, swiglu_bwd, &args);
  }
  tg_swiglu_clamped_bwd_args args = {.dy = g->dinner,
                                     .gate_up = l->preactivation,
                                     .dgate_up = l->preactivation,
                                     .alpha = (float)c->swiglu_alpha,
                                     .limit = (float)c->swiglu_limit,
                                     .packing = packing};
  return TGI_STEP(pass, swiglu_clamped_bwd, &args);
}

/* A product of the forward, whose z has the gradient dz: dx by row, and the gradients of its
 * parameters. */
typedef struct product {
  const tg_tensor *dz, *x, *slot, *dx;
  int weight, bias;
} product;

static tg_status multiply_bwd(tgi_pass *pass, const tgi_gradients *g,
                              const tgi_expert_activations *e, const product *p)
{
  const tgi_config *c = &pass->model->config;
  const tg_tensor none = {0};
  if (tgi_model_keeps_mxfp4(pass->model)) {
    tg_grouped_linear_mxfp4_bwd_args args = {.dy = *p->dz,
                                             .weight = tgi_mxfp4_weight(pass->model, p->weight),
                                             .offsets = e->offsets,
                                             .dx = *p->dx,
                                             .dbias = tgi_gradient(pass, g, p->bias)};
    return TGI_STEP(pass, grouped_linear_mxfp4_bwd, &args);
  }
  tg_grouped_linear_bwd_args args = {.dy = *p->dz,
                                     .x = *p->x,
                                     .weight = tgi_weight(pass->model, p->weight),
                                     .offsets = e->offsets,
                                     .slot = p->slot ? *p->slot : none,
                                     .dx = *p->dx,
                                     .dweight = tgi_gradient(pass, g, p->weight),
                                     .dbias = tgi_gradient(pass, g, p->bias),
                                     .slots_per_row = p->slot ? c->experts_per_token : 0,
                                     .in_first = c->interleaved_experts};
  return TGI_STEP(pass, grouped_linear_bwd, &args);
}

/* From dx to the gradients of the experts' parameters, of the routing weights, and, by row, of
 * norm2 in g->dexperts. */
static tg_status products_bwd(tgi_pass *pass, const tgi_gradients *g,
                              const tgi_layer_activations *l, const tgi_layer_parameters *p)
{
  const tgi_expert_activations *e = &l->experts;
  const product down = {.dz = &g->dexperts,
                        .x = &l->inner,
                        .dx = &g->dinner,
                        .weight = p->experts_down,
                        .bias = p->experts_down_bias};
  const product up = {.dz = &l->preactivation,
                      .x = &l->norm2,
                      .slot = &e->slot,
                      .dx = &g->dexperts,
                      .weight = p->experts_up,
                      .bias = p->experts_up_bias};
  tg_moe_combine_bwd_args sum = {.dout = g->dx,
                                 .row = e->row,
                                 .slot = e->slot,
                                 .weights = e->weights,
                                 .y = e->output,
                                 .dy = g->dexperts,
                                 .dweights = g->dweights};
  tg_status status = TGI_STEP(pass, moe_combine_bwd, &sum);
  if (status == TG_OK) {
    status = multiply_bwd(pass, g, e, &down);
  }
  if (status == TG_OK) {
    status = gate_bwd(pass, g, l);
  }
  return status ? status : multiply_bwd(pass, g, e, &up);
}

tg_status tgi_experts_backward(tgi_pass *pass, const tgi_gradients *g,
                               const tgi_layer_activations *l, const tgi_layer_parameters *p)
{
  const tgi_expert_activations *e = &l->experts;
  tg_topk_router_bwd_args pick = {.dweights = g->dweights,
                                  .logits = e->logits,
                                  .indices = e->indices,
                                  .dlogits = g->dlogits,
                                  .scoring = pass->model->config.router};
  if (pass->routers) {
    pick.token_mask = pass->routers->counted;
    pick.dprob_sum = pass->routers->dprob_sum;
  }
  tg_linear_bwd_args score = {.dy = g->dlogits,
                              .x = l->norm2,
                              .weight = tgi_weight(pass->model, p->router),
                              .dx = g->dnorm,
                              .dweight = tgi_gradient(pass, g, p->router),
                              .dbias = tgi_gradient(pass, g, p->router_bias)};
  tg_moe_combine_fwd_args gather = {.row = e->row,
                                    .y = g->dexperts,
                                    .residual = g->dnorm,
                                    .out = g->dnorm,
                                    .rounding = TG_ROUNDING_ONCE};
  tg_status status = products_bwd(pass, g, l, p);
  if (status == TG_OK) {
    status = TGI_STEP(pass, topk_router_bwd, &pick);
  }
  if (status == TG_OK) {
    status = TGI_STEP(pass, linear_bwd, &score);
  }
  return status ? status : TGI_STEP(pass, moe_combine_fwd, &gather);
}

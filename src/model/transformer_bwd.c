/* The backward pass. dx is the gradient of the residual stream; it runs from the last layer to the
 * embedding, and every branch adds to it. */
#include "transformer.h"

void tgi_gradients_lay_out(tgi_gradients *g, tgi_memory_plan *plan, const tg_model *model,
                           int64_t rows)
{
  const tgi_config *c = &model->config;
  const int64_t q = tgi_config_query_width(c), kv = tgi_config_key_width(c);
  g->dx = tgi_take_2d(plan, model->dtype, rows, c->hidden_size);
  g->dnorm = tgi_take_2d(plan, model->dtype, rows, c->hidden_size);
  g->dqkv = tgi_take_2d(plan, model->dtype, rows, q + 2 * kv);
  g->dattention = tgi_take_2d(plan, model->dtype, rows, q);
  const int64_t slots = rows * c->experts_per_token;
  g->dinner = tgi_take_2d(plan, model->dtype, c->num_experts ? slots : rows, c->intermediate_size);
  if (c->num_experts) {
    g->dexperts = tgi_take_2d(plan, model->dtype, slots, c->hidden_size);
    g->dweights = tgi_take_2d(plan, TG_F32, rows, c->experts_per_token);
    g->dlogits = tgi_take_2d(plan, model->dtype, rows, c->num_experts);
  }
}

tg_tensor tgi_gradient(const tgi_pass *pass, const tgi_gradients *g, int index)
{
  const tgi_parameters *p = &pass->model->parameters;
  const bool frozen = index >= 0 && g->frozen_experts && tgi_parameter_is_experts(&p->list[index]);
  return tgi_packed_view(p, frozen ? -1 : index, g->block, TG_F32);
}

/* dx of y = x W^T + bias, and the parameters' gradients. */
static tg_status project_bwd(tgi_pass *pass, const tgi_gradients *g, const tg_tensor *dy,
                             const tg_tensor *x, int weight, int bias, const tg_tensor *dx)
{
  tg_linear_bwd_args args = {.dy = *dy,
                             .x = *x,
                             .weight = tgi_weight(pass->model, weight),
                             .dx = *dx,
                             .dweight = tgi_gradient(pass, g, weight),
                             .dbias = tgi_gradient(pass, g, bias)};
  return TGI_STEP(pass, linear_bwd, &args);
}

/* residual: gradient that reaches x past the norm, added to dx; NULL: none. */
static tg_status norm_bwd(tgi_pass *pass, const tgi_gradients *g, const tg_tensor *dy,
                          const tg_tensor *x, const tg_tensor *mean, const tg_tensor *rstd,
                          int weight, int bias, const tg_tensor *residual, const tg_tensor *dx)
{
  if (pass->model->config.norm == TGI_RMS_NORM) {
    tg_add_rms_norm_bwd_args rms = {.dy = *dy,
                                    .sum = *x,
                                    .weight = tgi_weight(pass->model, weight),
                                    .rstd = *rstd,
                                    .dx = *dx,
                                    .dweight = tgi_gradient(pass, g, weight)};
    if (residual) {
      rms.dsum = *residual;
    }
    return TGI_STEP(pass, add_rms_norm_bwd, &rms);
  }
  tg_layer_norm_bwd_args args = {.dy = *dy,
                                 .x = *x,
                                 .weight = tgi_weight(pass->model, weight),
                                 .mean = *mean,
                                 .rstd = *rstd,
                                 .dx = *dx,
                                 .dweight = tgi_gradient(pass, g, weight),
                                 .dbias = tgi_gradient(pass, g, bias)};
  if (residual) {
    args.dresidual = *residual;
  }
  return TGI_STEP(pass, layer_norm_bwd, &args);
}

/* From dinner to dnorm. */
static tg_status gated_up_bwd(tgi_pass *pass, const tgi_gradients *g,
                              const tgi_layer_activations *l, const tgi_layer_parameters *p)
{
  tg_swiglu_bwd_args gate = {.dy = g->dinner,
                             .gate_up = l->preactivation,
                             .dgate_up = l->preactivation,
                             .packing = TG_GATE_UP_HALVES};
  const tg_status status = TGI_STEP(pass, swiglu_bwd, &gate);
  return status ? status
                : project_bwd(pass, g, &l->preactivation, &l->norm2, p->up, p->up_bias, &g->dnorm);
}

static tg_status up_bwd(tgi_pass *pass, const tgi_gradients *g, const tgi_layer_activations *l,
                        const tgi_layer_parameters *p)
{
  if (pass->model->config.activation == TGI_SWIGLU) {
    return gated_up_bwd(pass, g, l, p);
  }
  tg_linear_bwd_args up = {.dy = g->dinner,
                           .x = l->norm2,
                           .weight = tgi_weight(pass->model, p->up),
                           .preactivation = l->preactivation,
                           .dx = g->dnorm,
                           .dweight = tgi_gradient(pass, g, p->up),
                           .dbias = tgi_gradient(pass, g, p->up_bias),
                           .activation = tgi_linear_activation(&pass->model->config)};
  return TGI_STEP(pass, linear_bwd, &up);
}

static tg_status dense_bwd(tgi_pass *pass, const tgi_gradients *g, const tgi_layer_activations *l,
                           const tgi_layer_parameters *p)
{
  const tg_status status =
      project_bwd(pass, g, &g->dx, &l->inner, p->down, p->down_bias, &g->dinner);
  return status ? status : up_bwd(pass, g, l, p);
}

static tg_status mlp_bwd(tgi_pass *pass, const tgi_gradients *g, const tgi_layer_activations *l,
                         const tgi_layer_parameters *p)
{
  const tg_status status = pass->model->config.num_experts ? tgi_experts_backward(pass, g, l, p)
                                                           : dense_bwd(pass, g, l, p);
  return status ? status
                : norm_bwd(pass, g, &g->dnorm, &l->middle, &l->mean2, &l->rstd2, p->norm2,
                           p->norm2_bias, &g->dx, &g->dx);
}

static tg_status attention_bwd(tgi_pass *pass, const tgi_gradients *g,
                               const tgi_layer_activations *l, int index)
{
  const tgi_config *c = &pass->model->config;
  const int sinks = pass->model->parameters.layer[index].sinks;
  const tgi_heads h = tgi_split_heads(pass, &l->qk, &l->qkv, &l->attention);
  const tgi_heads d = tgi_split_heads(pass, &g->dqkv, &g->dqkv, &g->dattention);
  tg_attention_bwd_args args = {.dout = d.attention,
                                .q = h.q,
                                .k = h.k,
                                .v = h.v,
                                .out = h.attention,
                                .lse = l->lse,
                                .sinks = tgi_weight(pass->model, sinks),
                                .dsinks = tgi_gradient(pass, g, sinks),
                                .dq = d.q,
                                .dk = d.k,
                                .dv = d.v,
                                .scale = tgi_attention_scale(c, index),
                                .window = tgi_attention_window(c, index),
                                .causal = true};
  tgi_documents_cut_bwd(pass, &args);
  return TGI_STEP(pass, attention_bwd, &args);
}

tg_status tgi_transformer_size_attention(tgi_pass *pass, const tgi_gradients *g)
{
  const tgi_config *c = &pass->model->config;
  const int32_t window = tgi_attention_window(c, 0);
  for (int i = 0; i < c->num_hidden_layers; i++) {
    if (i > 0 && tgi_attention_window(c, i) == window) {
      continue; /* layers differ in their windows, of which there are two at most */
    }
    tg_status status = tgi_attend(pass, &pass->a->layer[i], i);
    status = status ? status : attention_bwd(pass, g, &pass->a->layer[i], i);
    if (status != TG_OK || i > 0) {
      return status;
    }
  }
  return TG_OK;
}

/* Gradients of q and k before rotation and norm take the place of those after. */
static tg_status rotate_bwd(tgi_pass *pass, const tgi_gradients *g, const tgi_layer_activations *l,
                            const tgi_layer_parameters *p)
{
  const tgi_heads from = tgi_split_heads(pass, &l->qkv, &l->qkv, &l->attention);
  const tgi_heads d = tgi_split_heads(pass, &g->dqkv, &g->dqkv, &g->dattention);
  if (pass->model->config.qk_norm) {
    tg_qk_norm_rope_bwd_args args = {.dq_out = d.q,
                                     .dk_out = d.k,
                                     .q = from.q,
                                     .k = from.k,
                                     .q_weight = tgi_weight(pass->model, p->q_norm),
                                     .k_weight = tgi_weight(pass->model, p->k_norm),
                                     .cos = pass->rope.cos,
                                     .sin = pass->rope.sin,
                                     .q_rstd = l->q_rstd,
                                     .k_rstd = l->k_rstd,
                                     .dq = d.q,
                                     .dk = d.k,
                                     .dq_weight = tgi_gradient(pass, g, p->q_norm),
                                     .dk_weight = tgi_gradient(pass, g, p->k_norm),
                                     .pairing = TG_ROPE_HALVES};
    return TGI_STEP(pass, qk_norm_rope_bwd, &args);
  }
  tg_rope_bwd_args args = {.dq_out = d.q,
                           .dk_out = d.k,
                           .cos = pass->rope.cos,
                           .sin = pass->rope.sin,
                           .dq = d.q,
                           .dk = d.k,
                           .pairing = TG_ROPE_HALVES};
  return TGI_STEP(pass, rope_bwd, &args);
}

static tg_status layer_bwd(tgi_pass *pass, const tgi_gradients *g, int index)
{
  const tgi_layer_activations *l = &pass->a->layer[index];
  const tgi_layer_parameters *p = &pass->model->parameters.layer[index];
  tg_status status = mlp_bwd(pass, g, l, p);
  if (status == TG_OK) {
    status = project_bwd(pass, g, &g->dx, &l->attention, p->out, p->out_bias, &g->dattention);
  }
  if (status == TG_OK) {
    status = attention_bwd(pass, g, l, index);
  }
  if (status == TG_OK && pass->model->config.position == TGI_ROPE) {
    status = rotate_bwd(pass, g, l, p);
  }
  if (status == TG_OK) {
    status = project_bwd(pass, g, &g->dqkv, &l->norm1, p->qkv, p->qkv_bias, &g->dnorm);
  }
  return status ? status
                : norm_bwd(pass, g, &g->dnorm, &l->input, &l->mean1, &l->rstd1, p->norm1,
                           p->norm1_bias, &g->dx, &g->dx);
}

tg_status tgi_transformer_backward(tgi_pass *pass, tgi_gradients *g)
{
  const tgi_config *c = &pass->model->config;
  const tgi_parameters *p = &pass->model->parameters;
  const tgi_activations *a = pass->a;
  const tg_tensor *stream = &a->layer[c->num_hidden_layers - 1].output;
  tg_status status = norm_bwd(pass, g, &g->dnorm, stream, &a->final_mean, &a->final_rstd,
                              p->final_norm, p->final_norm_bias, NULL, &g->dx);
  for (int i = c->num_hidden_layers - 1; i >= 0 && status == TG_OK; i--) {
    status = layer_bwd(pass, g, i);
  }
  tg_embedding_bwd_args embed = {.dy = g->dx,
                                 .ids = pass->ids,
                                 .dtable = tgi_gradient(pass, g, p->tokens),
                                 .dpositions = tgi_gradient(pass, g, p->positions),
                                 .seq_len = pass->seq};
  if (pass->documents && embed.dpositions.ndim) {
    embed.position_ids = pass->documents->position_ids;
  }
  return status ? status : TGI_STEP(pass, embedding_bwd, &embed);
}

/* The forward pass: which op runs on which views. */
#include "transformer.h"

#include <math.h>
#include <stdio.h>

tg_status tgi_step(tgi_pass *pass, const char *op_dir, void *args)
{
  const tg_op_info *info = tg_op_find(op_dir);
  for (size_t i = 0; i < info->num_slots; i++) {
    void *field = (char *)args + info->slots[i].offset;
    if (info->slots[i].kind == TG_KIND_WORKSPACE) {
      *(void **)field = pass->workspace;
    } else if (info->slots[i].kind == TG_KIND_SIZE) {
      *(size_t *)field = pass->workspace_bytes;
    }
  }
  if (!pass->sizing) {
    const tgi_pass_watch *watch = pass->watch;
    return watch ? watch->run(watch->user, pass->ctx, info, args) : info->run(pass->ctx, args);
  }
  size_t bytes = 0;
  const tg_status status = info->workspace(pass->ctx, args, &bytes);
  pass->workspace_bytes = bytes > pass->workspace_bytes ? bytes : pass->workspace_bytes;
  return status;
}

void tgi_watch_begin_layer(const tgi_pass_watch *watch, int index)
{
  char part[32];
  snprintf(part, sizeof part, "layer %d", index);
  tgi_watch_begin(watch, part);
}

float tgi_attention_scale(const tgi_config *config, int index)
{
  const double scale = config->scale_attn_weights ? 1 / sqrt(config->head_dim) : 1;
  return (float)(config->scale_attn_by_inverse_layer_idx ? scale / (index + 1) : scale);
}

int32_t tgi_attention_window(const tgi_config *config, int index)
{
  return tgi_config_slides(config, index) ? config->sliding_window : 0;
}

tg_activation tgi_linear_activation(const tgi_config *config)
{
  return config->activation == TGI_GELU_ERF ? TG_ACTIVATION_GELU_ERF : TG_ACTIVATION_GELU_TANH;
}

char *tgi_advance(const tg_tensor *t, int64_t elements)
{
  return t->data ? (char *)t->data + elements * (int64_t)tg_dtype_bytes(t->dtype) : NULL;
}

/* Columns [first, first + heads * d) of a packed buffer as [batch, seq, heads, d]. */
static tg_tensor head_view(const tgi_pass *pass, const tg_tensor *packed, int64_t first,
                           int64_t heads)
{
  const int64_t d = pass->model->config.head_dim, width = packed->shape[1];
  tg_tensor t =
      tg_tensor_4d(tgi_advance(packed, first), packed->dtype, pass->batch, pass->seq, heads, d);
  t.stride[0] = pass->seq * width;
  t.stride[1] = width;
  t.stride[2] = d;
  t.stride[3] = 1;
  return t;
}

tgi_heads tgi_split_heads(const tgi_pass *pass, const tg_tensor *qk, const tg_tensor *qkv,
                          const tg_tensor *attention)
{
  const tgi_config *c = &pass->model->config;
  const int64_t q = tgi_config_query_width(c), kv = tgi_config_key_width(c);
  return (tgi_heads){
      .q = head_view(pass, qk, 0, c->num_attention_heads),
      .k = head_view(pass, qk, q, c->num_key_value_heads),
      .v = head_view(pass, qkv, q + kv, c->num_key_value_heads),
      .attention = head_view(pass, attention, 0, c->num_attention_heads),
  };
}

static tg_status norm(tgi_pass *pass, const tg_tensor *x, int weight, int bias, const tg_tensor *y,
                      const tg_tensor *mean, const tg_tensor *rstd)
{
  const float eps = (float)pass->model->config.norm_eps;
  if (pass->model->config.norm == TGI_RMS_NORM) {
    tg_rms_norm_fwd_args rms = {.x = *x,
                                .weight = tgi_weight(pass->model, weight),
                                .y = *y,
                                .rstd = *rstd,
                                .eps = eps,
                                .policy = pass->model->config.norm_rounds_once ? TG_RMS_NORM_GPT_OSS
                                                                               : TG_RMS_NORM_LLAMA};
    return TGI_STEP(pass, rms_norm_fwd, &rms);
  }
  tg_layer_norm_fwd_args args = {.x = *x,
                                 .weight = tgi_weight(pass->model, weight),
                                 .bias = tgi_weight(pass->model, bias),
                                 .y = *y,
                                 .mean = *mean,
                                 .rstd = *rstd,
                                 .eps = eps};
  return TGI_STEP(pass, layer_norm_fwd, &args);
}

/* q and k as attention sees them. */
static tg_status rotate(tgi_pass *pass, const tgi_layer_activations *l,
                        const tgi_layer_parameters *p, int index)
{
  const tgi_config *c = &pass->model->config;
  const tgi_heads from = tgi_split_heads(pass, &l->qkv, &l->qkv, &l->attention);
  const tgi_heads to = tgi_split_heads(pass, &l->qk, &l->qkv, &l->attention);
  const tg_tensor keys = tgi_rotated_keys(pass, &to.k, index);
  if (c->qk_norm) {
    tg_qk_norm_rope_fwd_args args = {.q = from.q,
                                     .k = from.k,
                                     .q_weight = tgi_weight(pass->model, p->q_norm),
                                     .k_weight = tgi_weight(pass->model, p->k_norm),
                                     .cos = pass->rope.cos,
                                     .sin = pass->rope.sin,
                                     .q_out = to.q,
                                     .k_out = keys,
                                     .q_rstd = l->q_rstd,
                                     .k_rstd = l->k_rstd,
                                     .eps = (float)c->norm_eps,
                                     .position_offset = pass->past,
                                     .pairing = TG_ROPE_HALVES,
                                     .rounding = TG_ROUNDING_ONCE};
    return TGI_STEP(pass, qk_norm_rope_fwd, &args);
  }
  tg_rope_fwd_args args = {.q = from.q,
                           .k = from.k,
                           .cos = pass->rope.cos,
                           .sin = pass->rope.sin,
                           .q_out = to.q,
                           .k_out = keys,
                           .position_offset = pass->past,
                           .pairing = TG_ROPE_HALVES,
                           .rounding = TG_ROUNDING_ONCE};
  return TGI_STEP(pass, rope_fwd, &args);
}

static tg_status project(tgi_pass *pass, const tg_tensor *x, int weight, int bias,
                         const tg_tensor *residual, const tg_tensor *y)
{
  tg_linear_fwd_args args = {.x = *x,
                             .weight = tgi_weight(pass->model, weight),
                             .bias = tgi_weight(pass->model, bias),
                             .y = *y};
  if (residual) {
    args.residual = *residual;
  }
  return TGI_STEP(pass, linear_fwd, &args);
}

/* Both halves of the MLP's first matrix in one product, then the gate. */
static tg_status run_gated_mlp(tgi_pass *pass, const tgi_layer_activations *l,
                               const tgi_layer_parameters *p)
{
  tg_status status = project(pass, &l->norm2, p->up, p->up_bias, NULL, &l->preactivation);
  tg_swiglu_fwd_args gate = {.gate_up = l->preactivation,
                             .y = l->inner,
                             .packing = TG_GATE_UP_HALVES,
                             .rounding = TG_ROUNDING_ONCE};
  if (status == TG_OK) {
    status = TGI_STEP(pass, swiglu_fwd, &gate);
  }
  return status ? status : project(pass, &l->inner, p->down, p->down_bias, &l->middle, &l->output);
}

static tg_status run_mlp(tgi_pass *pass, const tgi_layer_activations *l,
                         const tgi_layer_parameters *p)
{
  if (pass->model->config.num_experts) {
    return tgi_experts_forward(pass, l, p);
  }
  if (pass->model->config.activation == TGI_SWIGLU) {
    return run_gated_mlp(pass, l, p);
  }
  tg_linear_fwd_args up = {.x = l->norm2,
                           .weight = tgi_weight(pass->model, p->up),
                           .bias = tgi_weight(pass->model, p->up_bias),
                           .y = l->inner,
                           .preactivation = l->preactivation,
                           .activation = tgi_linear_activation(&pass->model->config)};
  const tg_status status = TGI_STEP(pass, linear_fwd, &up);
  return status ? status : project(pass, &l->inner, p->down, p->down_bias, &l->middle, &l->output);
}

static tg_status run_layer_ops(tgi_pass *pass, int index)
{
  const tgi_layer_activations *l = &pass->a->layer[index];
  const tgi_layer_parameters *p = &pass->model->parameters.layer[index];
  tg_status status =
      norm(pass, &l->input, p->norm1, p->norm1_bias, &l->norm1, &l->mean1, &l->rstd1);
  if (status == TG_OK) {
    status = project(pass, &l->norm1, p->qkv, p->qkv_bias, NULL, &l->qkv);
  }
  if (status == TG_OK && pass->model->config.position == TGI_ROPE) {
    status = rotate(pass, l, p, index);
  }
  if (status == TG_OK) {
    status = tgi_attend(pass, l, index);
  }
  if (status == TG_OK) {
    status = project(pass, &l->attention, p->out, p->out_bias, &l->input, &l->middle);
  }
  if (status == TG_OK) {
    status = norm(pass, &l->middle, p->norm2, p->norm2_bias, &l->norm2, &l->mean2, &l->rstd2);
  }
  return status ? status : run_mlp(pass, l, p);
}

static tg_status run_layer(tgi_pass *pass, int index)
{
  tgi_watch_begin_layer(pass->watch, index);
  const tg_status status = run_layer_ops(pass, index);
  tgi_watch_end(pass->watch);
  return status;
}

/* Whether no layer before has the same shapes: they differ in their window alone. */
static bool is_first_of_kind(const tgi_config *config, int index)
{
  for (int i = 0; i < index; i++) {
    if (tgi_config_slides(config, i) == tgi_config_slides(config, index)) {
      return false;
    }
  }
  return true;
}

/* The last `rows` rows of a matrix. */
static tg_tensor last_rows(const tg_tensor *t, int64_t rows)
{
  tg_tensor view = *t;
  view.data = tgi_advance(t, (t->shape[0] - rows) * t->shape[1]);
  view.shape[0] = rows;
  return view;
}

/* Rows of a rope table, at positions in device memory, to where the pass has its own. */
static tg_status take_rows(tgi_pass *pass, const tg_tensor *positions, const tg_tensor *every,
                           const tg_tensor *rows)
{
  const int64_t width = every->shape[2], count = positions->shape[0];
  tg_embedding_fwd_args args = {.ids = *positions,
                                .table =
                                    tg_tensor_2d(every->data, every->dtype, every->shape[1], width),
                                .y = tg_tensor_2d(rows->data, rows->dtype, count, width)};
  return TGI_STEP(pass, embedding_fwd, &args);
}

/* The pass's rope tables from those of all positions. */
static tg_status take_tables(tgi_pass *pass, const tg_tensor *positions,
                             const tgi_rope_tables *every)
{
  const tg_status status = take_rows(pass, positions, &every->cos, &pass->rope.cos);
  return status ? status : take_rows(pass, positions, &every->sin, &pass->rope.sin);
}

static tg_status embed(tgi_pass *pass)
{
  const tgi_parameters *p = &pass->model->parameters;
  tg_embedding_fwd_args args = {.ids = pass->ids,
                                .table = tgi_weight(pass->model, p->tokens),
                                .positions = tgi_weight(pass->model, p->positions),
                                .y = pass->a->layer[0].input,
                                .seq_len = pass->seq,
                                .position_offset = pass->past};
  const bool paged = pass->pages && pass->pages->positions.ndim;
  const tg_tensor *told = pass->place       ? &pass->place->position
                          : paged           ? &pass->pages->positions
                          : pass->documents ? &pass->documents->position_ids
                                            : NULL;
  if (told && args.positions.ndim) {
    args.position_ids = *told;
  }
  const tg_status status = TGI_STEP(pass, embedding_fwd, &args);
  if (status != TG_OK || !told || pass->model->config.position != TGI_ROPE) {
    return status;
  }
  return take_tables(pass, told,
                     pass->place ? &pass->place->every
                     : paged     ? &pass->pages->every
                                 : &pass->documents->every);
}

tg_status tgi_transformer_forward(tgi_pass *pass)
{
  const tgi_config *c = &pass->model->config;
  const tgi_parameters *p = &pass->model->parameters;
  const tgi_activations *a = pass->a;
  tg_status status = embed(pass);
  for (int i = 0; i < c->num_hidden_layers && status == TG_OK; i++) {
    if (!pass->sizing || is_first_of_kind(c, i)) {
      status = run_layer(pass, i);
    }
  }
  if (status != TG_OK) {
    return status;
  }
  const tg_tensor *stream = &a->layer[c->num_hidden_layers - 1].output;
  const int64_t rows = a->logits.ndim ? a->logits.shape[0] : stream->shape[0];
  const tg_tensor x = last_rows(stream, rows), y = last_rows(&a->final_norm, rows);
  status = norm(pass, &x, p->final_norm, p->final_norm_bias, &y, &a->final_mean, &a->final_rstd);
  if (status != TG_OK || !a->logits.ndim) {
    return status;
  }
  tgi_watch_begin(pass->watch, "head");
  status = project(pass, &y, p->head, -1, NULL, &a->logits);
  tgi_watch_end(pass->watch);
  return status;
}

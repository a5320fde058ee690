#include "activations.h"
#include <string.h>

static int64_t preactivation_width(const tgi_config *c)
{
  return c->activation >= TGI_SWIGLU ? 2 * (int64_t)c->intermediate_size : c->intermediate_size;
}

/* What the backward alone needs. */
static void lay_out_kept(tgi_layer_activations *l, tgi_memory_plan *plan, const tg_model *model,
                         int64_t batch, int64_t seq)
{
  const tgi_config *c = &model->config;
  const int64_t rows = batch * seq;
  const int64_t q = tgi_config_query_width(c), kv = tgi_config_key_width(c);
  l->lse = tgi_take_3d(plan, TG_F32, batch, c->num_attention_heads, seq);
  if (c->norm == TGI_LAYER_NORM) {
    l->mean1 = tgi_take_1d(plan, TG_F32, rows);
    l->mean2 = tgi_take_1d(plan, TG_F32, rows);
  }
  l->rstd1 = tgi_take_1d(plan, TG_F32, rows);
  l->rstd2 = tgi_take_1d(plan, TG_F32, rows);
  if (c->qk_norm) {
    l->qk = tgi_take_2d(plan, model->dtype, rows, q + kv);
    l->q_rstd = tgi_take_3d(plan, TG_F32, batch, seq, c->num_attention_heads);
    l->k_rstd = tgi_take_3d(plan, TG_F32, batch, seq, c->num_key_value_heads);
  }
}

static void lay_out_layer(tgi_layer_activations *l, tgi_memory_plan *plan, const tg_model *model,
                          int64_t batch, int64_t seq, bool keep)
{
  const tgi_config *c = &model->config;
  const int64_t rows = batch * seq, hidden = c->hidden_size;
  const int64_t q = tgi_config_query_width(c), kv = tgi_config_key_width(c);
  const tg_dtype t = model->dtype;
  l->norm1 = tgi_take_2d(plan, t, rows, hidden);
  l->qkv = tgi_take_2d(plan, t, rows, q + 2 * kv);
  l->qk = l->qkv;
  l->attention = tgi_take_2d(plan, t, rows, q);
  l->middle = tgi_take_2d(plan, t, rows, hidden);
  l->norm2 = keep ? tgi_take_2d(plan, t, rows, hidden) : l->norm1;
  const int64_t inner = rows * (c->num_experts ? c->experts_per_token : 1);
  l->inner = tgi_take_2d(plan, t, inner, c->intermediate_size);
  l->output = tgi_take_2d(plan, t, rows, hidden);
  if (keep || c->activation >= TGI_SWIGLU) {
    l->preactivation = tgi_take_2d(plan, t, inner, preactivation_width(c));
  }
  if (c->num_experts) {
    tgi_experts_lay_out(&l->experts, plan, model, rows);
  }
  if (keep) {
    lay_out_kept(l, plan, model, batch, seq);
  }
}

void tgi_activations_lay_out(tgi_activations *a, tgi_memory_plan *plan, const tg_model *model,
                             int64_t batch, int64_t seq, int64_t logit_rows, bool keep)
{
  const tgi_config *c = &model->config;
  const int64_t rows = batch * seq;
  tg_tensor input = tgi_take_2d(plan, model->dtype, rows, c->hidden_size);
  for (int i = 0; i < c->num_hidden_layers; i++) {
    if (keep || i == 0) {
      memset(&a->layer[i], 0, sizeof a->layer[i]);
      lay_out_layer(&a->layer[i], plan, model, batch, seq, keep);
      a->layer[i].input = input;
      if (!keep) {
        a->layer[i].output = input; /* nobody reads the input after `middle` */
      }
    } else {
      a->layer[i] = a->layer[0];
    }
    input = a->layer[i].output;
  }
  a->final_norm = tgi_take_2d(plan, model->dtype, rows, c->hidden_size);
  memset(&a->final_mean, 0, sizeof a->final_mean);
  memset(&a->final_rstd, 0, sizeof a->final_rstd);
  if (keep && c->norm == TGI_LAYER_NORM) {
    a->final_mean = tgi_take_1d(plan, TG_F32, rows);
  }
  if (keep) {
    a->final_rstd = tgi_take_1d(plan, TG_F32, rows);
  }
  memset(&a->logits, 0, sizeof a->logits);
  if (logit_rows > 0) {
    a->logits = tgi_take_2d(plan, TG_F32, logit_rows, c->vocab_size);
  }
}

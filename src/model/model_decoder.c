#include "model_decoder.h"

#include "core/error_record.h"

#include <stddef.h>
#include <stdlib.h>

/* What decoders have no words for; the rest they refuse themselves. */
static const char *find_obstacle(const tg_model *model, const tgi_layer_cache *cache)
{
  const tgi_config *c = &model->config;
  const bool gpt = c->norm == TGI_LAYER_NORM && c->position == TGI_LEARNED_POSITIONS &&
                   c->activation == TGI_GELU_TANH;
  const bool llama =
      c->norm == TGI_RMS_NORM && c->position == TGI_ROPE && c->activation == TGI_SWIGLU;
  bool slides = false;
  for (int i = 0; i < c->num_hidden_layers; i++) {
    slides = slides || tgi_config_slides(c, i);
  }
  return model->dtype != TG_BF16              ? "weights of another dtype than bf16"
         : cache->keys.dtype != TG_BF16       ? "a cache of another dtype than bf16"
         : !gpt && !llama                     ? "another family"
         : c->num_experts || c->sinks         ? "experts or sinks"
         : slides                             ? "sliding windows"
         : c->scale_attn_by_inverse_layer_idx ? "scores scaled by layer"
         : !gpt && (c->attention_bias || c->output_bias || c->mlp_bias) ? "biases"
                                                                        : NULL;
}

/* A parameter of all layers, [layers, ...], where it lies at one distance from layer to layer. The
 * field is an offset in tgi_layer_parameters. */
static tg_tensor of_layers(const tg_model *model, size_t field)
{
  const tgi_parameters *p = &model->parameters;
  const int layers = model->config.num_hidden_layers;
  int64_t step = 0;
  tg_tensor all = {.data = NULL};
  for (int i = 0; i < layers; i++) {
    const int index = *(const int *)((const char *)&p->layer[i] + field);
    if (index < 0) {
      return (tg_tensor){.data = NULL};
    }
    const int64_t at = p->list[index].offset;
    const tg_tensor t = tgi_weight(model, index);
    if (i == 0) {
      const int64_t shape[3] = {layers, t.shape[0], t.shape[1]};
      all = tg_tensor_view(t.data, t.dtype, t.ndim + 1, shape);
      step = -at;
    } else if (i == 1) {
      step += at;
    }
  }
  all.stride[0] = layers > 1 ? step : all.shape[1] * (all.ndim == 3 ? all.shape[2] : 1);
  all.stride[1] = all.ndim == 3 ? all.shape[2] : 1;
  all.stride[2] = all.ndim == 3 ? 1 : 0;
  return all;
}

#define OF_LAYERS(name) of_layers(model, offsetof(tgi_layer_parameters, name))

static tg_tensor as_matrix(const tg_tensor *table)
{
  return table->ndim == 3
             ? tg_tensor_2d(table->data, table->dtype, table->shape[1], table->shape[2])
             : *table;
}

/* Whether layers follow each other at one distance, as the parameters' table makes them. */
static bool is_regular(const tg_model *model)
{
  const tgi_parameters *p = &model->parameters;
  const int layers = model->config.num_hidden_layers;
  const int64_t step =
      layers > 1 ? p->list[p->layer[1].qkv].offset - p->list[p->layer[0].qkv].offset : 0;
  bool regular = true;
  for (int i = 1; i < layers && regular; i++) {
    const int first = p->layer[i - 1].norm1, next = p->layer[i].norm1;
    for (int k = 0; first + k < next && regular; k++) {
      regular = next + k < p->count && p->list[next + k].offset - p->list[first + k].offset == step;
    }
  }
  return regular;
}

static tg_decoder_model describe(const tg_model *model, const tgi_rope_tables *rope)
{
  const tgi_parameters *p = &model->parameters;
  const tgi_config *c = &model->config;
  return (tg_decoder_model){.layers = c->num_hidden_layers,
                            .heads = c->num_attention_heads,
                            .kv_heads = c->num_key_value_heads,
                            .head_dim = c->head_dim,
                            .norm_eps = (float)c->norm_eps,
                            .scale = tgi_attention_scale(c, 0),
                            .tokens = tgi_weight(model, p->tokens),
                            .positions = tgi_weight(model, p->positions),
                            .head = tgi_weight(model, p->head),
                            .final_norm = tgi_weight(model, p->final_norm),
                            .final_norm_bias = tgi_weight(model, p->final_norm_bias),
                            .norm1 = OF_LAYERS(norm1),
                            .norm1_bias = OF_LAYERS(norm1_bias),
                            .qkv = OF_LAYERS(qkv),
                            .qkv_bias = OF_LAYERS(qkv_bias),
                            .q_norm = OF_LAYERS(q_norm),
                            .k_norm = OF_LAYERS(k_norm),
                            .out = OF_LAYERS(out),
                            .out_bias = OF_LAYERS(out_bias),
                            .norm2 = OF_LAYERS(norm2),
                            .norm2_bias = OF_LAYERS(norm2_bias),
                            .up = OF_LAYERS(up),
                            .up_bias = OF_LAYERS(up_bias),
                            .down = OF_LAYERS(down),
                            .down_bias = OF_LAYERS(down_bias),
                            .cos = as_matrix(&rope->cos),
                            .sin = as_matrix(&rope->sin)};
}

tg_status tgi_model_open_decoder(tg_context *ctx, const tg_model *model,
                                 const tgi_layer_cache *cache, const tgi_rope_tables *rope,
                                 int32_t block_tokens, tg_decoder **out, tg_error *error)
{
  const tgi_config *c = &model->config;
  const int layers = c->num_hidden_layers;
  const char *obstacle = find_obstacle(model, cache);
  *out = NULL;
  if (obstacle || !is_regular(model)) {
    return tgi_error_set(error, TG_UNSUPPORTED,
                         "decoder: expected a model that is served, got one with %s",
                         obstacle ? obstacle : "layers of several layouts");
  }
  tg_tensor *views = malloc(2 * (size_t)layers * sizeof *views);
  if (!views) {
    return tgi_error_set(error, TG_NO_MEMORY, "decoder: expected room for %d layers, got none",
                         layers);
  }
  const int64_t width = tgi_config_key_width(c);
  for (int i = 0; i < layers; i++) {
    const tg_tensor *k = &cache[i].keys, *v = &cache[i].values;
    views[i] = tg_tensor_2d(k->data, k->dtype, k->shape[0] * k->shape[1], width);
    views[layers + i] = tg_tensor_2d(v->data, v->dtype, v->shape[0] * v->shape[1], width);
  }
  tg_decoder_model m = describe(model, rope);
  m.keys = views;
  m.values = views + layers;
  m.block_tokens = block_tokens;
  const tg_status status = tg_decoder_create(ctx, &m, out);
  free(views);
  return status ? tgi_error_set(error, status, "%s", tg_context_message(ctx)) : TG_OK;
}

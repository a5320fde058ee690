#include "parameters.h"

#include "core/error_record.h"
#include "tegula/grouped_linear_mxfp4.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Largest number of parameters of a layer, and of the rest of a model. */
enum { kPerLayer = 20, kPerModel = 5, kAlignElements = 32 };

static int64_t align(int64_t elements)
{
  return (elements + kAlignElements - 1) / kAlignElements * kAlignElements;
}

static int add(tgi_parameters *p, int64_t rows, int64_t cols, tgi_parameter_start start,
               const char *name, ...) __attribute__((format(printf, 5, 6)));

/* cols 0: a vector. Matrices decay, vectors do not. */
static int add(tgi_parameters *p, int64_t rows, int64_t cols, tgi_parameter_start start,
               const char *name, ...)
{
  tgi_parameter *q = &p->list[p->count];
  va_list args;
  va_start(args, name);
  vsnprintf(q->name, sizeof q->name, name, args);
  va_end(args);
  q->ndim = cols ? 2 : 1;
  q->shape[0] = rows;
  q->shape[1] = cols;
  q->packed = rows;
  q->decays = cols != 0;
  q->start = start;
  q->offset = p->elements;
  q->mxfp4_at = -1;
  const int64_t n = rows * (cols ? cols : 1);
  p->num_parameters += n;
  p->elements += align(n);
  return p->count++;
}

/* Of all experts: matrices [experts, rows, cols], or biases [experts, rows]. */
static int add_experts(tgi_parameters *p, const tgi_config *c, int64_t rows, int64_t cols,
                       tgi_stacking stacking, int layer, const char *name)
{
  const int index = add(p, c->num_experts, rows, cols ? TGI_START_NORMAL : TGI_START_ZERO,
                        "model.layers.%d.%s", layer, name);
  tgi_parameter *q = &p->list[index];
  q->stacking = stacking;
  q->decays = cols != 0;
  if (cols) {
    q->ndim = 3;
    q->shape[2] = cols;
    p->num_parameters += tgi_parameter_elements(q) - q->shape[0] * rows;
    p->elements = q->offset; /* place_experts decides */
  }
  return index;
}

static int add_conv1d(tgi_parameters *p, int64_t out, int64_t in, tgi_parameter_start start,
                      int layer, const char *name)
{
  const int index = add(p, out, in, start, "transformer.h.%d.%s.weight", layer, name);
  p->list[index].transposed = true;
  return index;
}

/* Makes the last `count` parameters, of equal columns, parts of one packed matrix or vector: closes
 * the gaps between them. Returns the first. */
static int pack(tgi_parameters *p, int count)
{
  tgi_parameter *first = &p->list[p->count - count];
  int64_t rows = first->shape[0];
  const int64_t cols = first->ndim == 2 ? first->shape[1] : 1;
  for (tgi_parameter *q = first + 1; q < first + count; q++) {
    q->offset = first->offset + rows * cols;
    rows += q->shape[0];
  }
  first->packed = rows;
  p->elements = align(first->offset + rows * cols);
  return p->count - count;
}

static void add_gpt2_layer(tgi_parameters *p, const tgi_config *c, int i)
{
  tgi_layer_parameters *l = &p->layer[i];
  const int64_t hidden = c->hidden_size, inner = c->intermediate_size;
  const int64_t q = tgi_config_query_width(c), kv = tgi_config_key_width(c);
  l->norm1 = add(p, hidden, 0, TGI_START_ONE, "transformer.h.%d.ln_1.weight", i);
  l->norm1_bias = add(p, hidden, 0, TGI_START_ZERO, "transformer.h.%d.ln_1.bias", i);
  l->qkv = add_conv1d(p, q + 2 * kv, hidden, TGI_START_NORMAL, i, "attn.c_attn");
  l->qkv_bias = add(p, q + 2 * kv, 0, TGI_START_ZERO, "transformer.h.%d.attn.c_attn.bias", i);
  l->out = add_conv1d(p, hidden, q, TGI_START_NORMAL_RESIDUAL, i, "attn.c_proj");
  l->out_bias = add(p, hidden, 0, TGI_START_ZERO, "transformer.h.%d.attn.c_proj.bias", i);
  l->norm2 = add(p, hidden, 0, TGI_START_ONE, "transformer.h.%d.ln_2.weight", i);
  l->norm2_bias = add(p, hidden, 0, TGI_START_ZERO, "transformer.h.%d.ln_2.bias", i);
  l->up = add_conv1d(p, inner, hidden, TGI_START_NORMAL, i, "mlp.c_fc");
  l->up_bias = add(p, inner, 0, TGI_START_ZERO, "transformer.h.%d.mlp.c_fc.bias", i);
  l->down = add_conv1d(p, hidden, inner, TGI_START_NORMAL_RESIDUAL, i, "mlp.c_proj");
  l->down_bias = add(p, hidden, 0, TGI_START_ZERO, "transformer.h.%d.mlp.c_proj.bias", i);
}

static void add_gpt2(tgi_parameters *p, const tgi_config *c)
{
  const int64_t hidden = c->hidden_size;
  p->tokens = add(p, c->vocab_size, hidden, TGI_START_NORMAL, "transformer.wte.weight");
  p->positions =
      add(p, c->max_position_embeddings, hidden, TGI_START_NORMAL, "transformer.wpe.weight");
  for (int i = 0; i < c->num_hidden_layers; i++) {
    add_gpt2_layer(p, c, i);
  }
  p->final_norm = add(p, hidden, 0, TGI_START_ONE, "transformer.ln_f.weight");
  p->final_norm_bias = add(p, hidden, 0, TGI_START_ZERO, "transformer.ln_f.bias");
  p->head = c->tie_word_embeddings
                ? p->tokens
                : add(p, c->vocab_size, hidden, TGI_START_NORMAL, "lm_head.weight");
}

static int add_linear(tgi_parameters *p, int64_t out, int64_t in, int layer, const char *name)
{
  return add(p, out, in, TGI_START_NORMAL, "model.layers.%d.%s.weight", layer, name);
}

static int add_bias(tgi_parameters *p, int64_t out, int layer, const char *name)
{
  return add(p, out, 0, TGI_START_ZERO, "model.layers.%d.%s.bias", layer, name);
}

static int add_norm(tgi_parameters *p, int64_t width, int layer, const char *name)
{
  return add(p, width, 0, TGI_START_ONE, "model.layers.%d.%s.weight", layer, name);
}

static void add_llama_attention(tgi_parameters *p, const tgi_config *c, int i)
{
  tgi_layer_parameters *l = &p->layer[i];
  const int64_t hidden = c->hidden_size;
  const int64_t q = tgi_config_query_width(c), kv = tgi_config_key_width(c);
  add_linear(p, q, hidden, i, "self_attn.q_proj");
  add_linear(p, kv, hidden, i, "self_attn.k_proj");
  add_linear(p, kv, hidden, i, "self_attn.v_proj");
  l->qkv = pack(p, 3);
  if (c->attention_bias) {
    add_bias(p, q, i, "self_attn.q_proj");
    add_bias(p, kv, i, "self_attn.k_proj");
    add_bias(p, kv, i, "self_attn.v_proj");
    l->qkv_bias = pack(p, 3);
  }
  if (c->qk_norm) {
    l->q_norm = add_norm(p, c->head_dim, i, "self_attn.q_norm");
    l->k_norm = add_norm(p, c->head_dim, i, "self_attn.k_norm");
  }
  if (c->sinks) {
    l->sinks =
        add(p, c->num_attention_heads, 0, TGI_START_NORMAL, "model.layers.%d.self_attn.sinks", i);
  }
  l->out = add_linear(p, hidden, q, i, "self_attn.o_proj");
  l->out_bias = c->output_bias ? add_bias(p, hidden, i, "self_attn.o_proj") : -1;
}

static void add_qwen3_experts(tgi_parameters *p, const tgi_config *c, int i)
{
  tgi_layer_parameters *l = &p->layer[i];
  const int64_t hidden = c->hidden_size, inner = c->intermediate_size;
  l->router = add_linear(p, c->num_experts, hidden, i, "mlp.gate");
  l->experts_up =
      add_experts(p, c, 2 * inner, hidden, TGI_EACH_HALF, i, "mlp.experts.gate_up_proj");
  l->experts_down = add_experts(p, c, hidden, inner, TGI_EACH_EXPERT, i, "mlp.experts.down_proj");
}

static void add_mixtral_experts(tgi_parameters *p, const tgi_config *c, int i)
{
  tgi_layer_parameters *l = &p->layer[i];
  const int64_t hidden = c->hidden_size, inner = c->intermediate_size;
  l->router = add_linear(p, c->num_experts, hidden, i, "block_sparse_moe.gate");
  l->experts_up = add_experts(p, c, 2 * inner, hidden, TGI_EACH_W1_W3, i,
                              "block_sparse_moe.experts.gate_up_proj");
  l->experts_down =
      add_experts(p, c, hidden, inner, TGI_EACH_W2, i, "block_sparse_moe.experts.down_proj");
}

static void add_gpt_oss_experts(tgi_parameters *p, const tgi_config *c, int i)
{
  tgi_layer_parameters *l = &p->layer[i];
  const int64_t hidden = c->hidden_size, inner = c->intermediate_size;
  l->router = add_linear(p, c->num_experts, hidden, i, "mlp.router");
  l->router_bias = add_bias(p, c->num_experts, i, "mlp.router");
  l->experts_up =
      add_experts(p, c, hidden, 2 * inner, TGI_ONE_TENSOR, i, "mlp.experts.gate_up_proj");
  l->experts_up_bias =
      add_experts(p, c, 2 * inner, 0, TGI_ONE_TENSOR, i, "mlp.experts.gate_up_proj_bias");
  l->experts_down = add_experts(p, c, inner, hidden, TGI_ONE_TENSOR, i, "mlp.experts.down_proj");
  l->experts_down_bias =
      add_experts(p, c, hidden, 0, TGI_ONE_TENSOR, i, "mlp.experts.down_proj_bias");
}

static void add_llama_mlp(tgi_parameters *p, const tgi_config *c, int i)
{
  tgi_layer_parameters *l = &p->layer[i];
  const int64_t hidden = c->hidden_size, inner = c->intermediate_size;
  add_linear(p, inner, hidden, i, "mlp.gate_proj");
  add_linear(p, inner, hidden, i, "mlp.up_proj");
  l->up = pack(p, 2);
  if (c->mlp_bias) {
    add_bias(p, inner, i, "mlp.gate_proj");
    add_bias(p, inner, i, "mlp.up_proj");
    l->up_bias = pack(p, 2);
  }
  l->down = add_linear(p, hidden, inner, i, "mlp.down_proj");
  l->down_bias = c->mlp_bias ? add_bias(p, hidden, i, "mlp.down_proj") : -1;
}

static void add_llama_layer(tgi_parameters *p, const tgi_config *c, int i)
{
  tgi_layer_parameters *l = &p->layer[i];
  l->norm1 = add_norm(p, c->hidden_size, i, "input_layernorm");
  l->norm2 = add_norm(p, c->hidden_size, i, "post_attention_layernorm");
  add_llama_attention(p, c, i);
  void (*const add_experts_of)(tgi_parameters *, const tgi_config *, int) =
      c->model_type == TGI_MODEL_GPT_OSS   ? add_gpt_oss_experts
      : c->model_type == TGI_MODEL_MIXTRAL ? add_mixtral_experts
                                           : add_qwen3_experts;
  (c->num_experts ? add_experts_of : add_llama_mlp)(p, c, i);
}

static void add_llama(tgi_parameters *p, const tgi_config *c)
{
  const int64_t hidden = c->hidden_size;
  p->tokens = add(p, c->vocab_size, hidden, TGI_START_NORMAL, "model.embed_tokens.weight");
  p->positions = p->final_norm_bias = -1;
  for (int i = 0; i < c->num_hidden_layers; i++) {
    add_llama_layer(p, c, i);
  }
  p->final_norm = add(p, hidden, 0, TGI_START_ONE, "model.norm.weight");
  p->head = c->tie_word_embeddings
                ? p->tokens
                : add(p, c->vocab_size, hidden, TGI_START_NORMAL, "lm_head.weight");
}

/* By model_type: only the names and the order in files are a family's own. */
static void (*const families[TGI_MODEL_TYPES])(tgi_parameters *, const tgi_config *) = {
    [TGI_MODEL_GPT2] = add_gpt2,       [TGI_MODEL_LLAMA] = add_llama,
    [TGI_MODEL_QWEN2] = add_llama,     [TGI_MODEL_QWEN3] = add_llama,
    [TGI_MODEL_QWEN3_MOE] = add_llama, [TGI_MODEL_MIXTRAL] = add_llama,
    [TGI_MODEL_GPT_OSS] = add_llama,
};

int64_t tgi_mxfp4_bytes(const tgi_parameter *q)
{
  return tg_grouped_linear_mxfp4_packed_bytes(q->shape[0], q->shape[2], q->shape[1]);
}

/* Behind all other parameters, so that blocks of those alone are a prefix. */
static void place_experts(tgi_parameters *p)
{
  p->without_experts = p->elements;
  for (tgi_parameter *q = p->list; q < p->list + p->count; q++) {
    if (tgi_parameter_is_experts(q)) {
      q->offset = p->elements;
      p->elements = tgi_parameter_end(q);
    }
  }
}

void tgi_parameters_keep_mxfp4(tgi_parameters *p)
{
  p->elements = p->without_experts;
  p->mxfp4_bytes = 0;
  for (tgi_parameter *q = p->list; q < p->list + p->count; q++) {
    if (tgi_parameter_is_experts(q)) {
      q->mxfp4_at = p->mxfp4_bytes;
      p->mxfp4_bytes += (tgi_mxfp4_bytes(q) + 63) / 64 * 64;
    }
  }
}

tg_status tgi_parameters_create(const tgi_config *config, tgi_parameters *out, tg_error *error)
{
  memset(out, 0, sizeof *out);
  const int layers = config->num_hidden_layers;
  out->capacity = layers * kPerLayer + kPerModel;
  out->list = calloc((size_t)out->capacity, sizeof *out->list);
  out->layer = calloc((size_t)layers, sizeof *out->layer);
  if (!out->list || !out->layer) {
    tgi_parameters_free(out);
    return tgi_error_set(error, TG_NO_MEMORY, "model: expected room for %d parameters, got none",
                         layers * kPerLayer + kPerModel);
  }
  memset(out->layer, 0xff, (size_t)layers * sizeof *out->layer); /* -1: none */
  families[config->model_type](out, config);
  place_experts(out);
  return TG_OK;
}

void tgi_parameters_free(tgi_parameters *parameters)
{
  free(parameters->list);
  free(parameters->layer);
  memset(parameters, 0, sizeof *parameters);
}

int64_t tgi_parameter_end(const tgi_parameter *q)
{
  return q->offset + align(tgi_parameter_elements(q));
}

/* Names of an expert's tensors; those of halves gate first. */
static const char *const split_names[][2] = {[TGI_ONE_TENSOR] = {NULL},
                                             [TGI_EACH_EXPERT] = {"down_proj"},
                                             [TGI_EACH_HALF] = {"gate_proj", "up_proj"},
                                             [TGI_EACH_W2] = {"w2"},
                                             [TGI_EACH_W1_W3] = {"w1", "w3"}};

static bool in_halves(const tgi_parameter *q)
{
  return split_names[q->stacking][1] != NULL;
}

size_t tgi_parameter_pieces(const tgi_parameter *q)
{
  const size_t experts = (size_t)q->shape[0];
  return q->stacking == TGI_ONE_TENSOR ? 1 : in_halves(q) ? 2 * experts : experts;
}

/* "<layer>.mlp.experts.down_proj" becomes "<layer>.mlp.experts.<expert>.down_proj.weight". */
tgi_parameter tgi_parameter_piece(const tgi_parameter *q, size_t index)
{
  tgi_parameter piece = *q;
  if (q->stacking == TGI_ONE_TENSOR) {
    return piece;
  }
  const bool halves = in_halves(q);
  const int stem = (int)(strrchr(q->name, '.') - q->name);
  const char *name = split_names[q->stacking][halves ? index % 2 : 0];
  snprintf(piece.name, sizeof piece.name, "%.*s.%zu.%s.weight", stem, q->name,
           halves ? index / 2 : index, name);
  piece.stacking = TGI_ONE_TENSOR;
  piece.ndim = 2;
  piece.shape[0] = piece.packed = halves ? q->shape[1] / 2 : q->shape[1];
  piece.shape[1] = q->shape[2];
  piece.offset = q->offset + (int64_t)index * piece.shape[0] * piece.shape[1];
  return piece;
}

tg_tensor tgi_parameter_view(const tgi_parameters *parameters, int index, void *block,
                             tg_dtype dtype)
{
  if (index < 0 || tgi_parameter_is_mxfp4(&parameters->list[index])) {
    return tg_tensor_view(NULL, TG_DTYPE_NONE, 0, NULL);
  }
  const tgi_parameter *q = &parameters->list[index];
  char *data = block ? (char *)block + q->offset * (int64_t)tg_dtype_bytes(dtype) : NULL;
  return tg_tensor_view(data, dtype, q->ndim, q->shape);
}

tg_tensor tgi_packed_view(const tgi_parameters *parameters, int index, void *block, tg_dtype dtype)
{
  tg_tensor view = tgi_parameter_view(parameters, index, block, dtype);
  if (view.ndim > 0) {
    view.shape[0] = parameters->list[index].packed;
  }
  return view;
}

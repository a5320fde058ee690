#include "model_cost.h"

#include "model/weights/weights.h"
#include <stdbool.h>
#include <string.h>

static bool is_token_table(const char *name)
{
  return strstr(name, "wte") || strstr(name, "embed_tokens");
}

/* Elements of a parameter that a pass over one token reads: of the experts' those that it picks. */
static double used_elements(const tg_model *model, const tgi_parameter *q)
{
  const tgi_config *c = &model->config;
  const double n = (double)tgi_parameter_elements(q);
  return strstr(q->name, ".experts.") ? n * c->experts_per_token / c->num_experts : n;
}

static bool is_vector(const tgi_parameter *q)
{
  return q->ndim == 1 || strstr(q->name, "_proj_bias");
}

tgi_model_products tgi_model_count_products(const tg_model *model)
{
  const tgi_parameters *all = &model->parameters;
  double table = 0;
  tgi_model_products p = {0, 0};
  for (const tgi_parameter *q = all->list; q < all->list + all->count; q++) {
    const double n = is_vector(q) ? 0 : used_elements(model, q);
    if (is_token_table(q->name)) {
      table = n;
    } else if (strstr(q->name, "lm_head")) {
      p.head = n;
    } else if (!strstr(q->name, "wpe")) {
      p.body += n;
    }
  }
  p.head = p.head > 0 ? p.head : table;
  return p;
}

/* Biases and the weights of norms, and what stays in MXFP4: in bytes, those of 4 bits and a scale
 * for each 32 of them; less what they are as products. */
static double count_others(const tg_model *model, double element)
{
  const tgi_parameters *all = &model->parameters;
  double bytes = 0;
  for (const tgi_parameter *q = all->list; q < all->list + all->count; q++) {
    const double n = used_elements(model, q);
    bytes += is_vector(q) ? n * element : 0;
    bytes += tgi_parameter_is_mxfp4(q) ? n * (17.0 / 32 - element) : 0;
  }
  return bytes;
}

double tgi_model_pass_bytes(const tg_model *model, double keys, tg_dtype cache)
{
  const tgi_config *c = &model->config;
  const tgi_model_products p = tgi_model_count_products(model);
  const double row =
      2.0 * (double)tgi_config_key_width(c) * (double)tg_dtype_bytes(cache ? cache : model->dtype);
  const double element = (double)tg_dtype_bytes(model->dtype);
  double read = (p.body + p.head) * element + count_others(model, element);
  for (int layer = 0; layer < c->num_hidden_layers; layer++) {
    const bool slides = c->sliding_window > 0 && tgi_config_slides(c, layer);
    read += row * (slides && keys > c->sliding_window ? c->sliding_window : keys);
  }
  return read;
}

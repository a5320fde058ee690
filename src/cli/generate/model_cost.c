#include "model_cost.h"

#include "model/weights.h"
#include <stdbool.h>
#include <string.h>

static bool is_token_table(const char *name)
{
  return strstr(name, "wte") || strstr(name, "embed_tokens");
}

/* Elements of a parameter that a pass over one token reads: of the experts' those that it picks. */
static double used_elements(const tg_model *model, const tg_tensor *view, const char *name)
{
  const tgi_config *c = &model->config;
  double n = 1;
  for (int i = 0; i < view->ndim; i++) {
    n *= (double)view->shape[i];
  }
  return strstr(name, ".experts.") ? n * c->experts_per_token / c->num_experts : n;
}

static bool is_vector(const tg_tensor *view, const char *name)
{
  return view->ndim == 1 || strstr(name, "_proj_bias");
}

tgi_model_products tgi_model_count_products(const tg_model *model)
{
  tg_tensor view;
  const char *name;
  double table = 0;
  tgi_model_products p = {0, 0};
  for (size_t i = 0; tg_model_parameter(model, i, &view, &name) == TG_OK; i++) {
    const double n = is_vector(&view, name) ? 0 : used_elements(model, &view, name);
    if (is_token_table(name)) {
      table = n;
    } else if (strstr(name, "lm_head")) {
      p.head = n;
    } else if (!strstr(name, "wpe")) {
      p.body += n;
    }
  }
  p.head = p.head > 0 ? p.head : table;
  return p;
}

/* Biases and the weights of norms. */
static double count_vectors(const tg_model *model)
{
  tg_tensor view;
  const char *name;
  double n = 0;
  for (size_t i = 0; tg_model_parameter(model, i, &view, &name) == TG_OK; i++) {
    n += is_vector(&view, name) ? used_elements(model, &view, name) : 0;
  }
  return n;
}

double tgi_model_pass_bytes(const tg_model *model, double keys, tg_dtype cache)
{
  const tgi_config *c = &model->config;
  const tgi_model_products p = tgi_model_count_products(model);
  const double row =
      2.0 * (double)tgi_config_key_width(c) * (double)tg_dtype_bytes(cache ? cache : model->dtype);
  double read = (p.body + p.head + count_vectors(model)) * (double)tg_dtype_bytes(model->dtype);
  for (int layer = 0; layer < c->num_hidden_layers; layer++) {
    const bool slides = c->sliding_window > 0 && tgi_config_slides(c, layer);
    read += row * (slides && keys > c->sliding_window ? c->sliding_window : keys);
  }
  return read;
}

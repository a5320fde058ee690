#include "model_cost.h"

#include "model/weights.h"
#include <stdbool.h>
#include <string.h>

static bool is_token_table(const char *name)
{
  return strstr(name, "wte") || strstr(name, "embed_tokens");
}

tgi_model_products tgi_model_count_products(const tg_model *model)
{
  tg_tensor view;
  const char *name;
  double table = 0;
  tgi_model_products p = {0, 0};
  for (size_t i = 0; tg_model_parameter(model, i, &view, &name) == TG_OK; i++) {
    const double n = view.ndim == 2 ? (double)view.shape[0] * (double)view.shape[1] : 0;
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
    n += view.ndim == 1 ? (double)view.shape[0] : 0;
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

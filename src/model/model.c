#include "tegula/model.h"

#include "core/error_record.h"
#include "files/file_map.h"
#include "model/preset.h"
#include "model/weights/weights.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The rest of a model whose configuration is known: its parameters' start values. */
static tg_status start(tg_model *model, uint64_t seed, tg_error *error)
{
  model->dtype = model->config.dtype = TG_F32;
  tg_status status = tgi_parameters_create(&model->config, &model->parameters, error);
  if (status == TG_OK) {
    status = tgi_weights_allocate(model, error);
  }
  if (status == TG_OK) {
    tgi_generation_config_start(&model->config, &model->generation);
    tgi_weights_initialise(model, seed);
  }
  return status;
}

/* Stores a model whose status is OK, and destroys any other. */
static tg_status hand_over(tg_model *model, tg_status status, tg_model **out)
{
  if (status != TG_OK) {
    tg_model_destroy(model);
    return status;
  }
  *out = model;
  return TG_OK;
}

tg_status tg_model_create(const char *preset, int32_t vocab_size, uint64_t seed, tg_model **out,
                          tg_error *error)
{
  if (!preset || !out) {
    return tgi_error_set(error, TG_BAD_ARGUMENT, "model_create: %s: expected a pointer, got NULL",
                         preset ? "out" : "preset");
  }
  *out = NULL;
  tg_model *model = calloc(1, sizeof *model);
  if (!model) {
    return tgi_error_set(error, TG_NO_MEMORY, "model_create: expected %zu bytes, got none",
                         sizeof *model);
  }
  tg_status status = tgi_preset(preset, vocab_size, &model->config, error);
  status = status ? status : start(model, seed, error);
  return hand_over(model, status, out);
}

tg_status tg_model_create_from(const char *config_json, uint64_t seed, tg_model **out,
                               tg_error *error)
{
  if (!config_json || !out) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "model_create_from: %s: expected a pointer, got NULL",
                         config_json ? "out" : "config_json");
  }
  *out = NULL;
  tg_model *model = calloc(1, sizeof *model);
  if (!model) {
    return tgi_error_set(error, TG_NO_MEMORY, "model_create_from: expected %zu bytes, got none",
                         sizeof *model);
  }
  tg_status status =
      tgi_config_parse("config", config_json, strlen(config_json), &model->config, error);
  if (status == TG_BAD_FILE) { /* it is no file here */
    status = TG_BAD_ARGUMENT;
    if (error) {
      error->status = status;
    }
  }
  status = status ? status : start(model, seed, error);
  return hand_over(model, status, out);
}

enum { kPathBytes = 4096 };

static tg_status join(const char *directory, const char *name, char path[kPathBytes],
                      tg_error *error)
{
  if (snprintf(path, kPathBytes, "%s/%s", directory, name) >= kPathBytes) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "model_load: directory: expected a path below %d bytes, got %zu",
                         kPathBytes, strlen(directory));
  }
  return TG_OK;
}

/* config.json and generation_config.json. */
static tg_status read_descriptions(tg_model *model, const char *directory, tg_error *error)
{
  char path[kPathBytes];
  tg_status status = tgi_find_directory(directory, error);
  if (status == TG_OK) {
    status = join(directory, "config.json", path, error);
  }
  if (status == TG_OK) {
    status = tgi_config_read(path, &model->config, error);
  }
  if (status == TG_OK) {
    status = join(directory, "generation_config.json", path, error);
  }
  if (status == TG_OK) {
    tgi_generation_config_start(&model->config, &model->generation);
    status = tgi_generation_config_read(path, &model->generation, error);
  }
  return status;
}

/* Files with a head of its own make a model untied, whatever config.json says: as in
 * transformers. */
static tg_status create_parameters(tg_model *model, const tgi_weight_files *files, tg_error *error)
{
  tgi_parameters *p = &model->parameters;
  const tg_status status = tgi_parameters_create(&model->config, p, error);
  if (status || p->head != p->tokens || !tgi_weights_have_head(p->list[p->tokens].name, files)) {
    return status;
  }
  model->config.tie_word_embeddings = false;
  tgi_parameters_free(p);
  return tgi_parameters_create(&model->config, p, error);
}

/* All but the weights' bytes: the descriptions, and the headers of *files, which the caller closes
 * whatever the status is. */
static tg_status describe(tg_model *model, const char *directory, tg_dtype dtype,
                          tgi_weight_files **files, tg_error *error)
{
  *files = NULL;
  tg_status status = read_descriptions(model, directory, error);
  if (status == TG_OK) {
    status = tgi_weight_files_open(directory, files, error);
  }
  if (status == TG_OK) {
    status = create_parameters(model, *files, error);
  }
  if (status == TG_OK) {
    status = tgi_weights_check(&model->parameters, *files, &model->dtype, error);
  }
  status = status ? status : tgi_weights_check_rest(*files, model->config.num_hidden_layers, error);
  if (status == TG_OK) {
    model->dtype = dtype ? dtype : model->dtype;
    model->config.dtype = model->dtype;
  }
  if (status == TG_OK && tgi_weights_in_mxfp4(&model->parameters, *files)) {
    tgi_parameters_keep_mxfp4(&model->parameters);
  }
  return status;
}

/* What products with packed weights do not have, elements do: values beyond f32, as infinities. */
static tg_status read_as_elements(tg_model *model, const tgi_weight_files *files, tg_error *error)
{
  free(model->block);
  free(model->mxfp4);
  model->block = model->mxfp4 = NULL;
  tgi_parameters_free(&model->parameters);
  tg_status status = tgi_parameters_create(&model->config, &model->parameters, error);
  if (status == TG_OK) {
    status = tgi_weights_allocate(model, error);
  }
  return status ? status : tgi_weights_read(model, files, error);
}

static tg_status load(tg_model *model, const char *directory, tg_dtype dtype, tg_error *error)
{
  tgi_weight_files *files;
  tg_status status = describe(model, directory, dtype, &files, error);
  if (status == TG_OK) {
    status = tgi_weights_allocate(model, error);
  }
  if (status == TG_OK) {
    status = tgi_weights_read(model, files, error);
  }
  if (status == TG_UNSUPPORTED && tgi_model_keeps_mxfp4(model)) {
    status = read_as_elements(model, files, error);
  }
  tgi_weight_files_close(files);
  return status;
}

tg_status tgi_model_describe(const char *directory, tg_model **out, tg_error *error)
{
  *out = NULL;
  tg_model *model = calloc(1, sizeof *model);
  if (!model) {
    return tgi_error_set(error, TG_NO_MEMORY, "model_describe: expected %zu bytes, got none",
                         sizeof *model);
  }
  tgi_weight_files *files;
  const tg_status status = describe(model, directory, TG_DTYPE_NONE, &files, error);
  tgi_weight_files_close(files);
  if (status != TG_OK) {
    tg_model_destroy(model);
    return status;
  }
  *out = model;
  return TG_OK;
}

tg_status tg_model_load(const char *directory, tg_dtype dtype, tg_model **out, tg_error *error)
{
  if (!directory || !out) {
    return tgi_error_set(error, TG_BAD_ARGUMENT, "model_load: %s: expected a pointer, got NULL",
                         directory ? "out" : "directory");
  }
  *out = NULL;
  if (dtype != TG_DTYPE_NONE && dtype != TG_F32 && dtype != TG_F16 && dtype != TG_BF16) {
    return tgi_error_set(error, TG_BAD_ARGUMENT, "model_load: dtype: expected f32|f16|bf16, got %s",
                         tg_dtype_name(dtype));
  }
  tg_model *model = calloc(1, sizeof *model);
  if (!model) {
    return tgi_error_set(error, TG_NO_MEMORY, "model_load: expected %zu bytes, got none",
                         sizeof *model);
  }
  const tg_status status = load(model, directory, dtype, error);
  if (status != TG_OK) {
    tg_model_destroy(model);
    return status;
  }
  *out = model;
  return TG_OK;
}

void tg_model_destroy(tg_model *model)
{
  if (model) {
    tgi_generation_config_free(&model->generation);
    tgi_parameters_free(&model->parameters);
    free(model->block);
    free(model->mxfp4);
    free(model);
  }
}

tg_model_info tg_model_get_info(const tg_model *model)
{
  const tgi_config *c = &model->config;
  return (tg_model_info){
      .model_type = tgi_model_type_name(c->model_type),
      .dtype = model->dtype,
      .vocab_size = c->vocab_size,
      .num_hidden_layers = c->num_hidden_layers,
      .hidden_size = c->hidden_size,
      .num_attention_heads = c->num_attention_heads,
      .num_key_value_heads = c->num_key_value_heads,
      .head_dim = c->head_dim,
      .intermediate_size = c->intermediate_size,
      .max_position_embeddings = c->max_position_embeddings,
      .end_of_text = model->generation.num_stop_ids ? model->generation.stop_ids[0] : -1,
      .num_parameters = model->parameters.num_parameters,
      .weight_bytes = (size_t)model->parameters.elements * tg_dtype_bytes(model->dtype) +
                      (size_t)model->parameters.mxfp4_bytes,
  };
}

tg_generation_config tg_model_get_generation_config(const tg_model *model)
{
  return model->generation.says;
}

const int32_t *tg_model_eos_token_ids(const tg_model *model, int64_t *count)
{
  *count = model->generation.num_stop_ids;
  return model->generation.stop_ids;
}

tg_status tg_model_parameter(const tg_model *model, size_t index, tg_tensor *view,
                             const char **name)
{
  if (!model || index >= (size_t)model->parameters.count) {
    return TG_BAD_ARGUMENT;
  }
  if (view && tgi_parameter_is_mxfp4(&model->parameters.list[index])) {
    *view = tgi_mxfp4_weight(model, (int)index);
  } else if (view) {
    *view = tgi_parameter_view(&model->parameters, (int)index, model->block, model->dtype);
  }
  if (name) {
    *name = model->parameters.list[index].name;
  }
  return TG_OK;
}

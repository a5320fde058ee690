#include "save.h"
#include "core/error_record.h"
#include "files/directories/atomic_directory.h"
#include "files/directories/durable_file.h"
#include "weights.h"
#include <stdio.h>
#include <string.h>

enum { kPathBytes = 4096 };

/* transformers' own, until its version 5. */
static const uint64_t kShardBytes = 5000000000;

static tg_status join(char path[kPathBytes], const char *directory, const char *name,
                      tg_error *error)
{
  if (snprintf(path, kPathBytes, "%s/%s", directory, name) >= kPathBytes) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "model_save: directory: expected a path below %d bytes, got %zu",
                         kPathBytes, strlen(directory));
  }
  return TG_OK;
}

static tg_status write_descriptions(const tg_model *model, tg_dtype dtype, const char *directory,
                                    tg_error *error)
{
  char path[kPathBytes];
  tgi_config config = model->config;
  config.dtype = dtype;
  config.mxfp4_experts = tgi_model_keeps_mxfp4(model);
  tg_status status = join(path, directory, "config.json", error);
  if (status == TG_OK) {
    status = tgi_config_write(&config, path, error);
  }
  if (status == TG_OK && model->generation.text) {
    status = join(path, directory, "generation_config.json", error);
    status =
        status ? status
               : tgi_durable_file_save(path, model->generation.text, model->generation.size, error);
  }
  return status;
}

tg_status tgi_model_write(const tg_model *model, const tg_save_options *options,
                          const char *directory, tg_error *error)
{
  const tg_dtype dtype = options->dtype ? options->dtype : model->dtype;
  const uint64_t most = options->max_shard_bytes ? (uint64_t)options->max_shard_bytes : kShardBytes;
  const tgi_block_source from = {.parameters = &model->parameters,
                                 .block = model->block,
                                 .dtype = model->dtype,
                                 .file_dtype = dtype,
                                 .prefix = "",
                                 .mxfp4 = model->mxfp4};
  tg_status status = write_descriptions(model, dtype, directory, error);
  if (status == TG_OK) {
    status = tgi_block_write_shards(&from, most, directory, error);
  }
  return status || !options->tokenizer ? status
                                       : tg_tokenizer_save(options->tokenizer, directory, error);
}

static tg_status check(const tg_model *model, const tg_save_options *o, const char *directory,
                       tg_error *error)
{
  if (!model || !o || !directory) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "model_save: model, options, directory: expected pointers, got NULL");
  }
  if (o->dtype != TG_DTYPE_NONE && o->dtype != TG_F32 && o->dtype != TG_F16 &&
      o->dtype != TG_BF16) {
    return tgi_error_set(error, TG_BAD_ARGUMENT, "model_save: dtype: expected f32|f16|bf16, got %s",
                         tg_dtype_name(o->dtype));
  }
  if (o->max_shard_bytes < 0) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "model_save: max_shard_bytes: expected 0 or more, got %lld",
                         (long long)o->max_shard_bytes);
  }
  return TG_OK;
}

/* Of the model that was there: with its settings another one would generate differently. */
static bool belongs_to_former(const char *name)
{
  return tgi_is_weight_file(name) || strcmp(name, "generation_config.json") == 0;
}

tg_status tg_model_save(const tg_model *model, const tg_save_options *options,
                        const char *directory, tg_error *error)
{
  tgi_atomic_directory *target = NULL;
  tg_status status = check(model, options, directory, error);
  if (status == TG_OK) {
    status = tgi_atomic_directory_begin(directory, &target, error);
  }
  if (status != TG_OK) {
    return status;
  }
  tgi_atomic_directory_leave(target, belongs_to_former);
  status = tgi_model_write(model, options, tgi_atomic_directory_path(target), error);
  if (status != TG_OK) {
    tgi_atomic_directory_drop(target);
    return status;
  }
  return tgi_atomic_directory_commit(target, error);
}

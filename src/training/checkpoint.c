/* Saving a trainer to a directory, and going on from one.
 *
 *   config.json, model.safetensors (or shards),
 *   tokenizer.json, generation_config.json           what transformers loads
 *   optimizer_exp_avg.safetensors,
 *   optimizer_exp_avg_sq.safetensors                 AdamW's moments, "exp_avg.<name>", ...
 *   trainer_state.json                               {"step": ..., "note": ...}, and
 * trainer_record.h
 */
#include "core/error_record.h"
#include "files/directories/atomic_directory.h"
#include "files/json_file.h"
#include "files/utf8.h"
#include "model/weights/save.h"
#include "trainer_record.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kPathBytes = 4096 };

#define STATE_LIMIT ((size_t)1 << 28)

static tg_status join(const char *directory, const char *name, char path[kPathBytes],
                      tg_error *error)
{
  if (snprintf(path, kPathBytes, "%s/%s", directory, name) >= kPathBytes) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "checkpoint: directory: expected a path below %d bytes, got %zu",
                         kPathBytes, strlen(directory));
  }
  return TG_OK;
}

static tg_status save_state(const tg_trainer *t, const char *note, const char *path,
                            tg_error *error)
{
  const size_t size = note ? strlen(note) : 0;
  if (tgi_utf8_valid_bytes(note, size) != size) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "trainer_save: note: expected UTF-8, got other bytes");
  }
  json_t *root = tgi_json_new();
  json_object_set_new(root, "step", json_integer(t->step));
  json_object_set_new(root, "note", json_string(note ? note : ""));
  tgi_trainer_record(t, root);
  return tgi_json_save(path, root, 0, error);
}

/* A block in host memory: the trainer's own, or room for a copy of it. */
static void *host_block(const tg_trainer *t, void *block, tg_error *error)
{
  const size_t bytes = (size_t)tgi_trainer_elements(t) * sizeof(float);
  void *host = t->on_gpu ? calloc(1, bytes) : block;
  if (!host) {
    tgi_error_set(error, TG_NO_MEMORY, "checkpoint: expected %zu bytes, got none", bytes);
  }
  return host;
}

static void release(const tg_trainer *t, void *host)
{
  if (t->on_gpu) {
    free(host);
  }
}

static tg_status save_moment(const tg_trainer *t, void *block, const char *prefix, const char *path,
                             tg_error *error)
{
  void *host = host_block(t, block, error);
  if (!host) {
    return TG_NO_MEMORY;
  }
  tg_status status =
      t->on_gpu ? tgi_trainer_copy(t, host, block, tgi_trainer_elements(t), error) : TG_OK;
  if (status == TG_OK) {
    const tgi_block_source from = {.parameters = &t->model->parameters,
                                   .block = host,
                                   .dtype = TG_F32,
                                   .file_dtype = TG_F32,
                                   .prefix = prefix,
                                   .without_experts = t->options.freeze_experts};
    status = tgi_block_write(&from, path, error);
  }
  release(t, host);
  return status;
}

/* AdamW's moments, a file each. */
static tg_status save_moments(const tg_trainer *t, const char *directory, tg_error *error)
{
  char path[kPathBytes];
  tg_status status = join(directory, "optimizer_exp_avg.safetensors", path, error);
  if (status == TG_OK) {
    status = save_moment(t, t->exp_avg, "exp_avg.", path, error);
  }
  if (status == TG_OK) {
    status = join(directory, "optimizer_exp_avg_sq.safetensors", path, error);
  }
  return status ? status : save_moment(t, t->exp_avg_sq, "exp_avg_sq.", path, error);
}

static tg_status save_all(const tg_trainer *t, const tg_tokenizer *tokenizer, const char *note,
                          const char *directory, tg_error *error)
{
  char path[kPathBytes];
  tg_status status = tg_trainer_sync(t, error);
  if (status == TG_OK) {
    status =
        tgi_model_write(t->model, &(tg_save_options){.tokenizer = tokenizer}, directory, error);
  }
  if (status == TG_OK) {
    status = save_moments(t, directory, error);
  }
  if (status == TG_OK) {
    status = join(directory, "trainer_state.json", path, error);
  }
  return status ? status : save_state(t, note, path, error);
}

tg_status tg_trainer_save(const tg_trainer *t, const tg_tokenizer *tokenizer, const char *note,
                          const char *directory, tg_error *error)
{
  if (!t || !directory) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "trainer_save: trainer, directory: expected pointers, got NULL");
  }
  tgi_atomic_directory *target = NULL;
  tg_status status = tgi_atomic_directory_begin(directory, &target, error);
  if (status != TG_OK) {
    return status;
  }
  tgi_atomic_directory_leave(target, tgi_is_weight_file);
  status = save_all(t, tokenizer, note, tgi_atomic_directory_path(target), error);
  if (status != TG_OK) {
    tgi_atomic_directory_drop(target);
    return status;
  }
  return tgi_atomic_directory_commit(target, error);
}

/* ---- resuming ---- */

static tg_status load_moment(tg_context *cpu, const tgi_parameter *q, const tgi_safetensors *file,
                             const char *prefix, void *host, tg_error *error)
{
  char name[96];
  snprintf(name, sizeof name, "%s%s", prefix, q->name);
  const tgi_file_tensor *tensor = tgi_safetensors_find(file, name);
  return tensor ? tgi_parameter_read(cpu, q, tensor, file, host, TG_F32, error)
                : tgi_error_set(error, TG_BAD_FILE, "%s: %s: expected this tensor, got %zu others",
                                tgi_safetensors_path(file), name, tgi_safetensors_count(file));
}

static tg_status load_moments(const tg_trainer *t, const char *path, const char *prefix,
                              void *block, tg_error *error)
{
  void *host = host_block(t, block, error);
  if (!host) {
    return TG_NO_MEMORY;
  }
  tgi_safetensors *file = NULL;
  tg_context *cpu = NULL;
  tg_status status =
      tg_context_create(&(tg_context_options){.backend = TG_BACKEND_CPU}, &cpu, error);
  status = status ? status : tgi_safetensors_open(path, &file, error);
  for (int p = 0; p < t->model->parameters.count && status == TG_OK; p++) {
    const tgi_parameter *q = &t->model->parameters.list[p];
    const size_t pieces = tgi_trainer_is_frozen(t, p) ? 0 : tgi_parameter_pieces(q);
    for (size_t i = 0; i < pieces && status == TG_OK; i++) {
      const tgi_parameter piece = tgi_parameter_piece(q, i);
      status = load_moment(cpu, &piece, file, prefix, host, error);
    }
  }
  tgi_safetensors_close(file);
  tg_context_destroy(cpu);
  if (status == TG_OK && t->on_gpu) {
    status = tgi_trainer_copy(t, block, host, tgi_trainer_elements(t), error);
  }
  release(t, host);
  return status;
}

/* Reads step and note, and checks that the trainer is one that goes on from here. */
static tg_status load_state(const tg_trainer *t, const char *path, char *note, size_t note_bytes,
                            int64_t *step_done, tg_error *error)
{
  tgi_json json;
  tg_status status = tgi_json_load(path, STATE_LIMIT, 0, &json, error);
  if (status != TG_OK) {
    return status;
  }
  const json_t *step = json_object_get(json.root, "step");
  const json_t *kept = json_object_get(json.root, "note");
  if (!json_is_integer(step) || json_integer_value(step) < 0) {
    status = tgi_json_refuse(&json, TG_BAD_FILE, step, error, "step: expected an integer from 0");
  } else if (!json_is_string(kept)) {
    status = tgi_json_refuse(&json, TG_BAD_FILE, kept, error, "note: expected a string");
  } else {
    *step_done = json_integer_value(step);
    if (note && note_bytes) {
      snprintf(note, note_bytes, "%s", json_string_value(kept));
    }
    status = tgi_trainer_record_check(t, &json, *step_done, error);
  }
  json_decref(json.root);
  return status;
}

static tg_status load_all(tg_trainer *t, const char *directory, char *note, size_t note_bytes,
                          tg_error *error)
{
  char path[kPathBytes];
  int64_t step = 0;
  tg_status status = join(directory, "trainer_state.json", path, error);
  status = status ? status : load_state(t, path, note, note_bytes, &step, error);
  status = status ? status : join(directory, "optimizer_exp_avg.safetensors", path, error);
  status = status ? status : load_moments(t, path, "exp_avg.", t->exp_avg, error);
  status = status ? status : join(directory, "optimizer_exp_avg_sq.safetensors", path, error);
  status = status ? status : load_moments(t, path, "exp_avg_sq.", t->exp_avg_sq, error);
  t->step = status ? t->step : step;
  return status;
}

tg_status tg_trainer_resume(tg_trainer *t, const char *directory, char *note, size_t note_bytes,
                            tg_error *error)
{
  if (!t || !directory) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "trainer_resume: trainer, directory: expected pointers, got NULL");
  }
  const tg_status status = tgi_atomic_directory_recover(directory, error);
  return status ? status : load_all(t, directory, note, note_bytes, error);
}

#include "trainer_record.h"

#include "files/file_error.h"
#include "files/hash128.h"
#include <stdio.h>
#include <string.h>

enum { kSamples = 256 };

/* ---- weights ---- */

/* A whole pass over the weights would take seconds; a step changes nearly every element, and so do
 * rounding and another model. */
static tgi_hash_text hash_weights(const tg_trainer *t)
{
  tgi_hasher hasher = {0};
  const float *block = t->model->block;
  for (int p = 0; p < t->model->parameters.count; p++) {
    const tgi_parameter *q = &t->model->parameters.list[p];
    if (tgi_trainer_is_frozen(t, p) || tgi_parameter_is_mxfp4(q)) {
      continue;
    }
    const int64_t elements = tgi_parameter_elements(q);
    const int64_t samples = elements < kSamples ? elements : kSamples;
    for (int64_t i = 0; i < samples; i++) {
      const int64_t at = elements / samples * i;
      tgi_hasher_add(&hasher, &block[q->offset + at], sizeof *block);
    }
  }
  return tgi_hash_print(tgi_hasher_end(&hasher));
}

/* ---- options ---- */

/* Those that would change the run, as numbers. */
static json_t *list_options(const tg_trainer *t)
{
  const tg_trainer_options *o = &t->options;
  json_t *list = json_object();
  json_object_set_new(list, "freeze_experts", json_boolean(o->freeze_experts));
  json_object_set_new(list, "dtype", json_string(tg_dtype_name(t->compute.dtype)));
  json_object_set_new(list, "batch_size", json_integer(o->batch_size));
  json_object_set_new(list, "sequence_length", json_integer(o->sequence_length));
  json_object_set_new(list, "num_steps", json_integer(o->num_steps));
  json_object_set_new(list, "warmup_steps", json_integer(o->warmup_steps));
  json_object_set_new(list, "learning_rate", json_real(o->learning_rate));
  json_object_set_new(list, "min_learning_rate", json_real(o->min_learning_rate));
  json_object_set_new(list, "beta1", json_real(o->beta1));
  json_object_set_new(list, "beta2", json_real(o->beta2));
  json_object_set_new(list, "eps", json_real(o->eps));
  json_object_set_new(list, "weight_decay", json_real(o->weight_decay));
  json_object_set_new(list, "max_grad_norm", json_real(o->max_grad_norm));
  const bool balances = t->batch.counts_tokens;
  json_object_set_new(list, "router_aux_loss_coef",
                      json_real(balances ? t->balance.coefficient : 0));
  if (balances) { /* it is computed of each micro-batch */
    json_object_set_new(list, "micro_batch_size", json_integer(o->micro_batch_size));
  }
  return list;
}

static void print(const json_t *value, char text[40])
{
  if (json_is_integer(value)) {
    snprintf(text, 40, "%lld", (long long)json_integer_value(value));
  } else if (json_is_real(value)) {
    snprintf(text, 40, "%.17g", json_real_value(value));
  } else if (json_is_string(value)) {
    snprintf(text, 40, "%.30s", json_string_value(value));
  } else {
    snprintf(text, 40, "%s", json_is_true(value) ? "true" : value ? "false" : "none");
  }
}

/* All steps are done and more are wanted. */
static bool goes_on(const json_t *saved, const json_t *list, int64_t step)
{
  const json_int_t was = json_integer_value(json_object_get(saved, "num_steps"));
  return step >= was && json_integer_value(json_object_get(list, "num_steps")) > was;
}

/* The warm-up is behind a run that is done, and is often a share of num_steps. */
static bool may_differ(const char *name, bool goes_on)
{
  return goes_on && (strcmp(name, "num_steps") == 0 || strcmp(name, "warmup_steps") == 0);
}

static tg_status check_options(const tgi_json *state, const json_t *saved, json_t *list,
                               int64_t step, tg_error *error)
{
  const char *name;
  json_t *is;
  json_object_foreach(list, name, is)
  {
    const json_t *was = json_object_get(saved, name);
    if (!json_equal(was, is) && !may_differ(name, goes_on(saved, list, step))) {
      char expected[40], got[40];
      print(was, expected);
      print(is, got);
      return tgi_file_error(error, TG_BAD_ARGUMENT, state->path, TGI_NO_BYTE,
                            "a trainer with %s %s, got %s", name, expected, got);
    }
  }
  return TG_OK;
}

/* ---- both ---- */

void tgi_trainer_record(const tg_trainer *t, json_t *root)
{
  json_object_set_new(root, "options", list_options(t));
  json_object_set_new(root, "weights_hash", json_string(hash_weights(t).text));
}

tg_status tgi_trainer_record_check(const tg_trainer *t, const tgi_json *state, int64_t step,
                                   tg_error *error)
{
  const json_t *saved = json_object_get(state->root, "options");
  const json_t *hash = json_object_get(state->root, "weights_hash");
  tg_status status = TG_OK;
  if (saved) {
    tgi_json_begin();
    json_t *list = list_options(t);
    status = tgi_json_missing() ? tgi_file_error_memory(error, state->path, tgi_json_missing())
                                : check_options(state, saved, list, step, error);
    json_decref(list);
  }
  if (status == TG_OK && hash) {
    status = tg_trainer_sync(t, error);
  }
  if (status == TG_OK && hash) {
    const tgi_hash_text is = hash_weights(t);
    const char *was = json_string_value(hash);
    if (!was || strcmp(was, is.text) != 0) {
      status = tgi_file_error(error, TG_BAD_ARGUMENT, state->path, TGI_NO_BYTE,
                              "the model to have the weights of this step (hash %.32s), got others "
                              "(hash %s)",
                              was ? was : "none", is.text);
    }
  }
  return status;
}

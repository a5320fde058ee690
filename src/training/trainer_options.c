/* What a trainer may be asked for, and the schedule of the learning rate. */
#include "trainer_state.h"

#include "core/error_record.h"
#include <math.h>

static tg_status refuse(tg_error *error, const char *option, const char *expected, double got)
{
  return tgi_error_set(error, TG_BAD_ARGUMENT, "trainer: %s: expected %s, got %g", option, expected,
                       got);
}

/* The shape of a batch, its parts and its documents. */
static tg_status check_shape(const tg_trainer_options *o, int32_t positions, tg_error *error)
{
  if (o->batch_size < 1) {
    return refuse(error, "batch_size", "1 or more", o->batch_size);
  }
  if (o->sequence_length < 1 || o->sequence_length > positions) {
    return tgi_error_set(
        error, TG_BAD_ARGUMENT,
        "trainer: sequence_length: expected 1 to %d (the model's positions), got %d", positions,
        o->sequence_length);
  }
  if (o->micro_batch_size < 0 ||
      (o->micro_batch_size > 0 && o->batch_size % o->micro_batch_size != 0)) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "trainer: micro_batch_size: expected a divisor of batch_size %d, got %d",
                         o->batch_size, o->micro_batch_size);
  }
  if (o->max_documents < 0 || o->max_documents > o->sequence_length) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "trainer: max_documents: expected 0 to sequence_length %d, got %d",
                         o->sequence_length, o->max_documents);
  }
  if (o->max_documents > 0 && o->batch_size > INT32_MAX / o->sequence_length) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "trainer: batch_size: expected at most %d with documents, got %d",
                         INT32_MAX / o->sequence_length, o->batch_size);
  }
  return TG_OK;
}

static tg_status check_schedule(const tg_trainer_options *o, tg_error *error)
{
  if (o->num_steps < 1) {
    return refuse(error, "num_steps", "1 or more", (double)o->num_steps);
  }
  if (o->warmup_steps < 0 || o->warmup_steps > o->num_steps) {
    return refuse(error, "warmup_steps", "0 to num_steps", (double)o->warmup_steps);
  }
  if (!(o->learning_rate > 0) || !isfinite(o->learning_rate)) {
    return refuse(error, "learning_rate", "a finite number > 0", o->learning_rate);
  }
  if (!(o->min_learning_rate >= 0 && o->min_learning_rate <= o->learning_rate)) {
    return refuse(error, "min_learning_rate", "0 to learning_rate", o->min_learning_rate);
  }
  if ((int)o->schedule < 0 || (int)o->schedule > TG_SCHEDULE_WSD) {
    return refuse(error, "schedule", "a tg_schedule", (double)o->schedule);
  }
  const bool decays = o->schedule == TG_SCHEDULE_WSD;
  if (decays && !(o->decay_fraction > 0 && o->decay_fraction <= 1)) {
    return refuse(error, "decay_fraction", "a number above 0 and at most 1", o->decay_fraction);
  }
  if (!decays && o->decay_fraction != 0) {
    return refuse(error, "decay_fraction", "0 without TG_SCHEDULE_WSD", o->decay_fraction);
  }
  return TG_OK;
}

tg_status tgi_trainer_check(const tg_model *model, const tg_trainer_options *o, tg_error *error)
{
  if (!model || !o) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "trainer: model, options: expected pointers, got NULL");
  }
  if (model->dtype != TG_F32) {
    return tgi_error_set(error, TG_BAD_DTYPE, "trainer: model: expected f32 weights, got %s",
                         tg_dtype_name(model->dtype));
  }
  if (o->freeze_experts && !model->config.num_experts) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "trainer: freeze_experts: expected a model with experts, got %s",
                         tgi_model_type_name(model->config.model_type));
  }
  if (o->has_router_aux_loss_coef && !model->config.num_experts) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "trainer: router_aux_loss_coef: expected a model with experts, got %s",
                         tgi_model_type_name(model->config.model_type));
  }
  if (o->has_router_aux_loss_coef &&
      !(o->router_aux_loss_coef >= 0 && isfinite(o->router_aux_loss_coef))) {
    return refuse(error, "router_aux_loss_coef", "a finite number >= 0", o->router_aux_loss_coef);
  }
  if (o->dtype != TG_DTYPE_NONE && o->dtype != TG_F32 && o->dtype != TG_BF16) {
    return tgi_error_set(error, TG_BAD_ARGUMENT, "trainer: dtype: expected f32 or bf16, got %s",
                         tg_dtype_name(o->dtype));
  }
  tg_status status = check_shape(o, model->config.max_position_embeddings, error);
  status = status ? status : check_schedule(o, error);
  if (status != TG_OK) {
    return status;
  }
  if (!(o->beta1 > 0 && o->beta1 < 1)) {
    return refuse(error, "beta1", "a number between 0 and 1", o->beta1);
  }
  if (!(o->beta2 > 0 && o->beta2 < 1)) {
    return refuse(error, "beta2", "a number between 0 and 1", o->beta2);
  }
  if (!(o->eps > 0) || !isfinite(o->eps)) {
    return refuse(error, "eps", "a finite number > 0", o->eps);
  }
  if (!(o->weight_decay >= 0) || !isfinite(o->weight_decay)) {
    return refuse(error, "weight_decay", "a finite number >= 0", o->weight_decay);
  }
  if (!(o->max_grad_norm >= 0) || !isfinite(o->max_grad_norm)) {
    return refuse(error, "max_grad_norm", "a finite number >= 0", o->max_grad_norm);
  }
  return TG_OK;
}

tg_trainer_options tgi_trainer_settle(const tg_trainer_options *options)
{
  tg_trainer_options o = *options;
  o.micro_batch_size = o.micro_batch_size ? o.micro_batch_size : o.batch_size;
  return o;
}

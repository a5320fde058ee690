/* What a trainer may be asked for, and the schedule of the learning rate. */
#include "trainer_state.h"

#include "core/error_record.h"
#include <math.h>

static tg_status refuse(tg_error *error, const char *option, const char *expected, double got)
{
  return tgi_error_set(error, TG_BAD_ARGUMENT, "trainer: %s: expected %s, got %g", option, expected,
                       got);
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
  if (o->dtype != TG_DTYPE_NONE && o->dtype != TG_F32 && o->dtype != TG_BF16) {
    return tgi_error_set(error, TG_BAD_ARGUMENT, "trainer: dtype: expected f32 or bf16, got %s",
                         tg_dtype_name(o->dtype));
  }
  if (o->batch_size < 1) {
    return refuse(error, "batch_size", "1 or more", o->batch_size);
  }
  const int32_t most = model->config.max_position_embeddings;
  if (o->sequence_length < 1 || o->sequence_length > most) {
    return tgi_error_set(
        error, TG_BAD_ARGUMENT,
        "trainer: sequence_length: expected 1 to %d (the model's positions), got %d", most,
        o->sequence_length);
  }
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

double tgi_learning_rate(const tg_trainer_options *o, int64_t step)
{
  if (step <= o->warmup_steps) {
    return o->learning_rate * (double)step / (double)o->warmup_steps;
  }
  const int64_t left = o->num_steps - o->warmup_steps;
  double progress = left > 0 ? (double)(step - o->warmup_steps) / (double)left : 1;
  progress = progress < 1 ? progress : 1;
  const double cosine = 0.5 * (1 + cos(3.141592653589793 * progress));
  return o->min_learning_rate + (o->learning_rate - o->min_learning_rate) * cosine;
}

/* The steps that a trainer takes over its memory plan: every op of a step, run or sized. */
#include "trainer_state.h"

#include "core/error_record.h"
#include <math.h>
#include <stdlib.h>

enum { kIgnoredTarget = -100 };

static tgi_pass make_pass(tg_trainer *t)
{
  return (tgi_pass){.ctx = t->ctx,
                    .model = &t->compute,
                    .a = &t->a,
                    .batch = t->options.batch_size,
                    .seq = t->options.sequence_length,
                    .ids = t->ids,
                    .rope = t->rope,
                    .keep = true,
                    .workspace = t->workspace,
                    .workspace_bytes = t->workspace_bytes};
}

static tg_status loss_fwd(tg_trainer *t, tgi_pass *pass)
{
  tg_linear_cross_entropy_fwd_args args = {.hidden = t->a.final_norm,
                                           .weight =
                                               tgi_weight(&t->compute, t->model->parameters.head),
                                           .targets = t->targets,
                                           .loss = t->loss,
                                           .ignore_index = kIgnoredTarget,
                                           .has_ignore_index = true,
                                           .reduction = TG_REDUCTION_MEAN};
  return TGI_STEP(pass, linear_cross_entropy_fwd, &args);
}

/* The loss, the head's gradient and that of the final norm. */
static tg_status loss_fwdbwd(tg_trainer *t, tgi_pass *pass)
{
  const tgi_parameters *p = &t->model->parameters;
  tg_linear_cross_entropy_fwdbwd_args args = {
      .hidden = t->a.final_norm,
      .weight = tgi_weight(&t->compute, p->head),
      .targets = t->targets,
      .loss = t->loss,
      .lse = t->lse,
      .dhidden = t->g.dnorm,
      .dweight = tgi_parameter_view(p, p->head, t->g.block, TG_F32),
      .ignore_index = kIgnoredTarget,
      .has_ignore_index = true,
      .reduction = TG_REDUCTION_MEAN};
  return TGI_STEP(pass, linear_cross_entropy_fwdbwd, &args);
}

static tg_status measure_norm(tg_trainer *t, tgi_pass *pass)
{
  tg_global_norm_fwd_args args = {
      .tensors = tgi_trainer_gradients(t),
      .num_tensors = t->model->parameters.count,
      .norm = t->norm,
      .clip = t->clip,
      .max_norm = t->options.max_grad_norm > 0 ? (float)t->options.max_grad_norm : 3.4e38f};
  return TGI_STEP(pass, global_norm_fwd, &args);
}

static tg_status update_group(tg_trainer *t, tgi_pass *pass, bool decayed)
{
  const tg_trainer_options *o = &t->options;
  tg_adamw_step_args args = {.params = tgi_trainer_list(t, decayed, TGI_LIST_PARAMS),
                             .grads = tgi_trainer_list(t, decayed, TGI_LIST_GRADS),
                             .exp_avg = tgi_trainer_list(t, decayed, TGI_LIST_EXP_AVG),
                             .exp_avg_sq = tgi_trainer_list(t, decayed, TGI_LIST_EXP_AVG_SQ),
                             .num_tensors = decayed ? t->num_decayed : t->num_others,
                             .step = t->step + 1,
                             .lr = tgi_learning_rate(o, t->step + 1),
                             .beta1 = o->beta1,
                             .beta2 = o->beta2,
                             .eps = o->eps,
                             .weight_decay = decayed ? o->weight_decay : 0};
  if (t->compute.dtype != TG_F32) {
    args.master = tgi_trainer_list(t, decayed, TGI_LIST_MASTER);
  }
  if (o->max_grad_norm > 0) {
    args.clip = t->clip;
  }
  return TGI_STEP(pass, adamw_step, &args);
}

/* Every op of a step once, run or sized as the pass says. */
static tg_status run_step_ops(tg_trainer *t, tgi_pass *pass)
{
  tg_status status = tgi_transformer_forward(pass);
  if (status == TG_OK) {
    status = loss_fwdbwd(t, pass);
  }
  return status ? status : tgi_transformer_backward(pass, &t->g);
}

tg_status tgi_trainer_size_ops(tg_trainer *t, size_t *bytes)
{
  tgi_pass pass = make_pass(t);
  pass.sizing = true;
  pass.workspace_bytes = 0;
  tg_status status = run_step_ops(t, &pass);
  if (status == TG_OK) {
    status = loss_fwd(t, &pass);
  }
  if (status == TG_OK && t->lists) {
    status = measure_norm(t, &pass);
  }
  *bytes = pass.workspace_bytes;
  return status;
}

/* ---- training ---- */

static tg_status fail(const tg_trainer *t, tg_status status, tg_error *error)
{
  return tgi_error_set(error, status, "step %lld: %s", (long long)t->step + 1,
                       tg_context_message(t->ctx));
}

static tg_status set_batch(tg_trainer *t, const int32_t *ids, const int32_t *targets,
                           tg_error *error)
{
  if (!t || !ids || !targets) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "trainer: trainer, ids, targets: expected pointers, got NULL");
  }
  const size_t bytes = (size_t)t->ids.shape[0] * sizeof *ids;
  tg_status status = tg_memory_copy(t->ctx, t->ids.data, bytes, ids, bytes, bytes, 1);
  if (status == TG_OK) {
    status = tg_memory_copy(t->ctx, t->targets.data, bytes, targets, bytes, bytes, 1);
  }
  return status ? fail(t, status, error) : TG_OK;
}

/* A scalar that the ops before made, once they are over; also what was wrong with their data. */
static tg_status read_scalar(const tg_trainer *t, const tg_tensor *scalar, double *value,
                             tg_error *error)
{
  float v = 0;
  tg_status status = tg_context_check(t->ctx);
  if (status == TG_OK) {
    status = tg_memory_copy(t->ctx, &v, sizeof v, scalar->data, sizeof v, sizeof v, 1);
  }
  *value = (double)v;
  return status ? fail(t, status, error) : TG_OK;
}

tg_status tg_trainer_loss(tg_trainer *t, const int32_t *ids, const int32_t *targets, double *loss,
                          tg_error *error)
{
  tg_status status = set_batch(t, ids, targets, error);
  if (status != TG_OK) {
    return status;
  }
  tgi_pass pass = make_pass(t);
  status = tgi_transformer_forward(&pass);
  if (status == TG_OK) {
    status = loss_fwd(t, &pass);
  }
  return status ? fail(t, status, error) : read_scalar(t, &t->loss, loss, error);
}

tg_status tg_trainer_backward(tg_trainer *t, const int32_t *ids, const int32_t *targets,
                              double *loss, tg_error *error)
{
  tg_status status = set_batch(t, ids, targets, error);
  if (status != TG_OK) {
    return status;
  }
  tgi_pass pass = make_pass(t);
  status =
      tg_memory_zero(t->ctx, t->g.block, (size_t)t->model->parameters.elements * sizeof(float));
  if (status == TG_OK) {
    status = run_step_ops(t, &pass);
  }
  return status ? fail(t, status, error) : read_scalar(t, &t->loss, loss, error);
}

static tg_status check_finite(const tg_trainer *t, const char *what, double value, tg_error *error)
{
  if (isfinite(value)) {
    return TG_OK;
  }
  return tgi_error_set(error, TG_BAD_ARGUMENT, "step %lld: %s: expected a finite number, got %g",
                       (long long)t->step + 1, what, value);
}

tg_status tg_trainer_step(tg_trainer *t, const int32_t *ids, const int32_t *targets,
                          tg_step_result *result, tg_error *error)
{
  double loss = 0;
  tg_status status = tg_trainer_backward(t, ids, targets, &loss, error);
  if (status == TG_OK) {
    status = check_finite(t, "loss", loss, error);
  }
  if (status != TG_OK) {
    return status;
  }
  tgi_pass pass = make_pass(t);
  status = measure_norm(t, &pass);
  double norm = 0;
  status = status ? fail(t, status, error) : read_scalar(t, &t->norm, &norm, error);
  if (status != TG_OK) {
    return status;
  }
  status = check_finite(t, "gradient norm", norm, error);
  if (status != TG_OK) {
    return status;
  }
  status = update_group(t, &pass, true);
  if (status == TG_OK) {
    status = update_group(t, &pass, false);
  }
  if (status != TG_OK) {
    return fail(t, status, error);
  }
  t->step++;
  if (result) {
    *result = (tg_step_result){t->step, loss, norm, tgi_learning_rate(&t->options, t->step)};
  }
  return TG_OK;
}

int64_t tg_trainer_steps(const tg_trainer *t)
{
  return t ? t->step : 0;
}

tg_status tgi_trainer_copy(const tg_trainer *t, void *to, const void *from, tg_error *error)
{
  const size_t bytes = (size_t)t->model->parameters.elements * sizeof(float);
  const tg_status status = tg_memory_copy(t->ctx, to, bytes, from, bytes, bytes, 1);
  return status ? tgi_error_set(error, status, "trainer: %s", tg_context_message(t->ctx)) : TG_OK;
}

tg_status tg_trainer_sync(const tg_trainer *t, tg_error *error)
{
  if (!t) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "trainer_sync: trainer: expected a pointer, got NULL");
  }
  return t->on_gpu ? tgi_trainer_copy(t, t->model->block, t->master, error) : TG_OK;
}

tg_status tg_trainer_gradient(tg_trainer *t, size_t index, tg_tensor *view)
{
  if (!t || !view || index >= (size_t)t->model->parameters.count) {
    return TG_BAD_ARGUMENT;
  }
  void *block = t->g.block;
  if (t->on_gpu) {
    if (!t->gradients) {
      t->gradients = malloc((size_t)t->model->parameters.elements * sizeof *t->gradients);
    }
    const tg_status status =
        t->gradients ? tgi_trainer_copy(t, t->gradients, t->g.block, NULL) : TG_NO_MEMORY;
    if (status != TG_OK) {
      return status;
    }
    block = t->gradients;
  }
  *view = tgi_parameter_view(&t->model->parameters, (int)index, block, TG_F32);
  return TG_OK;
}

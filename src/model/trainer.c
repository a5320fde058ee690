/* A trainer: one memory plan, and the steps that run over it. */
#include "trainer_state.h"

#include "core/error_record.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { kIgnoredTarget = -100 };

/* ---- options ---- */

static tg_status refuse(tg_error *error, const char *option, const char *expected, double got)
{
  return tgi_error_set(error, TG_BAD_ARGUMENT, "trainer: %s: expected %s, got %g", option, expected,
                       got);
}

static tg_status check_options(const tg_model *model, const tg_trainer_options *o, tg_error *error)
{
  if (!model || !o) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "trainer: model, options: expected pointers, got NULL");
  }
  if (model->dtype != TG_F32) {
    return tgi_error_set(error, TG_BAD_DTYPE, "trainer: model: expected f32 weights, got %s",
                         tg_dtype_name(model->dtype));
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

/* ---- the plan ---- */

enum { kPlanLines = 5 };

/* Lays out everything but the weights; `lines` (of kPlanLines) gets what each part takes. */
static void lay_out(tg_trainer *t, tgi_memory_plan *plan, tg_plan_line *lines)
{
  const tgi_parameters *p = &t->model->parameters;
  const int64_t batch = t->options.batch_size, seq = t->options.sequence_length;
  const int64_t rows = batch * seq;
  size_t before = plan->bytes;
  int line = 0;
#define CLOSE(what)                                                                                \
  lines[line++] = (tg_plan_line){what, plan->bytes - before};                                      \
  before = plan->bytes
  lines[line++] = (tg_plan_line){"weights", (size_t)p->elements * sizeof(float)};
  t->g.block = tgi_take_1d(plan, TG_F32, p->elements).data;
  CLOSE("gradients");
  t->exp_avg = tgi_take_1d(plan, TG_F32, p->elements).data;
  t->exp_avg_sq = tgi_take_1d(plan, TG_F32, p->elements).data;
  CLOSE("optimiser state");
  tgi_rope_tables_lay_out(&t->rope, plan, &t->model->config, seq);
  t->ids = tgi_take_1d(plan, TG_I32, rows);
  t->targets = tgi_take_1d(plan, TG_I32, rows);
  t->lse = tgi_take_1d(plan, TG_F32, rows);
  t->loss = tgi_take_1d(plan, TG_F32, 1);
  t->norm = tgi_take_1d(plan, TG_F32, 1);
  t->clip = tgi_take_1d(plan, TG_F32, 1);
  t->a.layer = t->layer;
  tgi_activations_lay_out(&t->a, plan, t->model, batch, seq, rows, true);
  tgi_gradients_lay_out(&t->g, plan, t->model, rows);
  CLOSE("activations");
  t->workspace = plan->block ? plan->block + (plan->bytes + 255) / 256 * 256 : NULL;
  plan->bytes = (plan->bytes + 255) / 256 * 256 + (t->workspace_bytes + 63) / 64 * 64;
  CLOSE("workspace");
#undef CLOSE
}

static tgi_pass make_pass(tg_trainer *t)
{
  return (tgi_pass){.ctx = t->ctx,
                    .model = t->model,
                    .a = &t->a,
                    .batch = t->options.batch_size,
                    .seq = t->options.sequence_length,
                    .ids = t->ids,
                    .rope = t->rope,
                    .keep = true,
                    .workspace = t->workspace,
                    .workspace_bytes = t->workspace_bytes};
}

/* ---- the steps of a step ---- */

static tg_status loss_fwd(tg_trainer *t, tgi_pass *pass)
{
  tg_cross_entropy_fwd_args args = {.logits = t->a.logits,
                                    .targets = t->targets,
                                    .loss = t->loss,
                                    .lse = t->lse,
                                    .ignore_index = kIgnoredTarget,
                                    .has_ignore_index = true,
                                    .reduction = TG_REDUCTION_MEAN};
  return TGI_STEP(pass, cross_entropy_fwd, &args);
}

/* The gradient takes the place of the logits. */
static tg_status loss_bwd(tg_trainer *t, tgi_pass *pass)
{
  tg_cross_entropy_bwd_args args = {.logits = t->a.logits,
                                    .targets = t->targets,
                                    .lse = t->lse,
                                    .dlogits = t->a.logits,
                                    .ignore_index = kIgnoredTarget,
                                    .has_ignore_index = true,
                                    .reduction = TG_REDUCTION_MEAN};
  return TGI_STEP(pass, cross_entropy_bwd, &args);
}

/* The four lists of a group begin at lists + 4 * (first of the group). */
static tg_tensor *group_list(const tg_trainer *t, bool decayed, int which)
{
  const int n = decayed ? t->num_decayed : t->num_others;
  return t->lists + (decayed ? 0 : 4 * t->num_decayed) + which * n;
}

static tg_status measure_norm(tg_trainer *t, tgi_pass *pass)
{
  /* Both groups' gradient lists in one call: the table of views is laid out for it. */
  tg_global_norm_fwd_args args = {
      .tensors = t->lists + 4 * t->model->parameters.count,
      .num_tensors = t->model->parameters.count,
      .norm = t->norm,
      .clip = t->clip,
      .max_norm = t->options.max_grad_norm > 0 ? (float)t->options.max_grad_norm : 3.4e38f};
  return TGI_STEP(pass, global_norm_fwd, &args);
}

static tg_status update_group(tg_trainer *t, tgi_pass *pass, bool decayed)
{
  const tg_trainer_options *o = &t->options;
  tg_adamw_step_args args = {.params = group_list(t, decayed, 0),
                             .grads = group_list(t, decayed, 1),
                             .exp_avg = group_list(t, decayed, 2),
                             .exp_avg_sq = group_list(t, decayed, 3),
                             .num_tensors = decayed ? t->num_decayed : t->num_others,
                             .step = t->step + 1,
                             .lr = tgi_learning_rate(o, t->step + 1),
                             .beta1 = o->beta1,
                             .beta2 = o->beta2,
                             .eps = o->eps,
                             .weight_decay = decayed ? o->weight_decay : 0};
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
    status = loss_fwd(t, pass);
  }
  if (status == TG_OK) {
    status = loss_bwd(t, pass);
  }
  if (status == TG_OK) {
    status = tgi_transformer_backward(pass, &t->g);
  }
  return status;
}

static tg_status size_workspace(tg_trainer *t, tg_error *error)
{
  tgi_memory_plan plan = {NULL, 0};
  tg_plan_line lines[kPlanLines];
  lay_out(t, &plan, lines);
  tgi_pass pass = make_pass(t);
  pass.sizing = true;
  tg_status status = run_step_ops(t, &pass);
  if (status == TG_OK && t->lists) {
    status = measure_norm(t, &pass);
  }
  t->workspace_bytes = pass.workspace_bytes;
  return status ? tgi_error_set(error, status, "%s", tg_context_message(t->ctx)) : TG_OK;
}

/* ---- creation ---- */

static void bind_lists(tg_trainer *t)
{
  const tgi_parameters *p = &t->model->parameters;
  void *const blocks[4] = {t->model->block, t->g.block, t->exp_avg, t->exp_avg_sq};
  int next[2] = {0, 0};
  for (int i = 0; i < p->count; i++) {
    const bool decayed = p->list[i].decays;
    for (int which = 0; which < 4; which++) {
      group_list(t, decayed, which)[next[decayed]] =
          tgi_parameter_view(p, i, blocks[which], TG_F32);
    }
    next[decayed]++;
    t->lists[4 * p->count + i] = tgi_parameter_view(p, i, t->g.block, TG_F32);
  }
}

static tg_status make_lists(tg_trainer *t, tg_error *error)
{
  const tgi_parameters *p = &t->model->parameters;
  for (int i = 0; i < p->count; i++) {
    t->num_decayed += p->list[i].decays;
  }
  t->num_others = p->count - t->num_decayed;
  t->lists = calloc((size_t)p->count * 5, sizeof *t->lists);
  if (!t->lists) {
    return tgi_error_set(error, TG_NO_MEMORY, "trainer: expected room for %d views, got none",
                         p->count * 5);
  }
  bind_lists(t);
  return TG_OK;
}

/* Everything but the memory of the plan. */
static tg_status prepare(tg_trainer *t, tg_error *error)
{
  const tg_context_options options = {.backend = TG_BACKEND_CPU,
                                      .num_threads = t->options.num_threads};
  tg_status status = tg_context_create(&options, &t->ctx, error);
  if (status != TG_OK) {
    return status;
  }
  t->layer = calloc((size_t)t->model->config.num_hidden_layers, sizeof *t->layer);
  if (!t->layer) {
    return tgi_error_set(error, TG_NO_MEMORY, "trainer: expected room for %d layers, got none",
                         t->model->config.num_hidden_layers);
  }
  status = make_lists(t, error);
  return status ? status : size_workspace(t, error);
}

tg_status tg_trainer_plan(const tg_model *model, const tg_trainer_options *options,
                          tg_plan_line *lines, size_t capacity, size_t *count, tg_error *error)
{
  tg_status status = check_options(model, options, error);
  if (status != TG_OK) {
    return status;
  }
  tg_trainer t = {.model = (tg_model *)(uintptr_t)model, .options = *options};
  status = prepare(&t, error);
  if (status == TG_OK) {
    tg_plan_line all[kPlanLines];
    tgi_memory_plan plan = {NULL, 0};
    lay_out(&t, &plan, all);
    for (size_t i = 0; i < kPlanLines && i < capacity; i++) {
      lines[i] = all[i];
    }
    *count = kPlanLines;
  }
  tg_context_destroy(t.ctx);
  free(t.layer);
  free(t.lists);
  return status;
}

static tg_status set_up(tg_trainer *t, tg_error *error)
{
  tg_status status = prepare(t, error);
  if (status != TG_OK) {
    return status;
  }
  tg_plan_line lines[kPlanLines];
  tgi_memory_plan plan = {NULL, 0};
  lay_out(t, &plan, lines);
  t->block = aligned_alloc(256, (plan.bytes + 255) / 256 * 256);
  if (!t->block) {
    return tgi_error_set(error, TG_NO_MEMORY, "trainer: expected %zu bytes, got none", plan.bytes);
  }
  plan = (tgi_memory_plan){t->block, 0};
  lay_out(t, &plan, lines);
  memset(t->exp_avg, 0, (size_t)t->model->parameters.elements * sizeof(float));
  memset(t->exp_avg_sq, 0, (size_t)t->model->parameters.elements * sizeof(float));
  memset(t->g.block, 0, (size_t)t->model->parameters.elements * sizeof(float));
  bind_lists(t);
  return tgi_rope_tables_fill(&t->rope, &t->model->config, error);
}

tg_status tg_trainer_create(tg_model *model, const tg_trainer_options *options, tg_trainer **out,
                            tg_error *error)
{
  if (!out) {
    return tgi_error_set(error, TG_BAD_ARGUMENT, "trainer: out: expected a pointer, got NULL");
  }
  *out = NULL;
  tg_status status = check_options(model, options, error);
  if (status != TG_OK) {
    return status;
  }
  tg_trainer *t = calloc(1, sizeof *t);
  if (!t) {
    return tgi_error_set(error, TG_NO_MEMORY, "trainer: expected %zu bytes, got none", sizeof *t);
  }
  t->model = model;
  t->options = *options;
  status = set_up(t, error);
  if (status != TG_OK) {
    tg_trainer_destroy(t);
    return status;
  }
  *out = t;
  return TG_OK;
}

void tg_trainer_destroy(tg_trainer *t)
{
  if (t) {
    tg_context_destroy(t->ctx);
    free(t->layer);
    free(t->lists);
    free(t->block);
    free(t);
  }
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
  memcpy(t->ids.data, ids, bytes);
  memcpy(t->targets.data, targets, bytes);
  return TG_OK;
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
  if (status != TG_OK) {
    return fail(t, status, error);
  }
  *loss = (double)*(const float *)t->loss.data;
  return TG_OK;
}

tg_status tg_trainer_backward(tg_trainer *t, const int32_t *ids, const int32_t *targets,
                              double *loss, tg_error *error)
{
  tg_status status = set_batch(t, ids, targets, error);
  if (status != TG_OK) {
    return status;
  }
  memset(t->g.block, 0, (size_t)t->model->parameters.elements * sizeof(float));
  tgi_pass pass = make_pass(t);
  status = run_step_ops(t, &pass);
  if (status != TG_OK) {
    return fail(t, status, error);
  }
  *loss = (double)*(const float *)t->loss.data;
  return TG_OK;
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
  if (status != TG_OK) {
    return fail(t, status, error);
  }
  const double norm = (double)*(const float *)t->norm.data;
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

tg_status tg_trainer_gradient(const tg_trainer *t, size_t index, tg_tensor *view)
{
  if (!t || !view || index >= (size_t)t->model->parameters.count) {
    return TG_BAD_ARGUMENT;
  }
  *view = tgi_parameter_view(&t->model->parameters, (int)index, t->g.block, TG_F32);
  return TG_OK;
}

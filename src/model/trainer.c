/* A trainer: one memory plan, and the steps that run over it. */
#include "trainer_state.h"

#include "core/error_record.h"
#include "core/half.h"
#include <math.h>
#include <stdlib.h>

enum { kIgnoredTarget = -100 };

/* ---- the plan ---- */

enum { kPlanLines = 6 };

/* Lays out everything but the weights; `lines` (of kPlanLines) gets what each part takes. Returns
 * the number of lines. */
static size_t lay_out(tg_trainer *t, tgi_memory_plan *plan, tg_plan_line *lines)
{
  const tgi_parameters *p = &t->model->parameters;
  const int64_t batch = t->options.batch_size, seq = t->options.sequence_length;
  const int64_t rows = batch * seq;
  size_t before = plan->bytes;
  size_t line = 0;
#define CLOSE(what)                                                                                \
  lines[line++] = (tg_plan_line){what, plan->bytes - before};                                      \
  before = plan->bytes
  if (t->on_gpu) {
    t->master = tgi_take_1d(plan, TG_F32, p->elements).data;
    CLOSE("weights");
  } else {
    t->master = t->model->block;
    lines[line++] = (tg_plan_line){"weights", (size_t)p->elements * sizeof(float)};
  }
  t->compute.block = t->master;
  if (t->compute.dtype != TG_F32) {
    t->compute.block = tgi_take_1d(plan, t->compute.dtype, p->elements).data;
    CLOSE("rounded weights");
  }
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
  tgi_activations_lay_out(&t->a, plan, &t->compute, batch, seq, 0, true);
  tgi_gradients_lay_out(&t->g, plan, &t->compute, rows);
  CLOSE("activations");
  t->workspace = plan->block ? plan->block + (plan->bytes + 255) / 256 * 256 : NULL;
  plan->bytes = (plan->bytes + 255) / 256 * 256 + (t->workspace_bytes + 63) / 64 * 64;
  CLOSE("workspace");
#undef CLOSE
  return line;
}

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

/* ---- the steps of a step ---- */

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

/* Lists of a group, one view for each of its parameters. */
enum { kParams, kGrads, kExpAvg, kExpAvgSq, kMaster, kGroupLists };

static tg_tensor *group_list(const tg_trainer *t, bool decayed, int which)
{
  const int n = decayed ? t->num_decayed : t->num_others;
  return t->lists + (decayed ? 0 : kGroupLists * t->num_decayed) + which * n;
}

/* Both groups' gradients in one list, behind the groups'. */
static tg_tensor *all_gradients(const tg_trainer *t)
{
  return t->lists + kGroupLists * t->model->parameters.count;
}

static tg_status measure_norm(tg_trainer *t, tgi_pass *pass)
{
  tg_global_norm_fwd_args args = {
      .tensors = all_gradients(t),
      .num_tensors = t->model->parameters.count,
      .norm = t->norm,
      .clip = t->clip,
      .max_norm = t->options.max_grad_norm > 0 ? (float)t->options.max_grad_norm : 3.4e38f};
  return TGI_STEP(pass, global_norm_fwd, &args);
}

static tg_status update_group(tg_trainer *t, tgi_pass *pass, bool decayed)
{
  const tg_trainer_options *o = &t->options;
  tg_adamw_step_args args = {.params = group_list(t, decayed, kParams),
                             .grads = group_list(t, decayed, kGrads),
                             .exp_avg = group_list(t, decayed, kExpAvg),
                             .exp_avg_sq = group_list(t, decayed, kExpAvgSq),
                             .num_tensors = decayed ? t->num_decayed : t->num_others,
                             .step = t->step + 1,
                             .lr = tgi_learning_rate(o, t->step + 1),
                             .beta1 = o->beta1,
                             .beta2 = o->beta2,
                             .eps = o->eps,
                             .weight_decay = decayed ? o->weight_decay : 0};
  if (t->compute.dtype != TG_F32) {
    args.master = group_list(t, decayed, kMaster);
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

static tg_status size_workspace(tg_trainer *t, tg_error *error)
{
  tgi_memory_plan plan = {NULL, 0};
  tg_plan_line lines[kPlanLines];
  lay_out(t, &plan, lines);
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
  t->workspace_bytes = pass.workspace_bytes;
  return status ? tgi_error_set(error, status, "%s", tg_context_message(t->ctx)) : TG_OK;
}

/* ---- creation ---- */

static void bind_lists(tg_trainer *t)
{
  const tgi_parameters *p = &t->model->parameters;
  void *const blocks[kGroupLists] = {t->compute.block, t->g.block, t->exp_avg, t->exp_avg_sq,
                                     t->master};
  int next[2] = {0, 0};
  for (int i = 0; i < p->count; i++) {
    const bool decayed = p->list[i].decays;
    for (int which = 0; which < kGroupLists; which++) {
      group_list(t, decayed, which)[next[decayed]] =
          tgi_parameter_view(p, i, blocks[which], which == kParams ? t->compute.dtype : TG_F32);
    }
    next[decayed]++;
    all_gradients(t)[i] = tgi_parameter_view(p, i, t->g.block, TG_F32);
  }
}

static tg_status make_lists(tg_trainer *t, tg_error *error)
{
  const tgi_parameters *p = &t->model->parameters;
  for (int i = 0; i < p->count; i++) {
    t->num_decayed += p->list[i].decays;
  }
  t->num_others = p->count - t->num_decayed;
  const int views = p->count * (kGroupLists + 1);
  t->lists = calloc((size_t)views, sizeof *t->lists);
  if (!t->lists) {
    return tgi_error_set(error, TG_NO_MEMORY, "trainer: expected room for %d views, got none",
                         views);
  }
  bind_lists(t);
  return TG_OK;
}

/* Everything but the memory of the plan. */
static tg_status prepare(tg_trainer *t, tg_error *error)
{
  t->compute = *t->model;
  t->compute.dtype = t->options.dtype == TG_BF16 ? TG_BF16 : TG_F32;
  const tg_context_options options = {.backend =
                                          t->options.backend ? t->options.backend : TG_BACKEND_CPU,
                                      .num_threads = t->options.num_threads,
                                      .device_index = t->options.device_index};
  t->on_gpu = options.backend == TG_BACKEND_CUDA;
  tg_status status = tg_context_create(&options, &t->ctx, error);
  if (status == TG_OK && (status = tg_context_prepare(t->ctx)) != TG_OK) {
    tgi_error_set(error, status, "trainer: %s", tg_context_message(t->ctx));
  }
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
  tg_status status = tgi_trainer_check(model, options, error);
  if (status != TG_OK) {
    return status;
  }
  tg_trainer t = {.model = (tg_model *)(uintptr_t)model, .options = *options};
  status = prepare(&t, error);
  if (status == TG_OK) {
    tg_plan_line all[kPlanLines];
    tgi_memory_plan plan = {NULL, 0};
    *count = lay_out(&t, &plan, all);
    for (size_t i = 0; i < *count && i < capacity; i++) {
      lines[i] = all[i];
    }
  }
  tg_context_destroy(t.ctx);
  free(t.layer);
  free(t.lists);
  return status;
}

tg_status tgi_trainer_copy(const tg_trainer *t, void *to, const void *from, tg_error *error)
{
  const size_t bytes = (size_t)t->model->parameters.elements * sizeof(float);
  const tg_status status = tg_memory_copy(t->ctx, to, bytes, from, bytes, bytes, 1);
  return status ? tgi_error_set(error, status, "trainer: %s", tg_context_message(t->ctx)) : TG_OK;
}

/* The weights that the passes see, from the model's; later steps of AdamW keep them so. */
static tg_status round_weights(tg_trainer *t, tg_error *error)
{
  enum { kPiece = 1 << 16 };
  const float *weights = t->model->block;
  const int64_t n = t->model->parameters.elements;
  uint16_t piece[kPiece];
  for (int64_t i = 0; t->compute.dtype != TG_F32 && i < n; i += kPiece) {
    const int64_t count = n - i < kPiece ? n - i : kPiece;
    const size_t bytes = (size_t)count * sizeof *piece;
    for (int64_t k = 0; k < count; k++) {
      tgi_store(piece, t->compute.dtype, k, (double)weights[i + k]);
    }
    const tg_status status =
        tg_memory_copy(t->ctx, (uint16_t *)t->compute.block + i, bytes, piece, bytes, bytes, 1);
    if (status != TG_OK) {
      return tgi_error_set(error, status, "trainer: %s", tg_context_message(t->ctx));
    }
  }
  return TG_OK;
}

static size_t plan_bytes(tg_trainer *t)
{
  tg_plan_line lines[kPlanLines];
  tgi_memory_plan plan = {NULL, 0};
  lay_out(t, &plan, lines);
  return plan.bytes;
}

/* The largest batch whose plan has at most `bytes`; 0: not even one sequence. */
static int32_t largest_batch(const tg_trainer *t, int64_t bytes)
{
  int32_t fits = 0, too_many = t->options.batch_size;
  tg_trainer trial = *t;
  while (fits + 1 < too_many) {
    trial.options.batch_size = fits + (too_many - fits) / 2;
    tg_error ignored;
    const bool sized = size_workspace(&trial, &ignored) == TG_OK;
    if (sized && (int64_t)plan_bytes(&trial) <= bytes) {
      fits = trial.options.batch_size;
    } else {
      too_many = trial.options.batch_size;
    }
  }
  return fits;
}

static tg_status refuse_memory(const tg_trainer *t, size_t bytes, tg_error *error)
{
  tg_device_info gpu;
  if (!t->on_gpu || tg_device_get_info(t->options.device_index, &gpu, NULL) != TG_OK) {
    return tgi_error_set(error, TG_NO_MEMORY, "trainer: expected %zu bytes, got none", bytes);
  }
  return tgi_error_set(error, TG_NO_MEMORY,
                       "trainer: expected %zu bytes on GPU %d (%s), got %lld free; the largest "
                       "batch_size that fits is %d",
                       bytes, t->options.device_index, gpu.name, (long long)gpu.free_bytes,
                       largest_batch(t, gpu.free_bytes));
}

/* Weights, and zeros where steps add up. */
static tg_status fill(tg_trainer *t, tg_error *error)
{
  const size_t bytes = (size_t)t->model->parameters.elements * sizeof(float);
  void *const zeroed[] = {t->exp_avg, t->exp_avg_sq, t->g.block};
  for (size_t i = 0; i < sizeof zeroed / sizeof zeroed[0]; i++) {
    const tg_status status = tg_memory_zero(t->ctx, zeroed[i], bytes);
    if (status != TG_OK) {
      return tgi_error_set(error, status, "trainer: %s", tg_context_message(t->ctx));
    }
  }
  tg_status status = t->on_gpu ? tgi_trainer_copy(t, t->master, t->model->block, error) : TG_OK;
  status = status ? status : round_weights(t, error);
  return status ? status : tgi_rope_tables_fill(&t->rope, &t->model->config, t->ctx, error);
}

static tg_status set_up(tg_trainer *t, tg_error *error)
{
  tg_status status = prepare(t, error);
  if (status != TG_OK) {
    return status;
  }
  const size_t bytes = plan_bytes(t);
  status = tg_memory_allocate(t->ctx, bytes, &t->block);
  if (status == TG_NO_MEMORY) {
    return refuse_memory(t, bytes, error);
  }
  if (status != TG_OK) {
    return tgi_error_set(error, status, "trainer: %s", tg_context_message(t->ctx));
  }
  tg_plan_line lines[kPlanLines];
  tgi_memory_plan plan = {t->block, 0};
  lay_out(t, &plan, lines);
  bind_lists(t);
  return fill(t, error);
}

tg_status tg_trainer_create(tg_model *model, const tg_trainer_options *options, tg_trainer **out,
                            tg_error *error)
{
  if (!out) {
    return tgi_error_set(error, TG_BAD_ARGUMENT, "trainer: out: expected a pointer, got NULL");
  }
  *out = NULL;
  tg_status status = tgi_trainer_check(model, options, error);
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
    if (t->on_gpu && t->block) {
      (void)tg_trainer_sync(t, NULL); /* nobody to tell */
    }
    tg_memory_free(t->ctx, t->block);
    tg_context_destroy(t->ctx);
    free(t->layer);
    free(t->lists);
    free(t->gradients);
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

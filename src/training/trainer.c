/* A trainer: its memory plan, and its making; trainer_step.c takes the steps. */
#include "trainer_state.h"

#include "core/error_record.h"
#include "core/values/half.h"
#include <stdlib.h>

/* ---- the plan ---- */

enum { kPlanLines = 7 };

/* Lays out everything but the weights; `lines` (of kPlanLines) gets what each part takes. Returns
 * the number of lines. */
static size_t lay_out(tg_trainer *t, tgi_memory_plan *plan, tg_plan_line *lines)
{
  const tgi_parameters *p = &t->model->parameters;
  const int64_t batch = t->batch.rows, seq = t->batch.length, rows = batch * seq;
  size_t before = plan->bytes;
  size_t line = 0;
#define CLOSE(what)                                                                                \
  lines[line++] = (tg_plan_line){what, plan->bytes - before};                                      \
  before = plan->bytes
  const int64_t trained = tgi_trainer_elements(t);
  const char *weights = trained < p->elements ? "weights, experts frozen" : "weights";
  if (t->on_gpu) {
    t->master = tgi_take_1d(plan, TG_F32, tgi_trainer_master_elements(t)).data;
    CLOSE(weights);
  } else {
    t->master = t->model->block;
    lines[line++] = (tg_plan_line){weights, (size_t)p->elements * sizeof(float)};
  }
  if (tgi_model_keeps_mxfp4(t->model)) {
    const size_t bytes = (size_t)p->mxfp4_bytes;
    t->compute.mxfp4 = t->on_gpu ? tgi_take_1d(plan, TG_U8, p->mxfp4_bytes).data : t->model->mxfp4;
    lines[line++] = (tg_plan_line){"MXFP4 experts, frozen", bytes};
    before = plan->bytes;
  }
  t->compute.block = t->master;
  if (t->compute.dtype != TG_F32) {
    t->compute.block = tgi_take_1d(plan, t->compute.dtype, p->elements).data;
    CLOSE("rounded weights");
  }
  t->g.block = tgi_take_1d(plan, TG_F32, trained).data;
  t->g.frozen_experts = t->options.freeze_experts;
  CLOSE("gradients");
  t->exp_avg = tgi_take_1d(plan, TG_F32, trained).data;
  t->exp_avg_sq = tgi_take_1d(plan, TG_F32, trained).data;
  CLOSE("optimiser state");
  tgi_rope_tables_lay_out(&t->every, plan, &t->model->config, seq);
  if (t->batch.max_documents > 0) {
    tgi_rope_tables_lay_out(&t->rows, plan, &t->model->config, rows);
  }
  tgi_micro_batches_lay_out(&t->batch, plan);
  if (t->batch.counts_tokens) {
    tgi_router_balance_lay_out(&t->balance, plan, &t->model->config);
  }
  t->lse = tgi_take_1d(plan, TG_F32, rows);
  t->loss = tgi_take_1d(plan, TG_F32, t->batch.count);
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

static tg_status size_workspace(tg_trainer *t, tg_error *error)
{
  tgi_memory_plan plan = {NULL, 0};
  tg_plan_line lines[kPlanLines];
  lay_out(t, &plan, lines);
  const tg_status status = tgi_trainer_size_ops(t, &t->workspace_bytes);
  return status ? tgi_error_set(error, status, "%s", tg_context_message(t->ctx)) : TG_OK;
}

/* ---- creation ---- */

static void bind_lists(tg_trainer *t)
{
  const tgi_parameters *p = &t->model->parameters;
  void *const blocks[TGI_GROUP_LISTS] = {t->compute.block, t->g.block, t->exp_avg, t->exp_avg_sq,
                                         t->master};
  int next[2] = {0, 0};
  int trained = 0;
  for (int i = 0; i < p->count; i++) {
    if (tgi_trainer_is_frozen(t, i)) {
      continue;
    }
    const bool decayed = p->list[i].decays;
    for (int which = 0; which < TGI_GROUP_LISTS; which++) {
      tgi_trainer_list(t, decayed, which)[next[decayed]] = tgi_parameter_view(
          p, i, blocks[which], which == TGI_LIST_PARAMS ? t->compute.dtype : TG_F32);
    }
    next[decayed]++;
    tgi_trainer_gradients(t)[trained++] = tgi_parameter_view(p, i, t->g.block, TG_F32);
  }
}

static tg_status make_lists(tg_trainer *t, tg_error *error)
{
  const tgi_parameters *p = &t->model->parameters;
  for (int i = 0; i < p->count; i++) {
    if (!tgi_trainer_is_frozen(t, i)) {
      *(p->list[i].decays ? &t->num_decayed : &t->num_others) += 1;
    }
  }
  const int views = (t->num_decayed + t->num_others) * (TGI_GROUP_LISTS + 1);
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
  const tgi_config *config = &t->model->config;
  const bool asked = t->options.has_router_aux_loss_coef;
  const bool has_balance = asked ? t->options.router_aux_loss_coef > 0
                                 : config->num_experts && config->output_router_logits;
  t->balance.coefficient = asked ? t->options.router_aux_loss_coef : config->router_aux_loss_coef;
  t->batch = tgi_micro_batches_shape(&t->options, has_balance);
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
  tg_trainer t = {.model = (tg_model *)(uintptr_t)model, .options = tgi_trainer_settle(options)};
  t.options.freeze_experts = t.options.freeze_experts || tgi_model_keeps_mxfp4(model);
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

/* The most rows of a micro-batch, a divisor of the batch's, whose plan has at most `bytes`; 0: not
 * even one row. */
static int32_t largest_micro_batch(const tg_trainer *t, int64_t bytes)
{
  tg_trainer trial = *t;
  for (int32_t rows = t->options.micro_batch_size - 1; rows > 0; rows--) {
    if (t->options.batch_size % rows != 0) {
      continue;
    }
    trial.options.micro_batch_size = rows;
    trial.batch = tgi_micro_batches_shape(&trial.options, t->batch.counts_tokens);
    tg_error ignored;
    if (size_workspace(&trial, &ignored) == TG_OK && (int64_t)plan_bytes(&trial) <= bytes) {
      return rows;
    }
  }
  return 0;
}

static tg_status refuse_memory(const tg_trainer *t, size_t bytes, tg_error *error)
{
  tg_device_info gpu;
  if (!t->on_gpu || tg_device_get_info(t->options.device_index, &gpu, NULL) != TG_OK) {
    return tgi_error_set(error, TG_NO_MEMORY, "trainer: expected %zu bytes, got none", bytes);
  }
  return tgi_error_set(error, TG_NO_MEMORY,
                       "trainer: expected %zu bytes on GPU %d (%s), got %lld free; the largest "
                       "micro_batch_size that fits is %d",
                       bytes, t->options.device_index, gpu.name, (long long)gpu.free_bytes,
                       largest_micro_batch(t, gpu.free_bytes));
}

/* Weights, and zeros where steps add up. */
static tg_status fill(tg_trainer *t, tg_error *error)
{
  const size_t bytes = (size_t)tgi_trainer_elements(t) * sizeof(float);
  void *const zeroed[] = {t->exp_avg, t->exp_avg_sq, t->g.block};
  for (size_t i = 0; i < sizeof zeroed / sizeof zeroed[0]; i++) {
    const tg_status status = tg_memory_zero(t->ctx, zeroed[i], bytes);
    if (status != TG_OK) {
      return tgi_error_set(error, status, "trainer: %s", tg_context_message(t->ctx));
    }
  }
  tg_status status = t->on_gpu ? tgi_trainer_copy(t, t->master, t->model->block,
                                                  tgi_trainer_master_elements(t), error)
                               : TG_OK;
  if (status == TG_OK && t->on_gpu && tgi_model_keeps_mxfp4(t->model)) {
    const size_t packed = (size_t)t->model->parameters.mxfp4_bytes;
    status = tg_memory_copy(t->ctx, t->compute.mxfp4, packed, t->model->mxfp4, packed, packed, 1);
    if (status != TG_OK) {
      return tgi_error_set(error, status, "trainer: %s", tg_context_message(t->ctx));
    }
  }
  status = status ? status : round_weights(t, error);
  return status ? status : tgi_rope_tables_fill(&t->every, 0, &t->model->config, t->ctx, error);
}

static tg_status set_up(tg_trainer *t, tg_error *error)
{
  tg_status status = prepare(t, error);
  status = status ? status : tgi_micro_batches_create(&t->batch, error);
  if (status == TG_OK && t->batch.counts_tokens) {
    status = tgi_router_balance_create(&t->balance, &t->model->config, error);
  }
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
  t->options = tgi_trainer_settle(options);
  t->options.freeze_experts = t->options.freeze_experts || tgi_model_keeps_mxfp4(model);
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
    tgi_micro_batches_free(&t->batch);
    tgi_router_balance_free(&t->balance);
    free(t->layer);
    free(t->lists);
    free(t->gradients);
    free(t);
  }
}

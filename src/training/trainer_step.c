/* The steps that a trainer takes over its memory plan: every op of a step, run or sized. */
#include "trainer_state.h"

#include "core/error_record.h"
#include <math.h>
#include <stdlib.h>

/* Lets passes count the tokens of micro-batch `index` for the auxiliary loss. */
static void count_tokens(tg_trainer *t, int64_t index)
{
  if (t->batch.counts_tokens) {
    t->balance.sums.counted = tgi_micro_batch_part(&t->batch, &t->batch.counted, index);
  }
}

static tgi_pass make_pass(tg_trainer *t)
{
  return (tgi_pass){.ctx = t->ctx,
                    .model = &t->compute,
                    .a = &t->a,
                    .batch = t->batch.rows,
                    .seq = t->batch.length,
                    .ids = tgi_micro_batch_part(&t->batch, &t->batch.tokens, 0),
                    .rope = t->every,
                    .routers = t->batch.counts_tokens ? &t->balance.sums : NULL,
                    .keep = true,
                    .workspace = t->workspace,
                    .workspace_bytes = t->workspace_bytes};
}

/* [batch, seq, width] of a table with a row for every token. */
static tg_tensor by_row(const tgi_pass *pass, const tg_tensor *table)
{
  const int64_t shape[] = {pass->batch, pass->seq, table->shape[2]};
  return table->ndim ? tg_tensor_view(table->data, table->dtype, 3, shape) : *table;
}

/* Lets the pass see documents that begin at `starts`. */
static void see_documents(tg_trainer *t, tgi_pass *pass, tg_tensor starts, tg_tensor positions)
{
  t->documents =
      (tgi_documents){.cu_seqlens = starts, .position_ids = positions, .every = t->every};
  pass->documents = &t->documents;
  pass->rope.cos = by_row(pass, &t->rows.cos);
  pass->rope.sin = by_row(pass, &t->rows.sin);
}

/* The pass over micro-batch `index` of the batch that was set last. */
static tgi_pass make_micro_pass(tg_trainer *t, int64_t index)
{
  const tgi_micro_batches *b = &t->batch;
  tgi_pass pass = make_pass(t);
  pass.ids = tgi_micro_batch_part(b, &b->tokens, index);
  count_tokens(t, index);
  if (b->has_documents) {
    see_documents(t, &pass, tgi_micro_batch_starts(b, index),
                  tgi_micro_batch_part(b, &b->positions, index));
  }
  return pass;
}

/* What a sum over the targets of a micro-batch is divided by. A batch without targets has a sum of
 * 0. */
static int64_t num_items(const tg_trainer *t)
{
  return t->batch.num_targets > 0 ? t->batch.num_targets : 1;
}

/* The part of a micro-batch in the loss. */
static tg_tensor loss_part(const tg_trainer *t, int64_t index)
{
  float *of_all = t->loss.data;
  return tg_tensor_1d(of_all ? of_all + index : NULL, TG_F32, 1);
}

static tg_status loss_fwd(tg_trainer *t, tgi_pass *pass, int64_t index)
{
  tg_linear_cross_entropy_fwd_args args = {
      .hidden = t->a.final_norm,
      .weight = tgi_weight(&t->compute, t->model->parameters.head),
      .targets = tgi_micro_batch_part(&t->batch, &t->batch.targets, index),
      .loss = loss_part(t, index),
      .ignore_index = TG_IGNORED_TARGET,
      .has_ignore_index = true,
      .num_items_in_batch = num_items(t),
      .reduction = TG_REDUCTION_NUM_ITEMS};
  return TGI_STEP(pass, linear_cross_entropy_fwd, &args);
}

/* The loss, the head's gradient and that of the final norm. */
static tg_status loss_fwdbwd(tg_trainer *t, tgi_pass *pass, int64_t index)
{
  const tgi_parameters *p = &t->model->parameters;
  tg_linear_cross_entropy_fwdbwd_args args = {
      .hidden = t->a.final_norm,
      .weight = tgi_weight(&t->compute, p->head),
      .targets = tgi_micro_batch_part(&t->batch, &t->batch.targets, index),
      .loss = loss_part(t, index),
      .lse = t->lse,
      .dhidden = t->g.dnorm,
      .dweight = tgi_parameter_view(p, p->head, t->g.block, TG_F32),
      .ignore_index = TG_IGNORED_TARGET,
      .has_ignore_index = true,
      .num_items_in_batch = num_items(t),
      .reduction = TG_REDUCTION_NUM_ITEMS};
  return TGI_STEP(pass, linear_cross_entropy_fwdbwd, &args);
}

static tg_status measure_norm(tg_trainer *t, tgi_pass *pass)
{
  tg_global_norm_fwd_args args = {
      .tensors = tgi_trainer_gradients(t),
      .num_tensors = t->num_decayed + t->num_others,
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
                             .lr = tg_trainer_learning_rate(o, t->step + 1),
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

/* Forward and backward over a micro-batch, run or sized as the pass says. */
static tg_status run_both(tg_trainer *t, tgi_pass *pass, int64_t index)
{
  tg_status status = tgi_transformer_forward(pass);
  if (status == TG_OK && pass->routers && !pass->sizing) {
    status = tgi_router_balance_settle(&t->balance, t->ctx, &t->batch, index);
  }
  if (status == TG_OK) {
    status = loss_fwdbwd(t, pass, index);
  }
  return status ? status : tgi_transformer_backward(pass, &t->g);
}

/* The same for rows of documents. Attention's workspace depends on their number, and not always
 * grows with it. */
static tg_status size_documents(tg_trainer *t, tgi_pass *pass)
{
  const tgi_micro_batches *b = &t->batch;
  tg_status status = TG_OK;
  for (int64_t n = b->rows; n <= b->rows * b->max_documents && status == TG_OK; n++) {
    see_documents(t, pass, tg_tensor_1d(NULL, TG_I32, n + 1),
                  tgi_micro_batch_part(b, &b->positions, 0));
    status = n == b->rows ? run_both(t, pass, 0) : tgi_transformer_size_attention(pass, &t->g);
  }
  return status;
}

tg_status tgi_trainer_size_ops(tg_trainer *t, size_t *bytes)
{
  tgi_pass pass = make_pass(t);
  pass.sizing = true;
  pass.workspace_bytes = 0;
  count_tokens(t, 0);
  tg_status status = run_both(t, &pass, 0);
  if (status == TG_OK) {
    status = loss_fwd(t, &pass, 0);
  }
  if (status == TG_OK && t->lists) {
    status = measure_norm(t, &pass);
  }
  if (status == TG_OK && t->batch.max_documents > 0) {
    status = size_documents(t, &pass);
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

static tg_status set_batch(tg_trainer *t, const tg_train_batch *batch, tg_error *error)
{
  if (!t) {
    return tgi_error_set(error, TG_BAD_ARGUMENT, "trainer: trainer: expected a pointer, got NULL");
  }
  return tgi_micro_batches_set(&t->batch, t->ctx, batch, t->model->config.vocab_size, t->step + 1,
                               error);
}

/* The sum of f32 values that the ops before made, once they are over; also what was wrong with
 * their data. */
static tg_status read_sum(const tg_trainer *t, const tg_tensor *values, double *sum,
                          tg_error *error)
{
  enum { kPiece = 256 };
  float piece[kPiece];
  const float *from = values->data;
  const int64_t count = values->shape[0];
  *sum = 0;
  tg_status status = tg_context_check(t->ctx);
  for (int64_t i = 0; i < count && status == TG_OK; i += kPiece) {
    const int64_t n = count - i < kPiece ? count - i : kPiece;
    const size_t bytes = (size_t)n * sizeof *piece;
    status = tg_memory_copy(t->ctx, piece, bytes, from + i, bytes, bytes, 1);
    for (int64_t k = 0; k < n && status == TG_OK; k++) {
      *sum += (double)piece[k];
    }
  }
  return status ? fail(t, status, error) : TG_OK;
}

tg_status tg_trainer_loss(tg_trainer *t, const tg_train_batch *batch, double *loss, tg_error *error)
{
  tg_status status = set_batch(t, batch, error);
  if (status != TG_OK) {
    return status;
  }
  for (int64_t m = 0; m < t->batch.count && status == TG_OK; m++) {
    tgi_pass pass = make_micro_pass(t, m);
    pass.routers = NULL; /* their loss is a term of training */
    status = tgi_transformer_forward(&pass);
    status = status ? status : loss_fwd(t, &pass, m);
  }
  return status ? fail(t, status, error) : read_sum(t, &t->loss, loss, error);
}

tg_status tg_trainer_backward(tg_trainer *t, const tg_train_batch *batch, double *loss,
                              tg_error *error)
{
  tg_status status = set_batch(t, batch, error);
  if (status != TG_OK) {
    return status;
  }
  t->balance.loss = 0;
  status = tg_memory_zero(t->ctx, t->g.block, (size_t)tgi_trainer_elements(t) * sizeof(float));
  for (int64_t m = 0; m < t->batch.count && status == TG_OK; m++) {
    tgi_pass pass = make_micro_pass(t, m);
    status = run_both(t, &pass, m);
  }
  status = status ? fail(t, status, error) : read_sum(t, &t->loss, loss, error);
  if (status == TG_OK) {
    *loss += t->balance.loss * t->balance.coefficient; /* of no routers 0 */
  }
  return status;
}

static tg_status check_finite(const tg_trainer *t, const char *what, double value, tg_error *error)
{
  if (isfinite(value)) {
    return TG_OK;
  }
  return tgi_error_set(error, TG_BAD_ARGUMENT, "step %lld: %s: expected a finite number, got %g",
                       (long long)t->step + 1, what, value);
}

tg_status tg_trainer_step(tg_trainer *t, const tg_train_batch *batch, tg_step_result *result,
                          tg_error *error)
{
  double loss = 0;
  tg_status status = tg_trainer_backward(t, batch, &loss, error);
  if (status == TG_OK) {
    status = check_finite(t, "loss", loss, error);
  }
  if (status != TG_OK) {
    return status;
  }
  tgi_pass pass = make_pass(t);
  status = measure_norm(t, &pass);
  double norm = 0;
  status = status ? fail(t, status, error) : read_sum(t, &t->norm, &norm, error);
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
    *result = (tg_step_result){.step = t->step,
                               .loss = loss,
                               .grad_norm = norm,
                               .learning_rate = tg_trainer_learning_rate(&t->options, t->step),
                               .num_targets = t->batch.num_targets,
                               .aux_loss = t->balance.loss};
  }
  return TG_OK;
}

int64_t tg_trainer_steps(const tg_trainer *t)
{
  return t ? t->step : 0;
}

tg_status tgi_trainer_copy(const tg_trainer *t, void *to, const void *from, int64_t elements,
                           tg_error *error)
{
  const size_t bytes = (size_t)elements * sizeof(float);
  const tg_status status = tg_memory_copy(t->ctx, to, bytes, from, bytes, bytes, 1);
  return status ? tgi_error_set(error, status, "trainer: %s", tg_context_message(t->ctx)) : TG_OK;
}

tg_status tg_trainer_sync(const tg_trainer *t, tg_error *error)
{
  if (!t) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "trainer_sync: trainer: expected a pointer, got NULL");
  }
  return t->on_gpu ? tgi_trainer_copy(t, t->model->block, t->master, tgi_trainer_master_elements(t),
                                      error)
                   : TG_OK;
}

tg_status tg_trainer_gradient(tg_trainer *t, size_t index, tg_tensor *view)
{
  if (!t || !view || index >= (size_t)t->model->parameters.count ||
      tgi_trainer_is_frozen(t, (int)index)) {
    return TG_BAD_ARGUMENT;
  }
  void *block = t->g.block;
  if (t->on_gpu) {
    if (!t->gradients) {
      t->gradients = malloc((size_t)tgi_trainer_elements(t) * sizeof *t->gradients);
    }
    const tg_status status =
        t->gradients ? tgi_trainer_copy(t, t->gradients, t->g.block, tgi_trainer_elements(t), NULL)
                     : TG_NO_MEMORY;
    if (status != TG_OK) {
      return status;
    }
    block = t->gradients;
  }
  *view = tgi_parameter_view(&t->model->parameters, (int)index, block, TG_F32);
  return TG_OK;
}

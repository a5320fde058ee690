/* Logits of whole texts, beside a session's timeline: passes without a cache over as many rows as
 * fit a bound of tokens, in work memory that is kept for the next call. */
#include "core/error_record.h"
#include "session_state.h"
#include "tegula/device.h"

#include <stdlib.h>
#include <string.h>

/* Tokens of a pass over several rows; a longer row has one for itself. They keep the processors
 * busy and the activations small. */
enum { kPassTokens = 2048, kPassTokensOnGpu = 4096 };

/* Buffers of a pass over [batch, seq] tokens; logits in work memory only where the caller's are
 * elsewhere. */
static void lay_out(const tg_session *s, tgi_forward *f, tgi_memory_plan *plan, int64_t batch,
                    int64_t seq, int64_t logit_rows, tg_dtype dtype)
{
  f->a.layer = f->layer;
  f->ids = tgi_take_1d(plan, TG_I32, batch * seq);
  f->logits = tgi_take_2d(plan, dtype, logit_rows, s->model.config.vocab_size);
  tgi_activations_lay_out(&f->a, plan, &s->model, batch, seq, 0, false);
}

/* Every token's logits, or the last one's of each row, from the final norm of all. */
static tg_status run_head(tgi_pass *pass, const tg_tensor *logits, bool last)
{
  const tgi_parameters *p = &pass->model->parameters;
  tg_tensor x = pass->a->final_norm;
  if (last) {
    const int64_t hidden = x.shape[1];
    x.data = tgi_advance(&x, (pass->seq - 1) * hidden);
    x.shape[0] = pass->batch;
    x.stride[0] = pass->seq * hidden;
    x.stride[1] = 1;
  }
  tg_linear_fwd_args args = {.x = x, .weight = tgi_weight(pass->model, p->head), .y = *logits};
  return TGI_STEP(pass, linear_fwd, &args);
}

static tgi_pass make_pass(const tg_session *s, tgi_forward *f, int64_t batch, int64_t seq)
{
  return (tgi_pass){.ctx = s->ctx,
                    .model = &s->model,
                    .a = &f->a,
                    .batch = batch,
                    .seq = seq,
                    .ids = f->ids,
                    .rope = f->rope,
                    .watch = s->watch,
                    .workspace = f->workspace,
                    .workspace_bytes = f->workspace_bytes};
}

static tg_status take(tg_session *s, void **memory, size_t *has, size_t wants)
{
  if (wants <= *has) {
    return TG_OK;
  }
  tg_memory_free(s->ctx, *memory);
  *memory = NULL;
  *has = 0;
  const tg_status status = tg_memory_allocate(s->ctx, wants, memory);
  *has = status ? 0 : wants;
  return status;
}

/* The pass that was recorded reads tables and buffers that are about to move. */
static void forget_graph(tg_session *s, tgi_forward *f)
{
  tg_graph_destroy(s->ctx, f->graph);
  f->graph = NULL;
}

/* Rope's tables for so many positions. */
static tg_status take_tables(tg_session *s, tgi_forward *f, int64_t seq, tg_error *error)
{
  const tgi_config *c = &s->model.config;
  if (c->position != TGI_ROPE || seq <= f->positions) {
    return TG_OK;
  }
  tgi_memory_plan plan = {NULL, 0};
  size_t has = 0;
  forget_graph(s, f);
  tgi_rope_tables_lay_out(&f->rope, &plan, c, seq);
  tg_memory_free(s->ctx, f->rope_memory);
  f->rope_memory = NULL;
  f->positions = 0;
  tg_status status = take(s, &f->rope_memory, &has, plan.bytes);
  if (status != TG_OK) {
    return tgi_error_set(error, status, "session_forward: %s", tg_context_message(s->ctx));
  }
  plan = (tgi_memory_plan){f->rope_memory, 0};
  tgi_rope_tables_lay_out(&f->rope, &plan, c, seq);
  status = tgi_rope_tables_fill(&f->rope, 0, c, s->ctx, error);
  f->positions = status ? 0 : seq;
  return status;
}

/* Memory for passes of this shape, laid out. The shape of the last call is at hand already. */
static tg_status make_room(tg_session *s, tgi_forward *f, int64_t batch, int64_t seq, bool last,
                           bool own_logits, tg_dtype dtype)
{
  const int64_t logit_rows = last ? batch : batch * seq, own = own_logits ? logit_rows : 0;
  if (f->batch == batch && f->seq == seq && f->last == last && f->own == own && f->dtype == dtype) {
    return TG_OK;
  }
  f->batch = 0;
  forget_graph(s, f);
  tgi_memory_plan plan = {NULL, 0};
  lay_out(s, f, &plan, batch, seq, own, dtype);
  tgi_pass pass = make_pass(s, f, batch, seq);
  pass.sizing = true;
  pass.watch = NULL;
  pass.workspace_bytes = 0;
  const tg_tensor logits = tg_tensor_2d(NULL, dtype, logit_rows, s->model.config.vocab_size);
  tg_status status = tgi_transformer_forward(&pass);
  status = status ? status : run_head(&pass, &logits, last);
  status = status ? status : take(s, &f->block, &f->block_bytes, plan.bytes);
  status = status ? status : take(s, &f->workspace, &f->workspace_bytes, pass.workspace_bytes);
  if (status != TG_OK) {
    return status;
  }
  plan = (tgi_memory_plan){f->block, 0};
  lay_out(s, f, &plan, batch, seq, own, dtype);
  f->dtype = dtype;
  f->batch = batch;
  f->seq = seq;
  f->last = last;
  f->own = own;
  return TG_OK;
}

static tg_status run_body(void *pass)
{
  return tgi_transformer_forward(pass);
}

/* Whether a pass repeats the last one, and whether later ones may repeat it. */
typedef struct turns {
  bool again;  /* its shape is that of the last one */
  bool repeat; /* all passes of the call have one shape */
} turns;

/* The pass up to the final norm. The first pass of a shape loads what kernels need, the second is
 * recorded before it runs, unless the call's last pass has another shape, whose buffers take the
 * place of those that were recorded. The head is not part of the record, since the caller's memory
 * for logits may be another each time. */
static tg_status pass_body(tg_session *s, tgi_forward *f, tgi_pass *pass, turns t)
{
  if (!s->on_gpu || s->watch || f->plain || !t.again || (!f->graph && !t.repeat)) {
    return tgi_transformer_forward(pass);
  }
  if (!f->graph && tg_graph_record(s->ctx, run_body, pass, &f->graph) != TG_OK) {
    f->plain = true;
    return tgi_transformer_forward(pass);
  }
  return tg_graph_launch(s->ctx, f->graph);
}

/* A pass over `batch` rows; their logits to `to`. */
static tg_status run_rows(tg_session *s, tgi_forward *f, const int32_t *ids, tg_tensor to,
                          int64_t batch, int64_t seq, bool last, bool repeat)
{
  const bool own = s->on_gpu && to.device < TG_DEVICE_CUDA(0);
  const turns t = {.again = f->batch == batch && f->seq == seq, .repeat = repeat};
  tg_status status = make_room(s, f, batch, seq, last, own, to.dtype);
  const size_t bytes = (size_t)(batch * seq) * sizeof *ids;
  status = status ? status : tg_memory_copy(s->ctx, f->ids.data, bytes, ids, bytes, bytes, 1);
  tgi_pass pass = make_pass(s, f, batch, seq);
  tgi_watch_begin(s->watch, "pass");
  status = status ? status : pass_body(s, f, &pass, t);
  tgi_watch_begin(s->watch, "head");
  status = status ? status : run_head(&pass, own ? &f->logits : &to, last);
  tgi_watch_end(s->watch);
  tgi_watch_end(s->watch);
  if (status == TG_OK && own) {
    const size_t all = (size_t)(to.shape[0] * to.shape[1]) * tg_dtype_bytes(to.dtype);
    status = tg_memory_copy(s->ctx, to.data, all, f->logits.data, all, all, 1);
  }
  return status;
}

static tg_status check_ids(const tg_session *s, const int32_t *ids, int64_t batch, int64_t seq,
                           tg_error *error)
{
  const tgi_config *c = &s->model.config;
  if (batch < 1 || seq < 1 || batch > INT32_MAX || seq > c->max_position_embeddings) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "session_forward: ids: expected rows of 1 to %d tokens (the model's "
                         "positions), got %lld rows of %lld",
                         c->max_position_embeddings, (long long)batch, (long long)seq);
  }
  for (int64_t i = 0; i < batch * seq; i++) {
    if (ids[i] < 0 || ids[i] >= c->vocab_size) {
      return tgi_error_set(error, TG_BAD_ARGUMENT,
                           "session_forward: ids[%lld, %lld]: expected 0 to %d, got %d",
                           (long long)(i / seq), (long long)(i % seq), c->vocab_size - 1, ids[i]);
    }
  }
  return TG_OK;
}

static tg_status check_logits(const tg_session *s, const tg_tensor *t, int64_t rows,
                              tg_error *error)
{
  const int64_t vocab = s->model.config.vocab_size;
  if (t->dtype != TG_F32 && t->dtype != s->model.dtype) {
    return tgi_error_set(error, TG_BAD_DTYPE, "session_forward: logits: expected f32%s%s, got %s",
                         s->model.dtype == TG_F32 ? "" : " or ",
                         s->model.dtype == TG_F32 ? "" : tg_dtype_name(s->model.dtype),
                         tg_dtype_name(t->dtype));
  }
  if (t->ndim != 2 || t->shape[0] != rows || t->shape[1] != vocab) {
    return tgi_error_set(error, TG_BAD_SHAPE,
                         "session_forward: logits: expected [%lld, %lld], got rank %d [%lld, %lld]",
                         (long long)rows, (long long)vocab, (int)t->ndim, (long long)t->shape[0],
                         (long long)t->shape[1]);
  }
  const bool dense = (t->stride[0] == 0 && t->stride[1] == 0) ||
                     (t->stride[1] == 1 && (t->stride[0] == vocab || rows == 1));
  if (!dense || !t->data) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "session_forward: logits: expected contiguous memory, got %s",
                         t->data ? "strides" : "NULL");
  }
  if (t->device >= TG_DEVICE_CUDA(0) &&
      (!s->on_gpu || t->device != TG_DEVICE_CUDA(s->device_index))) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "session_forward: logits: expected memory of the host or of the session's "
                         "GPU, got cuda:%d",
                         (int)(t->device - TG_DEVICE_CUDA(0)));
  }
  return TG_OK;
}

static tg_status check(const tg_session *s, const int32_t *ids, int64_t batch, int64_t seq,
                       uint32_t flags, const tg_tensor *logits, tg_error *error)
{
  if (!s || !ids) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "session_forward: session, ids: expected pointers, got NULL");
  }
  if (flags & ~TG_FORWARD_LAST) {
    return tgi_error_set(error, TG_BAD_ARGUMENT, "session_forward: flags: expected 0 or 1, got %u",
                         (unsigned)flags);
  }
  const tg_status status = check_ids(s, ids, batch, seq, error);
  return status ? status
                : check_logits(s, logits, flags & TG_FORWARD_LAST ? batch : batch * seq, error);
}

static tg_status open_state(tg_session *s, tg_error *error)
{
  if (!s->forward) {
    s->forward = calloc(1, sizeof *s->forward);
  }
  if (s->forward && !s->forward->layer) {
    s->forward->layer =
        calloc((size_t)s->model.config.num_hidden_layers, sizeof *s->forward->layer);
  }
  return s->forward && s->forward->layer
             ? TG_OK
             : tgi_error_set(error, TG_NO_MEMORY,
                             "session_forward: expected room for %d layers, got none",
                             s->model.config.num_hidden_layers);
}

tg_status tg_session_forward(tg_session *s, const int32_t *ids, int64_t batch, int64_t seq,
                             uint32_t flags, tg_tensor logits, tg_error *error)
{
  tg_status status = check(s, ids, batch, seq, flags, &logits, error);
  status = status ? status : open_state(s, error);
  status = status ? status : take_tables(s, s->forward, seq, error);
  if (status != TG_OK) {
    return status;
  }
  const bool last = flags & TG_FORWARD_LAST;
  const int64_t tokens = s->on_gpu ? kPassTokensOnGpu : kPassTokens;
  const int64_t most = seq < tokens ? tokens / seq : 1;
  const bool repeat = batch <= most || batch % most == 0;
  memset(logits.stride, 0, sizeof logits.stride);
  for (int64_t first = 0; first < batch && status == TG_OK; first += most) {
    const int64_t rows = batch - first < most ? batch - first : most;
    const int64_t per_row = last ? 1 : seq;
    tg_tensor to = logits;
    to.data = tgi_advance(&logits, first * per_row * logits.shape[1]);
    to.shape[0] = rows * per_row;
    status = run_rows(s, s->forward, ids + first * seq, to, rows, seq, last, repeat);
  }
  status = status ? status : tg_context_check(s->ctx);
  return status ? tgi_error_set(error, status, "session_forward: %s", tg_context_message(s->ctx))
                : TG_OK;
}

void tgi_session_free_forward(tg_session *s)
{
  if (s->forward) {
    forget_graph(s, s->forward);
    tg_memory_free(s->ctx, s->forward->block);
    tg_memory_free(s->ctx, s->forward->workspace);
    tg_memory_free(s->ctx, s->forward->rope_memory);
    free(s->forward->layer);
    free(s->forward);
  }
}

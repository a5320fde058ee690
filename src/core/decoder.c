/* Decoders: checks of what they are told, and the entry that has them. */
#include "core/decoder_state.h"
#include "core/device_state.h"
#include "core/tensor_view.h"

#include <stdlib.h>
#include <string.h>

/* ---- the model ---- */

/* A tensor of the model: [layers, rows, cols] in as far as they are not 0. */
typedef struct part {
  const char *name;
  const tg_tensor *t;
  int64_t layers, rows, cols;
  bool wanted;
} part;

static tg_status check_part(const tg_context *ctx, const part *p, int64_t step, tg_dtype dtype)
{
  const int64_t all[3] = {p->layers, p->rows, p->cols};
  int64_t shape[3] = {0, 0, 0}, dense = 1;
  int ndim = 0;
  for (int i = 0; i < 3; i++) {
    if (all[i] > 0) {
      shape[ndim++] = all[i];
    }
  }
  if (!p->wanted && p->t->ndim == 0) {
    return TG_OK;
  }
  bool fits = p->wanted && p->t->ndim == ndim && p->t->dtype == dtype && p->t->data;
  for (int i = ndim - 1; i >= 0 && fits; i--) {
    const bool layer = i == 0 && p->layers > 1;
    fits = p->t->shape[i] == shape[i] &&
           (layer ? tgi_stride(p->t, 0) == step : shape[i] == 1 || tgi_stride(p->t, i) == dense);
    dense *= shape[i];
  }
  fits = fits && (uintptr_t)p->t->data % 16 == 0;
  return fits ? TG_OK
              : tgi_report(ctx, TG_UNSUPPORTED,
                           "decoder_create: %s: expected %s, got %s of %d axes that are not those "
                           "of a model that is served",
                           p->name, p->wanted ? "a tensor of the model's dtype and shape" : "none",
                           tg_dtype_name(p->t->dtype), (int)p->t->ndim);
}

static tg_status check_model(const tg_context *ctx, const tg_decoder_model *m)
{
  const bool gpt = m->norm1_bias.ndim != 0, qk = m->q_norm.ndim != 0;
  const int64_t n = m->layers, hidden = m->tokens.ndim == 2 ? m->tokens.shape[1] : 0;
  const int64_t vocab = m->tokens.shape[0], inner = m->down.ndim == 3 ? m->down.shape[2] : 0;
  const int64_t q = (int64_t)m->heads * m->head_dim, kv = (int64_t)m->kv_heads * m->head_dim;
  if (n < 1 || hidden < 1 || inner < 1 || m->qkv.ndim != 3 || m->block_tokens < 1) {
    return tgi_report(ctx, TG_UNSUPPORTED,
                      "decoder_create: model: expected layers of matrices in bf16, got %d layers",
                      (int)n);
  }
  const int64_t step = tgi_stride(&m->qkv, 0), up = gpt ? inner : 2 * inner;
  const int64_t places = gpt ? m->positions.shape[0] : m->cos.shape[0];
  const part parts[] = {{"tokens", &m->tokens, 0, vocab, hidden, true},
                        {"head", &m->head, 0, vocab, hidden, true},
                        {"positions", &m->positions, 0, places, hidden, gpt},
                        {"final_norm", &m->final_norm, 0, 0, hidden, true},
                        {"final_norm_bias", &m->final_norm_bias, 0, 0, hidden, gpt},
                        {"norm1", &m->norm1, n, 0, hidden, true},
                        {"norm1_bias", &m->norm1_bias, n, 0, hidden, gpt},
                        {"norm2", &m->norm2, n, 0, hidden, true},
                        {"norm2_bias", &m->norm2_bias, n, 0, hidden, gpt},
                        {"qkv", &m->qkv, n, q + 2 * kv, hidden, true},
                        {"qkv_bias", &m->qkv_bias, n, 0, q + 2 * kv, gpt},
                        {"q_norm", &m->q_norm, n, 0, m->head_dim, qk},
                        {"k_norm", &m->k_norm, n, 0, m->head_dim, qk},
                        {"out", &m->out, n, hidden, q, true},
                        {"out_bias", &m->out_bias, n, 0, hidden, gpt},
                        {"up", &m->up, n, up, hidden, true},
                        {"up_bias", &m->up_bias, n, 0, up, gpt},
                        {"down", &m->down, n, hidden, inner, true},
                        {"down_bias", &m->down_bias, n, 0, hidden, gpt}};
  const part tables[] = {{"cos", &m->cos, 0, places, m->head_dim / 2, !gpt},
                         {"sin", &m->sin, 0, places, m->head_dim / 2, !gpt}};
  tg_status status = TG_OK;
  for (size_t i = 0; i < sizeof parts / sizeof parts[0] && status == TG_OK; i++) {
    status = check_part(ctx, &parts[i], step, TG_BF16);
  }
  for (size_t i = 0; i < 2 && status == TG_OK; i++) {
    status = check_part(ctx, &tables[i], step, TG_F32);
  }
  return status;
}

static tg_status check_cache(const tg_context *ctx, const tg_decoder_model *m)
{
  const int64_t width = (int64_t)m->kv_heads * m->head_dim;
  for (int32_t i = 0; i < 2 * m->layers; i++) {
    const tg_tensor *t = i % 2 ? &m->values[i / 2] : &m->keys[i / 2];
    if (t->dtype != TG_BF16 || t->ndim != 2 || t->shape[1] != width || !t->data ||
        (uintptr_t)t->data % 16 != 0 || tgi_stride(t, 0) != width) {
      return tgi_report(ctx, TG_UNSUPPORTED,
                        "decoder_create: %s[%d]: expected contiguous bf16 [rows, %lld], got %s of "
                        "%d axes",
                        i % 2 ? "values" : "keys", i / 2, (long long)width, tg_dtype_name(t->dtype),
                        (int)t->ndim);
    }
  }
  return TG_OK;
}

/* Rows that every layer's keys and values have. */
static int64_t rows_of(const tg_decoder_model *m)
{
  int64_t rows = INT64_MAX;
  for (int32_t i = 0; i < m->layers; i++) {
    rows = m->keys[i].shape[0] < rows ? m->keys[i].shape[0] : rows;
    rows = m->values[i].shape[0] < rows ? m->values[i].shape[0] : rows;
  }
  return rows;
}

/* ---- calls ---- */

static tg_status open_entry(tg_context *ctx, const tg_decoder_model *m, void **out)
{
  if (!tgi_decoder_open_sm90 || !ctx->device || ctx->device->sm != 90 || ctx->chain.length == 0 ||
      strcmp(ctx->chain.entry[0], "sm90") != 0) {
    return tgi_report(ctx, TG_UNSUPPORTED,
                      "decoder_create: ctx: expected a GPU of compute capability 9.0 and a build "
                      "for it, got another");
  }
  tg_status status = check_model(ctx, m);
  status = status ? status : check_cache(ctx, m);
  if (status != TG_OK) {
    return status;
  }
  int previous;
  status = tgi_device_enter(ctx, &previous);
  status = status ? status : tgi_decoder_open_sm90(ctx, m, out);
  tgi_device_leave(ctx, previous);
  return status;
}

tg_status tg_decoder_create(tg_context *ctx, const tg_decoder_model *model, tg_decoder **out)
{
  if (!ctx || !model || !out) {
    return TG_BAD_ARGUMENT;
  }
  *out = NULL;
  tg_decoder *d = calloc(1, sizeof *d);
  if (!d) {
    return tgi_report(ctx, TG_NO_MEMORY, "decoder_create: expected %zu bytes, got none", sizeof *d);
  }
  const tg_status status = open_entry(ctx, model, &d->of_entry);
  if (status != TG_OK) {
    free(d);
    return status;
  }
  d->vocab = model->tokens.shape[0];
  d->positions = model->cos.ndim ? model->cos.shape[0] : model->positions.shape[0];
  d->rows = rows_of(model);
  d->block_tokens = model->block_tokens;
  d->device = ctx->device->index;
  *out = d;
  return TG_OK;
}

void tg_decoder_destroy(tg_context *ctx, tg_decoder *decoder)
{
  if (ctx && decoder) {
    tgi_decoder_close_sm90(ctx, decoder->of_entry);
    free(decoder);
  }
}

static tg_status check_operand(const tg_context *ctx, const char *name, const tg_tensor *t,
                               tg_dtype dtype, int64_t elements)
{
  if (t->dtype != dtype) {
    return tgi_report(ctx, TG_BAD_DTYPE, "decoder_run: %s: expected %s, got %s", name,
                      tg_dtype_name(dtype), tg_dtype_name(t->dtype));
  }
  const int64_t found = t->ndim ? tgi_numel(t) : 0;
  if (found < elements) {
    return tgi_report(ctx, TG_BAD_SHAPE, "decoder_run: %s: expected %lld elements, got %lld", name,
                      (long long)elements, (long long)found);
  }
  if (!tgi_is_dense(t)) {
    return tgi_report(ctx, TG_BAD_ARGUMENT,
                      "decoder_run: %s: expected contiguous memory, got strides", name);
  }
  return t->data
             ? TG_OK
             : tgi_report(ctx, TG_BAD_ARGUMENT, "decoder_run: %s: expected memory, got NULL", name);
}

static tg_status check_position(const tg_context *ctx, const tg_decoder *d, int64_t position)
{
  const int64_t most = d->positions < d->rows ? d->positions : d->rows;
  return position >= 0 && position < most
             ? TG_OK
             : tgi_report(ctx, TG_BAD_ARGUMENT,
                          "decoder_run: position: expected 0 to %lld (%lld positions, a cache of "
                          "%lld rows), got %lld",
                          (long long)most - 1, (long long)d->positions, (long long)d->rows,
                          (long long)position);
}

static tg_status check_step(const tg_context *ctx, const tg_decoder *d, const tg_decoder_step *s)
{
  tg_status status = check_operand(ctx, "id", &s->id, TG_I32, 1);
  status = status ? status : check_operand(ctx, "greedy", &s->greedy, TG_I32, 1);
  status = status ? status : check_operand(ctx, "logits", &s->logits, TG_F32, d->vocab);
  status = status ? status : check_position(ctx, d, s->position);
  if (status == TG_OK && s->block_table.ndim) {
    status = check_operand(ctx, "block_table", &s->block_table, TG_I32,
                           s->position / d->block_tokens + 1);
  }
  if (status == TG_OK && (!ctx->device || ctx->device->index != d->device)) {
    status = tgi_report(ctx, TG_BAD_ARGUMENT,
                        "decoder_run: ctx: expected one of the decoder's GPU (cuda:%d), got one of "
                        "another device",
                        (int)d->device);
  }
  return status;
}

tg_status tg_decoder_run(tg_context *ctx, tg_decoder *decoder, const tg_decoder_step *step)
{
  if (!ctx || !decoder || !step) {
    return TG_BAD_ARGUMENT;
  }
  int previous;
  tg_status status = check_step(ctx, decoder, step);
  if (status != TG_OK) {
    return status;
  }
  status = tgi_device_enter(ctx, &previous);
  status = status ? status : tgi_decoder_run_sm90(ctx, decoder->of_entry, step);
  tgi_device_leave(ctx, previous);
  return status;
}

const char *tg_decoder_name(const tg_decoder *decoder)
{
  return decoder ? tgi_decoder_name_sm90(decoder->of_entry) : "";
}

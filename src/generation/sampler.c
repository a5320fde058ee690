/* Picking a token from logits: one row of the op `sample`. */
#include "core/error_record.h"
#include "tegula/model.h"
#include "tegula/sample.h"

#include <stdlib.h>
#include <string.h>

/* The op's message under this function's name. */
static tg_status forward_error(const tg_context *ctx, tg_status status, tg_error *error)
{
  static const char kOp[] = "sample_fwd: ";
  const char *text = tg_context_message(ctx);
  text += strncmp(text, kOp, sizeof kOp - 1) == 0 ? sizeof kOp - 1 : 0;
  return tgi_error_set(error, status, "sample_token: %s", text);
}

static tg_status sample_row(tg_context *ctx, tg_sample_fwd_args *a, tg_error *error)
{
  tg_status status = tg_sample_fwd_workspace(ctx, a, &a->workspace_bytes);
  if (status != TG_OK) {
    return forward_error(ctx, status, error);
  }
  a->workspace = aligned_alloc(256, a->workspace_bytes); /* a multiple of 256 */
  if (!a->workspace) {
    return tgi_error_set(error, TG_NO_MEMORY, "sample_token: expected %zu bytes, got none",
                         a->workspace_bytes);
  }
  status = tg_sample_fwd(ctx, a);
  free(a->workspace);
  return status == TG_OK ? TG_OK : forward_error(ctx, status, error);
}

tg_status tg_sample_token(const float *logits, int32_t vocab_size, const tg_sampling *sampling,
                          uint64_t position, int32_t *id, tg_error *error)
{
  if (!logits || !sampling || !id || vocab_size < 1) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "sample_token: logits, sampling, id: expected pointers and vocab_size >= "
                         "1, got vocab_size %d",
                         vocab_size);
  }
  tg_context *ctx = NULL;
  const tg_context_options options = {.backend = TG_BACKEND_CPU, .num_threads = 1};
  tg_status status = tg_context_create(&options, &ctx, error);
  if (status != TG_OK) {
    return status;
  }
  int32_t picked = 0; /* *id stays as it is where the row cannot be sampled */
  tg_sample_fwd_args a = {
      .logits = tg_tensor_2d((void *)(uintptr_t)logits, TG_F32, 1, vocab_size), /* only read */
      .ids = tg_tensor_1d(&picked, TG_I32, 1),
      .seed = (int64_t)sampling->seed,
      .position = (int64_t)position,
      .temperature = sampling->temperature,
      .top_p = sampling->top_p,
      .min_p = sampling->min_p,
      .top_k = sampling->top_k,
  };
  status = sample_row(ctx, &a, error);
  tg_context_destroy(ctx);
  if (status == TG_OK) {
    *id = picked;
  }
  return status;
}

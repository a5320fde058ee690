/* Tuning: what does not need a GPU. */
#include "tegula/tune.h"

#include "core/device_state.h"
#include "core/tuned_products.h"

tg_status tg_tune_begin(tg_context *ctx)
{
  if (!ctx) {
    return TG_BAD_ARGUMENT;
  }
  return ctx->device ? tgi_device_tune_begin(ctx) : TG_OK;
}

tg_status tg_tune_end(tg_context *ctx, int64_t *measured)
{
  int64_t count = 0;
  const tg_status status = !ctx          ? TG_BAD_ARGUMENT
                           : ctx->device ? tgi_device_tune_end(ctx, &count)
                                         : TG_OK;
  if (measured) {
    *measured = count;
  }
  return status;
}

tg_status tg_tune_clear(int64_t *removed, tg_error *error)
{
  int64_t count = 0;
  if (error) {
    *error = (tg_error){.status = TG_OK};
  }
  const tg_status status = tgi_tuned_clear(&count, error);
  if (removed) {
    *removed = count;
  }
  return status;
}

const char *tg_context_table(const tg_context *ctx)
{
  if (!ctx || !ctx->device) {
    return "built in";
  }
  tgi_tuned_text(ctx->device->tuned, ctx->message->text, sizeof ctx->message->text);
  return ctx->message->text;
}

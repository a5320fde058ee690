/* Any bytes: a shape string of any op is read or refused by one line, and what is read is
 * explained. The first byte chooses the op's row, the second the dtype. */
#include "core/context_state.h"
#include "ops/shape.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
  if (!condition) {
    abort();
  }
}

static bool is_one_line(const char *text)
{
  return text[0] && !strpbrk(text, "\n\r");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static const tg_dtype dtypes[] = {TG_F32, TG_F16, TG_BF16};
  static const tg_context_options options = {.backend = TG_BACKEND_CPU, .num_threads = 1};
  static tg_context *ctx;
  static tgi_shaped shaped;
  char text[512], plan[256];
  if (size < 2 || size - 2 >= sizeof text) {
    return 0;
  }
  require(ctx || tg_context_create(&options, &ctx, NULL) == TG_OK);
  memcpy(text, data + 2, size - 2);
  text[size - 2] = '\0';
  tg_error error = {TG_OK, ""};
  size_t workspace;
  const char *row = tg_op_at(data[0] % tg_op_count())->name;
  if (tgi_shape_fill(row, text, dtypes[data[1] % 3], &shaped, &error) != TG_OK) {
    require(is_one_line(error.text) && strstr(error.text, ": expected "));
    return 0;
  }
  tgi_shaped_place(&shaped);
  if (shaped.info->workspace(ctx, shaped.args.bytes, &workspace) != TG_OK) {
    require(is_one_line(tg_context_message(ctx)));
  } else {
    tgi_shape_explain(ctx, &shaped, plan, sizeof plan);
    require(is_one_line(plan));
  }
  return 0;
}

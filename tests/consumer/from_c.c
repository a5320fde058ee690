/* Calls the installed library from C: two rows of RMSNorm, and one error message. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tegula/tegula.h>

int main(void)
{
  float x[2][2] = {{3, 4}, {0.6f, 0.8f}}, weight[2] = {1, 2}, y[2][2];
  tg_context *ctx;
  tg_error error;
  tg_status status =
      tg_context_create(&(tg_context_options){.backend = TG_BACKEND_CPU}, &ctx, &error);
  if (status != TG_OK) {
    fprintf(stderr, "%s\n", error.text);
    return 1;
  }
  tg_rms_norm_fwd_args args = {.x = tg_tensor_2d(x, TG_F32, 2, 2),
                               .weight = tg_tensor_1d(weight, TG_F32, 2),
                               .y = tg_tensor_2d(y, TG_F32, 2, 2),
                               .eps = 1e-12f,
                               .policy = TG_RMS_NORM_LLAMA};
  status = tg_rms_norm_fwd(ctx, &args);
  /* Both rows are the same direction: x / |x| * sqrt(2) = {0.6, 0.8} * sqrt(2). */
  for (int i = 0; i < 2 && status == TG_OK; i++) {
    if (fabsf(y[i][0] - 0.848528f) > 1e-5f || fabsf(y[i][1] - 2.262742f) > 1e-5f) {
      fprintf(stderr, "row %d: expected 0.848528 2.262742, got %f %f\n", i, (double)y[i][0],
              (double)y[i][1]);
      return 1;
    }
  }
  if (status != TG_OK) {
    fprintf(stderr, "%s\n", tg_context_message(ctx));
    return 1;
  }
  args.eps = 0;
  if (tg_rms_norm_fwd(ctx, &args) != TG_BAD_ARGUMENT ||
      !strstr(tg_context_message(ctx), "rms_norm_fwd: eps: expected")) {
    fprintf(stderr, "expected a message about eps, got \"%s\"\n", tg_context_message(ctx));
    return 1;
  }
  printf("C: tegula %s, %s\n", tg_version(), tg_context_entry(ctx));
  tg_context_destroy(ctx);
  return 0;
}

// Calls the installed library from C++17: arguments are filled by assignment.
#include <cmath>
#include <cstdio>
#include <tegula/tegula.h>
#include <vector>

int main()
{
  std::vector<float> x = {3, 4}, weight = {1, 2}, y(2);
  tg_context_options options = {};
  options.backend = TG_BACKEND_CPU;
  tg_context *ctx = nullptr;
  tg_error error;
  if (tg_context_create(&options, &ctx, &error) != TG_OK) {
    std::fprintf(stderr, "%s\n", error.text);
    return 1;
  }
  tg_rms_norm_fwd_args args = {};
  args.x = tg_tensor_2d(x.data(), TG_F32, 1, 2);
  args.weight = tg_tensor_1d(weight.data(), TG_F32, 2);
  args.y = tg_tensor_2d(y.data(), TG_F32, 1, 2);
  args.eps = 1e-12f;
  args.policy = TG_RMS_NORM_GPT_OSS;
  if (tg_rms_norm_fwd(ctx, &args) != TG_OK || std::fabs(y[1] - 2.262742f) > 1e-5f) {
    std::fprintf(stderr, "expected 2.262742, got %f: %s\n", static_cast<double>(y[1]),
                 tg_context_message(ctx));
    return 1;
  }
  std::printf("C++: tegula %s, %zu rows in the op table\n", tg_version(), tg_op_count());
  tg_context_destroy(ctx);
  return 0;
}

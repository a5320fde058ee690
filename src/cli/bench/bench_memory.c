#include "bench_memory.h"

#include "cli/generate/model_cost.h"
#include "tegula/device.h"
#include <stdio.h>

double tgi_bench_forward_flops(const tg_model *model, double tokens, double keys, double logits)
{
  const tg_model_info i = tg_model_get_info(model);
  const tgi_model_products p = tgi_model_count_products(model);
  const double attention = 4.0 * i.num_hidden_layers * i.num_attention_heads * i.head_dim * keys;
  return tokens * (2 * p.body + attention) + logits * 2 * p.head;
}

/* VmHWM of this process. */
double tgi_bench_peak_memory(void)
{
  char line[128];
  double kib = 0;
  FILE *f = fopen("/proc/self/status", "r");
  while (f && fgets(line, sizeof line, f)) {
    if (sscanf(line, "VmHWM: %lf", &kib) == 1) {
      break;
    }
  }
  if (f) {
    (void)fclose(f);
  }
  return 1024 * kib;
}

double tgi_bench_free_memory(const tgi_run_device *d)
{
  tg_device_info info;
  const bool found = d->backend == TG_BACKEND_CUDA && !tg_device_get_info(d->index, &info, NULL);
  return found ? (double)info.free_bytes : 0;
}

#include "cost_roof.h"

#include "core/error_record.h"
#include "roof/gpu_roof.h"
#include "roof/roof.h"

#include <stdio.h>

enum { kRoofRuns = 7 };

static const double kLeastCopyBytes = 256 << 10, kMostCopyBytes = 256 << 20;

static double median_seconds(roof *r)
{
  double s[kRoofRuns];
  for (int i = 0; i < kRoofRuns; i++) {
    s[i] = roof_run(r);
    for (int k = i; k > 0 && s[k] < s[k - 1]; k--) {
      const double swap = s[k];
      s[k] = s[k - 1];
      s[k - 1] = swap;
    }
  }
  return s[kRoofRuns / 2];
}

/* The copy whose ratio of reads to writes is nearest to the op's. */
static roof_mix copy_mix(const tgi_cost *cost)
{
  roof_mix mix = {1, 0, 0};
  if (cost->written_bytes > 0.02 * cost->read_bytes) {
    const double ratio = cost->read_bytes / cost->written_bytes;
    mix.reads = ratio < 1 ? 1 : ratio > 3.5 ? 4 : (int)(ratio + 0.5);
    mix.writes = ratio < 0.4 ? 3 : ratio < 0.7 ? 2 : 1;
  }
  return mix;
}

static tg_status measure_gpu(int32_t index, tg_dtype dtype, tgi_cost_roof *out, tg_error *error)
{
  tgi_gpu_roof gpu;
  const tg_status status = tgi_gpu_roof_measure(index, dtype, &gpu, error);
  out->bytes_per_s = gpu.bytes_per_s;
  out->flops_per_s = gpu.product_flops;
  out->arithmetic = "product";
  snprintf(out->copy, sizeof out->copy, "copy");
  return status;
}

static tg_status measure_cpu(const tgi_cost *cost, int threads, tgi_cost_roof *out, tg_error *error)
{
  double bytes = cost->read_bytes + cost->written_bytes;
  bytes = bytes < kLeastCopyBytes ? kLeastCopyBytes : bytes;
  bytes = bytes > kMostCopyBytes ? kMostCopyBytes : bytes;
  array_stack arrays;
  if (!array_stack_open(&arrays)) {
    return tgi_error_set(error, TG_NO_MEMORY, "roof: expected memory for the roofs, got none");
  }
  roof *copy = roof_copy(&arrays, threads, copy_mix(cost), bytes), *fma = roof_fma_f32(threads);
  tg_status status = TG_OK;
  if (copy && fma) {
    out->bytes_per_s = roof_bytes(copy) / median_seconds(copy);
    out->flops_per_s = roof_flops(fma) / median_seconds(fma);
    out->arithmetic = "fma_f32";
    snprintf(out->copy, sizeof out->copy, "%s %s", roof_name(copy), roof_detail(copy));
  } else {
    status =
        tgi_error_set(error, TG_NO_MEMORY, "roof: expected %.0f bytes for a roof, got none", bytes);
  }
  roof_close(copy);
  roof_close(fma);
  array_stack_close(&arrays);
  return status;
}

tg_status tgi_cost_roof_measure(const tgi_cost *cost, const tgi_run_device *device, tg_dtype dtype,
                                int threads, tgi_cost_roof *out, tg_error *error)
{
  return device->backend == TG_BACKEND_CUDA ? measure_gpu(device->index, dtype, out, error)
                                            : measure_cpu(cost, threads, out, error);
}

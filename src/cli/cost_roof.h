/** The roofs of a call on this machine: what its bytes and flops take at least. */
#ifndef TGI_CLI_COST_ROOF_H
#define TGI_CLI_COST_ROOF_H

#include "ops/shape.h"
#include "option_table.h"

typedef struct tgi_cost_roof {
  double bytes_per_s, flops_per_s;
  char copy[64];          /* how the copy ran */
  const char *arithmetic; /* "product" on a GPU, "fma_f32" on a CPU */
} tgi_cost_roof;

/** Measures. On a CPU the copy has about the call's bytes and its mix of reads and writes; on a GPU
 * the roofs are those of the device, in about a second. Errors: those of tg_context_create,
 * NO_MEMORY, DEVICE. */
tg_status tgi_cost_roof_measure(const tgi_cost *cost, const tgi_run_device *device, tg_dtype dtype,
                                int threads, tgi_cost_roof *out, tg_error *error);

static inline double tgi_roof_memory_seconds(const tgi_cost_roof *roof, const tgi_cost *cost)
{
  return (cost->read_bytes + cost->written_bytes) / roof->bytes_per_s;
}

static inline double tgi_roof_compute_seconds(const tgi_cost_roof *roof, const tgi_cost *cost)
{
  return cost->flops / roof->flops_per_s;
}

#endif

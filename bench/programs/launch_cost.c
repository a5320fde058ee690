/* Host time of one call of a small op on a GPU, beside that of a bare kernel launch.
 *
 *   launch_cost [CALLS]
 *
 * CALLS (10000) are issued back to back in batches, and the queue is empty before each: it never
 * fills, so that no call waits for the GPU. Medians of the batches, in us.
 */
#include "core/machine/clock.h"
#include "empty_kernel.h"
#include "tegula/tegula.h"

#include <stdio.h>
#include <stdlib.h>

enum { kBatch = 250, kMostBatches = 4000, kCols = 1024 };

typedef struct calls {
  tg_context *ctx;
  tg_silu_fwd_args silu;
  tg_rms_norm_fwd_args norm;
} calls;

static bool run_empty(const calls *c)
{
  (void)c;
  return launch_empty_kernel(NULL);
}

static bool run_silu(const calls *c)
{
  return tg_silu_fwd(c->ctx, &c->silu) == TG_OK;
}

static bool run_norm(const calls *c)
{
  return tg_rms_norm_fwd(c->ctx, &c->norm) == TG_OK;
}

static int ascending(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Median us of a call; the first batch is not counted. */
static bool time_calls(const calls *c, bool run(const calls *), int batches, double *us)
{
  static double found[kMostBatches];
  for (int b = -1; b < batches; b++) {
    const double start = tgi_clock();
    for (int i = 0; i < kBatch; i++) {
      if (!run(c)) {
        return false;
      }
    }
    if (b >= 0) {
      found[b] = 1e6 * (tgi_clock() - start) / kBatch;
    }
    if (tg_context_check(c->ctx) != TG_OK) { /* waits */
      return false;
    }
  }
  qsort(found, (size_t)batches, sizeof *found, ascending);
  *us = found[batches / 2];
  return true;
}

/* A zeroed bf16 tensor; no data if there is no memory. */
static tg_tensor make_tensor(tg_context *ctx, bool row)
{
  tg_tensor t = row ? tg_tensor_1d(NULL, TG_BF16, kCols) : tg_tensor_2d(NULL, TG_BF16, 1, kCols);
  const size_t bytes = kCols * tg_dtype_bytes(TG_BF16);
  if (tg_memory_allocate(ctx, bytes, &t.data) == TG_OK) {
    (void)tg_memory_zero(ctx, t.data, bytes);
  }
  return t;
}

static bool measure(calls *c, int batches)
{
  static const struct {
    const char *name;
    bool (*run)(const calls *);
  } rows[] = {{"empty kernel, cudaLaunchKernel", run_empty},
              {"silu_fwd 1x1024 bf16", run_silu},
              {"rms_norm_fwd 1x1024 bf16", run_norm}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    double us;
    if (!time_calls(c, rows[i].run, batches, &us)) {
      fprintf(stderr, "%s: %s\n", rows[i].name, tg_context_message(c->ctx));
      return false;
    }
    printf("%-32s %7.3f us\n", rows[i].name, us);
  }
  return true;
}

int main(int argc, char **argv)
{
  const long count = argc > 1 ? strtol(argv[1], NULL, 10) : 10000;
  if (argc > 2 || count < kBatch || count > (long)kBatch * kMostBatches) {
    fprintf(stderr, "usage: launch_cost [CALLS], %d to %d\n", kBatch, kBatch * kMostBatches);
    return 2;
  }
  calls c = {NULL};
  tg_error error;
  const tg_context_options wish = {.backend = TG_BACKEND_CUDA};
  if (tg_context_create(&wish, &c.ctx, &error) != TG_OK) {
    fprintf(stderr, "%s\n", error.text);
    return 2;
  }
  const tg_tensor x = make_tensor(c.ctx, false), y = make_tensor(c.ctx, false);
  const tg_tensor weight = make_tensor(c.ctx, true);
  c.silu = (tg_silu_fwd_args){.x = x, .y = y};
  c.norm = (tg_rms_norm_fwd_args){
      .x = x, .weight = weight, .y = y, .eps = 1e-6f, .policy = TG_RMS_NORM_LLAMA};
  const bool ready = x.data && y.data && weight.data && tg_context_prepare(c.ctx) == TG_OK;
  if (!ready) {
    fprintf(stderr, "%s\n", tg_context_message(c.ctx));
  }
  const bool done = ready && measure(&c, (int)(count / kBatch));
  tg_memory_free(c.ctx, x.data);
  tg_memory_free(c.ctx, y.data);
  tg_memory_free(c.ctx, weight.data);
  tg_context_destroy(c.ctx);
  return done ? 0 : 1;
}

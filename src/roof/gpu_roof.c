#include "gpu_roof.h"

#include "core/error_record.h"
#include "core/machine/clock.h"
#include "core/values/half.h"
#include "tegula/tegula.h"

#include <stdlib.h>

enum { kRuns = 9, kWarmUp = 2, kCopies = 8 };

static const size_t kCopyBytes = (size_t)512 << 20;

typedef struct measuring {
  tg_context *ctx;
  char *memory;
  void *workspace;
  size_t workspace_bytes;
  int64_t size; /* of the square matrices */
  tg_dtype dtype;
} measuring;

static int by_value(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Median seconds of `work`, until the device has finished it. */
static tg_status median(measuring *m, tg_status (*work)(measuring *), double *seconds)
{
  double s[kRuns];
  tg_status status = TG_OK;
  for (int i = -kWarmUp; i < kRuns && status == TG_OK; i++) {
    const double start = tgi_clock();
    status = work(m);
    if (status == TG_OK) {
      status = tg_context_check(m->ctx);
    }
    if (i >= 0) {
      s[i] = tgi_clock() - start;
    }
  }
  qsort(s, kRuns, sizeof s[0], by_value);
  *seconds = s[kRuns / 2];
  return status;
}

static tg_status copy_back_and_forth(measuring *m)
{
  tg_status status = TG_OK;
  for (int i = 0; i < kCopies && status == TG_OK; i++) {
    char *half = m->memory + kCopyBytes;
    status = tg_memory_copy(m->ctx, i % 2 ? m->memory : half, kCopyBytes, i % 2 ? half : m->memory,
                            kCopyBytes, kCopyBytes, 1);
  }
  return status;
}

static tg_linear_fwd_args product(const measuring *m)
{
  const int64_t n = m->size, bytes = n * n * (int64_t)tg_dtype_bytes(m->dtype);
  char *at = m->memory;
  return (tg_linear_fwd_args){.x = tg_tensor_2d(at, m->dtype, n, n),
                              .weight = tg_tensor_2d(at + bytes, m->dtype, n, n),
                              .y = tg_tensor_2d(at + 2 * bytes, m->dtype, n, n),
                              .workspace = m->workspace,
                              .workspace_bytes = m->workspace_bytes};
}

static tg_status multiply(measuring *m)
{
  const tg_linear_fwd_args args = product(m);
  return tg_linear_fwd(m->ctx, &args);
}

/* Fills both operands with pseudo-random numbers from -1 to 1. */
static tg_status fill_operands(measuring *m)
{
  enum { kPiece = 1 << 20 };
  const size_t element = tg_dtype_bytes(m->dtype), bytes = kPiece * element;
  const size_t all = 2 * (size_t)m->size * (size_t)m->size * element;
  char *piece = malloc(bytes);
  tg_status status = piece ? TG_OK : TG_NO_MEMORY;
  uint32_t state = 1;
  for (int i = 0; i < kPiece && piece; i++) {
    state = state * 1664525u + 1013904223u;
    tgi_store(piece, m->dtype, i, (double)(int32_t)state * 0x1p-31);
  }
  for (size_t at = 0; at < all && status == TG_OK; at += bytes) {
    status = tg_memory_copy(m->ctx, m->memory + at, bytes, piece, bytes, bytes, 1);
  }
  free(piece);
  return status;
}

static tg_status measure_copy(measuring *m, tgi_gpu_roof *out)
{
  double seconds = 1;
  const tg_status status = median(m, copy_back_and_forth, &seconds);
  out->bytes_per_s = 2.0 * kCopies * (double)kCopyBytes / seconds;
  return status;
}

static tg_status measure_product(measuring *m, tgi_gpu_roof *out)
{
  double seconds = 1;
  tg_status status = fill_operands(m);
  const tg_linear_fwd_args args = product(m);
  if (status == TG_OK) {
    status = tg_linear_fwd_workspace(m->ctx, &args, &m->workspace_bytes);
  }
  if (status == TG_OK) {
    status = tg_memory_allocate(m->ctx, m->workspace_bytes, &m->workspace);
  }
  if (status == TG_OK) {
    status = median(m, multiply, &seconds);
    out->product_flops = 2.0 * (double)m->size * (double)m->size * (double)m->size / seconds;
  }
  return status;
}

/* dtype TG_DTYPE_NONE: copies alone. */
static tg_status measure(measuring *m, tgi_gpu_roof *out)
{
  m->size = 8192;
  const size_t operands = 3 * (size_t)m->size * (size_t)m->size * tg_dtype_bytes(m->dtype);
  const size_t bytes = operands > 2 * kCopyBytes ? operands : 2 * kCopyBytes;
  tg_status status = tg_memory_allocate(m->ctx, bytes, (void **)&m->memory);
  status = status ? status : measure_copy(m, out);
  return status || m->dtype == TG_DTYPE_NONE ? status : measure_product(m, out);
}

tg_status tgi_gpu_roof_measure(int32_t index, tg_dtype dtype, tgi_gpu_roof *out, tg_error *error)
{
  const tg_context_options cuda = {.backend = TG_BACKEND_CUDA, .device_index = index};
  measuring m = {.dtype = dtype};
  *out = (tgi_gpu_roof){0, 0};
  tg_status status = tg_context_create(&cuda, &m.ctx, error);
  if (status != TG_OK) {
    return status;
  }
  status = dtype == TG_DTYPE_NONE ? TG_OK : tg_context_prepare(m.ctx);
  status = status ? status : measure(&m, out);
  if (status != TG_OK) {
    tgi_error_set(error, status, "gpu %d: %s", (int)index, tg_context_message(m.ctx));
  }
  tg_memory_free(m.ctx, m.memory);
  tg_memory_free(m.ctx, m.workspace);
  tg_context_destroy(m.ctx);
  return status;
}

tg_status tgi_gpu_roof_measure_copy(int32_t index, double *bytes_per_s, tg_error *error)
{
  tgi_gpu_roof roof;
  const tg_status status = tgi_gpu_roof_measure(index, TG_DTYPE_NONE, &roof, error);
  *bytes_per_s = roof.bytes_per_s;
  return status;
}

/* Global norm on the CPU.
 *
 * Method     Squares are summed in f32 lanes over pieces of 4096 elements, the pieces of a chunk of
 *            65536 in f64, the chunks in order by one thread. A piece whose sum is not a healthy
 *            f32 is summed again with its values scaled up or down, from the cache.
 * Work       Chunks of the list, cut by the tensors' sizes alone.
 * Bound      Memory: reads every element once.
 */
#include "cpu/simd.h"
#include "ops/kernels.h"
#include "ops/shared/lists/list_chunks.h"

#include <stdio.h>

enum { kChunk = 65536, kPiece = 4096 };

/* Below the first, squares may have lost bits to denormals or vanished. */
#define SMALLEST_SUM 0x1p-80f
#define RESCALE 0x1p+80f

TGI_INLINE float sum_of_squares_as(const void *x, int64_t first, int64_t n, float scale, int t)
{
  const vf c = vf_set1(scale);
  vf s[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
  int64_t j = 0;
  for (; j + 4 * TGI_LANES <= n; j += 4 * TGI_LANES) {
    for (int k = 0; k < 4; k++) {
      const vf v = vf_load(x, t, first + j + k * TGI_LANES) * c;
      s[k] = vf_fma(v, v, s[k]);
    }
  }
  for (; j < n; j += TGI_LANES) {
    const vf v = vf_load_part(x, t, first + j, tgi_min_i64(TGI_LANES, n - j)) * c;
    s[0] = vf_fma(v, v, s[0]);
  }
  return vf_sum((s[0] + s[1]) + (s[2] + s[3]));
}

TGI_INLINE double piece_as(const void *x, int64_t first, int64_t n, int t)
{
  const float sum = sum_of_squares_as(x, first, n, 1.0f, t);
  if (sum < SMALLEST_SUM) {
    return (double)sum_of_squares_as(x, first, n, RESCALE, t) * 0x1p-160;
  }
  if (!isfinite(sum)) {
    return (double)sum_of_squares_as(x, first, n, 1.0f / RESCALE, t) * 0x1p+160;
  }
  return (double)sum;
}

static double sum_chunk(const void *x, int64_t n, int t)
{
  double sum = 0;
  for (int64_t first = 0; first < n; first += kPiece) {
    const int64_t count = tgi_min_i64(kPiece, n - first);
    TGI_SWITCH_FLOAT(t, T, sum += piece_as(x, first, count, T));
  }
  return sum;
}

static void sum_chunks(void *arg, int64_t begin, int64_t end, int thread)
{
  const tg_global_norm_fwd_args *a = arg;
  double *partial = a->workspace;
  list_chunk c = find_chunk(a->tensors, begin, kChunk);
  (void)thread;
  for (int64_t i = begin; i < end; i++) {
    partial[i] = sum_chunk(chunk_data(a->tensors, c), c.count, a->tensors[c.tensor].dtype);
    if (i + 1 < end) {
      c = next_chunk(a->tensors, c, kChunk);
    }
  }
}

size_t TGI_WORKSPACE(global_norm_fwd)(const tg_context *ctx, const tg_global_norm_fwd_args *a)
{
  (void)ctx;
  return (size_t)count_chunks(a->tensors, a->num_tensors, kChunk) * sizeof(double);
}

tg_status TGI_KERNEL(global_norm_fwd)(const tg_context *ctx, const tg_global_norm_fwd_args *a)
{
  tg_global_norm_fwd_args args = *a;
  const int64_t chunks = count_chunks(a->tensors, a->num_tensors, kChunk);
  const double *partial = a->workspace;
  double sum = 0;
  tgi_for(ctx, chunks, 2, sum_chunks, &args);
  for (int64_t i = 0; i < chunks; i++) {
    sum += partial[i];
  }
  const float norm = (float)sqrt(sum);
  ((float *)a->norm.data)[0] = norm;
  if (tgi_present(&a->clip)) {
    const float clip = a->max_norm / (norm + 1e-6f);
    ((float *)a->clip.data)[0] = !isfinite(norm) ? NAN : clip < 1 ? clip : 1;
  }
  return TG_OK;
}

void TGI_PLAN(global_norm_fwd)(const tg_context *ctx, const tg_global_norm_fwd_args *a, char *text,
                               size_t bytes)
{
  (void)ctx;
  snprintf(text, bytes, "%lld chunks of %d elements",
           (long long)count_chunks(a->tensors, a->num_tensors, kChunk), (int)kChunk);
}

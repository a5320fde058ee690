/* AdamW on the CPU.
 *
 * Method     One pass in place. The arithmetic is written once, on f32 arrays of at most 1024
 *            elements: f32 tensors are updated where they lie, 16-bit ones are widened into a
 *            buffer in the first-level cache and narrowed back.
 * Work       Chunks of 32768 elements over the whole list; elements are independent.
 * Bound      Memory: reads params, grads and both states, writes all but grads (28 bytes an element
 *            in f32).
 */
#include "cpu/simd.h"
#include "ops/adamw/adamw_factors.h"
#include "ops/shared/lists/list_chunks.h"

#include <stdio.h>

enum { kChunk = 32768, kPiece = 1024 };

/* The factors as vectors. */
typedef struct lane_factors {
  vf grad_scale, decay, blend1, beta2, blend2, step, correction2, eps;
} lane_factors;

static lane_factors spread(const adamw_factors *f, const tg_adamw_step_args *a)
{
  return (lane_factors){.grad_scale = vf_set1((float)f->grad_scale),
                        .decay = vf_set1((float)f->decay),
                        .blend1 = vf_set1((float)f->blend1),
                        .beta2 = vf_set1((float)a->beta2),
                        .blend2 = vf_set1((float)f->blend2),
                        .step = vf_set1((float)-f->step_size),
                        .correction2 = vf_set1((float)f->correction2),
                        .eps = vf_set1((float)a->eps)};
}

typedef struct piece {
  float *weight, *avg, *sq;
  const float *grad;
} piece;

typedef struct lanes {
  vf weight, avg, sq;
} lanes;

TGI_INLINE lanes update(lanes old, vf grad, const lane_factors *f)
{
  const vf g = grad * f->grad_scale;
  const vf avg = vf_fma(f->blend1, g - old.avg, old.avg);
  const vf sq = vf_fma(f->blend2 * g, g, old.sq * f->beta2);
  const vf denominator = vf_sqrt(sq) / f->correction2 + f->eps;
  return (lanes){old.weight * f->decay + f->step * avg / denominator, avg, sq};
}

static void update_piece(piece p, int64_t n, const lane_factors *factors)
{
  const lane_factors f = *factors;
  int64_t j = 0;
  for (; j + TGI_LANES <= n; j += TGI_LANES) {
    const lanes old = {vf_load_f32(p.weight + j), vf_load_f32(p.avg + j), vf_load_f32(p.sq + j)};
    const lanes new = update(old, vf_load_f32(p.grad + j), &f);
    vf_store_f32(p.weight + j, new.weight);
    vf_store_f32(p.avg + j, new.avg);
    vf_store_f32(p.sq + j, new.sq);
  }
  if (j < n) {
    const int64_t k = n - j;
    const lanes old = {vf_load_part_f32(p.weight + j, k), vf_load_part_f32(p.avg + j, k),
                       vf_load_part_f32(p.sq + j, k)};
    const lanes new = update(old, vf_load_part_f32(p.grad + j, k), &f);
    vf_store_part_f32(p.weight + j, k, new.weight);
    vf_store_part_f32(p.avg + j, k, new.avg);
    vf_store_part_f32(p.sq + j, k, new.sq);
  }
}

TGI_INLINE void convert_as(void *to, int tt, const void *from, int tf, int64_t n)
{
  int64_t j = 0;
  for (; j + TGI_LANES <= n; j += TGI_LANES) {
    vf_store(to, tt, j, vf_load(from, tf, j));
  }
  if (j < n) {
    vf_store_part(to, tt, j, n - j, vf_load_part(from, tf, j, n - j));
  }
}

/* The elements in f32: where they lie, or widened into the buffer. */
static float *widen(void *data, int t, int64_t n, float *buffer)
{
  if (t == TG_F32) {
    return data;
  }
  TGI_SWITCH_FLOAT(t, T, convert_as(buffer, TG_F32, data, T, n));
  return buffer;
}

/* Back to where they lie, unless they are there already. */
static void narrow(void *data, int t, int64_t n, const float *values)
{
  if ((const void *)values != data) {
    TGI_SWITCH_FLOAT(t, T, convert_as(data, T, values, TG_F32, n));
  }
}

typedef struct step_job {
  const tg_adamw_step_args *a;
  lane_factors f;
} step_job;

static void update_chunk(const step_job *job, list_chunk c)
{
  const tg_adamw_step_args *a = job->a;
  const int64_t i = c.tensor, end = c.first + c.count;
  const tg_tensor *weights = a->master ? a->master : a->params;
  const int wt = weights[i].dtype, gt = a->grads[i].dtype;
  const int mt = a->exp_avg[i].dtype, vt = a->exp_avg_sq[i].dtype;
  float buffer[4][kPiece];
  for (; c.first < end; c.first += kPiece) {
    const int64_t n = tgi_min_i64(kPiece, end - c.first);
    void *w = chunk_data(weights, c), *m = chunk_data(a->exp_avg, c);
    void *v = chunk_data(a->exp_avg_sq, c);
    const piece p = {.weight = widen(w, wt, n, buffer[0]),
                     .grad = widen(chunk_data(a->grads, c), gt, n, buffer[1]),
                     .avg = widen(m, mt, n, buffer[2]),
                     .sq = widen(v, vt, n, buffer[3])};
    update_piece(p, n, &job->f);
    narrow(w, wt, n, p.weight);
    narrow(m, mt, n, p.avg);
    narrow(v, vt, n, p.sq);
    if (a->master) {
      narrow(chunk_data(a->params, c), a->params[i].dtype, n, p.weight);
    }
  }
}

static void update_chunks(void *arg, int64_t begin, int64_t end, int thread)
{
  const step_job *job = arg;
  list_chunk c = find_chunk(job->a->params, begin, kChunk);
  (void)thread;
  for (int64_t i = begin; i < end; i++) {
    update_chunk(job, c);
    if (i + 1 < end) {
      c = next_chunk(job->a->params, c, kChunk);
    }
  }
}

tg_status TGI_KERNEL(adamw_step)(const tg_context *ctx, const tg_adamw_step_args *a)
{
  const tg_status status = check_clip(ctx, a);
  if (status == TG_OK) {
    const adamw_factors factors = factors_of(a);
    step_job job = {a, spread(&factors, a)};
    tgi_for(ctx, count_chunks(a->params, a->num_tensors, kChunk), 2, update_chunks, &job);
  }
  return status;
}

void TGI_PLAN(adamw_step)(const tg_context *ctx, const tg_adamw_step_args *a, char *text,
                          size_t bytes)
{
  (void)ctx;
  snprintf(text, bytes, "%lld chunks of %d elements, in place",
           (long long)count_chunks(a->params, a->num_tensors, kChunk), (int)kChunk);
}

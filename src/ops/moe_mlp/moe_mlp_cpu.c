/* Experts' feed-forward blocks on the CPU: the steps of moe_mlp_steps.h, which are kernels of other
 * ops, and two passes of its own in the backward.
 *
 *   rows     dh and w a of each row, and the sum that its score's gradient is
 *   biases   ddown_bias, columns of dy times w over an expert's rows (expert_bias_sums.h)
 *
 * Method     Strips of 512 columns of a row in f32; the formulas are those of cpu/gated_map.h.
 * Work       Chunks of rows of about 64 KiB of h.
 * Bound      The products' arithmetic; the passes by memory: they read h and q and write dh and w
 * a.
 */
#include "cpu/gated_map.h"
#include "cpu/strips.h"
#include "ops/grouped_linear/expert_bias_sums.h"
#include "ops/moe_mlp/experts_plan.h"
#include "ops/moe_mlp/moe_mlp_steps.h"

#include <stdio.h>

enum { kStrip = 512, kChunkBytes = 64 << 10 };

static size_t larger(size_t a, size_t b)
{
  return a > b ? a : b;
}

/* ---- forward ---- */

size_t TGI_WORKSPACE(moe_mlp_fwd)(const tg_context *ctx, const tg_moe_mlp_fwd_args *a)
{
  const moe_mlp_fwd_steps s = moe_mlp_fwd_steps_of(a);
  return s.bytes + larger(TGI_WORKSPACE(grouped_linear_fwd)(ctx, &s.up),
                          TGI_WORKSPACE(grouped_linear_fwd)(ctx, &s.down));
}

tg_status TGI_KERNEL(moe_mlp_fwd)(const tg_context *ctx, const tg_moe_mlp_fwd_args *a)
{
  const moe_mlp_fwd_steps s = moe_mlp_fwd_steps_of(a);
  const grouped_rows g = EXPERTS_ROWS(a);
  tg_status status = check_plan(ctx, "moe_mlp_fwd", &g, &a->row);
  if (status == TG_OK) {
    status = TGI_KERNEL(grouped_linear_fwd)(ctx, &s.up);
  }
  if (status == TG_OK) {
    status = TGI_KERNEL(grouped_linear_fwd)(ctx, &s.down);
  }
  return status == TG_OK ? TGI_KERNEL(moe_combine_fwd)(ctx, &s.sum) : status;
}

void TGI_PLAN(moe_mlp_fwd)(const tg_context *ctx, const tg_moe_mlp_fwd_args *a, char *text,
                           size_t bytes)
{
  const moe_mlp_fwd_steps s = moe_mlp_fwd_steps_of(a);
  char up[192], down[192];
  TGI_PLAN(grouped_linear_fwd)(ctx, &s.up, up, sizeof up);
  TGI_PLAN(grouped_linear_fwd)(ctx, &s.down, down, sizeof down);
  snprintf(text, bytes, "up: %s; down: %s", up, down);
}

/* ---- backward: rows ---- */

typedef struct rows_job {
  const tg_moe_mlp_bwd_args *a;
  const moe_mlp_bwd_steps *s;
  grouped_rows g;
  tgi_gated_call clamp; /* what the formulas read of it */
} rows_job;

typedef struct strip {
  _Alignas(64) float gate[kStrip];
  _Alignas(64) float up[kStrip];
  _Alignas(64) float q[kStrip];
  _Alignas(64) float act[kStrip];
} strip;

/* In the places of gate and up their gradients; w a in act. Returns the sum of q a. */
static double compute_strip(const rows_job *job, strip *p, int64_t n, float weight)
{
  const tg_moe_mlp_bwd_args *a = job->a;
  const bool clamped = a->activation == TG_GATED_SWIGLU_CLAMPED;
  const int t = a->x.dtype == TG_F32 ? TG_F32 : TG_BF16;
  const vf w = vf_set1(weight);
  vf sum = vf_zero();
  for (int64_t i = 0; i < n; i += TGI_LANES) {
    const vf gate = vf_load_f32(p->gate + i), up = vf_load_f32(p->up + i);
    const vf q = vf_load_f32(p->q + i);
    vf act, dgate, dup;
    if (clamped) {
      act = gated_value(&job->clamp, TGI_GATE_CLAMPED, gate, up, TG_F32);
      gated_gradients(&job->clamp, TGI_GATE_CLAMPED, q * w, gate, up, t, &dgate, &dup);
    } else {
      act = gated_value(&job->clamp, TGI_GATE_SILU, gate, up, TG_F32);
      gated_gradients(&job->clamp, TGI_GATE_SILU, q * w, gate, up, t, &dgate, &dup);
    }
    sum = vf_fma(q, act, sum);
    vf_store_f32(p->gate + i, dgate);
    vf_store_f32(p->up + i, dup);
    vf_store_f32(p->act + i, act * w);
  }
  return vf_sum_f64(sum);
}

/* Columns [c, c + n) of row r. Lanes past n hold zeros, whose products are zero. */
static double do_strip(const rows_job *job, int64_t r, int64_t c, int64_t n, float weight)
{
  const tg_moe_mlp_bwd_args *a = job->a;
  const moe_mlp_bwd_steps *s = job->s;
  const tg_dtype dtype = a->x.dtype;
  const bool halves = a->packing == TG_GATE_UP_HALVES;
  const int64_t cols = a->preactivation.shape[1] / 2;
  const void *h = tgi_row(&a->preactivation, r);
  strip p;
  if (halves) {
    tgi_widen(p.gate, h, dtype, c, n);
    tgi_widen(p.up, h, dtype, cols + c, n);
  } else {
    tgi_widen_pairs(p.gate, p.up, h, dtype, c, n);
  }
  if (s->has_back) {
    tgi_widen(p.q, tgi_row(&s->q, r), dtype, c, n);
  } else {
    memset(p.q, 0, sizeof p.q);
  }
  const double sum = compute_strip(job, &p, n, weight);
  if (tgi_present(&s->dh) && halves) {
    tgi_narrow(tgi_row(&s->dh, r), dtype, c, n, p.gate);
    tgi_narrow(tgi_row(&s->dh, r), dtype, cols + c, n, p.up);
  } else if (tgi_present(&s->dh)) {
    tgi_narrow_pairs(tgi_row(&s->dh, r), dtype, c, n, p.gate, p.up);
  }
  if (s->has_down) {
    tgi_narrow(tgi_row(&s->q, r), dtype, c, n, p.act);
  }
  return sum;
}

/* The product of dy's row and the bias that the expert's result had. */
static double dot_bias(const rows_job *job, int64_t r)
{
  const tg_moe_mlp_bwd_args *a = job->a;
  const void *dy = tgi_row(&a->dy, source_row(&job->g, r));
  const void *bias = tgi_row(&a->down_bias, expert_of_row(&job->g, r));
  const int64_t hidden = a->dy.shape[1];
  double sum = 0;
  for (int64_t c = 0; c < hidden; c += kStrip) {
    _Alignas(64) float d[kStrip], b[kStrip];
    const int64_t n = tgi_min_i64(kStrip, hidden - c);
    vf s = vf_zero();
    tgi_widen(d, dy, a->dy.dtype, c, n);
    tgi_widen(b, bias, a->down_bias.dtype, c, n);
    for (int64_t i = 0; i < n; i += TGI_LANES) {
      s = vf_fma(vf_load_f32(d + i), vf_load_f32(b + i), s);
    }
    sum += vf_sum_f64(s);
  }
  return sum;
}

static void do_row(const rows_job *job, int64_t r)
{
  const tg_moe_mlp_bwd_args *a = job->a;
  const moe_mlp_bwd_steps *s = job->s;
  const int64_t cols = a->preactivation.shape[1] / 2;
  const float weight = (float)weight_of_row(&job->g, &a->weights, r);
  double score = 0;
  for (int64_t c = 0; c < cols; c += kStrip) {
    score += do_strip(job, r, c, tgi_min_i64(kStrip, cols - c), weight);
  }
  if (tgi_present(&s->scores)) {
    score += tgi_present(&a->down_bias) ? dot_bias(job, r) : 0;
    ((float *)s->scores.data)[r] = (float)score;
  }
}

static void do_rows(void *arg, int64_t begin, int64_t end, int thread)
{
  const rows_job *job = arg;
  const int64_t kept = first_row(&job->g, job->g.experts);
  (void)thread;
  for (int64_t r = begin; r < end; r++) {
    if (r < kept) {
      do_row(job, r);
    } else if (tgi_present(&job->a->dpreactivation)) {
      const tg_tensor *dh = &job->a->dpreactivation;
      memset(tgi_row(dh, r), 0, (size_t)dh->shape[1] * tg_dtype_bytes(dh->dtype));
    }
  }
}

static void pass_rows(const tg_context *ctx, const tg_moe_mlp_bwd_args *a,
                      const moe_mlp_bwd_steps *s)
{
  const int64_t width = a->preactivation.shape[1] * (int64_t)tg_dtype_bytes(a->x.dtype);
  rows_job job = {.a = a, .s = s, .g = EXPERTS_ROWS(a), .clamp = {.dtype = a->x.dtype}};
  if (a->activation == TG_GATED_SWIGLU_CLAMPED) {
    tgi_gated_clamp(&job.clamp, a->alpha, a->limit);
  }
  tgi_for(ctx, job.g.rows, 1 + kChunkBytes / (width > 0 ? width : 1), do_rows, &job);
}

/* ---- backward ---- */

static void store_scores(const tg_moe_mlp_bwd_args *a, const moe_mlp_bwd_steps *s)
{
  const grouped_rows g = EXPERTS_ROWS(a);
  const int64_t kept = first_row(&g, g.experts);
  for (int64_t t = 0; t < a->row.shape[0]; t++) {
    for (int64_t j = 0; j < a->row.shape[1]; j++) {
      const int64_t r = row_of_slot(&a->row, t, j);
      const float v = r < 0 || r >= kept ? 0 : ((const float *)s->scores.data)[r];
      tgi_store(tgi_row(&a->dweights, t), a->dweights.dtype, j, (double)v);
    }
  }
}

size_t TGI_WORKSPACE(moe_mlp_bwd)(const tg_context *ctx, const tg_moe_mlp_bwd_args *a)
{
  const moe_mlp_bwd_steps s = moe_mlp_bwd_steps_of(a);
  size_t products = 0;
  if (s.has_back) {
    products = TGI_WORKSPACE(grouped_linear_fwd)(ctx, &s.back);
  }
  if (s.has_down) {
    products = larger(products, TGI_WORKSPACE(grouped_linear_bwd)(ctx, &s.down));
  }
  if (s.has_up) {
    products = larger(products, TGI_WORKSPACE(grouped_linear_bwd)(ctx, &s.up));
  }
  return s.bytes + products;
}

/* What needs the rows' pass. */
static tg_status run_steps(const tg_context *ctx, const tg_moe_mlp_bwd_args *a,
                           const moe_mlp_bwd_steps *s)
{
  tg_status status = s->has_back ? TGI_KERNEL(grouped_linear_fwd)(ctx, &s->back) : TG_OK;
  if (status == TG_OK && (s->has_back || s->has_down)) {
    pass_rows(ctx, a, s);
  }
  if (status == TG_OK && s->has_down) {
    status = TGI_KERNEL(grouped_linear_bwd)(ctx, &s->down);
  }
  if (status == TG_OK && s->has_up) {
    status = TGI_KERNEL(grouped_linear_bwd)(ctx, &s->up);
  }
  if (status == TG_OK && tgi_present(&a->dx)) {
    status = TGI_KERNEL(moe_combine_fwd)(ctx, &s->sum);
  }
  return status;
}

tg_status TGI_KERNEL(moe_mlp_bwd)(const tg_context *ctx, const tg_moe_mlp_bwd_args *a)
{
  const moe_mlp_bwd_steps s = moe_mlp_bwd_steps_of(a);
  const grouped_rows g = EXPERTS_ROWS(a);
  tg_status status = check_plan(ctx, "moe_mlp_bwd", &g, &a->row);
  if (status == TG_OK) {
    status = run_steps(ctx, a, &s);
  }
  if (status == TG_OK && tgi_present(&a->dweights)) {
    store_scores(a, &s);
  }
  if (status == TG_OK && tgi_present(&a->ddown_bias)) {
    tgi_add_expert_sums(ctx, &(expert_bias_sums){.rows = g,
                                                 .dy = &a->dy,
                                                 .to = &a->ddown_bias,
                                                 .weights = &a->weights,
                                                 .overwrite = a->overwrite});
  }
  return status;
}

void TGI_PLAN(moe_mlp_bwd)(const tg_context *ctx, const tg_moe_mlp_bwd_args *a, char *text,
                           size_t bytes)
{
  const moe_mlp_bwd_steps s = moe_mlp_bwd_steps_of(a);
  char back[192] = "none", down[384] = "none", up[384] = "none";
  if (s.has_back) {
    TGI_PLAN(grouped_linear_fwd)(ctx, &s.back, back, sizeof back);
  }
  if (s.has_down) {
    TGI_PLAN(grouped_linear_bwd)(ctx, &s.down, down, sizeof down);
  }
  if (s.has_up) {
    TGI_PLAN(grouped_linear_bwd)(ctx, &s.up, up, sizeof up);
  }
  snprintf(text, bytes, "back: %s; down: %s; up: %s", back, down, up);
}

/* Linear layers with int8 weights on the CPU.
 *
 * Method     Rows of x become integers in the workspace (cpu/digits.h): two or three digits of 8
 *            bits, or one in the dynamic mode. A digit is a line of its own in a product of bytes;
 * lines of x times a panel of W is a register tile (linear_int8_tile.c). Weights are stored
 *            unsigned, 128 + W, and sum_k X * (128 + z) is taken off in the end. Sums are exact, so
 *            neither blocking nor instruction sets nor threads change a bit.
 * Work       Rows of x first; then tasks of a few panels by up to 240 rows, which reread a panel
 *            from the L2 cache.
 * Bound      One reading of W for few rows: 64 weights take three VPDPBUSD, less time than their
 *            bytes take from memory. From about 30 rows (dynamic; 10 weight-only) on arithmetic. */
#include "core/values/fixed_point.h"
#include "cpu/digits.h"
#include "ops/kernels.h"
#include "ops/linear_int8/linear_int8_tile.h"
#include "ops/shared/packed_linear/packed_rows.h"
#include "ops/shared/packed_linear/panel_tasks.h"
#include <stdio.h>

enum {
  kTaskRows = 240,        /* a multiple of every strip */
  kDigitsGrain = 32 << 10 /* values of x in a task of the first pass */
};

static const tgi_int8_tiles *choose_tiles(const tg_context *ctx)
{
#ifdef __AVX512F__
  return ctx->processor.avx512_vnni ? &tgi_int8_tiles_avx512_vnni : &tgi_int8_tiles_avx512;
#else
  (void)ctx;
  return &TGI_JOIN(int8, tiles, TGI_ENTRY);
#endif
}

typedef struct job {
  const tg_linear_int8_fwd_args *a;
  const tgi_int8_tiles *tiles;
  tgi_digits x;
  double *x_sums; /* of X over each row */
  tgi_panel_tasks tasks;
} job;

/* Returns the bytes that the job takes of the workspace. */
static size_t make_job(const tg_context *ctx, const tg_linear_int8_fwd_args *a, job *j)
{
  const int64_t rows = a->x.shape[0], in = a->x.shape[1];
  const int planes = a->mode == TG_INT8_DYNAMIC ? 1 : tgi_fixed_point_digits(a->y.dtype);
  char *memory = a->workspace;
  *j = (job){.a = a, .tiles = choose_tiles(ctx)};
  const size_t digits =
      tgi_digits_lay_out(&j->x, &a->x, planes, j->tiles->lines, tgi_int8_lines(in), memory);
  if (memory) {
    j->x_sums = (double *)(void *)(memory + digits);
  }
  j->tasks = tgi_panel_tasks_of(rows, a->y.shape[1], kTaskRows, tgi_int8_panel_bytes(in));
  return digits + (size_t)rows * sizeof *j->x_sums;
}

size_t TGI_WORKSPACE(linear_int8_fwd)(const tg_context *ctx, const tg_linear_int8_fwd_args *a)
{
  job j;
  return make_job(ctx, a, &j);
}

static void make_digits(void *arg, int64_t begin, int64_t end, int thread)
{
  const job *j = arg;
  const int64_t blocks = tgi_digits_blocks(j->a->x.shape[1]);
  (void)thread;
  for (int64_t i = begin; i < end; i++) {
    int64_t sum = 0;
    tgi_digits_row(&j->x, i);
    for (int64_t b = 0; b < blocks; b++) {
      sum += j->x.sums[i * blocks + b];
    }
    j->x_sums[i] = (double)sum;
  }
}

/* total[l * 32 + o] of one strip and panel. */
static void add_lines(const job *j, int64_t lines, const int8_t *x, const uint8_t *w, double *total)
{
  int32_t sums[TGI_INT8_MAX_LINES * TGI_PANEL_ROWS];
  tgi_int8_tile *tile = j->tiles->of[lines - 1];
  for (int64_t s = 0; s < j->x.steps; s += TGI_INT8_MAX_STEPS) {
    tile(tgi_min_i64(TGI_INT8_MAX_STEPS, j->x.steps - s), x + s * lines * TGI_DIGITS_STEP,
         w + s * TGI_INT8_LINE_BYTES, sums);
    for (int64_t e = 0; e < lines * TGI_PANEL_ROWS; e++) {
      total[e] = s == 0 ? sums[e] : total[e] + sums[e];
    }
  }
}

/* Row i of y for a panel, from the totals of its digits. */
static void finish_row(const job *j, int64_t i, int64_t o0, const uint8_t *panel,
                       const double *total)
{
  float scale[TGI_PANEL_ROWS], offset[TGI_PANEL_ROWS], y[TGI_PANEL_ROWS];
  const double x_sum = j->x_sums[i], x_scale = j->x.scale[i];
  memcpy(scale, panel, sizeof scale);
  memcpy(offset, panel + sizeof scale, sizeof offset);
  for (int o = 0; o < TGI_PANEL_ROWS; o++) {
    double n = 0; /* total[l] is the sum of digit l */
    for (int l = j->x.planes - 1; l >= 0; l--) {
      n = 256 * n + total[l * TGI_PANEL_ROWS + o];
    }
    y[o] = (float)((n - (double)offset[o] * x_sum) * x_scale) * scale[o];
  }
  tgi_put_panel_row(&j->a->y, &j->a->bias, i, o0, y);
}

static void run_task(const job *j, tgi_panel_task t)
{
  const int64_t in = j->a->x.shape[1];
  double total[TGI_INT8_MAX_LINES * TGI_PANEL_ROWS] = {0};
  for (int64_t o = t.p0 * TGI_PANEL_ROWS; o < t.p1 * TGI_PANEL_ROWS; o += TGI_PANEL_ROWS) {
    const uint8_t *panel = (const uint8_t *)j->a->weight.data + tgi_int8_panel_at(o, in);
    for (int64_t i = t.i0; i < t.i1; i += j->x.strip_rows) {
      const int64_t rows = tgi_min_i64(j->x.strip_rows, t.i1 - i);
      add_lines(j, rows * j->x.planes, tgi_digits_strip(&j->x, i), panel + TGI_INT8_PANEL_HEAD,
                total);
      for (int64_t r = 0; r < rows; r++) {
        finish_row(j, i + r, o, panel, total + r * j->x.planes * TGI_PANEL_ROWS);
      }
    }
  }
}

static void run_tasks(void *arg, int64_t begin, int64_t end, int thread)
{
  const job *j = arg;
  (void)thread;
  for (int64_t task = begin; task < end; task++) {
    run_task(j, tgi_panel_task_at(&j->tasks, task));
  }
}

tg_status TGI_KERNEL(linear_int8_fwd)(const tg_context *ctx, const tg_linear_int8_fwd_args *a)
{
  job j;
  make_job(ctx, a, &j);
  tgi_for(ctx, a->x.shape[0], 1 + kDigitsGrain / (1 + a->x.shape[1]), make_digits, &j);
  tgi_for(ctx, tgi_panel_task_count(&j.tasks), 1, run_tasks, &j);
  return TG_OK;
}

void TGI_PLAN(linear_int8_fwd)(const tg_context *ctx, const tg_linear_int8_fwd_args *a, char *text,
                               size_t bytes)
{
  job j;
  make_job(ctx, a, &j);
  snprintf(text, bytes, "%d digits, tiles of %d lines x %d: %lld tasks of %lld rows x %lld panels",
           j.x.planes, j.tiles->lines, TGI_PANEL_ROWS, (long long)tgi_panel_task_count(&j.tasks),
           (long long)j.tasks.task_rows, (long long)j.tasks.task_panels);
}

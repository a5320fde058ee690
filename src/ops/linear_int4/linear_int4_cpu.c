/* Linear layers with int4 weights on the CPU.
 *
 * Method     Rows of x become integers of two or three 8-bit digits in the workspace
 * (cpu/digits.h), with the sum of every group beside them. Digits are multiplied with the weights'
 * 4 bits as bytes; per group the sums of the digits make one exact integer, less 8 sum_k X, which
 *            is scaled and added in f32 (linear_int4_tile.c).
 * Work       Rows of x first; then tasks of a few panels by up to 240 rows, which reread a panel
 *            from the L2 cache.
 * Bound      One reading of W for one row, arithmetic from two rows on. */
#include "core/values/fixed_point.h"
#include "cpu/digits.h"
#include "ops/kernels.h"
#include "ops/linear_int4/linear_int4_tile.h"
#include "ops/shared/packed_linear/packed_rows.h"
#include "ops/shared/packed_linear/panel_tasks.h"
#include <stdio.h>

enum {
  kTaskRows = 240,        /* a multiple of every strip */
  kDigitsGrain = 32 << 10 /* values of x in a task of the first pass */
};

static const tgi_int4_tiles *choose_tiles(const tg_context *ctx)
{
#ifdef __AVX512F__
  return ctx->processor.avx512_vnni ? &tgi_int4_tiles_avx512_vnni : &tgi_int4_tiles_avx512;
#else
  (void)ctx;
  return &TGI_JOIN(int4, tiles, TGI_ENTRY);
#endif
}

typedef struct job {
  const tg_linear_int4_fwd_args *a;
  const tgi_int4_tiles *tiles;
  tgi_digits x;
  tgi_int4_correction *corrections; /* [rows][groups] */
  tgi_int4_layout weight;           /* while sizing: of the smallest groups */
  int64_t groups;
  tgi_panel_tasks tasks;
} job;

/* Returns the bytes that the job takes of the workspace. */
static size_t make_job(const tg_context *ctx, const tg_linear_int4_fwd_args *a, job *j)
{
  const int64_t rows = a->x.shape[0], in = a->x.shape[1];
  const int64_t steps = tgi_divide_up(in, TGI_INT4_LINE_K) * (TGI_INT4_LINE_K / TGI_DIGITS_STEP);
  char *memory = a->workspace;
  *j = (job){.a = a, .tiles = choose_tiles(ctx)};
  const size_t digits = tgi_digits_lay_out(&j->x, &a->x, tgi_fixed_point_digits(a->y.dtype),
                                           j->tiles->lines, steps, memory);
  j->weight = (tgi_int4_layout){in, TGI_INT4_LEAST_GROUP, TG_F32, false};
  if (memory) {
    const tgi_packed_header h = tgi_packed_header_of(a->weight.data);
    j->weight = tgi_int4_layout_of(&h);
    j->corrections = (tgi_int4_correction *)(void *)(memory + digits);
  }
  j->groups = tgi_divide_up(in, j->weight.group_size);
  j->tasks = tgi_panel_tasks_of(rows, a->y.shape[1], kTaskRows, tgi_int4_panel_bytes(&j->weight));
  return digits + (size_t)(rows * j->groups) * sizeof *j->corrections;
}

size_t TGI_WORKSPACE(linear_int4_fwd)(const tg_context *ctx, const tg_linear_int4_fwd_args *a)
{
  tg_linear_int4_fwd_args sizing = *a;
  sizing.workspace = NULL; /* the weight need not be there yet */
  job j;
  return make_job(ctx, &sizing, &j);
}

static void make_digits(void *arg, int64_t begin, int64_t end, int thread)
{
  const job *j = arg;
  const int64_t in = j->a->x.shape[1], blocks = tgi_digits_blocks(in);
  const int64_t of_group = j->weight.group_size / TGI_DIGITS_BLOCK;
  (void)thread;
  for (int64_t i = begin; i < end; i++) {
    tgi_digits_row(&j->x, i);
    for (int64_t g = 0; g < j->groups; g++) {
      int64_t sum = 0;
      for (int64_t b = g * of_group; b < tgi_min_i64(blocks, (g + 1) * of_group); b++) {
        sum += j->x.sums[i * blocks + b];
      }
      const int64_t eight = 8 * sum, low = j->x.planes == 2 ? eight : eight & 0xffff;
      j->corrections[i * j->groups + g] =
          (tgi_int4_correction){(int32_t)low, (int32_t)((eight - low) >> 16), (float)sum};
    }
  }
}

static void run_task(const job *j, tgi_panel_task t)
{
  float total[TGI_INT4_MAX_ROWS * TGI_PANEL_ROWS];
  for (int64_t o = t.p0 * TGI_PANEL_ROWS; o < t.p1 * TGI_PANEL_ROWS; o += TGI_PANEL_ROWS) {
    const uint8_t *panel = (const uint8_t *)j->a->weight.data + tgi_int4_group_at(&j->weight, o, 0);
    for (int64_t i = t.i0; i < t.i1; i += j->x.strip_rows) {
      const int64_t rows = tgi_min_i64(j->x.strip_rows, t.i1 - i);
      const tgi_int4_strip strip = {tgi_digits_strip(&j->x, i), j->corrections + i * j->groups,
                                    j->groups};
      j->tiles->of[j->x.planes - 2][rows - 1](&j->weight, &strip, panel, total);
      for (int64_t r = 0; r < rows; r++) {
        float *y = total + r * TGI_PANEL_ROWS;
        for (int c = 0; c < TGI_PANEL_ROWS; c++) {
          y[c] = (float)((double)y[c] * j->x.scale[i + r]);
        }
        tgi_put_panel_row(&j->a->y, &j->a->bias, i + r, o, y);
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

tg_status TGI_KERNEL(linear_int4_fwd)(const tg_context *ctx, const tg_linear_int4_fwd_args *a)
{
  job j;
  make_job(ctx, a, &j);
  tgi_for(ctx, a->x.shape[0], 1 + kDigitsGrain / (1 + a->x.shape[1]), make_digits, &j);
  tgi_for(ctx, tgi_panel_task_count(&j.tasks), 1, run_tasks, &j);
  return TG_OK;
}

void TGI_PLAN(linear_int4_fwd)(const tg_context *ctx, const tg_linear_int4_fwd_args *a, char *text,
                               size_t bytes)
{
  tg_linear_int4_fwd_args sizing = *a;
  sizing.workspace = NULL;
  job j;
  make_job(ctx, &sizing, &j);
  snprintf(text, bytes, "%d digits, tiles of %d lines x %d, tasks of %lld rows", j.x.planes,
           j.tiles->lines, TGI_PANEL_ROWS, (long long)j.tasks.task_rows);
}

/* Linear layers with int4 weights on the CPU.
 *
 * Method     Rows of x become integers of three 8-bit digits in the workspace (cpu/digits.h), with
 *            the sum of every group beside them. Digits are multiplied with the weights' 4 bits as
 *            bytes; per group the sums of the digits make one exact integer, less 8 sum_k X, which
 *            is scaled and added in f32 (linear_int4_tile.c).
 * Work       Rows of x first; then tasks of a few panels by up to 240 rows, which reread a panel
 *            from the second-level cache.
 * Bound      One reading of W for one row, arithmetic from two rows on. */
#include "cpu/digits.h"
#include "ops/kernels.h"
#include "ops/linear_int4/linear_int4_tile.h"
#include "ops/packed_rows.h"
#include <stdio.h>

enum {
  kTaskRows = 240,        /* a multiple of every strip */
  kGrainBytes = 64 << 10, /* of W in a task */
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
  tgi_int4_layout weight;
  int64_t groups, panels; /* of a row; of a task */
} job;

static size_t round_up(int64_t bytes)
{
  return (size_t)(bytes + 63) / 64 * 64;
}

/* Lays the digits out in the workspace; returns its bytes, enough for any group size. */
static size_t lay_out(const tg_context *ctx, const tg_linear_int4_fwd_args *a, job *j)
{
  const int64_t rows = a->x.shape[0], in = a->x.shape[1];
  char *at_ = a->workspace;
  *j = (job){.a = a, .tiles = choose_tiles(ctx)};
  j->x.x = &a->x;
  j->x.planes = TGI_DIGITS_MAX;
  j->x.strip_rows = j->tiles->rows;
  j->x.steps = tgi_divide_up(in, TGI_INT4_LINE_K) * (TGI_INT4_LINE_K / TGI_DIGITS_STEP);
  const size_t strips = round_up(tgi_digits_bytes(rows, j->x.planes, j->x.steps));
  const size_t scales = round_up(rows * (int64_t)sizeof(double));
  const size_t sums = round_up(rows * tgi_digits_blocks(in) * (int64_t)sizeof(int32_t));
  const size_t corrections =
      round_up(rows * tgi_divide_up(in, TGI_INT4_LEAST_GROUP) * (int64_t)sizeof *j->corrections);
  if (at_) {
    j->x.strips = (int8_t *)at_;
    j->x.scale = (double *)(void *)(at_ + strips);
    j->x.sums = (int32_t *)(void *)(at_ + strips + scales);
    j->corrections = (tgi_int4_correction *)(void *)(at_ + strips + scales + sums);
  }
  return strips + scales + sums + corrections;
}

static void read_header(job *j)
{
  const tgi_packed_header h = tgi_packed_header_of(j->a->weight.data);
  j->weight = tgi_int4_layout_of(&h);
  j->groups = tgi_divide_up(h.in, h.group_size);
  const int64_t grain = kGrainBytes / (1 + tgi_int4_panel_bytes(&j->weight));
  j->panels = grain > 1 ? grain : 1;
}

size_t TGI_WORKSPACE(linear_int4_fwd)(const tg_context *ctx, const tg_linear_int4_fwd_args *a)
{
  job j;
  return lay_out(ctx, a, &j);
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
      j->corrections[i * j->groups + g] = (tgi_int4_correction){
          (int32_t)(8 * sum & 0xffff), (int32_t)((8 * sum) >> 16), (float)sum};
    }
  }
}

/* Rows [i0, i1) by panels [begin, end). */
static void run_panels(const job *j, int64_t i0, int64_t i1, int64_t begin, int64_t end)
{
  float total[TGI_INT4_MAX_ROWS * TGI_PANEL_ROWS];
  for (int64_t o = begin * TGI_PANEL_ROWS; o < end * TGI_PANEL_ROWS; o += TGI_PANEL_ROWS) {
    const uint8_t *panel = (const uint8_t *)j->a->weight.data + tgi_int4_group_at(&j->weight, o, 0);
    for (int64_t i = i0; i < i1; i += j->x.strip_rows) {
      const int64_t rows = tgi_min_i64(j->x.strip_rows, i1 - i);
      const tgi_int4_strip strip = {tgi_digits_strip(&j->x, i), j->corrections + i * j->groups,
                                    j->groups};
      j->tiles->of[rows - 1](&j->weight, &strip, panel, total);
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
  const int64_t rows = j->a->x.shape[0], panels = tgi_panel_count(j->a->y.shape[1]);
  const int64_t across = tgi_divide_up(panels, j->panels);
  (void)thread;
  for (int64_t task = begin; task < end; task++) {
    const int64_t first = task % across * j->panels, i0 = task / across * kTaskRows;
    run_panels(j, i0, tgi_min_i64(rows, i0 + kTaskRows), first,
               tgi_min_i64(panels, first + j->panels));
  }
}

static int64_t task_count(const job *j)
{
  return tgi_divide_up(tgi_panel_count(j->a->y.shape[1]), j->panels) *
         tgi_divide_up(j->a->x.shape[0], kTaskRows);
}

tg_status TGI_KERNEL(linear_int4_fwd)(const tg_context *ctx, const tg_linear_int4_fwd_args *a)
{
  job j;
  lay_out(ctx, a, &j);
  read_header(&j);
  tgi_for(ctx, a->x.shape[0], 1 + kDigitsGrain / (1 + a->x.shape[1]), make_digits, &j);
  tgi_for(ctx, task_count(&j), 1, run_tasks, &j);
  return TG_OK;
}

void TGI_PLAN(linear_int4_fwd)(const tg_context *ctx, const tg_linear_int4_fwd_args *a, char *text,
                               size_t bytes)
{
  job j;
  lay_out(ctx, a, &j);
  snprintf(text, bytes, "3 digits, tiles of %d rows x %d, tasks of up to %d rows", j.tiles->rows,
           TGI_PANEL_ROWS, kTaskRows);
}

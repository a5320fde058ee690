/* Linear layers with e4m3 weights on the CPU.
 *
 * Method     x is widened and packed once, in the workspace, as products of f32 pack their left
 *            operand. A task widens one block of a panel, 128 columns by 32 rows of W, into the
 *            first-level cache, multiplies it with register tiles of m.h, scales the tiles
 *            and adds them to the totals of its rows of x. For a few rows the weights are widened
 *            in registers instead, once for all of them.
 * Bound      The widening for few rows, arithmetic from about 16 rows on. */
#include "cpu/float8.h"
#include "cpu/gemm/gemm.h"
#include "cpu/unroll.h"
#include "ops/kernels.h"
#include "ops/linear_fp8/linear_fp8_packed.h"
#include "ops/shared/packed_linear/packed_rows.h"
#include "ops/shared/packed_linear/panel_tasks.h"
#include <stdio.h>

enum {
  kTaskRows = 96,                            /* of x: a multiple of every tile's rows */
  kSection = TGI_GEMM_MAX_K / TGI_FP8_BLOCK, /* blocks that are packed together */
  kTiles = TGI_PANEL_ROWS / TGI_GEMM_NR,
  kVectors = TGI_PANEL_ROWS / TGI_LANES,
  kFewRows = TGI_LANES == 16 ? 4 : 2, /* sums fit the registers */
  kAhead = 2048                       /* bytes from here that are fetched: a panel is one stream */
};

static int64_t section_count(int64_t in)
{
  return tgi_divide_up(in, TGI_GEMM_MAX_K);
}

/* Floats of one section of x. */
static int64_t section_floats(int64_t rows)
{
  return (tgi_gemm_packed_a_floats(rows) + 15) / 16 * 16;
}

size_t TGI_WORKSPACE(linear_fp8_fwd)(const tg_context *ctx, const tg_linear_fp8_fwd_args *a)
{
  (void)ctx;
  return (size_t)(section_count(a->x.shape[1]) * section_floats(a->x.shape[0])) * sizeof(float);
}

static float *section_of(const tg_linear_fp8_fwd_args *a, int64_t section)
{
  return (float *)a->workspace + section * section_floats(a->x.shape[0]);
}

typedef struct job {
  const tg_linear_fp8_fwd_args *a;
  tgi_panel_tasks tasks;
} job;

static job make_job(const tg_linear_fp8_fwd_args *a)
{
  return (job){a, tgi_panel_tasks_of(a->x.shape[0], a->y.shape[1], kTaskRows,
                                     tgi_fp8_panel_bytes(a->x.shape[1]))};
}

static void pack_sections(void *arg, int64_t begin, int64_t end, int thread)
{
  const tg_linear_fp8_fwd_args *a = ((const job *)arg)->a;
  const tgi_gemm_operand x = tgi_gemm_matrix(a->x.data, a->x.dtype, tgi_stride(&a->x, 0), true);
  const int64_t in = a->x.shape[1];
  (void)thread;
  for (int64_t s = begin; s < end; s++) {
    const int64_t k0 = s * TGI_GEMM_MAX_K;
    tgi_gemm_pack_a(&x, 0, a->x.shape[0], k0, tgi_min_i64(TGI_GEMM_MAX_K, in - k0), in,
                    section_of(a, s));
  }
}

/* The weights of a block as columns of B: one panel of TGI_GEMM_NR after the other. */
static void widen(const uint8_t *block, int64_t columns, float *wide)
{
  const uint8_t *line = block + TGI_FP8_HEAD_BYTES;
  for (int64_t k = 0; k < columns; k++, line += TGI_PANEL_ROWS) {
    for (int tile = 0; tile < kTiles; tile++) {
      float *to = wide + (tile * columns + k) * TGI_GEMM_NR;
      for (int v = 0; v < TGI_GEMM_NR; v += TGI_LANES) {
        vf_store_f32(to + v, vf_load_f8(line + tile * TGI_GEMM_NR + v));
      }
    }
  }
}

/* total += scale * product for up to TGI_GEMM_MR rows of x. */
static void add_tile(int64_t rows, int64_t columns, const float *x, const float *wide,
                     const uint8_t *scale, float *total)
{
  _Alignas(64) float product[TGI_GEMM_MR * TGI_GEMM_NR];
  tgi_gemm_micro_at(rows, 2, true)(columns, x, 4 * TGI_GEMM_A_STRIDE, wide, product, TGI_GEMM_NR,
                                   false);
  for (int64_t r = 0; r < rows; r++) {
    for (int v = 0; v < TGI_GEMM_NR; v += TGI_LANES) {
      float *to = total + r * TGI_PANEL_ROWS + v;
      vf_store_f32(to, vf_fma(vf_load(scale, TG_F32, v), vf_load_f32(product + r * TGI_GEMM_NR + v),
                              vf_load_f32(to)));
    }
  }
}

/* The same for a few rows and a whole block, widened in registers: nothing else uses the weights.
 * The order of operations is that of the tiles. */
TGI_INLINE void multiply_block(const int rows, int64_t columns, const float *x,
                               const uint8_t *block, float *total)
{
  const uint8_t *line = block + TGI_FP8_HEAD_BYTES;
  vf sum[kFewRows][kVectors];
  TGI_UNROLLED(r, rows)
  {
    TGI_UNROLLED(v, kVectors)
    {
      sum[r][v] = vf_zero();
    }
  }
  for (int64_t k = 0; k < columns; k++, line += TGI_PANEL_ROWS) {
    __builtin_prefetch(line + kAhead);
    TGI_UNROLLED(v, kVectors)
    {
      const vf weights = vf_load_f8(line + v * TGI_LANES);
      TGI_UNROLLED(r, rows)
      {
        sum[r][v] = vf_fma(vf_set1(x[r * TGI_GEMM_A_STRIDE + k]), weights, sum[r][v]);
      }
    }
  }
  TGI_UNROLLED(r, rows)
  {
    TGI_UNROLLED(v, kVectors)
    {
      float *to = total + r * TGI_PANEL_ROWS + v * TGI_LANES;
      const vf scale = vf_load(block, TG_F32, v * TGI_LANES);
      vf_store_f32(to, vf_fma(scale, sum[r][v], vf_load_f32(to)));
    }
  }
}

static void add_block(int64_t rows, int64_t columns, const float *x, const uint8_t *block,
                      float *total)
{
  switch (rows) {
  case 1:
    multiply_block(1, columns, x, block, total);
    break;
  case 2:
    multiply_block(2, columns, x, block, total);
    break;
#if TGI_LANES == 16
  case 3:
    multiply_block(3, columns, x, block, total);
    break;
  default:
    multiply_block(4, columns, x, block, total);
    break;
#endif
  }
}

/* Rows [i0, i0 + rows) of x by the panel from row o of W on. */
static void run_panel(const tg_linear_fp8_fwd_args *a, int64_t i0, int64_t rows, int64_t o)
{
  _Alignas(64) float wide[TGI_FP8_BLOCK * TGI_PANEL_ROWS];
  _Alignas(64) float total[kTaskRows * TGI_PANEL_ROWS] = {0};
  const int64_t in = a->x.shape[1];
  for (int64_t b = 0; b * TGI_FP8_BLOCK < in; b++) {
    const uint8_t *block = (const uint8_t *)a->weight.data + tgi_fp8_block_at(o, b, in);
    const int64_t columns = tgi_min_i64(TGI_FP8_BLOCK, in - b * TGI_FP8_BLOCK);
    const float *x =
        section_of(a, b / kSection) + i0 * TGI_GEMM_A_STRIDE + b % kSection * TGI_FP8_BLOCK;
    if (rows <= kFewRows) {
      add_block(rows, columns, x, block, total);
      continue;
    }
    widen(block, columns, wide);
    for (int tile = 0; tile < kTiles; tile++) {
      for (int64_t r = 0; r < rows; r += TGI_GEMM_MR) {
        add_tile(tgi_min_i64(TGI_GEMM_MR, rows - r), columns, x + r * TGI_GEMM_A_STRIDE,
                 wide + tile * columns * TGI_GEMM_NR, block + tile * TGI_GEMM_NR * 4,
                 total + r * TGI_PANEL_ROWS + tile * TGI_GEMM_NR);
      }
    }
  }
  for (int64_t r = 0; r < rows; r++) {
    tgi_put_panel_row(&a->y, &a->bias, i0 + r, o, total + r * TGI_PANEL_ROWS);
  }
}

static void run_tasks(void *arg, int64_t begin, int64_t end, int thread)
{
  const job *j = arg;
  (void)thread;
  for (int64_t task = begin; task < end; task++) {
    const tgi_panel_task t = tgi_panel_task_at(&j->tasks, task);
    for (int64_t panel = t.p0; panel < t.p1; panel++) {
      run_panel(j->a, t.i0, t.i1 - t.i0, panel * TGI_PANEL_ROWS);
    }
  }
}

tg_status TGI_KERNEL(linear_fp8_fwd)(const tg_context *ctx, const tg_linear_fp8_fwd_args *a)
{
  job j = make_job(a);
  tgi_for(ctx, section_count(a->x.shape[1]), 1, pack_sections, &j);
  tgi_for(ctx, tgi_panel_task_count(&j.tasks), 1, run_tasks, &j);
  return TG_OK;
}

void TGI_PLAN(linear_fp8_fwd)(const tg_context *ctx, const tg_linear_fp8_fwd_args *a, char *text,
                              size_t bytes)
{
  const job j = make_job(a);
  (void)ctx;
  snprintf(text, bytes, "f32 tiles of %d rows x %d: %lld tasks of %lld rows x %lld panels",
           TGI_GEMM_MR, TGI_GEMM_NR, (long long)tgi_panel_task_count(&j.tasks),
           (long long)j.tasks.task_rows, (long long)j.tasks.task_panels);
}

/* Linear layers with e4m3 weights on the CPU.
 *
 * Method     x is widened and packed once, in the workspace, as products of f32 pack their left
 *            operand. A task widens one block of a panel, 128 columns by 32 rows of W, into the
 *            first-level cache, multiplies it with register tiles of cpu/gemm.h, scales the tiles
 *            and adds them to the totals of its rows of x.
 * Bound      The widening for few rows, arithmetic from about 16 rows on. */
#include "cpu/float8.h"
#include "cpu/gemm.h"
#include "ops/kernels.h"
#include "ops/linear_fp8/linear_fp8_packed.h"
#include "ops/packed_rows.h"
#include <stdio.h>

enum {
  kTaskRows = 96,                            /* of x: a multiple of every tile's rows */
  kGrainBytes = 64 << 10,                    /* of W in a task */
  kSection = TGI_GEMM_MAX_K / TGI_FP8_BLOCK, /* blocks that are packed together */
  kTiles = TGI_PANEL_ROWS / TGI_GEMM_NR
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

static void pack_sections(void *arg, int64_t begin, int64_t end, int thread)
{
  const tg_linear_fp8_fwd_args *a = arg;
  const tgi_gemm_operand x = {a->x.data, a->x.dtype, tgi_stride(&a->x, 0), true};
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
  tgi_gemm_micro_at(rows, 2, true)(columns, x, wide, product, TGI_GEMM_NR, false);
  for (int64_t r = 0; r < rows; r++) {
    for (int v = 0; v < TGI_GEMM_NR; v += TGI_LANES) {
      float *to = total + r * TGI_PANEL_ROWS + v;
      vf_store_f32(to, vf_fma(vf_load(scale, TG_F32, v), vf_load_f32(product + r * TGI_GEMM_NR + v),
                              vf_load_f32(to)));
    }
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

static int64_t panels_of_task(const tg_linear_fp8_fwd_args *a)
{
  return 1 + kGrainBytes / (1 + tgi_fp8_panel_bytes(a->x.shape[1]));
}

static int64_t tasks_across(const tg_linear_fp8_fwd_args *a)
{
  return tgi_divide_up(tgi_panel_count(a->y.shape[1]), panels_of_task(a));
}

static void run_tasks(void *arg, int64_t begin, int64_t end, int thread)
{
  const tg_linear_fp8_fwd_args *a = arg;
  const int64_t step = panels_of_task(a), across = tasks_across(a);
  (void)thread;
  for (int64_t task = begin; task < end; task++) {
    const int64_t i0 = task / across * kTaskRows, first = task % across * step;
    const int64_t rows = tgi_min_i64(kTaskRows, a->x.shape[0] - i0);
    const int64_t last = tgi_min_i64(tgi_panel_count(a->y.shape[1]), first + step);
    for (int64_t panel = first; panel < last; panel++) {
      run_panel(a, i0, rows, panel * TGI_PANEL_ROWS);
    }
  }
}

tg_status TGI_KERNEL(linear_fp8_fwd)(const tg_context *ctx, const tg_linear_fp8_fwd_args *a)
{
  tgi_for(ctx, section_count(a->x.shape[1]), 1, pack_sections, (void *)(uintptr_t)a);
  tgi_for(ctx, tasks_across(a) * tgi_divide_up(a->x.shape[0], kTaskRows), 1, run_tasks,
          (void *)(uintptr_t)a);
  return TG_OK;
}

void TGI_PLAN(linear_fp8_fwd)(const tg_context *ctx, const tg_linear_fp8_fwd_args *a, char *text,
                              size_t bytes)
{
  (void)ctx;
  snprintf(text, bytes, "f32 tiles of %d rows x %d: tasks of up to %d rows x %lld panels",
           TGI_GEMM_MR, TGI_GEMM_NR, kTaskRows, (long long)panels_of_task(a));
}

/* Grouped linear layers with weights in MXFP4 on the CPU.
 *
 * Forward    Tasks of a few panels of an expert by up to 48 of its rows, which are gathered and
 *            widened to f32 first; tiles of up to 12 rows by a panel (mxfp4_tile.h) then read the
 *            panel from the caches. An activation runs on the rows of z in the end.
 * Backward   A piece of the columns of an expert's weight is widened, turned, to some 8 MB; the
 *            product is that of a linear layer (cpu/gemm/gemm.h).
 * Bound      Forward: memory, one reading of the packed weights of the experts that have rows, for
 *            a few rows each; arithmetic beyond. Backward: arithmetic. */
#include "cpu/gemm/gemm.h"
#include "ops/grouped_linear/expert_bias_sums.h"
#include "ops/grouped_linear/grouped_clearing.h"
#include "ops/grouped_linear_mxfp4/grouped_mxfp4_rows.h"
#include "ops/grouped_linear_mxfp4/mxfp4_tile.h"
#include "ops/shared/gated/gated_choice.h"
#include "ops/shared/packed_linear/packed_rows.h"

#include <stdio.h>

enum {
  kTaskRows = 48,        /* a multiple of every tile */
  kTaskBytes = 64 << 10, /* of packed weights that a task reads, at least */
  kPieceBytes = 8 << 20, /* of widened weights */
};

/* ---- forward ---- */

typedef struct job {
  const tg_grouped_linear_mxfp4_fwd_args *a;
  grouped_rows g;
  tg_tensor z;
  tgi_mxfp4_layout w;
  float *x;                               /* of each thread: rows of a task */
  int64_t task_rows, task_panels, across; /* tasks along the panels */
} job;

/* Bytes of z where no argument holds it. */
static size_t z_bytes(const tg_grouped_linear_mxfp4_fwd_args *a)
{
  const bool held = a->activation == TG_GATED_NONE || tgi_present(&a->preactivation);
  const size_t row = 2 * (size_t)a->y.shape[1] * tg_dtype_bytes(a->y.dtype);
  return held ? 0 : ((size_t)a->y.shape[0] * row + 255) / 256 * 256;
}

/* Where the product goes: y, or what an activation reads, which begins the workspace. */
static tg_tensor z_of(const tg_grouped_linear_mxfp4_fwd_args *a)
{
  return a->activation == TG_GATED_NONE ? a->y
         : tgi_present(&a->preactivation)
             ? a->preactivation
             : tg_tensor_2d(a->workspace, a->y.dtype, a->y.shape[0], 2 * a->y.shape[1]);
}

static job job_of(const tg_grouped_linear_mxfp4_fwd_args *a)
{
  job j = {.a = a, .g = rows_of_mxfp4_fwd(a), .z = z_of(a)};
  j.w = tgi_mxfp4_layout_of(j.z.shape[1], a->x.shape[1]);
  j.task_rows = tgi_min_i64(kTaskRows, j.g.rows);
  j.task_panels = 1 + kTaskBytes / (1 + tgi_mxfp4_panel_bytes(&j.w));
  j.across = tgi_divide_up(j.w.panels, j.task_panels);
  return j;
}

size_t TGI_WORKSPACE(grouped_linear_mxfp4_fwd)(const tg_context *ctx,
                                               const tg_grouped_linear_mxfp4_fwd_args *a)
{
  const job j = job_of(a);
  return z_bytes(a) +
         (size_t)ctx->num_threads * (size_t)(j.task_rows * a->x.shape[1]) * sizeof *j.x;
}

/* Row r's row of x, as f32. */
static void widen_row(const job *j, int64_t r, float *to)
{
  const tg_tensor *x = &j->a->x;
  const void *from = tgi_row(x, source_row(&j->g, r));
  const int64_t n = x->shape[1]; /* whole groups */
  TGI_SWITCH_FLOAT(
      x->dtype, T,
      for (int64_t i = 0; i < n; i += TGI_LANES) { vf_store_f32(to + i, vf_load(from, T, i)); });
}

/* The rows of a tile where `rows` are left: a copy of the loops for each number would be as fast.
 */
static int64_t tile_rows(int64_t rows)
{
  static const int8_t kSizes[] = {12, 8, 6, 4, 3, 2};
  for (size_t i = 0; i < sizeof kSizes; i++) {
    if (kSizes[i] <= TGI_MXFP4_ROWS && kSizes[i] <= rows) {
      return kSizes[i];
    }
  }
  return 1;
}

static void multiply_tile(int64_t rows, const float *x, int64_t stride, int64_t groups,
                          const uint8_t *panel, float *total)
{
#define ROWS(n)                                                                                    \
  case n:                                                                                          \
    multiply_panel(n, x, stride, groups, panel, total);                                            \
    break;
  switch (rows) {
    ROWS(1)
    ROWS(2)
#if TGI_LANES > 4
    ROWS(3)
    ROWS(4)
#endif
#if TGI_LANES > 8
    ROWS(6)
    ROWS(8)
    ROWS(12)
#endif
  }
#undef ROWS
}

/* Rows [r0, r1) of expert e by panels [p0, p1). */
static void run_task(const job *j, int64_t e, int64_t r0, int64_t r1, int64_t p0, int64_t p1,
                     float *x)
{
  const int64_t in = j->a->x.shape[1];
  float total[TGI_MXFP4_ROWS * TGI_PANEL_ROWS];
  tg_tensor bias = j->a->bias;
  if (tgi_present(&bias)) {
    bias.data = tgi_row(&bias, e);
  }
  for (int64_t r = r0; r < r1; r++) {
    widen_row(j, r, x + (r - r0) * in);
  }
  for (int64_t p = p0; p < p1; p++) {
    const uint8_t *panel = (const uint8_t *)j->a->weight.data + tgi_mxfp4_panel_at(&j->w, e, p);
    for (int64_t r = r0, rows; r < r1; r += rows) {
      rows = tile_rows(r1 - r);
      multiply_tile(rows, x + (r - r0) * in, in, j->w.groups, panel, total);
      for (int64_t i = 0; i < rows; i++) {
        tgi_put_panel_row(&j->z, &bias, r + i, p * TGI_PANEL_ROWS, total + i * TGI_PANEL_ROWS);
      }
    }
  }
}

static int64_t tasks_of(const job *j, int64_t e)
{
  const int64_t rows = first_row(&j->g, e + 1) - first_row(&j->g, e);
  return tgi_divide_up(rows, j->task_rows) * j->across;
}

/* Tasks of all experts, one expert after the other. */
static void run_tasks(void *arg, int64_t begin, int64_t end, int thread)
{
  const job *j = arg;
  float *x = j->x + thread * j->task_rows * j->a->x.shape[1];
  int64_t e = 0, first = 0; /* task of expert e */
  for (int64_t task = begin; task < end; task++) {
    for (int64_t n = tasks_of(j, e); task >= first + n; n = tasks_of(j, e)) {
      first += n;
      e++;
    }
    const int64_t strip = (task - first) / j->across, p0 = (task - first) % j->across;
    const int64_t r0 = first_row(&j->g, e) + strip * j->task_rows;
    run_task(j, e, r0, tgi_min_i64(r0 + j->task_rows, first_row(&j->g, e + 1)), p0 * j->task_panels,
             tgi_min_i64((p0 + 1) * j->task_panels, j->w.panels), x);
  }
}

tg_status TGI_KERNEL(grouped_linear_mxfp4_fwd)(const tg_context *ctx,
                                               const tg_grouped_linear_mxfp4_fwd_args *a)
{
  job j = job_of(a);
  const tg_status status = check_rows(ctx, "grouped_linear_mxfp4_fwd", &j.g);
  if (status != TG_OK) {
    return status;
  }
  int64_t tasks = 0;
  for (int64_t e = 0; e < j.g.experts; e++) {
    tasks += tasks_of(&j, e);
  }
  j.x = (float *)(void *)((char *)a->workspace + z_bytes(a));
  tgi_for(ctx, tasks, 1, run_tasks, &j);
  clear_rest(ctx, &j.z, &j.g);
  return a->activation == TG_GATED_NONE ? TG_OK
                                        : tgi_activate(ctx, TGI_GATED_CHOICE(a), &j.z, &a->y);
}

void TGI_PLAN(grouped_linear_mxfp4_fwd)(const tg_context *ctx,
                                        const tg_grouped_linear_mxfp4_fwd_args *a, char *text,
                                        size_t bytes)
{
  const job j = job_of(a);
  (void)ctx;
  snprintf(text, bytes, "tiles of %d x %d, tasks of %lld rows by %lld panels", TGI_MXFP4_ROWS,
           TGI_PANEL_ROWS, (long long)j.task_rows, (long long)j.task_panels);
}

/* ---- backward ---- */

/* A piece of an expert's weight: columns [i0, i0 + columns), each with the rows of all panels. */
typedef struct piece {
  const tg_grouped_linear_mxfp4_bwd_args *a;
  tgi_mxfp4_layout w;
  tg_dtype dtype; /* one that holds W exactly: f16 has too small a range */
  int64_t e, i0, columns, stride;
} piece;

static piece first_piece(const tg_grouped_linear_mxfp4_bwd_args *a)
{
  piece p = {.a = a, .dtype = a->dx.dtype == TG_BF16 ? TG_BF16 : TG_F32};
  p.w = tgi_mxfp4_layout_of(a->dy.shape[1], a->dx.shape[1]);
  p.stride = p.w.panels * TGI_PANEL_ROWS;
  const int64_t column_bytes = p.stride * (int64_t)tg_dtype_bytes(p.dtype);
  const int64_t groups = 1 + kPieceBytes / (1 + TGI_MXFP4_GROUP * column_bytes);
  p.columns = TGI_MXFP4_GROUP * tgi_min_i64(groups, p.w.groups);
  return p;
}

static size_t piece_bytes(const piece *p)
{
  return (size_t)(p->columns * p->stride) * tg_dtype_bytes(p->dtype) / 256 * 256 + 256;
}

static void widen_panels(void *arg, int64_t begin, int64_t end, int thread)
{
  const piece *p = arg;
  const size_t element = tg_dtype_bytes(p->dtype);
  (void)thread;
  for (int64_t q = begin; q < end; q++) {
    const uint8_t *panel = (const uint8_t *)p->a->weight.data + tgi_mxfp4_panel_at(&p->w, p->e, q);
    const uint8_t *group = panel + p->i0 / TGI_MXFP4_GROUP * TGI_MXFP4_GROUP_BYTES;
    char *to = (char *)p->a->workspace + (size_t)(q * TGI_PANEL_ROWS) * element;
    for (int64_t i = 0; i < p->columns; i += TGI_MXFP4_GROUP, group += TGI_MXFP4_GROUP_BYTES) {
      if (p->dtype == TG_BF16) {
        widen_group(TG_BF16, group, to, p->stride);
      } else {
        widen_group(TG_F32, group, to, p->stride);
      }
      to += (size_t)(TGI_MXFP4_GROUP * p->stride) * element;
    }
  }
}

/* dx of rows [r0, r1) in the piece's columns. Without memory, while the workspace is sized, any
 * address stands for a tensor's. */
static tgi_gemm_problem dx_problem(const piece *p, int64_t r0, int64_t r1)
{
  const tg_tensor *dx = &p->a->dx, *dy = &p->a->dy;
  tgi_gemm_operand rows = tgi_gemm_matrix(dy->data, dy->dtype, tgi_stride(dy, 0), true);
  char *to = (char *)(uintptr_t)p;
  if (dy->data && dx->data) {
    rows.data = tgi_row(dy, r0);
    to = (char *)tgi_row(dx, r0) + (size_t)p->i0 * tg_dtype_bytes(dx->dtype);
  }
  return (tgi_gemm_problem){
      .m = r1 - r0,
      .n = p->columns,
      .k = dy->shape[1],
      .a = rows,
      .b = tgi_gemm_matrix(p->a->workspace, p->dtype, p->stride, true),
      .c = {.y = to, .dtype = dx->dtype, .stride = tgi_stride(dx, 0)},
  };
}

size_t TGI_WORKSPACE(grouped_linear_mxfp4_bwd)(const tg_context *ctx,
                                               const tg_grouped_linear_mxfp4_bwd_args *a)
{
  const piece p = first_piece(a);
  const tgi_gemm_problem all = dx_problem(&p, 0, a->dy.shape[0]);
  return piece_bytes(&p) + tgi_gemm_workspace_within(ctx, &all);
}

tg_status TGI_KERNEL(grouped_linear_mxfp4_bwd)(const tg_context *ctx,
                                               const tg_grouped_linear_mxfp4_bwd_args *a)
{
  const grouped_rows g = rows_of_mxfp4_bwd(a);
  const tg_status status = check_rows(ctx, "grouped_linear_mxfp4_bwd", &g);
  piece p = first_piece(a);
  const int64_t step = p.columns;
  void *blocks = (char *)a->workspace + piece_bytes(&p);
  if (status != TG_OK) {
    return status;
  }
  for (p.e = 0; p.e < g.experts; p.e++) {
    const int64_t r0 = first_row(&g, p.e), r1 = first_row(&g, p.e + 1);
    for (p.i0 = 0; p.i0 < a->dx.shape[1] && r0 < r1; p.i0 += step) {
      p.columns = tgi_min_i64(step, a->dx.shape[1] - p.i0);
      tgi_for(ctx, p.w.panels, 1, widen_panels, &p);
      const tgi_gemm_problem of_piece = dx_problem(&p, r0, r1);
      tgi_gemm(ctx, &of_piece, blocks);
    }
  }
  clear_rest(ctx, &a->dx, &g);
  if (tgi_present(&a->dbias)) {
    tgi_add_expert_sums(ctx, &(expert_bias_sums){.rows = g, .dy = &a->dy, .to = &a->dbias});
  }
  return TG_OK;
}

void TGI_PLAN(grouped_linear_mxfp4_bwd)(const tg_context *ctx,
                                        const tg_grouped_linear_mxfp4_bwd_args *a, char *text,
                                        size_t bytes)
{
  const piece p = first_piece(a);
  const int64_t experts = a->offsets.shape[0] - 1;
  const tgi_gemm_problem of_piece =
      dx_problem(&p, 0, tgi_divide_up(a->dy.shape[0], experts > 0 ? experts : 1));
  char of_expert[160];
  tgi_gemm_explain(ctx, &of_piece, of_expert, sizeof of_expert);
  snprintf(text, bytes, "pieces of %lld columns; an expert of rows spread evenly: %s",
           (long long)p.columns, of_expert);
}

/** How linear_cross_entropy cuts its logits, the products of a chunk, and the workspace they take.
 * Compiled into its kernels. */
#ifndef TGI_OPS_LINEAR_CROSS_ENTROPY_PLAN_H
#define TGI_OPS_LINEAR_CROSS_ENTROPY_PLAN_H

#include "cpu/gemm/gemm.h"
#include "ops/linear_cross_entropy/linear_cross_entropy_call.h"
#include "ops/shared/loss/cross_entropy_rows.h"

enum {
  kChunkBytes = 64 << 20, /* of logits, by default */
  kMinChunkRows = 64,     /* of a default chunk: fewer leave the products short */
  kSumsBytes = 32 << 20,  /* of f32 sums of a 16-bit dweight, by default */
  kMinChunkCols = 1024,   /* of a default chunk beside them */
  kLogitsAlign = 16,      /* floats of a cache line */
  kLogitsConflict = 1024, /* rows of so many floats would meet in the same cache sets */
};

/** What is known of a row that is not ignored. */
typedef struct lce_row {
  int64_t i, target;
  row_scan scan;
  int64_t argmax;
  float hit; /* z of the target */
  float lse, loss;
  bool has_nan; /* argmax is the first NaN */
} lce_row;

typedef struct lce_plan {
  int64_t rows, cols; /* of a chunk */
  bool several_cols;  /* chunks of columns */
  int64_t stride;     /* floats from one row of the chunk to the next */
  tg_dtype dlogits;   /* bf16 or f32: in the memory of the logits */
  bool sums_dweight;  /* in f32 in the workspace, not in dweight */
  size_t hidden, logits, dhidden, dweight, dbias, packed; /* bytes to each part; rows are first */
  size_t bytes;
} lce_plan;

/** Where the parts of a call lie. */
typedef struct lce_space {
  lce_row *rows;
  char *hidden;
  float *logits, *dhidden, *dweight, *dbias;
  void *packed;
} lce_space;

static inline int64_t lce_clamp(int64_t value, int64_t most)
{
  return value > 0 && value < most ? value : most;
}

static inline int64_t lce_max(int64_t a, int64_t b)
{
  return a > b ? a : b;
}

static inline bool lce_sums_dweight(const lce_args *a)
{
  return tgi_present(&a->dweight) && a->dweight.dtype != TG_F32;
}

static inline int64_t lce_chunk_cols(const lce_args *a)
{
  const int64_t row_bytes = lce_max(1, a->hidden.shape[1]) * (int64_t)sizeof(float);
  int64_t wanted = a->chunk_cols;
  if (wanted == 0 && lce_sums_dweight(a)) {
    wanted = lce_max(kMinChunkCols, kSumsBytes / row_bytes);
  }
  return lce_clamp(wanted, a->weight.shape[0]);
}

static inline int64_t lce_chunk_rows(const lce_args *a, int64_t cols)
{
  const int64_t rows = lce_max(1, a->hidden.shape[0]);
  if (a->chunk_rows > 0) {
    return lce_clamp(a->chunk_rows, rows);
  }
  const int64_t most = lce_max(kMinChunkRows, kChunkBytes / (int64_t)sizeof(float) / cols);
  const int64_t chunks = (rows + most - 1) / most;
  return (rows + chunks - 1) / chunks;
}

static inline int64_t lce_stride(int64_t cols)
{
  const int64_t stride = (cols + kLogitsAlign - 1) / kLogitsAlign * kLogitsAlign;
  return stride % kLogitsConflict == 0 ? stride + kLogitsAlign : stride;
}

/* ---- products; m rows of the chunk, columns [j, j + n) of the vocabulary ---- */

/** Row `j`; a workspace query has no memory. */
static inline void *lce_row_at(const tg_tensor *t, int64_t j)
{
  return t->data ? tgi_row(t, j) : NULL;
}

static inline tgi_gemm_problem lce_logits(const lce_args *a, const lce_plan *plan,
                                          const lce_space *s, int64_t m, int64_t j, int64_t n)
{
  const int64_t size = a->hidden.shape[1];
  const bool bias = tgi_present(&a->bias) && a->bias.data;
  return (tgi_gemm_problem){
      .m = m,
      .n = n,
      .k = size,
      .a = tgi_gemm_matrix(s->hidden, a->hidden.dtype, size, true),
      .b = tgi_gemm_matrix(lce_row_at(&a->weight, j), a->weight.dtype, tgi_stride(&a->weight, 0),
                           true),
      .c = {.y = s->logits,
            .dtype = TG_F32,
            .stride = plan->stride,
            .bias = bias ? at(a->bias.data, a->bias.dtype, j) : NULL,
            .bias_dtype = a->bias.dtype},
  };
}

static inline tgi_gemm_operand lce_dlogits(const lce_plan *plan, const lce_space *s, bool along_k)
{
  const int64_t stride = plan->dlogits == TG_F32 ? plan->stride : 2 * plan->stride;
  return tgi_gemm_matrix(s->logits, plan->dlogits, stride, along_k);
}

/** Sums of rows from `row` on, added to from the second chunk of columns on. */
static inline tgi_gemm_problem lce_dhidden(const lce_args *a, const lce_plan *plan,
                                           const lce_space *s, int64_t m, int64_t j, int64_t n)
{
  const int64_t size = a->hidden.shape[1];
  return (tgi_gemm_problem){
      .m = m,
      .n = size,
      .k = n,
      .a = lce_dlogits(plan, s, true),
      .b = tgi_gemm_matrix(lce_row_at(&a->weight, j), a->weight.dtype, tgi_stride(&a->weight, 0),
                           false),
      .c = {.y = s->dhidden, .dtype = TG_F32, .stride = size, .accumulate = j > 0},
  };
}

static inline tgi_gemm_problem lce_dweight(const lce_args *a, const lce_plan *plan,
                                           const lce_space *s, int64_t m, int64_t j, int64_t n,
                                           bool first_rows)
{
  const int64_t size = a->hidden.shape[1];
  const bool apart = plan->sums_dweight;
  return (tgi_gemm_problem){
      .m = n,
      .n = size,
      .k = m,
      .a = lce_dlogits(plan, s, false),
      .b = tgi_gemm_matrix(s->hidden, a->hidden.dtype, size, false),
      .c = {.y = apart ? s->dweight : lce_row_at(&a->dweight, j),
            .dtype = TG_F32,
            .stride = apart ? size : tgi_stride(&a->dweight, 0),
            .accumulate = !(first_rows && (apart || a->overwrite))},
  };
}

/* ---- workspace ---- */

/* Largest over the products of any chunk. */
static inline size_t lce_packed_bytes(const tg_context *ctx, const lce_args *a,
                                      const lce_plan *plan)
{
  const lce_space nowhere = {0};
  const tgi_gemm_problem logits = lce_logits(a, plan, &nowhere, plan->rows, 0, plan->cols);
  size_t most = tgi_gemm_workspace_within(ctx, &logits);
  if (tgi_present(&a->dhidden)) {
    const tgi_gemm_problem p = lce_dhidden(a, plan, &nowhere, plan->rows, 0, plan->cols);
    const size_t bytes = tgi_gemm_workspace_within(ctx, &p);
    most = bytes > most ? bytes : most;
  }
  if (tgi_present(&a->dweight)) {
    const tgi_gemm_problem p = lce_dweight(a, plan, &nowhere, plan->rows, 0, plan->cols, false);
    const size_t bytes = tgi_gemm_workspace_within(ctx, &p);
    most = bytes > most ? bytes : most;
  }
  return most;
}

/* Appends a part of whole 256-byte blocks; returns where it begins. */
static inline size_t lce_append(lce_plan *plan, bool wanted, int64_t elements, size_t element_bytes)
{
  const size_t start = plan->bytes;
  plan->bytes += wanted ? ((size_t)elements * element_bytes + 255) / 256 * 256 : 0;
  return start;
}

static inline lce_plan lce_make_plan(const tg_context *ctx, const lce_args *a)
{
  const int64_t rows = a->hidden.shape[0], size = a->hidden.shape[1], vocab = a->weight.shape[0];
  const bool pairs = a->hidden.dtype == TG_BF16 && a->weight.dtype == TG_BF16;
  lce_plan plan = {.cols = lce_chunk_cols(a)};
  plan.rows = lce_chunk_rows(a, plan.cols);
  plan.several_cols = plan.cols < vocab;
  plan.stride = lce_stride(plan.cols);
  plan.dlogits = pairs ? TG_BF16 : TG_F32;
  plan.sums_dweight = lce_sums_dweight(a);
  const int64_t summed_rows = plan.several_cols ? rows : plan.rows;
  (void)lce_append(&plan, true, rows, sizeof(lce_row));
  plan.hidden = lce_append(&plan, true, plan.rows * size, tg_dtype_bytes(a->hidden.dtype));
  plan.logits = lce_append(&plan, true, plan.rows * plan.stride, sizeof(float));
  plan.dhidden = lce_append(&plan, tgi_present(&a->dhidden), summed_rows * size, sizeof(float));
  plan.dweight = lce_append(&plan, plan.sums_dweight, plan.cols * size, sizeof(float));
  plan.dbias = lce_append(&plan, tgi_present(&a->dbias), plan.cols, sizeof(float));
  plan.packed = plan.bytes;
  plan.bytes += lce_packed_bytes(ctx, a, &plan);
  return plan;
}

static inline lce_space lce_place(const lce_plan *plan, void *workspace)
{
  char *base = workspace;
  return (lce_space){
      .rows = workspace,
      .hidden = base + plan->hidden,
      .logits = (float *)(void *)(base + plan->logits),
      .dhidden = (float *)(void *)(base + plan->dhidden),
      .dweight = (float *)(void *)(base + plan->dweight),
      .dbias = (float *)(void *)(base + plan->dbias),
      .packed = base + plan->packed,
  };
}

#endif

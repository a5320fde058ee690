/** linear_cross_entropy on CUDA: how a call is cut into groups and chunks of rows, and what is done
 * with them. */
#ifndef TGI_OPS_LINEAR_CROSS_ENTROPY_CHUNK_CUH
#define TGI_OPS_LINEAR_CROSS_ENTROPY_CHUNK_CUH

#include "ops/kernels.cuh"
#include "ops/linear_cross_entropy/linear_cross_entropy_logits.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

using lce_args = tg_linear_cross_entropy_fwdbwd_args; /* has what the other directions have */

constexpr int64_t kChunkBytes = 512 << 20;     /* of logits, by default, */
constexpr int64_t kPieceBytes = 384 << 20;     /* beside gradients that have memory of their own, */
constexpr int64_t kLentPieceBytes = 256 << 20; /* and beside gradients in dweight and its sums */
constexpr int64_t kMinChunkRows = 64; /* of a default chunk: fewer leave the products short */
constexpr int64_t kSumsBytes = (int64_t)4 << 30; /* of f32 sums of a 16-bit dweight, by default */
constexpr int64_t kMinChunkCols = 1024;          /* of a default chunk beside them */
constexpr int64_t kLogitsAlign = 16;             /* floats */
constexpr int64_t kRowsAlign = 128;    /* of a default chunk, where it has room: a product's tile */
constexpr int64_t kBorrowAlign = 256;  /* bytes */
constexpr int64_t kBorrowedRows = 512; /* fewer are not worth dweight's memory */
constexpr int64_t kGradientAlign = 128; /* bytes of a row of gradients that lie apart */

/** Where the gradients of a group's logits lie. */
enum lce_place {
  kInLogits,    /* where the logits did: the group is one chunk */
  kInWorkspace, /* of all rows: in the room that f32 sums of dweight would take */
  kInDweight,   /* which is overwritten at the end */
};

/** From shapes, dtypes and scalars alone. */
struct lce_plan {
  int64_t group;      /* rows whose gradients wait for one product each with weight and hidden */
  int64_t rows, cols; /* of a chunk of logits, of which a group has one or several */
  bool several_cols;  /* chunks of columns */
  int64_t stride;     /* floats from one row of the chunk to the next */
  tg_dtype dlogits;   /* bf16 or f32 */
  int64_t dstride;    /* elements of it from one row to the next */
  lce_place gradients;
  bool sums_dweight; /* in f32 in the workspace, not in dweight */
  bool borrows;      /* logits lie in the memory of dweight, which is overwritten at the end */
  bool reuses;       /* dhidden is summed where the logits were */
  size_t row, hidden, logits, dlogits_at, dhidden, dweight, dbias, bytes; /* bytes to each part, */
};                                                                        /* and of all */

int64_t clamp(int64_t value, int64_t most)
{
  return value > 0 && value < most ? value : most;
}

int64_t larger(int64_t a, int64_t b)
{
  return a > b ? a : b;
}

/** Appends a part of whole 256-byte blocks; returns where it begins. */
size_t append(lce_plan &plan, bool wanted, int64_t elements, size_t element_bytes)
{
  const size_t start = plan.bytes;
  plan.bytes += wanted ? ((size_t)elements * element_bytes + 255) / 256 * 256 : 0;
  return start;
}

/** Rows of `row_bytes` that the memory of dweight holds from the first aligned address on; 0 if it
 * must not be touched before the end. */
int64_t rows_in_dweight(const lce_args &a, const lce_plan &plan, int64_t row_bytes)
{
  if (!a.overwrite || plan.several_cols || !tgi_is_dense(&a.dweight)) {
    return 0;
  }
  const bool aligned = (uintptr_t)a.dweight.data % kBorrowAlign == 0;
  const int64_t bytes = (int64_t)tgi_span_bytes(&a.dweight) - (aligned ? 0 : kBorrowAlign);
  return bytes < 0 ? 0 : bytes / row_bytes;
}

/** Rows of each of the fewest chunks of at most `most` rows: alike, but for whole tiles. */
int64_t even_rows(int64_t all, int64_t most)
{
  if (most < kRowsAlign) {
    return clamp(divide_up(all, divide_up(all, most)), all);
  }
  const int64_t tiles = divide_up(all, kRowsAlign), most_tiles = most / kRowsAlign;
  return clamp(divide_up(tiles, divide_up(tiles, most_tiles)) * kRowsAlign, all);
}

int64_t rows_of_bytes(int64_t bytes, const lce_plan &plan)
{
  return larger(kMinChunkRows, bytes / (int64_t)sizeof(float) / plan.cols);
}

/** Groups and chunks of a 16-bit dweight whose rows per chunk are ours to choose: as few products
 * with hidden as there is memory for. */
void plan_groups(lce_plan &plan, const lce_args &a, int64_t all)
{
  const int64_t element = (int64_t)tg_dtype_bytes(plan.dlogits), size = a.hidden.shape[1];
  const int64_t dstride = divide_up(plan.cols * element, kGradientAlign) * kGradientAlign / element;
  const int64_t borrowed = rows_in_dweight(a, plan, plan.stride * (int64_t)sizeof(float));
  const int64_t lent = rows_in_dweight(a, plan, dstride * element);
  if (!plan.several_cols && all * dstride * element <= plan.cols * size * (int64_t)sizeof(float)) {
    plan.gradients = kInWorkspace;
    plan.sums_dweight = false;
    plan.group = all;
    plan.borrows = borrowed >= clamp(kBorrowedRows, all);
    plan.rows = even_rows(all, plan.borrows ? borrowed : rows_of_bytes(kPieceBytes, plan));
  } else if (lent >= kBorrowedRows) {
    plan.gradients = kInDweight;
    plan.group = even_rows(all, lent);
    plan.rows = even_rows(plan.group, rows_of_bytes(kLentPieceBytes, plan));
  } else {
    plan.rows = plan.group = even_rows(all, rows_of_bytes(kChunkBytes, plan));
    return;
  }
  plan.dstride = dstride;
}

lce_plan plan_of(const lce_args &a)
{
  const int64_t rows = a.hidden.shape[0], size = a.hidden.shape[1], vocab = a.weight.shape[0];
  const int64_t all = larger(1, rows);
  lce_plan plan = {};
  plan.sums_dweight = tgi_present(&a.dweight) && a.dweight.dtype != TG_F32;
  int64_t wanted = a.chunk_cols;
  if (wanted == 0 && plan.sums_dweight) {
    wanted = larger(kMinChunkCols, kSumsBytes / (larger(1, size) * (int64_t)sizeof(float)));
  }
  plan.cols = clamp(wanted, vocab);
  plan.several_cols = plan.cols < vocab;
  plan.stride = divide_up(plan.cols, kLogitsAlign) * kLogitsAlign;
  plan.dlogits = a.hidden.dtype == TG_BF16 && a.weight.dtype == TG_BF16 ? TG_BF16 : TG_F32;
  plan.dstride = plan.stride * (int64_t)(sizeof(float) / tg_dtype_bytes(plan.dlogits));
  if (a.chunk_rows > 0) {
    plan.rows = plan.group = clamp(a.chunk_rows, all);
    plan.borrows = plan.sums_dweight &&
                   rows_in_dweight(a, plan, plan.stride * (int64_t)sizeof(float)) >= plan.rows;
  } else if (plan.sums_dweight) {
    plan_groups(plan, a, all);
  } else {
    plan.rows = plan.group = even_rows(all, rows_of_bytes(kChunkBytes, plan));
  }
  const bool apart = plan.gradients == kInWorkspace;
  const int64_t summed_rows = plan.several_cols ? rows : plan.group;
  (void)append(plan, true, 1, sizeof(lce_totals));
  plan.row = append(plan, true, rows, sizeof(lce_row));
  plan.hidden = append(plan, true, plan.group * size, tg_dtype_bytes(a.hidden.dtype));
  plan.logits = append(plan, !plan.borrows, plan.rows * plan.stride, sizeof(float));
  plan.dlogits_at = append(plan, apart, plan.group * plan.dstride, tg_dtype_bytes(plan.dlogits));
  plan.reuses = plan.gradients != kInLogits && !plan.several_cols &&
                plan.group * size <= plan.rows * plan.stride;
  plan.dhidden =
      append(plan, tgi_present(&a.dhidden) && !plan.reuses, summed_rows * size, sizeof(float));
  plan.dweight = append(plan, plan.sums_dweight, plan.cols * size, sizeof(float));
  plan.dbias = append(plan, tgi_present(&a.dbias), plan.cols, sizeof(float));
  return plan;
}

/** Of a call with dweight wherever it may lie. */
size_t workspace_of(lce_args a)
{
  a.dweight.data = nullptr;
  const size_t aligned = plan_of(a).bytes;
  a.dweight.data = reinterpret_cast<void *>((uintptr_t)kBorrowAlign / 2);
  const size_t bytes = plan_of(a).bytes;
  return bytes > aligned ? bytes : aligned;
}

struct lce_job {
  const tg_context *ctx;
  const lce_args *a;
  lce_plan plan;
  lce_call call;
  char *base; /* of the workspace */
  bool scans, differentiates;
  lce_chunk group, chunk; /* the group's dlogits; of the group, the chunk's logits and dlogits */

  template <typename T> T *part(size_t at) const
  {
    return reinterpret_cast<T *>(base + at);
  }
};

char *at(const tg_tensor *t, int64_t i)
{
  return static_cast<char *>(t->data) + i * (int64_t)tg_dtype_bytes(t->dtype);
}

gemm_operand dense_operand(const void *data, tg_dtype dtype, int64_t row_step)
{
  gemm_operand o;
  o.data = data;
  o.dtype = dtype;
  o.row_step = row_step;
  return o;
}

gemm_operand turned(gemm_operand o)
{
  const int64_t step = o.row_step;
  o.row_step = o.col_step;
  o.col_step = step;
  return o;
}

/** Rows of the chunk's columns in the weight: [cols, hidden_size]. */
gemm_operand weight_rows(const lce_job &job)
{
  const tg_tensor *w = &job.a->weight;
  return dense_operand(tgi_row(w, job.group.col0), w->dtype, tgi_stride(w, 0));
}

/** Of the group from `row` on. */
gemm_operand hidden_rows(const lce_job &job, int64_t row)
{
  const tg_tensor *h = &job.a->hidden;
  const int64_t row_bytes = h->shape[1] * (int64_t)tg_dtype_bytes(h->dtype);
  return dense_operand(job.part<char>(job.plan.hidden) + row * row_bytes, h->dtype, h->shape[1]);
}

gemm_operand dlogits_rows(const lce_job &job)
{
  return dense_operand(job.group.dlogits, job.plan.dlogits, job.plan.dstride);
}

/* ---- a group ---- */

template <typename T> tg_status gather_as(const lce_job &job, int64_t row_bytes)
{
  const tg_tensor *h = &job.a->hidden;
  const int64_t step = tgi_stride(h, 0) * (int64_t)tg_dtype_bytes(h->dtype);
  return launch(job.ctx, linear_cross_entropy_gather_kernel<T>, grid_of(job.group.rows),
                kCopyThreads, 0, job.call, job.group, static_cast<const T *>(h->data),
                step / (int64_t)sizeof(T), row_bytes / (int64_t)sizeof(T),
                job.part<T>(job.plan.hidden));
}

tg_status gather(const lce_job &job)
{
  const tg_tensor *h = &job.a->hidden;
  const int64_t row_bytes = h->shape[1] * (int64_t)tg_dtype_bytes(h->dtype);
  if (rows_aligned(h, 16) && row_bytes % 16 == 0) {
    return gather_as<uint4>(job, row_bytes);
  }
  return h->dtype == TG_F32 ? gather_as<uint32_t>(job, row_bytes)
                            : gather_as<uint16_t>(job, row_bytes);
}

tg_status make_logits(const lce_job &job)
{
  gemm_call c;
  c.m = job.chunk.rows;
  c.n = job.chunk.cols;
  c.k = job.a->hidden.shape[1];
  c.a = hidden_rows(job, job.chunk.row0 - job.group.row0);
  c.b = turned(weight_rows(job));
  c.c = job.chunk.logits;
  c.c_row_step = job.plan.stride;
  if (tgi_present(&job.a->bias)) {
    c.bias = at(&job.a->bias, job.chunk.col0);
    c.bias_dtype = job.a->bias.dtype;
  }
  return product(job.ctx, c);
}

/** dhidden of the group's rows: they have their place in the sums if these wait for columns. */
tg_status add_dhidden(const lce_job &job)
{
  const tg_tensor *t = &job.a->dhidden;
  const int64_t size = t->shape[1];
  float *sums = job.plan.reuses ? job.chunk.logits
                                : job.part<float>(job.plan.dhidden) +
                                      (job.plan.several_cols ? job.group.row0 * size : 0);
  gemm_call c;
  c.m = job.group.rows;
  c.n = size;
  c.k = job.group.cols;
  c.a = dlogits_rows(job);
  c.b = weight_rows(job);
  c.c = sums;
  c.c_row_step = size;
  c.accumulate = job.group.col0 > 0;
  tg_status status = product(job.ctx, c);
  if (status == TG_OK && job.group.col0 + job.group.cols == job.call.vocab) {
    SWITCH_FLOAT(t->dtype, T,
                 status = launch(job.ctx, linear_cross_entropy_scatter_kernel<T>,
                                 grid_of(job.group.rows), kCopyThreads, 0, job.call, job.group,
                                 sums, static_cast<T *>(t->data), tgi_stride(t, 0), size));
  }
  return status;
}

tg_status add_dweight(const lce_job &job)
{
  const tg_tensor *t = &job.a->dweight;
  const bool apart = job.plan.sums_dweight;
  gemm_call c;
  c.m = job.group.cols;
  c.n = t->shape[1];
  c.k = job.group.rows;
  c.a = turned(dlogits_rows(job));
  c.b = hidden_rows(job, 0);
  c.c = apart ? job.part<void>(job.plan.dweight) : tgi_row(t, job.group.col0);
  c.c_dtype = apart ? TG_F32 : t->dtype;
  c.c_row_step = apart ? t->shape[1] : tgi_stride(t, 0);
  c.accumulate = !(job.group.row0 == 0 && (apart || job.a->overwrite));
  return product(job.ctx, c);
}

tg_status add_dbias(const lce_job &job)
{
  const dim3 grid = grid_of(divide_up(job.group.cols, kCopyThreads));
  float *sums = job.part<float>(job.plan.dbias);
  return job.plan.dlogits == TG_BF16 ? launch(job.ctx, linear_cross_entropy_bias_kernel<bf16>, grid,
                                              kCopyThreads, 0, job.group, sums)
                                     : launch(job.ctx, linear_cross_entropy_bias_kernel<float>,
                                              grid, kCopyThreads, 0, job.group, sums);
}

template <bool kFast> tg_status scan_as(const lce_job &job)
{
  const tg_status status =
      launch(job.ctx,
             is_plain(job.call, job.chunk) ? linear_cross_entropy_scan_kernel<kFast, true>
                                           : linear_cross_entropy_scan_kernel<kFast, false>,
             grid_of(job.chunk.rows), kScanThreads, 0, job.call, job.chunk);
  return status != TG_OK ? status
                         : launch(job.ctx, linear_cross_entropy_rows_kernel,
                                  grid_of(divide_up(job.chunk.rows, kCopyThreads)), kCopyThreads, 0,
                                  job.call, job.chunk);
}

/** The chunk's logits become losses and gradients. */
tg_status run_chunk(const lce_job &job)
{
  tg_status status = make_logits(job);
  if (status == TG_OK && job.scans) {
    status = job.plan.dlogits == TG_BF16 ? scan_as<true>(job) : scan_as<false>(job);
  }
  if (status == TG_OK && job.differentiates) {
    const dim3 grid = grid_of(job.chunk.rows);
    status = job.plan.dlogits == TG_BF16
                 ? launch(job.ctx, linear_cross_entropy_gradient_kernel<bf16>, grid, kScanThreads,
                          0, job.call, job.chunk)
                 : launch(job.ctx, linear_cross_entropy_gradient_kernel<float>, grid, kScanThreads,
                          0, job.call, job.chunk);
  }
  return status;
}

/** The products of the group's gradients. */
tg_status propagate(const lce_job &job)
{
  tg_status status = TG_OK;
  if (tgi_present(&job.a->dhidden)) {
    status = add_dhidden(job);
  }
  if (status == TG_OK && tgi_present(&job.a->dweight)) {
    status = add_dweight(job);
  }
  if (status == TG_OK && tgi_present(&job.a->dbias)) {
    status = add_dbias(job);
  }
  return status;
}

tg_status run_group(lce_job &job)
{
  const size_t row_bytes = (size_t)job.plan.dstride * tg_dtype_bytes(job.plan.dlogits);
  tg_status status = gather(job);
  for (int64_t row = 0; row < job.group.rows && status == TG_OK; row += job.plan.rows) {
    const int64_t left = job.group.rows - row;
    job.chunk.row0 = job.group.row0 + row;
    job.chunk.rows = left < job.plan.rows ? left : job.plan.rows;
    job.chunk.dlogits = static_cast<char *>(job.group.dlogits) + (size_t)row * row_bytes;
    status = run_chunk(job);
  }
  return status == TG_OK && job.differentiates ? propagate(job) : status;
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif

/* Linear head and cross-entropy on CUDA.
 *
 * Method     Rows that are not ignored are numbered on the device. For every chunk of columns, for
 *            every group of numbers: their hidden states are copied side by side, the logits are a
 *            product (t.cuh) for a chunk of rows at a time, each row of them is read
 *            once (forward) and turned into its gradient, and dhidden and dweight are two more
 *            products of the group. With one chunk of columns a row's scan is complete when its
 *            gradient is due; with several the forward needs a pass of its own. The host does not
 *            know how many rows count: groups cover all, and the last ones may be zeros.
 * Memory     A group is one chunk, whose gradients lie where its logits did. A 16-bit dweight wants
 *            larger groups, as its f32 sums are read and written once for each: where the gradients
 *            of all rows take no more memory than these sums, they are kept instead and dweight is
 *            one product; else those of a group lie in the memory of dweight if that is
 *            overwritten. chunk_rows, if given, is the rows of a group.
 * Sums       dhidden, dbias and, with several groups, a 16-bit dweight are summed in f32 in the
 *            workspace: dhidden over chunks of columns, the others, which belong to one chunk of
 *            columns, over groups of rows. An f32 dweight is added to in place.
 * Work       Products cut themselves; the passes over rows have a block for each.
 * Bound      Arithmetic: the products.
 */
#include "ops/kernels.cuh"
#include "ops/linear_cross_entropy/linear_cross_entropy_chunk.cuh"

namespace
{

/* ---- passes ---- */

template <typename T>
tg_status add_sums_as(const lce_job &job, const float *sums, T *to, int64_t step, int64_t rows,
                      int64_t cols)
{
  const bool wide = cols % 4 == 0 && step % 4 == 0 && (uintptr_t)to % (4 * sizeof(T)) == 0;
  return launch(job.ctx,
                wide ? linear_cross_entropy_add_kernel<true, T>
                     : linear_cross_entropy_add_kernel<false, T>,
                grid_of(rows * divide_up(cols, kAddCols)), kCopyThreads, 0, sums, to, step, rows,
                cols, job.a->overwrite);
}

tg_status add_sums(const lce_job &job, const float *sums, void *to, tg_dtype dtype, int64_t step,
                   int64_t rows, int64_t cols)
{
  tg_status status = TG_OK;
  SWITCH_FLOAT(dtype, T, status = add_sums_as(job, sums, static_cast<T *>(to), step, rows, cols));
  return status;
}

/** What was summed over all rows goes where it belongs. */
tg_status finish_columns(const lce_job &job)
{
  const tg_tensor *w = &job.a->dweight, *b = &job.a->dbias;
  tg_status status = TG_OK;
  if (job.plan.sums_dweight) {
    status = add_sums(job, job.part<float>(job.plan.dweight), tgi_row(w, job.group.col0), w->dtype,
                      tgi_stride(w, 0), job.group.cols, w->shape[1]);
  }
  if (status == TG_OK && tgi_present(b)) {
    status = add_sums(job, job.part<float>(job.plan.dbias), at(b, job.group.col0), b->dtype,
                      job.group.cols, 1, job.group.cols);
  }
  return status;
}

/** At least one group, if of no rows: dweight is overwritten all the same. */
tg_status pass_columns(lce_job &job)
{
  tg_status status = TG_OK;
  job.group.row0 = 0;
  do {
    const int64_t left = job.call.rows - job.group.row0;
    job.group.rows = left < job.plan.group ? left : job.plan.group;
    status = run_group(job);
    job.group.row0 += job.group.rows;
  } while (status == TG_OK && job.group.row0 < job.call.rows);
  return status;
}

tg_status pass(lce_job &job, bool scans, bool differentiates)
{
  tg_status status = TG_OK;
  job.scans = scans;
  job.differentiates = differentiates;
  for (int64_t j = 0; j < job.call.vocab && status == TG_OK; j += job.plan.cols) {
    job.group.col0 = job.chunk.col0 = j;
    job.group.cols = job.call.vocab - j < job.plan.cols ? job.call.vocab - j : job.plan.cols;
    job.chunk.cols = job.group.cols;
    if (differentiates && tgi_present(&job.a->dbias)) {
      status = fill_bytes(job.ctx, job.part<void>(job.plan.dbias), 0,
                          (size_t)job.group.cols * sizeof(float));
    }
    if (status == TG_OK) {
      status = pass_columns(job);
    }
    if (status == TG_OK && differentiates) {
      status = finish_columns(job);
    }
  }
  return status;
}

lce_call call_of(const lce_args &a, const lce_plan &plan, fault_site site)
{
  char *base = static_cast<char *>(a.workspace);
  lce_call c = {};
  c.targets = a.targets.data;
  c.targets_dtype = a.targets.dtype;
  c.num_items = tgi_present(&a.num_items) ? a.num_items.data : nullptr;
  c.num_items_dtype = a.num_items.dtype;
  c.argmax = a.argmax.data;
  c.argmax_dtype = a.argmax.dtype;
  c.rows = a.hidden.shape[0];
  c.vocab = a.weight.shape[0];
  c.ignore_index = a.ignore_index;
  c.num_items_in_batch = a.num_items_in_batch;
  c.forward = tgi_present(&a.loss);
  c.dloss = static_cast<const float *>(a.dloss.data);
  c.given_lse = c.forward ? nullptr : static_cast<const float *>(a.lse.data);
  c.loss = static_cast<float *>(a.loss.data);
  c.token_loss = static_cast<float *>(a.token_loss.data);
  c.log_prob = static_cast<float *>(a.log_prob.data);
  c.lse = static_cast<float *>(a.lse.data);
  c.label_smoothing = a.label_smoothing;
  c.z_loss = a.z_loss;
  c.softcap = a.softcap;
  c.reduction = a.reduction;
  c.has_ignore_index = a.has_ignore_index;
  c.site = site;
  c.totals = reinterpret_cast<lce_totals *>(base);
  c.row = reinterpret_cast<lce_row *>(base + plan.row);
  return c;
}

tg_status collect(const lce_job &job)
{
  const tg_tensor *t = &job.a->dhidden;
  tg_status status =
      launch(job.ctx, linear_cross_entropy_collect_kernel, dim3(1), kCollectThreads, 0, job.call);
  if (status == TG_OK && tgi_present(t)) {
    SWITCH_FLOAT(t->dtype, T,
                 status = launch(job.ctx, linear_cross_entropy_clear_kernel<T>,
                                 grid_of(job.call.rows), kCopyThreads, 0, job.call,
                                 static_cast<T *>(t->data), tgi_stride(t, 0), t->shape[1]));
  }
  return status;
}

tg_status run(const tg_context *ctx, const lce_args &a, fault_site site)
{
  lce_job job = {};
  job.ctx = ctx;
  job.a = &a;
  job.plan = plan_of(a);
  job.call = call_of(a, job.plan, site);
  job.base = static_cast<char *>(a.workspace);
  const uintptr_t start = (uintptr_t)a.dweight.data + (kBorrowAlign - 1);
  void *const dweight = reinterpret_cast<void *>(start - start % kBorrowAlign);
  job.chunk.logits =
      job.plan.borrows ? static_cast<float *>(dweight) : job.part<float>(job.plan.logits);
  job.group.dlogits = job.plan.gradients == kInLogits      ? job.chunk.logits
                      : job.plan.gradients == kInWorkspace ? job.part<void>(job.plan.dlogits_at)
                                                           : dweight;
  job.group.logits = job.chunk.logits;
  job.group.stride = job.chunk.stride = job.plan.stride;
  job.group.dstride = job.chunk.dstride = job.plan.dstride;
  const bool forward = job.call.forward;
  const bool gradients =
      tgi_present(&a.dhidden) || tgi_present(&a.dweight) || tgi_present(&a.dbias);
  tg_status status = collect(job);
  if (status == TG_OK && forward && (!gradients || job.plan.several_cols)) {
    status = pass(job, true, false);
  }
  if (status == TG_OK && gradients) {
    status = pass(job, forward && !job.plan.several_cols, true);
  }
  if (status == TG_OK && forward && a.reduction != TG_REDUCTION_NONE) {
    status = launch(ctx, linear_cross_entropy_loss_kernel, dim3(1), kCollectThreads, 0, job.call);
  }
  return status;
}

/** Fields that forward and backward have. */
template <typename Args> lce_args shared_args(const Args *a)
{
  lce_args all = {};
  all.hidden = a->hidden;
  all.weight = a->weight;
  all.bias = a->bias;
  all.targets = a->targets;
  all.num_items = a->num_items;
  all.lse = a->lse;
  all.ignore_index = a->ignore_index;
  all.num_items_in_batch = a->num_items_in_batch;
  all.chunk_rows = a->chunk_rows;
  all.chunk_cols = a->chunk_cols;
  all.label_smoothing = a->label_smoothing;
  all.z_loss = a->z_loss;
  all.softcap = a->softcap;
  all.reduction = a->reduction;
  all.has_ignore_index = a->has_ignore_index;
  all.workspace = a->workspace;
  all.workspace_bytes = a->workspace_bytes;
  return all;
}

lce_args args_of(const tg_linear_cross_entropy_fwd_args *a)
{
  lce_args all = shared_args(a);
  all.loss = a->loss;
  all.token_loss = a->token_loss;
  all.log_prob = a->log_prob;
  all.argmax = a->argmax;
  return all;
}

lce_args args_of(const tg_linear_cross_entropy_bwd_args *a)
{
  lce_args all = shared_args(a);
  all.dloss = a->dloss;
  all.dhidden = a->dhidden;
  all.dweight = a->dweight;
  all.dbias = a->dbias;
  all.overwrite = a->overwrite;
  return all;
}

void explain(const lce_args &a, char *text, size_t bytes)
{
  const lce_plan plan = plan_of(a);
  snprintf(text, bytes, "chunks of %lld x %lld logits%s, gradients of %lld rows in %s%s%s",
           (long long)plan.rows, (long long)plan.cols, plan.borrows ? " in dweight's memory" : "",
           (long long)plan.group, tg_dtype_name(plan.dlogits),
           plan.gradients == kInDweight     ? " in dweight's memory"
           : plan.gradients == kInWorkspace ? " kept for one product"
                                            : "",
           plan.sums_dweight ? "; dweight summed apart" : "");
}

} // namespace

/* ---- entries ---- */

extern "C" size_t TGI_WORKSPACE(linear_cross_entropy_fwd)(const tg_context *,
                                                          const tg_linear_cross_entropy_fwd_args *a)
{
  return workspace_of(args_of(a));
}

extern "C" tg_status TGI_KERNEL(linear_cross_entropy_fwd)(const tg_context *ctx,
                                                          const tg_linear_cross_entropy_fwd_args *a)
{
  return run(ctx, args_of(a), FAULT_SITE(ctx, linear_cross_entropy_fwd, targets));
}

extern "C" void TGI_PLAN(linear_cross_entropy_fwd)(const tg_context *,
                                                   const tg_linear_cross_entropy_fwd_args *a,
                                                   char *text, size_t bytes)
{
  explain(args_of(a), text, bytes);
}

extern "C" size_t TGI_WORKSPACE(linear_cross_entropy_bwd)(const tg_context *,
                                                          const tg_linear_cross_entropy_bwd_args *a)
{
  return workspace_of(args_of(a));
}

extern "C" tg_status TGI_KERNEL(linear_cross_entropy_bwd)(const tg_context *ctx,
                                                          const tg_linear_cross_entropy_bwd_args *a)
{
  return run(ctx, args_of(a), FAULT_SITE(ctx, linear_cross_entropy_bwd, targets));
}

extern "C" void TGI_PLAN(linear_cross_entropy_bwd)(const tg_context *,
                                                   const tg_linear_cross_entropy_bwd_args *a,
                                                   char *text, size_t bytes)
{
  explain(args_of(a), text, bytes);
}

extern "C" size_t
TGI_WORKSPACE(linear_cross_entropy_fwdbwd)(const tg_context *,
                                           const tg_linear_cross_entropy_fwdbwd_args *a)
{
  return workspace_of(*a);
}

extern "C" tg_status
TGI_KERNEL(linear_cross_entropy_fwdbwd)(const tg_context *ctx,
                                        const tg_linear_cross_entropy_fwdbwd_args *a)
{
  return run(ctx, *a, FAULT_SITE(ctx, linear_cross_entropy_fwdbwd, targets));
}

extern "C" void TGI_PLAN(linear_cross_entropy_fwdbwd)(const tg_context *,
                                                      const tg_linear_cross_entropy_fwdbwd_args *a,
                                                      char *text, size_t bytes)
{
  explain(*a, text, bytes);
}

/* Linear layers on CUDA, backward: dx = dz W and dW += dz^T x, by cuda/gemm/product.cuh.
 *
 * Method     With an activation dz = dy * act'(z) is made first, in the workspace, rounded to
 *            dy's dtype. dbias: sums of groups of rows in the workspace, then of groups
 *            (column_sums.cuh).
 * Work       A tile of dx or dW for a block; 32 vectors of columns of a group of rows.
 * Bound      Tensor cores or f32 arithmetic; dz and dbias: memory.
 */
#include "cuda/element_map.cuh"
#include "cuda/gelu_math.cuh"
#include "cuda/gemm/product.cuh"
#include "cuda/reduce.cuh"
#include "cuda/rows/column_sums.cuh"
#include "ops/kernels.cuh"

namespace
{

constexpr int kBiasRows = 8, kBiasThreads = kBiasRows * kWarp;

struct upstream_tanh {
  __device__ void operator()(const float (&in)[2], float (&out)[1]) const
  {
    float value;
    out[0] = in[0] * gelu_tanh_slope(in[1], &value);
  }
};

struct upstream_erf {
  __device__ void operator()(const float (&in)[2], float (&out)[1]) const
  {
    out[0] = in[0] * gelu_erf_slope(in[1]);
  }
};

/* partial[group, j]: the sum of the group's rows. A warp for 32 vectors of a row, each of the eight
 * adds every eighth row, and then the eight are added in order. */
template <typename T, int kE>
__global__ void __launch_bounds__(kBiasThreads)
    linear_bwd_dbias_groups_kernel(const T *dz, int64_t step, int64_t rows, int64_t cols,
                                   int64_t group_rows, float *partial, int64_t partial_step)
{
  constexpr int kCols = kWarp * kE;
  __shared__ float sums[kBiasRows][kCols];
  const int lane = threadIdx.x % kWarp, slice = threadIdx.x / kWarp;
  const int64_t column0 = (int64_t)blockIdx.x * kCols, j = column0 + lane * kE;
  const int64_t first = blockIdx.y * group_rows;
  const int64_t end = rows - first < group_rows ? rows : first + group_rows;
  float sum[kE] = {};
  if (j < cols) {
#pragma unroll 8
    for (int64_t r = first + slice; r < end; r += kBiasRows) {
      float v[kE];
      load(v, dz + r * step + j);
#pragma unroll
      for (int e = 0; e < kE; e++) {
        sum[e] += v[e];
      }
    }
  }
#pragma unroll
  for (int e = 0; e < kE; e++) {
    sums[slice][lane * kE + e] = sum[e];
  }
  __syncthreads();
  for (int c = threadIdx.x; c < kCols && column0 + c < cols; c += kBiasThreads) {
    float total = 0;
#pragma unroll
    for (int i = 0; i < kBiasRows; i++) {
      total += sums[i][c];
    }
    partial[blockIdx.y * partial_step + column0 + c] = total;
  }
}

/* dz: dy itself, or with an activation its own rows in the workspace. */
tg_tensor upstream_view(const tg_linear_bwd_args *a)
{
  return a->activation == TG_ACTIVATION_NONE
             ? a->dy
             : tg_tensor_2d(a->workspace, a->dy.dtype, a->dy.shape[0], a->dy.shape[1]);
}

size_t upstream_bytes(const tg_linear_bwd_args *a)
{
  const size_t bytes = (size_t)(a->dy.shape[0] * a->dy.shape[1]) * tg_dtype_bytes(a->dy.dtype);
  return a->activation == TG_ACTIVATION_NONE ? 0 : (bytes + 255) / 256 * 256;
}

size_t partial_bytes(const tg_linear_bwd_args *a)
{
  return tgi_present(&a->dbias) && a->dy.shape[0] > 0
             ? (size_t)(row_groups(a->dy.shape[0], kBiasRows) * partial_step(a->dy.shape[1])) *
                   sizeof(float)
             : 0;
}

tg_status make_upstream(const tg_context *ctx, const tg_linear_bwd_args *a, const tg_tensor *dz)
{
  tg_status status = TG_OK;
  if (a->activation == TG_ACTIVATION_GELU_TANH) {
    SWITCH_FLOAT(
        a->dy.dtype, T,
        status = (element_map<T, 2, 1>(ctx, {&a->dy, &a->preactivation}, {dz}, upstream_tanh())));
  } else if (a->activation == TG_ACTIVATION_GELU_ERF) {
    SWITCH_FLOAT(
        a->dy.dtype, T,
        status = (element_map<T, 2, 1>(ctx, {&a->dy, &a->preactivation}, {dz}, upstream_erf())));
  }
  return status;
}

gemm_operand operand_of(const tg_tensor *t, bool transposed)
{
  gemm_operand o;
  o.data = t->data;
  o.dtype = t->dtype;
  o.row_step = transposed ? 1 : tgi_stride(t, 0);
  o.col_step = transposed ? tgi_stride(t, 0) : 1;
  return o;
}

gemm_call dx_product(const tg_linear_bwd_args *a, const tg_tensor *dz)
{
  gemm_call c;
  c.m = a->x.shape[0];
  c.n = a->x.shape[1];
  c.k = a->weight.shape[0];
  c.a = operand_of(dz, false);
  c.b = operand_of(&a->weight, false);
  c.c = a->dx.data;
  c.c_dtype = a->dx.dtype;
  c.c_row_step = tgi_stride(&a->dx, 0);
  c.allow_tf32 = a->allow_tf32;
  return c;
}

gemm_call dweight_product(const tg_linear_bwd_args *a, const tg_tensor *dz)
{
  gemm_call c;
  c.m = a->weight.shape[0];
  c.n = a->x.shape[1];
  c.k = a->x.shape[0];
  c.a = operand_of(dz, true);
  c.b = operand_of(&a->x, false);
  c.c = a->dweight.data;
  c.c_dtype = a->dweight.dtype;
  c.c_row_step = tgi_stride(&a->dweight, 0);
  c.accumulate = !a->overwrite;
  c.allow_tf32 = a->allow_tf32;
  return c;
}

template <typename T, int kE>
tg_status sum_groups(const tg_context *ctx, const tg_tensor *dz, int64_t groups, float *partial)
{
  const int64_t rows = dz->shape[0], cols = dz->shape[1];
  const dim3 grid((unsigned)divide_up(cols, kWarp * kE), (unsigned)groups);
  return launch(ctx, linear_bwd_dbias_groups_kernel<T, kE>, grid, kBiasThreads, 0,
                static_cast<const T *>(dz->data), tgi_stride(dz, 0), rows, cols,
                divide_up(rows, groups), partial, partial_step(cols));
}

tg_status add_dbias(const tg_context *ctx, const tg_linear_bwd_args *a, const tg_tensor *dz,
                    float *partial)
{
  const int64_t groups = row_groups(dz->shape[0], kBiasRows);
  column_sums sums = column_sums_of(partial, groups, dz->shape[1]);
  add_target(sums, &a->dbias);
  tg_status status = TG_OK;
  SWITCH_FLOAT(dz->dtype, T, {
    const bool vectors = rows_aligned(dz, 16) && dz->shape[1] % kLanes<T> == 0;
    status = vectors ? sum_groups<T, kLanes<T>>(ctx, dz, groups, partial)
                     : sum_groups<T, 1>(ctx, dz, groups, partial);
  });
  return status == TG_OK ? add_column_sums(ctx, sums) : status;
}

} // namespace

extern "C" size_t TGI_WORKSPACE(linear_bwd)(const tg_context *, const tg_linear_bwd_args *a)
{
  return upstream_bytes(a) + partial_bytes(a);
}

extern "C" tg_status TGI_KERNEL(linear_bwd)(const tg_context *ctx, const tg_linear_bwd_args *a)
{
  const tg_tensor dz = upstream_view(a);
  const bool rows = a->dy.shape[0] > 0;
  tg_status status = rows ? make_upstream(ctx, a, &dz) : TG_OK;
  if (status == TG_OK && rows && tgi_present(&a->dx)) {
    status = product(ctx, dx_product(a, &dz));
  }
  if (status == TG_OK && tgi_present(&a->dweight)) {
    status = product(ctx, dweight_product(a, &dz));
  }
  if (status == TG_OK && tgi_present(&a->dbias) && a->overwrite) {
    status = fill_bytes(ctx, a->dbias.data, 0, tgi_span_bytes(&a->dbias));
  }
  if (status == TG_OK && rows && tgi_present(&a->dbias)) {
    char *memory = static_cast<char *>(a->workspace) + upstream_bytes(a);
    status = add_dbias(ctx, a, &dz, reinterpret_cast<float *>(memory));
  }
  return status;
}

extern "C" void TGI_PLAN(linear_bwd)(const tg_context *ctx, const tg_linear_bwd_args *a, char *text,
                                     size_t bytes)
{
  const tg_tensor dz = upstream_view(a);
  char of_dx[160] = "none", of_dweight[160] = "none";
  if (tgi_present(&a->dx)) {
    product_plan(ctx, dx_product(a, &dz), of_dx, sizeof of_dx);
  }
  if (tgi_present(&a->dweight)) {
    product_plan(ctx, dweight_product(a, &dz), of_dweight, sizeof of_dweight);
  }
  snprintf(text, bytes, "dx %s; dweight %s", of_dx, of_dweight);
}

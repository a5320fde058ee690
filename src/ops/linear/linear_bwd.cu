/* Linear layers on CUDA, backward: dx = dz W and dW += dz^T x, by cuda/product.cuh.
 *
 * Method     With an activation dz = dy * act'(z) is made first, in the workspace, rounded to dy's
 *            dtype. dbias: sums of groups of 64 rows in the workspace, then the groups in order.
 * Work       A tile of dx or dW for a block; 256 columns of a group, or of dbias.
 * Bound      f32 arithmetic; dz and dbias: memory.
 */
#include "cuda/element_map.cuh"
#include "cuda/gelu_math.cuh"
#include "cuda/product.cuh"

namespace
{

constexpr int kBiasGroup = 64, kBiasThreads = 256;

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

/* partial[group, j]: the sum of the group's rows, in order. */
template <typename T>
__global__ void __launch_bounds__(kBiasThreads)
    linear_bwd_dbias_groups_kernel(const T *dz, int64_t step, int64_t rows, int64_t cols,
                                   float *partial)
{
  const int64_t pieces = divide_up(cols, kBiasThreads);
  const int64_t blocks = pieces * divide_up(rows, kBiasGroup);
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const int64_t group = block / pieces;
    const int64_t j = (block - group * pieces) * kBiasThreads + threadIdx.x;
    if (j >= cols) {
      continue;
    }
    const int64_t first = group * kBiasGroup;
    const int count = rows - first < kBiasGroup ? (int)(rows - first) : kBiasGroup;
    const T *from = dz + first * step + j;
    float sum = 0;
#pragma unroll 16
    for (int i = 0; i < count; i++) {
      sum = sum + to_f32(from[i * step]);
    }
    partial[group * cols + j] = sum;
  }
}

__global__ void __launch_bounds__(kBiasThreads)
    linear_bwd_dbias_kernel(const float *partial, int64_t groups, int64_t cols, void *dbias,
                            tg_dtype dtype)
{
  for (int64_t j = (int64_t)blockIdx.x * kBiasThreads + threadIdx.x; j < cols;
       j += (int64_t)gridDim.x * kBiasThreads) {
    float total = 0;
#pragma unroll 16
    for (int64_t g = 0; g < groups; g++) {
      total = total + partial[g * cols + j];
    }
    store_any(dbias, dtype, j, load_any(dbias, dtype, j) + total);
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
  return tgi_present(&a->dbias)
             ? (size_t)(divide_up(a->dy.shape[0], kBiasGroup) * a->dy.shape[1]) * sizeof(float)
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
  c.accumulate = true;
  return c;
}

tg_status add_dbias(const tg_context *ctx, const tg_linear_bwd_args *a, const tg_tensor *dz,
                    float *partial)
{
  const int64_t rows = dz->shape[0], cols = dz->shape[1], step = tgi_stride(dz, 0);
  const int64_t groups = divide_up(rows, kBiasGroup), pieces = divide_up(cols, kBiasThreads);
  tg_status status = TG_OK;
  SWITCH_FLOAT(dz->dtype, T,
               status = launch(ctx, linear_bwd_dbias_groups_kernel<T>, grid_of(groups * pieces),
                               kBiasThreads, 0, static_cast<const T *>(dz->data), step, rows, cols,
                               partial));
  return status == TG_OK ? launch(ctx, linear_bwd_dbias_kernel, grid_of(pieces), kBiasThreads, 0,
                                  partial, groups, cols, a->dbias.data, a->dbias.dtype)
                         : status;
}

} // namespace

extern "C" size_t TGI_WORKSPACE(linear_bwd)(const tg_context *, const tg_linear_bwd_args *a)
{
  return upstream_bytes(a) + partial_bytes(a);
}

extern "C" tg_status TGI_KERNEL(linear_bwd)(const tg_context *ctx, const tg_linear_bwd_args *a)
{
  const tg_tensor dz = upstream_view(a);
  tg_status status = make_upstream(ctx, a, &dz);
  if (status == TG_OK && tgi_present(&a->dx)) {
    status = product(ctx, dx_product(a, &dz));
  }
  if (status == TG_OK && tgi_present(&a->dweight)) {
    status = product(ctx, dweight_product(a, &dz));
  }
  if (status == TG_OK && tgi_present(&a->dbias)) {
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

/* AdamW on CUDA.
 *
 * Method     One pass in place, in f32. Tensors whose dtypes are a usual combination and that are
 *            aligned go through kernels made for it, all others through one that asks for the dtype
 *            of each element.
 * Work       8 elements of a thread, a block for 2048 elements of a tensor; tables of 60 tensors a
 *            launch, one after the other for each combination.
 * Bound      Memory: reads params (or master), grads and both states, writes all but grads (14
 *            bytes an element in bf16).
 */
#include "cuda/fault.cuh"
#include "cuda/tensor_list.cuh"
#include "cuda/vec.cuh"
#include "ops/kernels.cuh"

#include <math.h>
#include <math_constants.h>

namespace
{

constexpr int kThreads = 256, kPerThread = 8, kChunk = kThreads * kPerThread, kRoom = 60;

struct step_entry {
  void *param, *avg, *sq, *master; /* master: NULL if there is none */
  const void *grad;
  int64_t count, first;
  int8_t param_dtype, grad_dtype, avg_dtype, sq_dtype;
};

using step_table = tensor_table<step_entry, kRoom>;

/* What does not depend on an element; made in f64. */
struct step_factors {
  double grad_scale; /* without clip */
  float decay, blend1, beta2, blend2, step, correction2, eps;
  const float *clip; /* NULL: none */
  fault_site site;
};

static_assert(sizeof(step_table) + sizeof(step_factors) <= 4096, "kernel parameters");

struct moments {
  float weight, avg, sq;
};

__device__ __forceinline__ moments update(moments old, float grad, float grad_scale,
                                          const step_factors &f)
{
  const float g = grad * grad_scale;
  const float avg = fmaf(f.blend1, g - old.avg, old.avg);
  const float sq = fmaf(f.blend2 * g, g, old.sq * f.beta2);
  const float denominator = sqrtf(sq) / f.correction2 + f.eps;
  return {old.weight * f.decay + f.step * avg / denominator, avg, sq};
}

/* The factor of the gradients, or false: the clip factor refuses the step. */
__device__ __forceinline__ bool read_scale(const step_factors &f, float *scale)
{
  const float clip = f.clip ? *f.clip : 1.0f;
  *scale = (float)(f.grad_scale * (double)clip);
  if (clip >= 0.0f && clip < CUDART_INF_F) {
    return true;
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) { /* NaN is named by the smallest integer */
    record_fault(f.site, 0, isnan(clip) ? INT64_MIN : __float2ll_rd(clip), 0, INT64_MAX - 1);
  }
  return false;
}

/* ---- one combination of dtypes: kVec elements at once, in 16 bytes of the widest ---- */

template <typename P, typename G, typename S, bool kMaster, int kVec>
__device__ __forceinline__ void step_vector(const step_entry &e, int64_t at, float grad_scale,
                                            const step_factors &f)
{
  P *const param = (P *)e.param + at;
  S *const avg = (S *)e.avg + at, *const sq = (S *)e.sq + at;
  float *const master = (float *)e.master + at;
  float w[kVec], g[kVec], m[kVec], v[kVec];
  if (at + kVec <= e.count) {
    if (kMaster) {
      load(w, (const float *)master);
    } else {
      load(w, (const P *)param);
    }
    load(g, (const G *)e.grad + at);
    load(m, (const S *)avg);
    load(v, (const S *)sq);
#pragma unroll
    for (int i = 0; i < kVec; i++) {
      const moments now = update({w[i], m[i], v[i]}, g[i], grad_scale, f);
      w[i] = now.weight;
      m[i] = now.avg;
      v[i] = now.sq;
    }
    if (kMaster) {
      store(master, w);
    }
    store(param, w);
    store(avg, m);
    store(sq, v);
    return;
  }
  for (int i = 0; i < e.count - at; i++) { /* the end of a tensor */
    const moments old = {kMaster ? master[i] : to_f32(param[i]), to_f32(avg[i]), to_f32(sq[i])};
    const moments now = update(old, to_f32(((const G *)e.grad)[at + i]), grad_scale, f);
    if (kMaster) {
      master[i] = now.weight;
    }
    param[i] = from_f32<P>(now.weight);
    avg[i] = from_f32<S>(now.avg);
    sq[i] = from_f32<S>(now.sq);
  }
}

template <typename P, typename G, typename S, bool kMaster, int kVec>
__global__ void __launch_bounds__(kThreads)
    adamw_step_kernel(const step_table table, const step_factors factors)
{
  float scale;
  if (!read_scale(factors, &scale)) {
    return;
  }
  for (int64_t block = blockIdx.x; block < table.blocks; block += gridDim.x) {
    const step_entry &e = entry_of(table, block);
    const int64_t first = (block - e.first) * kChunk + threadIdx.x * kVec;
#pragma unroll
    for (int k = 0; k < kPerThread / kVec; k++) {
      step_vector<P, G, S, kMaster, kVec>(e, first + k * (kThreads * kVec), scale, factors);
    }
  }
}

/* ---- any dtypes and alignment ---- */

__device__ __forceinline__ float get_any(const void *data, int dtype, int64_t k)
{
  return dtype == TG_F32   ? ((const float *)data)[k]
         : dtype == TG_F16 ? to_f32(((const f16 *)data)[k])
                           : to_f32(((const bf16 *)data)[k]);
}

__device__ __forceinline__ void set_any(void *data, int dtype, int64_t k, float v)
{
  if (dtype == TG_F32) {
    ((float *)data)[k] = v;
  } else if (dtype == TG_F16) {
    ((f16 *)data)[k] = from_f32<f16>(v);
  } else {
    ((bf16 *)data)[k] = from_f32<bf16>(v);
  }
}

__global__ void __launch_bounds__(kThreads)
    adamw_step_any_kernel(const step_table table, const step_factors factors)
{
  float scale;
  if (!read_scale(factors, &scale)) {
    return;
  }
  for (int64_t block = blockIdx.x; block < table.blocks; block += gridDim.x) {
    const step_entry &e = entry_of(table, block);
    void *const weights = e.master ? e.master : e.param;
    const int weight_dtype = e.master ? (int)TG_F32 : e.param_dtype;
#pragma unroll 1
    for (int i = 0; i < kPerThread; i++) {
      const int64_t k = (block - e.first) * kChunk + i * kThreads + threadIdx.x;
      if (k < e.count) {
        const moments old = {get_any(weights, weight_dtype, k), get_any(e.avg, e.avg_dtype, k),
                             get_any(e.sq, e.sq_dtype, k)};
        const moments now = update(old, get_any(e.grad, e.grad_dtype, k), scale, factors);
        set_any(weights, weight_dtype, k, now.weight);
        set_any(e.avg, e.avg_dtype, k, now.avg);
        set_any(e.sq, e.sq_dtype, k, now.sq);
        if (e.master) {
          set_any(e.param, e.param_dtype, k, now.weight);
        }
      }
    }
  }
}

/* ---- host ---- */

using step_kernel = void (*)(step_table, step_factors);

struct combination {
  tg_dtype param, grad, state;
  bool master;
  step_kernel kernel;
};

const combination kCombinations[] = {
    {TG_BF16, TG_BF16, TG_BF16, false, adamw_step_kernel<bf16, bf16, bf16, false, 8>},
    {TG_F32, TG_F32, TG_F32, false, adamw_step_kernel<float, float, float, false, 4>},
    {TG_BF16, TG_BF16, TG_F32, true, adamw_step_kernel<bf16, bf16, float, true, 4>},
    {TG_F16, TG_F16, TG_F32, true, adamw_step_kernel<f16, f16, float, true, 4>},
    {TG_F32, TG_BF16, TG_F32, false, adamw_step_kernel<float, bf16, float, false, 4>},
    {TG_BF16, TG_BF16, TG_F32, false, adamw_step_kernel<bf16, bf16, float, false, 4>},
    {TG_DTYPE_NONE, TG_DTYPE_NONE, TG_DTYPE_NONE, false, adamw_step_any_kernel}, /* all others */
};
constexpr int kKinds = sizeof kCombinations / sizeof *kCombinations;

step_entry entry_at(const tg_adamw_step_args *a, int64_t i)
{
  step_entry e = {};
  e.param = a->params[i].data;
  e.grad = a->grads[i].data;
  e.avg = a->exp_avg[i].data;
  e.sq = a->exp_avg_sq[i].data;
  e.master = a->master ? a->master[i].data : nullptr;
  e.count = tgi_numel(&a->params[i]);
  e.param_dtype = (int8_t)a->params[i].dtype;
  e.grad_dtype = (int8_t)a->grads[i].dtype;
  e.avg_dtype = (int8_t)a->exp_avg[i].dtype;
  e.sq_dtype = (int8_t)a->exp_avg_sq[i].dtype;
  return e;
}

/* Index in kCombinations. */
int kind_of(const step_entry &e)
{
  const uintptr_t all = (uintptr_t)e.param | (uintptr_t)e.grad | (uintptr_t)e.avg |
                        (uintptr_t)e.sq | (uintptr_t)e.master;
  for (int kind = 0; kind < kKinds - 1 && all % 16 == 0; kind++) {
    const combination &c = kCombinations[kind];
    if (e.param_dtype == c.param && e.grad_dtype == c.grad && e.avg_dtype == c.state &&
        e.sq_dtype == c.state && (e.master != nullptr) == c.master) {
      return kind;
    }
  }
  return kKinds - 1;
}

step_factors factors_of(const tg_context *ctx, const tg_adamw_step_args *a)
{
  step_factors f = {};
  f.grad_scale = a->has_grad_scale ? a->grad_scale : 1.0;
  f.decay = (float)(1.0 - a->lr * a->weight_decay);
  f.blend1 = (float)(1.0 - a->beta1);
  f.beta2 = (float)a->beta2;
  f.blend2 = (float)(1.0 - a->beta2);
  f.step = (float)-(a->lr / (1.0 - pow(a->beta1, (double)a->step)));
  f.correction2 = (float)sqrt(1.0 - pow(a->beta2, (double)a->step));
  f.eps = (float)a->eps;
  f.clip = tgi_present(&a->clip) ? (const float *)a->clip.data : nullptr;
  f.site = FAULT_SITE(ctx, adamw_step, clip);
  return f;
}

/* The tensors of one kind; *launched counts blocks. */
tg_status step_kind(const tg_context *ctx, const tg_adamw_step_args *a, const step_factors &factors,
                    int kind, int64_t *launched)
{
  step_table table = {};
  tg_status status = TG_OK;
  for (int64_t i = 0; i < a->num_tensors && status == TG_OK; i++) {
    step_entry e = entry_at(a, i);
    if (e.count > 0 && kind_of(e) == kind) {
      e.first = table.blocks;
      table.entry[table.count++] = e;
      table.blocks += divide_up(e.count, kChunk);
    }
    if (table.count == kRoom || (i + 1 == a->num_tensors && table.count > 0)) {
      status = launch(ctx, kCombinations[kind].kernel, grid_of(table.blocks), kThreads, 0, table,
                      factors);
      *launched += table.blocks;
      table.count = 0;
      table.blocks = 0;
    }
  }
  return status;
}

} // namespace

extern "C" tg_status TGI_KERNEL(adamw_step)(const tg_context *ctx, const tg_adamw_step_args *a)
{
  const step_factors factors = factors_of(ctx, a);
  int64_t launched = 0;
  tg_status status = TG_OK;
  for (int kind = 0; kind < kKinds && status == TG_OK; kind++) {
    status = step_kind(ctx, a, factors, kind, &launched);
  }
  if (status == TG_OK && launched == 0 && factors.clip) { /* a bad one is found all the same */
    const step_table none = {};
    status = launch(ctx, adamw_step_any_kernel, dim3(1), kThreads, 0, none, factors);
  }
  return status;
}

extern "C" void TGI_PLAN(adamw_step)(const tg_context *, const tg_adamw_step_args *a, char *text,
                                     size_t bytes)
{
  int64_t made_for = 0;
  for (int64_t i = 0; i < a->num_tensors; i++) {
    made_for += kind_of(entry_at(a, i)) < kKinds - 1;
  }
  snprintf(text, bytes,
           "in place, %d elements a block; %lld of %lld tensors by kernels for their dtypes",
           kChunk, (long long)made_for, (long long)a->num_tensors);
}

/* Attention's forward in plain device code, a block for a row, and its comparison. */
#ifndef TGI_LAB_ATTENTION_PLAIN_CUH
#define TGI_LAB_ATTENTION_PLAIN_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>

typedef __nv_bfloat16 bf16;

__global__ void fill(uint16_t *p, size_t n, uint32_t seed, int f16, float mul)
{
  for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
       i += (size_t)gridDim.x * blockDim.x) {
    uint64_t z = (i + 1) * 0x9E3779B97F4A7C15ull + seed * 0xD1B54A32D192ED03ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    z ^= z >> 31;
    float u = ((uint32_t)z + 1.0f) * 2.3283064e-10f, v = (uint32_t)(z >> 32) * 2.3283064e-10f;
    float x = mul * sqrtf(-2 * logf(u)) * cospif(2 * v);
    if (f16)
      ((__half *)p)[i] = __float2half(x);
    else
      ((bf16 *)p)[i] = __float2bfloat16(x);
  }
}
struct view {
  const uint16_t *p;
  int64_t s0, s1, s2;
};
__device__ float at(const view &v, int f16, int64_t i0, int64_t i1, int64_t i2, int c)
{
  int64_t k = i0 * v.s0 + i1 * v.s1 + i2 * v.s2 + c;
  return f16 ? __half2float(((const __half *)v.p)[k]) : __bfloat162float(((const bf16 *)v.p)[k]);
}
struct seq {
  int qi, q0, nq, ki, k0, ext, first, count, pos;
};
struct refargs {
  view q, k, v;
  int f16, batch, hq, hkv, d, dv, causal, window, nqaxis;
  float scale, cap;
  const float *sinks;
  const seq *s;
  float *o, *lse;
  int step;
};
/* a block a row; o [total rows over sequences order][hq][dv] indexed as out: (qi * nqaxis + q row)
 */
__global__ void ref_fwd(refargs a, int maxq)
{
  extern __shared__ float sc[];
  __shared__ double red[128];
  int id = blockIdx.x * a.step, i = id % maxq, h = id / maxq % a.hq, b = id / maxq / a.hq,
      t = threadIdx.x;
  seq s = a.s[b];
  if (i >= s.nq)
    return;
  int p = s.pos + i, lo = s.first, hi = s.first + s.count;
  if (a.causal)
    hi = min(hi, p + 1);
  else if (a.window > 0)
    hi = min((long long)hi, (long long)p + a.window);
  if (a.window > 0)
    lo = max((long long)lo, (long long)p - a.window + 1);
  int n = max(0, hi - lo), hk = h / (a.hq / a.hkv);
  float mx = -INFINITY;
  for (int j = t; j < n; j += 128) {
    float x = 0;
    for (int c = 0; c < a.d; c++)
      x = fmaf(at(a.q, a.f16, s.qi, s.q0 + i, h, c), at(a.k, a.f16, s.ki, s.k0 + lo + j, hk, c), x);
    x *= a.scale;
    if (a.cap > 0)
      x = a.cap * tanhf(x / a.cap);
    sc[j] = x;
    mx = fmaxf(mx, x);
  }
  red[t] = mx;
  __syncthreads();
  for (int k = 0; k < 128; k++)
    mx = fmaxf(mx, (float)red[k]);
  float sink = a.sinks ? a.sinks[h] : -INFINITY;
  mx = fmaxf(mx, sink);
  float base = mx > -INFINITY ? mx : 0;
  __syncthreads();
  double sum = 0;
  for (int j = t; j < n; j += 128) {
    sc[j] = expf(sc[j] - base);
    sum += sc[j];
  }
  red[t] = sum;
  __syncthreads();
  sum = 0;
  for (int k = 0; k < 128; k++)
    sum += red[k];
  sum += exp((double)sink - base);
  size_t row = (size_t)s.qi * a.nqaxis + s.q0 + i;
  for (int c = t; c < a.dv; c += 128) {
    float x = 0;
    for (int j = 0; j < n; j++)
      x = fmaf(sc[j], at(a.v, a.f16, s.ki, s.k0 + lo + j, hk, c), x);
    a.o[(row * a.hq + h) * a.dv + c] = sum == 0 ? 0 : (float)(x / sum);
  }
  if (t == 0)
    a.lse[((size_t)s.qi * a.hq + h) * a.nqaxis + s.q0 + i] = base + log(sum);
}
struct cmpargs {
  view o;
  const float *ro, *lse, *rlse;
  int f16, batch, hq, dv, nqaxis;
  const seq *s;
  double *err;
  int step;
};
__global__ void compare(cmpargs a, int maxq)
{
  int id = blockIdx.x * a.step, i = id % maxq, h = id / maxq % a.hq, b = id / maxq / a.hq,
      t = threadIdx.x;
  seq s = a.s[b];
  if (i >= s.nq)
    return;
  size_t row = (size_t)s.qi * a.nqaxis + s.q0 + i;
  for (int c = t; c < a.dv; c += 128) {
    float got = at(a.o, a.f16, s.qi, s.q0 + i, h, c), want = a.ro[(row * a.hq + h) * a.dv + c];
    if (!isfinite(want)) {
      if (isfinite(got))
        atomicAdd(a.err + 3, 1.0);
      continue;
    }
    double e = (double)got - want;
    if (!isfinite(got)) {
      atomicAdd(a.err + 4, 1.0);
      e = 1;
    }
    atomicAdd(a.err, e * e);
    atomicAdd(a.err + 1, (double)want * want);
  }
  if (t == 0) {
    float g = a.lse[((size_t)s.qi * a.hq + h) * a.nqaxis + s.q0 + i],
          w = a.rlse[((size_t)s.qi * a.hq + h) * a.nqaxis + s.q0 + i];
    float e = (g == w || (isnan(g) && !isfinite(w))) ? 0 : fabsf(g - w) / fmaxf(1, fabsf(w));
    if (!(e < 1e4f))
      e = 1e4f;
    atomicMax((int *)(a.err + 2), __float_as_int(e));
  }
}

#endif

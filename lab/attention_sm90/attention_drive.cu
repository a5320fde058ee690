/* Random configurations of attention's forward on Hopper against plain device code.
 *   attention_drive [COUNT [base|...]] */
#include "attention_plain.cuh"
#include "tegula/tegula.h"
#include <algorithm>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>
#define CK(x)                                                                                      \
  do {                                                                                             \
    cudaError_t e_ = (x);                                                                          \
    if (e_ != cudaSuccess) {                                                                       \
      printf("FAIL cuda %d %s: %s\n", __LINE__, #x, cudaGetErrorString(e_));                       \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)
static uint64_t g_seed = 1;
static uint32_t rnd()
{
  g_seed = g_seed * 6364136223846793005ull + 1442695040888963407ull;
  return (uint32_t)(g_seed >> 33);
}
static int below(int n)
{
  return n > 0 ? rnd() % n : 0;
}
static bool chance(int pct)
{
  return below(100) < pct;
}

static tg_context *ctx;
static uint16_t *Q, *K, *V, *O;
static float *LSE, *RO, *RL;
static double *ERR;
static void *WS;
static size_t WSB = 64u << 20;
static seq *S;
static int32_t *I;
static float *SK;
static size_t NE;
static tg_tensor ten(void *p, tg_dtype t, int n, const int64_t *s)
{
  return tg_tensor_view(p, t, n, s);
}
struct cfg {
  int B, hq, hkv, nq, ext, d, dv, causal, window, sink, pq, pk, keys, qstart, layout, f16, nan;
  float cap;
};
static void print(const cfg &c)
{
  printf("B%d h%d/%d nq%d ext%d d%d/%d causal%d w%d cap%g sink%d pq%d pk%d keys%d qs%d layout%d "
         "f16 %d nan%d",
         c.B, c.hq, c.hkv, c.nq, c.ext, c.d, c.dv, c.causal, c.window, c.cap, c.sink, c.pq, c.pk,
         c.keys, c.qstart, c.layout, c.f16, c.nan);
}
static void cuts(int *cu, int batch, int rows)
{
  std::vector<int> x(batch - 1);
  for (auto &v : x)
    v = below(rows + 1);
  std::sort(x.begin(), x.end());
  cu[0] = 0;
  for (int i = 1; i < batch; i++)
    cu[i] = x[i - 1];
  cu[batch] = rows;
}
/* returns 0 ok */
static double worst_o, worst_l;
static int one(const cfg &c, int step)
{
  tg_dtype T = c.f16 ? TG_F16 : TG_BF16;
  int qb = c.pq ? 1 : c.B, kb = c.pk ? 1 : c.B;
  tg_attention_fwd_args a = {};
  int64_t qs[4] = {qb, c.nq, c.hq, c.d}, ks[4] = {kb, c.ext, c.hkv, c.d},
          vs[4] = {kb, c.ext, c.hkv, c.dv}, os[4] = {qb, c.nq, c.hq, c.dv},
          ls[3] = {qb, c.hq, c.nq};
  a.q = ten(Q, T, 4, qs);
  a.k = ten(K, T, 4, ks);
  a.v = ten(V, T, 4, vs);
  a.out = ten(O, T, 4, os);
  a.lse = ten(LSE, TG_F32, 3, ls);
  auto set = [](tg_tensor &t, int64_t s0, int64_t s1, int64_t s2) {
    t.stride[0] = s0;
    t.stride[1] = s1;
    t.stride[2] = s2;
    t.stride[3] = 1;
  };
  auto dense = [&](tg_tensor &t) {
    set(t, t.shape[1] * t.shape[2] * t.shape[3], t.shape[2] * t.shape[3], t.shape[3]);
  };
  auto headfirst = [&](tg_tensor &t) {
    set(t, t.shape[1] * t.shape[2] * t.shape[3], t.shape[3], t.shape[1] * t.shape[3]);
  };
  if (c.layout == 1) {
    headfirst(a.q);
    headfirst(a.k);
    headfirst(a.v);
    headfirst(a.out);
  } else {
    dense(a.q);
    dense(a.k);
    dense(a.v);
    dense(a.out);
  }
  if (c.layout == 2 && c.nq == c.ext && c.pq == c.pk) { /* packed q|k|v in Q's buffer */
    int64_t w = c.hq * c.d + c.hkv * c.d + c.hkv * c.dv;
    set(a.q, c.nq * w, w, c.d);
    set(a.k, c.nq * w, w, c.d);
    set(a.v, c.nq * w, w, c.dv);
    a.k.data = Q + c.hq * c.d;
    a.v.data = Q + (c.hq + c.hkv) * c.d;
  }
  static int host[4096];
  static seq hs[1024];
  int *cuq = host, *cuk = host + 600, *st = host + 1200, *ct = host + 1800, *qp = host + 2400,
      maxq = 0, maxk = 0;
  if (c.pq)
    cuts(cuq, c.B, c.nq);
  if (c.pk)
    cuts(cuk, c.B, c.ext);
  for (int b = 0; b < c.B; b++) {
    seq s = {c.pq ? 0 : b,
             c.pq ? cuq[b] : 0,
             c.pq ? cuq[b + 1] - cuq[b] : c.nq,
             c.pk ? 0 : b,
             c.pk ? cuk[b] : 0,
             c.pk ? cuk[b + 1] - cuk[b] : c.ext,
             0,
             0,
             0};
    s.first = c.keys & 1 ? below(s.ext / 2 + 1) : 0;
    s.count = s.ext - s.first;
    if (c.keys & 2)
      s.count = chance(15) ? 0 : below(s.count + 1);
    s.pos = s.first + s.count - s.nq;
    if (c.qstart)
      s.pos = below(s.ext + 40) - 20;
    st[b] = s.first;
    ct[b] = s.count;
    qp[b] = s.pos;
    hs[b] = s;
    maxq = std::max(maxq, s.nq);
    maxk = std::max(maxk, s.ext);
  }
  CK(cudaMemcpy(I, host, sizeof host, cudaMemcpyHostToDevice));
  CK(cudaMemcpy(S, hs, sizeof(seq) * c.B, cudaMemcpyHostToDevice));
  if (c.pq)
    a.cu_seqlens_q = tg_tensor_1d(I, TG_I32, c.B + 1);
  if (c.pk)
    a.cu_seqlens_k = tg_tensor_1d(I + 600, TG_I32, c.B + 1);
  if (c.keys & 1)
    a.key_start = tg_tensor_1d(I + 1200, TG_I32, c.B);
  if (c.keys & 2)
    a.key_count = tg_tensor_1d(I + 1800, TG_I32, c.B);
  if (c.qstart)
    a.query_start = tg_tensor_1d(I + 2400, TG_I32, c.B);
  if (c.sink)
    a.sinks = tg_tensor_1d(SK, TG_F32, c.hq);
  a.scale = 1 / sqrtf((float)c.d);
  a.softcap = c.cap;
  a.window = c.window;
  a.causal = c.causal;
  size_t need = 0;
  if (tg_attention_fwd_workspace(ctx, &a, &need) != TG_OK || need > WSB) {
    printf("FAIL workspace %zu: %s ", need, tg_context_message(ctx));
    print(c);
    printf("\n");
    return 1;
  }
  a.workspace = WS;
  a.workspace_bytes = need;
  size_t on = (size_t)qb * c.nq * c.hq * c.dv,
         qn = (size_t)qb * c.nq * c.hq * (c.d + 2 * std::max(c.d, c.dv)),
         kn = (size_t)kb * c.ext * c.hkv * std::max(c.d, c.dv);
  uint32_t sd = rnd();
  fill<<<512, 256>>>(Q, std::min(NE, qn + 64), sd, c.f16, 1);
  fill<<<512, 256>>>(K, kn, sd + 1, c.f16, 1);
  fill<<<512, 256>>>(V, kn, sd + 2, c.f16, 1);
  CK(cudaMemset(O, 0xFF, on * 2));
  CK(cudaMemset(LSE, 0xFF, (size_t)qb * c.nq * c.hq * 4));
  CK(cudaMemset(ERR, 0, 64));
  CK(cudaMemset(WS, 0xEE, std::min(need, WSB)));
  if (c.nan) { /* a few elements of k and v (and q) */
    for (int r = 0; r < c.nan; r++) {
      tg_tensor &t = chance(60) ? a.v : chance(50) ? a.k : a.q;
      int64_t i = below((int)t.shape[0]) * t.stride[0] + below((int)t.shape[1]) * t.stride[1] +
                  below((int)t.shape[2]) * t.stride[2] + below((int)t.shape[3]);
      uint16_t bad = chance(50)   ? 0x7fff
                     : chance(50) ? (c.f16 ? 0x7c00 : 0x7f80)
                                  : (c.f16 ? 0xfc00 : 0xff80);
      CK(cudaMemcpy((uint16_t *)t.data + i, &bad, 2, cudaMemcpyHostToDevice));
    }
  }
  tg_status r = tg_attention_fwd(ctx, &a);
  if (r != TG_OK) {
    printf("FAIL status %d %s ", r, tg_context_message(ctx));
    print(c);
    printf("\n");
    return 1;
  }
  if (tg_context_check(ctx) != TG_OK) {
    printf("FAIL check %s ", tg_context_message(ctx));
    print(c);
    printf("\n");
    exit(1);
  }
  refargs f = {{(uint16_t *)a.q.data, a.q.stride[0], a.q.stride[1], a.q.stride[2]},
               {(uint16_t *)a.k.data, a.k.stride[0], a.k.stride[1], a.k.stride[2]},
               {(uint16_t *)a.v.data, a.v.stride[0], a.v.stride[1], a.v.stride[2]},
               c.f16,
               c.B,
               c.hq,
               c.hkv,
               c.d,
               c.dv,
               c.causal,
               c.window,
               c.nq,
               a.scale,
               c.cap,
               c.sink ? SK : NULL,
               S,
               RO,
               RL,
               step};
  cmpargs g = {{O, a.out.stride[0], a.out.stride[1], a.out.stride[2]},
               RO,
               LSE,
               RL,
               c.f16,
               c.B,
               c.hq,
               c.dv,
               c.nq,
               S,
               ERR,
               step};
  int n = (maxq * c.hq * c.B + step - 1) / step;
  CK(cudaFuncSetAttribute(ref_fwd, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 * 1024));
  if (n) {
    ref_fwd<<<n, 128, maxk * 4 + 4>>>(f, maxq);
    CK(cudaGetLastError());
    compare<<<n, 128>>>(g, maxq);
  }
  CK(cudaDeviceSynchronize());
  double e[5];
  CK(cudaMemcpy(e, ERR, 40, cudaMemcpyDeviceToHost));
  float dl;
  memcpy(&dl, &e[2], 4);
  double eo = e[1] > 1e-20 ? sqrt(e[0] / e[1]) : sqrt(e[0]);
  double bound = c.f16 ? 1e-3 : 6e-3;
  worst_o = std::max(worst_o, eo);
  worst_l = std::max(worst_l, (double)dl);
  if (!(eo < bound) || !(dl < 2e-5) || e[3] > 0 || e[4] > 0) {
    printf("BAD o %.2e lse %.2e finite-for-nan %g nan-for-finite %g ", eo, dl, e[3], e[4]);
    print(c);
    printf("\n");
    return 1;
  }
  return 0;
}
static void dims(cfg &c, const char *only)
{
  static const int all[][2] = {{64, 64},  {128, 128}, {40, 40}, {80, 80}, {8, 8},
                               {24, 24},  {56, 64},   {72, 72}, {96, 96}, {120, 128},
                               {128, 64}, {64, 128},  {16, 120}};
  static const int big[][2] = {{96, 96},   {192, 128}, {192, 192}, {256, 256}, {160, 160},
                               {200, 176}, {256, 128}, {136, 40},  {88, 88},   {224, 248}};
  if (!strcmp(only, "big")) {
    int i = below(10);
    c.d = big[i][0];
    c.dv = big[i][1];
  } else {
    int i = chance(60) ? below(2) : below(13);
    c.d = all[i][0];
    c.dv = all[i][1];
  }
}
int main(int argc, char **argv)
{
  int count = argc > 1 ? atoi(argv[1]) : 400;
  const char *dimset = argc > 2 ? argv[2] : "base";
  setvbuf(stdout, NULL, _IOLBF, 0);
  tg_context_options o = {};
  o.backend = TG_BACKEND_CUDA;
  o.entry = "sm90";
  tg_error err;
  if (tg_context_create(&o, &ctx, &err) != TG_OK) {
    printf("FAIL context %s\n", err.text);
    return 1;
  }
  NE = (size_t)64 * 1024 * 1024;
  CK(cudaMalloc(&Q, NE * 2));
  CK(cudaMalloc(&K, NE * 2));
  CK(cudaMalloc(&V, NE * 2));
  CK(cudaMalloc(&O, NE * 2));
  CK(cudaMalloc(&LSE, NE / 8));
  CK(cudaMalloc(&RO, NE * 4));
  CK(cudaMalloc(&RL, NE / 8));
  CK(cudaMalloc(&ERR, 64));
  CK(cudaMalloc(&WS, WSB));
  CK(cudaMalloc(&S, sizeof(seq) * 1024));
  CK(cudaMalloc(&I, 4096 * 4));
  CK(cudaMalloc(&SK, 256 * 4));
  float hsk[256];
  for (int i = 0; i < 256; i++)
    hsk[i] = (below(2000) - 1000) * 3e-3f;
  CK(cudaMemcpy(SK, hsk, 1024, cudaMemcpyHostToDevice));
  int fails = 0, runs = 0;
  {
    for (int k = 0; k < count && fails < 25; k++) {
      cfg c = {};
      g_seed = 1000 + k;
      rnd();
      static const int groups[] = {1, 2, 4};
      c.B = 1 + below(4);
      c.hkv = 1 + below(3);
      c.hq = c.hkv * groups[below(3)];
      c.nq = 1 + below(300);
      c.ext = chance(40) ? c.nq : 1 + below(300);
      dims(c, dimset);
      c.causal = chance(60);
      c.window = chance(30) ? 1 + below(chance(50) ? 40 : 200) : 0;
      c.cap = chance(15) ? 2.0f + below(30) : 0;
      c.sink = chance(30);
      c.pq = chance(30);
      c.pk = c.pq ? chance(80) : chance(10);
      c.keys = chance(25) ? 1 + below(3) : 0;
      c.qstart = chance(12);
      c.layout = below(3);
      c.f16 = chance(35);
      if (c.pq || c.pk) {
        c.B = 1 + below(8);
        c.nq = 1 + below(900);
        c.ext = chance(60) ? c.nq : 1 + below(900);
      }
      if (c.layout == 2) {
        if (c.pq != c.pk)
          c.layout = 0;
        else
          c.ext = c.nq;
      }
      if (chance(30))
        c.nan = 1 + below(3);
      fails += one(c, 1);
      runs++;
    }
    printf("random: %d of %d failed; worst o %.2e lse %.2e\n", fails, runs, worst_o, worst_l);
    worst_o = worst_l = 0;
    static const int bigs[][6] = {{1, 32, 8, 4096, 4096, 128}, {1, 32, 8, 4096, 4096, 64},
                                  {3, 16, 4, 1111, 2222, 128}, {3, 16, 4, 1111, 2222, 64},
                                  {2, 12, 12, 1024, 1024, 64}, {16, 16, 16, 1500, 1500, 128}};
    for (auto &s : bigs)
      for (int m = 0; m < 3 && fails < 25; m++) {
        cfg c = {};
        c.B = s[0];
        c.hq = s[1];
        c.hkv = s[2];
        c.nq = s[3];
        c.ext = s[4];
        c.d = c.dv = s[5];
        c.causal = m > 0;
        c.window = m == 2 ? 128 : 0;
        c.sink = m == 2;
        fails += one(c, 97);
        runs++;
      }
    printf("large: %d failed in all; worst o %.2e lse %.2e\n", fails, worst_o, worst_l);
  }
  return fails != 0;
}

/* The roofs' inner loops, in the words of the CPU kernels and compiled like them: once per
 * instruction set, with TGI_ENTRY set to its name. */
#include "roof.h"

#include "cpu/simd.h"

enum { kUnroll = 4, kSums = 12 };

/* Values are maxima: nothing grows, so a run may be repeated for ever. */
TGI_INLINE void move_as(float *const *stream, int reads, int writes, int in_place, int64_t begin,
                        int64_t end, bool past_cache, float *sink)
{
  vf most[kUnroll] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
  for (int64_t j = begin; j < end; j += kUnroll * TGI_LANES) {
    vf v[kUnroll];
    for (int u = 0; u < kUnroll; u++) {
      v[u] = vf_zero();
    }
    for (int s = 0; s < reads; s++) {
      for (int u = 0; u < kUnroll; u++) {
        v[u] = vf_max(vf_load_f32(stream[s] + j + u * TGI_LANES), v[u]);
      }
    }
    for (int s = reads + writes; s < reads + writes + in_place; s++) {
      for (int u = 0; u < kUnroll; u++) {
        v[u] = vf_max(vf_load_f32(stream[s] + j + u * TGI_LANES), v[u]);
      }
    }
    for (int s = reads; s < reads + writes + in_place; s++) {
      for (int u = 0; u < kUnroll; u++) {
        vf_put(stream[s], TG_F32, j + u * TGI_LANES, v[u], past_cache);
      }
    }
    for (int u = 0; u < kUnroll && writes + in_place == 0; u++) {
      most[u] = vf_max(v[u], most[u]);
    }
  }
  if (writes + in_place == 0) {
    *sink = vf_sum(vf_max(vf_max(most[0], most[1]), vf_max(most[2], most[3])));
  }
  vf_stream_fence();
}

/* One loop per mix: the counts of streams are constants in it. */
#define MOVE(r, w, p)                                                                              \
  case (r)*100 + (w)*10 + (p):                                                                     \
    if (past_cache) {                                                                              \
      move_as(stream, r, w, p, begin, end, true, sink);                                            \
    } else {                                                                                       \
      move_as(stream, r, w, p, begin, end, false, sink);                                           \
    }                                                                                              \
    break;
#define MOVE_PLACES(r, w) MOVE(r, w, 0) MOVE(r, w, 1) MOVE(r, w, 2) MOVE(r, w, 3)
#define MOVE_WRITES(r) MOVE_PLACES(r, 0) MOVE_PLACES(r, 1) MOVE_PLACES(r, 2) MOVE_PLACES(r, 3)

static void move(float *const *stream, roof_mix mix, int64_t begin, int64_t end, bool past_cache,
                 float *sink)
{
  switch (mix.reads * 100 + mix.writes * 10 + mix.in_place) {
    MOVE_WRITES(0)
    MOVE_WRITES(1)
    MOVE_WRITES(2)
    MOVE_WRITES(3)
    MOVE_WRITES(4)
  }
}

/* Twelve sums hide four cycles of latency at two operations a cycle, with room to spare. */
static float multiply_add(int64_t iterations)
{
  const vf a = vf_set1(0.999f), b = vf_set1(0.001f);
  /* Every chain starts elsewhere: equal ones would be computed once. */
  vf s0 = vf_set1(0), s1 = vf_set1(1), s2 = vf_set1(2), s3 = vf_set1(3), s4 = vf_set1(4),
     s5 = vf_set1(5), s6 = vf_set1(6), s7 = vf_set1(7), s8 = vf_set1(8), s9 = vf_set1(9),
     s10 = vf_set1(10), s11 = vf_set1(11);
  for (int64_t i = 0; i < iterations; i++) {
    s0 = vf_fma(s0, a, b);
    s1 = vf_fma(s1, a, b);
    s2 = vf_fma(s2, a, b);
    s3 = vf_fma(s3, a, b);
    s4 = vf_fma(s4, a, b);
    s5 = vf_fma(s5, a, b);
    s6 = vf_fma(s6, a, b);
    s7 = vf_fma(s7, a, b);
    s8 = vf_fma(s8, a, b);
    s9 = vf_fma(s9, a, b);
    s10 = vf_fma(s10, a, b);
    s11 = vf_fma(s11, a, b);
  }
  return vf_sum(((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7)) + ((s8 + s9) + (s10 + s11)));
}

#if defined(__AVX512F__)
__attribute__((target("avx512bf16"))) static float dot(int64_t iterations)
{
  const __m512bh a = (__m512bh)_mm512_set1_epi16(0x3f80), b = (__m512bh)_mm512_set1_epi16(1);
  vf s0 = vf_set1(0), s1 = vf_set1(1), s2 = vf_set1(2), s3 = vf_set1(3), s4 = vf_set1(4),
     s5 = vf_set1(5), s6 = vf_set1(6), s7 = vf_set1(7), s8 = vf_set1(8), s9 = vf_set1(9),
     s10 = vf_set1(10), s11 = vf_set1(11);
  for (int64_t i = 0; i < iterations; i++) {
    s0 = _mm512_dpbf16_ps(s0, a, b);
    s1 = _mm512_dpbf16_ps(s1, a, b);
    s2 = _mm512_dpbf16_ps(s2, a, b);
    s3 = _mm512_dpbf16_ps(s3, a, b);
    s4 = _mm512_dpbf16_ps(s4, a, b);
    s5 = _mm512_dpbf16_ps(s5, a, b);
    s6 = _mm512_dpbf16_ps(s6, a, b);
    s7 = _mm512_dpbf16_ps(s7, a, b);
    s8 = _mm512_dpbf16_ps(s8, a, b);
    s9 = _mm512_dpbf16_ps(s9, a, b);
    s10 = _mm512_dpbf16_ps(s10, a, b);
    s11 = _mm512_dpbf16_ps(s11, a, b);
  }
  return _mm512_reduce_add_ps(((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7)) +
                              ((s8 + s9) + (s10 + s11)));
}
#define DOT dot
#else
#define DOT NULL
#endif

#define NAME_(entry) #entry
#define NAME(entry) NAME_(entry)
#define TABLE_(entry) roof_kernels_##entry
#define TABLE(entry) TABLE_(entry)

const roof_kernels TABLE(TGI_ENTRY) = {.entry = NAME(TGI_ENTRY),
                                       .move = move,
                                       .fma = multiply_add,
                                       .fma_flops = 2.0 * TGI_LANES * kSums,
                                       .dot = DOT,
                                       .dot_flops = 4.0 * TGI_LANES * kSums};

/**
 * TGI_UNROLLED(i, n): a loop over i < n, n a small constant, that is unrolled before registers are
 * given out, so that arrays of vectors indexed by i live in registers. gcc needs telling; clang
 * does it by itself.
 */
#ifndef TGI_CPU_UNROLL_H
#define TGI_CPU_UNROLL_H

#ifdef __clang__
#define TGI_UNROLLED(i, n) for (int i = 0; i < (n); i++)
#else
#define TGI_UNROLLED(i, n) _Pragma("GCC unroll 16") for (int i = 0; i < (n); i++)
#endif

#endif

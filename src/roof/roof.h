/**
 * Roofs: what this machine can do at most, measured beside an op in the same run.
 *
 *   copy      moves bytes in an op's own mix of streams: read, written, read and written in place;
 *             with cached or streaming stores, whichever is faster here
 *   read      a copy that writes nothing
 *   fma_f32   fused multiply-adds on registers
 *   dot_bf16  pairs of bf16 products added to f32 (VDPBF16PS), where the processor has it
 *
 * A roof belongs to the machine: its kernels use the best instruction set found, whatever entry the
 * op is timed with.
 */
#ifndef TGI_ROOF_ROOF_H
#define TGI_ROOF_ROOF_H

#include "array_stack.h"
#include <stdint.h>

enum { ROOF_MAX_READS = 4, ROOF_MAX_WRITES = 3, ROOF_MAX_IN_PLACE = 3, ROOF_MAX_STREAMS = 10 };

/** Streams of equal length that a copy moves. */
typedef struct roof_mix {
  int reads, writes, in_place;
} roof_mix;

typedef struct roof roof;

/** A copy (a read, if nothing is written) of about `bytes` in all; in-place streams count twice.
 * Its arrays are taken from the stack: the caller marks and releases. NULL if memory is short. */
roof *roof_copy(array_stack *arrays, int threads, roof_mix mix, double bytes);

/** A read of memory that the caller has: its whole KiB, at an address of 64 bytes. NULL if there is
 * none or memory is short. */
roof *roof_read(int threads, const void *memory, size_t bytes);

/** NULL for dot_bf16 on a processor without it. */
roof *roof_fma_f32(int threads);
roof *roof_dot_bf16(int threads);

void roof_close(roof *r);

/** Runs once; returns the seconds. */
double roof_run(roof *r);

const char *roof_name(const roof *r);
/** One word on how it ran: "2r1w_streaming", "avx512". */
const char *roof_detail(const roof *r);
/** What one run moves and computes. */
double roof_bytes(const roof *r);
double roof_flops(const roof *r);

/* ---- what each instruction set provides (roof_kernels.c) ---- */

typedef struct roof_kernels {
  const char *entry;
  /* Elements [begin, end) of every stream: reads, then writes, then in-place; multiples of 64. */
  void (*move)(float *const *stream, roof_mix mix, int64_t begin, int64_t end, bool past_cache,
               float *sink);
  float (*fma)(int64_t iterations);
  double fma_flops; /* of one iteration */
  float (*dot)(int64_t iterations);
  double dot_flops;
} roof_kernels;

extern const roof_kernels roof_kernels_generic, roof_kernels_avx2, roof_kernels_avx512;

#endif

#include "roof.h"

#include "core/machine/clock.h"
#include "core/machine/processor.h"
#include "core/machine/threads.h"
#include <stdio.h>
#include <stdlib.h>

enum {
  kChunk = 1 << 15,      /* elements of each stream that a thread moves at a time */
  kReadBytes = 1 << 10,  /* the kernels' unrolled loops have no rest */
  kComputeChunks = 8,    /* per thread: evens out threads of unequal speed */
  kComputeSamples = 3,   /* to find out how many iterations fill a run */
  kComputeTargetMs = 20, /* one run */
};

struct roof {
  const roof_kernels *kernels;
  const char *name;
  char detail[40];
  int threads;
  /* copy */
  roof_mix mix;
  float *stream[ROOF_MAX_STREAMS];
  int num_streams;
  int64_t elements; /* of each stream */
  bool past_cache;
  /* fma, dot */
  float (*compute)(int64_t iterations);
  double iteration_flops;
  int64_t iterations; /* of each chunk */
  _Atomic float sink; /* keeps the results alive */
};

static const roof_kernels *best_kernels(const tgi_processor *p)
{
#ifdef TGI_HAVE_X86
  return p->avx512 ? &roof_kernels_avx512 : p->avx2 ? &roof_kernels_avx2 : &roof_kernels_generic;
#else
  (void)p;
  return &roof_kernels_generic;
#endif
}

static roof *new_roof(const char *name, int threads)
{
  const tgi_processor processor = tgi_processor_detect();
  roof *r = calloc(1, sizeof *r);
  if (r) {
    r->kernels = best_kernels(&processor);
    r->name = name;
    r->threads = threads;
  }
  return r;
}

/* ---- copy ---- */

static void move_chunks(void *arg, int64_t begin, int64_t end, int thread)
{
  roof *r = arg;
  float sink = 0;
  (void)thread;
  r->kernels->move(r->stream, r->mix, begin, end, r->past_cache, &sink);
  if (r->mix.writes + r->mix.in_place == 0) {
    r->sink = sink;
  }
}

static double time_copy(roof *r, bool past_cache)
{
  double least = 0;
  r->past_cache = past_cache;
  for (int i = 0; i < 3; i++) {
    const double s = roof_run(r);
    least = i == 0 || s < least ? s : least;
  }
  return least;
}

roof *roof_copy(array_stack *arrays, int threads, roof_mix mix, double bytes)
{
  roof *r = new_roof(mix.writes + mix.in_place ? "copy" : "read", threads);
  if (!r) {
    return NULL;
  }
  r->mix = mix;
  r->num_streams = mix.reads + mix.writes + mix.in_place;
  const double moved = mix.reads + mix.writes + 2.0 * mix.in_place;
  r->elements = (int64_t)(bytes / moved / sizeof(float)) / kChunk * kChunk + kChunk;
  for (int s = 0; s < r->num_streams; s++) {
    r->stream[s] = array_stack_take(arrays, (size_t)r->elements * sizeof(float));
    if (!r->stream[s]) {
      roof_close(r);
      return NULL;
    }
    for (int64_t i = 0; i < r->elements; i++) {
      r->stream[s][i] = 1.0f;
    }
  }
  if (mix.writes + mix.in_place) {
    const double cached = time_copy(r, false), streaming = time_copy(r, true);
    r->past_cache = streaming < cached;
  }
  int n = snprintf(r->detail, sizeof r->detail, "%dr%dw", mix.reads, mix.writes);
  if (mix.in_place) {
    n += snprintf(r->detail + n, sizeof r->detail - (size_t)n, "%di", mix.in_place);
  }
  if (mix.writes + mix.in_place) {
    snprintf(r->detail + n, sizeof r->detail - (size_t)n, r->past_cache ? "_streaming" : "_cached");
  }
  return r;
}

roof *roof_read(int threads, const void *memory, size_t bytes)
{
  roof *r = bytes >= kReadBytes ? new_roof("read", threads) : NULL;
  if (r) {
    r->mix = (roof_mix){1, 0, 0};
    r->num_streams = 1;
    r->stream[0] = (float *)(uintptr_t)memory; /* only read */
    r->elements = (int64_t)(bytes / kReadBytes * kReadBytes / sizeof(float));
    snprintf(r->detail, sizeof r->detail, "1r0w");
  }
  return r;
}

/* ---- arithmetic ---- */

static void compute_chunks(void *arg, int64_t begin, int64_t end, int thread)
{
  roof *r = arg;
  (void)thread;
  for (int64_t i = begin; i < end; i++) {
    r->sink = r->compute(r->iterations);
  }
}

static roof *compute_roof(roof *r)
{
  snprintf(r->detail, sizeof r->detail, "%s", r->kernels->entry);
  r->iterations = 100000;
  for (int i = 0; i < kComputeSamples; i++) {
    const double ms = 1e3 * roof_run(r);
    r->iterations = (int64_t)((double)r->iterations * kComputeTargetMs / ms) + 1;
  }
  return r;
}

roof *roof_fma_f32(int threads)
{
  roof *r = new_roof("fma_f32", threads);
  if (r) {
    r->compute = r->kernels->fma;
    r->iteration_flops = r->kernels->fma_flops;
  }
  return r ? compute_roof(r) : NULL;
}

roof *roof_dot_bf16(int threads)
{
  roof *r = new_roof("dot_bf16", threads);
  if (!r || !r->kernels->dot || !tgi_processor_detect().avx512_bf16) {
    roof_close(r);
    return NULL;
  }
  r->compute = r->kernels->dot;
  r->iteration_flops = r->kernels->dot_flops;
  return compute_roof(r);
}

/* ---- all ---- */

double roof_run(roof *r)
{
  const double start = tgi_clock();
  if (r->compute) {
    tgi_parallel_for(r->threads, r->threads * kComputeChunks, 1, compute_chunks, r);
  } else {
    tgi_parallel_for(r->threads, r->elements, kChunk, move_chunks, r);
  }
  return tgi_clock() - start;
}

void roof_close(roof *r)
{
  free(r);
}

const char *roof_name(const roof *r)
{
  return r->name;
}

const char *roof_detail(const roof *r)
{
  return r->detail;
}

double roof_bytes(const roof *r)
{
  const double moved = r->mix.reads + r->mix.writes + 2.0 * r->mix.in_place;
  return r->compute ? 0 : moved * (double)r->elements * sizeof(float);
}

double roof_flops(const roof *r)
{
  const double chunks = (double)r->threads * kComputeChunks;
  return r->compute ? chunks * (double)r->iterations * r->iteration_flops : 0;
}

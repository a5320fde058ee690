/* Copies on a context's stream, and values that are fetched.
 *
 * The driver copies from pageable memory through pinned memory of its own and lets the host wait
 * for the stream. Here an upload is over for the host once the last piece has been written to
 * pinned memory, and several threads do the writing. */
#include "cuda/runtime/staging.h"

#include "core/device_state.h"
#include "cuda/runtime/runtime_status.h"
#include <stdlib.h>
#include <string.h>

enum { kHalves = 2, kGrain = 512 << 10 };

#define HALF_BYTES ((size_t)4 << 20)

struct tgi_staging {
  char *memory; /* HALF_BYTES for each half */
  cudaEvent_t done[kHalves];
  bool busy[kHalves]; /* a copy from or to the half may be under way, until `done` */
  int next;
};

void tgi_staging_close(tgi_staging *s)
{
  if (!s) {
    return;
  }
  for (int i = 0; i < kHalves; i++) {
    if (s->busy[i]) {
      cudaEventSynchronize(s->done[i]);
    }
    if (s->done[i]) {
      cudaEventDestroy(s->done[i]);
    }
  }
  if (s->memory) {
    cudaFreeHost(s->memory);
  }
  (void)cudaGetLastError();
  free(s);
}

/* The context's; NULL where the host has no more memory to pin. */
static tgi_staging *staging_of(const tg_context *ctx)
{
  tgi_staging *s = ctx->device->staging;
  if (s) {
    return s;
  }
  s = calloc(1, sizeof *s);
  if (!s) {
    return NULL;
  }
  cudaError_t e = cudaHostAlloc((void **)&s->memory, kHalves * HALF_BYTES, cudaHostAllocDefault);
  for (int i = 0; i < kHalves && e == cudaSuccess; i++) {
    e = cudaEventCreateWithFlags(&s->done[i], cudaEventDisableTiming);
  }
  if (e != cudaSuccess) {
    (void)cudaGetLastError();
    tgi_staging_close(s);
    return NULL;
  }
  ctx->device->staging = s;
  return s;
}

/* ---- pieces ---- */

typedef struct copy_job {
  char *to;
  const char *from;
  size_t to_step, from_step, bytes, rows;
} copy_job;

/* What fits a half: `rows` rows, or a part of one. */
typedef struct piece {
  size_t row, rows, offset, bytes; /* bytes of each row */
} piece;

/* The piece after `p`, which starts zeroed; false after the last. */
static bool next_piece(const copy_job *c, piece *p)
{
  size_t row = p->row + p->rows, offset = 0;
  if (p->rows > 0 && p->offset + p->bytes < c->bytes) {
    row = p->row;
    offset = p->offset + p->bytes;
  }
  if (row >= c->rows) {
    return false;
  }
  const size_t left = c->bytes - offset, fit = left < HALF_BYTES ? HALF_BYTES / left : 1;
  const size_t rows = fit < c->rows - row ? fit : c->rows - row;
  *p = (piece){row, offset > 0 ? 1 : rows, offset, left < HALF_BYTES ? left : HALF_BYTES};
  return true;
}

static char *to_of(const copy_job *c, const piece *p)
{
  return c->to + p->row * c->to_step + p->offset;
}

static const char *from_of(const copy_job *c, const piece *p)
{
  return c->from + p->row * c->from_step + p->offset;
}

typedef struct span {
  char *to;
  const char *from;
} span;

static void copy_span(void *arg, int64_t begin, int64_t end, int thread)
{
  const span *s = arg;
  (void)thread;
  memcpy(s->to + begin, s->from + begin, (size_t)(end - begin));
}

/* A piece on the host; its rows are dense in the half. */
static void copy_here(const tg_context *ctx, const piece *p, char *to, size_t to_step,
                      const char *from, size_t from_step)
{
  if (p->rows == 1) {
    span s = {to, from};
    tgi_for(ctx, (int64_t)p->bytes, kGrain, copy_span, &s);
    return;
  }
  for (size_t i = 0; i < p->rows; i++) {
    memcpy(to + i * to_step, from + i * from_step, p->bytes);
  }
}

static cudaError_t copy_rows(void *to, size_t to_step, const void *from, size_t from_step,
                             size_t bytes, size_t rows, enum cudaMemcpyKind kind, void *stream)
{
  return rows == 1 || (to_step == bytes && from_step == bytes)
             ? cudaMemcpyAsync(to, from, bytes * rows, kind, stream)
             : cudaMemcpy2DAsync(to, to_step, from, from_step, bytes, rows, kind, stream);
}

/* ---- through pinned memory ---- */

/* Waits until nothing is under way in a half. */
static cudaError_t settle(tgi_staging *s, int half)
{
  const cudaError_t e = s->busy[half] ? cudaEventSynchronize(s->done[half]) : cudaSuccess;
  s->busy[half] = false;
  return e;
}

/* The next half, with nothing under way in it. */
static cudaError_t take_half(tgi_staging *s, int *half, char **memory)
{
  *half = s->next;
  *memory = s->memory + (size_t)*half * HALF_BYTES;
  s->next = (s->next + 1) % kHalves;
  return settle(s, *half);
}

/* The half is in use until what the stream was given is over. */
static cudaError_t mark(tgi_staging *s, int half, void *stream)
{
  s->busy[half] = true;
  return cudaEventRecord(s->done[half], stream);
}

static cudaError_t upload(const tg_context *ctx, tgi_staging *s, const copy_job *c)
{
  void *stream = ctx->device->stream;
  cudaError_t e = cudaSuccess;
  for (piece p = {0}; e == cudaSuccess && next_piece(c, &p);) {
    int half;
    char *memory;
    e = take_half(s, &half, &memory);
    if (e == cudaSuccess) {
      copy_here(ctx, &p, memory, p.bytes, from_of(c, &p), c->from_step);
      e = copy_rows(to_of(c, &p), c->to_step, memory, p.bytes, p.bytes, p.rows,
                    cudaMemcpyHostToDevice, stream);
    }
    if (e == cudaSuccess) {
      e = mark(s, half, stream);
    }
  }
  return e;
}

/* A piece that lies in a half, once it has come there. */
static cudaError_t unload(const tg_context *ctx, tgi_staging *s, const copy_job *c, const piece *p,
                          int half)
{
  const cudaError_t e = settle(s, half);
  if (e == cudaSuccess) {
    copy_here(ctx, p, to_of(c, p), c->to_step, s->memory + (size_t)half * HALF_BYTES, p->bytes);
  }
  return e;
}

static cudaError_t download(const tg_context *ctx, tgi_staging *s, const copy_job *c)
{
  void *stream = ctx->device->stream;
  piece before = {0};
  int half_before = -1; /* none yet */
  cudaError_t e = cudaSuccess;
  for (piece p = {0}; e == cudaSuccess && next_piece(c, &p);) {
    int half;
    char *memory;
    e = take_half(s, &half, &memory);
    if (e == cudaSuccess) {
      e = copy_rows(memory, p.bytes, from_of(c, &p), c->from_step, p.bytes, p.rows,
                    cudaMemcpyDeviceToHost, stream);
    }
    if (e == cudaSuccess) {
      e = mark(s, half, stream);
    }
    if (e == cudaSuccess && half_before >= 0) {
      e = unload(ctx, s, c, &before, half_before);
    }
    before = p;
    half_before = half;
  }
  return e == cudaSuccess ? unload(ctx, s, c, &before, half_before) : e;
}

/* ---- copies ---- */

/* What CUDA does not know is the host's, and pageable. */
static enum cudaMemoryType kind_of(const void *memory)
{
  struct cudaPointerAttributes found;
  const cudaError_t e = cudaPointerGetAttributes(&found, memory);
  (void)cudaGetLastError();
  return e == cudaSuccess ? found.type : cudaMemoryTypeUnregistered;
}

tg_status tgi_device_copy(const tg_context *ctx, void *to, size_t to_step, const void *from,
                          size_t from_step, size_t bytes, size_t rows)
{
  copy_job c = {to, from, to_step, from_step, bytes, rows};
  if (to_step == bytes && from_step == bytes) {
    c.bytes = bytes * rows;
    c.rows = 1;
  }
  const enum cudaMemoryType there = kind_of(to), here = kind_of(from);
  const bool to_pageable = there == cudaMemoryTypeUnregistered;
  const bool from_pageable = here == cudaMemoryTypeUnregistered;
  tgi_staging *s = to_pageable != from_pageable ? staging_of(ctx) : NULL;
  if (s) {
    return tgi_cuda_check(ctx, "copy", from_pageable ? upload(ctx, s, &c) : download(ctx, s, &c));
  }
  cudaStream_t stream = ctx->device->stream;
  cudaError_t e =
      copy_rows(to, c.to_step, from, c.from_step, c.bytes, c.rows, cudaMemcpyDefault, stream);
  if (e == cudaSuccess &&
      (to_pageable || from_pageable || there == cudaMemoryTypeHost || here == cudaMemoryTypeHost)) {
    e = cudaStreamSynchronize(stream);
  }
  return tgi_cuda_check(ctx, "copy", e);
}

/* ---- values that are fetched ---- */

tg_status tgi_device_fetch_open(const tg_context *ctx, size_t bytes, void **pinned, void **event)
{
  *pinned = NULL;
  *event = NULL;
  cudaError_t e = cudaHostAlloc(pinned, bytes, cudaHostAllocDefault);
  if (e == cudaSuccess) {
    e = cudaEventCreateWithFlags((cudaEvent_t *)event, cudaEventDisableTiming);
  }
  if (e != cudaSuccess) {
    const tg_status status = tgi_cuda_check(ctx, "fetch_create", e);
    tgi_device_fetch_close(*pinned, *event);
    *pinned = NULL;
    *event = NULL;
    return status;
  }
  return TG_OK;
}

tg_status tgi_device_fetch_start(const tg_context *ctx, void *pinned, const void *from,
                                 size_t bytes, void *event)
{
  cudaStream_t stream = ctx->device->stream;
  cudaError_t e = cudaMemcpyAsync(pinned, from, bytes, cudaMemcpyDeviceToHost, stream);
  if (e == cudaSuccess) {
    e = cudaEventRecord(event, stream);
  }
  return tgi_cuda_check(ctx, "fetch_start", e);
}

tg_status tgi_device_fetch_wait(const tg_context *ctx, void *event)
{
  return tgi_cuda_check(ctx, "fetch_wait", cudaEventSynchronize(event));
}

void tgi_device_fetch_close(void *pinned, void *event)
{
  if (event) {
    cudaEventDestroy(event);
  }
  if (pinned) {
    cudaFreeHost(pinned);
  }
  (void)cudaGetLastError();
}

/* Measures candidates by events on the context's stream: rounds in which each runs in turn, and the
 * median of each. */
#include "cuda/runtime/measured_products.h"

#include "cuda/runtime/runtime_status.h"

#include <stdio.h>
#include <string.h>

enum { kRounds = 5, kMostRuns = 50 };

static const float kRoundMilliseconds = 2; /* of each candidate, about */

/* ---- the table ---- */

/* The version of the driver, as its module has it, or as the runtime tells it. */
static void name_driver(char *text, size_t bytes)
{
  FILE *file = fopen("/sys/module/nvidia/version", "r");
  int version = 0;
  if (file && fgets(text, (int)bytes, file)) {
    text[strcspn(text, "\n")] = 0;
  } else if (cudaDriverGetVersion(&version) == cudaSuccess) {
    snprintf(text, bytes, "CUDA %d", version);
  }
  if (file) {
    fclose(file);
  }
}

/* Other GPUs have no candidates. */
static bool has_candidates(const tgi_device *device)
{
  return (device->entries & 1U << TGI_CUDA_SM90) != 0;
}

void tgi_tune_open(tgi_device *device)
{
  struct cudaDeviceProp properties;
  tgi_tuned_owner owner = {{0}, {0}, {0}};
  if (device->tuned || !has_candidates(device) ||
      cudaGetDeviceProperties(&properties, device->index) != cudaSuccess) {
    (void)cudaGetLastError();
    return;
  }
  snprintf(owner.gpu, sizeof owner.gpu, "%.127s", properties.name);
  name_driver(owner.driver, sizeof owner.driver);
  snprintf(owner.build, sizeof owner.build, "%s %s", TEGULA_VERSION, TGI_PRODUCTS_BUILD);
  device->tuned = tgi_tuned_open(&owner);
}

tg_status tgi_device_tune_begin(const tg_context *ctx)
{
  tgi_device *d = ctx->device;
  if (!d->prepared) {
    return tgi_report(ctx, TG_BAD_ARGUMENT,
                      "tune_begin: ctx: expected a prepared context, got one "
                      "that is not");
  }
  if (!d->tuned && !has_candidates(d)) {
    return TG_OK;
  }
  if (!d->tuned) {
    return tgi_report(ctx, TG_NO_MEMORY, "tune_begin: expected memory for a table, got none");
  }
  tgi_tuned_clear_fresh(d->tuned);
  d->measured = 0;
  d->tuning = true;
  return TG_OK;
}

tg_status tgi_device_tune_end(const tg_context *ctx, int64_t *measured)
{
  tgi_device *d = ctx->device;
  tg_error error = {.status = TG_OK};
  *measured = d->tuning ? d->measured : 0;
  d->tuning = false;
  if (*measured == 0 || tgi_tuned_save(d->tuned, &error) == TG_OK) {
    return TG_OK;
  }
  return tgi_report(ctx, error.status, "%s", error.text);
}

/* ---- measuring ---- */

typedef struct stopwatch {
  const tg_context *ctx;
  cudaEvent_t begin, end;
  tgi_candidate_run *run;
  void *state;
} stopwatch;

/* Milliseconds of one run among `runs`. */
static tg_status time_runs(const stopwatch *w, int candidate, int runs, float *each)
{
  cudaStream_t stream = (cudaStream_t)w->ctx->device->stream;
  float all = 0;
  cudaError_t e = cudaEventRecord(w->begin, stream);
  for (int i = 0; i < runs && e == cudaSuccess; i++) {
    const tg_status status = w->run(w->state, candidate);
    if (status != TG_OK) {
      return status;
    }
  }
  e = e == cudaSuccess ? cudaEventRecord(w->end, stream) : e;
  e = e == cudaSuccess ? cudaEventSynchronize(w->end) : e;
  e = e == cudaSuccess ? cudaEventElapsedTime(&all, w->begin, w->end) : e;
  *each = all / (float)runs;
  return tgi_cuda_check(w->ctx, "tune", e);
}

static float median(float (*values)[kRounds])
{
  for (int i = 1; i < kRounds; i++) {
    for (int j = i; j > 0 && (*values)[j] < (*values)[j - 1]; j--) {
      const float swap = (*values)[j];
      (*values)[j] = (*values)[j - 1];
      (*values)[j - 1] = swap;
    }
  }
  return (*values)[kRounds / 2];
}

/* The candidates that take the product, and how many runs of each are a round. */
static tg_status find_runners(const stopwatch *w, const int (*candidates)[TGI_CANDIDATES],
                              int (*able)[TGI_CANDIDATES], int (*runs)[TGI_CANDIDATES], int *count)
{
  *count = 0;
  for (int i = 0; i < TGI_CANDIDATES && (*candidates)[i] != TGI_TUNED_NONE; i++) {
    float each = 0;
    tg_status status = time_runs(w, (*candidates)[i], 1, &each); /* loads its code */
    status = status == TG_OK ? time_runs(w, (*candidates)[i], 1, &each) : status;
    if (status == TG_UNSUPPORTED) {
      continue;
    }
    if (status != TG_OK) {
      return status;
    }
    const float wanted = kRoundMilliseconds / (each > 1e-3F ? each : 1e-3F);
    (*able)[*count] = (*candidates)[i];
    (*runs)[*count] = wanted < 1 ? 1 : wanted > kMostRuns ? kMostRuns : (int)wanted;
    ++*count;
  }
  return TG_OK;
}

static tg_status measure(const stopwatch *w, const tgi_tuned_key *key,
                         const int (*candidates)[TGI_CANDIDATES])
{
  int able[TGI_CANDIDATES], runs[TGI_CANDIDATES];
  float times[TGI_CANDIDATES][kRounds];
  int count = 0;
  tg_status status = find_runners(w, candidates, &able, &runs, &count);
  for (int round = 0; round < kRounds && status == TG_OK; round++) {
    for (int i = 0; i < count && status == TG_OK; i++) {
      status = time_runs(w, able[i], runs[i], &times[i][round]);
    }
  }
  if (status == TG_UNSUPPORTED) { /* would send the caller to another kernel */
    return tgi_report(w->ctx, TG_DEVICE,
                      "tune: expected a candidate that goes on to take the product, got one that "
                      "declined it");
  }
  if (status != TG_OK) {
    return status;
  }
  tgi_tuned_product best = {.key = *key, .candidate = TGI_TUNED_NONE, .fresh = true};
  for (int i = 0; i < count; i++) {
    const float us = 1e3F * median(&times[i]);
    if (best.candidate == TGI_TUNED_NONE || us < best.microseconds) {
      best.candidate = able[i];
      best.microseconds = us;
    }
  }
  if (best.candidate != TGI_TUNED_NONE && tgi_tuned_put(w->ctx->device->tuned, &best)) {
    w->ctx->device->measured++;
  }
  return TG_OK;
}

/* Whether the stream's calls are being recorded, so that nothing can be waited for. An error says
 * so of the legacy stream, beside another one that is recorded. */
static bool is_recording(const tg_context *ctx)
{
  enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing((cudaStream_t)ctx->device->stream, &status) != cudaSuccess) {
    (void)cudaGetLastError();
    return true;
  }
  return status != cudaStreamCaptureStatusNone;
}

bool tgi_tune_wants(const tg_context *ctx, const tgi_tuned_key *key)
{
  return ctx->device->tuning && !tgi_tuned_is_fresh(ctx->device->tuned, key) && !is_recording(ctx);
}

tg_status tgi_tune_measure(const tg_context *ctx, const tgi_tuned_key *key,
                           const int (*candidates)[TGI_CANDIDATES], tgi_candidate_run *run,
                           void *state)
{
  stopwatch w = {.ctx = ctx, .run = run, .state = state};
  cudaError_t e = cudaEventCreate(&w.begin);
  if (e == cudaSuccess) {
    e = cudaEventCreate(&w.end);
  }
  const tg_status status = e == cudaSuccess ? measure(&w, key, candidates) : TG_OK;
  cudaEventDestroy(w.begin);
  cudaEventDestroy(w.end);
  (void)cudaGetLastError();
  return tgi_cuda_check(ctx, "tune", e) == TG_OK ? status : TG_DEVICE;
}

#include "bench_timing.h"

#include "core/machine/clock.h"
#include "host_load.h"
#include <stdio.h>
#include <stdlib.h>

enum { kSampleMs = 30, kMaxRoofBytes = 1 << 30 };

typedef struct samples {
  double value[BENCH_MAX_PAIRS];
  int n;
} samples;

static int ascending(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static double median(const samples *s)
{
  samples sorted = *s;
  qsort(sorted.value, (size_t)s->n, sizeof sorted.value[0], ascending);
  return (sorted.value[(s->n - 1) / 2] + sorted.value[s->n / 2]) / 2;
}

static bench_result summary(const samples *s)
{
  bench_result r = {1e3 * median(s), 1e3 * s->value[0], 1e3 * s->value[0]};
  for (int i = 1; i < s->n; i++) {
    r.ms_min = fmin(r.ms_min, 1e3 * s->value[i]);
    r.ms_max = fmax(r.ms_max, 1e3 * s->value[i]);
  }
  return r;
}

/* Seconds of one call, from enough calls to fill a sample. */
static double time_calls(bench_case *c, int calls)
{
  const double start = tgi_clock();
  for (int i = 0; i < calls; i++) {
    if (bench_case_run(c) != TG_OK) {
      return -1;
    }
  }
  return (tgi_clock() - start) / calls;
}

/* Touches every set, then finds how many calls fill a sample; 0 if the op refuses. */
static int warm_up(bench_case *c)
{
  if (time_calls(c, c->num_sets) < 0) {
    return 0;
  }
  const double seconds = time_calls(c, c->num_sets);
  const double calls = 1e-3 * kSampleMs / (seconds > 1e-9 ? seconds : 1e-9);
  return seconds < 0 ? 0 : calls < 1 ? 1 : (int)calls + 1;
}

static roof *open_roof(const bench_case *c)
{
  const int threads = tg_context_num_threads(c->ctx);
  if (c->computes) {
    roof *dot = c->dtype == TG_BF16 ? roof_dot_bf16(threads) : NULL;
    return dot ? dot : roof_fma_f32(threads);
  }
  const double bytes = (c->cost.read_bytes + c->cost.written_bytes) * c->num_sets;
  return roof_copy(c->arrays, threads, c->mix, bytes < kMaxRoofBytes ? bytes : kMaxRoofBytes);
}

static double rate(const bench_case *c, double bytes, double flops)
{
  return c->computes ? flops : bytes;
}

bool bench_time(bench_case *c, int pairs, bench_timing *t)
{
  samples ours = {.n = 0}, peak = {.n = 0}, share = {.n = 0};
  const host_load before = host_load_now();
  const array_stack mark = *c->arrays;
  const int calls = warm_up(c);
  roof *r = calls ? open_roof(c) : NULL;
  if (!r) {
    fprintf(stderr, "%s %s: %s\n", c->spec->name, c->shape,
            calls ? "no memory for the roof" : tg_context_message(c->ctx));
    return false;
  }
  t->roof_bytes = roof_bytes(r);
  t->roof_flops = roof_flops(r);
  const double work = rate(c, c->cost.read_bytes + c->cost.written_bytes, c->cost.flops);
  for (int i = 0; i < pairs; i++) {
    const double mine = time_calls(c, calls), best = roof_run(r);
    ours.value[ours.n++] = mine;
    peak.value[peak.n++] = best;
    share.value[share.n++] = work / mine / (rate(c, t->roof_bytes, t->roof_flops) / best);
  }
  t->ours = summary(&ours);
  t->roof = summary(&peak);
  t->share = median(&share);
  snprintf(t->roof_name, sizeof t->roof_name, "%s", roof_name(r));
  snprintf(t->roof_detail, sizeof t->roof_detail, "%s", roof_detail(r));
  snprintf(t->note, sizeof t->note, "roof %s; other load %.2f", roof_detail(r),
           host_load_since(&before));
  roof_close(r);
  array_stack_release(c->arrays, &mark);
  return true;
}

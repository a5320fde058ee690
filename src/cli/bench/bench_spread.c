#include "bench_spread.h"

#include <math.h>
#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double quantile(const double *sorted, size_t count, double q)
{
  const double place = q * (double)(count - 1);
  const size_t below = (size_t)place, above = below + 1 < count ? below + 1 : below;
  return sorted[below] + (place - (double)below) * (sorted[above] - sorted[below]);
}

tgi_spread tgi_spread_of(double *seconds, size_t count)
{
  tgi_spread s = {0};
  double squares = 0;
  qsort(seconds, count, sizeof *seconds, by_value);
  for (size_t i = 0; i < count; i++) {
    s.mean += seconds[i] / (double)count;
  }
  for (size_t i = 0; i < count; i++) {
    squares += (seconds[i] - s.mean) * (seconds[i] - s.mean) / (double)count;
  }
  s.deviation = sqrt(squares);
  s.least = seconds[0];
  s.most = seconds[count - 1];
  s.median = quantile(seconds, count, 0.5);
  s.p95 = quantile(seconds, count, 0.95);
  s.p99 = quantile(seconds, count, 0.99);
  return s;
}

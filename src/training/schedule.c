/* Learning rates: pure functions of the options and the step. */
#include "tegula/train.h"

#include <math.h>

/* How far a step is from `first` to the last one, 0 to 1. */
static double progress(int64_t step, int64_t first, int64_t last)
{
  if (last <= first || step >= last) {
    return 1;
  }
  return step <= first ? 0 : (double)(step - first) / (double)(last - first);
}

/* The last step of the stable part. The decay has whole steps, at least one. */
static int64_t stable_end(const tg_trainer_options *o)
{
  const int64_t wanted = llround(o->decay_fraction * (double)o->num_steps);
  const int64_t end = o->num_steps - (wanted > 1 ? wanted : 1);
  return end > o->warmup_steps ? end : o->warmup_steps;
}

/* The share of the way from min_learning_rate to the peak. */
static double share(const tg_trainer_options *o, int64_t step)
{
  switch (o->schedule) {
  case TG_SCHEDULE_CONSTANT:
    return 1;
  case TG_SCHEDULE_LINEAR:
    return 1 - progress(step, o->warmup_steps, o->num_steps);
  case TG_SCHEDULE_WSD:
    return 1 - progress(step, stable_end(o), o->num_steps);
  case TG_SCHEDULE_COSINE:
  default:
    break;
  }
  return 0.5 * (1 + cos(3.141592653589793 * progress(step, o->warmup_steps, o->num_steps)));
}

double tg_trainer_learning_rate(const tg_trainer_options *o, int64_t step)
{
  if (step <= o->warmup_steps && o->warmup_steps > 0) {
    return o->learning_rate * (double)(step > 0 ? step : 0) / (double)o->warmup_steps;
  }
  const double of_peak = share(o, step);
  return of_peak >= 1 ? o->learning_rate
                      : o->min_learning_rate + (o->learning_rate - o->min_learning_rate) * of_peak;
}

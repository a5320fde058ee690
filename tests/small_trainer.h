/* Trainers of small models on either backend, for tests that compare them. */
#ifndef TEGULA_TESTS_SMALL_TRAINER_H
#define TEGULA_TESTS_SMALL_TRAINER_H

#include "tegula/tegula.h"
#include "tegula/train.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "expect.h"

enum { kBatch = 4, kSeq = 64, kVocab = 257, kCurve = 200 };

static const char *const kPresets[] = {"gpt_nano", "qwen3_nano"};

static inline void skip_without_gpu(void)
{
  if (tg_device_count() == 0) {
    skip();
  }
}

static inline tg_model *new_model(const char *preset)
{
  tg_model *model = NULL;
  tg_error error = {0};
  EXPECT_OK(tg_model_create(preset, kVocab, 5, &model, &error), error);
  return model;
}

static inline tg_trainer_options options_on(tg_backend backend, tg_dtype dtype)
{
  return (tg_trainer_options){.batch_size = kBatch,
                              .sequence_length = kSeq,
                              .num_steps = kCurve,
                              .warmup_steps = 20,
                              .learning_rate = 1e-3,
                              .min_learning_rate = 1e-4,
                              .beta1 = 0.9,
                              .beta2 = 0.99,
                              .eps = 1e-8,
                              .weight_decay = 0.1,
                              .max_grad_norm = 1,
                              .dtype = dtype,
                              .backend = backend};
}

static inline tg_trainer *new_trainer(tg_model *model, tg_backend backend, tg_dtype dtype)
{
  tg_trainer *t = NULL;
  tg_error error = {0};
  const tg_trainer_options o = options_on(backend, dtype);
  EXPECT_OK(tg_trainer_create(model, &o, &t, &error), error);
  return t;
}

/* Words of a small language, so that there is something to learn. */
static inline void make_batch(int64_t step, int32_t *ids, int32_t *targets)
{
  uint32_t state = (uint32_t)step * 2654435761u + 1;
  int32_t stream[kBatch * kSeq + 1];
  for (int i = 0; i <= kBatch * kSeq; i++) {
    state = state * 1664525u + 1013904223u;
    stream[i] = i % 4 && i ? (stream[i - 1] * 5 + 3) % kVocab : (int32_t)((state >> 16) % kVocab);
  }
  memcpy(ids, stream, kBatch * kSeq * sizeof *ids);
  memcpy(targets, stream + 1, kBatch * kSeq * sizeof *targets);
}

static inline void expect_close(const char *what, const float *got, const float *want, int64_t n,
                                double bound)
{
  double most = 0, worst = 0;
  for (int64_t i = 0; i < n; i++) {
    const double d = fabs((double)got[i] - (double)want[i]);
    most = fmax(most, fabs((double)want[i]));
    worst = d > worst || isnan(d) ? d : worst;
  }
  if (!(worst <= bound * most)) {
    fail_msg("%s: expected a difference of at most %g of %g, got %g", what, bound, most, worst);
  }
}

#endif

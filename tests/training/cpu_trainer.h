/** Trainers of nano models on the CPU at any number of threads, and their steps. After cmocka.h. */
#ifndef TEGULA_TESTS_CPU_TRAINER_H
#define TEGULA_TESTS_CPU_TRAINER_H

#include "expect.h"
#include "model/weights/weights.h"
#include "tegula/train.h"

enum { kBatch = 2, kSeq = 24, kVocab = 257 };

static inline tg_trainer_options good_options(int threads)
{
  return (tg_trainer_options){.batch_size = kBatch,
                              .sequence_length = kSeq,
                              .num_steps = 20,
                              .warmup_steps = 4,
                              .learning_rate = 1e-2,
                              .min_learning_rate = 1e-3,
                              .beta1 = 0.9,
                              .beta2 = 0.99,
                              .eps = 1e-8,
                              .weight_decay = 0.1,
                              .max_grad_norm = 1,
                              .num_threads = threads};
}

static inline tg_model *new_model_of(const char *preset)
{
  tg_model *model = NULL;
  tg_error error = {0};
  EXPECT_OK(tg_model_create(preset, kVocab, 5, &model, &error), error);
  return model;
}

static inline tg_model *new_model(void)
{
  return new_model_of("gpt_nano");
}

static inline tg_trainer *new_trainer_as(tg_model *model, int threads, tg_dtype dtype)
{
  tg_trainer *t = NULL;
  tg_error error = {0};
  tg_trainer_options o = good_options(threads);
  o.dtype = dtype;
  EXPECT_OK(tg_trainer_create(model, &o, &t, &error), error);
  return t;
}

static inline tg_trainer *new_trainer(tg_model *model, int threads)
{
  return new_trainer_as(model, threads, TG_F32);
}

/* Batch `step`: pure function of the step. */
static inline void make_batch(int64_t step, int32_t *ids, int32_t *targets)
{
  for (int i = 0; i < kBatch * kSeq; i++) {
    ids[i] = (int32_t)((step * 31 + i * 7) % kVocab);
    targets[i] = (int32_t)((step * 31 + i * 7 + 7) % kVocab);
  }
}

static inline void run_steps(tg_trainer *t, int64_t first, int64_t last)
{
  int32_t ids[kBatch * kSeq], targets[kBatch * kSeq];
  tg_error error = {0};
  for (int64_t step = first; step <= last; step++) {
    make_batch(step, ids, targets);
    EXPECT_OK(
        tg_trainer_step(t, &(tg_train_batch){.tokens = ids, .targets = targets}, NULL, &error),
        error);
  }
}

static inline void assert_same_weights(const tg_model *a, const tg_model *b)
{
  assert_int_equal(a->parameters.elements, b->parameters.elements);
  assert_memory_equal(a->block, b->block, (size_t)a->parameters.elements * sizeof(float));
}

#endif

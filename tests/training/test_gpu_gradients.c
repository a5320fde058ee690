/* Losses and gradients of whole models on a GPU beside the CPU's. Skipped where there is no GPU. */
#include "small_trainer.h"

#include "family_training.h"

static void check_gradients(const char *preset)
{
  tg_model *model[2] = {new_model(preset), new_model(preset)};
  tg_trainer *cpu = new_trainer(model[0], TG_BACKEND_CPU, TG_F32);
  tg_trainer *gpu = new_trainer(model[1], TG_BACKEND_CUDA, TG_F32);
  int32_t ids[kBatch * kSeq], targets[kBatch * kSeq];
  double loss[2];
  tg_error error = {0};
  make_batch(1, ids, targets);
  targets[5] = -100;
  EXPECT_OK(tg_trainer_backward(cpu, &(tg_train_batch){.tokens = ids, .targets = targets}, &loss[0],
                                &error),
            error);
  EXPECT_OK(tg_trainer_backward(gpu, &(tg_train_batch){.tokens = ids, .targets = targets}, &loss[1],
                                &error),
            error);
  assert_true(fabs(loss[0] - loss[1]) <= 2e-6 * loss[0]);
  tg_tensor a, b;
  for (size_t i = 0; tg_trainer_gradient(cpu, i, &a) == TG_OK; i++) {
    const char *name;
    tg_model_parameter(model[0], i, NULL, &name);
    assert_int_equal(tg_trainer_gradient(gpu, i, &b), TG_OK);
    const int64_t n = a.shape[0] * (a.ndim == 2 ? a.shape[1] : 1);
    expect_close(name, b.data, a.data, n, 2e-5);
  }
  tg_trainer_destroy(cpu);
  tg_trainer_destroy(gpu);
  tg_model_destroy(model[0]);
  tg_model_destroy(model[1]);
}

/* Frobenius norm of got - want over that of want. */
static double distance(const tg_tensor *got, const tg_tensor *want)
{
  const int64_t n = want->shape[0] * (want->ndim == 2 ? want->shape[1] : 1);
  const float *a = got->data, *b = want->data;
  double sum = 0, all = 0;
  for (int64_t i = 0; i < n; i++) {
    const double d = (double)a[i] - (double)b[i];
    sum += d * d;
    all += (double)b[i] * (double)b[i];
  }
  return all > 0 ? sqrt(sum / all) : sqrt(sum);
}

/* In bf16, where attention runs on tensor cores: no gradient is further from the f32 one than twice
 * the CPU's own bf16 gradient. */
static void check_rounded_gradients(const char *preset)
{
  enum { kExact, kCpu, kGpu, kRuns };
  static const tg_backend backends[kRuns] = {TG_BACKEND_CPU, TG_BACKEND_CPU, TG_BACKEND_CUDA};
  static const tg_dtype dtypes[kRuns] = {TG_F32, TG_BF16, TG_BF16};
  tg_model *model[kRuns];
  tg_trainer *trainer[kRuns];
  int32_t ids[kBatch * kSeq], targets[kBatch * kSeq];
  double loss[kRuns];
  tg_error error = {0};
  make_batch(1, ids, targets);
  for (int r = 0; r < kRuns; r++) {
    model[r] = new_model(preset);
    trainer[r] = new_trainer(model[r], backends[r], dtypes[r]);
    EXPECT_OK(tg_trainer_backward(trainer[r], &(tg_train_batch){.tokens = ids, .targets = targets},
                                  &loss[r], &error),
              error);
  }
  assert_true(fabs(loss[kGpu] - loss[kExact]) <= 5e-3 * loss[kExact]);
  tg_tensor exact, cpu, gpu;
  for (size_t i = 0; tg_trainer_gradient(trainer[kExact], i, &exact) == TG_OK; i++) {
    const char *name;
    tg_model_parameter(model[kExact], i, NULL, &name);
    assert_int_equal(tg_trainer_gradient(trainer[kCpu], i, &cpu), TG_OK);
    assert_int_equal(tg_trainer_gradient(trainer[kGpu], i, &gpu), TG_OK);
    const double mine = distance(&gpu, &exact), other = distance(&cpu, &exact);
    if (!(mine <= 2 * other + 1e-5)) {
      fail_msg("%s %s: expected a distance of at most twice the CPU's %g, got %g", preset, name,
               other, mine);
    }
  }
  for (int r = 0; r < kRuns; r++) {
    tg_trainer_destroy(trainer[r]);
    tg_model_destroy(model[r]);
  }
}

static void test_gradients(void **state)
{
  (void)state;
  skip_without_gpu();
  for (size_t i = 0; i < sizeof kPresets / sizeof kPresets[0]; i++) {
    check_gradients(kPresets[i]);
    check_rounded_gradients(kPresets[i]);
  }
}

/* Rows of documents in micro-batches: the CPU's gradients of the documents alone, every family. */
/* The auxiliary loss of routers, of documents in micro-batches. */
static void test_router_balance(void **state)
{
  (void)state;
  skip_without_gpu();
  const packed_rows p = make_rows(3);
  for (int f = 0; f < kSparseFamilies; f++) {
    tg_model *model = family_model(kSparse[f]);
    for (int32_t micro = 2; micro <= kRows; micro *= 2) {
      const tg_trainer_options cpu = balanced_options(TG_BACKEND_CPU, micro, 0.5);
      const tg_trainer_options gpu = balanced_options(TG_BACKEND_CUDA, micro, 0.5);
      gradient_sum want = balanced_gradients(model, &p, &cpu);
      gradient_sum got = balanced_gradients(model, &p, &gpu);
      expect_same_gradients(model, &got, &want, 2e-5);
      free(want.of);
      free(got.of);
    }
    tg_model_destroy(model);
  }
}

static void test_documents(void **state)
{
  (void)state;
  skip_without_gpu();
  const packed_rows p = make_rows(1);
  for (size_t f = 0; f < sizeof kEveryFamily / sizeof kEveryFamily[0]; f++) {
    tg_model *model = family_model(kEveryFamily[f]);
    gradient_sum want = separate_gradients(model, &p, TG_BACKEND_CPU);
    for (int32_t micro = 1; micro <= kRows; micro *= 2) {
      gradient_sum got = packed_gradients(model, &p, TG_BACKEND_CUDA, micro);
      expect_same_gradients(model, &got, &want, 2e-5);
      free(got.of);
    }
    free(want.of);
    tg_model_destroy(model);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_gradients),
                                     cmocka_unit_test(test_documents),
                                     cmocka_unit_test(test_router_balance)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Models on a GPU beside the CPU: logits, the curve of a run, checkpoints that change the
 * device. Skipped where there is no GPU. */
#include "model/weights/weights.h"
#include "scratch_directory.h"
#include "tegula/tegula.h"
#include "tegula/train.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "generation.h"
#include "small_trainer.h"

static double run_steps(tg_trainer *t, int64_t first, int64_t last)
{
  int32_t ids[kBatch * kSeq], targets[kBatch * kSeq];
  tg_error error = {0};
  tg_step_result result = {0};
  for (int64_t step = first; step <= last; step++) {
    make_batch(step, ids, targets);
    EXPECT_OK(
        tg_trainer_step(t, &(tg_train_batch){.tokens = ids, .targets = targets}, &result, &error),
        error);
  }
  return result.loss;
}

/* Step by step within one percent, and the GPU's run has the same bits again. */
static void check_curve(const char *preset, tg_dtype dtype)
{
  tg_model *model[3] = {new_model(preset), new_model(preset), new_model(preset)};
  tg_trainer *cpu = new_trainer(model[0], TG_BACKEND_CPU, dtype);
  tg_trainer *gpu = new_trainer(model[1], TG_BACKEND_CUDA, dtype);
  tg_trainer *again = new_trainer(model[2], TG_BACKEND_CUDA, dtype);
  double first = 0, last = 0;
  for (int64_t step = 1; step <= kCurve; step++) {
    last = run_steps(cpu, step, step);
    const double on_gpu = run_steps(gpu, step, step), repeated = run_steps(again, step, step);
    first = step == 1 ? last : first;
    if (!(fabs(on_gpu - last) <= 0.01 * last)) {
      fail_msg("%s, step %lld: expected %g within 1 %%, got %g", preset, (long long)step, last,
               on_gpu);
    }
    assert_true(on_gpu == repeated);
  }
  assert_true(last < 0.7 * first);
  tg_error error = {0};
  EXPECT_OK(tg_trainer_sync(gpu, &error), error);
  EXPECT_OK(tg_trainer_sync(cpu, &error), error);
  tg_trainer_destroy(cpu);
  tg_trainer_destroy(again); /* brings its model's weights up to date, too */
  assert_memory_equal(model[1]->block, model[2]->block,
                      (size_t)model[1]->parameters.elements * sizeof(float));
  tg_trainer_destroy(gpu);
  for (int i = 0; i < 3; i++) {
    tg_model_destroy(model[i]);
  }
}

static void test_curves(void **state)
{
  (void)state;
  skip_without_gpu();
  for (size_t i = 0; i < sizeof kPresets / sizeof kPresets[0]; i++) {
    check_curve(kPresets[i], TG_F32);
    check_curve(kPresets[i], TG_BF16);
  }
}

static tg_session *new_session(const tg_model *model, tg_backend backend, tg_dtype cache)
{
  tg_session *s = NULL;
  tg_error error = {0};
  const tg_session_options o = {.max_tokens = 128, .backend = backend, .cache_dtype = cache};
  EXPECT_OK(tg_session_create(model, &o, &s, &error), error);
  return s;
}

/* A prompt, tokens one by one, a cut, and on; the cache in the weights' dtype or another. */
static void check_logits(const char *preset, tg_dtype cache, double bound)
{
  tg_model *model = new_model(preset);
  tg_session *cpu = new_session(model, TG_BACKEND_CPU, cache);
  tg_session *gpu = new_session(model, TG_BACKEND_CUDA, cache);
  int32_t ids[kBatch * kSeq], targets[kBatch * kSeq];
  tg_error error = {0};
  make_batch(3, ids, targets);
  assert_null(tg_session_logits(gpu));
  for (int i = 0; i < 12; i++) {
    const int64_t count = i == 0 ? 40 : i == 8 ? 17 : 1;
    EXPECT_OK(tg_session_feed(cpu, ids + i, count, &error), error);
    EXPECT_OK(tg_session_feed(gpu, ids + i, count, &error), error);
    expect_close(preset, tg_session_logits(gpu), tg_session_logits(cpu), kVocab, bound);
    if (i == 5) {
      assert_int_equal(tg_session_truncate(cpu, 20), TG_OK);
      assert_int_equal(tg_session_truncate(gpu, 20), TG_OK);
      assert_null(tg_session_logits(gpu));
    }
  }
  tg_session_destroy(cpu);
  tg_session_destroy(gpu);
  tg_model_destroy(model);
}

static void test_logits(void **state)
{
  (void)state;
  skip_without_gpu();
  for (size_t i = 0; i < sizeof kPresets / sizeof kPresets[0]; i++) {
    check_logits(kPresets[i], TG_DTYPE_NONE, 2e-5);
    check_logits(kPresets[i], TG_F16, 3e-3);
    check_logits(kPresets[i], TG_BF16, 3e-2);
  }
}

/* The second call of a shape is recorded and later ones are launched: for other ids, with rows of
 * another shape between, and in 16 bits, the bits are those of a session's first call. */
static void check_recorded_forward(const tg_model *model, tg_session *gpu, int32_t *ids,
                                   float *logits)
{
  enum { batch = 3, seq = 9 };
  static float want[batch * seq * kIds];
  tg_error error;
  assert_non_null(gpu->forward->graph);
  for (int turn = 0; turn < 3; turn++) {
    tg_session *fresh = generation_session(model, (generation_form){.backend = TG_BACKEND_CUDA});
    ids[turn] = (ids[turn] + 7) % kIds;
    const int64_t rows = turn == 1 ? 1 : batch;
    const tg_dtype dtype = turn == 2 ? tg_model_get_info(model).dtype : TG_F32;
    EXPECT_OK(tg_session_forward(gpu, ids, rows, seq, 0,
                                 tg_tensor_2d(logits, dtype, rows * seq, kIds), &error),
              error);
    EXPECT_OK(tg_session_forward(fresh, ids, rows, seq, 0,
                                 tg_tensor_2d(want, dtype, rows * seq, kIds), &error),
              error);
    assert_memory_equal(logits, want, (size_t)(rows * seq * kIds) * tg_dtype_bytes(dtype));
    tg_session_destroy(fresh);
  }
}

/* A call of several passes is recorded if they have one shape. */
static void check_pieces(tg_session *gpu, const int32_t *ids)
{
  enum { seq = kRoom, most = 48 };
  static int32_t many[most * seq];
  static float logits[most * kIds];
  static const int64_t batches[] = {48, 32, 48};
  tg_error error;
  for (int i = 0; i < most * seq; i++) {
    many[i] = ids[i % 9];
  }
  for (size_t i = 0; i < sizeof batches / sizeof batches[0]; i++) {
    const tg_tensor to = tg_tensor_2d(logits, TG_F32, batches[i], kIds);
    for (int turn = 0; turn < 2; turn++) { /* passes of 32 rows, and one of 16 */
      EXPECT_OK(tg_session_forward(gpu, many, batches[i], seq, TG_FORWARD_LAST, to, &error), error);
    }
    assert_int_equal(gpu->forward->graph != NULL, batches[i] == 32);
  }
}

/* Norms of generation_model's f32 models as they start. With four times that, scores are so large
 * that an ulp in each weight moves logits by up to 1.1e-5 of the largest: as much as two orders of
 * summation may. So it moves them by 1.4e-6. */
static void restore_norms(tg_model *model)
{
  for (int i = 0; i < model->parameters.count; i++) {
    const tg_tensor t = tgi_parameter_view(&model->parameters, i, model->block, TG_F32);
    for (int64_t k = 0; t.ndim == 1 && k < t.shape[0]; k++) {
      ((float *)t.data)[k] /= 4;
    }
  }
}

/* Logits of whole texts: to host memory and to the GPU's, where both have the same bits. */
static void check_forward(const char *family, tg_dtype dtype, double bound)
{
  enum { batch = 3, seq = 40, rows = batch * seq };
  static float want[rows * kIds], got[rows * kIds], again[rows * kIds];
  tg_model *model = generation_model(family, dtype);
  int32_t ids[rows];
  tg_error error = {0};
  if (dtype == TG_F32) {
    restore_norms(model);
  }
  for (int i = 0; i < rows; i++) {
    ids[i] = i * 7919 % kIds;
  }
  tg_session *cpu = generation_session(model, (generation_form){.backend = TG_BACKEND_CPU});
  tg_session *gpu = generation_session(model, (generation_form){.backend = TG_BACKEND_CUDA});
  const tg_tensor on_host = tg_tensor_2d(got, TG_F32, rows, kIds);
  EXPECT_OK(
      tg_session_forward(cpu, ids, batch, seq, 0, tg_tensor_2d(want, TG_F32, rows, kIds), &error),
      error);
  EXPECT_OK(tg_session_forward(gpu, ids, batch, seq, 0, on_host, &error), error);
  double most = 0, worst = 0;
  for (int i = 0; i < rows * kIds; i++) {
    most = fmax(most, fabs((double)want[i]));
    worst = fmax(worst, isnan(got[i]) ? INFINITY : fabs((double)got[i] - (double)want[i]));
  }
  if (!(worst <= bound * most)) {
    fail_msg("%s: expected logits within %g of %g, got a difference of %g", family, bound, most,
             worst);
  }
  void *memory;
  assert_int_equal(tg_memory_allocate(gpu->ctx, sizeof got, &memory), TG_OK);
  tg_tensor on_gpu = tg_tensor_2d(memory, TG_F32, rows, kIds);
  on_gpu.device = TG_DEVICE_CUDA(0);
  EXPECT_OK(tg_session_forward(gpu, ids, batch, seq, 0, on_gpu, &error), error);
  assert_int_equal(
      tg_memory_copy(gpu->ctx, again, sizeof again, memory, sizeof again, sizeof again, 1), TG_OK);
  assert_memory_equal(got, again, sizeof got);
  tg_memory_free(gpu->ctx, memory);
  check_recorded_forward(model, gpu, ids, again);
  check_pieces(gpu, ids);
  tg_session_destroy(gpu);
  tg_session_destroy(cpu);
  tg_model_destroy(model);
}

static void test_forward(void **state)
{
  (void)state;
  skip_without_gpu();
  for (size_t i = 0; i < sizeof kFamilies / sizeof kFamilies[0]; i++) {
    check_forward(kFamilies[i], TG_F32, 1e-5);
    check_forward(kFamilies[i], TG_BF16, 3e-2);
  }
}

static const generation_form kOnCpu = {.backend = TG_BACKEND_CPU};
static const generation_form kStepByStep = {.backend = TG_BACKEND_CUDA};
static const generation_form kNotRecorded = {.backend = TG_BACKEND_CUDA, .by_place = true};
static const generation_form kRecorded = {
    .backend = TG_BACKEND_CUDA, .by_place = true, .recorded = true, .ahead = true};

/* f32: the CPU's tokens, step by step and recorded. */
static void check_generation(const char *family, tg_sampling sampling)
{
  tg_model *model = generation_model(family, TG_F32);
  const told want = loop_tokens(model, sampling, kOnCpu);
  const told steps = loop_tokens(model, sampling, kStepByStep);
  expect_tokens(&steps, want.ids, want.count);
  const told launched = loop_tokens(model, sampling, kRecorded);
  expect_tokens(&launched, want.ids, want.count);
  check_tokens(model, sampling, kStepByStep, &want);
  check_tokens(model, sampling, kNotRecorded, &want);
  check_tokens(model, sampling, kRecorded, &want);
  check_feed_after(model, kRecorded, 2e-5);
  check_stops(model, sampling, kRecorded, &want);
  check_dirty_cache(model, sampling, kRecorded, &want);
  tg_model_destroy(model);
}

/* bf16: whatever the rounding, recorded passes have the bits of those run op by op. */
static void check_bf16_generation(const char *family, tg_sampling sampling)
{
  tg_model *model = generation_model(family, TG_BF16);
  const told want = loop_tokens(model, sampling, kNotRecorded);
  check_tokens(model, sampling, kNotRecorded, &want);
  check_tokens(model, sampling, kRecorded, &want);
  check_dirty_cache(model, sampling, kRecorded, &want);
  tg_model_destroy(model);
}

static void test_generation(void **state)
{
  (void)state;
  skip_without_gpu();
  for (size_t i = 0; i < sizeof kFamilies / sizeof kFamilies[0]; i++) {
    check_generation(kFamilies[i], kGreedy);
    check_generation(kFamilies[i], kSampled);
    check_bf16_generation(kFamilies[i], kGreedy);
    check_bf16_generation(kFamilies[i], kSampled);
  }
  check_bad_logits(kStepByStep);
  check_bad_logits(kRecorded);
}

/* Penalties and biases, on the device or by the host: the CPU's tokens. */
static void test_changed_logits(void **state)
{
  (void)state;
  skip_without_gpu();
  tg_model *model = generation_model("qwen3_nano", TG_F32);
  for (int i = 0; i < kNumChanging; i++) {
    const told want = loop_tokens(model, kChanging[i], kOnCpu);
    check_changes(model, i, kStepByStep, &want);
    check_changes(model, i, kRecorded, &want);
  }
  tg_model_destroy(model);
}

/* That recording works is told, and every extent that was met has its graph. */
static void test_recording(void **state)
{
  (void)state;
  skip_without_gpu();
  tg_model *model = generation_model("qwen3_nano", TG_F32);
  const tg_generate_options o = {.sampling = kGreedy};
  tg_session *s = generation_session(model, kRecorded);
  feed_prompt(s);
  (void)generate_tokens(s, &o, 0);
  assert_string_equal(tg_session_steps(s), "recorded");
  assert_string_equal(s->no_decoder, "decoder: expected a model that is served, got one with "
                                     "weights of another dtype than bf16");
  for (int i = 0; i < TGI_EXTENTS; i++) {
    assert_true((s->graph[i] != NULL) == (i < 4)); /* 16, 32, 64, 128 */
  }
  tg_session_destroy(s);
  tg_model_destroy(model);
}

/* Five steps on one device, saved, two more on the other; the last loss beside that of a run that
 * stays. On the same device it has the same bits. */
static void check_resume(tg_backend from, tg_backend to, tg_dtype dtype)
{
  const scratch here = scratch_make();
  const char *path = scratch_file(&here, "checkpoint");
  tg_error error = {0};
  tg_model *model = new_model("qwen3_nano");
  tg_trainer *t = new_trainer(model, from, dtype);
  run_steps(t, 1, 5);
  EXPECT_OK(tg_trainer_save(t, NULL, NULL, path, &error), error);
  const double stayed = run_steps(t, 6, 7);
  tg_trainer_destroy(t);
  tg_model_destroy(model);
  EXPECT_OK(tg_model_load(path, TG_DTYPE_NONE, &model, &error), error);
  t = new_trainer(model, to, dtype);
  EXPECT_OK(tg_trainer_resume(t, path, NULL, 0, &error), error);
  assert_int_equal(tg_trainer_steps(t), 5);
  const double resumed = run_steps(t, 6, 7);
  assert_true(from == to ? resumed == stayed : fabs(resumed - stayed) <= 2e-3 * stayed);
  tg_trainer_destroy(t);
  tg_model_destroy(model);
  scratch_remove(&here);
}

static void test_resume(void **state)
{
  (void)state;
  skip_without_gpu();
  for (int i = 0; i < 2; i++) {
    const tg_dtype dtype = i ? TG_BF16 : TG_F32;
    check_resume(TG_BACKEND_CUDA, TG_BACKEND_CUDA, dtype);
    check_resume(TG_BACKEND_CUDA, TG_BACKEND_CPU, dtype);
    check_resume(TG_BACKEND_CPU, TG_BACKEND_CUDA, dtype);
  }
}

static void test_refusals(void **state)
{
  (void)state;
  skip_without_gpu();
  tg_error error = {0};
  tg_model *model = new_model("gpt_nano");
  tg_trainer_options o = options_on(TG_BACKEND_CUDA, TG_F32);
  tg_trainer *t = NULL;
  o.batch_size = 1 << 24;
  EXPECT_ERROR(tg_trainer_create(model, &o, &t, &error), TG_NO_MEMORY,
               "the largest micro_batch_size that fits is ", error);
  const char *number = strrchr(error.text, ' ');
  const int rows = atoi(number);
  if (!(rows > 1000 && rows < 1 << 24 && (1 << 24) % rows == 0)) {
    fail_msg("expected a divisor of 2^24 above 1000, got: %s", error.text);
  }
  o.device_index = tg_device_count();
  o.batch_size = kBatch;
  EXPECT_ERROR(tg_trainer_create(model, &o, &t, &error), TG_BAD_ARGUMENT, "device_index", error);
  assert_null(t);
  t = new_trainer(model, TG_BACKEND_CUDA, TG_F32);
  int32_t ids[kBatch * kSeq], targets[kBatch * kSeq];
  double loss;
  make_batch(1, ids, targets);
  ids[9] = kVocab;
  EXPECT_ERROR(
      tg_trainer_backward(t, &(tg_train_batch){.tokens = ids, .targets = targets}, &loss, &error),
      TG_BAD_ARGUMENT, "tokens[9]: expected 0 to 256, got 257", error);
  ids[9] = 0;
  targets[8] = -7;
  EXPECT_ERROR(
      tg_trainer_backward(t, &(tg_train_batch){.tokens = ids, .targets = targets}, &loss, &error),
      TG_BAD_ARGUMENT, "targets[8]: expected 0 to 256, got -7", error);
  targets[8] = 1;
  EXPECT_OK(
      tg_trainer_backward(t, &(tg_train_batch){.tokens = ids, .targets = targets}, &loss, &error),
      error);
  assert_true(isfinite(loss));
  tg_trainer_destroy(t);
  tg_model_destroy(model);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_logits),         cmocka_unit_test(test_generation),
      cmocka_unit_test(test_changed_logits), cmocka_unit_test(test_recording),
      cmocka_unit_test(test_resume),         cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_curves),         cmocka_unit_test(test_forward),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

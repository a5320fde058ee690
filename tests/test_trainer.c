/* The runtime's promises beside its numbers: options, the plan, bad data, checkpoints that go on
 * bit for bit at any number of threads, files that do not fit. */
#include "core/half.h"
#include "model/safetensors_writer.h"
#include "model/weights.h"
#include "scratch_directory.h"
#include "tegula/train.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "expect.h"

enum { kBatch = 2, kSeq = 24, kVocab = 257 };

static tg_trainer_options good_options(int threads)
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

static tg_model *new_model_of(const char *preset)
{
  tg_model *model = NULL;
  tg_error error = {0};
  EXPECT_OK(tg_model_create(preset, kVocab, 5, &model, &error), error);
  return model;
}

static tg_model *new_model(void)
{
  return new_model_of("gpt_nano");
}

static tg_trainer *new_trainer_as(tg_model *model, int threads, tg_dtype dtype)
{
  tg_trainer *t = NULL;
  tg_error error = {0};
  tg_trainer_options o = good_options(threads);
  o.dtype = dtype;
  EXPECT_OK(tg_trainer_create(model, &o, &t, &error), error);
  return t;
}

static tg_trainer *new_trainer(tg_model *model, int threads)
{
  return new_trainer_as(model, threads, TG_F32);
}

/* Batch `step`: pure function of the step. */
static void make_batch(int64_t step, int32_t *ids, int32_t *targets)
{
  for (int i = 0; i < kBatch * kSeq; i++) {
    ids[i] = (int32_t)((step * 31 + i * 7) % kVocab);
    targets[i] = (int32_t)((step * 31 + i * 7 + 7) % kVocab);
  }
}

static void run_steps(tg_trainer *t, int64_t first, int64_t last)
{
  int32_t ids[kBatch * kSeq], targets[kBatch * kSeq];
  tg_error error = {0};
  for (int64_t step = first; step <= last; step++) {
    make_batch(step, ids, targets);
    EXPECT_OK(tg_trainer_step(t, ids, targets, NULL, &error), error);
  }
}

static void assert_same_weights(const tg_model *a, const tg_model *b)
{
  assert_int_equal(a->parameters.elements, b->parameters.elements);
  assert_memory_equal(a->block, b->block, (size_t)a->parameters.elements * sizeof(float));
}

/* Twelve steps at once, and five, saved and resumed at another number of threads: the same bits. */
static void check_resume(const char *preset, tg_dtype dtype)
{
  tg_error error = {0};
  tg_model *whole = new_model_of(preset);
  tg_trainer *t = new_trainer_as(whole, 1, dtype);
  run_steps(t, 1, 12);
  tg_trainer_destroy(t);
  for (int threads = 1; threads <= 3; threads++) {
    const scratch here = scratch_make();
    const char *path = scratch_file(&here, "checkpoint");
    char note[64];
    tg_model *model = new_model_of(preset);
    t = new_trainer_as(model, threads, dtype);
    run_steps(t, 1, 5);
    EXPECT_OK(tg_trainer_save(t, NULL, "a \"note\"", path, &error), error);
    tg_trainer_destroy(t);
    tg_model_destroy(model);
    EXPECT_OK(tg_model_load(path, TG_DTYPE_NONE, &model, &error), error);
    t = new_trainer_as(model, 4 - threads, dtype);
    EXPECT_OK(tg_trainer_resume(t, path, note, sizeof note, &error), error);
    assert_string_equal(note, "a \"note\"");
    assert_int_equal(tg_trainer_steps(t), 5);
    run_steps(t, 6, 12);
    assert_same_weights(model, whole);
    tg_trainer_destroy(t);
    tg_model_destroy(model);
    scratch_remove(&here);
  }
  tg_model_destroy(whole);
}

static void test_resume(void **state)
{
  (void)state;
  check_resume("gpt_nano", TG_F32);
  check_resume("qwen3_nano", TG_F32);
}

static void test_resume_bf16(void **state)
{
  (void)state;
  check_resume("gpt_nano", TG_BF16);
  check_resume("qwen3_nano", TG_BF16);
}

/* Passes in bf16 over f32 weights: the curve of f32 but for rounding, updates far below a bf16
 * weight's last place kept, and a bf16 block in the plan. */
static void test_bf16(void **state)
{
  (void)state;
  int32_t ids[kBatch * kSeq], targets[kBatch * kSeq];
  tg_error error = {0};
  tg_model *model[2] = {new_model(), new_model()};
  tg_trainer *t[2] = {new_trainer(model[0], 2), new_trainer_as(model[1], 2, TG_BF16)};
  double first = 0;
  for (int64_t step = 1; step <= 20; step++) {
    tg_step_result r[2];
    make_batch(step % 3, ids, targets);
    for (int i = 0; i < 2; i++) {
      EXPECT_OK(tg_trainer_step(t[i], ids, targets, &r[i], &error), error);
    }
    assert_true(fabs(r[0].loss - r[1].loss) < 0.02 * r[0].loss);
    assert_true(step > 1 || r[0].loss != r[1].loss);
    first = step == 1 ? r[1].loss : first;
    assert_true(step < 20 || r[1].loss < 0.9 * first);
  }
  const float *kept = model[1]->block;
  int64_t between = 0; /* weights that bf16 does not hold */
  for (int64_t i = 0; i < model[1]->parameters.elements; i++) {
    between += tgi_bf16_to_f32(tgi_f32_to_bf16(kept[i])) != kept[i];
  }
  assert_true(between > model[1]->parameters.num_parameters * 9 / 10);
  tg_plan_line lines[8];
  size_t count = 0;
  tg_trainer_options o = good_options(1);
  o.dtype = TG_BF16;
  EXPECT_OK(tg_trainer_plan(model[1], &o, lines, 8, &count, &error), error);
  assert_string_equal(lines[1].name, "rounded weights");
  assert_true(2 * lines[1].bytes <= lines[0].bytes + 256);
  for (int i = 0; i < 2; i++) {
    tg_trainer_destroy(t[i]);
    tg_model_destroy(model[i]);
  }
}

static void refuse_option(tg_trainer_options o, const char *part)
{
  tg_error error = {0};
  tg_trainer *t = (void *)&o;
  tg_model *model = new_model();
  EXPECT_ERROR(tg_trainer_create(model, &o, &t, &error), TG_BAD_ARGUMENT, part, error);
  assert_null(t);
  tg_plan_line lines[8];
  size_t count = 0;
  EXPECT_ERROR(tg_trainer_plan(model, &o, lines, 8, &count, &error), TG_BAD_ARGUMENT, part, error);
  tg_model_destroy(model);
}

static void test_options(void **state)
{
  (void)state;
#define REFUSE(field, value)                                                                       \
  do {                                                                                             \
    tg_trainer_options o = good_options(1);                                                        \
    o.field = value;                                                                               \
    refuse_option(o, #field ": expected");                                                         \
  } while (0)
  REFUSE(batch_size, 0);
  REFUSE(sequence_length, 0);
  REFUSE(sequence_length, 129);
  REFUSE(num_steps, 0);
  REFUSE(warmup_steps, -1);
  REFUSE(warmup_steps, 21);
  REFUSE(learning_rate, 0);
  REFUSE(learning_rate, NAN);
  REFUSE(min_learning_rate, 1);
  REFUSE(beta1, 0);
  REFUSE(beta2, 1);
  REFUSE(eps, 0);
  REFUSE(weight_decay, -1);
  REFUSE(max_grad_norm, NAN);
  REFUSE(dtype, TG_F16);
#undef REFUSE
}

/* The plan's lines add up to more than twice the weights, and asking allocates nothing to keep. */
static void test_plan(void **state)
{
  (void)state;
  tg_error error = {0};
  tg_model *model = new_model();
  const tg_trainer_options o = good_options(1);
  tg_plan_line lines[8];
  size_t count = 0, total = 0;
  EXPECT_OK(tg_trainer_plan(model, &o, lines, 8, &count, &error), error);
  assert_in_range(count, 3, 8);
  for (size_t i = 0; i < count; i++) {
    assert_true(strlen(lines[i].name) > 0);
    total += lines[i].bytes;
  }
  assert_true(lines[0].bytes == tg_model_get_info(model).weight_bytes);
  assert_true(total > 4 * lines[0].bytes);
  tg_model_destroy(model);
}

static void test_bad_data(void **state)
{
  (void)state;
  int32_t ids[kBatch * kSeq], targets[kBatch * kSeq];
  tg_error error = {0};
  tg_model *model = new_model(), *untouched = new_model();
  tg_trainer *t = new_trainer(model, 2);
  make_batch(1, ids, targets);
  ids[7] = kVocab;
  EXPECT_ERROR(tg_trainer_step(t, ids, targets, NULL, &error), TG_BAD_ARGUMENT, "ids[7]", error);
  ids[7] = 0;
  targets[9] = -1;
  EXPECT_ERROR(tg_trainer_step(t, ids, targets, NULL, &error), TG_BAD_ARGUMENT, "targets[9]",
               error);
  assert_int_equal(tg_trainer_steps(t), 0);
  assert_same_weights(model, untouched);
  tg_trainer_destroy(t);
  tg_model_destroy(model);
  tg_model_destroy(untouched);
}

/* A weight that is not finite: the loss is NaN, the step is refused by its number, nothing moves.
 */
static void test_nan(void **state)
{
  (void)state;
  int32_t ids[kBatch * kSeq], targets[kBatch * kSeq];
  tg_error error = {0};
  tg_model *model = new_model();
  tg_trainer *t = new_trainer(model, 2);
  run_steps(t, 1, 2);
  tg_tensor view;
  assert_int_equal(tg_model_parameter(model, 4, &view, NULL), TG_OK);
  ((float *)view.data)[0] = NAN;
  const size_t bytes = (size_t)model->parameters.elements * sizeof(float);
  char *before = malloc(bytes);
  memcpy(before, model->block, bytes);
  make_batch(3, ids, targets);
  EXPECT_ERROR(tg_trainer_step(t, ids, targets, NULL, &error), TG_BAD_ARGUMENT, "step 3: loss",
               error);
  assert_memory_equal(before, model->block, bytes);
  assert_int_equal(tg_trainer_steps(t), 2);
  free(before);
  tg_trainer_destroy(t);
  tg_model_destroy(model);
}

/* config.json of a model that the saved tensors do not fit: the tensor and both shapes are named.
 */
static void test_mismatch(void **state)
{
  (void)state;
  const scratch here = scratch_make();
  const char *path = scratch_file(&here, "checkpoint");
  tg_error error = {0};
  tg_model *model = new_model(), *loaded = NULL;
  tg_trainer *t = new_trainer(model, 1);
  EXPECT_OK(tg_trainer_save(t, NULL, NULL, path, &error), error);
  static const char config[] = "{\"model_type\": \"gpt2\", \"vocab_size\": %d, \"n_embd\": 48, "
                               "\"n_layer\": %d, \"n_head\": 3, \"n_positions\": 128}";
  char text[256];
  snprintf(text, sizeof text, config, 300, 3);
  write_text(scratch_file(&here, "checkpoint/config.json"), text);
  EXPECT_ERROR(tg_model_load(path, TG_DTYPE_NONE, &loaded, &error), TG_BAD_FILE,
               "transformer.wte.weight: expected F32|F16|BF16 [300, 48], got F32 [257, 48]", error);
  snprintf(text, sizeof text, config, kVocab, 4);
  write_text(scratch_file(&here, "checkpoint/config.json"), text);
  EXPECT_ERROR(tg_model_load(path, TG_DTYPE_NONE, &loaded, &error), TG_BAD_FILE,
               "transformer.h.3.ln_1.weight: expected this tensor", error);
  write_text(scratch_file(&here, "checkpoint/config.json"), "{\"model_type\": \"mamba\"}");
  EXPECT_ERROR(tg_model_load(path, TG_DTYPE_NONE, &loaded, &error), TG_UNSUPPORTED, "mamba", error);
  snprintf(text, sizeof text, config, kVocab, 3);
  write_text(scratch_file(&here, "checkpoint/config.json"), text);
  write_text(scratch_file(&here, "checkpoint/trainer_state.json"),
             "{\"step\": -1, \"note\": \"\"}");
  EXPECT_ERROR(tg_trainer_resume(t, path, NULL, 0, &error), TG_BAD_FILE,
               "/trainer_state.json: byte 0: step: expected an integer from 0, got -1", error);
  write_text(scratch_file(&here, "checkpoint/trainer_state.json"), "{\"step\": 1}");
  EXPECT_ERROR(tg_trainer_resume(t, path, NULL, 0, &error), TG_BAD_FILE,
               "note: expected a string, got none", error);
  EXPECT_ERROR(tg_trainer_save(t, NULL, "\xff", path, &error), TG_BAD_ARGUMENT,
               "trainer_save: note: expected UTF-8, got other bytes", error);
  const char *weights = scratch_file(&here, "checkpoint/model.safetensors");
  assert_int_equal(truncate(weights, 5000), 0);
  EXPECT_ERROR(tg_model_load(path, TG_DTYPE_NONE, &loaded, &error), TG_BAD_FILE, "expected", error);
  assert_int_equal(unlink(weights), 0);
  EXPECT_ERROR(tg_model_load(path, TG_DTYPE_NONE, &loaded, &error), TG_IO, "model.safetensors",
               error);
  assert_null(loaded);
  tg_trainer_destroy(t);
  tg_model_destroy(model);
  scratch_remove(&here);
}

/* A file of 16-bit weights loads as it is, or as f32; both give finite logits close to another. */
static void compare_dtypes(const char *preset)
{
  const scratch here = scratch_make();
  const char *path = scratch_file(&here, "checkpoint");
  const char *file = scratch_file(&here, "checkpoint/model.safetensors");
  tg_error error = {0};
  tg_model *model = new_model_of(preset);
  tg_trainer *t = new_trainer(model, 1);
  EXPECT_OK(tg_trainer_save(t, NULL, NULL, path, &error), error);
  tg_trainer_destroy(t);
  const tg_dtype dtypes[3] = {TG_F32, TG_BF16, TG_F16};
  for (int d = 0; d < 3; d++) {
    tg_model *narrow = NULL, *wide = NULL;
    tg_session *a = NULL, *b = NULL;
    const tg_session_options o = {.num_threads = 1};
    const int32_t ids[5] = {1, 2, 3, 250, 256};
    EXPECT_OK(tg_model_load(path, dtypes[d], &narrow, &error), error);
    EXPECT_OK(tgi_block_write(&narrow->parameters, narrow->block, dtypes[d], "", file, &error),
              error);
    EXPECT_OK(tg_model_load(path, TG_F32, &wide, &error), error);
    EXPECT_OK(tg_session_create(narrow, &o, &a, &error), error);
    EXPECT_OK(tg_session_create(wide, &o, &b, &error), error);
    EXPECT_OK(tg_session_feed(a, ids, 5, &error), error);
    EXPECT_OK(tg_session_feed(b, ids, 5, &error), error);
    for (int i = 0; i < kVocab; i++) {
      assert_true(fabsf(tg_session_logits(a)[i] - tg_session_logits(b)[i]) < 0.02f);
    }
    tg_session_destroy(a);
    tg_session_destroy(b);
    tg_model_destroy(narrow);
    tg_model_destroy(wide);
  }
  tg_model_destroy(model);
  scratch_remove(&here);
}

static void test_dtypes(void **state)
{
  (void)state;
  compare_dtypes("gpt_nano");
  compare_dtypes("qwen3_nano");
}

/* A feed that is refused leaves the timeline as it was. */
static void test_bad_feed(void **state)
{
  (void)state;
  const tg_session_options o = {.num_threads = 1};
  const int32_t ids[128] = {1, 2, 3, 250, 256};
  tg_error error = {0};
  tg_model *model = new_model();
  tg_session *s = NULL;
  EXPECT_OK(tg_session_create(model, &o, &s, &error), error);
  EXPECT_OK(tg_session_feed(s, ids, 5, &error), error);
  EXPECT_ERROR(tg_session_feed(s, ids, 124, &error), TG_BAD_ARGUMENT, "at most 123 more", error);
  EXPECT_ERROR(tg_session_feed(s, (const int32_t[]){kVocab}, 1, &error), TG_BAD_ARGUMENT,
               "ids[0]: expected 0 to 256, got 257", error);
  assert_int_equal(tg_session_length(s), 5);
  tg_session_destroy(s);
  tg_model_destroy(model);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_resume), cmocka_unit_test(test_options),
      cmocka_unit_test(test_plan),   cmocka_unit_test(test_bad_data),
      cmocka_unit_test(test_nan),    cmocka_unit_test(test_mismatch),
      cmocka_unit_test(test_dtypes), cmocka_unit_test(test_resume_bf16),
      cmocka_unit_test(test_bf16),   cmocka_unit_test(test_bad_feed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

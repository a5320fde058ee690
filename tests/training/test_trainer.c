/* The runtime's promises beside its numbers: bf16 passes, options, the plan, bad data. */
#include "core/values/half.h"
#include "model/weights/weights.h"
#include "tegula/train.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cpu_trainer.h"

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
      EXPECT_OK(tg_trainer_step(t[i], &(tg_train_batch){.tokens = ids, .targets = targets}, &r[i],
                                &error),
                error);
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
  EXPECT_ERROR(
      tg_trainer_step(t, &(tg_train_batch){.tokens = ids, .targets = targets}, NULL, &error),
      TG_BAD_ARGUMENT, "step 1: tokens[7]: expected 0 to 256, got 257", error);
  ids[7] = 0;
  targets[9] = -1;
  EXPECT_ERROR(
      tg_trainer_step(t, &(tg_train_batch){.tokens = ids, .targets = targets}, NULL, &error),
      TG_BAD_ARGUMENT, "step 1: targets[9]: expected 0 to 256, got -1", error);
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
  EXPECT_ERROR(
      tg_trainer_step(t, &(tg_train_batch){.tokens = ids, .targets = targets}, NULL, &error),
      TG_BAD_ARGUMENT, "step 3: loss", error);
  assert_memory_equal(before, model->block, bytes);
  assert_int_equal(tg_trainer_steps(t), 2);
  free(before);
  tg_trainer_destroy(t);
  tg_model_destroy(model);
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
      cmocka_unit_test(test_bf16), cmocka_unit_test(test_options),
      cmocka_unit_test(test_plan), cmocka_unit_test(test_bad_data),
      cmocka_unit_test(test_nan),  cmocka_unit_test(test_bad_feed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

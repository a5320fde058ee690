/* Training with frozen experts: every other gradient has the same bits, the experts keep theirs,
 * and neither gradients nor moments of them take memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include <cmocka.h>

#include "family_training.h"
#include "scratch_directory.h"

static tg_trainer_options options_of(bool frozen, tg_dtype dtype)
{
  tg_trainer_options o = family_options(kRows, kLength);
  o.micro_batch_size = 2;
  o.freeze_experts = frozen;
  o.dtype = dtype;
  return o;
}

static tg_train_batch batch_of(const packed_rows *p)
{
  return (tg_train_batch){.tokens = p->tokens, .targets = p->targets};
}

static int64_t experts_elements(const tg_model *model)
{
  return model->parameters.elements - model->parameters.without_experts;
}

static void test_other_gradients(void **state)
{
  (void)state;
  const packed_rows p = make_rows(1);
  const tg_train_batch batch = batch_of(&p);
  for (int f = 0; f < kSparseFamilies; f++) {
    tg_model *model = family_model(kSparse[f]);
    tg_trainer *all = family_trainer(model, options_of(false, TG_F32));
    tg_trainer *part = family_trainer(model, options_of(true, TG_F32));
    tg_error error = {0};
    double loss[2];
    EXPECT_OK(tg_trainer_backward(all, &batch, &loss[0], &error), error);
    EXPECT_OK(tg_trainer_backward(part, &batch, &loss[1], &error), error);
    assert_true(loss[0] == loss[1]);
    int frozen = 0;
    for (int i = 0; i < model->parameters.count; i++) {
      tg_tensor want, got;
      assert_int_equal(tg_trainer_gradient(all, (size_t)i, &want), TG_OK);
      if (tgi_parameter_is_experts(&model->parameters.list[i])) {
        assert_int_equal(tg_trainer_gradient(part, (size_t)i, &got), TG_BAD_ARGUMENT);
        frozen++;
        continue;
      }
      assert_int_equal(tg_trainer_gradient(part, (size_t)i, &got), TG_OK);
      assert_memory_equal(got.data, want.data, (size_t)elements_of(&want) * sizeof(float));
    }
    assert_int_equal(frozen, 2 * model->config.num_hidden_layers);
    tg_trainer_destroy(all);
    tg_trainer_destroy(part);
    tg_model_destroy(model);
  }
}

/* Steps leave the experts' bits; a checkpoint goes on as if it had not been one. */
static void test_steps_and_checkpoints(void **state)
{
  (void)state;
  static const tg_dtype dtypes[] = {TG_F32, TG_BF16};
  const packed_rows p = make_rows(2);
  const tg_train_batch batch = batch_of(&p);
  tg_error error = {0};
  for (int f = 0; f < 2 * kSparseFamilies; f++) {
    const scratch dir = scratch_make();
    const char *path = scratch_file(&dir, "saved");
    tg_model *model = family_model(kSparse[f / 2]), *back = NULL;
    const size_t first = (size_t)model->parameters.without_experts;
    const size_t bytes = (size_t)experts_elements(model) * sizeof(float);
    float *experts = malloc(bytes);
    float *rest = malloc(first * sizeof *rest);
    memcpy(experts, (float *)model->block + first, bytes);
    memcpy(rest, model->block, first * sizeof *rest);
    const tg_trainer_options o = options_of(true, dtypes[f % 2]);
    tg_trainer *t = family_trainer(model, o);
    for (int step = 0; step < 2; step++) {
      EXPECT_OK(tg_trainer_step(t, &batch, NULL, &error), error);
    }
    assert_memory_not_equal(rest, model->block, first * sizeof *rest);
    EXPECT_OK(tg_trainer_save(t, NULL, NULL, path, &error), error);
    EXPECT_OK(tg_model_load(path, TG_F32, &back, &error), error);
    tg_trainer *again = family_trainer(back, o);
    EXPECT_OK(tg_trainer_resume(again, path, NULL, 0, &error), error);
    EXPECT_OK(tg_trainer_step(t, &batch, NULL, &error), error);
    EXPECT_OK(tg_trainer_step(again, &batch, NULL, &error), error);
    assert_memory_equal(model->block, back->block, first * sizeof *rest);
    assert_memory_equal((float *)model->block + first, experts, bytes);
    assert_memory_equal((float *)back->block + first, experts, bytes);
    tg_trainer_destroy(again);
    tg_trainer *thawed = family_trainer(back, options_of(false, TG_F32));
    EXPECT_ERROR(tg_trainer_resume(thawed, path, NULL, 0, &error), TG_BAD_ARGUMENT,
                 "freeze_experts true, got false", error);
    tg_trainer_destroy(thawed);
    tg_trainer_destroy(t);
    tg_model_destroy(model);
    tg_model_destroy(back);
    free(experts);
    free(rest);
    scratch_remove(&dir);
  }
}

/* The bytes of that line of the plan. */
static size_t plan_of(const tg_model *model, bool frozen, const char *part)
{
  tg_plan_line lines[8];
  size_t count = 0;
  tg_error error = {0};
  const tg_trainer_options o = options_of(frozen, TG_F32);
  EXPECT_OK(tg_trainer_plan(model, &o, lines, 8, &count, &error), error);
  for (size_t i = 0; i < count; i++) {
    if (strcmp(lines[i].name, part) == 0) {
      return lines[i].bytes;
    }
  }
  fail_msg("the plan lacks %s", part);
  return 0;
}

static void test_plan(void **state)
{
  (void)state;
  tg_error error = {0};
  for (int f = 0; f < kSparseFamilies; f++) {
    tg_model *model = family_model(kSparse[f]);
    const size_t experts = (size_t)experts_elements(model) * sizeof(float);
    assert_int_equal(plan_of(model, true, "weights, experts frozen"),
                     plan_of(model, false, "weights"));
    assert_int_equal(plan_of(model, false, "gradients") - plan_of(model, true, "gradients"),
                     experts);
    assert_int_equal(plan_of(model, false, "optimiser state") -
                         plan_of(model, true, "optimiser state"),
                     2 * experts);
    tg_model_destroy(model);
  }
  tg_model *dense = family_model(TGI_MODEL_QWEN3);
  tg_trainer *t = NULL;
  const tg_trainer_options o = options_of(true, TG_F32);
  EXPECT_ERROR(tg_trainer_create(dense, &o, &t, &error), TG_BAD_ARGUMENT,
               "trainer: freeze_experts: expected a model with experts, got qwen3", error);
  tg_model_destroy(dense);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_other_gradients),
      cmocka_unit_test(test_steps_and_checkpoints),
      cmocka_unit_test(test_plan),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

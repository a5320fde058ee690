/* The auxiliary loss of routers in training: what it is of, and when it is none. Its value and
 * gradients are compared with transformers' in tests/python/runtime/test_experts_live.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include <cmocka.h>

#include "family_training.h"

enum { kHalf = kTokens / 2 };

/* Tokens of the documents with a target, of `n` documents. */
static int64_t counted_tokens(const int32_t *targets, const int32_t *starts, int n)
{
  int64_t sum = 0;
  for (int d = 0; d < n; d++) {
    const int32_t length = starts[d + 1] - starts[d];
    sum += counted(targets + starts[d], length) > 0 ? length : 0;
  }
  return sum;
}

static tg_step_result step_of(tg_model *model, const tg_trainer_options *o,
                              const tg_train_batch *batch)
{
  tg_trainer *t = family_trainer(model, *o);
  tg_step_result r;
  tg_error error = {0};
  double loss = 0;
  EXPECT_OK(tg_trainer_loss(t, batch, &loss, &error), error);
  EXPECT_OK(tg_trainer_step(t, batch, &r, &error), error);
  const double want = loss + o->router_aux_loss_coef * r.aux_loss;
  if (!(fabs(r.loss - want) <= 1e-6 * want)) {
    fail_msg("expected a loss of %.9g, got %.9g", want, r.loss);
  }
  tg_trainer_destroy(t);
  return r;
}

/* The mean over micro-batches by their counted tokens; padding and a row without targets have
 * none. */
static void test_micro_batches(void **state)
{
  (void)state;
  static const int32_t halves[2][8] = {{0, 7, 8, 24, 48}, {0, 5, 6, 13, 24, 35, 48}};
  static const int documents[2] = {4, 6};
  const packed_rows p = make_rows(1);
  for (int f = 0; f < kSparseFamilies; f++) {
    double sum = 0, all = 0;
    for (int h = 0; h < 2; h++) {
      tg_model *model = family_model(kSparse[f]);
      tg_trainer_options o = balanced_options(TG_BACKEND_CPU, 2, 0.5);
      o.batch_size = 2;
      const tg_train_batch batch = {.tokens = p.tokens + h * kHalf,
                                    .targets = p.targets + h * kHalf,
                                    .cu_seqlens = halves[h],
                                    .num_documents = documents[h]};
      const double n = (double)counted_tokens(batch.targets, halves[h], documents[h]);
      sum += n * step_of(model, &o, &batch).aux_loss;
      all += n;
      tg_model_destroy(model);
    }
    tg_model *model = family_model(kSparse[f]);
    const tg_trainer_options o = balanced_options(TG_BACKEND_CPU, 2, 0.5);
    const tg_train_batch batch = packed_batch(&p);
    const tg_step_result r = step_of(model, &o, &batch);
    assert_true(all < kTokens - kLength && r.aux_loss > 0);
    if (!(fabs(r.aux_loss - sum / all) <= 1e-6 * r.aux_loss)) {
      fail_msg("expected an auxiliary loss of %.9g, got %.9g", sum / all, r.aux_loss);
    }
    tg_model_destroy(model);
  }
}

/* The same bits at any number of threads, and in a second backward. */
static void test_bits(void **state)
{
  (void)state;
  const packed_rows p = make_rows(2);
  tg_model *model = family_model(TGI_MODEL_GPT_OSS);
  tg_trainer_options o = balanced_options(TG_BACKEND_CPU, 2, 0.5);
  gradient_sum want = balanced_gradients(model, &p, &o);
  o.num_threads = 3;
  tg_trainer *t = family_trainer(model, o);
  const tg_train_batch batch = packed_batch(&p);
  for (int again = 0; again < 2; again++) {
    gradient_sum got = no_gradients(model);
    add_batch(&got, t, &batch, 1);
    assert_true(got.loss == want.loss);
    assert_memory_equal(got.of, want.of, (size_t)model->parameters.elements * sizeof *want.of);
    free(got.of);
  }
  free(want.of);
  tg_trainer_destroy(t);
  tg_model_destroy(model);
}

static void test_no_targets(void **state)
{
  (void)state;
  packed_rows p = make_rows(1);
  for (int i = 0; i < kTokens; i++) {
    p.targets[i] = TG_IGNORED_TARGET;
  }
  tg_model *model = family_model(TGI_MODEL_QWEN3_MOE);
  const tg_trainer_options o = balanced_options(TG_BACKEND_CPU, 1, 0.5);
  const tg_train_batch batch = packed_batch(&p);
  const tg_step_result r = step_of(model, &o, &batch);
  assert_true(r.loss == 0 && r.aux_loss == 0 && r.grad_norm == 0);
  tg_model_destroy(model);
}

static void refuse(tg_model *model, double coefficient, const char *part)
{
  tg_trainer *t = NULL;
  tg_error error = {0};
  const tg_trainer_options o = balanced_options(TG_BACKEND_CPU, 2, coefficient);
  EXPECT_ERROR(tg_trainer_create(model, &o, &t, &error), TG_BAD_ARGUMENT, part, error);
  tg_model_destroy(model);
}

static void test_refusals(void **state)
{
  (void)state;
  refuse(family_model(TGI_MODEL_QWEN3), 0.5,
         "trainer: router_aux_loss_coef: expected a model with experts, got qwen3");
  refuse(family_model(TGI_MODEL_GPT_OSS), -1,
         "trainer: router_aux_loss_coef: expected a finite number >= 0, got -1");
  refuse(family_model(TGI_MODEL_GPT_OSS), (double)INFINITY, "expected a finite number >= 0");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_micro_batches),
      cmocka_unit_test(test_bits),
      cmocka_unit_test(test_no_targets),
      cmocka_unit_test(test_refusals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

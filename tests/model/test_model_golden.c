/* Tiny models of every family against what PyTorch and transformers computed with them
 * (tests/golden/gpt2, llama, qwen2, qwen3, qwen3_moe, mixtral, gpt_oss): logits, loss, every
 * gradient, greedy tokens and a loss curve. */
#include "model/weights/weights.h"
#include "scratch_directory.h"
#include "tegula/train.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "expect.h"

enum { kBatch = 3, kSeq = 17, kVocab = 67, kSteps = 50 };

typedef struct fixture {
  tgi_safetensors *expected;
  tg_model *model;
} fixture;

/* The data of a golden tensor, aligned. */
static void *golden(const fixture *f, const char *name)
{
  const tgi_file_tensor *t = tgi_safetensors_find(f->expected, name);
  if (!t) {
    fail_msg("expected.safetensors lacks %s", name);
    return NULL;
  }
  void *copy = malloc(t->bytes);
  memcpy(copy, t->data, t->bytes);
  return copy;
}

/* *state is the folder in tests/golden. */
static int set_up(void **state)
{
  fixture *f = calloc(1, sizeof *f);
  tg_error error = {0};
  char path[1024];
  snprintf(path, sizeof path, TEGULA_GOLDEN "/%s/expected.safetensors", (const char *)*state);
  EXPECT_OK(tgi_safetensors_open(path, &f->expected, &error), error);
  snprintf(path, sizeof path, TEGULA_GOLDEN "/%s/model", (const char *)*state);
  EXPECT_OK(tg_model_load(path, TG_DTYPE_NONE, &f->model, &error), error);
  *state = f;
  return 0;
}

static int tear_down(void **state)
{
  fixture *f = *state;
  tgi_safetensors_close(f->expected);
  tg_model_destroy(f->model);
  free(f);
  return 0;
}

/* max|a - b| / max|b| */
static double distance(const float *a, const float *b, int64_t n)
{
  double difference = 0, size = 0;
  for (int64_t i = 0; i < n; i++) {
    difference = fmax(difference, fabs((double)a[i] - (double)b[i]));
    size = fmax(size, fabs((double)b[i]));
    assert_true(isfinite(a[i]));
  }
  return size > 0 ? difference / size : difference;
}

static tg_session *new_session(const tg_model *model)
{
  tg_session *s = NULL;
  tg_error error = {0};
  const tg_session_options options = {.num_threads = 2};
  EXPECT_OK(tg_session_create(model, &options, &s, &error), error);
  return s;
}

/* Token by token, in one feed and in two: the last logits are the row's. */
static void test_logits(void **state)
{
  fixture *f = *state;
  int32_t *ids = golden(f, "ids");
  float *logits = golden(f, "logits");
  tg_error error = {0};
  tg_session *s = new_session(f->model);
  for (int64_t b = 0; b < kBatch; b++) {
    const int32_t *row = ids + b * kSeq;
    EXPECT_OK(tg_session_truncate(s, 0), error);
    for (int64_t i = 0; i < kSeq; i++) {
      EXPECT_OK(tg_session_feed(s, row + i, 1, &error), error);
      assert_true(distance(tg_session_logits(s), logits + (b * kSeq + i) * kVocab, kVocab) <= 1e-5);
    }
    for (int64_t cut = 0; cut < kSeq; cut += 6) {
      EXPECT_OK(tg_session_truncate(s, cut), error);
      assert_null(cut < kSeq ? tg_session_logits(s) : NULL);
      EXPECT_OK(tg_session_feed(s, row + cut, kSeq - cut, &error), error);
      assert_true(distance(tg_session_logits(s), logits + (b * kSeq + kSeq - 1) * kVocab, kVocab) <=
                  1e-5);
    }
  }
  tg_session_destroy(s);
  free(ids);
  free(logits);
}

static void test_greedy(void **state)
{
  fixture *f = *state;
  const tgi_file_tensor *t = tgi_safetensors_find(f->expected, "greedy");
  int32_t *tokens = golden(f, "greedy");
  const int64_t count = t->shape[0];
  const tg_sampling greedy = {.temperature = 0};
  tg_error error = {0};
  tg_session *s = new_session(f->model);
  EXPECT_OK(tg_session_feed(s, tokens, 5, &error), error);
  for (int64_t i = 5; i < count; i++) {
    int32_t id = -1;
    EXPECT_OK(tg_sample_token(tg_session_logits(s), kVocab, &greedy, (uint64_t)i, &id, &error),
              error);
    assert_int_equal(id, tokens[i]);
    EXPECT_OK(tg_session_feed(s, &id, 1, &error), error);
  }
  assert_int_equal(tg_session_length(s), tg_session_capacity(s));
  EXPECT_ERROR(tg_session_feed(s, tokens, 1, &error), TG_BAD_ARGUMENT, "at most 0 more tokens",
               error);
  tg_session_destroy(s);
  free(tokens);
}

static const tg_trainer_options kOptions = {.batch_size = kBatch,
                                            .sequence_length = kSeq,
                                            .num_steps = kSteps,
                                            .warmup_steps = 5,
                                            .learning_rate = 3e-3,
                                            .min_learning_rate = 3e-4,
                                            .beta1 = 0.9,
                                            .beta2 = 0.95,
                                            .eps = 1e-8,
                                            .weight_decay = 0.1,
                                            .max_grad_norm = 1,
                                            .num_threads = 2};

/* The file has Conv1D matrices as [in, out]; ours are [out, in]. */
static void turn(float *values, const tgi_parameter *q)
{
  float *copy = malloc((size_t)(q->shape[0] * q->shape[1]) * sizeof *copy);
  for (int64_t i = 0; i < q->shape[0]; i++) {
    for (int64_t j = 0; j < q->shape[1]; j++) {
      copy[i * q->shape[1] + j] = values[j * q->shape[0] + i];
    }
  }
  memcpy(values, copy, (size_t)(q->shape[0] * q->shape[1]) * sizeof *copy);
  free(copy);
}

static void compare_gradients(const fixture *f, tg_trainer *trainer)
{
  const tgi_parameters *p = &f->model->parameters;
  for (int i = 0; i < p->count; i++) {
    char name[96];
    tg_tensor view;
    snprintf(name, sizeof name, "grad.%s", p->list[i].name);
    float *want = golden(f, name);
    const int64_t n = tgi_parameter_elements(&p->list[i]);
    if (p->list[i].transposed) {
      turn(want, &p->list[i]);
    }
    assert_int_equal(tg_trainer_gradient(trainer, (size_t)i, &view), TG_OK);
    const double d = distance(view.data, want, n);
    if (d > 1e-4) {
      fail_msg("%s: expected a distance of at most 1e-4, got %g", name, d);
    }
    free(want);
  }
}

static void test_gradients(void **state)
{
  fixture *f = *state;
  int32_t *ids = golden(f, "ids"), *targets = golden(f, "targets");
  float *loss = golden(f, "loss");
  tg_trainer *trainer = NULL;
  tg_error error = {0};
  EXPECT_OK(tg_trainer_create(f->model, &kOptions, &trainer, &error), error);
  for (int again = 0; again < 2; again++) { /* a second backward is the same */
    double got = 0;
    EXPECT_OK(tg_trainer_backward(trainer, &(tg_train_batch){.tokens = ids, .targets = targets},
                                  &got, &error),
              error);
    assert_true(fabs(got - (double)loss[0]) <= 1e-6 * (double)loss[0]);
    compare_gradients(f, trainer);
  }
  tg_trainer_destroy(trainer);
  free(ids);
  free(targets);
  free(loss);
}

static void test_loss_curve(void **state)
{
  fixture *f = *state;
  int32_t *ids = golden(f, "ids"), *targets = golden(f, "targets");
  float *losses = golden(f, "losses");
  tg_trainer *trainer = NULL;
  tg_error error = {0};
  EXPECT_OK(tg_trainer_create(f->model, &kOptions, &trainer, &error), error);
  for (int64_t step = 1; step <= kSteps; step++) {
    tg_step_result r = {0};
    EXPECT_OK(
        tg_trainer_step(trainer, &(tg_train_batch){.tokens = ids, .targets = targets}, &r, &error),
        error);
    assert_int_equal(r.step, step);
    if (fabs(r.loss - (double)losses[step - 1]) > 1e-3) {
      fail_msg("step %lld: expected a loss of %g, got %g", (long long)step,
               (double)losses[step - 1], r.loss);
    }
  }
  assert_true(losses[kSteps - 1] < 0.8f * losses[0]); /* it learned */
  tg_trainer_destroy(trainer);
  free(ids);
  free(targets);
  free(losses);
}

#define TESTS_OF(folder)                                                                           \
  TEST(test_logits, folder), TEST(test_greedy, folder), TEST(test_gradients, folder),              \
      TEST(test_loss_curve, folder)
#define TEST(test, folder)                                                                         \
  {                                                                                                \
#test " " folder, test, set_up, tear_down, (void *)(uintptr_t)folder                           \
  }

int main(void)
{
  const struct CMUnitTest tests[] = {
      TESTS_OF("gpt2"),
      TESTS_OF("llama/biased"),
      TESTS_OF("llama/scaled"),
      TESTS_OF("qwen2/plain"),
      TESTS_OF("qwen2/windowed"),
      TESTS_OF("qwen3/plain"),
      TESTS_OF("qwen3/windowed"),
      TESTS_OF("qwen3_moe/plain"),
      TESTS_OF("qwen3_moe/windowed"),
      TESTS_OF("gpt_oss/plain"),
      TESTS_OF("gpt_oss/square"),
      TESTS_OF("mixtral/plain"),
      TESTS_OF("mixtral/windowed"),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

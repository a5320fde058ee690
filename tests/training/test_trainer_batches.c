/* What a batch is to the trainer: rows of documents, micro-batches, targets that are ignored. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include <cmocka.h>

#include "family_training.h"

#define FAMILIES (sizeof kEveryFamily / sizeof kEveryFamily[0])

/* ---- documents ---- */

/* In f32 the packed batch and its documents alone differ in the order of additions. */
static void test_documents_alone(void **state)
{
  (void)state;
  const packed_rows p = make_rows(1);
  for (size_t f = 0; f < FAMILIES; f++) {
    tg_model *model = family_model(kEveryFamily[f]);
    gradient_sum want = separate_gradients(model, &p, TG_BACKEND_CPU);
    for (int32_t micro = 1; micro <= kRows; micro *= 2) {
      gradient_sum got = packed_gradients(model, &p, TG_BACKEND_CPU, micro);
      expect_same_gradients(model, &got, &want, 1e-5);
      free(got.of);
    }
    free(want.of);
    tg_model_destroy(model);
  }
}

/* The same rows as one document each have another loss: documents matter in this test. And the
 * trainer goes back and forth between both kinds of batch. */
static void test_rows_as_documents(void **state)
{
  (void)state;
  const packed_rows p = make_rows(1);
  static const int32_t whole[kRows + 1] = {0, kLength, 2 * kLength, 3 * kLength, kTokens};
  for (size_t f = 0; f < FAMILIES; f++) {
    tg_model *model = family_model(kEveryFamily[f]);
    tg_trainer_options o = family_options(kRows, kLength);
    o.max_documents = kMostDocuments;
    tg_trainer *t = family_trainer(model, o);
    tg_train_batch batch = packed_batch(&p);
    tg_error error = {0};
    double packed = 0, plain = 0, again = 0;
    EXPECT_OK(tg_trainer_loss(t, &batch, &packed, &error), error);
    batch = (tg_train_batch){.tokens = p.tokens, .targets = p.targets};
    gradient_sum want = no_gradients(model), got = no_gradients(model);
    add_batch(&want, t, &batch, 1);
    plain = want.loss;
    assert_true(fabs(plain - packed) > 1e-3 * plain);
    batch.cu_seqlens = whole;
    batch.num_documents = kRows;
    add_batch(&got, t, &batch, 1);
    expect_same_gradients(model, &got, &want, 1e-5);
    batch = packed_batch(&p);
    EXPECT_OK(tg_trainer_loss(t, &batch, &again, &error), error);
    assert_true(packed == again);
    free(want.of);
    free(got.of);
    tg_trainer_destroy(t);
    tg_model_destroy(model);
  }
}

/* Passes in bf16 cut rows, too: the loss and the direction of f32's gradients. Every token has all
 * experts and no clamp is reached, for rounding may change which experts and clamps there are. */
static void test_bf16(void **state)
{
  (void)state;
  const packed_rows p = make_rows(1);
  for (size_t f = 0; f < FAMILIES; f++) {
    tgi_config config = family_config(kEveryFamily[f]);
    config.experts_per_token = config.num_experts;
    config.swiglu_limit = config.swiglu_limit > 0 ? 100 : 0;
    tg_model *model = model_of(config);
    gradient_sum want = packed_gradients(model, &p, TG_BACKEND_CPU, 2);
    gradient_sum got = no_gradients(model);
    tg_trainer_options o = family_options(kRows, kLength);
    o.max_documents = kMostDocuments;
    o.micro_batch_size = 2;
    o.dtype = TG_BF16;
    tg_trainer *t = family_trainer(model, o);
    const tg_train_batch batch = packed_batch(&p);
    add_batch(&got, t, &batch, 1);
    assert_true(fabs(got.loss - want.loss) <= 5e-3 * want.loss);
    double distance = 0, size = 0;
    for (int64_t i = 0; i < model->parameters.elements; i++) {
      distance += (got.of[i] - want.of[i]) * (got.of[i] - want.of[i]);
      size += want.of[i] * want.of[i];
    }
    if (!(sqrt(distance / size) <= 0.03)) {
      fail_msg("%s: expected a distance of at most 0.03, got %g",
               tgi_model_type_name(kEveryFamily[f]), sqrt(distance / size));
    }
    free(want.of);
    free(got.of);
    tg_trainer_destroy(t);
    tg_model_destroy(model);
  }
}

/* From as many documents as a row has tokens to one: the workspace is large enough for any number.
 */
static void test_any_number(void **state)
{
  (void)state;
  const packed_rows p = make_rows(2);
  tg_model *model = family_model(TGI_MODEL_QWEN3);
  tg_trainer_options o = family_options(kRows, kLength);
  o.max_documents = kLength;
  tg_trainer *t = family_trainer(model, o);
  for (int32_t length = 1; length <= kLength; length++) {
    int32_t starts[kTokens + 1];
    int64_t n = 0;
    for (int32_t i = 0; i <= kTokens; i++) {
      if (i % kLength % length == 0 || i == kTokens) {
        starts[n++] = i;
      }
    }
    const tg_train_batch batch = {
        .tokens = p.tokens, .targets = p.targets, .cu_seqlens = starts, .num_documents = n - 1};
    tg_error error = {0};
    double loss = 0;
    EXPECT_OK(tg_trainer_backward(t, &batch, &loss, &error), error);
    assert_true(isfinite(loss));
  }
  tg_trainer_destroy(t);
  tg_model_destroy(model);
}

/* The same where attention needs more workspace than any other op, and more of it for many short
 * documents than for few long ones. */
static void test_workspace(void **state)
{
  (void)state;
  enum { kLong = 512, kWide = 64 };
  tgi_config config = family_config(TGI_MODEL_QWEN3);
  config.max_position_embeddings = kLong;
  config.head_dim = kWide;
  tg_model *model = model_of(config);
  tg_trainer_options o = family_options(1, kLong);
  o.max_documents = kLong / 2;
  o.num_threads = 8;
  tg_trainer *t = family_trainer(model, o);
  int32_t tokens[kLong], starts[kLong + 1];
  for (int i = 0; i < kLong; i++) {
    tokens[i] = i % kFamilyVocab;
  }
  for (int32_t length = 2; length <= kLong; length *= 4) {
    for (int32_t d = 0; d <= kLong / length; d++) {
      starts[d] = d * length;
    }
    const tg_train_batch batch = {
        .tokens = tokens, .targets = tokens, .cu_seqlens = starts, .num_documents = kLong / length};
    tg_error error = {0};
    double loss = 0;
    EXPECT_OK(tg_trainer_backward(t, &batch, &loss, &error), error);
    assert_true(isfinite(loss));
  }
  tg_trainer_destroy(t);
  tg_model_destroy(model);
}

/* ---- micro-batches ---- */

static void test_micro_batches(void **state)
{
  (void)state;
  const packed_rows p = make_rows(4);
  const tg_train_batch batch = {.tokens = p.tokens, .targets = p.targets};
  for (size_t f = 0; f < FAMILIES; f++) {
    tg_model *model = family_model(kEveryFamily[f]);
    gradient_sum sum[4];
    static const int32_t rows[4] = {0, kRows, 2, 1};
    for (int i = 0; i < 4; i++) {
      tg_trainer_options o = family_options(kRows, kLength);
      o.micro_batch_size = rows[i];
      tg_trainer *t = family_trainer(model, o);
      sum[i] = no_gradients(model);
      add_batch(&sum[i], t, &batch, 1);
      double loss = 0;
      tg_error error = {0};
      EXPECT_OK(tg_trainer_loss(t, &batch, &loss, &error), error);
      assert_true(fabs(loss - sum[i].loss) <= 1e-6 * loss);
      expect_same_gradients(model, &sum[i], &sum[0], 1e-5);
      tg_trainer_destroy(t);
    }
    /* As many rows as the batch has: the same bits. */
    assert_true(sum[0].loss == sum[1].loss);
    assert_memory_equal(sum[0].of, sum[1].of,
                        (size_t)model->parameters.elements * sizeof *sum[0].of);
    for (int i = 0; i < 4; i++) {
      free(sum[i].of);
    }
    tg_model_destroy(model);
  }
}

/* Steps by micro-batches have the same bits at any number of threads, and the curve of the whole
 * batch. */
static void test_micro_steps(void **state)
{
  (void)state;
  tg_model *model[3];
  tg_trainer *t[3];
  for (int i = 0; i < 3; i++) {
    tg_trainer_options o = family_options(kRows, kLength);
    o.max_documents = kMostDocuments;
    o.micro_batch_size = i == 0 ? 0 : 1;
    o.num_threads = i == 2 ? 3 : 1;
    model[i] = family_model(TGI_MODEL_QWEN3);
    t[i] = family_trainer(model[i], o);
  }
  for (uint32_t step = 1; step <= 12; step++) {
    const packed_rows p = make_rows(step);
    const tg_train_batch batch = packed_batch(&p);
    tg_step_result r[3];
    tg_error error = {0};
    for (int i = 0; i < 3; i++) {
      EXPECT_OK(tg_trainer_step(t[i], &batch, &r[i], &error), error);
      assert_int_equal(r[i].num_targets, counted(p.targets, kTokens));
    }
    assert_true(fabs(r[0].loss - r[1].loss) <= 1e-3 * r[0].loss);
    assert_true(r[1].loss == r[2].loss && r[1].grad_norm == r[2].grad_norm);
  }
  assert_memory_equal(model[1]->block, model[2]->block,
                      (size_t)model[1]->parameters.elements * sizeof(float));
  for (int i = 0; i < 3; i++) {
    tg_trainer_destroy(t[i]);
    tg_model_destroy(model[i]);
  }
}

static size_t planned(const tg_model *model, int32_t micro_batch, const char *line)
{
  tg_trainer_options o = family_options(kRows, kLength);
  o.micro_batch_size = micro_batch;
  tg_plan_line lines[8];
  size_t count = 0;
  tg_error error = {0};
  EXPECT_OK(tg_trainer_plan(model, &o, lines, 8, &count, &error), error);
  for (size_t i = 0; i < count; i++) {
    if (strcmp(lines[i].name, line) == 0) {
      return lines[i].bytes;
    }
  }
  fail_msg("expected a line %s in the plan", line);
  return 0;
}

static void test_plan(void **state)
{
  (void)state;
  tg_model *model = family_model(TGI_MODEL_LLAMA);
  assert_true(3 * planned(model, 1, "activations") < planned(model, 0, "activations"));
  assert_true(planned(model, 1, "gradients") == planned(model, 0, "gradients"));
  tg_model_destroy(model);
}

/* ---- no targets ---- */

static void test_no_targets(void **state)
{
  (void)state;
  packed_rows p = make_rows(1);
  for (int i = 0; i < kTokens; i++) {
    p.targets[i] = TG_IGNORED_TARGET;
  }
  tg_model *model = family_model(TGI_MODEL_GPT2);
  tg_trainer_options o = family_options(kRows, kLength);
  o.micro_batch_size = 2;
  tg_trainer *t = family_trainer(model, o);
  const tg_train_batch batch = {.tokens = p.tokens, .targets = p.targets};
  gradient_sum sum = no_gradients(model);
  add_batch(&sum, t, &batch, 1);
  assert_true(sum.loss == 0);
  for (int64_t i = 0; i < model->parameters.elements; i++) {
    assert_true(sum.of[i] == 0);
  }
  tg_step_result r;
  tg_error error = {0};
  EXPECT_OK(tg_trainer_step(t, &batch, &r, &error), error);
  assert_true(r.loss == 0 && r.grad_norm == 0 && r.num_targets == 0 && r.step == 1);
  free(sum.of);
  tg_trainer_destroy(t);
  tg_model_destroy(model);
}

/* ---- bad batches ---- */

static void refuse(tg_trainer *t, tg_train_batch batch, const char *part)
{
  tg_error error = {0};
  double loss = 0;
  tg_step_result r;
  EXPECT_ERROR(tg_trainer_backward(t, &batch, &loss, &error), TG_BAD_ARGUMENT, part, error);
  EXPECT_ERROR(tg_trainer_step(t, &batch, &r, &error), TG_BAD_ARGUMENT, part, error);
  EXPECT_ERROR(tg_trainer_loss(t, &batch, &loss, &error), TG_BAD_ARGUMENT, part, error);
  assert_int_equal(tg_trainer_steps(t), 0);
}

static void refuse_starts(tg_trainer *t, const packed_rows *p, const int32_t *starts, int64_t n,
                          const char *part)
{
  refuse(t,
         (tg_train_batch){
             .tokens = p->tokens, .targets = p->targets, .cu_seqlens = starts, .num_documents = n},
         part);
}

#define STARTS(...) ((const int32_t[]){__VA_ARGS__})

static void test_bad_documents(void **state)
{
  (void)state;
  const packed_rows p = make_rows(1);
  tg_model *model = family_model(TGI_MODEL_GPT2);
  tg_trainer_options o = family_options(kRows, kLength);
  o.max_documents = 2;
  tg_trainer *t = family_trainer(model, o);
  refuse_starts(t, &p, STARTS(1, 24, 48, 72, 96), 4, "cu_seqlens[0]: expected 0, got 1");
  refuse_starts(t, &p, STARTS(0, 24, 24, 72, 96), 4, "cu_seqlens[2]: expected 25 to 96, got 24");
  refuse_starts(t, &p, STARTS(0, 24, 48, 72, 97), 4, "cu_seqlens[4]: expected 73 to 96, got 97");
  refuse_starts(t, &p, STARTS(0, 25, 48, 72, 96), 4,
                "cu_seqlens[1]: expected at most 24, where the next row begins, got 25");
  refuse_starts(t, &p, STARTS(0, 24, 48, 72), 3, "cu_seqlens[3]: expected all 96 tokens, got 72");
  refuse_starts(t, &p, STARTS(0, 24, 25, 26, 48, 72, 96), 6,
                "cu_seqlens[4]: expected at most 2 documents in row 1 (max_documents), got 3");
  refuse_starts(t, &p, STARTS(0, 96), 0, "num_documents: expected 1 to 96, got 0");
  refuse_starts(t, &p, STARTS(0, 96), 97, "num_documents: expected 1 to 96, got 97");
  refuse_starts(t, &p, NULL, 3, "num_documents: expected 0 without cu_seqlens, got 3");
  refuse(t, (tg_train_batch){.targets = p.targets}, "expected pointers, got NULL");
  refuse(t, (tg_train_batch){.tokens = p.tokens}, "expected pointers, got NULL");
  tg_trainer_destroy(t);
  t = family_trainer(model, family_options(kRows, kLength));
  refuse_starts(t, &p, kStarts, kDocuments, "cu_seqlens: expected NULL (max_documents is 0)");
  tg_trainer_destroy(t);
  tg_model_destroy(model);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_documents_alone), cmocka_unit_test(test_rows_as_documents),
      cmocka_unit_test(test_any_number),      cmocka_unit_test(test_bf16),
      cmocka_unit_test(test_workspace),       cmocka_unit_test(test_micro_batches),
      cmocka_unit_test(test_micro_steps),     cmocka_unit_test(test_plan),
      cmocka_unit_test(test_no_targets),      cmocka_unit_test(test_bad_documents),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

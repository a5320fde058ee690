/* Checkpoints of the runtime: they go on bit for bit at any number of threads, in every dtype, and
 * files that do not fit are refused. */
#include "files/safetensors/safetensors_writer.h"
#include "model/weights/weights.h"
#include "scratch_directory.h"
#include "tegula/train.h"
#include "training/trainer_state.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cpu_trainer.h"

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

/* A state goes on with its own weights and options alone. */
static void test_another_run(void **state)
{
  (void)state;
  const scratch here = scratch_make();
  const char *path = scratch_file(&here, "checkpoint");
  tg_error error = {0};
  tg_model *model = new_model(), *rounded = NULL;
  tg_trainer *t = new_trainer(model, 1);
  EXPECT_OK(tg_trainer_save(t, NULL, NULL, path, &error), error);
  EXPECT_OK(tg_trainer_resume(t, path, NULL, 0, &error), error);
  tg_trainer_options o = t->options;
  tg_trainer_destroy(t);
  o.learning_rate *= 2;
  o.num_threads = 2;
  EXPECT_OK(tg_trainer_create(model, &o, &t, &error), error);
  EXPECT_ERROR(tg_trainer_resume(t, path, NULL, 0, &error), TG_BAD_ARGUMENT,
               "expected a trainer with learning_rate ", error);
  tg_trainer_destroy(t);
  o.learning_rate /= 2;
  o.num_steps++;
  EXPECT_OK(tg_trainer_create(model, &o, &t, &error), error);
  EXPECT_ERROR(tg_trainer_resume(t, path, NULL, 0, &error), TG_BAD_ARGUMENT,
               "expected a trainer with num_steps ", error);
  tg_trainer_destroy(t);
  o.num_steps--;
  const tg_save_options narrow = {.dtype = TG_BF16};
  EXPECT_OK(tg_model_save(model, &narrow, path, &error), error); /* beside the optimiser's state */
  EXPECT_OK(tg_model_load(path, TG_F32, &rounded, &error), error);
  EXPECT_OK(tg_trainer_create(rounded, &o, &t, &error), error);
  EXPECT_ERROR(tg_trainer_resume(t, path, NULL, 0, &error), TG_BAD_ARGUMENT,
               "expected the model to have the weights of this step", error);
  assert_int_equal(tg_trainer_steps(t), 0);
  tg_trainer_destroy(t);
  tg_model_destroy(rounded);
  tg_model_destroy(model);
  scratch_remove(&here);
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
  snprintf(text, sizeof text, config, kVocab, 2);
  write_text(scratch_file(&here, "checkpoint/config.json"), text);
  EXPECT_ERROR(tg_model_load(path, TG_DTYPE_NONE, &loaded, &error), TG_BAD_FILE,
               "transformer.h.2.attn.c_attn.bias: expected tensors of the 2 layers", error);
  write_text(scratch_file(&here, "checkpoint/config.json"), "{\"model_type\": \"mamba\"}");
  EXPECT_ERROR(tg_model_load(path, TG_DTYPE_NONE, &loaded, &error), TG_UNSUPPORTED, "mamba", error);
  snprintf(text, sizeof text, config, kVocab, 3);
  write_text(scratch_file(&here, "checkpoint/config.json"), text);
  write_text(scratch_file(&here, "checkpoint/trainer_state.json"),
             "{\"step\": -1, \"note\": \"\"}");
  EXPECT_ERROR(tg_trainer_resume(t, path, NULL, 0, &error), TG_BAD_FILE,
               "/trainer_state.json: step: expected an integer from 0, got -1", error);
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
    const tgi_block_source from = {.parameters = &narrow->parameters,
                                   .block = narrow->block,
                                   .dtype = dtypes[d],
                                   .file_dtype = dtypes[d],
                                   .prefix = ""};
    EXPECT_OK(tgi_block_write(&from, file, &error), error);
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

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_resume),      cmocka_unit_test(test_resume_bf16),
      cmocka_unit_test(test_another_run), cmocka_unit_test(test_mismatch),
      cmocka_unit_test(test_dtypes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

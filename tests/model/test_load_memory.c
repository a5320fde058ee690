/* How much memory a load of a model takes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/preset.h"
#include "model/weights/weights.h"
#include "rounded_model.h"
#include "scratch_directory.h"

/* A line of /proc/self/status in bytes. */
static int64_t memory_line(const char *key)
{
  char line[128];
  long long kib = -1;
  FILE *f = fopen("/proc/self/status", "r");
  while (f && fgets(line, sizeof line, f)) {
    if (strncmp(line, key, strlen(key)) == 0) {
      (void)sscanf(line + strlen(key), ": %lld", &kib);
    }
  }
  if (f) {
    (void)fclose(f);
  }
  return kib * 1024;
}

/* What the program does for the test below, in a process that did nothing else: how far a load
 * raises its peak, and the bytes of the weights, on standard output. */
static int tell_peak(const char *path, tg_dtype dtype)
{
  tg_model *model = NULL;
  const int64_t before = memory_line("VmHWM");
  const tg_status status = tg_model_load(path, dtype, &model, &error);
  const int64_t grown = memory_line("VmHWM") - before;
  if (status == TG_OK) {
    printf("%lld %zu\n", (long long)grown, tg_model_get_info(model).weight_bytes);
  }
  tg_model_destroy(model);
  return status ? 1 : 0;
}

static void ask_peak(const char *path, tg_dtype dtype, int64_t *grown, int64_t *weights)
{
  char command[2 * SCRATCH_PATH + 128], line[64] = "";
  long long numbers[2] = {0, 0};
  char self[SCRATCH_PATH];
  const ssize_t size = readlink("/proc/self/exe", self, sizeof self - 1);
  assert_true(size > 0);
  self[size] = '\0';
  snprintf(command, sizeof command, "%s --peak %s %d", self, path, (int)dtype);
  FILE *f = popen(command, "r"); /* NOLINT(cert-env33-c): our own words */
  assert_non_null(f);
  assert_non_null(fgets(line, sizeof line, f));
  assert_int_equal(pclose(f), 0);
  assert_int_equal(sscanf(line, "%lld %lld", &numbers[0], &numbers[1]), 2);
  *grown = numbers[0];
  *weights = numbers[1];
}

/* A GPT-2 of 20 M parameters whose matrices take more than a window each. */
static tg_model *wide_model(void)
{
  tg_model *model = calloc(1, sizeof *model);
  EXPECT_OK(tgi_preset("gpt_nano", 20000, &model->config, &error), error);
  model->config.num_hidden_layers = 1;
  model->config.num_attention_heads = model->config.num_key_value_heads = 8;
  model->config.head_dim = 64;
  model->config.hidden_size = 512;
  model->config.intermediate_size = 8192;
  model->dtype = TG_F32;
  EXPECT_OK(tgi_parameters_create(&model->config, &model->parameters, &error), error);
  EXPECT_OK(tgi_weights_allocate(model, &error), error);
  for (int64_t i = 0; i < model->parameters.elements; i++) { /* not in the gaps, which are 0 */
    ((float *)model->block)[i] = (float)((i * 7919) % 65521) - 32000;
  }
  return model;
}

static void a_load_takes_the_weights_and_a_window(void **state)
{
  (void)state;
  enum { kRoom = 24 << 20 }; /* windows on their way, threads, tables */
  const scratch dir = scratch_make();
  const char *path = scratch_file(&dir, "model");
  tg_model *model = wide_model();
  for (int f = 0; f < 3; f += 2) {
    EXPECT_OK(tg_model_save(model, &(tg_save_options){.dtype = kDtypes[f]}, path, &error), error);
    for (int d = 0; d < 3; d += 2) {
      int64_t grown, weights;
      ask_peak(path, kDtypes[d], &grown, &weights);
      if (grown > weights + kRoom || grown < weights / 2) {
        fail_msg("%s as %s: expected a peak of %lld bytes of weights and at most %d more, got %lld",
                 tg_dtype_name(kDtypes[f]), tg_dtype_name(kDtypes[d]), (long long)weights, kRoom,
                 (long long)grown);
      }
      tg_model *back = load(path, kDtypes[d]);
      assert_rounded(back, model, kDtypes[f]);
      tg_model_destroy(back);
    }
  }
  tg_model_destroy(model);
  scratch_remove(&dir);
}

int main(int argc, char **argv)
{
  if (argc == 4 && strcmp(argv[1], "--peak") == 0) {
    return tell_peak(argv[2], (tg_dtype)atoi(argv[3]));
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_load_takes_the_weights_and_a_window),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

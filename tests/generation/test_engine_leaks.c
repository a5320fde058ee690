/* Engines on a GPU: 10,000 requests leave its memory, and their blocks, as they were. So does an
 * engine. What is free is of the whole GPU: nothing may run beside this test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include <cmocka.h>

#include "engine_requests.h"

/* The first ones take what is taken once: modules, graphs of rows, memory that the driver keeps. */
enum { kFirst = 5000, kMany = 10000, kFew = 500 };

static tg_error error;

static int64_t free_bytes(void)
{
  tg_device_info gpu;
  EXPECT_OK(tg_device_get_info(0, &gpu, &error), error);
  return gpu.free_bytes;
}

static tg_engine *open_engine(const tg_model *model)
{
  tg_engine *e = NULL;
  tg_engine_options o = kOfMany;
  o.backend = TG_BACKEND_CUDA;
  EXPECT_OK(tg_engine_create(model, &o, &e, &error), error);
  return e;
}

static void expect_free(int64_t before, const char *when)
{
  const int64_t now = free_bytes();
  if (now < before) {
    fail_msg("%s: expected %lld free bytes on the GPU, as before, got %lld less", when,
             (long long)before, (long long)(before - now));
  }
}

static void no_memory_leaks(void **state)
{
  (void)state;
  if (tg_device_count() == 0) {
    skip();
  }
  tg_model *model = generation_model("gpt_nano", TG_F32);
  tg_engine *e = open_engine(model);
  run_many(e, kFirst);
  const int64_t working = free_bytes();
  run_many(e, kMany);
  expect_free(working, "10,000 requests");
  assert_true(tg_engine_get_info(e).set_back > 0);
  tg_engine_destroy(e);

  const int64_t before = free_bytes();
  e = open_engine(model);
  run_many(e, kFew);
  tg_engine_destroy(e);
  expect_free(before, "another engine");
  tg_model_destroy(model);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(no_memory_leaks)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

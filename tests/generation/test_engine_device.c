/* Engines on every device that there is: a request in company beside the same request alone in an
 * engine of one row that shares nothing, bit for bit, also where requests are set back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include <cmocka.h>

#include "engine_requests.h"

/* On the CPU test_engine has more of them. */
enum { kRequests = 32, kRequestsOnCpu = 12, kLong = 1000 };

static tg_error error;

static tg_engine *open_engine(const tg_model *model, tg_engine_options o)
{
  tg_engine *e = NULL;
  EXPECT_OK(tg_engine_create(model, &o, &e, &error), error);
  return e;
}

static void check_company(const tg_model *model, tg_engine_options o, int64_t most_prompt)
{
  const size_t requests = o.backend == TG_BACKEND_CPU ? kRequestsOnCpu : kRequests;
  asked *together = calloc(requests, sizeof *together), *alone = calloc(requests, sizeof *alone);
  uint64_t state = 7;
  size_t sent = 0;
  tg_engine *e = open_engine(model, o);
  o.max_tokens = (int32_t)tg_engine_get_info(e).max_tokens;
  o.batch = 1;
  o.no_sharing = true;
  tg_engine *single = open_engine(model, o);
  for (int64_t left = 0; sent < requests || left > 0;) {
    for (int64_t some = random_below(&state, 3); some > 0 && sent < requests; some--) {
      make_asked(&together[sent], &state, most_prompt);
      alone[sent] = together[sent];
      submit(e, &together[sent++]);
    }
    EXPECT_OK(tg_engine_step(e, &left, &error), error);
  }
  expect_idle(e);
  assert_true(o.cache_tokens == 0 || tg_engine_get_info(e).set_back > 0);
  for (size_t i = 0; i < requests; i++) {
    submit(single, &alone[i]);
    run_to_end(single);
    expect_same(&together[i], &alone[i], i);
  }
  tg_engine_destroy(e);
  tg_engine_destroy(single);
  free(together);
  free(alone);
}

static void check_device(tg_backend backend)
{
  static const tg_dtype dtypes[] = {TG_F32, TG_BF16};
  for (size_t d = 0; d < 2; d++) {
    tg_model *gpt = generation_model("gpt_nano", dtypes[d]);
    tg_model *qwen = generation_model("qwen3_nano", dtypes[d]);
    qwen->config.max_position_embeddings = kLong;
    check_company(gpt, (tg_engine_options){.backend = backend, .batch = 32}, 100);
    check_company(qwen, (tg_engine_options){.backend = backend, .batch = 64}, 700);
    check_company(qwen, (tg_engine_options){.backend = backend, .batch = 16, .cache_dtype = TG_F16},
                  300);
    check_company(qwen,
                  (tg_engine_options){.backend = backend,
                                      .batch = 16,
                                      .max_tokens = 380,
                                      .cache_tokens = 384,
                                      .piece_tokens = 128},
                  300);
    tg_model_destroy(gpt);
    tg_model_destroy(qwen);
  }
}

static void on_the_cpu(void **state)
{
  (void)state;
  check_device(TG_BACKEND_CPU);
}

static void on_a_gpu(void **state)
{
  (void)state;
  if (tg_device_count() == 0) {
    skip();
  }
  check_device(TG_BACKEND_CUDA);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(on_the_cpu), cmocka_unit_test(on_a_gpu)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

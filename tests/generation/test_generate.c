/* Generating on the CPU, in every form that a session can take: beside a loop of picking and
 * feeding. test_gpu_runtime has the same on a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "generation.h"

/* Nobody needs the two others here, but the GPU's way is the same code. */
static const generation_form kForms[] = {
    {.backend = TG_BACKEND_CPU},
    {.backend = TG_BACKEND_CPU, .by_place = true},
    {.backend = TG_BACKEND_CPU, .by_place = true, .ahead = true},
};

enum { kNumForms = sizeof kForms / sizeof kForms[0] };

static void check_family(const char *family, tg_dtype dtype, tg_sampling sampling)
{
  tg_model *model = generation_model(family, dtype);
  for (int i = 0; i < kNumForms; i++) {
    /* f32: every form gives the same tokens. bf16: in forms whose attention sums alike. */
    const int like = dtype == TG_F32 || i == 0 ? 0 : 1;
    const told want = loop_tokens(model, sampling, kForms[like]);
    check_tokens(model, sampling, kForms[i], &want);
    check_feed_after(model, kForms[i], dtype == TG_F32 ? 2e-5 : 0.05);
    check_dirty_cache(model, sampling, kForms[i], &want);
    check_stops(model, sampling, kForms[i], &want);
  }
  tg_model_destroy(model);
}

static void test_tokens(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof kFamilies / sizeof kFamilies[0]; i++) {
    check_family(kFamilies[i], TG_F32, kGreedy);
    check_family(kFamilies[i], TG_F32, kSampled);
    check_family(kFamilies[i], TG_BF16, kSampled);
  }
}

/* One token asked for, of a full timeline and of one with a single place left. */
static void test_ends(void **state)
{
  (void)state;
  tg_model *model = generation_model("gpt_nano", TG_F32);
  const told want = loop_tokens(model, kGreedy, kForms[0]);
  tg_error error = {0};
  for (int i = 0; i < kNumForms; i++) {
    tg_generate_options o = {.sampling = kGreedy};
    tg_session *s = generation_session(model, kForms[i]);
    feed_prompt(s);
    EXPECT_OK(tg_session_feed(s, want.ids, kRoom - kPrompt - 1, &error), error);
    told t = generate_tokens(s, &o, 0);
    expect_tokens(&t, want.ids + kRoom - kPrompt - 1, 2);
    EXPECT_OK(tg_session_truncate(s, kRoom - 1), error);
    EXPECT_OK(tg_session_feed(s, want.ids + kRoom - kPrompt - 1, 1, &error), error);
    t = generate_tokens(s, &o, 0);
    expect_tokens(&t, want.ids + kRoom - kPrompt, 1);
    assert_int_equal(tg_session_length(s), kRoom);
    tg_session_destroy(s);
  }
  tg_model_destroy(model);
}

static void test_refusals(void **state)
{
  (void)state;
  tg_error error = {0};
  told t = {.count = 0};
  tg_model *model = generation_model("gpt_nano", TG_F32);
  tg_session *s = generation_session(model, kForms[0]);
  tg_generate_options o = {.sampling = kGreedy};
  EXPECT_ERROR(tg_session_generate(NULL, &o, tell, &t, &error), TG_BAD_ARGUMENT, "pointers", error);
  EXPECT_ERROR(tg_session_generate(s, NULL, tell, &t, &error), TG_BAD_ARGUMENT, "pointers", error);
  EXPECT_ERROR(tg_session_generate(s, &o, NULL, &t, &error), TG_BAD_ARGUMENT, "pointers", error);
  EXPECT_ERROR(tg_session_generate(s, &o, tell, &t, &error), TG_BAD_ARGUMENT,
               "expected logits of a token fed last, got none after 0 tokens", error);
  feed_prompt(s);
  o.max_new_tokens = -1;
  EXPECT_ERROR(tg_session_generate(s, &o, tell, &t, &error), TG_BAD_ARGUMENT,
               "max_new_tokens: expected 0 or more, got -1", error);
  o.max_new_tokens = 3;
  o.num_stop_ids = 1;
  EXPECT_ERROR(tg_session_generate(s, &o, tell, &t, &error), TG_BAD_ARGUMENT,
               "stop_ids: expected 1 ids, got NULL", error);
  o.num_stop_ids = 0;
  o.sampling.temperature = -1;
  EXPECT_ERROR(tg_session_generate(s, &o, tell, &t, &error), TG_BAD_ARGUMENT,
               "temperature: expected", error);
  assert_int_equal(t.count, 0);
  assert_non_null(tg_session_logits(s)); /* nothing was done */
  assert_int_equal(tg_session_length(s), kPrompt);
  o.sampling.temperature = 0;
  t = generate_tokens(s, &o, 0);
  assert_int_equal(t.count, 3);
  assert_string_equal(tg_session_steps(s), "op by op");
  assert_string_equal(tg_session_steps(NULL), "");
  tg_session_destroy(s);
  tg_model_destroy(model);
  for (int i = 0; i < kNumForms; i++) {
    check_bad_logits(kForms[i]);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_tokens),
      cmocka_unit_test(test_ends),
      cmocka_unit_test(test_refusals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Biases, penalties and log-probabilities: beside plain sums in f64, and in a session in every form
 * that it can take, beside a loop of changing logits, picking and feeding. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include <cmocka.h>

#include "generation.h"

enum { kVocab = 37, kTold = 50 };

static const generation_form kForms[] = {
    {.backend = TG_BACKEND_CPU},
    {.backend = TG_BACKEND_CPU, .by_place = true},
    {.backend = TG_BACKEND_CPU, .by_place = true, .ahead = true},
};

static tg_error error;
static uint32_t seed = 5;

static uint32_t draw(void)
{
  seed = seed * 1664525u + 1013904223u;
  return seed >> 8;
}

/* ---- one row ---- */

/* The rule of model.h, id by id. */
static double changed(double z, int32_t id, const tg_sampling *s, const int32_t *ids, int count,
                      int generated)
{
  int seen = 0, times = 0;
  for (int64_t i = 0; i < s->num_logit_bias; i++) {
    z += s->logit_bias[i].id == id ? (double)s->logit_bias[i].value : 0;
  }
  const int from =
      s->penalty_window > 0 && s->penalty_window < count ? count - s->penalty_window : 0;
  for (int i = from; i < count; i++) {
    seen += ids[i] == id;
    times += ids[i] == id && i >= count - generated;
  }
  if (seen > 0 && s->repetition_penalty != 0) {
    const double p = (double)s->repetition_penalty;
    z = z > 0 ? z / p : z * p;
  }
  return times > 0 ? z - (double)s->frequency_penalty * times - (double)s->presence_penalty : z;
}

static void rows_beside_the_rule(void **state)
{
  (void)state;
  for (int round = 0; round < 400; round++) {
    float logits[kVocab], before[kVocab];
    int32_t ids[kTold];
    tg_logit_bias bias[3];
    for (int i = 0; i < kVocab; i++) {
      before[i] = logits[i] = (float)((double)draw() * 0x1p-20 - 8);
    }
    for (int i = 0; i < kTold; i++) {
      ids[i] = (int32_t)(draw() % kVocab);
    }
    for (int i = 0; i < 3; i++) { /* maybe the same id twice */
      bias[i] = (tg_logit_bias){(int32_t)(draw() % 4), (float)((double)draw() * 0x1p-22 - 2)};
    }
    const int count = (int)(draw() % (kTold + 1)),
              generated = (int)(draw() % (uint32_t)(count + 1));
    const tg_sampling s = {.repetition_penalty = round % 2 ? 0.7f + (float)(round % 9) / 9 : 0,
                           .presence_penalty = round % 3 ? (float)(round % 7) / 5 - 0.4f : 0,
                           .frequency_penalty = round % 5 ? (float)(round % 11) / 9 - 0.3f : 0,
                           .penalty_window = round % 4 ? 0 : round % 60,
                           .logit_bias = bias,
                           .num_logit_bias = round % 4};
    EXPECT_OK(tg_adjust_logits(logits, kVocab, &s, ids, count, generated, &error), error);
    for (int i = 0; i < kVocab; i++) {
      const double want = changed((double)before[i], i, &s, ids, count, generated);
      if (!(fabs((double)logits[i] - want) <= 4e-6 * (1 + fabs(want)))) {
        fail_msg("round %d, id %d: expected %g, got %g", round, i, want, (double)logits[i]);
      }
    }
  }
}

static void never_picked(void **state)
{
  (void)state;
  const tg_logit_bias bias[] = {{1, -INFINITY}, {2, -INFINITY}};
  const tg_sampling s = {.logit_bias = bias, .num_logit_bias = 2};
  float logits[4] = {0, 5, 9, 1};
  int32_t id;
  EXPECT_OK(tg_adjust_logits(logits, 4, &s, NULL, 0, 0, &error), error);
  EXPECT_OK(tg_sample_token(logits, 4, &s, 0, &id, &error), error);
  assert_int_equal(id, 3);
}

static void log_probabilities(void **state)
{
  (void)state;
  float logits[kVocab];
  double sum = 0;
  for (int i = 0; i < kVocab; i++) {
    logits[i] = (float)((double)(draw() % 50) / 7 - 3); /* some are equal */
    sum += exp((double)logits[i]);
  }
  tg_token_logprobs p = {.num_top = TG_MAX_TOP_LOGPROBS};
  EXPECT_OK(tg_compute_logprobs(logits, kVocab, 11, &p, &error), error);
  assert_true(fabs((double)p.logprob - ((double)logits[11] - log(sum))) < 1e-6);
  bool taken[kVocab] = {false};
  for (int k = 0; k < p.num_top; k++) {
    int best = -1;
    for (int i = 0; i < kVocab; i++) {
      best = !taken[i] && (best < 0 || logits[i] > logits[best]) ? i : best;
    }
    taken[best] = true;
    assert_int_equal(p.top[k].id, best);
    assert_true(fabs((double)p.top[k].logprob - ((double)logits[best] - log(sum))) < 1e-6);
  }
  const float few[3] = {-INFINITY, 2, 2};
  EXPECT_OK(tg_compute_logprobs(few, 3, 2, &p, &error), error);
  assert_true(fabs((double)p.logprob + log(2)) < 1e-6);
  assert_int_equal(p.top[0].id, 1);
  assert_int_equal(p.top[2].id, 0);
  assert_true(isinf(p.top[2].logprob) && p.top[2].logprob < 0);
  assert_int_equal(p.top[3].id, -1);
  const float large[2] = {3e38f, -3e38f};
  p.num_top = 0;
  EXPECT_OK(tg_compute_logprobs(large, 2, 0, &p, &error), error);
  assert_true(p.logprob == 0);
}

static void refusals(void **state)
{
  (void)state;
  float logits[4] = {1, 2, 3, 4};
  const int32_t ids[2] = {0, 4};
  const tg_sampling good = {.repetition_penalty = 2};
#define REFUSED(part, ...)                                                                         \
  do {                                                                                             \
    const tg_sampling bad = {__VA_ARGS__};                                                         \
    EXPECT_ERROR(tg_adjust_logits(logits, 4, &bad, ids, 1, 0, &error), TG_BAD_ARGUMENT, part,      \
                 error);                                                                           \
  } while (0)
  const tg_logit_bias beyond = {4, 0}, nan = {0, NAN}, infinite = {0, INFINITY};
  REFUSED("repetition_penalty: expected a finite number >= 0, got -1", .repetition_penalty = -1);
  REFUSED("presence_penalty: expected a finite number, got inf", .presence_penalty = INFINITY);
  REFUSED("frequency_penalty: expected a finite number, got", .frequency_penalty = NAN);
  REFUSED("penalty_window: expected 0 or more, got -1", .penalty_window = -1);
  REFUSED("logit_bias[0].id: expected 0 to 3, got 4", .logit_bias = &beyond, .num_logit_bias = 1);
  REFUSED("logit_bias[0].value: expected", .logit_bias = &nan, .num_logit_bias = 1);
  REFUSED("logit_bias[0].value: expected", .logit_bias = &infinite, .num_logit_bias = 1);
  REFUSED("logit_bias: expected 2 values, got NULL", .num_logit_bias = 2);
#undef REFUSED
  EXPECT_ERROR(tg_adjust_logits(logits, 4, &good, ids, 2, 0, &error), TG_BAD_ARGUMENT,
               "adjust_logits: ids[1]: expected 0 to 3, got 4", error);
  EXPECT_ERROR(tg_adjust_logits(logits, 4, &good, ids, 1, 2, &error), TG_BAD_ARGUMENT, "ids",
               error);
  EXPECT_ERROR(tg_adjust_logits(NULL, 4, &good, ids, 1, 0, &error), TG_BAD_ARGUMENT, "pointers",
               error);
  for (int i = 0; i < 4; i++) {
    assert_true(logits[i] == (float)(i + 1));
  }
  tg_token_logprobs p = {.num_top = TG_MAX_TOP_LOGPROBS + 1};
  EXPECT_ERROR(tg_compute_logprobs(logits, 4, 0, &p, &error), TG_BAD_ARGUMENT,
               "num_top: expected 0 to 20, got 21", error);
  p.num_top = 0;
  EXPECT_ERROR(tg_compute_logprobs(logits, 4, 4, &p, &error), TG_BAD_ARGUMENT, "got 4", error);
  logits[2] = NAN;
  EXPECT_ERROR(tg_compute_logprobs(logits, 4, 0, &p, &error), TG_BAD_ARGUMENT, "finite", error);
}

/* ---- sessions ---- */

static void sessions_apply_them(void **state)
{
  (void)state;
  tg_model *model = generation_model("gpt_nano", TG_F32);
  const told plain = loop_tokens(model, kGreedy, kForms[0]);
  for (int i = 0; i < kNumChanging; i++) {
    const told want = loop_tokens(model, kChanging[i], kForms[0]);
    assert_memory_not_equal(want.ids, plain.ids, sizeof plain.ids); /* it changes something */
    for (size_t f = 0; f < sizeof kForms / sizeof kForms[0]; f++) {
      check_changes(model, i, kForms[f], &want);
    }
  }
  tg_model_destroy(model);
}

typedef struct noted {
  told told;
  const tg_token_logprobs *logprobs;
  float of[kRoom + 1];
} noted;

static bool note(void *user, int32_t id)
{
  noted *n = user;
  n->of[n->told.count] = n->logprobs->logprob;
  assert_true(n->logprobs->top[0].logprob >= n->logprobs->logprob);
  return tell(&n->told, id);
}

/* Those of the model's logits, whatever changed them before the pick. */
static void sessions_tell_logprobs(void **state)
{
  (void)state;
  tg_model *model = generation_model("gpt_nano", TG_F32);
  for (size_t f = 0; f < sizeof kForms / sizeof kForms[0]; f++) {
    tg_token_logprobs p = {.num_top = 3}, want = {.num_top = 0};
    noted n = {.told = {.most = 30}, .logprobs = &p};
    const tg_generate_options o = {.sampling = {.temperature = 2, .frequency_penalty = 1},
                                   .logprobs = &p};
    tg_session *s = generation_session(model, kForms[f]);
    feed_prompt(s);
    EXPECT_OK(tg_session_generate(s, &o, note, &n, &error), error);
    assert_int_equal(n.told.count, 30);
    EXPECT_OK(tg_session_truncate(s, 0), error);
    feed_prompt(s);
    for (int i = 0; i < 30; i++) {
      EXPECT_OK(tg_compute_logprobs(tg_session_logits(s), kIds, n.told.ids[i], &want, &error),
                error);
      assert_true(fabsf(want.logprob - n.of[i]) < 1e-4f);
      EXPECT_OK(tg_session_feed(s, &n.told.ids[i], 1, &error), error);
    }
    tg_session_destroy(s);
  }
  tg_model_destroy(model);
}

static void sessions_refuse(void **state)
{
  (void)state;
  told t = {.count = 0};
  tg_token_logprobs p = {.num_top = -1};
  const tg_logit_bias beyond = {kIds, 0};
  tg_model *model = generation_model("gpt_nano", TG_F32);
  tg_session *s = generation_session(model, kForms[0]);
  feed_prompt(s);
  tg_generate_options o = {.logprobs = &p};
  EXPECT_ERROR(tg_session_generate(s, &o, tell, &t, &error), TG_BAD_ARGUMENT,
               "session_generate: logprobs: num_top: expected 0 to 20, got -1", error);
  o = (tg_generate_options){.sampling = {.repetition_penalty = -2}};
  EXPECT_ERROR(tg_session_generate(s, &o, tell, &t, &error), TG_BAD_ARGUMENT,
               "session_generate: repetition_penalty: expected a finite number >= 0, got -2",
               error);
  o = (tg_generate_options){.sampling = {.logit_bias = &beyond, .num_logit_bias = 1}};
  EXPECT_ERROR(tg_session_generate(s, &o, tell, &t, &error), TG_BAD_ARGUMENT,
               "session_generate: logit_bias[0].id: expected 0 to", error);
  assert_int_equal(t.count, 0);
  assert_non_null(tg_session_logits(s));
  tg_session_destroy(s);
  tg_model_destroy(model);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_beside_the_rule), cmocka_unit_test(never_picked),
      cmocka_unit_test(log_probabilities),    cmocka_unit_test(refusals),
      cmocka_unit_test(sessions_apply_them),  cmocka_unit_test(sessions_tell_logprobs),
      cmocka_unit_test(sessions_refuse),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

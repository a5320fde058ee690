/** Generating on any device: tokens beside those of a loop of picking and feeding on the CPU. After
 * cmocka.h. */
#ifndef TEGULA_TESTS_GENERATION_H
#define TEGULA_TESTS_GENERATION_H

#include "core/values/half.h"
#include "expect.h"
#include "generation/session_state.h"
#include "tegula/tegula.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { kIds = 257, kRoom = 128, kPrompt = 5 };

static const char *const kFamilies[] = {"gpt_nano", "qwen3_nano"};

static const tg_sampling kGreedy = {.temperature = 0};
static const tg_sampling kSampled = {
    .temperature = 1.5f, .top_k = 200, .top_p = 0.98f, .min_p = 0.001f, .seed = 77};

/** How a session runs passes over one token. */
typedef struct generation_form {
  tg_backend backend;
  bool by_place, recorded, ahead;
} generation_form;

static inline tg_model *generation_model(const char *preset, tg_dtype dtype)
{
  tg_model *model = NULL;
  tg_error error = {0};
  EXPECT_OK(tg_model_create(preset, kIds, 11, &model, &error), error);
  /* Far from the start values' uniform distribution; then rounded where it lies. */
  float *weights = model->block;
  for (int64_t i = 0; i < model->parameters.elements; i++) {
    const float w = 4 * weights[i];
    if (dtype == TG_F32) {
      weights[i] = w;
    } else {
      tgi_store(model->block, dtype, i, (double)w);
    }
  }
  model->dtype = dtype;
  return model;
}

/** Extents of 16, 32, 64 and 128 keys: a short run meets every border. */
static inline tg_session *generation_session(const tg_model *model, generation_form form)
{
  tg_session *s = NULL;
  tg_error error = {0};
  const tg_session_options o = {.max_tokens = kRoom, .backend = form.backend, .num_threads = 2};
  EXPECT_OK(tg_session_create(model, &o, &s, &error), error);
  s->by_place = form.by_place;
  s->recorded = form.recorded;
  s->ahead = form.ahead;
  s->least_extent = 16;
  return s;
}

typedef struct told {
  int32_t ids[kRoom + 1];
  int64_t count, most; /* most 0: as many as come */
} told;

static inline bool tell(void *user, int32_t id)
{
  told *t = user;
  assert_true(t->count <= kRoom);
  t->ids[t->count++] = id;
  return t->count != t->most;
}

static inline void feed_prompt(tg_session *s)
{
  static const int32_t prompt[kPrompt] = {3, 250, 17, 99, 4};
  tg_error error = {0};
  EXPECT_OK(tg_session_feed(s, prompt, kPrompt, &error), error);
}

/** Behind the prompt, with the caller changing logits, picking and feeding. */
static inline told loop_tokens(const tg_model *model, tg_sampling sampling, generation_form form)
{
  told t = {.count = 0};
  tg_error error = {0};
  int32_t ids[kRoom + 1] = {3, 250, 17, 99, 4}; /* the prompt of feed_prompt, then the tokens */
  float logits[kIds];
  tg_session *s = generation_session(model, form);
  feed_prompt(s);
  for (;;) {
    const int64_t length = tg_session_length(s);
    int32_t *id = &t.ids[t.count++];
    memcpy(logits, tg_session_logits(s), sizeof logits);
    EXPECT_OK(tg_adjust_logits(logits, kIds, &sampling, ids, length, length - kPrompt, &error),
              error);
    EXPECT_OK(tg_sample_token(logits, kIds, &sampling, (uint64_t)length, id, &error), error);
    ids[length] = *id;
    if (length == kRoom) {
      break;
    }
    EXPECT_OK(tg_session_feed(s, id, 1, &error), error);
  }
  tg_session_destroy(s);
  return t;
}

static inline void expect_tokens(const told *got, const int32_t *want, int64_t count)
{
  for (int64_t i = 0; i < got->count && i < count; i++) {
    if (got->ids[i] != want[i]) {
      fail_msg("token %lld: expected %d, got %d", (long long)i, want[i], got->ids[i]);
    }
  }
  assert_int_equal(got->count, count);
}

static inline told generate_tokens(tg_session *s, const tg_generate_options *o, int64_t most)
{
  told t = {.most = most};
  tg_error error = {0};
  EXPECT_OK(tg_session_generate(s, o, tell, &t, &error), error);
  assert_null(tg_session_logits(s));
  return t;
}

/** To the end of the cache, over every extent; then from the middle again. */
static inline void check_tokens(const tg_model *model, tg_sampling sampling, generation_form form,
                                const told *want)
{
  tg_generate_options o = {.sampling = sampling};
  tg_session *s = generation_session(model, form);
  for (int again = 0; again < 2; again++) {
    assert_int_equal(tg_session_truncate(s, 0), TG_OK);
    feed_prompt(s);
    told all = generate_tokens(s, &o, 0);
    expect_tokens(&all, want->ids, want->count);
    assert_int_equal(all.count, kRoom - kPrompt + 1);
    assert_int_equal(tg_session_length(s), kRoom);
  }
  tg_error error = {0};
  told none = {.count = 0};
  assert_int_equal(tg_session_truncate(s, kPrompt + 20), TG_OK);
  EXPECT_ERROR(tg_session_generate(s, &o, tell, &none, &error), TG_BAD_ARGUMENT,
               "expected logits of a token fed last, got none after 25 tokens", error);
  EXPECT_OK(tg_session_feed(s, want->ids + 20, 1, &error), error);
  o.max_new_tokens = 30;
  told some = generate_tokens(s, &o, 0);
  expect_tokens(&some, want->ids + 21, 30);
  assert_int_equal(tg_session_length(s), kPrompt + 21 + 29);
  /* The last token was not fed; with it the run goes on. */
  EXPECT_OK(tg_session_feed(s, &some.ids[29], 1, &error), error);
  o.max_new_tokens = 0;
  told rest = generate_tokens(s, &o, 7);
  expect_tokens(&rest, want->ids + 51, 7);
  assert_int_equal(tg_session_length(s), kPrompt + 51 + 6);
  tg_session_destroy(s);
}

/** Ends by a stop id, and by each of two reasons at once. */
static inline void check_stops(const tg_model *model, tg_sampling sampling, generation_form form,
                               const told *want)
{
  int64_t first = 0; /* where the id of token 8 comes first */
  while (want->ids[first] != want->ids[8]) {
    first++;
  }
  const int32_t stops[3] = {-5, kIds + 9, want->ids[first]};
  const tg_generate_options o = {.sampling = sampling, .stop_ids = stops, .num_stop_ids = 3};
  tg_session *s = generation_session(model, form);
  feed_prompt(s);
  told t = generate_tokens(s, &o, 0);
  expect_tokens(&t, want->ids, first + 1);
  assert_int_equal(tg_session_length(s), kPrompt + first);
  assert_int_equal(tg_session_truncate(s, 0), TG_OK);
  feed_prompt(s);
  t = generate_tokens(s, &o, first + 1);
  expect_tokens(&t, want->ids, first + 1);
  assert_int_equal(tg_session_truncate(s, 0), TG_OK);
  feed_prompt(s);
  t = generate_tokens(s, &o, 1);
  expect_tokens(&t, want->ids, 1);
  assert_int_equal(tg_session_length(s), kPrompt);
  tg_session_destroy(s);
}

/** The logits of a feed behind generated tokens are those of feeding everything at once. */
static inline void check_feed_after(const tg_model *model, generation_form form, double bound)
{
  const tg_generate_options o = {.sampling = kSampled, .max_new_tokens = 40};
  tg_error error = {0};
  tg_session *s = generation_session(model, form);
  tg_session *plain = generation_session(model, (generation_form){.backend = TG_BACKEND_CPU});
  feed_prompt(s);
  feed_prompt(plain);
  const told t = generate_tokens(s, &o, 0);
  const int32_t turn[3] = {t.ids[39], 8, 9};
  EXPECT_OK(tg_session_feed(s, turn, 3, &error), error);
  EXPECT_OK(tg_session_feed(plain, t.ids, 40, &error), error);
  EXPECT_OK(tg_session_feed(plain, turn + 1, 2, &error), error);
  const float *a = tg_session_logits(s), *b = tg_session_logits(plain);
  double most = 0, worst = 0;
  for (int i = 0; i < kIds; i++) {
    const double d = fabs((double)a[i] - (double)b[i]);
    most = fmax(most, fabs((double)b[i]));
    worst = d > worst || isnan(d) ? d : worst;
  }
  if (!(worst <= bound * most)) {
    fail_msg("logits: expected a difference of at most %g of %g, got %g", bound, most, worst);
  }
  tg_session_destroy(s);
  tg_session_destroy(plain);
}

/** Logits that nothing can be picked from: refused, and the session lives on. */
static inline void check_bad_logits(generation_form form)
{
  const tg_generate_options o = {.sampling = kGreedy};
  tg_error error = {0};
  told t = {.count = 0};
  tg_model *model = generation_model("gpt_nano", TG_F32);
  const int last = model->parameters.count - 1; /* of the final norm */
  float *weight = tgi_parameter_view(&model->parameters, last, model->block, TG_F32).data;
  const float was = weight[0];
  weight[0] = NAN;
  tg_session *s = generation_session(model, form);
  feed_prompt(s);
  EXPECT_ERROR(tg_session_generate(s, &o, tell, &t, &error), TG_BAD_ARGUMENT, "logits", error);
  assert_int_equal(t.count, 0);
  assert_int_equal(tg_session_length(s), kPrompt);
  feed_prompt(s);
  assert_int_equal(tg_session_length(s), 2 * kPrompt);
  assert_int_equal(tg_context_check(s->ctx), TG_OK);
  tg_session_destroy(s);
  weight[0] = was;
  tg_model_destroy(model);
}

/** NaN in every row of the cache that no token has written. */
static inline void check_dirty_cache(const tg_model *model, tg_sampling sampling,
                                     generation_form form, const told *want)
{
  const tg_generate_options o = {.sampling = sampling};
  tg_session *s = generation_session(model, form);
  const int64_t row = (int64_t)model->config.num_key_value_heads * model->config.head_dim;
  const size_t bytes = (size_t)(kRoom * row) * tg_dtype_bytes(model->dtype);
  void *dirt = malloc(bytes);
  memset(dirt, 0xff, bytes);
  for (int i = 0; i < model->config.num_hidden_layers; i++) {
    tg_memory_copy(s->ctx, s->cache[i].keys.data, bytes, dirt, bytes, bytes, 1);
    tg_memory_copy(s->ctx, s->cache[i].values.data, bytes, dirt, bytes, bytes, 1);
  }
  free(dirt);
  feed_prompt(s);
  const told t = generate_tokens(s, &o, 0);
  expect_tokens(&t, want->ids, want->count);
  tg_session_destroy(s);
}

/** Samplings that change logits; the prompt and what is behind it count for the first two. */
static const tg_logit_bias kBias[] = {{7, 3}, {99, -INFINITY}, {7, 1}};
static const tg_sampling kChanging[] = {
    {.repetition_penalty = 1.3f},
    {.temperature = 1, .seed = 3, .repetition_penalty = 1.5f, .penalty_window = 9},
    {.presence_penalty = 0.9f},
    {.temperature = 1.2f, .seed = 8, .frequency_penalty = 0.6f, .penalty_window = 20},
    {.temperature = 1,
     .repetition_penalty = 1.2f,
     .frequency_penalty = -0.2f,
     .presence_penalty = 0.3f,
     .logit_bias = kBias,
     .num_logit_bias = 3},
    {.logit_bias = kBias, .num_logit_bias = 3}};

enum { kNumChanging = sizeof kChanging / sizeof kChanging[0] };

/** Tokens of a call from the prompt to the end of the cache, with log-probabilities and without. */
static inline void check_changes(const tg_model *model, int which, generation_form form,
                                 const told *want)
{
  tg_error error = {0};
  tg_session *s = generation_session(model, form);
  tg_token_logprobs p = {.num_top = 2};
  for (int again = 0; again < 3; again++) {
    const tg_generate_options o = {.sampling = kChanging[which], .logprobs = again ? &p : NULL};
    EXPECT_OK(tg_session_truncate(s, 0), error);
    feed_prompt(s);
    const told t = generate_tokens(s, &o, 0);
    expect_tokens(&t, want->ids, want->count);
  }
  tg_session_destroy(s);
  if (which < 2) {
    check_tokens(model, kChanging[which], form, want);
  }
}

#endif

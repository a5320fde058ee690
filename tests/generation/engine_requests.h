/** Requests of every kind for an engine, and what a session of their own makes of them. After
 * cmocka.h. */
#ifndef TEGULA_TESTS_ENGINE_REQUESTS_H
#define TEGULA_TESTS_ENGINE_REQUESTS_H

#include "generation.h"
#include "tegula/engine.h"

enum { kMostPrompt = 700, kMostNew = 48, kNumStops = 2 };

/** A request of a test, and what came of it. */
typedef struct asked {
  int32_t ids[kMostPrompt];
  int64_t count;
  int32_t stops[kNumStops];
  tg_token_logprobs logprobs;
  tg_generate_options how;
  int64_t number;   /* of the engine; 0: not submitted yet */
  int64_t break_at; /* the callback returns false after so many tokens; 0: never */
  int32_t got[kMostNew + 1];
  float logprob[kMostNew + 1];
  int64_t num_got;
  int ends;
  tg_finish finish;
  tg_error error;
} asked;

static inline uint32_t next_random(uint64_t *state)
{
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 33);
}

/** Below `bound`. */
static inline int64_t random_below(uint64_t *state, int64_t bound)
{
  return (int64_t)(next_random(state) % (uint32_t)bound);
}

/** A prompt of at most `most` tokens, which may begin as others do; numbers of any kind. */
static inline void make_asked(asked *a, uint64_t *state, int64_t most)
{
  static const tg_sampling kinds[] = {
      {.temperature = 0},
      {.temperature = 1.5f, .top_k = 200, .top_p = 0.98f, .min_p = 0.001f},
      {.temperature = 1},
      {.temperature = 1, .repetition_penalty = 1.4f},
      {.temperature = 0.7f, .frequency_penalty = 0.5f, .presence_penalty = 0.2f},
      {.temperature = 1, .logit_bias = kBias, .num_logit_bias = 3}};
  *a = (asked){.count = 1 + random_below(state, most)};
  const int64_t text = random_below(state, 3), alike = random_below(state, a->count + 1);
  for (int64_t i = 0; i < a->count; i++) {
    a->ids[i] = i < alike ? (int32_t)((i * 7919 + text * 31 + i / 13) % kIds)
                          : (int32_t)random_below(state, kIds);
  }
  a->how.sampling = kinds[random_below(state, sizeof kinds / sizeof kinds[0])];
  a->how.sampling.seed = next_random(state);
  a->how.max_new_tokens = 1 + random_below(state, kMostNew);
  a->stops[0] = (int32_t)random_below(state, kIds);
  a->stops[1] = (int32_t)random_below(state, kIds);
  a->how.num_stop_ids = random_below(state, kNumStops + 1);
  a->break_at = random_below(state, 4) == 0 ? 1 + random_below(state, kMostNew) : 0;
  a->logprobs.num_top = random_below(state, 4) == 0 ? 2 : -1; /* -1: none are wanted */
}

static inline void keep_token(asked *a, int32_t id)
{
  assert_true(a->num_got <= kMostNew);
  a->logprob[a->num_got] = a->how.logprobs ? a->logprobs.logprob : 0;
  a->got[a->num_got++] = id;
}

static inline bool note_event(void *user, const tg_event *event)
{
  asked *a = user;
  assert_int_equal(a->ends, 0);
  if (event->finish == TG_FINISH_NONE) {
    assert_true(event->id >= 0 && event->id < kIds);
    assert_null(event->error);
    keep_token(a, event->id);
    return a->num_got != a->break_at;
  }
  assert_int_equal(event->id, -1);
  assert_int_equal(event->request, a->number);
  a->ends++;
  a->finish = event->finish;
  assert_int_equal(event->error != NULL, event->finish == TG_FINISH_FAILED);
  if (event->error) {
    a->error = *event->error;
  }
  return true;
}

static inline void point_inside(asked *a)
{
  a->how.stop_ids = a->stops;
  a->how.logprobs = a->logprobs.num_top >= 0 ? &a->logprobs : NULL;
}

static inline void submit(tg_engine *e, asked *a)
{
  tg_error error = {0};
  point_inside(a);
  const tg_request r = {
      .ids = a->ids, .count = a->count, .how = a->how, .on_event = note_event, .user = a};
  EXPECT_OK(tg_engine_submit(e, &r, &a->number, &error), error);
}

static inline bool note_alone(void *user, int32_t id)
{
  asked *a = user;
  keep_token(a, id);
  return a->num_got != a->break_at;
}

/** What the request gets in a session of its own. */
static inline void ask_alone(const tg_model *model, asked *a, const tg_session_options *o)
{
  tg_error error = {0};
  tg_session *s = NULL;
  point_inside(a);
  EXPECT_OK(tg_session_create(model, o, &s, &error), error);
  EXPECT_OK(tg_session_feed(s, a->ids, a->count, &error), error);
  EXPECT_OK(tg_session_generate(s, &a->how, note_alone, a, &error), error);
  tg_session_destroy(s);
}

static inline tg_finish finish_alone(const asked *a)
{
  const int32_t last = a->got[a->num_got - 1];
  for (int64_t i = 0; i < a->how.num_stop_ids; i++) {
    if (a->stops[i] == last) {
      return TG_FINISH_STOP;
    }
  }
  return a->num_got == a->break_at ? TG_FINISH_CALLER : TG_FINISH_LENGTH;
}

static inline void expect_same(const asked *got, const asked *alone, size_t which)
{
  for (int64_t i = 0; i < got->num_got && i < alone->num_got; i++) {
    if (got->got[i] != alone->got[i] || got->logprob[i] != alone->logprob[i]) {
      fail_msg("request %zu (prompt of %lld): token %lld: expected %d (%g), got %d (%g)", which,
               (long long)got->count, (long long)i, alone->got[i], (double)alone->logprob[i],
               got->got[i], (double)got->logprob[i]);
    }
  }
  assert_int_equal(got->num_got, alone->num_got);
  assert_int_equal(got->ends, 1);
  assert_int_equal(got->finish, finish_alone(alone));
}

/** No request is left, and no block has a user but the cache of prefixes. */
static inline void expect_idle(const tg_engine *e)
{
  const tg_engine_info info = tg_engine_get_info(e);
  assert_int_equal(info.waiting, 0);
  assert_int_equal(info.running, 0);
  assert_int_equal(info.free_blocks + info.shared_blocks, info.blocks);
}

static inline void run_to_end(tg_engine *e)
{
  tg_error error = {0};
  int64_t left = 1, steps = 0;
  while (left > 0) {
    EXPECT_OK(tg_engine_step(e, &left, &error), error);
    assert_true(++steps < 100000);
  }
  expect_idle(e);
}

/** An engine for gpt_nano that run_many keeps short of blocks. */
static const tg_engine_options kOfMany = {
    .batch = 12, .max_tokens = 128, .cache_tokens = 384, .piece_tokens = 64};

/** So many requests of every kind that arrive, stop and are cancelled at random. They share
 * prompts' beginnings, are set back for want of blocks, and leave no block behind. Returns how many
 * were cancelled. */
static inline int64_t run_many(tg_engine *e, int64_t many)
{
  enum { kSlots = 24 };
  tg_error error = {0};
  asked *slot = calloc(kSlots, sizeof *slot);
  uint64_t seed = 5;
  int64_t sent = 0, ended = 0, cancelled = 0;
  for (int64_t left = 0; sent < many || left > 0;) {
    for (int i = 0; i < kSlots; i++) {
      if (slot[i].ends) {
        ended++;
        cancelled += slot[i].finish == TG_FINISH_CANCELLED;
        slot[i].number = 0;
        slot[i].ends = 0;
      }
      if (slot[i].number == 0 && sent < many && random_below(&seed, 2)) {
        make_asked(&slot[i], &seed, 100);
        slot[i].how.max_new_tokens = 1 + random_below(&seed, random_below(&seed, 8) ? 6 : kMostNew);
        submit(e, &slot[i]);
        sent++;
      } else if (slot[i].number > 0 && random_below(&seed, 200) == 0) {
        EXPECT_OK(tg_engine_cancel(e, slot[i].number), error);
      }
    }
    EXPECT_OK(tg_engine_step(e, &left, &error), error);
  }
  for (int i = 0; i < kSlots; i++) {
    ended += slot[i].ends;
  }
  free(slot);
  expect_idle(e);
  assert_int_equal(ended, many);
  return cancelled;
}

#endif

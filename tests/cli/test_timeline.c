/* The ids that a session keeps between turns: the next turn evaluates the new ones alone, and
 * answers as a fresh session does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include <cmocka.h>

#include "cli/chat/timeline.h"
#include "generation.h"

enum { kLong = 700 };

static tg_error error;
static tg_model *model;
static int calls_left; /* of go_on, before it says no */

static bool go_on(void)
{
  return calls_left-- <= 0;
}

static int make_model(void **state)
{
  (void)state;
  model = generation_model("qwen3_nano", TG_F32);
  model->config.max_position_embeddings = kLong; /* positions are no parameters */
  return 0;
}

static int free_model(void **state)
{
  (void)state;
  tg_model_destroy(model);
  return 0;
}

static tgi_timeline open_timeline(void)
{
  tgi_timeline t = {.session = NULL};
  const tg_session_options o = {.max_tokens = kLong, .num_threads = 2};
  EXPECT_OK(tg_session_create(model, &o, &t.session, &error), error);
  return t;
}

static void close_timeline(tgi_timeline *t)
{
  tg_session_destroy(t->session);
  tgi_timeline_free(t);
}

static void set(tgi_timeline *t, const int32_t *ids, int64_t count, int64_t kept)
{
  bool complete = false;
  calls_left = 1000;
  EXPECT_OK(tgi_timeline_set(t, ids, count, go_on, &complete, &error), error);
  assert_true(complete);
  assert_int_equal(t->kept, kept);
  assert_int_equal(t->evaluated, count - kept);
  assert_int_equal(t->count, count);
  assert_int_equal(tg_session_length(t->session), count);
  assert_memory_equal(t->ids, ids, (size_t)count * sizeof *ids);
}

typedef struct spoken {
  tgi_timeline *timeline;
  int32_t ids[32];
  int64_t count;
} spoken;

static bool speak(void *user, int32_t id)
{
  spoken *s = user;
  assert_true(s->count < 32);
  s->ids[s->count++] = id;
  EXPECT_OK(tgi_timeline_note(s->timeline, id, &error), error);
  return true;
}

/* An answer of 20 tokens behind what the timeline holds. */
static spoken answer(tgi_timeline *t, tg_sampling sampling)
{
  spoken s = {.timeline = t};
  const tg_generate_options o = {.sampling = sampling, .max_new_tokens = 20};
  EXPECT_OK(tg_session_generate(t->session, &o, speak, &s, &error), error);
  tgi_timeline_settle(t);
  assert_int_equal(s.count, 20);
  return s;
}

static void fill(int32_t *ids, int64_t from, int64_t to, int seed)
{
  for (int64_t i = from; i < to; i++) {
    ids[i] = (int32_t)((i * 7919 + i * i + seed) % kIds);
  }
}

static void next_turn_evaluates_what_is_new(void **state)
{
  (void)state;
  const tg_sampling samplings[] = {kGreedy, kSampled};
  for (int way = 0; way < 2; way++) {
    int32_t ids[kLong];
    tgi_timeline t = open_timeline(), fresh = open_timeline();
    fill(ids, 0, 300, 1);
    set(&t, ids, 300, 0);
    const spoken first = answer(&t, samplings[way]);
    /* 19 of the 20 tokens were fed; the 20th, and a question, are new. */
    assert_int_equal(t.count, 319);
    memcpy(ids + 300, first.ids, 20 * sizeof *ids);
    fill(ids, 320, 341, 2);
    set(&t, ids, 341, 319);
    const spoken second = answer(&t, samplings[way]);
    set(&fresh, ids, 341, 0);
    const spoken again = answer(&fresh, samplings[way]);
    assert_memory_equal(second.ids, again.ids, 20 * sizeof *ids);
    close_timeline(&t);
    close_timeline(&fresh);
  }
}

static void what_differs_is_cut(void **state)
{
  (void)state;
  int32_t ids[kLong];
  bool complete = true;
  tgi_timeline t = open_timeline(), fresh = open_timeline();
  fill(ids, 0, 60, 1);
  set(&t, ids, 60, 0);
  (void)answer(&t, kGreedy);
  /* As where a template drops a thought: the answer's middle is another. */
  fill(ids, 50, 90, 5);
  set(&t, ids, 90, 50);
  set(&fresh, ids, 90, 0);
  const spoken a = answer(&t, kGreedy), b = answer(&fresh, kGreedy);
  assert_memory_equal(a.ids, b.ids, 20 * sizeof *ids);
  /* The same prompt again, and a part of it: the last id gives the logits. */
  set(&t, ids, 90, 89);
  set(&t, ids, 10, 9);
  const spoken c = answer(&t, kGreedy);
  set(&t, ids, 10, 9);
  const spoken d = answer(&t, kGreedy);
  assert_memory_equal(c.ids, d.ids, 20 * sizeof *ids);
  /* Nothing in common. */
  fill(ids, 0, 5, 9);
  set(&t, ids, 5, 0);
  EXPECT_ERROR(tgi_timeline_set(&t, ids, 0, go_on, &complete, &error), TG_BAD_ARGUMENT,
               "expected a prompt of ids, got none", error);
  assert_false(complete);
  close_timeline(&t);
  close_timeline(&fresh);
}

static void stopped_and_refused(void **state)
{
  (void)state;
  int32_t ids[kLong + 1];
  bool complete = true;
  tgi_timeline t = open_timeline();
  fill(ids, 0, kLong + 1, 1);
  calls_left = 2; /* pieces of 256 */
  EXPECT_OK(tgi_timeline_set(&t, ids, 600, go_on, &complete, &error), error);
  assert_false(complete);
  assert_int_equal(t.count, 512);
  assert_int_equal(tg_session_length(t.session), 512);
  set(&t, ids, 600, 512);
  /* An id that is none: what was evaluated before it stays. */
  ids[650] = kIds;
  calls_left = 1000;
  assert_int_equal(tgi_timeline_set(&t, ids, 660, go_on, &complete, &error), TG_BAD_ARGUMENT);
  assert_int_equal(t.count, tg_session_length(t.session));
  assert_int_equal(t.count, 600);
  ids[650] = 3;
  set(&t, ids, 660, 600);
  close_timeline(&t);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(next_turn_evaluates_what_is_new),
      cmocka_unit_test(what_differs_is_cut),
      cmocka_unit_test(stopped_and_refused),
  };
  return cmocka_run_group_tests_name("timeline", tests, make_model, free_model);
}

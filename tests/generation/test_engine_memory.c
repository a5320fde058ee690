/* Every allocation of an engine fails once: making it, or submitting a request, returns NO_MEMORY,
 * the requests before go on, and nothing leaks. Steps allocate nothing. Linked with --wrap for the
 * allocating functions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include <cmocka.h>

#include "engine_requests.h"

static bool counting;
static long fail_at, allocated, alive;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_aligned_alloc(size_t align, size_t size);
void __real_free(void *block);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);
void __wrap_free(void *block);

static bool refuse(void)
{
  return counting && ++allocated == fail_at;
}

static void *count_block(void *block)
{
  alive += counting && block;
  return block;
}

void *__wrap_malloc(size_t size)
{
  return refuse() ? NULL : count_block(__real_malloc(size));
}

void *__wrap_calloc(size_t count, size_t size)
{
  return refuse() ? NULL : count_block(__real_calloc(count, size));
}

void *__wrap_aligned_alloc(size_t align, size_t size)
{
  return refuse() ? NULL : count_block(__real_aligned_alloc(align, size));
}

void __wrap_free(void *block)
{
  alive -= counting && block;
  __real_free(block);
}

static asked first, second;

static tg_status try_submit(tg_engine *e, asked *a, tg_error *error)
{
  *a = (asked){.count = 90, .how = {.max_new_tokens = 9}, .logprobs = {.num_top = -1}};
  const tg_request r = {
      .ids = a->ids, .count = a->count, .how = a->how, .on_event = note_event, .user = a};
  return tg_engine_submit(e, &r, &a->number, error);
}

/* An engine with two requests, to their end. *created: it was made. */
static tg_status run_engine(const tg_model *model, bool *created)
{
  const tg_engine_options o = {.batch = 2, .num_threads = 1};
  tg_error error = {0};
  tg_engine *e = NULL;
  tg_status status = tg_engine_create(model, &o, &e, &error);
  *created = status == TG_OK;
  if (!*created) {
    assert_null(e);
    assert_int_equal(error.status, status);
    return status;
  }
  const tg_status one = try_submit(e, &first, &error), two = try_submit(e, &second, &error);
  const long before = allocated;
  for (int64_t left = 1; left > 0;) {
    EXPECT_OK(tg_engine_step(e, &left, &error), error);
  }
  assert_int_equal(allocated, before);
  expect_idle(e);
  assert_int_equal(first.ends, one == TG_OK);
  assert_int_equal(second.ends, two == TG_OK);
  assert_int_equal(second.num_got, two == TG_OK ? 9 : 0);
  tg_engine_destroy(e);
  return one ? one : two;
}

static tg_status run(const tg_model *model, long at, bool *created)
{
  allocated = alive = 0;
  fail_at = at;
  counting = true;
  const tg_status status = run_engine(model, created);
  counting = false;
  assert_int_equal(alive, 0);
  return status;
}

static void every_allocation_fails(void **state)
{
  (void)state;
  tg_model *model = generation_model("qwen3_nano", TG_F32);
  bool created;
  assert_int_equal(run(model, 0, &created), TG_OK); /* also what is made once in a process */
  assert_int_equal(run(model, 0, &created), TG_OK);
  const long total = allocated;
  int refused = 0;
  assert_true(total > 10);
  for (long at = 1; at <= total; at++) {
    const tg_status status = run(model, at, &created);
    if (status != TG_NO_MEMORY) {
      fail_msg("allocation %ld of %ld: expected NO_MEMORY, got %s", at, total,
               tg_status_name(status));
    }
    refused += created;
  }
  assert_int_equal(refused, 4); /* two blocks of each request */
  tg_model_destroy(model);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation_fails)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

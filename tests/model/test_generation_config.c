/* generation_config.json: what is read, what is refused, and how it joins config.json's ids. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "expect.h"
#include "model/config/generation_config.h"
#include "scratch_directory.h"
#include <cmocka.h>

static tg_error error;

/* A configuration with the ids 7 and 9 at the end. */
static tgi_generation_config start(void)
{
  const tgi_config config = {.bos_token_id = 3, .eos_token_ids = {7, 9}, .num_eos_token_ids = 2};
  tgi_generation_config c;
  tgi_generation_config_start(&config, &c);
  return c;
}

static tgi_generation_config good(const char *text)
{
  tgi_generation_config c = start();
  EXPECT_OK(tgi_generation_config_parse("g.json", text, strlen(text), &c, &error), error);
  return c;
}

static void assert_stops(const tgi_generation_config *c, int32_t count, const int32_t *ids)
{
  assert_int_equal(c->num_stop_ids, count);
  for (int32_t i = 0; i < count; i++) {
    assert_int_equal(c->stop_ids[i], ids[i]);
  }
}

static void without_a_file_nothing_is_changed(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  tgi_generation_config c = start();
  EXPECT_OK(tgi_generation_config_read(scratch_file(&dir, "generation_config.json"), &c, &error),
            error);
  assert_false(c.says.given);
  assert_true(c.says.temperature == 1 && c.says.top_p == 1 && c.says.min_p == 0);
  assert_true(c.says.repetition_penalty == 1);
  assert_int_equal(c.says.top_k, 0);
  assert_int_equal(c.says.max_new_tokens, 0);
  assert_int_equal(c.says.bos_token_id, 3);
  assert_int_equal(c.says.pad_token_id, -1);
  assert_stops(&c, 2, (const int32_t[]){7, 9});
  assert_null(c.text);
  scratch_remove(&dir);
}

static void every_key_is_read(void **state)
{
  (void)state;
  tgi_generation_config c =
      good("{\"bos_token_id\":5,\"do_sample\":true,\"eos_token_id\":[9,11,12],\"pad_token_id\":11,"
           "\"temperature\":0.6,\"top_k\":20,\"top_p\":0.95,\"min_p\":0.05,"
           "\"repetition_penalty\":1.1,\"max_new_tokens\":2048,\"transformers_version\":\"4.51.0\","
           "\"cache_implementation\":null,\"model_max_length\":1000000000000000019884624838656}");
  assert_true(c.says.given);
  assert_true(c.says.temperature == 0.6f && c.says.top_p == 0.95f && c.says.min_p == 0.05f);
  assert_true(c.says.repetition_penalty == 1.1f);
  assert_int_equal(c.says.top_k, 20);
  assert_int_equal(c.says.max_new_tokens, 2048);
  assert_int_equal(c.says.bos_token_id, 5);
  assert_int_equal(c.says.pad_token_id, 11);
  assert_stops(&c, 4, (const int32_t[]){7, 9, 11, 12});
  c = good("{\"temperature\":null,\"top_k\":null,\"eos_token_id\":null,\"pad_token_id\":-1}");
  assert_true(c.says.temperature == 1 && c.says.top_k == 0);
  assert_int_equal(c.says.pad_token_id, -1);
  assert_int_equal(c.says.bos_token_id, 3);
  assert_stops(&c, 2, (const int32_t[]){7, 9});
  c = good("{\"eos_token_id\":4}");
  assert_stops(&c, 3, (const int32_t[]){7, 9, 4});
  c = good("{\"eos_token_id\":[20,21,22,23,24,25,26,27]}");
  assert_int_equal(c.num_stop_ids, 10);
}

static void no_sampling_is_greedy(void **state)
{
  (void)state;
  assert_true(good("{\"do_sample\":false}").says.temperature == 0);
  assert_true(good("{\"do_sample\":false,\"temperature\":0.7}").says.temperature == 0);
  assert_true(good("{\"do_sample\":true}").says.temperature == 1);
  assert_true(good("{}").says.temperature == 1);
}

static void wrong_keys_are_named(void **state)
{
  (void)state;
  static const struct {
    const char *text, *message;
  } cases[] = {
      {"[]", "g.json: expected an object, got []"},
      {"{", "g.json: byte 1: expected JSON"},
      {"{\"temperature\":-1}", "temperature: expected a number from 0 to 1000, got -1"},
      {"{\"temperature\":\"hot\"}", "temperature: expected a number from 0 to 1000, got \"hot\""},
      {"{\"do_sample\":1}", "do_sample: expected true or false, got 1"},
      {"{\"top_k\":-1}", "top_k: expected an integer from 0 to 2147483647, got -1"},
      {"{\"top_k\":1.5}", "top_k: expected an integer"},
      {"{\"top_p\":1.5}", "top_p: expected a number from 0 to 1, got 1.5"},
      {"{\"min_p\":[]}", "min_p: expected a number from 0 to 1, got []"},
      {"{\"repetition_penalty\":0}",
       "repetition_penalty: expected a number above 0, at most 1000, got 0"},
      {"{\"max_new_tokens\":\"x\"}", "max_new_tokens: expected an integer"},
      {"{\"bos_token_id\":-2}", "bos_token_id: expected an integer from -1"},
      {"{\"pad_token_id\":{}}", "pad_token_id: expected an integer from -1"},
      {"{\"eos_token_id\":[1,\"2\"]}", "eos_token_id: expected at most 8 integers"},
      {"{\"eos_token_id\":[1,2,3,4,5,6,7,8,9]}", "eos_token_id: expected at most 8 integers"},
      {"{\"eos_token_id\":-1}", "eos_token_id: expected an integer from 0"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    tgi_generation_config c = start();
    EXPECT_ERROR(
        tgi_generation_config_parse("g.json", cases[i].text, strlen(cases[i].text), &c, &error),
        TG_BAD_FILE, cases[i].message, error);
  }
}

static void the_text_is_kept(void **state)
{
  (void)state;
  static const char text[] = "{\"top_k\": 3, \"anyone's\": [1,  2]}\n";
  const scratch dir = scratch_make();
  const char *path = scratch_file(&dir, "generation_config.json");
  write_text(path, text);
  tgi_generation_config c = start();
  EXPECT_OK(tgi_generation_config_read(path, &c, &error), error);
  assert_int_equal(c.says.top_k, 3);
  assert_int_equal(c.size, sizeof text - 1);
  assert_memory_equal(c.text, text, c.size);
  tgi_generation_config_free(&c);
  write_text(path, "{\"top_k\": }");
  c = start();
  EXPECT_ERROR(tgi_generation_config_read(path, &c, &error), TG_BAD_FILE,
               "/generation_config.json: byte 11: expected JSON", error);
  assert_null(c.text);
  scratch_remove(&dir);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(without_a_file_nothing_is_changed),
      cmocka_unit_test(every_key_is_read),
      cmocka_unit_test(no_sampling_is_greedy),
      cmocka_unit_test(wrong_keys_are_named),
      cmocka_unit_test(the_text_is_kept),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

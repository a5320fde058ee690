/* Tables of measured products and their files: whole ones are read back, all others are ignored and
 * said to be. */
#include "core/tuned_products.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "scratch_directory.h"

static const tgi_tuned_owner kOwner = {"NVIDIA H200", "580.1", "0.1.0 abc"};

static tgi_tuned_key key_of(int64_t m)
{
  return (tgi_tuned_key){.m = m, .n = 4096, .k = 1024, .dtype = 3, .c_dtype = 1, .a_major = 1};
}

static tgi_tuned *table(void)
{
  tgi_tuned *t = tgi_tuned_open(&kOwner);
  assert_non_null(t);
  return t;
}

/* `count` products of 1, 2, ... rows with candidates 1 to 3. */
static void save(int count)
{
  tgi_tuned *t = table();
  tg_error error = {.status = TG_OK};
  for (int i = 0; i < count; i++) {
    const tgi_tuned_product p = {key_of(i + 1), 1 + i % 3, 1.5F * (float)i, true};
    assert_true(tgi_tuned_put(t, &p));
  }
  if (tgi_tuned_save(t, &error) != TG_OK) {
    fail_msg("%s", error.text);
  }
  tgi_tuned_close(t);
}

static int found(const tgi_tuned *t, int64_t m)
{
  const tgi_tuned_key key = key_of(m);
  return tgi_tuned_find(t, &key);
}

static void expect_text(const tgi_tuned *t, const char *part)
{
  char text[1024];
  tgi_tuned_text(t, text, sizeof text);
  if (!strstr(text, part)) {
    fail_msg("expected a text with \"%s\", got \"%s\"", part, text);
  }
}

static void test_round_trip(void **state)
{
  (void)state;
  tgi_tuned *none = table();
  expect_text(none, "built in");
  assert_string_equal(none->why, "");
  assert_int_equal(found(none, 1), TGI_TUNED_NONE);
  tgi_tuned_close(none);
  save(300);
  tgi_tuned *t = table();
  assert_int_equal(t->count, 300);
  for (int i = 0; i < 300; i++) {
    assert_int_equal(found(t, i + 1), 1 + i % 3);
  }
  assert_int_equal(found(t, 301), TGI_TUNED_NONE);
  const tgi_tuned_key key = key_of(5);
  assert_false(tgi_tuned_is_fresh(t, &key));
  expect_text(t, ": 300 products");
  tgi_tuned_close(t);
}

/* What another process wrote after a table was read stays; of a product of both, the later one;
 * what was not measured anew is the file's. */
static void test_two_writers(void **state)
{
  (void)state;
  tg_error error = {.status = TG_OK};
  save(3);
  tgi_tuned *first = table(), *second = table();
  const tgi_tuned_product a = {key_of(2), 192, 1, true}, b = {key_of(10), 128, 2, true};
  const tgi_tuned_product c = {key_of(2), 256, 3, true}, d = {key_of(11), 256, 4, true};
  assert_true(tgi_tuned_put(first, &a) && tgi_tuned_put(first, &b));
  assert_true(tgi_tuned_put(second, &c) && tgi_tuned_put(second, &d));
  assert_int_equal(tgi_tuned_save(first, &error), TG_OK);
  assert_int_equal(tgi_tuned_save(second, &error), TG_OK);
  tgi_tuned_clear_fresh(first); /* saved again, it takes nothing back */
  assert_int_equal(tgi_tuned_save(first, &error), TG_OK);
  tgi_tuned *t = table();
  assert_int_equal(t->count, 5);
  assert_int_equal(found(t, 1), 1);
  assert_int_equal(found(t, 2), 256);
  assert_int_equal(found(t, 3), 3);
  assert_int_equal(found(t, 10), 128);
  assert_int_equal(found(t, 11), 256);
  tgi_tuned_close(t);
  tgi_tuned_close(second);
  tgi_tuned_close(first);
}

/* Times are whole numbers in the file, as a fraction's point depends on the locale. */
static void test_times(void **state)
{
  (void)state;
  tg_error error = {.status = TG_OK};
  tgi_tuned *t = table();
  const tgi_tuned_product p = {key_of(7), 192, 12.3456F, true};
  assert_true(tgi_tuned_put(t, &p));
  assert_int_equal(tgi_tuned_save(t, &error), TG_OK);
  size_t bytes = 0;
  char *text = read_file(t->path, &bytes);
  assert_non_null(strstr(text, "\n7 4096 1024 3 1 1 0 0 0 192 12346\nend 1 "));
  free(text);
  tgi_tuned_close(t);
  t = table();
  for (int i = 0; i < TGI_TUNED_PLACES; i++) {
    if (t->places[i].candidate != TGI_TUNED_NONE) {
      assert_float_equal(t->places[i].microseconds, 12.346, 1e-5);
    }
  }
  assert_int_equal(t->count, 1);
  tgi_tuned_close(t);
}

static void test_full(void **state)
{
  (void)state;
  tgi_tuned *t = table();
  for (int i = 0; i < TGI_TUNED_MOST; i++) {
    const tgi_tuned_product p = {key_of(i + 1), TGI_TUNED_LT, 1, true};
    assert_true(tgi_tuned_put(t, &p));
  }
  const tgi_tuned_product again = {key_of(1), 192, 1, true}, more = {key_of(-1), 192, 1, true};
  assert_false(tgi_tuned_put(t, &more));
  assert_true(tgi_tuned_put(t, &again)); /* in its place */
  assert_int_equal(found(t, 1), 192);
  assert_int_equal(found(t, -1), TGI_TUNED_NONE);
  tgi_tuned_close(t);
}

static void expect_ignored(const char *why)
{
  tgi_tuned *t = table();
  assert_int_equal(t->count, 0);
  assert_int_equal(found(t, 1), TGI_TUNED_NONE);
  expect_text(t, "built in; ");
  expect_text(t, why);
  tgi_tuned_close(t);
}

static void test_damage(void **state)
{
  (void)state;
  char changed[1 << 12];
  save(10);
  tgi_tuned *t = table();
  char path[TGI_TUNED_PATH];
  snprintf(path, sizeof path, "%s", t->path);
  tgi_tuned_close(t);
  size_t bytes = 0;
  char *text = read_file(path, &bytes);
  assert_true(bytes < sizeof changed);
  for (size_t cut = 0; cut + 18 < bytes; cut += 7) { /* without the whole last line */
    write_file(path, text, cut);
    expect_ignored(cut < 17 ? "another file" : "damaged");
  }
  for (size_t at = 20; at + 24 < bytes; at += 5) {
    memcpy(changed, text, bytes);
    changed[at] = (char)(changed[at] ^ 1);
    write_file(path, changed, bytes);
    expect_ignored("damaged");
  }
  write_file(path, text, bytes);
  t = table();
  assert_int_equal(t->count, 10);
  tgi_tuned_close(t);
  free(text);
}

/* A file of another owner in the place of ours, whole in itself. */
static void test_other_owner(void **state)
{
  (void)state;
  const tgi_tuned_owner other = {"NVIDIA H100", "580.1", "0.1.0 abc"};
  save(10);
  tgi_tuned *ours = table(), *theirs = tgi_tuned_open(&other);
  assert_string_not_equal(ours->path, theirs->path);
  assert_int_equal(theirs->count, 0);
  assert_int_equal(rename(ours->path, theirs->path), 0);
  tgi_tuned_close(theirs);
  theirs = tgi_tuned_open(&other);
  assert_int_equal(theirs->count, 0);
  expect_text(theirs, "expected a table of this GPU, driver and build");
  tgi_tuned_close(theirs);
  tgi_tuned_close(ours);
}

static void test_clear(void **state)
{
  (void)state;
  int64_t removed = 0;
  tg_error error = {.status = TG_OK};
  save(3);
  assert_int_equal(tgi_tuned_clear(&removed, &error), TG_OK);
  assert_true(removed >= 1);
  assert_int_equal(tgi_tuned_clear(&removed, &error), TG_OK);
  assert_int_equal(removed, 0);
  tgi_tuned *t = table();
  assert_int_equal(t->count, 0);
  tgi_tuned_close(t);
}

static void test_no_place(void **state)
{
  (void)state;
  char *kept = strdup(getenv("TEGULA_CACHE_DIR"));
  tg_error error = {.status = TG_OK};
  setenv("TEGULA_CACHE_DIR", "/dev/null/below", 1);
  tgi_tuned *t = table();
  assert_int_equal(t->count, 0);
  assert_int_equal(tgi_tuned_save(t, &error), TG_IO);
  assert_non_null(strstr(error.text, "/dev/null/below/products-"));
  tgi_tuned_close(t);
  setenv("TEGULA_CACHE_DIR", kept, 1);
  free(kept);
}

/* A cache directory below a file is none; one that cannot be listed is an error. */
static void test_clear_of_no_directory(void **state)
{
  (void)state;
  char *kept = strdup(getenv("TEGULA_CACHE_DIR")), path[TGI_TUNED_PATH];
  int64_t removed = -1;
  tg_error error = {.status = TG_OK};
  setenv("TEGULA_CACHE_DIR", "/dev/null/below", 1);
  assert_int_equal(tgi_tuned_clear(&removed, &error), TG_OK);
  assert_int_equal(removed, 0);
  snprintf(path, sizeof path, "%.200s/loop", kept);
  assert_int_equal(symlink("loop", path), 0); /* even root cannot follow it */
  setenv("TEGULA_CACHE_DIR", path, 1);
  assert_int_equal(tgi_tuned_clear(&removed, &error), TG_IO);
  assert_non_null(strstr(error.text, "loop: expected to list it, got "));
  assert_int_equal(unlink(path), 0);
  setenv("TEGULA_CACHE_DIR", kept, 1);
  free(kept);
}

static scratch directory;

static int set_up(void **state)
{
  (void)state;
  directory = scratch_make();
  return setenv("TEGULA_CACHE_DIR", directory.path, 1);
}

static int remove_all(void **state)
{
  (void)state;
  scratch_remove(&directory);
  return 0;
}

static int tear_down(void **state)
{
  (void)state;
  int64_t removed = 0;
  tgi_tuned_clear(&removed, NULL);
  return 0;
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_round_trip, tear_down),
      cmocka_unit_test_teardown(test_two_writers, tear_down),
      cmocka_unit_test_teardown(test_times, tear_down),
      cmocka_unit_test_teardown(test_full, tear_down),
      cmocka_unit_test_teardown(test_damage, tear_down),
      cmocka_unit_test_teardown(test_other_owner, tear_down),
      cmocka_unit_test(test_clear),
      cmocka_unit_test(test_no_place),
      cmocka_unit_test(test_clear_of_no_directory),
  };
  return cmocka_run_group_tests(tests, set_up, remove_all);
}

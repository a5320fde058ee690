/* Earlier states of a directory beside it: which are kept, and what is never touched. */
#include "files/directories/kept_directories.h"
#include "scratch_directory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "expect.h"

static const char *inside(const scratch *s, const char *directory, const char *name)
{
  char path[SCRATCH_PATH];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  return scratch_file(s, path);
}

/* A directory with a file, and with the mark where it is given. */
static void make(const scratch *s, const char *name, const char *content, bool marked)
{
  const char *path = scratch_file(s, name);
  assert_int_equal(mkdir(path, 0777), 0);
  write_text(inside(s, name, "file"), content);
  if (marked) {
    write_text(inside(s, name, "mark"), "");
  }
}

static void keep(const scratch *s, int64_t step, int32_t most)
{
  tg_error error = {0};
  EXPECT_OK(tgi_keep_directory(scratch_file(s, "out"), step, most, "mark", &error), error);
}

static void expect_content(const scratch *s, const char *name, const char *content)
{
  size_t size;
  char *is = read_file(inside(s, name, "file"), &size);
  assert_string_equal(is, content);
  free(is);
}

/* As a checkpoint does: the file is replaced, not written to. */
static void replace(const scratch *s, const char *content)
{
  write_text(inside(s, "out", "new"), content);
  assert_int_equal(rename(inside(s, "out", "new"), inside(s, "out", "file")), 0);
}

static void test_the_last(void **state)
{
  (void)state;
  const scratch s = scratch_make();
  char content[16];
  make(&s, "out", "state 0", true);
  for (int step = 1; step <= 12; step++) {
    snprintf(content, sizeof content, "state %d", step);
    replace(&s, content);
    keep(&s, step, 3);
    assert_int_equal(count_entries(s.path), step < 3 ? step + 1 : 4);
  }
  expect_content(&s, "out-step-10", "state 10"); /* by number, not by letter */
  expect_content(&s, "out-step-11", "state 11");
  expect_content(&s, "out-step-12", "state 12");
  replace(&s, "state 12 again");
  keep(&s, 12, 3);
  expect_content(&s, "out-step-12", "state 12 again");
  expect_content(&s, "out", "state 12 again");
  keep(&s, 13, 1);
  assert_int_equal(count_entries(s.path), 2);
  scratch_remove(&s);
}

/* Other names, directories without the mark, files, and later steps stay. */
static void test_others(void **state)
{
  (void)state;
  const scratch s = scratch_make();
  static const char *const names[] = {"out-step-",    "out-step-1a",  "out-step-01", "out-step--1",
                                      "other-step-1", "out-step-1-b", "out-step-99"};
  enum { kNames = sizeof names / sizeof names[0] };
  make(&s, "out", "new", true);
  for (int i = 0; i < kNames; i++) {
    make(&s, names[i], "old", true);
  }
  make(&s, "out-step-3", "not marked", false);
  write_text(scratch_file(&s, "out-step-4"), "a file");
  make(&s, "out-step-5", "kept before", true);
  make(&s, "target", "linked", true);
  assert_int_equal(symlink(scratch_file(&s, "target"), scratch_file(&s, "out-step-6")), 0);
  keep(&s, 8, 1);
  for (int i = 0; i < kNames; i++) {
    expect_content(&s, names[i], "old");
  }
  expect_content(&s, "out-step-3", "not marked");
  assert_true(file_exists(scratch_file(&s, "out-step-4")));
  expect_content(&s, "out-step-6", "linked");
  assert_false(file_exists(scratch_file(&s, "out-step-5")));
  expect_content(&s, "out-step-8", "new");
  scratch_remove(&s);
}

/* A directory that a user put into a kept one is not lost with it. */
static void test_subdirectory(void **state)
{
  (void)state;
  const scratch s = scratch_make();
  make(&s, "out", "new", true);
  keep(&s, 1, 1);
  make(&s, "out-step-1/mine", "precious", false);
  keep(&s, 2, 1);
  assert_false(file_exists(scratch_file(&s, "out-step-1")));
  expect_content(&s, "out/mine", "precious");
  assert_false(file_exists(scratch_file(&s, "out-step-2/mine")));
  scratch_remove(&s);
}

/* What processes left that died while they kept or removed one. */
static void test_leftovers(void **state)
{
  (void)state;
  const scratch s = scratch_make();
  static const char *const dead[] = {".out-step-3.tegula-0123456789abcdef",
                                     ".out-step-7.tegula-fedcba9876543210"};
  static const char *const others[] = {".out-step-x.tegula-0123456789abcdef",
                                       ".out-step-3.tegula-0123456789abcdeg", ".out-step-3"};
  make(&s, "out", "new", true);
  for (int i = 0; i < 2; i++) {
    make(&s, dead[i], "half", false);
  }
  for (int i = 0; i < 3; i++) {
    make(&s, others[i], "of somebody", false);
  }
  for (int64_t step = 8; step < 14; step++) {
    keep(&s, step, 1);
  }
  assert_false(file_exists(scratch_file(&s, dead[0])) || file_exists(scratch_file(&s, dead[1])));
  for (int i = 0; i < 3; i++) {
    expect_content(&s, others[i], "of somebody");
  }
  scratch_remove(&s);
}

static void test_refusals(void **state)
{
  (void)state;
  const scratch s = scratch_make();
  tg_error error = {0};
  assert_int_not_equal(tgi_keep_directory(scratch_file(&s, "none"), 1, 2, "mark", &error), TG_OK);
  assert_non_null(strstr(error.text, "none"));
  make(&s, "out", "new", true);
  write_text(scratch_file(&s, "out-step-1"), "a file");
  assert_int_not_equal(tgi_keep_directory(scratch_file(&s, "out"), 1, 2, "mark", &error), TG_OK);
  assert_non_null(strstr(error.text, "out-step-1"));
  assert_int_equal(count_entries(s.path), 2);
  scratch_remove(&s);
}

/* What a user has under such a name stays, and a new run says so before it begins. */
static void test_foreign_names(void **state)
{
  (void)state;
  const scratch s = scratch_make();
  tg_error error = {0};
  const char *out = scratch_file(&s, "out");
  make(&s, "out", "new", true);
  make(&s, "out-step-x", "another name", false);
  EXPECT_OK(tgi_expect_none_kept(out, &error), error);
  make(&s, "out-step-3", "thesis", false);
  EXPECT_ERROR(tgi_expect_none_kept(out, &error), TG_IO, "got out-step-3 (move", error);
  EXPECT_ERROR(tgi_keep_directory(out, 3, 2, "mark", &error), TG_IO,
               "out-step-3: expected a new name or a directory with mark", error);
  expect_content(&s, "out-step-3", "thesis");
  scratch_remove(&s);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_last),     cmocka_unit_test(test_others),
      cmocka_unit_test(test_subdirectory), cmocka_unit_test(test_leftovers),
      cmocka_unit_test(test_refusals),     cmocka_unit_test(test_foreign_names),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

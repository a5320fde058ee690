/* Replacing a directory as a whole: targets, what is kept, what is removed, a full disk. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "expect.h"
#include "paired_files.h"
#include "scratch_directory.h"
#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static tg_error error;

static void new_and_old_targets(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  const char *target = scratch_file(&dir, "ckpt");
  EXPECT_OK(save(target, 0, &error), error);
  assert_int_equal(letter_of(target), 'a');
  assert_int_equal(chmod(target, 0750), 0);
  EXPECT_OK(save(target, 1, &error), error);
  assert_int_equal(letter_of(target), 'b');
  struct stat info;
  assert_int_equal(stat(target, &info), 0);
  assert_int_equal(info.st_mode & 07777, 0750);
  assert_int_equal(count_entries(dir.path), 1);
  assert_int_equal(count_entries(target), 2);

  EXPECT_OK(save(scratch_file(&dir, "ckpt///"), 2, &error), error);
  assert_int_equal(letter_of(target), 'c');
  assert_int_equal(symlink("ckpt", scratch_file(&dir, "link")), 0);
  EXPECT_OK(save(scratch_file(&dir, "link"), 3, &error),
            error); /* the link stays, what it names changes */
  assert_int_equal(letter_of(target), 'd');
  assert_int_equal(lstat(scratch_file(&dir, "link"), &info), 0);
  assert_true(S_ISLNK(info.st_mode));

  const int here = open(".", O_RDONLY | O_DIRECTORY);
  assert_int_equal(chdir(target), 0);
  EXPECT_OK(save(".", 4, &error), error);
  assert_int_equal(chdir(dir.path), 0);
  EXPECT_OK(save("fresh", 5, &error), error);
  assert_int_equal(fchdir(here), 0);
  close(here);
  assert_int_equal(letter_of(target), 'e');
  assert_int_equal(letter_of(scratch_file(&dir, "fresh")), 'f');
  assert_int_equal(count_entries(dir.path), 3);
  scratch_remove(&dir);
}

static void bad_targets_are_refused(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  write_text(scratch_file(&dir, "file"), "x");
  assert_int_equal(symlink("nowhere", scratch_file(&dir, "dangling")), 0);
  char endless[300];
  memset(endless, 'n', sizeof endless - 1);
  endless[sizeof endless - 1] = '\0';
  memcpy(endless + 205, "\0", 1);
  const struct {
    const char *path;
    tg_status status;
    const char *part;
  } cases[] = {
      {"", TG_BAD_ARGUMENT, "a path that ends in a name, got none"},
      {"/", TG_BAD_ARGUMENT, "a path that ends in a name"},
      {scratch_file(&dir, "file"), TG_BAD_ARGUMENT,
       "a directory or nothing of that name, got a file"},
      {scratch_file(&dir, "none/ckpt"), TG_IO, "find the parent directory, got No such file"},
      {scratch_file(&dir, "file/ckpt"), TG_IO, "find the directory, got Not a directory"},
      {scratch_file(&dir, "dangling"), TG_IO, "find the directory"},
      {scratch_file(&dir, endless), TG_BAD_ARGUMENT, "a name of at most 200 bytes"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    tgi_atomic_directory *d;
    EXPECT_ERROR(tgi_atomic_directory_begin(cases[i].path, &d, &error), cases[i].status,
                 cases[i].part, error);
    assert_null(d);
  }
  assert_int_equal(count_entries(dir.path), 2);
  scratch_remove(&dir);
}

/** Files that the new directory lacks stay, as do subdirectories; an open log goes on in the new
 * directory. */
static void other_files_are_kept(void **state)
{
  (void)state;
  for (no_exchange = false;; no_exchange = true) {
    const scratch dir = scratch_make();
    const char *target = scratch_file(&dir, "ckpt");
    EXPECT_OK(save(target, 0, &error), error);
    write_text(inside(target, "notes.txt"), "mine");
    assert_int_equal(symlink("/nowhere", inside(target, "link")), 0);
    assert_int_equal(mkdir(inside(target, "sub"), 0777), 0);
    write_text(inside(target, "sub/deep"), "deep");
    FILE *log = fopen(inside(target, "log.jsonl"), "a");
    fputs("1\n", log);
    fflush(log);
    for (int i = 1; i < 4; i++) {
      EXPECT_OK(save(target, i, &error), error);
      fputs("2\n", log);
      fflush(log);
    }
    fclose(log);
    assert_int_equal(letter_of(target), 'd');
    static const char *const kept[][2] = {
        {"notes.txt", "mine"}, {"sub/deep", "deep"}, {"log.jsonl", "1\n2\n2\n2\n"}};
    for (int i = 0; i < 3; i++) {
      char *text = read_file(inside(target, kept[i][0]), NULL);
      assert_string_equal(text, kept[i][1]);
      free(text);
    }
    assert_true(file_exists(inside(target, "link")));
    assert_int_equal(count_entries(target), 6);
    assert_int_equal(count_entries(dir.path), 1);
    scratch_remove(&dir);
    if (no_exchange) {
      break;
    }
  }
  no_exchange = false;
}

static void a_dropped_save_leaves_nothing(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  const char *target = scratch_file(&dir, "ckpt");
  EXPECT_OK(save(target, 0, &error), error);
  tgi_atomic_directory *d;
  EXPECT_OK(save_stage(target, 1, &d, &error), error);
  assert_int_equal(count_entries(dir.path), 2);
  tgi_atomic_directory_drop(d);
  tgi_atomic_directory_drop(NULL);
  assert_int_equal(count_entries(dir.path), 1);
  assert_int_equal(letter_of(target), 'a');
  scratch_remove(&dir);
}

static void only_names_of_dead_saves_are_removed(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  const char *target = scratch_file(&dir, "ckpt");
  static const char *const others[] = {
      ".ckpt.tegula-0123456789abcde", ".ckpt.tegula-0123456789abcdef0",
      ".ckpt.tegula-0123456789ABCDEF", ".ckpt2.tegula-0123456789abcdef",
      "ckpt.tegula-0123456789abcdef"};
  for (int i = 0; i < 5; i++) {
    assert_int_equal(mkdir(scratch_file(&dir, others[i]), 0777), 0);
    write_text(inside(scratch_file(&dir, others[i]), "x"), "x");
  }
  /* a link of the right name is not followed, and a file of it is no directory */
  assert_int_equal(symlink(others[4], scratch_file(&dir, ".ckpt.tegula-00000000000000aa")), 0);
  write_text(scratch_file(&dir, ".ckpt.tegula-00000000000000bb"), "x");
  /* one of a dead process goes, one of a living process stays */
  const char *dead = scratch_file(&dir, ".ckpt.tegula-00000000000000cc");
  assert_int_equal(mkdir(dead, 0777), 0);
  write_text(inside(dead, "one"), "half");
  tgi_atomic_directory *alive;
  EXPECT_OK(save_stage(target, 7, &alive, &error), error);
  assert_false(file_exists(dead));

  EXPECT_OK(save(target, 0, &error), error);
  assert_true(file_exists(inside(tgi_atomic_directory_path(alive), "two")));
  for (int i = 0; i < 5; i++) {
    assert_true(file_exists(inside(scratch_file(&dir, others[i]), "x")));
  }
  assert_true(file_exists(scratch_file(&dir, ".ckpt.tegula-00000000000000aa")));
  assert_true(file_exists(scratch_file(&dir, ".ckpt.tegula-00000000000000bb")));
  EXPECT_OK(tgi_atomic_directory_commit(alive, &error), error);
  assert_int_equal(letter_of(target), 'h');
  scratch_remove(&dir);
}

static void a_full_disk_leaves_the_old_directory(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  const char *target = scratch_file(&dir, "ckpt");
  EXPECT_OK(save(target, 0, &error), error);
  struct rlimit before, small;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  small = before;
  small.rlim_cur = PAYLOAD / 2;
  void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  memset(&error, 0, sizeof error);
  const tg_status status = save(target, 1, &error);
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  assert_int_equal(status, TG_IO);
  assert_non_null(
      strstr(error.text, "/one: byte 10000: expected to write more bytes, got File too large"));
  assert_int_equal(letter_of(target), 'a');
  assert_int_equal(count_entries(dir.path), 1);
  scratch_remove(&dir);
}

static void nothing_to_recover_is_fine(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  EXPECT_OK(tgi_atomic_directory_recover(scratch_file(&dir, "none"), &error), error);
  EXPECT_OK(save(scratch_file(&dir, "ckpt"), 0, &error), error);
  EXPECT_OK(tgi_atomic_directory_recover(scratch_file(&dir, "ckpt"), &error), error);
  assert_int_equal(letter_of(scratch_file(&dir, "ckpt")), 'a');
  scratch_remove(&dir);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(new_and_old_targets),
      cmocka_unit_test(bad_targets_are_refused),
      cmocka_unit_test(other_files_are_kept),
      cmocka_unit_test(a_dropped_save_leaves_nothing),
      cmocka_unit_test(only_names_of_dead_saves_are_removed),
      cmocka_unit_test(a_full_disk_leaves_the_old_directory),
      cmocka_unit_test(nothing_to_recover_is_fine),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* kill -9 while a directory is replaced, at any moment and between the renames: it stays loadable.
 */
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
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static tg_error error;

static double seconds(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/** Saves for ever, and writes a byte to `report` after each save. */
static _Noreturn void save_until_killed(const char *target, int generation, int report)
{
  for (;; generation++) {
    if (save(target, generation, &error) != TG_OK || write(report, "", 1) != 1) {
      _exit(1);
    }
  }
}

/**
 * A child that saves again and again is killed at moments spread over the time that a save takes,
 * after none, one or two saves; the target is complete every time.
 */
static void kill_9_at_any_moment(void **state)
{
  (void)state;
  enum { ROUNDS = 60 };
  const scratch dir = scratch_make();
  const char *target = scratch_file(&dir, "ckpt");
  const double start = seconds();
  EXPECT_OK(save(target, 0, &error), error);
  EXPECT_OK(save(target, 0, &error), error);
  const double one_save = (seconds() - start) / 2;
  write_text(inside(target, "notes.txt"), "mine");
  int moved = 0, leftovers = 0;
  for (int round = 0; round < ROUNDS; round++) {
    const int before = letter_of(target);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
      save_until_killed(target, before - 'a' + 1, ends[1]);
    }
    close(ends[1]);
    char reports[2];
    const int saves = round % 3;
    for (int i = 0; i < saves; i++) {
      assert_int_equal(read(ends[0], reports, 1), 1);
    }
    usleep((useconds_t)(1e6 * one_save * (round * 37 % ROUNDS) / ROUNDS));
    assert_int_equal(kill(child, SIGKILL), 0);
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    close(ends[0]);
    if (!WIFSIGNALED(how)) {
      fail_msg("a save failed with exit status %d", WEXITSTATUS(how));
    }
    const int after = letter_of(target);
    const int steps = (after - before + 26) % 26;
    if (steps < saves) { /* a finished save is there, whatever came after it */
      fail_msg("%d saves were reported, but %c follows %c", saves, after, before);
    }
    moved += steps > 0;
    leftovers += count_entries(dir.path) > 1;
    char *notes = read_file(inside(target, "notes.txt"), NULL);
    assert_string_equal(notes, "mine");
    free(notes);
  }
  print_message("%d of %d kills came after a new save, %d left a temporary directory\n", moved,
                ROUNDS, leftovers);
  assert_true(leftovers > 0); /* else no kill came amid a save, and the test showed nothing */
  EXPECT_OK(save(target, 25, &error), error);
  assert_int_equal(letter_of(target), 'z');
  assert_int_equal(count_entries(dir.path), 1);
  scratch_remove(&dir);
}

/** Without exchange there are two renames (and those that carry subdirectories); death before each
 * of them. */
static void death_between_the_renames(void **state)
{
  (void)state;
  for (int exchange = 0; exchange < 2; exchange++) {
    for (int at = 1; at <= 4; at++) {
      const scratch dir = scratch_make();
      const char *target = scratch_file(&dir, "ckpt");
      EXPECT_OK(save(target, 0, &error), error);
      write_text(inside(target, "notes.txt"), "mine");
      assert_int_equal(mkdir(inside(target, "sub"), 0777), 0);
      write_text(inside(target, "sub/deep"), "deep");
      const pid_t child = fork();
      if (child == 0) {
        no_exchange = !exchange;
        die_at_rename = at;
        _exit(save(target, 1, &error) == TG_OK ? 0 : 1);
      }
      int how;
      assert_int_equal(waitpid(child, &how, 0), child);
      assert_true(WIFEXITED(how));
      const bool done = at > (exchange ? 2 : 3);
      assert_int_equal(WEXITSTATUS(how), done ? 0 : 77);
      if (!exchange && at == 2) {
        assert_false(file_exists(target)); /* the one moment without a target */
      }
      EXPECT_OK(tgi_atomic_directory_recover(target, &error), error);
      assert_int_equal(letter_of(target), at > (exchange ? 1 : 2) ? 'b' : 'a');
      EXPECT_OK(save(target, 2, &error), error);
      assert_int_equal(letter_of(target), 'c');
      assert_true(file_exists(inside(target, "sub/deep")));
      assert_true(file_exists(inside(target, "notes.txt")));
      assert_int_equal(count_entries(target), 4);
      assert_int_equal(count_entries(dir.path), 1);
      scratch_remove(&dir);
    }
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(kill_9_at_any_moment),
      cmocka_unit_test(death_between_the_renames),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

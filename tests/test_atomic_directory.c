/*
 * Replacing a directory as a whole: what is kept, what a full disk, kill -9 at any moment and a
 * file system without exchange leave behind. Linked with --wrap=renameat2, so that the exchange can
 * be refused or the process ended there.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "expect.h"
#include "model/atomic_directory.h"
#include "model/durable_file.h"
#include "scratch_directory.h"
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static tg_error error;

/* ---- the exchange, under the test's control ---- */

static bool no_exchange;
static int die_at_rename; /* n: the process ends at the n-th rename from now on; 0: never */

int __real_renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags);
int __wrap_renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags);
int __real_renameat(int from_dir, const char *from, int to_dir, const char *to);
int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to);

static void count_rename(void)
{
  if (die_at_rename > 0 && --die_at_rename == 0)
    _exit(77);
}

int __wrap_renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
  if (no_exchange) {
    errno = EINVAL;
    return -1;
  }
  count_rename();
  return __real_renameat2(from_dir, from, to_dir, to, flags);
}

int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to)
{
  count_rename();
  return __real_renameat(from_dir, from, to_dir, to);
}

/* ---- a checkpoint of two files that must agree ---- */

static const char *inside(const char *directory, const char *name)
{
  static char paths[4][2048];
  static int turn;
  char *path = paths[turn++ % 4];
  snprintf(path, sizeof paths[0], "%s/%s", directory, name);
  return path;
}

enum { PAYLOAD = 20000 };

static tg_status save_stage(const char *path, int generation, tgi_atomic_directory **out)
{
  static char bytes[PAYLOAD];
  memset(bytes, 'a' + generation % 26, sizeof bytes);
  const tg_status status = tgi_atomic_directory_begin(path, out, &error);
  if (status != TG_OK)
    return status;
  const char *temporary = tgi_atomic_directory_path(*out);
  tg_status written = tgi_durable_file_save(inside(temporary, "one"), bytes, PAYLOAD, &error);
  if (written == TG_OK)
    written = tgi_durable_file_save(inside(temporary, "two"), bytes, PAYLOAD, &error);
  if (written != TG_OK)
    tgi_atomic_directory_drop(*out);
  return written;
}

static tg_status save(const char *path, int generation)
{
  tgi_atomic_directory *d;
  const tg_status status = save_stage(path, generation, &d);
  return status == TG_OK ? tgi_atomic_directory_commit(d, &error) : status;
}

/** The letter of a complete checkpoint; fails the test where it is torn. */
static int letter_of(const char *path)
{
  size_t one_size, two_size;
  char *one = read_file(inside(path, "one"), &one_size);
  char *two = read_file(inside(path, "two"), &two_size);
  assert_int_equal(one_size, PAYLOAD);
  assert_int_equal(two_size, PAYLOAD);
  for (size_t i = 0; i < PAYLOAD; i++) {
    if (one[i] != one[0] || two[i] != one[0])
      fail_msg("byte %zu of a torn checkpoint: %c and %c, not %c", i, one[i], two[i], one[0]);
  }
  const int letter = one[0];
  free(one);
  free(two);
  return letter;
}

/* ---- tests ---- */

static void new_and_old_targets(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  const char *target = scratch_file(&dir, "ckpt");
  EXPECT_OK(save(target, 0), error);
  assert_int_equal(letter_of(target), 'a');
  assert_int_equal(chmod(target, 0750), 0);
  EXPECT_OK(save(target, 1), error);
  assert_int_equal(letter_of(target), 'b');
  struct stat info;
  assert_int_equal(stat(target, &info), 0);
  assert_int_equal(info.st_mode & 07777, 0750);
  assert_int_equal(count_entries(dir.path), 1);
  assert_int_equal(count_entries(target), 2);

  EXPECT_OK(save(scratch_file(&dir, "ckpt///"), 2), error);
  assert_int_equal(letter_of(target), 'c');
  assert_int_equal(symlink("ckpt", scratch_file(&dir, "link")), 0);
  EXPECT_OK(save(scratch_file(&dir, "link"), 3), error); /* the link stays, what it names changes */
  assert_int_equal(letter_of(target), 'd');
  assert_int_equal(lstat(scratch_file(&dir, "link"), &info), 0);
  assert_true(S_ISLNK(info.st_mode));

  const int here = open(".", O_RDONLY | O_DIRECTORY);
  assert_int_equal(chdir(target), 0);
  EXPECT_OK(save(".", 4), error);
  assert_int_equal(chdir(dir.path), 0);
  EXPECT_OK(save("fresh", 5), error);
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
    EXPECT_OK(save(target, 0), error);
    write_text(inside(target, "notes.txt"), "mine");
    assert_int_equal(symlink("/nowhere", inside(target, "link")), 0);
    assert_int_equal(mkdir(inside(target, "sub"), 0777), 0);
    write_text(inside(target, "sub/deep"), "deep");
    FILE *log = fopen(inside(target, "log.jsonl"), "a");
    fputs("1\n", log);
    fflush(log);
    for (int i = 1; i < 4; i++) {
      EXPECT_OK(save(target, i), error);
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
    if (no_exchange)
      break;
  }
  no_exchange = false;
}

static void a_dropped_save_leaves_nothing(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  const char *target = scratch_file(&dir, "ckpt");
  EXPECT_OK(save(target, 0), error);
  tgi_atomic_directory *d;
  EXPECT_OK(save_stage(target, 1, &d), error);
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
  EXPECT_OK(save_stage(target, 7, &alive), error);
  assert_false(file_exists(dead));

  EXPECT_OK(save(target, 0), error);
  assert_true(file_exists(inside(tgi_atomic_directory_path(alive), "two")));
  for (int i = 0; i < 5; i++)
    assert_true(file_exists(inside(scratch_file(&dir, others[i]), "x")));
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
  EXPECT_OK(save(target, 0), error);
  struct rlimit before, small;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  small = before;
  small.rlim_cur = PAYLOAD / 2;
  void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  memset(&error, 0, sizeof error);
  const tg_status status = save(target, 1);
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  assert_int_equal(status, TG_IO);
  assert_non_null(
      strstr(error.text, "/one: byte 10000: expected to write more bytes, got File too large"));
  assert_int_equal(letter_of(target), 'a');
  assert_int_equal(count_entries(dir.path), 1);
  scratch_remove(&dir);
}

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
    if (save(target, generation) != TG_OK || write(report, "", 1) != 1)
      _exit(1);
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
  EXPECT_OK(save(target, 0), error);
  EXPECT_OK(save(target, 0), error);
  const double one_save = (seconds() - start) / 2;
  write_text(inside(target, "notes.txt"), "mine");
  int moved = 0, leftovers = 0;
  for (int round = 0; round < ROUNDS; round++) {
    const int before = letter_of(target);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
      save_until_killed(target, before - 'a' + 1, ends[1]);
    close(ends[1]);
    char reports[2];
    const int saves = round % 3;
    for (int i = 0; i < saves; i++)
      assert_int_equal(read(ends[0], reports, 1), 1);
    usleep((useconds_t)(1e6 * one_save * (round * 37 % ROUNDS) / ROUNDS));
    assert_int_equal(kill(child, SIGKILL), 0);
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    close(ends[0]);
    if (!WIFSIGNALED(how))
      fail_msg("a save failed with exit status %d", WEXITSTATUS(how));
    const int after = letter_of(target);
    const int steps = (after - before + 26) % 26;
    if (steps < saves) /* a finished save is there, whatever came after it */
      fail_msg("%d saves were reported, but %c follows %c", saves, after, before);
    moved += steps > 0;
    leftovers += count_entries(dir.path) > 1;
    char *notes = read_file(inside(target, "notes.txt"), NULL);
    assert_string_equal(notes, "mine");
    free(notes);
  }
  print_message("%d of %d kills came after a new save, %d left a temporary directory\n", moved,
                ROUNDS, leftovers);
  assert_true(leftovers > 0); /* else no kill came amid a save, and the test showed nothing */
  EXPECT_OK(save(target, 25), error);
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
      EXPECT_OK(save(target, 0), error);
      write_text(inside(target, "notes.txt"), "mine");
      assert_int_equal(mkdir(inside(target, "sub"), 0777), 0);
      write_text(inside(target, "sub/deep"), "deep");
      const pid_t child = fork();
      if (child == 0) {
        no_exchange = !exchange;
        die_at_rename = at;
        _exit(save(target, 1) == TG_OK ? 0 : 1);
      }
      int how;
      assert_int_equal(waitpid(child, &how, 0), child);
      assert_true(WIFEXITED(how));
      const bool done = at > (exchange ? 2 : 3);
      assert_int_equal(WEXITSTATUS(how), done ? 0 : 77);
      if (!exchange && at == 2)
        assert_false(file_exists(target)); /* the one moment without a target */
      EXPECT_OK(tgi_atomic_directory_recover(target, &error), error);
      assert_int_equal(letter_of(target), at > (exchange ? 1 : 2) ? 'b' : 'a');
      EXPECT_OK(save(target, 2), error);
      assert_int_equal(letter_of(target), 'c');
      assert_true(file_exists(inside(target, "sub/deep")));
      assert_true(file_exists(inside(target, "notes.txt")));
      assert_int_equal(count_entries(target), 4);
      assert_int_equal(count_entries(dir.path), 1);
      scratch_remove(&dir);
    }
  }
}

static void nothing_to_recover_is_fine(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  EXPECT_OK(tgi_atomic_directory_recover(scratch_file(&dir, "none"), &error), error);
  EXPECT_OK(save(scratch_file(&dir, "ckpt"), 0), error);
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
      cmocka_unit_test(kill_9_at_any_moment),
      cmocka_unit_test(death_between_the_renames),
      cmocka_unit_test(nothing_to_recover_is_fine),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The default number of threads: OMP_NUM_THREADS, affinity, and the control groups' CPU quota. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "core/machine/cpu_quota.h"
#include "core/machine/processor.h"
#include "core/machine/threads.h"
#include "scratch_directory.h"
#include "tegula/tegula.h"
#include <cmocka.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void test_quota_text(void **state)
{
  (void)state;
  static const struct {
    const char *text;
    int cpus;
  } cases[] = {{"max 100000\n", 0},
               {"100000 100000\n", 1},
               {"150000 100000\n", 2},
               {"1000 100000\n", 1},
               {"6400000 100000", 64},
               {"200000 50000\n", 4},
               {"", 0},
               {"100000", 0},
               {"-1 100000", 0},
               {"0 100000", 0},
               {"100000 0", 0},
               {"four 100000", 0},
               {"100000 -100000", 0},
               {"9223372036854775807 1", INT32_MAX}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    assert_int_equal(tgi_cpu_quota_of(cases[i].text), cases[i].cpus);
  }
}

static void make_folders(const scratch *root, const char *const *names, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    assert_int_equal(mkdir(scratch_file(root, names[i]), 0700), 0);
  }
}

static int quota_of(const scratch *root, const char *membership)
{
  const char *file = scratch_file(root, "membership");
  write_text(file, membership);
  return tgi_cpu_quota(file, root->path);
}

static void test_quota_version_2(void **state)
{
  (void)state;
  static const char *const folders[] = {"a", "a/b", "a/b/c", "d"};
  const scratch root = scratch_make();
  make_folders(&root, folders, 4);
  write_text(scratch_file(&root, "a/cpu.max"), "300000 100000\n");
  write_text(scratch_file(&root, "a/b/cpu.max"), "max 100000\n");
  write_text(scratch_file(&root, "a/b/c/cpu.max"), "450000 100000\n");
  assert_int_equal(quota_of(&root, "0::/a/b/c\n"), 3); /* the group around it has less */
  assert_int_equal(quota_of(&root, "0::/a/b\n"), 3);
  assert_int_equal(quota_of(&root, "0::/d\n"), 0);
  assert_int_equal(quota_of(&root, "0::/\n"), 0);
  assert_int_equal(quota_of(&root, ""), 0);
  assert_int_equal(quota_of(&root, "0\n::\nnonsense\n"), 0);
  assert_int_equal(quota_of(&root, "2:memory:/a/b/c\n0::/\n"), 0);
  write_text(scratch_file(&root, "cpu.max"), "250000 100000\n");
  assert_int_equal(quota_of(&root, "0::/a\n"), 3);
  assert_int_equal(quota_of(&root, "0::/\n"), 3);
  assert_int_equal(quota_of(&root, "0::/../host/path\n"), 3); /* does not exist in here */
  write_text(scratch_file(&root, "cpu.max"), "100000 100000\n");
  assert_int_equal(quota_of(&root, "0::/a/b/c\n"), 1);
  assert_int_equal(tgi_cpu_quota(scratch_file(&root, "missing"), root.path), 0);
  scratch_remove(&root);
}

static void test_quota_version_1(void **state)
{
  (void)state;
  static const char *const folders[] = {"cpu", "cpu/box", "cpu/box/inner"};
  const scratch root = scratch_make();
  make_folders(&root, folders, 3);
  write_text(scratch_file(&root, "cpu/cpu.cfs_quota_us"), "-1\n");
  write_text(scratch_file(&root, "cpu/cpu.cfs_period_us"), "100000\n");
  write_text(scratch_file(&root, "cpu/box/cpu.cfs_quota_us"), "120000\n");
  write_text(scratch_file(&root, "cpu/box/cpu.cfs_period_us"), "50000\n");
  assert_int_equal(quota_of(&root, "4:cpu,cpuacct:/box/inner\n0::/\n"), 3);
  assert_int_equal(quota_of(&root, "4:cpuacct,cpu:/box\n"), 3);
  assert_int_equal(quota_of(&root, "4:cpu:/box\n"), 3);
  assert_int_equal(quota_of(&root, "4:cpuset:/box\n3:cpuacct:/box\n"), 0);
  assert_int_equal(quota_of(&root, "4:cpu:/\n"), 0);
  scratch_remove(&root);
}

static void test_default_count(void **state)
{
  (void)state;
  static const struct {
    const char *text;
    int threads; /* 0: as if it were unset */
  } cases[] = {{"3", 3},  {"2,4", 2},  {" 5 ", 5}, {"7 , 2", 7}, {"", 0},   {"0", 0},
               {"-2", 0}, {"many", 0}, {"4x", 0},  {"4.5", 0},   {",3", 0}, {"99999999999", 0}};
  unsetenv("OMP_NUM_THREADS");
  const int share = tgi_default_threads();
  assert_int_equal(share, tgi_processor_share());
  assert_true(share >= 1 && share <= tgi_processor_count());
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    setenv("OMP_NUM_THREADS", cases[i].text, 1);
    assert_int_equal(tgi_default_threads(), cases[i].threads ? cases[i].threads : share);
  }
  unsetenv("OMP_NUM_THREADS");
}

static void test_default_follows_affinity(void **state)
{
  (void)state;
  cpu_set_t before, one;
  assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
  const int threads = tgi_default_threads();
  assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
  assert_int_equal(threads, 1);
}

static void test_context(void **state)
{
  (void)state;
  tg_context *ctx = NULL;
  const tg_context_options options = {.backend = TG_BACKEND_CPU, .num_threads = 3};
  assert_int_equal(tg_context_create(&options, &ctx, NULL), TG_OK);
  assert_int_equal(tg_context_num_threads(ctx), 3);
  assert_int_equal(tg_context_set_num_threads(ctx, 5), TG_OK);
  assert_int_equal(tg_context_num_threads(ctx), 5);
  assert_int_equal(tg_context_set_num_threads(ctx, -1), TG_BAD_ARGUMENT);
  assert_string_equal(tg_context_message(ctx),
                      "context_set_num_threads: num_threads: expected 0 or more, got -1");
  assert_int_equal(tg_context_num_threads(ctx), 5);
  setenv("OMP_NUM_THREADS", "4", 1);
  assert_int_equal(tg_context_set_num_threads(ctx, 0), TG_OK);
  assert_int_equal(tg_context_num_threads(ctx), 4);
  unsetenv("OMP_NUM_THREADS");
  assert_int_equal(tg_context_set_num_threads(ctx, 0), TG_OK);
  assert_int_equal(tg_context_num_threads(ctx), tgi_default_threads());
  assert_int_equal(tg_context_set_num_threads(NULL, 1), TG_BAD_ARGUMENT);
  tg_context_destroy(ctx);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_quota_text),
      cmocka_unit_test(test_quota_version_2),
      cmocka_unit_test(test_quota_version_1),
      cmocka_unit_test(test_default_count),
      cmocka_unit_test(test_default_follows_affinity),
      cmocka_unit_test(test_context),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

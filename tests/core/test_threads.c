/* The pool behind parallel_for: every chunk once, indices of threads, callers at the same time,
 * sleeping, forks, and a system without more threads. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "core/machine/clock.h"
#include "core/machine/threads.h"
#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kMost = 70 }; /* threads of a region here */

/* ---- a system that gives only so many threads ---- */

static atomic_int threads_left = 100000;

int __real_pthread_create(pthread_t *id, const pthread_attr_t *attr, void *(*run)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *id, const pthread_attr_t *attr, void *(*run)(void *),
                          void *arg);

int __wrap_pthread_create(pthread_t *id, const pthread_attr_t *attr, void *(*run)(void *),
                          void *arg)
{
  return atomic_fetch_sub(&threads_left, 1) > 0 ? __real_pthread_create(id, attr, run, arg)
                                                : EAGAIN;
}

/* ---- a region that notes what it sees ---- */

typedef struct record {
  unsigned char *times; /* how often each item was computed */
  int num_threads;
  int64_t n, grain;
  atomic_bool busy[kMost]; /* a thread is at work with this index */
  atomic_int wrong;        /* chunks with another cut, or indices out of range or twice at once */
} record;

static void note_chunk(void *arg, int64_t begin, int64_t end, int thread)
{
  record *r = arg;
  const int64_t whole = begin + r->grain;
  const bool cut = begin % r->grain == 0 && end == (whole < r->n ? whole : r->n) && end > begin;
  if (!cut || thread < 0 || thread >= r->num_threads || atomic_exchange(&r->busy[thread], true)) {
    atomic_fetch_add(&r->wrong, 1);
    return;
  }
  for (int64_t i = begin; i < end; i++) {
    r->times[i]++;
  }
  atomic_store(&r->busy[thread], false);
}

/* Runs a region and returns the number of items that were not computed once. */
static int64_t faults_of(int num_threads, int64_t n, int64_t grain)
{
  record r = {.num_threads = num_threads, .n = n, .grain = grain > 0 ? grain : 1};
  r.times = calloc((size_t)n + 1, 1);
  if (!r.times) {
    return -1;
  }
  tgi_parallel_for(num_threads, n, grain, note_chunk, &r);
  int64_t faults = atomic_load(&r.wrong);
  for (int64_t i = 0; i <= n; i++) {
    faults += r.times[i] != (i < n);
  }
  free(r.times);
  return faults;
}

static void test_every_chunk_once(void **state)
{
  (void)state;
  static const int64_t sizes[] = {0, 1, 2, 7, 64, 1000, 100003}, grains[] = {0, 1, 3, 64, 5000};
  static const int counts[] = {1, 2, 3, 8, kMost};
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
    for (size_t g = 0; g < sizeof grains / sizeof grains[0]; g++) {
      for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        assert_int_equal(faults_of(counts[c], sizes[s], grains[g]), 0);
      }
    }
  }
}

static void test_many_regions(void **state)
{
  (void)state;
  unsigned random = 1;
  for (int i = 0; i < 20000; i++) {
    random = random * 1664525u + 1013904223u;
    assert_int_equal(faults_of(2 + (int)(random >> 30), random >> 16 & 63, 1 + (random >> 8 & 3)),
                     0);
  }
}

typedef struct extent {
  atomic_llong items;
  atomic_int chunks, wrong;
} extent;

static void add_extent(void *arg, int64_t begin, int64_t end, int thread)
{
  extent *e = arg;
  (void)thread;
  atomic_fetch_add(&e->items, end - begin);
  atomic_fetch_add(&e->chunks, 1);
  if (begin < 0 || end <= begin) {
    atomic_fetch_add(&e->wrong, 1);
  }
}

static void test_ranges_of_64_bits(void **state)
{
  (void)state;
  static const struct {
    int64_t n, grain;
    int chunks;
  } cases[] = {{INT64_MAX, INT64_MAX / 5, 6},
               {INT64_MAX, INT64_MAX, 1},
               {INT64_MAX - 1, INT64_MAX, 1},
               {(int64_t)1 << 40, ((int64_t)1 << 38) + 1, 4}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    extent e = {0};
    tgi_parallel_for(3, cases[i].n, cases[i].grain, add_extent, &e);
    assert_int_equal(atomic_load(&e.items), cases[i].n);
    assert_int_equal(atomic_load(&e.chunks), cases[i].chunks);
    assert_int_equal(atomic_load(&e.wrong), 0);
  }
}

/* ---- threads at the same time ---- */

typedef struct meeting {
  atomic_int here;
  int expected;
  atomic_int missed; /* chunks that gave up */
} meeting;

/* Waits until every chunk has begun, so that each has a thread. */
static void meet(void *arg, int64_t begin, int64_t end, int thread)
{
  meeting *m = arg;
  const double start = tgi_clock();
  (void)begin;
  (void)end;
  (void)thread;
  atomic_fetch_add(&m->here, 1);
  while (atomic_load(&m->here) < m->expected) {
    if (tgi_clock() - start > 0.25) {
      atomic_fetch_add(&m->missed, 1);
      return;
    }
    usleep(100);
  }
}

/* Tries for half a minute: on a busy machine workers come late, or the caller works alone for a
 * while after it waited long. */
static int missed_of(int num_threads)
{
  int missed = 1;
  for (const double start = tgi_clock(); missed > 0 && tgi_clock() - start < 30;) {
    meeting m = {.expected = num_threads};
    tgi_parallel_for(num_threads, num_threads, 1, meet, &m);
    missed = atomic_load(&m.missed);
  }
  return missed;
}

static void test_workers_take_part(void **state)
{
  (void)state;
  for (int num_threads = 2; num_threads <= 16; num_threads *= 2) {
    assert_int_equal(missed_of(num_threads), 0);
    usleep(5000); /* they sleep, and are woken */
    assert_int_equal(missed_of(num_threads), 0);
  }
}

static void *call_often(void *arg)
{
  int64_t *faults = arg;
  for (int i = 0; i < 300; i++) {
    *faults += faults_of(2 + i % 3, i * 7 % 400, 1 + i % 5);
  }
  return NULL;
}

static void test_concurrent_callers(void **state)
{
  (void)state;
  enum { callers = 12 }; /* more than there are teams */
  pthread_t id[callers];
  int64_t faults[callers] = {0};
  for (int i = 0; i < callers; i++) {
    assert_int_equal(pthread_create(&id[i], NULL, call_often, &faults[i]), 0);
  }
  for (int i = 0; i < callers; i++) {
    pthread_join(id[i], NULL);
    assert_int_equal(faults[i], 0);
  }
}

typedef struct nest {
  atomic_llong inner;
  atomic_int wrong;
} nest;

static void count_inner(void *arg, int64_t begin, int64_t end, int thread)
{
  nest *x = arg;
  atomic_fetch_add(&x->inner, end - begin);
  if (thread != 0) {
    atomic_fetch_add(&x->wrong, 1);
  }
}

static void call_inside(void *arg, int64_t begin, int64_t end, int thread)
{
  (void)thread;
  for (int64_t i = begin; i < end; i++) {
    tgi_parallel_for(4, 10, 1, count_inner, arg);
  }
}

static void test_nested(void **state)
{
  (void)state;
  nest x = {0};
  tgi_parallel_for(4, 100, 1, call_inside, &x);
  assert_int_equal(atomic_load(&x.inner), 1000);
  assert_int_equal(atomic_load(&x.wrong), 0);
  assert_int_equal(missed_of(4), 0); /* and the caller has its workers again */
}

/* ---- time ---- */

static double cpu_seconds(void)
{
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
         1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void test_idle_workers_sleep(void **state)
{
  (void)state;
  assert_int_equal(missed_of(4), 0);
  const double before = cpu_seconds();
  usleep(300000);
  assert_true(cpu_seconds() - before < 0.15);
}

/* ---- processes ---- */

/* Whether a child that runs `test` ends well within 60 s. */
static bool child_passes(bool (*test)(void))
{
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(test() ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool has_workers(void)
{
  return faults_of(3, 1000, 1) == 0 && missed_of(2) == 0;
}

/* One worker comes, no more: a region of two threads has it, one of eight uses it. */
static bool makes_do(void)
{
  atomic_store(&threads_left, 1);
  bool good = missed_of(2) == 0;
  for (int i = 0; i < 100; i++) {
    good = good && faults_of(8, 1000, 1) == 0;
  }
  return good && missed_of(2) == 0 && atomic_load(&threads_left) < 0;
}

static bool has_no_thread(void)
{
  atomic_store(&threads_left, 0);
  return faults_of(8, 1000, 1) == 0;
}

/* On one CPU beside busy processes, caller and worker are never at work together, and each comes to
 * work every few milliseconds. Regions that wait for both take as long. */
static bool waits_for_nobody(void)
{
  enum { hogs = 3, regions = 3000 };
  pid_t hog[hogs];
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  bool good = sched_setaffinity(0, sizeof one, &one) == 0;
  for (int i = 0; i < hogs; i++) {
    hog[i] = fork();
    while (hog[i] == 0) {
    }
  }
  const double start = tgi_clock();
  for (int i = 0; i < regions && good; i++) {
    good = faults_of(2, 8, 1) == 0 && tgi_clock() - start < 10;
  }
  for (int i = 0; i < hogs; i++) {
    kill(hog[i], SIGKILL);
    waitpid(hog[i], NULL, 0);
  }
  return good;
}

/* Runs before this process has workers. */
static void test_children_of_one_thread(void **state)
{
  (void)state;
  assert_true(child_passes(has_workers));
  assert_true(child_passes(makes_do));
  assert_true(child_passes(has_no_thread));
  assert_true(child_passes(waits_for_nobody));
}

static void note_thread(void *arg, int64_t begin, int64_t end, int thread)
{
  int64_t *sum = arg; /* of one thread alone */
  for (int64_t i = begin; i < end; i++) {
    *sum += i + 1000000 * thread;
  }
}

static bool runs_alone(void)
{
  int64_t sum = 0;
  for (int i = 0; i < 100; i++) {
    tgi_parallel_for(4, 1000, 1, note_thread, &sum);
  }
  return sum == 100 * 499500;
}

static void *call_until(void *arg)
{
  const atomic_bool *stop = arg;
  while (!atomic_load(stop)) {
    faults_of(3, 100, 1);
  }
  return NULL;
}

static void test_children_of_a_pool(void **state)
{
  (void)state;
  atomic_bool stop = false;
  pthread_t other;
  assert_int_equal(missed_of(4), 0);
  assert_true(child_passes(runs_alone));
  assert_int_equal(pthread_create(&other, NULL, call_until, &stop), 0);
  for (int i = 0; i < 20; i++) { /* while another thread's regions run */
    assert_true(child_passes(runs_alone));
  }
  atomic_store(&stop, true);
  pthread_join(other, NULL);
  assert_int_equal(missed_of(4), 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_children_of_one_thread),
      cmocka_unit_test(test_every_chunk_once),
      cmocka_unit_test(test_many_regions),
      cmocka_unit_test(test_ranges_of_64_bits),
      cmocka_unit_test(test_workers_take_part),
      cmocka_unit_test(test_concurrent_callers),
      cmocka_unit_test(test_nested),
      cmocka_unit_test(test_idle_workers_sleep),
      cmocka_unit_test(test_children_of_a_pool),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

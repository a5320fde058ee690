/* A pool of threads that waits only for threads that work.
 *
 * A team is a set of workers that serves one caller at a time. The caller opens a region by one
 * store to the team's word, works too, closes the region, and waits for the workers that are inside
 * of it. A worker without a CPU never entered, so nobody waits for it: a pool whose barrier counts
 * every thread (libgomp's) stands still for a time slice or more wherever other programs run.
 *
 *   word     places, 16 bits | workers inside, 16 bits
 *
 *   open     caller:  places = threads - 1, inside = 0
 *   join     worker:  while places > 0: places - 1, inside + 1; the number of places was its index
 *   leave    worker:  places = 0, inside - 1: no chunk was left
 *   close    caller:  places = 0
 *
 * What describes the region lies in the team and is written only while nobody is inside. Teams are
 * static memory, so a worker that comes late reads a closed word, never a stack that is gone.
 *
 * Between two regions a worker spins for some 30 us, since a model is a sequence of them, and then
 * sleeps on the word. A caller that waits spins, too, and then yields its CPU again and again: the
 * worker may have been inside when it lost its own. Where such waits outweigh short regions, the
 * caller works alone for a while. Callers at the same time have a team each. */
#define _GNU_SOURCE
#include "core/machine/threads.h"

#include "core/machine/environment.h"
#include "core/machine/processor.h"
#include <stdbool.h>

/* TGI_THREADS_SERIAL: one thread, for systems without futexes and for fuzzers. */
#if !defined(__linux__) && !defined(TGI_THREADS_SERIAL)
#define TGI_THREADS_SERIAL
#endif

typedef struct loop {
  tgi_loop_body *body;
  void *arg;
  int64_t n, grain, chunks;
} loop;

static void run_chunk(const loop *l, int64_t chunk, int thread)
{
  const int64_t begin = chunk * l->grain;
  l->body(l->arg, begin, l->n - begin < l->grain ? l->n : begin + l->grain, thread);
}

static void run_alone(const loop *l)
{
  for (int64_t chunk = 0; chunk < l->chunks; chunk++) {
    run_chunk(l, chunk, 0);
  }
}

#if defined(TGI_THREADS_SERIAL)
static void run_threads(const loop *l, int num_threads)
{
  (void)num_threads;
  run_alone(l);
}
#else
#include "core/machine/clock.h"
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
  kTeams = 8,         /* callers at the same time that have workers; others run alone */
  kMaxThreads = 1024, /* of a region */
  kPauses = 64,       /* between two looks at the clock */
  kPlace = 0x10000,   /* one place in a team's word */
};

/* Seconds until a worker sleeps, and until a caller yields. */
static const double kWorkerSpins = 30e-6, kCallerSpins = 50e-6;

/* Seconds of a wait that makes the team pause; how many times as long the pause is, and at most. */
static const double kLongWait = 200e-6, kPauseOfWait = 8, kLongestPause = 50e-3;

typedef struct team {
  _Alignas(64) _Atomic uint32_t word; /* workers spin on this line: it holds all they need */
  _Atomic int sleepers;
  loop l;
  _Alignas(64) _Atomic int64_t next; /* first chunk that no thread has claimed */
  atomic_bool taken;                 /* by a caller, who alone uses what follows */
  bool full;                         /* the system gave no more threads */
  int started;                       /* workers */
  double alone_until;                /* by the clock */
} team;

static team teams[kTeams];
static atomic_bool is_child; /* of a process that had workers: there are none here */
static _Thread_local bool inside_body;

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Sleeps while the word is `seen`. True if a wake ended it. */
static bool sleep_on(_Atomic uint32_t *word, uint32_t seen)
{
  return syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0) == 0;
}

/* Returns how many it woke. */
static int wake(_Atomic uint32_t *word, int most)
{
  const long woken = syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, most, NULL, NULL, 0);
  return woken > 0 ? (int)woken : 0;
}

static void take_chunks(team *t, int thread)
{
  for (;;) {
    const int64_t chunk = atomic_fetch_add_explicit(&t->next, 1, memory_order_relaxed);
    if (chunk >= t->l.chunks) {
      return;
    }
    run_chunk(&t->l, chunk, thread);
  }
}

/* ---- workers ---- */

/* The worker's index in the region that it joined; 0 if none has a place for it. */
static int join(team *t)
{
  uint32_t w = atomic_load_explicit(&t->word, memory_order_relaxed);
  while (w >= kPlace) {
    if (atomic_compare_exchange_weak_explicit(&t->word, &w, w - kPlace + 1, memory_order_acquire,
                                              memory_order_relaxed)) {
      return (int)(w / kPlace);
    }
  }
  return 0;
}

static void leave(team *t)
{
  uint32_t w = atomic_load_explicit(&t->word, memory_order_relaxed);
  while (!atomic_compare_exchange_weak_explicit(&t->word, &w, w % kPlace - 1, memory_order_release,
                                                memory_order_relaxed)) {
  }
}

/* The caller stores the word and then reads `sleepers`; a worker does the reverse. So one of them
 * sees the other. A caller takes those that it wakes off `sleepers` itself: until they have a CPU
 * it need not wake them again. */
static void sleep_until_open(team *t)
{
  atomic_fetch_add(&t->sleepers, 1);
  const uint32_t w = atomic_load(&t->word);
  if (w >= kPlace || !sleep_on(&t->word, w)) {
    atomic_fetch_sub(&t->sleepers, 1);
  }
}

static void *work(void *arg)
{
  team *t = arg;
  double idle_since = tgi_clock();
  inside_body = true;
  for (unsigned tries = 1;; tries++) {
    const int thread = join(t);
    if (thread > 0) {
      take_chunks(t, thread);
      leave(t);
      idle_since = tgi_clock();
    } else if (tries % kPauses == 0 && tgi_clock() - idle_since > kWorkerSpins) {
      sleep_until_open(t);
      idle_since = tgi_clock();
    } else {
      relax();
    }
  }
  return NULL;
}

static void mark_child(void)
{
  atomic_store_explicit(&is_child, true, memory_order_relaxed);
}

static void watch_forks(void)
{
  pthread_atfork(NULL, NULL, mark_child);
}

static bool start_worker(team *t)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, watch_forks);
  pthread_attr_t detached;
  if (pthread_attr_init(&detached) != 0) {
    return false;
  }
  pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
  sigset_t all, before; /* signals belong to the program's own threads */
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t id;
  const bool started = pthread_create(&id, &detached, work, t) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&detached);
  return started;
}

/* ---- callers ---- */

/* A team that no caller has: the first, whose workers were the last at work. NULL if all are taken.
 */
static team *take_team(void)
{
  for (int i = 0; i < kTeams; i++) {
    if (!atomic_load_explicit(&teams[i].taken, memory_order_relaxed) &&
        !atomic_exchange_explicit(&teams[i].taken, true, memory_order_acquire)) {
      return &teams[i];
    }
  }
  return NULL;
}

static void open_region(team *t, const loop *l, int places)
{
  while (t->started < places && !t->full) {
    if (start_worker(t)) {
      t->started++;
    } else {
      t->full = true;
    }
  }
  t->l = *l;
  atomic_store_explicit(&t->next, 0, memory_order_relaxed);
  atomic_store(&t->word, (uint32_t)places * kPlace);
  const int asleep = atomic_load(&t->sleepers);
  const int missing = places - (t->started - asleep);
  if (asleep > 0 && missing > 0) {
    atomic_fetch_sub(&t->sleepers, wake(&t->word, missing));
  }
}

/* A wait that is long beside the caller's own work means that a worker lost its CPU inside. Regions
 * so short gain less by a second thread than one such wait costs, so the team pauses. Longer ones
 * go on: there the wait is a part of what they gain. */
static void judge_wait(team *t, double own, double waited)
{
  if (waited > kLongWait && waited > 2 * own) {
    const double pause = kPauseOfWait * waited;
    t->alone_until = tgi_clock() + (pause < kLongestPause ? pause : kLongestPause);
  }
}

static void close_region(team *t, double opened)
{
  uint32_t inside = atomic_fetch_and(&t->word, kPlace - 1) % kPlace;
  const double start = inside ? tgi_clock() : 0;
  bool spins = true;
  for (unsigned tries = 1; inside; tries++) {
    if (spins) {
      relax();
      spins = tries % kPauses != 0 || tgi_clock() - start < kCallerSpins;
    } else {
      sched_yield();
    }
    inside = atomic_load_explicit(&t->word, memory_order_acquire);
  }
  if (!spins) {
    judge_wait(t, start - opened, tgi_clock() - start);
  }
}

static void run_threads(const loop *l, int num_threads)
{
  team *t =
      inside_body || atomic_load_explicit(&is_child, memory_order_relaxed) ? NULL : take_team();
  if (!t) {
    run_alone(l);
    return;
  }
  const double opened = tgi_clock();
  inside_body = true;
  if (opened < t->alone_until) {
    run_alone(l);
  } else {
    open_region(t, l, (num_threads < kMaxThreads ? num_threads : kMaxThreads) - 1);
    take_chunks(t, 0);
    close_region(t, opened);
  }
  inside_body = false;
  atomic_store_explicit(&t->taken, false, memory_order_release);
}
#endif

void tgi_parallel_for(int num_threads, int64_t n, int64_t grain, tgi_loop_body *body, void *arg)
{
  if (n <= 0) {
    return;
  }
  loop l = {.body = body, .arg = arg, .n = n, .grain = grain > 0 ? grain : 1};
  l.chunks = n / l.grain + (n % l.grain != 0);
  const int wanted = l.chunks < num_threads ? (int)l.chunks : num_threads;
  if (wanted <= 1) {
    run_alone(&l);
  } else {
    run_threads(&l, wanted);
  }
}

int tgi_default_threads(void)
{
#if defined(TGI_THREADS_SERIAL)
  return 1;
#else
  const int asked = tgi_environment_threads();
  return asked > 0 ? asked : tgi_processor_share();
#endif
}

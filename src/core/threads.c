#define _GNU_SOURCE
#include "core/threads.h"

#include "core/processor.h"
#include <stdatomic.h>

/* One of TGI_THREADS_OPENMP (the product), TGI_THREADS_PTHREAD (ThreadSanitizer, which does not
 * support libgomp) and TGI_THREADS_SERIAL (systems without either). */
#if defined(TGI_THREADS_OPENMP)
#include <omp.h>
#elif defined(TGI_THREADS_PTHREAD)
#include <pthread.h>
#endif

typedef struct loop {
  tgi_loop_body *body;
  void *arg;
  int64_t n, grain;
  _Atomic int64_t next; /* first item that no thread has claimed */
} loop;

static void take_chunks(loop *l, int thread)
{
  for (;;) {
    const int64_t begin = atomic_fetch_add_explicit(&l->next, l->grain, memory_order_relaxed);
    if (begin >= l->n) {
      return;
    }
    const int64_t end = l->n - begin < l->grain ? l->n : begin + l->grain;
    l->body(l->arg, begin, end, thread);
  }
}

#if defined(TGI_THREADS_PTHREAD)
enum { kMaxThreads = 256 };

typedef struct worker {
  loop *l;
  int thread;
} worker;

static void *work(void *arg)
{
  const worker *w = arg;
  take_chunks(w->l, w->thread);
  return 0;
}

static void run_threads(loop *l, int num_threads)
{
  pthread_t id[kMaxThreads];
  worker w[kMaxThreads];
  int started = 0;
  for (int i = 1; i < num_threads && i < kMaxThreads; i++) {
    w[started] = (worker){l, i};
    if (pthread_create(&id[started], 0, work, &w[started]) != 0) {
      break;
    }
    started++;
  }
  take_chunks(l, 0);
  for (int i = 0; i < started; i++) {
    pthread_join(id[i], 0);
  }
}
#elif defined(TGI_THREADS_OPENMP)
static void run_threads(loop *l, int num_threads)
{
#pragma omp parallel num_threads(num_threads)
  take_chunks(l, omp_get_thread_num());
}
#else
static void run_threads(loop *l, int num_threads)
{
  (void)num_threads;
  take_chunks(l, 0);
}
#endif

void tgi_parallel_for(int num_threads, int64_t n, int64_t grain, tgi_loop_body *body, void *arg)
{
  if (n <= 0) {
    return;
  }
  loop l = {.body = body, .arg = arg, .n = n, .grain = grain > 0 ? grain : 1};
  atomic_init(&l.next, 0);
  const int64_t chunks = (n + l.grain - 1) / l.grain;
  const int wanted = chunks < num_threads ? (int)chunks : num_threads;
  if (wanted <= 1) {
    take_chunks(&l, 0);
  } else {
    run_threads(&l, wanted);
  }
}

int tgi_default_threads(void)
{
#if defined(TGI_THREADS_OPENMP)
  return omp_get_max_threads();
#elif defined(TGI_THREADS_PTHREAD)
  return tgi_processor_count();
#else
  return 1;
#endif
}

/* Sampling beyond the spec driver: frequencies against exact probabilities, a plain sampler in f64
 * with a full sort, every entry and number of threads, the ends of the filters. */
#include "core/values/half.h"
#include "tegula/tegula.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cpu_entries.h"
#include "sample_call.h"

static uint64_t next(uint64_t *state)
{
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 11;
}

static double uniform(uint64_t *state) /* in [0, 1) */
{
  return (double)next(state) * 0x1p-53;
}

/* ---- a plain sampler ---- */

typedef struct candidate {
  double logit, p;
  int id;
} candidate;

static int by_rank(const void *a, const void *b)
{
  const candidate *x = a, *y = b;
  return x->logit > y->logit ? -1 : x->logit < y->logit ? 1 : x->id < y->id ? -1 : 1;
}

/* Exact probabilities after the filters, by id. */
static void expect_probabilities(const float *logits, int vocab, const tg_sample_fwd_args *a,
                                 double *p)
{
  candidate *c = malloc((size_t)vocab * sizeof *c);
  double sum = 0, part = 0;
  int kept = 0;
  for (int i = 0; i < vocab; i++) {
    c[i] = (candidate){(double)logits[i], 0, i};
    p[i] = 0;
  }
  qsort(c, (size_t)vocab, sizeof *c, by_rank);
  const int n = a->top_k > 0 && a->top_k < vocab ? a->top_k : vocab;
  for (int i = 0; i < n; i++) {
    c[i].p = exp((c[i].logit - c[0].logit) / (double)a->temperature);
    sum += c[i].p;
  }
  const bool nucleus = a->top_p > 0 && a->top_p < 1;
  while (kept < n && (!nucleus || part < (double)a->top_p * sum)) {
    part += c[kept++].p;
  }
  sum = 0;
  for (int pass = 0; pass < 2; pass++) {
    for (int i = 0; i < kept && (i == 0 || c[i].p >= (double)a->min_p); i++) {
      sum += pass ? 0 : c[i].p;
      p[c[i].id] = c[i].p / sum;
    }
  }
  free(c);
}

/* Chi-square of many draws against those probabilities; ids of probability 0 never come. */
static void test_frequencies(void **state)
{
  enum { kVocab = 300, kRows = 4000, kRounds = 5 };
  static const tg_sample_fwd_args kFilters[] = {
      {.temperature = 1},
      {.temperature = 0.7f, .top_k = 40},
      {.temperature = 1.3f, .top_p = 0.8f},
      {.temperature = 1.1f, .min_p = 0.05f},
      {.temperature = 0.9f, .top_k = 60, .top_p = 0.9f, .min_p = 0.02f},
  };
  float row[kVocab], *logits = malloc(sizeof(float) * kRows * kVocab);
  int32_t *ids = malloc(sizeof(int32_t) * kRows);
  cpu_entries e = open_cpu_entries(2);
  uint64_t s = 99;
  (void)state;
  for (int i = 0; i < kVocab; i++) {
    row[i] = (float)(6 * uniform(&s) * uniform(&s) - 3);
  }
  for (int r = 0; r < kRows; r++) {
    memcpy(logits + r * kVocab, row, sizeof row);
  }
  for (size_t k = 0; k < sizeof kFilters / sizeof kFilters[0]; k++) {
    double p[kVocab], chi = 0;
    int times[kVocab] = {0}, cells = 0;
    tg_sample_fwd_args a = kFilters[k];
    a.logits = tg_tensor_2d(logits, TG_F32, kRows, kVocab);
    a.ids = tg_tensor_1d(ids, TG_I32, kRows);
    a.seed = (int64_t)k;
    expect_probabilities(row, kVocab, &a, p);
    for (a.position = 0; a.position < kRounds; a.position++) {
      must_run(e.ctx[0], sample(e.ctx[0], a));
      for (int r = 0; r < kRows; r++) {
        times[ids[r]]++;
      }
    }
    for (int i = 0; i < kVocab; i++) {
      const double mean = p[i] * kRows * kRounds;
      if (p[i] == 0) {
        assert_int_equal(times[i], 0);
      } else {
        chi += (times[i] - mean) * (times[i] - mean) / mean;
        cells++;
      }
    }
    const double deviations = (chi - (cells - 1)) / sqrt(2.0 * (cells - 1));
    if (!(fabs(deviations) < 4.5)) {
      fail_msg("filters %zu: chi-square of %d cells: expected about %d, got %g", k, cells,
               cells - 1, chi);
    }
  }
  close_cpu_entries(&e);
  free(logits);
  free(ids);
}

/* The id's log-probability is that of the plain sampler, and never minus infinity. */
static void test_log_prob(void **state)
{
  enum { kVocab = 5000, kRows = 50 };
  float *logits = malloc(sizeof(float) * kRows * kVocab), log_prob[kRows];
  double *p = malloc(sizeof(double) * kVocab);
  int64_t ids[kRows];
  uint64_t s = 4;
  cpu_entries e = open_cpu_entries(2);
  (void)state;
  for (int i = 0; i < kRows * kVocab; i++) {
    logits[i] = (float)(20 * uniform(&s) - 10);
  }
  for (int k = 0; k < 4 * e.count; k++) {
    tg_sample_fwd_args a = {.logits = tg_tensor_2d(logits, TG_F32, kRows, kVocab),
                            .ids = tg_tensor_1d(ids, TG_I64, kRows),
                            .log_prob = tg_tensor_1d(log_prob, TG_F32, kRows),
                            .temperature = k % 2 ? 2.5f : 1,
                            .top_p = k / 2 % 2 ? 0.77f : 0,
                            .seed = k / 4 % 2 - 5};
    must_run(e.ctx[k / 4], sample(e.ctx[k / 4], a));
    for (int r = 0; r < kRows; r++) {
      expect_probabilities(logits + r * kVocab, kVocab, &a, p);
      assert_true(fabs((double)log_prob[r] - log(p[ids[r]])) < 2e-6);
    }
  }
  close_cpu_entries(&e);
  free(logits);
  free(p);
}

/* Equal values give equal ids in every dtype, on every entry and number of threads. */
static void test_same_everywhere(void **state)
{
  enum { kVocab = 20011, kRows = 7, kDtypes = 3 };
  void *logits[kDtypes];
  int32_t first[4][kRows], ids[kRows];
  uint64_t s = 77;
  (void)state;
  for (int d = 0; d < kDtypes; d++) {
    logits[d] = malloc(sizeof(float) * kRows * kVocab);
  }
  for (int i = 0; i < kRows * kVocab; i++) {
    const double z = (double)(next(&s) % 255) / 16 - 8; /* 8 bits: exact in bf16 */
    for (int d = 0; d < kDtypes; d++) {
      tgi_store(logits[d], (tg_dtype)(TG_F32 + d), i, z);
    }
  }
  for (int threads = 1; threads <= 4; threads += 3) {
    cpu_entries e = open_cpu_entries(threads);
    for (int k = 0; k < 4 * kDtypes * e.count; k++) {
      const int filter = k % 4, d = k / 4 % kDtypes;
      const tg_sample_fwd_args a = {
          .logits = tg_tensor_2d(logits[d], (tg_dtype)(TG_F32 + d), kRows, kVocab),
          .ids = tg_tensor_1d(ids, TG_I32, kRows),
          .temperature = 1.2f,
          .top_k = filter % 2 ? 3000 : 0,
          .top_p = filter / 2 ? 0.85f : 0,
          .seed = -42,
          .position = 1000};
      must_run(e.ctx[0], sample(e.ctx[k / 4 / kDtypes], a));
      if (threads == 1 && k < 4) {
        memcpy(first[filter], ids, sizeof ids);
      }
      assert_memory_equal(ids, first[filter], sizeof ids);
    }
    close_cpu_entries(&e);
  }
  for (int d = 0; d < kDtypes; d++) {
    free(logits[d]);
  }
}

/* A draw is a function of seed, position and row, and depends on each. */
static void test_counters(void **state)
{
  enum { kVocab = 1000, kRows = 6 };
  float logits[kRows * kVocab] = {0};
  int64_t ids[3][kRows], positions[kRows] = {5, 6, 7, 8, 9, -3};
  cpu_entries e = open_cpu_entries(1);
  tg_sample_fwd_args a = {.logits = tg_tensor_2d(logits, TG_F32, kRows, kVocab),
                          .ids = tg_tensor_1d(ids[0], TG_I64, kRows),
                          .temperature = 1,
                          .seed = 8,
                          .position = 15};
  (void)state;
  must_run(e.ctx[0], sample(e.ctx[0], a));
  for (int i = 1; i < kRows; i++) {
    assert_int_not_equal(ids[0][i], ids[0][i - 1]);
  }
  a.ids = tg_tensor_1d(ids[1], TG_I64, kRows);
  a.positions = tg_tensor_1d(positions, TG_I64, kRows);
  a.position = 10; /* the first row's sum is 15 again */
  must_run(e.ctx[0], sample(e.ctx[0], a));
  assert_int_equal(ids[1][0], ids[0][0]);
  for (int i = 1; i < kRows; i++) {
    assert_int_not_equal(ids[1][i], ids[0][i]);
  }
  a.ids = tg_tensor_1d(ids[2], TG_I64, kRows);
  a.seed = 9;
  must_run(e.ctx[0], sample(e.ctx[0], a));
  for (int i = 0; i < kRows; i++) {
    assert_int_not_equal(ids[2][i], ids[1][i]);
  }
  close_cpu_entries(&e);
}

/* With seeds a row draws as it does alone, wherever it stands in whatever batch. */
static void test_seeds(void **state)
{
  enum { kVocab = 1000, kRows = 6 };
  static float logits[kRows * kVocab];
  int64_t seeds[kRows] = {8, -9, 8, 1LL << 40, 0, 8}, positions[kRows] = {5, 6, 5, 7, 5, 9};
  int64_t together[kRows], alone, kinds = 0;
  cpu_entries e = open_cpu_entries(1);
  (void)state;
  for (int k = 0; k < e.count; k++) {
    tg_sample_fwd_args a = {.logits = tg_tensor_2d(logits, TG_F32, kRows, kVocab),
                            .positions = tg_tensor_1d(positions, TG_I64, kRows),
                            .seeds = tg_tensor_1d(seeds, TG_I64, kRows),
                            .ids = tg_tensor_1d(together, TG_I64, kRows),
                            .temperature = 1,
                            .seed = 77, /* not used */
                            .position = 10};
    must_run(e.ctx[k], sample(e.ctx[k], a));
    for (int i = 0; i < kRows; i++) {
      const tg_sample_fwd_args one = {.logits = tg_tensor_2d(logits, TG_F32, 1, kVocab),
                                      .ids = tg_tensor_1d(&alone, TG_I64, 1),
                                      .temperature = 1,
                                      .seed = seeds[i],
                                      .position = 10 + positions[i]};
      must_run(e.ctx[k], sample(e.ctx[k], one));
      assert_int_equal(together[i], alone);
      kinds += k == 0 && i > 0 && together[i] != together[0];
    }
    assert_int_equal(together[0], together[2]);
    assert_int_equal(kinds, 4);
  }
  close_cpu_entries(&e);
}

static int64_t pick(tg_context *ctx, const float *logits, int64_t vocab, tg_sample_fwd_args a)
{
  int64_t id = -9;
  a.logits = tg_tensor_2d((void *)(uintptr_t)logits, TG_F32, 1, vocab);
  a.ids = tg_tensor_1d(&id, TG_I64, 1);
  must_run(ctx, sample(ctx, a));
  assert_in_range(id, 0, vocab - 1);
  return id;
}

/* Ends of the scalars: what they leave is one id, or all. */
static void test_ends(void **state)
{
  const float logits[6] = {-INFINITY, 1, 3, 3, -70000, 2}, one[1] = {-5};
  const float zeros[3] = {-0.0f, 0.0f, -0.0f};
  cpu_entries e = open_cpu_entries(1);
  (void)state;
  for (int k = 0; k < e.count * 40; k++) {
    tg_context *ctx = e.ctx[k / 40];
    const tg_sample_fwd_args base = {.temperature = 1, .position = k};
    tg_sample_fwd_args a = base;
    a.temperature = 0;
    assert_int_equal(pick(ctx, logits, 6, a), 2);
    a.temperature = 1e-45f; /* a denormal: only the largest weigh anything */
    assert_in_range(pick(ctx, logits, 6, a), 2, 3);
    a.temperature = 3e38f; /* flat, but -infinity stays impossible */
    assert_int_not_equal(pick(ctx, logits, 6, a), 0);
    a = base;
    a.top_k = 1;
    assert_int_equal(pick(ctx, logits, 6, a), 2);
    a.top_k = 3;
    a.temperature = 100;
    const int64_t third = pick(ctx, logits, 6, a);
    assert_true(third == 2 || third == 3 || third == 5);
    a = base;
    a.top_p = 1e-30f;
    assert_int_equal(pick(ctx, logits, 6, a), 2);
    a = base;
    a.min_p = 1;
    assert_in_range(pick(ctx, logits, 6, a), 2, 3);
    assert_int_equal(pick(ctx, one, 1, base), 0);
    a.min_p = 0;
    a.top_k = 2; /* zeros of both signs are equal: the lowest ids */
    assert_in_range(pick(ctx, zeros, 3, a), 0, 1);
    a.top_p = 0.4f;
    assert_int_equal(pick(ctx, zeros, 3, a), 0);
  }
  close_cpu_entries(&e);
}

/* A wide row of which a single id has weight: the others are never picked, wherever it lies. */
static void test_no_weight(void **state)
{
  enum { kVocab = 201088 };
  float *logits = malloc(sizeof(float) * kVocab);
  cpu_entries e = open_cpu_entries(1);
  (void)state;
  for (int i = 0; i < kVocab; i++) {
    logits[i] = -40; /* e^-40 is below 2^-40 */
  }
  for (int k = 0; k < 12; k++) {
    const int64_t id = k % 3 == 0 ? 0 : k % 3 == 1 ? kVocab - 1 : 16123;
    const tg_sample_fwd_args a = {.temperature = 1, .top_p = k % 2 ? 0.999f : 0, .seed = k};
    logits[id] = 0;
    assert_int_equal(pick(e.ctx[k % e.count], logits, kVocab, a), id);
    logits[id] = -40;
  }
  close_cpu_entries(&e);
  free(logits);
}

/* The penalty counts once, divides what is positive and multiplies what is not. */
static void test_penalty(void **state)
{
  const float logits[5] = {2, 1.5f, -1, -1.2f, 0.9f};
  int32_t history[4] = {0, 0, 2, 1};
  cpu_entries e = open_cpu_entries(1);
  (void)state;
  for (int k = 0; k < e.count; k++) {
    tg_sample_fwd_args a = {.history = tg_tensor_2d(history, TG_I32, 1, 3),
                            .repetition_penalty = 1.25f}; /* 2 -> 1.6, once: above 1.5 */
    assert_int_equal(pick(e.ctx[k], logits, 5, a), 0);
    a.repetition_penalty = 1.5f; /* 2 -> 1.33 */
    assert_int_equal(pick(e.ctx[k], logits, 5, a), 1);
    a.history = tg_tensor_2d(history, TG_I32, 1, 4); /* 1.5 -> 1 */
    assert_int_equal(pick(e.ctx[k], logits, 5, a), 0);
    const float low[2] = {-1, -1.1f}; /* -1 -> -1.5 */
    a.history = tg_tensor_2d(history, TG_I32, 1, 1);
    assert_int_equal(pick(e.ctx[k], low, 2, a), 1);
    a.repetition_penalty = 0; /* off */
    assert_int_equal(pick(e.ctx[k], low, 2, a), 0);
  }
  close_cpu_entries(&e);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_frequencies),     cmocka_unit_test(test_log_prob),
      cmocka_unit_test(test_same_everywhere), cmocka_unit_test(test_counters),
      cmocka_unit_test(test_seeds),           cmocka_unit_test(test_ends),
      cmocka_unit_test(test_no_weight),       cmocka_unit_test(test_penalty),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

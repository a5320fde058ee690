/** Losses and gradients of a small model of each family over batches with documents, micro-batches
 * and ignored targets, on either backend. After cmocka.h. */
#ifndef TEGULA_TESTS_FAMILY_TRAINING_H
#define TEGULA_TESTS_FAMILY_TRAINING_H

#include "small_families.h"
#include "tegula/train.h"

#include <math.h>
#include <string.h>

enum { kRows = 4, kLength = 24, kTokens = kRows * kLength, kDocuments = 10, kMostDocuments = 4 };

/* Every kind of row: three documents, one, four (one a single token), and one cut at odd places
 * whose last document is padding. */
static const int32_t kStarts[kDocuments + 1] = {0, 7, 8, 24, 48, 53, 54, 61, 72, 83, kTokens};

static inline tg_trainer_options family_options(int32_t rows, int32_t length)
{
  return (tg_trainer_options){.batch_size = rows,
                              .sequence_length = length,
                              .num_threads = 2,
                              .num_steps = 20,
                              .learning_rate = 1e-2,
                              .beta1 = 0.9,
                              .beta2 = 0.99,
                              .eps = 1e-8,
                              .weight_decay = 0.1};
}

static inline tg_trainer *family_trainer(tg_model *model, tg_trainer_options options)
{
  tg_trainer *t = NULL;
  tg_error error = {0};
  EXPECT_OK(tg_trainer_create(model, &options, &t, &error), error);
  return t;
}

typedef struct packed_rows {
  int32_t tokens[kTokens], targets[kTokens];
} packed_rows;

/* Some targets are ignored, all of the second row's, and those of the padding at the end. */
static inline packed_rows make_rows(uint32_t seed)
{
  packed_rows p;
  uint32_t state = seed;
  for (int i = 0; i < kTokens; i++) {
    state = state * 1664525u + 1013904223u;
    p.tokens[i] = (int32_t)((state >> 16) % kFamilyVocab);
    state = state * 1664525u + 1013904223u;
    p.targets[i] = (int32_t)((state >> 16) % kFamilyVocab);
    if (i % 5 == 3 || i / kLength == 1 || i >= kStarts[kDocuments - 1]) {
      p.targets[i] = TG_IGNORED_TARGET;
    }
  }
  return p;
}

static inline tg_train_batch packed_batch(const packed_rows *p)
{
  return (tg_train_batch){.tokens = p->tokens,
                          .targets = p->targets,
                          .cu_seqlens = kStarts,
                          .num_documents = kDocuments};
}

static inline int64_t counted(const int32_t *targets, int64_t n)
{
  int64_t count = 0;
  for (int64_t i = 0; i < n; i++) {
    count += targets[i] != TG_IGNORED_TARGET;
  }
  return count;
}

static inline int64_t elements_of(const tg_tensor *t)
{
  int64_t n = 1;
  for (int i = 0; i < t->ndim; i++) {
    n *= t->shape[i];
  }
  return n;
}

/** A sum of gradients: of all parameters, one behind the other, in their own order. */
typedef struct gradient_sum {
  double loss;
  double *of; /* [elements] */
} gradient_sum;

static inline gradient_sum no_gradients(const tg_model *model)
{
  gradient_sum s = {.of = calloc((size_t)model->parameters.elements, sizeof *s.of)};
  assert_non_null(s.of);
  return s;
}

/* The element (row, column) of a view that may be turned. */
static inline double gradient_at(const tg_tensor *t, int64_t i)
{
  const float *data = t->data;
  if (t->ndim != 2 || (t->stride[0] == 0 && t->stride[1] == 0)) {
    return (double)data[i];
  }
  return (double)data[i / t->shape[1] * t->stride[0] + i % t->shape[1] * t->stride[1]];
}

/* Adds loss and gradients of a batch, weighted. */
static inline void add_batch(gradient_sum *sum, tg_trainer *t, const tg_train_batch *batch,
                             double weight)
{
  tg_error error = {0};
  double loss = 0;
  EXPECT_OK(tg_trainer_backward(t, batch, &loss, &error), error);
  sum->loss += weight * loss;
  tg_tensor view;
  int64_t at = 0;
  for (size_t p = 0; tg_trainer_gradient(t, p, &view) == TG_OK; p++) {
    for (int64_t i = 0; i < elements_of(&view); i++) {
      sum->of[at++] += weight * gradient_at(&view, i);
    }
  }
}

/* Per parameter: the largest difference beside the largest gradient. */
static inline void expect_same_gradients(const tg_model *model, const gradient_sum *got,
                                         const gradient_sum *want, double bound)
{
  if (!(fabs(got->loss - want->loss) <= 2e-6 * fabs(want->loss))) {
    fail_msg("%s: expected a loss of %.9g, got %.9g", tgi_model_type_name(model->config.model_type),
             want->loss, got->loss);
  }
  int64_t at = 0;
  for (size_t p = 0; p < (size_t)model->parameters.count; p++) {
    tg_tensor view;
    const char *name;
    assert_int_equal(tg_model_parameter(model, p, &view, &name), TG_OK);
    double most = 0, worst = 0;
    for (const int64_t end = at + elements_of(&view); at < end; at++) {
      const double d = fabs(got->of[at] - want->of[at]);
      worst = d > worst || isnan(d) ? d : worst;
      most = fmax(most, fabs(want->of[at]));
    }
    if (!(worst <= bound * most + 1e-9)) {
      fail_msg("%s: %s: expected a difference of at most %g of %g, got %g",
               tgi_model_type_name(model->config.model_type), name, bound, most, worst);
    }
  }
}

/* The packed batch, with the given rows in a micro-batch. */
static inline gradient_sum packed_gradients(tg_model *model, const packed_rows *p,
                                            tg_backend backend, int32_t micro_batch)
{
  tg_trainer_options o = family_options(kRows, kLength);
  o.max_documents = kMostDocuments;
  o.micro_batch_size = micro_batch;
  o.backend = backend;
  tg_trainer *t = family_trainer(model, o);
  gradient_sum sum = no_gradients(model);
  const tg_train_batch batch = packed_batch(p);
  add_batch(&sum, t, &batch, 1);
  double loss = 0;
  tg_error error = {0};
  EXPECT_OK(tg_trainer_loss(t, &batch, &loss, &error), error);
  if (!(fabs(loss - sum.loss) <= 1e-6 * loss)) {
    fail_msg("expected a loss of %.9g, got %.9g", sum.loss, loss);
  }
  tg_trainer_destroy(t);
  return sum;
}

/* Options of a packed batch with an auxiliary loss of that weight. */
static inline tg_trainer_options balanced_options(tg_backend backend, int32_t micro_batch,
                                                  double coefficient)
{
  tg_trainer_options o = family_options(kRows, kLength);
  o.max_documents = kMostDocuments;
  o.micro_batch_size = micro_batch;
  o.backend = backend;
  o.has_router_aux_loss_coef = true;
  o.router_aux_loss_coef = coefficient;
  return o;
}

static inline gradient_sum balanced_gradients(tg_model *model, const packed_rows *p,
                                              const tg_trainer_options *options)
{
  tg_trainer *t = family_trainer(model, *options);
  gradient_sum sum = no_gradients(model);
  const tg_train_batch batch = packed_batch(p);
  add_batch(&sum, t, &batch, 1);
  tg_trainer_destroy(t);
  return sum;
}

/* Each document by a trainer of its own, weighted by its targets. */
static inline gradient_sum separate_gradients(tg_model *model, const packed_rows *p,
                                              tg_backend backend)
{
  gradient_sum sum = no_gradients(model);
  const double all = (double)counted(p->targets, kTokens);
  for (int d = 0; d < kDocuments; d++) {
    const int32_t first = kStarts[d], length = kStarts[d + 1] - first;
    const int64_t targets = counted(p->targets + first, length);
    tg_trainer_options o = family_options(1, length);
    o.backend = backend;
    tg_trainer *t = family_trainer(model, o);
    const tg_train_batch batch = {.tokens = p->tokens + first, .targets = p->targets + first};
    add_batch(&sum, t, &batch, (double)targets / all);
    tg_trainer_destroy(t);
  }
  return sum;
}

#endif

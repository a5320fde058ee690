/** A batch of random rows for the tests of cross_entropy, and its calls with everything asked for.
 * After cmocka.h. */
#ifndef TEGULA_TESTS_LOSS_BATCH_H
#define TEGULA_TESTS_LOSS_BATCH_H

#include "expect_op.h"
#include "tegula/tegula.h"
#include <math.h>
#include <stdlib.h>

enum { kRows = 12, kVocab = 1100, kIgnored = -100 };

typedef struct batch {
  tg_context *ctx;
  float logits[kRows * kVocab], gradient[kRows * kVocab];
  int64_t targets[kRows], argmax[kRows];
  float lse[kRows], token_loss[kRows], log_prob[kRows], loss[kRows];
} batch;

static inline int set_up(void **state)
{
  batch *b = calloc(1, sizeof *b);
  const tg_context_options o = {.backend = TG_BACKEND_CPU, .num_threads = 2};
  assert_int_equal(tg_context_create(&o, &b->ctx, NULL), TG_OK);
  uint32_t seed = 12345;
  for (int i = 0; i < kRows * kVocab; i++) {
    seed = seed * 1664525u + 1013904223u;
    b->logits[i] = (float)(seed >> 8) * 0x1p-21f - 4.0f;
  }
  for (int i = 0; i < kRows; i++) {
    b->targets[i] = 97 * i % kVocab;
  }
  *state = b;
  return 0;
}

static inline int tear_down(void **state)
{
  batch *b = *state;
  tg_context_destroy(b->ctx);
  free(b);
  return 0;
}

/* Rows [first, first + rows) of the batch, everything asked for. */
static inline tg_cross_entropy_fwd_args forward_args(batch *b, int first, int rows,
                                                     tg_reduction reduction)
{
  return (tg_cross_entropy_fwd_args){
      .logits = tg_tensor_2d(b->logits + first * kVocab, TG_F32, rows, kVocab),
      .targets = tg_tensor_1d(b->targets + first, TG_I64, rows),
      .loss = tg_tensor_1d(b->loss, TG_F32, reduction == TG_REDUCTION_NONE ? rows : 1),
      .token_loss = tg_tensor_1d(b->token_loss + first, TG_F32, rows),
      .log_prob = tg_tensor_1d(b->log_prob + first, TG_F32, rows),
      .lse = tg_tensor_1d(b->lse + first, TG_F32, rows),
      .argmax = tg_tensor_1d(b->argmax + first, TG_I64, rows),
      .ignore_index = kIgnored,
      .has_ignore_index = true,
      .reduction = reduction};
}

static inline tg_cross_entropy_bwd_args backward_args(batch *b, int first, int rows,
                                                      tg_reduction reduction)
{
  return (tg_cross_entropy_bwd_args){
      .logits = tg_tensor_2d(b->logits + first * kVocab, TG_F32, rows, kVocab),
      .targets = tg_tensor_1d(b->targets + first, TG_I64, rows),
      .lse = tg_tensor_1d(b->lse + first, TG_F32, rows),
      .dlogits = tg_tensor_2d(b->gradient + first * kVocab, TG_F32, rows, kVocab),
      .ignore_index = kIgnored,
      .has_ignore_index = true,
      .reduction = reduction};
}

/* What the two would do, in one call. */
static inline tg_cross_entropy_fwdbwd_args both_args(const tg_cross_entropy_fwd_args *fwd,
                                                     const tg_cross_entropy_bwd_args *bwd)
{
  return (tg_cross_entropy_fwdbwd_args){.dloss = bwd->dloss,
                                        .logits = fwd->logits,
                                        .targets = fwd->targets,
                                        .num_items = fwd->num_items,
                                        .loss = fwd->loss,
                                        .token_loss = fwd->token_loss,
                                        .log_prob = fwd->log_prob,
                                        .lse = fwd->lse,
                                        .argmax = fwd->argmax,
                                        .dlogits = bwd->dlogits,
                                        .ignore_index = fwd->ignore_index,
                                        .num_items_in_batch = fwd->num_items_in_batch,
                                        .label_smoothing = fwd->label_smoothing,
                                        .z_loss = fwd->z_loss,
                                        .softcap = fwd->softcap,
                                        .reduction = fwd->reduction,
                                        .has_ignore_index = fwd->has_ignore_index};
}

static inline void expect_close(const char *what, int i, double got, double wanted, double bound)
{
  if (!(fabs(got - wanted) <= bound)) {
    fail_msg("%s[%d]: expected %.9g, got %.9g (bound %.3g)", what, i, wanted, got, bound);
  }
}

static inline void expect_nan(double got)
{
  if (!isnan(got)) {
    fail_msg("expected NaN, got %.9g", got);
  }
}

#endif

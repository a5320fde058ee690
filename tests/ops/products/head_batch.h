/** A batch of random hidden states and a head for the tests of linear_cross_entropy, and its calls
 * with everything asked for. After cmocka.h. */
#ifndef TEGULA_TESTS_HEAD_BATCH_H
#define TEGULA_TESTS_HEAD_BATCH_H

#include "expect_op.h"
#include "tegula/tegula.h"
#include <stdlib.h>

enum { kRows = 23, kSize = 37, kVocab = 301, kIgnored = -100, kSpaceBytes = 64 << 20 };

/* What a call gives. */
typedef struct results {
  float loss[kRows], token_loss[kRows], log_prob[kRows], lse[kRows];
  int64_t argmax[kRows];
  float dhidden[kRows * kSize], dweight[kVocab * kSize], dbias[kVocab];
} results;

typedef struct batch {
  tg_context *ctx;
  float hidden[kRows * kSize], weight[kVocab * kSize], bias[kVocab], dloss[kRows];
  int64_t targets[kRows];
  results first, second;
  void *workspace;
} batch;

static inline float uniform(uint32_t *seed)
{
  *seed = *seed * 1664525u + 1013904223u;
  return (float)(*seed >> 8) * 0x1p-23f - 1.0f;
}

static inline int set_up(void **state)
{
  batch *b = calloc(1, sizeof *b);
  const tg_context_options o = {.backend = TG_BACKEND_CPU, .num_threads = 2};
  assert_int_equal(tg_context_create(&o, &b->ctx, NULL), TG_OK);
  uint32_t seed = 4711;
  for (int i = 0; i < kRows * kSize; i++) {
    b->hidden[i] = uniform(&seed);
  }
  for (int i = 0; i < kVocab * kSize; i++) {
    b->weight[i] = uniform(&seed);
  }
  for (int i = 0; i < kVocab; i++) {
    b->bias[i] = uniform(&seed);
  }
  for (int i = 0; i < kRows; i++) {
    b->dloss[i] = 1 + uniform(&seed);
    b->targets[i] = i % 5 == 3 ? kIgnored : 97 * i % kVocab;
  }
  b->workspace = aligned_alloc(256, kSpaceBytes);
  *state = b;
  return 0;
}

static inline int tear_down(void **state)
{
  batch *b = *state;
  tg_context_destroy(b->ctx);
  free(b->workspace);
  free(b);
  return 0;
}

static inline int64_t losses(tg_reduction reduction, int rows)
{
  return reduction == TG_REDUCTION_NONE ? rows : 1;
}

/* Both directions at once on rows [row, row + rows), everything asked for, gradients overwritten.
 */
static inline tg_linear_cross_entropy_fwdbwd_args both_args(batch *b, results *r, int row, int rows,
                                                            tg_reduction reduction)
{
  return (tg_linear_cross_entropy_fwdbwd_args){
      .dloss = tg_tensor_1d(b->dloss + row, TG_F32, losses(reduction, rows)),
      .hidden = tg_tensor_2d(b->hidden + row * kSize, TG_F32, rows, kSize),
      .weight = tg_tensor_2d(b->weight, TG_F32, kVocab, kSize),
      .bias = tg_tensor_1d(b->bias, TG_F32, kVocab),
      .targets = tg_tensor_1d(b->targets + row, TG_I64, rows),
      .loss = tg_tensor_1d(r->loss + row, TG_F32, losses(reduction, rows)),
      .token_loss = tg_tensor_1d(r->token_loss + row, TG_F32, rows),
      .log_prob = tg_tensor_1d(r->log_prob + row, TG_F32, rows),
      .lse = tg_tensor_1d(r->lse + row, TG_F32, rows),
      .argmax = tg_tensor_1d(r->argmax + row, TG_I64, rows),
      .dhidden = tg_tensor_2d(r->dhidden + row * kSize, TG_F32, rows, kSize),
      .dweight = tg_tensor_2d(r->dweight, TG_F32, kVocab, kSize),
      .dbias = tg_tensor_1d(r->dbias, TG_F32, kVocab),
      .ignore_index = kIgnored,
      .num_items_in_batch = reduction == TG_REDUCTION_NUM_ITEMS ? 7 : 0,
      .reduction = reduction,
      .has_ignore_index = true,
      .overwrite = true,
      .workspace = b->workspace,
      .workspace_bytes = kSpaceBytes,
  };
}

static inline tg_linear_cross_entropy_fwd_args
forward_of(const tg_linear_cross_entropy_fwdbwd_args *a)
{
  return (tg_linear_cross_entropy_fwd_args){
      .hidden = a->hidden,
      .weight = a->weight,
      .bias = a->bias,
      .targets = a->targets,
      .loss = a->loss,
      .token_loss = a->token_loss,
      .log_prob = a->log_prob,
      .lse = a->lse,
      .argmax = a->argmax,
      .ignore_index = a->ignore_index,
      .num_items_in_batch = a->num_items_in_batch,
      .chunk_rows = a->chunk_rows,
      .chunk_cols = a->chunk_cols,
      .label_smoothing = a->label_smoothing,
      .z_loss = a->z_loss,
      .softcap = a->softcap,
      .reduction = a->reduction,
      .has_ignore_index = a->has_ignore_index,
      .workspace = a->workspace,
      .workspace_bytes = a->workspace_bytes,
  };
}

static inline tg_linear_cross_entropy_bwd_args
backward_of(const tg_linear_cross_entropy_fwdbwd_args *a)
{
  return (tg_linear_cross_entropy_bwd_args){
      .dloss = a->dloss,
      .hidden = a->hidden,
      .weight = a->weight,
      .bias = a->bias,
      .targets = a->targets,
      .lse = a->lse,
      .dhidden = a->dhidden,
      .dweight = a->dweight,
      .dbias = a->dbias,
      .ignore_index = a->ignore_index,
      .num_items_in_batch = a->num_items_in_batch,
      .chunk_rows = a->chunk_rows,
      .chunk_cols = a->chunk_cols,
      .label_smoothing = a->label_smoothing,
      .z_loss = a->z_loss,
      .softcap = a->softcap,
      .reduction = a->reduction,
      .has_ignore_index = a->has_ignore_index,
      .overwrite = a->overwrite,
      .workspace = a->workspace,
      .workspace_bytes = a->workspace_bytes,
  };
}

#endif

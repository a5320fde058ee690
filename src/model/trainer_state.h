/** Inside of a tg_trainer. */
#ifndef TGI_MODEL_TRAINER_STATE_H
#define TGI_MODEL_TRAINER_STATE_H

#include "tegula/train.h"
#include "transformer.h"

struct tg_trainer {
  tg_model *model;  /* f32 */
  void *master;     /* the weights that AdamW updates: the model's block, or its copy on a GPU */
  tg_model compute; /* what the passes see: the same, or with a block of its own that holds the
                       weights rounded to options.dtype */
  bool on_gpu;
  float *gradients; /* on a GPU: g.block's copy for tg_trainer_gradient; NULL until then */
  tg_trainer_options options;
  tg_context *ctx;
  int64_t step; /* steps taken */

  /* One block each, of the parameter table's layout, f32. */
  void *exp_avg, *exp_avg_sq;
  tgi_gradients g; /* g.block: the gradients */

  void *block; /* everything but, on the CPU, the model's weights */
  tgi_layer_activations *layer;
  tgi_activations a;
  tgi_rope_tables rope;
  tg_tensor ids, targets, lse, loss, norm, clip;
  void *workspace;
  size_t workspace_bytes;

  /* The parameters in two groups, each as lists of the same order. */
  tg_tensor *lists;
  int num_decayed, num_others;
};

/** BAD_ARGUMENT naming the option, BAD_DTYPE (weights that are not f32). */
tg_status tgi_trainer_check(const tg_model *model, const tg_trainer_options *options,
                            tg_error *error);

/** The schedule's learning rate for step `step`, from 1. */
double tgi_learning_rate(const tg_trainer_options *options, int64_t step);

/** Copies the whole of a block of f32 values, one for each element of the parameter table, to or
 * from the trainer's device. */
tg_status tgi_trainer_copy(const tg_trainer *t, void *to, const void *from, tg_error *error);

#endif

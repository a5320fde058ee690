/** Inside of a tg_trainer. */
#ifndef TGI_MODEL_TRAINER_STATE_H
#define TGI_MODEL_TRAINER_STATE_H

#include "tegula/train.h"
#include "transformer.h"

struct tg_trainer {
  tg_model *model;  /* f32: the weights that are kept */
  tg_model compute; /* what the passes see: the same, or with a block of its own that holds the
                       weights rounded to options.dtype */
  tg_trainer_options options;
  tg_context *ctx;
  int64_t step; /* steps taken */

  /* One block each, of the parameter table's layout, f32. */
  void *exp_avg, *exp_avg_sq;
  tgi_gradients g; /* g.block: the gradients */

  char *block; /* everything but the weights */
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

#endif

/** Inside of a tg_trainer. */
#ifndef TGI_TRAINING_TRAINER_STATE_H
#define TGI_TRAINING_TRAINER_STATE_H

#include "router_balance.h"
#include "tegula/train.h"

struct tg_trainer {
  tg_model *model;  /* f32 */
  void *master;     /* the weights that AdamW updates: the model's block, or its copy on a GPU */
  tg_model compute; /* what the passes see: the same, or with a block of its own that holds the
                       weights rounded to options.dtype */
  bool on_gpu;
  float *gradients; /* on a GPU: g.block's copy for tg_trainer_gradient; NULL until then */
  tg_trainer_options options; /* micro_batch_size is set */
  tg_context *ctx;
  int64_t step; /* steps taken */

  /* One block each, of the parameter table's layout, f32, of tgi_trainer_elements. */
  void *exp_avg, *exp_avg_sq;
  tgi_gradients g; /* g.block: the gradients */

  void *block; /* everything but, on the CPU, the model's weights */
  tgi_layer_activations *layer;
  tgi_activations a;
  tgi_micro_batches batch;
  tgi_router_balance balance;  /* where batch.counts_tokens */
  tgi_rope_tables every, rows; /* for all positions; with documents, for every token of a pass */
  tgi_documents documents;     /* of the pass that runs */
  tg_tensor lse, norm, clip;
  tg_tensor loss; /* f32: the part of each micro-batch in the loss of the batch */
  void *workspace;
  size_t workspace_bytes;

  /* The parameters that are trained in two groups, each as lists of the same order. */
  tg_tensor *lists;
  int num_decayed, num_others;
};

/** BAD_ARGUMENT naming the option, BAD_DTYPE (weights that are not f32). */
tg_status tgi_trainer_check(const tg_model *model, const tg_trainer_options *options,
                            tg_error *error);

/** The options with the defaults that follow from others. */
tg_trainer_options tgi_trainer_settle(const tg_trainer_options *options);

/** Elements of the blocks of gradients and of optimiser state. */
static inline int64_t tgi_trainer_elements(const tg_trainer *t)
{
  const tgi_parameters *p = &t->model->parameters;
  return t->options.freeze_experts ? p->without_experts : p->elements;
}

/** Elements of the block that AdamW updates: with rounded weights it has no frozen ones. */
static inline int64_t tgi_trainer_master_elements(const tg_trainer *t)
{
  return t->compute.dtype == TG_F32 ? t->model->parameters.elements : tgi_trainer_elements(t);
}

static inline bool tgi_trainer_is_frozen(const tg_trainer *t, int parameter)
{
  return t->options.freeze_experts &&
         tgi_parameter_is_experts(&t->model->parameters.list[parameter]);
}

/** Lists of a group of parameters, one view for each of them. */
enum {
  TGI_LIST_PARAMS,
  TGI_LIST_GRADS,
  TGI_LIST_EXP_AVG,
  TGI_LIST_EXP_AVG_SQ,
  TGI_LIST_MASTER,
  TGI_GROUP_LISTS
};

static inline tg_tensor *tgi_trainer_list(const tg_trainer *t, bool decayed, int which)
{
  const int n = decayed ? t->num_decayed : t->num_others;
  return t->lists + (decayed ? 0 : TGI_GROUP_LISTS * t->num_decayed) + which * n;
}

/** Both groups' gradients in one list, behind the groups'. */
static inline tg_tensor *tgi_trainer_gradients(const tg_trainer *t)
{
  return t->lists + TGI_GROUP_LISTS * (t->num_decayed + t->num_others);
}

/** The largest workspace of any op of a step or of tg_trainer_loss. */
tg_status tgi_trainer_size_ops(tg_trainer *t, size_t *bytes);

/** Copies the first `elements` f32 values of a block to or from the trainer's device. */
tg_status tgi_trainer_copy(const tg_trainer *t, void *to, const void *from, int64_t elements,
                           tg_error *error);

#endif

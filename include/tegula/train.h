/**
 * Training: forward, loss, full backward and AdamW over one model, in f32 or with bf16 passes.
 *
 * A tg_trainer owns the gradients, optimiser state and activations of a fixed batch shape, all in
 * one block of memory. tg_trainer_plan computes its size before it is allocated. The trainer
 * updates the weights of its model. Every result has the same bits at any number of threads.
 *
 * A batch may be computed in micro-batches of fewer rows, which need less memory for activations.
 * Loss and gradients are those of the whole batch: each micro-batch's losses are divided by the
 * number of targets of the whole batch, and gradients add up in f32. Only the order of the
 * additions, and so the rounding, depends on the size of a micro-batch; the auxiliary loss of
 * routers alone depends on it otherwise.
 *
 * A model with experts may be trained with the auxiliary loss that balances its routers, as
 * transformers' load_balancing_loss_func computes it, times router_aux_loss_coef. All tokens are
 * counted but those of documents without a target. It is no sum over tokens: each micro-batch is
 * balanced for itself, and of several the loss is the mean, weighted by their counted tokens. So
 * with it, micro_batch_size is a part of the objective: other sizes are another training.
 *
 * A row may hold several documents, one after another. Attention then stays inside each document,
 * positions begin at 0 in each, and sliding windows end at its start, so that losses and gradients
 * are those of the documents alone.
 */
#ifndef TEGULA_TRAIN_H
#define TEGULA_TRAIN_H

#include "model.h"
#include "tokenizer.h"
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tg_trainer tg_trainer;

/** The learning rate over the steps: after the warm-up, from the peak to min_learning_rate. */
typedef enum tg_schedule {
  TG_SCHEDULE_COSINE = 1,   /* half a cosine down to the last step */
  TG_SCHEDULE_CONSTANT = 2, /* the peak; min_learning_rate is not used */
  TG_SCHEDULE_LINEAR = 3,   /* a line down to the last step */
  TG_SCHEDULE_WSD = 4,      /* warm-up, stable, decay: the peak, and over the last decay_fraction of
                               num_steps a line down to the last step */
} tg_schedule;

typedef struct tg_trainer_options {
  int32_t batch_size;      /* rows per step; required */
  int32_t sequence_length; /* tokens per row; required, at most the model's positions */
  int32_t num_threads;     /* as in tg_context_options */
  int64_t num_steps;       /* of the schedule; required */
  int64_t warmup_steps;    /* linear from 0; then `schedule` */
  double learning_rate;    /* peak; required */
  double min_learning_rate;
  double beta1, beta2, eps; /* required */
  double weight_decay;      /* of matrices and embeddings; biases and norms have none */
  double max_grad_norm;     /* gradients are scaled down to this norm; 0: never */
  tg_dtype dtype;       /* of weights and activations in the passes: TG_F32 (and TG_DTYPE_NONE), or
                           TG_BF16. The model's own weights, the gradients of weights and the
                           optimiser state stay f32; bf16 passes read rounded weights */
  tg_backend backend;   /* 0: TG_BACKEND_CPU. TG_BACKEND_CUDA: everything is on the GPU. The model's
                           host memory is updated by tg_trainer_sync, by tg_trainer_save and when
                           the trainer is destroyed */
  int32_t device_index; /* CUDA ordinal */
  int32_t micro_batch_size; /* rows per pass, a divisor of batch_size; 0: batch_size. With the
                               auxiliary loss it changes the objective */
  int32_t max_documents;    /* in a row; the workspace is sized for them. 0: every row is one
                               document, and a batch has no cu_seqlens */
  tg_schedule schedule;     /* 0: TG_SCHEDULE_COSINE */
  double decay_fraction;    /* of TG_SCHEDULE_WSD, above 0 and at most 1; of others 0 */
  bool freeze_experts;      /* the matrices of experts stay as they are: no gradients, no optimiser
                               state. All else is trained, their biases and the routers too. Needs
                               a model with experts */
  bool has_router_aux_loss_coef;
  double router_aux_loss_coef; /* weight of the auxiliary loss, from 0; needs a model with experts.
                                  Without has_router_aux_loss_coef: that of config.json if it says
                                  output_router_logits, else 0 */
} tg_trainer_options;

/**
 * The learning rate of step `step`, from 1: a pure function of the options and the step. Steps
 * beyond num_steps have that of the last one.
 */
TG_API double tg_trainer_learning_rate(const tg_trainer_options *options, int64_t step);

/** One line of the memory plan. */
typedef struct tg_plan_line {
  const char *name; /* "weights", "gradients", "adamw state", "activations", ... */
  size_t bytes;
} tg_plan_line;

/**
 * Computes the memory that a trainer with these options needs, weights included. *count is the
 * number of lines; at most `capacity` are written. Nothing is allocated. Errors: BAD_ARGUMENT.
 */
TG_API tg_status tg_trainer_plan(const tg_model *model, const tg_trainer_options *options,
                                 tg_plan_line *lines, size_t capacity, size_t *count,
                                 tg_error *error);

/**
 * Creates a trainer. Errors: BAD_ARGUMENT (options), BAD_DTYPE (weights that are not f32),
 * NO_MEMORY (on a GPU the message gives the free memory and the largest micro-batch that fits), and
 * those of tg_context_create.
 */
TG_API tg_status tg_trainer_create(tg_model *model, const tg_trainer_options *options,
                                   tg_trainer **out, tg_error *error);

/** Frees the trainer but not its model; NULL is allowed. */
TG_API void tg_trainer_destroy(tg_trainer *trainer);

/** A target without a loss. */
#define TG_IGNORED_TARGET (-100)

/** A batch, in host memory: batch_size rows of sequence_length tokens, row after row. */
typedef struct tg_train_batch {
  const int32_t *tokens;     /* [batch_size * sequence_length]: 0 .. vocab - 1 */
  const int32_t *targets;    /* [batch_size * sequence_length]: the token that follows, or
                                TG_IGNORED_TARGET */
  const int32_t *cu_seqlens; /* [num_documents + 1]: document d is tokens cu_seqlens[d] ..
                                cu_seqlens[d+1] - 1. It starts at 0, rises, and ends at batch_size *
                                sequence_length. Every row begins a document and has at most
                                max_documents. The rest of a row is a document, too, with targets
                                that are ignored. NULL: every row is one document */
  int64_t num_documents;     /* 0 without cu_seqlens */
} tg_train_batch;

typedef struct tg_step_result {
  int64_t step; /* number of this step, from 1 */
  double loss;  /* mean over the targets that are not ignored, nats, and the auxiliary loss times
                   its coefficient; 0 if all are ignored */
  double grad_norm;
  double learning_rate;
  int64_t num_targets; /* not ignored */
  double aux_loss;     /* of routers, before its coefficient; without, 0 */
} tg_step_result;

/**
 * Computes loss and gradients of one batch: the mean over all its targets that are not ignored,
 * whatever the micro-batches, and the auxiliary loss. If all are ignored, loss and gradients are 0.
 * Gradients are overwritten; tg_trainer_gradient returns them. Errors: BAD_ARGUMENT (a token, a
 * target or cu_seqlens out of range: the message names its index, and nothing is computed).
 */
TG_API tg_status tg_trainer_backward(tg_trainer *trainer, const tg_train_batch *batch, double *loss,
                                     tg_error *error);

/**
 * Runs one training step: tg_trainer_backward, gradient clipping, AdamW. Errors: those of
 * tg_trainer_backward, and BAD_ARGUMENT naming the step if the loss or gradient norm is not finite;
 * weights and step are then unchanged. A batch whose targets are all ignored is a step with
 * gradients of 0.
 */
TG_API tg_status tg_trainer_step(tg_trainer *trainer, const tg_train_batch *batch,
                                 tg_step_result *result, tg_error *error);

/** Computes the loss of one batch as tg_trainer_backward does, without the auxiliary loss. It
 * changes only the activations. */
TG_API tg_status tg_trainer_loss(tg_trainer *trainer, const tg_train_batch *batch, double *loss,
                                 tg_error *error);

/** Number of completed steps. */
TG_API int64_t tg_trainer_steps(const tg_trainer *trainer);

/**
 * Gradient of tg_model_parameter(index) after the last backward, in host memory; valid until the
 * next backward. On a GPU all gradients are copied to the host. Errors: BAD_ARGUMENT (past the
 * end; a frozen parameter), NO_MEMORY, DEVICE.
 */
TG_API tg_status tg_trainer_gradient(tg_trainer *trainer, size_t index, tg_tensor *view);

/**
 * Copies the current weights to the model's host memory; on the CPU they are always current.
 * Errors: DEVICE.
 */
TG_API tg_status tg_trainer_sync(const tg_trainer *trainer, tg_error *error);

/**
 * Saves a checkpoint: a directory that transformers loads (what tg_model_save writes) and that
 * tg_trainer_resume continues from (optimizer_*.safetensors, trainer_state.json). The new directory
 * replaces an old one atomically: after a crash one of them is complete. `note` is a line of UTF-8
 * that is kept in trainer_state.json, such as the data and seed of a run; NULL: none. Errors: IO,
 * NO_MEMORY, BAD_ARGUMENT.
 */
TG_API tg_status tg_trainer_save(const tg_trainer *trainer, const tg_tokenizer *tokenizer,
                                 const char *note, const char *directory, tg_error *error);

/**
 * Loads the optimiser state and step of a checkpoint into a trainer whose model was loaded from the
 * same directory. Training then continues bit for bit, at any number of threads. `note` receives
 * the saved note, cut to `note_bytes`; NULL: not wanted. The options must be the checkpoint's, but
 * for num_threads, backend, device_index, max_documents, schedule, decay_fraction, micro_batch_size
 * (without the auxiliary loss) and, where all steps are done, a larger num_steps and its
 * warmup_steps. Errors: IO, BAD_FILE, NO_MEMORY, BAD_ARGUMENT (another option, by name; a model
 * with other weights).
 */
TG_API tg_status tg_trainer_resume(tg_trainer *trainer, const char *directory, char *note,
                                   size_t note_bytes, tg_error *error);

#ifdef __cplusplus
}
#endif
#endif

/** Inside of a tg_model; its weights from files and to files. */
#ifndef TGI_MODEL_WEIGHTS_H
#define TGI_MODEL_WEIGHTS_H

#include "model/config/generation_config.h"
#include "parameters.h"
#include "tegula/model.h"
#include "weight_files.h"

struct tg_model {
  tgi_config config;
  tgi_generation_config generation;
  tgi_parameters parameters;
  tg_dtype dtype; /* of the block */
  void *block;    /* the weights; NULL in a model that was only described */
  void *mxfp4;    /* those that stay in MXFP4, each packed for grouped_linear_mxfp4; or NULL */
};

/**
 * A model of a directory without its weights, for tg_model_get_info and the like: all that
 * tg_model_load refuses is refused, but of weight files only the headers are read. Errors: those of
 * tg_model_load.
 */
tg_status tgi_model_describe(const char *directory, tg_model **out, tg_error *error);

/** View of a weight as the transformer reads it: the packed one. */
static inline tg_tensor tgi_weight(const tg_model *model, int index)
{
  return tgi_packed_view(&model->parameters, index, model->block, model->dtype);
}

/** The same of experts' matrices that stay in MXFP4: the packed bytes. */
static inline tg_tensor tgi_mxfp4_weight(const tg_model *model, int index)
{
  const tgi_parameter *q = &model->parameters.list[index];
  char *data = model->mxfp4 ? (char *)model->mxfp4 + q->mxfp4_at : NULL;
  return tg_tensor_1d(data, TG_U8, tgi_mxfp4_bytes(q));
}

/** Whether a model's experts stay in MXFP4: then all of them do, and they are frozen. */
static inline bool tgi_model_keeps_mxfp4(const tg_model *model)
{
  return model->parameters.mxfp4_bytes > 0;
}

/**
 * Takes a block for model->parameters and model->dtype, uninitialised but for the gaps between
 * parameters, which are 0. Errors: NO_MEMORY.
 */
tg_status tgi_weights_allocate(tg_model *model, tg_error *error);

/** A model's weights on a GPU. */
typedef struct tgi_placed_weights {
  void *block, *mxfp4; /* of the context's device; NULL: none */
} tgi_placed_weights;

/**
 * Copies the weights to the context's device, and makes `model`, a caller's own copy of the struct,
 * name the copies. What was placed is freed by tgi_weights_remove, after an error too. Errors:
 * those of the context.
 */
tg_status tgi_weights_place(tg_context *ctx, tg_model *model, tgi_placed_weights *placed);
void tgi_weights_remove(tg_context *ctx, tgi_placed_weights *placed);

/** Fills the block by the parameters' start values. */
void tgi_weights_initialise(tg_model *model, uint64_t seed);

/** Whether the files hold the matrices of all experts in MXFP4, and there are experts. */
bool tgi_weights_in_mxfp4(const tgi_parameters *parameters, const tgi_weight_files *files);

/** Whether the files hold a head with other bytes than the embedding, which is called `tokens`. */
bool tgi_weights_have_head(const char *tokens, const tgi_weight_files *files);

/**
 * Whether the files hold every parameter with its shape. Names may lack the prefix "transformer."
 * or "model." (files of the bare GPT2Model, Qwen3Model). Claims those tensors. *dtype is that of
 * most bytes. Errors: BAD_FILE (a tensor is missing, or its shape or dtype is not what config.json
 * says).
 */
tg_status tgi_weights_check(const tgi_parameters *parameters, tgi_weight_files *files,
                            tg_dtype *dtype, tg_error *error);

/**
 * Whether the files have no tensor of a layer that tgi_weights_check did not claim, but for buffers
 * that old checkpoints hold. Tensors outside of layers are passed over: they are other models'
 * heads and towers. Errors: BAD_FILE.
 */
tg_status tgi_weights_check_rest(const tgi_weight_files *files, int layers, tg_error *error);

/** Fills the block from checked files, converted to the model's dtype. Errors: NO_MEMORY. */
tg_status tgi_weights_read(tg_model *model, const tgi_weight_files *files, tg_error *error);

/**
 * Reads tensor t of a file into parameter q of a block, on the threads of a CPU context, and drops
 * the tensor's pages. Errors: BAD_FILE, NO_MEMORY.
 */
tg_status tgi_parameter_read(tg_context *ctx, const tgi_parameter *q, const tgi_file_tensor *t,
                             const tgi_safetensors *file, void *block, tg_dtype dtype,
                             tg_error *error);

/** A block to write: of the table's layout, with elements of one dtype in memory. */
typedef struct tgi_block_source {
  const tgi_parameters *parameters;
  const void *block;
  tg_dtype dtype, file_dtype; /* in memory; in files */
  const char *prefix;         /* of every name */
  bool without_experts;       /* a block without the experts' matrices, which are not written */
  const void *mxfp4; /* what stays in MXFP4: written as `_blocks` and `_scales`, as it was read */
} tgi_block_source;

/**
 * Writes a block as one safetensors file, matrices in the file's orientation. Errors: IO,
 * NO_MEMORY.
 */
tg_status tgi_block_write(const tgi_block_source *from, const char *path, tg_error *error);

/**
 * The same as `model.safetensors`, or, where that would be longer than `most` bytes of tensors, as
 * shards of at most so many (a larger tensor has one for itself) with
 * `model.safetensors.index.json`.
 */
tg_status tgi_block_write_shards(const tgi_block_source *from, uint64_t most, const char *directory,
                                 tg_error *error);

/** Whether a file of that name is one of those that tgi_block_write_shards writes. */
bool tgi_is_weight_file(const char *name);

#endif

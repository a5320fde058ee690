/**
 * The parameters of a model: one table, derived from the configuration, says which there are, what
 * files call them, where each lies in a block of memory. Weights, gradients and optimiser state are
 * blocks of the same table.
 *
 * Matrices that the transformer multiplies as one (q, k and v; gate and up) may be parameters of
 * their own in files. They then lie one behind the other without a gap, so that the first one's
 * address and the sum of their rows are the packed matrix.
 */
#ifndef TGI_MODEL_PARAMETERS_H
#define TGI_MODEL_PARAMETERS_H

#include "model/config/config.h"

typedef enum tgi_parameter_start {
  TGI_START_ZERO,
  TGI_START_ONE,
  TGI_START_NORMAL,          /* N(0, initializer_range) */
  TGI_START_NORMAL_RESIDUAL, /* the same / sqrt(2 num_hidden_layers) */
} tgi_parameter_start;

/** How files hold the matrices of all experts of a layer. */
typedef enum tgi_stacking {
  TGI_ONE_TENSOR,  /* of the parameter's name; every other parameter, too */
  TGI_EACH_EXPERT, /* saved as a tensor for each expert, as Qwen3-MoE's down_proj is; files with
                      one tensor of the parameter's name are read all the same */
  TGI_EACH_HALF,   /* likewise, with two for each expert: gate_proj, and up_proj behind it */
  TGI_EACH_W2,     /* as the first, by Mixtral's name w2 */
  TGI_EACH_W1_W3,  /* as the second, by Mixtral's names */
} tgi_stacking;

typedef struct tgi_parameter {
  char name[64]; /* as files have it; of experts in one tensor that of transformers' parameter */
  int32_t ndim;
  int64_t shape[3]; /* in memory; matrices are [out, in], experts' too unless the file's are not */
  int64_t packed;   /* rows of the matrix that begins here: shape[0], or with those behind it */
  bool transposed;  /* the file holds [in, out]; of matrices alone */
  tgi_stacking stacking;
  bool decays; /* takes weight decay */
  tgi_parameter_start start;
  int64_t offset;   /* of the first element in a block; 64-byte aligned for every dtype, but for the
                       later parts of a packed matrix */
  int64_t mxfp4_at; /* of experts' matrices that stay in MXFP4: bytes from the start of the model's,
                       a multiple of 64; -1: these are elements of a block */
} tgi_parameter;

/** Indices into the table; -1: this model has none. */
typedef struct tgi_layer_parameters {
  int norm1, norm1_bias; /* before attention */
  int qkv, qkv_bias;     /* packed, [q_heads * d + 2 * kv_heads * d, hidden] */
  int q_norm, k_norm;    /* [d] */
  int out, out_bias;     /* [hidden, q_heads * d] */
  int norm2, norm2_bias; /* before the MLP */
  int up, up_bias;       /* [intermediate, hidden]; SwiGLU: gate|up, packed, twice the rows */
  int down, down_bias;   /* [hidden, intermediate] */
  int sinks;             /* [q_heads] */

  /* In the place of up and down: of all experts, [experts, out, in] or [experts, in, out]. */
  int router, router_bias;             /* [experts, hidden] */
  int experts_up, experts_up_bias;     /* out: twice the intermediate size */
  int experts_down, experts_down_bias; /* out: hidden */
} tgi_layer_parameters;

typedef struct tgi_parameters {
  tgi_parameter *list;
  int count, capacity;
  int64_t elements;        /* of a block, padding included */
  int64_t without_experts; /* the same up to the experts' matrices, which lie behind all others;
                              all of the block where these stay in MXFP4 */
  int64_t mxfp4_bytes;     /* of the experts' matrices that do */
  int64_t num_parameters;
  int tokens, positions; /* [vocab, hidden], [max_position_embeddings, hidden] */
  int final_norm, final_norm_bias;
  int head; /* [vocab, hidden]; equal to `tokens` where they are tied */
  tgi_layer_parameters *layer;
} tgi_parameters;

/** Errors: NO_MEMORY. */
tg_status tgi_parameters_create(const tgi_config *config, tgi_parameters *out, tg_error *error);

void tgi_parameters_free(tgi_parameters *parameters);

/** Takes the experts' matrices out of blocks: they stay in MXFP4 (weights_mxfp4.c). */
void tgi_parameters_keep_mxfp4(tgi_parameters *parameters);

/** Elements of a parameter. */
static inline int64_t tgi_parameter_elements(const tgi_parameter *q)
{
  int64_t n = 1;
  for (int i = 0; i < q->ndim; i++) {
    n *= q->shape[i];
  }
  return n;
}

/** Whether it stays in MXFP4 instead of being elements of a block. */
static inline bool tgi_parameter_is_mxfp4(const tgi_parameter *q)
{
  return q->mxfp4_at >= 0;
}

/** Bytes of experts' matrices, [experts, in, out], packed in MXFP4. */
int64_t tgi_mxfp4_bytes(const tgi_parameter *q);

/** Whether it is the matrices of a layer's experts. */
static inline bool tgi_parameter_is_experts(const tgi_parameter *q)
{
  return q->ndim == 3;
}

/** Where the room of a parameter ends in a block: at its last element or in the gap behind it. */
int64_t tgi_parameter_end(const tgi_parameter *q);

/** The tensors that a parameter is saved as, and the one of that index as a parameter of its own.
 */
size_t tgi_parameter_pieces(const tgi_parameter *q);
tgi_parameter tgi_parameter_piece(const tgi_parameter *q, size_t index);

/** View of parameter `index` in a block; a zeroed view for index -1, and for what stays in MXFP4.
 */
tg_tensor tgi_parameter_view(const tgi_parameters *parameters, int index, void *block,
                             tg_dtype dtype);

/** View of the packed matrix or vector that begins with parameter `index`. */
tg_tensor tgi_packed_view(const tgi_parameters *parameters, int index, void *block, tg_dtype dtype);

#endif

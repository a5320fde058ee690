/**
 * Models and sessions: what turns tokens into logits.
 *
 * A tg_model owns weights and their description. A tg_session is one timeline over a model: it owns
 * a key-value cache and the logits of the last token. Any number of sessions may share a model that
 * nobody trains meanwhile; each session is used by one thread at a time. The model must outlive its
 * sessions.
 */
#ifndef TEGULA_MODEL_H
#define TEGULA_MODEL_H

#include "context.h"
#include "tensor.h"
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tg_model tg_model;
typedef struct tg_session tg_session;

/** Sizes of a model, in the words of config.json. */
typedef struct tg_model_info {
  const char *model_type; /* "gpt2", "qwen3" */
  tg_dtype dtype;         /* of the weights in memory */
  int32_t vocab_size, num_hidden_layers, hidden_size;
  int32_t num_attention_heads, num_key_value_heads, head_dim;
  int32_t intermediate_size, max_position_embeddings;
  int32_t end_of_text; /* id that ends generation; -1: none */
  int64_t num_parameters;
  size_t weight_bytes;
} tg_model_info;

/**
 * Makes a model of a preset's size ("gpt_nano", "gpt2", "qwen3_nano", ...) with random weights, as
 * transformers starts the family: N(0, 0.02) for matrices, in GPT-2 divided by
 * sqrt(2 num_hidden_layers) where they write to the residual stream; 1 and 0 for norms and biases.
 * f32. The same seed gives the same bits.
 * vocab_size 0: the preset's. Errors: BAD_ARGUMENT (no such preset; the message lists them),
 * NO_MEMORY.
 */
TG_API tg_status tg_model_create(const char *preset, int32_t vocab_size, uint64_t seed,
                                 tg_model **out, tg_error *error);

/**
 * Loads a Hugging Face directory (config.json, model.safetensors or its shards). dtype: of the
 * weights in memory; TG_DTYPE_NONE keeps that of the file. Errors: IO, BAD_FILE (a file is
 * malformed, or a tensor is missing or differs from what config.json says: tensor, expected and
 * found shape are named), UNSUPPORTED (model_type, feature), NO_MEMORY.
 */
TG_API tg_status tg_model_load(const char *directory, tg_dtype dtype, tg_model **out,
                               tg_error *error);

/** Frees; NULL is allowed. */
TG_API void tg_model_destroy(tg_model *model);

TG_API tg_model_info tg_model_get_info(const tg_model *model);

/**
 * View of parameter `index` (shape and strides as in memory: matrices [out, in]) and its name as
 * transformers has it ("transformer.h.0.attn.c_attn.weight",
 * "model.layers.0.mlp.gate_proj.weight"); BAD_ARGUMENT past the end.
 */
TG_API tg_status tg_model_parameter(const tg_model *model, size_t index, tg_tensor *view,
                                    const char **name);

typedef struct tg_session_options {
  int32_t max_tokens;   /* room of the cache; 0: max_position_embeddings */
  int32_t num_threads;  /* as in tg_context_options */
  tg_backend backend;   /* 0: TG_BACKEND_CPU. TG_BACKEND_CUDA: the session has a copy of the weights
                           on the GPU */
  int32_t device_index; /* CUDA ordinal */
} tg_session_options;

/** Errors: BAD_ARGUMENT (max_tokens beyond the model's positions), NO_MEMORY, and those of
 * tg_context_create. */
TG_API tg_status tg_session_create(const tg_model *model, const tg_session_options *options,
                                   tg_session **out, tg_error *error);

TG_API void tg_session_destroy(tg_session *session);

/**
 * Appends tokens to the timeline; afterwards tg_session_logits are those of the last one.
 * Errors: BAD_ARGUMENT (count < 1, an id out of range, more tokens than there is room; the timeline
 * is as before).
 */
TG_API tg_status tg_session_feed(tg_session *session, const int32_t *ids, int64_t count,
                                 tg_error *error);

/** Tokens in the timeline, and how many there can be. */
TG_API int64_t tg_session_length(const tg_session *session);
TG_API int64_t tg_session_capacity(const tg_session *session);

/** Cuts the timeline to its first `length` tokens. BAD_ARGUMENT: longer than it is. */
TG_API tg_status tg_session_truncate(tg_session *session, int64_t length);

/** f32 [vocab_size] in host memory; valid until the next feed. NULL before the first, after a cut,
 * and after tg_session_generate. */
TG_API const float *tg_session_logits(const tg_session *session);

/** How to pick a token. Order: temperature, top_k, top_p, min_p. */
typedef struct tg_sampling {
  float temperature; /* 0: the largest logit (lowest id of equals); nothing else matters then */
  int32_t top_k;     /* the k most probable; 0: off */
  float top_p;       /* the fewest most probable that reach this sum; 0 or 1: off */
  float min_p;       /* those with at least min_p times the largest probability; 0: off */
  uint64_t seed;
} tg_sampling;

/**
 * Picks one id from f32 logits [vocab_size]: a row of tg_sample_fwd (sample.h has the definition)
 * at row 0, with a context and memory of its own. The draw is a pure function of (seed, position,
 * logits). Errors: BAD_ARGUMENT (a scalar out of range; a logit that is NaN or +infinity, or none
 * that is finite), NO_MEMORY.
 */
TG_API tg_status tg_sample_token(const float *logits, int32_t vocab_size,
                                 const tg_sampling *sampling, uint64_t position, int32_t *id,
                                 tg_error *error);

typedef struct tg_generate_options {
  tg_sampling sampling;
  int64_t max_new_tokens;  /* 0: what fits */
  const int32_t *stop_ids; /* [num_stop_ids]; the first of them to be picked is the last token */
  int64_t num_stop_ids;
} tg_generate_options;

/** Gets a token that was picked, as soon as it is; false: it is the last one. It must not use the
 * session. */
typedef bool tg_token_callback(void *user, int32_t id);

/**
 * Picks tokens one after the other, each from the logits after the one before, and hands them to
 * `on_token`. Ends after a stop id, after max_new_tokens, where `on_token` returns false, or where
 * the timeline is full (the token picked then has no room in it). The timeline gets every token but
 * the last, for which no pass was needed: to go on, feed it. The tokens are those of a loop of
 * tg_sample_token, at position tg_session_length, and tg_session_feed.
 *
 * On a GPU the next pass reads the token where it was picked; the host learns it while that pass
 * runs.
 *
 * Errors: BAD_ARGUMENT (no logits, as at first and after a cut; options; logits that nothing can be
 * picked from), DEVICE. The timeline is as before then.
 */
TG_API tg_status tg_session_generate(tg_session *session, const tg_generate_options *options,
                                     tg_token_callback *on_token, void *user, tg_error *error);

/**
 * How a pass over one token is run: "op by op", or "recorded": on a GPU, whose calls are recorded
 * once for each power of two of keys from 256 on, and then launched as one. "op by op: " and a
 * message where recording failed.
 */
TG_API const char *tg_session_steps(const tg_session *session);

#ifdef __cplusplus
}
#endif
#endif

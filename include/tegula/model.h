/**
 * Models and sessions: from tokens to logits and generated text.
 *
 * A tg_model owns weights and their description. A tg_session is one sequence of tokens, a
 * timeline, over a model: it owns a key-value cache and the logits of the last token. Any number of
 * sessions may share a model while it is not trained. One thread at a time may use a session. The
 * model must outlive its sessions.
 */
#ifndef TEGULA_MODEL_H
#define TEGULA_MODEL_H

#include "context.h"
#include "tensor.h"
#include "tokenizer.h"
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tg_model tg_model;
typedef struct tg_session tg_session;

/** Sizes of a model, named as in config.json. */
typedef struct tg_model_info {
  const char *model_type; /* "gpt2", "llama", "qwen2", "qwen3", "qwen3_moe", "mixtral", "gpt_oss" */
  tg_dtype dtype;         /* of the weights in memory */
  int32_t vocab_size, num_hidden_layers, hidden_size;
  int32_t num_attention_heads, num_key_value_heads, head_dim;
  int32_t intermediate_size, max_position_embeddings;
  int32_t end_of_text; /* the first of tg_model_eos_token_ids; -1: none */
  int64_t num_parameters;
  size_t weight_bytes;
} tg_model_info;

/**
 * Creates an f32 model of a preset's size ("gpt_nano", "gpt2", "qwen3_nano", ...) with random
 * weights, initialised as in transformers: N(0, 0.02) for matrices, 1 and 0 for norms and biases.
 * In GPT-2, matrices that write to the residual stream are divided by sqrt(2 num_hidden_layers).
 * The same seed gives the same bits. vocab_size 0: that of the preset. Errors: BAD_ARGUMENT (no
 * such preset; the message lists them), NO_MEMORY.
 */
TG_API tg_status tg_model_create(const char *preset, int32_t vocab_size, uint64_t seed,
                                 tg_model **out, tg_error *error);

/** A preset of tg_model_create, with the vocabulary of its family. */
typedef struct tg_preset {
  const char *name, *model_type;
  int32_t vocab_size, num_hidden_layers, hidden_size;
  int32_t num_attention_heads, num_key_value_heads, head_dim;
  int32_t intermediate_size, max_position_embeddings;
  bool tie_word_embeddings;
  int64_t num_parameters;
} tg_preset;

/**
 * The presets in the order of their table, from index 0. Errors: BAD_ARGUMENT (past the end),
 * NO_MEMORY.
 */
TG_API tg_status tg_preset_get(size_t index, tg_preset *out);

/**
 * The config.json of a preset, as tg_model_save writes it: stores its bytes in *size, and writes
 * them, without a terminator, if `capacity` holds all of them; capacity 0 returns the number alone.
 * vocab_size as in tg_model_create. Errors: BAD_ARGUMENT (no such preset; 0 < capacity < *size),
 * NO_MEMORY.
 */
TG_API tg_status tg_preset_config(const char *preset, int32_t vocab_size, char *text,
                                  size_t capacity, size_t *size, tg_error *error);

/**
 * The same as tg_model_create for a model of any shape: `config_json` is the text of a config.json,
 * with the keys that tg_model_load reads. Errors: BAD_ARGUMENT (the text: the message names the
 * key), UNSUPPORTED (model_type or a feature), NO_MEMORY.
 */
TG_API tg_status tg_model_create_from(const char *config_json, uint64_t seed, tg_model **out,
                                      tg_error *error);

/**
 * Loads a Hugging Face directory: config.json, generation_config.json if there is one, and
 * model.safetensors or its shards. dtype is that of the weights in memory. TG_DTYPE_NONE keeps what
 * the files hold, whatever config.json says; where tensors differ, the dtype of most bytes. Files
 * are mapped, and all threads copy or convert from the map. Its pages leave memory as soon as they
 * were read, so that loading needs the weights' bytes and a few megabytes. Experts whose matrices
 * are in MXFP4, as those of GPT-OSS, stay in it whatever dtype says; with a scale above 252 they
 * become elements, for values beyond f32 are infinities. Errors: IO, BAD_FILE (a file is malformed,
 * or a tensor is missing or differs from config.json; the message names the tensor and both
 * shapes), UNSUPPORTED (model_type or a feature; pickled weights), NO_MEMORY.
 */
TG_API tg_status tg_model_load(const char *directory, tg_dtype dtype, tg_model **out,
                               tg_error *error);

typedef struct tg_save_options {
  tg_dtype dtype;                /* of the weights in the files; 0: that in memory */
  int64_t max_shard_bytes;       /* of tensors in a file; 0: 5,000,000,000. A larger tensor has a
                                    file for itself */
  const tg_tokenizer *tokenizer; /* NULL: no tokenizer's files are written */
} tg_save_options;

/**
 * Saves a Hugging Face directory that transformers loads: config.json, generation_config.json as it
 * came, the weights, the tokenizer. Weights go to model.safetensors or, where they exceed
 * max_shard_bytes, to model-00001-of-0000N.safetensors, ... with model.safetensors.index.json. The
 * new directory replaces an old one as a whole; of the old one's other files all but
 * generation_config.json are kept. Experts that stay in MXFP4 are written as they were read, to the
 * bit. Errors: IO, NO_MEMORY, BAD_ARGUMENT.
 */
TG_API tg_status tg_model_save(const tg_model *model, const tg_save_options *options,
                               const char *directory, tg_error *error);

/**
 * Turns experts that stay in MXFP4 into elements of the model's dtype, with the numbers that
 * transformers gives them; without such experts does nothing. No session or trainer may have the
 * model. Errors: NO_MEMORY (the model is as it was).
 */
TG_API tg_status tg_model_dequantize(tg_model *model, tg_error *error);

/** Frees the model; NULL is allowed. */
TG_API void tg_model_destroy(tg_model *model);

TG_API tg_model_info tg_model_get_info(const tg_model *model);

/**
 * What a model's directory says about generating: generation_config.json, and the
 * bos_token_id of config.json. A key that is absent, null or unknown has the value that changes
 * nothing.
 */
typedef struct tg_generation_config {
  bool given;                         /* the directory has a generation_config.json */
  float temperature;                  /* 1; 0, which is greedy, where do_sample is false */
  int32_t top_k;                      /* 0: off */
  float top_p, min_p;                 /* 1 and 0: off */
  float repetition_penalty;           /* 1: off */
  int32_t max_new_tokens;             /* 0: no limit */
  int32_t bos_token_id, pad_token_id; /* -1: none */
} tg_generation_config;

TG_API tg_generation_config tg_model_get_generation_config(const tg_model *model);

/**
 * The ids that end generation: `eos_token_id` of config.json, then those that
 * generation_config.json adds, each once. *count is their number, and may be 0. They belong to the
 * model, and may lie outside the vocabulary.
 */
TG_API const int32_t *tg_model_eos_token_ids(const tg_model *model, int64_t *count);

/**
 * View of parameter `index` and its name in transformers ("transformer.h.0.attn.c_attn.weight",
 * "model.layers.0.mlp.gate_proj.weight"). Shape and strides are those in memory; matrices are [out,
 * in]. Experts' matrices that stay in MXFP4 are u8 [bytes], packed for grouped_linear_mxfp4.
 * Errors: BAD_ARGUMENT past the end.
 */
TG_API tg_status tg_model_parameter(const tg_model *model, size_t index, tg_tensor *view,
                                    const char **name);

/**
 * Overwrites the parameter called `name`, as tg_model_parameter calls it, with the elements of a
 * tensor in host memory: f32, f16 or bf16 of any strides, and the parameter's shape. They are
 * converted to the dtype of the weights. Sessions on a CPU see the new values; those on a GPU keep
 * their copy. Errors: BAD_ARGUMENT (no such parameter; one that stays in MXFP4; strides; no
 * memory), BAD_SHAPE, BAD_DTYPE, NO_MEMORY; the parameter is then unchanged.
 */
TG_API tg_status tg_model_set_parameter(tg_model *model, const char *name, tg_tensor tensor,
                                        tg_error *error);

typedef struct tg_session_options {
  int32_t max_tokens;  /* tokens that the timeline may have; 0: as many as the model's positions and
                          half of the free memory (on a GPU: beside the weights) allow */
  int32_t num_threads; /* as in tg_context_options */
  tg_backend backend;  /* 0: TG_BACKEND_CPU. TG_BACKEND_CUDA: the session copies the weights to
                          the GPU */
  int32_t device_index; /* CUDA ordinal */
  tg_dtype cache_dtype; /* of keys and values in the cache: f32, f16 or bf16; 0: that of the
                           weights. Attention runs in this dtype */
} tg_session_options;

/**
 * Creates a session. On a CPU its cache grows in steps as tokens come; on a GPU it is allocated at
 * once. Errors: BAD_ARGUMENT (max_tokens beyond the model's positions; cache_dtype), NO_MEMORY, and
 * those of tg_context_create.
 */
TG_API tg_status tg_session_create(const tg_model *model, const tg_session_options *options,
                                   tg_session **out, tg_error *error);

TG_API void tg_session_destroy(tg_session *session);

/**
 * Appends tokens to the timeline; tg_session_logits are then those of the last one. Errors:
 * BAD_ARGUMENT (count < 1, an id out of range, more tokens than the capacity), NO_MEMORY (the cache
 * or work memory cannot grow); the timeline is then unchanged.
 */
TG_API tg_status tg_session_feed(tg_session *session, const int32_t *ids, int64_t count,
                                 tg_error *error);

/** Flag of tg_session_forward: the logits of each row's last token alone. */
#define TG_FORWARD_LAST 1u

/**
 * Logits of `batch` rows of `seq` tokens each: every row is a text of its own that begins at
 * position 0. The timeline is neither read nor changed.
 *
 *   ids     [batch * seq], in host memory, row after row
 *   logits  out  [batch * seq, vocab_size], or [batch, vocab_size] with TG_FORWARD_LAST; f32, or
 *                the dtype of the weights; contiguous, in host memory or on the session's GPU
 *
 * A token's logits do not depend on later ones, so that shorter rows may end in any ids. Work
 * memory is kept for the next call. Rows are computed in passes of up to 2048 tokens (4096 on a
 * GPU), or of one longer row. On a GPU the second pass of the same shape in turn is recorded as a
 * CUDA graph, and later ones launch it, if all passes of the call have one shape. The logits are
 * complete when the call returns. Errors: BAD_ARGUMENT (batch or seq < 1, seq beyond the model's
 * positions, an id out of range, an unknown flag; logits: device, strides, no memory), BAD_SHAPE,
 * BAD_DTYPE (logits), NO_MEMORY, DEVICE.
 */
TG_API tg_status tg_session_forward(tg_session *session, const int32_t *ids, int64_t batch,
                                    int64_t seq, uint32_t flags, tg_tensor logits, tg_error *error);

/** Number of tokens in the timeline, and its capacity in tokens. */
TG_API int64_t tg_session_length(const tg_session *session);
TG_API int64_t tg_session_capacity(const tg_session *session);

/** Bytes that the cache takes now, the tables of positions included. */
TG_API int64_t tg_session_cache_bytes(const tg_session *session);

/** Cuts the timeline to its first `length` tokens. Errors: BAD_ARGUMENT (length beyond its end). */
TG_API tg_status tg_session_truncate(tg_session *session, int64_t length);

/**
 * Logits of the last token, f32 [vocab_size] in host memory; valid until the next feed. NULL before
 * the first feed, after a cut, and after tg_session_generate.
 */
TG_API const float *tg_session_logits(const tg_session *session);

/** A number that is added to the logit of an id. */
typedef struct tg_logit_bias {
  int32_t id;  /* 0 to vocab_size - 1 */
  float value; /* finite, or -infinity: the id is never picked */
} tg_logit_bias;

/**
 * How to pick a token. First the logits are changed as tg_adjust_logits says, also where the
 * temperature is 0; then temperature, top_k, top_p and min_p are applied in this order.
 */
typedef struct tg_sampling {
  float temperature; /* 0: the largest logit, lowest id of equals; the rest is then unused */
  int32_t top_k;     /* keep the k most probable; 0: off */
  float top_p;       /* keep the fewest most probable that reach this sum; 0 or 1: off */
  float min_p;       /* keep those with at least min_p times the largest probability; 0: off */
  uint64_t seed;
  float repetition_penalty;        /* finite, >= 0; 0 or 1: off */
  float presence_penalty;          /* finite; 0: off */
  float frequency_penalty;         /* finite; 0: off */
  int32_t penalty_window;          /* the last tokens that penalties see; 0: all of them */
  const tg_logit_bias *logit_bias; /* [num_logit_bias]; values of the same id are added */
  int64_t num_logit_bias;
} tg_sampling;

/**
 * Changes f32 logits [vocab_size] before an id is picked from them. `ids` are the tokens so far,
 * `count` of them; the last `num_generated` of them were generated, and the others belong to the
 * prompt. In this order, each step an f32 operation:
 *
 *   1. logit_bias: the values are added to the logits of their ids.
 *   2. repetition_penalty: the logit of every id in the window is divided by it if it is above 0,
 *      and multiplied by it otherwise (once, however often the id occurs).
 *   3. frequency_penalty x n + presence_penalty is subtracted from the logit of every id that was
 *      generated n > 0 times in the window.
 *
 * Step 2 is that of transformers; it sees the prompt. Step 3 is that of OpenAI's API; it does not.
 * Errors: BAD_ARGUMENT (a scalar, bias or id out of range; the logits are then unchanged),
 * NO_MEMORY.
 */
TG_API tg_status tg_adjust_logits(float *logits, int32_t vocab_size, const tg_sampling *sampling,
                                  const int32_t *ids, int64_t count, int64_t num_generated,
                                  tg_error *error);

/**
 * Picks one id from f32 logits [vocab_size], as tg_sample_fwd does for row 0 (sample.h has the
 * definition), with its own context and memory. The draw is a pure function of seed, position and
 * logits. Penalties and biases are not applied: call tg_adjust_logits before. Errors: BAD_ARGUMENT
 * (a scalar out of range; a logit that is NaN or +infinity, or no finite logit), NO_MEMORY.
 */
TG_API tg_status tg_sample_token(const float *logits, int32_t vocab_size,
                                 const tg_sampling *sampling, uint64_t position, int32_t *id,
                                 tg_error *error);

enum { TG_MAX_TOP_LOGPROBS = 20 };

typedef struct tg_logprob {
  int32_t id;
  float logprob;
} tg_logprob;

/** Natural logarithms of probabilities by the model's logits, before anything changed them. */
typedef struct tg_token_logprobs {
  int32_t num_top; /* how many of the most probable ids are wanted: 0 to TG_MAX_TOP_LOGPROBS */
  float logprob;   /* of the token */
  tg_logprob top[TG_MAX_TOP_LOGPROBS]; /* [num_top], most probable first, lowest id of equals first;
                                          beyond the vocabulary: id -1 */
} tg_token_logprobs;

/**
 * Computes logit[i] - log(sum_j exp(logit[j])) for `id` and for the out->num_top most probable
 * ids, from f32 logits [vocab_size]; sums in f64. Errors: BAD_ARGUMENT (id, num_top, vocab_size; no
 * finite logit, or one that is NaN or +infinity).
 */
TG_API tg_status tg_compute_logprobs(const float *logits, int32_t vocab_size, int32_t id,
                                     tg_token_logprobs *out, tg_error *error);

typedef struct tg_generate_options {
  tg_sampling sampling;
  int64_t max_new_tokens;  /* 0: as many as fit */
  const int32_t *stop_ids; /* [num_stop_ids]; generation ends with the first of them */
  int64_t num_stop_ids;
  tg_token_logprobs *logprobs; /* optional: filled for each token before on_token receives it;
                                  num_top is the caller's */
} tg_generate_options;

/**
 * Receives each token as soon as it is picked. Returning false makes it the last token. The
 * callback must not use the session.
 */
typedef bool tg_token_callback(void *user, int32_t id);

/**
 * Picks tokens one after another, each from the logits after the previous one, and passes them to
 * `on_token`. Generation ends after a stop id, after max_new_tokens, when `on_token` returns false,
 * or when the timeline is full (the last token then does not fit). The timeline receives every
 * token but the last, for which no pass is run: feed it to continue. The tokens equal those of a
 * loop of tg_adjust_logits, tg_sample_token, at position tg_session_length, and tg_session_feed.
 * The penalties see the timeline; what this call picked counts as generated.
 *
 * On a GPU the next pass reads the picked token from device memory, and the host receives the token
 * while that pass runs. With presence or frequency penalties, biases or log-probabilities the host
 * reads the logits, and the next pass waits for it.
 *
 * Errors: BAD_ARGUMENT (no logits, as before the first feed and after a cut; options; logits from
 * which no id can be picked), NO_MEMORY (the cache or work memory cannot grow), DEVICE. The
 * timeline is then unchanged.
 */
TG_API tg_status tg_session_generate(tg_session *session, const tg_generate_options *options,
                                     tg_token_callback *on_token, void *user, tg_error *error);

/**
 * How the session runs a pass over one token: "op by op", or "recorded" as a CUDA graph on a GPU;
 * or "one kernel (..)", where decoder.h serves the model and both its weights and the cache are
 * bf16. The calls are recorded once for each power of two of keys from 256 on, and are then
 * launched as one graph. If recording failed, the text is "op by op: " and a message.
 */
TG_API const char *tg_session_steps(const tg_session *session);

#ifdef __cplusplus
}
#endif
#endif

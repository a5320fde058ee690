/** Typed access to the keys of a config.json; the first wrong one stops the reading. */
#ifndef TGI_MODEL_CONFIG_KEYS_H
#define TGI_MODEL_CONFIG_KEYS_H

#include "config.h"
#include "files/json_file.h"

/** Limits of the extents, such that their products of two fit 63 bits and byte counts stay far from
 * overflow. */
#define TGI_MAX_HIDDEN (1 << 20)
#define TGI_MAX_INTERMEDIATE (1 << 24)
#define TGI_MAX_VOCAB (1 << 28)
#define TGI_MAX_POSITIONS (1 << 28)
#define TGI_MAX_ROPE_POSITIONS (1 << 24) /* f32 holds every one of them */
#define TGI_MAX_REAL 1000.0              /* of norm_eps and initializer_range */
#define TGI_MAX_ROPE 1e12                /* of the parameters of rope */

/** Jansson's flags: files hold keys of anyone's, and model_max_length may be 10^30. */
#define TGI_CONFIG_FLAGS JSON_DECODE_INT_AS_REAL

typedef struct tgi_config_keys {
  const tgi_json *json; /* every number of it was read as a real */
  const json_t *object; /* whose keys are read */
  const char *place;    /* of the object, in front of its keys: "", or "rope_parameters." */
  tg_error *error;
  tg_status status; /* of the first key that failed; later calls return their default */
} tgi_config_keys;

/** The value; NULL if the key is absent or null. */
const json_t *tgi_config_find(const tgi_config_keys *keys, const char *key);

/** Whether the value is a whole number (7, or 7.0) in [low, high]; then *out is it. */
bool tgi_config_whole(const json_t *value, int32_t low, int32_t high, int32_t *out);

/** An integer in [low, high]. A required key must be there; an absent optional one gives
 * `otherwise`. */
int32_t tgi_config_required(tgi_config_keys *keys, const char *key, int32_t low, int32_t high);
int32_t tgi_config_integer(tgi_config_keys *keys, const char *key, int32_t low, int32_t high,
                           int32_t otherwise);

/** A number in [low, high], in (low, high], or in (0, high] (integers too). */
double tgi_config_number(tgi_config_keys *keys, const char *key, double low, double high,
                         double otherwise);
double tgi_config_above(tgi_config_keys *keys, const char *key, double low, double high,
                        double otherwise);
double tgi_config_positive(tgi_config_keys *keys, const char *key, double high, double otherwise);
bool tgi_config_bool(tgi_config_keys *keys, const char *key, bool otherwise);

/** The value of a key that names one of `count` choices, as its index; `otherwise` if it is absent.
 * Another name is UNSUPPORTED; `known` lists the choices. */
size_t tgi_config_choice(tgi_config_keys *keys, const char *key, const char *const *names,
                         size_t count, size_t otherwise, const char *known);

/** Sets status; `rule` says what was expected of the key. */
void tgi_config_unexpected(tgi_config_keys *keys, const char *key, const char *rule);

/** UNSUPPORTED; `known` lists what could be served. */
void tgi_config_unsupported(tgi_config_keys *keys, const char *key, const char *known);

/** The ids of a key that may be null, an integer or a list; their number, at most TGI_MAX_EOS_IDS;
 * -1 for an absent key. */
int32_t tgi_config_ids(tgi_config_keys *keys, const char *key, int32_t *ids);

/** `eos_token_id` may be null, an integer or a list; `otherwise` stands for an absent key, -1 for
 * none. */
void tgi_config_eos(tgi_config_keys *keys, int32_t otherwise, tgi_config *config);

/** Values for the keys `bos_token_id` and `eos_token_id`. */
json_t *tgi_config_bos_value(const tgi_config *config);
json_t *tgi_config_eos_value(const tgi_config *config);

/**
 * The parameters of rope, of models up to `positions` long: `rope_parameters`, or `rope_scaling`
 * and `rope_theta` as files before transformers 5 have them. Where both stand, rope_scaling counts,
 * as in transformers. `otherwise` (or NULL: theta 1e4, and no scaling) is where neither stands; its
 * theta is that of files that name none.
 */
void tgi_config_read_rope(tgi_config_keys *keys, int32_t positions,
                          const tg_rope_parameters *otherwise, tg_rope_parameters *rope);

/** Adds both spellings to `root`. */
void tgi_config_write_rope(const tg_rope_parameters *rope, json_t *root);

/** Sets the layers that slide by `layer_types`; false if the key is absent. Needs sliding_window.
 */
bool tgi_config_read_layer_types(tgi_config_keys *keys, tgi_config *config);

/** The value for `layer_types`. */
json_t *tgi_config_layer_types_value(const tgi_config *config);

/** Takes the window away where no layer slides. */
void tgi_config_settle_window(tgi_config *config);

/** What tells the families with Llama's keys apart. */
typedef struct tgi_llama_kind {
  const char *name;         /* in messages: "Qwen3" */
  const char *architecture; /* "Qwen3ForCausalLM" */
  int32_t head_dim;         /* where the file has no key; 0: hidden_size / num_attention_heads */
  int32_t bos, eos;         /* likewise; -1: none */
  bool has_head_dim;        /* transformers' class declares the key */
  bool has_key_heads;       /* num_key_value_heads may be absent: as many as query heads */
  bool has_experts;
  bool is_gpt_oss; /* sinks, a norm that rounds once, a clamped SwiGLU, checkpoints in MXFP4 */
  double eps;      /* rms_norm_eps where the file has none; 0: 1e-6 */
  const tg_rope_parameters *rope; /* where the file has none; NULL: as tgi_config_read_rope says */
} tgi_llama_kind;

/** The keys of Llama that every family of its kind has: all but biases, qk_norm, windows and
 * experts. */
void tgi_config_read_llama_keys(tgi_config_keys *keys, const tgi_llama_kind *kind,
                                tgi_config *config);

/**
 * Adds the same keys to `root`. `foreign` is the name of a field that the family cannot say, NULL:
 * none; UNSUPPORTED names it, or the first such field of the shared ones.
 */
tg_status tgi_config_write_llama_keys(const tgi_config *config, const tgi_llama_kind *kind,
                                      const char *foreign, const char *path, json_t *root,
                                      tg_error *error);

/** The families: readers take a checked object, writers add their keys to `root`. */
void tgi_config_read_gpt2(tgi_config_keys *keys, tgi_config *config);
tg_status tgi_config_write_gpt2(const tgi_config *config, const char *path, json_t *root,
                                tg_error *error);
void tgi_config_read_llama(tgi_config_keys *keys, tgi_config *config);
tg_status tgi_config_write_llama(const tgi_config *config, const char *path, json_t *root,
                                 tg_error *error);
void tgi_config_read_qwen2(tgi_config_keys *keys, tgi_config *config);
tg_status tgi_config_write_qwen2(const tgi_config *config, const char *path, json_t *root,
                                 tg_error *error);
void tgi_config_read_qwen3(tgi_config_keys *keys, tgi_config *config);
tg_status tgi_config_write_qwen3(const tgi_config *config, const char *path, json_t *root,
                                 tg_error *error);
void tgi_config_read_qwen3_moe(tgi_config_keys *keys, tgi_config *config);
tg_status tgi_config_write_qwen3_moe(const tgi_config *config, const char *path, json_t *root,
                                     tg_error *error);
void tgi_config_read_mixtral(tgi_config_keys *keys, tgi_config *config);
tg_status tgi_config_write_mixtral(const tgi_config *config, const char *path, json_t *root,
                                   tg_error *error);
void tgi_config_read_gpt_oss(tgi_config_keys *keys, tgi_config *config);
tg_status tgi_config_write_gpt_oss(const tgi_config *config, const char *path, json_t *root,
                                   tg_error *error);

#endif

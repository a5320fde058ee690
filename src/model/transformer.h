/**
 * The transformer: forward and backward over public ops alone.
 *
 * One description serves every family (config.h): norm, packed q|k|v projection, norm and rotation
 * of q and k where the model has them, attention, output projection with the residual, norm, MLP,
 * residual; a final norm and the head.
 *
 * rows = batch * seq; row b * seq + t is token t of sequence b.
 */
#ifndef TGI_MODEL_TRANSFORMER_H
#define TGI_MODEL_TRANSFORMER_H

#include "activations.h"
#include "pass_watch.h"
#include "rope_tables.h"
#include "tegula/tegula.h"

/** Key-value cache of one layer: [1, room, kv_heads, head_dim], of the cache's dtype, one behind
 * the other in `memory`. */
typedef struct tgi_layer_cache {
  tg_tensor keys, values;
  void *memory; /* of the context's device; whoever made the cache frees it */
} tgi_layer_cache;

/** Buffers of a pass whose cache has another dtype than its activations: of the cache's dtype. */
typedef struct tgi_cache_cast {
  tg_tensor q, out; /* [rows, q_heads * head_dim] */
  tg_tensor sinks;  /* [q_heads], f32 */
  tg_tensor kv;     /* [rows or 2, kv_heads * head_dim]: with a place a token's; with pages keys,
                       then values */
} tgi_cache_cast;

void tgi_cache_cast_lay_out(tgi_cache_cast *cast, tgi_memory_plan *plan, const tgi_config *config,
                            tg_dtype dtype, int64_t rows);

/**
 * Where a pass over one token stands, told in memory that ops read: the pass makes the same calls
 * at every position of the extent, so that they can be recorded.
 */
typedef struct tgi_place {
  tg_tensor position;    /* i32 [1]: tokens that the cache holds already */
  tg_tensor key_count;   /* i32 [1]: one more */
  tgi_rope_tables every; /* for all positions; the pass's own have room for one row */
  int64_t extent;        /* rows of the cache that attention is given, key_count or more */
} tgi_place;

/** Sequences of a pass that attention computes in one call: they have tables of one width. */
typedef struct tgi_page_group {
  int64_t first, count;  /* sequences of the pass */
  tg_tensor block_table; /* i32 [count, width] */
  tg_tensor key_count;   /* i32 [count], with the pass's own tokens */
} tgi_page_group;

/**
 * Where the tokens of a pass stand if the cache is a pool of blocks: its keys and values are
 * [blocks, tokens of a block, kv_heads, head_dim]. Either every sequence has one token, whose
 * position is in memory, or one sequence has all tokens, behind `past` others.
 */
typedef struct tgi_pages {
  tg_tensor slots;       /* i32 [rows]: where each token's key and value go, a row of the pool */
  tg_tensor positions;   /* i32 [rows] of one token each; absent: `past` says it */
  tgi_rope_tables every; /* with positions: for all; the pass's own have room for its rows */
  const tgi_page_group *group;
  int num_groups;
} tgi_pages;

/**
 * Documents one after another in the rows of a pass without a cache. Each begins and ends in one
 * row. Attention stays inside each, and positions begin at 0 in each.
 */
typedef struct tgi_documents {
  tg_tensor cu_seqlens; /* i32 [documents + 1]: their starts among the rows' tokens, and the end */
  tg_tensor position_ids; /* i32 [rows]: of each token in its document */
  tgi_rope_tables every;  /* for all positions; the pass's own have room for [batch, seq] rows */
} tgi_documents;

/** What the auxiliary loss of the routers needs of a pass, and what it gives back. */
typedef struct tgi_router_sums {
  tg_tensor counted;          /* i32 [rows]: whose element is 0 is not counted */
  tg_tensor counts, prob_sum; /* of the forward, i32 and f32 [layers, experts] */
  tg_tensor dprob_sum;        /* for the backward, f32 [experts]: the same in all layers */
} tgi_router_sums;

/**
 * One pass over a model. With `sizing` every op is asked for its workspace instead of run, once for
 * layers that are alike, the largest answer lands in workspace_bytes, and no view needs memory.
 */
typedef struct tgi_pass {
  tg_context *ctx;
  const tg_model *model;
  tgi_activations *a;
  int64_t batch, seq;
  tg_tensor ids;              /* i32 [rows] */
  tgi_rope_tables rope;       /* for past + seq positions or more; or as place, documents say */
  tgi_layer_cache *cache;     /* num_hidden_layers entries; NULL: no cache (training) */
  const tgi_cache_cast *cast; /* NULL: the cache's dtype is that of the activations */
  int64_t past;               /* tokens that the cache holds already; 0 with a place */
  const tgi_place *place;     /* NULL: `past` says it. One token of one sequence, with a cache */
  const tgi_pages *pages;     /* NULL: the cache is that of one sequence */
  const tgi_documents *documents; /* NULL: every row is one. Without a cache */
  const tgi_router_sums *routers; /* NULL: no auxiliary loss */
  const tgi_pass_watch *watch;    /* NULL: nobody */
  bool keep;                      /* keep what the backward needs */
  bool sizing;
  void *workspace;
  size_t workspace_bytes;
} tgi_pass;

/** ids -> logits, or final_norm. On failure the message is the context's. */
tg_status tgi_transformer_forward(tgi_pass *pass);

/** What the backward needs beside the forward's activations. */
typedef struct tgi_gradients {
  void *block;         /* gradients of all parameters, f32, in the table's layout; accumulated to */
  bool frozen_experts; /* the block has none of the experts' matrices, which get no gradients */
  tg_tensor dx;        /* [rows, hidden]: of the residual stream */
  tg_tensor dnorm;     /* [rows, hidden]: of a norm's output */
  tg_tensor dqkv, dattention, dinner; /* SwiGLU's gradient takes the place of its preactivation */
  tg_tensor dexperts;          /* with experts, [slots, hidden]: of their outputs, then inputs */
  tg_tensor dweights, dlogits; /* with experts: f32 [rows, experts_per_token]; [rows, experts] */
} tgi_gradients;

void tgi_gradients_lay_out(tgi_gradients *g, tgi_memory_plan *plan, const tg_model *model,
                           int64_t rows);

/** From g->dnorm, which holds the gradient of a->final_norm; adds to g->block. The head's part is
 * the loss's. */
tg_status tgi_transformer_backward(tgi_pass *pass, tgi_gradients *g);

/** The gradient of a weight as the transformer reads it; a zeroed view where it has none. */
tg_tensor tgi_gradient(const tgi_pass *pass, const tgi_gradients *g, int index);

/** How a gated activation finds gate and up. */
static inline tg_gate_up_packing tgi_gate_packing(const tgi_config *config)
{
  return config->interleaved_experts ? TG_GATE_UP_INTERLEAVED : TG_GATE_UP_HALVES;
}

/** A layer's experts, from norm2 and middle to output; and from g->dx to g->dnorm, with the
 * gradients of their parameters (transformer_experts.c). */
tg_status tgi_experts_forward(tgi_pass *pass, const tgi_layer_activations *l,
                              const tgi_layer_parameters *p);
tg_status tgi_experts_backward(tgi_pass *pass, const tgi_gradients *g,
                               const tgi_layer_activations *l, const tgi_layer_parameters *p);

/** Views [batch, seq, heads, head_dim] of packed buffers [batch * seq, width]. */
typedef struct tgi_heads {
  tg_tensor q, k, v, attention;
} tgi_heads;

/** q and k of `qk`, v of `qkv`; `qk` may be `qkv`. */
tgi_heads tgi_split_heads(const tgi_pass *pass, const tg_tensor *qk, const tg_tensor *qkv,
                          const tg_tensor *attention);

/** Scale of the scores in layer `index`, and the keys that a query sees; 0: all before it. */
float tgi_attention_scale(const tgi_config *config, int index);
int32_t tgi_attention_window(const tgi_config *config, int index);

/** Where the rotation of a layer's keys puts them: into the cache, if they stay as they are there,
 * else into `keys`. */
tg_tensor tgi_rotated_keys(const tgi_pass *pass, const tg_tensor *keys, int index);

/**
 * Attention of layer `index`, and before it the pass's keys and values into the cache if there is
 * one (transformer_cache.c).
 */
tg_status tgi_attend(tgi_pass *pass, const tgi_layer_activations *l, int index);

/** With pages: the pass's keys and values into the pool, and attention group by group, whose
 * arguments hold all sequences (transformer_pages.c). */
tg_status tgi_pages_store(const tgi_pass *pass, const tgi_heads *h, const tgi_layer_cache *cache);
tg_status tgi_pages_attend(tgi_pass *pass, const tg_attention_fwd_args *args);

/** The rows of heads [batch, seq, heads, d] as [batch * seq, heads * d]. */
tg_tensor tgi_heads_as_rows(const tg_tensor *heads);

/** Attention's arguments for the pass's documents: rows joined, and cut where documents begin;
 * unchanged in a pass without (transformer_documents.c). */
void tgi_documents_cut_fwd(const tgi_pass *pass, tg_attention_fwd_args *args);
void tgi_documents_cut_bwd(const tgi_pass *pass, tg_attention_bwd_args *args);

/** The attention of a pass that is sizing, both directions, for its number of documents. */
tg_status tgi_transformer_size_attention(tgi_pass *pass, const tgi_gradients *g);

/** Address of an element; NULL in a view without memory. */
char *tgi_advance(const tg_tensor *t, int64_t elements);

/** The op's name for the configured activation, which is not SwiGLU. */
tg_activation tgi_linear_activation(const tgi_config *config);

/**
 * Runs an op of the pass with the pass's workspace, or, while sizing, asks it for its workspace:
 * TGI_STEP(pass, layer_norm_fwd, &args). The conditional makes the compiler check args' type.
 */
#define TGI_STEP(pass, op_dir, args)                                                               \
  tgi_step(pass, #op_dir, 1 ? (args) : (tg_##op_dir##_args *)NULL)

tg_status tgi_step(tgi_pass *pass, const char *op_dir, void *args);

#endif

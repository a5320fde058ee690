/** Inside of a tg_session. */
#ifndef TGI_GENERATION_SESSION_STATE_H
#define TGI_GENERATION_SESSION_STATE_H

#include "model/model_decoder.h"
#include "model/transformer.h"
#include "tegula/device.h"
#include "tegula/model.h"

/** Extents of the cache that passes over one token are recorded for: least_extent, twice that, ...
 */
enum { TGI_EXTENTS = 32 };

/** Tokens of one pass; a long prompt is fed in pieces of this size. On a GPU larger ones, for its
 * products want many rows, and the host hundreds of launches a pass. */
enum { TGI_PIECE_TOKENS = 256, TGI_GPU_PIECE_TOKENS = 2048 };

/** Work memory of tg_session_forward, laid out for the shape of its last pass; and on a GPU that
 * pass up to the final norm, recorded when the shape comes again. */
typedef struct tgi_forward {
  int64_t batch, seq, own; /* of that pass; own: rows of `logits`. batch 0: none is laid out */
  bool last;
  tg_dtype dtype; /* of the logits */
  tg_graph *graph;
  bool plain; /* recording failed: op by op */
  tgi_activations a;
  tgi_layer_activations *layer;
  tg_tensor ids, logits;
  void *block, *workspace, *rope_memory;
  size_t block_bytes, workspace_bytes;
  tgi_rope_tables rope; /* of `positions` positions */
  int64_t positions;
} tgi_forward;

struct tg_session {
  tg_model model; /* the caller's, on a GPU with a block of the session's own */
  tg_context *ctx;
  bool on_gpu;
  int32_t device_index; /* CUDA ordinal */
  int64_t capacity, length;
  int64_t piece; /* tokens of a pass at most */
  int64_t room;  /* tokens that the cache has memory for; grows up to the capacity */
  tg_dtype cache_dtype;
  bool has_logits;
  tgi_layer_activations *layer;
  tgi_layer_cache *cache;
  void *block, *workspace;
  tgi_placed_weights weights; /* on a GPU: the model's */
  float *logits;              /* of the last token fed, in host memory */
  int32_t *told;              /* [capacity], on the host: the tokens of the timeline */
  size_t workspace_bytes;
  tg_tensor ids;
  tg_tensor
      history; /* i32 [capacity]: the timeline beside the logits, for the repetition penalty */
  tg_tensor changed;    /* f32 [1, vocab]: logits that the host changed */
  tgi_rope_tables rope; /* of `room` positions */
  void *rope_memory;
  tgi_cache_cast cast; /* where the cache has a dtype of its own */
  tgi_activations a;

  /* Passes over one token. */
  bool by_place;        /* they read their place from memory */
  bool recorded;        /* and are recorded */
  bool ahead;           /* generating, they are queued before the host knows their token */
  int64_t least_extent; /* a power of two */
  tg_tensor place;      /* i32 [2]: position, key_count */
  tgi_rope_tables row;  /* of `rope`, at the place */
  tg_graph *graph[TGI_EXTENTS];
  tg_decoder *decoder;  /* NULL: graphs */
  bool greedy;          /* the id at s->ids is the best of the logits already */
  tg_fetch *fetch[2];   /* tokens on their way to the host, by turns */
  char steps[600];      /* tg_session_steps */
  char no_decoder[600]; /* on a GPU: why there is none */

  tgi_forward *forward;        /* NULL until the first tg_session_forward */
  const tgi_pass_watch *watch; /* of passes, which then run op by op; NULL: nobody */
};

/** The buffers of passes over `seq` tokens. */
void tgi_session_bind(tg_session *s, int64_t seq);

/** What the model's positions and half of the free memory allow. */
int64_t tgi_session_default_capacity(const tg_session *s, int32_t device_index);

/** Cache and tables as views of the whole capacity without memory, for sizing. */
void tgi_session_view_capacity(tg_session *s);

/** Makes room for `tokens` tokens, at most the capacity; what the timeline holds stays. Errors:
 * NO_MEMORY, DEVICE; the session can be used as before. */
tg_status tgi_session_reserve(tg_session *s, int64_t tokens, tg_error *error);

void tgi_session_free_cache(tg_session *s);

void tgi_session_free_forward(tg_session *s);

/** A pass over `seq` tokens behind the s->length others. */
tgi_pass tgi_session_pass(tg_session *s, int64_t seq);

/** A pass over one token that reads its place from memory; `place` must outlive it. */
tgi_pass tgi_session_pass_by_place(tg_session *s, int64_t extent, tgi_place *place);

/** The extent for `keys` keys, and which it is. */
int tgi_session_extent(const tg_session *s, int64_t keys, int64_t *extent);

/** Tokens that a pass over the next one needs room for. */
int64_t tgi_session_next_extent(const tg_session *s);

/** A pass over the token at s->ids (bound for one), behind the s->length others; there must be
 * room. s->length stays. On failure the message is the context's. */
tg_status tgi_session_step(tg_session *s);

/** Picks the id at s->ids for the position s->length; or sizes the op. From s->changed, or from the
 * pass's logits, with a repetition penalty on the ids of s->history. */
tg_status tgi_session_pick(tg_session *s, tgi_pass *pass, const tg_sampling *sampling,
                           bool changed);

#endif

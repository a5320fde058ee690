/** Inside of a tg_session. */
#ifndef TGI_GENERATION_SESSION_STATE_H
#define TGI_GENERATION_SESSION_STATE_H

#include "model/transformer.h"
#include "tegula/model.h"

/** Extents of the cache that passes over one token are recorded for: least_extent, twice that, ...
 */
enum { TGI_EXTENTS = 32 };

struct tg_session {
  tg_model model; /* the caller's, on a GPU with a block of the session's own */
  tg_context *ctx;
  bool on_gpu;
  int64_t capacity, length;
  bool has_logits;
  tgi_layer_activations *layer;
  tgi_layer_cache *cache;
  void *block, *workspace;
  void *weights; /* on a GPU: the model's */
  float *logits; /* of the last token fed, in host memory */
  size_t workspace_bytes;
  tg_tensor ids;
  tgi_rope_tables rope;
  tgi_activations a;

  /* Passes over one token. */
  bool by_place;        /* they read their place from memory */
  bool recorded;        /* and are recorded */
  bool ahead;           /* generating, they are queued before the host knows their token */
  int64_t least_extent; /* a power of two */
  tg_tensor place;      /* i32 [2]: position, key_count */
  tgi_rope_tables row;  /* of `rope`, at the place */
  tg_graph *graph[TGI_EXTENTS];
  tg_fetch *fetch[2]; /* tokens on their way to the host, by turns */
  char steps[600];    /* tg_session_steps */
};

/** The buffers of passes over `seq` tokens. */
void tgi_session_bind(tg_session *s, int64_t seq);

/** A pass over the token at s->ids (bound for one), behind the s->length others; there must be
 * room. s->length stays. On failure the message is the context's. */
tg_status tgi_session_step(tg_session *s);

/** Picks the id at s->ids from the logits for the position s->length; or sizes the op. */
tg_status tgi_session_pick(tg_session *s, tgi_pass *pass, const tg_sampling *sampling);

#endif

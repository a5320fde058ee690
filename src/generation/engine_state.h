/** Inside of a tg_engine. */
#ifndef TGI_GENERATION_ENGINE_STATE_H
#define TGI_GENERATION_ENGINE_STATE_H

#include "model/transformer.h"
#include "scheduler.h"

/** A request: what the scheduler knows, and what picking needs. */
typedef struct tgi_request {
  tgi_sequence sequence; /* first: a sequence is its request */
  tg_generate_options how;
  int64_t most; /* tokens that it may know: the prompt's and those to pick */
  tg_event_callback *on_event;
  void *user;
  void *memory; /* of ids, blocks, stop ids and biases */
} tgi_request;

/** What the host tells the device about a step, one behind the other in one tensor. */
typedef struct tgi_step_inputs {
  int64_t rows;  /* room: rows of a pass */
  int64_t width; /* room: blocks of a table */
  tg_tensor all; /* i32 [4 * rows + tables] */
  int32_t *host; /* the same on the host; on a CPU the same memory */
} tgi_step_inputs;

/** Passes over rows that are recorded, at most; the one that is unused for longest makes room. */
enum { TGI_ROW_GRAPHS = 64, TGI_GRAPH_GROUPS = 8 };

/** A recorded pass over rows: their groups say which calls it makes, and with which addresses. */
typedef struct tgi_row_graph {
  int num_groups; /* 0: none */
  int32_t count[TGI_GRAPH_GROUPS], width[TGI_GRAPH_GROUPS];
  tg_graph *graph; /* NULL: such a pass has run once, and is recorded the next time */
  int64_t used;    /* the step that it was used in last */
} tgi_row_graph;

struct tg_engine {
  tg_model model; /* the caller's, on a GPU with a block of the engine's own */
  tg_context *ctx;
  tg_context *prompts; /* of pieces of prompts. On a GPU another one, with cublasLt, whose sums go
                          by the number of rows: that of a piece is its own, that of rows is not */
  bool on_gpu;
  bool records;         /* passes over rows */
  tgi_row_graph *graph; /* [TGI_ROW_GRAPHS] */
  char steps[160];      /* tg_engine_steps */
  tg_dtype cache_dtype;
  tgi_scheduler scheduler;
  int64_t requests; /* so far */
  int64_t num_steps, rows, prompt_tokens;

  tgi_layer_activations *layer;
  tgi_layer_cache *cache;     /* the pool, layer by layer */
  tgi_placed_weights weights; /* on a GPU: the model's */
  void *block, *workspace, *rope_memory;
  size_t workspace_bytes;
  tgi_activations a;
  tgi_cache_cast cast;
  tgi_rope_tables rope; /* of most_tokens positions */
  tgi_rope_tables row;  /* of `rope`, for each row of a pass */
  tg_tensor logits;     /* f32 [batch, vocab] */
  tg_tensor picked;     /* i32 [batch] */
  tg_tensor seeds;      /* i64 [batch] */
  tgi_step_inputs inputs;
  tgi_page_group group[TG_ENGINE_MAX_BATCH];
  tgi_pages pages;

  float *host_logits; /* [2][vocab]: a row as the model gave it, and changed */
  int32_t *counts;    /* [vocab] of zeros, of tgi_penalties_apply */
};

/** Memory of the engine: the pool and the passes' buffers, sized before they are taken
 * (engine_memory.c). */
tg_status tgi_engine_take_memory(tg_engine *e, tg_error *error);
void tgi_engine_free_memory(tg_engine *e);

/** Tokens that half of the free memory holds. */
int64_t tgi_engine_tokens_that_fit(const tg_engine *e, int32_t device_index);

/** Bytes of a token's keys and values. */
int64_t tgi_engine_token_bytes(const tg_engine *e);

/** The buffers of a pass. */
void tgi_engine_lay_out(tg_engine *e, tgi_memory_plan *plan, int64_t batch, int64_t seq,
                        int64_t logit_rows);

/** Passes (engine_pass.c): one over a token of each row of the plan, whose rows it sorts; one over
 * the plan's piece of a prompt. On failure the message is the context's. */
tg_status tgi_engine_run_rows(tg_engine *e, tgi_step_plan *plan);
tg_status tgi_engine_run_prompt(tg_engine *e, const tgi_step_plan *plan);

/** The largest workspace of any pass and of picking, into e->workspace_bytes. */
tg_status tgi_engine_size_workspace(tg_engine *e);

/**
 * Picks the next token of each of `count` sequences from rows 0, 1, ... of the logits, where one is
 * to be picked, adds it to those that are known, and tells the request (engine_pick.c). A request
 * that ends is freed. Errors: those of a device, which end the requests that are left.
 */
tg_status tgi_engine_pick(tg_engine *e, tgi_sequence *const *sequence, int32_t count,
                          tg_error *error);

/** Runs or sizes the op for rows [first, first + count) of the logits, by one row's numbers, for
 * the positions `position` + positions[row], or `position` without positions. */
tg_status tgi_engine_sample(tg_engine *e, tgi_pass *pass, const tg_sampling *how, int64_t first,
                            int64_t count, tg_tensor positions, int64_t position);

/** Ends a request: tells it, frees its blocks and itself. `error`: FAILED (engine_request.c). */
void tgi_engine_end(tg_engine *e, tgi_request *request, tg_finish finish, const tg_error *error);

/** Frees all requests without telling them. */
void tgi_engine_release_all(tg_engine *e);

/** Ends `count` requests with FAILED, and the context's message as the reason; returns `status`. */
tg_status tgi_engine_fail(tg_engine *e, const tg_context *ctx, tgi_sequence *const *sequence,
                          int32_t count, tg_status status, tg_error *error);

/** Runs a pass over rows, laid out and told: from a graph, or op by op (engine_graphs.c). */
tg_status tgi_engine_run_recorded(tg_engine *e, tgi_pass *pass);
void tgi_engine_free_graphs(tg_engine *e);

static inline tgi_request *tgi_request_of(tgi_sequence *sequence)
{
  return (tgi_request *)sequence;
}

#endif

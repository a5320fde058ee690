/**
 * Engines: many sequences over one model, computed together.
 *
 * An engine owns a pool of keys and values in blocks of TG_BLOCK_TOKENS tokens. A request is a
 * prompt and how to go on; it waits until the pool has room, its prompt is evaluated piece by
 * piece, and then it is one row of a pass that all running requests share. A step is one such pass,
 * and one piece of one prompt.
 *
 *   submit ->  waiting  -> admitted ->  prompt, a piece a step  ->  a token a step  -> end
 *                 ^                                                       |
 *                 +----------- set back: no block is left ----------------+
 *
 * A request's tokens are a function of the model, the prompt, its options and the engine's
 * piece_tokens and cache_dtype alone: not of other requests, of their order, of the size of the
 * pool, of the number of threads, nor of what is shared. On a CPU they are those of
 * tg_session_generate with the same options behind the prompt in a session of the same cache_dtype,
 * if piece_tokens is 256. On a GPU an engine's kernels are others than a session's, which for one
 * sequence may have decoder.h's, and so its tokens are not always a session's.
 *
 * One thread at a time may use an engine. The model must outlive it.
 */
#ifndef TEGULA_ENGINE_H
#define TEGULA_ENGINE_H

#include "model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tg_engine tg_engine;

enum { TG_BLOCK_TOKENS = 64, TG_ENGINE_MAX_BATCH = 64 };

typedef struct tg_engine_options {
  int32_t batch;        /* requests that run at the same time: 1 to TG_ENGINE_MAX_BATCH; 0: 16 */
  int32_t max_tokens;   /* tokens that a sequence may have; 0: as many as the model's positions and
                           the pool allow */
  int64_t cache_tokens; /* tokens in the pool, rounded up to blocks; 0: max_tokens for each of the
                           batch, or what half of the free memory holds if that is less */
  int32_t piece_tokens; /* of a prompt in a step: 64, 128 or 256; 0: 256 */
  bool no_sharing;      /* every prompt is evaluated whole */
  int32_t num_threads;  /* as in tg_context_options */
  tg_backend backend;   /* 0: TG_BACKEND_CPU */
  int32_t device_index; /* CUDA ordinal */
  tg_dtype cache_dtype; /* as in tg_session_options */
} tg_engine_options;

/**
 * Creates an engine, with all memory that it will need but that of the requests and that of
 * recorded passes. Errors: BAD_ARGUMENT (an option; max_tokens beyond the model's positions or the
 * pool), NO_MEMORY, and those of tg_context_create.
 */
TG_API tg_status tg_engine_create(const tg_model *model, const tg_engine_options *options,
                                  tg_engine **out, tg_error *error);

/** Frees the engine and its requests, which are not told; NULL is allowed. */
TG_API void tg_engine_destroy(tg_engine *engine);

typedef enum tg_finish {
  TG_FINISH_NONE = 0,      /* it goes on */
  TG_FINISH_STOP = 1,      /* the last token is a stop id */
  TG_FINISH_LENGTH = 2,    /* max_new_tokens, or the sequence has all tokens that it may have */
  TG_FINISH_CALLER = 3,    /* the callback returned false */
  TG_FINISH_CANCELLED = 4, /* by tg_engine_cancel */
  TG_FINISH_FAILED = 5,    /* the event's error says why */
} tg_finish;

/** A token of a request, or its end. */
typedef struct tg_event {
  int64_t request;
  int32_t id;            /* the token; -1 at the end */
  tg_finish finish;      /* NONE for a token; at the end, which is the last event, the reason */
  int64_t shared_tokens; /* of the prompt, found in the pool when the request was admitted last */
  const tg_error *error; /* FAILED; else NULL */
} tg_event;

/**
 * Receives an event during tg_engine_step. Returning false after a token ends the request with
 * CALLER. The callback may submit and cancel requests, and must call nothing else of the engine.
 */
typedef bool tg_event_callback(void *user, const tg_event *event);

typedef struct tg_request {
  const int32_t *ids; /* [count]: the prompt */
  int64_t count;
  tg_generate_options how; /* logprobs belongs to the caller, and is filled before each token */
  tg_event_callback *on_event;
  void *user;
} tg_request;

/**
 * Adds a request, and copies what it points to, but for how.logprobs. *number, which counts from 1,
 * names it. Errors: BAD_ARGUMENT (an option or id out of range; no prompt, or more tokens than a
 * sequence may have), NO_MEMORY; the other requests go on.
 */
TG_API tg_status tg_engine_submit(tg_engine *engine, const tg_request *request, int64_t *number,
                                  tg_error *error);

/** Ends a request at the next step, which frees its blocks. Errors: BAD_ARGUMENT (there is no such
 * request, or it has ended). */
TG_API tg_status tg_engine_cancel(tg_engine *engine, int64_t number);

/**
 * One step: ends cancelled requests, admits a waiting one if there is room, evaluates a piece of
 * the oldest prompt that is not complete, and one token of every other running request. *left, if
 * given, is the number of requests afterwards. Errors: those of a pass (NO_MEMORY, DEVICE); its
 * requests have ended with FAILED, and the others go on with the next step.
 */
TG_API tg_status tg_engine_step(tg_engine *engine, int64_t *left, tg_error *error);

typedef struct tg_engine_info {
  int64_t max_tokens;                 /* that a sequence may have */
  int64_t blocks, free_blocks;        /* of the pool */
  int64_t shared_blocks;              /* that no request uses and a later one may find */
  int64_t waiting, running;           /* requests */
  int64_t steps, rows, prompt_tokens; /* so far: steps; tokens evaluated alone, and in pieces */
  int64_t shared_tokens;              /* so far: of prompts, found instead of evaluated */
  int64_t set_back;                   /* so far: times that a request lost its blocks */
  int64_t cache_bytes;                /* of the pool */
} tg_engine_info;

TG_API tg_engine_info tg_engine_get_info(const tg_engine *engine);

/**
 * How the engine runs its rows: "op by op"; on a GPU "recorded" as CUDA graphs, at most 64, one for
 * each number of rows and powers of two of their lengths; passes whose rows have more than eight
 * such powers run op by op. If recording failed, the text is "op by op: " and a message.
 */
TG_API const char *tg_engine_steps(const tg_engine *engine);

#ifdef __cplusplus
}
#endif
#endif

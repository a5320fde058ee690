/**
 * Which requests run, who has which blocks, and what a step computes. No model, no device: the
 * engine runs what a plan says, and tells what came of it.
 *
 * A sequence's first `length` tokens have keys and values in its blocks. Tokens of the prompt are
 * computed in pieces that begin at multiples of the piece's size; later ones, which were picked,
 * one by one. So a sequence that lost its blocks is computed again in the same way, and gets the
 * same bits: first its prompt, then, one a step, the tokens that are known already.
 *
 * Older requests go first: whoever runs is older than whoever waits, and only the youngest that
 * runs may have a part of its prompt left. A sequence that needs a block takes a free one, else the
 * cache's, else the blocks of the youngest that runs, which may be itself: that one is set back and
 * waits.
 */
#ifndef TGI_GENERATION_SCHEDULER_H
#define TGI_GENERATION_SCHEDULER_H

#include "prefix_cache.h"
#include "tegula/engine.h"

typedef enum tgi_sequence_state {
  TGI_SEQUENCE_WAITING = 1,
  TGI_SEQUENCE_RUNNING = 2,
  TGI_SEQUENCE_ENDED = 3, /* in no list; the engine frees it */
} tgi_sequence_state;

/** What the scheduler knows of a request. */
typedef struct tgi_sequence {
  struct tgi_sequence *next; /* an older one comes before a younger one */
  int64_t number;
  tgi_sequence_state state;
  bool cancelled;
  int32_t *ids;          /* [known], with room for all that may come */
  int64_t prompt, known; /* tokens of the prompt; and with those picked so far */
  int64_t length;        /* tokens with keys and values */
  int32_t *blocks;       /* [num_blocks], with room for all */
  int64_t num_blocks;
  int64_t shared; /* tokens found when it was admitted */
  int32_t prefix; /* the entry of its last whole piece; -1: the root */
} tgi_sequence;

typedef struct tgi_scheduler {
  tgi_block_pool pool;
  tgi_prefix_cache cache;
  bool shares;
  int32_t batch, piece;
  int64_t most_tokens;             /* of a sequence; so many fit into the pool */
  tgi_sequence *waiting, *running; /* lists, the oldest first */
  int64_t num_waiting, num_running;
  int64_t shared_tokens, set_back; /* so far */
} tgi_scheduler;

/** What a step computes; every sequence has the blocks that it needs. */
typedef struct tgi_step_plan {
  tgi_sequence *row[TG_ENGINE_MAX_BATCH]; /* [num_rows]: the token at `length` of each */
  int32_t num_rows;
  tgi_sequence *prompt; /* its tokens from `length` on; NULL: none */
  int64_t count;        /* so many of them */
} tgi_step_plan;

/** batch, piece and most_tokens are set; a pool of so many blocks. False: no memory. */
bool tgi_scheduler_open(tgi_scheduler *s, int64_t blocks);

void tgi_scheduler_close(tgi_scheduler *s);

/** Adds a sequence, younger than all others, with the fields up to `known` set. */
void tgi_scheduler_add(tgi_scheduler *s, tgi_sequence *sequence);

/** Takes a sequence out; its blocks are free. */
void tgi_scheduler_end(tgi_scheduler *s, tgi_sequence *sequence);

/** Admits, sets back, and gives blocks for one step. */
void tgi_scheduler_plan(tgi_scheduler *s, tgi_step_plan *plan);

/** The next `count` tokens of a sequence have keys and values now. */
void tgi_scheduler_advance(tgi_scheduler *s, tgi_sequence *sequence, int64_t count);

/** Whether the tokens computed last were the last that are known: the next one is to be picked. */
static inline bool tgi_sequence_picks(const tgi_sequence *sequence)
{
  return sequence->length == sequence->known;
}

#endif

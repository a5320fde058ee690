#include "scheduler.h"

#include <string.h>

bool tgi_scheduler_open(tgi_scheduler *s, int64_t blocks)
{
  if (!tgi_block_pool_open(&s->pool, blocks)) {
    return false;
  }
  if (!tgi_prefix_cache_open(&s->cache, &s->pool, s->piece, TG_BLOCK_TOKENS)) {
    tgi_block_pool_close(&s->pool);
    return false;
  }
  return true;
}

void tgi_scheduler_close(tgi_scheduler *s)
{
  tgi_prefix_cache_close(&s->cache);
  tgi_block_pool_close(&s->pool);
}

/* ---- lists ---- */

/* Where `sequence` is in a list that holds it, or would be in one that does not. */
static tgi_sequence **place_in(tgi_sequence **list, const tgi_sequence *sequence)
{
  while (*list && (*list)->number < sequence->number) {
    list = &(*list)->next;
  }
  return list;
}

static void put_in(tgi_sequence **list, tgi_sequence *sequence)
{
  tgi_sequence **at = place_in(list, sequence);
  sequence->next = *at;
  *at = sequence;
}

static void take_from(tgi_sequence **list, tgi_sequence *sequence)
{
  *place_in(list, sequence) = sequence->next;
  sequence->next = NULL;
}

void tgi_scheduler_add(tgi_scheduler *s, tgi_sequence *sequence)
{
  sequence->state = TGI_SEQUENCE_WAITING;
  sequence->length = sequence->num_blocks = sequence->shared = 0;
  sequence->prefix = -1;
  put_in(&s->waiting, sequence);
  s->num_waiting++;
}

/* ---- blocks ---- */

static void drop_blocks(tgi_scheduler *s, tgi_sequence *sequence)
{
  for (int64_t i = 0; i < sequence->num_blocks; i++) {
    tgi_block_drop(&s->pool, sequence->blocks[i]);
  }
  sequence->num_blocks = sequence->length = 0;
  sequence->prefix = -1;
}

void tgi_scheduler_end(tgi_scheduler *s, tgi_sequence *sequence)
{
  if (sequence->state == TGI_SEQUENCE_RUNNING) {
    take_from(&s->running, sequence);
    s->num_running--;
  } else if (sequence->state == TGI_SEQUENCE_WAITING) {
    take_from(&s->waiting, sequence);
    s->num_waiting--;
  }
  drop_blocks(s, sequence);
  sequence->state = TGI_SEQUENCE_ENDED;
}

static void set_back(tgi_scheduler *s, tgi_sequence *sequence)
{
  take_from(&s->running, sequence);
  s->num_running--;
  drop_blocks(s, sequence);
  sequence->state = TGI_SEQUENCE_WAITING;
  put_in(&s->waiting, sequence);
  s->num_waiting++;
  s->set_back++;
}

static tgi_sequence *youngest(const tgi_scheduler *s)
{
  tgi_sequence *last = s->running;
  while (last && last->next) {
    last = last->next;
  }
  return last;
}

/* Blocks for the first `tokens` tokens. False: the sequence itself was set back. */
static bool give_blocks(tgi_scheduler *s, tgi_sequence *sequence, int64_t tokens)
{
  while (sequence->num_blocks * TG_BLOCK_TOKENS < tokens) {
    const int32_t block = tgi_block_take(&s->pool);
    if (block >= 0) {
      sequence->blocks[sequence->num_blocks++] = block;
    } else if (!tgi_prefix_evict(&s->cache)) {
      tgi_sequence *victim = youngest(s);
      set_back(s, victim);
      if (victim == sequence) {
        return false;
      }
    }
  }
  return true;
}

/* ---- shared pieces ---- */

/* The pieces of the prompt that are there. The last token is always computed: its logits are
 * wanted. */
static void find_pieces(tgi_scheduler *s, tgi_sequence *sequence)
{
  const int32_t blocks = s->cache.piece_blocks;
  while (s->shares && sequence->length + s->piece < sequence->prompt) {
    const int32_t entry =
        tgi_prefix_find(&s->cache, sequence->prefix, sequence->ids + sequence->length);
    if (entry < 0) {
      break;
    }
    for (int32_t k = 0; k < blocks; k++) {
      const int32_t block = tgi_prefix_blocks(&s->cache, entry)[k];
      tgi_block_share(&s->pool, block);
      sequence->blocks[sequence->num_blocks++] = block;
    }
    sequence->prefix = entry;
    sequence->length += s->piece;
  }
  sequence->shared = sequence->length;
}

/* The whole piece before `length` is shared from now on. If it was computed elsewhere meanwhile,
 * that one takes the place of the sequence's own: their bits are equal. */
static void share_piece(tgi_scheduler *s, tgi_sequence *sequence)
{
  const int32_t *ids = sequence->ids + sequence->length - s->piece;
  int32_t *blocks = sequence->blocks + sequence->length / TG_BLOCK_TOKENS - s->cache.piece_blocks;
  const int32_t found = tgi_prefix_find(&s->cache, sequence->prefix, ids);
  if (found < 0) {
    sequence->prefix = tgi_prefix_add(&s->cache, sequence->prefix, ids, blocks);
    return;
  }
  for (int32_t k = 0; k < s->cache.piece_blocks; k++) {
    const int32_t block = tgi_prefix_blocks(&s->cache, found)[k];
    tgi_block_share(&s->pool, block);
    tgi_block_drop(&s->pool, blocks[k]);
    blocks[k] = block;
  }
  sequence->prefix = found;
}

void tgi_scheduler_advance(tgi_scheduler *s, tgi_sequence *sequence, int64_t count)
{
  sequence->length += count;
  if (s->shares && count == s->piece && sequence->length <= sequence->prompt) {
    share_piece(s, sequence);
  }
}

/* ---- a step ---- */

static bool has_prompt_left(const tgi_sequence *sequence)
{
  return sequence->length < sequence->prompt;
}

/* Lets the oldest that waits run if there are blocks for all its known tokens and the next one. */
static tgi_sequence *admit(tgi_scheduler *s)
{
  tgi_sequence *first = s->waiting;
  if (!first || s->num_running == s->batch) {
    return NULL;
  }
  find_pieces(s, first);
  const int64_t most = first->known < s->most_tokens ? first->known + 1 : s->most_tokens;
  const int64_t needed = (most + TG_BLOCK_TOKENS - 1) / TG_BLOCK_TOKENS - first->num_blocks;
  if (needed > s->pool.num_free && needed > s->pool.num_free + tgi_prefix_idle_blocks(&s->cache)) {
    drop_blocks(s, first);
    return NULL;
  }
  take_from(&s->waiting, first);
  s->num_waiting--;
  first->state = TGI_SEQUENCE_RUNNING;
  put_in(&s->running, first);
  s->num_running++;
  s->shared_tokens += first->shared;
  return first;
}

static void plan_rows(tgi_scheduler *s, tgi_step_plan *plan)
{
  for (tgi_sequence *r = s->running, *next; r; r = next) {
    /* The blocks of younger ones may be taken, never those of older ones, which are planned. */
    const bool given = has_prompt_left(r) || give_blocks(s, r, r->length + 1);
    next = given ? r->next : NULL;
    if (given && !has_prompt_left(r)) {
      plan->row[plan->num_rows++] = r;
    }
  }
}

static void plan_prompt(tgi_scheduler *s, tgi_step_plan *plan)
{
  tgi_sequence *r = s->running;
  while (r && !has_prompt_left(r)) {
    r = r->next;
  }
  r = r ? r : admit(s);
  if (!r) {
    return;
  }
  const int64_t left = r->prompt - r->length;
  const int64_t count = left < s->piece ? left : s->piece;
  /* It is the youngest: others lose no block for it, but it may be set back itself. */
  if (give_blocks(s, r, r->length + count)) {
    plan->prompt = r;
    plan->count = count;
  }
}

void tgi_scheduler_plan(tgi_scheduler *s, tgi_step_plan *plan)
{
  *plan = (tgi_step_plan){.num_rows = 0};
  plan_rows(s, plan);
  plan_prompt(s, plan);
}

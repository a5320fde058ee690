/**
 * A scheduler without a model, driven by bytes: requests come, are cancelled, stop, and are
 * computed as its plans say. What a model would keep in a slot of the pool is here a number made of
 * all ids up to that token, so that a wrong, stale or overwritten slot is seen when it is read.
 *
 * SCHEDULER_REQUIRE(condition) is the includer's.
 */
#ifndef TEGULA_TESTS_SCHEDULER_RUN_H
#define TEGULA_TESTS_SCHEDULER_RUN_H

#include "generation/scheduler.h"

#include <stdlib.h>
#include <string.h>

enum { kRunTokens = 700, kRunTexts = 3 };

/** One request. */
typedef struct run_request {
  tgi_sequence sequence; /* first */
  int64_t most;          /* tokens that it may know */
  int32_t ids[kRunTokens + 1], blocks[kRunTokens / TG_BLOCK_TOKENS + 2];
  uint64_t made[kRunTokens]; /* what belongs into the slot of each token */
  struct run_request *next;
} run_request;

typedef struct scheduler_run {
  tgi_scheduler s;
  uint64_t *content; /* [blocks * TG_BLOCK_TOKENS] */
  int32_t *users;    /* [blocks]: counted */
  run_request *alive;
  int64_t submitted, ended, cancelled;
  const uint8_t *data;
  size_t size, at;
} scheduler_run;

static inline uint32_t run_byte(scheduler_run *r)
{
  return r->at < r->size ? r->data[r->at++] : 0;
}

static inline uint64_t run_mix(uint64_t before, int32_t id)
{
  uint64_t h = (before ^ (uint32_t)id) * 0x9e3779b97f4a7c15u;
  return h ^ h >> 29;
}

static inline void run_submit(scheduler_run *r)
{
  if (r->s.num_running + r->s.num_waiting >= 40) {
    return;
  }
  run_request *q = calloc(1, sizeof *q);
  SCHEDULER_REQUIRE(q != NULL);
  const uint32_t text = run_byte(r) % kRunTexts;
  const int64_t most = r->s.most_tokens;
  q->sequence.prompt = 1 + (int64_t)(run_byte(r) * 3 + run_byte(r) % 3) % most;
  const int64_t alike = (int64_t)run_byte(r) * 3, own = r->submitted + 10;
  for (int64_t i = 0; i < q->sequence.prompt; i++) {
    q->ids[i] = (int32_t)(i < alike ? i % 7 + text : i + own);
  }
  const int64_t wanted = q->sequence.prompt + 1 + run_byte(r);
  q->most = wanted < most + 1 ? wanted : most + 1;
  q->sequence.known = q->sequence.prompt;
  q->sequence.number = ++r->submitted;
  q->sequence.ids = q->ids;
  q->sequence.blocks = q->blocks;
  q->next = r->alive;
  r->alive = q;
  tgi_scheduler_add(&r->s, &q->sequence);
}

static inline void run_end(scheduler_run *r, run_request *q)
{
  run_request **at = &r->alive;
  while (*at != q) {
    at = &(*at)->next;
  }
  *at = q->next;
  tgi_scheduler_end(&r->s, &q->sequence);
  SCHEDULER_REQUIRE(q->sequence.num_blocks == 0);
  free(q);
  r->ended++;
}

static inline void run_cancel(scheduler_run *r)
{
  uint32_t which = run_byte(r) % 16;
  run_request *q = r->alive;
  for (; q && which > 0; which--) {
    q = q->next;
  }
  if (q) {
    run_end(r, q);
    r->cancelled++;
  }
}

/* Reads what is before the next `count` tokens, and writes theirs. */
static inline void run_compute(scheduler_run *r, run_request *q, int64_t count)
{
  tgi_sequence *s = &q->sequence;
  /* All that is before is read for every piece, and for every eighth token. */
  const int64_t from = count > 1 || s->length % 8 == 0 ? 0 : s->length;
  uint64_t h = from > 0 ? q->made[from - 1] : 0;
  SCHEDULER_REQUIRE(s->state == TGI_SEQUENCE_RUNNING && count > 0);
  SCHEDULER_REQUIRE(s->length + count <= s->known);
  SCHEDULER_REQUIRE(s->num_blocks * TG_BLOCK_TOKENS >= s->length + count);
  for (int64_t i = from; i < s->length + count; i++) {
    const int32_t block = s->blocks[i / TG_BLOCK_TOKENS];
    SCHEDULER_REQUIRE(block >= 0 && block < r->s.pool.count);
    uint64_t *slot = &r->content[(int64_t)block * TG_BLOCK_TOKENS + i % TG_BLOCK_TOKENS];
    h = run_mix(h, s->ids[i]);
    q->made[i] = h;
    if (i < s->length) {
      SCHEDULER_REQUIRE(*slot == h);
    } else {
      SCHEDULER_REQUIRE(r->s.pool.users[block] == 1); /* nobody else's block is written */
      *slot = h;
    }
  }
  tgi_scheduler_advance(&r->s, s, count);
  if (tgi_sequence_picks(s)) {
    s->ids[s->known++] = (int32_t)(h % 1000);
    if (s->known == q->most || h % 97 == 0) {
      run_end(r, q);
    }
  }
}

/* Every block has as many users as are found. */
static inline void run_check(scheduler_run *r)
{
  const tgi_scheduler *s = &r->s;
  int64_t waiting = 0, running = 0, free_blocks = 0;
  memset(r->users, 0, (size_t)s->pool.count * sizeof *r->users);
  const tgi_sequence *last = s->running;
  for (; last && last->next; last = last->next) {
    SCHEDULER_REQUIRE(last->number < last->next->number && last->length >= last->prompt);
  }
  SCHEDULER_REQUIRE(!last || !s->waiting || last->number < s->waiting->number);
  for (const run_request *q = r->alive; q; q = q->next) {
    waiting += q->sequence.state == TGI_SEQUENCE_WAITING;
    running += q->sequence.state == TGI_SEQUENCE_RUNNING;
    SCHEDULER_REQUIRE(q->sequence.state == TGI_SEQUENCE_RUNNING || q->sequence.num_blocks == 0);
    for (int64_t i = 0; i < q->sequence.num_blocks; i++) {
      r->users[q->blocks[i]]++;
    }
  }
  for (int32_t i = 0; i < s->cache.room; i++) {
    for (int32_t k = 0; s->cache.entry[i].used && k < s->cache.piece_blocks; k++) {
      r->users[tgi_prefix_blocks(&s->cache, i)[k]]++;
    }
  }
  for (int64_t i = 0; i < s->pool.count; i++) {
    SCHEDULER_REQUIRE(r->users[i] == s->pool.users[i]);
    free_blocks += s->pool.users[i] == 0;
  }
  SCHEDULER_REQUIRE(free_blocks == s->pool.num_free);
  SCHEDULER_REQUIRE(waiting == s->num_waiting && running == s->num_running);
  SCHEDULER_REQUIRE(running <= s->batch);
}

/* False: nothing could be computed. */
static inline bool run_step(scheduler_run *r)
{
  tgi_step_plan plan;
  tgi_scheduler_plan(&r->s, &plan);
  SCHEDULER_REQUIRE(plan.num_rows <= r->s.batch);
  for (int32_t i = 0; i < plan.num_rows; i++) {
    SCHEDULER_REQUIRE(plan.row[i] != plan.prompt);
    run_compute(r, (run_request *)plan.row[i], 1);
  }
  if (plan.prompt) {
    SCHEDULER_REQUIRE(plan.prompt->length % r->s.piece == 0 && plan.count <= r->s.piece);
    run_compute(r, (run_request *)plan.prompt, plan.count);
  }
  run_check(r);
  return plan.num_rows > 0 || plan.prompt;
}

/** Runs until the bytes are used up and every request has ended. */
static inline void scheduler_run_bytes(scheduler_run *r, const uint8_t *data, size_t size)
{
  *r = (scheduler_run){.data = data, .size = size};
  const int64_t blocks = 1 + run_byte(r) % 24, tokens = blocks * TG_BLOCK_TOKENS;
  r->s.batch = 1 + (int32_t)(run_byte(r) % 8);
  r->s.piece = 64 << run_byte(r) % 3;
  r->s.shares = run_byte(r) % 4 != 0;
  r->s.most_tokens = tokens < kRunTokens ? tokens : kRunTokens;
  SCHEDULER_REQUIRE(tgi_scheduler_open(&r->s, blocks));
  r->content = calloc((size_t)tokens, sizeof *r->content);
  r->users = calloc((size_t)blocks, sizeof *r->users);
  SCHEDULER_REQUIRE(r->content && r->users);
  while (r->at < r->size) {
    const uint32_t what = run_byte(r) % 16;
    if (what < 3) {
      run_submit(r);
    } else if (what == 3) {
      run_cancel(r);
    } else {
      run_step(r);
    }
  }
  while (r->alive) {
    SCHEDULER_REQUIRE(run_step(r));
  }
  SCHEDULER_REQUIRE(r->ended == r->submitted);
  SCHEDULER_REQUIRE(r->s.pool.num_free + tgi_prefix_idle_blocks(&r->s.cache) == blocks);
  while (tgi_prefix_evict(&r->s.cache)) {
  }
  SCHEDULER_REQUIRE(r->s.pool.num_free == blocks);
  tgi_scheduler_close(&r->s);
  free(r->content);
  free(r->users);
}

#endif

/* Picking an engine's tokens: rows that have the same numbers are one call of the op, each with a
 * seed of its own, and the host waits once for all of them; where it reads or changes logits, a row
 * is a call, and a wait. */
#include "core/error_record.h"
#include "engine_state.h"
#include "penalties.h"
#include "tegula/device.h"

#include <string.h>

tg_status tgi_engine_sample(tg_engine *e, tgi_pass *pass, const tg_sampling *how, int64_t first,
                            int64_t count, tg_tensor positions, int64_t position)
{
  const int64_t vocab = e->logits.shape[1];
  float *logits = e->logits.data;
  int32_t *picked = e->picked.data, *at = positions.data;
  int64_t *seeds = e->seeds.data;
  tg_sample_fwd_args args = {
      .logits = tg_tensor_2d(logits ? logits + first * vocab : NULL, TG_F32, count, vocab),
      .seeds = tg_tensor_1d(seeds ? seeds + first : NULL, TG_I64, count),
      .ids = tg_tensor_1d(picked ? picked + first : NULL, TG_I32, count),
      .position = position,
      .temperature = how->temperature,
      .top_p = how->top_p,
      .min_p = how->min_p,
      .top_k = how->top_k};
  if (positions.ndim) {
    args.positions = tg_tensor_1d(at ? at + first : NULL, TG_I32, count);
  }
  return TGI_STEP(pass, sample_fwd, &args);
}

/* What is between rows of logits and picked ids. */
typedef struct picking {
  tg_engine *e;
  tgi_sequence *const *sequence;
  int32_t count;
  int32_t ids[TG_ENGINE_MAX_BATCH]; /* -1: nothing could be picked */
} picking;

static bool changes(const tg_generate_options *how)
{
  return tgi_has_additions(&how->sampling) || tgi_has_repetition(&how->sampling);
}

static bool reads(const tg_generate_options *how)
{
  return how->logprobs || changes(how);
}

static const tg_generate_options *how_of(const picking *p, int32_t row)
{
  return &tgi_request_of(p->sequence[row])->how;
}

/* Whether rows a and b can be one call. */
static bool alike(const picking *p, int32_t a, int32_t b)
{
  const tg_sampling *x = &how_of(p, a)->sampling, *y = &how_of(p, b)->sampling;
  return tgi_sequence_picks(p->sequence[b]) && !reads(how_of(p, a)) && !reads(how_of(p, b)) &&
         x->temperature == y->temperature && x->top_k == y->top_k && x->top_p == y->top_p &&
         x->min_p == y->min_p;
}

/* The row's logits to the host; and changed ones in their place. */
static tg_status change_logits(const picking *p, int32_t row)
{
  tg_engine *e = p->e;
  const tg_generate_options *how = how_of(p, row);
  const tgi_sequence *s = p->sequence[row];
  const size_t vocab = (size_t)e->logits.shape[1], bytes = vocab * sizeof(float);
  float *there = (float *)e->logits.data + (size_t)row * vocab, *changed = e->host_logits + vocab;
  tg_status status = tg_memory_copy(e->ctx, e->host_logits, bytes, there, bytes, bytes, 1);
  if (status != TG_OK || !changes(how)) {
    return status;
  }
  memcpy(changed, e->host_logits, bytes);
  tgi_penalties_apply(changed, &how->sampling, (tgi_told){s->ids, s->known, s->known - s->prompt},
                      e->counts);
  return tg_memory_copy(e->ctx, there, bytes, changed, bytes, bytes, 1);
}

/* The ids of rows [first, end), on the device. A row from whose logits nothing can be picked is
 * told by its id, whatever the op returns. */
static tg_status sample_rows(const picking *p, int32_t first, int32_t end, int64_t position)
{
  tg_engine *e = p->e;
  const tg_sampling *how = &how_of(p, first)->sampling;
  tgi_pass pass = {.ctx = e->ctx, .workspace = e->workspace, .workspace_bytes = e->workspace_bytes};
  const tg_status status =
      tgi_engine_sample(e, &pass, how, first, end - first, e->pages.positions, position);
  return status == TG_BAD_ARGUMENT ? TG_OK : status;
}

static tg_status fetch_ids(picking *p, int32_t first, int32_t end)
{
  const size_t bytes = (size_t)(end - first) * sizeof(int32_t);
  return tg_memory_copy(p->e->ctx, p->ids + first, bytes, (int32_t *)p->e->picked.data + first,
                        bytes, bytes, 1);
}

/* The ids of all rows whose logits the host does not read. */
static tg_status pick_together(picking *p, int64_t position)
{
  tg_status status = TG_OK;
  bool any = false;
  for (int32_t first = 0, end = 0; first < p->count && status == TG_OK; first = end) {
    end = first + 1;
    const tg_generate_options *how = how_of(p, first);
    if (!tgi_sequence_picks(p->sequence[first]) || reads(how)) {
      continue;
    }
    while (end < p->count && alike(p, first, end)) {
      end++;
    }
    any = true;
    status = sample_rows(p, first, end, position);
  }
  return status == TG_OK && any ? fetch_ids(p, 0, p->count) : status;
}

/* The id of a row whose logits the host reads. */
static tg_status pick_row(picking *p, int32_t row, int64_t position)
{
  tg_status status = change_logits(p, row);
  status = status ? status : sample_rows(p, row, row + 1, position);
  return status ? status : fetch_ids(p, row, row + 1);
}

static bool stops(const tg_generate_options *how, int32_t id)
{
  for (int64_t i = 0; i < how->num_stop_ids; i++) {
    if (how->stop_ids[i] == id) {
      return true;
    }
  }
  return false;
}

/* Adds the token, tells it, and ends the request if it was the last. */
static void tell(picking *p, int32_t row)
{
  tg_engine *e = p->e;
  tgi_sequence *s = p->sequence[row];
  tgi_request *r = tgi_request_of(s);
  const int32_t id = p->ids[row];
  tg_error error = {TG_OK, ""};
  if (id < 0) {
    tgi_error_set(&error, TG_BAD_ARGUMENT,
                  "engine_step: request %lld: logits: expected finite ones for position %lld, got "
                  "NaN, infinity or none",
                  (long long)s->number, (long long)s->known);
  } else if (r->how.logprobs) {
    tg_compute_logprobs(e->host_logits, e->model.config.vocab_size, id, r->how.logprobs, &error);
  }
  if (error.status != TG_OK) {
    tgi_engine_end(e, r, TG_FINISH_FAILED, &error);
    return;
  }
  s->ids[s->known++] = id;
  const tg_event event = {.request = s->number, .id = id, .shared_tokens = s->shared};
  const bool more = r->on_event(r->user, &event);
  if (!more || stops(&r->how, id) || s->known == r->most) {
    tgi_engine_end(e, r,
                   stops(&r->how, id) ? TG_FINISH_STOP
                   : more             ? TG_FINISH_LENGTH
                                      : TG_FINISH_CALLER,
                   NULL);
  }
}

tg_status tgi_engine_pick(tg_engine *e, tgi_sequence *const *sequence, int32_t count,
                          tg_error *error)
{
  picking p = {.e = e, .sequence = sequence, .count = count};
  const int64_t position = e->pages.positions.ndim ? 1 : sequence[0]->known;
  const size_t bytes = (size_t)count * sizeof(int64_t);
  int64_t seeds[TG_ENGINE_MAX_BATCH] = {0};
  for (int32_t i = 0; i < count; i++) {
    seeds[i] = (int64_t)how_of(&p, i)->sampling.seed;
  }
  tg_status status = tg_memory_copy(e->ctx, e->seeds.data, bytes, seeds, bytes, bytes, 1);
  bool bad = false;
  status = status ? status : pick_together(&p, position);
  for (int32_t i = 0; i < count; i++) {
    const bool picks = tgi_sequence_picks(sequence[i]);
    if (status == TG_OK && picks && reads(how_of(&p, i))) {
      status = pick_row(&p, i, position);
    }
    if (status != TG_OK) {
      return tgi_engine_fail(e, e->ctx, sequence + i, count - i, status, error);
    }
    if (picks) {
      bad = bad || p.ids[i] < 0;
      tell(&p, i);
    }
  }
  if (bad) { /* a device keeps the record until it is looked at */
    (void)tg_context_check(e->ctx);
  }
  return TG_OK;
}

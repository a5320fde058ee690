/** What the reference and the kernels share of sampling: random marks, goals, checks of data. */
#ifndef TGI_OPS_SAMPLE_DRAW_H
#define TGI_OPS_SAMPLE_DRAW_H

#include "core/values/finite_row.h"
#include "core/values/half.h"
#include "core/values/philox.h"
#include "ops/kernels.h"

/** Upper 64 bits of the product. */
static inline uint64_t multiply_high(uint64_t a, uint64_t b)
{
  const uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
  const uint64_t middle = a1 * b0 + (a0 * b0 >> 32); /* below 2^64 */
  const uint64_t other = a0 * b1 + (uint32_t)middle;
  return a1 * b1 + (middle >> 32) + (other >> 32);
}

/** Where a row's draw falls within a sum of weights. */
static inline uint64_t draw_mark(const tg_sample_fwd_args *a, int64_t row, uint64_t sum)
{
  uint64_t position = (uint64_t)a->position;
  if (tgi_present(&a->positions)) {
    position += (uint64_t)tgi_load_int(a->positions.data, a->positions.dtype, row);
  }
  uint64_t seed = (uint64_t)a->seed, high = (uint64_t)row;
  if (tgi_present(&a->seeds)) {
    seed = (uint64_t)tgi_load_int(a->seeds.data, a->seeds.dtype, row);
    high = 0;
  }
  const tgi_philox_block b = tgi_philox(seed, high, position);
  return multiply_high((uint64_t)b.word[0] << 32 | b.word[1], sum);
}

/** ceil(share * sum), the product rounded to f64. */
static inline uint64_t share_of(float share, uint64_t sum)
{
  return (uint64_t)ceil((double)share * (double)sum);
}

/** An order of finite and infinite numbers as one of integers; -0 is 0. */
static inline uint32_t rank_key(float z)
{
  const uint32_t u = tgi_float_bits(z + 0.0f);
  return u >> 31 ? ~u : u | 0x80000000u;
}

/** The number that has a key. */
static inline float key_value(uint32_t key)
{
  return tgi_bits_float(key >> 31 ? key & 0x7fffffffu : ~key);
}

/**
 * What top_k and top_p leave: keys above `key`, and of those equal to it the ids up to `last`.
 * {0, 0} leaves all.
 */
typedef struct rank_cut {
  uint32_t key;
  int64_t last;
} rank_cut;

static inline bool is_kept(const rank_cut *c, uint32_t key, int64_t id)
{
  return key > c->key || (key == c->key && id <= c->last);
}

static inline float penalise(float z, float penalty)
{
  return z > 0 ? z / penalty : z * penalty;
}

static inline bool has_penalty(const tg_sample_fwd_args *a)
{
  return tgi_present(&a->history) && a->repetition_penalty != 0 && a->repetition_penalty != 1;
}

/** How many ids of a row's history count. */
static inline int64_t history_length(const tg_sample_fwd_args *a, int64_t row)
{
  return tgi_present(&a->history_lengths)
             ? tgi_load_int(a->history_lengths.data, a->history_lengths.dtype, row)
             : a->history.shape[1];
}

static inline int64_t history_id(const tg_sample_fwd_args *a, int64_t row, int64_t k)
{
  return tgi_load_int(tgi_row(&a->history, row), a->history.dtype, k);
}

static inline tg_status check_history(const tg_context *ctx, const tg_sample_fwd_args *a)
{
  const int64_t vocab = a->logits.shape[1], room = a->history.shape[1];
  for (int64_t i = 0; i < a->logits.shape[0] && tgi_present(&a->history); i++) {
    const int64_t length = history_length(a, i);
    if (length < 0 || length > room) {
      return tgi_report(ctx, TG_BAD_ARGUMENT,
                        "sample_fwd: history_lengths[%lld]: expected 0 to %lld, got %lld",
                        (long long)i, (long long)room, (long long)length);
    }
    for (int64_t k = 0; k < length; k++) {
      const int64_t id = history_id(a, i, k);
      if (id < 0 || id >= vocab) {
        return tgi_report(ctx, TG_BAD_ARGUMENT,
                          "sample_fwd: history[%lld, %lld]: expected 0 to %lld, got %lld",
                          (long long)i, (long long)k, (long long)vocab - 1, (long long)id);
      }
    }
  }
  return TG_OK;
}

/** True if a row can be sampled, given its largest z; NaN if one is. */
static inline bool can_sample(float largest)
{
  return isfinite(largest);
}

static inline void put_picked(const tg_sample_fwd_args *a, int64_t row, int64_t id, double log_prob)
{
  tgi_store(a->ids.data, a->ids.dtype, row, (double)id);
  if (tgi_present(&a->log_prob)) {
    tgi_store(a->log_prob.data, a->log_prob.dtype, row, log_prob);
  }
}

/** Reports the first row that was not picked. */
static inline tg_status report_rows(const tg_context *ctx, const tg_sample_fwd_args *a)
{
  for (int64_t i = 0; i < a->logits.shape[0]; i++) {
    if (tgi_load_int(a->ids.data, a->ids.dtype, i) < 0) {
      return tgi_report(ctx, TG_BAD_ARGUMENT, "sample_fwd: logits[%lld]: " TGI_FINITE_ROW,
                        (long long)i);
    }
  }
  return TG_OK;
}

#endif

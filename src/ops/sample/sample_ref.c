/* Sampling, reference: the contract's steps one by one. Cuts by rank are found bit by bit: the
 * largest key at and above which there is enough. */
#include "ops/sample/sample_draw.h"
#include "ops/sample/sample_weight.h"

typedef struct row {
  const tg_sample_fwd_args *a;
  int64_t index, vocab;
  float largest;
} row;

static float value(const row *r, int64_t id)
{
  const float z = (float)tgi_load(tgi_row(&r->a->logits, r->index), r->a->logits.dtype, id);
  if (has_penalty(r->a)) {
    for (int64_t k = 0; k < history_length(r->a, r->index); k++) {
      if (history_id(r->a, r->index, k) == id) {
        return penalise(z, r->a->repetition_penalty);
      }
    }
  }
  return z;
}

static uint64_t weight(const row *r, int64_t id)
{
  static const float c[kSamplePowers] = TGI_SAMPLE_POLYNOMIAL;
  const float shifted = (value(r, id) - r->largest) / r->a->temperature * TGI_SAMPLE_LOG2_E;
  const float e = shifted > TGI_SAMPLE_LEAST_EXPONENT ? shifted : TGI_SAMPLE_LEAST_EXPONENT;
  const float n = rintf(e);
  float p = c[0];
  for (int k = 1; k < kSamplePowers; k++) {
    p = p * (e - n) + c[k];
  }
  return (uint64_t)ldexp((double)p, 40 + (int)n);
}

/* Sum over what is left with keys from `key` on: of weights, or of ones. */
static uint64_t amount_from(const row *r, const rank_cut *c, uint32_t key, bool weights)
{
  uint64_t sum = 0;
  for (int64_t j = 0; j < r->vocab; j++) {
    const uint32_t mine = rank_key(value(r, j));
    if (mine >= key && is_kept(c, mine, j)) {
      sum += weights ? weight(r, j) : 1;
    }
  }
  return sum;
}

/* Leaves the first by rank that amount to `goal` or more. */
static void narrow(const row *r, rank_cut *c, bool weights, uint64_t goal)
{
  uint32_t key = 0;
  for (uint32_t bit = 1u << 31; bit; bit >>= 1) {
    if (amount_from(r, c, key | bit, weights) >= goal) {
      key |= bit;
    }
  }
  uint64_t sum = amount_from(r, c, key + 1, weights);
  for (int64_t j = 0; j < r->vocab && sum < goal; j++) {
    if (rank_key(value(r, j)) == key) {
      sum += weights ? weight(r, j) : 1;
      c->last = j;
    }
  }
  c->key = key;
}

static uint64_t kept_weight(const row *r, const rank_cut *c, uint64_t least, int64_t id)
{
  const uint64_t w = is_kept(c, rank_key(value(r, id)), id) ? weight(r, id) : 0;
  return w >= least ? w : 0;
}

static void pick(const row *r)
{
  const tg_sample_fwd_args *a = r->a;
  const uint64_t least = share_of(a->min_p, 1ull << 40);
  rank_cut c = {0, 0};
  if (a->top_k > 0 && a->top_k < r->vocab) {
    narrow(r, &c, false, (uint64_t)a->top_k);
  }
  if (a->top_p > 0 && a->top_p < 1) {
    narrow(r, &c, true, share_of(a->top_p, amount_from(r, &c, 0, true)));
  }
  uint64_t sum = 0, part = 0;
  for (int64_t j = 0; j < r->vocab; j++) {
    sum += kept_weight(r, &c, least, j);
  }
  const uint64_t mark = draw_mark(a, r->index, sum);
  int64_t id = 0;
  while ((part += kept_weight(r, &c, least, id)) <= mark) {
    id++;
  }
  const double shifted = ((double)value(r, id) - (double)r->largest) / (double)a->temperature;
  put_picked(a, r->index, id, shifted - log((double)sum * 0x1p-40));
}

tg_status TGI_KERNEL(sample_fwd)(const tg_context *ctx, const tg_sample_fwd_args *a)
{
  const tg_status status = check_history(ctx, a);
  for (int64_t i = 0; i < a->logits.shape[0] && status == TG_OK; i++) {
    row r = {a, i, a->logits.shape[1], -INFINITY};
    int64_t best = 0;
    for (int64_t j = 0; j < r.vocab && !isnan(r.largest); j++) {
      const float z = value(&r, j);
      if (z > r.largest || isnan(z)) {
        r.largest = z;
        best = j;
      }
    }
    if (!can_sample(r.largest)) {
      put_picked(a, i, -1, NAN);
    } else if (a->temperature == 0) {
      put_picked(a, i, best, 0);
    } else {
      pick(&r);
    }
  }
  return status == TG_OK ? report_rows(ctx, a) : status;
}

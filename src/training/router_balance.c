#include "router_balance.h"

#include "core/error_record.h"
#include "tegula/device.h"
#include <stdlib.h>

static int64_t sums_of(const tgi_config *config)
{
  return (int64_t)config->num_hidden_layers * config->num_experts;
}

tg_status tgi_router_balance_create(tgi_router_balance *b, const tgi_config *config,
                                    tg_error *error)
{
  const size_t words = 2 * (size_t)sums_of(config) + (size_t)config->num_experts;
  b->host = malloc(words * sizeof(float));
  return b->host ? TG_OK
                 : tgi_error_set(error, TG_NO_MEMORY,
                                 "trainer: expected room for %zu sums of routers, got none", words);
}

void tgi_router_balance_free(tgi_router_balance *b)
{
  free(b->host);
}

void tgi_router_balance_lay_out(tgi_router_balance *b, tgi_memory_plan *plan,
                                const tgi_config *config)
{
  const int64_t layers = config->num_hidden_layers, experts = config->num_experts;
  const tg_tensor both = tgi_take_1d(plan, TG_F32, 2 * sums_of(config));
  float *first = both.data;
  b->sums.counts = tg_tensor_2d(first, TG_I32, layers, experts);
  b->sums.prob_sum = tg_tensor_2d(first ? first + sums_of(config) : NULL, TG_F32, layers, experts);
  b->sums.dprob_sum = tgi_take_1d(plan, TG_F32, experts);
}

tg_status tgi_router_balance_settle(tgi_router_balance *b, tg_context *ctx,
                                    const tgi_micro_batches *batch, int64_t index)
{
  const int64_t layers = b->sums.counts.shape[0], experts = b->sums.counts.shape[1];
  const size_t bytes = (size_t)(layers * experts) * sizeof(float);
  const int32_t *counts = b->host;
  const float *prob_sum = (const float *)b->host + layers * experts;
  float *dprob_sum = (float *)b->host + 2 * layers * experts;
  tg_status status =
      tg_memory_copy(ctx, b->host, 2 * bytes, b->sums.counts.data, 2 * bytes, 2 * bytes, 1);
  if (status != TG_OK) {
    return status;
  }
  const int64_t counted = batch->num_counted[index];
  const double n = (double)(layers * counted);
  const double share = counted > 0 ? (double)counted / (double)batch->all_counted : 0;
  const double scale = counted > 0 ? share * (double)experts / (n * n) : 0;
  for (int64_t e = 0; e < experts; e++) {
    double count = 0, prob = 0;
    for (int64_t l = 0; l < layers; l++) {
      count += counts[l * experts + e];
      prob += (double)prob_sum[l * experts + e];
    }
    b->loss += scale * count * prob;
    dprob_sum[e] = (float)(b->coefficient * scale * count);
  }
  const size_t size = (size_t)experts * sizeof(float);
  return tg_memory_copy(ctx, b->sums.dprob_sum.data, size, dprob_sum, size, size, 1);
}

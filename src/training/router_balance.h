/**
 * The auxiliary loss that balances a model's routers (Fedus et al. 2021, arXiv:2101.03961, eq. 4 to
 * 6, over all layers together, as transformers' load_balancing_loss_func computes it).
 *
 *   count[e]  how often expert e was selected, and
 *   prob[e]   the sum of its probabilities, both over the n counted tokens of a pass in all layers
 *   N         = layers * n
 *   loss      = experts * sum_e(count[e] / N * prob[e] / N)
 *   dprob[e]  = coefficient * experts * count[e] / N^2
 *
 * A batch's loss is the mean over its micro-batches, weighted by their counted tokens. Between the
 * forward and the backward of a pass the sums come to the host, which waits for the device.
 */
#ifndef TGI_TRAINING_ROUTER_BALANCE_H
#define TGI_TRAINING_ROUTER_BALANCE_H

#include "micro_batches.h"
#include "model/transformer.h"

typedef struct tgi_router_balance {
  tgi_router_sums sums; /* for passes; counts and prob_sum lie one behind the other */
  double coefficient;
  double loss; /* of the batch's passes so far, before the coefficient */
  void *host;  /* room for the sums and dprob_sum */
} tgi_router_balance;

/** Takes host memory. Errors: NO_MEMORY. */
tg_status tgi_router_balance_create(tgi_router_balance *b, const tgi_config *config,
                                    tg_error *error);

void tgi_router_balance_free(tgi_router_balance *b);

/** Takes the room on the device. */
void tgi_router_balance_lay_out(tgi_router_balance *b, tgi_memory_plan *plan,
                                const tgi_config *config);

/** After the forward over micro-batch `index`: adds to the loss, and sets dprob_sum. On failure the
 * message is the context's. */
tg_status tgi_router_balance_settle(tgi_router_balance *b, tg_context *ctx,
                                    const tgi_micro_batches *batch, int64_t index);

#endif

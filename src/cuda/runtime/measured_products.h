/** Measuring the candidates of a product, between tg_tune_begin and tg_tune_end. */
#ifndef TGI_CUDA_MEASURED_PRODUCTS_H
#define TGI_CUDA_MEASURED_PRODUCTS_H

#include "core/device_state.h"
#include "core/tuned_products.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Starts candidate `candidate` once. UNSUPPORTED: it does not take the product. */
typedef tg_status tgi_candidate_run(void *state, int candidate);

enum { TGI_CANDIDATES = 4 };

/** True if the product is to be measured now: the context tunes, has not yet measured it, and is
 * not recording a graph. */
bool tgi_tune_wants(const tg_context *ctx, const tgi_tuned_key *key);

/** Measures the candidates that take the product and puts the fastest into the context's table.
 * TGI_TUNED_NONE ends the list. Errors: those of a run, DEVICE. */
tg_status tgi_tune_measure(const tg_context *ctx, const tgi_tuned_key *key,
                           const int (*candidates)[TGI_CANDIDATES], tgi_candidate_run *run,
                           void *state);

/** Reads the device's table, when the context is prepared. */
void tgi_tune_open(tgi_device *device);

#ifdef __cplusplus
}
#endif
#endif

/** A model's weights in another dtype. */
#ifndef TGI_CLI_BENCH_DTYPE_H
#define TGI_CLI_BENCH_DTYPE_H

#include "tegula/model.h"

/** Converts the weights where they are not of this dtype, by so many threads; a session or trainer
 * must not have them. Errors: NO_MEMORY; the model is then unchanged. */
tg_status tgi_bench_convert(tg_model *model, tg_dtype dtype, int32_t threads, tg_error *error);

/** A model of a preset for passes whose results nobody reads: matrices repeat some random numbers,
 * in the dtype from the start, so that a large one is there in seconds. Errors: those of
 * tg_model_create. */
tg_status tgi_bench_create(const char *preset, int32_t vocab_size, tg_dtype dtype, tg_model **out,
                           tg_error *error);

#endif

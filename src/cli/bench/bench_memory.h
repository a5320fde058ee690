/** Memory and flops of what a bench runs. */
#ifndef TGI_CLI_BENCH_MEMORY_H
#define TGI_CLI_BENCH_MEMORY_H

#include "cli/option_table.h"
#include "tegula/model.h"

/** The most bytes that this process has had so far; 0 if unknown. */
double tgi_bench_peak_memory(void);

/** Bytes of the device's memory that are free; 0 for the CPU. */
double tgi_bench_free_memory(const tgi_run_device *device);

/** Flops of a forward pass over `tokens` tokens that see `keys` keys on average, with `logits` rows
 * of logits. */
double tgi_bench_forward_flops(const tg_model *model, double tokens, double keys, double logits);

#endif

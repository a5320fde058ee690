/**
 * Measuring matrix products on the GPU at hand. Without it a table that is built in says which
 * kernel, or cublasLt, runs a product; from here on the winners of measurements do. They are kept
 * in the user's cache directory, for each GPU, driver and build: TEGULA_CACHE_DIR, else tegula
 * within XDG_CACHE_HOME, else ~/.cache/tegula. A context reads them when it is prepared.
 *
 * Candidates may differ in the last bits of a result. With one table results are deterministic, and
 * products of 1 to 64 rows have the same bits with every table.
 */
#ifndef TEGULA_TUNE_H
#define TEGULA_TUNE_H

#include "context.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Until tg_tune_end, the first call of each product that has several candidates measures them, some
 * dozens of times, and waits. Outputs of ops are undefined meanwhile; inputs are unchanged. Calls
 * while a graph is recorded are not measured. Products have several candidates on GPUs of compute
 * capability 9.0; on others, and on a CPU, nothing is measured. Errors: BAD_ARGUMENT (ctx is NULL,
 * or of a GPU and not prepared), NO_MEMORY.
 */
TG_API tg_status tg_tune_begin(tg_context *ctx);

/**
 * Ends that, and writes what was measured to the table's file.
 *
 *   measured  out  optional: number of products that were measured since tg_tune_begin
 *
 * What other processes have written there meanwhile stays; of a product that two of them measured,
 * the later result. Errors: BAD_ARGUMENT (ctx is NULL), IO (the context keeps the table, the
 * message says why).
 */
TG_API tg_status tg_tune_end(tg_context *ctx, int64_t *measured);

/**
 * Deletes the tables of all GPUs, drivers and builds. Contexts that have read one keep it.
 *
 *   removed  out  optional: their number
 *
 * Errors: IO.
 */
TG_API tg_status tg_tune_clear(int64_t *removed, tg_error *error);

/**
 * Which table the context goes by: "built in", or a file and its number of products. Behind "built
 * in" it says why a file was ignored: damaged, or of another GPU, driver or build. Valid until the
 * context's next call.
 */
TG_API const char *tg_context_table(const tg_context *ctx);

#ifdef __cplusplus
}
#endif
#endif

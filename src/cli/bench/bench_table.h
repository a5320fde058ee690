/** Rates of prompts and of generating, in the columns of llama-bench: pp512, tg128. */
#ifndef TGI_CLI_BENCH_TABLE_H
#define TGI_CLI_BENCH_TABLE_H

#include "cli/option_table.h"
#include "tegula/engine.h"

typedef struct tgi_bench_table {
  const char *name;          /* of the model */
  int32_t prompt, generated; /* tokens of the two rows; 0: no row; -1: 512 and 128, or
                                what the model's positions leave */
  int32_t depth;             /* tokens in the cache before; for several sequences whole pieces */
  int32_t batch;             /* sequences at the same time; 1: a session, else an engine */
  int32_t runs, threads;
  tgi_run_device device;
  bool json;
} tgi_bench_table;

enum { TGI_BENCH_PIECE = 256 };

/** Measures and prints. Errors: those of sessions and engines, BAD_ARGUMENT (the model has too few
 * positions), NO_MEMORY. */
tg_status tgi_bench_table_run(const tgi_bench_table *given, const tg_model *model, tg_error *error);

#endif

/** The time of each op of a pass, beside what the machine's roofs allow. */
#ifndef TGI_CLI_OP_TIMES_H
#define TGI_CLI_OP_TIMES_H

#include "cli/option_table.h"
#include "files/json_file.h"
#include "tegula/model.h"

typedef struct tgi_bench_ops {
  tg_session *session; /* whose passes are watched */
  tgi_run_device device;
  tg_status (*pass)(void *user, tg_error *error); /* one pass of the session */
  void *user;
  double seconds; /* of a pass that nobody watches */
} tgi_bench_ops;

/**
 * Runs passes op by op. Calls of one op with the same shapes are one row. On a CPU a row's time is
 * the median over a few passes. On a GPU each call is repeated in a CUDA graph, so that its time
 * has no part of a launch's from the host; its operands are then in the L2 cache where they fit.
 *
 * *out: {"roof", "rows": [{"op", "shape", "calls", "ms", "bytes", "flops", "least_ms", "share",
 * "bound"}], "ms", "least_ms", "share"}; rows in the order of their first calls, times of a pass.
 * Errors: those of the pass, NO_MEMORY, DEVICE.
 */
tg_status tgi_bench_ops_run(const tgi_bench_ops *ops, json_t **out, tg_error *error);

/** As a table; NULL prints nothing. */
void tgi_bench_ops_print(const json_t *ops);

#endif

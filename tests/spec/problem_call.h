/** The call of a problem, held against what the spec lists as declined. */
#ifndef TGI_TESTS_PROBLEM_CALL_H
#define TGI_TESTS_PROBLEM_CALL_H

#include "ops/kernels.h"
#include "problem.h"

/** True if an entry has a kernel of its own for a row of the op table. */
bool problem_has_kernel(const tgi_kernel_table *table, const char *op_dir);

/** The rules of the spec that hold for the call, whatever the entry: bit i is refuses[i]. */
unsigned problem_refusals(const problem *p);

/**
 * Runs the call once with the context. UNSUPPORTED if the first entry of the chain declines it
 * without a rule of the spec, BAD_ARGUMENT if the entry runs it although a rule holds.
 */
tg_status problem_call(problem *p, tg_context *ctx);

#endif

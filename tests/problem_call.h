/** The call of a problem, held against what the spec lists as declined. */
#ifndef TGI_TESTS_PROBLEM_CALL_H
#define TGI_TESTS_PROBLEM_CALL_H

#include "problem.h"

/** True if an entry has a kernel of its own for the op and direction. */
bool problem_has_kernel(const tgi_kernel_table *table, const char *op_dir);

/**
 * Runs the call once with the context. UNSUPPORTED if the first entry of the chain declines it
 * without a rule of the spec, BAD_ARGUMENT if it runs a call that a rule says it declines.
 */
tg_status problem_call(problem *p, tg_context *ctx);

#endif

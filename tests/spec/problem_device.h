/** The part of problem_run that a CUDA context needs. */
#ifndef TGI_TESTS_PROBLEM_DEVICE_H
#define TGI_TESTS_PROBLEM_DEVICE_H

#include "problem.h"

/** Points the args' workspace at `memory`; false if they have none. */
bool problem_set_workspace(problem *p, void *memory, size_t bytes);

/**
 * Runs the problem's call on copies of its blocks and of `workspace` (`total` bytes with the guards
 * on both sides) in the context's device memory, and copies all of them back. Data errors that the
 * kernels record are the call's.
 */
tg_status problem_run_on_device(problem *p, tg_context *ctx, unsigned char *workspace,
                                size_t total);

#endif

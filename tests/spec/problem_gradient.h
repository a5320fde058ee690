/** The reference backward against finite differences of the reference forward. */
#ifndef TGI_TESTS_PROBLEM_GRADIENT_H
#define TGI_TESTS_PROBLEM_GRADIENT_H

#include "problem.h"

/** Checks the backward of a problem's case, in f64. NULL if they agree, else what does not (owned).
 */
char *problem_check_gradient(problem *p, tg_context *ref);

#endif

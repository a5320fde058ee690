/** The outputs of a problem that was run against those of the oracle, or of another run. */
#ifndef TGI_TESTS_PROBLEM_COMPARE_H
#define TGI_TESTS_PROBLEM_COMPARE_H

#include "problem.h"

/** Within the spec's tolerances. `exact` was run in f64, `naive` with a rounding after every step.
 * NULL, or the worst element (owned). */
char *problem_compare(const problem *got, const problem *exact, const problem *naive);

/** The same bits. NULL, or the first element that differs, in a run that `what` names (owned). */
char *problem_compare_bits(const problem *a, const problem *b, const char *what);

#endif

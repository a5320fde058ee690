/**
 * A case to time: calls of one op on arrays of a benchmark shape.
 *
 * One call of a small shape would find its arrays in the caches, and a model's call does not: a
 * case of less than four times the last-level cache gets several sets of arrays, used in turn,
 * unless it is bound by arithmetic.
 */
#ifndef TGI_BENCH_BENCH_CASE_H
#define TGI_BENCH_BENCH_CASE_H

#include "ops/spec.h"
#include "roof/roof.h"

enum { BENCH_CASE_MAX_SETS = 64 };

typedef struct bench_set bench_set;

typedef struct bench_case {
  const spec *spec;
  const char *shape;
  tg_dtype dtype;
  tg_context *ctx;
  array_stack *arrays, mark; /* where the arrays come from; the stack before them */
  tgi_cost cost;
  bool computes; /* bound by arithmetic, not by memory */
  roof_mix mix;  /* the streams that a call moves */
  bench_set *set;
  int num_sets, next;
} bench_case;

/** Arrays filled with the spec's inputs; a backward's saved tensors come from our forward. Errors:
 * BAD_ARGUMENT (shape), NO_MEMORY, and whatever the forward says. */
tg_status bench_case_open(bench_case *c, const spec *s, const char *shape, tg_dtype dtype,
                          tg_context *ctx, array_stack *arrays, tg_error *error);

/** One call on the next set. */
tg_status bench_case_run(bench_case *c);

void bench_case_close(bench_case *c);

#endif

/**
 * A problem: one call of an op with memory behind every view, made from a spec's case.
 *
 * Each tensor has a block of its own with guard bytes around it and between its rows; outputs are
 * poisoned with NaN before the call; afterwards everything that the call had no business to touch
 * is compared with what it was.
 */
#ifndef TGI_TESTS_PROBLEM_H
#define TGI_TESTS_PROBLEM_H

#include "ops/spec.h"

typedef enum problem_layout {
  PROBLEM_DENSE,   /* contiguous, 64-byte aligned */
  PROBLEM_STRIDED, /* ROWS slots: a gap after each row; all: an address of the element's alignment
                    */
  PROBLEM_OUTPUTS_STRIDED, /* dense inputs; outputs of ROWS slots: a gap after each row */
  PROBLEM_INPUTS_STRIDED,  /* the other way round */
  PROBLEM_ALIASED, /* dense, and outputs share the first input's memory that their slot allows */
  PROBLEM_ALIASED_SECOND, /* the second that it allows */
  PROBLEM_LAYOUTS
} problem_layout;

enum {
  PROBLEM_MAX_VIEWS = 96,
  PROBLEM_GUARD_BYTES = 256, /* before and after every block */
  PROBLEM_GUARD = 0xa5,      /* their value */
};

typedef struct problem_block {
  unsigned char *base, *before; /* allocation; its copy before the call */
  size_t bytes;
  int shared_with; /* index of the view whose block this one aliases; -1: its own */
} problem_block;

typedef struct problem {
  const spec *spec;
  const char *shape; /* the case's string */
  tg_dtype dtype;    /* the case's */
  tgi_shaped shaped;
  tgi_shaped_view view[PROBLEM_MAX_VIEWS];
  problem_block block[PROBLEM_MAX_VIEWS];
  int num_views;
  const char *entry; /* that ran the last call, as far as it is known */
  char *failure;     /* what the last check found; owned */
} problem;

/**
 * Inputs filled with the case's values; for a backward, the tensors that the forward saves come
 * from the reference forward. NULL and a message on stderr if the shape string is malformed.
 */
problem *problem_create(const spec *s, const spec_case *c, tg_dtype dtype);

/** The same values under another layout; `f64`: every float tensor widened, exact. */
problem *problem_copy(const problem *from, problem_layout layout, bool f64);

/** The same values, only rows `first` to `first + count - 1` of every tensor whose first extent is
 * that of the first slot. */
problem *problem_rows(const problem *from, int64_t first, int64_t count);

void problem_destroy(problem *p);

/** Allocates exactly the workspace asked for, runs, checks guards and inputs. A CUDA context gets
 * copies of all blocks on its device; if it has a stream, the call is recorded in a graph, and the
 * graph is launched. */
tg_status problem_run(problem *p, tg_context *ctx);

/** Fills floats with normal numbers and integers with zeros, then calls the spec's hook. */
void problem_fill(problem *p, const spec_case *c, uint64_t seed);

/** Elements from the start to element `i` in row-major order. */
int64_t problem_offset(const tg_tensor *t, int64_t i);

/** Element `i` in row-major order, whatever the strides. */
double problem_get(const tg_tensor *t, int64_t i);
void problem_set(const tg_tensor *t, int64_t i, double value);

/** True if the op has a flag of that name, and it is set. */
bool problem_allows(const problem *p, const char *flag);

/** Index of the view of TENSOR slot `name`, -1 if absent. */
int problem_find(const problem *p, const char *name);

/** View that output `v` may share its memory with: the `which`-th that is present and of its dtype;
 * -1: none. */
int problem_alias(const problem *p, int v, int which);

/** The slot of that name; NULL if there is none. */
const tg_slot_info *problem_slot(const tg_op_info *info, const char *name);

/**
 * The forward of a backward problem, in f64: slots and scalars of equal names are the backward's, a
 * tensor of which the backward has the gradient alone has that gradient's shape, other required
 * tensors and scalars that the backward does not know (a rounding policy) come from the forward's
 * own reading of the shape.
 */
problem *problem_forward(const problem *bwd);

/** Sets the backward's saved tensors (rstd, lse, ...) to what the reference forward gives. */
void problem_fill_saved(problem *p);

/** printf into new memory. */
char *problem_text(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif

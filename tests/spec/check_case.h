/** One case of a spec against the f64 reference, in every layout and on every entry asked for. */
#ifndef TGI_TESTS_CHECK_CASE_H
#define TGI_TESTS_CHECK_CASE_H

#include "ops/spec.h"

#include "core/context_state.h"

typedef struct tally {
  long passed, failed;
  bool verbose;
  unsigned met; /* bit i: some call met the spec's refuses[i] */
} tally;

/* Two ways to run, that must give the same bits: with one and with three threads; on the default
 * stream of a GPU, and recorded on another one. Of a GPU a third, within the same bounds: with the
 * libraries that tg_context_prepare opens. */
typedef struct entry_contexts {
  const char *entry;
  tg_context *one, *three, *prepared; /* NULL: the machine has none of these libraries */
} entry_contexts;

typedef struct fixture {
  entry_contexts entry[TGI_CHAIN_MAX];
  int num_entries;
  tg_context *ref;
  bool gradients;     /* check the references' backwards */
  bool threads_dense; /* compare the two ways to run in dense layouts only */
} fixture;

/** Contexts on the entries of the backend's chain, or on one of them (`best`: the first); with
 * `unprepared` none of what tg_context_prepare opens. Ends the program if there is none. */
fixture make_fixture(tg_backend backend, const char *only_entry, bool unprepared);
void destroy_fixture(fixture *f);

/** Counts and prints what failed; with `verbose` what passed, too. */
void check_case(const spec *s, const spec_case *c, tg_dtype dtype, const fixture *f, tally *t);

#endif

/**
 * Specs: what the drivers (test_ops, test_errors, bench_ops) must know of an op beyond its row of
 * the op table. <op>_spec.c defines one per direction; tolerances exist nowhere else.
 */
#ifndef TGI_OPS_SPEC_H
#define TGI_OPS_SPEC_H

#include "ops/shape.h"
#include <math.h>

/** Deterministic random numbers: splitmix64. */
typedef struct spec_rng {
  uint64_t state;
} spec_rng;

uint64_t spec_bits(spec_rng *rng);
/** Uniform in [0, n). */
int64_t spec_below(spec_rng *rng, int64_t n);
/** Standard normal. */
double spec_normal(spec_rng *rng);

/** A case: shape string and, if the inputs are not plain normal numbers, a word for `fill`. */
typedef struct spec_case {
  const char *shape;
  const char *special; /* NULL: none */
} spec_case;

/** A scalar value that the op must refuse. */
typedef struct spec_bad_scalar {
  const char *slot;
  double value;
  tg_status status;
} spec_bad_scalar;

/** A rule by which an entry of a chain declines calls: the next entry runs them. */
typedef struct spec_refusal {
  const char *entry;               /* "sm90" */
  const char *rule, *reason;       /* as docs/support.md prints them */
  bool (*holds)(const void *args); /* whether the rule holds for a call's args struct */
  bool no_case;                    /* no case meets the rule: the tensors would be too large */
} spec_refusal;

typedef struct spec {
  const char *name; /* row of the op table: "rms_norm_fwd" */

  const spec_case *cases;   /* ended by a NULL shape */
  const char *const *bench; /* shapes to time, ended by NULL */
  uint32_t dtypes;          /* of the activations; 0: f32, f16 and bf16 */

  /* Largest error as a share of the largest magnitude of the exact output. f32 outputs: the bound.
   * 16-bit outputs, and those of f32 calls that allow TF32: the ceiling over the rule "at most
   * twice the naive result's error". */
  double f32_bound, f16_ceiling, bf16_ceiling, tf32_ceiling;
  /* Of calls that these entries run themselves; 0: f32_bound. */
  double sm80_f32_bound, sm90_f32_bound;
  bool bit_exact; /* every output is defined to the bit: the reference's in the call's dtypes */
  bool rounds_f32_outputs; /* f32 outputs of 16-bit calls are rounded to 16 bits on the way */

  const char *gradient_of; /* the forward's row; NULL: no finite differences */

  /* Called after the slots were filled with normal numbers (floats) and zeros (integers), in the
   * case's dtypes: sets ids, lengths, special values. NULL: nothing to set. */
  void (*fill)(tgi_shaped *shaped, const spec_case *c, spec_rng *rng);

  bool batch_invariant; /* row i of the outputs has the same bits if the call has that row alone */
  /* On the entry sm90 such a call has one row more than this, if there are as many: up to it rows
   * are a class with bits of its own. 0: there is one class. */
  int64_t rows_of_first_class;

  /* True if one more element on this axis of this slot is still a right call (a table may have any
   * number of rows). NULL: every extent is bound by the others. */
  bool (*free_extent)(const char *slot, int axis);

  /* What entries decline, ended by a NULL entry; NULL: an entry that has a kernel runs every call.
   * The driver fails on a call that is declined without a rule, on a call that runs although a rule
   * holds, and on a rule that no case meets. */
  const spec_refusal *refuses;

  const spec_bad_scalar *bad_scalars; /* ended by a NULL slot; NULL: none */
} spec;

/** Every spec, in the order of ops.def; spec_list.c. */
extern const spec *const spec_list[];
extern const size_t spec_count;

/** What drivers choose by: an op ("rms_norm") or a direction of it ("rms_norm_bwd"), a dtype's
 * name; NULL: any. */
bool spec_is_of(const spec *s, const char *op);
bool spec_takes(const spec *s, tg_dtype dtype, const char *only);

/** The dtypes of activations. */
enum { SPEC_DTYPES = 3 };
extern const tg_dtype spec_dtypes[SPEC_DTYPES];

/** The specs that <op>_spec.c defines. */
#define OP(op, dir, ws) extern const spec spec_##op##_##dir;
#include "ops/ops.def"

/** Helpers for fill: write element `i` of a contiguous slot. */
void spec_set(tgi_shaped *shaped, const char *slot, int64_t i, double value);
void spec_set_all(tgi_shaped *shaped, const char *slot, double value);
void spec_scale(tgi_shaped *shaped, const char *slot, double factor, double offset);
/** In a backward, makes element `i` of dy infinite: its product with a factor of exactly 0 is NaN,
 * and with one that merely is tiny infinite. */
void spec_set_infinite_dy(tgi_shaped *shaped, int64_t i);
bool spec_is(const spec_case *c, const char *special);

#endif

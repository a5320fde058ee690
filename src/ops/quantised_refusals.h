/** What Hopper's kernels of 16-bit rows with packed quantised weights decline; sm80 runs those
 * calls. The kernels go by these functions themselves, and the specs list them. */
#ifndef TGI_OPS_QUANTISED_REFUSALS_H
#define TGI_OPS_QUANTISED_REFUSALS_H

#include "ops/refusal_rules.h"

/** Of x [rows, in], y [rows, out] and the packed weight. */
static inline bool tgi_quantised_has_no_vectors(const tg_tensor *x, const tg_tensor *weight)
{
  const bool apart = x->shape[0] <= 1 || tgi_stride(x, 0) > 0;
  return x->shape[1] % 8 != 0 || !apart || !tgi_rows_begin_at(x, 16) ||
         (uintptr_t)weight->data % 16 != 0;
}

static inline bool tgi_quantised_is_large(const tg_tensor *x, const tg_tensor *y)
{
  const int64_t most = (int64_t)1 << 29;
  return x->shape[0] > most || x->shape[1] > most || y->shape[1] > most || tgi_stride(x, 0) > most;
}

/** The rules as functions of an op's args struct. */
#define TGI_QUANTISED_RULES(op)                                                                    \
  static inline bool tgi_##op##_fwd_is_f32(const void *args)                                       \
  {                                                                                                \
    return ((const tg_##op##_fwd_args *)args)->x.dtype == TG_F32;                                  \
  }                                                                                                \
  static inline bool tgi_##op##_fwd_has_no_vectors(const void *args)                               \
  {                                                                                                \
    const tg_##op##_fwd_args *a = (const tg_##op##_fwd_args *)args;                                \
    return tgi_quantised_has_no_vectors(&a->x, &a->weight);                                        \
  }                                                                                                \
  static inline bool tgi_##op##_fwd_is_empty(const void *args)                                     \
  {                                                                                                \
    return ((const tg_##op##_fwd_args *)args)->x.shape[1] == 0;                                    \
  }                                                                                                \
  static inline bool tgi_##op##_fwd_is_large(const void *args)                                     \
  {                                                                                                \
    const tg_##op##_fwd_args *a = (const tg_##op##_fwd_args *)args;                                \
    return tgi_quantised_is_large(&a->x, &a->y);                                                   \
  }

/** These, and whether any of them holds. */
#define TGI_QUANTISED_REFUSALS(op)                                                                 \
  TGI_QUANTISED_RULES(op)                                                                          \
  static inline bool tgi_##op##_fwd_refused(const tg_##op##_fwd_args *a)                           \
  {                                                                                                \
    return tgi_##op##_fwd_is_f32(a) || tgi_##op##_fwd_has_no_vectors(a) ||                         \
           tgi_##op##_fwd_is_empty(a) || tgi_##op##_fwd_is_large(a);                               \
  }

/** The same for a spec. */
#define TGI_QUANTISED_REFUSAL_ROWS(op)                                                             \
  {.entry = "sm90",                                                                                \
   .rule = "x in f32",                                                                             \
   .reason = "the tiles are for 16-bit x",                                                         \
   .holds = tgi_##op##_fwd_is_f32},                                                                \
      {.entry = "sm90",                                                                            \
       .rule =                                                                                     \
           "`in` not a multiple of 8, or a weight or rows of x that do not begin at multiples "    \
           "of 16 bytes",                                                                          \
       .reason = "both are copied in vectors of 16 bytes",                                         \
       .holds = tgi_##op##_fwd_has_no_vectors},                                                    \
      {.entry = "sm90",                                                                            \
       .rule = "`in` = 0",                                                                         \
       .reason = "there is nothing to multiply",                                                   \
       .holds = tgi_##op##_fwd_is_empty},                                                          \
      {.entry = "sm90",                                                                            \
       .rule = "extents above 2^29",                                                               \
       .reason = "indices of tiles are 32-bit",                                                    \
       .holds = tgi_##op##_fwd_is_large,                                                           \
       .no_case = true},                                                                           \
  {                                                                                                \
    .entry = NULL                                                                                  \
  }

#endif

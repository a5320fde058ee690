/** Which products of 16-bit rows with packed quantised weights Hopper's kernels decline; sm80 runs
 * those calls, with the same bits. The kernels go by these functions themselves, and the specs list
 * them. */
#ifndef TGI_OPS_QUANTISED_REFUSALS_H
#define TGI_OPS_QUANTISED_REFUSALS_H

#include "ops/refusal_rules.h"

enum {
  TGI_FEW_ROWS = 16, /* up to which strips of 32 outputs do not wait for x, which they read often */
  TGI_WIDE_BF16_ROWS = 192, /* up to which a weight is not widened to memory */
  TGI_WIDE_OUTPUTS = 128,   /* of a block */
  TGI_WIDE_BLOCKS = 44,     /* of 32 rows, with fewer of which strips are faster on an H200 */
  TGI_WIDE_MOST = 1 << 29   /* extents */
};

/** Of x [rows, in], y [rows, out] and the packed weight. */
static inline bool tgi_quantised_is_widened(const tg_tensor *x, const tg_tensor *y)
{
  return x->dtype == TG_BF16 && y->dtype == TG_BF16 && x->shape[0] > TGI_WIDE_BF16_ROWS;
}

static inline bool tgi_quantised_has_few_blocks(const tg_tensor *x, const tg_tensor *y)
{
  const int64_t groups = (y->shape[1] + TGI_WIDE_OUTPUTS - 1) / TGI_WIDE_OUTPUTS;
  const int64_t strips = (x->shape[0] + 31) / 32;
  return x->shape[0] > TGI_FEW_ROWS && groups < TGI_WIDE_BLOCKS && strips < TGI_WIDE_BLOCKS &&
         groups * strips < TGI_WIDE_BLOCKS;
}

static inline bool tgi_quantised_has_no_vectors(const tg_tensor *x, const tg_tensor *weight)
{
  return x->shape[1] % 8 != 0 || !tgi_any_rows_begin_at(x, 16) || (uintptr_t)weight->data % 16 != 0;
}

static inline bool tgi_quantised_is_large(const tg_tensor *x, const tg_tensor *y)
{
  return x->shape[0] > TGI_WIDE_MOST || x->shape[1] > TGI_WIDE_MOST || y->shape[1] > TGI_WIDE_MOST;
}

/** The rules as functions of an op's args struct where `applies`, a condition on its fields *a,
 * holds. */
#define TGI_QUANTISED_RULE(op, name, condition)                                                    \
  static inline bool tgi_##op##_fwd_##name(const void *args)                                       \
  {                                                                                                \
    const tg_##op##_fwd_args *a = (const tg_##op##_fwd_args *)args;                                \
    return condition;                                                                              \
  }
#define TGI_QUANTISED_RULES(op, applies)                                                           \
  TGI_QUANTISED_RULE(op, weight_only_f32, (applies) && a->x.dtype == TG_F32)                       \
  TGI_QUANTISED_RULE(op, many_rows, (applies) && tgi_quantised_is_widened(&a->x, &a->y))           \
  TGI_QUANTISED_RULE(op, few_blocks, (applies) && tgi_quantised_has_few_blocks(&a->x, &a->y))      \
  TGI_QUANTISED_RULE(op, no_vectors, (applies) && tgi_quantised_has_no_vectors(&a->x, &a->weight)) \
  TGI_QUANTISED_RULE(op, no_columns, (applies) && a->x.shape[1] == 0)                              \
  TGI_QUANTISED_RULE(op, large_extents, (applies) && tgi_quantised_is_large(&a->x, &a->y))

/** Whether one of them holds that shapes and dtypes alone decide, as they do the workspace, which
 * is sized before there is memory; and whether any of them holds. */
#define TGI_QUANTISED_REFUSED(op, applies)                                                         \
  TGI_QUANTISED_RULE(op, weight_only_elsewhere,                                                    \
                     !(applies) || tgi_##op##_fwd_weight_only_f32(a) ||                            \
                         tgi_##op##_fwd_many_rows(a) || tgi_##op##_fwd_few_blocks(a) ||            \
                         tgi_##op##_fwd_no_columns(a) || tgi_##op##_fwd_large_extents(a))          \
  TGI_QUANTISED_RULE(op, weight_only_refused,                                                      \
                     tgi_##op##_fwd_weight_only_elsewhere(a) || tgi_##op##_fwd_no_vectors(a))

/** The same for a spec; `where` says when they apply. */
#define TGI_QUANTISED_REFUSALS(op, where)                                                          \
  {.entry = "sm90",                                                                                \
   .rule = where "x in f32",                                                                       \
   .reason = "the products are of 16-bit x",                                                       \
   .holds = tgi_##op##_fwd_weight_only_f32},                                                       \
      {.entry = "sm90",                                                                            \
       .rule = where "more than 192 rows of bf16",                                                 \
       .reason = "of many rows the weight is widened",                                             \
       .holds = tgi_##op##_fwd_many_rows},                                                         \
      {.entry = "sm90",                                                                            \
       .rule = where "17 rows and more in fewer than 44 blocks of 32 rows by 128 outputs",         \
       .reason = "sm80's strips of 32 outputs occupy more of the device",                          \
       .holds = tgi_##op##_fwd_few_blocks},                                                        \
      {.entry = "sm90",                                                                            \
       .rule = where "`in` not a multiple of 8, or a weight or rows of x that do not begin at "    \
                     "multiples of 16 bytes",                                                      \
       .reason = "both are copied in vectors of 16 bytes",                                         \
       .holds = tgi_##op##_fwd_no_vectors},                                                        \
      {.entry = "sm90",                                                                            \
       .rule = where "`in` = 0",                                                                   \
       .reason = "there is nothing to multiply",                                                   \
       .holds = tgi_##op##_fwd_no_columns},                                                        \
  {                                                                                                \
    .entry = "sm90", .rule = where "extents above 2^29", .reason = "indices of blocks are 32-bit", \
    .holds = tgi_##op##_fwd_large_extents, .no_case = true                                         \
  }

#endif

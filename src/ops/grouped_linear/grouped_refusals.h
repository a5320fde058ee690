/** What Hopper's kernels of grouped_linear and moe_mlp decline; sm80 runs those calls. The kernels
 * go by these functions themselves, and the specs list them. */
#ifndef TGI_OPS_GROUPED_REFUSALS_H
#define TGI_OPS_GROUPED_REFUSALS_H

#include "cuda/gemm/gemm_problem.h"
#include "ops/kernels.h"
#include "ops/refusal_rules.h"

/* ---- rules of tensors ---- */

static inline bool tgi_is_f32(const tg_tensor *t)
{
  return tgi_present(t) && t->dtype == TG_F32;
}

/** Whether rows begin between vectors of 16 bytes. */
static inline bool tgi_has_no_vectors(const tg_tensor *t)
{
  return tgi_present(t) && !tgi_rows_begin_at(t, 16);
}

/** Likewise of rows that a caller may have fewer or more of. */
static inline bool tgi_has_no_vectors_in_rows(const tg_tensor *t)
{
  return tgi_present(t) && !tgi_any_rows_begin_at(t, 16);
}

/** Whether rows of `columns` elements, which all products along them have, end between vectors. */
static inline bool tgi_is_ragged(int64_t columns)
{
  return columns % 8 != 0;
}

/* ---- grouped_linear ---- */

static inline bool tgi_grouped_fwd_has_f32(const void *args)
{
  const tg_grouped_linear_fwd_args *a = (const tg_grouped_linear_fwd_args *)args;
  return tgi_is_f32(&a->x) || tgi_is_f32(&a->weight) || tgi_is_f32(&a->y);
}

static inline bool tgi_grouped_fwd_has_no_vectors(const void *args)
{
  const tg_grouped_linear_fwd_args *a = (const tg_grouped_linear_fwd_args *)args;
  return tgi_is_ragged(a->x.shape[1]) || tgi_is_ragged(a->y.shape[1]) ||
         tgi_has_no_vectors_in_rows(&a->x) || tgi_has_no_vectors(&a->weight) ||
         tgi_has_no_vectors_in_rows(&a->y) || tgi_has_no_vectors_in_rows(&a->preactivation);
}

static inline bool tgi_grouped_fwd_is_empty(const void *args)
{
  return ((const tg_grouped_linear_fwd_args *)args)->x.shape[1] == 0;
}

static inline bool tgi_grouped_fwd_has_many(const void *args)
{
  const tg_grouped_linear_fwd_args *a = (const tg_grouped_linear_fwd_args *)args;
  return a->weight.shape[0] > TGI_GEMM_MOST_GROUPS;
}

static inline bool tgi_grouped_fwd_refused(const tg_grouped_linear_fwd_args *a)
{
  return tgi_grouped_fwd_has_f32(a) || tgi_grouped_fwd_has_no_vectors(a) ||
         tgi_grouped_fwd_is_empty(a) || tgi_grouped_fwd_has_many(a);
}

static inline bool tgi_grouped_bwd_has_f32(const void *args)
{
  const tg_grouped_linear_bwd_args *a = (const tg_grouped_linear_bwd_args *)args;
  return tgi_is_f32(&a->x) || tgi_is_f32(&a->weight) || tgi_is_f32(&a->dy);
}

static inline bool tgi_grouped_bwd_has_no_vectors(const void *args)
{
  const tg_grouped_linear_bwd_args *a = (const tg_grouped_linear_bwd_args *)args;
  return tgi_is_ragged(a->x.shape[1]) || tgi_is_ragged(a->dy.shape[1]) ||
         tgi_has_no_vectors_in_rows(&a->x) || tgi_has_no_vectors(&a->weight) ||
         tgi_has_no_vectors_in_rows(&a->dy) || tgi_has_no_vectors_in_rows(&a->dx) ||
         tgi_has_no_vectors(&a->dweight);
}

static inline bool tgi_grouped_bwd_is_empty(const void *args)
{
  const tg_grouped_linear_bwd_args *a = (const tg_grouped_linear_bwd_args *)args;
  return a->dy.shape[0] == 0 || a->dy.shape[1] == 0 || a->x.shape[1] == 0;
}

static inline bool tgi_grouped_bwd_has_many(const void *args)
{
  const tg_grouped_linear_bwd_args *a = (const tg_grouped_linear_bwd_args *)args;
  return a->weight.shape[0] > TGI_GEMM_MOST_GROUPS;
}

static inline bool tgi_grouped_bwd_refused(const tg_grouped_linear_bwd_args *a)
{
  return tgi_grouped_bwd_has_f32(a) || tgi_grouped_bwd_has_no_vectors(a) ||
         tgi_grouped_bwd_is_empty(a) || tgi_grouped_bwd_has_many(a);
}

/* ---- moe_mlp ---- */

static inline bool tgi_experts_fwd_has_f32(const void *args)
{
  const tg_moe_mlp_fwd_args *a = (const tg_moe_mlp_fwd_args *)args;
  return tgi_is_f32(&a->x) || tgi_is_f32(&a->gate_up);
}

static inline bool tgi_experts_fwd_has_no_vectors(const void *args)
{
  const tg_moe_mlp_fwd_args *a = (const tg_moe_mlp_fwd_args *)args;
  return tgi_is_ragged(a->x.shape[1]) || tgi_is_ragged(a->down.shape[a->in_first ? 1 : 2]) ||
         tgi_has_no_vectors_in_rows(&a->x) || tgi_has_no_vectors(&a->gate_up) ||
         tgi_has_no_vectors(&a->down) || tgi_has_no_vectors_in_rows(&a->preactivation);
}

static inline bool tgi_experts_fwd_is_empty(const void *args)
{
  const tg_moe_mlp_fwd_args *a = (const tg_moe_mlp_fwd_args *)args;
  return a->x.shape[1] == 0 || tgi_numel(&a->down) == 0;
}

static inline bool tgi_experts_fwd_has_many(const void *args)
{
  return ((const tg_moe_mlp_fwd_args *)args)->gate_up.shape[0] > TGI_GEMM_MOST_GROUPS;
}

static inline bool tgi_experts_fwd_refused(const tg_moe_mlp_fwd_args *a)
{
  return tgi_experts_fwd_has_f32(a) || tgi_experts_fwd_has_no_vectors(a) ||
         tgi_experts_fwd_is_empty(a) || tgi_experts_fwd_has_many(a);
}

static inline bool tgi_experts_bwd_has_f32(const void *args)
{
  const tg_moe_mlp_bwd_args *a = (const tg_moe_mlp_bwd_args *)args;
  return tgi_is_f32(&a->x) || tgi_is_f32(&a->gate_up);
}

static inline bool tgi_experts_bwd_has_no_vectors(const void *args)
{
  const tg_moe_mlp_bwd_args *a = (const tg_moe_mlp_bwd_args *)args;
  return tgi_is_ragged(a->x.shape[1]) || tgi_is_ragged(a->preactivation.shape[1] / 2) ||
         tgi_has_no_vectors_in_rows(&a->dy) || tgi_has_no_vectors_in_rows(&a->x) ||
         tgi_has_no_vectors(&a->gate_up) || tgi_has_no_vectors(&a->down) ||
         tgi_has_no_vectors(&a->dgate_up) || tgi_has_no_vectors(&a->ddown) ||
         tgi_has_no_vectors_in_rows(&a->dpreactivation);
}

static inline bool tgi_experts_bwd_is_empty(const void *args)
{
  const tg_moe_mlp_bwd_args *a = (const tg_moe_mlp_bwd_args *)args;
  return a->slot.shape[0] == 0 || a->x.shape[1] == 0 || a->preactivation.shape[1] == 0;
}

static inline bool tgi_experts_bwd_has_many(const void *args)
{
  return ((const tg_moe_mlp_bwd_args *)args)->gate_up.shape[0] > TGI_GEMM_MOST_GROUPS;
}

/** Whether no gradient is asked for but ddown_bias. */
static inline bool tgi_experts_bwd_has_no_product(const void *args)
{
  const tg_moe_mlp_bwd_args *a = (const tg_moe_mlp_bwd_args *)args;
  return !tgi_present(&a->dx) && !tgi_present(&a->dweights) && !tgi_present(&a->dgate_up) &&
         !tgi_present(&a->dgate_up_bias) && !tgi_present(&a->ddown) &&
         !tgi_present(&a->dpreactivation);
}

static inline bool tgi_experts_bwd_refused(const tg_moe_mlp_bwd_args *a)
{
  return tgi_experts_bwd_has_f32(a) || tgi_experts_bwd_has_no_vectors(a) ||
         tgi_experts_bwd_is_empty(a) || tgi_experts_bwd_has_many(a) ||
         tgi_experts_bwd_has_no_product(a);
}

/** The specs' lists. */
#define TGI_GROUPED_REFUSALS(of)                                                                   \
  {.entry = "sm90",                                                                                \
   .rule = "f32, other than biases and gradients of parameters",                                   \
   .reason = "the tiles are for 16-bit operands and results",                                      \
   .holds = tgi_##of##_has_f32},                                                                   \
      {.entry = "sm90",                                                                            \
       .rule = "rows whose start or size is not a multiple of 16 bytes",                           \
       .reason = "tiles are copied by TMA, in vectors of 16 bytes",                                \
       .holds = tgi_##of##_has_no_vectors},                                                        \
      {.entry = "sm90",                                                                            \
       .rule = "nothing to multiply",                                                              \
       .reason = "TMA knows no empty tensors",                                                     \
       .holds = tgi_##of##_is_empty},                                                              \
  {                                                                                                \
    .entry = "sm90", .rule = "more than 1024 experts",                                             \
    .reason = "where their rows end lies in shared memory beside the tiles",                       \
    .holds = tgi_##of##_has_many, .no_case = true                                                  \
  }

#endif

/** Facts that both directions of 4-bit quantisation check: group_size, scale, zero_point. */
#ifndef TGI_OPS_GROUP_RULES_H
#define TGI_OPS_GROUP_RULES_H

#include "core/checks.h"

static inline void tgi_want_group_size(tgi_call *call, int64_t group_size)
{
  if (group_size != 32 && group_size != 64 && group_size != 128) {
    tgi_fail(call, TG_BAD_ARGUMENT, "group_size", "expected 32, 64 or 128, got %lld",
             (long long)group_size);
  }
}

static inline int64_t tgi_groups_of(int64_t cols, int64_t group_size)
{
  return (cols + group_size - 1) / group_size;
}

/** scale and zero_point of args have an element for each group of columns. */
#define TGI_WANT_GROUPS(call, args, rows, cols)                                                    \
  do {                                                                                             \
    if ((call)->status == TG_OK) { /* the group size is one */                                     \
      const int64_t groups = tgi_groups_of(cols, (args)->group_size);                              \
      TGI_WANT_SHAPE(call, args, scale, rows, groups);                                             \
      TGI_WANT_DTYPE(call, args, scale, TGI_BIT_F32 | TG_DTYPE_BIT(TG_F16));                       \
      TGI_WANT_SHAPE(call, args, zero_point, rows, groups);                                        \
    }                                                                                              \
  } while (0)

#endif

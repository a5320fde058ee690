/** Facts that the calls of grouped linear layers share, whatever their weights are: experts,
 * offsets, slots, and an activation with its input. */
#ifndef TGI_OPS_GROUPED_CHECKS_H
#define TGI_OPS_GROUPED_CHECKS_H

#include "ops/grouped_linear/grouped_rows.h"
#include "ops/shared/gated/gated_choice.h"

/** `counted` is the argument that says how many experts there are. */
static inline void want_groups(tgi_call *call, const grouped_rows *g, const char *counted)
{
  if (g->experts < 1 || g->experts >= INT32_MAX) {
    tgi_fail(call, TG_BAD_SHAPE, counted, "expected 1 to 2^31 - 2 experts, got %lld",
             (long long)g->experts);
  }
  tgi_want_shape(call, "offsets", g->offsets, 1, (const int64_t[]){g->experts + 1});
  if (g->rows > INT32_MAX) {
    tgi_fail(call, TG_BAD_SHAPE, "offsets", "expected fewer than 2^31 rows, got %lld",
             (long long)g->rows);
  }
  if (!tgi_present(g->slot)) {
    tgi_want_range(call, "slots_per_row", g->slots_per_row, 0, 0);
    return;
  }
  tgi_want_range(call, "slots_per_row", g->slots_per_row, 1, INT32_MAX);
  if (g->slots_per_row > 0 && g->x_rows > INT32_MAX / g->slots_per_row) {
    tgi_fail(call, TG_BAD_SHAPE, "x", "expected fewer than 2^31 slots, got %lld rows of %lld",
             (long long)g->x_rows, (long long)g->slots_per_row);
  }
}

/** An activation halves y's columns; what comes before it is a result only beside one. */
static inline void want_activation(tgi_call *call, tgi_gated_choice c,
                                   const tg_tensor *preactivation)
{
  tgi_want_gated_choice(call, c, TG_GATED_NONE);
  if (c.activation == TG_GATED_NONE && tgi_present(preactivation)) {
    tgi_fail(call, TG_BAD_ARGUMENT, "preactivation",
             "expected none without an activation, got a tensor");
  }
}

#endif

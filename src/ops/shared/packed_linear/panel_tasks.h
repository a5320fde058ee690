/** How a product with a packed weight is cut: tasks of some rows of x by some panels of W. */
#ifndef TGI_OPS_PANEL_TASKS_H
#define TGI_OPS_PANEL_TASKS_H

#include "core/values/packed_weight.h"

typedef struct tgi_panel_tasks {
  int64_t rows, panels;           /* in all */
  int64_t task_rows, task_panels; /* of a task; the last ones have fewer */
} tgi_panel_tasks;

/** From sizes alone. A task reads about 64 KB of W for each of its rows, and rereads its panels,
 * one at a time, from the L2 cache. */
static inline tgi_panel_tasks tgi_panel_tasks_of(int64_t rows, int64_t out, int64_t task_rows,
                                                 int64_t panel_bytes)
{
  return (tgi_panel_tasks){rows, tgi_panel_count(out), task_rows,
                           1 + (64 << 10) / (1 + panel_bytes)};
}

static inline int64_t tgi_panel_task_count(const tgi_panel_tasks *t)
{
  return tgi_divide_up(t->panels, t->task_panels) * tgi_divide_up(t->rows, t->task_rows);
}

/** Rows [i0, i1) of x by panels [p0, p1). */
typedef struct tgi_panel_task {
  int64_t i0, i1, p0, p1;
} tgi_panel_task;

static inline tgi_panel_task tgi_panel_task_at(const tgi_panel_tasks *t, int64_t index)
{
  const int64_t across = tgi_divide_up(t->panels, t->task_panels);
  const int64_t i0 = index / across * t->task_rows, p0 = index % across * t->task_panels;
  const int64_t i1 = i0 + t->task_rows, p1 = p0 + t->task_panels;
  return (tgi_panel_task){i0, i1 < t->rows ? i1 : t->rows, p0, p1 < t->panels ? p1 : t->panels};
}

#endif

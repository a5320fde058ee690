/* Recorded passes over rows. A pass makes the same calls with the same addresses whenever its rows
 * have tables of the same widths, in the same numbers: those are a graph's name. The first pass of
 * a name runs op by op, so that everything that it needs is loaded; the second one is recorded. */
#include "engine_state.h"

#include "tegula/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_of(const tgi_row_graph *g, const tg_engine *e)
{
  bool same = g->num_groups == e->pages.num_groups;
  for (int i = 0; i < g->num_groups && same; i++) {
    same = g->count[i] == e->group[i].count && g->width[i] == e->group[i].block_table.shape[1];
  }
  return same;
}

/* The pass's graph, or the one that has to make room for it: then *found is false. */
static tgi_row_graph *find(tg_engine *e, bool *found)
{
  tgi_row_graph *oldest = e->graph;
  for (tgi_row_graph *g = e->graph; g < e->graph + TGI_ROW_GRAPHS; g++) {
    if (is_of(g, e)) {
      *found = true;
      return g;
    }
    oldest = g->num_groups == 0 || g->used < oldest->used ? g : oldest;
    if (g->num_groups == 0) {
      break;
    }
  }
  *found = false;
  return oldest;
}

static void name(tgi_row_graph *g, const tg_engine *e)
{
  *g = (tgi_row_graph){.num_groups = e->pages.num_groups, .used = e->num_steps};
  for (int i = 0; i < g->num_groups; i++) {
    g->count[i] = (int32_t)e->group[i].count;
    g->width[i] = (int32_t)e->group[i].block_table.shape[1];
  }
}

static tg_status run_pass(void *pass)
{
  return tgi_transformer_forward(pass);
}

tg_status tgi_engine_run_recorded(tg_engine *e, tgi_pass *pass)
{
  bool found = false;
  if (!e->records || !e->graph || e->pages.num_groups > TGI_GRAPH_GROUPS) {
    return tgi_transformer_forward(pass);
  }
  tgi_row_graph *g = find(e, &found);
  if (!found) {
    tg_graph_destroy(e->ctx, g->graph);
    name(g, e);
    return tgi_transformer_forward(pass);
  }
  g->used = e->num_steps;
  if (!g->graph && tg_graph_record(e->ctx, run_pass, pass, &g->graph) != TG_OK) {
    e->records = false;
    snprintf(e->steps, sizeof e->steps, "op by op: %s", tg_context_message(e->ctx));
    return tgi_transformer_forward(pass);
  }
  return tg_graph_launch(e->ctx, g->graph);
}

void tgi_engine_free_graphs(tg_engine *e)
{
  for (int i = 0; e->graph && i < TGI_ROW_GRAPHS; i++) {
    tg_graph_destroy(e->ctx, e->graph[i].graph);
  }
  free(e->graph);
}

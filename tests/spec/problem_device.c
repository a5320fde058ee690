#include "problem_device.h"
#include "problem_call.h"

#include "core/device_state.h"
#include <stdlib.h>

/* The host addresses of the views while the args hold those of the device. */
typedef struct moved {
  void *host[PROBLEM_MAX_VIEWS];
  void *copy[PROBLEM_MAX_VIEWS]; /* of each block that is not another's */
  void *workspace;
} moved;

static tg_status copy(tg_context *ctx, void *to, const void *from, size_t bytes)
{
  return tgi_device_copy(ctx, to, bytes, from, bytes, bytes, 1);
}

static tg_status copy_in(problem *p, tg_context *ctx, const unsigned char *workspace, size_t total,
                         moved *m)
{
  tg_status status = tgi_device_allocate(ctx, total, &m->workspace);
  if (status == TG_OK) {
    status = copy(ctx, m->workspace, workspace, total);
  }
  for (int v = 0; v < p->num_views && status == TG_OK; v++) {
    if (p->block[v].shared_with < 0) {
      status = tgi_device_allocate(ctx, p->block[v].bytes, &m->copy[v]);
    }
    if (status == TG_OK && m->copy[v]) {
      status = copy(ctx, m->copy[v], p->block[v].base, p->block[v].bytes);
    }
  }
  for (int v = 0; v < p->num_views; v++) {
    const int owner = p->block[v].shared_with < 0 ? v : p->block[v].shared_with;
    m->host[v] = p->view[v].tensor->data;
    p->view[v].tensor->data =
        (char *)m->copy[owner] + ((unsigned char *)m->host[v] - p->block[owner].base);
  }
  return status;
}

static tg_status copy_out(problem *p, tg_context *ctx, unsigned char *workspace, size_t total,
                          moved *m)
{
  tg_status status = copy(ctx, workspace, m->workspace, total);
  for (int v = 0; v < p->num_views; v++) {
    p->view[v].tensor->data = m->host[v];
    if (status == TG_OK && m->copy[v]) {
      status = copy(ctx, p->block[v].base, m->copy[v], p->block[v].bytes);
    }
    tgi_device_free(ctx, m->copy[v]);
  }
  tgi_device_free(ctx, m->workspace);
  return status;
}

static tg_status record_and_launch(problem *p, tg_context *ctx)
{
  void *graph = NULL;
  tg_status status = tgi_device_record_begin(ctx);
  if (status != TG_OK) {
    return status;
  }
  status = problem_call(p, ctx);
  const tg_status ended = tgi_device_record_end(ctx, &graph);
  if (status == TG_OK) {
    status = ended;
  }
  if (status == TG_OK) {
    status = tgi_device_graph_launch(ctx, graph);
  }
  if (status == TG_OK) {
    status = tgi_device_wait(ctx);
  }
  tgi_device_graph_destroy(graph);
  return status;
}

tg_status problem_run_on_device(problem *p, tg_context *ctx, unsigned char *workspace, size_t total)
{
  moved m = {0};
  tg_status status = copy_in(p, ctx, workspace, total, &m);
  problem_set_workspace(p, (char *)m.workspace + PROBLEM_GUARD_BYTES,
                        total - 2 * PROBLEM_GUARD_BYTES);
  if (status == TG_OK) {
    status = ctx->device->stream ? record_and_launch(p, ctx) : problem_call(p, ctx);
  }
  if (status == TG_OK) {
    status = tg_context_check(ctx);
  }
  const tg_status copied = copy_out(p, ctx, workspace, total, &m);
  return status == TG_OK ? copied : status;
}

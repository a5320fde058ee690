/* CUDA graphs. A tg_graph is the device's graph handle. */
#include "core/device_state.h"

/* Keeps the message of a failed body, even if ending the capture fails too. */
static tg_status record(const tg_context *ctx, tg_graph_body *body, void *arg, void **graph)
{
  tg_status status = tgi_device_record_begin(ctx);
  if (status != TG_OK) {
    return status;
  }
  status = body(arg);
  const tgi_message said = *ctx->message;
  const tg_status ended = tgi_device_record_end(ctx, graph);
  if (status == TG_OK) {
    return ended;
  }
  tgi_device_graph_destroy(*graph);
  *graph = NULL;
  *ctx->message = said;
  return status;
}

tg_status tg_graph_record(tg_context *ctx, tg_graph_body *body, void *arg, tg_graph **out)
{
  if (!ctx || !out) {
    return TG_BAD_ARGUMENT;
  }
  *out = NULL;
  if (!body) {
    return tgi_report(ctx, TG_BAD_ARGUMENT, "graph_record: body: expected a function, got NULL");
  }
  if (!ctx->device) {
    return tgi_report(ctx, TG_UNSUPPORTED,
                      "graph_record: ctx: expected a context on a GPU, got one without");
  }
  int previous;
  void *graph = NULL;
  tg_status status = tgi_device_enter(ctx, &previous);
  if (status == TG_OK) {
    status = record(ctx, body, arg, &graph);
  }
  tgi_device_leave(ctx, previous);
  *out = graph;
  return status;
}

tg_status tg_graph_launch(tg_context *ctx, const tg_graph *graph)
{
  if (!ctx || !graph || !ctx->device) {
    return ctx ? tgi_report(ctx, TG_BAD_ARGUMENT,
                            "graph_launch: graph: expected one that was recorded, got NULL")
               : TG_BAD_ARGUMENT;
  }
  int previous;
  tg_status status = tgi_device_enter(ctx, &previous);
  if (status == TG_OK) {
    status = tgi_device_graph_launch(ctx, (void *)(uintptr_t)graph);
  }
  tgi_device_leave(ctx, previous);
  return status;
}

void tg_graph_destroy(tg_context *ctx, tg_graph *graph)
{
  int previous;
  if (ctx && graph && tgi_device_enter(ctx, &previous) == TG_OK) {
    tgi_device_graph_destroy(graph);
    tgi_device_leave(ctx, previous);
  }
}

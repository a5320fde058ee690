/* The call of a problem, held against what the spec lists as declined. */
#include "problem_call.h"

#include "core/device_state.h"
#include "core/tensor_view.h"
#include "ops/kernels.h"
#include <stdlib.h>
#include <string.h>

bool problem_has_kernel(const tgi_kernel_table *table, const char *op_dir)
{
#define OP(op, dir, ws)                                                                            \
  if (strcmp(op_dir, #op "_" #dir) == 0) {                                                         \
    return table->op##_##dir.run != NULL;                                                          \
  }
#include "ops/ops.def"
  return false;
}

unsigned problem_refusals(const problem *p)
{
  unsigned met = 0, bit = 1;
  for (const spec_refusal *r = p->spec->refuses; r && r->entry; r++, bit <<= 1) {
    met |= r->holds(p->shaped.args.bytes) ? bit : 0;
  }
  return met;
}

/* The first rule of the spec by which the entry declines the call, or NULL. */
static const spec_refusal *find_rule(const spec *s, const char *entry, const void *args)
{
  for (const spec_refusal *r = s->refuses; r && r->entry; r++) {
    if (strcmp(r->entry, entry) == 0 && r->holds(args)) {
      return r;
    }
  }
  return NULL;
}

/* A call with nothing to write returns OK before any kernel sees it. */
static bool writes_nothing(const problem *p)
{
  for (int v = 0; v < p->num_views; v++) {
    if (p->view[v].slot->role != TG_ROLE_IN && tgi_numel(p->view[v].tensor) == 0) {
      return true;
    }
  }
  return false;
}

/* The first entry alone: UNSUPPORTED then says that this entry declines the call. */
static tg_status call_first_entry(problem *p, tg_context *ctx)
{
  const int length = ctx->chain.length;
  ctx->chain.length = 1;
  const tg_status status = p->shaped.info->run(ctx, p->shaped.args.bytes);
  ctx->chain.length = length;
  return status;
}

tg_status problem_call(problem *p, tg_context *ctx)
{
  const tg_op_info *info = p->shaped.info;
  const void *args = p->shaped.args.bytes;
  const char *entry = ctx->chain.entry[0];
  const bool has_kernel = problem_has_kernel(ctx->chain.table[0], info->name);
  p->entry = has_kernel || ctx->chain.length == 1 ? entry : ctx->chain.entry[1];
  if (ctx->chain.length == 1 || !has_kernel) {
    return info->run(ctx, args);
  }
  const spec_refusal *rule = find_rule(p->spec, entry, args);
  const tg_status status = call_first_entry(p, ctx);
  p->entry = status == TG_UNSUPPORTED ? ctx->chain.entry[1] : entry;
  if (status == TG_UNSUPPORTED && rule) {
    return info->run(ctx, args);
  }
  if (status == TG_UNSUPPORTED) {
    return tgi_report(ctx, status, "%s declines the call: expected a rule in the spec's `refuses`",
                      entry);
  }
  if (status == TG_OK && rule && !writes_nothing(p)) {
    return tgi_report(ctx, TG_BAD_ARGUMENT, "%s runs the call: expected it declined by \"%s\"",
                      entry, rule->rule);
  }
  return status;
}

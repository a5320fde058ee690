/* Expansions of ops.def that are not tied to one entry: the public op table, and dispatch along the
 * chain. */
#include "core/device_state.h"
#include "ops/chain.h"

#include <stdio.h>
#include <string.h>

/* ---- the public op table ---- */

#define OP(op, dir, ws)                                                                            \
  static tg_status op##_##dir##_run(tg_context *ctx, const void *args)                             \
  {                                                                                                \
    return tg_##op##_##dir(ctx, args);                                                             \
  }                                                                                                \
  static tg_status op##_##dir##_workspace(const tg_context *ctx, const void *args, size_t *bytes)  \
  {                                                                                                \
    return tg_##op##_##dir##_workspace(ctx, args, bytes);                                          \
  }
#include "ops/ops.def"

/* The words of ops.def. */
#define IN TG_ROLE_IN
#define OUT TG_ROLE_OUT
#define ACC TG_ROLE_ACC
#define INOUT TG_ROLE_INOUT
#define FLOATS TGI_BITS_FLOATS
#define F32 TGI_BIT_F32
#define I32 TG_DTYPE_BIT(TG_I32)
#define I64 TG_DTYPE_BIT(TG_I64)
#define INTS TGI_BITS_INTS
#define I8 TG_DTYPE_BIT(TG_I8)
#define U8 TG_DTYPE_BIT(TG_U8)
#define F8_E4M3 TG_DTYPE_BIT(TG_F8_E4M3)
#define DENSE TG_LAYOUT_DENSE
#define ROWS TG_LAYOUT_ROWS

/* A function per block gives each a scope in which args_type names its struct. */
#define OP(op, dir, ws)                                                                            \
  const tg_op_info *tgi_##op##_##dir##_info(void)                                                  \
  {                                                                                                \
    typedef tg_##op##_##dir##_args args_type;                                                      \
    static const tg_slot_info slots[] = {
#define SLOT(name, kind, role, layout, ndim, dtypes, optional, alias)                              \
  {#name,    kind,  (tg_slot_role)(role),     layout, ndim, dtypes,                                \
   optional, alias, offsetof(args_type, name)},
#define PLAIN(name, kind) SLOT(name, kind, 0, TG_LAYOUT_NONE, 0, 0, false, NULL)
#define TENSOR(name, role, dtypes, ndim, layout)                                                   \
  SLOT(name, TG_KIND_TENSOR, role, layout, ndim, dtypes, false, NULL)
#define OPTIONAL(name, role, dtypes, ndim, layout)                                                 \
  SLOT(name, TG_KIND_TENSOR, role, layout, ndim, dtypes, true, NULL)
#define ALIASING(name, role, dtypes, ndim, layout, input)                                          \
  SLOT(name, TG_KIND_TENSOR, role, layout, ndim, dtypes, false, #input)
#define OPTIONAL_ALIASING(name, role, dtypes, ndim, layout, input)                                 \
  SLOT(name, TG_KIND_TENSOR, role, layout, ndim, dtypes, true, #input)
#define LIST(name, role, dtypes)                                                                   \
  SLOT(name, TG_KIND_TENSOR_LIST, role, TG_LAYOUT_DENSE, 0, dtypes, false, NULL)
#define OPTIONAL_LIST(name, role, dtypes)                                                          \
  SLOT(name, TG_KIND_TENSOR_LIST, role, TG_LAYOUT_DENSE, 0, dtypes, true, NULL)
#define SCALAR(name, kind) PLAIN(name, TG_KIND_##kind)
#define WORKSPACE() PLAIN(workspace, TG_KIND_WORKSPACE) PLAIN(workspace_bytes, TG_KIND_SIZE)
#define END(op, dir)                                                                               \
  }                                                                                                \
  ;                                                                                                \
  static const tg_op_info info = {#op,                                                             \
                                  #dir,                                                            \
                                  #op "_" #dir,                                                    \
                                  sizeof(args_type),                                               \
                                  sizeof slots / sizeof slots[0],                                  \
                                  slots,                                                           \
                                  op##_##dir##_run,                                                \
                                  op##_##dir##_workspace};                                         \
  return &info;                                                                                    \
  }
#include "ops/ops.def"

typedef const tg_op_info *row_info(void);

static row_info *const rows[] = {
#define OP(op, dir, ws) tgi_##op##_##dir##_info,
#include "ops/ops.def"
};

size_t tg_op_count(void)
{
  return sizeof rows / sizeof rows[0];
}

const tg_op_info *tg_op_at(size_t index)
{
  return index < tg_op_count() ? rows[index]() : NULL;
}

const tg_op_info *tg_op_find(const char *name)
{
  for (size_t i = 0; name && i < tg_op_count(); i++) {
    if (strcmp(rows[i]()->name, name) == 0) {
      return rows[i]();
    }
  }
  return NULL;
}

/* ---- the public functions ---- */

/* Workspaces are told in multiples of what they are aligned to. */
static size_t rounded_up(size_t bytes)
{
  return (bytes + 255) / 256 * 256;
}

static tg_status nobody_takes(tgi_call *call)
{
  tgi_fail(call, TG_UNSUPPORTED, "args",
           "expected a case that the backend takes, got one that none of its kernels does");
  return TG_UNSUPPORTED;
}

#define WANT_workspace(call, args, bytes)                                                          \
  tgi_want_workspace(call, (args)->workspace, (args)->workspace_bytes, bytes)
#define WANT_no_workspace(call, args, bytes) ((void)0)

#define OP(op, dir, ws)                                                                            \
  static tgi_call begin_##op##_##dir(const tg_context *ctx, const tg_##op##_##dir##_args *args,    \
                                     bool sizing)                                                  \
  {                                                                                                \
    tgi_call call = tgi_call_begin(ctx, tgi_##op##_##dir##_info(), args, sizing);                  \
    if (call.status == TG_OK) {                                                                    \
      tgi_##op##_##dir##_check(&call, args);                                                       \
    }                                                                                              \
    return call;                                                                                   \
  }                                                                                                \
                                                                                                   \
  /* The most that any kernel of the chain may ask for. */                                         \
  static size_t size_##op##_##dir(const tgi_call *call, const tg_##op##_##dir##_args *args)        \
  {                                                                                                \
    size_t most = 0;                                                                               \
    for (int i = 0; call->status == TG_OK && !call->empty && i < call->ctx->chain.length; i++) {   \
      const tgi_##op##_##dir##_kernel *k = &call->ctx->chain.table[i]->op##_##dir;                 \
      const size_t need = k->workspace ? k->workspace(call->ctx, args) : 0;                        \
      most = need > most ? need : most;                                                            \
    }                                                                                              \
    return rounded_up(most);                                                                       \
  }                                                                                                \
                                                                                                   \
  tg_status tg_##op##_##dir##_workspace(const tg_context *ctx, const tg_##op##_##dir##_args *args, \
                                        size_t *bytes)                                             \
  {                                                                                                \
    tgi_call call = begin_##op##_##dir(ctx, args, true);                                           \
    if (!bytes) {                                                                                  \
      tgi_fail(&call, TG_BAD_ARGUMENT, "bytes", "expected a pointer, got NULL");                   \
    } else {                                                                                       \
      *bytes = size_##op##_##dir(&call, args);                                                     \
    }                                                                                              \
    return call.status;                                                                            \
  }                                                                                                \
                                                                                                   \
  tg_status tg_##op##_##dir(tg_context *ctx, const tg_##op##_##dir##_args *args)                   \
  {                                                                                                \
    tgi_call call = begin_##op##_##dir(ctx, args, false);                                          \
    if (call.status == TG_OK) {                                                                    \
      WANT_##ws(&call, args, size_##op##_##dir(&call, args));                                      \
    }                                                                                              \
    if (call.status != TG_OK || call.empty) {                                                      \
      return call.status;                                                                          \
    }                                                                                              \
    int previous;                                                                                  \
    tg_status status = tgi_device_enter(ctx, &previous);                                           \
    if (status != TG_OK) {                                                                         \
      return status;                                                                               \
    }                                                                                              \
    status = TG_UNSUPPORTED;                                                                       \
    for (int i = 0; i < ctx->chain.length && status == TG_UNSUPPORTED; i++) {                      \
      if (ctx->chain.table[i]->op##_##dir.run) {                                                   \
        status = ctx->chain.table[i]->op##_##dir.run(ctx, args);                                   \
      }                                                                                            \
    }                                                                                              \
    tgi_device_leave(ctx, previous);                                                               \
    return status == TG_UNSUPPORTED ? nobody_takes(&call) : status;                                \
  }
#include "ops/ops.def"

/* ---- plans ---- */

/* A plan writes nothing where its kernel does not take the case; the reference has none. */
#define OP(op, dir, ws)                                                                            \
  static bool op##_##dir##_is_empty(const tg_context *ctx, const void *args)                       \
  {                                                                                                \
    return begin_##op##_##dir(ctx, args, true).empty;                                              \
  }                                                                                                \
  static void op##_##dir##_plan(const tgi_kernel_table *table, const tg_context *ctx,              \
                                const void *args, char *text, size_t bytes)                        \
  {                                                                                                \
    if (table->op##_##dir.run && table->op##_##dir.plan) {                                         \
      table->op##_##dir.plan(ctx, args, text, bytes);                                              \
    }                                                                                              \
  }
#include "ops/ops.def"

/* In the order of the op table. */
static const struct {
  bool (*is_empty)(const tg_context *ctx, const void *args);
  void (*plan)(const tgi_kernel_table *table, const tg_context *ctx, const void *args, char *text,
               size_t bytes);
} plans[] = {
#define OP(op, dir, ws) {op##_##dir##_is_empty, op##_##dir##_plan},
#include "ops/ops.def"
};

void tgi_explain_call(const tg_context *ctx, const tg_op_info *info, const void *args, char *text,
                      size_t bytes)
{
  size_t row = 0;
  while (rows[row]() != info) {
    row++;
  }
  text[0] = '\0';
  if (plans[row].is_empty(ctx, args)) {
    snprintf(text, bytes, "nothing to compute");
  }
  for (int i = 0; i < ctx->chain.length && !text[0]; i++) {
    plans[row].plan(ctx->chain.table[i], ctx, args, text, bytes);
  }
  if (!text[0]) {
    snprintf(text, bytes, "plain loops in f64");
  }
}

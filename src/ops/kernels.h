/**
 * The kernel tables: for every entry of a backend's chain (ref, avx512, avx2, generic, ...) one
 * typed struct with the functions of every op, generated from ops.def.
 *
 * A kernel is called after <op>.c has checked the call, so it never meets a bad shape. It returns
 * TG_UNSUPPORTED for a case that it does not take, before it has written anything, and the next
 * entry of the chain gets the call. The last entry takes everything that the contract allows.
 */
#ifndef TGI_OPS_KERNELS_H
#define TGI_OPS_KERNELS_H

#include "core/checks.h"
#include "tegula/tegula.h"

/** Rows of the public op table: tgi_rms_norm_fwd_info(), ... */
#define OP(op, dir, ws) const tg_op_info *tgi_##op##_##dir##_info(void);
#include "ops/ops.def"

/**
 * The three functions of a kernel.
 *   run        computes
 *   workspace  bytes that run needs; NULL: none
 *   plan       writes one line that says how the case would run (shown by `tegula explain`);
 *              nothing: the next entry says it
 */
#define OP(op, dir, ws)                                                                            \
  typedef struct tgi_##op##_##dir##_kernel {                                                       \
    tg_status (*run)(const tg_context *ctx, const tg_##op##_##dir##_args *args);                   \
    size_t (*workspace)(const tg_context *ctx, const tg_##op##_##dir##_args *args);                \
    void (*plan)(const tg_context *ctx, const tg_##op##_##dir##_args *args, char *text,            \
                 size_t bytes);                                                                    \
  } tgi_##op##_##dir##_kernel;
#include "ops/ops.def"

typedef struct tgi_kernel_table {
  const char *entry;
#define OP(op, dir, ws) tgi_##op##_##dir##_kernel op##_##dir;
#include "ops/ops.def"
} tgi_kernel_table;

/** Name of a function of this translation unit's entry: TGI_KERNEL(rms_norm_fwd) and its
 * companions. CPU sources are compiled once per instruction set with TGI_ENTRY set to its name. */
#define TGI_JOIN_(a, b, c) tgi_##a##_##b##_##c
#define TGI_JOIN(a, b, c) TGI_JOIN_(a, b, c)
#define TGI_KERNEL(op_dir) TGI_JOIN(op_dir, run, TGI_ENTRY)
#define TGI_WORKSPACE(op_dir) TGI_JOIN(op_dir, workspace, TGI_ENTRY)
#define TGI_PLAN(op_dir) TGI_JOIN(op_dir, plan, TGI_ENTRY)

/** Numbers of the rows of ops.def: TGI_ROW_rms_norm_fwd, ... */
enum {
#define OP(op, dir, ws) TGI_ROW_##op##_##dir,
#include "ops/ops.def"
  TGI_ROWS
};

/** Prototypes of the entry that this file is compiled for. A partial entry (sm90) has kernels of
 * its own for some ops only: what nobody defines is NULL in its table, and the chain goes on. */
#ifdef TGI_ENTRY_IS_PARTIAL
#define TGI_MAYBE __attribute__((weak))
#else
#define TGI_MAYBE
#endif
#ifdef TGI_ENTRY
#define OP(op, dir, ws)                                                                            \
  tg_status TGI_KERNEL(op##_##dir)(const tg_context *ctx, const tg_##op##_##dir##_args *args)      \
      TGI_MAYBE;                                                                                   \
  size_t TGI_WORKSPACE(op##_##dir)(const tg_context *ctx, const tg_##op##_##dir##_args *args)      \
      TGI_MAYBE;                                                                                   \
  void TGI_PLAN(op##_##dir)(const tg_context *ctx, const tg_##op##_##dir##_args *args, char *text, \
                            size_t bytes) TGI_MAYBE;
#include "ops/ops.def"
#endif

/**
 * The facts about a call that <op>.c states: fails the call with the first that does not hold, and
 * says in call->empty whether there is nothing to compute. The slots have been held against their
 * lines in ops.def before. registry.c makes the public functions of it: check, then run the first
 * kernel of the chain that takes the case, or tell the workspace.
 */
#define OP(op, dir, ws)                                                                            \
  void tgi_##op##_##dir##_check(tgi_call *call, const tg_##op##_##dir##_args *a);
#include "ops/ops.def"

#endif

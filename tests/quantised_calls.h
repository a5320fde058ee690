/** Calls of the products with quantised weights on every entry, and values for them. After
 * cmocka.h. */
#ifndef TEGULA_TESTS_QUANTISED_CALLS_H
#define TEGULA_TESTS_QUANTISED_CALLS_H

#include "every_entry.h"
#include "expect.h"
#include "expect_op.h"
#include "tegula/tegula.h"
#include <stdlib.h>

static inline int setup(void **state)
{
  static every_entry e;
  *state = &e;
  return every_entry_open(&e);
}

static inline int teardown(void **state)
{
  every_entry_close(*state);
  return 0;
}

static inline uint64_t next_bits(uint64_t *s)
{
  *s = *s * 6364136223846793005u + 1442695040888963407u;
  return *s >> 20;
}

/* Nearly normal, variance 1: twelve uniform numbers. */
static inline double next_normal(uint64_t *s)
{
  double sum = -6;
  for (int i = 0; i < 12; i++) {
    sum += (double)(next_bits(s) & 0xffffff) * 0x1p-24;
  }
  return sum;
}

/* A copy on the context's device. */
static inline void *upload(tg_context *ctx, const void *host, size_t bytes)
{
  void *there = NULL;
  must_run(ctx, tg_memory_allocate(ctx, bytes, &there));
  must_run(ctx, tg_memory_copy(ctx, there, bytes, host, bytes, bytes, 1));
  return there;
}

/* Runs any of the ops with a workspace of the size that it asks for. */
static inline void run(tg_context *ctx, const char *name, void *args, void **workspace,
                       size_t *bytes)
{
  const tg_op_info *info = tg_op_find(name);
  must_run(ctx, info->workspace(ctx, args, bytes));
  must_run(ctx, tg_memory_allocate(ctx, *bytes + 64, workspace));
  const tg_status status = info->run(ctx, args);
  tg_memory_free(ctx, *workspace);
  *workspace = NULL;
  must_run(ctx, status);
}

static inline void run_int8(tg_context *ctx, tg_linear_int8_fwd_args *a)
{
  run(ctx, "linear_int8_fwd", a, &a->workspace, &a->workspace_bytes);
}

static inline void run_int4(tg_context *ctx, tg_linear_int4_fwd_args *a)
{
  run(ctx, "linear_int4_fwd", a, &a->workspace, &a->workspace_bytes);
}

static inline void run_fp8(tg_context *ctx, tg_linear_fp8_fwd_args *a)
{
  run(ctx, "linear_fp8_fwd", a, &a->workspace, &a->workspace_bytes);
}

static inline void run_fp8_fp8(tg_context *ctx, tg_linear_fp8_fp8_fwd_args *a)
{
  run(ctx, "linear_fp8_fp8_fwd", a, &a->workspace, &a->workspace_bytes);
}

#endif

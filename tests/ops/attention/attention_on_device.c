/* The device's side of attention_call.h, and the comparison. */
#include "attention_call.h"

#include "core/tensor_view.h"
#include "core/values/half.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "expect_op.h"

/* ---- memory and calls ---- */

void attention_put(attention_on_device *d, int slot, const void *from)
{
  const size_t bytes = attention_block_bytes(d->a, slot);
  if (bytes > 0) {
    must_run(d->ctx, tg_memory_copy(d->ctx, d->block[slot], bytes, from, bytes, bytes, 1));
  }
}

void attention_fetch(attention_on_device *d, int slot, void *to)
{
  const size_t bytes = attention_block_bytes(d->a, slot);
  if (bytes > 0) {
    must_run(d->ctx, tg_memory_copy(d->ctx, to, bytes, d->block[slot], bytes, bytes, 1));
  }
}

static bool is_result(int slot)
{
  return slot == SLOT_OUT || slot == SLOT_LSE || (slot >= SLOT_DQ && slot <= SLOT_DV);
}

void attention_upload(attention_on_device *d, const attention_call *a, tg_context *ctx)
{
  *d = (attention_on_device){.a = a, .ctx = ctx};
  for (int s = 0; s < NUM_SLOTS; s++) {
    const size_t bytes = attention_block_bytes(a, s);
    must_run(ctx, tg_memory_allocate(ctx, bytes, &d->block[s]));
    if (is_result(s)) {
      void *nan = malloc(bytes + 1);
      memset(nan, 0xff, bytes);
      attention_put(d, s, nan);
      free(nan);
    } else {
      attention_put(d, s, a->narrow[s]);
    }
  }
  const tg_attention_fwd_args f = attention_forward_args(a, d->block, false);
  const tg_attention_bwd_args b = attention_backward_args(a, d->block, false);
  size_t forward = 0, backward = 0;
  must_run(ctx, tg_attention_fwd_workspace(ctx, &f, &forward));
  if (a->c.page == 0) {
    must_run(ctx, tg_attention_bwd_workspace(ctx, &b, &backward));
  }
  d->workspace_bytes = forward > backward ? forward : backward;
  must_run(ctx, tg_memory_allocate(ctx, d->workspace_bytes, &d->workspace));
}

void attention_release(attention_on_device *d)
{
  for (int s = 0; s < NUM_SLOTS; s++) {
    tg_memory_free(d->ctx, d->block[s]);
  }
  tg_memory_free(d->ctx, d->workspace);
}

void attention_forward_on(attention_on_device *d)
{
  tg_attention_fwd_args args = attention_forward_args(d->a, d->block, false);
  args.workspace = d->workspace;
  args.workspace_bytes = d->workspace_bytes;
  must_run(d->ctx, tg_attention_fwd(d->ctx, &args));
}

void attention_backward_on(attention_on_device *d)
{
  tg_attention_bwd_args args = attention_backward_args(d->a, d->block, false);
  args.workspace = d->workspace;
  args.workspace_bytes = d->workspace_bytes;
  must_run(d->ctx, tg_attention_bwd(d->ctx, &args));
}

/* ---- comparison ---- */

/*
 * A result is rounded once, and so is each factor of the sum behind it (p, or ds): relative errors
 * of 0.2 units in the last place each, in the mean of squares. A row may have three units, a tensor
 * one. What is nothing but cancellation has an absolute error.
 */
static const double kRowUnits = 3, kTensorUnits = 1, kAbsolute = 3e-5;

static double unit_of(tg_dtype dtype)
{
  return dtype == TG_BF16 ? 0x1p-7 : 0x1p-10; /* f32: what TF32 leaves of it */
}

typedef struct sums {
  double error, want;
  int64_t count;
} sums;

static bool within(sums s, double relative)
{
  return sqrt(s.error) <= relative * sqrt(s.want) + kAbsolute * sqrt((double)s.count);
}

/* Adds the finite elements; false: one is finite on one side alone. */
static bool add_row(sums *s, const void *got, tg_dtype dtype, const float *want, int64_t n)
{
  for (int64_t i = 0; i < n; i++) {
    const double x = tgi_load(got, dtype, i), y = (double)want[i];
    if (isfinite(x) != isfinite(y)) {
      return false;
    }
    if (isfinite(y)) {
      s->error += (x - y) * (x - y);
      s->want += y * y;
      s->count++;
    }
  }
  return true;
}

bool attention_row_agrees(const void *got, tg_dtype dtype, const float *want, int64_t n)
{
  sums row = {0};
  return add_row(&row, got, dtype, want, n) && within(row, kRowUnits * unit_of(dtype));
}

static bool rows_agree(const attention_call *a, const char *what, int slot, const void *got)
{
  const tg_tensor *t = &a->view[slot];
  const int64_t bytes = (int64_t)tg_dtype_bytes(t->dtype);
  const float *want = a->wide[a->owner[slot]];
  sums all = {0};
  for (int64_t b = 0; b < t->shape[0]; b++) {
    for (int64_t i = 0; i < t->shape[1]; i++) {
      for (int64_t h = 0; h < t->shape[2]; h++) {
        const int64_t at = a->offset[slot] + b * t->stride[0] + i * t->stride[1] + h * t->stride[2];
        const char *row = (const char *)got + at * bytes;
        if (!attention_row_agrees(row, t->dtype, want + at, t->shape[3])) {
          fprintf(stderr, "%s[%d,%d,%d]: expected", what, (int)b, (int)i, (int)h);
          for (int64_t c = 0; c < t->shape[3] && c < 4; c++) {
            fprintf(stderr, " %.6g", (double)want[at + c]);
          }
          fprintf(stderr, " .., got");
          for (int64_t c = 0; c < t->shape[3] && c < 4; c++) {
            fprintf(stderr, " %.6g", tgi_load(row, t->dtype, c));
          }
          fprintf(stderr, " ..\n");
          return false;
        }
        add_row(&all, row, t->dtype, want + at, t->shape[3]);
      }
    }
  }
  if (!within(all, kTensorUnits * unit_of(t->dtype))) {
    fprintf(stderr, "%s: expected an error of at most %.2g of its values, got %.2g\n", what,
            kTensorUnits * unit_of(t->dtype), sqrt(all.error / all.want));
    return false;
  }
  return true;
}

/* Numbers of f32: `most` of the larger of 1 and the value. -infinity is a value; what else is not
 * finite may be so in any way. */
static bool numbers_agree(const attention_call *a, const char *what, int slot, const float *got,
                          float most)
{
  const float *want = a->wide[slot];
  for (int64_t i = 0; i < a->elements[slot]; i++) {
    const float x = got[i], y = want[i];
    const bool open = !isfinite(y) && y != -INFINITY && !isfinite(x) && x != -INFINITY;
    if (!open && x != y && !(fabsf(x - y) <= most * fmaxf(1, fabsf(y)))) {
      fprintf(stderr, "%s[%d]: expected %.9g, got %.9g\n", what, (int)i, (double)y, (double)x);
      return false;
    }
  }
  return true;
}

static bool backward_agrees(attention_on_device *d, void *got)
{
  const attention_call *a = d->a;
  static const char *const names[] = {"dq", "dk", "dv"};
  attention_put(d, SLOT_OUT, a->narrow[SLOT_OUT]);
  attention_put(d, SLOT_LSE, a->narrow[SLOT_LSE]);
  attention_backward_on(d);
  must_run(d->ctx, tg_context_check(d->ctx));
  bool agrees = true;
  for (int i = 0; i < 3; i++) {
    attention_fetch(d, a->owner[SLOT_DQ + i], got);
    agrees = rows_agree(a, names[i], SLOT_DQ + i, got) && agrees;
  }
  attention_fetch(d, SLOT_DSINKS, got);
  return (a->c.bad > 0 || numbers_agree(a, "dsinks", SLOT_DSINKS, got, 1e-3f)) && agrees;
}

bool attention_agrees(const attention_call *a, tg_context *ctx)
{
  attention_on_device d;
  size_t most = 1;
  for (int s = 0; s < NUM_SLOTS; s++) {
    most = attention_block_bytes(a, s) > most ? attention_block_bytes(a, s) : most;
  }
  void *got = malloc(most);
  assert_non_null(got);
  attention_upload(&d, a, ctx);
  attention_forward_on(&d);
  must_run(ctx, tg_context_check(ctx));
  attention_fetch(&d, SLOT_OUT, got);
  bool agrees = rows_agree(a, "out", SLOT_OUT, got);
  attention_fetch(&d, SLOT_LSE, got);
  agrees = numbers_agree(a, "lse", SLOT_LSE, got, 2e-5f) && agrees;
  agrees = (a->c.forward_only || backward_agrees(&d, got)) && agrees;
  attention_release(&d);
  free(got);
  if (!agrees) {
    fprintf(stderr, "on %s, ", tg_context_entry(ctx));
    attention_print(&a->c);
  }
  return agrees;
}

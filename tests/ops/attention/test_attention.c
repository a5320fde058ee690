/* Attention where the spec driver cannot reach: parts of packed tensors, and NaN and infinity that
 * must stay where they are seen. Every entry of the chain. */
#include "tegula/tegula.h"

#include "core/tensor_view.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "expect_op.h"

enum { kMaxEntries = 4, kWorkspace = 4 << 20, kElements = 1 << 16 };

typedef struct buffers {
  float q[kElements], k[kElements], v[kElements], out[kElements], lse[kElements];
  float dout[kElements], dq[kElements], dk[kElements], dv[kElements];
} buffers;

typedef struct fixture {
  tg_context *entry[kMaxEntries];
  int num_entries;
  void *workspace;
  buffers clean, other;
} fixture;

static tg_context *context_of(const char *entry)
{
  tg_context *ctx = NULL;
  const tg_context_options o = {.backend = TG_BACKEND_CPU, .num_threads = 2, .entry = entry};
  return tg_context_create(&o, &ctx, NULL) == TG_OK ? ctx : NULL;
}

static int set_up(void **state)
{
  static const char *const names[] = {"avx512", "avx2", "generic"};
  fixture *f = calloc(1, sizeof *f);
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    tg_context *ctx = context_of(names[i]);
    if (ctx) {
      f->entry[f->num_entries++] = ctx;
    }
  }
  f->workspace = aligned_alloc(256, kWorkspace);
  *state = f;
  return 0;
}

static int tear_down(void **state)
{
  fixture *f = *state;
  for (int i = 0; i < f->num_entries; i++) {
    tg_context_destroy(f->entry[i]);
  }
  free(f->workspace);
  free(f);
  return 0;
}

static void fill(float *x, int64_t n, unsigned seed)
{
  for (int64_t i = 0; i < n; i++) {
    seed = seed * 1664525u + 1013904223u;
    x[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
  }
}

static void fill_all(buffers *b)
{
  fill(b->q, kElements, 1);
  fill(b->k, kElements, 2);
  fill(b->v, kElements, 3);
  fill(b->dout, kElements, 4);
}

/* Extents of one call on dense buffers; causal. */
typedef struct extents {
  int64_t batch, nq, keys, heads, kv_heads, dim;
} extents;

static tg_attention_fwd_args forward_of(const fixture *f, buffers *b, extents e)
{
  const int64_t lse[3] = {e.batch, e.heads, e.nq};
  return (tg_attention_fwd_args){
      .q = tg_tensor_4d(b->q, TG_F32, e.batch, e.nq, e.heads, e.dim),
      .k = tg_tensor_4d(b->k, TG_F32, e.batch, e.keys, e.kv_heads, e.dim),
      .v = tg_tensor_4d(b->v, TG_F32, e.batch, e.keys, e.kv_heads, e.dim),
      .out = tg_tensor_4d(b->out, TG_F32, e.batch, e.nq, e.heads, e.dim),
      .lse = tg_tensor_view(b->lse, TG_F32, 3, lse),
      .scale = 0.25f,
      .causal = true,
      .workspace = f->workspace,
      .workspace_bytes = kWorkspace};
}

static tg_attention_bwd_args backward_of(const tg_attention_fwd_args *a, buffers *b)
{
  tg_attention_bwd_args g = {.dout = a->out,
                             .q = a->q,
                             .k = a->k,
                             .v = a->v,
                             .out = a->out,
                             .lse = a->lse,
                             .dq = a->q,
                             .dk = a->k,
                             .dv = a->v,
                             .scale = a->scale,
                             .causal = a->causal,
                             .window = a->window,
                             .workspace = a->workspace,
                             .workspace_bytes = a->workspace_bytes};
  g.dout.data = b->dout;
  g.dq.data = b->dq;
  g.dk.data = b->dk;
  g.dv.data = b->dv;
  return g;
}

/* Element (b, i, h, c) of a view. */
static float *element(const tg_tensor *t, int64_t b, int64_t i, int64_t h, int64_t c)
{
  const int64_t index = b * tgi_stride(t, 0) + i * tgi_stride(t, 1) + h * tgi_stride(t, 2) + c;
  return (float *)t->data + index;
}

static void copy_view(const tg_tensor *to, const tg_tensor *from)
{
  for (int64_t b = 0; b < to->shape[0]; b++) {
    for (int64_t i = 0; i < to->shape[1]; i++) {
      for (int64_t h = 0; h < to->shape[2]; h++) {
        memcpy(element(to, b, i, h, 0), element(from, b, i, h, 0),
               (size_t)to->shape[3] * sizeof(float));
      }
    }
  }
}

static void expect_equal_views(const char *what, const tg_tensor *got, const tg_tensor *want)
{
  for (int64_t b = 0; b < got->shape[0]; b++) {
    for (int64_t i = 0; i < got->shape[1]; i++) {
      for (int64_t h = 0; h < got->shape[2]; h++) {
        for (int64_t c = 0; c < got->shape[3]; c++) {
          const float x = *element(got, b, i, h, c), y = *element(want, b, i, h, c);
          if (memcmp(&x, &y, sizeof x) != 0) {
            fail_msg("%s[%d,%d,%d,%d]: expected %.9g, got %.9g", what, (int)b, (int)i, (int)h,
                     (int)c, (double)y, (double)x);
          }
        }
      }
    }
  }
}

/* A view of `heads` heads from `first` on of rows of `all` heads; sequence first, then batch, if
 * time_major. */
static tg_tensor part(float *base, const tg_tensor *like, int64_t first, int64_t all,
                      bool time_major)
{
  tg_tensor t = *like;
  const int64_t row = all * t.shape[3];
  t.data = base + first * t.shape[3];
  t.stride[0] = time_major ? row : t.shape[1] * row;
  t.stride[1] = time_major ? t.shape[0] * row : row;
  t.stride[2] = t.shape[3];
  t.stride[3] = 1;
  return t;
}

static void test_packed_parts(void **state)
{
  fixture *f = *state;
  const extents e = {2, 70, 70, 4, 2, 24};
  static float packed[2 * 70 * 8 * 24], gradient[2 * 70 * 8 * 24];
  for (int n = 0; n < f->num_entries; n++) {
    for (int time_major = 0; time_major < 2; time_major++) {
      tg_context *ctx = f->entry[n];
      fill_all(&f->clean);
      f->other = f->clean;
      tg_attention_fwd_args a = forward_of(f, &f->clean, e), p = forward_of(f, &f->other, e);
      tg_attention_bwd_args g = backward_of(&a, &f->clean);
      must_run(ctx, tg_attention_fwd(ctx, &a));
      must_run(ctx, tg_attention_bwd(ctx, &g));
      p.q = part(packed, &a.q, 0, 8, time_major);
      p.k = part(packed, &a.k, 4, 8, time_major);
      p.v = part(packed, &a.v, 6, 8, time_major);
      copy_view(&p.q, &a.q);
      copy_view(&p.k, &a.k);
      copy_view(&p.v, &a.v);
      p.allow_tf32 = true; /* a CPU has no use for it */
      must_run(ctx, tg_attention_fwd(ctx, &p));
      expect_equal_views("out", &p.out, &a.out);
      tg_attention_bwd_args h = backward_of(&p, &f->other);
      h.dq = part(gradient, &a.q, 0, 8, time_major);
      h.dk = part(gradient, &a.k, 4, 8, time_major);
      h.dv = part(gradient, &a.v, 6, 8, time_major);
      h.allow_nondeterministic = h.allow_tf32 = true;
      must_run(ctx, tg_attention_bwd(ctx, &h));
      expect_equal_views("dq", &h.dq, &g.dq);
      expect_equal_views("dk", &h.dk, &g.dk);
      expect_equal_views("dv", &h.dv, &g.dv);
    }
  }
}

/* ---- NaN and infinity ---- */

static bool sees(extents e, int64_t window, int64_t i, int64_t j)
{
  const int64_t p = e.keys - e.nq + i;
  return j <= p && (window == 0 || p - j < window);
}

/* Row i of `got` is row i of `want`, or (spoiled) holds nothing finite. */
static void expect_row(const char *what, const tg_tensor *got, const tg_tensor *want, int64_t i,
                       bool spoiled)
{
  for (int64_t h = 0; h < got->shape[2]; h++) {
    for (int64_t c = 0; c < got->shape[3]; c++) {
      const float x = *element(got, 0, i, h, c), y = *element(want, 0, i, h, c);
      if (spoiled ? isfinite(x) : x != y) {
        fail_msg("%s[0,%d,%d,%d]: expected %.9g%s, got %.9g", what, (int)i, (int)h, (int)c,
                 (double)y, spoiled ? " to become NaN" : "", (double)x);
      }
    }
  }
}

static void spoil(const tg_tensor *t, int64_t i, float value)
{
  for (int64_t h = 0; h < t->shape[2]; h++) {
    for (int64_t c = 0; c < t->shape[3]; c++) {
      *element(t, 0, i, h, c) = value;
    }
  }
}

/* A bad key or value reaches the queries that see it, a bad query its own row. */
static void check_forward(fixture *f, tg_context *ctx, extents e, int32_t window, float value)
{
  tg_attention_fwd_args a = forward_of(f, &f->clean, e);
  a.window = window;
  fill_all(&f->clean);
  must_run(ctx, tg_attention_fwd(ctx, &a));
  for (int which = 0; which < 3; which++) {
    const int64_t row = which == 0 ? e.nq / 2 : e.keys / 2;
    f->other = f->clean;
    tg_attention_fwd_args b = forward_of(f, &f->other, e);
    b.window = window;
    const tg_tensor *spoiled = which == 0 ? &b.q : which == 1 ? &b.k : &b.v;
    spoil(spoiled, row, value);
    must_run(ctx, tg_attention_fwd(ctx, &b));
    for (int64_t i = 0; i < e.nq; i++) {
      const bool reached = which == 0 ? i == row : sees(e, window, i, row);
      if (!reached || isnan(value)) { /* an infinite key may have probability 0 or 1 */
        expect_row(which == 2 ? "out, bad value" : "out, bad query or key", &b.out, &a.out, i,
                   reached && sees(e, window, i, i));
      }
    }
  }
}

static void test_bad_numbers_forward(void **state)
{
  fixture *f = *state;
  static const extents cases[] = {{1, 130, 130, 2, 1, 16}, {1, 3, 3, 2, 1, 16}};
  for (int n = 0; n < f->num_entries; n++) {
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
      check_forward(f, f->entry[n], cases[c], 0, NAN);
      check_forward(f, f->entry[n], cases[c], 0, INFINITY);
      check_forward(f, f->entry[n], cases[c], 37, NAN);
    }
  }
}

/* With the clean forward's lse and out: a bad q or dout spoils its dq row and the dk, dv rows that
 * it sees; a bad k or v spoils the dq rows that see it and its own dk or dv row. */
static void check_backward(fixture *f, tg_context *ctx, extents e, int32_t window)
{
  tg_attention_fwd_args a = forward_of(f, &f->clean, e);
  a.window = window;
  fill_all(&f->clean);
  must_run(ctx, tg_attention_fwd(ctx, &a));
  tg_attention_bwd_args g = backward_of(&a, &f->clean);
  must_run(ctx, tg_attention_bwd(ctx, &g));
  for (int which = 0; which < 4; which++) {
    const bool of_query = which < 2;
    const int64_t row = (of_query ? e.nq : e.keys) / 2;
    f->other = f->clean;
    tg_attention_fwd_args b = forward_of(f, &f->other, e);
    b.window = window;
    tg_attention_bwd_args h = backward_of(&b, &f->other);
    const tg_tensor *const spoiled[] = {&h.q, &h.dout, &h.k, &h.v};
    spoil(spoiled[which], row, NAN);
    must_run(ctx, tg_attention_bwd(ctx, &h));
    for (int64_t i = 0; i < e.nq; i++) {
      expect_row("dq", &h.dq, &g.dq, i, of_query ? i == row : sees(e, window, i, row));
    }
    for (int64_t j = 0; j < e.keys; j++) {
      const bool reached = of_query ? sees(e, window, row, j) : j == row;
      expect_row("dk", &h.dk, &g.dk, j, reached);
      expect_row("dv", &h.dv, &g.dv, j, reached && which != 3); /* p needs no values */
    }
  }
}

static void test_bad_numbers_backward(void **state)
{
  fixture *f = *state;
  for (int n = 0; n < f->num_entries; n++) {
    check_backward(f, f->entry[n], (extents){1, 130, 130, 2, 1, 16}, 0);
    check_backward(f, f->entry[n], (extents){1, 130, 130, 2, 1, 16}, 37);
    check_backward(f, f->entry[n], (extents){1, 5, 5, 4, 2, 8}, 0);
  }
}

/* Scores of -infinity only: as if the row saw no key. */
static void test_scores_of_minus_infinity(void **state)
{
  fixture *f = *state;
  const extents e = {1, 20, 20, 1, 1, 8};
  for (int n = 0; n < f->num_entries; n++) {
    tg_attention_fwd_args a = forward_of(f, &f->clean, e);
    fill_all(&f->clean);
    for (int64_t c = 0; c < e.dim; c++) { /* query 0 sees key 0 alone */
      *element(&a.q, 0, 0, 0, c) = 1;
      *element(&a.k, 0, 0, 0, c) = -INFINITY;
    }
    must_run(f->entry[n], tg_attention_fwd(f->entry[n], &a));
    tg_attention_bwd_args g = backward_of(&a, &f->clean);
    must_run(f->entry[n], tg_attention_bwd(f->entry[n], &g));
    assert_true(f->clean.lse[0] == -INFINITY);
    for (int64_t c = 0; c < e.dim; c++) {
      assert_true(f->clean.out[c] == 0);
      assert_true(f->clean.dq[c] == 0);
    }
  }
}

/* A head whose rows end within a vector does not see its neighbour's numbers: few rows read keys
 * and values where they lie. */
static void test_neighbours_of_odd_heads(void **state)
{
  fixture *f = *state;
  const extents sizes[] = {{1, 1, 70, 2, 2, 20}, {1, 2, 33, 4, 2, 7}, {1, 1, 9, 2, 2, 40}};
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
    const extents e = sizes[s];
    fill_all(&f->clean);
    fill_all(&f->other);
    for (int64_t i = 0; i < e.keys * e.kv_heads * e.dim; i++) {
      if (i / e.dim % e.kv_heads == 1) {
        f->other.k[i] = f->other.v[i] = NAN;
      }
    }
    for (int i = 0; i < f->num_entries; i++) {
      const tg_attention_fwd_args a = forward_of(f, &f->clean, e);
      const tg_attention_fwd_args b = forward_of(f, &f->other, e);
      must_run(f->entry[i], tg_attention_fwd(f->entry[i], &a));
      must_run(f->entry[i], tg_attention_fwd(f->entry[i], &b));
      for (int64_t j = 0; j < e.nq * e.heads * e.dim; j++) {
        if (j / e.dim % e.heads < e.heads / e.kv_heads) {
          assert_true(f->other.out[j] == f->clean.out[j]);
        } else {
          assert_true(isnan(f->other.out[j]));
        }
      }
    }
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_packed_parts),
      cmocka_unit_test(test_bad_numbers_forward),
      cmocka_unit_test(test_bad_numbers_backward),
      cmocka_unit_test(test_scores_of_minus_infinity),
      cmocka_unit_test(test_neighbours_of_odd_heads),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}

/**
 * Rows of the cross-entropy on the CPU: what one reading of a row, or of consecutive parts of it,
 * yields for the forward, and the gradient of a row or part. For the kernels of cross_entropy and
 * of linear_cross_entropy.
 */
#ifndef TGI_OPS_CROSS_ENTROPY_ROWS_H
#define TGI_OPS_CROSS_ENTROPY_ROWS_H

#include "cpu/exp.h"
#include "cpu/tanh.h"
#include "ops/shared/loss/cross_entropy_targets.h"

#include <float.h>

enum { kPiece = 1024, kLineBytes = 64 };

/** What the part of a row that was read so far yields. */
typedef struct row_scan {
  float largest;     /* logit, before the cap */
  float shift;       /* maximum of z, but finite */
  int64_t piece;     /* first element of the first piece that holds it, where it was last raised */
  double sum, z_sum; /* of exp(z - shift); of z */
} row_scan;

/** Nothing was read. */
static inline row_scan row_scan_start(void)
{
  return (row_scan){.largest = -INFINITY, .shift = -FLT_MAX};
}

TGI_INLINE vf cap(vf x, float softcap, bool capped)
{
  if (capped) {
    const vf c = vf_set1(softcap);
    x = c * vf_tanh(x / c);
  }
  return x;
}

/** z of one logit. */
static inline float cap_one(float x, float softcap)
{
  float z[TGI_LANES];
  if (softcap == 0) {
    return x;
  }
  vf_store_f32(z, cap(vf_set1(x), softcap, true));
  return z[0];
}

/* Fills the buffer with z of n logits and -infinity up to a whole vector; returns their maximum
 * before the cap. NaN counts in the sum, not here. */
TGI_INLINE float widen_piece(const void *x, int t, int64_t first, int64_t n, float softcap,
                             bool capped, float *z)
{
  vf most = vf_set1(-INFINITY);
  int64_t j = 0;
  for (; j + TGI_LANES <= n; j += TGI_LANES) {
    const vf v = vf_load(x, t, first + j);
    most = vf_max(v, most);
    vf_store_f32(z + j, cap(v, softcap, capped));
  }
  if (j < n) {
    float rest[TGI_LANES];
    const vf v = vf_load_part(x, t, first + j, n - j);
    vf_store_f32(rest, vf_set1(-INFINITY));
    vf_store_part_f32(rest, n - j, v);
    most = vf_max(vf_load_f32(rest), most);
    vf_store_f32(z + j, vf_set1(-INFINITY));
    vf_store_part_f32(z + j, n - j, cap(v, softcap, capped));
  }
  return vf_hmax(most);
}

/* Sums the piece's exponentials; meanwhile the next piece, at `ahead`, comes to the cache: the
 * processor's own prefetch stops while nothing is read. */
TGI_INLINE double sum_of_exp(const float *z, int64_t n, float shift, uintptr_t ahead, int t)
{
  const vf m = vf_set1(shift);
  const int64_t step = 4 * TGI_LANES, element = t == TG_F32 ? 4 : 2;
  vf s[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
  int64_t j = 0;
  for (; j + step <= n; j += step) {
    for (int64_t byte = j * element; byte < (j + step) * element; byte += kLineBytes) {
      __builtin_prefetch((const void *)(ahead + (uintptr_t)byte));
    }
    for (int k = 0; k < 4; k++) {
      s[k] = s[k] + vf_exp(vf_load_f32(z + j + k * TGI_LANES) - m);
    }
  }
  for (; j < n; j += TGI_LANES) {
    s[0] = s[0] + vf_exp(vf_load_f32(z + j) - m);
  }
  return (double)vf_sum((s[0] + s[1]) + (s[2] + s[3]));
}

static inline double sum_of(const float *z, int64_t n)
{
  vf s = vf_zero();
  int64_t j = 0;
  for (; j + TGI_LANES <= n; j += TGI_LANES) {
    s = s + vf_load_f32(z + j);
  }
  return (double)vf_sum(s + vf_load_part_f32(z + j, n - j));
}

TGI_INLINE row_scan scan_row_as(row_scan r, const void *x, int64_t cols, float softcap,
                                bool smoothed, int t, bool capped)
{
  float z[kPiece + TGI_LANES];
  for (int64_t first = 0; first < cols; first += kPiece) {
    const int64_t n = tgi_min_i64(kPiece, cols - first);
    const float largest = widen_piece(x, t, first, n, softcap, capped, z);
    if (largest > r.largest) {
      const float m = capped ? cap_one(largest, softcap) : largest;
      r.largest = largest;
      r.piece = first;
      if (m > r.shift) {
        r.sum *= exp((double)r.shift - (double)m);
        r.shift = m;
      }
    }
    const uintptr_t ahead = (uintptr_t)x + (uintptr_t)(first + kPiece) * (t == TG_F32 ? 4 : 2);
    r.sum += sum_of_exp(z, n, r.shift, ahead, t);
    if (smoothed) {
      r.z_sum += sum_of(z, n);
    }
  }
  return r;
}

/** Reads the next `cols` logits of the row. */
static inline void scan_row(row_scan *r, const void *x, int t, int64_t cols, float softcap,
                            bool smoothed)
{
  if (softcap > 0) {
    TGI_SWITCH_FLOAT(t, T, *r = scan_row_as(*r, x, cols, softcap, smoothed, T, true));
  } else {
    TGI_SWITCH_FLOAT(t, T, *r = scan_row_as(*r, x, cols, softcap, smoothed, T, false));
  }
}

static inline float load_one(const void *x, int t, int64_t j)
{
  return (float)tgi_load(x, (tg_dtype)t, j);
}

/** The first NaN of a part; -1 if there is none. */
static inline int64_t find_nan(const void *x, int t, int64_t cols)
{
  for (int64_t j = 0; j < cols; j++) {
    if (isnan(load_one(x, t, j))) {
      return j;
    }
  }
  return -1;
}

/** The first of the row's largest logits, in the part that was read last; 0 where all are
 * -infinity. */
static inline int64_t find_largest(const void *x, int t, int64_t cols, const row_scan *r)
{
  int64_t j = r->piece;
  while (j + 1 < cols && load_one(x, t, j) != r->largest) {
    j++;
  }
  return j;
}

typedef struct row_result {
  float lse, log_prob, loss;
} row_result;

/** The results of a row that was read to its end; `hit` is z of its target. */
static inline row_result finish_row(const row_scan *r, float hit, int64_t vocab, double smoothing,
                                    double z_loss)
{
  const double lse = (double)r->shift + log(r->sum), log_prob = (double)hit - lse;
  double loss = -(1 - smoothing) * log_prob;
  if (smoothing > 0) {
    loss -= smoothing * (r->z_sum / (double)vocab - lse);
  }
  if (z_loss > 0) {
    loss += z_loss * lse * lse;
  }
  return (row_result){(float)lse, (float)log_prob, (float)loss};
}

/** The gradient of a row, or of `cols` neighbours in it. */
typedef struct bwd_row {
  const void *x;
  void *dx; /* may be x */
  int64_t cols;
  float lse, softcap;
  float p_scale;  /* 1 + 2 z_loss lse */
  float spread;   /* label_smoothing / vocab */
  float hit;      /* 1 - label_smoothing */
  float upstream; /* dloss / n */
} bwd_row;

/* The gradient of logits x, `hit` being what the target's element loses. */
TGI_INLINE vf gradient(vf x, const bwd_row *b, float hit, bool capped, bool fine)
{
  vf slope = vf_set1(b->upstream);
  if (capped) {
    const vf t = vf_tanh(x / vf_set1(b->softcap));
    x = vf_set1(b->softcap) * t;
    slope = (vf_set1(1.0f) - t * t) * slope;
  }
  const vf lse = vf_set1(b->lse), p = fine ? vf_exp_difference(x, lse) : vf_exp(x - lse);
  return ((vf_set1(b->p_scale) * p - vf_set1(b->spread)) - vf_set1(hit)) * slope;
}

/** x in dtype t, dx in dtype `to`, which is no wider. `target`: its place in the part, or outside
 * of it. */
TGI_INLINE void bwd_row_as(const bwd_row *b, int64_t target, int t, int to, bool capped,
                           bool stream)
{
  /* Where 16 bits remain, what the difference loses does not matter. */
  const bool fine = to == TG_F32;
  const bool here = target >= 0 && target < b->cols;
  const vf g =
      here ? gradient(vf_set1(load_one(b->x, t, target)), b, b->hit, capped, fine) : vf_zero();
  int64_t j = 0;
  for (; j + 2 * TGI_LANES <= b->cols; j += 2 * TGI_LANES) {
    const vf g0 = gradient(vf_load(b->x, t, j), b, 0, capped, fine);
    const vf g1 = gradient(vf_load(b->x, t, j + TGI_LANES), b, 0, capped, fine);
    vf_put(b->dx, to, j, g0, stream);
    vf_put(b->dx, to, j + TGI_LANES, g1, stream);
  }
  for (; j < b->cols; j += TGI_LANES) {
    const int64_t n = tgi_min_i64(TGI_LANES, b->cols - j);
    vf_store_part(b->dx, to, j, n, gradient(vf_load_part(b->x, t, j, n), b, 0, capped, fine));
  }
  if (stream) {
    vf_stream_fence(); /* the target's element was streamed: this store comes after */
  }
  if (here) {
    vf_store_part(b->dx, to, target, 1, g);
  }
}

#endif

/* Softmax on the CPU.
 *
 * Method     Forward, in pieces that stay in the first-level cache: a piece's maximum; its
 *            exponentials less the largest element so far, into a row of workspace, and their sum;
 *            when the row is complete the results, exponentials times a factor for each piece
 *            (Milakov & Gimelshein 2018, arXiv:1805.02867). A step makes a piece's exponentials,
 *            writes the same piece of the row before and finds the next piece's maximum, so that
 *            memory is read and written all the time. Backward, one row at a time: the dot
 *            product, then the results; the next row is prefetched meanwhile.
 * Work       Chunks of rows of at most 512 KiB, forward of 2 MiB: their ends are not overlapped.
 * Bound      Memory: forward reads x and writes y, backward reads dy and y and writes dx. Results
 *            too large for the caches are stored past them, unless they replace an input; so the
 *            exponentials need a place of their own.
 */
#include "cpu/exp.h"
#include "cpu/row_pass.h"
#include "cpu/unroll.h"
#include "ops/kernels.h"

#include <float.h>
#include <stdio.h>

enum {
  kPiece = 2048, /* elements with one shift, whose sum is f32 */
  kAhead = 2048, /* elements that are prefetched behind the next piece: the next row, as a rule */
  kGroup = 4,    /* vectors at once */
};

/* ---- forward ---- */

/* A row on its way: its exponentials, and what they are relative to. */
typedef struct fwd_row {
  const void *x;
  void *y;
  float *e;     /* the exponentials ... */
  float *shift; /* ... of each piece's elements minus this */
  float top;    /* the largest element so far */
  double sum;   /* of exponentials, less `top` */
} fwd_row;

/* What is done at once: the exponentials of a piece, the results of the piece before it in memory
 * that waits for them, and the largest element of the next piece. */
typedef struct fwd_step {
  const fwd_row *row, *written; /* written: NULL before the first row is complete */
  const void *next;
  int64_t first, n, next_n; /* elements [first, first + n) of both rows; next_n: 0 at the end */
  float shift, by;          /* by: what the results are multiplied with */
} fwd_step;

typedef struct fwd_job {
  const tg_softmax_fwd_args *a;
  float floor;     /* where the exponential has vanished */
  float high, low; /* scale * log2(e) in two parts */
  bool stream;
} fwd_job;

/* e^(scale * d) for d <= 0, or NaN. */
TGI_INLINE vf exponential(const fwd_job *f, vf d)
{
  const vf z = vf_max(vf_set1(f->floor), d);
  const vf n = vf_rint(z * vf_set1(f->high));
  return vf_exp2_expand(n, vf_fma(z, vf_set1(f->low), vf_fma(z, vf_set1(f->high), -n)));
}

/* NaN counts in the sum, not here. */
TGI_INLINE vf larger(vf most, vf x)
{
  return vf_max(x, most);
}

/* Elements [j, n) of `next` that are not whole groups, and `most` of those before. */
TGI_INLINE float finish_largest(const void *next, int t, int64_t j, int64_t n, vf most[kGroup])
{
  for (; j + kGroup * TGI_LANES <= n; j += kGroup * TGI_LANES) {
    TGI_UNROLLED(k, kGroup)
    {
      most[k] = larger(most[k], vf_load(next, t, j + k * TGI_LANES));
    }
  }
  for (; j < n; j += TGI_LANES) {
    const int64_t left = tgi_min_i64(TGI_LANES, n - j);
    most[0] = larger(most[0], vf_load_part_or(next, t, j, left, -INFINITY));
  }
  return vf_hmax(vf_max(vf_max(most[0], most[1]), vf_max(most[2], most[3])));
}

TGI_INLINE void write_results(const fwd_step *s, int t, int64_t j, bool stream)
{
  const fwd_row *w = s->written;
  const int64_t end = s->first + s->n;
  const vf by = vf_set1(s->by);
  for (j += s->first; j + TGI_LANES <= end; j += TGI_LANES) {
    vf_put(w->y, t, j, vf_load_f32(w->e + j) * by, stream);
  }
  if (j < end) {
    vf_store_part(w->y, t, j, end - j, vf_load_part_f32(w->e + j, end - j) * by);
  }
}

/* Returns the sum of the exponentials. The order of its additions does not depend on what else is
 * done. */
TGI_INLINE double take_step(const fwd_job *f, const fwd_step *s, int t, bool stream, float *largest)
{
  const fwd_row *row = s->row, *w = s->written;
  const vf shift = vf_set1(s->shift), by = vf_set1(s->by);
  const int64_t all = w ? tgi_min_i64(s->n, s->next_n) : 0;
  vf sum[kGroup], most[kGroup];
  int64_t j = 0;
  TGI_UNROLLED(k, kGroup)
  {
    sum[k] = vf_zero();
    most[k] = vf_set1(-FLT_MAX); /* finite, as a piece of -infinity alone is */
  }
  for (; j + kGroup * TGI_LANES <= all; j += kGroup * TGI_LANES) {
    TGI_UNROLLED(k, kGroup)
    {
      const int64_t near = j + k * TGI_LANES, i = s->first + near;
      const vf e = exponential(f, vf_load(row->x, t, i) - shift);
      tgi_prefetch(s->next, t, near + kAhead);
      most[k] = larger(most[k], vf_load(s->next, t, near));
      vf_put(w->y, t, i, vf_load_f32(w->e + i) * by, stream);
      vf_store_f32(row->e + i, e);
      sum[k] = sum[k] + e;
    }
  }
  if (w) {
    write_results(s, t, j, stream);
  }
  *largest = finish_largest(s->next, t, j, s->next_n, most);
  for (; j + kGroup * TGI_LANES <= s->n; j += kGroup * TGI_LANES) {
    TGI_UNROLLED(k, kGroup)
    {
      const int64_t i = s->first + j + k * TGI_LANES;
      const vf e = exponential(f, vf_load(row->x, t, i) - shift);
      vf_store_f32(row->e + i, e);
      sum[k] = sum[k] + e;
    }
  }
  for (; j < s->n; j += TGI_LANES) {
    const int64_t i = s->first + j, left = tgi_min_i64(TGI_LANES, s->n - j);
    const vf e = exponential(f, vf_load_part(row->x, t, i, left) - shift);
    vf_store_part_f32(row->e + i, left, e);
    sum[0] = sum[0] + vf_first(e, left);
  }
  return (double)vf_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

/* What the exponentials of a complete row's piece are multiplied with. */
static float factor_of(const fwd_row *row, int64_t piece, float scale)
{
  const double past = ((double)row->shift[piece] - (double)row->top) * (double)scale;
  return (float)(past == 0 ? 1 / row->sum : exp(past) / row->sum);
}

/* Floats of a row of exponentials, in whole cache lines, and a shift for each piece. */
static int64_t row_floats(const tg_softmax_fwd_args *a)
{
  return (a->x.shape[1] + 15) / 16 * 16;
}

static int64_t kept_floats(const tg_softmax_fwd_args *a)
{
  return row_floats(a) + (a->x.shape[1] / kPiece / 16 + 1) * 16;
}

TGI_INLINE void fwd_rows_as(const fwd_job *f, int64_t begin, int64_t end, float *room, int t,
                            bool stream)
{
  const tg_softmax_fwd_args *a = f->a;
  const int64_t cols = a->x.shape[1], first_n = tgi_min_i64(cols, kPiece);
  const float scale = a->scale;
  fwd_row rows[2];
  vf none[kGroup];
  TGI_UNROLLED(k, kGroup)
  {
    none[k] = vf_set1(-FLT_MAX);
  }
  float largest = finish_largest(tgi_row(&a->x, begin), t, 0, first_n, none);
  for (int64_t i = begin; i < end; i++) {
    fwd_row *row = &rows[i % 2];
    float *e = room + i % 2 * kept_floats(a);
    *row = (fwd_row){.x = tgi_row(&a->x, i),
                     .y = tgi_row(&a->y, i),
                     .e = e,
                     .shift = e + row_floats(a),
                     .top = -FLT_MAX};
    fwd_step s = {.row = row, .written = i > begin ? &rows[(i + 1) % 2] : NULL};
    for (int64_t piece = 0; s.first < cols; piece++, s.first += kPiece) {
      const int64_t behind = s.first + kPiece;
      s.n = tgi_min_i64(kPiece, cols - s.first);
      if (behind < cols) {
        s.next = at(row->x, t, behind);
        s.next_n = tgi_min_i64(kPiece, cols - behind);
      } else {
        s.next = i + 1 < end ? tgi_row(&a->x, i + 1) : row->x;
        s.next_n = i + 1 < end ? first_n : 0;
      }
      if (largest > row->top) {
        row->sum *= exp(((double)row->top - (double)largest) * (double)scale);
        row->top = largest;
      }
      row->shift[piece] = s.shift = row->top;
      if (s.written) {
        s.by = factor_of(s.written, piece, scale);
      }
      row->sum += take_step(f, &s, t, stream, &largest);
    }
  }
  fwd_step last = {.written = &rows[(end - 1) % 2]};
  for (int64_t piece = 0; last.first < cols; piece++, last.first += kPiece) {
    last.n = tgi_min_i64(kPiece, cols - last.first);
    last.by = factor_of(last.written, piece, scale);
    write_results(&last, t, 0, stream);
  }
}

static void fwd_rows(void *arg, int64_t begin, int64_t end, int thread)
{
  const fwd_job *job = arg;
  const tg_softmax_fwd_args *a = job->a;
  float *room = (float *)a->workspace + thread * 2 * kept_floats(a);
  if (job->stream) {
    TGI_SWITCH_FLOAT(a->x.dtype, T, fwd_rows_as(job, begin, end, room, T, true));
  } else {
    TGI_SWITCH_FLOAT(a->x.dtype, T, fwd_rows_as(job, begin, end, room, T, false));
  }
  vf_stream_fence();
}

/* Rows of a chunk: the first and the last of one are not overlapped. */
static int64_t fwd_grain(const tg_tensor *x)
{
  const int64_t rows = tgi_min_i64(4 * tgi_chunk_rows(x), x->shape[0] / 16);
  return rows > 1 ? rows : 1;
}

size_t TGI_WORKSPACE(softmax_fwd)(const tg_context *ctx, const tg_softmax_fwd_args *a)
{
  return (size_t)(ctx->num_threads * 2 * kept_floats(a)) * sizeof(float);
}

tg_status TGI_KERNEL(softmax_fwd)(const tg_context *ctx, const tg_softmax_fwd_args *a)
{
  const double log2e = 1.44269504088896340736, factor = (double)a->scale * log2e;
  fwd_job job = {.a = a,
                 .floor = -105.0f / a->scale,
                 .high = (float)factor,
                 .low = (float)(factor - (double)(float)factor),
                 .stream = tgi_streams(ctx, &a->y, &a->x)};
  tgi_for(ctx, a->x.shape[0], fwd_grain(&a->x), fwd_rows, &job);
  return TG_OK;
}

void TGI_PLAN(softmax_fwd)(const tg_context *ctx, const tg_softmax_fwd_args *a, char *text,
                           size_t bytes)
{
  snprintf(text, bytes, "chunks of %lld rows, %s stores", (long long)fwd_grain(&a->x),
           tgi_streams(ctx, &a->y, &a->x) ? "streaming" : "cached");
}

/* ---- backward ---- */

typedef struct bwd_row {
  const void *dy, *y, *next_dy, *next_y; /* next: the rows to prefetch */
  void *dx;
  int64_t cols;
  float scale;
} bwd_row;

/* Sum of dy * y over elements [j, end), a piece. */
TGI_INLINE double dot_of(const bwd_row *b, int t, int64_t j, int64_t end)
{
  vf dot[kGroup];
  TGI_UNROLLED(k, kGroup)
  {
    dot[k] = vf_zero();
  }
  for (; j + kGroup * TGI_LANES <= end; j += kGroup * TGI_LANES) {
    TGI_UNROLLED(k, kGroup)
    {
      const int64_t i = j + k * TGI_LANES;
      dot[k] = vf_fma(vf_load(b->dy, t, i), vf_load(b->y, t, i), dot[k]);
    }
  }
  for (; j < end; j += TGI_LANES) {
    const int64_t n = tgi_min_i64(TGI_LANES, end - j);
    dot[0] = vf_fma(vf_load_part(b->dy, t, j, n), vf_load_part(b->y, t, j, n), dot[0]);
  }
  return (double)vf_sum((dot[0] + dot[1]) + (dot[2] + dot[3]));
}

TGI_INLINE void bwd_row_as(const bwd_row *b, int t, bool stream)
{
  double sum = 0;
  int64_t j = 0;
  for (int64_t first = 0; first < b->cols; first += kPiece) {
    sum += dot_of(b, t, first, tgi_min_i64(b->cols, first + kPiece));
  }
  const vf dot = vf_set1((float)sum), scale = vf_set1(b->scale);
  for (; j + TGI_LANES <= b->cols; j += TGI_LANES) {
    const vf dx = vf_load(b->y, t, j) * scale * (vf_load(b->dy, t, j) - dot);
    tgi_prefetch(b->next_dy, t, j);
    tgi_prefetch(b->next_y, t, j);
    vf_put(b->dx, t, j, dx, stream);
  }
  if (j < b->cols) {
    const int64_t n = b->cols - j;
    const vf dx = vf_load_part(b->y, t, j, n) * scale * (vf_load_part(b->dy, t, j, n) - dot);
    vf_store_part(b->dx, t, j, n, dx);
  }
}

typedef struct bwd_job {
  const tg_softmax_bwd_args *a;
  bool stream;
} bwd_job;

static void bwd_rows(void *arg, int64_t begin, int64_t end, int thread)
{
  const bwd_job *job = arg;
  const tg_softmax_bwd_args *a = job->a;
  bwd_row b = {.cols = a->y.shape[1], .scale = a->scale};
  (void)thread;
  for (int64_t i = begin; i < end; i++) {
    const int64_t next = i + 1 < end ? i + 1 : i;
    b.dy = tgi_row(&a->dy, i);
    b.y = tgi_row(&a->y, i);
    b.next_dy = tgi_row(&a->dy, next);
    b.next_y = tgi_row(&a->y, next);
    b.dx = tgi_row(&a->dx, i);
    if (job->stream) {
      TGI_SWITCH_FLOAT(a->y.dtype, T, bwd_row_as(&b, T, true));
    } else {
      TGI_SWITCH_FLOAT(a->y.dtype, T, bwd_row_as(&b, T, false));
    }
  }
  vf_stream_fence();
}

tg_status TGI_KERNEL(softmax_bwd)(const tg_context *ctx, const tg_softmax_bwd_args *a)
{
  bwd_job job = {a, tgi_streams(ctx, &a->dx, &a->dy)};
  tgi_for(ctx, a->y.shape[0], tgi_chunk_rows(&a->y), bwd_rows, &job);
  return TG_OK;
}

void TGI_PLAN(softmax_bwd)(const tg_context *ctx, const tg_softmax_bwd_args *a, char *text,
                           size_t bytes)
{
  snprintf(text, bytes, "chunks of %lld rows, %s stores", (long long)tgi_chunk_rows(&a->y),
           tgi_streams(ctx, &a->dx, &a->dy) ? "streaming" : "cached");
}

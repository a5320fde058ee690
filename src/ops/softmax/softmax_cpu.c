/* Softmax on the CPU.
 *
 * Method     Forward, one row at a time, in pieces that stay in the first-level cache: a piece's
 *            maximum; its exponentials less the largest element so far, into a row of workspace,
 *            and their sum. Then the results: exponentials times a factor for each piece (Milakov &
 *            Gimelshein 2018, arXiv:1805.02867). Backward, one row at a time: the dot product, then
 *            the results. What is read next is prefetched meanwhile.
 * Work       Chunks of rows of at most 512 KiB.
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
  kPiece = 2048,     /* elements with one shift, whose sum is f32 */
  kAhead = 16 << 10, /* elements: how far ahead the forward prefetches at most */
  kGroup = 4,        /* vectors at once */
};

/* ---- forward ---- */

typedef struct fwd_row {
  const void *x, *next; /* next: the row to prefetch */
  void *y;
  float *e;     /* the exponentials ... */
  float *shift; /* ... of each piece's elements minus this */
  int64_t cols;
  float scale, floor; /* floor: where the exponential has vanished */
  float high, low;    /* scale * log2(e) in two parts */
} fwd_row;

/* NaN counts in the sum, not here. */
TGI_INLINE float largest_of(const void *x, int t, int64_t j, int64_t end)
{
  vf most[kGroup];
  TGI_UNROLLED(k, kGroup)
  {
    most[k] = vf_set1(-FLT_MAX); /* finite, as a piece of -infinity alone is */
  }
  for (; j + kGroup * TGI_LANES <= end; j += kGroup * TGI_LANES) {
    TGI_UNROLLED(k, kGroup)
    {
      most[k] = vf_max(vf_load(x, t, j + k * TGI_LANES), most[k]);
    }
  }
  for (; j < end; j += TGI_LANES) {
    const int64_t n = tgi_min_i64(TGI_LANES, end - j);
    most[0] = vf_max(vf_load_part_or(x, t, j, n, -INFINITY), most[0]);
  }
  return vf_hmax(vf_max(vf_max(most[0], most[1]), vf_max(most[2], most[3])));
}

/* e^(scale * d) for d <= 0, or NaN. */
TGI_INLINE vf exponential(const fwd_row *f, vf d)
{
  const vf z = vf_max(vf_set1(f->floor), d);
  const vf n = vf_rint(z * vf_set1(f->high));
  return vf_exp2_expand(n, vf_fma(z, vf_set1(f->low), vf_fma(z, vf_set1(f->high), -n)));
}

/* Exponentials of elements [j, end); returns their sum. Meanwhile the elements from `ahead` on come
 * to the cache. */
TGI_INLINE double exponentials(const fwd_row *f, int t, int64_t j, int64_t end, float shift,
                               const void *ahead)
{
  const vf m = vf_set1(shift);
  const int64_t first = j;
  vf sum[kGroup];
  TGI_UNROLLED(k, kGroup)
  {
    sum[k] = vf_zero();
  }
  for (; j + kGroup * TGI_LANES <= end; j += kGroup * TGI_LANES) {
    TGI_UNROLLED(k, kGroup)
    {
      const int64_t i = j + k * TGI_LANES;
      const vf e = exponential(f, vf_load(f->x, t, i) - m);
      tgi_prefetch(ahead, t, i - first);
      vf_store_f32(f->e + i, e);
      sum[k] = sum[k] + e;
    }
  }
  for (; j < end; j += TGI_LANES) {
    const int64_t n = tgi_min_i64(TGI_LANES, end - j);
    const vf e = exponential(f, vf_load_part(f->x, t, j, n) - m);
    vf_store_part_f32(f->e + j, n, e);
    sum[0] = sum[0] + vf_first(e, n);
  }
  return (double)vf_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

/* Where element j will be in a while: in this row, or in the next. */
TGI_INLINE const void *ahead_of(const fwd_row *f, int t, int64_t j)
{
  const int64_t to = j + tgi_min_i64(kAhead, f->cols);
  return to < f->cols ? at(f->x, t, to) : at(f->next, t, to - f->cols);
}

TGI_INLINE void write_piece(const fwd_row *f, int t, int64_t j, int64_t end, float by, bool stream)
{
  const vf factor = vf_set1(by);
  for (; j + TGI_LANES <= end; j += TGI_LANES) {
    vf_put(f->y, t, j, vf_load_f32(f->e + j) * factor, stream);
  }
  if (j < end) {
    vf_store_part(f->y, t, j, end - j, vf_load_part_f32(f->e + j, end - j) * factor);
  }
}

TGI_INLINE void fwd_row_as(const fwd_row *f, int t, bool stream)
{
  float shift = -FLT_MAX; /* the largest element so far */
  double sum = 0;         /* of exponentials, less that shift */
  for (int64_t j = 0, piece = 0; j < f->cols; j += kPiece, piece++) {
    const int64_t end = tgi_min_i64(f->cols, j + kPiece);
    const float largest = largest_of(f->x, t, j, end);
    if (largest > shift) {
      sum *= exp(((double)shift - (double)largest) * (double)f->scale);
      shift = largest;
    }
    f->shift[piece] = shift;
    sum += exponentials(f, t, j, end, shift, ahead_of(f, t, j));
  }
  for (int64_t j = 0, piece = 0; j < f->cols; j += kPiece, piece++) {
    const double past = ((double)f->shift[piece] - (double)shift) * (double)f->scale;
    const double by = past == 0 ? 1 / sum : exp(past) / sum;
    write_piece(f, t, j, tgi_min_i64(f->cols, j + kPiece), (float)by, stream);
  }
}

typedef struct fwd_job {
  const tg_softmax_fwd_args *a;
  bool stream;
} fwd_job;

/* Floats of one thread: a row of exponentials, in whole cache lines, and a shift for each piece. */
static int64_t row_floats(const tg_softmax_fwd_args *a)
{
  return (a->x.shape[1] + 15) / 16 * 16;
}

static int64_t thread_floats(const tg_softmax_fwd_args *a)
{
  return row_floats(a) + (a->x.shape[1] / kPiece / 16 + 1) * 16;
}

static void fwd_rows(void *arg, int64_t begin, int64_t end, int thread)
{
  const fwd_job *job = arg;
  const tg_softmax_fwd_args *a = job->a;
  const double log2e = 1.44269504088896340736, factor = (double)a->scale * log2e;
  float *room = (float *)a->workspace + thread * thread_floats(a);
  fwd_row f = {.e = room,
               .shift = room + row_floats(a),
               .cols = a->x.shape[1],
               .scale = a->scale,
               .floor = -105.0f / a->scale,
               .high = (float)factor,
               .low = (float)(factor - (double)(float)factor)};
  for (int64_t i = begin; i < end; i++) {
    f.x = tgi_row(&a->x, i);
    f.y = tgi_row(&a->y, i);
    f.next = i + 1 < end ? tgi_row(&a->x, i + 1) : f.x;
    if (job->stream) {
      TGI_SWITCH_FLOAT(a->x.dtype, T, fwd_row_as(&f, T, true));
    } else {
      TGI_SWITCH_FLOAT(a->x.dtype, T, fwd_row_as(&f, T, false));
    }
  }
  vf_stream_fence();
}

size_t TGI_WORKSPACE(softmax_fwd)(const tg_context *ctx, const tg_softmax_fwd_args *a)
{
  return (size_t)(ctx->num_threads * thread_floats(a)) * sizeof(float);
}

tg_status TGI_KERNEL(softmax_fwd)(const tg_context *ctx, const tg_softmax_fwd_args *a)
{
  fwd_job job = {a, tgi_streams(ctx, &a->y, &a->x)};
  tgi_for(ctx, a->x.shape[0], tgi_chunk_rows(&a->x), fwd_rows, &job);
  return TG_OK;
}

void TGI_PLAN(softmax_fwd)(const tg_context *ctx, const tg_softmax_fwd_args *a, char *text,
                           size_t bytes)
{
  snprintf(text, bytes, "chunks of %lld rows, %s stores", (long long)tgi_chunk_rows(&a->x),
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

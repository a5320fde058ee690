/* Embedding on the CPU.
 *
 * Method     Forward: gather rows, adding the position's row where there is one. Backward: tokens
 *            are sorted by id (radix sort, stable), so that each row of the gradient is one run of
 *            tokens; a run is summed in registers in token order and added to its row once.
 *            Positions that follow from the scalars need no sort.
 * Work       Forward: chunks of rows of about 128 KiB. Backward: run x strip of 256 columns. No two
 *            items write the same element and each sums in token order, so the bits do not depend
 *            on the threads.
 * Bound      Memory: forward reads a row and writes one; backward reads dy once and updates the
 *            rows that occur.
 */
#include "cpu/simd.h"
#include "ops/embedding/embedding_ids.h"

#include <stdio.h>

enum { kChunkBytes = 128 << 10, kStripColumns = 256, kDigitBits = 11, kDigits = 1 << kDigitBits };

typedef struct fwd_job {
  const tg_embedding_fwd_args *a;
  bool stream;
} fwd_job;

/* Copies whole 32-bit words past the caches, whatever they mean; the rest plainly. */
static void stream_row(void *y, const void *row, size_t bytes)
{
  const int64_t words = (int64_t)(bytes / 4) / TGI_LANES * TGI_LANES;
  for (int64_t k = 0; k < words; k += TGI_LANES) {
    vf_stream(y, TG_F32, k, vf_load(row, TG_F32, k));
  }
  memcpy((char *)y + words * 4, (const char *)row + words * 4, bytes - (size_t)words * 4);
}

TGI_INLINE void add_rows_as(void *y, const void *row, const void *position, int64_t dim, int t,
                            bool stream)
{
  int64_t j = 0;
  for (; j + TGI_LANES <= dim; j += TGI_LANES) {
    vf_put(y, t, j, vf_load(row, t, j) + vf_load(position, t, j), stream);
  }
  if (j < dim) {
    const int64_t n = dim - j;
    vf_store_part(y, t, j, n, vf_load_part(row, t, j, n) + vf_load_part(position, t, j, n));
  }
}

static void add_rows(void *y, const void *row, const void *position, int64_t dim, int t,
                     bool stream)
{
  if (stream) {
    TGI_SWITCH_FLOAT(t, T, add_rows_as(y, row, position, dim, T, true));
  } else {
    TGI_SWITCH_FLOAT(t, T, add_rows_as(y, row, position, dim, T, false));
  }
}

static void fwd_rows(void *arg, int64_t begin, int64_t end, int thread)
{
  const fwd_job *job = arg;
  const tg_embedding_fwd_args *a = job->a;
  const int64_t dim = a->table.shape[1];
  const size_t bytes = (size_t)dim * tg_dtype_bytes(a->table.dtype);
  (void)thread;
  for (int64_t i = begin; i < end; i++) {
    const void *row = tgi_row(&a->table, tgi_load_int(a->ids.data, a->ids.dtype, i));
    void *y = tgi_row(&a->y, i);
    if (tgi_present(&a->positions)) {
      const int64_t p = token_position(&a->position_ids, a->seq_len, a->position_offset, i);
      add_rows(y, row, tgi_row(&a->positions, p), dim, a->table.dtype, job->stream);
    } else if (job->stream) {
      stream_row(y, row, bytes);
    } else {
      memcpy(y, row, bytes);
    }
  }
  vf_stream_fence();
}

static fwd_job plan_fwd(const tg_context *ctx, const tg_embedding_fwd_args *a)
{
  const bool aligned = tgi_streamable(a->y.data, tgi_stride(&a->y, 0), tg_dtype_bytes(a->y.dtype));
  return (fwd_job){a, aligned && tgi_exceeds_cache(ctx, tgi_span_bytes(&a->y))};
}

static int64_t fwd_grain(const tg_embedding_fwd_args *a)
{
  const int64_t row_bytes = a->y.shape[1] * (int64_t)tg_dtype_bytes(a->y.dtype);
  return row_bytes < kChunkBytes ? kChunkBytes / row_bytes : 1;
}

tg_status TGI_KERNEL(embedding_fwd)(const tg_context *ctx, const tg_embedding_fwd_args *a)
{
  fwd_job job = plan_fwd(ctx, a);
  tg_status status = check_ids(ctx, "embedding_fwd", "ids", &a->ids, a->table.shape[0]);
  if (status == TG_OK && tgi_present(&a->position_ids)) {
    status =
        check_ids(ctx, "embedding_fwd", "position_ids", &a->position_ids, a->positions.shape[0]);
  }
  if (status == TG_OK) {
    tgi_for(ctx, a->ids.shape[0], fwd_grain(a), fwd_rows, &job);
  }
  return status;
}

void TGI_PLAN(embedding_fwd)(const tg_context *ctx, const tg_embedding_fwd_args *a, char *text,
                             size_t bytes)
{
  snprintf(text, bytes, "chunks of %lld rows, %s stores", (long long)fwd_grain(a),
           plan_fwd(ctx, a).stream ? "streaming" : "cached");
}

/* ---- backward ---- */

/* Tokens grouped by the row that they add to: run r is order[start[r]] .. order[start[r+1] - 1],
 * in token order. */
typedef struct runs {
  const int64_t *order, *start;
  int64_t count;
} runs;

/* The workspace: two arrays of tokens to sort with, and the starts of the runs. */
typedef struct scratch {
  int64_t *order, *spare, *start;
} scratch;

static scratch lay_out(const tg_embedding_bwd_args *a)
{
  int64_t *base = a->workspace;
  const int64_t tokens = a->dy.shape[0];
  return (scratch){base, base + tokens, base + 2 * tokens};
}

/* One stable counting pass over the digit at `shift`; from NULL means 0, 1, 2, ... */
static void sort_pass(const tg_tensor *ids, const int64_t *from, int64_t *to, int shift)
{
  int64_t place[kDigits] = {0}, sum = 0;
  const int64_t n = ids->shape[0];
  for (int64_t k = 0; k < n; k++) {
    place[tgi_load_int(ids->data, ids->dtype, k) >> shift & (kDigits - 1)]++;
  }
  for (int d = 0; d < kDigits; d++) {
    const int64_t count = place[d];
    place[d] = sum;
    sum += count;
  }
  for (int64_t k = 0; k < n; k++) {
    const int64_t token = from ? from[k] : k;
    const int64_t id = tgi_load_int(ids->data, ids->dtype, token);
    to[place[id >> shift & (kDigits - 1)]++] = token;
  }
}

static runs group_by_id(const tg_tensor *ids, int64_t rows, scratch s)
{
  const int64_t tokens = ids->shape[0];
  sort_pass(ids, NULL, s.order, 0);
  for (int shift = kDigitBits; shift < 63 && (rows - 1) >> shift > 0; shift += kDigitBits) {
    sort_pass(ids, s.order, s.spare, shift);
    int64_t *sorted = s.spare;
    s.spare = s.order;
    s.order = sorted;
  }
  int64_t count = 0, last = -1;
  for (int64_t k = 0; k < tokens; k++) {
    const int64_t id = tgi_load_int(ids->data, ids->dtype, s.order[k]);
    if (id != last) {
      s.start[count++] = k;
      last = id;
    }
  }
  s.start[count] = tokens;
  return (runs){s.order, s.start, count};
}

/* Tokens i, i + span, i + 2 span, ... have the same position. */
static runs group_by_place(int64_t tokens, int64_t seq_len, scratch s)
{
  const int64_t span = seq_len > 0 && seq_len < tokens ? seq_len : tokens;
  int64_t k = 0;
  for (int64_t place = 0; place < span; place++) {
    s.start[place] = k;
    for (int64_t i = place; i < tokens; i += span) {
      s.order[k++] = i;
    }
  }
  s.start[span] = tokens;
  return (runs){s.order, s.start, span};
}

typedef struct bwd_job {
  const tg_embedding_bwd_args *a;
  const tg_tensor *sums; /* dtable or dpositions */
  runs runs;
  int64_t strips;
} bwd_job;

/* sum[j] += dy[token, j] over the run's tokens, for j in [j, end). */
TGI_INLINE void add_run_as(void *sum, const tg_tensor *dy, const int64_t *token, int64_t n,
                           int64_t j, int64_t end, int dyt, int st)
{
  for (; j + 4 * TGI_LANES <= end; j += 4 * TGI_LANES) {
    vf s[4];
    for (int k = 0; k < 4; k++) {
      s[k] = vf_load(sum, st, j + k * TGI_LANES);
    }
    for (int64_t i = 0; i < n; i++) {
      const void *row = tgi_row(dy, token[i]);
      for (int k = 0; k < 4; k++) {
        s[k] = s[k] + vf_load(row, dyt, j + k * TGI_LANES);
      }
    }
    for (int k = 0; k < 4; k++) {
      vf_store(sum, st, j + k * TGI_LANES, s[k]);
    }
  }
  for (; j < end; j += TGI_LANES) {
    const int64_t lanes = tgi_min_i64(TGI_LANES, end - j);
    vf s = vf_load_part(sum, st, j, lanes);
    for (int64_t i = 0; i < n; i++) {
      s = s + vf_load_part(tgi_row(dy, token[i]), dyt, j, lanes);
    }
    vf_store_part(sum, st, j, lanes, s);
  }
}

static void add_runs(void *arg, int64_t begin, int64_t end, int thread)
{
  const bwd_job *job = arg;
  const tg_embedding_bwd_args *a = job->a;
  const int64_t dim = a->dy.shape[1];
  const bool wide = job->sums->dtype != a->dy.dtype;
  (void)thread;
  for (int64_t item = begin; item < end; item++) {
    const int64_t run = item / job->strips, first = item % job->strips * kStripColumns;
    const int64_t last = tgi_min_i64(dim, first + kStripColumns);
    const int64_t *token = job->runs.order + job->runs.start[run];
    const int64_t n = job->runs.start[run + 1] - job->runs.start[run];
    const int64_t row = job->sums == &a->dtable ? tgi_load_int(a->ids.data, a->ids.dtype, token[0])
                                                : token_position(&a->position_ids, a->seq_len,
                                                                 a->position_offset, token[0]);
    void *sum = tgi_row(job->sums, row);
    if (wide) {
      TGI_SWITCH_FLOAT(a->dy.dtype, T, add_run_as(sum, &a->dy, token, n, first, last, T, TG_F32));
    } else {
      TGI_SWITCH_FLOAT(a->dy.dtype, T, add_run_as(sum, &a->dy, token, n, first, last, T, T));
    }
  }
}

static void add_all(const tg_context *ctx, const tg_embedding_bwd_args *a, const tg_tensor *sums,
                    runs grouped)
{
  const int64_t strips = (a->dy.shape[1] + kStripColumns - 1) / kStripColumns;
  const int64_t items = grouped.count * strips, grain = items / 64;
  bwd_job job = {a, sums, grouped, strips};
  tgi_for(ctx, items, grain < 1 ? 1 : grain < 16 ? grain : 16, add_runs, &job);
}

size_t TGI_WORKSPACE(embedding_bwd)(const tg_context *ctx, const tg_embedding_bwd_args *a)
{
  const bool any = tgi_present(&a->dtable) || tgi_present(&a->dpositions);
  (void)ctx;
  return any ? (size_t)(3 * a->dy.shape[0] + 1) * sizeof(int64_t) : 0;
}

tg_status TGI_KERNEL(embedding_bwd)(const tg_context *ctx, const tg_embedding_bwd_args *a)
{
  const bool table = tgi_present(&a->dtable), positions = tgi_present(&a->dpositions);
  const bool given = positions && tgi_present(&a->position_ids);
  tg_status status = TG_OK;
  if (table) {
    status = check_ids(ctx, "embedding_bwd", "ids", &a->ids, a->dtable.shape[0]);
  }
  if (status == TG_OK && given) {
    status =
        check_ids(ctx, "embedding_bwd", "position_ids", &a->position_ids, a->dpositions.shape[0]);
  }
  if (status != TG_OK) {
    return status;
  }
  if (table) {
    add_all(ctx, a, &a->dtable, group_by_id(&a->ids, a->dtable.shape[0], lay_out(a)));
  }
  if (given) {
    add_all(ctx, a, &a->dpositions,
            group_by_id(&a->position_ids, a->dpositions.shape[0], lay_out(a)));
  } else if (positions) {
    add_all(ctx, a, &a->dpositions, group_by_place(a->dy.shape[0], a->seq_len, lay_out(a)));
  }
  return TG_OK;
}

void TGI_PLAN(embedding_bwd)(const tg_context *ctx, const tg_embedding_bwd_args *a, char *text,
                             size_t bytes)
{
  (void)ctx;
  snprintf(text, bytes, "%lld tokens sorted by id, at most %lld x %lld items of run x strip",
           (long long)a->dy.shape[0], (long long)a->dy.shape[0],
           (long long)((a->dy.shape[1] + kStripColumns - 1) / kStripColumns));
}

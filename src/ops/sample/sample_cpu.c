/* Sampling on the CPU.
 *
 * Method     The row is widened (and penalised) into the thread's memory, which stays in the
 *            L2 cache. Cuts by rank are a radix selection: the keys' upper 11 bits, then
 *            11 and 10 more, a histogram of counts or weights each. Weights are computed where
 *            they are needed, piece by piece, for the logits that are left; the pieces' sums find
 *            the piece that the draw falls into.
 * Work       Rows.
 * Bound      Arithmetic: about 4 passes over a row with top_k, 5 with top_p, 1 without filters.
 */
#include "cpu/bytes.h"
#include "ops/sample/sample_draw.h"
#include "ops/sample/sample_weight.h"

#include <stdio.h>
#include <string.h>

enum { kPiece = 1024, kBuckets = 2048 };

/* A row at work, and its thread's memory. */
typedef struct row {
  const tg_sample_fwd_args *a;
  int64_t index, vocab, pieces;
  float largest;
  float *z;             /* [vocab] */
  uint64_t *sum;        /* [pieces]: of the weights that are left */
  uint64_t *bucket;     /* [kBuckets] */
  float *piece_largest; /* [pieces] */
} row;

/* The part of a piece that is left. */
typedef struct selection {
  int64_t count;
  int32_t offset[kPiece]; /* from the piece's first id */
  float z[kPiece];
  uint64_t weight[kPiece];
} selection;

static int64_t piece_length(const row *r, int64_t piece)
{
  return tgi_min_i64(kPiece, r->vocab - piece * kPiece);
}

/* ---- reading ---- */

/* Widens a piece; returns its largest logit, NaN if it has one. */
TGI_INLINE float widen(const void *logits, int t, int64_t n, float *z)
{
  vf most = vf_set1(-INFINITY), poison = vf_zero();
  int64_t j = 0;
  for (; j + TGI_LANES <= n; j += TGI_LANES) {
    const vf v = vf_load(logits, t, j);
    most = vf_max(v, most);
    poison = poison + vf_select(vf_le(v, v), vf_zero(), v);
    vf_store_f32(z + j, v);
  }
  float largest = vf_hmax(most) + vf_sum(poison);
  if (j < n) {
    vf_store_part_f32(z + j, n - j, vf_load_part(logits, t, j, n - j));
  }
  for (; j < n; j++) {
    largest = z[j] > largest || isnan(z[j]) ? z[j] : largest;
  }
  return largest;
}

static float largest_of(const float *z, int64_t n)
{
  float largest = -INFINITY;
  for (int64_t j = 0; j < n && !isnan(largest); j++) {
    largest = z[j] > largest || isnan(z[j]) ? z[j] : largest;
  }
  return largest;
}

static void penalise_history(row *r)
{
  const tg_tensor *logits = &r->a->logits;
  const void *original = tgi_row(logits, r->index);
  const int64_t length = history_length(r->a, r->index);
  for (int64_t k = 0; k < length; k++) {
    const int64_t id = history_id(r->a, r->index, k);
    const float z = (float)tgi_load(original, logits->dtype, id);
    r->z[id] = penalise(z, r->a->repetition_penalty);
  }
  for (int64_t k = 0; k < length; k++) {
    const int64_t piece = history_id(r->a, r->index, k) / kPiece;
    r->piece_largest[piece] = largest_of(r->z + piece * kPiece, piece_length(r, piece));
  }
}

static void read_row(row *r)
{
  const tg_tensor *logits = &r->a->logits;
  const char *first = tgi_row(logits, r->index);
  const int64_t bytes = kPiece * (int64_t)tg_dtype_bytes(logits->dtype);
  for (int64_t k = 0; k < r->pieces; k++) {
    TGI_SWITCH_FLOAT(logits->dtype, T,
                     r->piece_largest[k] =
                         widen(first + k * bytes, T, piece_length(r, k), r->z + k * kPiece));
  }
  if (has_penalty(r->a)) {
    penalise_history(r);
  }
  r->largest = largest_of(r->piece_largest, r->pieces);
}

/* The lowest id of the largest z. */
static int64_t find_largest(const row *r)
{
  int64_t piece = 0;
  while (r->piece_largest[piece] != r->largest) {
    piece++;
  }
  int64_t id = piece * kPiece;
  while (r->z[id] != r->largest) {
    id++;
  }
  return id;
}

/* ---- weights ---- */

/* w of the contract for n logits; reads and writes up to a whole vector. */
static void weigh(const row *r, selection *s)
{
  static const float c[kSamplePowers] = TGI_SAMPLE_POLYNOMIAL;
  const vf largest = vf_set1(r->largest), temperature = vf_set1(r->a->temperature);
  int32_t mantissa[kPiece], shift[kPiece];
  for (int64_t j = 0; j < s->count; j += TGI_LANES) {
    const vf z = vf_load_f32(s->z + j);
    const vf shifted = (z - largest) / temperature * vf_set1(TGI_SAMPLE_LOG2_E);
    const vf e = vf_max(shifted, vf_set1(TGI_SAMPLE_LEAST_EXPONENT));
    const vf n = vf_rint(e), f = e - n;
    vf p = vf_set1(c[0]);
    for (int k = 1; k < kSamplePowers; k++) {
      p = p * f + vf_set1(c[k]);
    }
    vi_store(mantissa + j, vi_nearest(p * vf_set1(0x1p24f)));
    vi_store(shift + j, vi_nearest(vf_zero() - n));
  }
  for (int64_t j = 0; j < s->count; j++) {
    s->weight[j] = (uint64_t)mantissa[j] << 16 >> shift[j];
  }
}

/* The logits of a piece that a cut leaves and whose key's bits from `shift` on are `prefix`
 * (shift 32: all). */
static void gather(const row *r, int64_t piece, const rank_cut *c, int shift, uint32_t prefix,
                   selection *s)
{
  const float *z = r->z + piece * kPiece;
  const int64_t n = piece_length(r, piece);
  s->count = 0;
  for (int64_t j = 0; j < n; j++) {
    const uint32_t key = rank_key(z[j]);
    s->z[s->count] = z[j];
    s->offset[s->count] = (int32_t)j;
    s->count += is_kept(c, key, piece * kPiece + j) && (uint64_t)key >> shift == prefix;
  }
  /* weigh() takes whole vectors */
  for (int64_t j = s->count; j % TGI_LANES; j++) {
    s->z[j] = r->largest;
  }
}

/* Sums of the weights that a cut leaves, those below `least` counted 0. */
static uint64_t sum_weights(const row *r, const rank_cut *c, uint64_t least)
{
  uint64_t sum = 0;
  selection s;
  for (int64_t k = 0; k < r->pieces; k++) {
    uint64_t part = 0;
    gather(r, k, c, 32, 0, &s);
    weigh(r, &s);
    for (int64_t j = 0; j < s.count; j++) {
      part += s.weight[j] >= least ? s.weight[j] : 0;
    }
    r->sum[k] = part;
    sum += part;
  }
  return sum;
}

/* ---- cuts by rank ---- */

/* Counts, or sums of weights, of the keys that begin with `prefix`, by their next bits. */
static void fill_buckets(const row *r, const rank_cut *c, bool weights, int shift, int bits,
                         uint32_t prefix)
{
  const uint32_t mask = (1u << bits) - 1;
  selection s;
  memset(r->bucket, 0, kBuckets * sizeof *r->bucket);
  for (int64_t k = 0; k < r->pieces; k++) {
    gather(r, k, c, shift + bits, prefix, &s);
    if (weights) {
      weigh(r, &s);
    }
    for (int64_t j = 0; j < s.count; j++) {
      r->bucket[rank_key(s.z[j]) >> shift & mask] += weights ? s.weight[j] : 1;
    }
  }
}

/* The id at which keys equal to `key` have brought `sum` to the goal. */
static int64_t find_last(const row *r, uint32_t key, uint64_t each, uint64_t sum, uint64_t goal)
{
  int64_t id = -1;
  while (sum < goal) {
    id++;
    sum += rank_key(r->z[id]) == key ? each : 0;
  }
  return id;
}

/* Leaves the first by rank that amount to `goal` or more. */
static void narrow(const row *r, rank_cut *c, bool weights, uint64_t goal)
{
  static const int kShift[] = {21, 10, 0}, kBits[] = {11, 11, 10};
  uint32_t prefix = 0;
  uint64_t sum = 0;
  for (int level = 0; level < 3; level++) {
    uint32_t b = (1u << kBits[level]) - 1;
    fill_buckets(r, c, weights, kShift[level], kBits[level], prefix);
    while (sum + r->bucket[b] < goal) {
      sum += r->bucket[b--];
    }
    prefix = prefix << kBits[level] | b;
  }
  selection one = {.count = 1};
  for (int k = 0; k < TGI_LANES; k++) {
    one.z[k] = key_value(prefix);
  }
  weigh(r, &one);
  c->last = find_last(r, prefix, weights ? one.weight[0] : 1, sum, goal);
  c->key = prefix;
}

/* ---- one row ---- */

static int64_t find_mark(const row *r, const rank_cut *c, uint64_t least, uint64_t mark)
{
  int64_t piece = 0, j = 0;
  selection s = {.count = 0};
  while (mark >= r->sum[piece]) {
    mark -= r->sum[piece++];
  }
  gather(r, piece, c, 32, 0, &s);
  weigh(r, &s);
  for (;; j++) {
    const uint64_t w = s.weight[j] >= least ? s.weight[j] : 0;
    if (mark < w) {
      return piece * kPiece + s.offset[j];
    }
    mark -= w;
  }
}

static void pick(const row *r)
{
  const tg_sample_fwd_args *a = r->a;
  const uint64_t least = share_of(a->min_p, 1ull << 40);
  rank_cut c = {0, 0};
  if (a->top_k > 0 && a->top_k < r->vocab) {
    narrow(r, &c, false, (uint64_t)a->top_k);
  }
  if (a->top_p > 0 && a->top_p < 1) {
    narrow(r, &c, true, share_of(a->top_p, sum_weights(r, &c, 0)));
  }
  const uint64_t sum = sum_weights(r, &c, least);
  const int64_t id = find_mark(r, &c, least, draw_mark(a, r->index, sum));
  const double shifted = ((double)r->z[id] - (double)r->largest) / (double)a->temperature;
  put_picked(a, r->index, id, shifted - log((double)sum * 0x1p-40));
}

/* ---- the call ---- */

typedef struct layout {
  size_t sum, bucket, piece_largest, bytes; /* offsets in a thread's memory, after z; its size */
} layout;

static size_t after(size_t offset, size_t bytes)
{
  return offset + (bytes + 63) / 64 * 64;
}

static layout lay_out(int64_t vocab)
{
  const size_t pieces = (size_t)((vocab + kPiece - 1) / kPiece);
  layout l;
  l.sum = after(0, (size_t)vocab * sizeof(float));
  l.bucket = after(l.sum, pieces * sizeof(uint64_t));
  l.piece_largest = after(l.bucket, kBuckets * sizeof(uint64_t));
  l.bytes = after(l.piece_largest, pieces * sizeof(float));
  return l;
}

static void sample_rows(void *arg, int64_t begin, int64_t end, int thread)
{
  const tg_sample_fwd_args *a = arg;
  const layout l = lay_out(a->logits.shape[1]);
  char *memory = (char *)a->workspace + (size_t)thread * l.bytes;
  for (int64_t i = begin; i < end; i++) {
    row r = {.a = a,
             .index = i,
             .vocab = a->logits.shape[1],
             .z = (float *)(void *)memory,
             .sum = (uint64_t *)(void *)(memory + l.sum),
             .bucket = (uint64_t *)(void *)(memory + l.bucket),
             .piece_largest = (float *)(void *)(memory + l.piece_largest)};
    r.pieces = (r.vocab + kPiece - 1) / kPiece;
    read_row(&r);
    if (!can_sample(r.largest)) {
      put_picked(a, i, -1, NAN);
    } else if (a->temperature == 0) {
      put_picked(a, i, find_largest(&r), 0);
    } else {
      pick(&r);
    }
  }
}

size_t TGI_WORKSPACE(sample_fwd)(const tg_context *ctx, const tg_sample_fwd_args *a)
{
  return (size_t)ctx->num_threads * lay_out(a->logits.shape[1]).bytes;
}

tg_status TGI_KERNEL(sample_fwd)(const tg_context *ctx, const tg_sample_fwd_args *a)
{
  tg_sample_fwd_args args = *a;
  const tg_status status = check_history(ctx, a);
  if (status != TG_OK) {
    return status;
  }
  tgi_for(ctx, a->logits.shape[0], 1, sample_rows, &args);
  return report_rows(ctx, a);
}

void TGI_PLAN(sample_fwd)(const tg_context *ctx, const tg_sample_fwd_args *a, char *text,
                          size_t bytes)
{
  (void)ctx;
  snprintf(text, bytes, "rows in pieces of %d, %s", kPiece,
           a->temperature == 0 ? "largest" : "weighed");
}

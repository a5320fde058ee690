/* Attention forward on the CPU: few rows, as in decoding.
 *
 * Method     Running softmax (arXiv:1805.02867) over tiles of 64 keys. Up to kRowsAtOnce rows of a
 *            head that see the same keys of a tile are computed together: their scores are dot
 *            products along head_dim, the softmax runs along the keys, and values are accumulated
 *            in registers. Keys and values are read in place, in their own dtype, and widened once
 *            for all rows of a group.
 * Order      Memory is read sequentially: where the heads of a key are adjacent, a few keys are
 *            processed for all heads before the next few. What is kAheadBytes ahead is prefetched;
 *            sequential reads also trigger the hardware prefetcher. Bits do not depend on the
 *            order.
 * Bound      Memory: each key and value is read once.
 */
#include "cpu/exp.h"
#include "cpu/tanh.h"
#include "ops/attention/cpu/attention_parts.h"

enum {
  kRowsAtOnce = TGI_LANES == 16 ? 4 : 2, /* as many accumulators as registers allow */
  kKeysAtOnce = 4,
  kValuesAtOnce = 8, /* between which the sums stay in the first-level cache */
  kVectorsAtOnce = 4,
  kGroups = 32,           /* groups of rows, whose scores are kept at once */
  kAheadBytes = 32 << 10, /* without: 63 % of the memory rate; 16 KiB are as good, 128 are not */
};

/* Keys or values of a tile: those of the first kv head, and the offset of the current one. */
typedef struct tile_rows {
  const void *const *row;
  int64_t offset; /* bytes */
} tile_rows;

TGI_INLINE const void *tile_row(tile_rows t, int64_t j)
{
  return (const char *)t.row[j] + t.offset;
}

TGI_INLINE void fetch_ahead(const void *row, int t, int64_t i)
{
  tgi_prefetch((const char *)row + kAheadBytes, t, i);
}

/* Rows of a head that see the same keys of a tile. */
typedef struct few {
  const float *q;       /* [rows][q_pitch] in the order of vf_load_apart, as o */
  tile_rows key, value; /* visible to the rows */
  int64_t rows, keys, head_dim, v_dim, q_pitch, v_pitch; /* rows: kRowsAtOnce, 2 or 1 */
  float softcap;
  float *o, *m, *l;
} few;

/* d[r][i] += q[r] . x[i], a vector of each */
TGI_INLINE void dot_step(vf d[kRowsAtOnce][kKeysAtOnce], const few *f, const vf *x, int64_t c,
                         int rows)
{
  TGI_UNROLLED(r, rows)
  {
    const vf q = vf_load_f32(f->q + r * f->q_pitch + c);
    TGI_UNROLLED(i, kKeysAtOnce)
    {
      d[r][i] = vf_fma(q, x[i], d[r][i]);
    }
  }
}

/* s[r][i] = q[r] . key[j + i]; rows is a constant. */
TGI_INLINE void dot_block(const few *f, int64_t j, int t, int rows, float *s)
{
  vf d[kRowsAtOnce][kKeysAtOnce], x[kKeysAtOnce], y[kKeysAtOnce];
  const void *key[kKeysAtOnce];
  int64_t c = 0;
  TGI_UNROLLED(i, kKeysAtOnce)
  {
    key[i] = tile_row(f->key, j + i);
    TGI_UNROLLED(r, rows)
    {
      d[r][i] = vf_zero();
    }
  }
  for (; c + 2 * TGI_LANES <= f->head_dim; c += 2 * TGI_LANES) {
    TGI_UNROLLED(i, kKeysAtOnce)
    {
      fetch_ahead(key[i], t, c);
      vf_load_apart(key[i], t, c, &x[i], &y[i]);
    }
    dot_step(d, f, x, c, rows);
    dot_step(d, f, y, c + TGI_LANES, rows);
  }
  for (; c < f->head_dim; c += TGI_LANES) {
    TGI_UNROLLED(i, kKeysAtOnce)
    {
      x[i] = vf_load_part(key[i], t, c, tgi_min_i64(TGI_LANES, f->head_dim - c));
    }
    dot_step(d, f, x, c, rows);
  }
  TGI_UNROLLED(r, rows)
  {
    vf_sums(d[r], s + r * kTileKeys);
  }
}

/* o[r][c ..) = o[r][c ..) * factor[r] + sum of p[r][j] * value[j][c ..), j in [begin, end): an even
 * number of vectors, or one of which `last` elements count. rows and vectors are constants. */
TGI_INLINE void add_values(const few *f, const float *p, const float *factor, int64_t begin,
                           int64_t end, int t, int64_t c, int rows, int vectors, int64_t last)
{
  vf sum[kRowsAtOnce][kVectorsAtOnce], x[kVectorsAtOnce];
  TGI_UNROLLED(r, rows)
  {
    TGI_UNROLLED(v, vectors)
    {
      sum[r][v] = vf_zero();
    }
  }
  for (int64_t j = begin; j < end; j++) {
    const void *value = tile_row(f->value, j);
    if (vectors == 1) {
      x[0] = vf_load_part(value, t, c, last);
    }
    TGI_UNROLLED(v, vectors / 2)
    {
      fetch_ahead(value, t, c + v * 2 * TGI_LANES);
      vf_load_apart(value, t, c + v * 2 * TGI_LANES, &x[2 * v], &x[2 * v + 1]);
    }
    TGI_UNROLLED(r, rows)
    {
      const vf e = vf_set1(p[r * kTileKeys + j]);
      TGI_UNROLLED(v, vectors)
      {
        sum[r][v] = vf_fma(e, x[v], sum[r][v]);
      }
    }
  }
  TGI_UNROLLED(r, rows)
  {
    TGI_UNROLLED(v, vectors)
    {
      float *o = f->o + r * f->v_pitch + c + v * TGI_LANES;
      vf_store_f32(o, vf_fma(vf_load_f32(o), vf_set1(factor[r]), sum[r][v]));
    }
  }
}

/* s[0 .. keys) of row r becomes e^(s - m), with zeros up to whole vectors; returns the factor of
 * what came before. */
static float softmax_row(const few *f, int64_t r, float *s)
{
  float *m = f->m + r, *l = f->l + r;
  const int64_t end = round_up(f->keys, TGI_LANES);
  for (int64_t j = f->keys; j < end; j++) {
    s[j] = 0;
  }
  for (int64_t j = 0; j < end && f->softcap > 0; j += TGI_LANES) {
    const vf capped = vf_tanh(vf_load_f32(s + j) * vf_set1(1.0f / f->softcap));
    vf_store_f32(s + j, capped * vf_set1(f->softcap));
  }
  for (int64_t j = f->keys; j < end; j++) {
    s[j] = -INFINITY;
  }
  vf greatest = vf_set1(*m), sum = vf_zero();
  for (int64_t j = 0; j < end; j += TGI_LANES) {
    greatest = vf_max(vf_load_f32(s + j), greatest); /* a NaN shows in the sum */
  }
  const float now = vf_hmax(greatest), base = now == -INFINITY ? 0 : now;
  for (int64_t j = 0; j < end; j += TGI_LANES) {
    const vf e = vf_exp(vf_load_f32(s + j) - vf_set1(base));
    vf_store_f32(s + j, e);
    sum = sum + e;
  }
  float factor[TGI_LANES];
  vf_store_f32(factor, vf_exp(vf_set1(*m - base)));
  *m = now;
  *l = *l * factor[0] + vf_sum(sum);
  return factor[0];
}

TGI_INLINE void add_block(const few *f, const float *p, const float *factor, int64_t begin,
                          int64_t end, int t, int rows)
{
  const int64_t wide = kVectorsAtOnce * TGI_LANES;
  int64_t c = 0;
  for (; c + wide <= f->v_dim; c += wide) {
    add_values(f, p, factor, begin, end, t, c, rows, kVectorsAtOnce, TGI_LANES);
  }
  for (; c + 2 * TGI_LANES <= f->v_dim; c += 2 * TGI_LANES) {
    add_values(f, p, factor, begin, end, t, c, rows, 2, TGI_LANES);
  }
  for (; c < f->v_dim; c += TGI_LANES) {
    add_values(f, p, factor, begin, end, t, c, rows, 1, tgi_min_i64(TGI_LANES, f->v_dim - c));
  }
}

/* Runs the statement with the constant ROWS equal to f->rows and T to the dtype. */
#define SWITCH_ROWS(f, dtype, T, ROWS, ...)                                                        \
  do {                                                                                             \
    if ((f)->rows == kRowsAtOnce) {                                                                \
      enum { ROWS = kRowsAtOnce };                                                                 \
      TGI_SWITCH_FLOAT(dtype, T, __VA_ARGS__);                                                     \
    } else if ((f)->rows == 2) {                                                                   \
      enum { ROWS = 2 };                                                                           \
      TGI_SWITCH_FLOAT(dtype, T, __VA_ARGS__);                                                     \
    } else {                                                                                       \
      enum { ROWS = 1 };                                                                           \
      TGI_SWITCH_FLOAT(dtype, T, __VA_ARGS__);                                                     \
    }                                                                                              \
  } while (0)

/* Scores of keys j .. j + kKeysAtOnce - 1, to s[row][j ..). */
static void score_keys(const few *f, int dtype, int64_t j, float *s)
{
  SWITCH_ROWS(f, dtype, T, R, dot_block(f, j, T, R, s + j));
}

/* Adds values [begin, end) to the sums so far times `factor`. */
static void add_some_values(const few *f, int dtype, const float *p, const float *factor,
                            int64_t begin, int64_t end)
{
  SWITCH_ROWS(f, dtype, T, R, add_block(f, p, factor, begin, end, T, R));
}

enum { kRoom = kTileKeys + kKeysAtOnce }; /* a row reads kKeysAtOnce, wherever it starts */

/* Addresses of keys [first, first + n) in t, the last repeated; of no keys, any address. */
static void find_keys(const attention_block *k, key_map map, int64_t first, int64_t n,
                      const void **to)
{
  for (int64_t j = 0; j < n; j++) {
    to[j] = key_at(k, map, first + j);
  }
  for (int64_t j = n; j < kRoom; j++) {
    to[j] = n > 0 ? to[n - 1] : map.base;
  }
}

/* Rows of q times `scale`, as f32 in the order of vf_load_apart; zeros up to whole vectors. */
static void load_queries(const attention_block *k, const tg_tensor *q, int64_t head, float scale,
                         float *to)
{
  const int64_t n = k->l->head_dim, pitch = padded(n);
  const row_map map = map_rows(k, q);
  const vf s = vf_set1(scale);
  for (int64_t r = 0; r < k->rows; r++) {
    const void *from = (char *)row_at(k, map, r) + head * k->l->group * map.head_bytes;
    float *row = to + r * pitch;
    int64_t c = 0;
    for (; c + 2 * TGI_LANES <= n; c += 2 * TGI_LANES) {
      vf x, y;
      TGI_SWITCH_FLOAT(q->dtype, T, vf_load_apart(from, T, c, &x, &y));
      vf_store_f32(row + c, x * s);
      vf_store_f32(row + c + TGI_LANES, y * s);
    }
    for (; c < n; c += TGI_LANES) {
      vf x;
      TGI_SWITCH_FLOAT(q->dtype, T, x = vf_load_part(from, T, c, tgi_min_i64(TGI_LANES, n - c)));
      vf_store_f32(row + c, x * s);
    }
  }
}

/* Reorders a row of n sums from the order of vf_load_apart to that of the elements. */
static void restore_order(float *row, int64_t n)
{
  for (int64_t c = 0; c + 2 * TGI_LANES <= n; c += 2 * TGI_LANES) {
    float two[2 * TGI_LANES];
    memcpy(two, row + c, sizeof two);
    for (int64_t i = 0; i < TGI_LANES; i++) {
      row[c + 2 * i] = two[i];
      row[c + 2 * i + 1] = two[TGI_LANES + i];
    }
  }
}

/* ---- all heads ---- */

/* The heads of a call, and the current tile. */
typedef struct few_heads {
  const attention_block *k;
  const tg_attention_fwd_args *a;
  const float *q; /* [heads][rows][padded(head_dim)] */
  float *to;
  int64_t to_pitch;
  int64_t first, stop;
  const void *key[kRoom], *value[kRoom];
} few_heads;

/* Writes the groups of a head's rows that see the same keys of the tile to f; returns their number.
 */
static int group_rows(const few_heads *w, int64_t head, few *f)
{
  const attention_block *k = w->k;
  const int64_t q_pitch = padded(k->l->head_dim), v_pitch = padded(k->l->v_dim);
  const int64_t bytes = (int64_t)tg_dtype_bytes(w->a->k.dtype);
  float *to = w->to + head * w->to_pitch;
  int count = 0;
  for (int64_t r = 0, taken; r < k->rows; r += taken) {
    const int64_t low = max_i64(k->low[r], w->first), high = tgi_min_i64(k->high[r], w->stop);
    const int64_t alike = rows_alike(k, r, w->first, w->stop);
    taken = low >= high ? 1 : alike >= kRowsAtOnce ? kRowsAtOnce : alike >= 2 ? 2 : 1;
    if (low < high) {
      f[count++] =
          (few){.q = w->q + (head * k->rows + r) * q_pitch,
                .key = {w->key + (low - w->first), head * tgi_stride(&w->a->k, 2) * bytes},
                .value = {w->value + (low - w->first), head * tgi_stride(&w->a->v, 2) * bytes},
                .rows = taken,
                .keys = high - low,
                .head_dim = k->l->head_dim,
                .v_dim = k->l->v_dim,
                .q_pitch = q_pitch,
                .v_pitch = v_pitch,
                .softcap = w->a->softcap,
                .o = to + r * v_pitch,
                .m = to + k->rows * v_pitch + r,
                .l = to + k->rows * (v_pitch + 1) + r};
    }
  }
  return count;
}

/* Computes heads [begin, end) of the tile; their groups are at most kGroups. */
static void attend_heads(const few_heads *w, int64_t begin, int64_t end)
{
  const int dtype = w->a->k.dtype;
  const int64_t keys = w->stop - w->first;
  float s[kGroups][kRowsAtOnce * kTileKeys], factor[kGroups][kRowsAtOnce];
  few f[kGroups];
  int groups = 0;
  for (int64_t head = begin; head < end; head++) {
    groups += group_rows(w, head, f + groups);
  }
  for (int64_t j = 0; j < keys; j += kKeysAtOnce) {
    for (int g = 0; g < groups; g++) {
      if (j < f[g].keys) {
        score_keys(&f[g], dtype, j, s[g]);
      }
    }
  }
  for (int g = 0; g < groups; g++) {
    for (int64_t r = 0; r < f[g].rows; r++) {
      factor[g][r] = softmax_row(&f[g], r, s[g] + r * kTileKeys);
    }
  }
  for (int64_t j = 0; j < keys; j += kValuesAtOnce) {
    static const float ones[4] = {1, 1, 1, 1};
    for (int g = 0; g < groups; g++) {
      if (j < f[g].keys) {
        add_some_values(&f[g], dtype, s[g], j == 0 ? factor[g] : ones, j,
                        tgi_min_i64(j + kValuesAtOnce, f[g].keys));
      }
    }
  }
}

static void begin_heads(const few_heads *w, int64_t heads, float *q)
{
  const attention_block *k = w->k;
  const int64_t rows = k->rows, v_pitch = padded(k->l->v_dim);
  for (int64_t head = 0; head < heads; head++) {
    float *to = w->to + head * w->to_pitch;
    load_queries(k, &w->a->q, head, w->a->scale, q + head * rows * padded(k->l->head_dim));
    memset(to, 0, (size_t)(rows * v_pitch) * sizeof *to);
    for (int64_t r = 0; r < rows; r++) {
      to[rows * v_pitch + r] = -INFINITY;
      to[rows * (v_pitch + 1) + r] = 0;
    }
  }
}

/* Heads that are computed together: as many as are adjacent in memory. */
static int64_t heads_together(const attention_block *k, const tg_attention_fwd_args *a)
{
  const bool neighbours = tgi_stride(&a->k, 2) < tgi_stride(&a->k, 1);
  return neighbours ? kGroups / k->rows : 1;
}

void TGI_KERNEL(attention_few)(const attention_block *k, int64_t heads,
                               const tg_attention_fwd_args *a, int64_t begin, int64_t end,
                               float *scratch, float *to, int64_t to_pitch)
{
  const key_map key_rows = map_keys(k, &a->k), value_rows = map_keys(k, &a->v);
  const int64_t together = heads_together(k, a);
  few_heads w = {.k = k, .a = a, .q = scratch, .to = to, .to_pitch = to_pitch};
  begin_heads(&w, heads, scratch);
  end = tgi_min_i64(end, k->end);
  for (w.first = max_i64(begin, k->begin); w.first < end; w.first = w.stop) {
    w.stop = tgi_min_i64(w.first + kTileKeys, end);
    find_keys(k, key_rows, w.first, w.stop - w.first, w.key);
    find_keys(k, value_rows, w.first, w.stop - w.first, w.value);
    for (int64_t head = 0; head < heads; head += together) {
      attend_heads(&w, head, tgi_min_i64(head + together, heads));
    }
  }
  for (int64_t r = 0; r < heads * k->rows && a->k.dtype == TG_BF16; r++) {
    restore_order(to + r / k->rows * to_pitch + r % k->rows * padded(k->l->v_dim), k->l->v_dim);
  }
}

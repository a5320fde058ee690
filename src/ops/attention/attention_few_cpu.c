/* Attention forward on the CPU: few rows, as in decoding.
 *
 * Method     Keys are taken in tiles of 64. Rows that see the same keys of a tile go together, up
 * to kRowsAtOnce: their scores are dot products along head_dim, a running softmax goes along the
 * keys, and the values are added with the sums in registers. Keys and values are read where they
 * lie, in their own dtype, and widened once for all rows that go together. Bound      Memory: each
 * key and value is read once.
 */
#include "cpu/exp.h"
#include "cpu/tanh.h"
#include "ops/attention/attention_parts.h"

enum {
  kRowsAtOnce = TGI_LANES == 16 ? 4 : 2, /* as many sums as there are registers for */
  kKeysAtOnce = 4,
  kVectorsAtOnce = 4,
};

/* The next tile, fetched in the order of memory, a head's row at a time: rows of one head may lie
 * far apart, and only neighbours that follow one another wake the hardware's own fetching, which
 * has more lines under way than a core can ask for. */
typedef struct fetch {
  const void *const *row; /* of the first head */
  int64_t rows, head, heads, head_bytes, bytes;
} fetch;

TGI_INLINE void fetch_one(fetch *f)
{
  const char *at_head = (const char *)*f->row + f->head * f->head_bytes;
  for (int64_t i = 0; i < f->bytes && f->rows > 0; i += 64) {
    __builtin_prefetch(at_head + i, 0, 2);
  }
  f->head++;
  if (f->head == f->heads) {
    f->head = 0;
    f->row++;
    f->rows--;
  }
}

/* Keys or values of a tile: those of the first kv head, and the way to the one that is meant. */
typedef struct tile_rows {
  const void *const *row;
  int64_t offset; /* bytes */
} tile_rows;

TGI_INLINE const void *tile_row(tile_rows t, int64_t j)
{
  return (const char *)t.row[j] + t.offset;
}

/* Rows of a head that see the same keys of a tile. */
typedef struct few {
  const float *q;               /* [rows][q_pitch] in the order of vf_load_apart, as o */
  tile_rows key, value;         /* that the rows see */
  fetch *next_key, *next_value; /* NULL: not by these rows */
  int64_t keys, head_dim, v_dim, q_pitch, v_pitch;
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

/* o[r][c ..) = o[r][c ..) * factor[r] + sum_j p[r][j] * value[j][c ..): an even number of vectors,
 * or one of which `last` elements count. rows and vectors are constants. */
TGI_INLINE void add_values(const few *f, const float *p, const float *factor, int t, int64_t c,
                           int rows, int vectors, int64_t last)
{
  vf sum[kRowsAtOnce][kVectorsAtOnce], x[kVectorsAtOnce];
  TGI_UNROLLED(r, rows)
  {
    TGI_UNROLLED(v, vectors)
    {
      sum[r][v] = vf_zero();
    }
  }
  for (int64_t j = 0; j < f->keys; j++) {
    const void *value = tile_row(f->value, j);
    if (c == 0 && f->next_value) {
      fetch_one(f->next_value);
    }
    if (vectors == 1) {
      x[0] = vf_load_part(value, t, c, last);
    }
    TGI_UNROLLED(v, vectors / 2)
    {
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

TGI_INLINE void attend_as(const few *f, int t, int rows)
{
  const int64_t wide = kVectorsAtOnce * TGI_LANES;
  float s[kRowsAtOnce * kTileKeys], factor[kRowsAtOnce];
  for (int64_t j = 0; j < f->keys; j += kKeysAtOnce) {
    for (int64_t i = j; i < tgi_min_i64(j + kKeysAtOnce, f->keys) && f->next_key; i++) {
      fetch_one(f->next_key);
    }
    dot_block(f, j, t, rows, s + j);
  }
  for (int64_t r = 0; r < rows; r++) {
    factor[r] = softmax_row(f, r, s + r * kTileKeys);
  }
  int64_t c = 0;
  for (; c + wide <= f->v_dim; c += wide) {
    add_values(f, s, factor, t, c, rows, kVectorsAtOnce, TGI_LANES);
  }
  for (; c + 2 * TGI_LANES <= f->v_dim; c += 2 * TGI_LANES) {
    add_values(f, s, factor, t, c, rows, 2, TGI_LANES);
  }
  for (; c < f->v_dim; c += TGI_LANES) {
    add_values(f, s, factor, t, c, rows, 1, tgi_min_i64(TGI_LANES, f->v_dim - c));
  }
}

/* Takes as many of the first `rows` rows as go together; returns their number. */
static int64_t attend(const few *f, int dtype, int64_t rows)
{
  if (rows >= kRowsAtOnce) {
    TGI_SWITCH_FLOAT(dtype, T, attend_as(f, T, kRowsAtOnce));
    return kRowsAtOnce;
  }
  if (rows >= 2) {
    TGI_SWITCH_FLOAT(dtype, T, attend_as(f, T, 2));
    return 2;
  }
  TGI_SWITCH_FLOAT(dtype, T, attend_as(f, T, 1));
  return 1;
}

enum { kRoom = kTileKeys + kKeysAtOnce }; /* a row takes kKeysAtOnce, wherever it starts */

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

/* Rows from r on that see the same keys of [first, stop) as r. */
static int64_t rows_alike(const attention_block *k, int64_t r, int64_t first, int64_t stop)
{
  int64_t n = 1;
  while (r + n < k->rows && max_i64(k->low[r + n], first) == max_i64(k->low[r], first) &&
         tgi_min_i64(k->high[r + n], stop) == tgi_min_i64(k->high[r], stop)) {
    n++;
  }
  return n;
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

/* A row of n sums from the order of vf_load_apart to that of the elements. */
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

/* The heads of a call, and the tile that it is at. */
typedef struct few_heads {
  const attention_block *k;
  const tg_attention_fwd_args *a;
  const float *q; /* [heads][rows][padded(head_dim)] */
  float *to;
  int64_t to_pitch;
  int64_t first, stop;
  const void **key, **value;
  fetch next_key, next_value;
} few_heads;

static void attend_head(few_heads *w, int64_t head)
{
  const attention_block *k = w->k;
  const int64_t q_pitch = padded(k->l->head_dim), v_pitch = padded(k->l->v_dim);
  const int64_t bytes = (int64_t)tg_dtype_bytes(w->a->k.dtype);
  float *to = w->to + head * w->to_pitch;
  for (int64_t r = 0, taken; r < k->rows; r += taken) {
    const int64_t low = max_i64(k->low[r], w->first), high = tgi_min_i64(k->high[r], w->stop);
    const int64_t skipped = low - w->first;
    const few f = {.q = w->q + (head * k->rows + r) * q_pitch,
                   .key = {w->key + skipped, head * tgi_stride(&w->a->k, 2) * bytes},
                   .value = {w->value + skipped, head * tgi_stride(&w->a->v, 2) * bytes},
                   .next_key = r == 0 ? &w->next_key : NULL,
                   .next_value = r == 0 ? &w->next_value : NULL,
                   .keys = high - low,
                   .head_dim = k->l->head_dim,
                   .v_dim = k->l->v_dim,
                   .q_pitch = q_pitch,
                   .v_pitch = v_pitch,
                   .softcap = w->a->softcap,
                   .o = to + r * v_pitch,
                   .m = to + k->rows * v_pitch + r,
                   .l = to + k->rows * (v_pitch + 1) + r};
    taken = low < high ? attend(&f, w->a->k.dtype, rows_alike(k, r, w->first, w->stop)) : 1;
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

/* Rows of a tile of t as they will be fetched. */
static fetch fetch_of(const tg_tensor *t, const void *const *row, int64_t rows, int64_t heads)
{
  const int64_t bytes = (int64_t)tg_dtype_bytes(t->dtype);
  return (fetch){.row = row,
                 .rows = rows,
                 .heads = heads,
                 .head_bytes = tgi_stride(t, 2) * bytes,
                 .bytes = t->shape[3] * bytes};
}

void TGI_KERNEL(attention_few)(const attention_block *k, int64_t heads,
                               const tg_attention_fwd_args *a, int64_t begin, int64_t end,
                               float *scratch, float *to, int64_t to_pitch)
{
  const key_map key_rows = map_keys(k, &a->k), value_rows = map_keys(k, &a->v);
  const void *keys[2][kRoom], *values[2][kRoom];
  few_heads w = {.k = k, .a = a, .q = scratch, .to = to, .to_pitch = to_pitch};
  begin_heads(&w, heads, scratch);
  w.first = max_i64(begin, k->begin);
  end = tgi_min_i64(end, k->end);
  int64_t count = max_i64(tgi_min_i64(kTileKeys, end - w.first), 0);
  find_keys(k, key_rows, w.first, count, keys[0]);
  find_keys(k, value_rows, w.first, count, values[0]);
  for (int64_t tile = 0; w.first < end; tile++, w.first = w.stop) {
    const void **next_key = keys[(tile + 1) % 2], **next_value = values[(tile + 1) % 2];
    w.stop = w.first + count;
    w.key = keys[tile % 2];
    w.value = values[tile % 2];
    count = tgi_min_i64(kTileKeys, end - w.stop);
    find_keys(k, key_rows, w.stop, count, next_key);
    find_keys(k, value_rows, w.stop, count, next_value);
    w.next_key = fetch_of(&a->k, next_key, count, heads);
    w.next_value = fetch_of(&a->v, next_value, count, heads);
    for (int64_t head = 0; head < heads; head++) {
      attend_head(&w, head);
    }
  }
  for (int64_t r = 0; r < heads * k->rows && a->k.dtype == TG_BF16; r++) {
    restore_order(to + r / k->rows * to_pitch + r % k->rows * padded(k->l->v_dim), k->l->v_dim);
  }
}

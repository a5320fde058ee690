/* Attention forward on the CPU: few rows, as in decoding.
 *
 * Method     Keys are taken in tiles of 64. Every row makes its scores as dot products along
 *            head_dim, a running softmax along the keys, and adds the values with its sums in
 *            registers. Keys and values are read where they lie, in their own dtype; the rows of
 *            one kv head pass over a tile while it is in the nearest cache.
 * Bound      Memory: each key and value is read once.
 */
#include "cpu/exp.h"
#include "cpu/tanh.h"
#include "ops/attention/attention_parts.h"

enum { kKeysAtOnce = 4, kVectorsAtOnce = 4 };

/* Rows lie far apart, often each on a page of its own, where no hardware looks ahead. While a
 * tile's scores are made its values are fetched, and while its values are added the next tile's
 * keys. */
TGI_INLINE void fetch_row(const void *row, int64_t bytes)
{
  for (int64_t i = 0; i < bytes; i += 64) {
    __builtin_prefetch((const char *)row + i, 0, 2);
  }
}

/* Dot products of q with the rows of four keys. */
TGI_INLINE void dot_four(const float *q, const void *const *key, int t, int64_t n, float *s)
{
  vf d0 = vf_zero(), d1 = vf_zero(), d2 = vf_zero(), d3 = vf_zero();
  int64_t c = 0;
  for (; c + TGI_LANES <= n; c += TGI_LANES) {
    const vf x = vf_load_f32(q + c);
    d0 = vf_fma(x, vf_load(key[0], t, c), d0);
    d1 = vf_fma(x, vf_load(key[1], t, c), d1);
    d2 = vf_fma(x, vf_load(key[2], t, c), d2);
    d3 = vf_fma(x, vf_load(key[3], t, c), d3);
  }
  if (c < n) {
    const vf x = vf_load_f32(q + c);
    d0 = vf_fma(x, vf_load_part(key[0], t, c, n - c), d0);
    d1 = vf_fma(x, vf_load_part(key[1], t, c, n - c), d1);
    d2 = vf_fma(x, vf_load_part(key[2], t, c, n - c), d2);
    d3 = vf_fma(x, vf_load_part(key[3], t, c, n - c), d3);
  }
  s[0] = vf_sum(d0);
  s[1] = vf_sum(d1);
  s[2] = vf_sum(d2);
  s[3] = vf_sum(d3);
}

/* o[c ..) = o * factor + sum_j p[j] * value[j][c ..), kVectorsAtOnce vectors wide or one, of which
 * `last` elements count. */
TGI_INLINE void add_values(float *o, const float *p, const void *const *value, int t, int64_t c,
                           int64_t keys, float factor, int vectors, int64_t last)
{
  const vf f = vf_set1(factor);
  vf o0 = vf_load_f32(o + c) * f, o1 = vf_zero(), o2 = vf_zero(), o3 = vf_zero();
  if (vectors > 1) {
    o1 = vf_load_f32(o + c + TGI_LANES) * f;
    o2 = vf_load_f32(o + c + 2 * TGI_LANES) * f;
    o3 = vf_load_f32(o + c + 3 * TGI_LANES) * f;
  }
  for (int64_t j = 0; j < keys; j++) {
    const vf e = vf_set1(p[j]);
    if (vectors == 1) {
      o0 = vf_fma(
          e, last < TGI_LANES ? vf_load_part(value[j], t, c, last) : vf_load(value[j], t, c), o0);
    } else {
      o0 = vf_fma(e, vf_load(value[j], t, c), o0);
      o1 = vf_fma(e, vf_load(value[j], t, c + TGI_LANES), o1);
      o2 = vf_fma(e, vf_load(value[j], t, c + 2 * TGI_LANES), o2);
      o3 = vf_fma(e, vf_load(value[j], t, c + 3 * TGI_LANES), o3);
    }
  }
  vf_store_f32(o + c, o0);
  if (vectors > 1) {
    vf_store_f32(o + c + TGI_LANES, o1);
    vf_store_f32(o + c + 2 * TGI_LANES, o2);
    vf_store_f32(o + c + 3 * TGI_LANES, o3);
  }
}

/* One row's part of a tile. */
typedef struct few {
  const float *q;
  const void *const *key, *const *value; /* of the keys that the row sees */
  const void *const *next_key; /* of the next tile, to be fetched; NULL: not by this row */
  int64_t keys, head_dim, v_dim;
  float softcap;
  float *o, *m, *l;
} few;

/* s[0 .. keys) becomes e^(s - m), with zeros up to whole vectors; returns the factor of what came
 * before. */
static float softmax_row(const few *f, float *s)
{
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
  vf greatest = vf_set1(*f->m), sum = vf_zero();
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
  vf_store_f32(factor, vf_exp(vf_set1(*f->m - base)));
  *f->m = now;
  *f->l = *f->l * factor[0] + vf_sum(sum);
  return factor[0];
}

TGI_INLINE void attend_row_as(const few *f, int t)
{
  const int64_t bytes = t == TG_F32 ? 4 : 2, wide = kVectorsAtOnce * TGI_LANES;
  float s[kTileKeys];
  for (int64_t j = 0; j < f->keys; j += kKeysAtOnce) {
    for (int i = 0; i < kKeysAtOnce && f->next_key; i++) {
      fetch_row(f->value[j + i], f->v_dim * bytes);
    }
    dot_four(f->q, f->key + j, t, f->head_dim, s + j);
  }
  for (int64_t j = 0; j < kTileKeys && f->next_key; j++) {
    fetch_row(f->next_key[j], f->head_dim * bytes);
  }
  const float factor = softmax_row(f, s);
  int64_t c = 0;
  for (; c + wide <= f->v_dim; c += wide) {
    add_values(f->o, s, f->value, t, c, f->keys, factor, kVectorsAtOnce, TGI_LANES);
  }
  for (; c + TGI_LANES <= f->v_dim; c += TGI_LANES) {
    add_values(f->o, s, f->value, t, c, f->keys, factor, 1, TGI_LANES);
  }
  if (c < f->v_dim) {
    add_values(f->o, s, f->value, t, c, f->keys, factor, 1, f->v_dim - c);
  }
}

static void attend_row(const few *f, int dtype)
{
  TGI_SWITCH_FLOAT(dtype, T, attend_row_as(f, T));
}

/* Addresses of keys [first, first + n) in t, the last repeated up to `room`. */
static void find_keys(const attention_block *k, key_map map, int64_t first, int64_t n, int64_t room,
                      const void **to)
{
  for (int64_t j = 0; j < n; j++) {
    to[j] = key_at(k, map, first + j);
  }
  for (int64_t j = n; j < room; j++) {
    to[j] = n > 0 ? to[n - 1] : map.base;
  }
}

enum { kRoom = kTileKeys + kKeysAtOnce }; /* a row takes kKeysAtOnce, wherever it starts */

void TGI_KERNEL(attention_few)(const attention_block *k, const tg_attention_fwd_args *a,
                               int64_t begin, int64_t end, float *scratch, attention_sums *to)
{
  const int64_t q_pitch = padded(k->l->head_dim), v_pitch = padded(k->l->v_dim);
  const key_map key_rows = map_keys(k, &a->k), value_rows = map_keys(k, &a->v);
  const void *keys[2][kRoom], *values[kRoom];
  load_rows(k, &a->q, a->scale, scratch);
  memset(to->rows, 0, (size_t)(k->rows * v_pitch) * sizeof *to->rows);
  for (int64_t r = 0; r < kBlockRows; r++) {
    to->m[r] = -INFINITY;
    to->l[r] = 0;
  }
  begin = max_i64(begin, k->begin);
  end = tgi_min_i64(end, k->end);
  find_keys(k, key_rows, begin, tgi_min_i64(kTileKeys, max_i64(end - begin, 0)), kRoom, keys[0]);
  for (int64_t first = begin, tile = 0; first < end; first += kTileKeys, tile++) {
    const int64_t stop = tgi_min_i64(first + kTileKeys, end);
    const void **key = keys[tile % 2], **next = keys[(tile + 1) % 2];
    find_keys(k, value_rows, first, stop - first, kRoom, values);
    find_keys(k, key_rows, stop, tgi_min_i64(kTileKeys, end - stop), kRoom, next);
    for (int64_t r = 0; r < k->rows; r++) {
      const int64_t low = max_i64(k->low[r], first), high = tgi_min_i64(k->high[r], stop);
      const few f = {.q = scratch + r * q_pitch,
                     .key = key + (low - first),
                     .value = values + (low - first),
                     .next_key = r == 0 ? next : NULL,
                     .keys = high - low,
                     .head_dim = k->l->head_dim,
                     .v_dim = k->l->v_dim,
                     .softcap = a->softcap,
                     .o = to->rows + r * v_pitch,
                     .m = &to->m[r],
                     .l = &to->l[r]};
      if (low < high) {
        attend_row(&f, a->k.dtype);
      }
    }
  }
}

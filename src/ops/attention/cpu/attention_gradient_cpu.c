/* Attention backward on the CPU: a block of rows against tiles of keys.
 *
 * Method     As in the forward (arXiv:2307.08691, section 3.1), rows along the lanes: s = K Q^T and
 *            dp = V dout^T; from them p (with the saved lse) and ds = p (dp - delta); then dq^T +=
 *            K^T ds, dv += p dout, dk += ds q. A block's dq is complete after its last keys; dk and
 *            dv are the caller's f32 sums.
 * Bound      Arithmetic: 5 fused multiply-adds per pair and element of the heads.
 */
#include "cpu/exp.h"
#include "cpu/tanh.h"
#include "ops/attention/cpu/attention_gradient.h"

/* A block of rows and the current tile. */
typedef struct gradient {
  attention_block *k;
  const tg_attention_bwd_args *a;
  int64_t q_pitch, v_pitch;
  float *q_rows, *q, *dout_rows, *dout; /* dense rows; panels; q is scaled in both */
  float *out_rows, *out;                /* likewise */
  float *dq, *dq_rows;                  /* panels; rows */
  float *keys, *keys_clean, *values;    /* dense tiles; keys_clean is keys or a copy */
  float *s, *ds;                        /* [kTileKeys][kPanel]; s becomes p */
  const attention_sums_bwd *to;
  float lse[kBlockRows], delta[kBlockRows];
  held_rows held_keys, held_q, held_dout;
} gradient;

int64_t TGI_KERNEL(attention_gradient_scratch)(const tgi_attention_layout *l)
{
  const int64_t q_pitch = padded(l->head_dim), v_pitch = padded(l->v_dim);
  return 4 * kBlockRows * (q_pitch + v_pitch) + kTileKeys * (2 * q_pitch + v_pitch + 2 * kPanel);
}

static void carve(gradient *w, float *scratch)
{
  const int64_t q = kBlockRows * w->q_pitch, v = kBlockRows * w->v_pitch;
  w->q_rows = scratch;
  w->q = w->q_rows + q;
  w->dq = w->q + q;
  w->dq_rows = w->dq + q;
  w->dout_rows = w->dq_rows + q;
  w->dout = w->dout_rows + v;
  w->out_rows = w->dout + v;
  w->out = w->out_rows + v;
  w->keys = w->out + v;
  w->keys_clean = w->keys;
  w->values = w->keys + 2 * kTileKeys * w->q_pitch;
  w->s = w->values + kTileKeys * w->v_pitch;
  w->ds = w->s + kTileKeys * kPanel;
}

/* lse of the block's rows; rows without a probability see nothing. */
static void load_lse(gradient *w)
{
  attention_block *k = w->k;
  const float *lse = w->a->lse.data;
  for (int64_t r = 0; r < kBlockRows; r++) {
    w->lse[r] = r < k->rows ? lse[block_lse(k, r)] : 0;
    if (w->lse[r] == -INFINITY) {
      k->low[r] = k->high[r] = 0;
    }
  }
  block_ranges(k);
}

/* delta by the same operations as dp in the tile product: where a row sees one key, out is its
 * value and dp - delta is exactly 0. */
static void load_delta(gradient *w)
{
  load_rows(w->k, &w->a->out, 1, w->out_rows);
  rows_to_panels(w->out_rows, w->v_pitch, w->k->rows, w->out);
  for (int64_t r = 0; r < round_up(w->k->rows, TGI_LANES); r += TGI_LANES) {
    const int64_t at_r = r / kPanel * kPanel * w->v_pitch + r % kPanel;
    vf sum = vf_zero();
    for (int64_t c = 0; c < w->k->l->v_dim; c++) {
      const int64_t i = at_r + c * kPanel;
      sum = vf_fma(vf_load_f32(w->out + i), vf_load_f32(w->dout + i), sum);
    }
    vf_store_f32(w->delta + r, sum);
  }
}

/* dsinks of this block's rows, in f64: -e^(sink - lse) delta. */
static void add_sinks(const gradient *w, double *dsinks)
{
  const tg_attention_bwd_args *a = w->a;
  for (int64_t r = 0; r < w->k->rows; r++) {
    const int64_t head = w->k->head[r];
    if (w->lse[r] != -INFINITY) {
      const double sink = tgi_load(a->sinks.data, a->sinks.dtype, head);
      dsinks[head] -= exp(sink - (double)w->lse[r]) * (double)w->delta[r];
    }
  }
}

/* One vector of rows: s to p, ds from dp. */
TGI_INLINE void gradient_column(const strip *p, float *s, float *ds, float cap, bool masked,
                                bool capped, const float *lse, const float *delta)
{
  const vf l = vf_load_f32(lse), d = vf_load_f32(delta), zero = vf_zero();
  const vf c = vf_set1(cap), inverse = vf_set1(1.0f / cap), one = vf_set1(1.0f);
  for (int64_t j = p->j0; j < p->j1; j++) {
    vf score = vf_load_f32(s + j * kPanel), slope = one;
    if (capped) {
      const vf t = vf_tanh(score * inverse);
      score = t * c;
      slope = one - t * t;
    }
    vf e = vf_exp(score - l);
    vf g = e * (vf_load_f32(ds + j * kPanel) - d);
    if (capped) {
      g = g * slope;
    }
    if (masked) {
      e = where_visible(p, j, e, zero);
      g = where_visible(p, j, g, zero);
    }
    vf_store_f32(s + j * kPanel, e);
    vf_store_f32(ds + j * kPanel, g);
  }
}

static void gradient_strip(gradient *w, const strip *p)
{
  const float cap = w->a->softcap;
  for (int64_t v = 0; v < p->vectors; v++) {
    const int64_t row = p->row + v * TGI_LANES, lane = row % kPanel;
    float *s = w->s + lane, *ds = w->ds + lane;
    const float *lse = w->lse + row, *delta = w->delta + row;
    if (p->masked && cap > 0) {
      gradient_column(p, s, ds, cap, true, true, lse, delta);
    } else if (p->masked) {
      gradient_column(p, s, ds, 1, true, false, lse, delta);
    } else if (cap > 0) {
      gradient_column(p, s, ds, cap, false, true, lse, delta);
    } else {
      gradient_column(p, s, ds, 1, false, false, lse, delta);
    }
  }
}

static bool sees(const attention_block *k, int64_t r, int64_t key)
{
  return r < k->rows && key >= k->low[r] && key < k->high[r];
}

/* Adds the rows that hold_rows removed, pair by pair where visible: to[j or r] += weight[j][r] *
 * row. */
static void add_held_keys(const gradient *w, const strip *p, int64_t tile)
{
  const int64_t panel = p->row / kPanel * kPanel;
  for (int64_t h = 0; h < w->held_keys.count; h++) {
    const int64_t j = w->held_keys.index[h];
    for (int64_t r = p->row; j >= p->j0 && j < p->j1 && r < p->row + p->vectors * TGI_LANES; r++) {
      float *to = w->dq + panel * w->q_pitch + r % kPanel;
      const float weight = w->ds[j * kPanel + r % kPanel];
      for (int64_t c = 0; c < w->k->l->head_dim && sees(w->k, r, tile + j); c++) {
        to[c * kPanel] += weight * w->keys[j * w->q_pitch + c];
      }
    }
  }
}

static void add_held_rows(const gradient *w, const strip *p, int64_t tile, const held_rows *held,
                          const float *panels, int64_t pitch, int64_t width, const float *weights,
                          float *to)
{
  for (int64_t h = 0; h < held->count; h++) {
    const int64_t r = held->index[h], lane = r % kPanel;
    const float *row = panels + r / kPanel * kPanel * pitch + lane;
    if (r < p->row || r >= p->row + p->vectors * TGI_LANES) {
      continue;
    }
    for (int64_t j = p->j0; j < p->j1; j++) {
      for (int64_t c = 0; c < width && sees(w->k, r, tile + j); c++) {
        to[(tile + j) * pitch + c] += weights[j * kPanel + lane] * row[c * kPanel];
      }
    }
  }
}

/* Adds weights[j0 .. j1)[rows] times dense rows to the sums of the tile's keys. */
static void add_to_keys(const strip *p, int64_t tile, const float *weights, const float *rows,
                        int64_t pitch, float *to)
{
  tgi_tile_multiply((tgi_tile_product){.a = weights + p->j0 * kPanel + p->row % kPanel,
                                       .a_row = kPanel,
                                       .a_step = 1,
                                       .b = rows + p->row * pitch,
                                       .b_step = pitch,
                                       .c = to + (tile + p->j0) * pitch,
                                       .c_row = pitch,
                                       .rows = p->j1 - p->j0,
                                       .n = p->vectors * TGI_LANES,
                                       .start = TGI_TILE_ADD},
                    pitch / TGI_LANES);
}

static void score_product(const strip *p, const float *tile_rows, const float *panels,
                          int64_t pitch, int64_t width, float *to)
{
  tgi_tile_multiply(
      (tgi_tile_product){.a = tile_rows + p->j0 * pitch,
                         .a_row = pitch,
                         .a_step = 1,
                         .b = panels + p->row / kPanel * kPanel * pitch + p->row % kPanel,
                         .b_step = kPanel,
                         .c = to + p->j0 * kPanel + p->row % kPanel,
                         .c_row = kPanel,
                         .rows = p->j1 - p->j0,
                         .n = width,
                         .start = TGI_TILE_ZERO},
      p->vectors);
}

static void gradient_tile(void *arg, const strip *p, int64_t tile)
{
  gradient *w = arg;
  const int64_t panel = p->row / kPanel * kPanel, lane = p->row % kPanel;
  score_product(p, w->keys, w->q, w->q_pitch, w->k->l->head_dim, w->s);
  score_product(p, w->values, w->dout, w->v_pitch, w->k->l->v_dim, w->ds);
  gradient_strip(w, p);
  if (tgi_present(&w->a->dq)) {
    tgi_tile_multiply((tgi_tile_product){.a = w->keys_clean + p->j0 * w->q_pitch,
                                         .a_row = 1,
                                         .a_step = w->q_pitch,
                                         .b = w->ds + p->j0 * kPanel + lane,
                                         .b_step = kPanel,
                                         .c = w->dq + panel * w->q_pitch + lane,
                                         .c_row = kPanel,
                                         .rows = round_up(w->k->l->head_dim, TGI_TILE_ROWS),
                                         .n = p->j1 - p->j0,
                                         .start = TGI_TILE_ADD},
                      p->vectors);
    add_held_keys(w, p, tile);
  }
  if (w->to->dv) {
    add_to_keys(p, tile, w->s, w->dout_rows, w->v_pitch, w->to->dv);
    add_held_rows(w, p, tile, &w->held_dout, w->dout, w->v_pitch, w->k->l->v_dim, w->s, w->to->dv);
  }
  if (w->to->dk) {
    add_to_keys(p, tile, w->ds, w->q_rows, w->q_pitch, w->to->dk);
    add_held_rows(w, p, tile, &w->held_q, w->q, w->q_pitch, w->k->l->head_dim, w->ds, w->to->dk);
  }
}

/* keys_clean: the tile without rows that hold a NaN or an infinity, for the product that sums over
 * keys. */
static void clean_keys(gradient *w, int64_t keys)
{
  const size_t bytes = (size_t)(kTileKeys * w->q_pitch) * sizeof *w->keys;
  w->keys_clean = w->keys + kTileKeys * w->q_pitch;
  memcpy(w->keys_clean, w->keys, bytes);
  hold_rows(w->keys_clean, keys, w->q_pitch, &w->held_keys);
}

static void write_dq(const gradient *w)
{
  const tg_attention_bwd_args *a = w->a;
  const row_map dq = map_rows(w->k, &a->dq);
  panels_to_rows(w->dq, w->q_pitch, w->k->rows, w->dq_rows);
  for (int64_t r = 0; r < w->k->rows; r++) {
    narrow_row(row_at(w->k, dq, r), a->dq.dtype, w->dq_rows + r * w->q_pitch, w->k->l->head_dim,
               a->scale);
  }
}

void TGI_KERNEL(attention_gradient)(attention_block *k, const tg_attention_bwd_args *a,
                                    float *scratch, const attention_sums_bwd *to)
{
  gradient w = {.k = k, .a = a, .q_pitch = padded(k->l->head_dim), .v_pitch = padded(k->l->v_dim)};
  w.to = to;
  carve(&w, scratch);
  const bool bad_q = load_rows(k, &a->q, a->scale, w.q_rows);
  const bool bad_dout = load_rows(k, &a->dout, 1, w.dout_rows);
  load_lse(&w);
  rows_to_panels(w.q_rows, w.q_pitch, k->rows, w.q);
  rows_to_panels(w.dout_rows, w.v_pitch, k->rows, w.dout);
  load_delta(&w);
  if (bad_q) {
    hold_rows(w.q_rows, k->rows, w.q_pitch, &w.held_q);
  }
  if (bad_dout) {
    hold_rows(w.dout_rows, k->rows, w.v_pitch, &w.held_dout);
  }
  memset(w.dq, 0, (size_t)(kBlockRows * w.q_pitch) * sizeof *w.dq);
  for (int64_t tile = k->begin / kTileKeys * kTileKeys; tile < k->end; tile += kTileKeys) {
    const int64_t keys = tgi_min_i64(kTileKeys, k->s.count - tile);
    w.held_keys.count = 0;
    w.keys_clean = w.keys;
    if (load_keys(k, &a->k, tile, keys, w.keys)) {
      clean_keys(&w, keys);
    }
    load_keys(k, &a->v, tile, keys, w.values);
    each_strip(k, tile, keys, gradient_tile, &w);
  }
  if (tgi_present(&a->dq)) {
    write_dq(&w);
  }
  if (to->dsinks) {
    add_sinks(&w, to->dsinks);
  }
}
